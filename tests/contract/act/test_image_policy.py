# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""imagePolicy of a class: the run that launches makes the image that the account lacks, or refuses before anything is rented."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.factory import computed

from sandbox.gcp_account import Account as GcpAccount
from sandbox.vultr_account import Account as VultrAccount

from .rig import Rig
from .test_autoscale import ask
from .test_gcp import OFFERS as GCP_OFFERS
from .test_gcp import QUOTAS, T4, build_gcp
from .test_spot import Build, only
from .test_talos_class import NVIDIA, image
from .test_vultr import OFFERS as VULTR_OFFERS
from .test_vultr import build_vultr

SCHEMATIC = image("siderolabs/tailscale", *NVIDIA)
NUMBER = computed(SCHEMATIC) or ""
BUCKET = "tgp-images"


@dataclasses.dataclass
class Ground:
    """One provider: the documents name no image, but what is in it."""

    cloud: str
    rig: Rig

    @property
    def account(self) -> t.Any:
        return VultrAccount.of(self.rig.world) if self.cloud == "vultr" else GcpAccount.of(self.rig.world)

    @property
    def settings(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.rig.demo_class["providers"][0]["settings"])

    @property
    def images(self) -> list[str]:
        if self.cloud == "gcp":
            return sorted(self.account.own_images)
        now = self.rig.clock.seconds()
        return sorted(one.description for one in self.account.snapshots.values() if self.account.snapshot_state(one, now))

    @property
    def name(self) -> str:
        version = "1.13.9" if self.cloud == "vultr" else "1-13-9"
        return f"tgp-talos-v{version}-{NUMBER[:12]}-c{self.rig.cluster_id}"

    def writes(self) -> int:
        """Calls that change something at the two providers."""
        return sum(service in ("gcp", "vultr") for _when, service, _what in self.rig.world.writes)

    def blocked(self) -> str:
        """What is remembered of an image that could not be made; empty when nothing is."""
        memory = self.rig.state("blocklist").get("history", {})
        return next((str(entry["why"]) for key, entry in memory.items() if key.startswith("image:")), "")

    def begun(self) -> int:
        """Create calls for images."""
        made = ("/v2/snapshots/create-from-url", "/global/images")
        return sum(
            what.startswith("POST") and what.partition("?")[0].endswith(made) for _when, _service, what in self.rig.world.writes
        )


@pytest.fixture(name="ground", params=["vultr", "gcp"])
def _ground(request: pytest.FixtureRequest, build: Build) -> Ground:
    return ground_of(request.param, build)


def ground_of(cloud: str, build: Build) -> Ground:
    rig = (build_vultr if cloud == "vultr" else build_gcp)(build, "talos")
    ground = Ground(cloud, rig)
    for name in ("snapshotId", "talosImage"):
        ground.settings.pop(name, None)
    if ground.cloud == "gcp":
        ground.settings["imageBucket"] = BUCKET
        ground.account.turn({"bucket": BUCKET})
        ground.account.images.clear()
    else:
        ground.account.snapshots.clear()
    rig.demo_class["talosConfig"]["schematic"] = SCHEMATIC
    rig.demo_class["talosConfig"].pop("image", None)
    return ground


@pytest.mark.parametrize("policy", ["IfMissing", None])
def test_a_class_that_names_no_image_gets_one_made_before_the_launch(ground: Ground, policy: str | None) -> None:
    """Also without a word about it: whoever says what is in the image, and has none, wants it made."""
    if policy:
        ground.settings["imagePolicy"] = policy
    planned = ground.rig.plan("provision", nodes=1, check=True)
    assert ground.begun() == 0 and planned["launch"] and any("would be made" in line for line in ground.rig.lines)
    joined = ground.rig.provision()
    assert [one["result"] for one in joined["machines"]] == ["ready"], joined
    assert ground.images == [ground.name] and ground.rig.machine().details["system"] == "talos"
    assert ground.begun() == 1
    ground.rig.provision(nodes=2)
    assert ground.begun() == 1 and len([one for one in ground.rig.world.machines.values() if one.ended is None]) == 2


def test_never_refuses_before_anything_is_rented_and_prints_the_command(ground: Ground) -> None:
    ground.settings["imagePolicy"] = "Never"
    with pytest.raises(InvalidInput) as refused:
        ground.rig.rent()
    assert ground.rig.world.machines == {} and ground.rig.claims() == {} and ground.begun() == 0
    words = str(refused.value)
    command = (
        f"ansible-playbook tgp.gpu.images -e tgp_provider={ground.cloud} -e tgp_schematic_id={NUMBER} -e tgp_talos_version=1.13.9"
    )
    assert command in words and f"tgp_image_cluster_id={ground.rig.cluster_id}" in words
    assert ("-e tgp_image_bucket=tgp-images" in words) is (ground.cloud == "gcp")
    with pytest.raises(InvalidInput, match="policy Never"):
        ground.rig.run("validate")


