# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to Google: key files, tokens, operations that are DONE and failed, quotas, idempotent creates, spot, disks that stay."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import Extra, InstanceState, Lane, OfferQuery
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp import service_account as client_account
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.prices import disk_hour

from sandbox.gcp_account import SECRET, Address, service_account

from .stands_gcp import GcpStand

L4, T4 = "g2-standard-4@us-central1-a", "n1-standard-4+nvidia-tesla-t4@us-central1-a"
CONFIG = "version: v1alpha1\nmachine: {}\n"
IMAGE = "projects/tgp-sandbox/global/images/family/tgp-talos"


def refused(stand: GcpStand, **changes: t.Any) -> errors.LaunchRefused:
    with pytest.raises(errors.LaunchRefused) as caught:
        stand.cloud().launch(stand.request(**changes))
    assert stand.world.machines == {}
    return caught.value


# ---- whose key it is


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": "withdrawn"}, ("Invalid JWT Signature", "make a new key")),
        (
            {"contents": service_account(email="gone@tgp-sandbox.iam.gserviceaccount.com")},
            ("account not found", "deleted or disabled"),
        ),
    ],
)
def test_a_key_that_is_not_accepted_says_why(gcp_stand: GcpStand, change: dict[str, t.Any], words: tuple[str, ...]) -> None:
    with pytest.raises(errors.Unauthorized) as caught:
        gcp_stand.cloud(**change).check()
    assert all(word in str(caught.value) for word in words) and "GCP_SERVICE_ACCOUNT_FILE" in str(caught.value)


