# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image of an account is used, waited for or made, and which old ones may go."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.disk_images import (
    DiskImage,
    ImagePolicy,
    ImageState,
    Retention,
    Step,
    WantedImage,
    decide,
    month_cost,
    read_name,
    retained,
    storage_cost,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
WANTED = WantedImage("ab" * 32, "1.13.9")
DAY = 86400


def image(
    number: int, state: ImageState = ImageState.READY, *, days: float | None = 30, of: WantedImage = WANTED, **more: t.Any
) -> DiskImage:
    created = None if days is None else NOW - timedelta(days=days)
    facts = {"id": f"i{number}", "name": of.name(number), "serial": number, "size": None, "link": f"links/{number}", **more}
    return DiskImage(state=state, of=of, created=created, **facts)


@pytest.mark.parametrize("cluster", ["", "a1b2c3d4"])
@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize(("version", "arch", "serial"), [
    ("1.13.9", "amd64", 1), ("1.14.0-rc.1", "amd64", 2), ("1.13.9", "arm64", 1), ("1.10.0", "arm64", 12),
])  # fmt: skip
def test_a_name_says_what_the_image_is_of(version: str, arch: str, serial: int, dots: bool, cluster: str) -> None:
    name = WantedImage("0123456789ab" + "c" * 52, version, arch, cluster).name(serial, dots=dots)
    assert read_name(name) == (WantedImage("0123456789ab", version, arch, cluster), serial) and len(name) <= 63


@pytest.mark.parametrize("name", [
    "", "talos", "tgp-talos", "tgp-talos-v1.13.9", "tgp-talos-v1.13.9-abc", "tgp-talos-v1.13.9-0123456789AB",
    "my-tgp-talos-v1.13.9-0123456789ab", "tgp-talos-v1.13.9-0123456789ab-copy", "tgp-talos-v1.13.9-0123456789ab-1",
    "tgp-talos-v1.13.9-0123456789ab-ca1b2c3", "tgp-talos-v1.13.9-0123456789ab-cA1B2C3D4",
    "tgp-talos-v1.13-0123456789ab", "tgp-talos-v1.13.9-0123456789ab\n",
])  # fmt: skip
def test_other_names_are_not_ours(name: str) -> None:
    assert read_name(name) is None


@pytest.mark.parametrize(("states", "policy", "step"), [
    ([], "IfMissing", Step.MAKE),
    (["READY"], "IfMissing", Step.USE),
    (["PENDING"], "IfMissing", Step.WAIT),
    (["FAILED"], "IfMissing", Step.MAKE),
    (["UNKNOWN"], "IfMissing", Step.REFUSE),
    (["READY", "PENDING"], "IfMissing", Step.USE),
    (["READY", "UNKNOWN"], "IfMissing", Step.USE),
    ([], "Always", Step.MAKE),
    (["READY"], "Always", Step.MAKE),
    (["READY", "PENDING"], "Always", Step.WAIT),
    (["READY", "UNKNOWN"], "Always", Step.REFUSE),
    ([], "Never", Step.REFUSE),
    (["PENDING"], "Never", Step.REFUSE),
    (["READY"], "Never", Step.USE),
])  # fmt: skip
def test_what_is_done_by_policy(states: list[str], policy: str, step: Step) -> None:
    images = [image(number, ImageState[state]) for number, state in enumerate(states, 1)]
    found = decide(images, WANTED, ImagePolicy(policy))
    assert found.step is step
    if step is Step.MAKE:
        assert found.serial == len(states) + 1, "the number of none that is there"


@pytest.mark.parametrize("other", [
    WantedImage("ab" * 32, "1.13.8"), WantedImage("ab" * 32, "1.13.9", "arm64"), WantedImage("cd" * 32, "1.13.9"),
    WantedImage("ab" * 6 + "cd" * 26, "1.13.9"),
])  # fmt: skip
def test_an_image_of_something_else_does_not_count(other: WantedImage) -> None:
    assert decide([image(1, of=other)], WANTED, ImagePolicy.IF_MISSING).step is Step.MAKE


def test_a_name_with_the_beginning_of_the_id_is_enough_where_there_is_no_more() -> None:
    short = WantedImage("ab" * 6, "1.13.9")
    assert decide([image(1, of=short, days=3), image(2, of=short, days=1)], WANTED, ImagePolicy.IF_MISSING).image == image(
        2, of=short, days=1
    )


