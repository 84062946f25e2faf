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
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.model import Guard, Hub, Quality, SecretRef, Specs

Json = dict[str, t.Any]
MACHINE = {
    "name": "rack-1",
    "gpuCount": 1,
    "scaleUpEndpoint": "https://power.test/on",
    "scaleDownEndpoint": "https://power.test/off",
}
REF = {"name": "keys", "key": "lambda"}
VOLUME: Json = {"name": "models", "mountPath": "/models"}
BASE: dict[str, Json] = {
    "GPUNodeClass": {
        "providers": [
            {"name": "lambda", "credentialsRef": REF},
            {"name": "webhook", "machines": [MACHINE]},
            {"name": "vast"},
            {"name": "runpod", "volumes": [VOLUME]},
        ],
        "tailscaleConfig": {"tags": ["tag:gpu"]},
        "limits": {"maxNodes": 3, "maxHourlyCost": "9"},
        "budget": {"period": "day", "amount": "20"},
    },
    "GPUNodePool": {
        "nodeClassRef": {"name": "base"},
        "budget": {"period": "day", "amount": "20"},
        "timeSlicing": {"replicas": 2},
        "acceptance": {"image": "registry.example/test:1"},
        "prePull": {"images": ["registry.example/llm:1"]},
        "unhealthyConditions": [
            {"type": "Odd", "contains": ["fatal"], "for": "20m", "action": "Replace"},
            {"taint": "odd", "value": "yes"},
            {"xids": [79], "for": "20m", "action": "Replace"},
        ],
        "calendar": {
            "timeZone": "Europe/Berlin",
            "windows": [{"days": ["Mon", "Tue"], "from": "08:00", "to": "18:00", "minNodes": 1, "hardStop": "20:00"}],
        },
        "template": {
            "spec": {
                "requirements": [{"key": "tgp.io/region", "operator": "In", "values": ["us-east"]}],
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "driver", "effect": "NoSchedule"}],
            }
        },
        "disruption": {
            "expireAfter": "24h",
            "consolidationPolicy": "WhenUnderutilized",
            "idleSignal": "both",
            "budgets": [
                {"nodes": 1, "reasons": ["Empty"], "schedule": "0 9 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin"}
            ],
        },
    },
    "GPURequest": {
        "gpuType": "A10",
        "provider": "lambda",
        "credentialsRef": REF,
        "maxHourlyPrice": "2",
        "budget": {"period": "day", "amount": "20"},
        "acceptance": {"image": "registry.example/test:1"},
        "prePull": {"images": ["registry.example/llm:1"]},
    },
}
ACCEPTANCE: Json = {
    "acceptance": {"test": "vectoradd"},
    "acceptance.image": "registry.example/test:2",
    "acceptance.command": ["/test"],
    "acceptance.runtimeClassName": "nvidia",
    "acceptance.timeout": "1m",
    "acceptance.gpus": "one",
    "prePull": {"images": ["registry.example/llm:1", "registry.example/tools:1"]},
    "prePull.images": ["registry.example/llm:2"],
    "prePull.imagePullSecrets": ["registry"],
    "prePull.timeout": "1m",
}
SERVICE_POOL: Json = {
    "nodeClassRef": {"name": "containers"},
    "template": {
        "spec": {
            "lanes": ["service"],
            "service": {
                "image": "registry.example/llm:1",
                "command": ["serve"],
                "ports": [8000],
                "environment": {"MODEL": "small"},
                "environmentFrom": {"TOKEN": {"name": "hub", "key": "token"}},
                "healthPath": "/health",
            },
        }
    },
    "disruption": {"idleProbe": {"url": "/idle"}},
}
OF_SERVICES: Json = {  # tried on a pool of services
    "template.spec.service.image": "registry.example/llm:2",
    "template.spec.service.command": ["other"],
    "template.spec.service.args": ["--fast"],
    "template.spec.service.ports": [8000, 9000],
    "template.spec.service.environment": {"MODEL": "large"},
    "template.spec.service.environmentFrom": {"TOKEN": {"name": "hub", "key": "other"}},
    "template.spec.service.healthPath": "/ready",
    "template.spec.service.healthPort": 9000,
    "template.spec.service.meshClient": "image",
    "disruption.idleProbe": {"command": ["is-idle"]},
}
TALOS: Json = {
    "talosConfig.image": "ghcr.io/siderolabs/installer:v1.13.9",
    "talosConfig.schematic": {"customization": {"systemExtensions": {"officialExtensions": ["siderolabs/tailscale"]}}},
    "talosConfig.patches": ["machine: {sysctls: {a.b: '1'}}"],
    "talosConfig.registryMirrors": {"docker.io": ["https://mirror.example"]},
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
MESH_OF_TALOS: Json = {f"talosConfig.{field}": value for field, value in MESH.items()}
SPENDING: Json = {
    "budget.period": "month",
    "budget.amount": "30.50",
    "budget.timeZone": "Europe/Berlin",
    "budget.softPercent": 90,
    "budget.action": "drain_idle",
}
OTHER: dict[str, Json] = {
    "GPUNodeClass": {
        **TALOS,
        **MESH,
        **MESH_OF_TALOS,
        **SPENDING,
        "providers.0.name": "paperspace",
        "providers.0.priority": 3,
        "providers.0.enabled": False,
        "providers.0.credentialsRef.name": "others",
        "providers.0.credentialsRef.key": "other",
        "providers.0.credentialsRef.namespace": "elsewhere",
        "providers.0.settings": {"sshKey": "mine"},
        "providers.2.bidMargin": "20%",
        "providers.2.spotDiscountMin": 30,
        "providers.3.volumes.0.name": "other",
        "providers.3.volumes.0.mountPath": "/elsewhere",
        "providers.3.volumes.0.pricePerGBMonth": "0.01",
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
        "instanceRequirements.spotDiscountMin": "12.5%",
        "instanceRequirements.minReliability": "95%",
        "instanceRequirements.verified": True,
        "instanceRequirements.minCuda": "12.8",
        "instanceRequirements.minBandwidth": 200,
        "instanceRequirements.staticIp": True,
        "instanceRequirements.minPorts": 4,
        "instanceRequirements.minDuration": "24h",
        "limits.maxNodes": 4,
        "limits.maxHourlyCost": "10",
        "limits.resources": {"nvidia.com/gpu": 4},
        "strategy": "cheapest",
        "guard.silentFor": "36h",
        "guard.controllerSilentFor": "72h",
        "allowedNamespaces": ["team-a"],
    },
    "GPUNodePool": {
        **SPENDING,
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
        "disruption.deleteStoppedAfter": "1h",
        "disruption.expireAfter": "1h",
        "disruption.expireJitter": "10%",
        "disruption.driftPolicy": "Replace",
        "disruption.surge": False,
        "disruption.gpuLossPolicy": "Replace",
        "disruption.utilizationThreshold": "40%",
        "disruption.replaceCheaperPercent": 30,
        "disruption.budgets.0.nodes": "10%",
        "disruption.budgets.0.reasons": ["Drifted", "Underutilized"],
        "disruption.budgets.0.schedule": "@daily",
        "disruption.budgets.0.duration": "1h",
        "disruption.budgets.0.timeZone": "America/New_York",
        "disruption.minAge": "1m",
        "disruption.idleMode": "gpu",
        "disruption.idleSignal": "utilization",
        "disruption.idleUtilization.below": "1%",
        "disruption.idleUtilization.window": "1h",
        "drainTimeout": "1m",
        "registrationTimeout": "30m",
        "terminationGracePeriod": "1m",
        "gpuWait": "any",
        **ACCEPTANCE,
        "pack": "fewest",
        "schedulers": ["volcano"],
        "scaleUpDelay": "1m",
        "capacityBuffers": True,
        "provisioningClasses": ["tgp.io/atomic"],
        "timeSlicing.replicas": 4,
        "timeSlicing.renameByDefault": True,
        "unhealthyTimeout": "5m",
        "unhealthyConditions.0.type": "Mild",
        "unhealthyConditions.0.status": "False",
        "unhealthyConditions.0.contains": ["other"],
        "unhealthyConditions.0.for": "2h",
        "unhealthyConditions.0.action": "ReplaceWhenEmpty",
        "unhealthyConditions.1.taint": "mild",
        "unhealthyConditions.1.value": "no",
        "unhealthyConditions.2.xids": [95],
        "orphanedPolicy": "Keep",
        "calendar.timeZone": "UTC",
        "calendar.windows.0.days": ["Sat"],
        "calendar.windows.0.from": "09:00",
        "calendar.windows.0.to": "24:00",
        "calendar.windows.0.minNodes": 3,
        "calendar.windows.0.hardStop": "21:00",
    },
    "GPURequest": {
        **TALOS,
        **MESH,
        **MESH_OF_TALOS,
        **SPENDING,
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
        "orphanedPolicy": "Keep",
        **ACCEPTANCE,
        "spot": True,
    },
}


def document(kind: str, spec: Json, name: str = "base") -> Document:
    return Document(f"{kind}.yml", {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def read(kind: str, spec: Json, folder: Path) -> Specs:
    """The specs of one document, with classes for a pool to point at; without the fingerprints, which any change changes."""
    documents = [document(kind, spec)]
    if kind == "GPUNodePool":
        racks = [{"name": "lambda"}, {"name": "webhook", "machines": [MACHINE]}]
        documents += [document("GPUNodeClass", {"providers": racks}, "base")]
        documents += [document("GPUNodeClass", {"providers": [{"name": "lambda"}]}, "second")]
        documents += [document("GPUNodeClass", {"providers": [{"name": "runpod"}]}, "containers")]
    specs, _warnings = parse(
        [dataclasses.replace(one, place=str(folder / one.place)) for one in documents], allow_commands=["is-idle"]
    )
    classes = {name: dataclasses.replace(one, generation="") for name, one in specs.classes.items()}
    return Specs(classes, tuple(dataclasses.replace(one, generation="") for one in specs.pools), specs.nodes)


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
    if path == "networking.backend" or path in MESH_OF_TALOS:
        result.pop("tailscaleConfig", None)
    if path == "provider":
        del result["credentialsRef"]
    return result


HUB = {"endpoint": "203.0.113.10:51820", "publicKey": "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=", "network": "10.77.0.0/24"}
OF_TUNNELS: dict[str, t.Any] = {
    "wireguardConfig.endpoint": "203.0.113.11:51820",
    "wireguardConfig.publicKey": "A" * 43 + "=",
    "wireguardConfig.network": "10.78.0.0/24",
    "wireguardConfig.hubAddress": "10.77.0.254",
    "wireguardConfig.addresses": "10.77.0.128/25",
    "wireguardConfig.allowedIPs": ["192.168.10.0/24"],
    "wireguardConfig.hub": "hub-1",
    "wireguardConfig.interface": "wg0",
    "wireguardConfig.mtu": 1412,
    "wireguardConfig.persistentKeepalive": "10s",
}
# a hub of which all stands in Secrets, and the section of tgp-operator with values and with Secrets; keys of Secrets say what is in them
HUB_REFS: Json = {
    f"{field}SecretRef": {"name": "hub", "key": field} for field in ("endpoint", "publicKey", "network", "allowedIPs")
}
OPERATORS: Json = {
    "privateKey": "gI6EdUSYvn8ugXOt8QQD6Yc+JyiZxIhp3GInSWRfWGE=",
    "publicKey": HUB["publicKey"],
    "serverEndpoint": HUB["endpoint"],
    "allowedIPs": ["192.168.10.0/24"],
    "address": "10.77.0.2/24",
}
OPERATORS_REFS: Json = {f"{field}SecretRef": {"name": "hub", "key": field} for field in OPERATORS}
_PARTS = {"name": "others", "key": "other", "namespace": "elsewhere"}
OF_HUB_SECRETS: dict[str, t.Any] = {
    f"{section}.{field}.{part}": f"{value}-{field}" if part == "key" else value
    for section, refs in (("wireguardConfig", HUB_REFS), ("talosConfig.wireGuardConfig", OPERATORS_REFS))
    for field in refs
    for part, value in _PARTS.items()
}
OF_OPERATORS: dict[str, t.Any] = {
    "talosConfig.wireGuardConfig.publicKey": "A" * 43 + "=",
    "talosConfig.wireGuardConfig.serverEndpoint": "203.0.113.11:51820",
    "talosConfig.wireGuardConfig.allowedIPs": ["192.168.11.0/24"],
    "talosConfig.wireGuardConfig.address": "10.78.0.2/24",
}
OPERATORS_KEY = "talosConfig.wireGuardConfig.privateKey"  # says that publicKey is not the hub's, where it belongs to that
PAIR = ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8=", "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=")


def with_hub(kind: str, path: str = "wireguardConfig.") -> Json:
    """The document of a class behind a hub in which a field at ``path`` can be changed."""
    rest = {name: value for name, value in BASE[kind].items() if name != "tailscaleConfig"}
    refs = "SecretRef." in path
    if path.startswith("talosConfig.wireGuardConfig."):
        return {**rest, "talosConfig": {"wireGuardConfig": OPERATORS_REFS if refs else OPERATORS}}
    return {**rest, "wireguardConfig": HUB_REFS if refs else HUB}


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
    of_services = OF_SERVICES if kind == "GPUNodePool" else {}
    of_tunnels = {} if kind == "GPUNodePool" else {**OF_TUNNELS, **OF_HUB_SECRETS, **OF_OPERATORS}
    tried = {
        ".".join(step for step in path.split(".") if not step.isdigit())
        for path in (*OTHER[kind], *of_services, *of_tunnels, OPERATORS_KEY)
    }
    known = {one for one in leaves(KINDS[kind]["properties"]["spec"]) if ".nodeGroups" not in one and one != "nodeClassRef.kind"}
    if kind == "GPUNodePool":
        tried.add("replicas")  # excludes floors, which the others begin with
        bare = {name: value for name, value in BASE[kind].items() if name not in ("minNodes", "calendar")}
        assert read(kind, {**bare, "replicas": 0}, tmp_path) != read(kind, bare, tmp_path)
        tried |= {"draDriver", "mig.profiles", "mps.replicas", "mps.renameByDefault"}  # they exclude timeSlicing
        whole = {name: value for name, value in BASE[kind].items() if name != "timeSlicing"}
        assert read(kind, {**whole, "draDriver": "gpu.nvidia.com"}, tmp_path) != read(kind, whole, tmp_path)
        shared = read(kind, {**whole, "mps": {"replicas": 4}}, tmp_path)
        sliced = read(kind, {**whole, "timeSlicing": {"replicas": 4}}, tmp_path)
        others = [
            read(kind, {**whole, "mps": one}, tmp_path) for one in ({"replicas": 8}, {"replicas": 4, "renameByDefault": True})
        ]
        assert shared not in (sliced, *others)
        assert read(kind, {**whole, "mig": {"profiles": {"1g.10gb": 7}}}, tmp_path) != read(kind, whole, tmp_path)
    assert {one for one in known if not any(one == path or one.startswith(f"{path}.") for path in tried)} == set()
    before = read(kind, BASE[kind], tmp_path)
    without = [path for path, value in OTHER[kind].items() if read(kind, changed(BASE[kind], path, value), tmp_path) == before]
    assert without == []
    before = read(kind, SERVICE_POOL, tmp_path) if of_services else before
    assert [one for one, value in of_services.items() if read(kind, changed(SERVICE_POOL, one, value), tmp_path) == before] == []
    for path, value in of_tunnels.items():
        assert read(kind, changed(with_hub(kind, path), path, value), tmp_path) != read(kind, with_hub(kind, path), tmp_path), path
    if of_tunnels:
        with pytest.raises(InvalidInput, match="it belongs to privateKey"):
            read(kind, changed(with_hub(kind, OPERATORS_KEY), OPERATORS_KEY, PAIR[0]), tmp_path)


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
    specs, warnings = parse([document("GPURequest", spec, "one-off")])
    (pool,) = specs.pools
    node_class = specs.classes[pool.node_class]
    assert (pool.key, pool.request, pool.cloud, pool.max_hourly_price) == ("tgp-system/one-off", True, "lambda", Decimal("2.50"))
    assert (pool.expire_after, pool.consolidate_after) == (8 * 3600, 1800)
    assert (node_class.max_nodes, node_class.regions, node_class.spot_allowed) == (1, ("us-west",), True)
    assert [choice.cloud for choice in node_class.clouds] == ["lambda"]
    assert node_class.gpu_types and node_class.template == "machine: {}"
    assert warnings == []
    with pytest.raises(InvalidInput, match="always one machine"):
        parse([document("GPURequest", spec, "one-off")], nodes={"one-off": 2})


def test_a_request_without_a_cloud_may_be_served_by_every_rented_one() -> None:
    specs, _warnings = parse([document("GPURequest", {"gpuType": "A10"})])
    assert [choice.cloud for choice in specs.classes["request-base"].clouds] == [
        "gcp",
        "lambda",
        "paperspace",
        "runpod",
        "vast",
        "vultr",
    ]
    assert all(choice.implicit for choice in specs.classes["request-base"].clouds)
    assert specs.pools[0].cloud == ""


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
        ({"networking": {"backend": "wireguard"}}, "spec.wireguardConfig: this field is missing"),
        ({"networking": {"backend": "tailscale"}, "wireguardConfig": HUB}, "spec.wireguardConfig: has no effect with"),
        ({"wireguardConfig": HUB, "tailscaleConfig": {"tags": ["tag:gpu"]}}, "spec.tailscaleConfig: has no effect with"),
        (
            {"wireguardConfig": {**HUB, "endpoint": "hub.example:51820"}},
            "wireguardConfig.endpoint: 'hub.example:51820' must be IP:port",
        ),
        ({"wireguardConfig": {**HUB, "endpoint": "203.0.113.10:0"}}, "must be IP:port"),
        ({"wireguardConfig": {**HUB, "endpoint": "2001:db8::1:51820"}}, "must be IP:port"),
        ({"wireguardConfig": {**HUB, "publicKey": "short"}}, "wireguardConfig.publicKey: must be a WireGuard key"),
        ({"wireguardConfig": {**HUB, "interface": "0wg"}}, "wireguardConfig.interface: '0wg' is not a name"),
        ({"wireguardConfig": {**HUB, "persistentKeepalive": "24h"}}, "wireguardConfig.persistentKeepalive: 86400 must be"),
        ({"wireguardConfig": {**HUB, "hubAddress": "10.77.0.0"}}, "wireguardConfig.hubAddress: 10.77.0.0 names the network"),
        ({"wireguardConfig": {**HUB, "hubAddress": "hub"}}, "wireguardConfig.hubAddress: 'hub' is not an address"),
        ({"wireguardConfig": {**HUB, "allowedIPs": ["fd00::/64"]}}, "wireguardConfig.allowedIPs: fd00::/64"),
        ({"wireguardConfig": {**HUB, "allowedIPs": ["203.0.113.0/24"]}}, "contains the hub's endpoint"),
        ({"wireguardConfig": {**HUB, "network": "10.77.0.1/24"}}, "has host bits set"),
        ({"wireguardConfig": {**HUB, "network": "10.77.0.0/31"}}, "has no room"),
        ({"wireguardConfig": {**HUB, "network": "100.100.0.0/24"}}, "the addresses of tailnets"),
        ({"wireguardConfig": {**HUB, "hubAddress": "10.78.0.1"}}, "is not in the tunnel's network 10.77.0.0/24"),
        ({"wireguardConfig": {**HUB, "addresses": "10.78.0.0/25"}}, "is not a part of the network"),
        ({"wireguardConfig": {**HUB, "privateKey": "x"}}, "each node gets a key of its own"),
        ({"networking": {"backend": "carrier-pigeon"}}, "backend"),
        ({"wireguardConfig": {**HUB, "address": "10.8.0.2/24"}}, "each node gets an address of its own"),
    ],
)
def test_mesh_settings_are_checked(spec: Json, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse([document("GPUNodeClass", {"providers": [{"name": "lambda"}], **spec})])
    assert words in str(caught.value)


def test_the_mesh_is_tailscale_where_machines_are_rented() -> None:
    def backend(*providers: Json) -> str:
        specs, _warnings = parse([document("GPUNodeClass", {"providers": list(providers)})])
        return specs.classes["base"].mesh.backend

    assert backend({"name": "lambda"}) == "tailscale"
    assert backend({"name": "webhook", "machines": [MACHINE]}) == "none"


def refused(spec: Json, **class_spec: t.Any) -> str:
    """What is said of a pool of services that was changed; its class is ``containers``."""
    node_class = document("GPUNodeClass", {"providers": [{"name": "runpod"}], **class_spec}, "containers")
    with pytest.raises(InvalidInput) as caught:
        parse([document("GPUNodePool", spec), node_class], allow_commands=["x"])
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("template.spec.lanes", ["service", "kubelet"], "spec.template.spec.lanes: a pool is of nodes or of services"),
        ("template.spec.service", None, "spec.template.spec.service: is missing: lane service has to know what to run"),
        ("template.spec.service.image", None, "spec.template.spec.service.image: this field is missing"),
        ("template.spec.service.ports", [], "spec.template.spec.service.ports: it must not be empty"),
        ("template.spec.service.ports", [80, 80], "spec.template.spec.service.ports: a port is listed twice"),
        ("template.spec.service.ports", [70000], "70000"),
        (
            "template.spec.service.healthPath",
            "health",
            "spec.template.spec.service.healthPath: 'health' is not a path like /health",
        ),
        ("template.spec.service.command", None, "spec.template.spec.service.command: is missing"),
        (
            "template.spec.service.environment",
            {"TS_AUTHKEY": "x"},
            "TS_AUTHKEY: variables TGP_… and TS_… are set by the collection",
        ),
        ("template.spec.service.environment", {"A-B": "x"}, "'A-B' is not a name of a variable"),
        ("template.spec.service.environment", {"TOKEN": "x"}, "TOKEN stands in environment, too"),
        (
            "template.spec.taints",
            [{"key": "a", "effect": "NoSchedule"}],
            "spec.template.spec.taints: has no effect with lane service",
        ),
        ("template.metadata.labels", {"tgp.io/x": "y"}, "spec.template.metadata.labels: tgp.io/x is set by the collection itself"),
        ("disruption.idleMode", "gpu", "spec.disruption.idleMode: has no effect with lane service"),
        ("disruption.idleProbe", {}, "spec.disruption.idleProbe: needs exactly one of url"),
        ("disruption.idleProbe", {"url": "/idle", "command": ["x"]}, "spec.disruption.idleProbe: needs exactly one of url"),
        ("disruption", {"consolidateAfter": "5m"}, "spec.disruption.consolidateAfter: has no effect without idleProbe"),
        ("gpuWait", "any", "spec.gpuWait: has no effect with lane service"),
        ("acceptance", {"test": "vectoradd"}, "spec.acceptance: has no effect with lane service"),
        ("prePull", {"images": ["llm:1"]}, "spec.prePull: has no effect with lane service"),
        ("unhealthyConditions", [{"type": "Odd"}], "spec.unhealthyConditions: has no effect with lane service"),
        ("pack", "fewest", "spec.pack: has no effect with lane service"),
        ("schedulers", ["volcano"], "spec.schedulers: has no effect with lane service"),
        ("scaleUpDelay", "1m", "spec.scaleUpDelay: has no effect with lane service"),
        ("timeSlicing", {"replicas": 2}, "spec.timeSlicing: has no effect with lane service"),
        ("drainTimeout", "1m", "spec.drainTimeout: has no effect with lane service"),
        ("terminationGracePeriod", "1m", "spec.terminationGracePeriod: has no effect with lane service"),
    ],
)
def test_D06_what_a_service_lacks_or_cannot_have_is_refused_with_its_place(path: str, value: t.Any, words: str) -> None:
    assert words in refused(changed(SERVICE_POOL, path, value))


