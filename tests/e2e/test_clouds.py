# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A full cycle on every cloud: by provision.yml and reap.yml, and by its own module for single machines."""

from __future__ import annotations

import json
import typing as t
from decimal import Decimal

import pytest
import yaml

from .box import NOTHING, ROOT, Sandbox, bill

EXAMPLE = ROOT / "examples" / "clouds.yml"
IDLE = 11 * 60
MODULES = {
    "lambda_instance": "instance_type=gpu_1x_a10 region=us-east",
    "paperspace_machine": "machine_type=A4000 region=us-east",
    "runpod_pod": "gpu_type='RTX 4090' image=docker.io/library/debian:12 command='exec sleep infinity'",
    "vast_instance": "gpu_type='RTX 4090' region=us-west",
}
NODES = [("lambda", "nodes"), ("paperspace", "nodes"), ("vast", "nodes")]
SERVICES = [("runpod", "inference"), ("vast", "inference")]


@pytest.fixture(scope="module")
def shared(start: t.Callable[..., Sandbox]) -> Sandbox:
    return start(speed=100, scenario="four-clouds")


@pytest.fixture
def clean(sandbox: Sandbox) -> t.Iterator[Sandbox]:
    """Whatever a test leaves is given back by destroy.yml."""
    yield sandbox
    if sandbox.claims():
        sandbox.playbook("destroy", documents=EXAMPLE, extra_vars={"everything": True, "force": True})
    assert sandbox.left() == NOTHING


def documents(cloud: str, pool: str) -> list[dict[str, t.Any]]:
    """The example with one cloud and one pool of it."""
    found = [
        one for one in yaml.safe_load_all(EXAMPLE.read_text()) if one["kind"] == "GPUNodeClass" or one["metadata"]["name"] == pool
    ]
    spec = found[0]["spec"]
    spec["providers"] = [one for one in spec["providers"] if one["name"] == cloud]
    spec["talosConfig"]["machineConfigTemplateFile"] = str(ROOT / "examples" / spec["talosConfig"]["machineConfigTemplateFile"])
    return found


def rented(sandbox: Sandbox) -> dict[str, t.Any]:
    (only,) = sandbox.living()
    return only


def check_bill(sandbox: Sandbox, machine: dict[str, t.Any]) -> None:
    """I-13: our line is the cloud's bill, give or take a minute."""
    (line,) = [one for one in sandbox.ledger() if machine["id"] in one["ids"]]
    theirs = next(one for one in sandbox.world()["machines"] if one["id"] == machine["id"])
    assert abs(Decimal(line["cost"]) - Decimal(theirs["cost"])) <= Decimal(line["price_hour"]) / 60, (line, theirs)
    assert bill([line]) > 0


@pytest.mark.parametrize(("cloud", "pool"), NODES, ids=[one[0] for one in NODES])
def test_a_node_comes_and_goes(clean: Sandbox, cloud: str, pool: str) -> None:
    """The playbooks pass each cloud's credentials and payload all the way to a Ready node, and the reaper ends it."""
    wanted = documents(cloud, pool)
    result = clean.playbook("provision", documents=wanted).succeeded()
    machine = rented(clean)
    node = clean.nodes()[machine["name"]]
    assert machine["cloud"] == cloud and machine["name"] in result.out
    assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    assert node["metadata"]["labels"]["tgp.io/provider"] == cloud
    writes = clean.writes()
    again = clean.playbook("provision", documents=wanted).succeeded()
    assert again.count("changed") == 0 and clean.writes() == writes
    clean.advance(IDLE)
    clean.playbook("reap", documents=wanted).succeeded()
    clean.advance(IDLE)
    clean.playbook("reap", documents=wanted).succeeded()
    assert clean.left() == NOTHING
    check_bill(clean, machine)


@pytest.mark.parametrize(("cloud", "pool"), SERVICES, ids=[one[0] for one in SERVICES])
def test_a_service_comes_and_goes(clean: Sandbox, cloud: str, pool: str) -> None:
    """The lane of containers by playbook: published, ready without a Node, and forgotten with its machine."""
    wanted = documents(cloud, pool)
    clean.playbook("provision", documents=wanted).succeeded()
    machine = rented(clean)
    name = machine["name"]
    assert machine["cloud"] == cloud and name not in clean.nodes()
    service = clean.get(f"/api/v1/namespaces/default/services/{name}")
    assert service["spec"]["type"] == "ExternalName"
    assert service["metadata"]["annotations"]["tailscale.com/tailnet-fqdn"].startswith(f"{name}.")
    endpoints = json.loads(clean.get("/api/v1/namespaces/default/configmaps/tgp-endpoints-inference")["data"]["endpoints.json"])
    assert name in json.dumps(endpoints)
    assert [one for one in clean.world()["devices"] if one["hostname"] == name and one["online"]]
    writes = clean.writes()
    again = clean.playbook("provision", documents=wanted).succeeded()
    assert again.count("changed") == 0 and clean.writes() == writes

    clean.control.post(f"/machines/{name}/busy", json={"busy": True}).raise_for_status()
    clean.advance(IDLE)
    clean.playbook("reap", documents=wanted).succeeded()
    clean.advance(IDLE)
    clean.playbook("reap", documents=wanted).succeeded()
    assert [one["name"] for one in clean.living()] == [name], "its probe says that it is busy"
    clean.control.post(f"/machines/{name}/busy", json={"busy": False}).raise_for_status()
    clean.playbook("reap", documents=wanted).succeeded()
    clean.advance(IDLE)
    clean.playbook("reap", documents=wanted).succeeded()
    assert clean.left() == NOTHING
    assert clean.kube.get(f"/api/v1/namespaces/default/services/{name}").status_code == 404
    check_bill(clean, machine)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_one_machine_by_its_own_module(clean: Sandbox, module: str) -> None:
    """The instance modules by the ad-hoc command, as separate processes, with state kept by the cloud alone."""
    name = f"tgp-single-{module.split('_')[0]}"
    call = ("ansible", "localhost", "-m", f"tgp.gpu.{module}", "-a")
    made = clean.command(*call, f"name={name} {MODULES[module]} max_price_hour=2.00").succeeded()
    machine = rented(clean)
    assert machine["name"] == name and machine["id"] in made.out and "CHANGED" in made.out
    assert "CHANGED" not in clean.command(*call, f"name={name} {MODULES[module]} max_price_hour=2.00").succeeded().out
    assert "CHANGED" in clean.command(*call, f"name={name} state=absent").succeeded().out
    assert clean.left() == NOTHING
    assert "CHANGED" not in clean.command(*call, f"name={name} state=absent").succeeded().out


def test_a_pool_of_nodes_does_not_rent_pods_and_says_why(clean: Sandbox) -> None:
    result = clean.playbook("provision", documents=documents("runpod", "nodes")).failed()
    assert "cannot be Kubernetes nodes" in result.words and "lanes [service]" in result.words
    assert clean.left() == NOTHING
