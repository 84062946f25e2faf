# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-52: pods that ask for MIG instances, or for shares of MPS, get a machine whose GPUs hold them; its node is complete by them, used by them,
and goes."""

from __future__ import annotations

import typing as t

import pytest

from sandbox import kubelet
from sandbox.device_plugin import Sharing

from .rig import Rig
from .test_autoscale import IDLE, ask, runs, scale

SMALL = "nvidia.com/mig-1g.10gb"
MEDIA = f"{SMALL}.me"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


STOCK = [
    {"type": kind, "region": "us-east-1", "stock": 4, "boot": 20}
    for kind in ("gpu_1x_a10", "gpu_1x_a100", "gpu_1x_h100_pcie", "gpu_1x_h100_sxm5")
]


@pytest.fixture
def rig(build: t.Callable[..., Rig]) -> Rig:
    made = build(**{"lambda": STOCK})
    made.training["maxHourlyPrice"] = "5.00"
    requirements = made.training["template"]["spec"]["requirements"]
    requirements[:] = [one for one in requirements if one["key"] != "tgp.io/gpu-type"]
    return made


def divide(rig: Rig, profiles: dict[str, int], config: str) -> None:
    rig.training["mig"] = {"profiles": profiles}
    template = rig.training.setdefault("template", {})
    template["metadata"] = {"labels": {**template.get("metadata", {}).get("labels", {}), CONFIG: config}}


def test_L52_pods_get_instances_of_a_machine_that_holds_them_and_it_goes_when_they_end(rig: Rig) -> None:
    """The machines that cost less have no MIG, or hold four instances of this profile. Four pods share one GPU; a quiet run writes nothing."""
    divide(rig, {"1g.10gb": 7}, "all-1g.10gb")
    for name in "abcd":
        ask(rig, name, resource=SMALL)
    first = scale(rig)
    assert [one["reason"] for one in first["waiting"]] == [""] * 4, first["waiting"]
    offer = rig.claim()["offer"]
    assert len(first["launch"]) == 1 and offer["model"] == "H100-PCIE" and rig.claim()["expected_gpus"] == 7
    rig.until(lambda: scale(rig)["launch"] == [] and rig.claim()["phase"] == "Ready", "the node is complete", 90)
    name = rig.machine().name
    shown = rig.nodes()[name]
    assert shown["status"]["allocatable"][SMALL] == "7" and shown["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    assert "tgp.io/gpu" not in shown["status"]["allocatable"] and shown["metadata"]["labels"][STATE] == "success"
    for one in "abcd":
        runs(rig, one)
    scale(rig)
    writes = rig.writes()
    assert scale(rig)["gpus"][-1]["used"] == 4 and rig.writes() == writes, "a quiet run"
    ask(rig, "e", resource=SMALL)
    runs(rig, "e")
    rig.advance(IDLE)
    assert "busy: pod default/a" in str(rig.reap()["plan"]["plan"])
    for one in "abcde":
        rig.kube("DELETE", f"/api/v1/namespaces/default/pods/{one}")
    scale(rig)
    rig.advance(IDLE)
    assert scale(rig)["destroy"] == [name]


def test_L52_what_no_machine_holds_is_reported_with_its_pod_and_rents_nothing(rig: Rig) -> None:
    divide(rig, {"1g.10gb": 7}, "all-1g.10gb")
    ask(rig, "large", resource="nvidia.com/mig-3g.40gb")
    found = scale(rig)
    assert found["launch"] == [] and [one["reason"] for one in found["waiting"]] == ["no machine with 1 nvidia.com/mig-3g.40gb"]
    rig.training["mig"] = {"profiles": {"1g.23gb": 7}}
    ask(rig, "newer", resource="nvidia.com/mig-1g.23gb")
    found = scale(rig)
    reasons = {one["pod"]: one["reason"] for one in found["waiting"]}
    assert found["launch"] == [] and "mig profiles" in reasons["default/newer"], reasons


def test_L52_one_instance_of_each_gpu_has_media_extensions(rig: Rig) -> None:
    """Of two pods that need them each gets a machine, and the plain instances beside it serve the others."""
    divide(rig, {"1g.10gb+me": 1, "1g.10gb": 4, "2g.20gb": 1}, "media")
    for name in ("video", "film"):
        ask(rig, name, resource=MEDIA)
    for name in "abc":
        ask(rig, name, resource=SMALL)
    first = scale(rig)
    assert [one["reason"] for one in first["waiting"]] == [""] * 5 and len(first["launch"]) == 2, first["waiting"]
    rig.until(
        lambda: scale(rig)["launch"] == [] and [one["phase"] for one in rig.claims().values()] == ["Ready"] * 2,
        "both nodes are complete",
        90,
    )
    for node in rig.nodes().values():
        if node["metadata"]["labels"].get(CONFIG):
            shown = node["status"]["allocatable"]
            assert (shown[MEDIA], shown[SMALL], shown["nvidia.com/mig-2g.20gb"]) == ("1", "4", "1")


def test_L52_a_node_that_mig_has_not_divided_is_not_complete(rig: Rig) -> None:
    """Nothing divides it without the label. A node that loses an instance in use is closed, as one that loses a GPU."""
    rig.training["mig"] = {"profiles": {"1g.10gb": 7}}
    ask(rig, "a", resource=SMALL)
    scale(rig)

    def whole() -> bool:
        scale(rig)
        return bool(rig.nodes().get(rig.claim()["name"], {}).get("status", {}).get("allocatable", {}).get("nvidia.com/gpu") == "1")

    rig.until(whole, "it joins and shows a whole GPU", 60)
    assert scale(rig)["launch"] == [] and rig.claim()["phase"] == "Joining", "it waits for seven instances"
    admin, name = rig.box.cluster.admin(), rig.machine().name
    rig.kube("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {CONFIG: "all-1g.10gb"}}})
    kubelet.offer_gpus(admin, name, 1, Sharing(mixed=True), model="H100-PCIE", memory_mib=81920)
    rig.until(lambda: scale(rig)["launch"] == [] and rig.claim()["phase"] == "Ready", "the node is complete", 60)
    runs(rig, "a")
    kubelet.patch_status(admin, name, {"capacity": {SMALL: "7"}, "allocatable": {SMALL: "6"}})
    rig.reap()
    rig.advance(61)
    assert "6 of its 7 GPUs" in str(rig.reap()["plan"]["plan"])
    assert any(one["key"] == "tgp.io/gpu-lost" for one in rig.nodes()[name]["spec"]["taints"])


def test_L52_pods_share_a_gpu_by_mps_and_one_that_needs_more_than_a_share_rents_nothing(rig: Rig) -> None:
    """A quarter of an H100 is 20 GiB. The node is complete with four shares, which its plugin shows once the daemon of MPS runs."""
    rig.training["mps"] = {"replicas": 4}
    here: dict[str, t.Any] = {"nodeSelector": {"tgp.io/provider": "lambda"}}
    ask(rig, "large", notes={"tgp.io/gpu-memory": "40Gi"}, **here)
    ask(rig, "two", gpus=2, **here)
    found = scale(rig)
    reasons = {one["pod"]: one["reason"] for one in found["waiting"]}
    assert found["launch"] == [], reasons
    assert "tgp.io/gpu-memory of at least 40Gi; with MPS a pod has" in reasons["default/large"], reasons
    assert reasons["default/two"] == "one of its containers asks for 2 shares of a GPU, and MPS gives a container one", reasons
    for name in ("large", "two"):  # the scheduler knows of neither, and would bind them
        rig.kube("DELETE", f"/api/v1/namespaces/default/pods/{name}")
    for name in "abc":
        ask(rig, name, notes={"tgp.io/gpu-memory": "20Gi"}, **here)
    found = scale(rig)
    assert len(found["launch"]) == 1 and rig.claim()["expected_gpus"] == 4
    assert rig.claim()["offer"]["gpu_memory_mib"] >= 80 * 1024, "a quarter of what costs less is too little"

    def joined() -> bool:
        scale(rig)
        return bool(rig.nodes().get(rig.claim()["name"], {}).get("status", {}).get("allocatable", {}).get("nvidia.com/gpu") == "1")

    rig.until(joined, "it joins, and its GPU is whole", 60)
    assert scale(rig)["launch"] == [] and rig.claim()["phase"] == "Joining", "it waits for four shares"
    kubelet.offer_gpus(rig.box.cluster.admin(), rig.machine().name, 1, Sharing(replicas=4))
    rig.until(lambda: scale(rig)["launch"] == [] and rig.claim()["phase"] == "Ready", "the node is complete", 60)
    for name in "abc":
        runs(rig, name)
    assert scale(rig)["gpus"][-1]["used"] == 3