def test_args_need_a_command_also_where_the_image_enters_the_tailnet_itself() -> None:
    spec = changed(SERVICE_POOL, "template.spec.service.meshClient", "image")
    spec = changed(changed(spec, "template.spec.service.command", None), "template.spec.service.args", ["-x"])
    assert "spec.template.spec.service.args: has no effect without command" in refused(spec)


def test_D06_a_pool_of_nodes_has_no_fields_of_services() -> None:
    nodes = changed(SERVICE_POOL, "template.spec.lanes", ["kubelet"])
    said = refused(nodes, providers=[{"name": "lambda"}])
    assert "spec.template.spec.service: is for lane service only" in said
    assert "spec.disruption.idleProbe.port: goes with url" in said


def test_a_service_needs_a_tailnet_and_a_cloud_with_containers() -> None:
    assert "is reached through the tailnet" in refused(SERVICE_POOL, networking={"backend": "none"})
    said = refused(SERVICE_POOL, providers=[{"name": "lambda"}])
    assert "no cloud of class containers serves lane service (lambda: " in said
    assert "Add one that runs containers (runpod, vast)" in said


def test_nodes_from_containers_only_are_refused_with_the_reason_and_the_way_out() -> None:
    said = refused({"nodeClassRef": {"name": "containers"}})
    assert "spec.template.spec.lanes: no cloud of class containers serves lane talos, kubelet" in said
    assert "runpod: pods are unprivileged containers and cannot be Kubernetes nodes" in said
    assert "lanes [service]" in said
    with pytest.raises(InvalidInput, match="spec.provider: no cloud of class request-base serves lane talos, kubelet"):
        parse([document("GPURequest", {"gpuType": "A40", "provider": "runpod"})])


