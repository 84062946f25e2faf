# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped rulebook under the real ansible-rulebook: a pod waits, a machine comes, the pod runs and ends, the machine goes. Nobody runs a
playbook by hand."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

from ..contract.clouds import witness
from .box import DEMO, ROOT, Sandbox, bill, descendants
from .conftest import Start

PACKAGE = "ansible-rulebook==1.3.2"
_PATIENCE = 180.0


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
        fill = [home.program("pip"), "install", "--quiet", "--disable-pip-version-check", "-r", str(ROOT / "requirements.txt")]
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
    if not java_is_there():
        pytest.skip("there is no Java 17, which ansible-rulebook needs")
    home = rulebook_home()
    (tmp_path / "vars.yml").write_text(json.dumps({"documents": str(DEMO), "idle_after": 600, "repeat": 120}))
    inventory = ROOT / "extensions" / "eda" / "rulebooks" / "inventory.yml"
    command = [home.program("ansible-rulebook"), "--rulebook", "tgp.gpu.gpu", "--inventory", str(inventory)]
    command += ["--vars", str(tmp_path / "vars.yml"), "--verbose"]
    path = os.pathsep.join([str(home.folder / "bin"), sandbox.environment["PATH"]])
    log = tmp_path / "log"
    with log.open("w") as said:
        running = subprocess.Popen(
            command, cwd=tmp_path, env={**sandbox.environment, "PATH": path}, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        until(lambda: "Waiting for events" in log.read_text(), log, "it waits for events")
        yield log
    finally:
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(20)
        for pid in [*descendants(running.pid), running.pid] if running.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait(20)


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
