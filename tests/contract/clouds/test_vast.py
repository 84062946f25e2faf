# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to Vast.ai: creating, reading and destroying machines."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import Container, InstanceState, Lane, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import priced
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.cloud import FACTS

from tests.fixtures.talos_nodes import make

from .stands_vast import CONTAINER, MANY, NAME, VM, VastStand

PATH_ONE = r"^/api/v0/instances/\d+/$"


def refusal(stand: VastStand, **changes: t.Any) -> errors.LaunchRefused:
    request = stand.request(**changes)
    with pytest.raises(errors.LaunchRefused) as caught:
        stand.cloud().launch(request)
    return caught.value


def spot(stand: VastStand, wanted: str = f"{VM}-bid") -> Offer:
    return priced(stand.offer(wanted, spot=True), Decimal("0.1"), None)


# ---- creating


def test_a_virtual_machine_is_handed_its_whole_payload(vast_stand: VastStand) -> None:
    made = payload(make(lane=Lane.KUBELET), capability=FACTS)
    identity = vast_stand.cloud().launch(vast_stand.request(user_data=made.text, environment=made.environment))
    machine = vast_stand.machine(identity)
    assert (machine.payload, machine.details["system"], machine.details["disk"]) == (made.text, "ubuntu", 69)
    assert made.environment.items() <= machine.details["environment"].items()
    assert machine.details["image"] == "docker.io/vastai/kvm:ubuntu_terminal"
    assert "41641/udp" in machine.details["wanted_ports"]


def test_a_container_runs_its_command_and_opens_no_port(vast_stand: VastStand) -> None:
    wanted = Container(
        "registry.example/agent:1", "echo $NAME\nexec sleep infinity\n", {"NAME": "one", "TS_HOSTNAME": "n"}, (8000,)
    )
    identity = vast_stand.cloud().launch(vast_stand.request(offer_id=CONTAINER, container=wanted))
    details = vast_stand.machine(identity).details
    assert (details["system"], details["image"], details["command"]) == ("container", wanted.image, wanted.command)
    assert details["environment"]["NAME"] == "one" and details["ports"] == []


def test_an_offer_without_kvm_makes_no_node(vast_stand: VastStand) -> None:
    refused = refusal(vast_stand, offer_id=CONTAINER, user_data="#!/bin/bash\n")
    assert refused.reason == "invalid" and "cannot become a node" in str(refused)
    assert not vast_stand.world.machines


def test_a_long_command_is_packed_and_one_that_cannot_be_is_refused(vast_stand: VastStand) -> None:
    command = "# a long remark that says little\n" * 300 + "exec sleep infinity\n"
    made = vast_stand.cloud().launch(vast_stand.request(offer_id=CONTAINER, container=Container("i", command)))
    assert len(vast_stand.machine(made).details["command"]) < 4048
    noise = "".join(f"{(n * 7919) % 10007:x}{(n * 104729) % 99991:x}" for n in range(2000))
    refused = refusal(vast_stand, name="other", offer_id=CONTAINER, container=Container("i", noise))
    assert refused.reason == "invalid" and noise[:30] not in str(refused)


def test_a_variable_that_is_too_long_is_named_and_not_shown(vast_stand: VastStand) -> None:
    refused = refusal(vast_stand, offer_id=CONTAINER, container=Container("i", "", {"SECRET_WORD": "hush" * 100}))
    assert "SECRET_WORD has 400 characters" in str(refused) and "hush" not in str(refused)


