# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P6 and P7: emptying fifty nodes, and waiting for fifty. Both against the sandbox's Kubernetes, in a process of its own, in real time.

No kubelet runs: the benchmark itself reports nodes Ready and ends evicted pods. CPU is that of the command and its children, with the start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import resource
import shutil
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

from .processes import Elsewhere, environment, processor_seconds
from .results import Measured, Row

COUNT, PODS, ABREAST = 50, 5, 10
WINDOW = 30.0  # seconds within which the nodes become Ready
HOLD = 8.0  # seconds until a budget opens
ENDING = 2.0  # seconds that a pod takes to end
_BIN = Path(sys.executable).parent
_NODES, _SPACE = "/api/v1/nodes", "/api/v1/namespaces/default"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
Plain = tuple[str, str]  # what, value


def rows(folder: Path, runs: int) -> t.Iterator[Row]:
    """Of each command so many runs, in turns, so that a busy moment of the machine meets all of them."""
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        bench = Bench(sandbox, folder)
        drains: dict[str, list[Measured]] = {"node_drain": [], "kubectl": []}
        waits: dict[str, list[Measured]] = {"node_wait": [], "kubectl": []}
        if shutil.which("kubectl", path=f"{_BIN}{os.pathsep}{os.environ['PATH']}") is None:
            print("P6, P7: kubectl is not installed, its rows are skipped", file=sys.stderr)
            del drains["kubectl"], waits["kubectl"]
        budgets = []
        for number in range(runs):
            for who, found in drains.items():
                found.append(bench.drain(who, f"drain-{who.replace('_', '-')}-{number}"))
            budgets.append(bench.budget(f"held-{number}"))
            for who, found in waits.items():
                found.append(bench.wait(who, f"wait-{who.replace('_', '-')}-{number}"))
    finally:
        sandbox.close()
    pods = f"{COUNT} nodes of {PODS} pods that end after {ENDING:.0f} s"
    words = {"node_drain": "a play with node_drain", "kubectl": f"kubectl drain, {ABREAST} nodes at a time"}
    for who, found in drains.items():
        yield Row(f"P6 {who}", f"{words[who]}, {pods}", "s", found)
    yield Row("P6 budget", f"a play with node_drain beside a budget that opens after {HOLD:.0f} s", "s", budgets)
    words = {"node_wait": "node_wait without a play", "kubectl": "kubectl wait"}
    for who, found in waits.items():
        yield Row(f"P7 {who}", f"{words[who]}, {COUNT} nodes Ready within {WINDOW:.0f} s", "s", found)


class Bench:
    def __init__(self, sandbox: Running, folder: Path) -> None:
        self.folder, self.environment, self._sandbox = folder, sandbox.environment, sandbox
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

    def nodes_with_pods(self, prefix: str, count: int = COUNT) -> list[str]:
        names = [f"{prefix}-{number:02}" for number in range(count)]
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
        variables = {**self.environment, "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"}
        variables.pop("TGP_CLOCK_FILE", None)
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, command: t.Sequence[str], during: t.Callable[[], dict[str, float]] = dict) -> Measured:
        """Run the command. ``during`` is called beside it; it returns moments of the system's clock, and what is kept of each are the seconds
        from it to the command's end."""
        load, world, spent, elsewhere = os.getloadavg()[0], processor_seconds(self._sandbox.pid), _spent(), Elsewhere()
        started = time.monotonic()
        process = self.start(command)
        moments = during()
        output, _none = process.communicate()
        ended = time.monotonic()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)[:300]} ended with {process.returncode}:\n{output[-3000:]}")
        cpu, world_cpu = _spent() - spent, processor_seconds(self._sandbox.pid) - world
        others = max(0.0, elsewhere.seconds() - cpu - world_cpu) / (ended - started)
        more = {what: ended - moment for what, moment in moments.items()}
        return Measured(ended - started, cpu, load, world_cpu, others, more=more)

    # ---- P6

    def drain(self, who: str, prefix: str) -> Measured:
        names = self.nodes_with_pods(prefix)
        if who == "node_drain":
            command = self.playbook(prefix, "node_drain", nodes=names, timeout=300)
        else:
            drain = "kubectl drain --force --ignore-daemonsets --timeout=300s"
            command = ["sh", "-c", f"printf '%s\\n' {' '.join(names)} | xargs -n1 -P{ABREAST} {drain}"]
        with self.kubelets():
            measured = self.run(command)
        if self.pods():
            raise SystemExit(f"{who} left pods behind.")
        return measured

    def budget(self, name: str) -> Measured:
        """How long after a budget has opened the pod that it held is told to go."""
        self.node(name, ready=True)
        self.pod(name, name)
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
        self.call("POST", _BUDGETS, {"metadata": {"name": name}, "spec": spec})
        after: dict[str, float] = {}

        def open_it() -> dict[str, float]:
            time.sleep(HOLD)
            opened = time.monotonic()
            self.call("PATCH", f"{_BUDGETS}/{name}", {"spec": {"minAvailable": 0}})
            # the sandbox counts a budget anew when it is read, as the controller would by itself
            self.call("GET", f"{_BUDGETS}/{name}")
            while not any("deletionTimestamp" in pod["metadata"] for pod in self.pods()):
                time.sleep(0.02)
            after["seconds to the eviction"] = time.monotonic() - opened
            self.call("DELETE", f"{_SPACE}/pods/{name}", {"gracePeriodSeconds": 0})
            return {}

        measured = self.run(self.playbook(name, "node_drain", nodes=[name], timeout=120), open_it)
        return dataclasses.replace(measured, more=after)

    # ---- P7

    def wait(self, who: str, prefix: str) -> Measured:
        names = [f"{prefix}-{number:02}" for number in range(COUNT)]
        for name in names:
            self.node(name, ready=False)
        if who == "node_wait":
            command = [sys.executable, "-m", "tests.bench.waiter", *names]
        else:
            command = ["kubectl", "wait", "--for=condition=Ready", "--timeout=120s", *(f"node/{name}" for name in names)]
        return self.run(command, lambda: {"seconds after the last node": self.become_ready(names)})

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
