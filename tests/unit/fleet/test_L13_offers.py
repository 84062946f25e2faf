# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-13: which offers, for which reason not, in which order."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Lane,
    MeshChoice,
    NodeClass,
    Offer,
    Phase,
    Pool,
    Quality,
    Requirement,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff, requirements
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import (
    REASONS,
    Selection,
    bid,
    price_verdict,
    priced,
    select,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.requirements import met
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers import registry

from .build import CAPABILITIES, NOON, decide, instance, node, node_class, of, offer, one, pool, seen, specs
from .build import claim as a_claim
from .build import pod as a_pod

GOOD = offer(
    "0.42",
    model="A30",
    gpu_memory_mib=24576,
    vcpus=8,
    memory_mib=65536,
    disk_gib=200,
    seen=NOON,
    reliability=Decimal("0.99"),
    available=1,
    traits={"verified": "true"},
)
STRICT = node_class(
    quality=Quality(min_reliability=Decimal("0.98"), verified=True),
    gpu_types=("A30", "A10"),
    gpu_count=1,
    gpu_memory_mib=24576,
    min_vcpus=8,
    min_memory_mib=65536,
    min_disk_gib=200,
    regions=("us-west",),
)
PICKY = pool(
    max_hourly_price=Decimal("0.42"),
    mig=(("1g.6gb", 4),),
    requirements=(Requirement("kubernetes.io/arch", "In", ("amd64",)), Requirement("tgp.io/reliability", "Gte", ("0.98",))),
)


def choose(*offers: Offer, wanted: Pool | None = None, made: NodeClass | None = None, **settings: t.Any) -> Selection:
    return select(offers, wanted or pool(), made or node_class(), CAPABILITIES, Settings(**settings), NOON)


SPOILT: list[tuple[str, dict[str, t.Any]]] = [
    ("provider disabled", {"cloud": "vast"}),
    ("no accepted lane", {"lanes": (Lane.SERVICE,)}),
    ("gpu type", {"model": "H100-SXM"}),
    ("gpu count", {"gpu_count": 2}),
    ("gpu memory", {"gpu_memory_mib": 16384}),
    ("mig profiles", {"model": "A10"}),
    ("vcpus", {"vcpus": None}),
    ("memory", {"memory_mib": 1}),
    ("disk", {"disk_gib": 199}),
    ("region", {"region": "eu-central", "cloud_region": "europe-central-1"}),
    ("spot not allowed", {"spot": True}),
    ("requirements", {"arch": "arm64"}),
    ("quality", {"reliability": Decimal("0.5")}),
    ("not available", {"available": 0}),
    ("blocked", {"host_id": "h-1"}),
    ("price unknown", {"price_hour": None}),
    ("price too old", {"seen": NOON - timedelta(seconds=301)}),
    ("maxHourlyPrice", {"price_hour": Decimal("0.4201")}),
]
BLOCKED = {"host:lambda:h-1": NOON + timedelta(minutes=1)}


def reason_of(made: Offer) -> str:
    found = select((made,), PICKY, STRICT, CAPABILITIES, Settings(), NOON, BLOCKED)
    return next(iter(found.rejected.values()), "")


def test_L13_the_good_offer_passes_and_limits_are_inclusive() -> None:
    assert reason_of(GOOD) == ""
    assert reason_of(dataclasses.replace(GOOD, seen=NOON - timedelta(seconds=300))) == ""


@pytest.mark.parametrize(("reason", "facts"), SPOILT)
def test_L13_each_reason(reason: str, facts: dict[str, t.Any]) -> None:
    assert reason_of(dataclasses.replace(GOOD, **facts)) == reason


def test_L13_the_first_reason_counts() -> None:
    """Spoil an offer by everything from some check on: the reason is that check, in the contract's order."""
    assert [reason for reason, _facts in SPOILT] == [
        reason for reason in REASONS if reason not in ("mps clients", "volume", "image", "spot discount")
    ]
    everything: dict[str, t.Any] = {}
    for reason, facts in reversed(SPOILT):
        everything.update(facts)
        assert reason_of(dataclasses.replace(GOOD, **everything)) == reason


def ordered(strategy: str) -> list[str]:
    prices = {"lambda": ("0.44", 1), "vast": ("0.42", 2), "a": ("0.40", 2), "b": ("0.39", 3), "c": ("0.50", 0)}
    names = list(prices)
    offers = [offer(price, cloud=cloud, id=cloud) for cloud, (price, _priority) in prices.items()]
    choices = tuple(CloudChoice(cloud, priority) for cloud, (_price, priority) in prices.items())
    capabilities = {name: dataclasses.replace(CAPABILITIES["lambda"], cloud=name) for name in names}
    made = dataclasses.replace(node_class(), clouds=choices, strategy=strategy)
    random.Random(1).shuffle(offers)
    found = select(offers, pool(), made, capabilities, Settings(), NOON)
    return [str(one.price_hour) for one in found.candidates]


def test_L13_strategies() -> None:
    assert ordered("weighted") == ["0.40", "0.44", "0.50", "0.42", "0.39"]
    assert ordered("cheapest") == ["0.39", "0.40", "0.42", "0.44", "0.50"]
    assert ordered("priority") == ["0.50", "0.44", "0.40", "0.42", "0.39"]


def test_L13_strategy_of_the_class_decides_between_price_and_priority() -> None:
    made = node_class(clouds=(CloudChoice("lambda", 3), CloudChoice("vast", 0)))
    offers = (offer("0.40"), offer("0.42", cloud="vast"))
    assert choose(*offers, made=made).candidates[0].cloud == "vast"
    assert choose(*offers, made=dataclasses.replace(made, strategy="cheapest")).candidates[0].cloud == "lambda"


def test_L13_ties() -> None:
    even = [
        offer("0.40", id="b", reliability=Decimal("0.9")),
        offer("0.40", id="a", reliability=Decimal("0.9")),
        offer("0.40", id="z", reliability=Decimal("0.99")),
        offer("0.40", id="unknown"),
    ]
    assert [one.id for one in choose(*even).candidates] == ["z", "a", "b", "unknown"]


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("tgp.io/gpu-type", "In", ("RTX4090", "A10"), True),
        ("tgp.io/gpu-type", "NotIn", ("A10",), False),
        ("tgp.io/region", "In", ("us-west", "us-east"), True),
        ("topology.kubernetes.io/region", "In", ("us-west-1",), True),
        ("tgp.io/region", "In", ("US-West-1",), True),
        ("tgp.io/gpu-memory", "Exists", (), False),
        ("tgp.io/gpu-memory", "DoesNotExist", (), True),
        ("tgp.io/gpu-memory", "NotIn", ("1",), True),
        ("tgp.io/gpu-memory", "Gt", ("1",), False),
        ("tgp.io/gpu-count", "Exists", (), True),
        ("tgp.io/gpu-count", "Gt", ("0",), True),
        ("tgp.io/gpu-count", "Gt", ("1",), False),
        ("tgp.io/gpu-count", "Gte", ("1",), True),
        ("tgp.io/gpu-count", "Lt", ("1",), False),
        ("tgp.io/gpu-count", "Lte", ("1",), True),
        ("tgp.io/gpu-count", "Lt", ("x",), False),
        ("tgp.io/gpu-count", "Lt", ("1", "2"), False),
        ("tgp.io/provider", "In", ("lambda",), True),
        ("node.kubernetes.io/instance-type", "In", ("gpu_1x",), True),
        ("tgp.io/spot", "In", ("false",), True),
    ],
)
def test_L13_operators(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    assert met(Requirement(key, operator, values), offer()) is expected


def test_L13_spot_competes_only_with_the_asked_discount() -> None:
    made = node_class(spot_allowed=True)
    firm, cheap, dear = offer("0.40", id="firm"), offer("0.28", id="cheap", spot=True), offer("0.29", id="dear", spot=True)
    assert [one.id for one in choose(firm, cheap, dear, made=made).candidates] == ["cheap", "dear", "firm"]
    found = choose(firm, cheap, dear, made=dataclasses.replace(made, spot_discount_min=Decimal("0.3")))
    assert [one.id for one in found.candidates] == ["cheap", "firm"] and found.rejected == {"lambda/dear": "spot discount"}


@pytest.mark.parametrize(("paid", "expected"), [("0.50", "ok"), ("0.501", "warn"), ("0.525", "warn"), ("0.526", "jump")])
def test_L13_price_after_the_launch(paid: str, expected: str) -> None:
    assert price_verdict(Decimal(paid), Decimal("0.50")) == expected
    assert price_verdict(Decimal(paid), None) == "ok"


def test_L13_price_jump_gives_the_machine_back() -> None:
    dear = instance(price_hour=Decimal("0.526"))
    wanted = specs(pool(max_hourly_price=Decimal("0.50")))
    observed = seen(claims=(a_claim(),), nodes=(node(),), instances=(dear,))
    assert one(decide(observed, wanted), "destroy").reason == "PriceJump"
    keeping = decide(observed, wanted, "provision")
    assert not of(keeping, "destroy") and "maxHourlyPrice" in keeping.problems[0]
    edge = seen(claims=(a_claim(),), nodes=(node(),), instances=(instance(price_hour=Decimal("0.525")),))
    assert not of(decide(edge, wanted), "destroy") and decide(edge, wanted).warnings


def test_L13_a_joining_machine_above_the_limit_goes_although_it_was_rented_at_that_price() -> None:
    """Nothing works on it yet: the document that a person has changed meanwhile counts."""
    joining = a_claim(phase=Phase.BOOTING, launch_started=NOON - timedelta(minutes=5))
    found = decide(seen(claims=(joining,), instances=(instance(),)), specs(pool(max_hourly_price=Decimal("0.30"))))
    assert one(found, "destroy").reason == "PriceJump"


@pytest.mark.parametrize(("disk", "counted", "goes"), [("0.08", "0", False), ("0", "0", True), ("0.08", "0.01", True)])
def test_L13_a_disk_that_an_older_version_did_not_count_ends_no_machine_in_use(disk: str, counted: str, goes: bool) -> None:
    rented = dataclasses.replace(a_claim().offer, storage_price_hour=Decimal(counted))
    machine = instance(price_hour=Decimal("0.50"), storage_price_hour=Decimal(disk))
    observed = seen(claims=(a_claim(offer=rented),), nodes=(node(),), instances=(machine,), pods=(a_pod(),))
    found = decide(observed, specs(pool(max_hourly_price=Decimal("0.42"))))
    assert [action.reason for action in of(found, "destroy")] == ["PriceJump"] * goes


@pytest.mark.parametrize(("reserved", "goes"), [("0.42", False), ("0.40", False), ("0.39", True)])
def test_L13_a_limit_that_was_lowered_ends_no_machine_in_use(reserved: str, goes: bool) -> None:
    """0.42 is the price that was agreed to, or 5 % above it: only the document says something else by now."""
    used = a_claim(reserved_price=Decimal(reserved))
    observed = seen(claims=(used,), nodes=(node(),), instances=(instance(),), pods=(a_pod(),))
    lowered = specs(pool(max_hourly_price=Decimal("0.30")))
    found = decide(observed, lowered)
    assert [action.reason for action in of(found, "destroy")] == ["PriceJump"] * goes
    assert goes or "it was rented for that price" in found.warnings[0]
    launching = decide(observed, lowered, "provision")
    assert bool(launching.problems) is goes


def test_L13_a_cloud_without_the_lane_is_said_so_before_a_cent_is_spent() -> None:
    made = node_class(clouds=("runpod",))
    found = decide(seen(clouds={"runpod": CloudView((), (offer(cloud="runpod"),))}), specs(classes=(made,), p=1), "provision")
    sentence = (
        "runpod: pods are unprivileged containers and cannot be Kubernetes nodes; accept lane service, or leave the cloud out"
    )
    assert not of(found, "launch") and found.shortfall[0].reason == sentence
    assert found.shortfall[0].rejected == {"no accepted lane": 1}
    nothing = decide(seen(clouds={"runpod": CloudView((), ())}), specs(classes=(made,), p=1), "provision")
    assert nothing.shortfall[0].reason == sentence  # whatever is on offer


def test_L13_offers_without_the_lane_say_so_where_others_of_the_cloud_have_it() -> None:
    container = offer(cloud="vast", lanes=(Lane.SERVICE,))
    found = decide(
        seen(clouds={"vast": CloudView((), (container,))}), specs(classes=(node_class(clouds=("vast",)),), p=1), "provision"
    )
    assert "accept lane service" in found.shortfall[0].reason and found.shortfall[0].reason.startswith("vast: ")


def test_L13_counts_and_nearest_reason() -> None:
    offers = (offer(id="a", gpu_count=0), offer(id="b", gpu_count=0), offer("9", id="c"))
    found = choose(*offers, wanted=pool(max_hourly_price=Decimal(1)))
    assert found.counts() == {"gpu count": 2, "maxHourlyPrice": 1}
    assert why({"lambda": CloudView((), offers)}, node_class(), pool(max_hourly_price=Decimal(1)))[0] == "maxHourlyPrice"


def test_L13_blocked_offers_come_back_for_manual_runs() -> None:
    key = {launch_backoff.key_of(offer()): NOON + timedelta(minutes=5)}
    assert not of(decide(seen(offers=(offer(),), blocks=key), specs(p=1), "provision"), "launch")
    assert of(decide(seen(offers=(offer(),), blocks=key), specs(p=1), "provision", ignore_blocklist=True), "launch")


HOST = {"verified": "true", "cuda": "12.8", "inet-down": "910.4", "static-ip": "true", "ports": "40", "duration": "2500000"}


@pytest.mark.parametrize(
    ("spec", "known", "enough", "too_little"),
    [
        (
            "minReliability",
            {"min_reliability": Decimal("0.95")},
            {"reliability": Decimal("0.95")},
            {"reliability": Decimal("0.949")},
        ),
        ("verified", {"verified": True}, {"verified": "true"}, {"verified": "false"}),
        ("minCuda", {"min_cuda": "12.8"}, {"cuda": "12.10"}, {"cuda": "12.4"}),
        ("minBandwidth", {"min_bandwidth": 200}, {"inet-down": "200"}, {"inet-down": "199.9"}),
        ("staticIp", {"static_ip": True}, {"static-ip": "true"}, {"static-ip": "false"}),
        ("minPorts", {"min_ports": 2}, {"ports": "2"}, {"ports": "1"}),
        ("minDuration", {"min_duration": 3600}, {"duration": "3600"}, {"duration": "3599"}),
    ],
)
def test_L13_quality_of_the_host(spec: str, known: t.Any, enough: t.Any, too_little: t.Any) -> None:
    """Each spec alone: met, not met, and not said; what is not said meets no spec."""

    def host(facts: dict[str, t.Any]) -> Offer:
        rest = {key: value for key, value in facts.items() if key != "reliability"}
        return offer(traits=rest, reliability=facts.get("reliability"))

    wanted = Quality(**known)
    assert requirements.unmet(host(enough), wanted) == ""
    assert requirements.unmet(host(too_little), wanted) == spec
    assert requirements.unmet(host({}), wanted) == spec
    assert requirements.unmet(host({next(iter(enough)): "often"} if spec != "minReliability" else {}), wanted) == spec
    assert choose(host({}), made=node_class(quality=wanted)).rejected == {"lambda/g-0.42": "quality"}


@pytest.mark.parametrize(
    ("said", "wanted", "reliability", "bandwidth", "taken"),
    [
        (Quality(), Quality(), "0.95", "200", True),
        (Quality(), Quality(), "0.949", "200", False),
        (Quality(), Quality(), "0.95", "199.9", False),
        (Quality(), Quality(), None, "910", False),
        (Quality(), Quality(), "0.99", None, False),
        (Quality(), Quality(min_reliability=Decimal("0.9")), "0.92", "200", True),
        (Quality(), Quality(min_bandwidth=100), "0.95", "150", True),
        (Quality(), Quality(min_bandwidth=300), "0.95", "250", False),
        (Quality(min_reliability=Decimal(0), min_bandwidth=0), Quality(), None, None, True),
        (Quality(min_reliability=Decimal("0.8")), Quality(), "0.85", "199", False),
        (Quality(min_reliability=Decimal("0.99")), Quality(min_reliability=Decimal("0.9")), "0.95", "200", False),
    ],
)
def test_L13_hosts_of_nodes_at_vast_are_good_ones_unless_something_else_is_said(
    said: Quality, wanted: Quality, reliability: str | None, bandwidth: str | None, taken: bool
) -> None:
    """For nodes only: containers may run anywhere."""
    known = Decimal(reliability) if reliability is not None else None
    traits = {} if bandwidth is None else {"inet-down": bandwidth}
    host = offer(cloud="vast", lanes=(Lane.KUBELET, Lane.SERVICE), reliability=known, traits=traits)
    made = node_class(clouds=(CloudChoice("vast", quality=said),), quality=wanted)

    def chosen(*lanes: Lane) -> Selection:
        return select([host], pool(lanes=lanes), made, registry.CAPABILITIES, Settings(), NOON)

    assert (bool(chosen().candidates), list(chosen().rejected.values())) == (taken, [] if taken else ["quality"])
    assert bool(chosen(Lane.SERVICE).candidates) == requirements.good_enough(host, wanted)
    assert registry.CAPABILITIES["vast"].node_quality == Quality(min_reliability=Decimal("0.95"), min_bandwidth=200)


@pytest.mark.parametrize(
    ("told", "expire_after", "taken"), [("7200", 7200, True), ("7199", 7200, False), ("60", None, True), ("", 7200, True)]
)
def test_L13_a_host_that_leaves_before_the_pool_would_let_go_is_not_taken(told: str, expire_after: int | None, taken: bool) -> None:
    host = offer(traits={"duration": told} if told else {})
    found = choose(host, wanted=pool(expire_after=expire_after))
    assert (list(found.rejected.values()), bool(found.candidates)) == ([] if taken else ["quality"], taken)


def test_L13_without_wishes_nothing_is_asked_of_a_host() -> None:
    assert choose(offer()).candidates and requirements.unmet(offer(traits=HOST), Quality()) == ""


@pytest.mark.parametrize(
    ("lowest", "margin", "cap", "expected"),
    [
        ("0.20", "0.1", None, "0.220"),
        ("0.20", "0.1", "0.21", "0.21"),
        ("0.20", "0.1", "0.20", "0.20"),
        ("0.20", "0", "1", "0.20"),
        ("0.20", "0.1", "0.19", "0.20"),
    ],
)
def test_L13_bid_is_capped(lowest: str, margin: str, cap: str | None, expected: str) -> None:
    assert bid(Decimal(lowest), Decimal(margin), None if cap is None else Decimal(cap)) == Decimal(expected)


def auction(lowest: str = "0.20", disk: str = "0", **facts: t.Any) -> Offer:
    usual: dict[str, t.Any] = {"cloud": "vast", "id": f"bid-{lowest}", "spot": True, "min_bid": Decimal(lowest)}
    return offer("9.99", storage_price_hour=Decimal(disk), **{**usual, **facts})


AUCTIONS = node_class(clouds=("vast",), spot_allowed=True)


def test_L13_the_bid_and_the_disk_are_the_price() -> None:
    found = choose(auction(disk="0.01"), made=AUCTIONS)
    assert [one.price_hour for one in found.candidates] == [Decimal("0.230")]
    capped = choose(auction(disk="0.01"), made=AUCTIONS, wanted=pool(max_hourly_price=Decimal("0.225")))
    (one,) = capped.candidates
    assert one.price_hour == Decimal("0.225") and one.price_hour - one.storage_price_hour == Decimal("0.215")


def test_L13_a_lowest_bid_above_the_limit_leaves_for_its_price() -> None:
    wanted = pool(max_hourly_price=Decimal("0.21"))
    found = choose(auction("0.20", "0.01"), auction("0.20", "0.0101", id="dear"), made=AUCTIONS, wanted=wanted)
    assert [one.price_hour for one in found.candidates] == [Decimal("0.21")]
    assert found.rejected == {"vast/dear": "maxHourlyPrice"}


def test_L13_spot_is_held_against_machines_that_would_do_the_same() -> None:
    """A small firm machine cannot stand in for a large one, and what we own is nothing one could rent instead."""
    own = CloudChoice("webhook")
    made = node_class(clouds=("vast", own), spot_allowed=True, spot_discount_min=Decimal("0.3"), mesh=MeshChoice(backend="none"))
    small = [offer("0.40", cloud="vast", id="firm"), offer("0", cloud="webhook", id="box")]
    large = [offer("2.00", cloud="vast", id="spot", spot=True, gpu_count=8), offer("3.20", cloud="vast", id="firm-8", gpu_count=8)]
    assert choose(*small, *large, made=made).rejected == {}
    dear = dataclasses.replace(large[0], price_hour=Decimal("2.25"))
    assert choose(*small, dear, large[1], made=made).rejected == {"vast/spot": "spot discount"}
    assert choose(*small, dear, made=made).rejected == {}, "there is no firm one to be cheaper than"
    one_gpu = offer("0.29", cloud="vast", id="spot", spot=True)
    assert choose(*small, one_gpu, made=made).rejected == {"vast/spot": "spot discount"}
    assert choose(dataclasses.replace(large[1], price_hour=Decimal("0.41")), one_gpu, made=made).rejected == {
        "vast/spot": "spot discount"
    }


def test_L13_nobody_pays_for_the_disk_that_another_pool_wants() -> None:
    """All pools are asked for at once, with the largest disk: 500 GiB (537 GB) at $0.15 a month are $0.112 an hour, 64 GiB (69 GB) $0.0144."""
    disk = Decimal("0.111875")
    shared = offer("0.411875", cloud="vast", id="m", disk_gib=500, storage_price_hour=disk)
    small, large = node_class(clouds=("vast",)), node_class(clouds=("vast",), min_disk_gib=500)
    (cut,), (whole,) = choose(shared, made=small).candidates, choose(shared, made=large).candidates
    assert (cut.disk_gib, cut.storage_price_hour, cut.price_hour) == (64, Decimal("0.014375"), Decimal("0.314375"))
    assert whole == shared
    limited = pool(max_hourly_price=Decimal("0.32"))
    assert choose(shared, wanted=limited, made=small).rejected == {} and choose(shared, wanted=limited, made=large).rejected
    spot = dataclasses.replace(shared, spot=True, min_bid=Decimal("0.20"))
    (bid_for,) = choose(spot, made=dataclasses.replace(small, spot_allowed=True)).candidates
    assert bid_for.price_hour == Decimal("0.22") + Decimal("0.014375")
    for fixed in (dataclasses.replace(shared, storage_price_hour=Decimal(0)), dataclasses.replace(shared, price_estimated=True)):
        assert choose(fixed, made=small).candidates == (fixed,), "its disk is no matter of choice, or is sold in steps"


def test_L13_a_size_is_not_met_by_a_card_of_unknown_memory() -> None:
    """An A100 is sold with 40 and with 80 GiB; an L4 only with 24."""
    sized, plain = node_class(gpu_types=("A100 80GB", "L4 24GB")), node_class(gpu_types=("A100",))
    unknown, known = offer(model="A100", id="u"), offer(model="A100", id="k", gpu_memory_mib=81920)
    found = choose(unknown, known, offer(model="L4", id="l"), made=sized)
    assert {one.id for one in found.candidates} == {"k", "l"} and found.rejected == {"lambda/u": "gpu type"}
    assert choose(unknown, made=plain).rejected == {}
    spec = pool(requirements=(Requirement("tgp.io/gpu-type", "In", ("A100 80GB",)),))
    assert choose(unknown, known, wanted=spec).rejected == {"lambda/u": "gpu type"}


def test_L13_margin_and_discount_of_the_provider() -> None:
    made = node_class(clouds=(CloudChoice("vast", bid_margin=Decimal("0.5")), CloudChoice("lambda")), spot_allowed=True)
    assert choose(auction(), made=made).candidates[0].price_hour == Decimal("0.30")
    firm = offer("0.40", id="firm")
    picky = dataclasses.replace(made, spot_discount_min=Decimal("0.3"))
    assert choose(firm, auction(), made=picky).rejected == {"vast/bid-0.20": "spot discount"}
    own = dataclasses.replace(picky.clouds[0], spot_discount_min=Decimal("0.25"))
    both = dataclasses.replace(picky, clouds=(own, picky.clouds[1]))
    assert [one.id for one in choose(firm, auction(), made=both).candidates] == ["bid-0.20", "firm"]


def test_L13_a_firm_offer_keeps_its_price() -> None:
    firm = offer("0.40", min_bid=Decimal("0.10"))
    assert priced(firm, Decimal("0.1"), None) is firm


def test_L13_an_estimated_price_selects_and_the_paid_one_decides() -> None:
    estimated = offer("0.45", price_estimated=True)
    wanted = specs(pool(max_hourly_price=Decimal("0.50")), p=1)
    assert one(decide(seen(offers=(estimated,)), wanted, "provision"), "launch").price_hour == Decimal("0.45")
    launched = a_claim(offer=estimated)
    observed = seen(claims=(launched,), nodes=(node(),), instances=(instance(price_hour=Decimal("0.60")),))
    assert one(decide(observed, wanted), "destroy").reason == "PriceJump"


def test_L13_total_price_of_a_disk_by_the_month() -> None:
    """0.30 + 80 GB at 0.15 $ per GB and month."""
    disk = 80 * Decimal("0.15") / 720
    assert (Decimal("0.30") + disk).quantize(Decimal("0.000001")) == Decimal("0.316667")
    assert priced(auction("0.30", str(disk)), Decimal(0), None).price_hour == Decimal("0.30") + disk


# ---- why there is no offer


def why(clouds: dict[str, t.Any], made: NodeClass, wanted: Pool, blocked: dict[str, t.Any] | None = None) -> tuple[str, t.Any]:
    observed = seen(clouds=clouds, blocks=blocked or {})
    (short,) = plan(
        observed, specs(wanted, classes=(made,), p=1), Settings(mode="provision"), registry.CAPABILITIES, "run-1"
    ).shortfall
    return short.reason, short.rejected


UNREAD = CloudView(None, None, "lambda: 403.")
ONLY_SPOT = (Requirement("tgp.io/spot", "In", ("true",)),)
NO_SPOT = "runpod: it rents no interruptible machines, and the pool takes no others; allow others, or leave the cloud out"
NO_LANE = "runpod: pods are unprivileged containers and cannot be Kubernetes nodes; accept lane service, or leave the cloud out"


def test_L13_a_cloud_that_could_not_be_read_is_told_before_offers_that_never_fitted() -> None:
    made = node_class(clouds=("lambda", "vast"), gpu_types=("H100",))
    near = offer(cloud="vast", id="v", lanes=(Lane.KUBELET,), reliability=Decimal("0.99"), traits={"inet-down": "500"})
    clouds = {"lambda": UNREAD, "vast": CloudView((), (near,))}
    reason, rejected = why(clouds, made, pool())
    assert reason == "lambda: machines unknown" and rejected == {"gpu type": 1, "lambda: machines unknown": 1}


def test_L13_a_cloud_that_is_blocked_as_a_whole_is_told_so() -> None:
    made = node_class(clouds=("lambda", "vast"), gpu_types=("A10",))
    other = offer(cloud="vast", id="v", model="L4", lanes=(Lane.KUBELET,))
    clouds = {"lambda": CloudView((), (offer(),)), "vast": CloudView((), (other,))}
    until = NOON + timedelta(minutes=30)
    reason, _rejected = why(clouds, made, pool(), {launch_backoff.key_of_cloud("lambda"): until})
    assert reason == "lambda: blocked until 2026-08-20T12:30:00Z after it refused a launch for quota or balance"


def test_L13_no_spot_there_is_the_reason_and_not_offers_of_clouds_that_nobody_named() -> None:
    """A pool of RunPod that insists on spot: its market is empty, and Vast's six offers are none of its business."""
    made = node_class(clouds=("runpod",), spot_allowed=True)
    wanted = pool(lanes=(Lane.SERVICE,), requirements=ONLY_SPOT)
    others = tuple(offer(cloud="vast", id=f"v{number}", lanes=(Lane.SERVICE,)) for number in range(6))
    reason, rejected = why({"runpod": CloudView((), ()), "vast": CloudView((), others)}, made, wanted)
    assert reason == NO_SPOT and rejected == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "L4"}, NO_LANE),
        ({"price": 9}, f"maxHourlyPrice; {NO_LANE}"),
        ({"available": 0}, f"not available; {NO_LANE}"),
        (None, NO_LANE),
    ],
)
def test_L13_in_a_mixed_class_each_cloud_says_its_cause(changes: dict[str, t.Any] | None, reason: str) -> None:
    """RunPod has no lane for it. Lambda has it and is too dear, or has nothing of the kind."""
    made = node_class(clouds=("runpod", "lambda"), gpu_types=("A10",))
    mine = (
        ()
        if changes is None
        else (offer("9" if "price" in changes else "0.42", **{key: one for key, one in changes.items() if key != "price"}),)
    )
    clouds = {"lambda": CloudView((), mine), "runpod": CloudView((), (offer(cloud="runpod", id="r", lanes=(Lane.SERVICE,)),))}
    assert why(clouds, made, pool(max_hourly_price=Decimal(1)))[0] == reason


def test_L13_a_cloud_that_nobody_named_gives_no_cause_for_what_it_never_has() -> None:
    """A request for any cloud: that RunPod's pods become no nodes is no news."""
    made = node_class(clouds=(CloudChoice("runpod", implicit=True), CloudChoice("lambda", implicit=True)), gpu_types=("A10",))
    clouds = {"lambda": CloudView((), (offer(model="L4"),)), "runpod": CloudView((), ())}
    assert why(clouds, made, pool())[0] == "gpu type"


def test_L13_without_any_offer_that_is_said() -> None:
    assert why({"lambda": CloudView((), ())}, node_class(clouds=("lambda",)), pool())[0] == "no offers"
