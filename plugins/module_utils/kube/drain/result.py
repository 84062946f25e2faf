# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a drain."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...core.clock import to_text


@dataclasses.dataclass(frozen=True, slots=True)
class Blocked:
    """A pod ("namespace/name") that did not go, and what held it: a budget's name, multiple-pdb, unmanaged, local-data, hold: …,
    terminating, wait-completed, no answer, forbidden."""

    pod: str
    by: str


@dataclasses.dataclass(frozen=True, slots=True)
class Drained:
    """``drained`` True: the machine may go. ``outcome``: drained, gone (no such Node), replaced (another Node has the name), forced
    (the deadline came and what was left had been deleted), not needed, lost; or, with ``drained`` False: blocked, busy, ready,
    forbidden, error.

    Pods are "namespace/name"; ``skipped`` are (pod, why). ``forced`` were deleted directly. ``duration`` in seconds. ``changed``: the
    cluster was changed, or would be in check mode.
    """

    node: str
    reason: str
    drained: bool
    outcome: str
    message: str = ""
    evicted: tuple[str, ...] = ()
    waited: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    forced: tuple[str, ...] = ()
    duration: float = 0.0
    deadline: datetime | None = None
    changed: bool = False

    @property
    def forbidden(self) -> bool:
        """A right is missing, which no later run mends."""
        return self.outcome == "forbidden"

    @property
    def why(self) -> str:
        """What held it up: the pods that did not go with what held each, unless it was a right, which the message names."""
        blockers = ", ".join(f"{blocked.pod} ({blocked.by})" for blocked in self.blocked)
        return self.message if self.forbidden or not blockers else blockers

    @property
    def busy(self) -> bool:
        """It was to go for being empty, and is not empty any more."""
        return self.outcome == "busy"

    def result(self) -> dict[str, t.Any]:
        """As a module returns it."""
        return {
            "name": self.node,
            "reason": self.reason,
            "drained": self.drained,
            "outcome": self.outcome,
            "message": self.message,
            "evicted": list(self.evicted),
            "waited": list(self.waited),
            "skipped": [{"pod": pod, "why": why} for pod, why in self.skipped],
            "blocked": [{"pod": blocked.pod, "by": blocked.by} for blocked in self.blocked],
            "forced": list(self.forced),
            "duration_s": round(self.duration, 1),
            "deadline": to_text(self.deadline) if self.deadline else None,
        }
