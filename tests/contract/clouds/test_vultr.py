# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to Vultr: fractions, stock by region, locked deletes, user data, firewall groups and texts without codes."""

from __future__ import annotations

import base64
import dataclasses
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors, redact
from ansible_collections.tgp.gpu.plugins.module_utils.model import Extra, InstanceState, Lane, OfferQuery

from .stands import KEY
from .stands_vultr import VultrStand

WHOLE, FRACTION = "vcg-a16-6c-64g-16vram", "vcg-a16-2c-8g-2vram"
SNAPSHOT = "cb676a46-66fd-4dfb-b839-443f2e6c0b60"
CONFIG = "version: v1alpha1\nmachine: {}\n"


def refused(stand: VultrStand, **changes: t.Any) -> errors.LaunchRefused:
    with pytest.raises(errors.LaunchRefused) as caught:
        stand.cloud().launch(stand.request(**changes))
    assert stand.world.machines == {}
    return caught.value


# ---- what is offered


def test_the_cheapest_A16_is_never_a_fraction(vultr_stand: VultrStand) -> None:
    """The plan list has one at an eighth of the price, which tgp-operator took."""
    found = vultr_stand.cloud().offers(OfferQuery(models=("A16",)))
    cheapest = min(found, key=lambda offer: offer.price_hour or 0)
    assert (cheapest.id, cheapest.gpu_memory_mib, cheapest.price_hour) == (f"{WHOLE}@ewr", 16 * 1024, Decimal("0.49"))
    assert all(FRACTION not in offer.id for offer in vultr_stand.cloud().offers())
    offer = dataclasses.replace(cheapest, instance_type=FRACTION, id=f"{FRACTION}@ewr")
    with pytest.raises(errors.LaunchRefused, match="vGPU") as caught:
        vultr_stand.cloud().launch(dataclasses.replace(vultr_stand.request(), offer=offer))
    assert caught.value.reason == "invalid" and vultr_stand.world.machines == {}


def test_offers_are_whole_GPUs_on_demand_by_region(vultr_stand: VultrStand) -> None:
    found = {offer.id: offer for offer in vultr_stand.cloud().offers()}
    assert set(found) == {
        f"{WHOLE}@ewr", f"{WHOLE}@ams", "vcg-l40s-16c-180g-48vram@atl", "vcg-a40-24c-120g-48vram", "vcg-a40-96c-480g-192vram",
        "vcg-a16-96c-960g-256vram", "vcg-a100-12c-120g-80vram",
    }  # fmt: skip
    assert (found[f"{WHOLE}@ams"].price_hour, found[f"{WHOLE}@ams"].region) == (Decimal("0.53"), "eu-west")
    assert found["vcg-a40-24c-120g-48vram"].available == 0 and found[f"{WHOLE}@ewr"].available is None
    assert {offer.lanes for offer in found.values()} == {(Lane.KUBELET,)}
    assert not any(offer.spot for offer in found.values())
    four = found["vcg-a40-96c-480g-192vram"]
    assert (four.model, four.gpu_count, four.gpu_memory_mib) == ("A40", 4, 48 * 1024)


@pytest.mark.parametrize(
    ("models", "words"),
    [(("H100",), "sold preemptible only"), (("MI355X",), "GPUs of AMD")],
)
def test_why_nothing_of_a_model_is_offered_is_told(vultr_stand: VultrStand, models: tuple[str, ...], words: str) -> None:
    told: list[str] = []
    assert vultr_stand.cloud(warn=told.append).offers(OfferQuery(models=models)) == []
    assert len(told) == 1 and words in told[0]
    assert vultr_stand.cloud(warn=told.append).offers(OfferQuery(spot=True)) == []


def test_a_class_may_name_its_regions_and_then_no_other_is_asked(vultr_stand: VultrStand) -> None:
    vultr_stand.world.calls.clear()
    found = vultr_stand.cloud(regions=("ams",)).offers(OfferQuery(models=("A16",)))
    assert {offer.id for offer in found if offer.available != 0} == {f"{WHOLE}@ams"}
    assert vultr_stand.world.calls["vultr"] == 3  # account, plans, one region
    assert refused(vultr_stand, settings={"regions": ["ams"]}).reason == "invalid"