def node_class_of(spec: Json) -> t.Any:
    return parse([document("GPUNodeClass", changed(BASE["GPUNodeClass"], "strategy", "cheapest") | spec)])[0].classes["base"]


def test_L46_a_guard_is_a_day_for_the_api_server_alone_unless_more_is_said() -> None:
    assert node_class_of({}).guard is None
    assert node_class_of({"guard": {}}).guard == Guard(86400, None)
    assert node_class_of({"guard": {"silentFor": "Never", "controllerSilentFor": "1h"}}).guard == Guard(None, 3600)


@pytest.mark.parametrize("field", ["silentFor", "controllerSilentFor"])
@pytest.mark.parametrize("value", ["59m", 0, "3599s"])
def test_L46_a_guard_of_less_than_an_hour_is_refused(field: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=rf"spec.guard.{field}: is too short: .* Use 1h or more, or Never"):
        node_class_of({"guard": {field: value}})


def test_L46_a_guard_that_no_machine_of_the_class_can_have_is_warned_of() -> None:
    spec = {"providers": [{"name": "runpod"}], "guard": {}}
    assert any("spec.guard: has no effect" in str(one) for one in parse([document("GPUNodeClass", spec)])[1])
    assert not any(
        "spec.guard" in str(one) for one in parse([document("GPUNodeClass", {**spec, "providers": [{"name": "gcp"}]})])[1]
    )


