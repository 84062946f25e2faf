# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of ours that pods can be counted on, as places for pods: Ready ones as they are, others as they are planned (L-17)."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Claim, Node, Phase
from ...model.reasons import ActionKind
from ...model.resources import NEUTRAL_GPU
from ..claim_sync import Settled
from ..claims.record import LIVE
from ..cluster_state import RETRY
from ..plan_builder import Draft
from ..provisioning.registration import deadline
from . import capacity
from .binpacking import Bin, shown


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A machine with its room. ``node``: its Node if it is Ready and in use (with as many neutral GPUs as this run sees to), with the room
    once ``planned`` by its offer; None for a machine that is still to come."""

    room: Bin
    claim: Claim
    node: Node | None = None
    planned: Bin | None = None


def places(draft: Draft, *, unresumed: bool) -> list[Place]:
    """In the order in which pods go there: Ready nodes by name, then machines on their way, the oldest first, then those of this run.

    A machine that goes in this run is not a place, nor is a cordoned one. ``unresumed``: count launches of earlier runs that are to be
    made anew, last; else only those that this run has taken up again.
    """
    ready: list[Place] = []
    coming: list[Place] = []
    again: list[Place] = []
    for settled in draft.settled.values():
        decided = draft.decisions.get(settled.claim.name)
        if (
            settled.claim.phase not in LIVE
            or settled.claim.is_service
            or (decided is not None and decided.kind == ActionKind.DESTROY)
        ):
            continue
        if settled.claim.phase is Phase.READY:
            ready.extend(_ready(draft, settled))
        elif settled.claim.deletion is not None:
            continue
        elif settled.recovery.what not in RETRY:
            coming.append(_coming(draft, settled.claim, settled.node))
        elif unresumed or decided is not None:
            again.append(_coming(draft, settled.claim, None))
    coming.sort(key=lambda place: (place.claim.created, place.claim.name))
    launched = [
        _coming(draft, launch.claim, None) for launch in draft.launches if launch.claim is not None and not launch.claim.is_service
    ]
    return [*ready, *coming, *launched, *again]


def _ready(draft: Draft, settled: Settled) -> t.Iterator[Place]:
    node = settled.node
    if node is None or capacity.blocking(node):
        return
    situation = draft.situation
    end = deadline(settled.claim, situation.in_force(settled.claim), situation.capability(settled.claim))
    shows = shown(node.allocatable, situation.settings.gpu_resources) > 0
    if (
        not shows and end is not None and draft.now < end
    ):  # its plugin is not up yet: the planned GPUs count as long as one waits for them
        yield _coming(draft, settled.claim, node)
        return
    if shows:  # where the neutral name is missing this very run sets it
        offered = capacity.advertised(settled.claim, situation.pool(settled.claim))
        node = dataclasses.replace(node, allocatable={**node.allocatable, **({NEUTRAL_GPU: offered} if offered else {})})
    room = capacity.of_node(
        node,
        situation.pods(node) or (),
        pool=settled.claim.pool,
        gpu_memory_mib=settled.claim.offer.gpu_memory_mib,
        spec=situation.pool(settled.claim),
    )
    yield Place(dataclasses.replace(room, name=settled.claim.name), settled.claim, node, _planned(draft, settled.claim))


def _planned(draft: Draft, claim: Claim) -> Bin:
    situation = draft.situation
    return capacity.of_claim(claim, situation.pool(claim), situation.seen.cluster_id, situation.rented(claim.cloud))


def _coming(draft: Draft, claim: Claim, node: Node | None) -> Place:
    situation = draft.situation
    room = _planned(draft, claim)
    bound = [pod for pod in (situation.pods(node) or () if node else ()) if not pod.ended and pod.node]
    free = dict(room.free)
    # for pods that come with nodes a share is set aside in the plan
    for pod in (bound_pod for bound_pod in bound if not bound_pod.comes_with_node):
        for name, amount in pod.requests.items():
            there = free.get(name)
            free[name] = None if there is None else there - amount
    return Place(dataclasses.replace(room, free=free, pods=tuple(bound)), claim)
