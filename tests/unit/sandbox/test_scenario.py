# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios: those that ship are sound, and what is wrong in one is named by its path."""

from __future__ import annotations

import json
import pathlib
import typing as t
from decimal import Decimal

import pytest
import yaml

from sandbox import scenario
from sandbox.box import Box
from sandbox.catalogue import LAMBDA_TYPES
from sandbox.scenario import ScenarioError
from sandbox.scenario_clouds import PARTS
from sandbox.world import World


@pytest.mark.parametrize("name", scenario.names())
def test_a_shipped_scenario_furnishes_a_world(name: str) -> None:
    world = World()
    scenario.load(name).furnish(world)
    assert any(offer.stock > 0 for offer in world.offers) and any(offer.stock == 0 for offer in world.offers)
    assert all(machine.state == "off" and machine.cost(world.clock.now()) == 0 for machine in world.machines.values())


def test_the_seed_scenario_has_an_rtx_4090_where_the_clouds_have_it() -> None:
    """Lambda rents none; RunPod's are containers, and some of Vast.ai's are virtual machines."""
    world = World()
    scenario.load("seed-s0").furnish(world)
    clouds = {one.cloud for one in world.offers if "4090" in str(one)}
    assert clouds == {"vast", "runpod"}


LAMBDA = (  # the types of its price page of September 2026 and of its API's reply of November 2025
    "a10 a6000 a100 a100_sxm4 b200_sxm6 gh200 h100_pcie h100_sxm5 rtx6000",
    "a100 a6000 b200_sxm6 h100_sxm5",
    "a100 a6000 b200_sxm6 h100_sxm5",
    "a100 a100_80gb_sxm4 b200_sxm6 h100_sxm5 v100",
)


def test_lambdas_catalogue_holds_only_what_lambda_rents() -> None:
    known = {f"gpu_{gpus}x_{name}" for gpus, names in zip((1, 2, 4, 8), LAMBDA, strict=True) for name in names.split()}
    assert {name for name, one in LAMBDA_TYPES.items() if one.gpus} <= known


def test_a_scenario_may_be_a_json_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.json"
    entry = {"type": "gpu_1x_a10", "region": "us-east-1", "price": "1.00", "bills": "1.39", "stock": 2, "boot": 60, "gpu": 3}
    path.write_text(json.dumps({"lambda": [entry], "timings": {"packages": 5}, "rate_limits": False}))
    loaded = scenario.load(str(path))
    offer = loaded.offers[0]
    assert (offer.details["shown_price"], offer.price_hour) == (Decimal("1.00"), Decimal("1.39"))
    assert offer.details["timings"] == {"gpu": 3.0} and loaded.timings["packages"] == 5.0 and loaded.rate_limits is False


