# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to own machines (L-21)."""

from __future__ import annotations

import dataclasses
import json
import socket
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import failure
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, LaunchRequest, Machine, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.machines import origin

from sandbox.clock import SimClock

from .stands import KEY, WebhookStand

REFUSED, UNKNOWN = errors.LaunchRefused, errors.LaunchUnknown


class Recorder:
    """A power service that answers what it is told to and keeps what it got."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, str], bytes]] = []

    def __call__(self, environ: t.Any, start_response: t.Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {name[5:].lower().replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        self.calls.append((environ["REQUEST_METHOD"], headers, body))
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        start_response(f"{status} Answer", [("location", "http://elsewhere.test/")] if 300 <= status < 400 else [])
        return [b""]


def request_for(cloud: WebhookCloud, name: str = "rack-1", **changes: t.Any) -> LaunchRequest:
    offer = Offer(cloud="webhook", id=name, instance_type=name, model="", gpu_count=1, price_hour=None)
    return LaunchRequest(name=name, offer=offer, **changes)


def service(stand: WebhookStand, recorder: Recorder, **changes: t.Any) -> WebhookCloud:
    stand.app = recorder  # type: ignore[assignment]
    return stand.cloud(status=False, **changes)


def test_S2_04_a_call_is_a_post_of_an_empty_json_object(webhook_stand: WebhookStand) -> None:
    recorder = Recorder(200)
    cloud = service(webhook_stand, recorder)
    assert cloud.launch(request_for(cloud)) == "rack-1"
    cloud.terminate("rack-1")
    for method, headers, body in recorder.calls:
        assert (method, headers["content-type"], body) == ("POST", "application/json", b"{}")
        assert headers["authorization"] == KEY
    assert len(recorder.calls) == 2


@pytest.mark.parametrize(
    ("answers", "calls", "outcome", "reason"),
    [
        ((200,), 1, None, None),
        ((204,), 1, None, None),
        ((409,), 1, None, None),
        ((302,), 1, REFUSED, "invalid"),
        ((400,), 1, REFUSED, "invalid"),
        ((401,), 1, REFUSED, "auth"),
        ((403,), 1, REFUSED, "auth"),
        ((404,), 1, REFUSED, "invalid"),
        ((429,), 2, REFUSED, "rate"),
        ((500,), 2, UNKNOWN, None),
        ((500, 200), 2, None, None),
        ((503, 409), 2, None, None),
        ((503, 400), 2, UNKNOWN, None),
    ],
)
def test_L21_answers(webhook_stand: WebhookStand, answers: tuple[int, ...], calls: int, outcome: t.Any, reason: str | None) -> None:
    recorder = Recorder(*answers)
    cloud = service(webhook_stand, recorder)
    if outcome is None:
        cloud.launch(request_for(cloud))
    else:
        with pytest.raises(outcome) as caught:
            cloud.launch(request_for(cloud))
        assert getattr(caught.value, "reason", None) == reason
    assert len(recorder.calls) == calls


def test_L21_the_second_call_comes_two_seconds_later(webhook_stand: WebhookStand, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(500)
    cloud = service(webhook_stand, recorder)
    slept: list[
        tuple[int, float]
    ] = []  # after so many calls, so many seconds: what the world's clock says includes our own slowness
    monkeypatch.setattr(webhook_stand.world.clock, "sleep", lambda seconds: slept.append((len(recorder.calls), seconds)))
    with pytest.raises(errors.ServerError):
        cloud.terminate("rack-1")
    assert len(recorder.calls) == 2
    assert (1, 2.0) in slept


def test_an_unreachable_power_service_concerns_its_machine_only() -> None:
    machine = Machine("rack-1", 1, "http://127.0.0.1:9/up", "http://127.0.0.1:9/down")
    cloud = WebhookCloud([machine], clock=SimClock(speed=1000.0))
    with pytest.raises(errors.LaunchRefused) as caught:
        cloud.launch(request_for(cloud))
    assert caught.value.reason == "capacity" and "127.0.0.1:9" in str(caught.value)


def test_K01_a_machine_that_is_off_gets_no_call(webhook_stand: WebhookStand) -> None:
    webhook_stand.cloud().terminate("rack-1")
    assert not webhook_stand.world.writes


@pytest.mark.parametrize(
    ("ready", "in_flight", "state", "free"),
    [
        (True, {}, InstanceState.RUNNING, 0),
        (False, {}, InstanceState.TERMINATED, 1),
        (None, {}, InstanceState.TERMINATED, 1),
        (None, {"rack-1": "starting"}, InstanceState.PENDING, 0),
        (True, {"rack-1": "starting"}, InstanceState.RUNNING, 0),
        (True, {"rack-1": "stopping"}, InstanceState.TERMINATING, 0),
        (False, {"rack-1": "stopping"}, InstanceState.TERMINATED, 1),
    ],
)
def test_L21_the_node_tells_the_state(
    webhook_stand: WebhookStand, ready: bool | None, in_flight: dict[str, str], state: InstanceState, free: int
) -> None:
    cloud = webhook_stand.cloud(status=False, node_ready=lambda _name: ready, in_flight=in_flight)
    assert cloud.instances()[0].state is state
    assert cloud.offers()[0].available == free


def test_L21_own_calls_are_remembered(webhook_stand: WebhookStand) -> None:
    """K-04: a machine that was just switched on is not off."""
    nodes: dict[str, bool] = {}
    cloud = webhook_stand.cloud(status=False, node_ready=nodes.get)

    def state() -> InstanceState:
        found = cloud.instance("rack-1")
        assert found is not None
        return found.state

    cloud.launch(webhook_stand.request())
    assert state() is InstanceState.PENDING
    nodes["rack-1"] = True
    assert state() is InstanceState.RUNNING
    cloud.terminate("rack-1")
    assert state() is InstanceState.TERMINATING
    nodes["rack-1"] = False
    assert state() is InstanceState.TERMINATED


def test_without_anybody_to_ask_the_state_is_unknown_and_nothing_is_offered(webhook_stand: WebhookStand) -> None:
    cloud = webhook_stand.cloud(status=False)
    assert {one.state for one in cloud.instances()} == {InstanceState.UNKNOWN}
    assert {one.available for one in cloud.offers()} == {0}


def test_a_cluster_that_cannot_be_read_is_an_error_not_an_idle_rack(webhook_stand: WebhookStand) -> None:
    def unreadable(_name: str) -> bool | None:
        raise errors.Unreachable("kubernetes: no answer.")

    with pytest.raises(errors.Unreachable):
        webhook_stand.cloud(status=False, node_ready=unreadable).instances()


def test_offers_are_the_machines(webhook_stand: WebhookStand) -> None:
    offers = webhook_stand.cloud().offers()
    assert [(one.id, one.gpu_count, one.model, one.gpu_memory_mib, one.available) for one in offers] == [
        ("rack-1", 1, "RTX3090", 24576, 1),
        ("rack-2", 2, "RTX3090", 24576, 1),
        ("rack-3", 4, "RTX3090", 24576, 1),
    ]
    assert {one.price_hour for one in offers} == {0}


def test_a_config_is_handed_over_in_payload_mode_body(webhook_stand: WebhookStand) -> None:
    cloud = webhook_stand.cloud()
    cloud.launch(webhook_stand.request(user_data="version: v1alpha1\n", settings={"payload": "body"}))
    assert webhook_stand.world.machines["rack-1"].payload == "version: v1alpha1\n"


@pytest.mark.parametrize(
    "change", [{"settings": {"payload": "body"}}, {"settings": {"payload": "pigeon"}}, {"user_data": "version: v1alpha1"}]
)
def test_a_config_without_a_carrier_or_the_other_way_round_is_refused(
    webhook_stand: WebhookStand, change: dict[str, t.Any]
) -> None:
    request = dataclasses.replace(webhook_stand.request(), **change)
    with pytest.raises(errors.LaunchRefused) as caught:
        webhook_stand.cloud().launch(request)
    assert caught.value.reason == "invalid" and not webhook_stand.world.writes


def test_calls_are_signed_and_the_service_insists(webhook_stand: WebhookStand) -> None:
    secret = "signing_secret_0123456789abcdef"
    webhook_stand.world.secrets["WEBHOOK_SIGNING_SECRET"] = secret
    with pytest.raises(errors.LaunchRefused) as caught:
        webhook_stand.cloud().launch(webhook_stand.request())
    assert caught.value.reason == "auth"
    cloud = webhook_stand.cloud(signing_secret=secret)
    cloud.launch(webhook_stand.request())
    webhook_stand.wait_for(cloud, "rack-1", {InstanceState.RUNNING})
    cloud.terminate("rack-1")
    assert secret not in repr(vars(caught.value))


def test_another_header_may_carry_the_credential(webhook_stand: WebhookStand) -> None:
    recorder = Recorder(200)
    cloud = service(webhook_stand, recorder, auth_header="X-Power-Token")
    cloud.launch(request_for(cloud))
    assert recorder.calls[0][1]["x-power-token"] == KEY and "authorization" not in recorder.calls[0][1]


def test_secrets_in_addresses_are_sent_and_not_printed(webhook_stand: WebhookStand) -> None:
    recorder = Recorder(500)
    webhook_stand.app = recorder  # type: ignore[assignment]
    up = "https://admin:pass_word_0123456789@power.test/up?token=token_0123456789abcdef"
    cloud = WebhookCloud([Machine("rack-1", 1, up, up)], transport=webhook_stand.transport, clock=webhook_stand.world.clock)
    with pytest.raises(errors.LaunchUnknown) as caught:
        cloud.launch(request_for(cloud))
    assert recorder.calls[0][1]["authorization"].startswith("Basic ")
    shown = json.dumps(failure(caught.value))
    assert "pass_word_0123456789" not in shown and "token_0123456789abcdef" not in shown


def test_secrets_in_addresses_are_not_printed_as_they_are_written_there_either(webhook_stand: WebhookStand) -> None:
    webhook_stand.app = Recorder(500)  # type: ignore[assignment]
    up = "https://admin:pass%2Fword%3D0123456789@power.test/up?token=abc%2Fdefgh12345678%3D%3D&sig=a+b+c+d+e+f+g+h"
    cloud = WebhookCloud([Machine("rack-1", 1, up, up)], transport=webhook_stand.transport, clock=webhook_stand.world.clock)
    with pytest.raises(errors.LaunchUnknown) as caught:
        cloud.launch(request_for(cloud))
    assert "/up?token=" in caught.value.message  # which is what a claim keeps of it
    for secret in ("abc%2Fdefgh12345678", "a+b+c+d", "pass%2Fword"):
        assert secret not in repr(vars(caught.value)) and secret not in json.dumps(failure(caught.value))


@pytest.mark.parametrize("value", ["secret_0123456789abcdef\nx", "secret_0123456789…abcdef", "secret_0123456789abcdef\r\n"])
def test_a_credential_that_no_header_can_carry_is_said_and_not_printed(webhook_stand: WebhookStand, value: str) -> None:
    """It would be printed by the library that refuses to send it, and the machine would count as perhaps switched on."""
    with pytest.raises(errors.InvalidInput, match="X-Power-Token") as caught:
        webhook_stand.cloud(key=value, auth_header="X-Power-Token")
    assert "0123456789" not in json.dumps(failure(caught.value))


def test_only_configured_machines_are_ours(webhook_stand: WebhookStand) -> None:
    with pytest.raises(errors.InvalidInput, match="rack-9"):
        webhook_stand.cloud().terminate("rack-9")
    with pytest.raises(errors.LaunchRefused, match="rack-9"):
        webhook_stand.cloud().launch(request_for(webhook_stand.cloud(), "rack-9"))


# ---- where calls go


def test_a_machine_at_another_host_gets_no_call_and_no_key(webhook_stand: WebhookStand) -> None:
    recorder = Recorder(200)
    webhook_stand.app = recorder  # type: ignore[assignment]
    evil = Machine("rack-9", 1, "https://evil.test/up", "https://power.test/down", status_endpoint="https://evil.test/status")
    with pytest.raises(errors.InvalidInput) as caught:
        WebhookCloud([evil], auth_value=KEY, key_hosts={origin("https://power.test")}, transport=webhook_stand.transport)
    said = str(caught.value)
    assert "rack-9: scaleUpEndpoint leads to https://evil.test" in said and "rack-9: statusEndpoint" in said
    assert "webhook_hosts" in said and KEY not in said and not recorder.calls


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%2", "::ffff:169.254.169.254"])
@pytest.mark.parametrize("key", [KEY, None])
def test_a_name_that_resolves_to_a_link_local_address_gets_no_call(
    webhook_stand: WebhookStand, address: str, key: str | None
) -> None:
    recorder = Recorder(200)
    webhook_stand.app = recorder  # type: ignore[assignment]
    cloud = webhook_stand.cloud(key=key, resolve=lambda _name: ["10.0.0.1", address])
    shown = cloud.instances()[0]
    assert shown.state is InstanceState.UNKNOWN and "power.test was not called" in shown.problem
    with pytest.raises(errors.LaunchRefused, match="link-local") as caught:
        cloud.launch(request_for(cloud))
    assert caught.value.reason == "invalid"
    with pytest.raises(errors.ApiError, match="link-local"):
        cloud.terminate("rack-1")
    with pytest.raises(errors.ApiError, match="link-local"):
        cloud.check()
    assert not recorder.calls


def test_the_name_is_looked_up_before_each_call_where_the_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def getaddrinfo(name: str, *_rest: t.Any, **_more: t.Any) -> list[t.Any]:
        looked_up.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    cloud = WebhookCloud([Machine("rack-1", 1, "https://power.test/up", "https://power.test/down")], clock=SimClock(speed=1000.0))
    for _turn in range(2):
        with pytest.raises(errors.LaunchRefused, match="link-local"):
            cloud.launch(request_for(cloud))
    assert looked_up == ["power.test", "power.test"]


def test_a_name_that_nobody_knows_is_told_by_the_call_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_rest: t.Any, **_more: t.Any) -> list[t.Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    cloud = WebhookCloud([Machine("rack-1", 1, "https://power.test/up", "https://power.test/down")], clock=SimClock(speed=1000.0))
    with pytest.raises(errors.LaunchRefused, match="name resolution") as caught:
        cloud.launch(request_for(cloud))
    assert caught.value.reason == "capacity"
