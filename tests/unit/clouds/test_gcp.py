# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is decided of Google without a call: key files, labels, whole GPUs, quotas, prices, and ids of create calls."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors, redact
from ansible_collections.tgp.gpu.plugins.module_utils.model import LaunchRequest, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.launch import machine_body, request_id
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.machine_types import GPUS, GcpMachineType, Quotas, refusal
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.prices import (
    AS_OF,
    ON_DEMAND,
    SPOT_SHARE,
    PriceTable,
    age_warning,
    disk_hour,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.records import labels_of, marks_of
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.service_account import read_service_account
from hypothesis import given
from hypothesis import strategies as st

from sandbox.gcp_account import key_pair, service_account

L4 = GcpMachineType("g2-standard-4", "us-central1-a", "nvidia-l4", 1, 4)
OFFER = Offer(
    "gcp", "g2-standard-4@us-central1-a", "g2-standard-4", "L4", 1, Decimal("0.72"), cloud_region="us-central1-a", disk_gib=64
)


# ---- the key file


def altered(**changes: t.Any) -> str:
    content = {**json.loads(service_account()), **changes}
    return json.dumps({name: value for name, value in content.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ya29.an-access-token", "it is not JSON"),
        ('["a", "list"]', "not a JSON object"),
        (altered(type="authorized_user"), "its type is not service_account"),
        (altered(private_key=None), "it has no private_key"),
        (altered(client_email="", token_uri=7), "it has no client_email, token_uri"),
        (altered(private_key="-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"), "not a key in PEM form"),
        (altered(token_uri="http://oauth2.example/token"), "its token_uri is not an https address"),
        (altered(project_id="../other"), "not the id of a project"),
    ],
)
def test_what_is_no_key_file_is_refused_without_showing_it(text: str, words: str) -> None:
    with pytest.raises(errors.InvalidInput, match=re.escape(words)) as caught:
        read_service_account(text)
    assert text not in str(caught.value) and "c2VjcmV0" not in str(caught.value)


def test_the_key_is_in_no_output() -> None:
    account = read_service_account(service_account())
    pem = key_pair("sandbox")[0]
    assert pem not in repr(account) and redact.redact(f"key {pem}").count("PRIVATE KEY") == 0


# ---- labels


@given(
    st.dictionaries(
        st.from_regex(r"[a-z](-?[a-z0-9]){0,10}", fullmatch=True), st.text(max_size=130).filter(str.isprintable), max_size=6
    )
)
def test_marks_come_back_from_labels_that_google_takes(marks: dict[str, str]) -> None:
    labels = labels_of(marks)
    assert marks_of(labels) == marks
    for key, value in labels.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) and re.fullmatch(r"[a-z0-9_-]{0,63}", value)


@pytest.mark.parametrize(
    "labels", [{"team": "ml"}, {"tgp-pool": "_ff"}, {"tgp-pool": 7}, None, {"tgp-managed": "true"}, {"goog-terraform": "x"}]
)
def test_labels_of_others_are_no_marks(labels: t.Any) -> None:
    assert marks_of(labels) == {}


# ---- whole GPUs


@pytest.mark.parametrize(
    ("accelerator", "count", "vcpus", "words"),
    [
        ("nvidia-l4", 1, 4, ""),
        ("nvidia-h100-80gb", 8, 208, ""),
        ("nvidia-l4-vws", 1, 4, "virtual workstation"),
        ("nvidia-rtx-pro-6000-vgpu", 1, 12, "fraction of a GPU"),
        ("nvidia-l4", 0.5, 4, "fraction of a GPU"),
        ("nvidia-l4", True, 4, "fraction of a GPU"),
        ("nvidia-rtx-pro-6000", 1, 12, "its GPU is a fraction"),
        ("nvidia-rtx-pro-6000", 2, 96, ""),
        ("ct5lp", 4, 112, "not known to be a whole GPU"),
    ],
)
def test_what_is_rented(accelerator: str, count: t.Any, vcpus: int, words: str) -> None:
    found = refusal(accelerator, count, vcpus)
    assert words in found and bool(words) is bool(found), found


# ---- quotas


