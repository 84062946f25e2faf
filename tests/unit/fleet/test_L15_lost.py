# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-15: machines that their cloud took away or gave up; what is left alone after it; what it costs."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudView,
    Deletion,
    Instance,
    InstanceState,
    Observation,
    Offer,
    Phase,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import claim_cost, ledger_line, noted
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff

from .build import CAPABILITIES, at, claim, decide, deletions, instance, node, node_class, of, offer, one, pod, pool, seen, specs

NAME = "tgp-a1b2c3d4-p-00001"
SPOT = offer("0.42", cloud="vast", id="bid-1", spot=True, host_id="h-1", storage_price_hour=Decimal("0.02"))
VAST = node_class(clouds=("vast",), spot_allowed=True)


def lost(**facts: t.Any) -> Instance:
    usual: dict[str, t.Any] = {"cloud": "vast", "interrupted": True, "raw_state": "stopped", "host_id": "h-1", "spot": True}
    return instance(NAME, InstanceState.STOPPED, **{**usual, **facts})


def world(machine: Instance | None, offers: tuple[Offer, ...] = (), **facts: t.Any) -> Observation:
    mine = facts.pop("claim", claim(NAME, facts.pop("phase", Phase.READY), offer=SPOT, cloud="vast"))
    usual: dict[str, t.Any] = {"claims": (mine,), "nodes": (node(NAME),), "pods": (pod(),)}
    machines = () if machine is None else (machine,)
    return seen(facts.pop("now", at("12:05")), clouds={"vast": CloudView(machines, offers)}, **{**usual, **facts})


@pytest.mark.parametrize("mode", ["provision", "reap"])
@pytest.mark.parametrize("phase", [Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING, Phase.READY])
def test_L15_an_interrupted_machine_goes_in_any_run(mode: str, phase: Phase) -> None:
    """Busy pods, holds, minNodes and a Ready Node do not stop it: nothing runs there any more."""
    mine = claim(NAME, phase, offer=SPOT, cloud="vast", instance_id="i-00001", ids_seen=("i-00001",))
    held = node(NAME, annotations={"tgp.io/do-not-disrupt": "true"})
    found = decide(world(lost(), claim=mine, nodes=(held,)), specs(pool(min_nodes=1), classes=(VAST,)), mode)
    gone = one(found, "destroy")
    assert gone.reason == "SpotLost" and gone.claim is not None and gone.claim.deletion == Deletion("SpotLost", at("12:05"))


def test_L15_the_replacement_is_planned_in_the_same_run_and_elsewhere() -> None:
    same_host = offer("0.30", cloud="vast", id="bid-2", spot=True, host_id="h-1")
    other = offer("0.50", cloud="vast", id="bid-3", spot=True, host_id="h-2", instance_type="gpu_2x")
    found = decide(world(lost(), (same_host, other)), specs(classes=(VAST,), p=1), "provision")
    assert one(found, "destroy").name == NAME
    launched = one(found, "launch").claim
    assert launched is not None and launched.offer.id == "bid-3" and not launched.candidates
    alone = decide(world(lost(), (same_host,)), specs(classes=(VAST,), p=1), "provision")
    assert not of(alone, "launch") and alone.shortfall[0].rejected == {"blocked": 1}


def test_L15_what_is_being_lost_counts_until_it_is_gone() -> None:
    other = offer("0.50", cloud="vast", id="bid-3", host_id="h-2", instance_type="gpu_2x")
    tight = dataclasses.replace(VAST, max_nodes=1)
    found = decide(world(lost(), (other,)), specs(classes=(tight,), p=1), "provision")
    assert one(found, "destroy") and found.shortfall[0].reason == "limit:maxNodes"


def test_L15_the_host_is_left_alone_for_an_hour() -> None:
    """Seen at 12:05: until 13:05."""
    state: launch_backoff.State = {}
    for key in launch_backoff.keys_after(SPOT, "spotlost"):
        state = launch_backoff.after_failure(state, key, "spotlost", at("12:05"))
    sibling = offer("0.30", cloud="vast", id="bid-2", instance_type="gpu_2x", host_id="h-1")
    assert launch_backoff.blocked(sibling, launch_backoff.active(state, at("13:04:59")), at("13:04:59")) == at("13:05")
    assert launch_backoff.blocked(sibling, launch_backoff.active(state, at("13:05")), at("13:05")) is None


