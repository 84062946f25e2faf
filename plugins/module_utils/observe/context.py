# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything one module call of the fleet family works with, opened once: cluster, records, documents, clouds, mesh, lock.

Nothing is connected before it is needed, so a refusal of the documents costs no call, and a cloud that is down hurts only itself.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ..core.clock import Clock, others_ahead
from ..core.progress import Progress
from ..core.task import Task
from ..kube.client import Kube
from ..kube.secrets import read_secret
from ..model import NodeClass, Pool, Wishes
from ..model.defaults import Settings
from ..model.spec import DRAIN_TIMEOUT
from ..planner import clock_skew
from ..providers.registry import CAPABILITIES
from ..store.records import ClaimStore
from .clients import Clients, Once
from .records import Records


class Lock(t.Protocol):
    """What acting code needs of the run lock."""

    def renew_if_due(self) -> None: ...

    def confirm(self) -> None: ...


class NoLock:
    """For runs that only read."""

    def renew_if_due(self) -> None:
        """Nothing is held."""

    def confirm(self) -> None:
        """Nothing is held."""


class Clocks:
    """How far our clock is from those of the API server and the clouds, by their answers since ``began`` (core/task.py)."""

    def __init__(self, clock: Clock, began: float) -> None:
        self._clock = clock
        self._began = began

    def offset(self) -> tuple[str, float] | None:
        """Whose clock (the API server's, a cloud's) differs most from ours, and by how many seconds it is ahead; None when none has said."""
        return others_ahead(self._clock, {"kubernetes", *CAPABILITIES}, self._began)

    def problem(self) -> str:
        """What is to be said of our clock when it is wrong (L-27); empty when it is right, or not known to be wrong."""
        source, offset = self.offset() or ("", 0.0)
        return clock_skew.told(offset, source) if clock_skew.is_wrong(offset) else ""

    def billed_now(self) -> datetime:
        """The moment by the clock of those who write the bills, where ours is known to be wrong."""
        _source, offset = self.offset() or ("", 0.0)
        return self._clock.now() + timedelta(seconds=offset if clock_skew.is_wrong(offset) else 0.0)


@dataclasses.dataclass
class Context:
    """One opened world. ``wishes`` may be empty (a teardown needs no documents).

    ``records``: what is written beside the claims; ``clients``: clouds and mesh; ``clocks``: those of others; ``once``: other values that are
    read once per call.
    """

    task: Task
    kube: Kube
    store: ClaimStore
    wishes: Wishes
    settings: Settings
    cluster_id: str
    run_id: str
    progress: Progress
    lock: Lock = dataclasses.field(default_factory=NoLock)

    def __post_init__(self) -> None:
        self.clock = self.task.clock
        self.once = Once()
        self.clocks = Clocks(self.clock, self.task.began)
        self.records = Records(self.store, self.clock, self.cluster_id, self.warn)
        self.clients = Clients(self.task, self.kube, lambda: self.wishes, self.records.known_claims)

    def drain_timeout(self, pool: Pool | None) -> int:
        return pool.drain_timeout if pool else DRAIN_TIMEOUT

    def template_of(self, node_class: NodeClass) -> str | None:
        """The Talos template of a class: inline, or a key of a Kubernetes Secret; None when it has none."""
        if node_class.template is not None or node_class.template_ref is None:
            return node_class.template
        ref = node_class.template_ref
        return self.once(("template", ref), lambda: read_secret(self.kube, ref.namespace, ref.name, ref.key))

    def warn(self, text: str) -> None:
        self.task.warn(text)

    def refresh(self) -> None:
        """Forget what was read before another run ended that this one waited for."""
        self.clients.refresh()
        self.records.refresh()

    def close(self) -> None:
        self.clients.close()
