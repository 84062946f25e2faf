# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod of RunPod says RUNNING without a runtime from its creation on. It was deleted while its image was pulled."""

from __future__ import annotations

import importlib
import json
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task

from ..act.rig import MODULES, URLS, Rig, moment

Build = t.Callable[..., Rig]
PULL = 900  # seconds: a large image on a host of usual speed; the registration timeout is 1200
CLASS = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodeClass",
    "metadata": {"name": "containers"},
    "spec": {"providers": [{"name": "runpod"}], "tailscaleConfig": {"tags": ["tag:gpu"]}, "limits": {"maxNodes": 4}},
}
POOL = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodePool",
    "metadata": {"name": "llm", "namespace": "default"},
    "spec": {
        "nodeClassRef": {"name": "containers"},
        "maxHourlyPrice": "2",
        "template": {
            "spec": {
                "lanes": ["service"],
                "service": {"image": "registry.example/llm:1", "command": ["serve"], "ports": [8000], "healthPath": "/health"},
            }
        },
    },
}


def pods(build: Build, words: str, boot: int = PULL) -> Rig:
    """A sandbox with one class and one pool of pods, whose boot takes so long."""
    shelf = {"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 4, "boot": boot}
    rig = build(runpod={"offers": [shelf], "boot_states": words, "ports_after": 8})
    rig.documents = [CLASS, POOL]
    return rig


def pod(rig: Rig, **params: t.Any) -> dict[str, t.Any]:
    """The module runpod_pod, as a play calls it."""
    code = importlib.import_module(f"{MODULES}.runpod_pod")
    defaults = {name: option.get("default") for name, option in code.SPEC["argument_spec"].items()}
    wanted = {"name": "tgp-demo", "gpu_type": "RTX 4090", "image": "registry.example/llm:1", "ports": ["22/tcp"]}
    account = {"runpod_api_url": URLS["runpod"], "runpod_api_key": rig.world.secrets["RUNPOD_API_KEY"]}
    task = Task(
        {**defaults, **wanted, **account, **params},
        progress=rig.lines.append,
        warn=rig.warnings.append,
        clock=rig.clock,
        transport=rig._transport,
    )
    return t.cast("dict[str, t.Any]", code.run(task))


@pytest.mark.parametrize("words", ["recorded", pytest.param("documented", marks=pytest.mark.control)])
def test_item_15_a_service_comes_up_after_a_long_pull(build: Build, words: str) -> None:
    rig = pods(build, words)
    rig.rent(pool="llm")
    machine = rig.machine()
    (row,) = rig.join()["machines"]
    assert (row["result"], row["phase"]) == ("ready", "Ready"), f"the pod was given up during the pull: {row}"
    assert [one.id for one in rig.machines()] == [machine.id] and rig.ledger() == []


@pytest.mark.control
@pytest.mark.parametrize("words", ["recorded", "documented"])
def test_item_15_scheduled_runs_delete_nothing_during_a_pull(build: Build, words: str) -> None:
    rig = pods(build, words)
    rig.rent(pool="llm")
    machine = rig.machine()
    for _run in range(4):
        rig.advance(200)
        rig.reap()
    assert [one.id for one in rig.machines()] == [machine.id]


def test_item_15_a_pull_error_is_told_at_the_timeout(build: Build) -> None:
    """The state is that of a pull: only the system log tells them apart. The time that the pod gets is the same."""
    rig = pods(build, "recorded")
    rig.behave("pull_fails")
    rig.rent(pool="llm")
    began = moment(rig.claim()["launch_started"])  # from here its time counts: before the create call
    machine = rig.machine()
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and machine.ended is not None
    assert (machine.ended - began).total_seconds() >= 1200, "the pod was given up during the pull"
    assert row["diagnosis"]["code"] == "image_not_pulled"
    assert "pull access denied for registry.example/llm" in json.dumps(row["diagnosis"])


def test_item_15_the_module_waits_until_the_container_runs(build: Build) -> None:
    rig = pods(build, "recorded")
    done = pod(rig, ports=[])
    machine = rig.machine()
    assert (done["instance"]["id"], done["instance"]["state"]) == (machine.id, "running")
    assert machine.details["started"] is not None, "the module said that a pod runs whose image was being pulled"


def test_item_15_the_module_tells_a_pull_error(build: Build) -> None:
    rig = pods(build, "recorded")
    rig.behave("pull_fails")
    with pytest.raises(Exception, match="(?s)within 600 s.*pull access denied for registry.example/llm"):
        pod(rig, wait_timeout=600)
    assert [one.ended for one in rig.machines()] == [None]
