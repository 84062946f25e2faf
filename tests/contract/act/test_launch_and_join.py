# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One step launches and joins: each machine is followed from the moment it is rented, while others wait for their cloud's pace."""

from __future__ import annotations

import typing as t
from datetime import datetime

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError

from .rig import Rig, moment
from .test_tunnel import HUB

PACE = 12.0  # seconds of the world between two launches at Lambda, as its client keeps them
NODES = 6


def launch(rig: Rig, plan: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    """What provision.yml does after its plan; without ``wanted`` failed machines are not replaced."""
    try:
        return rig.run("launch", plan["run_id"], names=plan["launch"], only_named=True, join=True, **more)
    finally:
        rig.unlock(plan["run_id"])


def provision(rig: Rig, nodes: int = NODES) -> dict[str, t.Any]:
    return launch(rig, rig.plan("provision", pools=["training"], nodes=nodes))


def provision_replacing(rig: Rig, nodes: int) -> dict[str, t.Any]:
    plan = rig.plan("provision", pools=["training"], nodes=nodes)
    assert plan["wanted"] == {"default/training": nodes}
    return launch(rig, plan, wanted=plan["wanted"])


def results(done: dict[str, t.Any]) -> list[str]:
    return sorted(one["result"] for one in done["machines"])


def moments(rig: Rig, event: str) -> list[datetime]:
    """When that was reported, of each machine, in order."""
    return sorted(moment(one["time"]) for one in rig.events() if one["kind"] == "progress" and one["event"] == event)


def test_P1_the_first_machine_is_usable_before_the_last_is_rented(rig: Rig) -> None:
    done = provision(rig)
    assert [one["result"] for one in done["machines"]] == ["ready"] * NODES and done["outcome"] == "changed"
    rented, joined = moments(rig, "rented"), moments(rig, "joined")
    assert (rented[-1] - rented[0]).total_seconds() >= (NODES - 1) * PACE * 0.9  # the pace was kept
    assert joined[0] < rented[-1]
    assert rig.left() == {"instances": NODES, "devices": NODES, "nodes": NODES, "claims": NODES}
    again = provision(rig)
    assert (again["changed"], again["machines"]) == (False, [])


def test_L11_a_failed_machine_is_terminated_while_others_are_still_rented(build: t.Callable[..., Rig]) -> None:
    rig = build(speed=80)  # a minute of pace, in which a slow host finds the loss and terminates
    rig.behave("vanish", seconds=25, times=1)
    done = provision(rig)
    assert sorted(one["result"] for one in done["machines"]) == ["failed", *["ready"] * (NODES - 1)]
    (row,) = [one for one in done["machines"] if one["result"] == "failed"]
    assert row["message"].endswith("(terminated)") and "machines" in done and done["outcome"] == "partial"
    (line,) = rig.ledger()
    assert line["reason"] == "FailedJoin" and moment(line["end"]) < moments(rig, "rented")[-1]
    rig.check_bill()


def test_what_is_on_its_way_already_is_joined_beside_the_new_ones(rig: Rig) -> None:
    rig.rent()
    done = provision(rig, 2)
    assert [one["result"] for one in done["machines"]] == ["ready", "ready"]
    assert sorted(one["phase"] for one in rig.claims().values()) == ["Ready", "Ready"]


def test_only_named_ones_of_those_on_their_way_are_joined(rig: Rig) -> None:
    first, second = rig.rent(nodes=2)["plan"]["launch"]
    done = rig.run("launch", "named", only_named=True, join=True, join_names=[second])
    rig.unlock("named")
    assert [(one["name"], one["result"]) for one in done["machines"]] == [(second, "ready")]
    assert rig.claims()[first]["phase"] != "Ready"


def test_an_empty_list_of_names_launches_nothing(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=1)
    done = rig.run("launch", plan["run_id"], names=[], only_named=True, join=True)
    assert (done["changed"], done["machines"], rig.machines()) == (False, [], [])
    assert launch(rig, plan)["machines"][0]["result"] == "ready"


def test_nothing_more_is_rented_once_machines_cannot_be_joined(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=NODES)
    rig.fault("status", "kubernetes", "GET", "/api/v1/nodes", status=403, times=None)
    with pytest.raises(TgpError, match="nodes"):
        launch(rig, plan)
    rented = len(rig.machines())
    assert 0 < rented < NODES
    rig.faults.clear()
    assert {one["result"] for one in provision(rig)["machines"]} == {"ready"}
    assert rig.left() == {"instances": NODES, "devices": NODES, "nodes": NODES, "claims": NODES}


def test_check_mode_says_what_would_be_rented_and_what_followed(rig: Rig) -> None:
    rig.rent()
    plan = rig.plan("provision", pools=["training"], nodes=2)
    foreseen = rig.run("launch", plan["run_id"], check=True, names=plan["launch"], only_named=True, join=True)
    assert sorted(one["message"] for one in foreseen["machines"]) == ["would be followed until it is usable", "would be rented"]
    assert len(rig.machines()) == 1
    rig.unlock(plan["run_id"])


def test_a_machine_behind_a_hub_of_the_inventory_is_rented_and_left_for_later(rig: Rig) -> None:
    rig.demo_class.pop("tailscaleConfig", None)
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
    rig.demo_class["wireguardConfig"] = dict(HUB)
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    plan = rig.plan("provision", pools=["training"], nodes=2)
    done = launch(rig, plan)
    assert [one["result"] for one in done["machines"]] == ["launched", "launched"]
    assert sorted(done["unjoined"]) == sorted(plan["launch"]) and len(done["hubs"][0]["peers"]) == 2


def test_scale_joins_beside_a_drain(rig: Rig) -> None:
    provision(rig, 1)
    rig.pod(next(iter(rig.nodes())), budget=True)
    plan = rig.plan("destroy", all=True)
    rig.unlock(plan["run_id"])
    more = rig.plan("provision", pools=["training"], nodes=1)
    names = [*more["launch"], *plan["destroy"]]
    done = rig.run("scale", more["run_id"], names=names, only_named=True, join=True)
    rig.unlock(more["run_id"])
    results = {one["name"]: one["result"] for one in done["machines"]}
    assert [results[name] for name in more["launch"]] == ["ready"] * len(more["launch"])


# ---- replacements


def test_L11_a_failed_machine_is_replaced_in_the_same_run(rig: Rig) -> None:
    rig.behave("vanish", seconds=25, times=1)
    done = provision_replacing(rig, 4)
    assert (results(done), done["problems"], done["outcome"]) == (["ready"] * 4 + ["replaced"], [], "changed")
    assert rig.left() == {"instances": 4, "devices": 4, "nodes": 4, "claims": 4}
    (line,) = rig.ledger()
    assert line["reason"] == "FailedJoin" and not line["joined"]
    rig.check_bill()
    again = provision_replacing(rig, 4)
    assert (again["changed"], again["machines"]) == (False, [])


def test_L11_a_replacement_that_fails_is_replaced_until_the_pool_is_paused(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "2m"
    rig.behave("never_boots")
    done = provision_replacing(rig, 1)
    assert results(done) == ["failed"] * 3 and len(done["problems"]) == 3
    assert [line["reason"] for line in rig.ledger()] == ["FailedJoin"] * 3
    assert "pool:default/training" in rig.blocks() and rig.left() == {}
    assert any("paused after failed joins" in line for line in rig.lines)


def test_L11_a_replacement_of_a_replacement_solves_both(rig: Rig) -> None:
    rig.behave("vanish", seconds=25, times=2)
    done = provision_replacing(rig, 1)
    assert (results(done), done["problems"]) == (["ready", "replaced", "replaced"], [])
    assert len({one["name"] for one in done["machines"]}) == 3, "the books know each by its name"
    assert len(rig.ledger()) == 2
    rig.destroy()
    assert len(rig.ledger()) == 3 and rig.left() == {}
    rig.check_bill()


def test_L16_a_replacement_keeps_the_limits(rig: Rig) -> None:
    """The failed machine stays, so its place is not free."""
    rig.demo_class["limits"]["maxNodes"] = 2
    rig.fault("status", "lambda", "POST", "terminate", status=403, times=None)
    rig.behave("vanish", seconds=25, times=1)
    done = provision_replacing(rig, 2)
    rig.faults.clear()
    assert len(rig.machines()) <= 2 and "ready" in results(done)


def test_a_failed_machine_of_a_pool_that_nobody_asked_about_is_not_replaced(rig: Rig) -> None:
    rig.behave("vanish", seconds=25, times=1)
    plan = rig.plan("provision", pools=["training"], nodes=1)
    assert results(launch(rig, plan, wanted={"default/other": 3})) == ["failed"] and rig.left() == {}