# ---- making one


def test_what_is_sent_and_found_again(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = cloud.launch(vultr_stand.request(user_data="#cloud-config\nä: 1\n", marks={"cluster": "a1b2c3d4", "pool": "default/x"}))
    machine = vultr_stand.world.machines[made]
    assert base64.b64decode(machine.details["user_data"]).decode() == "#cloud-config\nä: 1\n"
    assert machine.details["os_id"] == 2284 and machine.details["tags"] == ["tgp:cluster=a1b2c3d4", "tgp:pool=default/x"]
    seen = cloud.instance(made)
    assert seen is not None and seen.marks == {"cluster": "a1b2c3d4", "pool": "default/x"}
    assert (seen.price_hour, seen.model, seen.gpu_count) == (Decimal("0.49"), "A16", 1)
    assert seen.created is not None and abs((seen.created - machine.created).total_seconds()) < 1
    vultr_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    assert (up := cloud.instance(made)) is not None and up.ip.startswith("198.19.")


def test_passwords_of_answers_are_in_no_output(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = cloud.launch(vultr_stand.request())
    password = vultr_stand.world.machines[made].details["password"]
    vultr_stand.world.clock.advance(30)
    seen = cloud.instance(made)
    kvm = vultr_stand.world.machines[made].details["kvm"]
    assert password not in repr(seen) and kvm not in repr(seen)
    assert redact.redact(password) == redact.MASK


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"os": "Ubuntu 24.10 x64"}}, "no operating system 'Ubuntu 24.10 x64'"),
        ({"user_data": "#" + "x" * 70_000}, "70001 bytes"),
        ({"user_data": CONFIG}, "no image of Talos"),
        ({"name": "Not_a_host"}, "not a host name"),
        ({"max_price_hour": Decimal("0.10")}, "more than 0.10"),
    ],
)
def test_what_is_refused_before_it_is_sent(vultr_stand: VultrStand, changes: dict[str, t.Any], words: str) -> None:
    error = refused(vultr_stand, **changes)
    assert error.reason == "invalid" and words in str(error)
    assert vultr_stand.account.groups == {}


def test_spot_is_refused(vultr_stand: VultrStand) -> None:
    request = vultr_stand.request()
    with pytest.raises(errors.LaunchRefused, match="preemptible"):
        vultr_stand.cloud().launch(dataclasses.replace(request, offer=dataclasses.replace(request.offer, spot=True)))


@pytest.mark.parametrize("lies", [False, True])
def test_a_region_without_stock_is_a_clear_error_also_when_the_list_lies(vultr_stand: VultrStand, lies: bool) -> None:
    request = vultr_stand.request()
    vultr_stand.account.lying_stock = lies
    vultr_stand.world.offers[0].stock = 0
    with pytest.raises(errors.LaunchRefused, match="not available in the selected region") as caught:
        vultr_stand.cloud().launch(request)
    assert caught.value.reason == "capacity"


@pytest.mark.parametrize(
    ("status", "text", "stock", "reason"),
    [
        (400, "Cannot add instance. Specified os_id not available", 5, "invalid"),
        (400, "Something that nobody has seen", 0, "capacity"),
        (400, "Something that nobody has seen", 5, "invalid"),
        (403, "Unauthorized IP address", 5, "auth"),
        (429, "Rate limit", 5, "rate"),
    ],
)
def test_L14_texts_without_codes(vultr_stand: VultrStand, status: int, text: str, stock: int, reason: str) -> None:
    request = vultr_stand.request()
    vultr_stand.world.offers[0].stock = stock
    body = {"error": text, "status": status}
    vultr_stand.faults.add(
        {"kind": "status", "method": "POST", "path": vultr_stand.create_path, "status": status, "body": body, "times": None}
    )
    with pytest.raises(errors.LaunchRefused) as caught:
        vultr_stand.cloud().launch(request)
    assert caught.value.reason == reason and text in str(caught.value)
    assert vultr_stand.account.groups == {}, "the group that was made for it goes again"