def test_L13_shares_are_per_cent() -> None:
    made = node_class_of({"instanceRequirements": {"minReliability": "99.5%", "spotDiscountMin": 30}})
    assert (made.quality.min_reliability, made.spot_discount_min) == (Decimal("0.995"), Decimal("0.3"))
    vast = next(one for one in made.clouds if one.cloud == "vast")
    assert (vast.bid_margin, vast.spot_discount_min) == (Decimal("0.1"), None)


def test_L13_the_settings_of_vast_say_how_good_hosts_of_nodes_must_be() -> None:
    def quality(**settings: t.Any) -> t.Any:
        return node_class_of({"providers": [{"name": "vast", "settings": settings}]}).clouds[0].quality

    assert quality() == Quality()
    assert quality(minReliability="90.5%", minBandwidth=100) == Quality(min_reliability=Decimal("0.905"), min_bandwidth=100)
    assert quality(minReliability=0, minBandwidth=0) == Quality(min_reliability=Decimal(0), min_bandwidth=0)
    for settings in ({"minReliability": "0.9"}, {"minReliability": "101%"}, {"minBandwidth": "100"}, {"minBandwidth": -1}):
        with pytest.raises(InvalidInput, match=r"providers\[0\].settings.min"):
            quality(**settings)
    with pytest.raises(InvalidInput, match="minReliability"):
        node_class_of({"providers": [{"name": "lambda", "settings": {"minReliability": "90%"}}]})


