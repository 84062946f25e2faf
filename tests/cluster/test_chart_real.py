# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chart's release on a real API server: installed, tested, upgraded, kept while machines run, uninstalled, installed again."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

import httpx
import pytest
import yaml

from .helm_cli import SPACE, Helm, HelmFailed
from .plane import RBAC, Plane
from .pods_by_hand import Kubelet
from .stage import Stage, cleared

pytestmark = pytest.mark.cluster
IDLE = 10 * 60 + 60
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Stage]:
    made = Stage(plane, tmp_path, drain_timeout="8s")
    try:
        yield from cleared(made)
    finally:
        plane.delete(f"/api/v1/nodes/{made.rack}")
        for one in plane.get(DEFINITIONS)["items"]:
            if one["spec"]["group"] == "tgp.io":
                plane.delete(f"{DEFINITIONS}/{one['metadata']['name']}")
        plane.until(lambda: plane.http.get("/apis/tgp.io/v1").status_code == httpx.codes.NOT_FOUND, what="the kinds to be gone")


def _values(stage: Stage, folder: pathlib.Path) -> str:
    """Documents in the values; no node is for the pods, which run by hand."""
    file = folder / "values.yaml"
    values = {
        "documents": {"inline": stage.documents()},
        "autoscale": {"enabled": True},
        "nodeSelector": {"tgp.io/by-hand": "true"},
    }
    file.write_text(yaml.safe_dump(values))
    return str(file)


