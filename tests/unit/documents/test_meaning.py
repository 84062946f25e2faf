# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What documents mean: every field changes something, and a request is a pool of one."""

from __future__ import annotations

import copy
import dataclasses
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.fleet.model import SecretRef, Wishes

Json = dict[str, t.Any]
MACHINE = {
    "name": "rack-1",
    "gpuCount": 1,
    "scaleUpEndpoint": "https://power.test/on",
    "scaleDownEndpoint": "https://power.test/off",
}
REF = {"name": "keys", "key": "lambda"}
BASE: dict[str, Json] = {
    "GPUNodeClass": {
        "providers": [{"name": "lambda", "credentialsRef": REF}, {"name": "webhook", "machines": [MACHINE]}],
        "tailscaleConfig": {"tags": ["tag:gpu"]},
        "limits": {"maxNodes": 3, "maxHourlyCost": "9"},
    },
    "GPUNodePool": {
        "nodeClassRef": {"name": "base"},
        "template": {
            "spec": {
                "requirements": [{"key": "tgp.io/region", "operator": "In", "values": ["us-east"]}],
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "driver", "effect": "NoSchedule"}],
            }
        },
    },
    "GPURequest": {"gpuType": "A10", "provider": "lambda", "credentialsRef": REF, "maxHourlyPrice": "2"},
}
TALOS: Json = {
    "talosConfig.image": "ghcr.io/siderolabs/installer:v1.13.9",
    "talosConfig.machineConfigTemplate": "machine: {}",
    "talosConfig.machineConfigTemplateFile": "worker.yaml",
    "talosConfig.templateRef": {"name": "talos", "key": "worker"},
}
MESH: Json = {
    "tailscaleConfig.tags": ["tag:k8s"],
    "tailscaleConfig.ephemeral": False,
    "tailscaleConfig.acceptRoutes": True,
    "tailscaleConfig.advertiseRoutes": ["10.0.0.0/24"],
}
OTHER: dict[str, Json] = {
    "GPUNodeClass": {
        **TALOS,
        **MESH,
        "providers.0.name": "vast",
        "providers.0.priority": 3,
        "providers.0.enabled": False,
        "providers.0.credentialsRef.name": "others",
        "providers.0.credentialsRef.key": "other",
        "providers.0.credentialsRef.namespace": "elsewhere",
        "providers.0.settings": {"sshKey": "mine"},
        "providers.1.nodeGroups": [{**MACHINE, "name": "rack-2"}],
        "providers.1.machines.0.name": "rack-9",
        "providers.1.machines.0.gpuCount": 2,
        "providers.1.machines.0.gpuType": "RTX3090",
        "providers.1.machines.0.gpuMemoryMib": 24576,
        "providers.1.machines.0.nodeName": "another",
        "providers.1.machines.0.scaleUpEndpoint": "https://power.test/up",
        "providers.1.machines.0.scaleDownEndpoint": "https://power.test/down",
        "providers.1.machines.0.statusEndpoint": "https://power.test/status",
        "providers.1.machines.0.hourlyCost": "0.05",
        "providers.1.machines.0.region": "home",
        "networking.backend": "none",
        "instanceRequirements.gpuTypes": ["A10"],
        "instanceRequirements.gpuCount": 2,
        "instanceRequirements.minGpuMemory": 24,
        "instanceRequirements.minVcpus": 4,
        "instanceRequirements.minMemory": "64Gi",
        "instanceRequirements.minDisk": 100,
        "instanceRequirements.regions": ["us-west"],
        "instanceRequirements.spotAllowed": True,
        "limits.maxNodes": 4,
        "limits.maxHourlyCost": "10",
        "limits.resources": {"nvidia.com/gpu": 4},
        "strategy": "cheapest",
    },
    "GPUNodePool": {
        "nodeClassRef.name": "second",
        "template.metadata.labels": {"team": "research"},
        "template.metadata.annotations": {"team": "research"},
        "template.spec.requirements.0.key": "topology.kubernetes.io/region",
        "template.spec.requirements.0.operator": "NotIn",
        "template.spec.requirements.0.values": ["us-west"],
        "template.spec.taints.0.key": "other",
        "template.spec.taints.0.value": "present",
        "template.spec.taints.0.effect": "NoExecute",
        "template.spec.startupTaints.0.key": "other",
        "template.spec.startupTaints.0.value": "present",
        "template.spec.startupTaints.0.effect": "NoExecute",
        "template.spec.lanes": ["kubelet"],
        "maxHourlyPrice": "1.50",
        "weight": 5,
        "minNodes": 1,
        "limits.maxNodes": 2,
        "limits.resources": {"nvidia.com/gpu": 4},
        "disruption.consolidationPolicy": "Never",
        "disruption.consolidateAfter": "20m",
        "disruption.expireAfter": "1h",
        "disruption.minAge": "1m",
        "disruption.idleMode": "gpu",
        "drainTimeout": "1m",
        "registrationTimeout": "30m",
        "terminationGracePeriod": "1m",
        "gpuWait": "any",
    },
    "GPURequest": {
        **TALOS,
        **MESH,
        "gpuType": "H100",
        "gpuCount": 2,
        "provider": None,
        "credentialsRef.name": "others",
        "credentialsRef.key": "other",
        "credentialsRef.namespace": "elsewhere",
        "region": "us-west",
        "maxHourlyPrice": "3",
        "maxLifetime": "8h",
        "idleTimeout": "30m",
        "spot": True,
    },
}


