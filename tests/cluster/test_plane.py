# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the other cluster tests stand on: the plane does what a Talos cluster's control plane does with a joining node."""

from __future__ import annotations

import pathlib
import signal
import ssl
import subprocess
import sys
import time

import httpx
import pytest

from tests.build import ROOT

from . import objects
from .plane import Plane

pytestmark = pytest.mark.cluster
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def _requests_of(plane: Plane, token: str) -> list[objects.Object]:
    user = "system:bootstrap:" + token.partition(".")[0]
    return [one for one in plane.get(CSRS)["items"] if one["spec"]["username"] == user]


def _conditions(request: objects.Object) -> set[str]:
    return {one["type"] for one in request["status"].get("conditions", [])}


def _as(plane: Plane, token: str, path: str) -> int:
    return plane.http.get(path, headers={"Authorization": f"Bearer {token}"} if token else {"Authorization": ""}).status_code


def test_it_is_the_version_and_as_closed_as_in_talos(plane: Plane) -> None:
    assert plane.get("/version")["gitVersion"].startswith("v1.36.")
    assert _as(plane, "", "/version") == 401


def _kubectl(kubeconfig: pathlib.Path | str) -> list[str]:
    kubectl = pathlib.Path(sys.executable).with_name("kubectl")
    if not kubectl.exists():
        pytest.skip("kubectl is not installed in this environment.")
    return [str(kubectl), f"--kubeconfig={kubeconfig}"]


@pytest.mark.parametrize("way", ["kubeconfig", "certificate_kubeconfig"])
def test_kubectl_gets_in(plane: Plane, way: str) -> None:
    argv = [*_kubectl(getattr(plane, way)), "auth", "can-i", "delete", "nodes"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1] == "yes"


def test_a_token_becomes_a_ready_gpu_node(plane: Plane, own: str) -> None:
    token = plane.bootstrap_token()
    labels = {"tgp.io/pool": "trainers", "topology.kubernetes.io/region": "nowhere-1"}
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    hollow = plane.kubemark(own, token, labels=labels, taints=["nvidia.com/gpu=present:NoSchedule"], gpus=2)
    node = plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    assert node["metadata"]["labels"].items() >= labels.items()
    assert node["spec"]["taints"] == [taint]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    [request] = _requests_of(plane, token)
    assert _conditions(request) == {"Approved"} and request["status"]["certificate"]
    hollow.stop()
    assert not hollow.alive


def test_a_token_of_a_group_of_its_own_waits_for_approval(plane: Plane, own: str) -> None:
    plane.bind(own, ["system:bootstrappers:own"], "system:node-bootstrapper")
    token = plane.bootstrap_token(groups="system:bootstrappers:own")
    hollow = plane.kubemark(own, token)
    [request] = plane.until(lambda: _requests_of(plane, token), what="the certificate signing request")
    time.sleep(1)
    assert not _conditions(plane.get(f"{CSRS}/{request['metadata']['name']}")) and not objects.node(plane, own)
    verdict = {"type": "Approved", "status": "True", "reason": "Test", "message": "the test says so"}
    plane.patch(f"{CSRS}/{request['metadata']['name']}/approval", {"status": {"conditions": [verdict]}})
    plane.until(lambda: objects.ready(plane, own), what="the approved node to be Ready")
    hollow.stop()


def test_an_expired_token_is_refused_and_cleaned_away(plane: Plane, own: str) -> None:
    token = plane.bootstrap_token(seconds=-60)
    secret = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token.partition('.')[0]}"
    assert _as(plane, token, "/version") == 401
    assert _as(plane, plane.bootstrap_token(), "/version") == 200
    plane.until(lambda: plane.find(secret) is None, what="the token cleaner")
    hollow = plane.kubemark(own, token)
    plane.until(lambda: "asked for the client to provide credentials" in hollow.log, what="the kubelet to be refused")
    assert hollow.alive, "a kubelet with a bad token goes on asking"
    assert not _requests_of(plane, token) and not objects.node(plane, own)
    hollow.kill()