def test_never_takes_an_image_that_is_there(ground: Ground) -> None:
    ground.rig.provision()
    ground.settings["imagePolicy"] = "Never"
    joined = ground.rig.provision(nodes=2)
    assert "ready" in [one["result"] for one in joined["machines"]] and ground.begun() == 1


def test_always_makes_another_one_in_each_run_that_launches(ground: Ground) -> None:
    ground.settings["imagePolicy"] = "Always"
    ground.rig.provision()
    ground.rig.provision()
    assert ground.images == [ground.name], "a run that launches nothing makes none"
    ground.rig.provision(nodes=2)
    assert ground.images == [ground.name, f"{ground.name}-2"] and ground.begun() == 2


def test_an_import_that_fails_each_time_rents_nothing(ground: Ground) -> None:
    ground.account.turn({"failing_imports": 9})
    with pytest.raises(InvalidInput, match="none was completed"):
        ground.rig.rent()
    assert ground.rig.world.machines == {} and ground.rig.claims() == {}
    assert "none was completed" in ground.blocked() and ground.begun() == 2
    ground.account.turn({"failing_imports": 0})
    writes = ground.writes()
    again = ground.rig.plan("provision", pools=["training"], nodes=1)
    ground.rig.unlock(again["run_id"])
    assert again["launch"] == [] and ground.writes() == writes, "it is backed off"
    assert "none was completed" in again["problems"][0] and "is not made before" in again["problems"][0]
    ground.rig.advance(1801)
    assert [one["result"] for one in ground.rig.provision()["machines"]] == ["ready"]
    assert ground.blocked() == "", "a success ends the doubling"


def test_an_image_that_never_completes_rents_nothing(ground: Ground) -> None:
    ground.account.turn({"stuck_imports": True})
    with pytest.raises(InvalidInput, match="is not complete after 1h"):
        ground.rig.rent()
    assert ground.rig.world.machines == {} and ground.rig.claims() == {} and ground.begun() == 1


def test_validate_says_whether_the_image_is_there(ground: Ground) -> None:
    ground.rig.run("validate")
    assert any("is missing; the first run that launches makes it" in line for line in ground.rig.lines)
    assert any("wait for it" in text for text in ground.rig.warnings) and ground.begun() == 0
    ground.rig.rent()
    ground.rig.lines.clear()
    ground.rig.run("validate")
    assert any(f"{ground.name} is there" in line for line in ground.rig.lines)


def test_an_image_that_vanishes_after_the_plan_rents_nothing(ground: Ground) -> None:
    """Between plan and launch somebody removes it: no create call is sent that boots nothing."""
    plan = ground.rig.plan("provision", pools=["training"], nodes=1)
    (ground.account.snapshots if ground.cloud == "vultr" else ground.account.own_images).clear()
    (machine,) = ground.rig.run("launch", plan["run_id"])["machines"]
    ground.rig.unlock(plan["run_id"])
    assert machine["result"] == "failed" and "no image that is complete" in machine["message"] and ground.rig.world.machines == {}


def test_a_saved_plan_makes_the_image_when_it_is_applied(ground: Ground) -> None:
    file = str(ground.rig.folder / "plan.json")
    ground.rig.plan("provision", nodes=1, pools=["training"], save_to=file)
    assert ground.begun() == 0 and ground.images == []
    applied = ground.rig.run("apply", "apply-1", file=file)
    (machine,) = ground.rig.run("launch", "apply-1", names=applied["launch"])["machines"]
    ground.rig.unlock("apply-1")
    assert machine["result"] == "launched" and ground.images == [ground.name]


def test_without_a_schematic_or_a_bucket_lane_talos_is_not_offered(build: Build) -> None:
    """As before there was such a policy: nothing is made that nobody described."""
    for cloud, lacks in (("vultr", "schematic"), ("gcp", "imageBucket")):
        ground = ground_of(cloud, build)
        del (ground.rig.demo_class["talosConfig"] if lacks == "schematic" else ground.settings)[lacks]
        plan = ground.rig.plan("provision", nodes=1, check=True)
        assert plan["launch"] == [] and plan["shortfall"] and ground.begun() == 0


