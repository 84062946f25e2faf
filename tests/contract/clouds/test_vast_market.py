# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's market: every offer that fits is found, none that does not, and each has its true price."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, Lane, Offer, OfferQuery
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.search import SearchScope

from sandbox import vast_cloud

from .stands_vast import VastStand


def fill(stand: VastStand, entries: t.Iterable[dict[str, t.Any]]) -> None:
    stand.world.offers[:] = [vast_cloud.vast_offer(entry) for entry in entries]


def found(stand: VastStand, scope: SearchScope = SearchScope(), **query: t.Any) -> dict[str, Offer]:
    offers = stand.cloud(scope=scope).offers(OfferQuery(**query))
    assert len({one.id for one in offers}) == len(offers)
    return {one.id: one for one in offers}


def test_an_offer_is_read_with_all_that_matters(vast_stand: VastStand) -> None:
    offer = found(vast_stand, spot=False, disk_gib=100)["8100001"]
    assert (offer.model, offer.gpu_count, offer.gpu_memory_mib, offer.host_id) == ("RTX4090", 1, 24576, "5511")
    assert (offer.region, offer.cloud_region, offer.available) == ("ca-east", "Quebec, CA", 1)
    assert offer.lanes == (Lane.KUBELET, Lane.SERVICE) and offer.instance_type == "1x RTX 4090"
    assert offer.price_hour == Decimal("0.35") + Decimal("0.0225") and offer.storage_price_hour == Decimal("0.0225")
    assert (offer.spot, offer.min_bid, offer.disk_gib, offer.reliability) == (False, None, 100, Decimal("0.992"))
    assert offer.vcpus == 8 and offer.memory_mib == 32125
    wanted = {"verified": "true", "cuda": "13.0", "inet-down": "910.4", "ports": "40", "static-ip": "true", "duration": "2500000"}
    assert dict(offer.traits) == wanted | {"datacenter": "false"}


def test_both_kinds_unless_one_is_wanted(vast_stand: VastStand) -> None:
    both, firm, spot = (found(vast_stand, spot=kind) for kind in (None, False, True))
    assert both.keys() == firm.keys() | spot.keys() and not firm.keys() & spot.keys()
    assert all(one.spot and one.min_bid is not None and key.endswith("-bid") for key, one in spot.items())
    assert spot["8100001-bid"].price_hour == Decimal("0.18") + spot["8100001-bid"].storage_price_hour


def test_a_cheap_machine_with_a_dear_disk_is_not_cheap(vast_stand: VastStand) -> None:
    assert not found(vast_stand, models=("RTX3090",), spot=False, max_price_hour=Decimal("0.16"))
    assert found(vast_stand, models=("RTX3090",), spot=False)["8100002"].price_hour == Decimal("0.15") + Decimal("0.02875")


def test_L16_a_premium_is_in_the_price_and_the_bill_of_the_world_is_the_same(vast_stand: VastStand) -> None:
    fill(vast_stand, [{"id": 1, "gpu": "L40S", "price": "0.50", "min_bid": "0.20", "premium": "0.07", "vm": True, "boot": 20.0}])
    firm, spot = found(vast_stand, disk_gib=64)["1"], found(vast_stand, disk_gib=64)["1-bid"]
    disk = Decimal("0.014375")
    assert (firm.price_hour, firm.storage_price_hour) == (Decimal("0.57") + disk, disk)
    assert spot.price_hour == Decimal("0.20") + disk, "an interruptible machine has no premium"
    assert not found(vast_stand, spot=False, max_price_hour=Decimal("0.57"))
    made = vast_stand.cloud().launch(vast_stand.request(offer=firm))
    vast_stand.wait_for(vast_stand.cloud(), made, {InstanceState.RUNNING})
    assert vast_stand.read(made).price_hour == vast_stand.machine(made).rate() == firm.price_hour


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"models": ("RTX4090",)}, {"8100001", "8100003", "8100005"}),
        ({"models": ("RTX4090",), "gpu_counts": (1,)}, {"8100001", "8100005"}),
        ({"gpu_counts": (2, 4)}, {"8100003"}),
        ({"models": ("RTX4090",), "min_gpu_memory_mib": 48 * 1024}, {"8100005"}),
        ({"min_gpu_memory_mib": 32 * 1024}, {"8100004", "8100005"}),
        ({"lanes": (Lane.KUBELET,)}, {"8100001", "8100004", "8100005"}),
        ({"lanes": (Lane.TALOS,)}, set()),
        ({"lanes": (Lane.SERVICE,), "max_price_hour": Decimal("0.40")}, {"8100001", "8100002"}),
        ({"rent_seconds": 2_500_001}, set()),
        ({"disk_gib": 500}, set()),
        ({"models": ("GB200",)}, set()),
    ],
)
@pytest.mark.parametrize("inexact", [False, True])
def test_every_filter_is_kept_whatever_the_server_does(
    vast_stand: VastStand, query: dict[str, t.Any], wanted: set[str], inexact: bool
) -> None:
    vast_stand.mood(inexact_filters=inexact)
    vast_stand.world.offers += [vast_cloud.vast_offer({"gpu": "RTX 3060", "stock": 0}) for _n in range(20)]  # what slips through
    assert set(found(vast_stand, spot=False, **query)) == wanted


