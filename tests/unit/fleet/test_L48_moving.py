# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a machine is that a person moved in or out (L-48), and what is remembered of it."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, CloudView, HandedOut, Instance, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import MODES, Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims import moving
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import (
    Ownership,
    Proof,
    Store,
    claimed,
    ids_of,
    owner_of,
    ownership_of,
    read_released,
    written_released,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from hypothesis import given
from hypothesis import strategies as st

from .build import CLUSTER, NOON, at, claim, device, instance, node, node_class, offer, specs
from .build import seen as observed

OURS, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
NAME = "tgp-a1b2c3d4-p-00001"
STAMP = {"cluster": CLUSTER, "generation": OURS, "nonce": NAME}
OUT = HandedOut("lambda", "i-00001", NAME, at("12:00"))


def verdict(name: str, marks: t.Mapping[str, str], *claims: Claim, out: bool) -> tuple[Ownership, Proof | None]:
    one = instance(name, id="i-00001", marks=dict(marks))
    store = Store(CLUSTER, (OURS,), claimed(claims), ids_of([OUT] if out else []))
    found = owner_of(one, CAPABILITIES["lambda"], store)
    return found.ownership, found.proof


def test_L48_whose_a_machine_is_that_was_moved() -> None:
    mine = claim()
    assert verdict("theirs", {}, out=False) == (Ownership.UNRELATED, None)
    assert verdict("theirs", {}, mine, out=False) == (Ownership.OURS, Proof.CLAIM)
    assert verdict("theirs", STAMP, mine, out=False) == (Ownership.OURS, Proof.STAMP)
    assert verdict("theirs", {**STAMP, "cluster": "ffffffff"}, mine, out=False) == (Ownership.FOREIGN, None)
    assert verdict(NAME, STAMP, mine, out=True) == (Ownership.FOREIGN, None)
    assert verdict(NAME, STAMP, out=True) == (Ownership.FOREIGN, None)
    assert verdict("theirs", {}, out=True) == (Ownership.UNRELATED, None)
    assert ownership_of(moving.former(NAME), CLUSTER) is Ownership.UNRELATED


def test_L48_the_list_of_what_was_handed_out() -> None:
    google = HandedOut("gcp", "us-central1-a/box", NAME, at("12:30"))
    assert read_released({}) == ()
    assert set(read_released(written_released([OUT, google]))) == {OUT, google}
    good = {"name": NAME, "time": "2026-08-20T12:00:00Z"}
    for odd in ({"lambda/x": 7}, {"lambda": good}, {"lambda/x": {**good, "time": "soon"}}, {"lambda/x": {**good, "name": ""}}):
        with pytest.raises(BadShape, match="tgp-state-released"):
            read_released(odd)


def situation(*listed: Instance, now: t.Any = NOON, **facts: t.Any) -> Situation:
    world = observed(now, generations=(OURS,), clouds={"lambda": CloudView(listed, ())}, **facts)
    return Situation(world, specs(classes=(node_class(clouds=("lambda",)),)), Settings(), CAPABILITIES)


def test_L48_an_entry_leaves_the_list_a_day_after_its_machine_is_gone() -> None:
    until = OUT.time + timedelta(seconds=moving.FORGOTTEN_AFTER)
    second = timedelta(seconds=1)
    assert moving.kept([OUT], situation(now=until)) == (OUT,)
    assert moving.kept([OUT], situation(now=until + second)) == ()
    assert moving.kept([OUT], situation(instance(), now=until + second)) == (OUT,)
    unread = Situation(observed(until + second, clouds={"lambda": CloudView(None, None)}), specs(), Settings(), CAPABILITIES)
    assert moving.kept([OUT], unread) == (OUT,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("claims", [(), (claim(),), (claim(phase=Phase.JOINING, instance_id="i-00001"),)])
def test_L48_no_run_decides_anything_about_a_machine_that_was_handed_out(mode: str, claims: tuple[Claim, ...]) -> None:
    """With our name and stamp, a Node that fell silent, a device that is offline; with its claim, where the release was cut off."""
    gone = node(ready=False, ready_since=at("01:00"), labels={"tgp.io/instance-id": "i-00001"})
    world = observed(
        at("23:00"),
        clouds={"lambda": CloudView((instance(marks=STAMP, created=at("00:00")),), ())},
        generations=(OURS,),
        claims=claims,
        nodes=(gone,),
        devices=(device(online=False, last_seen=at("01:00")),),
        released=(OUT,),
    )
    wanted = specs(classes=(node_class(clouds=("lambda",)),))
    settings = Settings(mode=mode, destroy=Destroy(all=mode == "destroy"))
    first = plan(world, wanted, settings, CAPABILITIES, "run-1")
    later = dataclasses.replace(world, now=world.now + timedelta(minutes=15), findings=first.findings)
    found = plan(later, wanted, settings, CAPABILITIES, "run-2")
    assert {
        (str(one.kind), one.detail)
        for one in found.actions
        if one.kind not in ("report", "launch", "update") and NAME in (one.name, one.target)
    } == set()
    if claims and mode in ("reap", "destroy", "autoscale"):
        assert any("Its release was cut off: run release.yml" in text for text in found.problems)


def test_L48_the_bill_of_an_adopted_machine_begins_with_its_claim() -> None:
    """0.69 dollars an hour, made at 00:00, adopted at 10:00, released at 11:00."""
    rented = offer("0.69")
    history = ((at("10:00"), "Joining", moving.BY_HAND),)
    mine = claim(offer=rented, launch_started=at("10:00"), price_paid=Decimal("0.69"), history=history)
    assert cost.claim_cost(mine, at("11:00"), 60) == Decimal("0.69")
    vast = dataclasses.replace(mine, cloud="vast", running_since=at("10:00"))
    seen_running = instance(cloud="vast", running_since=at("00:00"), price_hour=Decimal("0.69"))
    noted = cost.noted(vast, seen_running, CAPABILITIES["vast"], at("10:30"))
    assert noted.running_since == at("10:00")
    assert cost.claim_cost(noted, at("11:00"), bills_boot=False) == Decimal("0.69")


@given(
    st.sampled_from([NAME, "tgp-a1b2c3d4-p-00002", "ex-tgp-a1b2c3d4-p-00001", "someone"]),
    st.sampled_from([{}, STAMP, {**STAMP, "generation": OTHER}]),
    st.booleans(),
)
def test_L48_I_what_was_handed_out_is_never_ours(name: str, marks: dict[str, str], with_claim: bool) -> None:
    assert verdict(name, marks, *([claim()] if with_claim else []), out=True)[0] is not Ownership.OURS
