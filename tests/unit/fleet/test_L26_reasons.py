# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-26: a stronger reason to end a machine replaces a weaker one that is under way, never the other way round."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Action, Claim, Deletion, Phase, Pool
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import Reason
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claim_sync import settle
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import MODES, Mode, mode_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan_builder import ORDER, Draft, decided, rank
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, decide, instance, node, of, pod, pool, seen, specs

_reasons = st.sampled_from(ORDER)
_phases = st.sampled_from([Phase.PROVISIONING, Phase.JOINING, Phase.READY])


def pair(name: str) -> tuple[str, bool]:
    """A reason and its flag."""
    return ("Manual", True) if name == Reason.FORCED else (name, False)


def deletion(name: str, **facts: t.Any) -> Deletion:
    reason, force = pair(name)
    return Deletion(reason, facts.pop("requested", at("11:40")), force=force, **facts)


def drafted(one: Claim) -> Draft:
    situation = Situation(
        seen(claims=(one,), instances=(instance(),), nodes=(node(),)), specs(), Settings(mode="reap"), CAPABILITIES
    )
    return Draft(situation, {one.name: settle(one, situation)})


def test_L26_the_order_names_every_reason_that_drains_or_ends() -> None:
    assert set(MODES) <= set(ORDER) and len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize(("under_way", "new"), list(itertools.product(ORDER, ORDER)))
def test_L26_over_all_pairs_the_stronger_reason_stays(under_way: str, new: str) -> None:
    draft = drafted(claim(deletion=deletion(under_way)))
    reason, force = pair(new)
    draft.destroy(draft.settled["tgp-a1b2c3d4-p-00001"].claim, reason, "found", force=force)
    (action,) = draft.decisions.values()
    assert action.claim is not None and action.claim.deletion is not None
    found = action.claim.deletion
    winner = min(under_way, new, key=ORDER.index)
    assert action.reason == found.reason == pair(winner)[0]
    if pair(winner)[0] != pair(under_way)[0]:
        assert found.requested == NOON, "its own times"
    else:
        assert found.requested == at("11:40"), "what is under way keeps its times"
    assert found.force is (Reason.FORCED in (under_way, new)), "force that a person asked for is not lost"


@given(st.lists(_reasons, min_size=1, max_size=6), _phases)
def test_L26_in_any_order_the_strongest_of_all_is_left(found: list[str], phase: Phase) -> None:
    current = claim(phase=phase)
    for name in found:
        current = dataclasses.replace(current, deletion=decided(current, deletion(name, requested=NOON)))
    assert current.deletion is not None
    strongest = min(found, key=ORDER.index)
    assert rank(current.deletion.reason) == rank(pair(strongest)[0])


def test_L26_after_the_drain_the_reason_stays() -> None:
    """In phase Terminating the pods have left: no rule of a reason is left to apply, and the books name what ended it."""
    draft = drafted(claim(phase=Phase.TERMINATING, deletion=deletion("Manual", started=at("11:41"))))
    draft.destroy(draft.settled["tgp-a1b2c3d4-p-00001"].claim, "InstanceGone", "not listed")
    (action,) = draft.decisions.values()
    assert action.reason == "Manual"


# ---- through the plan


def plan_of(one: Claim, asked: Pool, **facts: t.Any) -> Action:
    settings = facts.pop("settings", {})
    usual: dict[str, t.Any] = {
        "claims": (one,),
        "nodes": (facts.pop("node", None) or node(),),
        "instances": (instance(),),
        "pods": (pod(),),
    }
    found = of(decide(seen(facts.pop("now", NOON), **{**usual, **facts}), specs(asked), **settings), "destroy")
    assert len(found) == 1
    return found[0]


HELD_UP = claim(deletion=Deletion("Manual", at("11:40")))
HOUR = pool(expire_after=3600)


def test_L26_manual_that_is_held_up_becomes_Expired_and_its_drain_forceful() -> None:
    """[E] Manual without force blocked by a PDB, ``expireAfter`` reached."""
    before = plan_of(HELD_UP, HOUR, now=at("11:59:59"))
    assert (before.reason, before.detail) == ("Manual", "goes on") and mode_of("Manual") is Mode.MANUAL
    after = plan_of(HELD_UP, HOUR, now=at("12:00"))
    assert after.reason == "Expired" and after.claim is not None and after.claim.deletion == Deletion("Expired", at("12:00"))
    assert mode_of("Expired") is Mode.FORCEFUL
    goes_on = plan_of(after.claim, HOUR, now=at("12:05"))
    assert goes_on.claim is not None and goes_on.claim.deletion == after.claim.deletion, "with its own times"


def test_L26_manual_that_is_held_up_hides_no_broken_machine() -> None:
    broken = plan_of(HELD_UP, pool(), node=node(ready=False, ready_since=at("11:20")))
    assert broken.reason == "Unhealthy"
    lost = plan_of(HELD_UP, pool(), instances=(instance(interrupted=True),))
    assert lost.reason == "SpotLost"


def test_L26_manual_that_is_held_up_hides_no_price_and_no_budget() -> None:
    dear = plan_of(
        claim(deletion=HELD_UP.deletion, price_paid=Decimal("9.99"), reserved_price=Decimal("0.42")),
        pool(max_hourly_price=Decimal("0.50")),
        instances=(instance(price_hour=Decimal("9.99")),),
    )
    assert dear.reason == "PriceJump"


def test_L26_a_person_asks_for_what_expires_already() -> None:
    """destroy.yml takes nothing off the stronger reason; what was asked for by force is done by force."""
    expiring = claim(deletion=Deletion("Expired", at("11:40")))
    asked = {"mode": "destroy", "destroy": Destroy(all=True)}
    action = plan_of(expiring, HOUR, settings=asked)
    assert (action.reason, action.detail) == ("Expired", "goes on; also Manual: asked for")
    assert action.claim is not None and action.claim.deletion == expiring.deletion
    forced = plan_of(HELD_UP, pool(), settings={"mode": "destroy", "destroy": Destroy(all=True, force=True)})
    assert forced.claim is not None and forced.claim.deletion == Deletion("Manual", at("11:40"), force=True)


def test_L26_a_drain_for_drift_is_not_taken_over_by_idleness() -> None:
    """An interrupted run had begun to empty it for drift, which has ceased; it is idle: opened again first, then judged anew."""
    idle = node(annotations={"tgp.io/idle-since": "2026-08-20T11:20:00Z", "tgp.io/drain-started": "2026-08-20T11:55:00Z"})
    begun = claim(deletion=Deletion("Drifted", at("11:55")), idle_since=at("11:20"))
    found = decide(seen(claims=(begun,), nodes=(idle,), instances=(instance(),)))
    assert not of(found, "destroy") and [one.name for one in of(found, "restore")] == [begun.name]
    (update,) = of(found, "update")
    assert update.claim is not None and update.claim.deletion is None
    after = decide(seen(claims=(update.claim,), nodes=(idle,), instances=(instance(),)))
    assert [one.reason for one in of(after, "destroy")] == ["Empty"]
