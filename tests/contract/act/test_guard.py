# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that nobody manages (L-46): what they are handed, and the right without which a guard would never end one."""

from __future__ import annotations

import copy
import re
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox.gcp_account import Account as GoogleAccount
from sandbox.gcp_instances import end_overdue
from sandbox.world import Machine

from .rig import Rig
from .test_gcp import build_gcp
from .test_service import made as build_service
from .test_spot import OFFERS as HOSTS
from .test_spot import Build, only
from .test_vultr import build_vultr

ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/tgp-system"
KINDS = {"Role": f"{RBAC}/roles", "RoleBinding": f"{RBAC}/rolebindings"}


def test_L46_without_the_binding_no_machine_is_rented_whose_guard_could_not_read_the_lock(rig: Rig) -> None:
    rig.demo_class["guard"] = {"controllerSilentFor": "24h"}
    with pytest.raises(InvalidInput) as refused:
        rig.rent()
    words = f"{refused.value} {refused.value.remedy}"
    assert "no RoleBinding tgp-gpu-guard in tgp-system" in words and "files/guard.yml" in words
    assert rig.creates() == 0
    for manifest in yaml.safe_load_all((ROOT / "files" / "guard.yml").read_text()):
        rig.kube("POST", KINDS[manifest["kind"]], manifest)
    rig.provision()
    payload = rig.machine().payload or ""
    assert "tgp-guard.timer" in payload and "GUARD_CONTROLLER_SILENT_FOR=86400" in payload
    assert (
        f"GUARD_LEASE=/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{rig.machine().name.split('-')[1]}" in payload
    )


def test_L46_a_machine_that_costs_the_same_when_it_is_off_gets_no_guard_without_a_word(rig: Rig) -> None:
    rig.provision()
    assert rig.machine().cloud == "lambda" and "tgp-guard" not in (rig.machine().payload or "")


# ---- the controller vanishes: hour by hour, and the bill (the table of docs/how_to/without_controller.md)

HOUR = 3600.0
OF_CLOUD: dict[str, t.Callable[[Build], Rig]] = {
    "gcp": lambda build: build_gcp(build, "kubelet"),
    "vultr": lambda build: build_vultr(build, "kubelet"),
    "vast": lambda build: only(build(**{"lambda": [], "machines": [], "vast": {"offers": copy.deepcopy(HOSTS)}}), "vast"),
    "paperspace": lambda build: only(
        build(**{"lambda": [], "machines": [], "paperspace": {"offers": [{"type": "A4000", "region": "ny2", "stock": 1}]}}),
        "paperspace",
    ),
    "lambda": lambda build: only(build(), "lambda"),
}


def documented(cloud: str, way: str) -> tuple[str, Decimal, Decimal]:
    """What the table says: off or on, the bill, and that of a machine that runs on."""
    page = (ROOT / "docs/how_to/without_controller.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\| `{cloud}` \| {way} \| (\w+) \| \$([\d.]+) of \$([\d.]+) \|$", page, re.MULTILINE)
    return found[0], Decimal(found[1]), Decimal(found[2])


def pass_hours(rig: Rig, machine: Machine, hours: int) -> None:
    """Time passes without a run. Every firing of the guard's timer that was due has taken place, unless the machine is off."""
    for _hour in range(hours):
        rig.advance(HOUR)
        if machine.details["guarded"]:
            rig.until(lambda: is_off(machine) or settled(rig, machine), "the guard has looked")


def is_off(machine: Machine) -> bool:
    return machine.state == "stopped" or machine.details.get("struck") == machine.boots


def is_ready(rig: Rig, machine: Machine) -> bool:
    conditions = rig.nodes()[machine.name]["status"]["conditions"]
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def settled(rig: Rig, machine: Machine) -> bool:
    due = (rig.clock.seconds() - machine.details["joined"]) // 600
    return bool(machine.details.get("guard_checks", 0) >= due - 1)


