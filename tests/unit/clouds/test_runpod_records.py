# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's words: GPU ids, kinds, places, stamps, and the header that says how fast one may go."""

from __future__ import annotations

import pathlib
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import claim_cost, noted
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.requirements import standard_region
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod.api import Windows, explain
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod.cloud import ENTRY, FACTS
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod.records import Kind, gpu_of, marks_of, stamp, to_instance

from tests.unit.fleet.build import NOON, claim


class HandClock:
    """Time that only moves by sleeping."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("identifier", "name", "gigabytes", "model", "gib"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 24, "RTX4090", 24),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, "H100-SXM", 80),
        ("NVIDIA H200", "H200 SXM", 141, "H200", 141),
        ("NVIDIA H200 NVL", "H200 NVL", 143, "H200-NVL", 141),  # other clouds say 141
        ("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, "A100-PCIE", 80),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM", 40, "A100-SXM", 40),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48, "RTX6000Ada", 48),
        ("NVIDIA RTX A6000", "RTX A6000", 48, "A6000", 48),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000", 96, "RTXPRO6000", 96),
        ("NVIDIA B300 SXM6 AC", "B300", 288, "B300", 288),
        ("AMD Instinct MI300X OAM", "MI300X", 192, "MI300X", 192),
        ("Tesla V100-PCIE-16GB", "Tesla V100", 16, "V100-PCIE", 16),
        ("NVIDIA R500", "R500", 512, "R500", 512),
    ],
)
def test_gpu_ids(identifier: str, name: str, gigabytes: int, model: str, gib: int) -> None:
    assert gpu_of(identifier, name, gigabytes) == (model, gib * 1024)


def test_memory_that_is_not_told_is_known_from_the_model() -> None:
    assert gpu_of("NVIDIA A40") == ("A40", 48 * 1024)
    assert gpu_of("NVIDIA A100-SXM4-80GB") == ("A100-SXM", 80 * 1024)
    assert gpu_of("NVIDIA R500") == ("NVIDIA R500", None)


@pytest.mark.parametrize("kind", [Kind("NVIDIA GeForce RTX 4090", 8, "SECURE"), Kind("NVIDIA X x2 y", 1, "COMMUNITY")])
def test_kinds_are_read_as_they_are_written(kind: Kind) -> None:
    assert Kind.read(str(kind)) == kind


@pytest.mark.parametrize("text", ["", "NVIDIA A40", "NVIDIA A40 x1", "NVIDIA A40 x1 private", "gpu_1x_a10"])
def test_other_types_are_no_kinds(text: str) -> None:
    assert Kind.read(text) is None


@pytest.mark.parametrize(
    ("centre", "region"),
    [
        ("US-KS-2", "us-central"),
        ("US-CA-2", "us-west"),
        ("US-GA-1", "us-east"),
        ("EU-RO-1", "eu-east"),
        ("EU-CZ-1", "eu-central"),
        ("EUR-IS-3", "eu-west"),
        ("EUR-NO-1", "eu-north"),
        ("AP-JP-1", "asia-northeast"),
        ("SEA-SG-1", "asia-southeast"),
        ("US-KS-7", "us-central"),  # a centre that is opened later
        ("CA-MTL-1", "ca-mtl-1"),  # no standard word for Canada
        ("XX-YY-1", "xx-yy-1"),
    ],
)
def test_data_centres_have_standard_regions(centre: str, region: str) -> None:
    assert standard_region(centre, ENTRY.regions) == region


def test_a_stamp_is_read_as_it_was_written_and_only_under_its_name() -> None:
    marks = {"cluster": "a1b2c3d4", "pool": "default/llm", "created": "1795000000", "Cost-Centre": "7"}
    variables = stamp("tgp-a1b2c3d4-llm-0k3zq", marks)
    assert variables["TGP_TAG_COST_CENTRE"] == "7" and variables["TGP_NODE"] == "tgp-a1b2c3d4-llm-0k3zq"
    environment = {**variables, "TGP_TOKEN": "not a mark", "PATH": "/bin"}
    seen = marks_of(environment, "tgp-a1b2c3d4-llm-0k3zq")
    assert seen == {"cluster": "a1b2c3d4", "pool": "default/llm", "created": "1795000000", "cost_centre": "7", "node": seen["node"]}
    assert marks_of(environment, "other") == {} == marks_of({}, "other") == marks_of({"TGP_NODE": ""}, "")


@pytest.mark.parametrize("word", ["EXITED", "TERMINATED"])
def test_L16_a_pod_that_stands_still_is_booked_at_the_price_it_ran_at(word: str) -> None:
    """RunPod says cost 0 of it from then on; the hours before were not free."""
    api, hours = Api("runpod", "http://runpod.test"), timedelta(hours=10)
    ours = claim(cloud="runpod", launch_started=NOON, instance_id="p1", ids_seen=("p1",), price_paid=None)
    for status, cost in (("RUNNING", 0.59), (word, 0)):
        pod = to_instance(api, {"id": "p1", "status": status, "cost": cost}, "GET /pods", FACTS)
        ours = noted(ours, pod, FACTS, NOON + hours)
    assert ours.price_paid == Decimal("0.59") and claim_cost(ours, NOON + hours) == Decimal("5.90")


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ('"minute";r=41;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012', 0),
        ('"minute";r=4;t=12', 0),
        ('"minute";r=3;t=12', 12),
        ('"minute";r=0;t=7, "hour";r=2;t=40', 40),
        ('"minute";r=50;t=7, "day";r=1;t=45012', 60),  # bounded: nobody sleeps for half a day
        ("", 0),
        ("nonsense", 0),
        ('"minute";r=3', 1),
    ],
)
def test_a_window_that_is_nearly_used_up_holds_the_next_call_back(
    tmp_path: pathlib.Path, header: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    clock, pace = HandClock(), Windows("account")
    start = clock.now()
    pace.note(header, clock)
    pace.wait("queued", clock)
    assert (clock.now() - start).total_seconds() == pytest.approx(pause)
    pace.wait("queued", clock)
    assert (clock.now() - start).total_seconds() == pytest.approx(pause)


@pytest.mark.parametrize(
    ("body", "text", "sentence"),
    [
        ({"title": "Not Found", "status": 404, "detail": "pod not found"}, "", "pod not found"),
        ({"title": "Unprocessable", "errors": ["a", "b"]}, "", "Unprocessable; a; b"),
        ({"title": "T", "detail": "d", "errors": "odd"}, "", "d"),
        (None, f"<html>{'x' * 500}", f"<html>{'x' * 294}"),
    ],
)
def test_error_bodies(body: object, text: str, sentence: str) -> None:
    assert explain(body, text) == (None, sentence)
