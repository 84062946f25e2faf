# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17: which machines are rented for pods that fit nowhere; against an optimiser that tries everything."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Expression, Offer, Others, Placement, Pod, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import per_gpu
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import binpacking, offer_selection
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import Bin, Queue, Room
from hypothesis import given
from hypothesis import strategies as st

from .build import offer
from .pods import GPU, waiting

ONE, FOUR = offer("0.40", id="one"), offer("1.50", id="four", gpu_count=4)


def shop(
    *offers: Offer, pool: str = "default/p", stock: dict[str, int] | None = None, room: int | None = None, **facts: t.Any
) -> offer_selection.Shop:
    """A pool's market; ``stock``: how many of an offer there are, ``room``: for how many machines there is room."""
    left = dict(stock or {})
    bought: list[str] = []

    def against(one: Offer) -> str:
        if left.get(one.id, 1) <= 0:
            return "not available"
        return "limit:maxNodes" if room is not None and len(bought) >= room else ""

    def taken(one: Offer, pods: tuple[Pod, ...]) -> None:
        bought.append(one.id)
        if one.id in left:
            left[one.id] -= 1

    def place(one: Offer) -> Bin:
        return Bin(one.id, {GPU: one.gpu_count}, {"tgp.io/gpu-type": one.model}, facts.get("taints", ()), pool)

    ordered = sorted(offers, key=lambda one: (one.price_hour, one.gpu_count if one.cloud == "webhook" else 0, one.id))
    usual: dict[str, t.Any] = {
        "size": lambda one: one.gpu_count,
        "per_gpu": lambda one, used: per_gpu(t.cast(Decimal, one.price_hour), 0, "weighted", used),
        "rented": lambda one: one.cloud != "webhook",
    }
    more = {key: value for key, value in facts.items() if key != "taints"}
    return offer_selection.Shop(pool, ordered, room=place, against=against, taken=taken, **{**usual, **more})


def sizes(*wanted: int) -> list[Pod]:
    return [waiting(f"w{number}", size) for number, size in enumerate(wanted)]


def bought(pods: t.Iterable[Pod], *shops: offer_selection.Shop) -> list[str]:
    return [one.offer.id for one in offer_selection.buy(Queue(pods, GPU_RESOURCES), shops).purchases]


def reasons(pods: t.Iterable[Pod], *shops: offer_selection.Shop) -> dict[str, str]:
    return {pod.name: reason.text for pod, reason in offer_selection.buy(Queue(pods, GPU_RESOURCES), shops).left}


def test_L17_four_small_pods_share_the_machine_that_costs_less_for_each() -> None:
    assert bought(sizes(1, 1, 1, 1), shop(ONE, FOUR)) == ["four"]


def test_L17_three_small_pods_do_not() -> None:
    assert bought(sizes(1, 1, 1), shop(ONE, FOUR)) == ["one", "one", "one"]


def test_L17_a_large_pod_fits_the_large_machine_only() -> None:
    assert bought(sizes(4), shop(ONE, FOUR)) == ["four"]


def test_L17_room_for_one_machine_and_three_pods() -> None:
    found = offer_selection.buy(Queue(sizes(1, 1, 1), GPU_RESOURCES), [shop(ONE, FOUR, room=1)])
    assert [one.offer.id for one in found.purchases] == ["one"]
    assert [reason.text for _pod, reason in found.left] == ["limit:maxNodes", "limit:maxNodes"]


def test_L17_pack_fewest_takes_the_one_that_serves_all() -> None:
    found = offer_selection.buy(Queue(sizes(1, 1, 1), GPU_RESOURCES), [shop(ONE, FOUR, room=1, fewest=True)])
    assert [one.offer.id for one in found.purchases] == ["four"] and not found.left


def test_L17_a_draw_goes_to_fewer_gpus_left_over() -> None:
    two, three = offer("0.80", id="two", gpu_count=2), offer("0.80", id="a-three", gpu_count=3)
    assert bought(sizes(2), shop(two, three)) == ["two"]


def test_L17_time_slices() -> None:
    four_slices = {"size": lambda one: one.gpu_count * 4, "room": lambda one: Bin(one.id, {GPU: one.gpu_count * 4})}

    def machines(*wanted: int) -> int:
        return len(
            offer_selection.buy(Queue(sizes(*wanted), GPU_RESOURCES), [dataclasses.replace(shop(ONE), **four_slices)]).purchases
        )

    assert machines(1, 1, 1, 1, 1) == 2 and machines(1, 1, 1, 1) == 1 and machines(4) == 1


def test_L17_pools_in_their_order_the_first_that_can() -> None:
    tainted = shop(ONE, pool="default/a", taints=(Taint("a", "", "NoSchedule"),))
    free = shop(ONE, pool="default/b")
    assert [one.pool for one in offer_selection.buy(Queue(sizes(1), GPU_RESOURCES), [tainted, free]).purchases] == ["default/b"]
    assert reasons(sizes(1), shop(ONE, taints=(Taint("a", "", "NoSchedule"),))) == {"w0": "taint a:NoSchedule not tolerated"}


