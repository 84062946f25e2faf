# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P6 and P7: emptying fifty nodes, and waiting for fifty. Both against the sandbox's Kubernetes, in a process of its own, in real time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import httpx
import yaml

from sandbox.running import ROOT, Running

COUNT, PODS, ABREAST = 50, 5, 10
WINDOW = 30.0  # seconds within which the nodes become Ready
HOLD = 8.0  # seconds until a budget opens
ENDING = 2.0  # seconds that a pod takes to end
_BIN = Path(sys.executable).parent
_NODES, _SPACE = "/api/v1/nodes", "/api/v1/namespaces/default"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
Row = tuple[str, str]


def rows(folder: Path) -> list[Row]:
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        bench = _Bench(sandbox, folder)
        return [*bench.drain(), *bench.budget(), *bench.wait()]
    finally:
        sandbox.close()


class _Cost(t.NamedTuple):
    wall: float
    cpu: float


class _Bench:
    def __init__(self, sandbox: Running, folder: Path) -> None:
        self.folder, self.environment = folder, sandbox.environment
        config = yaml.safe_load(Path(sandbox.environment["KUBECONFIG"]).read_text())
        user = config["users"][0]["user"]
        self.http = httpx.Client(
            base_url=config["clusters"][0]["cluster"]["server"],
            headers={"authorization": f"Bearer {user['token']}"},
            verify=False,
            timeout=60,
        )

    # ---- the cluster

    def call(self, method: str, path: str, body: t.Any = None) -> t.Any:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        return self.http.request(method, path, content=content, headers={"content-type": media}).raise_for_status().json()

    def node(self, name: str, *, ready: bool) -> None:
        self.call("POST", _NODES, {"metadata": {"name": name}})
        self.report(name, ready=ready)

    def report(self, name: str, *, ready: bool) -> None:
        """What its kubelet would say."""
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "Ready",
            "status": str(ready),
            "reason": "Kubelet",
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        resources = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        status = {"conditions": [condition], "capacity": resources, "allocatable": resources}
        self.call("PATCH", f"{_NODES}/{name}/status", {"status": status})

    def pod(self, name: str, node: str) -> None:
        """A running pod; :meth:`kubelets` end it once it is evicted."""
        container = {"name": "main", "image": "registry.example/nothing:1"}
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 30, "containers": [container]}
        self.call("POST", f"{_SPACE}/pods", {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.call("PATCH", f"{_SPACE}/pods/{name}/status", {"status": status})

    def nodes_with_pods(self, prefix: str) -> list[str]:
        names = [f"{prefix}-{number:02}" for number in range(COUNT)]
        for name in names:
            self.node(name, ready=True)
            for number in range(PODS):
                self.pod(f"{name}-{number}", name)
        return names

    def pods(self) -> list[dict[str, t.Any]]:
        return t.cast("list[dict[str, t.Any]]", self.call("GET", f"{_SPACE}/pods")["items"])

    @contextlib.contextmanager
    def kubelets(self) -> t.Iterator[None]:
        """While this lasts, every pod that is told to go is gone ENDING seconds later."""
        over = threading.Event()

        def work() -> None:
            since: dict[str, float] = {}
            while not over.wait(0.2):
                for pod in self.pods():
                    name = pod["metadata"]["name"]
                    if (
                        "deletionTimestamp" in pod["metadata"]
                        and time.monotonic() - since.setdefault(name, time.monotonic()) >= ENDING
                    ):
                        self.call("DELETE", f"{_SPACE}/pods/{name}", {"gracePeriodSeconds": 0})

        thread = threading.Thread(target=work, name="kubelets")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # ---- commands

    def playbook(self, name: str, module: str, **arguments: t.Any) -> list[str]:
        """The command that runs one task in a play of its own."""
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [{f"tgp.gpu.{module}": arguments}]}
        path = self.folder / f"{name}.yml"
        path.write_text(yaml.safe_dump([play]))
        return [str(_BIN / "ansible-playbook"), str(path)]

    def start(self, command: t.Sequence[str]) -> subprocess.Popen[str]:
        environment = {**self.environment, "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"}
        environment.pop("TGP_CLOCK_FILE", None)
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, command: t.Sequence[str]) -> _Cost:
        before, started = _spent(), time.monotonic()
        process = self.start(command)
        output, _none = process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)[:300]} ended with {process.returncode}:\n{output[-3000:]}")
        return _Cost(time.monotonic() - started, _spent() - before)

    # ---- P6

    def drain(self) -> list[Row]:
        names = self.nodes_with_pods("ours")
        with self.kubelets():
            ours = self.run(self.playbook("drain", "node_drain", nodes=names, timeout=300))
        left = self.pods()
        names = self.nodes_with_pods("theirs")
        listed = " ".join(names)
        drain = "kubectl drain --force --ignore-daemonsets --timeout=300s"
        with self.kubelets():
            theirs = self.run(["sh", "-c", f"printf '%s\\n' {listed} | xargs -n1 -P{ABREAST} {drain}"])
        if left or self.pods():
            raise SystemExit("A drain left pods behind.")
        return [
            (
                f"P6 node_drain, {COUNT} nodes of {PODS} pods that take {ENDING:.0f} s to end, a whole play: wall",
                f"{ours.wall:.2f}",
            ),
            (f"  kubectl drain, {ABREAST} at a time: wall seconds", f"{theirs.wall:.2f}"),
            ("  kubectl ÷ node_drain", f"{theirs.wall / ours.wall:.2f}"),
            ("  CPU seconds: node_drain, kubectl", f"{ours.cpu:.2f}, {theirs.cpu:.2f}"),
        ]

    def budget(self) -> list[Row]:
        """How long after a budget has opened the pod that it held is told to go."""
        self.node("held", ready=True)
        self.pod("guarded", "held")
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
        self.call("POST", _BUDGETS, {"metadata": {"name": "keep"}, "spec": spec})
        process = self.start(self.playbook("held", "node_drain", nodes=["held"], timeout=120))
        time.sleep(HOLD)
        opened = time.monotonic()
        self.call("PATCH", f"{_BUDGETS}/keep", {"spec": {"minAvailable": 0}})
        self.call("GET", f"{_BUDGETS}/keep")  # the sandbox counts a budget anew when it is read, as the controller would by itself
        while not any("deletionTimestamp" in pod["metadata"] for pod in self.pods()):
            time.sleep(0.02)
        after = time.monotonic() - opened
        with self.kubelets():
            output, _none = process.communicate()
        if process.returncode:
            raise SystemExit(f"The held drain ended with {process.returncode}:\n{output[-3000:]}")
        return [(f"  a budget that opens after {HOLD:.0f} s: its pod is evicted after (seconds)", f"{after:.2f}")]

    # ---- P7

    def wait(self) -> list[Row]:
        found: list[Row] = []
        for who in ("node_wait", "kubectl wait"):
            prefix = who.split()[0].replace("_", "-")
            names = [f"{prefix}-{number:02}" for number in range(COUNT)]
            for name in names:
                self.node(name, ready=False)
            if who == "node_wait":
                command = [sys.executable, "-m", "tests.bench.waiter", *names]
            else:
                command = ["kubectl", "wait", "--for=condition=Ready", "--timeout=120s", *(f"node/{name}" for name in names)]
            before = _spent()
            process = self.start(command)
            last = self.become_ready(names)
            output, _none = process.communicate()
            ended = time.monotonic()
            if process.returncode:
                raise SystemExit(f"{who} ended with {process.returncode}:\n{output[-3000:]}")
            found.append((f"P7 {COUNT} nodes Ready within {WINDOW:.0f} s, {who}: seconds after the last", f"{ended - last:.2f}"))
            found.append(("  CPU seconds of the whole process", f"{_spent() - before:.2f}"))
        return found

    def become_ready(self, names: t.Sequence[str]) -> float:
        """All within the window, at moments that are the same for every run; returns when the last one was."""
        chance, began = random.Random(50), time.monotonic()
        for moment, name in sorted((chance.uniform(2, WINDOW), name) for name in names):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            self.report(name, ready=True)
        return time.monotonic()


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