@pytest.mark.parametrize("marks", [{"my team": "x"}, {"": "x"}, {"marks": "x"}, {"payload_00": "x"}, {"a-b": "x", "a_b": "y"}])
def test_a_mark_that_would_be_lost_or_take_the_place_of_something_is_refused(vast_stand: VastStand, marks: dict[str, str]) -> None:
    """Marks stand among the variables; so does a long start script."""
    request = vast_stand.request(
        user_data="#!/bin/sh\n", environment={"TGP_PAYLOAD_00": "aGVsbG8="}, marks={"created": "1", **marks}
    )
    with pytest.raises(errors.LaunchRefused, match="mark") as caught:
        vast_stand.cloud().launch(request)
    assert caught.value.reason == "invalid" and not vast_stand.world.machines
    container = Container("registry.example/agent:1", environment={"TGP_POOL": "default/p"})
    vast_stand.cloud().launch(vast_stand.request(container=container, marks={"pool": "default/p"}))  # as lane service has it


def test_L13_a_bid_is_the_price_without_the_disk(vast_stand: VastStand) -> None:
    offer = spot(vast_stand)
    assert offer.min_bid == Decimal("0.18") and offer.storage_price_hour == Decimal("0.014375")
    assert offer.price_hour == Decimal("0.198") + offer.storage_price_hour
    identity = vast_stand.cloud().launch(vast_stand.request(offer=offer))
    assert vast_stand.machine(identity).details["bid"] == Decimal("0.198")
    made = vast_stand.read(identity)
    assert made.spot is True and made.price_hour is not None and abs(made.price_hour - offer.price_hour) < Decimal("0.0001")


def test_on_demand_sends_no_price(vast_stand: VastStand) -> None:
    identity = vast_stand.cloud().launch(vast_stand.request())
    assert vast_stand.machine(identity).details["bid"] is None and vast_stand.read(identity).spot is False


@pytest.mark.parametrize("status", [400, 200, 500])
def test_L14_a_bid_that_was_too_low_leaves_a_machine_that_is_named(vast_stand: VastStand, status: int) -> None:
    offer = spot(vast_stand)
    vast_stand.mood(low_bid_status=status)
    vast_stand.world.offers[0].details["min_bid"] = Decimal("0.30")
    refused = refusal(vast_stand, offer=offer)
    assert refused.reason == "capacity" and refused.instance_id is not None
    left = vast_stand.read(refused.instance_id)
    assert (left.state, left.interrupted, left.name) == (InstanceState.STOPPED, True, NAME)
    assert vast_stand.billed() == 1
    vast_stand.cloud().terminate(refused.instance_id)
    assert vast_stand.billed() == 0


def test_L14_an_offer_that_is_gone_is_a_conflict(vast_stand: VastStand) -> None:
    offer = vast_stand.offer()
    vast_stand.world.offers[0].stock = 0
    assert refusal(vast_stand, offer=offer).reason == "conflict"
    unknown = dataclasses.replace(offer, id="8999999")
    assert refusal(vast_stand, offer=unknown).reason == "conflict"


def test_L14_what_cannot_start_now_leaves_nothing(vast_stand: VastStand) -> None:
    offer = vast_stand.offer()
    vast_stand.mood(start_failures=1)
    assert refusal(vast_stand, offer=offer).reason == "conflict"
    assert not vast_stand.world.machines


@pytest.mark.parametrize(
    ("mood", "reason", "words"),
    [
        ({"credit": Decimal(0)}, "balance", "Add credit"),
        ({"spend_limit": Decimal("0.01")}, "balance", "spend only so much"),
        ({"ssh_key": False}, "invalid", "Add an SSH key"),
        ({"missing_rights": "instance_write"}, "auth", "instance_write"),
        ({"two_factor": True}, "auth", "second factor"),
        ({"session_expired": True}, "auth", "second factor"),
    ],
)
def test_L14_refusals_have_their_reason_and_remedy(vast_stand: VastStand, mood: dict[str, t.Any], reason: str, words: str) -> None:
    request = vast_stand.request()
    vast_stand.mood(**mood)
    with pytest.raises(errors.LaunchRefused, match=words) as caught:
        vast_stand.cloud().launch(request)
    assert caught.value.reason == reason and caught.value.instance_id is None
    assert not vast_stand.world.machines


