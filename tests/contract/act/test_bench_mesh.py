# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_bench_mesh: two pods measure the mesh between two nodes, whatever iperf3, image and mesh do, and are gone afterwards (S3-26)."""

from __future__ import annotations

import json
import subprocess
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.store import lock_file

from .rig import Rig, is_write

PODS = "/api/v1/namespaces/tgp-system/pods"
LABEL = "tgp.io/bench-mesh"
DIGEST = f"@sha256:{'0' * 64}"
IMAGE = f"registry.example.org/tools/iperf3{DIGEST}"


def image(kind: str) -> str:
    return f"registry.example.org/tools/{kind}:3.16{DIGEST}"


@pytest.fixture
def meshed(rig: Rig) -> Rig:
    """Two nodes of the pool, and one of the cluster that is not ours."""
    assert [one["result"] for one in rig.provision(nodes=2)["machines"]] == ["ready", "ready"]
    foreign(rig)
    rig.lines.clear()
    rig.warnings.clear()
    return rig


def foreign(rig: Rig, name: str = "worker-1", ready: str = "True") -> None:
    node = rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"conditions": [{"type": "Ready", "status": ready}], "capacity": amounts, "allocatable": amounts}
    rig.kube("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    assert rig.box.kubelets is not None
    rig.box.kubelets.adopt(name, node["metadata"]["uid"], "10.0.0.9")


def names(rig: Rig) -> list[str]:
    return sorted(one for one in rig.nodes() if one.startswith("tgp-"))


def bench(rig: Rig, run_id: str = "", *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    return rig.run("bench_mesh", run_id, check=check, **{"image": IMAGE, "seconds": 5, **options})


def left(rig: Rig) -> list[str]:
    """Pods of measurements that are there and that nobody has deleted."""
    listed = rig.kube("GET", f"{PODS}?labelSelector={LABEL}")["items"]
    return [pod["metadata"]["name"] for pod in listed if not pod["metadata"].get("deletionTimestamp")]


def calls(rig: Rig) -> list[tuple[str, str, t.Any]]:
    """From now on, the writes to pods of the records' namespace."""
    found: list[tuple[str, str, t.Any]] = []

    def watch(request: httpx.Request) -> None:
        if is_write(request):
            found.append((request.method, request.url.path, json.loads(request.content or b"{}")))

    rig.watcher = watch
    return found


def test_S3_26_a_pool_is_measured_in_both_directions_and_nothing_is_left(meshed: Rig) -> None:
    writes = calls(meshed)
    result = bench(meshed, pool="training")
    first, second = names(meshed)
    (pair,) = result["pairs"]
    assert (pair["from_node"], pair["to_node"], pair["state"], pair["problem"]) == (first, second, "measured", "")
    assert (pair["mesh"], pair["path"], pair["iperf3"]) == ("tailscale", "unknown", "iperf 3.16")
    assert pair["round_trip_ms"] == {"mean": 18.4, "min": 17.48}
    assert pair["forward"] == {"mbit_per_s": 941.3, "retransmits": 12} and pair["reverse"] == {
        "mbit_per_s": 875.4,
        "retransmits": 12,
    }
    assert result["changed"] is False and left(meshed) == [] and meshed.warnings == []
    assert [method for method, _path, _body in writes] == ["POST", "POST", "DELETE", "DELETE"] and result["writes"] == 4
    table = "\n".join(meshed.lines)
    assert "idle round trip, ms" in table and "18.40" in table and "941.3" in table and "875.4" in table


def test_S3_26_the_pods_disturb_nobody(meshed: Rig) -> None:
    """Pod Security Standard restricted, exactly the taints of their node, bounded in time and size, and no reason to rent or to wait."""
    writes = calls(meshed)
    bench(meshed, pool="training")
    bodies = [body for method, path, body in writes if (method, path) == ("POST", PODS)]
    assert len(bodies) == 2
    for body, node in zip(bodies, reversed(names(meshed)), strict=True):  # the server first
        meta, spec = body["metadata"], body["spec"]
        assert meta["annotations"]["tgp.io/scale-up"] == "false" and meta["labels"]["cluster.x-k8s.io/drain"] == "skip"
        assert 0 < spec["activeDeadlineSeconds"] < 600 and spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "nodeName"} & set(spec)
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert [set(volume) - {"name"} for volume in spec["volumes"]] == [{"emptyDir"}]
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == [node]
        taints = meshed.nodes()[node]["spec"]["taints"]
        assert [one["key"] for one in spec["tolerations"]] == [one["key"] for one in taints] and taints
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["image"] == IMAGE and set(container["resources"]) == {"requests", "limits"}
            secured = container["securityContext"]
            assert secured["allowPrivilegeEscalation"] is False and secured["capabilities"] == {"drop": ["ALL"]}


def test_S3_26_a_node_of_ours_with_one_that_is_not_ours_and_a_slow_relay(rig: Rig) -> None:
    rig.behave("mesh_relayed")
    rig.provision()
    foreign(rig)
    (node,) = names(rig)
    asked: tuple[dict[str, t.Any], ...] = ({"from_node": node}, {"pool": "training"}, {"pool": "training", "to_node": "worker-1"})
    for options in asked:
        (pair,) = bench(rig, **options)["pairs"]
        assert (pair["from_node"], pair["to_node"], pair["state"]) == (node, "worker-1", "measured"), pair
        assert pair["round_trip_ms"]["mean"] == 96.7 and pair["forward"] == {"mbit_per_s": 18.7, "retransmits": 431}


def test_S3_26_check_mode_says_what_would_be_measured_and_makes_no_pod(meshed: Rig) -> None:
    writes = calls(meshed)
    result = bench(meshed, check=True, pool="training")
    assert [(one["state"], one["forward"]) for one in result["pairs"]] == [("planned", None)] and result["writes"] == 0
    assert writes == [] and left(meshed) == []
    table = "\n".join(meshed.lines)
    assert all(name in table for name in names(meshed)) and "Would measure" in table and "at most" in table


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": None}, "image is missing.*publishes no image"),
        ({"image": "not an image"}, "is not the name of an image"),
        ({"image": "--privileged"}, "is not the name of an image"),
        ({"seconds": 0}, "seconds is 0; it is 1 to 60"),
        ({"seconds": 61}, "it is 1 to 60"),
        ({"port": 80}, "it is 1024 to 65535"),
        ({"max_pairs": 21}, "it is 1 to 20"),
        ({"start_timeout": 1}, "it is 10 to 1800"),
        ({"namespace": "a/b"}, "is not the name of a namespace"),
    ],
)
def test_S3_26_options_are_checked_before_anything_is_read(rig: Rig, options: dict[str, t.Any], words: str) -> None:
    asked: list[httpx.Request] = []
    rig.watcher = asked.append
    for check in (False, True):
        with pytest.raises(InvalidInput, match=words):
            bench(rig, check=check, pool="training", **options)
    assert asked == []


