# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to Paperspace."""

from __future__ import annotations

import dataclasses
import random
import string
import typing as t
from decimal import Decimal

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import Container, Extra, InstanceState, Lane, OfferQuery
from ansible_collections.tgp.gpu.plugins.modules import paperspace_machine

from sandbox.paperspace_account import StaticIP

from .stands import KEY
from .stands_paperspace import PaperspaceStand
from .test_modules import call

NAME = "tgp-demo"
NODE = "tgp-a1b2c3d4-train-0k3zq"
SCRIPT = "#!/bin/bash\nbase64 -d <<'TGP' | gzip -dc >/run/tgp-payload\nH4sIA\nTGP\n"


def error(code: str, message: str = "no") -> dict[str, t.Any]:
    return {"code": code, "message": message}


def names(stand: PaperspaceStand) -> list[str]:
    """Startup scripts and networks that are left."""
    things = [*stand.account.scripts.values(), *stand.account.networks.values()]
    return sorted(one.name for one in things if one.deleted is None)


# ---- the account


def test_check_says_team_and_machines(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    cloud.launch(paperspace_stand.request())
    seen = cloud.check()
    assert "1 machine of at most 20" in seen.sentence and seen.warnings == ()


def test_a_session_of_null_is_a_bad_key(paperspace_stand: PaperspaceStand) -> None:
    for body in (None, {"user": {"id": "u"}, "team": None}, {"user": {"id": "u"}, "team": {"id": "t"}}):
        paperspace_stand.faults.clear()
        text = "null" if body is None else body
        paperspace_stand.faults.add({"kind": "status", "path": "/auth/session", "status": 200, "body": text})
        with pytest.raises(errors.Unauthorized, match="PAPERSPACE_API_KEY"):
            paperspace_stand.cloud().check()


@pytest.mark.parametrize("what", ["admin_locked", "good_standing"])
def test_an_account_that_may_create_nothing_fails_the_check(paperspace_stand: PaperspaceStand, what: str) -> None:
    setattr(paperspace_stand.account.switches, what, what == "admin_locked")
    with pytest.raises(errors.InvalidInput, match="may create nothing"):
        paperspace_stand.cloud().check()


def test_what_will_hurt_later_is_a_warning(paperspace_stand: PaperspaceStand) -> None:
    cloud, switches = paperspace_stand.cloud(), paperspace_stand.account.switches
    cloud.launch(paperspace_stand.request())
    switches.payment_method, switches.max_machines = False, 1
    first, second = cloud.check().warnings
    assert "payment method" in first and "every launch will be refused" in second


def test_an_account_without_standing_is_checked_all_the_same(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.faults.add({"kind": "status", "path": "account-standing", "status": 404, "body": error("NOT_FOUND")})
    assert paperspace_stand.cloud().check().warnings == ()


# ---- offers


def test_types_come_from_the_templates_and_prices_from_our_list(paperspace_stand: PaperspaceStand) -> None:
    offers = {one.id: one for one in paperspace_stand.cloud().offers()}
    assert "GPU+@ny2" not in offers  # no driver knows it
    a4000 = offers["A4000@ny2"]
    assert (a4000.model, a4000.gpu_count, a4000.gpu_memory_mib, a4000.disk_gib) == ("A4000", 1, 16384, 100)
    assert (a4000.price_hour, a4000.storage_price_hour, a4000.price_estimated) == (Decimal("0.7737"), Decimal("0.0137"), True)
    assert (a4000.region, a4000.cloud_region, a4000.spot) == ("us-east", "ny2", False)
    assert {one.cloud_region for one in offers.values() if one.instance_type == "A4000"} == {"ny2", "ca1", "ams1"}
    assert {one.cloud_region for one in offers.values() if one.instance_type == "A4000x2"} == {"ny2"}
    assert offers["A100-80Gx8@ny2"].gpu_count == 8 and offers["A100-80Gx8@ny2"].gpu_memory_mib == 80 * 1024
    assert offers["A100@ny2"].price_hour is None and offers["A100@ny2"].price_estimated
    assert (offers["C5@ny2"].gpu_count, offers["C5@ny2"].model) == (0, "")


def test_disks_come_in_steps_and_are_part_of_the_price(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    for wanted, sold, price in ((50, 50, "0.0068"), (51, 100, "0.0137"), (400, 500, "0.0685")):
        offer = next(one for one in cloud.offers(OfferQuery(disk_gib=wanted)) if one.id == "A4000@ny2")
        assert (offer.disk_gib, offer.price_hour) == (sold, Decimal("0.76") + Decimal(price))
    assert cloud.offers(OfferQuery(disk_gib=16_001)) == []


def test_capacity_is_asked_for_what_is_wanted(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    query = OfferQuery(models=("A5000", "A4000"), gpu_counts=(1,))
    offers = {one.id: one.available for one in cloud.offers(query)}
    assert (offers["A4000@ny2"], offers["A4000@ca1"], offers["A5000@ca1"], offers["A5000@ny2"]) == (None, 0, 0, 0)
    assert offers["P4000@ny2"] is None  # was not asked for
    assert paperspace_stand.world.calls["paperspace"] == 1 + 5


def test_without_a_call_for_capacity_the_launch_tells(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.account.switches.availability = False
    offers = paperspace_stand.cloud().offers()
    assert offers and {one.available for one in offers} == {None}
    assert paperspace_stand.world.calls["paperspace"] == 2


def test_questions_that_are_pointless_are_not_asked(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    assert cloud.offers(OfferQuery(spot=True)) == [] == cloud.offers(OfferQuery(lanes=(Lane.SERVICE,)))
    assert paperspace_stand.world.calls == {}


def test_template_and_region_of_the_class_narrow_the_offers(paperspace_stand: PaperspaceStand) -> None:
    offers = paperspace_stand.cloud(template="tilqt47t", region="ny2").offers()
    assert [one.id for one in offers] == ["H100@ny2"]
    assert {one.cloud_region for one in paperspace_stand.cloud(region="ca1").offers()} == {"ca1"}


@pytest.mark.parametrize("template", [[], {"name": "x"}, {"id": "t1", "availableMachineTypes": "all"}])
def test_templates_of_which_none_can_be_read_are_no_empty_market(paperspace_stand: PaperspaceStand, template: t.Any) -> None:
    paperspace_stand.faults.add({"kind": "body", "path": "/os-templates", "body": {"hasMore": False, "items": [template]}})
    with pytest.raises(errors.BadShape):
        paperspace_stand.cloud().offers()


# ---- launch


def test_script_first_then_the_machine(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request(user_data=SCRIPT))
    machine, (script,) = paperspace_stand.world.machines[made], paperspace_stand.account.scripts.values()
    assert [path for _when, _service, path in paperspace_stand.world.writes] == ["POST /v1/startup-scripts", "POST /v1/machines"]
    assert (script.text, script.run_once, script.machines) == (SCRIPT, True, [made])
    assert script.name.startswith(f"{NODE}.tgp-") and machine.payload == SCRIPT
    facts = machine.details
    assert (facts["template"], facts["disk_gb"], facts["ip_type"], facts["network"], facts["nvlink"]) == (
        "t0nspur5",
        100,
        "dynamic",
        None,
        False,
    )
    assert paperspace_stand.account.password_mails == []
    seen = cloud.instance(made)
    assert seen is not None
    assert (seen.name, seen.price_hour, seen.storage_price_hour) == (NODE, Decimal("0.7737"), Decimal("0.0137"))
    assert (seen.region, seen.instance_type, seen.model, seen.gpu_count, seen.marks) == ("ny2", "A4000", "A4000", 1, {})
    assert seen.created is not None and abs((seen.created - machine.created).total_seconds()) < 5


def test_types_of_eight_have_their_template_and_nvlink(paperspace_stand: PaperspaceStand) -> None:
    made = paperspace_stand.cloud().launch(paperspace_stand.request(offer_id="A100-80Gx8@ny2"))
    facts = paperspace_stand.world.machines[made].details
    assert (facts["template"], facts["nvlink"]) == ("tvimtol9", True)


def test_a_network_of_its_own_is_made_only_where_it_is_asked_for(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request(settings={"network": "own", "publicIp": "none"}))
    (network,) = paperspace_stand.account.networks.values()
    facts = paperspace_stand.world.machines[made].details
    assert (network.name, network.region, facts["network"], facts["ip_type"]) == (f"{NODE}.tgp", "ny2", network.id, "none")
    second = cloud.launch(paperspace_stand.request(name="tgp-a1b2c3d4-train-0k3zr", settings={"network": network.id}))
    assert paperspace_stand.world.machines[second].details["network"] == network.id
    assert len(paperspace_stand.account.networks) == 1


def test_what_was_made_by_a_lost_answer_is_found_by_name(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.faults.add({"kind": "lost_after", "method": "POST", "path": "/startup-scripts"})
    paperspace_stand.faults.add({"kind": "status_after", "status": 502, "method": "POST", "path": "/private-networks"})
    paperspace_stand.cloud().launch(paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"}))
    assert len(paperspace_stand.account.scripts) == 1 == len(paperspace_stand.account.networks)
    again = paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"})
    paperspace_stand.cloud().launch(again)  # the same name once more, as after a run that was killed
    assert len(paperspace_stand.account.scripts) == 1 == len(paperspace_stand.account.networks)


def test_what_only_begins_with_our_name_is_not_taken_for_ours(paperspace_stand: PaperspaceStand) -> None:
    """The filter of names finds what contains the text, also among scripts and networks."""
    request = paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"})
    paperspace_stand.cloud().launch(request)
    (script,), (network,) = paperspace_stand.account.scripts.values(), paperspace_stand.account.networks.values()
    script.name, network.name = f"{script.name}-0", f"{network.name}-0"
    made = paperspace_stand.cloud().launch(request)
    scripts, networks = paperspace_stand.account.scripts, paperspace_stand.account.networks
    assert len(scripts) == 2 == len(networks)
    assert paperspace_stand.world.machines[made].details["network"] != network.id and made not in script.machines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Not_A_Host"}, "host name"),
        ({"user_data": "x" * 16_001}, "16001 bytes"),
        ({"environment": {"A": "b"}}, "container"),
        ({"container": Container("image")}, "container"),
        ({"max_price_hour": Decimal("0.77")}, "0.7737"),
        ({"settings": {"region": "ca1"}}, "ca1"),
        ({"settings": {"flavour": "x"}}, "flavour"),
    ],
)
def test_what_cannot_work_is_refused_before_the_call(paperspace_stand: PaperspaceStand, change: t.Any, words: str) -> None:
    request = dataclasses.replace(paperspace_stand.request(), **change)
    with pytest.raises(errors.LaunchRefused, match=words) as caught:
        paperspace_stand.cloud().launch(request)
    assert caught.value.reason == "invalid" and caught.value.remedy
    assert not paperspace_stand.world.writes


def test_a_type_without_an_ubuntu_template_is_not_guessed(paperspace_stand: PaperspaceStand) -> None:
    request = paperspace_stand.request()
    paperspace_stand.account.templates = [one for one in paperspace_stand.account.templates if one["agentType"] != "LinuxHeadless"]
    with pytest.raises(errors.LaunchRefused, match="templateId"):
        paperspace_stand.cloud().launch(request)
    assert not paperspace_stand.world.writes


# ---- refusals (L-14)


def test_L14_a_refused_machine_leaves_neither_script_nor_network(paperspace_stand: PaperspaceStand) -> None:
    request = paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"})
    paperspace_stand.account.switches.max_machines = 0
    with pytest.raises(errors.LaunchRefused, match="limit of 0 machines") as caught:
        paperspace_stand.cloud().launch(request)
    assert caught.value.reason == "quota"
    assert names(paperspace_stand) == [] and len(paperspace_stand.world.writes) == 5


def test_L2_what_an_unknown_machine_may_need_stays(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.faults.add({"kind": "lost_before", "method": "POST", "path": "/machines$"})
    with pytest.raises(errors.LaunchUnknown):
        paperspace_stand.cloud().launch(paperspace_stand.request(user_data=SCRIPT))
    assert len(names(paperspace_stand)) == 1
    assert [one.name for one in paperspace_stand.cloud().extras()] == [NODE]


def test_L14_trouble_before_the_create_call_is_no_unknown_machine(paperspace_stand: PaperspaceStand) -> None:
    request = paperspace_stand.request(user_data=SCRIPT)
    paperspace_stand.faults.add({"kind": "status", "method": "POST", "path": "/startup-scripts", "status": 500, "times": None})
    with pytest.raises(errors.LaunchRefused) as caught:
        paperspace_stand.cloud().launch(request)
    assert caught.value.reason == "rate" and paperspace_stand.billed() == 0


def test_L14_types_that_need_approval_are_a_matter_of_quota(paperspace_stand: PaperspaceStand) -> None:
    request = paperspace_stand.request()
    paperspace_stand.account.switches.needs_approval = ["A4000"]
    with pytest.raises(errors.LaunchRefused) as caught:
        paperspace_stand.cloud().launch(request)
    assert caught.value.reason == "quota"


def test_L14_the_firewall_is_named(paperspace_stand: PaperspaceStand) -> None:
    request = paperspace_stand.request(user_data="#!/bin/bash\ncurl https://x.example/run.sh | bash\n")
    with pytest.raises(errors.LaunchRefused, match="web firewall in front of Paperspace") as caught:
        paperspace_stand.cloud().launch(request)
    assert caught.value.reason == "auth" and paperspace_stand.billed() == 0


REFUSED, UNKNOWN = errors.LaunchRefused, errors.LaunchUnknown


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (400, error("BAD_REQUEST", "A4000 machines are out of stock"), REFUSED, "capacity"),
        (412, error("PRECONDITION_FAILED", "Insufficient capacity, try again"), REFUSED, "capacity"),
        (403, error("FORBIDDEN", "This type is currently Unavailable"), REFUSED, "capacity"),
        (400, error("BAD_REQUEST", "machine limit reached"), REFUSED, "quota"),
        (403, error("FORBIDDEN", "no quota for this type"), REFUSED, "quota"),
        (403, error("FORBIDDEN", "add a payment method"), REFUSED, "balance"),
        (403, error("FORBIDDEN"), REFUSED, "auth"),
        (401, error("UNAUTHORIZED"), REFUSED, "auth"),
        (403, "<html>error code: 1008</html>", REFUSED, "auth"),
        (400, error("BAD_REQUEST", "Invalid machine type"), REFUSED, "invalid"),
        (404, error("NOT_FOUND", "Template not found"), REFUSED, "invalid"),
        (409, error("CONFLICT"), REFUSED, "conflict"),
        (429, error("TOO_MANY_REQUESTS"), REFUSED, "rate"),
        (200, error("BAD_REQUEST", "Invalid machine type"), REFUSED, "invalid"),
        (200, {**error("PRECONDITION_FAILED", "no capacity"), "details": {}}, REFUSED, "capacity"),
        (200, error("UNAUTHORIZED"), REFUSED, "auth"),
        (200, error("INTERNAL_SERVER_ERROR"), UNKNOWN, None),
        (408, error("TIMEOUT"), UNKNOWN, None),
        (499, error("CLIENT_CLOSED_REQUEST"), UNKNOWN, None),
        (400, "<html>proxy</html>", UNKNOWN, None),
        (302, None, UNKNOWN, None),
        (500, error("INTERNAL_SERVER_ERROR", "no capacity"), UNKNOWN, None),
        (503, None, UNKNOWN, None),
        (200, {"data": {}}, UNKNOWN, None),
        (200, {"data": None}, UNKNOWN, None),
        (200, "<html>", UNKNOWN, None),
    ],
)
def test_L14_answers_to_a_launch(
    paperspace_stand: PaperspaceStand, status: int, body: t.Any, kind: type, reason: str | None
) -> None:
    request = paperspace_stand.request()
    fault = {"kind": "status", "method": "POST", "path": "/machines$", "status": status, "body": body, "times": None}
    paperspace_stand.faults.add(fault)
    with pytest.raises(kind) as caught:
        paperspace_stand.cloud().launch(request)
    assert getattr(caught.value, "reason", None) == reason
    assert paperspace_stand.faults.all()[0].hits == 1


def test_L14_issues_of_a_body_are_told(paperspace_stand: PaperspaceStand) -> None:
    body = {**error("BAD_REQUEST", "Input validation failed"), "issues": [{"message": "Invalid region"}]}
    paperspace_stand.faults.add({"kind": "status", "method": "POST", "path": "/machines$", "status": 400, "body": body})
    with pytest.raises(errors.LaunchRefused, match="Input validation failed; Invalid region"):
        paperspace_stand.cloud().launch(paperspace_stand.request())


# ---- failures live in events


@pytest.mark.parametrize("where", ["off", "provisioning"])
def test_a_machine_without_capacity_fails_by_its_event(paperspace_stand: PaperspaceStand, where: str) -> None:
    switches = paperspace_stand.account.switches
    switches.no_capacity, switches.availability = where, False
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request(offer_id="A5000@ca1", user_data=SCRIPT))
    paperspace_stand.wait_for(cloud, made, {InstanceState.FAILED})
    (seen,) = cloud.instances()
    assert (seen.state, seen.raw_state) == (InstanceState.FAILED, where) and "insufficient capacity" in seen.problem
    assert not seen.gone and paperspace_stand.billed() == 1  # its disk
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})
    assert paperspace_stand.billed() == 0


def test_off_is_stopped_when_somebody_stopped_it_and_failed_when_nobody_did(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    paperspace_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    cloud._stop(f"/machines/{made}")
    paperspace_stand.wait_for(cloud, made, {InstanceState.STOPPED})
    for _look in range(3):
        seen = cloud.instance(made)
        assert seen is not None and seen.state is InstanceState.STOPPED and seen.problem == ""
    other = cloud.launch(paperspace_stand.request(name="tgp-a1b2c3d4-train-0k3zr"))
    paperspace_stand.wait_for(cloud, other, {InstanceState.RUNNING})
    cloud._calls.get("/machine-events", machineId=other)  # the world notes that it came up
    paperspace_stand.world.machines[other].state = "stopped"
    first, second = cloud.instance(other), cloud.instance(other)
    assert first is not None and first.state is InstanceState.STOPPED
    assert second is not None and second.state is InstanceState.FAILED and "nobody switched it off" in second.problem


def test_a_failed_deletion_is_told_and_repeated(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.account.switches.delete_fails = 1
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    cloud.terminate(made)
    seen = cloud.instance(made)
    assert seen is not None and paperspace_stand.billed() == 1
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})


def test_a_machine_that_is_being_deleted_is_ending(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    paperspace_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    paperspace_stand.world.clock.run_at(1.0)  # else it may be gone between the two looks, at the machine and at its event
    cloud.terminate(made)
    seen = cloud.instance(made)
    assert seen is not None and seen.state is InstanceState.TERMINATING


# ---- reading machines


def test_the_list_is_read_to_its_end(paperspace_stand: PaperspaceStand) -> None:
    cloud, request = paperspace_stand.cloud(), paperspace_stand.request()
    paperspace_stand.account.switches.max_machines = 100
    paperspace_stand.world.offers[0].stock = 100
    made = {cloud.launch(dataclasses.replace(request, name=f"render-{number}")) for number in range(60)}
    assert {one.id for one in cloud.instances()} == made


def test_L2_a_machine_that_two_pages_show_is_one(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    item = cloud._calls.get("/machines")["items"][0]
    for page in ({"hasMore": True, "items": [item], "nextPage": "p1"}, {"hasMore": False, "items": [item]}):
        paperspace_stand.faults.add({"kind": "body", "path": r"/machines(\?|$)", "body": page})
    assert [one.id for one in cloud.instances()] == [made]


@pytest.mark.parametrize(
    "page",
    [
        {"hasMore": True, "items": [], "nextPage": "p1"},
        {"hasMore": "no", "items": []},
        {"hasMore": False, "items": {}},
        {"items": []},
        {"hasMore": True, "items": [], "nextPage": 7},
    ],
)
def test_pages_that_cannot_be_followed_are_no_end(paperspace_stand: PaperspaceStand, page: t.Any) -> None:
    paperspace_stand.faults.add({"kind": "body", "path": "/machines", "body": page, "times": None})
    with pytest.raises(errors.BadShape):
        paperspace_stand.cloud().instances()


def test_more_without_a_next_page_is_the_end(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.faults.add({"kind": "body", "path": "/machines", "body": {"hasMore": True, "items": []}})
    assert paperspace_stand.cloud().instances() == []


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("provisioning", InstanceState.PENDING),
        ("serviceready", InstanceState.RUNNING),
        ("ready", InstanceState.RUNNING),
        ("upgrading", InstanceState.PENDING),
        ("off", InstanceState.STOPPED),
        ("running", InstanceState.UNKNOWN),
    ],
)
def test_states_and_tolerant_reading(paperspace_stand: PaperspaceStand, word: str, state: InstanceState) -> None:
    item = {"id": "ps1", "state": word, "region": "East Coast (NY2)", "accelerators": None, "usageRate": None, "dtDeleted": None}
    paperspace_stand.faults.add({"kind": "body", "path": "/machines", "body": {"hasMore": False, "items": [item]}})
    (one,) = paperspace_stand.cloud().instances()
    assert (one.state, one.raw_state, one.region, one.price_hour, one.created) == (state, word, "ny2", None, None)


def test_deleted_machines_may_still_be_shown(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.account.switches.deleted_shown = True
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})
    assert cloud.instances() == []


def test_a_404_proves_absence_only_from_the_api(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    paperspace_stand.faults.add({"kind": "status", "path": "/machines/", "status": 404, "body": "<html>", "times": 2})
    with pytest.raises(errors.NotFound):
        cloud.instance(made)
    with pytest.raises(errors.NotFound):
        cloud.terminate(made)
    assert paperspace_stand.billed() == 1


def test_errors_under_status_200_are_errors(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.account.switches.errors_as_200 = True
    cloud = paperspace_stand.cloud()
    assert cloud.instance("psnone") is None
    cloud.terminate("psnone")
    with pytest.raises(errors.Unauthorized):
        paperspace_stand.cloud(key="secret_wrong_ffffffffffffffffffff").instances()


def test_calls_stay_within_two_a_second(paperspace_stand: PaperspaceStand) -> None:
    cloud, clock = paperspace_stand.cloud(), paperspace_stand.world.clock
    start = clock.seconds()
    for _turn in range(40):
        cloud.instances()
    assert paperspace_stand.world.calls["paperspace"] == 40 and clock.seconds() - start >= 19


# ---- the end of a machine, and what stays beside it


@pytest.mark.parametrize("status", [400, 409, 412])
@pytest.mark.parametrize("when", ["delete_while_on", "delete_while_starting"])
def test_a_machine_that_must_be_off_is_stopped_first(paperspace_stand: PaperspaceStand, when: str, status: int) -> None:
    setattr(paperspace_stand.account.switches, when, status)
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    if when == "delete_while_on":
        paperspace_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})
    assert paperspace_stand.billed() == 0


def test_what_takes_too_long_is_left_to_the_next_call(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request())
    rule = {"kind": "status", "status": 412, "method": "DELETE", "path": "/machines/", "body": error("PRECONDITION_FAILED")}
    paperspace_stand.faults.add({**rule, "times": None})
    rule = {"kind": "body", "method": "PATCH", "path": "/stop", "body": {"data": {}, "event": {}}, "times": None}
    paperspace_stand.faults.add(rule)
    with pytest.raises(errors.Conflict, match="next call goes on"):
        cloud.terminate(made)
    paperspace_stand.faults.clear()
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})