@pytest.mark.parametrize(
    ("body", "headers", "wait"),
    [
        ("API requests too frequent: endpoint threshold=4.5", {}, None),
        ({"detail": "too frequent", "retry_after": 7}, {}, 7.0),
        ({"success": False, "error": "too_many", "msg": "slower"}, {"Retry-After": "9"}, 9.0),
    ],
)
def test_L14_too_many_creates_wait_and_are_not_repeated_here(
    vast_stand: VastStand, body: t.Any, headers: dict[str, str], wait: float | None
) -> None:
    offer = vast_stand.offer()
    vast_stand.faults.add({"kind": "status", "path": "asks", "status": 429, "body": body, "headers": headers, "times": None})
    refused = refusal(vast_stand, offer=offer)
    assert (refused.reason, refused.details["status"], refused.details.get("retry_after")) == ("rate", 429, wait)
    assert vast_stand.faults.all()[0].hits == 1


def test_L12_a_list_with_fewer_machines_than_its_total_is_no_list(vast_stand: VastStand) -> None:
    body = {"instances": [], "next_token": None, "total_instances": 1}
    vast_stand.faults.add({"kind": "body", "method": "GET", "path": "instances", "body": body})
    with pytest.raises(errors.BadShape, match="shows 0 instances and says that there are 1"):
        vast_stand.cloud().instances()


def test_L2_a_machine_that_is_named_without_a_success_is_not_a_launch(vast_stand: VastStand) -> None:
    request = vast_stand.request()
    vast_stand.faults.add({"kind": "body", "path": "asks", "body": {"new_contract": 7}})
    with pytest.raises((errors.LaunchUnknown, errors.LaunchRefused)):
        vast_stand.cloud().launch(request)


@pytest.mark.parametrize("body", [{"success": True}, {"success": True, "new_contract": None}, "<html>", {"new_contract": "x"}])
def test_L2_a_success_that_names_no_machine_is_unknown(vast_stand: VastStand, body: t.Any) -> None:
    request = vast_stand.request()
    vast_stand.faults.add({"kind": "body", "path": "asks", "body": body})
    with pytest.raises(errors.LaunchUnknown, match=NAME):
        vast_stand.cloud().launch(request)


@pytest.mark.parametrize("status", [408, 499, 502, 504])
def test_L2_a_gateway_that_waited_too_long_knows_nothing(vast_stand: VastStand, status: int) -> None:
    request = vast_stand.request()
    vast_stand.faults.add({"kind": "status_after", "path": "asks", "status": status, "body": {"message": "Request timeout"}})
    with pytest.raises(errors.LaunchUnknown, match=NAME):
        vast_stand.cloud().launch(request)
    assert vast_stand.billed() == 1


def test_a_price_above_the_limit_is_not_sent(vast_stand: VastStand) -> None:
    assert "more than 0.30" in str(refusal(vast_stand, max_price_hour=Decimal("0.30")))
    assert not vast_stand.world.machines


def test_creates_keep_their_pace_across_clients(vast_stand: VastStand) -> None:
    vast_stand.world.offers[0].stock = 10
    request = vast_stand.request()
    start = vast_stand.world.clock.seconds()
    for number in range(5):
        vast_stand.cloud().launch(dataclasses.replace(request, name=f"n-{number}"))
    assert vast_stand.world.clock.seconds() - start >= 4 * 4.5


# ---- reading


def test_all_pages_are_read(vast_stand: VastStand) -> None:
    vast_stand.world.rate_limits = False
    vast_stand.world.offers[0].stock = 60
    request = vast_stand.request()
    made = {vast_stand.cloud().launch(dataclasses.replace(request, name=f"n-{number}")) for number in range(60)}
    found = vast_stand.cloud().instances()
    assert {one.id for one in found} == made and len(found) == 60