@pytest.mark.parametrize("value", ["0.95", "101%", "much", "-5%"])
def test_L13_a_share_that_could_be_misread_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="minReliability.*per cent"):
        node_class_of({"instanceRequirements": {"minReliability": value}})


def test_L13_a_bid_is_refused_where_nothing_is_auctioned() -> None:
    with pytest.raises(InvalidInput, match=r"providers\[0\].bidMargin: lambda rents no interruptible machines"):
        node_class_of({"providers": [{"name": "lambda", "bidMargin": "5%"}]})


@pytest.mark.parametrize(
    ("cloud", "volumes", "problem"),
    [
        ("vast", [VOLUME], r"providers\[0\].volumes: vast mounts no existing volumes in this version"),
        ("runpod", [VOLUME, {"name": "b", "mountPath": "/b"}], "a machine of runpod mounts at most 1, and 2 are listed"),
        ("lambda", [VOLUME], r"volumes\[0\].mountPath: '/models' does not match"),
        ("lambda", [{"name": "a", "mountPath": "/data/a"}, {"name": "a", "mountPath": "/data/b"}], "name a is listed twice"),
        (
            "lambda",
            [{"name": "a", "mountPath": "/data/a"}, {"name": "b", "mountPath": "/data/a"}],
            "mountPath /data/a is listed twice",
        ),
    ],
)
def test_L51_volumes_that_no_machine_could_mount_are_refused(cloud: str, volumes: list[Json], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        node_class_of({"providers": [{"name": cloud, "volumes": volumes}]})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("power", "'power' is neither an http or https address nor a path below webhook_url"),
        ("ftp://power.test/status", "is neither an http or https address"),
        ("http://169.254.169.254/latest", "leads to 169.254.169.254"),
        ("", "non-empty"),
        (["/status"], "is not of type 'string'"),
    ],
)
def test_L21_an_endpoint_for_all_own_machines_is_checked_like_theirs(value: t.Any, problem: str) -> None:
    own = {"name": "webhook", "machines": [MACHINE], "settings": {"bulkStatusEndpoint": value}}
    with pytest.raises(InvalidInput) as caught:
        node_class_of({"providers": [own]})
    assert any("spec.providers[0].settings.bulkStatusEndpoint" in one and problem in one for one in caught.value.problems), (
        caught.value.problems
    )


