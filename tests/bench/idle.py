# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P14: a ``reap.yml`` that finds nothing to do in a cluster of a thousand nodes and ten thousand pods, none of them ours. What no tool could
avoid is the start of an empty playbook, and reading all nodes and pods page by page. Once with a kubeconfig that has a client certificate, as
``talosctl kubeconfig`` writes it, and once with an exec plugin, for which each task imports the official client and starts the plugin."""

from __future__ import annotations

import base64
import json
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from sandbox.kube.pki import new_request
from sandbox.running import ROOT, Running

from .nodes import Bench, Plain
from .processes import EMPTY, measured

NODES, PODS = 1000, 10_000
_TIMES = 3
_CERTIFICATES, _RBAC = "certificates.k8s.io", "rbac.authorization.k8s.io"
_REQUESTS = f"/apis/{_CERTIFICATES}/v1/certificatesigningrequests"
_PLUGINS = "client.authentication.k8s.io/v1"


def rows(folder: Path) -> list[Plain]:
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        return _rows(sandbox, Bench(sandbox, folder), folder)
    finally:
        sandbox.close()


def _rows(sandbox: Running, bench: Bench, folder: Path) -> list[Plain]:
    names = [f"n{number:04d}" for number in range(NODES)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bench.node(name, ready=True), names))
        list(pool.map(lambda number: bench.pod(f"p{number:05d}", names[number % NODES]), range(PODS)))
    (folder / "empty.yml").write_text(EMPTY)
    certificate = _kubeconfig(sandbox, folder / "certificate.kubeconfig", _certified(bench))
    plugin = _kubeconfig(sandbox, folder / "exec.kubeconfig", _with_plugin(sandbox, folder))
    _reap(sandbox, certificate)  # the first run takes notes of its own
    empty = min(_play(sandbox, str(folder / "empty.yml"))[0] for _time in range(_TIMES))
    floor = empty + min(_lists(bench) for _time in range(_TIMES))
    wall, memory = min(_reap(sandbox, certificate) for _time in range(_TIMES))
    wall_exec, memory_exec = min(_reap(sandbox, plugin) for _time in range(_TIMES))
    return [
        (f"P14 reap.yml with nothing to do, {NODES} nodes, {PODS} pods: wall seconds", f"{wall:.2f}"),
        ("  empty playbook + reading all nodes and pods", f"{floor:.2f}"),
        ("  ratio", f"{wall / floor:.2f}"),
        ("  MB of the largest process at its peak", f"{memory:.0f}"),
        ("P14 the same, its kubeconfig with an exec plugin: wall seconds", f"{wall_exec:.2f}"),
        ("  ratio", f"{wall_exec / floor:.2f}"),
        ("  MB of the largest process at its peak", f"{memory_exec:.0f}"),
    ]


# ---- who asks


def _kubeconfig(sandbox: Running, path: Path, user: dict[str, t.Any]) -> Path:
    """The sandbox's own, with another user."""
    config = yaml.safe_load(Path(sandbox.environment["KUBECONFIG"]).read_text())
    config["users"][0]["user"] = user
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _certified(bench: Bench) -> dict[str, t.Any]:
    """A client certificate of an administrator, signed by the cluster."""
    subject = {"kind": "Group", "apiGroup": _RBAC, "name": "benchmarks"}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "benchmarks"}, "subjects": [subject], "roleRef": role}
    bench.call("POST", f"/apis/{_RBAC}/v1/clusterrolebindings", binding)
    key, request = new_request("benchmark", ["benchmarks"])
    spec = {"request": _encoded(request), "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    bench.call("POST", _REQUESTS, {"metadata": {"name": "benchmark"}, "spec": spec})
    approved = {"type": "Approved", "status": "True", "reason": "Benchmark", "message": "by its administrator"}
    bench.call("PATCH", f"{_REQUESTS}/benchmark/approval", {"status": {"conditions": [approved]}})
    signed = bench.call("GET", f"{_REQUESTS}/benchmark")["status"]["certificate"]
    return {"client-certificate-data": signed, "client-key-data": _encoded(key)}


def _with_plugin(sandbox: Running, folder: Path) -> dict[str, t.Any]:
    """An exec plugin that answers at once, by the administrator's token."""
    token = yaml.safe_load(Path(sandbox.environment["KUBECONFIG"]).read_text())["users"][0]["user"]["token"]
    answer = folder / "credential.json"
    answer.touch(mode=0o600)
    answer.write_text(json.dumps({"apiVersion": _PLUGINS, "kind": "ExecCredential", "status": {"token": token}}))
    return {"exec": {"apiVersion": _PLUGINS, "command": "cat", "args": [str(answer)], "interactiveMode": "Never"}}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# ---- what is measured


def _reap(sandbox: Running, kubeconfig: Path) -> tuple[float, float]:
    documents = json.dumps({"tgp_documents": str(ROOT / "examples" / "demo")})
    return _play(sandbox, "playbooks/reap.yml", "-e", documents, KUBECONFIG=str(kubeconfig))


def _play(sandbox: Running, *arguments: str, **variables: str) -> tuple[float, float]:
    """Wall seconds and the memory of its largest process, in MB."""
    cost = measured(["ansible-playbook", *arguments], {**sandbox.environment, **variables})
    return cost.wall, cost.peak


def _lists(bench: Bench) -> float:
    """Seconds for all nodes and pods, in pages of five hundred."""
    started = time.perf_counter()
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        token = ""
        while True:
            answer: dict[str, t.Any] = bench.call("GET", f"{path}?limit=500" + (f"&continue={token}" if token else ""))
            token = answer["metadata"].get("continue", "")
            if not token:
                break
    return time.perf_counter() - started


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for what, value in rows(Path(name) / "idle"):
            print(f"  {what:<78} {value}")