def test_S3_26_a_node_that_is_missing_or_not_ready_is_refused_before_a_pod_is_made(meshed: Rig) -> None:
    foreign(meshed, "worker-2", ready="False")
    writes = calls(meshed)
    first, _second = names(meshed)
    for target, words in (
        ("worker-9", "There is no Node worker-9"),
        ("worker-2", "Node worker-2 cannot be measured: it is not Ready"),
    ):
        with pytest.raises(InvalidInput, match=words):
            bench(meshed, from_node=first, to_node=target)
    assert writes == []


def test_S3_26_an_image_without_a_digest_causes_a_warning(meshed: Rig) -> None:
    assert bench(meshed, pool="training", image="registry.example.org/tools/iperf3:3.16")["pairs"][0]["state"] == "measured"
    assert ["is not pinned by a digest" in one for one in meshed.warnings] == [True]


def failed(rig: Rig, **options: t.Any) -> tuple[str, dict[str, t.Any]]:
    with pytest.raises(TgpError) as caught:
        bench(rig, **options)
    assert caught.value.result is not None and left(rig) == []
    (pair,) = caught.value.result["pairs"]
    assert pair["state"] == "failed" and pair["forward"] is None
    return str(caught.value), pair


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", ["did not get on in time", "server: ImagePullBackOff", "not found"]),
        ("empty", ["container server", "executable file not found", "contain iperf3"]),
        ("odd", ["is not JSON: 'iperf Done.'", "must contain iperf3"]),
        ("deaf", ["does not reach the server", "unable to connect to server: Connection refused", "NetworkPolicy"]),
    ],
)
def test_S3_26_what_is_wrong_with_the_image_is_said_and_nothing_is_left(meshed: Rig, kind: str, words: list[str]) -> None:
    said, pair = failed(meshed, pool="training", image=image(kind), start_timeout=30)
    assert [one for one in words if one not in said] == [] and pair["problem"] in said, said