def test_L15_a_decided_loss_goes_on_when_the_machine_is_not_listed_any_more() -> None:
    deciding = one(decide(world(lost())), "destroy").claim
    assert deciding is not None
    again = decide(world(None, claim=deciding, now=at("12:06")), specs(classes=(VAST,), p=0), "provision")
    assert one(again, "destroy").claim == dataclasses.replace(deciding, gone_since=at("12:06"))


@pytest.mark.parametrize("state", [InstanceState.FAILED, InstanceState.STOPPED])
@pytest.mark.parametrize(("phase", "reason"), [(Phase.BOOTING, "FailedJoin"), (Phase.READY, "InstanceGone")])
def test_L15_what_its_cloud_calls_failed_or_stopped_is_given_back(state: InstanceState, phase: Phase, reason: str) -> None:
    machine = _machine(state)
    silent = () if phase is Phase.BOOTING else (node(NAME, None),)
    found = decide(world(machine, phase=phase, nodes=silent, pods=()))
    gone = one(found, "destroy")
    assert gone.reason == reason and "vast calls it exited" in gone.detail
    assert not of(decide(world(machine, phase=phase, nodes=silent), specs(classes=(VAST,)), "provision"), "destroy")


def _machine(state: InstanceState) -> Instance:
    return instance(NAME, state, cloud="vast", raw_state="exited")


def test_L15_a_ready_node_speaks_against_a_cloud_that_calls_its_machine_lost() -> None:
    found = decide(world(_machine(InstanceState.FAILED)))
    assert not deletions(found) and any("its Node is Ready" in text for text in found.warnings)


def test_L15_an_unknown_state_waits() -> None:
    found = decide(world(_machine(InstanceState.UNKNOWN), nodes=(node(NAME, None, ready_since=at("12:00")),)))
    assert not deletions(found)


def test_L15_many_at_once_are_more_likely_a_wrong_word() -> None:
    names = [f"tgp-a1b2c3d4-p-0000{place}" for place in range(5)]
    claims = tuple(claim(name, offer=SPOT, cloud="vast") for name in names)
    machines = tuple(instance(name, InstanceState.FAILED, cloud="vast") for name in names)
    found = decide(seen(claims=claims, clouds={"vast": CloudView(machines, ())}, nodes=()))
    assert not of(found, "destroy") and "guard_refused" in " ".join(found.problems)
    assert "mass_guard|machines that their cloud gave up" in [one.key for one in found.notices]
    assert (
        len(of(decide(seen(claims=claims, clouds={"vast": CloudView(machines, ())}, nodes=()), allow_mass_delete=True), "destroy"))
        == 5
    )


def test_L15_own_machines_that_are_off_are_off() -> None:
    found = decide(seen(clouds={"webhook": CloudView((instance("rack-1", InstanceState.STOPPED, cloud="webhook"),), ())}))
    assert not deletions(found)