def test_by_the_hand_worked_example_two_of_seven_go() -> None:
    images = [
        image(1, days=40),
        image(2, days=30),
        image(3, days=20),
        image(4, days=10),
        image(5, ImageState.PENDING, days=50),
        image(6, ImageState.FAILED, days=60),
        image(7, days=None),
    ]
    rule = Retention(keep=2, min_age=7 * DAY, protected=frozenset({"links/2"}))
    assert retained(images, image(4, days=10), {"i9"}, rule, NOW) == {
        "i1": "",
        "i2": "is protected",
        "i3": "is among the newest",
        "i4": "is the one that is wanted",
        "i5": "its state is pending",
        "i6": "",
        "i7": "its age is unknown",
    }
    assert set(retained(images, None, (), Retention(), NOW).values()) == {"no number of images to keep is given"}
    assert retained([image(1, days=7)], None, (), rule, NOW + timedelta(seconds=-1))["i1"] == "is too young"


STATES = st.sampled_from(list(ImageState))


@given(
    facts=st.lists(st.tuples(STATES, st.one_of(st.none(), st.integers(0, 400))), max_size=8),
    keep=st.one_of(st.none(), st.integers(1, 5)),
    min_age=st.integers(0, 400),
    current=st.integers(1, 8),
    used=st.sets(st.integers(1, 8)),
    protected=st.sets(st.integers(1, 8)),
)
def test_nothing_goes_that_has_a_reason_to_stay(
    facts: list[t.Any], keep: int | None, min_age: int, current: int, used: set[int], protected: set[int]
) -> None:
    images = [image(number, state, days=days) for number, (state, days) in enumerate(facts, 1)]
    now = {one.serial: one for one in images}
    rule = Retention(keep, min_age * DAY, frozenset(f"i{number}" for number in protected))
    stays = retained(images, now.get(current), {f"i{number}" for number in used}, rule, NOW)
    gone = [one for one in images if not stays[one.id]]
    assert stays.keys() == {one.id for one in images} and (keep is not None or not gone)
    for one in gone:
        assert one.serial not in used | protected | {current} and one.state in (ImageState.READY, ImageState.FAILED)
        assert one.created is not None and NOW - one.created >= timedelta(days=min_age)
    left = [one for one in images if one.state is ImageState.READY and one not in gone]
    assert len(left) >= min(keep or 0, sum(one.state is ImageState.READY for one in images))


def test_cost_of_a_month_is_that_of_decimal_gigabytes() -> None:
    assert month_cost(8 * 1024**3, Decimal("0.05")) == Decimal("0.4295") and month_cost(None, Decimal("0.05")) is None


GIGABYTE = 1_000_000_000


@pytest.mark.parametrize(("size", "created", "since", "expected"), [
    (10 * GIGABYTE, 73, None, "0.05"),  # a tenth of a month of 730 hours, at $0.05 for a gigabyte
    (10 * GIGABYTE, 73, 36.5, "0.025"),
    (10 * GIGABYTE, 36.5, 73, "0.025"),
    (10 * GIGABYTE, 0, 73, "0"),
    (10 * GIGABYTE, -1, None, "0"),  # made after the time of the report
    (None, 73, None, None),
    (10 * GIGABYTE, None, None, None),
])  # fmt: skip
def test_storage_costs_from_the_later_of_creation_and_report(
    size: int | None, created: float | None, since: float | None, expected: str | None
) -> None:
    """Hours before the end of the report."""
    began = None if created is None else NOW - timedelta(hours=created)
    start = None if since is None else NOW - timedelta(hours=since)
    cost = storage_cost(size, Decimal("0.05"), began, start, NOW)
    assert cost == (None if expected is None else Decimal(expected))


@pytest.mark.parametrize(("cluster", "gone"), [("", ["i1"]), ("a1b2c3d4", ["i2"]), ("0badcafe", [])])
def test_an_image_goes_only_in_a_run_of_its_own_cluster(cluster: str, gone: list[str]) -> None:
    own = dataclasses.replace(WANTED, cluster="a1b2c3d4")
    images = [image(1), image(2, of=own), image(3, days=20), image(4, of=own, days=20)]
    stays = retained(images, None, (), Retention(keep=1, cluster=cluster), NOW)
    assert [one for one, why in stays.items() if not why] == gone
