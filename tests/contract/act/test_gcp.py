# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of Google from its offer to its end, in both lanes: user data that is removed, spot that is replaced, quotas, disks that stay."""

from __future__ import annotations

import pathlib
import re
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.orphans import ORPHAN_AGE

from sandbox.gcp_account import SECRET, Account, key_pair

from .rig import Rig
from .test_spot import Build, only

T4 = "n1-standard-4+nvidia-tesla-t4"
OFFERS: list[dict[str, t.Any]] = [
    {"type": T4, "zone": "us-central1-a", "stock": 0, "boot": 20},
    {"type": T4, "zone": "us-central1-b", "stock": 3, "boot": 20},
]
QUOTAS = {"gpus_all_regions": 8, "gpus_per_region": 8}


def build_gcp(build: Build, lane: str, *, quotas: t.Mapping[str, int] = QUOTAS, speed: float = 200.0, **pool: t.Any) -> Rig:
    """The demo's documents with Google alone, and a pool that asks for a T4 at any price. ``offers``: Google's; ``others``: those of others."""
    google = {"offers": pool.pop("offers", OFFERS), **quotas}
    scenario = {"speed": speed, "lambda": [], "machines": [], "gcp": google, **pool.pop("others", {})}
    requirements = {"requirements": pool.pop("requirements")} if "requirements" in pool else {}
    rig = only(build(**scenario), "gcp", template={"spec": {"lanes": [lane], **requirements}}, **pool)
    rig.demo_class["instanceRequirements"] = {**rig.demo_class.get("instanceRequirements", {}), "gpuTypes": ["T4"]}
    settings: dict[str, t.Any] = {"zones": ["us-central1"]}
    if lane == "talos":
        settings["talosImage"] = "projects/tgp-sandbox/global/images/family/tgp-talos"
        Account.of(rig.world).images["tgp-talos"] = "ab" * 32
    rig.demo_class["providers"] = [{"name": "gcp", "settings": settings}]
    return rig


@pytest.mark.parametrize("lane", ["kubelet", "talos"])
def test_a_node_comes_and_goes_at_google(build: Build, lane: str) -> None:
    """The first zone is exhausted, which its operation tells; the second one has a machine. Its disk stays, and goes with the orphans."""
    rig = build_gcp(build, lane)
    account = Account.of(rig.world)
    account.keep_disks = True
    joined = rig.provision()
    assert [one["result"] for one in joined["machines"]] == ["ready"], joined
    machine = rig.machine()
    assert (machine.offer.region, machine.details["system"]) == ("us-central1-b", "talos" if lane == "talos" else "ubuntu")
    assert machine.payload and machine.details["metadata"] == [], "what it was given at boot can be read no more"
    assert {"tgp-cluster", "tgp-generation", "tgp-pool", "tgp-nonce"} <= set(machine.details["labels"])
    writes = len(rig.world.writes)
    assert not rig.rent()["machines"] and [what for what in rig.world.writes[writes:] if what[1] == "gcp"] == []
    rig.advance(600)
    rig.destroy()
    rig.until(lambda: machine.destroyed is not None, "leaves the list")
    (line,) = rig.ledger()
    assert Decimal(line["cost"]) > 0
    rig.check_bill()
    rig.advance(ORPHAN_AGE + 1)
    for _run in range(3):
        rig.reap()
        rig.advance(61)
    assert account.disks == {} and rig.claims() == {}
    assert [what for _when, _service, what in rig.world.writes if "/disks/" in what] == [
        f"DELETE /compute/v1/projects/tgp-sandbox/zones/us-central1-b/disks/{machine.name}"
    ]
    kept = "".join(path.read_text(errors="replace") for path in pathlib.Path(rig.folder).rglob("*") if path.is_file())
    shown = "\n".join([*rig.lines, *rig.warnings, kept])
    for secret in (key_pair("sandbox")[0][64:128], rig.world.secrets[SECRET][:60], *account.tokens):
        assert secret not in shown