def test_the_report_says_what_images_cost_and_the_parts_add_up_to_the_cent(ground: Ground) -> None:
    """Of this cluster and time only. The sums of machines are those of the ledger, as without images."""
    rig = ground.rig
    ground.settings["imagePolicy"] = "Always"
    rig.rent()
    rig.rent(nodes=2)
    rig.destroy()
    rig.advance(73 * 24 * 3600)
    told = rig.run("report", format="json")["report"]
    images = told["talos_images"]
    assert images["whole"] and {one["name"] for one in images["images"]} == {ground.name, f"{ground.name}-2"}
    assert sum(Decimal(one["cost"]) for one in images["images"]) == Decimal(images["total"])
    if ground.cloud == "vultr":  # 8 GiB at $0.05 for 2.4 months and some minutes, twice
        assert (images["total"], images["month"]) == ("2.06", "0.86")
    assert Decimal(told["total"]) == add_up(Decimal(line["cost"]) for line in rig.ledger())
    rig.lines.clear()
    rig.run("report")
    assert any("2 images of Talos are not in these sums" in line for line in rig.lines)
    later = (rig.clock.now() - timedelta(hours=73)).isoformat()
    part = rig.run("report", format="json", since=later)["report"]["talos_images"]
    if ground.cloud == "vultr":  # a tenth of a month
        assert part["total"] == "0.09"
    rig.fault("status", ground.cloud, "GET", "/snapshots" if ground.cloud == "vultr" else "/images", status=503, times=None)
    unknown = rig.run("report", format="json")["report"]["talos_images"]
    assert not unknown["whole"] and "is unknown" in unknown["problems"][0]


def test_a_loop_begins_an_image_and_does_not_wait_for_it(ground: Ground) -> None:
    """Its other machines must not wait for an import. The launch comes with a later run."""
    ask(ground.rig, "train")
    for _run in range(2):
        plan = ground.rig.plan("autoscale")
        ground.rig.unlock(plan["run_id"])
        assert plan["launch"] == [] and ground.begun() == 1
    ground.rig.advance(1200)
    plan = ground.rig.plan("autoscale")
    ground.rig.unlock(plan["run_id"])
    assert len(plan["launch"]) == 1 and ground.begun() == 1


