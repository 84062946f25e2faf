# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paid part of provider_verify with a virtual machine of Vast.ai: what its start script finds, read out of its log."""

from __future__ import annotations

import json
import shutil
import subprocess
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import PIECE
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.cloud import VastCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.launch import _SCRIPT_LIMIT, VM_IMAGE
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts import vast_vm
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts.fact import Fact, FactOutcome, Reply
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts.vast_vm import SCRIPT, read_markers

from tests.contract.clouds.stands_vast import VastStand

from .stage import VM, Subject
from .test_facts import named

FALSE = {
    "user": "1000",
    "virtualization": "docker",
    "system": "debian-12",
    "kernel": "6.1.0",
    "init": "bash",
    "cgroup": "tmpfs",
    "disk": "7",
    "variable": "0",
    "gpus": "2",
    "lacking": "vxlan,tun,",
    "driver": "",
}
SAID = {f"vast.vm.{name}" for name in (*FALSE, "ran", "on_console")}


@pytest.fixture
def vm() -> t.Iterator[Subject]:
    made = Subject(VM[0], 200.0, VM[1], billed=False)
    yield made
    made.close()


def mood(subject: Subject, **switches: t.Any) -> None:
    assert isinstance(subject.stand, VastStand)
    subject.stand.mood(**switches)


