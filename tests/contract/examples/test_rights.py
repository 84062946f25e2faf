# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""files/rbac.yml, applied as it stands: its account can do a whole cycle, and nothing of it is superfluous for the check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.kube.bootstrap_tokens import OWN_BINDING

from sandbox import scenario
from sandbox.server import Served

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-service-account-token-0123456789abcdef"
KINDS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
SPEED = 100.0


@pytest.fixture
def served(tmp_path: Path) -> t.Iterator[Served]:
    """A sandbox whose Kubernetes has what files/rbac.yml describes."""
    world = Served(scenario.load(), speed=SPEED, state_dir=str(tmp_path / "sandbox"))
    kube = world.box.kube
    assert kube is not None
    for manifest in yaml.safe_load_all((ROOT / "files" / "rbac.yml").read_text(encoding="utf-8")):
        path = KINDS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
        status, answer = kube.request("POST", path, manifest)
        assert status == 201 or (status == 409 and manifest["metadata"]["name"] == OWN_BINDING), answer
    kube.add_token(TOKEN, "system:serviceaccount:tgp-system:tgp-gpu", ["system:serviceaccounts"])
    kube.write_kubeconfig(str(tmp_path / "kubeconfig"), world.environment["TGP_CONTROL_PLANE_ENDPOINT"], TOKEN)
    yield world
    world.stop()


def play(served: Served, folder: Path, name: str, **variables: t.Any) -> str:
    """Run a playbook as that account."""
    environment = {**os.environ, **served.environment, "KUBECONFIG": str(folder / "kubeconfig"), "ANSIBLE_NOCOLOR": "1"}
    given = json.dumps(
        {"tgp_documents": str(ROOT / "examples" / "demo"), **{f"tgp_{name}": value for name, value in variables.items()}}
    )
    command = [str(Path(sys.executable).parent / "ansible-playbook"), f"playbooks/{name}.yml", "-e", given]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def job(served: Served, node: str) -> None:
    kube = served.box.kube
    assert kube is not None
    spec = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "job", "image": "registry.example/job:1"}],
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "jobs",
        "uid": "b6b0a4c4-1f0e-4b59-8a55-000000000001",
        "controller": True,
    }
    body = {"metadata": {"name": "job", "ownerReferences": [owner]}, "spec": spec}
    status, answer = kube.request("POST", "/api/v1/namespaces/default/pods", body)
    assert status == 201, answer


def test_the_shipped_rights_suffice_for_a_whole_cycle(served: Served, tmp_path: Path) -> None:
    """Check, rent, join, show, evict a pod, give back: nothing is refused on the way."""
    play(served, tmp_path, "validate")
    play(served, tmp_path, "provision")
    nodes = [node["metadata"]["name"] for node in served.box.nodes()]
    assert len(nodes) == 2
    play(served, tmp_path, "status")
    job(served, nodes[0])
    play(served, tmp_path, "reap")
    text = play(served, tmp_path, "destroy", everything=True, force=True)
    assert "not allowed" not in text
    world = served.box.world
    assert [machine.name for machine in world.machines.values() if machine.ended is None and machine.cloud == "lambda"] == []
    assert [node for node in served.box.nodes() if node["metadata"]["name"].startswith("tgp-")] == []


def test_the_shipped_rights_suffice_for_services(served: Served, tmp_path: Path) -> None:
    """Containers rented, published, shown and given back by the same account; its reach ends at the namespace that the file names."""
    documents = str(ROOT / "examples" / "service.yml")
    kube = served.box.kube
    assert kube is not None
    play(served, tmp_path, "validate", documents=documents)
    text = play(served, tmp_path, "provision", documents=documents, nodes=1)
    (device,) = [one for one in served.box.tailnet.devices() if one.hostname.startswith("tgp-")]
    path = f"/api/v1/namespaces/default/services/{device.hostname}"
    status, service = kube.request("GET", path)
    assert (status, service["metadata"]["annotations"]["tailscale.com/tailnet-fqdn"]) == (
        200,
        served.box.tailnet.dns_name(device),
    ), text
    assert f"{device.ipv4}:8000" in play(served, tmp_path, "status", documents=documents)
    play(served, tmp_path, "reap", documents=documents)
    text = play(served, tmp_path, "destroy", documents=documents, everything=True, force=True)
    assert "not allowed" not in text
    assert [kube.request("GET", one)[0] for one in (path, "/api/v1/namespaces/default/configmaps/tgp-endpoints-llm")] == [404, 404]
    assert [one.name for one in served.box.world.machines.values() if one.ended is None and one.cloud in ("runpod", "vast")] == []
    elsewhere = "/api/v1/namespaces/kube-public/services"
    assert kube.request("POST", elsewhere, {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}}, token=TOKEN)[0] == 403
