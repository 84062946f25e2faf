# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-51: where machines can mount the existing volumes of a class, and what those volumes cost."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, Offer, Specs, Volume, VolumeMount
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import account_volumes
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import select

from .build import CAPABILITIES, NOON, node_class, offer, pool

WEST, EAST = "us-west-1", "us-east-1"
SETS = VolumeMount("sets", "/data/sets")
RUNS = VolumeMount("runs", "/data/runs")


def volume(name: str, region: str = WEST, identity: str = "", **facts: object) -> Volume:
    return dataclasses.replace(Volume("lambda", identity or f"{name}-{region}", name, region), **facts)  # type: ignore[arg-type]


def chosen(*mounts: VolumeMount, **account: tuple[Volume, ...] | None) -> tuple[list[str], dict[str, str]]:
    """Regions of the offers that are left, and why the others are not."""
    clouds = (CloudChoice("lambda", volumes=mounts), CloudChoice("vast"))
    offers: list[Offer] = [
        dataclasses.replace(offer("0.40", id=f"{cloud}@{region}", cloud=cloud), cloud_region=region)
        for cloud in ("lambda", "vast")
        for region in (WEST, EAST, "")
    ]
    made = node_class(clouds=clouds)
    found = select(offers, pool(), made, CAPABILITIES, Settings(), NOON, account=account)
    return sorted(one.id for one in found.candidates if one.cloud == "lambda"), dict(found.rejected)


def test_L51_only_offers_of_the_region_of_all_volumes_are_left() -> None:
    left, why = chosen(SETS, RUNS, **{"lambda": (volume("sets"), volume("sets", EAST), volume("runs"))})
    assert left == [f"lambda@{WEST}"]
    assert why[f"lambda/lambda@{EAST}"] == why["lambda/lambda@"] == "volume", "also the one without a region"
    assert not any(key.startswith("vast/") and reason == "volume" for key, reason in why.items()), (
        "an entry without volumes is free"
    )


@pytest.mark.parametrize("known", [None, (), (volume("runs"),), (volume("sets", EAST, "a"), volume("sets", EAST, "b"))])
def test_L51_unknown_missing_and_ambiguous_volumes_leave_no_offer(known: tuple[Volume, ...] | None) -> None:
    assert chosen(SETS, **{"lambda": known})[0] == []


def test_L51_an_id_goes_before_a_name() -> None:
    odd = volume("sets", EAST, "other"), volume("named-like-an-id", WEST, "sets")
    assert account_volumes.regions([SETS], odd) == {WEST}
    assert account_volumes.mounted([SETS], odd, WEST) == [(odd[1], "/data/sets")]
    assert account_volumes.mounted([SETS], odd, EAST) is None


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "could not be read"),
        ((), "has no volume sets, runs; it has none"),
        ((volume("sets"),), f"has no volume runs; it has sets (sets-{WEST}, {WEST})"),
        ((volume("sets"), volume("runs", EAST)), f"no region has all of its volumes (sets in {WEST}; runs in {EAST})"),
        ((volume("sets", WEST, "a"), volume("sets", WEST, "b"), volume("runs")), "called sets; name one by its id (a, b)"),
        ((volume("sets"), volume("sets", EAST), volume("runs")), ""),
    ],
)
def test_L51_why_no_machine_can_have_them(known: tuple[Volume, ...] | None, said: str) -> None:
    found = account_volumes.problem(CloudChoice("lambda", volumes=(SETS, RUNS)), known)
    assert said in found if said else found == ""
    assert account_volumes.problem(CloudChoice("lambda"), known) == "", "an entry without volumes has no problem"


def test_L51_a_volume_costs_once_however_many_classes_name_it() -> None:
    priced = volume("sets", size_gb=Decimal(500))
    dear = VolumeMount("sets", "/data/sets", gb_month=Decimal("0.20"))
    rows = account_volumes.costs([CloudChoice("lambda", volumes=(SETS,)), CloudChoice("lambda", volumes=(dear,))], [priced])
    assert [(row.name, row.price_month) for row in rows] == [("sets", Decimal("100.00"))]
    assert account_volumes.total(rows) == Decimal("100.00")


def test_L51_one_unknown_price_makes_the_sum_unknown() -> None:
    assert account_volumes.total([volume("sets", price_month=Decimal(35)), volume("runs")]) is None
    assert account_volumes.total([]) == 0


def test_L51_a_cloud_is_asked_only_where_an_enabled_entry_names_volumes() -> None:
    entry = CloudChoice("lambda", volumes=(SETS,))
    off = dataclasses.replace(entry, enabled=False)
    assert account_volumes.wanted(Specs(classes={"a": node_class(clouds=(entry, CloudChoice("vast")))}, pools=())) == {
        "lambda": [entry]
    }
    assert account_volumes.wanted(Specs(classes={"a": node_class(clouds=(off,))}, pools=())) == {}
