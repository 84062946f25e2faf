# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When there is no use in waiting for a machine any longer, although its time is not over: the cloud itself has given it up."""

from __future__ import annotations

from datetime import datetime

from ...model import Claim, Instance, InstanceState
from ...providers.registry import CAPABILITIES

_OVER = (InstanceState.TERMINATED, InstanceState.FAILED, InstanceState.STOPPED)
_MISSING = 60.0  # seconds a machine that was listed before must be absent from good lists
_LISTED_LATE = 600.0  # seconds after the create call in which a new machine may not be listed yet
_BROKEN = 300.0  # seconds of a complaint of the cloud, with no sign of life; some complaints pass


class Hope:
    """Remembers since when something speaks against each machine of one wait."""

    def __init__(self) -> None:
        self._listed: set[str] = set()
        self._missing: dict[str, datetime] = {}
        self._broken: dict[str, datetime] = {}

    def lost(self, claim: Claim, instance: Instance | None, listed_at: datetime | None, *, alive: bool) -> str:
        """Why to give up, empty while there is hope. ``listed_at`` is when the cloud's list that (not) shows ``instance`` was read,
        None when it never could be; ``alive``: its mesh device is online."""
        if instance is None:
            return self._absent(claim, listed_at)
        self._listed.add(claim.name)
        self._missing.pop(claim.name, None)
        state = instance.raw_state or instance.state.value
        if instance.interrupted:
            return f"{claim.cloud} took its GPUs away ({state})"
        if instance.state in _OVER:
            return f"{claim.cloud} calls the machine {state} {instance.problem}".strip()
        if not instance.problem or alive or listed_at is None:
            self._broken.pop(claim.name, None)
            return ""
        since = self._broken.setdefault(claim.name, listed_at)
        passed = (listed_at - since).total_seconds()
        return (
            f"{claim.cloud} calls the machine {state} for {passed:.0f} s, and nothing is heard of it" if passed >= _BROKEN else ""
        )

    def _absent(self, claim: Claim, listed_at: datetime | None) -> str:
        if listed_at is None or not CAPABILITIES[claim.cloud].rented:
            return ""
        since = self._missing.setdefault(claim.name, listed_at)
        started = claim.launch_started or claim.created
        age = (listed_at - started).total_seconds()
        young = age < (CAPABILITIES[claim.cloud].list_delay if claim.name in self._listed else _LISTED_LATE)
        if young or (listed_at - since).total_seconds() < _MISSING:
            return ""
        return f"{claim.cloud} does not list the machine {claim.instance_id} any more"