def rows(result: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    return {row["id"]: row for row in result["report"]["facts"]}


# ---- what is rented


def test_the_machine_is_what_lane_kubelet_rents(vm: Subject) -> None:
    """The cheapest host with KVM that is good enough for a node; without the option a container, which costs less."""
    assert vm.stand is not None
    dearest = max((offer for offer in vm.world.offers if offer.details["row"]["vms_enabled"]), key=lambda offer: offer.price_hour)
    for offer in vm.world.offers:
        if offer.type != dearest.type:
            offer.details["row"]["reliability2"] = 0.8
    result = vm.run(**vm.renting)
    (machine,) = vm.world.machines.values()
    assert machine.offer.type == dearest.type and machine.details["image"] == VM_IMAGE and machine.details["system"] == "ubuntu"
    assert machine.payload == SCRIPT and result["report"]["lane"] == "kubelet" and vm.names() == []


def test_the_image_is_that_of_the_product_and_the_variable_as_long_as_a_piece_of_a_payload() -> None:
    assert vast_vm.VM_IMAGE == VM_IMAGE and len(vast_vm._PIECE) == PIECE
    assert SCRIPT.startswith("#!/bin/bash\n") and len(SCRIPT) < _SCRIPT_LIMIT


def test_a_dry_run_names_the_machine_and_rents_nothing(vm: Subject) -> None:
    result = vm.run(check=True, **vm.renting)
    assert "would rent tgp-verify-vast for lane kubelet, 1x RTX 4090" in result["markdown"]
    assert "read the log of its start script" in result["markdown"] and result["cost"]["machine"] == "1x RTX 4090"
    assert vm.names() == [] and vm.world.writes == []
    container = vm.run(check=True, rent=True, max_cost="5.00")["markdown"]
    assert "for lane service, 1x RTX 3090" in container and "log" not in container


def test_without_an_ssh_key_nothing_is_rented(vm: Subject) -> None:
    """The create call, which would be refused, is not sent."""
    mood(vm, ssh_key=False)
    result = vm.run(**vm.renting)
    assert result["failed"] and "nothing was rented: the account has no SSH key" in result["msg"]
    assert not [call for _when, _service, call in vm.world.writes if "/asks/" in call] and not vm.world.machines


@pytest.mark.parametrize(
    ("service", "params", "message"),
    [
        ("vast", {"lane": "talos", "rent": True, "max_cost": "1.00"}, "lane must be kubelet or service for vast, got 'talos'"),
        ("lambda", {"lane": "service", "rent": True, "max_cost": "1.00"}, "lane must be kubelet for lambda, got 'service'"),
        ("runpod", {"lane": "kubelet", "rent": True, "max_cost": "1.00"}, "lane must be service for runpod, got 'kubelet'"),
        ("vast", {"lane": "kubelet"}, "lane chooses what rent rents, and nothing is rented"),
        ("image_factory", {"lane": "kubelet"}, "lane: nothing can be rented from image_factory"),
    ],
)
def test_a_lane_that_cannot_be_rented_is_refused(service: str, params: dict[str, t.Any], message: str) -> None:
    subject = Subject(service)
    try:
        result = subject.run(**params)
        assert result["failed"] and message in result["msg"]
        assert subject.world.calls == {}
    finally:
        subject.close()


# ---- what its log says


def test_all_that_is_false_is_named_and_nothing_else(vm: Subject) -> None:
    mood(vm, guest=" ".join(f"{name}={value}" for name, value in FALSE.items()), onstart_to="stdout")
    result = vm.run(**vm.renting)
    assert named(result) == {f"vast.vm.{name}" for name in FALSE} | {"vast.vm.on_console"} and vm.names() == []
    found = rows(result)
    assert found["vast.vm.driver"]["seen"] == "nothing" and "installs a driver" in found["vast.vm.driver"]["consequence"]
    assert found["vast.vm.lacking"]["seen"] == "vxlan, tun lacking" and found["vast.vm.disk"]["seen"] == "7 GiB"
    assert found["vast.vm.on_console"]["seen"] == "only what went to the standard output"


def test_a_log_that_is_refused_uploaded_late_and_empty_at_first_is_read(vm: Subject) -> None:
    mood(vm, log_missing=403, log_seconds=15.0, empty_logs=3, onstart_after=90.0)
    result = vm.run(**vm.renting)
    assert not result.get("failed"), result["msg"]
    assert rows(result)["vast.vm.driver"]["seen"] == "version 580.95.05"


@pytest.mark.parametrize(
    ("switches", "seen"),
    [
        ({"onstart_runs": False}, "none of the start script: it did not run, or its output is not in the log"),
        ({"log_seconds": 100_000.0}, "no log was uploaded in time"),
    ],
    ids=["absent", "never"],
)
def test_what_the_log_does_not_have_is_not_seen(vm: Subject, switches: dict[str, t.Any], seen: str) -> None:
    vm.world.clock.run_at(600.0, 0)
    mood(vm, **switches)
    if "onstart_runs" in switches:
        add_to_console(vm, "Ubuntu 22.04.5 LTS C.20771845 ttyS0")
    result = vm.run(**vm.renting)
    found = rows(result)
    assert {name for name, row in found.items() if row["outcome"] == "not seen"} == SAID and vm.names() == []
    assert seen in found["vast.vm.driver"]["seen"] and found["vast.life.up"]["outcome"] == "matches"


def add_to_console(subject: Subject, line: str) -> None:
    boot = subject.world.on_boot
    subject.world.on_boot = lambda machine: (machine.console.append(line), boot(machine))[1]


def test_a_log_that_cannot_be_asked_for_is_no_answer(vm: Subject) -> None:
    """The first answer of the call is compared as well, so that it is named."""
    assert vm.stand is not None
    vm.world.clock.run_at(600.0, 0)
    vm.stand.faults.add({"kind": "body", "path": "request_logs", "body": {"success": True, "result_url": 7}, "times": None})
    result = vm.run(**vm.renting)
    assert "vast.vm_log.result_url" in named(result) and rows(result)["vast.vm.ran"]["outcome"] == "no answer"
    assert vm.names() == []


def test_a_machine_that_does_not_run_hides_what_its_log_would_show(vm: Subject) -> None:
    assert vm.stand is not None
    vm.stand.up = lambda machine: setattr(machine, "state", "unhealthy")  # type: ignore[method-assign]
    result = vm.run(**vm.renting)
    assert named(result) == {"vast.life.up"} and vm.names() == []
    assert all(row["hidden_by"] == "vast.life.up" for name, row in rows(result).items() if name in SAID)


def test_nothing_of_a_log_but_the_markers_is_shown(vm: Subject) -> None:
    secret = "tgp-verify console kernel sk_live_0123456789abcdef"
    add_to_console(vm, f"{secret}\npassword: hunter2-at-the-console")
    result = vm.run(**vm.renting)
    assert named(result) == {"vast.vm.kernel"} and rows(result)["vast.vm.kernel"]["seen"] == "something of another form"
    text = json.dumps(result) + "".join(vm.lines) + "".join(vm.warnings)
    assert "sk_live" not in text and "hunter2" not in text
    (machine,) = vm.world.machines.values()
    private = (machine.id, machine.ip, vast_vm._PIECE, *vm.secrets)
    assert [one for one in private if one and one in json.dumps(result)] == []


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_markers_are_read_from_what_a_console_makes_of_them(ending: str) -> None:
    lines = ["[   12.3] cloud-init[811]: tgp-verify console begin 1", "tgp-verify console driver ", "tgp-verify stdout user 0", "x"]
    assert read_markers(ending.join(lines)) == {"begin": "1", "console": "1", "stdout": "1", "driver": "", "user": "0"}
    assert read_markers(SCRIPT) == {}, "a log that repeats the script says nothing"


def test_a_script_that_does_not_end_differs() -> None:
    ran = fact("vast.vm.ran").verdict({"vm": Reply(200, {"begin": "1", "console": "1", "after": 600.0})}, lane="kubelet")
    assert ran.outcome is FactOutcome.DIFFERS and ran.seen == "began and did not end within 600 s"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"begin": "1", "logs": 2, "lines": 9}, "the script began, and its log lacks this line"),
        ({"logs": 2, "lines": 9}, "none of the start script: it did not run, or its output is not in the log"),
        ({"logs": 2, "lines": 0}, "the log came, and is empty"),
        ({"logs": 0, "lines": 0}, "no log was uploaded in time"),
    ],
)
def test_a_line_that_is_not_there_is_not_seen(said: dict[str, t.Any], seen: str) -> None:
    driver = fact("vast.vm.driver").verdict({"vm": Reply(200, said)}, lane="kubelet")
    assert driver.outcome is FactOutcome.NOT_SEEN and driver.seen.endswith(seen)