@pytest.mark.parametrize(("cloud", "settings", "talos", "words"), [
    ("vultr", {"imagePolicy": "Sometimes"}, {}, "Use one of Always, IfMissing, Never"),
    ("vultr", {"imagePolicy": "Always", "snapshotId": "cb676a46-66fd-4dfb-b839-443f2e6c0b60"}, {}, "has no effect with snapshotId"),
    ("gcp", {"imagePolicy": "Never", "talosImage": "projects/p/global/images/i"}, {}, "has no effect with talosImage"),
    ("gcp", {"imageBucket": BUCKET, "talosImage": "projects/p/global/images/i"}, {}, "has no effect with talosImage"),
    ("gcp", {"imagePolicy": "IfMissing", "imageBucket": None}, {}, "imageBucket: this field is missing"),
    ("gcp", {"imageBucket": "gs://x"}, {}, "does not match"),
    ("vultr", {"imagePolicy": "Always"}, {"schematic": None}, "neither a schematic nor an image"),
    ("gcp", {"imagePolicy": "Never"}, {"schematic": None}, "neither a schematic nor an image"),
    ("vultr", {"imageBucket": BUCKET}, {}, "imageBucket"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(
    build: Build, cloud: str, settings: dict[str, t.Any], talos: dict[str, t.Any], words: str
) -> None:
    ground = ground_of(cloud, build)
    for place, changes in ((ground.settings, settings), (ground.rig.demo_class["talosConfig"], talos)):
        place.update(changes)
        for name in [name for name, value in place.items() if value is None]:
            del place[name]
    with pytest.raises(InvalidInput) as refused:
        ground.rig.rent()
    assert words in str(refused.value) and ground.rig.world.writes == []


# ---- two providers, one of which has no image (L-56)

OTHER = {"vultr": "gcp", "gcp": "vultr"}
BROKEN = [
    ("vultr", {"failing_imports": 9}, "none was completed"),
    ("gcp", {"failing_imports": 9}, "none was completed"),
    ("gcp", {"bucket_rights": False}, "storage.objects"),
    ("gcp", {"image_rights": False}, "compute.images.create"),
    ("gcp", {"bucket": "another"}, "does not exist"),
]


def two_providers(build: Build, cheap: str, switches: t.Mapping[str, t.Any], policy: str = "IfMissing") -> Ground:
    """``cheap`` is the cheaper one, and its images are broken by ``switches``."""
    market = {"vultr": {"offers": VULTR_OFFERS}, "gcp": {"offers": GCP_OFFERS, **QUOTAS}}
    rig = only(build(**{"lambda": [], "machines": [], **market}), cheap, template={"spec": {"lanes": ["talos"]}})
    rig.demo_class["instanceRequirements"] = {"gpuTypes": ["A16", "T4"]}
    price = "0.10" if cheap == "gcp" else "0.70"
    settings = {
        "vultr": {"imagePolicy": policy},
        "gcp": {"imagePolicy": policy, "imageBucket": BUCKET, "zones": ["us-central1"], "prices": {T4: price}},
    }
    rig.demo_class["providers"] = [{"name": name, "settings": settings[name]} for name in (cheap, OTHER[cheap])]
    rig.demo_class["talosConfig"]["schematic"] = SCHEMATIC
    rig.demo_class["talosConfig"].pop("image", None)
    GcpAccount.of(rig.world).turn({"bucket": BUCKET})
    GcpAccount.of(rig.world).images.clear()
    ground = Ground(cheap, rig)
    if "bucket" in switches:
        GcpAccount.of(rig.world).buckets.clear()
    ground.account.turn(switches)
    return ground


def living(rig: Rig) -> list[str]:
    return sorted(one.cloud for one in rig.world.machines.values() if one.ended is None)


@pytest.mark.parametrize(("cheap", "switches", "words"), BROKEN)
def test_L56_the_next_cheapest_offer_of_another_provider_is_rented_in_the_same_run(
    build: Build, cheap: str, switches: dict[str, t.Any], words: str
) -> None:
    ground = two_providers(build, cheap, switches)
    rig = ground.rig
    joined = rig.provision()
    assert [one["result"] for one in joined["machines"]] == ["ready"], joined
    assert living(rig) == [OTHER[cheap]] and rig.machine().details["system"] == "talos"
    told = [text for text in rig.warnings if f"offers of {cheap} for lane talos are left out" in text]
    assert told and words in told[0] and ground.blocked(), "the record has no sentence of another service"
    writes = ground.writes()
    rig.lines.clear()
    assert rig.rent()["machines"] == [] and ground.writes() == writes, "nothing is tried again, and nothing is rented"
    rig.run("info")
    assert any("backed off until" in line and f"image:{cheap}:demo" in line for line in rig.lines), rig.lines
    rig.provision(nodes=2)
    assert living(rig) == [OTHER[cheap]] * 2


def test_L56_once_its_time_is_over_the_image_is_made_and_the_cheaper_provider_is_used(build: Build) -> None:
    ground = two_providers(build, "vultr", {"failing_imports": 2})
    ground.rig.provision()
    ground.rig.advance(1801)
    ground.rig.provision(nodes=2)
    assert living(ground.rig) == ["gcp", "vultr"] and ground.blocked() == ""


def test_L56_never_leaves_out_the_provider_without_an_image_and_remembers_nothing(build: Build) -> None:
    """Who makes the image by hand is not kept waiting."""
    ground = two_providers(build, "vultr", {}, policy="Never")
    with pytest.raises(InvalidInput, match="policy Never") as refused:
        ground.rig.rent()
    assert "vultr" in str(refused.value) and "gcp" in str(refused.value) and ground.writes() == 0 and ground.blocked() == ""
    providers = ground.rig.demo_class["providers"]
    providers[1]["settings"]["imagePolicy"] = "IfMissing"
    ground.rig.provision()
    assert living(ground.rig) == ["gcp"] and ground.blocked() == ""


def test_L56_check_mode_says_what_is_left_out_and_notes_nothing(build: Build) -> None:
    ground = two_providers(build, "vultr", {}, policy="Never")
    ground.rig.demo_class["providers"][1]["settings"]["imagePolicy"] = "IfMissing"
    planned = ground.rig.plan("provision", nodes=1, check=True)
    assert [row["pool"] for row in planned["plan"]] and planned["launch"] and ground.writes() == 0 and ground.blocked() == ""
    assert any("offers of vultr for lane talos are left out" in text for text in ground.rig.warnings)


def test_L56_a_loop_waits_for_an_image_in_the_making_and_goes_elsewhere_once_it_has_failed(build: Build) -> None:
    ground = two_providers(build, "vultr", {"failing_imports": 9})
    rig = ground.rig
    ask(rig, "train")

    def turn() -> list[str]:
        plan = rig.plan("autoscale")
        rig.unlock(plan["run_id"])
        return list(plan["launch"])

    assert turn() == [] and ground.begun() == 1 and ground.blocked() == ""
    rig.advance(400)
    assert turn() == [] and "is gone" in ground.blocked(), "the other provider's image is begun in the same run"
    rig.advance(400)
    assert len(turn()) == 1 and [claim["cloud"] for claim in rig.claims().values()] == ["gcp"]


def test_L56_an_image_that_never_completes_holds_a_loop_for_an_hour_only(build: Build) -> None:
    ground = two_providers(build, "vultr", {"stuck_imports": True})
    ask(ground.rig, "train")
    for seconds, launches in ((1800, 0), (1900, 0), (400, 0), (0, 1)):
        plan = ground.rig.plan("autoscale")
        ground.rig.unlock(plan["run_id"])
        assert len(plan["launch"]) == launches, plan
        ground.rig.advance(seconds)