@pytest.mark.parametrize("rows", [24, 25])
def test_L12_a_full_page_that_does_not_say_whether_more_follow_is_no_list(vast_stand: VastStand, rows: int) -> None:
    body = {"success": True, "instances": [{"id": number} for number in range(1, rows + 1)]}
    vast_stand.faults.add({"kind": "body", "path": "/api/v1/instances/", "body": body, "times": None})
    if rows < 25:
        assert len(vast_stand.cloud().instances()) == rows
        return
    with pytest.raises(errors.BadShape, match="token"):
        vast_stand.cloud().instances()


def test_a_page_token_that_leads_back_is_no_list(vast_stand: VastStand) -> None:
    body = {"success": True, "instances": [{"id": 1}], "next_token": "again"}
    vast_stand.faults.add({"kind": "body", "path": "^/api/v1/instances/", "body": body, "times": None})
    with pytest.raises(errors.BadShape, match="in a circle"):
        vast_stand.cloud().instances()


def test_a_page_token_that_expired_begins_the_list_anew_once(vast_stand: VastStand) -> None:
    vast_stand.cloud().launch(vast_stand.request())
    expired = {
        "kind": "status",
        "path": "^/api/v1/",
        "status": 400,
        "body": {"success": False, "error": "invalid_token", "msg": "bad"},
    }
    vast_stand.faults.add({**expired, "times": 1})
    assert len(vast_stand.cloud().instances()) == 1
    vast_stand.faults.add({**expired, "times": None})
    with pytest.raises(errors.ApiError, match="invalid_token"):
        vast_stand.cloud().instances()


@pytest.mark.parametrize("status", [401, 404])
def test_a_bad_key_is_never_a_machine_that_is_gone(vast_stand: VastStand, status: int) -> None:
    made = vast_stand.cloud().launch(vast_stand.request())
    vast_stand.mood(auth_status=status)
    cloud = vast_stand.cloud(key="secret_wrong_ffffffffffffffffffff")
    for call in (cloud.instances, lambda: cloud.instance(made), lambda: cloud.terminate(made), cloud.check, cloud.offers):
        with pytest.raises(errors.Unauthorized, match="VAST_API_KEY"):
            call()
    assert vast_stand.billed() == 1


@pytest.mark.parametrize("form", ["null", "404"])
@pytest.mark.parametrize("twice", ["404", "false"])
def test_every_form_of_gone_is_gone(vast_stand: VastStand, form: str, twice: str) -> None:
    vast_stand.mood(gone_as=form, gone_twice=twice)
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    cloud.terminate(made)
    assert cloud.instance(made) is None
    cloud.terminate(made)


@pytest.mark.parametrize("body", [{}, {"instances": []}, {"instances": {"id": 7}}, {"instances": "x"}, [], {"success": True}])
def test_an_odd_answer_about_one_machine_is_not_gone(vast_stand: VastStand, body: t.Any) -> None:
    vast_stand.faults.add({"kind": "body", "path": PATH_ONE, "body": body})
    with pytest.raises(errors.BadShape):
        vast_stand.cloud().instance("20771845")


def test_a_404_without_its_code_is_not_gone(vast_stand: VastStand) -> None:
    vast_stand.faults.add({"kind": "status", "path": PATH_ONE, "status": 404, "body": "<html>no route</html>", "times": None})
    with pytest.raises(errors.NotFound):
        vast_stand.cloud().instance("20771845")
    with pytest.raises(errors.NotFound):
        vast_stand.cloud().terminate("20771845")


def test_one_row_in_a_list_is_the_machine(vast_stand: VastStand) -> None:
    vast_stand.faults.add({"kind": "body", "path": PATH_ONE, "body": {"instances": [{"id": 20771845, "actual_status": None}]}})
    found = vast_stand.cloud().instance("20771845")
    assert found is not None and (found.state, found.raw_state) == (InstanceState.PENDING, "created")