def test_L17_at_most_so_many_per_run_and_pool() -> None:
    found = offer_selection.buy(Queue(sizes(1, 1, 1), GPU_RESOURCES), [shop(ONE, pool="a", most=1), shop(ONE, pool="b", most=1)])
    assert [one.pool for one in found.purchases] == ["a", "b"]
    assert [reason.text for _pod, reason in found.left] == ["max_launch_per_run"]


@pytest.mark.parametrize(
    ("pod", "market", "words"),
    [
        (waiting(gpus=8), {}, "no machine with 8 GPUs"),
        (waiting(requests={GPU: 1, "cpu": 1000}), {}, "no machine with enough cpu"),
        (waiting(placement=Placement((("team", "red"),))), {}, "selector team=red"),
        (waiting(), {"closed": "paused after failed joins"}, "paused after failed joins"),
        (waiting(), {"stock": {"one": 0}}, "not available"),
        (waiting(), {"offers": (), "why_none": "maxHourlyPrice"}, "no offer: maxHourlyPrice"),
    ],
)
def test_L17_the_first_reason_of_a_pod_that_gets_nothing(pod: Pod, market: dict[str, t.Any], words: str) -> None:
    assert reasons([pod], shop(*market.pop("offers", (ONE,)), **market)) == {"w": words}


def test_L17_of_several_pools_the_reason_of_the_one_that_came_furthest() -> None:
    tainted = shop(ONE, pool="default/a", taints=(Taint("a", "", "NoSchedule"),))
    full = shop(ONE, pool="default/b", room=0)
    ((_pod, reason),) = offer_selection.buy(Queue(sizes(1), GPU_RESOURCES), [tainted, full]).left
    assert reason == offer_selection.Reason(offer_selection.FULL, "default/b", "limit:maxNodes")
    assert reasons(sizes(1)) == {"w0": "there is no pool"}


def test_L17_only_compatible_pods_are_counted_for_a_machine() -> None:
    picky = [waiting(f"h{number}", placement=Placement((("tgp.io/gpu-type", "H100"),))) for number in range(3)]
    assert bought([*sizes(1), *picky], shop(ONE, FOUR)) == ["one"], "three others would fill it, but not on this card"


def test_L17_pods_that_keep_apart_get_a_machine_each() -> None:
    apart = Placement(alone=(Others(("default",), (Expression("app", "In", ("x",)),)),))
    pods = [waiting(f"w{number}", labels={"app": "x"}, placement=apart) for number in range(2)]
    assert bought(pods, shop(FOUR)) == ["four", "four"]


# ---- own machines (L-21)


def own(*gpu_counts: int) -> offer_selection.Shop:
    machines = [offer("0", id=f"m{count}", cloud="webhook", gpu_count=count) for count in gpu_counts]
    return shop(*machines, stock={one.id: 1 for one in machines})


@pytest.mark.parametrize(
    ("off", "pods", "on"),
    [
        ((1, 2, 4), (2, 1), ["m2", "m1"]),
        ((1, 2, 4), (1, 1, 1), ["m1", "m2"]),
        ((1, 2, 4), (1, 1, 1, 1), ["m1", "m2", "m4"]),
        ((3, 4), (2, 2), ["m3", "m4"]),
        ((1, 2), (8,), []),
    ],
)
def test_L21_the_smallest_machine_that_fits_the_largest_pod_goes_on(
    off: tuple[int, ...], pods: tuple[int, ...], on: list[str]
) -> None:
    assert bought(sizes(*pods), own(*off)) == on


def test_L21_no_machine_is_large_enough() -> None:
    assert reasons(sizes(8), own(1, 2, 4)) == {"w0": "no machine with 8 GPUs"}


# ---- for any pods and offers

PRICES = st.sampled_from(["0.10", "0.35", "0.40", "0.75", "1.50", "1.60", "3.00"])
OFFERS = st.lists(st.tuples(PRICES, st.sampled_from([1, 2, 4, 8]), st.sampled_from(["A10", "H100"])), min_size=1, max_size=5)
PODS = st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["", "A10", "H100"]), st.integers(0, 1)), max_size=8)


def world(offers: t.Any, pods: t.Any) -> tuple[list[Offer], list[Pod]]:
    made = [offer(price, id=f"o{number}", gpu_count=count, model=model) for number, (price, count, model) in enumerate(offers)]
    wanted = [
        waiting(f"w{number}", size, placement=Placement((("tgp.io/gpu-type", model),) if model else (), priority=priority))
        for number, (size, model, priority) in enumerate(pods)
    ]
    return made, wanted


