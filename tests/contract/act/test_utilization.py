# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-36: machines that go by the use of their GPUs, read from dcgm-exporter through the API server (sandbox/dcgm_exporter.py)."""

from __future__ import annotations

import typing as t

import pytest

from sandbox.dcgm_exporter import DcgmExporters, manifest

from .rig import Rig

LOW = "tgp.io/low-utilization"


class Watched:
    """A machine whose pool goes by utilization; ``reap`` after so many minutes."""

    def __init__(self, rig: Rig, signal: str = "utilization", **more: t.Any) -> None:
        self.rig = rig
        assert rig.box.exporters is not None
        self.exporters: DcgmExporters = rig.box.exporters
        rig.training["disruption"] = {"idleSignal": signal, "consolidateAfter": "10m", **more}
        rig.kube("POST", "/apis/apps/v1/namespaces/kube-system/daemonsets", manifest())
        rig.provision()
        self.node = rig.machine().name
        rig.until(self._exporter_runs, "the exporter runs")

    def _exporter_runs(self) -> bool:
        found = self.rig.kube("GET", "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dnvidia-dcgm-exporter")["items"]
        return any(one["status"].get("phase") == "Running" for one in found)

    def reap(self, minutes: float = 10, mode: str = "reap", **params: t.Any) -> dict[str, t.Any]:
        self.rig.advance(minutes * 60)
        return self.rig.reap(mode, **params)

    @property
    def low(self) -> str | None:
        return t.cast("str | None", (self.rig.nodes()[self.node]["metadata"].get("annotations") or {}).get(LOW))

    def why(self, done: dict[str, t.Any]) -> str:
        return "; ".join(one["detail"] for one in done["plan"]["plan"] if one["name"] == self.node)

    def row(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", next(one for one in self.rig.run("info")["machines"] if one["name"] == self.node))


def test_L36_a_pod_that_leaves_its_gpu_unused_is_evicted_and_its_machine_goes(rig: Rig) -> None:
    """Used, low for the window, in use again at the last question, low once more: gone by a voluntary drain. A budget holds it meanwhile."""
    here = Watched(rig)
    rig.pod(here.node, budget=True, containers=[{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    here.exporters.use(here.node, 40)
    assert "a GPU is used at 40%" in here.why(here.reap()) and here.low is None
    assert here.row()["utilization"] == "40%" and "GPU use" in "\n".join(rig.lines)
    here.exporters.use(here.node, 2)
    here.reap()
    asked, writes = here.exporters.asked[here.node], rig.writes()
    assert here.low and "GPUs below 5%" in here.why(rig.reap())
    assert here.exporters.asked[here.node] == asked + 1 and rig.writes() == writes, "one read, and no write in a quiet run"
    seen = here.rig.plan("reap", check=True)
    assert seen["destroy"] == [] and rig.writes() == writes
    here.reap()
    here.reap()
    held = here.reap()
    assert [one["result"] for one in held["machines"]] == ["kept"] and len(rig.machines()) == 1, held
    assert "Underutilized" in str(held["plan"]["plan"])
    rig.kube("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/job")
    here.reap(8)
    here.reap(8)
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Underutilized"


def test_L36_a_machine_in_use_again_before_its_drain_stays(rig: Rig) -> None:
    here = Watched(rig)
    for _run in range(3):
        here.reap()
    rig.advance(600)
    plan = rig.plan("reap")
    assert plan["destroy"] == [here.node]
    here.exporters.use(here.node, 80)
    done = rig.run("teardown", plan["run_id"], orphans=[], unrecorded=[])
    rig.unlock(plan["run_id"])
    assert [(one["result"], one["message"]) for one in done["machines"]] == [("kept", "kept: busy: a GPU is used at 80%")]
    assert "busy: a GPU is used at 80%" in here.why(rig.reap()) and here.low is None


@pytest.mark.parametrize("mode", ["reap", "autoscale", "everything"])
def test_L36_unknown_is_told_and_never_idle_whatever_the_mode(rig: Rig, mode: str) -> None:
    here = Watched(rig, "both")
    for fault in ("down", "missing", "stale", "garbage", "nan", "other_node"):
        here.exporters.use(here.node, fault=fault)
        done = here.reap(30, mode)
        assert "whether its GPUs are used is unknown" in here.why(done), (fault, here.why(done))
    assert here.row()["utilization"] == "unknown" and len(rig.machines()) == 1
    assert f"GPU use of {here.node}: " in "\n".join(rig.lines)
    here.exporters.use(here.node)
    for _run in range(4):
        here.reap(10, mode)
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Empty"


def test_L36_without_an_exporter_nothing_is_idle(rig: Rig) -> None:
    rig.training["disruption"] = {"idleSignal": "both"}
    rig.provision()
    rig.advance(3600)
    rig.reap()
    done = rig.reap()
    assert "no dcgm-exporter runs on it" in str(done["plan"]["plan"]) and len(rig.machines()) == 1


def test_A26_an_idle_probe_of_nodes_is_a_program_of_the_controller(rig: Rig) -> None:
    """0 is idle, 1 is busy, all else unknown; it is asked again before the drain."""
    said = rig.folder / "busy"
    script = rig.folder / "is-idle"
    script.write_text(f'#!/bin/sh\necho "$TGP_NAME $TGP_ADDRESS" >> {rig.folder}/asked\nexit $(cat {said})\n')
    script.chmod(0o755)
    rig.provision()
    rig.training["disruption"] = {"idleProbe": {"command": [str(script)]}}
    rig.advance(700)
    for answer, words in ((1, "busy: it says"), (7, "neither idle (0) nor busy (1)")):
        said.write_text(str(answer))
        rig.advance(660)
        assert words in str(rig.reap(allow_commands=[str(script)])["plan"]["plan"]) and len(rig.machines()) == 1
    said.write_text("0")
    rig.reap(allow_commands=[str(script)])
    assert rig.claim()["idle_since"]
    rig.advance(660)
    assert "is not run in check mode" in str(rig.plan("reap", check=True, allow_commands=[str(script)])["plan"])
    name = rig.machine().name
    rig.reap(allow_commands=[str(script)])
    assert rig.left() == {} and name in (rig.folder / "asked").read_text()