@pytest.mark.parametrize("value", ["https://power.test/status", "/status"])
def test_L21_an_endpoint_for_all_own_machines_is_theirs_alone(value: str) -> None:
    settings = {"bulkStatusEndpoint": value}
    (choice,) = node_class_of({"providers": [{"name": "webhook", "machines": [MACHINE], "settings": settings}]}).clouds
    assert choice.settings == settings
    with pytest.raises(InvalidInput, match="bulkStatusEndpoint"):
        node_class_of({"providers": [{"name": "lambda", "settings": settings}]})


def test_S3_39_own_machines_enter_no_tunnel() -> None:
    own = {"name": "webhook", "machines": [MACHINE], "settings": {"payload": "talos"}}
    with pytest.raises(InvalidInput, match="own machines that are given a configuration enter no tunnel"):
        parse([document("GPUNodeClass", {"providers": [own], "wireguardConfig": HUB})])
    own["settings"] = {"payload": "none"}
    parse([document("GPUNodeClass", {"providers": [own], "wireguardConfig": HUB})])


def test_S3_39_a_hub_is_read_with_what_is_usual() -> None:
    specs, warnings = parse([document("GPUNodeClass", {"providers": [{"name": "lambda"}], "wireguardConfig": HUB})])
    mesh = next(iter(specs.classes.values())).mesh
    assert (mesh.backend, mesh.hub) == (
        "wireguard",
        Hub(HUB["endpoint"], HUB["publicKey"], "10.77.0.0/24", "10.77.0.1", "10.77.0.0/24", ("10.77.0.0/24",)),
    )
    assert any("spec.wireguardConfig: is the older way in" in one for one in warnings)


