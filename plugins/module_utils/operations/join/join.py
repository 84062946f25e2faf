# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows rented machines until they are usable: nodes in node.py, services in service.py, side by side, and each from the moment it is
rented."""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

from ...model import Claim, Phase
from ...observe.context import Context
from .node import NodeJoins
from .service import ServiceJoins
from .tracker import Joined, JoinTracker

__all__ = ["Joined", "Joins", "join_all"]


def join_all(context: Context, claims: t.Sequence[Claim]) -> list[Joined]:
    """Wait for all at once; returns one outcome per claim. Those that are Ready already only lose what let them in."""
    joins = Joins(context)
    for claim in claims:
        joins.add(claim)
    joins.close()
    return joins.run()


class Joins:
    """The joins of one step, which other threads may extend by :meth:`add` until :meth:`close`. ``to_come`` are claims that may be added
    when they are rented."""

    def __init__(self, context: Context, to_come: t.Iterable[Claim] = ()) -> None:
        self._tracker = JoinTracker(context)
        self._nodes = NodeJoins(self._tracker, to_come)
        self._services = ServiceJoins(self._tracker)
        self._guard = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="services")
        self._serving: Future[None] | None = None

    def add(self, claim: Claim) -> None:
        """From any thread: follow this one, too."""
        self._tracker.track(claim)
        if claim.phase is Phase.READY:
            return
        if not claim.is_service:
            self._nodes.add(claim)
            return
        self._services.add(claim)
        with self._guard:
            if self._serving is None:
                self._serving = self._pool.submit(self._services.run)

    def close(self) -> None:
        """From any thread: nothing more is added."""
        self._nodes.close()
        self._services.close()

    def run(self) -> list[Joined]:
        """Returns when the joins are closed and all have ended: one outcome per claim, in the order in which they were added."""
        with self._tracker, self._pool:
            try:
                self._nodes.run()
            finally:
                self._services.close()  # a wait that failed is not to hang on the other
            if self._serving is not None:
                self._serving.result()
            return self._tracker.results()