@pytest.mark.parametrize(
    ("everywhere", "regional", "spot", "lack"),
    [
        (0, {"NVIDIA_L4_GPUS": 8}, False, "GPUS_ALL_REGIONS"),
        (8, {"NVIDIA_L4_GPUS": 0}, False, "NVIDIA_L4_GPUS in us-central1"),
        (8, {"NVIDIA_L4_GPUS": 1}, False, ""),
        (None, {}, False, ""),
        (8, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 1}, True, ""),
        (8, {"NVIDIA_L4_GPUS": 1, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, True, ""),
        (8, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 1}, False, "NVIDIA_L4_GPUS in us-central1"),
        (8, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, True, "NVIDIA_L4_GPUS in us-central1"),
    ],
)
def test_which_quota_is_in_the_way(everywhere: int | None, regional: dict[str, int], spot: bool, lack: str) -> None:
    quotas = Quotas(everywhere, {("us-central1", metric): room for metric, room in regional.items()})
    assert quotas.lack(L4, spot=spot) == lack


# ---- prices


def test_prices_hold_in_the_regions_of_the_table_and_those_of_the_class_everywhere() -> None:
    table, own = PriceTable(), PriceTable({"g2-standard-4": Decimal("0.80")}, {"g2-standard-4": Decimal("0.25")})
    assert table.machine_hour("g2-standard-4", "us-central1", spot=False) == ON_DEMAND["g2-standard-4"]
    assert table.machine_hour("g2-standard-4", "us-central1", spot=True) == ON_DEMAND["g2-standard-4"] * SPOT_SHARE
    assert table.machine_hour("g2-standard-4", "europe-west4", spot=False) is None
    assert table.machine_hour("a4-highgpu-8g", "us-central1", spot=False) is None
    assert own.machine_hour("g2-standard-4", "europe-west4", spot=False) == Decimal("0.80")
    assert own.machine_hour("g2-standard-4", "europe-west4", spot=True) == Decimal("0.25")
    assert own.price_hour("g2-standard-4", "europe-west4", 100, spot=False) == Decimal("0.80") + disk_hour(100)
    assert PriceTable(own.on_demand).machine_hour("g2-standard-4", "x", spot=True) == Decimal("0.80") * SPOT_SHARE


# ---- what is sent


def request(**changes: t.Any) -> LaunchRequest:
    offer = dataclasses.replace(OFFER, **changes.pop("offer", {}))
    return LaunchRequest("tgp-a1b2c3d4-p-00001", offer, marks={"created": "1795000000"}, **changes)


def test_one_attempt_of_a_claim_has_one_id_and_another_attempt_another() -> None:
    assert request_id("p", request()) == request_id("p", request())
    others = [
        request_id("other", request()),
        request_id("p", request(offer={"cloud_region": "us-central1-b"})),
        request_id("p", request(offer={"spot": True})),
        request_id("p", dataclasses.replace(request(), marks={"created": "1795000600"})),
        request_id("p", dataclasses.replace(request(), name="tgp-a1b2c3d4-p-00002")),
    ]
    assert len({request_id("p", request()), *others}) == 6


def test_every_machine_has_a_disk_that_goes_with_it_and_an_end() -> None:
    for spot in (False, True):
        body = machine_body(request(offer={"spot": spot}, settings={"maxRunHours": 2}))
        scheduling = body["scheduling"]
        assert scheduling["instanceTerminationAction"] == "DELETE" and scheduling["maxRunDuration"] == {"seconds": "7200"}
        assert (scheduling["onHostMaintenance"], scheduling["automaticRestart"]) == ("TERMINATE", False)
        assert scheduling["provisioningModel"] == ("SPOT" if spot else "STANDARD")
        assert all(disk["autoDelete"] for disk in body["disks"]) and "guestAccelerators" not in body
    attached = machine_body(request(offer={"instance_type": "n1-standard-4+nvidia-tesla-t4"}))
    assert attached["machineType"].endswith("/n1-standard-4")
    assert attached["guestAccelerators"] == [
        {"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
    ]


@pytest.mark.parametrize(("kind", "disk"), [("a4-highgpu-8g", "hyperdisk-balanced"), ("g2-standard-4", "pd-balanced")])
def test_newer_machine_types_take_hyperdisks_only(kind: str, disk: str) -> None:
    body = machine_body(request(offer={"instance_type": kind}))
    assert body["disks"][0]["initializeParams"]["diskType"].endswith(f"/{disk}")


def test_every_price_is_of_a_type_that_can_be_rented() -> None:
    for name, price in ON_DEMAND.items():
        attached = name.partition("+")[2]
        assert price > 0 and (not attached or attached in GPUS)


def test_B19_a_table_of_prices_that_is_older_than_120_days_is_reported() -> None:
    assert age_warning(AS_OF + timedelta(days=120)) == ""
    said = age_warning(AS_OF + timedelta(days=121))
    assert f"is of {AS_OF}, 121 days ago" in said and "spotPrices" in said