A10 = {"type": "gpu_1x_a10", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "scenario: should be an object"),
        ({"lamda": []}, "unknown key lamda"),
        ({"lambda": [{**A10, "stocks": 3}]}, "lambda[0]: unknown key stocks"),
        ({"lambda": [{**A10, "stock": -1}]}, "lambda[0].stock"),
        ({"lambda": [{**A10, "stock": True}]}, "lambda[0].stock"),
        ({"lambda": [{**A10, "stock": 1.5}]}, "lambda[0].stock: 1.5 should be a whole number"),
        ({"machines": [{"name": "a", "gpus": 1.5}]}, "machines[0].gpus: 1.5 should be a whole number"),
        ({"runpod": {"offers": [{"type": "NVIDIA L4", "region": "EU-RO-1", "stock": 1.5}]}}, "stock: 1.5 should be a whole number"),
        ({"paperspace": {"offers": [{"type": "A4000", "region": "ny2", "stock": 1.5}]}}, "should be a whole number"),
        ({"lambda": [{**A10, "boot": float("nan")}]}, "lambda[0].boot"),
        ({"lambda": [{**A10, "price": "cheap"}]}, "lambda[0].price"),
        ({"lambda": [{**A10, "price": "0.123"}]}, "whole cents"),
        ({"lambda": [{**A10, "type": "gpu_9x"}]}, "no type 'gpu_9x'"),
        ({"lambda": [{**A10, "region": "moon"}]}, "no region 'moon'"),
        ({"lambda": [{"region": "us-east-1"}]}, "lambda[0].type: is missing"),
        ({"lambda": "many"}, "scenario.lambda: cannot be 'many'"),
        ({"lambda": {"offers": [{**A10, "stock": -1}]}}, "lambda.offers[0]: offer.stock"),
        ({"lambda": {"list_afters": 3}}, "lambda: unknown key list_afters"),
        ({"lambda": {"audit_page": 0}}, "lambda.audit_page: should be above zero"),
        ({"lambda": {"file_systems": [{"name": "a"}]}}, "lambda.file_systems[0]: should have name, region and gb"),
        ({"lambda": {"file_systems": [{"name": "a", "region": "moon", "gb": 1}]}}, "Lambda has no region 'moon'"),
        ({"runpod": {"network_volumes": [{"name": "a", "size": 10}]}}, "runpod.network_volumes[0]"),
        (
            {"runpod": {"network_volumes": [{"name": "a", "size": 10, "dataCenter": "MOON-1"}]}},
            "data center MOON-1 has no STANDARD",
        ),
        ({"lambda": {"pace_form": "xml"}}, "lambda.pace_form: 'xml' should be one of json, text, empty"),
        ({"lambda": {"reuse_addresses": 1}}, "lambda.reuse_addresses: cannot be 1"),
        ({"machines": [{"name": "a"}, {"name": "a"}]}, "two machines"),
        ({"machines": [{"name": "a", "on": True}]}, "only an installed machine"),
        ({"tailnet": {"policy": "{"}}, "tailnet.policy"),
        ({"tailnet": {"profile": "wireguard"}}, "should be saas or headscale"),
        ({"tailnet": {"last_seen": "never"}}, "should be offline or always"),
        ({"tailnet": {"node_keys": "no"}}, "tailnet.node_keys"),
        ({"timings": {"lunch": 1}}, "timings: unknown key lunch"),
        ({"behaviours": [{"kind": "sulk"}]}, "behaviours[0]"),
        ({"behaviours": [{"kind": ["vanish"]}]}, "should be one of"),
        ({"behaviours": [{"kind": "vanish"}]}, "needs `seconds`"),
        ({"vast": {"offers": [{"gpu": ["RTX 4090"]}]}}, "vast.offers[0]: gpu: ['RTX 4090']"),
        ({"lambda": [{**A10, "price": "1e999999"}]}, "is no price"),
        ({"lambda": [{**A10, "price": "NaN"}]}, "is no price"),
        ({"lambda": [{**A10, "price": "sNaN"}]}, "is no price"),
        ({"runpod": {"page_size": 0}}, "runpod.page_size: should be above zero"),
        ({"behaviours": [{"kind": "slow", "factor": 0}]}, "above zero"),
        ({"behaviours": [{"kind": "slow", "name": "("}]}, "regular expression"),
        ({"behaviours": [{"kind": "slow", "times": 1.5}]}, "whole number"),
        ({"faults": [{"kind": "meteor"}]}, "faults[0]"),
        ({"vast": []}, "scenario.vast: cannot be []"),
        ({"vast": {"offers": [{"gpu": "Voodoo 2"}]}}, "vast.offers[0]: gpu: 'Voodoo 2'"),
        ({"vast": {"auth_status": 403}}, "vast.auth_status: 403"),
        ({"vast": {"two_factor": 1}}, "vast.two_factor: cannot be 1"),
        ({"runpod": {"offers": [{"type": "NVIDIA L4", "region": "MOON-1"}]}}, "runpod.offers[0]: region"),
        ({"runpod": {"shy_second": 3}}, "runpod: unknown key shy_second"),
        ({"runpod": {"page_size": 1.5}}, "whole number"),
        (
            {"paperspace": {"offers": [{"type": "A4000", "region": "mars"}]}},
            "paperspace.offers[0]: offer: Paperspace has no A4000 in 'mars'",
        ),
        ({"paperspace": {"offers": [{"type": "A100", "region": "ny2"}]}}, "offer.bills: is missing"),
        ({"paperspace": {"limit_status": 500}}, "paperspace.limit_status: 500"),
        ({"paperspace": {"needs_approval": ["A1"]}}, "no type 'A1'"),
        ({"paperspace": {"static_ip_hour": "free"}}, "is no price"),
    ],
)
def test_what_is_wrong_is_named(content: t.Any, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario.parse(content)
    assert says in str(caught.value)


def test_words_of_switches_may_stand_as_they_are_documented() -> None:
    written = scenario.parse(yaml.safe_load("vast: {gone_as: null, gone_twice: false}")).switches["vast"]
    assert written == {"gone_as": "null", "gone_twice": "false"}
    written = scenario.parse(yaml.safe_load("vast: {gone_as: 404, gone_twice: 404}")).switches["vast"]
    assert written == {"gone_as": "404", "gone_twice": "404"}
    for wrong in ("vast: {gone_as: false}", "vast: {gone_twice: null}", "vast: {missing_rights: null}", "vast: {pace_form: 404}"):
        with pytest.raises(ScenarioError):
            scenario.parse(yaml.safe_load(wrong))


def test_a_fault_of_a_service_that_is_none_is_refused() -> None:
    wrong = scenario.parse({"faults": [{"kind": "status", "service": "lamda"}]})
    with pytest.raises(ScenarioError, match="scenario.faults: there is no service lamda"):
        Box(wrong)


def test_switches_are_turned_in_the_world() -> None:
    content: dict[str, t.Any] = {
        "vast": {"list_after": 5, "auth_status": 404},
        "runpod": {"page_size": 2, "forbidden": ["NVIDIA B200"]},
    }
    world = World()
    content["lambda"] = {"offers": [A10], "list_after": 7, "quota": 2}
    scenario.parse({**content, "paperspace": {"availability": False, "max_machines": 3}}).furnish(world)
    accounts = {cloud: world.__dict__[f"{cloud}_account"] for cloud in ("lambda", "vast", "runpod", "paperspace")}
    assert [offer.type for offer in world.offers] == ["gpu_1x_a10"]
    assert (accounts["lambda"].list_after, accounts["lambda"].quota, accounts["lambda"].active) == (7.0, 2, True)
    assert (accounts["vast"].switches.list_after, accounts["vast"].switches.auth_status) == (5.0, 404)
    assert (accounts["runpod"].page_size, accounts["runpod"].forbidden) == (2, ("NVIDIA B200",))
    assert (accounts["paperspace"].switches.availability, accounts["paperspace"].switches.max_machines) == (False, 3)


def test_a_scenario_can_furnish_many_worlds() -> None:
    once, first, second = scenario.load("four-clouds"), World(), World()
    once.furnish(first)
    first.offers[0].stock = 0
    once.furnish(second)
    assert second.offers[0].stock > 0
    assert {offer.cloud for offer in second.offers} == {"lambda", "vast", "runpod", "paperspace"}


def test_a_scenario_that_is_nowhere() -> None:
    with pytest.raises(ScenarioError, match="neither a file nor one of all-lanes, default, four-clouds, seed-s0"):
        scenario.load("/nowhere/at/all.yaml")


def test_every_switch_is_described() -> None:
    text = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "reference" / "sandbox.md").read_text(encoding="utf-8")
    assert [(cloud, name) for cloud, part in PARTS.items() for name in part.switches if f"`{name}`" not in text] == []


def test_the_example_of_the_readme_is_a_scenario() -> None:
    text = (pathlib.Path(scenario.__file__).parent / "README.md").read_text(encoding="utf-8")
    example = yaml.safe_load(text.rpartition("```yaml")[2].partition("```")[0])
    assert {offer.cloud for offer in scenario.parse(example).offers} == {"lambda", "vast", "runpod", "paperspace", "vultr", "gcp"}


def test_the_switches_of_the_tailnet_reach_it() -> None:
    tailnet = Box(scenario.parse({"tailnet": {"last_seen": "always", "node_keys": False, "ephemeral_seconds": 60}})).tailnet
    assert (tailnet.last_seen, tailnet.node_keys, tailnet.ephemeral_seconds) == ("always", False, 60)
