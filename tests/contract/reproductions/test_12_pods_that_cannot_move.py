# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 12: a pod that holds its GPU by a resource claim is work, and pods of which nobody knows where else they fit stay where they are."""

from __future__ import annotations

import typing as t

import pytest

from tests.contract.act.rig import Rig

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CLAIMS = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
}
ASKS = {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
ZONE = "topology.kubernetes.io/region"
#: what each of them says about its place, so that no other node there suits it; all of them ask for one GPU, as the plugin or a claim gives it
PINNED: dict[str, dict[str, t.Any]] = {
    "claims": CLAIMS,
    "affinity": {
        **ASKS,
        "affinity": {
            "podAffinity": {
                REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}]
            }
        },
    },
    "anti-affinity over zones": {
        **ASKS,
        "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "base"}}}]}},
    },
    "hard spread": {
        **ASKS,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            }
        ],
    },
    "volume": {**ASKS, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "zonal"}}]},
}


@pytest.fixture
def pair(build: t.Callable[..., Rig]) -> Rig:
    """A sandbox that rents machines with two GPUs each."""
    rig = build(**{"lambda": [{"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 4, "boot": 20}], "machines": []})
    rig.demo_class["limits"] = {"maxNodes": 5, "maxHourlyCost": "20.00"}
    rig.training["maxHourlyPrice"] = "5.00"
    return rig


def there(rig: Rig, name: str = "job") -> bool:
    return rig.api.request("GET", f"/api/v1/namespaces/default/pods/{name}")[0] == 200


def later(rig: Rig, runs: int = 4) -> None:
    for _run in range(runs):
        rig.advance(700)
        rig.reap()


def test_a_pod_that_holds_its_gpu_by_a_resource_claim_keeps_its_machine(rig: Rig) -> None:
    """``idleMode: gpu``: what the drop-in for k8s-gpu-autoprovision sets."""
    rig.training["disruption"] = {"idleMode": "gpu", "consolidateAfter": "10m"}
    rig.provision()
    rig.pod(rig.claim()["node_name"], owner="Job", **CLAIMS)
    later(rig)
    assert there(rig) and len(rig.machines()) == 1, "the job was evicted and its machine returned as idle"
    rig.kube("PATCH", "/api/v1/namespaces/default/pods/job/status", {"status": {"phase": "Succeeded"}})
    later(rig)
    assert rig.machines() == [], "it is idle once the pod has ended"


@pytest.mark.parametrize("kind", PINNED)
def test_WhenUnderutilized_moves_no_pod_of_which_nobody_knows_where_it_fits(pair: Rig, kind: str) -> None:
    rig = pair
    rig.training["disruption"] = {
        "consolidationPolicy": "WhenUnderutilized",
        "consolidateAfter": "10m",
        "utilizationThreshold": "60%",
    }
    rig.provision(nodes=2)
    first, second = sorted(claim["node_name"] for claim in rig.claims().values())
    rig.pod(first, "base", owner="Job", **ASKS)
    rig.pod(second, "job", owner="Job", **PINNED[kind])
    rig.kube("PATCH", "/api/v1/namespaces/default/pods/base", {"metadata": {"annotations": {"tgp.io/do-not-disrupt": "true"}}})
    later(rig)
    assert there(rig) and len(rig.machines()) == 2, f"the pod with {kind} was evicted, and waits for ever"


def test_drift_moves_no_pod_of_which_nobody_knows_where_it_fits(rig: Rig) -> None:
    rig.training["disruption"]["driftPolicy"] = "Replace"
    rig.provision()
    rig.pod(rig.claim()["node_name"], **CLAIMS)
    rig.demo_class["talosConfig"]["patches"] = ["machine: {sysctls: {vm.swappiness: '10'}}"]
    later(rig)
    assert there(rig) and len(rig.machines()) == 1, "the pod was evicted, and waits for ever"
