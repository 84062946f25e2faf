# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""provision.yml from an empty world to usable nodes, and the inventory that shows them."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from tests.fixtures.demo import DEMO

from .box import ROOT, Result, Sandbox

INVENTORY = ROOT / "examples" / "inventory" / "gpu.tgp.yml"


class Story(t.NamedTuple):
    sandbox: Sandbox
    rehearsal: Result
    writes_after_rehearsal: list[str]
    first: Result
    world: dict[str, t.Any]


@pytest.fixture(scope="module")
def story(start: t.Callable[..., Sandbox]) -> Story:
    """A rehearsal and a real first run of the demo's documents: one rented machine, one of one's own."""
    sandbox = start(speed=100)
    rehearsal = sandbox.playbook("provision", check=True)
    writes = sandbox.writes()
    first = sandbox.playbook("provision")
    return Story(sandbox, rehearsal, writes, first, sandbox.world())


def rented(world: dict[str, t.Any]) -> dict[str, t.Any]:
    return next(one for one in world["machines"] if one["cloud"] == "lambda" and one["ended"] is None)


def test_a_rehearsal_shows_the_plan_with_prices_and_writes_nothing(story: Story) -> None:
    result = story.rehearsal.succeeded()
    assert story.writes_after_rehearsal == []
    assert result.out.count("  launch  ") == 2
    assert "+0.69" in result.out and "+16.56" in result.out  # the cheapest fitting offer: by the hour, by the day
    assert "now $0.00/h ($0.00/day), then $0.69/h ($16.56/day)" in result.words
    assert "+machine rack-1 (launch: Wanted)" in result.out  # the diff


def test_the_first_run_ends_with_usable_nodes(story: Story) -> None:
    """provision.yml of the demo as a user runs it: exit status, recap and Ready nodes agree."""
    story.first.succeeded()
    world = story.world
    assert world["totals"]["instances"] == 2
    name = rented(world)["name"]
    nodes = {one["name"]: one for one in world["nodes"]}
    assert set(nodes) >= {name, "rack-1"}
    for one in (nodes[name], nodes["rack-1"]):
        assert one["ready"] == "True"
        assert one["gpus"] == 1
        assert not one["unschedulable"]
        assert "tgp.io/initializing" not in {taint["key"] for taint in one["taints"]}


def test_nodes_carry_labels_and_taints(story: Story) -> None:
    machine = rented(story.world)
    nodes = {one["name"]: one for one in story.world["nodes"]}
    labels, annotations = nodes[machine["name"]]["labels"], nodes[machine["name"]]["annotations"]
    expected = {
        "tgp.io/nodepool": "training",
        "tgp.io/nodeclass": "demo",
        "tgp.io/provider": "lambda",
        "tgp.io/provisioned": "true",
        "tgp.io/gpu-count": "1",
        "tgp.io/spot": "false",
        "tgp.io/instance-id": machine["id"],
        "node.kubernetes.io/instance-type": "gpu_1x_rtx6000",
    }
    assert {key: labels.get(key) for key in expected} == expected
    assert annotations["tgp.io/price-hour"] == "0.69"
    taints = {(one["key"], one.get("value", ""), one["effect"]) for one in nodes[machine["name"]]["taints"]}
    assert {("gpu-node", "true", "NoSchedule"), ("tgp.io/ephemeral", "true", "NoSchedule")} == taints
    assert nodes["rack-1"]["labels"]["tgp.io/provider"] == "webhook"


def test_the_claims_are_ready_and_enrolment_secrets_are_gone(story: Story) -> None:
    claims = story.sandbox.claims()
    assert {one["phase"] for one in claims.values()} == {"Ready"}
    assert set(claims) == {rented(story.world)["name"], "rack-1"}
    left = story.sandbox.left()
    assert (left["keys"], left["tokens"]) == (0, 0)
    devices = {one["hostname"]: one for one in story.world["devices"]}
    assert set(devices) == set(claims)
    assert all(one["online"] and one["ephemeral"] and one["tags"] == ["tag:gpu"] for one in devices.values())