def plainly(offers: list[Offer], pods: list[Pod], fewest: bool) -> list[str]:
    """The rule in its plainest words: every offer is tried for the first pod, by first fit over all that wait."""
    market = shop(*offers)
    waiting_pods = sorted(pods, key=lambda pod: binpacking.rank(pod, GPU_RESOURCES))
    result: list[str] = []
    while waiting_pods:
        tried: list[tuple[t.Any, int, list[Pod]]] = []
        for number, one in enumerate(market.offers):
            room = Room(market.room(one))
            for pod in waiting_pods:
                if not binpacking.against(pod, room.place) and room.takes(pod):
                    room.add(pod)
            if waiting_pods[0] in room.placed:
                used = sum(binpacking.gpus(pod, GPU_RESOURCES) for pod in room.placed)
                price = t.cast(Decimal, one.price_hour) / used
                value = (-used, price) if fewest else (price,)
                tried.append(((*value, one.gpu_count - used, number), number, room.placed))
        if not tried:
            waiting_pods.pop(0)
            continue
        _value, number, placed = min(tried, key=lambda one: one[0])
        result.append(market.offers[number].id)
        waiting_pods = [pod for pod in waiting_pods if pod not in placed]
    return result


@given(OFFERS, PODS, st.booleans())
def test_L17_the_search_finds_what_trying_everything_finds(offers: t.Any, pods: t.Any, fewest: bool) -> None:
    made, wanted = world(offers, pods)
    assert bought(wanted, shop(*made, fewest=fewest)) == plainly(made, wanted, fewest)


@given(OFFERS, PODS, st.randoms(use_true_random=False))
def test_L17_the_same_machines_in_any_order_of_pods(offers: t.Any, pods: t.Any, chance: random.Random) -> None:
    made, wanted = world(offers, pods)
    shuffled = wanted[:]
    chance.shuffle(shuffled)
    assert offer_selection.buy(Queue(wanted, GPU_RESOURCES), [shop(*made)]) == offer_selection.buy(
        Queue(shuffled, GPU_RESOURCES), [shop(*made)]
    )


@given(OFFERS, PODS)
def test_L17_every_pod_that_any_offer_fits_is_served_once(offers: t.Any, pods: t.Any) -> None:
    made, wanted = world(offers, pods)
    found = offer_selection.buy(Queue(wanted, GPU_RESOURCES), [shop(*made)])
    served = [pod.uid for one in found.purchases for pod in one.pods]
    assert len(served) == len(set(served)) and len(served) + len(found.left) == len(wanted)
    market = shop(*made)
    for pod, _reason in found.left:
        assert not any(
            not binpacking.against(pod, market.room(one)) and one.gpu_count >= binpacking.gpus(pod, GPU_RESOURCES) for one in made
        )
    for one in found.purchases:
        assert sum(binpacking.gpus(pod, GPU_RESOURCES) for pod in one.pods) <= one.offer.gpu_count


@given(OFFERS, PODS)
def test_L17_a_machine_never_costs_more_per_used_gpu_than_the_cheapest_for_its_first_pod(offers: t.Any, pods: t.Any) -> None:
    made, wanted = world(offers, pods)
    market = shop(*made)
    for one in offer_selection.buy(Queue(wanted, GPU_RESOURCES), [shop(*made)]).purchases:
        head, used = one.pods[0], sum(binpacking.gpus(pod, GPU_RESOURCES) for pod in one.pods)
        fitting = [
            each
            for each in made
            if not binpacking.against(head, market.room(each)) and each.gpu_count >= binpacking.gpus(head, GPU_RESOURCES)
        ]
        alone = min(t.cast(Decimal, each.price_hour) / binpacking.gpus(head, GPU_RESOURCES) for each in fitting)
        assert t.cast(Decimal, one.offer.price_hour) / used <= alone


def optimum(offers: list[Offer], sizes_wanted: tuple[int, ...]) -> Decimal:
    """The least that machines for all pods can cost, by trying every way to share them out."""
    if not sizes_wanted:
        return Decimal(0)
    best = Decimal("Infinity")
    for one in offers:
        for chosen in range(1, 1 << len(sizes_wanted), 2):  # the first pod is on this machine
            on_it = [size for place, size in enumerate(sizes_wanted) if chosen >> place & 1]
            if sum(on_it) <= one.gpu_count:
                rest = tuple(size for place, size in enumerate(sizes_wanted) if not chosen >> place & 1)
                best = min(best, t.cast(Decimal, one.price_hour) + optimum(offers, rest))
    return best


@given(st.lists(st.integers(1, 4), max_size=5), st.lists(st.tuples(PRICES, st.sampled_from([1, 2, 4])), max_size=2))
def test_L17_no_dearer_than_a_machine_of_the_cheapest_kind_for_each_gpu(wanted: list[int], more: list[tuple[str, int]]) -> None:
    """Between the optimum, and the optimum with every pod alone counted by the dearest price per GPU that a first pod had to accept."""
    offers = [FOUR, *(offer(price, id=f"o{number}", gpu_count=count) for number, (price, count) in enumerate(more))]
    found = offer_selection.buy(Queue(sizes(*wanted), GPU_RESOURCES), [shop(*offers)])
    cost = sum((t.cast(Decimal, one.offer.price_hour) for one in found.purchases), Decimal(0))
    assert not found.left
    assert cost >= optimum(offers, tuple(wanted))
    alone = max(
        (min(t.cast(Decimal, one.price_hour) / size for one in offers if one.gpu_count >= size) for size in wanted),
        default=Decimal(0),
    )
    assert cost <= alone * sum(wanted) + Decimal("1e-20")