@pytest.mark.parametrize("cloud", OF_CLOUD)
@pytest.mark.parametrize("way", ["cut off", "controller"])
def test_L46_the_controller_vanishes(build: Build, cloud: str, way: str) -> None:
    rig = OF_CLOUD[cloud](build)
    if way == "controller":
        rig.demo_class["guard"] = {"silentFor": "Never", "controllerSilentFor": "24h"}
        rig.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
        for manifest in yaml.safe_load_all((ROOT / "files" / "guard.yml").read_text()):
            rig.kube("POST", KINDS[manifest["kind"]], manifest)
    else:
        rig.behave("cut_off", seconds=HOUR)
    rig.provision()
    machine = rig.machine()
    machine.details["joined"] = rig.clock.seconds()
    rig.pod(machine.name)
    guarded = machine.details["guarded"] = way == "controller" or cloud in ("gcp", "paperspace", "vast")
    pass_hours(rig, machine, 23)
    assert not is_off(machine)
    pass_hours(rig, machine, 3)
    assert is_off(machine) is guarded
    before = machine.cost(rig.clock.now())
    pass_hours(rig, machine, 24)
    after = machine.cost(rig.clock.now()) - before
    whole = machine.price_hour * 24
    stays, bill, running = documented(cloud, way)
    assert (stays, running) == ("off" if guarded else "on", round(whole, 2)) and abs(bill - after) < Decimal("0.02")
    saves = guarded and cloud in ("gcp", "paperspace", "vast")
    assert (after < whole / 4) if saves else (abs(after - whole) < whole / 20), (after, whole)
    node = rig.nodes()[machine.name]
    marked = "tgp.io/powered-off" in (node["metadata"].get("annotations") or {})
    assert (marked, node["spec"].get("unschedulable", False)) == ((True, True) if way == "controller" else (False, False))
    if guarded:
        rig.until(lambda: not is_ready(rig, machine), "the cluster notices")
    rig.reap()
    if saves or (guarded and cloud == "vultr"):
        rig.until(lambda: machine.ended is not None, "the next run deletes it", 10)


UNGUARDED: dict[tuple[str, str], t.Callable[[Build], Rig]] = {
    ("talos", "vultr"): lambda build: build_vultr(build, "talos"),
    ("talos", "gcp"): lambda build: build_gcp(build, "talos"),
    ("service", "runpod"): lambda build: build_service(build, "runpod"),
    ("service", "vast"): lambda build: build_service(build, "vast"),
}
LIFE = 36  # hours that the class lets Google run the machine


@pytest.mark.parametrize(("lane", "cloud"), UNGUARDED)
def test_L46_where_no_guard_is_only_the_provider_ends_a_machine(build: Build, lane: str, cloud: str) -> None:
    """Lanes talos and service: billed in full hour by hour, except where the provider has a time of its own, which was set at create."""
    rig = UNGUARDED[lane, cloud](build)
    if cloud == "gcp":
        rig.demo_class["providers"][0]["settings"]["maxRunHours"] = LIFE
    pool = str(next(one["metadata"]["name"] for one in rig.documents if one["kind"] == "GPUNodePool"))
    rig.rent(pool=pool)
    assert [row["result"] for row in rig.join()["machines"]] == ["ready"]
    machine = rig.machine()
    assert "tgp-guard" not in (machine.payload or "")
    states = []
    bills = [machine.cost(rig.clock.now())]
    for hour in range(1, 51):
        rig.advance(HOUR)
        if cloud == "gcp":
            end_overdue(rig.world, GoogleAccount.of(rig.world))
        states.append("deleted" if machine.ended is not None else "on")
        bills.append(machine.cost(rig.clock.now()))
        due = machine.price_hour if states[-1] == "on" else 0
        assert hour == LIFE or abs(bills[-1] - bills[-2] - due) < machine.price_hour / 20, hour
    page = (ROOT / "docs/how_to/without_controller.md").read_text(encoding="utf-8")
    row = f"| `{lane}` | `{cloud}` | {states[25]} | {states[49]} | ${bills[50] - bills[26]:.2f} |"
    assert row in page, row
    assert states.count("deleted") == (50 - LIFE + 1 if cloud == "gcp" else 0)
    if cloud == "gcp":
        for _run in range(2):  # a machine that is missing in one list may be missing by a mistake of the provider
            rig.reap()
            rig.advance(600)
        assert rig.claims() == {} and rig.nodes() == {}