def test_a_second_run_changes_nothing(story: Story) -> None:
    before = story.sandbox.writes()
    again = story.sandbox.playbook("provision").succeeded()
    assert again.count("changed") == 0
    assert story.sandbox.writes() == before


def test_status_changes_nothing_and_shows_prices(story: Story) -> None:
    before = story.sandbox.writes()
    result = story.sandbox.playbook("status").succeeded()
    assert story.sandbox.writes() == before
    assert result.count("changed") == 0
    assert rented(story.world)["name"] in result.out and "rack-1" in result.out
    assert "now: 2 instances, 2 devices, 0 keys, 0 tokens, 2 nodes, 2 claims; $0.69/h" in result.words


def test_validate_finds_nothing_wrong_and_changes_nothing(story: Story) -> None:
    before = story.sandbox.writes()
    result = story.sandbox.playbook("validate").succeeded()
    assert story.sandbox.writes() == before
    assert result.count("changed") == 0


def test_the_inventory_shows_the_machines_in_groups(story: Story) -> None:
    name = rented(story.world)["name"]
    graph = story.sandbox.command("ansible-inventory", "-i", str(INVENTORY), "--graph").succeeded().out
    for group in (
        "@gpu_nodes",
        "@cloud_lambda",
        "@cloud_webhook",
        "@pool_default_training",
        "@class_demo",
        "@phase_ready",
        "@lane_kubelet",
    ):
        assert f"{group}:" in graph, graph
    assert f"--{name}" in graph and "--rack-1" in graph


def plain(value: t.Any) -> t.Any:
    """What ansible-inventory lists, without the mark of values that Ansible will never take for a template."""
    if isinstance(value, dict):
        return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def test_the_inventory_has_what_a_playbook_needs(story: Story) -> None:
    listed = plain(json.loads(story.sandbox.command("ansible-inventory", "-i", str(INVENTORY), "--list").succeeded().out))
    machine = rented(story.world)
    host = listed["_meta"]["hostvars"][machine["name"]]
    assert host["tgp_instance_id"] == machine["id"]
    assert host["tgp_price_hour"] == "0.69"
    assert host["tgp_node_ready"] is True
    assert (host["ansible_connection"], host["ansible_user"]) == ("ssh", "ubuntu")
    assert host["ansible_host"] in host["tgp_mesh_addresses"]


def test_a_cached_inventory_costs_no_call(story: Story, tmp_path: Path) -> None:
    file = tmp_path / "gpu.tgp.yml"
    file.write_text(
        f"plugin: tgp.gpu.nodes\ndocuments: [{DEMO}]\ncache: true\ncache_plugin: ansible.builtin.jsonfile\n"
        f"cache_connection: {tmp_path / 'cache'}\n"
    )
    command = ("ansible-inventory", "-i", str(file), "--list")
    first = story.sandbox.command(*command).succeeded()
    calls = story.sandbox.calls()
    second = story.sandbox.command(*command).succeeded()
    assert story.sandbox.calls() == calls
    assert json.loads(second.out) == json.loads(first.out)


def test_as_many_tasks_for_five_machines_as_for_one(story: Story) -> None:
    """The playbook does not loop over machines: its number of tasks stays the same."""
    more = story.sandbox.playbook("provision", extra_vars={"nodes": {"training": 5, "own": 1}}).succeeded()
    assert (more.count("ok"), more.count("skipped")) == (story.first.count("ok"), story.first.count("skipped"))
    assert story.sandbox.totals()["instances"] == 6
    assert [one["phase"] for one in story.sandbox.claims().values()] == ["Ready"] * 6


def test_fewer_wanted_than_there_are_removes_nothing(story: Story) -> None:
    before = story.sandbox.totals()["instances"]
    result = story.sandbox.playbook("provision", extra_vars={"nodes": 1}).succeeded()
    assert "provision never removes any" in result.words
    assert story.sandbox.totals()["instances"] == before