def test_an_id_that_is_none_touches_nothing(vast_stand: VastStand) -> None:
    made = vast_stand.cloud().launch(vast_stand.request())
    for identity in ("", "../ssh", f"{made}/..", "all"):
        assert vast_stand.cloud().instance(identity) is None and vast_stand.cloud().console(identity) is None
        with pytest.raises(errors.InvalidInput):
            vast_stand.cloud().terminate(identity)
    assert vast_stand.billed() == 1


def test_marks_come_back_and_a_copied_label_has_none(vast_stand: VastStand) -> None:
    marks = {"cluster": "a1b2c3d4", "pool": "gpu/train", "my-mark": "x y"}
    made = payload(make(lane=Lane.KUBELET), capability=FACTS)
    cloud = vast_stand.cloud()
    identity = cloud.launch(vast_stand.request(marks=marks, user_data=made.text, environment=made.environment))
    foreign = cloud.launch(vast_stand.request(marks={}, offer_id=MANY, container=Container("i", "", {"TGP_CLUSTER": "a1b2c3d4"})))
    found = {one.id: one for one in cloud.instances()}
    assert found[identity].marks == marks and found[identity].name == found[foreign].name == NAME
    assert found[foreign].marks == {}


def test_what_a_machine_is_read_as(vast_stand: VastStand) -> None:
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    young = vast_stand.read(made)
    assert young.raw_state in ("created", "loading"), "on a busy machine the world is a little further"
    assert (young.state, young.ip, dict(young.ports)) == (InstanceState.PENDING, "", {})
    vast_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    vast_stand.world.clock.sleep(60)
    found = vast_stand.read(made)
    assert found.ip == found.ip.strip() != "" and found.host_id == "5511" and found.region == "Quebec, CA"
    assert (found.model, found.gpu_count, found.instance_type) == ("RTX4090", 1, "1x RTX 4090")
    assert found.price_hour == Decimal("0.364375")
    assert found.storage_price_hour == Decimal("0.014375")
    assert found.ports["22/tcp"].startswith(f"{found.ip}:") and "41641/udp" in found.ports
    assert found.created is not None and found.running_since is not None and found.running_since > found.created


def test_L15_an_interrupted_machine_is_stopped_and_billed(vast_stand: VastStand) -> None:
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request(offer=spot(vast_stand)))
    vast_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    assert not vast_stand.read(made).interrupted
    vast_stand.world.on_taken["vast"](vast_stand.machine(made))
    lost = vast_stand.read(made)
    assert (lost.state, lost.interrupted, lost.gone) == (InstanceState.STOPPED, True, False)
    assert vast_stand.billed() == 1 and vast_stand.machine(made).rate() > 0


def test_a_boot_that_failed_is_failed_with_its_words(vast_stand: VastStand) -> None:
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    vast_stand.machine(made).state = "unhealthy"
    found = vast_stand.read(made)
    assert (found.state, found.raw_state) == (InstanceState.FAILED, "created")
    assert "OCI runtime create failed" in found.problem


@pytest.mark.parametrize(("word", "state"), [("offline", "failed"), ("exited", "failed"), ("unknown", "unknown")])
def test_a_dead_host_is_not_gone(vast_stand: VastStand, word: str, state: str) -> None:
    vast_stand.mood(dead_status=word)
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    vast_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    vast_stand.machine(made).state = "unhealthy"
    found = vast_stand.read(made)
    assert (found.raw_state, found.state.value, found.interrupted) == (word, state, False)


# ---- destroying, logs, the account


def test_a_destruction_that_failed_with_200_is_a_failure(vast_stand: VastStand) -> None:
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    vast_stand.mood(delete_refusals=1)
    with pytest.raises(errors.ApiError, match="busy"):
        cloud.terminate(made)
    vast_stand.mood(delete_refusals=0, delete_lies=1)
    cloud.terminate(made)
    assert cloud.instance(made) is not None  # which is why callers look
    cloud.terminate(made)
    assert cloud.instance(made) is None