def test_hosts_are_verified_unless_said_otherwise(vast_stand: VastStand) -> None:
    fill(
        vast_stand,
        [
            {"id": 1, "gpu": "L40S"},
            {"id": 2, "gpu": "L40S", "verification": "unverified", "data_centre": True},
            {"id": 3, "gpu": "L40S", "external": True},
            {"id": 4, "gpu": "L40S", "stock": 0},
            {"id": 5, "gpu": "L40S", "data_centre": True},
        ],
    )
    assert set(found(vast_stand, spot=False)) == {"1", "5"}
    assert set(found(vast_stand, SearchScope(unverified=True), spot=False)) == {"1", "2", "5"}
    assert set(found(vast_stand, SearchScope(datacenter=True), spot=False)) == {"5"}


def test_what_another_class_allows_is_not_rented_for_this_one(vast_stand: VastStand) -> None:
    fill(vast_stand, [{"id": 1, "gpu": "L40S", "verification": "unverified", "vm": True}])
    offer = found(vast_stand, SearchScope(unverified=True), spot=False)["1"]
    for settings in ({}, {"unverified": True, "datacenter": True}):
        with pytest.raises(errors.LaunchRefused) as caught:
            vast_stand.cloud().launch(vast_stand.request(offer=offer, settings=settings))
        assert caught.value.reason == "conflict"
    assert vast_stand.cloud().launch(vast_stand.request(offer=offer, settings={"unverified": True}))


def test_a_blackwell_card_needs_a_driver_that_knows_it(vast_stand: VastStand) -> None:
    fill(vast_stand, [{"id": 1, "gpu": "RTX 5090", "cuda": 12.4}, {"id": 2, "gpu": "RTX 5090", "cuda": 12.8}])
    assert set(found(vast_stand, spot=False)) == {"2"}