def test_S3_26_a_mesh_that_lets_nothing_through_is_said(rig: Rig) -> None:
    rig.behave("mesh_blocked")
    rig.provision()
    foreign(rig)
    said, _pair = failed(rig, pool="training")
    assert "does not reach the server" in said and "Connection timed out" in said and "the mesh of both machines" in said


def test_S3_26_a_server_that_listens_late_is_tried_again(meshed: Rig) -> None:
    (pair,) = bench(meshed, pool="training", image=image("late"))["pairs"]
    assert pair["state"] == "measured" and left(meshed) == []


def test_S3_26_an_old_iperf3_has_no_round_trip_and_that_is_said(meshed: Rig) -> None:
    (pair,) = bench(meshed, pool="training", image=image("old"))["pairs"]
    assert pair["round_trip_ms"] is None and pair["forward"]["mbit_per_s"] == 941.3
    assert any("not reported" in line for line in meshed.lines)


def test_S3_26_pods_that_no_node_takes_are_named_with_the_reason(meshed: Rig) -> None:
    first, second = names(meshed)
    amounts = {"cpu": "0", "memory": "32Gi", "pods": "110"}
    meshed.kube("PATCH", f"/api/v1/nodes/{second}/status", {"status": {"allocatable": amounts, "capacity": amounts}})
    said, _pair = failed(meshed, from_node=first, to_node=second, start_timeout=30)
    assert "(no node yet) did not get on in time" in said and "Insufficient cpu" in said, said


def test_S3_26_a_pair_that_fails_does_not_hide_the_others(meshed: Rig) -> None:
    """The second pair's pods are refused. What was measured before is in the result."""
    foreign(meshed, "worker-2")
    meshed.fault("status", "kubernetes", "POST", f"{PODS}$", status=403, times=1)
    with pytest.raises(TgpError) as caught:
        bench(meshed, pool="training", to_node="worker-2")
    assert caught.value.result is not None
    assert [one["state"] for one in caught.value.result["pairs"]] == ["failed", "measured"] and left(meshed) == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [False, True])
def test_S3_26_a_killed_run_leaves_nothing_that_the_next_one_does_not_remove(
    meshed: Rig, monkeypatch: pytest.MonkeyPatch, number: int, after: bool
) -> None:
    """Its process is dead, which a run on the same host sees; the next one removes its pods and measures."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(
            "ansible_collections.tgp.gpu.plugins.module_utils.operations.bench_mesh.describe",
            lambda: lock_file.describe(process.pid),
        )
        with meshed.killed_at(number, after=after):
            bench(meshed, pool="training")
        process.kill()
    monkeypatch.undo()
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(meshed.folder / "pace"))
    assert bench(meshed, "run-after", pool="training")["pairs"][0]["state"] == "measured"
    assert left(meshed) == []


def test_S3_26_two_measurements_at_once_are_refused_and_neither_is_disturbed(meshed: Rig) -> None:
    """Whether the run of the other pods lives is unknown here, so they stay until their time is over."""
    with meshed.killed_at(3, after=False):
        bench(meshed, pool="training")
    there = left(meshed)
    assert len(there) == 2
    meshed.kube("PATCH", f"{PODS}/{there[1]}", {"metadata": {"annotations": {"tgp.io/owner-process": "?"}}})
    with pytest.raises(InvalidInput, match="Another measurement runs") as caught:
        bench(meshed, "run-after", pool="training")
    assert left(meshed) == there and f"kubectl -n tgp-system delete pods -l {LABEL}=" in str(caught.value)
    meshed.advance(600)
    assert bench(meshed, "run-later", pool="training")["pairs"][0]["state"] == "measured"
    assert left(meshed) == []


def test_S3_26_pods_that_cannot_be_removed_are_named(meshed: Rig) -> None:
    meshed.fault("status", "kubernetes", "DELETE", f"{PODS}/", status=403, times=2)
    assert bench(meshed, pool="training")["pairs"][0]["state"] == "measured"
    (warning,) = meshed.warnings
    assert "could not be removed" in warning and LABEL in warning and len(left(meshed)) == 2


def test_S3_26_a_namespace_that_does_not_exist_is_named(meshed: Rig) -> None:
    said, _pair = failed(meshed, pool="training", namespace="nowhere")
    assert "no namespace nowhere" in said