def test_an_error_under_status_200_is_one(vultr_stand: VultrStand) -> None:
    body = {"error": "Invalid API token.", "status": 401}
    vultr_stand.faults.add({"kind": "body", "method": "GET", "path": "/v2/instances", "body": body, "times": None})
    with pytest.raises(errors.Unauthorized):
        vultr_stand.cloud().instances()


# ---- lists


def test_cursors_are_followed_and_a_circle_is_noticed(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = {cloud.launch(vultr_stand.request(name=f"tgp-a1b2c3d4-train-0000{number}")) for number in range(3)}
    vultr_stand.account.page_size = 1
    assert {one.id for one in cloud.instances()} == made
    body = {"instances": [], "meta": {"total": 9, "links": {"next": "bmV4dA==", "prev": ""}}}
    vultr_stand.faults.add({"kind": "body", "method": "GET", "path": vultr_stand.list_path, "body": body, "times": None})
    with pytest.raises(errors.BadShape, match="circle"):
        cloud.instances()


def test_only_vultrs_own_404_means_gone(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = cloud.launch(vultr_stand.request())
    vultr_stand.faults.add(
        {"kind": "status", "path": f"/instances/{made}", "status": 404, "body": {"error": "Invalid API path.", "status": 404}}
    )
    with pytest.raises(errors.NotFound):
        cloud.instance(made)
    assert cloud.instance(made) is not None


# ---- states and ends


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ({"status": "suspended"}, InstanceState.FAILED),
        ({"status": "resizing"}, InstanceState.PENDING),
        ({"power_status": "stopped"}, InstanceState.STOPPED),
        ({"server_status": "installingbooting"}, InstanceState.PENDING),
        ({"server_status": "locked"}, InstanceState.PENDING),
        ({"server_status": "locked", "snapshot_id": SNAPSHOT}, InstanceState.RUNNING),
        ({"server_status": "locked", "os_id": 159}, InstanceState.RUNNING),
        ({"status": "a new word"}, InstanceState.UNKNOWN),
        ({}, InstanceState.RUNNING),
    ],
)
def test_states(vultr_stand: VultrStand, shown: dict[str, t.Any], state: InstanceState) -> None:
    entry = {"id": SNAPSHOT, "status": "active", "power_status": "running", "server_status": "ok", "os_id": 2284, **shown}
    vultr_stand.faults.add({"kind": "body", "path": "/instances/", "body": {"instance": entry}})
    seen = vultr_stand.cloud().instance(SNAPSHOT)
    assert seen is not None and seen.state is state and not seen.gone
    assert (seen.raw_state in vultr_stand.cloud().facts.states) is (state is not InstanceState.UNKNOWN)