def test_a_wrong_clock_is_named(gcp_stand: GcpStand, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = client_account.assertion
    monkeypatch.setattr(
        client_account, "assertion", lambda account, now, scope: signed(account, now.replace(year=now.year - 1), scope)
    )
    with pytest.raises(errors.Unauthorized, match="clock of this machine is wrong"):
        gcp_stand.cloud().check()


@pytest.mark.parametrize(
    ("switch", "project", "words"),
    [
        ({"rights": False}, "", "permission"),
        ({"enabled": False}, "", "disabled"),
        ({}, "somebody-else", "is of project tgp-sandbox"),
    ],
)
def test_a_project_without_rights_api_or_access_is_told(
    gcp_stand: GcpStand, switch: dict[str, bool], project: str, words: str
) -> None:
    gcp_stand.account.turn(switch)
    with pytest.raises(errors.Forbidden) as caught:
        gcp_stand.cloud(project=project).check()
    assert words in str(caught.value) and "Compute Instance Admin" in str(caught.value)


def test_a_token_is_kept_for_its_hour_and_fetched_anew_when_it_is_refused(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    cloud.instances()
    before = len(gcp_stand.account.tokens)
    cloud.instances()
    assert len(gcp_stand.account.tokens) == before
    gcp_stand.account.tokens.clear()
    assert cloud.instances() == [] and len(gcp_stand.account.tokens) == 1
    gcp_stand.world.clock.advance(3600)
    cloud.instances()
    assert len(gcp_stand.account.tokens) == 2


def test_the_key_itself_is_never_sent(gcp_stand: GcpStand) -> None:
    seen: list[str] = []
    inner = gcp_stand.transport()

    class Seen(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            seen.append(f"{request.url} {dict(request.headers)} {request.read().decode()}")
            return inner.handle_request(request)

    gcp_stand.transport = lambda _url="": Seen()  # type: ignore[assignment,misc,return-value]
    gcp_stand.cloud().launch(gcp_stand.request())
    assert seen and not any("PRIVATE" in text for text in seen)


# ---- what is offered


def test_offers_are_whole_GPUs_by_zone_on_demand_and_spot(gcp_stand: GcpStand) -> None:
    found = {offer.id: offer for offer in gcp_stand.cloud().offers()}
    kinds = {L4, "g2-standard-4@us-central1-b", T4, "a2-ultragpu-1g@europe-west4-a", "a3-ultragpu-8g@us-east1-b"}
    assert set(found) == kinds | {f"{one}:spot" for one in kinds}
    offer, spot = found[L4], found[f"{L4}:spot"]
    assert (offer.model, offer.gpu_count, offer.gpu_memory_mib, offer.region) == ("L4", 1, 24 * 1024, "us-central")
    assert offer.price_hour == Decimal("0.7068") + disk_hour(64) and offer.price_estimated
    assert spot.spot and spot.price_hour == Decimal("0.7068") * Decimal("0.4") + disk_hour(64)
    assert {offer.lanes for offer in found.values()} == {(Lane.KUBELET,)}
    assert found["a2-ultragpu-1g@europe-west4-a"].price_hour is None, "the table is of three regions"
    assert all(offer.available is None for offer in found.values())
    assert gcp_stand.cloud(talos_image=IMAGE).offers()[0].lanes == (Lane.TALOS, Lane.KUBELET)


def test_a_fraction_is_named_with_its_reason(gcp_stand: GcpStand) -> None:
    told: list[str] = []
    assert gcp_stand.cloud(warn=told.append).offers(OfferQuery(models=("RTXPRO6000",))) == []
    assert len(told) == 1 and "g4-standard-12" in told[0] and "fraction" in told[0]


@pytest.mark.parametrize(
    ("quotas", "quota"),
    [({"gpus_all_regions": 0}, "GPUS_ALL_REGIONS"), ({"gpus_per_region": 0}, "NVIDIA_L4_GPUS in us-central1")],
)
def test_a_quota_of_zero_is_told_before_anything_is_made(gcp_stand: GcpStand, quotas: dict[str, int], quota: str) -> None:
    gcp_stand.account.turn(quotas)
    told: list[str] = []
    found = gcp_stand.cloud(warn=told.append).offers(OfferQuery(models=("L4",)))
    assert {offer.available for offer in found} == {0} and any(quota in text for text in told)
    warnings = gcp_stand.cloud().check().warnings
    assert any("GPUS_ALL_REGIONS" in text for text in warnings) is (quota == "GPUS_ALL_REGIONS")


def test_zones_are_chosen_and_an_unknown_one_is_named(gcp_stand: GcpStand) -> None:
    assert {offer.cloud_region for offer in gcp_stand.cloud(zones=("us-east1",)).offers()} == {"us-east1-b"}
    for verb in ("offers", "check"):
        with pytest.raises(errors.InvalidInput, match="no zone or region 'us-centrall1'") as caught:
            getattr(gcp_stand.cloud(zones=("us-centrall1",)), verb)()
        assert "us-central1" in caught.value.remedy
    assert refused(gcp_stand, settings={"zones": ["us-east1-b"]}).reason == "invalid"


# ---- making one


def test_what_is_sent_and_found_again(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    marks = {"cluster": "a1b2c3d4", "pool": "Default/x_" + "y" * 60, "nonce": "tgp-a1b2c3d4-train-0k3zq"}
    made = cloud.launch(gcp_stand.request(offer_id=T4, user_data="#cloud-config\nä: 1\n", marks=marks))
    machine = gcp_stand.world.machines[made]
    assert machine.payload == "#cloud-config\nä: 1\n" and machine.details["system"] == "ubuntu"
    seen = cloud.instance(made)
    assert seen is not None and seen.marks == marks and seen.created is not None
    assert (seen.instance_type, seen.model, seen.gpu_count) == ("n1-standard-4+nvidia-tesla-t4", "T4", 1)
    assert seen.price_hour == machine.price_hour and seen.disk_gib == 64
    gcp_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    assert (up := cloud.instance(made)) is not None and up.ip.startswith("198.18.") and up.private_ip.startswith("10.128.")


def test_an_operation_that_is_done_with_an_error_made_nothing(gcp_stand: GcpStand) -> None:
    for at_once in (False, True):
        gcp_stand.account.errors_at_once = at_once
        error = refused(gcp_stand, offer_id="g2-standard-4@us-central1-b")
        assert (error.reason, "ZONE_RESOURCE_POOL_EXHAUSTED" in str(error)) == ("capacity", True)


@pytest.mark.parametrize(("quota", "reason"), [("gpus_all_regions", "quota"), ("gpus_per_region", "capacity")])
def test_L14_a_quota_of_a_region_leaves_the_other_regions(gcp_stand: GcpStand, quota: str, reason: str) -> None:
    request = gcp_stand.request()
    gcp_stand.account.turn({quota: 0})
    with pytest.raises(errors.LaunchRefused, match="QUOTA_EXCEEDED") as caught:
        gcp_stand.cloud().launch(request)
    assert caught.value.reason == reason and "Quotas & System Limits" in caught.value.remedy and gcp_stand.world.machines == {}


def test_L2_a_create_call_that_is_repeated_makes_one_machine(gcp_stand: GcpStand) -> None:
    """By the id of the request; after that is forgotten, by the name; and a machine of somebody else's with the name is not taken for ours."""
    request = gcp_stand.request(marks={"nonce": "tgp-a1b2c3d4-train-0k3zq", "created": "1795000000"})
    gcp_stand.faults.add({"kind": "lost_after", "method": "POST", "path": gcp_stand.create_path, "times": 1})
    with pytest.raises(errors.LaunchUnknown):
        gcp_stand.cloud().launch(request)
    made = gcp_stand.cloud().launch(request)
    assert gcp_stand.cloud().launch(dataclasses.replace(request, marks={**request.marks, "created": "1795000999"})) == made
    assert len(gcp_stand.world.machines) == 1
    with pytest.raises(errors.LaunchRefused) as caught:
        gcp_stand.cloud().launch(dataclasses.replace(request, marks={"nonce": "other"}))
    assert caught.value.reason == "conflict"


def test_another_attempt_is_not_answered_with_the_failure_of_the_first(gcp_stand: GcpStand) -> None:
    request = gcp_stand.request(marks={"created": "1795000000"})
    offer = next(one for one in gcp_stand.world.offers if one.type == "g2-standard-4" and one.region == "us-central1-a")
    offer.stock = 0
    with pytest.raises(errors.LaunchRefused):
        gcp_stand.cloud().launch(request)
    offer.stock = 1
    assert gcp_stand.cloud().launch(dataclasses.replace(request, marks={"created": "1795000600"}))


def test_a_slow_or_unreadable_operation_is_of_a_machine_that_exists(gcp_stand: GcpStand) -> None:
    gcp_stand.account.operation_seconds = 1e6
    slow = gcp_stand.cloud().launch(gcp_stand.request())
    gcp_stand.faults.add({"kind": "status", "path": "/operations/", "status": 502, "times": None})
    unread = gcp_stand.cloud().launch(gcp_stand.request(name="tgp-a1b2c3d4-train-unread"))
    assert set(gcp_stand.world.machines) == {slow, unread}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user_data": "#" + "x" * 262_144}, "262145 bytes"),
        ({"user_data": CONFIG}, "no image of Talos"),
        ({"name": "0-not-a-name"}, "cannot be the name of a machine"),
        ({"max_price_hour": Decimal("0.10")}, "more than 0.10"),
    ],
)
def test_what_is_refused_before_it_is_sent(gcp_stand: GcpStand, changes: dict[str, t.Any], words: str) -> None:
    error = refused(gcp_stand, **changes)
    assert error.reason == "invalid" and words in str(error)


def test_a_rate_limit_is_a_403_with_a_reason_and_reads_are_repeated(gcp_stand: GcpStand) -> None:
    request = gcp_stand.request()
    entry = {"reason": "rateLimitExceeded", "domain": "usageLimits", "message": "Rate Limit Exceeded"}
    body = {"error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [entry]}}
    rule = gcp_stand.faults.add({"kind": "status", "status": 403, "body": body, "path": "/aggregated/instances", "times": 2})
    assert gcp_stand.cloud().instances() == [] and rule.hits == 2
    gcp_stand.faults.add(
        {"kind": "status", "status": 403, "body": body, "method": "POST", "path": gcp_stand.create_path, "times": None}
    )
    with pytest.raises(errors.LaunchRefused) as caught:
        gcp_stand.cloud().launch(request)
    assert caught.value.reason == "rate" and gcp_stand.world.machines == {}


# ---- lists


def test_pages_are_followed_and_a_zone_that_was_not_reached_spoils_the_list(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = {cloud.launch(gcp_stand.request(name=f"tgp-a1b2c3d4-train-0000{number}")) for number in range(3)}
    gcp_stand.account.page_size = 2
    assert {one.id for one in cloud.instances()} == made
    warning = {"code": "UNREACHABLE", "message": "The scope could not be reached."}
    body = {"kind": "compute#instanceAggregatedList", "items": {"zones/us-central1-a": {"warning": warning}}}
    gcp_stand.faults.add({"kind": "body", "path": gcp_stand.list_path, "body": body, "times": None})
    with pytest.raises(errors.BadShape, match="UNREACHABLE"):
        cloud.instances()


def test_only_a_404_that_names_the_machine_means_gone(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = cloud.launch(gcp_stand.request())
    assert cloud.instance("us-central1-a/tgp-nobody") is None
    with pytest.raises(errors.NotFound):
        cloud.instance("mars-north1-a/tgp-nobody")
    assert cloud.instance(made) is not None


# ---- states and ends


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("REPAIRING", InstanceState.PENDING),
        ("SUSPENDED", InstanceState.STOPPED),
        ("STOPPING", InstanceState.TERMINATING),
        ("A NEW WORD", InstanceState.UNKNOWN),
    ],
)
def test_states(gcp_stand: GcpStand, status: str, state: InstanceState) -> None:
    gcp_stand.faults.add({"kind": "body", "path": "/instances/", "body": {"name": "tgp-x", "status": status}})
    seen = gcp_stand.cloud().instance("us-central1-a/tgp-x")
    assert seen is not None and seen.state is state and not seen.gone


def test_a_stopped_machine_is_not_gone_and_its_disk_is_billed(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = cloud.launch(gcp_stand.request())
    cloud.api.call("POST", f"/zones/us-central1-a/instances/{made.partition('/')[2]}/stop")
    seen = cloud.instance(made)
    assert seen is not None and (seen.state, seen.raw_state, seen.halted) == (InstanceState.STOPPED, "TERMINATED", True)
    assert seen.storage_price_hour == gcp_stand.world.machines[made].rate() > 0 and "disk is billed" in seen.problem


def test_a_spot_machine_is_preempted_and_leaves_nothing(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = cloud.launch(gcp_stand.request(offer_id=f"{L4}:spot"))
    machine = gcp_stand.world.machines[made]
    assert (seen := cloud.instance(made)) is not None and seen.spot and seen.price_hour == machine.price_hour
    gcp_stand.world.on_taken["gcp"](machine)
    gcp_stand.wait_for(cloud, made, {None})
    assert gcp_stand.account.disks == {} and gcp_stand.billed() == 0


def test_a_machine_that_everybody_forgot_ends_by_itself(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = cloud.launch(gcp_stand.request(settings={"maxRunHours": 2}))
    machine = gcp_stand.world.machines[made]
    gcp_stand.world.clock.advance(3 * 3600)
    assert cloud.instance(made) is None and machine.ended is not None
    assert (machine.ended - machine.created).total_seconds() == 7200 and gcp_stand.account.disks == {}


def test_a_disk_that_stays_and_an_address_are_found_and_removed(gcp_stand: GcpStand) -> None:
    cloud, account = gcp_stand.cloud(), gcp_stand.account
    account.keep_disks = True
    made = cloud.launch(gcp_stand.request())
    name, now = made.partition("/")[2], gcp_stand.world.clock.now()
    account.addresses += [Address("us-central1", name, "198.18.9.9", now), Address("us-central1", "bastion", "198.18.9.8", now)]
    disk = Extra("gcp", "disk", made, name)
    assert [one.kind for one in cloud.extras()] == ["address"]
    with pytest.raises(errors.Conflict):
        cloud.discard(disk)
    cloud.terminate(made)
    gcp_stand.wait_for(cloud, made, {None})
    found = cloud.extras()
    assert [dataclasses.replace(one, created=None) for one in found] == [disk, Extra("gcp", "address", f"us-central1/{name}", name)]
    for extra in [*found, *found]:
        cloud.discard(extra)
    assert account.disks == {} and [one.name for one in account.addresses] == ["bastion"] and cloud.extras() == []


# ---- user data


def test_user_data_is_removed_and_the_rest_of_the_metadata_stays(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    made = cloud.launch(gcp_stand.request(user_data="#cloud-config\n"))
    machine = gcp_stand.world.machines[made]
    machine.details["metadata"].append({"key": "team", "value": "ml"})
    error = {"error": {"code": 412, "message": "The fingerprint does not match.", "errors": [{"reason": "conditionNotMet"}]}}
    rule = gcp_stand.faults.add({"kind": "status", "status": 412, "body": error, "path": "/setMetadata", "times": 1})
    cloud.erase_user_data(made)
    assert machine.details["metadata"] == [{"key": "team", "value": "ml"}] and rule.hits == 1
    writes = len(gcp_stand.world.writes)
    cloud.erase_user_data(made)
    cloud.erase_user_data("us-central1-a/tgp-nobody")
    assert len(gcp_stand.world.writes) == writes


# ---- lane talos


def test_an_image_opens_lane_talos_and_is_booted_by_machine_configurations_only(gcp_stand: GcpStand) -> None:
    settings, cloud = {"talosImage": IMAGE}, gcp_stand.cloud(talos_image=IMAGE)
    assert refused(gcp_stand, settings=settings, user_data=CONFIG).reason == "invalid"
    with pytest.raises(errors.NotFound, match="tgp-talos"):
        cloud.check()
    gcp_stand.account.images["tgp-talos"] = "ab" * 32
    cloud.check()
    talos = cloud.launch(gcp_stand.request(name="tgp-a1b2c3d4-train-talos", settings=settings, user_data=CONFIG))
    ubuntu = cloud.launch(gcp_stand.request(name="tgp-a1b2c3d4-train-linux", settings=settings, user_data="#cloud-config\n"))
    machines = gcp_stand.world.machines
    assert (machines[talos].details["system"], machines[talos].payload) == ("talos", CONFIG)
    assert machines[ubuntu].details["system"] == "ubuntu"


def test_a_key_that_was_withdrawn_ends_its_tokens(gcp_stand: GcpStand) -> None:
    cloud = gcp_stand.cloud()
    cloud.instances()
    gcp_stand.world.secrets[SECRET] = "revoked-" + gcp_stand.world.secrets[SECRET]
    with pytest.raises(errors.Unauthorized):
        cloud.instances()