def test_what_is_ours_beside_machines_is_found_by_name(paperspace_stand: PaperspaceStand) -> None:
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"}))
    for path, body in (
        ("startup-scripts", {"name": "mine", "script": "x"}),
        ("private-networks", {"name": "lan", "region": "ny2"}),
    ):
        cloud._calls.send("POST", f"/{path}", json=body)
    now = paperspace_stand.world.clock.now()
    paperspace_stand.account.static_ips += [StaticIP("198.51.100.9", "ny2", now, made), StaticIP("198.51.100.10", "ny2", now)]
    found = cloud.extras()
    assert [(one.kind, one.name) for one in found] == [("startup-script", NODE), ("private-network", NODE), ("public-ip", NODE)]
    assert all(one.created is not None for one in found)


@pytest.mark.parametrize("status", [0, 400, 409, 412])
def test_machine_then_script_address_and_network(paperspace_stand: PaperspaceStand, status: int) -> None:
    paperspace_stand.account.switches.script_delete_while_assigned = status
    cloud = paperspace_stand.cloud()
    made = cloud.launch(paperspace_stand.request(user_data=SCRIPT, settings={"network": "own"}))
    paperspace_stand.account.static_ips.append(StaticIP("198.51.100.9", "ny2", paperspace_stand.world.clock.now(), made))
    script, network, address = cloud.extras()
    with pytest.raises(errors.Conflict, match="still in use"):
        cloud.discard(network)
    cloud.discard(script)
    cloud.discard(address)
    cloud.terminate(made)
    paperspace_stand.wait_for(cloud, made, {None})
    cloud.discard(network)
    for extra in (script, network, address):
        cloud.discard(extra)  # gone is gone
    assert cloud.extras() == [] and names(paperspace_stand) == []


