# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where calls to own machines go, and where the key goes."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import DocumentOrigin as Writer
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import understand
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, Machine, SecretRef
from ansible_collections.tgp.gpu.plugins.module_utils.providers import registry
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.machines import (
    Origin,
    faults,
    groups_from_values,
    is_link_local,
    is_loopback,
    listed,
    origin,
)
from hypothesis import given
from hypothesis import strategies as st

KEY = "secret_targets_0123456789abcdef"
OURS = {Origin("power.test", 443)}


def machine(url: str) -> Machine:
    return Machine("rack-1", 1, url, "https://power.test/down")


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "169.254.0.1", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "169.254.43518", "0251.0376.0251.0376",
        "169.254.169.254.", "１６９.254.169.254", "169。254。169。254", "169%2e254.169.254", "fe80::1", "fe80::1%eth0", "FEBF::1",
        "[fe80::1]", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
    ],
)  # fmt: skip
def test_link_local_in_any_spelling(host: str) -> None:
    assert is_link_local(host)


@pytest.mark.parametrize(
    "host",
    ["power.test", "169.254.test", "127.0.0.1", "10.0.0.1", "192.168.1.2", "100.64.0.1", "::1", "fec0::1", "fd00::1", "", "fe80"],
)
def test_other_hosts_are_not_link_local(host: str) -> None:
    assert not is_link_local(host)


@given(st.ip_addresses(v=4), st.integers(0, 4))
def test_the_spelling_of_an_address_does_not_change_the_answer(address: ipaddress.IPv4Address, way: int) -> None:
    number = int(address)
    spelt = (
        str(address),
        str(number),
        hex(number),
        f"::ffff:{address}",
        ".".join(oct(one).replace("o", "") for one in address.packed),
    )
    assert is_link_local(spelt[way]) is address.is_link_local
    assert is_loopback(spelt[way]) is address.is_loopback


@given(st.ip_addresses(v=4, network="169.254.0.0/16") | st.ip_addresses(v=6, network="fe80::/10"))
def test_no_link_local_address_is_called_with_or_without_a_key(address: t.Any) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    for url in (f"http://{host}/up", f"https://user:word@{host}:8443/up"):
        for key in (False, True):
            (found,) = faults([machine(url)], {*OURS, origin(url)}, key=key)
            assert "link-local" in found and "rack-1: scaleUpEndpoint" in found


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), st.integers(1, 65535), st.sampled_from(["http", "https"]))
def test_the_key_goes_to_no_host_that_is_not_named(name: str, port: int, scheme: str) -> None:
    url = f"{scheme}://{name}.test:{port}/up"
    called = not faults([machine(url)], OURS, key=True)
    assert called is (origin(url) in OURS and scheme == "https")
    assert not faults([machine(url)], OURS, key=False)
    assert bool(faults([machine(url)], OURS, key=False, signed=True)) is (origin(url) not in OURS)


def test_the_refusal_names_machine_host_and_option_and_no_secret() -> None:
    (found,) = faults([machine("https://admin:pass_word@evil.test:8443/up?token=abc")], OURS, key=True)
    for word in ("rack-1", "scaleUpEndpoint", "https://evil.test:8443", "webhook_hosts", "Add evil.test:8443"):
        assert word in found
    assert "pass_word" not in found and "abc" not in found


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/up", "http://127.8.9.1/up", "http://[::1]:9/up", "http://localhost:9/up"])
def test_http_with_a_key_is_for_loopback(url: str) -> None:
    assert not faults([machine(url)], {*OURS, origin(url)}, key=True)


@pytest.mark.parametrize(
    ("url", "key"), [("http://power.test/up", True), ("http://10.0.0.1/up", True), ("http://u:p@power.test/", False)]
)
def test_http_with_a_credential_is_refused_elsewhere(url: str, key: bool) -> None:
    (found,) = faults([machine(url)], {*OURS, origin(url)}, key=key)
    assert "clear text" in found and "Use https" in found


def test_entries_of_webhook_hosts() -> None:
    assert listed(["Power.Test.:8443", " [::1]:9 ", "", "::2"]) == {
        Origin("power.test", 8443), Origin("::1", 9), Origin("::2", 80), Origin("::2", 443),
    }  # fmt: skip
    assert listed(["power.test"]) == {Origin("power.test", 80), Origin("power.test", 443)}