def test_L15_a_young_machine_is_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cloud may list it only after a minute."""
    monkeypatch.setitem(CAPABILITIES, "vast", dataclasses.replace(CAPABILITIES["vast"], list_delay=60))
    young = claim(NAME, Phase.BOOTING, offer=SPOT, cloud="vast", launch_started=at("12:04:01"))
    assert not of(decide(world(None, claim=young, nodes=())), "update", "destroy")
    old = dataclasses.replace(young, launch_started=at("12:04:00"))
    updated = one(decide(world(None, claim=old, nodes=())), "update").claim
    assert updated is not None and updated.gone_since == at("12:05")


def test_L16_the_end_of_a_bill_is_a_whole_second() -> None:
    """Records keep whole seconds: one cut off would be before the machine ended."""
    mine = claim(NAME, Phase.READY, offer=SPOT, cloud="vast")
    observed = dataclasses.replace(world(None, claim=mine, nodes=()), now=at("12:05") + timedelta(milliseconds=300))
    updated = next(one.claim for one in of(decide(observed), "update", "destroy") if one.claim is not None)
    assert updated.gone_since == at("12:05:01")


# ---- money, where disk and GPUs are billed apart


def on_vast(**facts: t.Any) -> Claim:
    return claim(NAME, offer=SPOT, cloud="vast", launch_started=at("11:00"), price_paid=Decimal("0.42"), **facts)


def test_I13_gpus_are_billed_while_they_run_and_the_disk_all_the_time() -> None:
    """0.02 $/h disk for two hours, 0.40 $/h GPUs from 11:06 to 12:03."""
    mine = on_vast(running_since=at("11:06"), interrupted_at=at("12:03"))
    exact = Decimal("0.02") * 2 + Decimal("0.40") * 57 / 60
    assert claim_cost(mine, at("13:00"), bills_boot=False) == exact
    assert claim_cost(mine, at("13:00")) == Decimal("0.84")  # where all is billed from the start
    never = on_vast()
    assert claim_cost(never, at("13:00"), bills_boot=False) == Decimal("0.04")
    running = on_vast(running_since=at("11:06"))
    assert claim_cost(running, at("12:06"), bills_boot=False) == Decimal("0.02") * 66 / 60 + Decimal("0.40")
    assert running.price == Decimal("0.42")  # limits count the full price
    line = ledger_line(mine, end=at("13:00"), bills_boot=False)
    assert (line["cost"], line["running_since"], line["interrupted_at"]) == (
        str(exact),
        "2026-08-20T11:06:00Z",
        "2026-08-20T12:03:00Z",
    )


def test_I13_an_end_before_the_interruption_was_seen_bounds_the_bill() -> None:
    mine = on_vast(running_since=at("11:00"), interrupted_at=at("12:30"))
    assert claim_cost(mine, at("12:00"), bills_boot=False) == Decimal("0.42")


def test_I13_when_the_gpus_ran_is_noted_from_what_the_cloud_says() -> None:
    apart, together = CAPABILITIES["vast"], CAPABILITIES["lambda"]
    running = instance(NAME, cloud="vast", running_since=at("11:06"))
    assert noted(on_vast(), running, apart, at("12:00")).running_since == at("11:06")
    assert noted(on_vast(), running, together, at("12:00")).running_since is None
    untold = instance(NAME, cloud="vast")
    first = noted(on_vast(), untold, apart, at("12:00"))
    assert first.running_since == at("12:00") and noted(first, untold, apart, at("12:30")) == first
    assert noted(first, running, apart, at("12:30")).running_since == at("11:06")
    again = instance(NAME, cloud="vast", running_since=at("11:05:50"))
    known = noted(on_vast(), running, apart, at("12:00"))
    assert noted(known, again, apart, at("12:30")) == known, "an uptime told inexactly changes nothing"
    booting = instance(NAME, InstanceState.PENDING, cloud="vast")
    assert noted(on_vast(), booting, apart, at("12:00")).running_since is None
    over = instance(NAME, InstanceState.FAILED, cloud="vast", raw_state="exited", running_since=at("11:00"))
    assert noted(on_vast(), over, apart, at("12:00")).running_since == at("11:00"), "it ran, and nobody looked meanwhile"
    assert noted(known, over, apart, at("12:00")) == known, "what was seen is better than a bound"


def test_I13_gpus_of_a_machine_that_its_owner_stopped_are_billed_until_then() -> None:
    apart, mine = CAPABILITIES["vast"], on_vast(running_since=at("11:06"))
    stopped = instance(NAME, InstanceState.STOPPED, cloud="vast", halted=True, problem="it was stopped by its owner")
    assert noted(mine, stopped, apart, at("12:05")).interrupted_at == at("12:05")
    frozen = instance(NAME, InstanceState.STOPPED, cloud="vast")  # in memory: its GPUs are billed
    assert noted(mine, frozen, apart, at("12:05")).interrupted_at is None


def test_I13_a_silent_node_tells_when_the_gpus_were_taken() -> None:
    apart, mine = CAPABILITIES["vast"], on_vast(running_since=at("11:06"))
    silent = node(NAME, None, ready_since=at("12:03:40"))
    assert noted(mine, lost(), apart, at("12:05"), silent).interrupted_at == at("12:03:40")
    assert noted(mine, lost(), apart, at("12:05"), node(NAME)).interrupted_at == at("12:05")
    early = node(NAME, None, ready_since=at("11:01"))
    assert noted(mine, lost(), apart, at("12:05"), early).interrupted_at == at("12:05")
    assert noted(noted(mine, lost(), apart, at("12:05")), lost(), apart, at("12:10")).interrupted_at == at("12:05")


def test_L15_storage_of_two_minutes_and_twenty_seconds() -> None:
    """Interrupted 12:03, seen 12:05, destroyed 12:05:20."""
    mine = on_vast(running_since=at("11:00"), interrupted_at=at("12:03"))
    after = claim_cost(mine, at("12:05:20"), bills_boot=False) - claim_cost(mine, at("12:03"), bills_boot=False)
    assert after.quantize(Decimal("1E-12")) == (Decimal("0.02") * 140 / 3600).quantize(Decimal("1E-12"))