def test_logs_are_fetched_without_the_key(vast_stand: VastStand) -> None:
    cloud = vast_stand.cloud()
    made = cloud.launch(vast_stand.request())
    vast_stand.machine(made).console += ["one", "two"]
    assert cloud.console(made) == "one\ntwo\n"  # the emulator's store refuses a request with credentials
    vast_stand.mood(log_seconds=10_000.0)
    assert cloud.console(made) is None
    assert cloud.console("29999999") is None


def test_the_signature_in_the_address_of_a_log_is_not_printed(vast_stand: VastStand) -> None:
    url = f"{vast_stand.base}/log?X-Amz-Credential=credential_0123456789&X-Amz-Signature=signature_0123456789abcdef"
    vast_stand.faults.add({"kind": "body", "path": "request_logs", "body": {"success": True, "result_url": url}})
    vast_stand.faults.add({"kind": "status", "path": r"^/log\?", "status": 500, "times": None})
    with pytest.raises(errors.ServerError) as caught:
        vast_stand.cloud().console("20771845")
    assert "0123456789" not in str(caught.value) and "/log" in str(caught.value)


@pytest.mark.parametrize("url", ["http://elsewhere.test/log", "file:///etc/passwd", "//elsewhere.test/log", "", "https://[::1/log"])
def test_logs_are_not_fetched_from_just_anywhere(vast_stand: VastStand, url: str) -> None:
    vast_stand.faults.add({"kind": "body", "path": "request_logs", "body": {"success": True, "result_url": url}})
    with pytest.raises(errors.BadShape, match="result_url"):
        vast_stand.cloud().console("20771845")


def test_the_key_does_not_follow_a_redirect(vast_stand: VastStand) -> None:
    vast_stand.faults.add(
        {"kind": "status", "path": "^/api/v1", "status": 308, "headers": {"Location": "http://elsewhere.test/"}, "times": None}
    )
    with pytest.raises(errors.BadShape, match="not followed"):
        vast_stand.cloud().instances()


def test_check_tells_money_and_warns_of_what_a_launch_will_lack(vast_stand: VastStand) -> None:
    fine = vast_stand.cloud().check()
    assert (
        fine.sentence.startswith("vast: the API key is accepted; the account has 0 instances, $1000.00 credit")
        and not fine.warnings
    )
    vast_stand.mood(ssh_key=False, credit=Decimal(0))
    money, key = vast_stand.cloud().check().warnings
    assert "no money" in money and "no SSH key" in key
    vast_stand.mood(missing_rights="user_read")
    with pytest.raises(errors.Forbidden, match="user_read"):
        vast_stand.cloud().check()


@pytest.mark.parametrize(
    ("kind", "status", "body", "words"),
    [
        ("body", 200, {"success": True, "ssh_keys": [{"id": 1}]}, ()),
        ("body", 200, [{"id": 1}], ()),
        ("body", 200, {"success": True, "ssh_keys": []}, ("no SSH key",)),
        ("status", 403, {"success": False, "error": "invalid_args", "msg": "no"}, ("may not read",)),
    ],
)
def test_ssh_keys_in_every_form(vast_stand: VastStand, kind: str, status: int, body: t.Any, words: tuple[str, ...]) -> None:
    vast_stand.mood(ssh_key=False)
    vast_stand.faults.add({"kind": kind, "path": "^/api/v0/ssh/", "status": status, "body": body})
    warnings = vast_stand.cloud().check().warnings
    assert len(warnings) == len(words) and all(word in text for word, text in zip(words, warnings, strict=True))


def test_the_disk_is_billed_before_the_gpu(vast_stand: VastStand) -> None:
    made = vast_stand.cloud().launch(vast_stand.request())
    assert vast_stand.machine(made).rate() == Decimal("0.15") / 720 * 69
    assert not FACTS.bills_boot