def test_a_node_cannot_touch_another_node(plane: Plane, own: str) -> None:
    hollow = plane.kubemark(own, plane.bootstrap_token())
    plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    context = ssl.create_default_context(cadata=plane.ca_pem)
    context.load_cert_chain(hollow.folder / "pki" / "kubelet-client-current.pem")
    plane.create("/api/v1/nodes", {"metadata": {"name": f"other-{own}"}})
    patch = {"metadata": {"labels": {"tgp.io/mine": "yes"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    with httpx.Client(base_url=plane.server, verify=context, headers=headers, trust_env=False) as kubelet:
        assert kubelet.patch(f"/api/v1/nodes/{own}", json=patch).status_code == 200
        assert kubelet.patch(f"/api/v1/nodes/other-{own}", json=patch).status_code == 403
        role = {"metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}}}
        assert kubelet.patch(f"/api/v1/nodes/{own}", json=role).status_code == 403
    hollow.stop()


def test_an_eviction_beyond_the_budget_answers_429(plane: Plane, own: str) -> None:
    hollow = plane.kubemark(own, plane.bootstrap_token(), gpus=1)
    plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    space = objects.namespace(plane, own)
    objects.workload(plane, "deployments", space, "train", objects.pod_spec(gpus=1, on=own))
    [pod] = objects.running(plane, space, 1)
    assert pod["spec"]["nodeName"] == own
    objects.budget(plane, space, "keep", {"app": "train"}, minAvailable=1)
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = plane.http.post(f"/api/v1/namespaces/{space}/pods/{name}/eviction", json=eviction)
    assert (answer.status_code, answer.json()["reason"]) == (429, "TooManyRequests")
    assert "Retry-After" not in answer.headers
    plane.delete(f"/api/v1/namespaces/{space}")
    hollow.stop()


@pytest.mark.slow
def test_a_dead_kubelet_makes_its_node_unknown_and_comes_back_without_a_token(hasty_plane: Plane, own: str) -> None:
    token = hasty_plane.bootstrap_token()
    hollow = hasty_plane.kubemark(own, token)
    hasty_plane.until(lambda: objects.ready(hasty_plane, own), what="the node to be Ready")
    hasty_plane.delete(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token.partition('.')[0]}")
    hollow.kill()

    def unreachable() -> bool:
        taints = (objects.node(hasty_plane, own) or {"spec": {}})["spec"].get("taints", [])
        return any(one["key"] == "node.kubernetes.io/unreachable" for one in taints)

    hasty_plane.until(unreachable, what="the node to be given up")
    hasty_plane.delete(f"/api/v1/nodes/{own}")
    hollow.start()
    hasty_plane.until(lambda: objects.ready(hasty_plane, own), what="the node to come back by itself")
    hollow.stop()


def test_nothing_outlives_a_killed_test_run(plane: Plane, tmp_path: pathlib.Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from tests.cluster.processes import Family\n"
        "child = Family().start('sleeper', ['sleep', '600'], pathlib.Path(sys.argv[1]) / 'log')\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.stdout
    sleeper = int(run.stdout.readline())
    run.send_signal(signal.SIGKILL)
    run.wait()

    def gone() -> bool:
        try:
            state = pathlib.Path(f"/proc/{sleeper}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"

    plane.until(gone, what="the child of the killed run to end")


@pytest.mark.slow
def test_it_serves_by_hand_until_it_is_told_to_end(plane: Plane, tmp_path: pathlib.Path) -> None:
    env, folder = tmp_path / "env", tmp_path / "plane"
    argv = [sys.executable, "-m", "tests.cluster.plane", "up", f"--env-file={env}", f"--folder={folder}", "--nodes=gpu-1:4"]
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stdout and run.stdout.readline().startswith("ready: https://127.0.0.1:")
    names = dict(line.split("=", 1) for line in env.read_text().splitlines())
    kubectl = _kubectl(names["KUBECONFIG"])
    wait = ["wait", "--for=jsonpath={.status.allocatable.nvidia\\.com/gpu}=4", "node/gpu-1", "--timeout=20s"]
    subprocess.run([*kubectl, "wait", "--for=create", "node/gpu-1", "--timeout=20s"], check=True, capture_output=True)
    subprocess.run([*kubectl, *wait], check=True, capture_output=True)
    run.terminate()
    assert run.wait(30) == 0
    again = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert again.returncode == 2 and "earlier plane" in again.stderr