@pytest.mark.parametrize(
    "text, model, memory",
    [("A100 80GB", "A100", 81920), ("MI300X 192GB", "MI300X", 196608), ("L4", "L4", 24576), ("A100", "A100", None)],
)
def test_the_card_of_an_own_machine_is_known_by_its_canonical_name(text: str, model: str, memory: int | None) -> None:
    """Else no pool that specs for the card would ever take the machine, and an AMD card would be waited for as NVIDIA's."""
    spec = {"providers": [{"name": "webhook", "machines": [{**MACHINE, "gpuType": text}]}]}
    (machine,) = node_class_of(spec).clouds[0].machines
    assert (machine.gpu_type, machine.gpu_memory_mib) == (model, memory)


@pytest.mark.parametrize(("given", "mib"), [(24, 24576), ("24", 24576), ("24Gi", 24576), ("24576Mi", 24576), ("1Ti", 1_048_576)])
def test_memory_is_in_gib_unless_it_says_otherwise(given: t.Any, mib: int) -> None:
    found = node_class_of({"providers": [{"name": "lambda"}], "instanceRequirements": {"minGpuMemory": given, "minMemory": given}})
    assert (found.gpu_memory_mib, found.min_memory_mib) == (mib, mib)


def test_an_own_machine_says_its_memory_itself() -> None:
    machine = {**MACHINE, "gpuType": "A100", "gpuMemoryMib": 40960}
    (read_machine,) = node_class_of({"providers": [{"name": "webhook", "machines": [machine]}]}).clouds[0].machines
    assert read_machine.gpu_memory_mib == 40960