def test_unknown_things_are_not_touched(paperspace_stand: PaperspaceStand) -> None:
    with pytest.raises(errors.InvalidInput, match="snapshot"):
        paperspace_stand.cloud().discard(Extra("paperspace", "snapshot", "s1", NODE))


# ---- the module


def machine(stand: PaperspaceStand, **params: t.Any) -> dict[str, t.Any]:
    account = {"paperspace_api_url": stand.base, "paperspace_api_key": KEY}
    return call(paperspace_machine, stand, **{"name": NAME, "machine_type": "A4000", **account, **params})


def test_present_twice_rents_once(paperspace_stand: PaperspaceStand) -> None:
    first = machine(paperspace_stand, startup_script="curl https://x.example/i.sh | bash\n", region="us-east")
    assert first["changed"] and first["instance"]["state"] == "running" and first["instance"]["ip"]
    assert (first["instance"]["price_hour"], first["instance"]["region"]) == ("0.7668", "ny2")
    second = machine(paperspace_stand, startup_script="other", region="East Coast (NY2)")
    assert not second["changed"] and second["instance"]["id"] == first["instance"]["id"]
    assert len(paperspace_stand.world.writes) == 2


@pytest.mark.parametrize("wait", [True, False])
def test_absent_takes_everything_with_it(paperspace_stand: PaperspaceStand, wait: bool) -> None:
    machine(paperspace_stand, startup_script="true", network="own")
    planned = machine(paperspace_stand, state="absent", check=True)
    assert planned["changed"] and paperspace_stand.billed() == 1 and len(names(paperspace_stand)) == 2
    first = machine(paperspace_stand, state="absent", wait=wait)
    assert first["changed"] and first["instance"] is None and paperspace_stand.billed() == 0
    if not wait:
        paperspace_stand.world.clock.advance(60)
        machine(paperspace_stand, state="absent")
    assert names(paperspace_stand) == []
    assert not machine(paperspace_stand, state="absent")["changed"]


