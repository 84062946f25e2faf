# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17: which pods fit where."""

from __future__ import annotations

import itertools
import random
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Expression, NodeTerm, Others, Placement, Pod, Taint, Toleration
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import binpacking, capacity
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import Bin, fit
from hypothesis import given
from hypothesis import strategies as st

from .build import at, claim, node, node_class, offer, pod, pool
from .pods import GPU, place, waiting

APART = (Others(("default",), (Expression("app", "In", ("x",)),)),)


def placed(pods: t.Iterable[Pod], *bins: Bin, **more: t.Any) -> dict[str, str]:
    """Pod name to bin name."""
    given_pods = list(pods)
    found = fit(given_pods, bins, GPU_RESOURCES, **more)
    names = {one.uid: one.name for one in given_pods}
    return {names[uid]: where for uid, where in found.placed.items()}


def why(facts: t.Any, **of_place: t.Any) -> str:
    return binpacking.against(waiting(**facts), place(**of_place))


def test_K05_two_and_two_gpus_are_not_four() -> None:
    assert placed([waiting(gpus=4)], place("a", 2), place("b", 2)) == {}
    assert placed([waiting(gpus=4)], place("a", 2), place("b", 4)) == {"w": "b"}


def test_L17_order_of_packing() -> None:
    important = waiting("important", 1, placement=Placement(priority=5))
    large, old, young = waiting("large", 2), waiting("old", created=at("11:00")), waiting("young", created=at("11:30"))
    same = waiting("aaa", created=at("11:30"))
    order = [one.name for one in sorted([young, same, old, large, important], key=lambda pod: binpacking.rank(pod, GPU_RESOURCES))]
    assert order == ["important", "large", "old", "aaa", "young"]


def test_L17_first_fit_in_the_order_of_the_bins() -> None:
    assert placed([waiting("p"), waiting("q"), waiting("r")], place("b", 2), place("a", 1)) == {"p": "b", "q": "b", "r": "a"}


def test_L17_what_fits_nowhere_is_left_in_its_order() -> None:
    found = fit([waiting("small"), waiting("big", 8)], [place("a", 1)], GPU_RESOURCES)
    assert found.placed == {"uid-small": "a"} and [one.name for one in found.left] == ["big"]


def test_L17_cpu_and_memory_have_to_be_there_too() -> None:
    hungry = waiting(requests={GPU: 1, "cpu": 4000, "memory": 1 << 30})
    assert placed([hungry], place(free={"cpu": 4000, "memory": 1 << 30}))
    assert not placed([hungry], place(free={"cpu": 3999, "memory": 1 << 30}))
    assert not placed([hungry], place(free={"cpu": 4000, "memory": (1 << 30) - 1}))
    assert placed([hungry], place(free={"cpu": None, "memory": None})), "unknown is not held against it"
    assert not placed([hungry], place()), "a resource that is missing is not there"


@pytest.mark.parametrize(
    ("selector", "labels", "reason"),
    [
        ({}, {}, ""),
        ({"a": "b"}, {"a": "b"}, ""),
        ({"a": "b"}, {"a": "c"}, "selector a=b"),
        ({"a": "b"}, {}, "selector a=b"),
    ],
)
def test_L17_selector(selector: dict[str, str], labels: dict[str, str], reason: str) -> None:
    assert why({"placement": Placement(tuple(selector.items()))}, labels=labels) == reason


@pytest.mark.parametrize(
    ("operator", "values", "value", "suits"),
    [
        ("In", ("A10", "H100"), "H100", True),
        ("In", ("A10",), "H100", False),
        ("In", ("A10",), None, False),
        ("NotIn", ("A10",), "H100", True),
        ("NotIn", ("A10",), "A10", False),
        ("NotIn", ("A10",), None, True),
        ("Exists", (), "x", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "x", False),
        ("Gt", ("24000",), "24001", True),
        ("Gt", ("24000",), "24000", False),
        ("Lt", ("24000",), "23999", True),
        ("Lt", ("24000",), "24000", False),
        ("Gt", ("24000",), None, False),
        ("Gt", ("24000",), "many", False),
        ("Near", ("24000",), "24000", False),
    ],
)
def test_L17_required_node_affinity(operator: str, values: tuple[str, ...], value: str | None, suits: bool) -> None:
    terms = (NodeTerm((Expression("key", operator, values),)),)
    assert (not why({"placement": Placement(terms=terms)}, labels={} if value is None else {"key": value})) is suits