def test_a_locked_machine_is_deleted_once_it_is_unlocked(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = cloud.launch(vultr_stand.request())
    body = {"error": "Unable to destroy server: Unable to remove VM: Server is currently locked", "status": 500}
    rule = vultr_stand.faults.add({"kind": "status", "method": "DELETE", "path": made, "status": 500, "body": body, "times": 5})
    cloud.terminate(made)
    assert rule.hits == 5
    vultr_stand.wait_for(cloud, made, {None})
    assert vultr_stand.billed() == 0


def test_one_that_stays_locked_is_told_and_kept(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    vultr_stand.world.offers[0].boot_seconds = 1e9
    made = cloud.launch(vultr_stand.request())
    with pytest.raises(errors.Conflict, match="billed") as caught:
        cloud.terminate(made)
    assert "locked" in str(caught.value) and cloud.instance(made) is not None


# ---- user data and firewall


def test_user_data_is_emptied(vultr_stand: VultrStand) -> None:
    cloud = vultr_stand.cloud()
    made = cloud.launch(vultr_stand.request(user_data="#cloud-config\n"))
    cloud.erase_user_data(made)
    machine = vultr_stand.world.machines[made]
    assert machine.details["user_data"] == "" and machine.details["tags"] == ["tgp:cluster=a1b2c3d4"]
    cloud.erase_user_data(SNAPSHOT)  # success: there is nothing to read


def test_one_firewall_group_per_cluster_is_found_again_and_removed_with_the_last_machine(vultr_stand: VultrStand) -> None:
    first, second = vultr_stand.cloud(), vultr_stand.cloud()
    made = [
        cloud.launch(vultr_stand.request(name=f"tgp-a1b2c3d4-train-0000{number}"))
        for number, cloud in enumerate((first, first, second))
    ]
    (group,) = vultr_stand.account.groups.values()
    assert (group.description, group.rules) == ("tgp-a1b2c3d4-firewall-group", [])
    assert {vultr_stand.world.machines[one].details["group"] for one in made} == {group.id}
    assert first.extras() == []
    extra = Extra("vultr", "firewall group", group.id, group.description)
    with pytest.raises(errors.Conflict):
        first.discard(extra)
    for one in made:
        first.terminate(one)
        vultr_stand.wait_for(first, one, {None})
    (orphan,) = second.extras()
    assert dataclasses.replace(orphan, created=None) == extra
    second.discard(orphan)
    second.discard(orphan)
    assert vultr_stand.account.groups == {} and second.extras() == []


@pytest.mark.parametrize(
    ("setting", "marks", "count"), [("none", {"cluster": "a1b2c3d4"}, 0), ("own", {}, 0), ("own", {"cluster": "a1b2c3d4"}, 1)]
)
def test_the_group_can_be_chosen(vultr_stand: VultrStand, setting: str, marks: dict[str, str], count: int) -> None:
    vultr_stand.cloud().launch(vultr_stand.request(settings={"firewallGroup": setting}, marks=marks))
    assert len(vultr_stand.account.groups) == count


def test_a_lost_answer_to_the_group_is_looked_up(vultr_stand: VultrStand) -> None:
    vultr_stand.faults.add({"kind": "lost_after", "method": "POST", "path": "/firewalls"})
    made = vultr_stand.cloud().launch(vultr_stand.request())
    assert vultr_stand.world.machines[made].details["group"] in vultr_stand.account.groups and len(vultr_stand.account.groups) == 1


# ---- lane talos


def test_a_snapshot_opens_lane_talos_and_is_booted_by_machine_configurations_only(vultr_stand: VultrStand) -> None:
    assert vultr_stand.cloud(snapshot=SNAPSHOT).offers()[0].lanes == (Lane.TALOS, Lane.KUBELET)
    cloud = vultr_stand.cloud()
    url = f"https://factory.talos.dev/image/{'ab' * 32}/v1.13.9/vultr-amd64.raw"
    body = {"url": url, "uefi": True, "description": "talos"}
    made = cloud.api.call("POST", "/v2/snapshots/create-from-url", json=body).json["snapshot"]["id"]
    vultr_stand.world.clock.advance(301)
    settings = {"snapshotId": made}
    talos = cloud.launch(vultr_stand.request(name="tgp-a1b2c3d4-train-talos", settings=settings, user_data=CONFIG))
    ubuntu = cloud.launch(vultr_stand.request(name="tgp-a1b2c3d4-train-linux", settings=settings, user_data="#cloud-config\n"))
    machines = vultr_stand.world.machines
    assert (machines[talos].details["snapshot_id"], machines[talos].details["system"], machines[talos].payload) == (
        made,
        "talos",
        CONFIG,
    )
    assert (machines[ubuntu].details["os_id"], machines[ubuntu].details["system"]) == (2284, "ubuntu")
    vultr_stand.wait_for(cloud, talos, {InstanceState.RUNNING})


def test_a_snapshot_that_is_not_complete_is_refused(vultr_stand: VultrStand) -> None:
    error = refused(vultr_stand, settings={"snapshotId": SNAPSHOT}, user_data=CONFIG)
    assert error.reason == "invalid" and "snapshot" in str(error)


def test_check_names_rights_that_the_key_lacks(vultr_stand: VultrStand) -> None:
    account = {"account": {"acls": ["subscriptions"], "balance": -3.5}}
    vultr_stand.faults.add({"kind": "body", "path": "/v2/account", "body": account, "times": None})
    found = vultr_stand.cloud().check()
    assert [one.split(" right ")[1].split()[0] for one in found.warnings] == ["provisioning", "firewall"]
    assert KEY not in found.sentence