def test_L16_a_machine_that_ends_within_its_first_minute_costs_the_minute(build: Build) -> None:
    rig = build_gcp(build, "kubelet", speed=20.0)
    rig.rent()
    rig.destroy()
    rig.until(lambda: rig.ledger() != [], "is booked")
    (line,) = rig.ledger()
    assert line["seconds"] < 60 and line["minimum"] == 60, line
    assert Decimal(line["cost"]) == Decimal(line["cost_least"]) == Decimal(line["cost_most"]) == Decimal(line["price_hour"]) / 60
    rig.check_bill()


def test_a_spot_machine_that_google_takes_is_replaced(build: Build) -> None:
    spot = [{"key": "tgp.io/spot", "operator": "In", "values": ["true"]}]
    rig = build_gcp(build, "kubelet", spot=True, requirements=spot)
    rig.provision()
    first = rig.machine()
    assert first.details["spot"] and first.details["scheduling"]["instanceTerminationAction"] == "DELETE"
    rig.world.on_taken["gcp"](first)
    rig.until(lambda: first.destroyed is not None, "is deleted by Google")
    for _run in range(8):
        rig.reap()
        rig.advance(301)
        if first.name not in rig.claims():
            break
    assert first.name not in rig.claims()
    rig.advance(3601)  # what was lost at a spot market is left alone for an hour
    rig.provision()
    (second,) = [one for one in rig.world.machines.values() if one.ended is None]
    assert second.name != first.name and second.details["spot"] and len(Account.of(rig.world).disks) == 1


def test_a_project_without_quota_is_told_and_nothing_is_made(build: Build) -> None:
    rig = build_gcp(build, "kubelet", quotas={})
    rig.rent()
    assert rig.world.machines == {}
    assert any("GPUS_ALL_REGIONS" in text for text in rig.warnings), rig.warnings


def told_by(rig: Rig, **params: t.Any) -> str:
    """What a run says that is to rent one machine, and cannot."""
    try:
        plan = rig.plan("provision", pools=["training"], nodes=1, **params)
    except TgpError as error:
        return "\n".join([str(error), *rig.warnings])
    rig.unlock(plan["run_id"])
    assert plan["launch"] == [] and plan["problems"], plan
    return "\n".join([*plan["problems"], *rig.warnings])


@pytest.mark.parametrize(("contents", "switches", "settings", "words"), [
    ("ya29.a-token", {}, {}, "it is not JSON"),
    ('{"type": "authorized_user"}', {}, {}, "its type is not service_account"),
    ("", {}, {"project": "another-project"}, "is of project tgp-sandbox. In another-project enable"),
    ("", {"rights": False}, {}, "Compute Instance Admin"),
    ("", {"enabled": False}, {}, "Compute Engine API"),
    ("", {"key_lives": 1e-6}, {}, "The key was deleted or has expired: make a new key"),
])  # fmt: skip
def test_a_service_account_that_cannot_be_used_is_told_before_anything_is_made(
    build: Build, contents: str, switches: dict[str, t.Any], settings: dict[str, t.Any], words: str
) -> None:
    rig = build_gcp(build, "kubelet")
    rig.run("validate")  # the first use of the key
    Account.of(rig.world).turn(switches)
    rig.demo_class["providers"][0]["settings"].update(settings)
    params = {"gcp_service_account_contents": contents} if contents else {}
    with pytest.raises(InvalidInput, match=re.escape(words)):
        rig.run("validate", **params)
    assert words in told_by(rig, **params)
    assert rig.world.machines == {} and rig.claims() == {}
    assert [what for _when, service, what in rig.world.writes if service == "gcp"] == []


def test_a_key_that_expires_keeps_the_machines_and_refuses_further_ones(build: Build) -> None:
    """What the account has is unknown from then on, and unknown ends nothing."""
    rig = build_gcp(build, "kubelet")
    rig.provision()
    Account.of(rig.world).turn({"key_lives": 1.0})
    rig.advance(4000)
    for _run in range(3):
        rig.reap()
        rig.advance(601)
    assert rig.machine().ended is None and len(rig.claims()) == 1
    rig.warnings.clear()
    plan = rig.plan("provision", pools=["training"], nodes=2)
    rig.unlock(plan["run_id"])
    assert plan["launch"] == [] and "make a new key" in "\n".join([*plan["problems"], *rig.warnings])
    Account.of(rig.world).turn({"key_lives": 0.0})
    rig.provision(nodes=2)
    assert len([one for one in rig.world.machines.values() if one.ended is None]) == 2
