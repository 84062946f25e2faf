# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every lane that pools rent by, in one run of provision.yml: thirty nodes of lanes talos and kubelet and four services, from own machines
and four clouds. ``-s`` shows the table."""

from __future__ import annotations

import typing as t
from collections import Counter
from decimal import Decimal

import pytest

from .box import NOTHING, ROOT, Result, Sandbox, bill

EXAMPLE = ROOT / "examples" / "all_lanes.yml"
NODES = {("talos", "webhook"): 6, ("kubelet", "lambda"): 9, ("kubelet", "paperspace"): 8, ("kubelet", "vast"): 7}
SERVICES = {("service", "vast"): 2, ("service", "runpod"): 2}
TAINTS = {("gpu-node", "true", "NoSchedule"), ("tgp.io/ephemeral", "true", "NoSchedule")}


class Story(t.NamedTuple):
    sandbox: Sandbox
    first: Result
    world: dict[str, t.Any]
    claims: dict[str, dict[str, t.Any]]
    systems: dict[str, str]
    """Node name -> what its machine says it runs."""


@pytest.fixture(scope="module")
def story(start: t.Callable[..., Sandbox]) -> Story:
    sandbox = start(speed=40, scenario="all-lanes")
    first = sandbox.playbook("provision", documents=EXAMPLE)
    systems = {name: one["status"]["nodeInfo"]["osImage"] for name, one in sandbox.nodes().items()}
    return Story(sandbox, first, sandbox.world(), sandbox.claims(), systems)


def ways(claims: t.Iterable[dict[str, t.Any]]) -> Counter[tuple[str, str]]:
    return Counter((one["lane"], one["cloud"]) for one in claims)


def taints(node: dict[str, t.Any]) -> set[tuple[str, str, str]]:
    return {(one["key"], one.get("value", ""), one["effect"]) for one in node["taints"]}


def test_one_run_brings_thirty_nodes_and_four_services_of_every_lane(story: Story) -> None:
    """All lanes and clouds in one run, at a size where claims, keys and tokens of machines could be mixed up; keys and tokens end with it."""
    story.first.succeeded()
    assert ways(story.claims.values()) == {**NODES, **SERVICES}
    assert {one["phase"] for one in story.claims.values()} == {"Ready"}
    left = story.sandbox.left()
    assert (left["instances"], left["devices"], left["nodes"] + 6) == (34, 34, 30)  # own machines' nodes have their own names
    assert (left["keys"], left["tokens"]) == (0, 0), "what let machines in is good no longer"


def test_every_node_is_ready_labelled_and_tainted(story: Story) -> None:
    """Labels and taints come from each node's own claim, not from its neighbour's, over all lanes."""
    nodes = {one["name"]: one for one in story.world["nodes"]}
    machines = {one["name"]: one for one in story.world["machines"] if one["ended"] is None}
    joined = {name: claim for name, claim in story.claims.items() if claim["lane"] != "service"}
    rows = []
    for name, claim in sorted(joined.items()):
        node = nodes[name]
        offer, labels = claim["offer"], node["labels"]
        expected = {
            "tgp.io/nodepool": claim["pool"].partition("/")[2],
            "tgp.io/nodeclass": "all-lanes",
            "tgp.io/provider": claim["cloud"],
            "tgp.io/provisioned": "true",
            "tgp.io/gpu-count": str(offer["gpu_count"]),
            "tgp.io/spot": "false",
            "tgp.io/instance-id": machines[name]["id"],
        }
        assert {key: labels.get(key) for key in expected} == expected, name
        assert node["ready"] == "True" and node["gpus"] == offer["gpu_count"] and not node["unschedulable"], name
        assert taints(node) == TAINTS, name
        assert story.systems[name].startswith("Talos" if claim["lane"] == "talos" else "Ubuntu"), name
        rows.append(f"{claim['lane']:<8} {claim['cloud']:<11} {name:<30} Ready  {node['gpus']} GPU  {offer['price_hour']:>9} $/h")
    assert len(rows) == 30 and not set(nodes) & (set(story.claims) - set(joined)), "a container is no node"
    print("", *rows, sep="\n")


def test_every_service_is_published(story: Story) -> None:
    """Services of several clouds get their names in one run."""
    for name in (name for name, claim in story.claims.items() if claim["lane"] == "service"):
        service = story.sandbox.get(f"/api/v1/namespaces/default/services/{name}")
        assert service["metadata"]["annotations"]["tailscale.com/tailnet-fqdn"].startswith(f"{name}."), name


def test_a_second_run_changes_nothing_anywhere(story: Story) -> None:
    """Idempotence over all lanes and clouds at once: no write to any service."""
    before = story.sandbox.writes()
    again = story.sandbox.playbook("provision", documents=EXAMPLE).succeeded()
    assert again.count("changed") == 0 and story.sandbox.writes() == before


def test_destroy_leaves_nothing_and_every_machine_is_in_the_books(story: Story) -> None:
    """34 machines of five origins end in one run, and our bill is that of the clouds."""
    sandbox = story.sandbox
    sandbox.playbook("destroy", documents=EXAMPLE, extra_vars={"everything": True, "force": True}).succeeded()
    assert sandbox.left() == NOTHING and sandbox.living() == []
    lines = sandbox.ledger()
    assert {one["name"] for one in lines} == set(story.claims)
    theirs = sum((Decimal(one["cost"]) for one in sandbox.world()["machines"]), Decimal(0))
    per_minute = sum((Decimal(one["price_hour"]) for one in lines), Decimal(0)) / 60
    assert abs(bill(lines) - theirs) <= per_minute and theirs > 0
