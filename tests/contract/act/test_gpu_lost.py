# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that loses its GPUs while it is in use (L-20), all or some (L-20a), or of which health agents complain (L-37)."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox import health_agent

from .rig import Rig

LOST = "tgp.io/gpu-lost"
MOST = Decimal("3.90")  # dollars for the hour of one GPU of eight at $22.32, and what a busy host makes of it


def show_gpus(rig: Rig, left: int, capacity: int | None = None) -> None:
    health_agent.show_gpus(rig.box.cluster.admin(), rig.machine().name, left, capacity)


def closed(rig: Rig) -> bool:
    return any(one["key"] == LOST for one in rig.nodes()[rig.machine().name]["spec"].get("taints") or [])


def test_L20_a_node_without_gpus_is_closed_and_opened_again(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    show_gpus(rig, 0)
    assert "GpuLost" in str(rig.reap()["plan"]["plan"]) and not closed(rig), "a kubelet may be starting again"
    rig.advance(61)
    writes = rig.writes()
    seen = rig.plan("reap", check=True)
    assert seen["changed"] and rig.writes() == writes and not closed(rig)
    rig.reap()
    assert closed(rig)
    rig.join()
    assert closed(rig), "setting our marks again does not open it"
    writes = rig.writes()
    rig.reap()
    assert rig.writes() == writes, "a second run writes nothing"
    show_gpus(rig, 1)
    rig.reap()
    assert not closed(rig) and len(rig.machines()) == 1


def test_L20_a_machine_whose_gpus_stay_away_is_given_back(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    show_gpus(rig, 0)
    rig.reap()
    rig.advance(1201)
    rig.reap()
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Unhealthy"


# ---- eight GPUs are rented, and one falls off the bus


@pytest.fixture
def eight(build: t.Callable[..., Rig]) -> Rig:
    """A machine with eight GPUs for $22.32 an hour, and a pod that uses one of them."""
    rig = build(**{"lambda": [{"type": "gpu_8x_a100_80gb_sxm4", "region": "us-south-2", "stock": 4, "boot": 20}], "machines": []})
    rig.training["maxHourlyPrice"] = "25.00"
    rig.training["template"]["spec"]["requirements"] = []
    rig.demo_class["limits"] = {"maxNodes": 3, "maxHourlyCost": "60.00"}
    rig.provision()
    rig.pod(rig.machine().name)
    return rig


def diagnosed(rig: Rig) -> str:
    try:
        checks = rig.run("diagnose")["checks"]
    except InvalidInput as error:
        checks = error.result["checks"]  # type: ignore[attr-defined]
    return next(str(one["seen"]) for one in checks if one["check"] == "GPUs")


def test_L20a_seven_of_eight_gpus_in_the_words_of_every_playbook_and_in_the_report(eight: Rig) -> None:
    """[E] 7 of 8 GPUs; the pod keeps running, and an hour of it costs an eighth of the price for nothing: $2.79."""
    rig, words, name = eight, "shows 7 of its 8 GPUs", eight.machine().name
    show_gpus(rig, 7, 8)
    rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert f"{name}: its Node is Ready and {words}; it is billed in full, and reap.yml sees to it" in rig.warnings
    assert words in str(rig.reap()["plan"]["plan"]) and rig.claim()["gpu_losses"] == []
    rig.advance(3600)
    assert words in str(rig.reap("autoscale")["plan"]["plan"]) and closed(rig)
    (loss,) = rig.claim()["gpu_losses"]
    assert (loss["missing"], loss["of"], loss["until"]) == (1, 8, None)
    writes = rig.writes()
    rig.reap()
    assert rig.writes() == writes, "a quiet run writes nothing"
    (row,) = rig.run("info")["machines"]
    assert (
        row["state"] == f"Ready, {words}" and row["gpus_shown"] == 7 and Decimal("2.79") <= Decimal(row["missing_gpus_cost"]) < MOST
    )
    assert diagnosed(rig).startswith("7 of 8 are allocatable")
    show_gpus(rig, 7)
    assert diagnosed(rig).startswith("7 allocatable"), "the plugin has started again, and counts seven"
    rig.lines.clear()
    lacking = rig.run("report")["report"]["missing_gpus"]
    assert Decimal("2.79") <= Decimal(lacking["cost"]) < MOST and 1 <= Decimal(lacking["gpu_hours"]) < Decimal("1.4")
    assert lacking["machines"][0] | {"cost": "", "gpu_hours": ""} == {"name": name, "shown": "7 of 8", "cost": "", "gpu_hours": ""}
    said = next(line for line in rig.lines if "rented and not there" in line)
    assert re.search(rf"{name} with 7 of 8 GPUs \$[23]\.\d", said)
    show_gpus(rig, 8)
    rig.reap()
    assert not closed(rig) and rig.claim()["gpu_losses"][0]["until"] is not None
    rig.advance(7200)
    rig.destroy(force=True)
    after = rig.run("report")["report"]["missing_gpus"]
    assert rig.ledger()[0]["gpu_losses"][0]["missing"] == 1 and Decimal("2.79") <= Decimal(after["cost"]) < MOST


# ---- what health agents report


def says(rig: Rig, kind: str, status: str, message: str = "") -> None:
    health_agent.report(rig.box.cluster.admin(), rig.machine().name, kind, status, rig.clock.now(), message=message)


def test_L37_a_condition_is_reported_and_replaces_a_machine_where_the_pool_says_so(rig: Rig) -> None:
    rig.provision()
    name = rig.machine().name
    rig.pod(name)
    says(rig, "KernelDeadlock", "True", "task blocked")
    first = rig.reap()
    assert f"KernelDeadlock=True since {rig.clock.now():%Y-%m-%d}" in str(first["plan"]["plan"])
    assert rig.run("info")["machines"][0]["state"] == "Ready, condition KernelDeadlock=True"
    rig.advance(1800)
    rig.reap("autoscale")
    assert [one["notice"] for one in rig.events() if one["kind"] == "notice"] == ["node_condition"] and len(rig.machines()) == 1
    writes = rig.writes()
    rig.reap()
    assert rig.writes() == writes, "a quiet run writes nothing"
    rig.training["unhealthyConditions"] = [{"type": "KernelDeadlock", "for": "20m", "action": "Replace"}]
    seen = rig.plan("reap", check=True)
    assert "Unhealthy" in str(seen["plan"]) and rig.writes() == writes, "check mode says it and writes nothing"
    says(rig, "KernelDeadlock", "False")
    rig.reap()
    says(rig, "KernelDeadlock", "True")
    rig.reap()
    rig.advance(600)
    rig.reap()
    assert len(rig.machines()) == 1, "it went and came again, so its time has begun anew"
    rig.advance(700)
    rig.reap()
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Unhealthy"


def test_L37_what_nvsentinel_gives_up_is_replaced_once_it_is_empty(rig: Rig) -> None:
    rig.training["minNodes"] = 1
    rig.provision()
    rig.pod(rig.machine().name)
    health_agent.quarantine(rig.box.cluster.admin(), rig.machine().name, "SysLogsGPUFallenOff", "79", "RESTART_BM", rig.clock.now())
    rig.reap()
    rig.advance(1200)
    rig.reap()
    node = rig.nodes()[rig.machine().name]
    assert node["spec"]["unschedulable"] and len(rig.machines()) == 1, "its pod works, and the cordon is another one's"
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.reap()
    assert not rig.machines() and rig.ledger()[0]["reason"] == "Replaced"
