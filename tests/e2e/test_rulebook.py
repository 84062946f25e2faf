# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped rulebook under the real ansible-rulebook: a pod waits, a machine comes, the pod runs and ends, the machine goes. Nobody runs a
playbook by hand.

TGP_EVENTS_TIMES=10 measures besides, in real time and ten times, what passes from a pod to the create call, and prints it. Seconds mean
something on a quiet machine only, so nothing is asserted of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
import typing as t
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from tests.fixtures.demo import DEMO

from ..contract.clouds import witness
from .box import ROOT, Sandbox, bill, descendants
from .conftest import Start

PACKAGE = "ansible-rulebook==1.3.2"
_PATIENCE = 180.0
TIMES = int(os.environ.get("TGP_EVENTS_TIMES", "0"))
_TICK = os.sysconf("SC_CLK_TCK")


def java_is_there() -> bool:
    """The rule engine is Java, 17 or newer."""
    if shutil.which("java") is None:
        return False
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return found is not None and int(found[1]) >= 17


def rulebook_home() -> witness.Home:
    """An environment with ansible-rulebook, this collection, and what the collection needs."""
    home = witness.home(PACKAGE)
    done = home.folder / "with-collection"
    if not done.exists():
        wanted = str(ROOT / "requirements-controller.txt")
        fill = [home.program("pip"), "install", "--quiet", "--disable-pip-version-check", "-r", wanted]
        subprocess.run(fill, capture_output=True, timeout=600, check=True)
        (site,) = home.folder.glob("lib/python*/site-packages")
        (site / "ansible_collections" / "tgp").mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (site / "ansible_collections" / "tgp" / "gpu").symlink_to(ROOT)
        done.touch()
    return home


@pytest.fixture
def sandbox(start: Start) -> Sandbox:
    """One of its own: what an earlier try left behind would be taken for this one's."""
    return start()


@pytest.fixture
def rulebook(sandbox: Sandbox, tmp_path: Path) -> t.Iterator[Path]:
    """ansible-rulebook at work with the shipped rulebook; the file with all that it says."""
    with at_work(sandbox, tmp_path, DEMO) as (log, _running):
        yield log


