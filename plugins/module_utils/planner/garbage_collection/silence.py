# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a machine that nobody looks after powers itself off (L-46).

The machine decides by the program of ``bootstrap/kubelet/guard.py``. This is the same decision as a function: tests compare the two look by
look. No clock of day is in it: a machine counts its own seconds since boot, so a clock that is set does not matter.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Capability, Guard, NodeClass

LOOK_EVERY: t.Final = 600
LONGEST_LOOK: t.Final = 1200  # of the time between two looks, no more counts: nobody looked meanwhile
SILENT_FOR: t.Final = 86400  # of a class that says nothing, where a machine that is off costs less

RENEWED = "renewed"  # the API server showed the Lease, with the time of its last renewal
ANSWER = "answer"  # the API server said something else: forbidden, not found, an error
SILENCE = "silence"  # nothing reaches the API server, or nothing comes back
NO_NODE = "no node"  # this machine has never become a node
UNKNOWN = "unknown"  # a fault of this machine, or an answer that is not proven to be the API server's


def guard_of(node_class: NodeClass, capability: Capability) -> Guard | None:
    """What a machine of lane kubelet is given: the class's word, else the default where a machine that is off costs less."""
    guard = node_class.guard or (Guard(SILENT_FOR) if capability.off_costs_less else Guard())
    return guard if guard.silent_for is not None or guard.controller_silent_for is not None else None


@dataclasses.dataclass(frozen=True, slots=True)
class Silence:
    """What a machine keeps between two looks, until it boots again: its ``uptime`` at the last look, the seconds of silence of the API
    server and of the controller that were counted, and the renewal that was seen last."""

    uptime: int
    api: int = 0
    controller: int = 0
    renewed: str = ""


def look(before: Silence | None, uptime: int, seen: str, renewed: str = "") -> Silence:
    """What the machine knows after one look. Without a look before, or with one that is later than now, it begins anew."""
    if before is None or before.uptime > uptime:
        before = Silence(uptime)
    passed = min(uptime - before.uptime, LONGEST_LOOK)
    after = dataclasses.replace(before, uptime=uptime)
    if seen in (SILENCE, NO_NODE):
        return dataclasses.replace(after, api=before.api + passed)
    if seen == RENEWED and renewed == before.renewed:
        return dataclasses.replace(after, api=0, controller=before.controller + passed)
    if seen == RENEWED:
        return dataclasses.replace(after, api=0, controller=0, renewed=renewed)
    return after if seen == UNKNOWN else dataclasses.replace(after, api=0)


def why_off(now: Silence, seen: str, guard: Guard) -> str:
    """Who was silent for too long, "api" or "controller"; empty = the machine stays on. What was not seen in this very look ends nothing."""
    if seen in (SILENCE, NO_NODE) and guard.silent_for is not None and now.api >= guard.silent_for:
        return "api"
    if seen == RENEWED and guard.controller_silent_for is not None and now.controller >= guard.controller_silent_for:
        return "controller"
    return ""