def test_check_mode_writes_nothing_and_shows_the_price(paperspace_stand: PaperspaceStand) -> None:
    planned = machine(paperspace_stand, check=True, diff=True, disk_gib=200, startup_script="true")
    assert planned["diff"]["after"] == f"{NAME}: A4000 in ny2, 0.7942 $/h\n"
    assert not paperspace_stand.world.writes


def test_L13_the_price_is_checked_once_it_is_known(paperspace_stand: PaperspaceStand) -> None:
    for offer in paperspace_stand.world.offers:
        offer.price_hour = Decimal("1.30")
    refused = machine(paperspace_stand, max_price_hour="0.80", startup_script="true", wait=False)
    assert refused["failed"] and "1.3068" in refused["msg"]
    assert paperspace_stand.billed() == 0 and names(paperspace_stand) == []


def test_a_machine_without_capacity_is_an_error_with_the_reason(paperspace_stand: PaperspaceStand) -> None:
    paperspace_stand.account.switches.availability = False
    failed = machine(paperspace_stand, machine_type="A5000", region="ca1")
    assert failed["failed"] and "insufficient capacity" in failed["msg"] and failed["instance"]["state"] == "failed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine_type": "A9000"}, "A4000"),
        ({"machine_type": "A5000"}, "sold out"),
        ({"region": "ca1"}, "ny2"),
        ({"max_price_hour": "0.10"}, "0.76"),
        ({"startup_script": "".join(random.Random(1).choices(string.ascii_lowercase, k=40_000))}, "16000"),
        ({"paperspace_api_key": "secret_wrong_0123456789abcdef"}, "PAPERSPACE_API_KEY"),
        ({"name": "No Such Host"}, "host name"),
    ],
)
def test_bad_input_is_refused_before_anything_is_rented(paperspace_stand: PaperspaceStand, change: t.Any, words: str) -> None:
    refused = machine(paperspace_stand, **change)
    assert refused["failed"] and words in refused["msg"]
    assert not paperspace_stand.world.writes and "secret_wrong" not in str(refused)