@pytest.mark.parametrize(
    "text", ["https://power.test", "power.test/x", "*.test", "a@b", "power.test:x", "power.test:0", "a b", "[::1", ":8"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="webhook_hosts"):
        listed([text])


# ---- which hosts a call may send the key to


def connect(params: dict[str, t.Any], choice: CloudChoice | None = None, credential: str | None = KEY) -> WebhookCloud:
    return t.cast(WebhookCloud, registry.connect("webhook", Task(params), choice=choice, credential=credential))


def of_class(url: str, **more: t.Any) -> CloudChoice:
    return CloudChoice("webhook", machines=(Machine("rack-1", 1, url, url),), **more)


def refused(params: dict[str, t.Any], choice: CloudChoice | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        connect(params, choice)
    assert KEY not in str(caught.value)
    return str(caught.value)


def test_a_class_cannot_send_the_key_to_a_host_of_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = of_class("https://evil.test/up")
    for params in ({}, {"webhook_url": "https://power.test"}, {"webhook_auth_value": KEY}, {"webhook_hosts": ["power.test"]}):
        assert "evil.test" in refused(params, choice)
    with pytest.raises(InvalidInput, match="signed calls"):
        connect({"webhook_signing_secret": KEY}, choice, credential=None)
    connect({"webhook_url": "https://evil.test"}, choice)
    connect({"webhook_hosts": ["evil.test"]}, choice)
    monkeypatch.setenv("WEBHOOK_HOSTS", "other.test, evil.test:443")
    connect({}, choice)


def test_without_a_key_a_class_names_any_host() -> None:
    connect({}, of_class("http://192.168.1.9/up"), credential=None)


def test_a_path_below_the_address_cannot_leave_its_host() -> None:
    assert "https://evil.test" in refused({"webhook_url": "https://power.test"}, of_class("/https://evil.test/up"))


@pytest.mark.parametrize("root", ["https://power.test/racks/north", "https://power.test/racks/north/"])
def test_a_path_of_the_address_stays_before_the_endpoints(root: str) -> None:
    cloud = connect({"webhook_url": root}, of_class("/up"))
    assert cloud.machine("rack-1").scale_up_endpoint == "https://power.test/racks/north/up"


@pytest.mark.parametrize("end", ["?site=a", "#a", "/racks?site=a"])
def test_an_address_with_a_query_is_refused(end: str) -> None:
    assert "webhook_url has a query or a fragment" in refused({"webhook_url": f"https://power.test{end}"}, of_class("/up"))


def test_machines_of_the_operator_get_the_key_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {
        "name": "rack-2",
        "gpu_count": 2,
        "scale_up_endpoint": "https://rack.test/up",
        "scale_down_endpoint": "https://rack.test/d",
    }
    connect({"webhook_machines": [entry]})
    for ending, value in (
        ("NAME", "rack-3"),
        ("GPU_COUNT", "1"),
        ("SCALE_UP_ENDPOINT", "https://p/u"),
        ("SCALE_DOWN_ENDPOINT", "https://p/d"),
    ):
        monkeypatch.setenv(f"A_{ending}", value)
    connect({})
    connect({}, of_class("https://p/up"))  # they reach a class as well
    assert "evil.test" in refused({}, of_class("https://evil.test/up"))


def test_a_key_of_the_class_goes_to_its_machines_where_the_operator_wrote_both() -> None:
    choice = of_class("https://rack.test/up", credentials=SecretRef("s", "k"), key_for_machines=True)
    connect({}, choice)
    assert "rack.test" in refused({"webhook_auth_value": KEY}, choice)  # that is not the key beside the machine


@pytest.mark.parametrize(("writer", "beside"), [(Writer.OPERATOR, True), (Writer.CLUSTER, False)])
def test_only_a_document_of_the_operator_puts_a_key_beside_machines(writer: Writer, beside: bool) -> None:
    specs, _warnings = understand([document("https://rack.test", writer, credentialsRef={"name": "s", "key": "k"})])
    assert specs.classes["own"].clouds[0].key_for_machines is beside


def document(root: str, writer: Writer = Writer.OPERATOR, **more: t.Any) -> Document:
    entry = {"name": "rack-1", "gpuCount": 1, "scaleUpEndpoint": f"{root}/up", "scaleDownEndpoint": f"{root}/down"}
    spec = {
        "providers": [{"name": "webhook", "machines": [entry], **more}],
        "talosConfig": {"machineConfigTemplate": "version: v1alpha1"},
    }
    return Document(
        "own.yml#1", {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClass", "metadata": {"name": "own"}, "spec": spec}, writer
    )


def test_a_link_local_address_is_a_fault_of_its_document_and_of_its_group() -> None:
    specs, _warnings = understand([document("http://0xa9fea9fe")])
    (sentence, _other) = specs.faults["own.yml#1"]
    assert "spec.providers[0].machines[0].scaleUpEndpoint" in sentence and "link-local" in sentence
    group = {"name": "a", "gpuCount": 1, "scaleUpEndpoint": "http://169.254.169.254/u", "scaleDownEndpoint": "https://p/d"}
    with pytest.raises(InvalidInput, match="link-local"):
        groups_from_values({"nodeGroups": [group]})
