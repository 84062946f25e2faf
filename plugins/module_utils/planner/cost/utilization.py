# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the usable time of a machine was good for (A-07): from its first work to its last idle time it was useful."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from ...model import Claim, LedgerLine


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Moments of one life, in order: ``usable`` ≤ ``began`` ≤ ``idle`` ≤ ``stopped``. ``began`` None = no work was seen, and ``watched`` tells
    whether that means that there was none. ``stopped``: the machine ended or was interrupted."""

    usable: datetime
    began: datetime | None
    idle: datetime
    stopped: datetime
    watched: bool


def use_of(one: Claim | LedgerLine, end: datetime) -> Use | None:
    """The use of a machine that ended at ``end``, None for one that was never usable. An idle time that began before the first work is over."""
    if one.initialized is None:
        return None
    stopped = min(one.interrupted_at or end, end)
    usable = min(one.initialized, stopped)
    began = None if one.worked_since is None else min(max(one.worked_since, usable), stopped)
    idle = one.idle_since
    if idle is None or (began is not None and idle < began):
        idle = stopped
    return Use(usable, began, min(max(idle, usable), stopped), stopped, one.work_watched)