@contextlib.contextmanager
def at_work(sandbox: Sandbox, folder: Path, documents: Path, *more: str) -> t.Iterator[tuple[Path, int]]:
    """The same with other documents and arguments; also its process."""
    if not java_is_there():
        pytest.skip("there is no Java 17, which ansible-rulebook needs")
    home = rulebook_home()
    (folder / "vars.yml").write_text(json.dumps({"tgp_documents": str(documents), "idle_after": 600, "repeat": 120}))
    inventory = ROOT / "extensions" / "eda" / "rulebooks" / "inventory.yml"
    command = [home.program("ansible-rulebook"), "--rulebook", "tgp.gpu.gpu", "--inventory", str(inventory)]
    command += ["--vars", str(folder / "vars.yml"), "--verbose", *more]
    path = os.pathsep.join([str(home.folder / "bin"), sandbox.environment["PATH"]])
    log = folder / "log"
    with log.open("w") as said:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env={**sandbox.environment, "PATH": path, "PYTHONUNBUFFERED": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: "Waiting for events" in log.read_text(), log, "it waits for events")
        yield log, running.pid
    finally:
        begun = plays(running.pid)
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(60)
        left = [one for one in begun if b"ansible-playbook" in command_line(one)]  # in sessions of their own, they may outlive it
        left += [running.pid] if running.poll() is None else []
        for pid in [each for one in left for each in (*descendants(one), one)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait(60)


def until(what: t.Callable[[], t.Any], log: Path, words: str) -> float:
    """Wait, in real seconds; how long it took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < _PATIENCE, f"did not happen: {words}\n{log.read_text()[-6000:]}"
        time.sleep(0.05)
    return time.monotonic() - began


def ask(sandbox: Sandbox, name: str) -> None:
    """A pod that wants a GPU, wherever there is one."""
    container = {"name": "train", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    sandbox.kube.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()


def phase(sandbox: Sandbox, name: str) -> str:
    return str(sandbox.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase"))


def test_S2_02_events_alone_bring_machines_for_pods_and_take_them_back(sandbox: Sandbox, rulebook: Path) -> None:
    """The shipped rulebook in the real ansible-rulebook starts every playbook; nobody else does."""
    ask(sandbox, "want")
    seconds = until(lambda: any("/launch" in one for one in sandbox.writes()), rulebook, "a machine is rented")
    print(f"from the pod to the create call: {seconds:.2f} s")
    until(lambda: phase(sandbox, "want") == "Running", rulebook, "the pod runs")
    until(lambda: [one["phase"] for one in sandbox.claims().values()] == ["Ready"], rulebook, "its machine is Ready")
    assert len(sandbox.living()) == 1
    sandbox.end_job("want")
    until(lambda: not any(sandbox.left().values()), rulebook, "everything is gone")
    lines = sandbox.ledger()
    assert [one["reason"] for one in lines] == ["Empty"] and bill(lines) > 0
    assert sum("/launch" in one for one in sandbox.writes()) == 1
    assert "failed=1" not in rulebook.read_text()


# ---- how long it takes

_STEPS = {  # what has happened at the end of each part of the way
    "seen": "the source has seen the pod",
    "told": "it is quiet: the event is told",
    "started": "ansible-playbook starts",
    "play": "the play begins",
    "locked": "modules are loaded, documents read, the lock is taken",
    "recorded": "all was looked at and decided, the record is written",
    "enrolled": "the next task has asked for its first secret",
    "created": "the create call arrives",
}
_CREATES = {"webhook": re.compile(r"POST /rack-\d+/start"), "lambda": re.compile(r"POST /api/v1/instance-operations/launch")}


class Course:
    """One pod's way: moments as seconds since the epoch. World and machine have the same time here, because the world's speed is 1."""

    def __init__(self, sandbox: Sandbox, log: Path, running: int, cloud: str, pod: str) -> None:
        self._sandbox, self._log, self._cloud = sandbox, log, cloud
        self._words, self._writes = len(log.read_text()), len(sandbox.world()["writes"])
        self.load = os.getloadavg()[0]
        self.asked = time.time()
        ask(sandbox, pod)
        self._play: int | None = None
        self._began = 0.0

        def rented() -> bool:
            if self._play is None and (found := plays(running)):
                self._play, self._began = found[0], started(found[0])
            return self._first(_CREATES[cloud]) is not None

        until(rented, log, "a machine is rented")

    def moments(self) -> dict[str, float]:
        told = next(one for one in self._log.read_text()[self._words :].split("[received event]") if "pods_waiting" in one)
        found = {name: moment(re.search(rf"[\"']{name}[\"']: [\"']([^\"']+)", told)[1]) for name in ("seen", "told")}  # type: ignore[index]
        lines = (self._sandbox.folder / "ansible.log").read_text().splitlines()
        play = next(one for one in lines if f" p={self._play} " in one and "| PLAY [" in one)
        found |= {"started": self._began, "play": datetime.strptime(play[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()}
        for name, pattern in (
            ("locked", re.compile(r"(POST|PUT) .*/leases")),
            ("recorded", re.compile(r"(POST|PUT) .*/configmaps")),
            ("enrolled", re.compile(r"POST .*/(keys|secrets)")),
            ("created", _CREATES[self._cloud]),
        ):
            found[name] = t.cast(float, self._first(pattern))
        return found

    def _first(self, pattern: re.Pattern[str]) -> float | None:
        new = self._sandbox.world()["writes"][self._writes :]
        return next((moment(one["time"]) for one in new if pattern.match(one["what"])), None)


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def plays(pid: int) -> list[int]:
    """The playbook runs that a process has begun, by their main processes."""
    return [one for one in descendants(pid) if b"ansible-playbook" in command_line(one)]


def command_line(pid: int) -> bytes:
    """Its words; nothing for a process that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def started(pid: int) -> float:
    """When a process began."""
    ago = (
        float(Path("/proc/uptime").read_text().split()[0])
        - int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / _TICK
    )
    return time.time() - ago


def quick(folder: Path, cloud: str) -> tuple[Path, Path]:
    """A scenario whose machines come up within a second, and documents for as many as are asked for."""
    racks = [f"rack-{number}" for number in range(TIMES)]
    scenario = {
        "lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": TIMES, "boot": 0.5}],
        "machines": [{"name": name, "gpus": 1, "boot": 0.5} for name in racks],
        "timings": {"packages": 0.1, "mesh": 0.1, "csr": 0.1, "ready": 0.2, "gpu": 0.2},
    }
    own = [
        {"name": name, "gpuCount": 1, "gpuType": "RTX3090"}
        | {f"{key}Endpoint": f"/{name}/{verb}" for key, verb in (("scaleUp", "start"), ("scaleDown", "stop"), ("status", "status"))}
        for name in racks
    ]
    provider = {"webhook": {"settings": {"payload": "body"}, "machines": own}, "lambda": {"settings": {"sshKey": "tgp"}}}[cloud]
    node_class = {
        "providers": [{"name": cloud, **provider}],
        "talosConfig": {"machineConfigTemplateFile": str(ROOT / "examples" / "templates" / "worker.yaml")},
        "tailscaleConfig": {"tags": ["tag:gpu"]},
        "limits": {"maxNodes": TIMES, "maxHourlyCost": "1000.00"},
    }
    head = {"apiVersion": "tgp.io/v1"}
    documents = [
        {**head, "kind": "GPUNodeClass", "metadata": {"name": "quick"}, "spec": node_class},
        {
            **head,
            "kind": "GPUNodePool",
            "metadata": {"name": "quick", "namespace": "default"},
            "spec": {"nodeClassRef": {"name": "quick"}},
        },
    ]
    (folder / "scenario.yml").write_text(yaml.safe_dump(scenario))
    (folder / "documents.yml").write_text(yaml.safe_dump_all(documents))
    return folder / "scenario.yml", folder / "documents.yml"