def _run_now(stage: Stage, kubelet: Kubelet, playbook: str, turn: int) -> None:
    """As ``kubectl create job --from`` does."""
    cron = stage.plane.get(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/tgp-gpu-{playbook}")
    name = f"{playbook}-{turn}"
    stage.plane.create(JOBS, {"metadata": {"name": name}, "spec": cron["spec"]["jobTemplate"]["spec"]})
    stage.plane.until(lambda: stage.plane.get(f"{JOBS}/{name}")["status"].get("conditions"), what=f"job {name} to end")
    ran = kubelet.last(playbook)
    assert ran.status == 0 and ran.account == f"tgp-gpu-{playbook}", ran.output


def test_a_release_comes_works_and_goes_only_without_machines(stage: Stage, helm: Helm, tmp_path: pathlib.Path) -> None:
    """helm test checks with the rights of the account that works; the CronJob's pod deletes an idle machine; uninstall waits for that."""
    plane, tool, values = stage.plane, helm.at(stage.plane.kubeconfig), _values(stage, tmp_path)
    with Kubelet(plane, tmp_path / "pods", stage.environment) as kubelet:
        notes = tool.deploy("install", "--values", values)
        assert "helm test tgp-gpu --namespace tgp-system" in notes and "CronJob tgp-gpu-reap: */5 * * * *" in notes
        plane.patch(
            f"/api/v1/namespaces/{SPACE}", {"metadata": {"labels": RESTRICTED}}, "merge"
        )  # the API server admits no other pod
        with contextlib.suppress(HelmFailed):  # the pod's own words come first
            tool.hook("test")
        checked = kubelet.last("validate")
        assert checked.account == "tgp-gpu-autoscale" and checked.status == 0, checked.output
        assert "Phase:          Succeeded" in tool.run("status", "tgp-gpu")

        stage.run("provision", pool=stage.pools["lambda"])
        rented = stage.rented()
        with pytest.raises(HelmFailed, match="job tgp-gpu-uninstall failed"):
            tool.hook("uninstall")
        refused = kubelet.last("uninstall")
        assert refused.account == "tgp-gpu-status" and refused.status == 2
        assert f"1 machines run and are billed: {rented}." in " ".join(refused.output.split()), refused.output
        assert plane.find(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/tgp-gpu-reap") is not None
        assert "STATUS: uninstalling" in tool.run("status", "tgp-gpu")
        tool.run("rollback", "tgp-gpu", "1")  # Helm upgrades nothing that it was to uninstall
        assert "STATUS: deployed" in tool.run("status", "tgp-gpu")

        _run_now(stage, kubelet, "reap", 1)
        stage.advance(IDLE)
        _run_now(stage, kubelet, "reap", 2)
        assert stage.nothing_is_left()

        kept, _pool = stage.documents()[:2]
        kept["spec"]["talosConfig"] = {"machineConfigTemplate": "machine: {}"}
        plane.create("/apis/tgp.io/v1/gpunodeclasses", kept)
        tool.deploy("upgrade", "--values", values, "--set", "reap.schedule=0 * * * *")
        cron = plane.get(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/tgp-gpu-reap")
        assert cron["spec"]["schedule"] == "0 * * * *"
        tool.hook("uninstall")
        assert plane.find(f"/apis/batch/v1/namespaces/{SPACE}/cronjobs/tgp-gpu-reap") is None
        assert plane.find(f"{RBAC}/clusterroles/tgp-gpu-reap") is None
        assert plane.find(f"/apis/tgp.io/v1/gpunodeclasses/{kept['metadata']['name']}") is not None

        tool.deploy("install", "--values", values)
        tool.hook("uninstall", "--no-hooks")
        assert plane.find(f"/apis/tgp.io/v1/gpunodeclasses/{kept['metadata']['name']}") is not None


def test_a_loop_has_one_leader_and_a_second_that_takes_over(stage: Stage, helm: Helm, tmp_path: pathlib.Path) -> None:
    """Two replicas of the Deployment: one deletes an idle machine, the other waits for the Lease; the first dies at it, the second ends it.
    Changed documents reach pods that run, and a deleted pod ends its look. The hook brings the API server into the tailnet."""
    plane, tool, file = stage.plane, helm.at(stage.plane.kubeconfig), tmp_path / "loop.yaml"
    node_class, rented, _own = stage.documents()
    values: dict[str, t.Any] = {
        "mode": "loop",
        "loop": {"replicas": 2, "interval": 1, "fullInterval": 2},
        "networking": {"tailscale": {"operatorEnabled": True, "hostname": "k8s-loop"}},
        "nodeSelector": {"tgp.io/by-hand": "true"},
    }

    def documents(least: int) -> tuple[str, str]:
        rented["spec"]["minNodes"] = least
        file.write_text(yaml.safe_dump({**values, "documents": {"inline": [node_class, rented]}}))
        return "--values", str(file)

    with Kubelet(plane, tmp_path / "pods", stage.environment) as kubelet:
        try:
            tool.deploy("install", *documents(0))
            exposed = kubelet.last("expose")
            assert exposed.account == "tgp-gpu-expose" and exposed.status == 0, exposed.output
            assert plane.get(KUBERNETES)["metadata"]["annotations"]["tailscale.com/hostname"] == "k8s-loop"
            assert plane.find(f"/api/v1/namespaces/{SPACE}/serviceaccounts/tgp-gpu-expose") is None, "its rights go with the hook"
            pods = plane.until(lambda: list(kubelet.working.values()) if len(kubelet.working) == 2 else None, what="both pods")
            stage.until(lambda: all("machines 0" in pod.said for pod in pods), "both have looked")
            assert not stage.living()

            tool.deploy("upgrade", "--no-hooks", *documents(1))
            stage.until(
                lambda: [one["phase"] for one in stage.claims().values()] == ["Ready"], "the change reaches a pod that runs"
            )
            tool.deploy("upgrade", "--no-hooks", *documents(0))
            hangs = {"kind": "hang", "service": "lambda", "method": "POST", "path": "terminate", "seconds": 600, "times": 1}
            stage.faults(hangs)  # until its caller is killed, however long the other takes for a look
            idle = "tgp.io/idle-since"
            stage.until(lambda: idle in stage.node(stage.rented())["metadata"].get("annotations", {}), "a pod sees that it is idle")
            stage.advance(IDLE)
            stage.until(lambda: any("destroying" in pod.said for pod in pods), "one deletes the idle machine")
            leader, other = sorted(pods, key=lambda pod: "destroying" not in pod.said)
            stage.until(lambda: "skipped: " in other.said.rpartition("Ready")[2], "the other waits for the Lease")
            assert "destroying" not in other.said and stage.living()
            leader.kill()
            stage.until(stage.nothing_is_left, "the other ends what was begun")
            assert other.is_at_work(), other.said

            scale = f"/apis/apps/v1/namespaces/{SPACE}/deployments/tgp-gpu-autoscale/scale"
            plane.patch(scale, {"spec": {"replicas": 0}}, "merge")
            plane.until(lambda: kubelet.check() or not kubelet.working, what="the pods to end")
            (ended,) = [one for one in kubelet.ran if one.output == other.said]
            assert ended.status == 0 and "nothing is left half done" in ended.output, ended.output
            assert "[WARNING]" not in ended.output and "changed: [localhost]" in ended.output, ended.output
            assert not any(stage.lock_holders())
        finally:
            tool.hook("uninstall", "--no-hooks")
            marks = dict.fromkeys(("tailscale.com/expose", "tailscale.com/hostname"))
            plane.patch(KUBERNETES, {"metadata": {"annotations": marks}}, "merge")