@pytest.mark.parametrize("kind", ["GPUNodeClass", "GPURequest"])
def test_S3_06_settings_of_the_mesh_may_stand_in_talosConfig(kind: str) -> None:
    """Where the operator's own types have them."""
    settings = {"tags": ["tag:k8s"], "ephemeral": False, "acceptRoutes": True, "advertiseRoutes": ["10.0.0.0/24"]}
    spec = {name: value for name, value in BASE[kind].items() if name != "tailscaleConfig"}
    talos = spec.get("talosConfig", {})
    documents = [
        document(kind, {**spec, **one})
        for one in ({"tailscaleConfig": settings}, {"talosConfig": {**talos, "tailscaleConfig": settings}})
    ]
    beside, inside = (next(iter(parse([one])[0].classes.values())) for one in documents)
    assert beside.mesh == inside.mesh and inside.mesh.tags == ("tag:k8s",) and inside.mesh.advertise_routes == ("10.0.0.0/24",)
    both = {**spec, "tailscaleConfig": settings, "talosConfig": {"tailscaleConfig": settings}}
    for wrong, words in (
        (both, "Remove one of the two"),
        ({**spec, "talosConfig": {"tailscaleConfig": {"hostname": "x"}}}, "its own name"),
    ):
        with pytest.raises(InvalidInput, match=words):
            parse([document(kind, wrong)])