def test_L17_of_the_terms_one_of_the_conditions_all() -> None:
    a, b = Expression("a", "Exists"), Expression("b", "Exists")
    either, both = Placement(terms=(NodeTerm((a,)), NodeTerm((b,)))), Placement(terms=(NodeTerm((a, b)),))
    assert not why({"placement": either}, labels={"b": ""})
    assert why({"placement": both}, labels={"b": ""}) == "affinity a Exists and b Exists"
    assert why({"placement": Placement(terms=(NodeTerm(),))}), "an alternative without conditions matches nothing"


def test_L17_a_rule_about_the_nodes_name() -> None:
    terms = (NodeTerm(fields=(Expression("metadata.name", "In", ("n1",)),)),)
    assert not why({"placement": Placement(terms=terms)}, node="n1")
    assert why({"placement": Placement(terms=terms)}, node="n2")
    assert why({"placement": Placement(terms=terms)}), "a machine to be rented has no name yet"


@pytest.mark.parametrize(
    ("toleration", "suits"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Exists", effect="NoSchedule"), True),
        (Toleration("k", "Exists", effect="NoExecute"), False),
        (Toleration("k", "Equal", "v"), True),
        (Toleration("k", "Equal", "other"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Equal"), False),
    ],
)
def test_L17_taints(toleration: Toleration, suits: bool) -> None:
    taints = (Taint("k", "v", "NoSchedule"),)
    reason = why({"placement": Placement(tolerations=(toleration,))}, taints=taints)
    assert reason == ("" if suits else "taint k=v:NoSchedule not tolerated")


def test_L17_taints_that_only_ask_keep_nobody_off() -> None:
    assert not why({}, taints=(Taint("k", "", "PreferNoSchedule"),))
    assert why({}, taints=(Taint("k", "", "NoExecute"),)) == "taint k:NoExecute not tolerated"


@pytest.mark.parametrize(
    ("wanted", "there", "suits"),
    [
        ("24", 24576, True),
        ("24", 24575, False),
        ("24Gi", 24576, True),
        ("24576Mi", 24576, True),
        ("24577MiB", 24576, False),
        ("24", None, False),
        ("much", 99999, False),
    ],
)
def test_L17_gpu_memory_by_annotation(wanted: str, there: int | None, suits: bool) -> None:
    assert (not why({"annotations": {"tgp.io/gpu-memory": wanted}}, gpu_memory_mib=there)) is suits


def test_L17_one_per_node_by_anti_affinity() -> None:
    alone = [waiting(f"w{number}", labels={"app": "x"}, placement=Placement(alone=APART)) for number in range(3)]
    assert placed(alone, place("a", 8), place("b", 8)) == {"w0": "a", "w1": "b"}


def test_L17_anti_affinity_against_pods_that_run() -> None:
    running = pod("r", node="a", labels={"app": "x"})
    keeps_off = pod("k", node="b", labels={}, placement=Placement(alone=APART))
    lonely = waiting("lonely", labels={"app": "y"}, placement=Placement(alone=APART))
    disliked = waiting("disliked", labels={"app": "x"})
    bins = (place("a", 8, pods=(running,)), place("b", 8, pods=(keeps_off,)))
    assert placed([lonely], *bins) == {"lonely": "b"}
    assert placed([disliked], *bins[::-1]) == {"disliked": "a"}, "both sides are asked"
    elsewhere = waiting("elsewhere", namespace="other", labels={"app": "x"})
    assert placed([elsewhere], bins[1]) == {"elsewhere": "b"}, "of another namespace"


def test_L17_barred_pods_pass_over_a_pool() -> None:
    bins = (place("a", 8, pool="default/p"), place("b", 8, pool="default/q"))
    assert placed([waiting()], *bins, barred={"uid-w": {"default/p": "no"}}) == {"w": "b"}


def test_L17_a_vendors_and_the_neutral_name_are_the_same_gpus() -> None:
    assert binpacking.gpus(waiting(requests={GPU: 2, "tgp.io/gpu": 2, "cpu": 9000}), GPU_RESOURCES) == 2


# ---- what a machine has room for


def test_L17_free_on_a_ready_node() -> None:
    here = node("n", allocatable={GPU: 4, "cpu": 8000})
    pods = [
        pod("a", node="n", requests={GPU: 1, "cpu": 1000}),
        pod("done", "Succeeded", node="n", requests={GPU: 1}),
        pod("failed", "Failed", node="n", requests={GPU: 1}),
        pod("going", node="n", requests={GPU: 1}, deletion=at("12:00")),
        pod("elsewhere", node="m", requests={GPU: 1}),
    ]
    found = capacity.of_node(here, pods)
    assert found.free == {GPU: 2, "cpu": 7000} and found.node == "n"


def test_L17_a_machine_on_its_way_counts_with_its_planned_gpus() -> None:
    planned = capacity.of_claim(claim(offer=offer(gpu_count=2)), pool(), "a1b2c3d4", True)
    assert planned.free[GPU] == 2 and planned.labels["tgp.io/gpu-type"] == "A10" and planned.labels["kubernetes.io/os"] == "linux"
    assert [str(taint) for taint in planned.taints] == ["tgp.io/ephemeral=true:NoSchedule"], "start-up taints need no toleration"
    assert capacity.of_claim(claim(offer=offer(gpu_count=2)), pool(slices=4), "a1b2c3d4", True).free[GPU] == 8


def test_L17_ten_per_cent_of_an_offer_are_the_systems() -> None:
    rent = offer(vcpus=10, memory_mib=1000)
    found = capacity.of_offer(rent, pool(), node_class(), "a1b2c3d4", True)
    assert found.free["cpu"] == 9000 and found.free["memory"] == 900 * 1024 * 1024
    unknown = capacity.of_offer(offer(), pool(), node_class(), "a1b2c3d4", True)
    assert unknown.free["cpu"] == 0, "what is not known of an offer meets no spec"
    own = capacity.of_offer(offer(cloud="webhook"), pool(), node_class(), "a1b2c3d4", False)
    assert own.free["cpu"] is None


def test_L17_slices_are_offered_under_their_own_name() -> None:
    shared = pool(slices=4, slices_renamed=True)
    found = capacity.of_offer(offer(), shared, node_class(), "a1b2c3d4", True)
    assert found.free["nvidia.com/gpu.shared"] == 4 and GPU not in found.free


def test_L17_labels_of_the_pool_are_on_its_machines() -> None:
    found = capacity.of_offer(offer(), pool(labels={"team": "red"}), node_class(), "a1b2c3d4", True)
    assert found.labels["team"] == "red" and found.labels["tgp.io/nodepool"] == "p"


# ---- for any pods and places

SIZES = st.lists(st.integers(1, 4), max_size=7)


@given(SIZES, SIZES, st.randoms(use_true_random=False))
def test_L17_the_order_of_pods_does_not_matter(pods: list[int], bins: list[int], chance: random.Random) -> None:
    wanted = [waiting(f"w{number}", size) for number, size in enumerate(pods)]
    places = [place(f"b{number}", size) for number, size in enumerate(bins)]
    shuffled = wanted[:]
    chance.shuffle(shuffled)
    assert fit(wanted, places, GPU_RESOURCES) == fit(shuffled, places, GPU_RESOURCES)


@given(SIZES, SIZES)
def test_L17_no_place_is_overfilled_and_nobody_is_left_who_would_fit(pods: list[int], bins: list[int]) -> None:
    wanted = {f"uid-w{number}": waiting(f"w{number}", size) for number, size in enumerate(pods)}
    free = {f"b{number}": size for number, size in enumerate(bins)}
    found = fit(wanted.values(), [place(name, size) for name, size in free.items()], GPU_RESOURCES)
    for uid, name in found.placed.items():
        free[name] -= binpacking.gpus(wanted[uid], GPU_RESOURCES)
    assert min(free.values(), default=0) >= 0
    assert all(binpacking.gpus(one, GPU_RESOURCES) > max(free.values(), default=0) for one in found.left)
    assert len(found.placed) + len(found.left) == len(wanted)


@given(st.lists(st.sampled_from([1, 2, 4]), max_size=6), st.lists(st.sampled_from([1, 2, 4]), max_size=4))
def test_L17_sizes_that_divide_each_other_are_packed_as_well_as_possible(pods: list[int], bins: list[int]) -> None:
    """By brute force: no other placement serves more GPUs of the largest pods first."""
    wanted = [waiting(f"w{number}", size) for number, size in enumerate(pods)]
    places = [place(f"b{number}", size) for number, size in enumerate(bins)]
    found = fit(wanted, places, GPU_RESOURCES)
    ours = sorted((binpacking.gpus(one, GPU_RESOURCES) for one in wanted if one.uid in found.placed), reverse=True)
    best: list[int] = []
    for choice in itertools.product(range(-1, len(bins)), repeat=len(pods)):
        left = bins[:]
        for size, where in zip(pods, choice, strict=True):
            if where >= 0:
                left[where] -= size
        if min(left, default=0) >= 0:
            served = sorted((size for size, where in zip(pods, choice, strict=True) if where >= 0), reverse=True)
            best = max(best, served)
    assert ours == best
