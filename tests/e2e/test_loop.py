# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""autoscale.yml -e tgp_loop=true, driven by what k8s-gpu-autoprovision is configured with: its variables, and its Helm values."""

from __future__ import annotations

import signal
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from .box import ROOT, Run, Sandbox, descendants

DROP_IN = ROOT / "examples" / "k8s-gpu-autoprovision"
MACHINES = [
    {"name": "gpu-worker-1", "gpus": 4, "boot": 20, "installed": True},
    {"name": "gpu-worker-2", "gpus": 8, "boot": 20, "installed": True},
]


class Loop:
    """The loop at work; ``text`` is what it has said so far."""

    def __init__(self, run: Run) -> None:
        self.run, self.text = run, ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.run.process.stdout is not None
        for line in self.run.process.stdout:
            self.text += line

    def stopped(self) -> str:
        """SIGTERM to the main process, as systemd and a kubelet send it; everything it said."""
        self.run.process.send_signal(signal.SIGTERM)
        assert self.run.process.wait(60) == 0, self.text
        self._thread.join(10)
        return self.text


_begun: list[Loop] = []


def begin(sandbox: Sandbox, *arguments: str, env: t.Mapping[str, str | None] | None = None) -> Loop:
    _begun.append(Loop(sandbox.begin("ansible-playbook", "playbooks/autoscale.yml", "-e", "tgp_loop=true", *arguments, env=env)))
    return _begun[-1]


@pytest.fixture
def sandbox(start: t.Callable[..., Sandbox], tmp_path: Path) -> t.Iterator[Sandbox]:
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(yaml.safe_dump({"machines": MACHINES}))
    yield start(speed=60, scenario=scenario)
    while _begun:  # of a test that failed
        _begun.pop().run.kill()


def address(sandbox: Sandbox) -> str:
    return sandbox.environment["WEBHOOK_URL"]