def fact(wanted: str) -> Fact:
    return next(one for one in vast_vm.FACTS if one.id == wanted)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is needed")
def test_the_script_runs_in_bash_and_all_its_lines_can_be_read() -> None:
    """Whatever this host is: each line is there, and the variable is found complete."""
    given = {"PATH": "/usr/bin:/bin", **vast_vm.BOOT_SCRIPT.environment}
    run = subprocess.run(["bash", "-s"], input=SCRIPT, env=given, capture_output=True, text=True, timeout=60)
    found = read_markers(run.stdout)
    assert {*FALSE, "begin", "end", "stdout"} == set(found) - {"console"} and found["variable"] == str(PIECE)


# ---- the cap, and the end


@pytest.mark.parametrize(
    ("boot", "seen"),
    [(30.0, "none of the start script"), (100.0, "the cost cap or the timeout ended the watch before")],
    ids=["read", "unread"],
)
def test_the_cap_holds_while_the_log_is_awaited(vm: Subject, boot: float, seen: str) -> None:
    mood(vm, onstart_runs=False)
    add_to_console(vm, "Ubuntu 22.04.5 LTS C.20771845 ttyS0")
    for offer in vm.world.offers:
        offer.boot_seconds = boot
    result = vm.run(**{**vm.renting, "max_cost": "0.016"})
    (machine,) = vm.world.machines.values()
    assert result["failed"] and vm.names() == [] and machine.cost(vm.world.clock.now()) <= Decimal("0.016")
    found = rows(result)
    assert found["vast.life.up"]["outcome"] == "matches" and found["vast.vm.driver"]["outcome"] == "not seen"
    assert seen in found["vast.vm.driver"]["seen"]


def test_an_interrupt_while_the_log_is_read_ends_the_machine(vm: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_given: t.Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(VastCloud, "console", interrupt)
    result = vm.run(**vm.renting)
    assert result["failed"] and "ended early: interrupted" in result["msg"] and vm.names() == []


def test_killed_while_the_log_is_read_the_next_call_ends_the_machine(vm: Subject) -> None:
    class Killed(BaseException):
        pass

    from ansible_collections.tgp.gpu.plugins.module_utils.verify.rented import Rental

    def die(*_given: t.Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(VastCloud, "console", die)
        patch.setattr(Rental, "_end", die)
        vm.run(**vm.renting)
    assert vm.names() == ["tgp-verify-vast"]
    again = vm.run()  # without rent, and so without a lane
    assert vm.names() == [] and not again["report"]["left_behind"]
