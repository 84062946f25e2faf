# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of Vultr from its offer to its end, in both lanes: whole GPUs, user data that does not stay, a firewall group, whole paid hours."""

from __future__ import annotations

import base64
import pathlib
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.orphans import ORPHAN_AGE

from sandbox.vultr_account import Account, Snapshot

from .rig import Rig
from .test_spot import Build, only

WHOLE = "vcg-a16-6c-64g-16vram"
OFFERS: list[dict[str, t.Any]] = [
    {"type": WHOLE, "region": "ewr", "stock": 3, "boot": 20},
    {"type": "vcg-a16-2c-8g-2vram", "region": "ewr", "stock": 9, "boot": 20},
]
SNAPSHOT = "cb676a46-66fd-4dfb-b839-443f2e6c0b60"
URL = f"https://factory.talos.dev/image/{'ab' * 32}/v1.13.9/vultr-amd64.raw"


def build_vultr(build: Build, lane: str) -> Rig:
    """The demo's documents with Vultr alone, and a pool that asks for an A16 at any price."""
    rig = only(build(**{"lambda": [], "machines": [], "vultr": {"offers": OFFERS}}), "vultr", template={"spec": {"lanes": [lane]}})
    rig.demo_class["instanceRequirements"] = {"gpuTypes": ["A16"]}
    if lane == "talos":
        rig.demo_class["providers"] = [{"name": "vultr", "settings": {"snapshotId": SNAPSHOT}}]
        account = Account.of(rig.world)
        account.snapshots[SNAPSHOT] = Snapshot(SNAPSHOT, "talos", URL, 0.0, rig.clock.now())
    return rig


@pytest.mark.parametrize("lane", ["kubelet", "talos"])
def test_a_node_comes_and_goes_at_vultr(build: Build, lane: str) -> None:
    rig = build_vultr(build, lane)
    joined = rig.provision()
    assert [one["result"] for one in joined["machines"]] == ["ready"], joined
    machine = rig.machine()
    assert (machine.offer.type, machine.details["system"]) == (WHOLE, "talos" if lane == "talos" else "ubuntu")
    assert machine.payload and machine.details["user_data"] == "", "what it was given at boot can be read no more"
    account = Account.of(rig.world)
    (group,) = account.groups.values()
    assert group.description == f"tgp-{rig.cluster_id}-firewall-group" and machine.details["group"] == group.id
    assert {"cluster", "generation", "pool"} <= {tag.partition("=")[0].removeprefix("tgp:") for tag in machine.details["tags"]}
    writes = len(rig.world.writes)
    assert not rig.rent()["machines"] and [what for what in rig.world.writes[writes:] if what[1] == "vultr"] == []
    rig.advance(600)
    rig.destroy()
    rig.until(lambda: machine.destroyed is not None, "leaves the list")
    (line,) = rig.ledger()
    assert Decimal(line["cost"]) == machine.cost(rig.clock.now()) == Decimal("0.49"), "a started hour is billed whole"
    rig.advance(ORPHAN_AGE + 1)
    for _run in range(3):
        rig.reap()
        rig.advance(61)
    assert account.groups == {} and rig.claims() == {}
    kept = "".join(path.read_text(errors="replace") for path in pathlib.Path(rig.folder).rglob("*") if path.is_file())
    shown = "\n".join([*rig.lines, *rig.warnings, kept])
    for secret in (machine.details["password"], machine.details.get("kvm", "x" * 40)):
        assert secret not in shown
    assert base64.b64encode(machine.payload.encode()).decode() not in shown


def test_user_data_that_cannot_be_emptied_is_told_and_the_node_is_ready(build: Build) -> None:
    rig = build_vultr(build, "kubelet")
    rig.fault(
        "status", "vultr", "PATCH", "/instances/", status=403, body={"error": "Unauthorized IP address", "status": 403}, times=None
    )
    assert [one["result"] for one in rig.provision()["machines"]] == ["ready"]
    assert any("user data could not be emptied" in text for text in rig.warnings)


def nothing_is_rented(rig: Rig) -> str:
    """What a run says that is to rent one machine, finds none, and sends nothing."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.unlock(plan["run_id"])
    assert plan["launch"] == [] and rig.claims() == {} and rig.world.machines == {}
    assert [what for _when, service, what in rig.world.writes if service == "vultr"] == []
    return "\n".join([*plan["problems"], *rig.warnings])


@pytest.mark.parametrize("lane", ["kubelet", "talos"])
def test_a_region_without_stock_is_told_before_anything_is_made(build: Build, lane: str) -> None:
    rig = build_vultr(build, lane)
    for one in rig.world.offers:
        one.stock = 0
    rig.demo_class["providers"][0].setdefault("settings", {})["regions"] = ["ewr"]
    assert "training: 1 machines will not come: not available" in nothing_is_rented(rig)


def test_spot_at_vultr_is_told_before_anything_is_made(build: Build) -> None:
    rig = build_vultr(build, "kubelet")
    rig.demo_class["instanceRequirements"]["spotAllowed"] = True
    rig.training["template"]["spec"]["requirements"] = [{"key": "tgp.io/spot", "operator": "In", "values": ["true"]}]
    assert "vultr: it rents no interruptible machines" in nothing_is_rented(rig)
