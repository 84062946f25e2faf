# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What instance modules say of offers and machines that are not what is wanted."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, LaunchRefused
from ansible_collections.tgp.gpu.plugins.module_utils.model import Instance, InstanceState, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.providers import results

REGIONS = {"ny2": "us-east", "ca1": "us-west"}


def offer(place: str, price: str | None = "1.50", available: int | None = None) -> Offer:
    cost = None if price is None else Decimal(price)
    return Offer("cloud", f"A10@{place}", "A10", "A10", 1, cost, region=REGIONS[place], cloud_region=place, available=available)


def rentable(region: str, *offers: Offer, **more: t.Any) -> list[str]:
    return [one.cloud_region for one in results.rentable("Cloud", "A10", region, offers, offers, REGIONS, **more)]


@pytest.mark.parametrize(
    ("region", "places"),
    [("", ["ny2", "ca1"]), ("us-east", ["ny2"]), ("CA1", ["ca1"]), ("us", ["ny2", "ca1"])],
)
def test_what_is_not_sold_out_in_the_region_is_rentable_in_the_order_of_the_offers(region: str, places: list[str]) -> None:
    assert rentable(region, offer("ny2"), offer("ca1", available=3), offer("ny2", available=0)) == places


def test_a_region_is_read_as_the_cloud_writes_it_and_named_as_it_was_typed() -> None:
    def inner(text: str) -> str:
        return text.partition("(")[2].rstrip(")")

    assert rentable("East (NY2)", offer("ny2"), read=inner) == ["ny2"]
    with pytest.raises(LaunchRefused, match=r"A10 is sold out in East \(NY2\)\.") as caught:
        rentable("East (NY2)", offer("ca1"), read=inner)
    assert caught.value.remedy == "It may be free in ca1."
    there = Instance("cloud", "1", "tgp-x", InstanceState.RUNNING, region="ny2")
    assert results.wrong_region(there, "East (NY2)", REGIONS, read=inner) == ""
    assert results.wrong_region(there, "West (CA1)", REGIONS, read=inner) == "is in ny2, not in West (CA1)"


def test_what_is_sold_out_everywhere_is_no_misspelt_region() -> None:
    with pytest.raises(LaunchRefused) as caught:
        rentable("", offer("ny2", available=0))
    assert (caught.value.reason, caught.value.message) == ("capacity", "A10 is sold out.")
    assert caught.value.remedy.startswith("No region has it now")
    with pytest.raises(InvalidInput, match="Cloud has no region 'us-esat'"):
        rentable("us-esat", offer("ny2", available=0))


@pytest.mark.parametrize(("limit", "kept"), [(None, 3), ("1.50", 2), ("1.49", 1)])
def test_an_unknown_price_is_within_every_limit(limit: str | None, kept: int) -> None:
    offers = [offer("ny2"), offer("ca1", "2"), offer("ca1", None)]
    assert len(results.within_limit(offers, None if limit is None else Decimal(limit))) == kept


@pytest.mark.parametrize(("estimated", "words"), [(False, "costs 1.50"), (True, "costs about 1.50")])
def test_the_first_offer_above_the_limit_is_named(estimated: bool, words: str) -> None:
    offers = [dataclasses.replace(one, price_estimated=estimated) for one in (offer("ny2"), offer("ca1", "2"))]
    with pytest.raises(InvalidInput, match=rf"A10@ny2 {words} \$/h, more than max_price_hour 1\."):
        results.within_limit(offers, Decimal(1))


def test_what_a_cloud_does_not_say_of_a_machine_is_not_held_against_it() -> None:
    unsaid = Instance("cloud", "1", "tgp-x", InstanceState.RUNNING)
    assert (
        results.wrong_type(unsaid, "A10") == results.wrong_region(unsaid, "us-east", REGIONS) == results.too_small(unsaid, 64) == ""
    )
    said = dataclasses.replace(unsaid, instance_type="A100", region="ca1", disk_gib=63)
    assert results.wrong_type(said, "A10") == "is a A100, not a A10"
    assert results.wrong_region(said, "us-east", REGIONS) == "is in ca1, not in us-east"
    assert results.wrong_region(said, "", REGIONS) == ""
    assert results.too_small(said, 64) == "has a disk of 63 GiB, and 64 GiB are wanted"