def document(kind: str, spec: Json, name: str = "base") -> tuple[str, Json]:
    return f"{kind}.yml", {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def read(kind: str, spec: Json, folder: Path) -> Wishes:
    """The wishes of one document, with classes for a pool to point at; without the fingerprints, which any change changes."""
    documents = [document(kind, spec)]
    if kind == "GPUNodePool":
        documents += [document("GPUNodeClass", {"providers": [{"name": "lambda"}]}, name) for name in ("base", "second")]
    wishes, _warnings = parse([(str(folder / source), one) for source, one in documents])
    classes = {name: dataclasses.replace(one, generation="") for name, one in wishes.classes.items()}
    return Wishes(classes, tuple(dataclasses.replace(one, generation="") for one in wishes.pools), wishes.nodes)


def changed(spec: Json, path: str, value: t.Any) -> Json:
    result = copy.deepcopy(spec)
    *parents, last = path.split(".")
    here: t.Any = result
    for step in parents:
        here = here[int(step)] if step.isdigit() else here.setdefault(step, {})
    if value is None:
        del here[last]
    else:
        here[last] = value
    if path == "networking.backend":
        del result["tailscaleConfig"]
    if path == "provider":
        del result["credentialsRef"]
    return result


def leaves(schema: Json, path: str = "") -> t.Iterator[str]:
    inner = schema.get("items", schema)
    if inner.get("properties"):
        for key, one in inner["properties"].items():
            yield from leaves(one, f"{path}.{key}".strip("."))
    else:
        yield path


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_schemas_changes_something(kind: str, tmp_path: Path) -> None:
    """D-06: nothing is accepted and ignored. (kind of nodeClassRef has one possible value; nodeGroups are machines.)"""
    (tmp_path / "worker.yaml").write_text("machine: {from: file}")
    tried = {".".join(step for step in path.split(".") if not step.isdigit()) for path in OTHER[kind]}
    known = {one for one in leaves(KINDS[kind]["properties"]["spec"]) if ".nodeGroups" not in one and one != "nodeClassRef.kind"}
    assert {one for one in known if not any(one == path or one.startswith(f"{path}.") for path in tried)} == set()
    before = read(kind, BASE[kind], tmp_path)
    without = [path for path, value in OTHER[kind].items() if read(kind, changed(BASE[kind], path, value), tmp_path) == before]
    assert without == []


def test_a_request_is_one_machine_with_a_class_of_its_own() -> None:
    spec = {
        "provider": "lambdalabs",
        "gpuType": "nvidia-a100-80gb",
        "region": "us-west",
        "maxHourlyPrice": "2.50",
        "maxLifetime": "8h",
        "idleTimeout": "30m",
        "spot": True,
        "talosConfig": {"machineConfigTemplate": "machine: {}"},
    }
    wishes, warnings = parse([document("GPURequest", spec, "one-off")])
    (pool,) = wishes.pools
    node_class = wishes.classes[pool.node_class]
    assert (pool.key, pool.request, pool.cloud, pool.max_hourly_price) == ("tgp-system/one-off", True, "lambda", Decimal("2.50"))
    assert (pool.expire_after, pool.consolidate_after) == (8 * 3600, 1800)
    assert (node_class.max_nodes, node_class.regions, node_class.spot_allowed) == (1, ("us-west",), True)
    assert [choice.cloud for choice in node_class.clouds] == ["lambda"]
    assert node_class.gpu_types and node_class.template == "machine: {}"
    assert warnings == []
    with pytest.raises(InvalidInput, match="always one machine"):
        parse([document("GPURequest", spec, "one-off")], nodes={"one-off": 2})


def test_a_request_without_a_cloud_may_be_served_by_every_rented_one() -> None:
    wishes, _warnings = parse([document("GPURequest", {"gpuType": "A10"})])
    assert [choice.cloud for choice in wishes.classes["request-base"].clouds] == ["lambda", "paperspace", "runpod", "vast"]
    assert all(choice.implicit for choice in wishes.classes["request-base"].clouds)
    assert wishes.pools[0].cloud == ""


def test_a_template_comes_inline_from_a_file_or_from_a_secret(tmp_path: Path) -> None:
    (tmp_path / "worker.yaml").write_text("machine: {from: file}")

    def template(talos: Json) -> t.Any:
        spec = {**BASE["GPUNodeClass"], "talosConfig": talos}
        return read("GPUNodeClass", spec, tmp_path).classes["base"]

    assert template({"machineConfigTemplate": "machine: {}"}).template == "machine: {}"
    assert template({"machineConfigTemplateFile": "worker.yaml"}).template == "machine: {from: file}"
    found = template({"templateRef": {"name": "talos", "key": "worker"}})
    assert (found.template, found.template_ref) == (None, SecretRef("talos", "worker", "tgp-system"))
    with pytest.raises(InvalidInput, match="exclude each other"):
        template({"machineConfigTemplate": "machine: {}", "machineConfigTemplateFile": "worker.yaml"})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tailscaleConfig": {"tags": ["gpu"]}}, "tailscaleConfig.tags"),
        ({"tailscaleConfig": {"advertiseRoutes": ["10.0.0.1/24"]}}, "advertiseRoutes"),
        ({"tailscaleConfig": {"hostname": "mine"}}, "host name"),
        ({"networking": {"backend": "none"}, "tailscaleConfig": {"tags": ["tag:gpu"]}}, "no effect"),
        ({"networking": {"backend": "wireguard"}}, "wireguard"),
        ({"networking": {"backend": "carrier-pigeon"}}, "backend"),
        ({"wireguardConfig": {"address": "10.8.0.2/24"}}, "wireguardConfig"),
    ],
)
def test_mesh_settings_are_checked(spec: Json, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse([document("GPUNodeClass", {"providers": [{"name": "lambda"}], **spec})])
    assert words in str(caught.value)


def test_the_mesh_is_tailscale_where_machines_are_rented() -> None:
    def backend(*providers: Json) -> str:
        wishes, _warnings = parse([document("GPUNodeClass", {"providers": list(providers)})])
        return wishes.classes["base"].mesh.backend

    assert backend({"name": "lambda"}) == "tailscale"
    assert backend({"name": "webhook", "machines": [MACHINE]}) == "none"
