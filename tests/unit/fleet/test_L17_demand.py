# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17: which pods ask for machines."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Placement, Pod, Pool, Toleration
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.pending_pods import demand

from .build import NOON, at, decide, offer, pool, seen, specs
from .pods import waiting


def counted(one: Pod, *pools: Pool, now: str = "12:00") -> bool:
    return demand([one], pools or (pool(),), Settings(), at(now)).pods == (one,)


def test_L17_a_pod_that_the_scheduler_could_not_place_counts() -> None:
    assert counted(waiting())


@pytest.mark.parametrize(
    "facts",
    [
        {"phase": "Running"},
        {"node": "somewhere"},
        {"waiting": "ContainerCreating"},
        {"waiting": ""},
        {"waiting": "SchedulingGated"},
        {"deletion": at("12:30")},
        {"nominated_node": "n"},
        {"owner_kind": "DaemonSet", "owner_api": "apps/v1"},
        {"owner_kind": "Node", "owner_api": "v1"},
        {"mirror": True},
        {"requests": {"cpu": 4000}},
        {"requests": {}},
        {"annotations": {"tgp.io/scale-up": "false"}},
        {"placement": Placement(priority=-11)},
        {"placement": Placement(scheduler="volcano")},
    ],
    ids=lambda facts: " ".join(f"{key} {value}" for key, value in facts.items())[:60],
)
def test_L17_what_does_not_count(facts: dict[str, t.Any]) -> None:
    assert not counted(waiting(**facts))
    assert demand([waiting(**facts)], (pool(),), Settings(), NOON).unsupported == ()


def test_K03_a_pod_that_is_bound_and_pulls_its_image_asks_for_nothing() -> None:
    assert not counted(waiting(node="tgp-a1b2c3d4-p-00001", waiting="ContainerCreating"))


@pytest.mark.parametrize(
    "facts",
    [
        {"placement": Placement(priority=-10)},
        {"annotations": {"tgp.io/scale-up": "true"}},
        {"owner_kind": "DaemonSet", "owner_api": "example.org/v1"},
        {"requests": {"nvidia.com/mig-1g.5gb": 1}},
        {"requests": {"nvidia.com/gpu.shared": 1}},
    ],
)
def test_L17_what_counts_all_the_same(facts: dict[str, t.Any]) -> None:
    assert counted(waiting(**facts))


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement(claims=True), "it asks for devices by resource claims (DRA), and no pool has draDriver"),
        (Placement(unsupported="required podAffinity"), "required podAffinity is not supported"),
    ],
)
def test_L17_what_cannot_be_counted_is_said(placement: Placement, words: str) -> None:
    one = waiting(placement=placement)
    found = demand([one], (pool(),), Settings(), NOON)
    assert found.pods == () and found.unsupported == ((one, words),)


def test_L17_dra_without_any_gpu_resource_is_said_too() -> None:
    assert demand([waiting(requests={}, placement=Placement(claims=True))], (), Settings(), NOON).unsupported


def test_L17_another_scheduler_counts_for_the_pools_that_name_it() -> None:
    one = waiting(placement=Placement(scheduler="volcano"))
    pools = (pool("a"), pool("b", schedulers=("volcano",)))
    found = demand([one], pools, Settings(), NOON)
    assert found.pods == (one,) and set(found.barred[one.uid]) == {"default/a"}


@pytest.mark.parametrize(("now", "barred"), [("11:59:59", True), ("12:00", False)])
def test_L17_scale_up_delay_of_the_pool(now: str, barred: bool) -> None:
    found = demand([waiting(created=at("11:58"))], (pool(scale_up_delay=120),), Settings(), at(now))
    assert ("default/p" in found.barred.get("uid-w", {})) is barred


@pytest.mark.parametrize(("now", "barred"), [("12:02:59", True), ("12:03", False)])
def test_L17_the_pods_own_delay_goes_before_the_pools(now: str, barred: bool) -> None:
    marks = {"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "5m"}
    found = demand([waiting(created=at("11:58"), annotations=marks)], (pool(scale_up_delay=60),), Settings(), at(now))
    assert bool(found.barred) is barred


def test_L17_a_delay_that_is_none_is_said_and_left_out() -> None:
    marks = {"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "soon"}
    found = demand([waiting(created=NOON, annotations=marks)], (pool(),), Settings(), NOON)
    assert found.pods and not found.barred and "'soon' is not a duration" in found.warnings[0]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("cluster-autoscaler.kubernetes.io/pod-scale-up-delay", "99999999h"), ("tgp.io/gpu-memory", "9" * 5000)],
)
def test_L17_no_pod_can_stop_a_run_by_what_it_says_of_itself(annotation: str, value: str) -> None:
    tolerant = Placement(tolerations=(Toleration(operator="Exists"),))
    pods = [waiting("odd", annotations={annotation: value}, placement=tolerant), waiting("usual", placement=tolerant)]
    found = decide(seen(offers=[offer()], pods=pods), specs(pool()), "autoscale")
    assert {one.name: bool(one.machine) for one in found.waiting} == {"odd": False, "usual": True}