def test_names_and_sizes_that_mislead(vast_stand: VastStand) -> None:
    names = ("RTX 4070S Ti", "Q RTX 6000", "RTX A6000", "RTX 6000Ada", "RTX PRO 6000 S", "A10g", "InstinctMI50", "Tesla V100")
    sizes = {"RTX 2080 Ti": 22528, "A100 PCIE": 81559, "H200": 143771, "B200": 183359}
    fill(vast_stand, [{"gpu": name} for name in names] + [{"gpu": name, "memory_mib": size} for name, size in sizes.items()])
    read = {(one.model, (one.gpu_memory_mib or 0) // 1024) for one in found(vast_stand, spot=False).values()}
    assert read == {
        ("RTX4070TiSUPER", 16),
        ("QUADRO-RTX6000", 24),
        ("A6000", 48),
        ("RTX6000Ada", 48),
        ("RTXPRO6000", 96),
        ("A10G", 24),
        ("MI50", 16),
        ("V100", 16),
        ("RTX2080Ti", 22),
        ("A100-PCIE", 80),
        ("H200", 141),
        ("B200", 180),
    }


# ---- more than one answer holds


def test_all_pages_of_a_large_market_are_read(vast_stand: VastStand) -> None:
    vast_stand.world.offers[:] = vast_cloud.vast_offers(seed=7, count=1000)
    rows = [one for one in vast_stand.world.offers if one.details["row"]["verification"] == "verified"]
    wanted = {one.type for one in rows if one.details["row"]["disk_space"] >= 64}
    blackwell = ("RTX5090", "RTXPRO6000", "B200", "RTXPRO6000WS")
    old = {one.type for one in rows if one.model in blackwell and one.details["row"]["cuda_max_good"] < 12.8}
    assert set(found(vast_stand, spot=False)) == wanted - old and len(wanted) > 300


@pytest.mark.parametrize("ties", [64, 65, 130, 200])
@pytest.mark.parametrize("others", [0, 30])
def test_offers_of_one_price_are_not_lost_between_pages(vast_stand: VastStand, ties: int, others: int) -> None:
    entries: list[dict[str, t.Any]] = [{"id": 1000 + n, "gpu": "L40S", "price": "0.50"} for n in range(ties)]
    entries += [{"id": 2000 + n, "gpu": "L40S", "price": Decimal("0.40") + Decimal(n) / 100} for n in range(others)]
    fill(vast_stand, entries)
    assert len(found(vast_stand, spot=False)) == ties + others


def test_prices_that_are_rounded_in_answers_lose_nothing(vast_stand: VastStand) -> None:
    fill(vast_stand, ({"id": 1000 + n, "gpu": "L40S", "price": Decimal("0.5") + Decimal(n) / 1_000_000} for n in range(150)))
    assert len(found(vast_stand, spot=False)) == 150


def test_a_server_that_ignores_the_price_does_not_hold_us_for_ever(vast_stand: VastStand) -> None:
    fill(vast_stand, ({"id": 1000 + n, "gpu": "L40S", "price": Decimal("0.5") + Decimal(n) / 100} for n in range(100)))
    http = vast_stand.cloud()._api.http
    first = http.call("POST", "/api/v0/bundles/", json={"order": [["dph_total", "asc"]], "limit": 64}).json
    vast_stand.faults.add({"kind": "body", "path": "bundles", "body": first, "times": None})
    with pytest.raises(errors.BadShape, match="begins at"):
        vast_stand.cloud().offers(OfferQuery(spot=False, disk_gib=8))


# ---- bad days


@pytest.mark.parametrize(
    "body",
    [[], {}, None, "<html>", {"offers": {}}, {"offers": [7]}, {"offers": [{}]}, {"offers": [{"id": 1}]}, {"offers": None}],
)
def test_an_odd_market_is_never_an_empty_one(vast_stand: VastStand, body: t.Any) -> None:
    vast_stand.faults.add({"kind": "body", "path": "bundles", "body": body, "times": None})
    with pytest.raises(errors.BadShape):
        vast_stand.cloud().offers()


def test_half_an_answer_is_no_answer(vast_stand: VastStand) -> None:
    vast_stand.faults.add({"kind": "truncate", "path": "bundles", "times": None})
    with pytest.raises(errors.BadShape):
        vast_stand.cloud().offers()


def test_a_search_is_repeated_after_an_outage(vast_stand: VastStand) -> None:
    vast_stand.faults.add({"kind": "status", "path": "bundles", "status": 503, "times": 2})
    assert found(vast_stand, spot=False)


@pytest.mark.parametrize("form", ["text", "detail", "json", "mixed"])
def test_patience_is_had_when_it_is_asked_for(vast_stand: VastStand, form: str) -> None:
    vast_stand.mood(pace_form=form, retry_after=form == "json")
    key = vast_stand.account
    for _turn in range(10):  # somebody else uses the same key from this machine
        key.check_pace(vast_stand.world, "search", "")
    vast_stand.faults.add({"kind": "status", "path": "bundles", "status": 429, "body": "API requests too frequent", "times": 2})
    start = vast_stand.world.clock.seconds()
    assert found(vast_stand, spot=False)
    assert vast_stand.world.clock.seconds() - start > 8


def test_a_quota_that_is_used_up_is_not_asked_again(vast_stand: VastStand) -> None:
    vast_stand.mood(search_quota=1)
    found(vast_stand, spot=False)
    with pytest.raises(errors.RateLimited, match="00:00 UTC"):
        vast_stand.cloud().offers(OfferQuery(spot=False))
    assert vast_stand.account.searches == 2
