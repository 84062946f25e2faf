# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines by auction on Vast (L-13, L-14, L-15), bills of disk and GPUs apart (I-13), and what Paperspace keeps beside machines (L-10)."""

from __future__ import annotations

import copy
import typing as t
from decimal import Decimal

import httpx
import pytest

from sandbox.paperspace_account import Account as Team
from sandbox.vast_life import interrupt, stop
from sandbox.world import Machine

from .rig import Killed, Rig

Build = t.Callable[..., Rig]
OFFERS = [
    {
        "gpu": "RTX 3090",
        "place": "Sweden, SE",
        "price": "0.20",
        "min_bid": "0.10",
        "vm": True,
        "boot": 20,
        "machine": 11,
        "host": 1,
    },
    {
        "gpu": "RTX 3090",
        "place": "Sweden, SE",
        "price": "0.22",
        "min_bid": "0.11",
        "vm": True,
        "boot": 20,
        "machine": 11,
        "host": 1,
    },
    {
        "gpu": "RTX 4090",
        "place": "Oregon, US",
        "price": "0.33",
        "min_bid": "0.20",
        "vm": True,
        "boot": 20,
        "machine": 22,
        "host": 2,
    },
]
DESTROY = "/api/v0/instances/"


def only(rig: Rig, cloud: str, **pool: t.Any) -> Rig:
    """The demo's documents with one cloud and one pool."""
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    rig.demo_class["providers"] = [{"name": cloud}]
    rig.demo_class["instanceRequirements"] = {"spotAllowed": True} if pool.pop("spot", False) else {}
    rig.training.clear()
    rig.training.update({"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "1.00", **pool})
    return rig


@pytest.fixture
def auction(build: Build) -> Rig:
    rig = build(**{"lambda": [], "machines": [], "vast": {"offers": copy.deepcopy(OFFERS)}})
    spot = {"requirements": [{"key": "tgp.io/spot", "operator": "In", "values": ["true"]}]}
    return only(rig, "vast", spot=True, template={"spec": spot})


def disk(rig: Rig) -> Decimal:
    return Decimal(rig.claim()["offer"]["storage_price_hour"])


def test_L13_the_bid_is_a_tenth_above_the_lowest_and_the_disk_comes_on_top(auction: Rig) -> None:
    auction.rent()
    machine = auction.machine()
    assert machine.details["bid"] == Decimal("0.11")
    assert Decimal(auction.claim()["reserved_price"]) == Decimal("0.110") + disk(auction)


def test_L13_the_bid_never_goes_above_the_limit(auction: Rig) -> None:
    probe = auction.plan("provision", pools=["training"], nodes=1, check=True)
    total = Decimal(probe["plan"][0]["price_hour"].lstrip("+"))
    auction.training["maxHourlyPrice"] = str(total - Decimal("0.005"))
    auction.rent()
    machine, paid = auction.machine(), Decimal(auction.claim()["reserved_price"])
    assert Decimal("0.10") < machine.details["bid"] < Decimal("0.11")
    assert paid <= total - Decimal("0.005")


def test_L14_a_bid_that_became_too_low_leaves_nothing_behind(auction: Rig) -> None:
    """Between plan and launch the lowest bid rose: Vast answers an error and keeps a machine whose disk is billed."""
    plan = auction.plan("provision", pools=["training"], nodes=1)
    for offer in auction.world.offers:
        if offer.cloud == "vast" and offer.details["min_bid"] < Decimal("0.2"):
            offer.details["min_bid"] = Decimal("0.19")
    done = auction.run("launch", plan["run_id"])
    auction.unlock(plan["run_id"])
    assert [one["result"] for one in done["machines"]] == ["launched"]
    left = [one for one in auction.machines(living=False) if one.ended]
    assert left and auction.machine().offer.details["min_bid"] == Decimal("0.20")
    assert {one["instance_id"] for one in auction.claim()["attempts"]} == {"", *(one.id for one in left)}
    auction.join()
    auction.destroy()
    assert auction.left() == {}
    assert sorted({line["reason"] for line in auction.ledger()}) == ["LaunchRefused", "Manual"]
    auction.check_bill()


def lose(rig: Rig) -> Machine:
    """A machine that runs for ten minutes with a pod that nothing may evict, is outbid, and is looked at two minutes later."""
    assert rig.provision()["machines"][0]["result"] == "ready"
    machine = rig.machine()
    rig.pod(machine.name, budget=True)
    rig.advance(600)
    interrupt(rig.world, machine)
    rig.advance(120)
    return machine


def test_L15_a_lost_machine_is_replaced_in_the_same_run_on_another_host(auction: Rig) -> None:
    machine = lose(auction)
    tainted: list[list[str]] = []

    def watch(request: httpx.Request) -> None:
        if request.method == "DELETE" and request.url.path.startswith(DESTROY) and machine.name in auction.nodes():
            spec = auction.nodes()[machine.name]["spec"]
            tainted.append([f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in spec.get("taints", [])])

    auction.watcher = watch
    plan = auction.plan("provision", pools=["training"], nodes=1)
    assert plan["destroy"] == [machine.name] and len(plan["launch"]) == 1
    done = auction.run("teardown", plan["run_id"], names=plan["destroy"])
    assert [one["result"] for one in done["machines"]] == ["gone"]
    assert "tgp.io/disrupted=SpotLost:NoExecute" in tainted[0]
    auction.run("launch", plan["run_id"])
    auction.unlock(plan["run_id"])
    assert auction.machine().offer.details["min_bid"] == Decimal("0.20")  # not the other offer of the same host
    assert any(key.startswith("host:vast:") for key in auction.blocks())
    assert auction.join()["machines"][0]["result"] == "ready"
    assert machine.name not in auction.nodes()
    auction.destroy()
    assert auction.left() == {}
    auction.check_bill(late=3)  # nobody tells when exactly it was outbid


def test_L15_reap_gives_a_lost_machine_back_and_bills_what_was_used(auction: Rig) -> None:
    lose(auction)
    assert [one["result"] for one in auction.reap()["machines"]] == ["gone"]
    assert auction.left() == {}
    (line,) = auction.ledger()
    assert line["reason"] == "SpotLost" and line["interrupted_at"]
    auction.check_bill(late=3)


def test_L15_one_that_is_lost_while_it_joins_is_not_waited_for(auction: Rig) -> None:
    auction.behave("mesh_fails")
    auction.rent()
    machine = auction.machine()
    auction.until(lambda: machine.state == "active", "it runs")
    interrupt(auction.world, machine)
    started = auction.clock.now()
    (row,) = auction.join()["machines"]
    assert row["result"] == "failed" and "took its GPUs away" in row["message"]
    assert (auction.clock.now() - started).total_seconds() < 300
    assert auction.left() == {} and any(key.startswith("host:vast:") for key in auction.blocks())


@pytest.mark.parametrize("joined", [False, True])
def test_I13_disk_and_gpus_are_billed_apart(auction: Rig, joined: bool) -> None:
    """Given back while it boots: the disk alone. After an hour of work: both, from when it ran."""
    if not joined:
        auction.behave("never_boots")
    auction.rent()
    if joined:
        auction.join()
        auction.advance(3600)
    auction.destroy()
    assert auction.left() == {}
    (line,) = auction.ledger()
    assert (line["running_since"] is not None) is joined
    auction.check_bill()


# ---- what a cloud keeps beside machines


@pytest.fixture
def team(build: Build) -> Rig:
    offers = [{"type": "A4000", "region": "ny2", "stock": 3, "boot": 20}]
    return only(build(**{"lambda": [], "machines": [], "paperspace": {"offers": offers}}), "paperspace")


def scripts(rig: Rig) -> list[str]:
    return [one.name for one in Team.of(rig.world).scripts.values() if one.deleted is None]


def test_L10_what_stays_beside_a_machine_goes_with_it(team: Rig) -> None:
    assert team.provision()["machines"][0]["result"] == "ready"
    assert scripts(team)
    assert [one["result"] for one in team.destroy()["machines"]] == ["gone"]
    assert (scripts(team), team.left()) == ([], {})
    team.check_bill()


def test_L12_what_a_killed_run_left_beside_machines_is_swept(team: Rig) -> None:
    """The claim is lost after the script was made and before its machine was."""
    plan = team.plan("provision", pools=["training"], nodes=1)

    def die(request: httpx.Request) -> None:
        if request.method == "POST" and request.url.path.endswith("/machines"):
            raise Killed(request.url.path)

    team.watcher = die
    with pytest.raises(Killed):
        team.run("launch", plan["run_id"])
    team.unlock(plan["run_id"])
    team.watcher = lambda _request: None
    (name,) = team.claims()
    assert scripts(team)
    team.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    team.advance(700)
    assert scripts(team) and not [one for one in team.reap()["plan"]["orphans"] if one["kind"] == "delete_extra"]
    team.advance(61)
    team.reap()
    assert (scripts(team), {key: value for key, value in team.left().items() if key != "tokens"}) == ([], {})


def test_L15_a_machine_on_demand_that_its_owner_stopped_is_not_called_outbid(build: Build) -> None:
    rig = only(build(**{"lambda": [], "machines": [], "vast": {"offers": copy.deepcopy(OFFERS)}}), "vast")
    rig.provision()
    machine = rig.machine()
    stop(rig.world, machine, intended="stopped")
    rig.until(lambda: all(one.state == "stopped" for one in [machine]), "it stands still")
    rig.advance(600)
    plan = rig.plan("reap", check=True)
    told = str(plan["destroy"]) + str(plan.get("warnings", "")) + str(plan["plan"])
    assert "stopped by its owner" in told and "took its GPUs away" not in told, told
    assert "SpotLost" not in told