def test_a_machine_of_another_kind_is_not_taken_for_the_wanted_one(paperspace_stand: PaperspaceStand) -> None:
    machine(paperspace_stand, wait=False, region="ny2")
    for change, words in (({"machine_type": "C5"}, "C5"), ({"region": "eu-west"}, "eu-west")):
        refused = machine(paperspace_stand, **change)
        assert refused["failed"] and words in refused["msg"] and paperspace_stand.billed() == 1


@pytest.mark.parametrize("kind", ["lost_after", "status_after", "truncate"])
def test_L2_a_lost_answer_is_looked_up_by_name(paperspace_stand: PaperspaceStand, kind: str) -> None:
    paperspace_stand.faults.add({"kind": kind, "method": "POST", "path": "/machines$", "status": 504, "times": None})
    made = machine(paperspace_stand)
    assert made["changed"] and made["instance"]["state"] == "running"
    assert paperspace_stand.faults.all()[0].hits == 1 and paperspace_stand.billed() == 1


def test_documentation_and_results_agree(paperspace_stand: PaperspaceStand) -> None:
    documented, result = yaml.safe_load(paperspace_machine.RETURN), machine(paperspace_stand, wait=False)
    assert set(documented) == set(result) - {"changed", "warnings"}
    assert set(result["instance"]) == set(documented["instance"]["contains"])