def ask(sandbox: Sandbox, name: str, gpus: int) -> None:
    container = {"name": "train", "image": "registry.example/train:1", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    container["resources"]["limits"] = container["resources"]["requests"]  # type: ignore[index]
    pod = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
    sandbox.kube.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()


def phase(sandbox: Sandbox, name: str) -> str:
    return t.cast(str, sandbox.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase", ""))


def calls(sandbox: Sandbox) -> list[str]:
    """POSTs that the power service got."""
    return [one.removeprefix("webhook POST ") for one in sandbox.writes() if one.startswith("webhook POST")]


def run_both(sandbox: Sandbox) -> None:
    """A pod on each machine, one after the other: of two that wait together the small one may get the large machine, and the other none."""
    for name, gpus in (("small", 4), ("large", 8)):
        ask(sandbox, name, gpus)
        sandbox.until(lambda name=name: phase(sandbox, name) == "Running", f"{name} runs")  # type: ignore[misc]
    assert calls(sandbox) == ["/gpu-worker-1/start", "/gpu-worker-2/start"], "the smallest that fits each"


def values(sandbox: Sandbox, folder: Path) -> Path:
    """values.yaml of the old chart, other keys of it included."""
    groups = [
        {
            "name": one["name"],
            "gpuCount": one["gpus"],
            "scaleUpEndpoint": f"{address(sandbox)}/{one['name']}/start",
            "scaleDownEndpoint": f"{address(sandbox)}/{one['name']}/stop",
        }
        for one in MACHINES
    ]
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump({"replicaCount": 1, "image": {"tag": "latest"}, "nodeGroups": groups}))
    return file


def variables(sandbox: Sandbox) -> dict[str, str | None]:
    """The environment of the old container."""
    found: dict[str, str | None] = {}
    for number, one in enumerate(MACHINES, 1):
        prefix = f"GPU_NODE_{number}"
        found |= {
            f"{prefix}_NAME": str(one["name"]),
            f"{prefix}_GPU_COUNT": str(one["gpus"]),
            f"{prefix}_SCALE_UP_ENDPOINT": f"{address(sandbox)}/{one['name']}/start",
            f"{prefix}_SCALE_DOWN_ENDPOINT": f"{address(sandbox)}/{one['name']}/stop",
        }
    return found


def documents(folder: Path, after: str) -> Path:
    """The shipped documents with another time of grace."""
    text = (DROP_IN / "pools.yml").read_text()
    file = folder / "pools.yml"
    file.write_text(text.replace("consolidateAfter: 10m", f"consolidateAfter: {after}"))
    assert after in file.read_text()
    return file


def test_S2_12_helm_values_as_they_stand(sandbox: Sandbox, tmp_path: Path) -> None:
    """A pod waits: POST start of the smallest that fits; it becomes a node, the pod runs and ends: POST stop. K-01, K-02, K-04."""
    loop = begin(sandbox, "-e", f"tgp_documents={DROP_IN / 'pools.yml'}", "-e", f"@{values(sandbox, tmp_path)}")
    sandbox.until(lambda: "machines 0" in loop.text, "it has looked")
    sandbox.pass_time(130)
    assert calls(sandbox) == [], "K-01: machines that are off get no call"

    ask(sandbox, "train", 3)
    sandbox.until(lambda: calls(sandbox) == ["/gpu-worker-1/start"], "the smallest that fits goes on")
    sandbox.until(lambda: phase(sandbox, "train") == "Running", "the pod runs")
    sandbox.pass_time(130)
    assert calls(sandbox) == ["/gpu-worker-1/start"], "K-04: one call, however often it looks"

    sandbox.end_job("train")
    sandbox.pass_time(300)
    assert calls(sandbox) == ["/gpu-worker-1/start"], "K-02: it has its ten minutes"
    sandbox.advance(700)
    sandbox.until(lambda: calls(sandbox) == ["/gpu-worker-1/start", "/gpu-worker-1/stop"], "it goes off")
    sandbox.pass_time(130)
    assert len(calls(sandbox)) == 2, "K-01: and is left alone"
    assert "nothing is left half done" in loop.stopped()


def test_S2_11_variables_as_they_stand_and_one_machine_down_per_look_the_largest_first(sandbox: Sandbox, tmp_path: Path) -> None:
    given = documents(tmp_path, "0s")
    loop = begin(sandbox, "-e", f"tgp_documents={given}", env=variables(sandbox))
    run_both(sandbox)
    sandbox.until(lambda: "used 12" in loop.text, "it sees them")
    for name in ("small", "large"):
        sandbox.end_job(name)
    sandbox.until(lambda: len(calls(sandbox)) == 4, "both go off")
    assert calls(sandbox)[2:] == ["/gpu-worker-2/stop", "/gpu-worker-1/stop"]
    loop.stopped()


def test_S2_11_the_variables_alone_are_enough(sandbox: Sandbox) -> None:
    """``docker run -e GPU_NODE_1_NAME=...`` without any document: a machine for a waiting pod, and off when it has been idle."""
    loop = begin(sandbox, env=variables(sandbox))
    run_both(sandbox)
    for name in ("small", "large"):
        sandbox.end_job(name)
    sandbox.pass_time(130)
    sandbox.advance(700)
    sandbox.until(lambda: len(calls(sandbox)) == 4, "both go off")
    assert calls(sandbox)[2:] == ["/gpu-worker-2/stop", "/gpu-worker-1/stop"], "one after the other, the largest first"
    loop.stopped()


def test_S2_20_an_incomplete_group_is_named_and_skipped_and_none_is_an_error(sandbox: Sandbox) -> None:
    given = ["-e", f"tgp_documents={DROP_IN / 'pools.yml'}"]
    loop = begin(sandbox, *given, env={**variables(sandbox), "GPU_NODE_2_SCALE_UP_ENDPOINT": None})
    sandbox.until(lambda: "GPU_NODE_2_SCALE_UP_ENDPOINT is not set" in loop.text, "it is named")
    ask(sandbox, "large", 8)
    sandbox.until(lambda: "no machine with 8 GPUs" in loop.text, "the group is left out")
    loop.stopped()
    assert calls(sandbox) == []
    none = sandbox.command("ansible-playbook", "playbooks/autoscale.yml", "-e", "tgp_loop=true", *given).failed()
    assert "no machines are listed" in none.words


def test_a_second_signal_ends_it_at_once_and_leaves_no_process(sandbox: Sandbox, tmp_path: Path) -> None:
    loop = begin(sandbox, "-e", f"@{values(sandbox, tmp_path)}")
    sandbox.until(lambda: "machines 0" in loop.text, "it has looked")
    sandbox.faults({"kind": "delay", "service": "kubernetes", "seconds": 600, "times": 1000})
    sandbox.pass_time(70)
    workers = descendants(loop.run.process.pid)
    loop.run.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    loop.run.process.send_signal(signal.SIGTERM)
    assert loop.run.process.wait(60) != 0
    sandbox.until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers), "nothing of it is left")


def test_a_worker_whose_main_process_was_killed_ends_by_itself(sandbox: Sandbox, tmp_path: Path) -> None:
    loop = begin(sandbox, "-e", f"@{values(sandbox, tmp_path)}")
    sandbox.until(lambda: "machines 0" in loop.text, "it has looked")
    workers = loop.run.kill_parent()
    assert workers
    sandbox.until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers), "nothing of it is left")
