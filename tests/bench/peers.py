# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P2 and the other tools of P3, P6 and P7, measured apart and kept in a file, since they are slow: ``make bench-peers``.

hetzner.hcloud creates servers of a stand-in of Hetzner's API in a loop and with ``async``, as people write it; a threaded script does the same
as the practical floor. kubernetes.core drains nodes, and waits for them, in a loop. What is not installed is skipped with a line.

``python -m tests.bench.peers ADDRESS COUNT`` is the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import yaml

from sandbox.running import ROOT, Running

from .nodes import COUNT, PODS, WINDOW, Bench
from .processes import Cost, Ended, measured, processor_seconds
from .provision import BOOT, LATENCY
from .results import Measured, Row

MACHINES, LOOPED, HOSTS = 100, 10, 1000
DRAINED = 5  # nodes of a drain in a loop
_THREADS = 100
_SERVER = {"name": "{{ item }}", "server_type": "cx23", "image": "ubuntu-24.04", "state": "present"}
_TOKEN = "0" * 64  # the stand-in takes any
_FQCN = "hetzner.hcloud.server"


class StandIn:
    """A running stand-in of a cloud's API, by default Hetzner's. ``variables`` are those by which its tools find it."""

    def __init__(self, running: int = 0, *, ec2: bool = False) -> None:
        self._service = "ec2" if ec2 else "hetzner"
        times = [str(LATENCY)] if ec2 else [str(LATENCY), str(BOOT)]
        command = [sys.executable, "-m", f"tests.bench.{self._service}", *times, str(running)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def list(self, python: Path, inventory: Path) -> Measured:
        """ansible-inventory with this source. It ends well with an empty list, too, when the source cannot be read: Ended."""
        return self.run([str(python.parent / "ansible-inventory"), "-i", str(inventory), "--list"], _all_hosts)

    def run(self, command: t.Sequence[str], check: t.Callable[[str], None] = lambda _output: None) -> Measured:
        found = _of_ec2(self.address) if self._service == "ec2" else {"HCLOUD_ENDPOINT": self.address, "HCLOUD_TOKEN": _TOKEN}
        variables = {**os.environ, **found}
        before, spent = self.calls(), processor_seconds(self._process.pid)
        cost = measured(command, variables)
        check(cost.output)
        return _measured(cost, processor_seconds(self._process.pid) - spent, {self._service: self.calls() - before})

    def calls(self) -> int:
        return int(httpx.get(f"{self.address}/calls").raise_for_status().json()["calls"])


def _measured(cost: Cost, world_cpu: float, calls: dict[str, int]) -> Measured:
    others = max(0.0, cost.elsewhere - world_cpu) / cost.wall
    return Measured(cost.wall, cost.cpu, cost.load, world_cpu, others, cost.peak, cost.tasks, calls)


def rows(folder: Path, python: Path) -> t.Iterator[Row]:
    """``python`` is the interpreter of the environment in which the peers are installed."""
    parts = {
        "a threaded script": _script,
        "hetzner.hcloud in a loop": lambda: _loop(folder, python),
        "hetzner.hcloud with async": lambda: _async(folder, python),
        "the inventory of hetzner.hcloud": lambda: _inventory(folder, python),
        "the inventory of amazon.aws": lambda: _inventory_of_ec2(folder, python),
        "kubernetes.core.k8s_drain": lambda: _k8s_drain(folder, python),
        "kubernetes.core.k8s_info": lambda: _k8s_info(folder, python),
    }
    for name, part in parts.items():
        try:
            yield part()
        except (Ended, OSError) as error:
            print(f"{name} is skipped: {str(error).strip().splitlines()[-1][:200]}", file=sys.stderr)


def _script() -> Row:
    with StandIn() as api:
        run = api.run([sys.executable, "-m", "tests.bench.peers", api.address, str(MACHINES)])
    return Row(f"P2 script {MACHINES}", f"a script with {_THREADS} threads, {MACHINES} machines", "s", [run])


def _loop(folder: Path, python: Path) -> Row:
    tasks = [{"name": "Create", _FQCN: _SERVER, "loop": _names(LOOPED)}]
    with StandIn() as api:
        run = api.run(_play(folder, "loop", python, tasks))
    return Row(f"P2 loop {LOOPED}", f"hetzner.hcloud.server in a loop, {LOOPED} machines", "s", [run])


def _async(folder: Path, python: Path) -> Row:
    wait = {"ansible.builtin.async_status": {"jid": "{{ item.ansible_job_id }}"}, "loop": "{{ started.results }}"}
    tasks = [
        {"name": "Create", _FQCN: _SERVER, "loop": _names(MACHINES), "async": 600, "poll": 0, "register": "started"},
        {"name": "Wait", **wait, "register": "job", "until": "job is finished", "retries": 300, "delay": 1},
    ]
    with StandIn() as api:
        run = api.run(_play(folder, "async", python, tasks))
    return Row(f"P2 async {MACHINES}", f"hetzner.hcloud.server with async and async_status, {MACHINES} machines", "s", [run])


def _inventory(folder: Path, python: Path) -> Row:
    path = folder / "peers.hcloud.yml"
    path.write_text("plugin: hetzner.hcloud.hcloud\n")
    with StandIn(running=HOSTS) as api:
        run = api.list(python, path)
    return Row(f"P3 hcloud {HOSTS}", f"the inventory of hetzner.hcloud, {HOSTS} hosts", "s", [run])


def _inventory_of_ec2(folder: Path, python: Path) -> Row:
    path = folder / "peers.aws_ec2.yml"
    path.write_text("plugin: amazon.aws.aws_ec2\nregions: [us-east-1]\n")
    with StandIn(HOSTS, ec2=True) as api:
        run = api.list(python, path)
    return Row(f"P3 aws_ec2 {HOSTS}", f"the inventory of amazon.aws, {HOSTS} hosts", "s", [run])


def _all_hosts(output: str) -> None:
    listed = len(json.loads(output[output.index("\n{") + 1 if not output.startswith("{") else 0 :])["_meta"]["hostvars"])
    if listed != HOSTS:
        raise Ended(f"{listed} of {HOSTS} hosts are listed")


def _of_ec2(address: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _k8s_drain(folder: Path, python: Path) -> Row:
    """At its defaults, one node after the other."""

    def drain(bench: Bench) -> Measured:
        names = bench.nodes_with_pods("k8s-drain", DRAINED)
        options = {"force": True, "ignore_daemonsets": True, "wait_timeout": 300}
        module = {"name": "{{ item }}", "delete_options": options, "kubeconfig": bench.environment["KUBECONFIG"]}
        with bench.kubelets():
            return bench.run(
                _play(folder, "drain", python, [{"name": "Drain", "kubernetes.core.k8s_drain": module, "loop": names}])
            )

    what = f"kubernetes.core.k8s_drain in a loop, {DRAINED} nodes of {PODS} pods"
    return Row("P6 k8s_drain", what, "s", [_beside_nodes(folder / "drain", drain)])


def _k8s_info(folder: Path, python: Path) -> Row:
    """One node after the other, each until it is Ready."""

    def wait(bench: Bench) -> Measured:
        names = [f"k8s-info-{number:02}" for number in range(COUNT)]
        for name in names:
            bench.node(name, ready=False)
        module = {
            "kind": "Node", "name": "{{ item }}", "kubeconfig": bench.environment["KUBECONFIG"], "wait": True, "wait_timeout": 300,
            "wait_condition": {"type": "Ready", "status": "True"},
        }  # fmt: skip
        command = _play(folder, "info", python, [{"name": "Wait", "kubernetes.core.k8s_info": module, "loop": names}])
        return bench.run(command, lambda: {"seconds after the last node": bench.become_ready(names)})

    what = f"kubernetes.core.k8s_info in a loop, {COUNT} nodes Ready within {WINDOW:.0f} s"
    return Row("P7 k8s_info", what, "s", [_beside_nodes(folder / "info", wait)])


def _beside_nodes(folder: Path, measure: t.Callable[[Bench], Measured]) -> Measured:
    """In a world whose nodes the benchmark itself reports."""
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        return measure(Bench(sandbox, folder))
    except SystemExit as ended:
        raise Ended(str(ended)) from ended
    finally:
        sandbox.close()


def _names(count: int) -> list[str]:
    return [f"peer-{number:03d}" for number in range(count)]


def _play(folder: Path, name: str, python: Path, tasks: list[dict[str, t.Any]]) -> list[str]:
    variables = {"ansible_python_interpreter": str(python)}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump([play], sort_keys=False))
    return [str(python.parent / "ansible-playbook"), str(path)]


# ---- the script


def create(address: str, count: int) -> None:
    """As many servers, each in a thread: created, left alone while it boots, then asked for until it runs."""
    with httpx.Client(base_url=address, timeout=60, limits=httpx.Limits(max_connections=_THREADS)) as api:

        def one(name: str) -> None:
            server = api.post("/servers", json={"name": name}).raise_for_status().json()["server"]
            time.sleep(BOOT - LATENCY)
            while server["status"] != "running":
                time.sleep(0.2)
                server = api.get(f"/servers/{server['id']}").raise_for_status().json()["server"]

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(one, _names(count)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        create(sys.argv[1], int(sys.argv[2]))