@pytest.mark.skipif(not TIMES, reason="TGP_EVENTS_TIMES says how often it is measured")
@pytest.mark.parametrize("cloud", list(_CREATES))
def test_S2_02_how_long_it_takes_from_a_pod_to_the_create_call(start: Start, tmp_path: Path, cloud: str) -> None:
    scenario, documents = quick(tmp_path, cloud)
    sandbox = start(speed=1, scenario=scenario)
    courses: list[dict[str, float]] = []
    print(f"\n{cloud}: seconds\n" + "".join(f"{name:>10}" for name in _STEPS) + "       sum  load")
    with at_work(sandbox, tmp_path, documents, "--print-events") as (log, running):
        for number in range(TIMES):
            quiet(running, log)
            course = Course(sandbox, log, running, cloud, f"want-{number}")
            moments = [course.asked, *(course.moments()[name] for name in _STEPS)]
            courses.append({name: after - before for name, before, after in zip(_STEPS, moments, moments[1:], strict=False)})
            print(
                "".join(f"{one:>10.2f}" for one in courses[-1].values()) + f"{moments[-1] - moments[0]:>10.2f}{course.load:>6.1f}",
                flush=True,
            )
            until(lambda name=f"want-{number}": phase(sandbox, name) == "Running", log, "the pod runs")
    for name, words in _STEPS.items():
        print(f"{statistics.median(one[name] for one in courses):>7.2f}  {words}")
    sums = sorted(sum(one.values()) for one in courses)
    print(f"{statistics.median(sums):>7.2f}  in the middle, {sums[0]:.2f} to {sums[-1]:.2f}")
    assert len(sandbox.living()) == TIMES, "each pod had its own machine"


def quiet(running: int, log: Path, seconds: float = 12.0) -> None:
    """No playbook has run for so long; it is also the pause that Lambda asks for between two launches."""
    last = time.monotonic()

    def nothing() -> bool:
        nonlocal last
        if plays(running):
            last = time.monotonic()
        return time.monotonic() - last > seconds

    until(nothing, log, "nothing is at work")
