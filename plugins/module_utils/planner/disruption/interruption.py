# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupted or failed instances (L-15, L-20): spot reclaim, provider failure. They never recover and may still be billed."""

from __future__ import annotations

import datetime as dt
import typing as t

from ...model import InstanceState
from ...model.labels import POWERED_OFF_ANNOTATION
from ...model.reasons import ActionKind, Reason
from ...units.values import print_time
from ..claim_sync import Settled
from ..claims.record import LIVE
from ..garbage_collection import mass_deletion_guard, signs_of_life
from ..offers import launch_backoff
from ..plan_builder import Draft

LEFT_ALONE: t.Mapping[str, str] = {
    Reason.SPOT_LOST: "spotlost",
    Reason.FAILED_JOIN: "join",
    Reason.PRICE_JUMP: "price",
    Reason.UNHEALTHY: "unhealthy",
    Reason.REPLACED: "unhealthy",
}  # reason of a deletion to class of L-14


def left_alone(reason: str, *, rented: bool) -> str:
    """The class of L-14 after an end for ``reason``, empty for none. An own machine that was unhealthy may be well once it is switched on
    again."""
    left = LEFT_ALONE.get(reason, "")
    return left if rented or left != "unhealthy" else ""


def spot_lost(draft: Draft) -> None:
    """Interrupted machines go in any run, whatever budgets, holds and minNodes say: nothing runs on them, and their disk is billed."""
    for settled in list(draft.undecided()):
        claim, machine = settled.claim, settled.recovery.instance
        if claim.phase not in LIVE:
            continue
        if machine is not None and machine.interrupted:
            since = f", not running since {print_time(claim.interrupted_at)}" if claim.interrupted_at else ""
            draft.destroy(claim, Reason.SPOT_LOST, f"{claim.cloud} took its GPUs away ({machine.state_word}){since}")
        elif claim.deletion is not None and claim.deletion.reason == Reason.SPOT_LOST:
            draft.destroy(claim, Reason.SPOT_LOST, "goes on")


def blocked_by_loss(draft: Draft) -> dict[str, dt.datetime]:
    """What this very run leaves alone because it lost a machine there, or gave one up that never became usable: key → until (L-14)."""
    blocks: dict[str, dt.datetime] = {}
    for name, decision in draft.decisions.items():
        rented = decision.claim is not None and draft.situation.rented(decision.claim.cloud)
        reason = left_alone(decision.reason, rented=rented) if decision.kind == ActionKind.DESTROY else ""
        before = draft.settled[name].stored.deletion if name in draft.settled else None  # a machine without a claim gets one now
        if not reason or decision.claim is None or (before is not None and before.reason == decision.reason != Reason.SPOT_LOST):
            continue  # an end that goes on has left its block when it was decided
        until = draft.now + dt.timedelta(seconds=launch_backoff.FIRST[reason])
        blocks |= dict.fromkeys(launch_backoff.keys_after(decision.claim.offer, reason), until)
    return blocks


def given_up(draft: Draft) -> None:
    """Rented machines that their cloud calls failed or stopped: none of them comes back by itself, and all are billed. A sign of
    life speaks against the cloud's word; many at once speak against it too. A word that is unknown is waited for
    (``unhealthy``)."""
    situation = draft.situation
    due: list[tuple[Settled, str, str]] = []
    for settled in list(draft.undecided()):
        claim, machine = settled.claim, settled.recovery.instance
        if claim.phase not in LIVE or machine is None or not situation.rented(claim.cloud):
            continue
        if machine.state not in (InstanceState.FAILED, InstanceState.STOPPED):
            continue
        text = f"{claim.cloud} calls it {machine.state_word} {machine.problem}".strip()
        if sign := signs_of_life.of_claim(settled, situation):
            draft.warnings.append(f"{claim.name}: {text}, but {sign}; nothing is deleted")
        elif claim.initialized is None:
            due.append((settled, Reason.FAILED_JOIN, f"instance_not_running: {text}"))
        else:
            due.append((settled, Reason.INSTANCE_GONE, text))
    total = sum(1 for claim in situation.claims if claim.instance_id)
    unmarked = [entry for entry in due if not _powered_itself_off(entry[0])]
    if mass_deletion_guard.holds(draft, "machines that their cloud gave up", len(unmarked), total):
        due = [entry for entry in due if entry not in unmarked]
    for settled, reason, detail in due:
        draft.destroy(settled.claim, reason, detail)


def _powered_itself_off(settled: Settled) -> bool:
    """Whether its Node says so (L-46): with the cloud's word that is a second witness, so many of them are no wrong reading."""
    node = settled.node or settled.stale_node
    return node is not None and POWERED_OFF_ANNOTATION in node.annotations


def merged(seen: t.Mapping[str, dt.datetime], lost: t.Mapping[str, dt.datetime]) -> dict[str, dt.datetime]:
    """Two block lists as one: the later end counts."""
    return {key: max(ends) for key in {*seen, *lost} if (ends := [entry[key] for entry in (seen, lost) if key in entry])}
