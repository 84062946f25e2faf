# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17, L-22: pods ask, machines come, in one plan with what goes."""

from __future__ import annotations

import dataclasses
import random
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudChoice,
    CloudView,
    Machine,
    MeshChoice,
    Node,
    Observation,
    Phase,
    Placement,
    Plan,
    Pod,
    Pool,
    Specs,
    Taint,
    Tally,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import launch_planner

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs
from .pods import GPU, waiting

TOLERATES = Placement(tolerations=(Toleration("tgp.io/ephemeral", "Exists"),))
LONG_IDLE = {IDLE_SINCE_ANNOTATION: "2026-08-20T11:20:00Z"}
ONE, FOUR = offer("0.40", id="one"), offer("1.50", id="four", gpu_count=4, instance_type="gpu_4x")


def asks(name: str = "w", gpus: int = 1, **facts: t.Any) -> Pod:
    return waiting(name, gpus, **{"placement": TOLERATES, **facts})


def machine(number: int = 1, gpus: int = 1, **facts: t.Any) -> tuple[Claim, Node, t.Any]:
    """A Ready machine: its claim, Node and instance."""
    name = f"tgp-a1b2c3d4-p-0000{number}"
    made = claim(name, offer=offer("0.40", gpu_count=gpus), **facts.pop("claim", {}))
    return made, node(name, allocatable=facts.pop("allocatable", {GPU: gpus}), **facts), instance(name, gpu_count=gpus)


def world(
    *pods: Pod, machines: t.Sequence[tuple[Claim, Node | None, t.Any]] = (), now: t.Any = NOON, **facts: t.Any
) -> Observation:
    usual: dict[str, t.Any] = {"offers": (ONE, FOUR)}
    return seen(
        now,
        pods=pods,
        claims=tuple(one[0] for one in machines),
        nodes=tuple(one[1] for one in machines if one[1] is not None),
        instances=tuple(one[2] for one in machines if one[2] is not None),
        **{**usual, **facts},
    )


def scale(observation: Observation, wanted: Specs | Pool | None = None, **settings: t.Any) -> Plan:
    if isinstance(wanted, Pool):
        wanted = specs(wanted)
    return decide(observation, wanted, "autoscale", **settings)


def launched(found: Plan) -> list[int]:
    """GPUs of the machines to be rented, in their order."""
    return [one.claim.offer.gpu_count for one in of(found, "launch") if one.claim]


def test_L14_an_offer_that_failed_to_join_in_this_run_is_not_rented_again_by_it() -> None:
    """The block is written with the decision; the same plan must know of it already."""
    late, _node, itself = joining(gpus=1)
    late = dataclasses.replace(late, offer=ONE, launch_started=at("11:00"))
    found = scale(world(asks(), machines=[(late, None, itself)], offers=(ONE,)))
    assert [action.reason for action in of(found, "destroy")] == ["FailedJoin"]
    assert launched(found) == [] and list(reasons(found).values()) == ["no offer: blocked"]
    other = dataclasses.replace(FOUR, instance_type="gpu_4x")
    assert launched(scale(world(asks(), machines=[(late, None, itself)], offers=(ONE, other)))) == [4]


def reasons(found: Plan) -> dict[str, str]:
    return {one.name: one.reason for one in found.waiting if one.reason}


def joining(number: int = 1, gpus: int = 2, **facts: t.Any) -> tuple[Claim, Node | None, t.Any]:
    name = f"tgp-a1b2c3d4-p-0000{number}"
    made = claim(name, Phase.BOOTING, offer=offer("0.40", gpu_count=gpus), launch_started=at("11:55"), **facts)
    return made, None, instance(name, created=at("11:55:05"))


# ---- worked numbers of L-17


def test_K05_free_two_and_two_do_not_hold_a_pod_of_four() -> None:
    found = scale(world(asks(gpus=4), machines=[machine(1, 2), machine(2, 2)]))
    assert launched(found) == [4]


def test_L17_free_and_coming_gpus_are_used_first() -> None:
    there = [machine(1), joining(2)]
    assert launched(scale(world(asks("a"), asks("b"), asks("c"), machines=there))) == []
    assert launched(scale(world(*(asks(name) for name in "abcd"), machines=there))) == [1]


def test_A33_a_node_whose_gpus_are_missing_counts_with_the_planned_ones() -> None:
    made, _none, rented = joining(1, 1)
    bare = node(made.name, allocatable={}, created=at("11:58"), ready_since=at("11:58"))
    for minute in ("11:59", "12:00", "12:24"):
        found = scale(world(asks(), machines=[(made, bare, rented)], now=at(minute)))
        assert launched(found) == [] and [one.machine for one in found.waiting] == [made.name]


def test_A33_without_waiting_for_gpus_the_planned_ones_count_until_the_deadline() -> None:
    pools = pool(gpu_wait="none")
    made, bare, rented = machine(allocatable={}, claim={"launch_started": at("11:50"), "initialized": at("11:55")})
    assert launched(scale(world(asks(), machines=[(made, bare, rented)]), pools)) == []
    late = (dataclasses.replace(made, launch_started=at("11:30")), bare, rented)
    assert launched(scale(world(asks(), machines=[late]), pools)) == [1]


@pytest.mark.parametrize(("count", "machines"), [(4, [4]), (3, [1, 1, 1]), (1, [1])])
def test_L17_what_is_paid_per_used_gpu_decides(count: int, machines: list[int]) -> None:
    assert launched(scale(world(*(asks(f"w{number}") for number in range(count))))) == machines


def test_L17_one_pod_of_four_needs_the_machine_of_four() -> None:
    assert launched(scale(world(asks(gpus=4)))) == [4]


def test_L17_room_for_one_machine() -> None:
    pods = [asks(f"w{number}") for number in range(3)]
    classes = [node_class(max_nodes=1)]
    found = scale(world(*pods), specs(classes=classes))
    assert launched(found) == [1] and reasons(found) == {"w1": "limit:maxNodes", "w2": "limit:maxNodes"}
    fewest = scale(world(*pods), specs(pool(pack="fewest"), classes=classes))
    assert launched(fewest) == [4] and reasons(fewest) == {}


def test_L17_time_slices() -> None:
    sliced = pool(slices=4)
    only_one = {"offers": (ONE,)}
    assert launched(scale(world(*(asks(f"w{number}") for number in range(5)), **only_one), sliced)) == [1, 1]
    found = scale(world(*(asks(f"w{number}") for number in range(4)), **only_one), sliced)
    assert launched(found) == [1] and of(found, "launch")[0].claim.expected_gpus == 4
    assert not any("slices" in text for text in found.warnings)
    large = scale(world(asks(gpus=4), **only_one), sliced)
    assert launched(large) == [1] and [text for text in large.warnings if "4 slices of shared GPUs of default/p" in text]
    assert not any("slices" in text for text in scale(world(asks(gpus=4))).warnings), "four GPUs of its own"
    assert not any("slices" in text for text in scale(world(asks(gpus=8), **only_one), sliced).warnings), "it gets none"


def test_L17_of_two_pools_the_one_that_fits() -> None:
    first = pool("a", weight=50, taints=(Taint("a", "", "NoSchedule"),))
    found = scale(world(asks()), specs(first, pool("b", weight=10)))
    assert [one.pool for one in of(found, "launch")] == ["default/b"]


def test_D05_never_a_second_machine_for_the_same_pod() -> None:
    first = scale(world(asks()))
    (written,) = [one.claim for one in of(first, "launch") if one.claim]
    sent = dataclasses.replace(written, phase=Phase.PROVISIONING, launch_started=NOON)
    for moment, made in (("12:00", written), ("12:00:30", sent), ("12:05", sent)):
        listed = (instance(sent.name, created=at("12:00:05")),) if made is sent else ()
        again = scale(seen(at(moment), pods=(asks(),), claims=(made,), offers=(ONE, FOUR), instances=listed))
        assert of(again, "launch") == [], moment


def test_D05_nor_while_nobody_knows_what_became_of_the_create_call() -> None:
    unknown = claim("tgp-a1b2c3d4-p-00001", Phase.PROVISIONING, launch_started=at("11:58"), unknown_since=at("11:58:30"))
    found = scale(seen(pods=(asks(),), claims=(unknown,), offers=(ONE,)))
    assert of(found, "launch") == [] and [one.machine for one in found.waiting] == [unknown.name]


def test_K03_pods_that_are_bound_gated_or_nominated_ask_for_nothing() -> None:
    pods = (asks("a", node="elsewhere", waiting=""), asks("b", waiting="SchedulingGated"), asks("c", nominated_node="elsewhere"))
    found = scale(world(*pods))
    assert launched(found) == [] and found.waiting == ()


def test_L17_dra_is_said_and_gets_no_machine() -> None:
    found = scale(world(asks(placement=Placement(claims=True))))
    assert launched(found) == [] and reasons(found) == {
        "w": "it asks for devices by resource claims (DRA), and no pool has draDriver"
    }


def test_L17_a_pod_waits_for_what_the_run_counts_as_gpus() -> None:
    waits = world(asks(requests={"gpu.intel.com/i915": 2}))
    assert scale(waits).waiting == ()
    found = scale(waits, gpu_resources=(*GPU_RESOURCES, "gpu.intel.com/i915"))
    assert launched(found) == [] and reasons(found) == {"w": "no machine with 2 GPUs"}
    assert [one.gpus for one in found.waiting] == [2]


def test_L17_at_most_five_machines_per_run_and_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [asks(f"w{number}") for number in range(7)]
    found = scale(world(*pods, offers=(ONE,)))
    assert len(launched(found)) == 5 and list(reasons(found).values()) == ["max_launch_per_run"] * 2
    floor = scale(world(*pods, offers=(ONE,)), pool(min_nodes=3))
    assert len(launched(floor)) == 5, "minNodes and pods share the bound, and pods run on what minNodes brings"
    monkeypatch.setattr(launch_planner, "MAX_LAUNCH_PER_RUN", 7)
    assert len(launched(scale(world(*pods, offers=(ONE,))))) == 7


def test_L17_a_request_is_satisfied_by_its_own_machine_only() -> None:
    request = pool("r", request=True, namespace="tgp-system")
    found = scale(world(asks()), specs(request))
    assert [one.pool for one in of(found, "launch")] == ["tgp-system/r"] and of(found, "launch")[0].reason == "Wanted"
    assert found.waiting[0].machine == of(found, "launch")[0].name, "but its GPUs may be used"


def test_L17_failover_offers_hold_the_pods_too() -> None:
    other = offer("1.60", id="other", gpu_count=4, instance_type="gpu_4x")
    found = scale(world(asks(gpus=4), offers=(ONE, FOUR, other)))
    (made,) = [one.claim for one in of(found, "launch") if one.claim]
    assert made.offer.id == "four" and [one.id for one in made.candidates] == ["other"]


# ---- pods that a machine should hold and does not


def unserved(now: str, findings: dict[str, t.Any] | None = None, **facts: t.Any) -> Plan:
    """A pod that still waits although a Ready machine has a free GPU."""
    return scale(world(asks(), machines=[machine()], now=at(now), findings=findings or {}, **facts))


def test_L17_after_two_runs_a_pod_counts_as_unsatisfiable_for_half_an_hour() -> None:
    first = unserved("12:00")
    assert launched(first) == [] and reasons(first) == {}
    early = unserved("12:00:59", dict(first.findings))
    assert reasons(early) == {}
    second = unserved("12:01", dict(early.findings))
    text = "unsatisfiable until 2026-08-20T12:31:00Z: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert launched(second) == [] and reasons(second) == {"w": text}
    assert reasons(unserved("12:30:59", dict(second.findings))) == {"w": text}
    after = unserved("12:31", dict(second.findings))
    assert reasons(after) == {}, "then it is tried again"


def test_L17_a_launch_that_is_made_anew_is_for_the_pods_it_was_for() -> None:
    """The run that wrote the claim was killed before its create call: the cheapest machine of now would be of no use to the pod."""
    begun = claim(phase=Phase.PENDING, offer=FOUR, created=at("11:55"), expected_gpus=4)
    for pods in ((asks(gpus=4),), tuple(asks(f"w{number}") for number in range(4))):
        found = scale(world(*pods, machines=[(begun, None, None)]))
        resumed = [(one.claim.offer.id, [rest.id for rest in one.claim.candidates]) for one in of(found, "resume") if one.claim]
        assert resumed == [("four", [])] and launched(found) == [] and reasons(found) == {}
    larger = offer("3.00", id="eight", gpu_count=8)
    (again,) = [one.claim for one in of(scale(world(asks(gpus=4), machines=[(begun, None, None)], offers=(ONE, larger))), "resume")]
    assert again is not None and (again.offer.id, again.expected_gpus) == ("eight", 8)
    gone = scale(world(asks(gpus=4), machines=[(begun, None, None)], offers=(ONE,)))
    assert of(gone, "resume") == [] and launched(gone) == [] and reasons(gone) == {"w": "no machine with 4 GPUs"}
    dropped = [one for one in of(gone, "destroy") if "no machine that is large enough" in one.detail]
    assert [one.reason for one in dropped] == ["LaunchFailed"] and not gone.shortfall
    split = scale(world(*(asks(f"w{number}") for number in range(4)), machines=[(begun, None, None)], offers=(ONE,)))
    assert launched(split) == [1, 1, 1, 1] and of(split, "resume") == []
    floor = scale(world(asks(gpus=4), machines=[(begun, None, None)], offers=(ONE,)), pool(min_nodes=1))
    assert [one.claim.offer.id for one in of(floor, "resume") if one.claim] == ["one"], "that one is wanted whatever waits"


def test_L17_the_mark_is_for_one_pool() -> None:
    findings = {"unsatisfiable||uid-w|default/p": at("11:50")}
    both = specs(pool(weight=2), pool("q", weight=1))
    found = scale(world(asks(), machines=[machine()], findings=findings), both)
    assert [one.pool for one in of(found, "launch")] == ["default/q"]


def test_L17_what_daemonsets_take_is_no_reason_for_one_machine_after_the_other() -> None:
    """By its offer a machine has 57.6 GiB for pods and every Ready one has 56 left: the pod of 57 fits none, however many there are."""
    large, gib = offer("0.40", id="one", memory_mib=65536), 1024**3
    made, itself, there = machine(allocatable={GPU: 1, "memory": 62 * gib})
    made = dataclasses.replace(made, offer=large)
    daemon = pod("agent", node=itself.name, owner_kind="DaemonSet", owner_api="apps/v1", requests={"memory": 6 * gib})
    job = asks(requests={GPU: 1, "memory": 57 * gib})
    first = scale(world(job, daemon, machines=[(made, itself, there)], offers=(large,)))
    assert launched(first) == [] and "has not enough memory for it" in reasons(first)["w"]
    second = scale(world(job, daemon, machines=[(made, itself, there)], offers=(large,), now=at("12:05"), findings=first.findings))
    assert launched(second) == [] and "unsatisfiable until" in reasons(second)["w"]
    fits = asks(requests={GPU: 1, "memory": 56 * gib})
    assert reasons(scale(world(fits, daemon, machines=[(made, itself, there)], offers=(large,)))) == {}
    joining = claim(made.name, Phase.JOINING, launch_started=at("11:55"), offer=large, registered=at("11:58"))
    closed = dataclasses.replace(itself, created=at("11:58"), taints=(Taint("tgp.io/initializing", "", "NoSchedule"),))
    coming = scale(world(job, daemon, machines=[(joining, closed, there)], offers=(large,)))
    assert launched(coming) == [] and reasons(coming) == {}, "it is counted on the machine that was rented for it"
    other = dataclasses.replace(daemon, owner_kind="ReplicaSet")
    assert launched(scale(world(job, other, machines=[(made, itself, there)], offers=(large,)))) == [1], (
        "a new one would not have that pod"
    )


def test_L17_a_taint_that_no_document_names_is_no_reason_for_one_machine_after_the_other() -> None:
    """A template may register more taints than the pool's; no plan knows of them before a Node has them."""
    usual = Taint("tgp.io/ephemeral", "true", "NoSchedule")
    now = {"claim": {"generation": generation(node_class(), pool())}}
    first = machine(taints=(usual, Taint("example.org/gpu", "", "NoSchedule")), **now)
    second = machine(2, taints=(usual,), **now)
    alone = scale(world(asks(), machines=[first]))
    assert launched(alone) == []
    assert reasons(alone) == {"w": f"{first[1].name} is Ready, and taint example.org/gpu:NoSchedule not tolerated"}
    busy = pod("b", node=second[1].name, requests={GPU: 1})
    assert launched(scale(world(asks(), busy, machines=[first, second]))) == [1], "it is of one Node only"
    older = (dataclasses.replace(first[0], generation="of another text"), *first[1:])
    assert launched(scale(world(asks(), machines=[older]))) == [1], "its pool may have named the taint when it was made"
    ill = machine(taints=(usual, Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")), **now)
    assert launched(scale(world(asks(), machines=[ill]))) == [1], "another one would have a disk of its own"


def test_L17_neutral_gpus_that_this_run_puts_right_are_counted() -> None:
    bare = machine(allocatable={GPU: 1})
    both = asks(requests={GPU: 1, "tgp.io/gpu": 1})
    found = scale(world(both, machines=[bare]), specs(pool(), pool("q")))
    assert launched(found) == [] and found.join == (bare[0].name,) and reasons(found) == {}
    taken = pod("b", node=bare[1].name, requests={GPU: 1})
    assert launched(scale(world(both, taken, machines=[bare]))) == [1]


def test_L17_marks_of_pods_that_are_gone_are_forgotten_and_reap_forgets_none() -> None:
    findings = {"unsatisfiable||uid-w|default/p": at("11:50"), "unplaced||uid-w|default/p": at("11:50")}
    assert scale(world(findings=findings)).findings == {}
    kept = decide(world(asks(), findings=findings), mode="reap")
    assert dict(kept.findings) == findings
    unread = scale(seen(pods=None, findings=findings))
    assert dict(unread.findings) == findings, "pods that could not be read are not gone"


def test_L17_a_machine_that_turned_out_smaller_is_not_rented_again() -> None:
    """The offer promises 10 cores; the Node has 5. Another one would have no more."""
    rent = offer("0.40", id="one", vcpus=10, memory_mib=1024)
    made, ready, rented = machine(allocatable={GPU: 1, "cpu": 5000})
    there = (dataclasses.replace(made, offer=rent), ready, rented)
    hungry = asks(requests={GPU: 1, "cpu": 8000})
    first = scale(world(hungry, machines=[there], offers=(rent,)))
    assert launched(first) == [] and reasons(first) == {"w": f"{made.name} is Ready and has not enough cpu for it"}
    second = scale(world(hungry, machines=[there], offers=(rent,), now=at("12:01"), findings=dict(first.findings)))
    assert launched(second) == [] and "unsatisfiable until" in reasons(second)["w"]
    modest = asks(requests={GPU: 1, "cpu": 5000})
    busy = pod("busy", node=made.name, requests={GPU: 1})
    assert launched(scale(world(modest, busy, machines=[there], offers=(rent,)))) == [1], "one that is only busy says nothing"


# ---- beside what goes (L-18, L-22)


def idle_machine(number: int = 1, gpus: int = 1) -> tuple[Claim, Node, t.Any]:
    return machine(number, gpus, annotations=LONG_IDLE)


def test_L18_a_node_that_a_pod_is_counted_on_does_not_go_for_being_idle() -> None:
    assert [one.name for one in of(scale(world(machines=[idle_machine()])), "destroy")]
    found = scale(world(asks(), machines=[idle_machine()]))
    assert of(found, "destroy") == [] and launched(found) == []
    assert "pod default/w is to run there" in next(one.detail for one in of(found, "report"))


def test_L18_no_machine_goes_while_another_of_its_shape_comes() -> None:
    held = node_class(max_nodes=9)
    picky = asks(placement=dataclasses.replace(TOLERATES, selector=(("team", "red"),)))
    red, plain = pool("red", labels={"team": "red"}), pool()
    other = scale(world(picky, machines=[idle_machine()], offers=(ONE,)), specs(red, plain, classes=[held]))
    assert [one.pool for one in of(other, "launch")] == ["default/red"] and of(other, "destroy"), (
        "another pool's growth is no reason"
    )
    fresh = pool(labels={"team": "red"})
    same = scale(world(picky, machines=[idle_machine()], offers=(ONE,)), specs(fresh, classes=[held]))
    assert launched(same) == [1] and of(same, "destroy") == []


def test_L22_an_expired_machine_is_no_place_and_still_counts() -> None:
    old = pool(expire_after=1800)
    found = scale(world(asks(), machines=[machine()]), specs(old, classes=[node_class(max_nodes=1)]))
    assert [one.reason for one in of(found, "destroy")] == ["Expired"]
    assert reasons(found) == {"w": "limit:maxNodes"}, "the lost one is counted until it is confirmed gone"


def test_L17_cordoned_and_unready_nodes_are_no_place() -> None:
    cordoned = machine(unschedulable=True)
    assert launched(scale(world(asks(), machines=[cordoned]))) == [1]
    assert launched(scale(world(asks(), machines=[machine(ready=False)]))) == [1]


def test_L17_pods_unknown_nothing_for_pods_but_the_floor_is_kept() -> None:
    found = scale(dataclasses.replace(world(offers=(ONE,)), pods=None), pool(min_nodes=1))
    assert launched(found) == [1] and any("pods could not be read" in one for one in found.warnings)


def test_L17_from_zero_and_to_zero() -> None:
    assert launched(scale(world(asks()))) == [1]
    gone = scale(world(machines=[idle_machine()]))
    assert len(of(gone, "destroy")) == 1 and launched(gone) == []


def test_L02_a_launch_for_pods_that_are_gone_is_not_made_anew() -> None:
    made = [one.claim for one in of(scale(world(asks())), "launch") if one.claim]
    without = scale(seen(at("12:05"), claims=tuple(made), offers=(ONE,)))
    assert [one.name for one in of(without, "destroy")] == [made[0].name] and of(without, "resume") == []
    still = scale(seen(at("12:05"), pods=(asks(),), claims=tuple(made), offers=(ONE,)))
    assert [one.name for one in of(still, "resume")] == [made[0].name] and of(still, "destroy") == []


def test_L21_own_machines_from_zero() -> None:
    machines = tuple(Machine(f"rack-{count}", count, "http://up", "http://down") for count in (1, 2, 4))
    own = node_class(clouds=[CloudChoice("webhook", machines=machines)], mesh=MeshChoice("none"))
    offers = tuple(
        offer("0", id=f"rack-{count}", cloud="webhook", gpu_count=count, model="", instance_type="own") for count in (1, 2, 4)
    )

    def on(*sizes: int) -> list[str]:
        pods = tuple(asks(f"w{number}", size) for number, size in enumerate(sizes))
        view = {"webhook": CloudView((), offers)}
        found = scale(seen(pods=pods, clouds=view), specs(classes=[own]))
        return [one.name for one in of(found, "launch")] + sorted(reasons(found).values())

    assert on(2, 1) == ["rack-2", "rack-1"]
    assert on(1, 1, 1) == ["rack-1", "rack-2"]
    assert on(8) == ["no machine with 8 GPUs"]


def test_S2_18_wanted_used_free_and_waiting() -> None:
    busy = pod("busy", node="tgp-a1b2c3d4-p-00001", requests={GPU: 1})
    found = scale(world(busy, asks("a"), asks("b", 8), machines=[machine(1, 2), joining(2, 1)], offers=()))
    assert found.tally == (Tally("default/p", wanted=10, machines=1, used=1, free=1, coming=1, waiting=9),)
    assert reasons(found) == {"b": "no offer: no offers"}


def test_L17_what_only_lacks_our_marks_is_to_be_joined_at_once() -> None:
    made, _none, rented = joining(1, 1)
    complete = node(
        made.name, created=at("11:58"), labels={"tgp.io/provisioned": ""}, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),)
    )
    assert scale(world(machines=[(made, complete, rented)])).join == (made.name,)
    bare = dataclasses.replace(complete, allocatable={})
    assert scale(world(machines=[(made, bare, rented)])).join == ()


def test_I08_the_plan_is_the_same_in_any_order_and_empty_after_it() -> None:
    pods = [asks(f"w{number}", 1 + number % 3) for number in range(6)]
    there = [machine(1, 2), machine(2, 1), joining(3, 1)]
    first = scale(world(*pods, machines=there))
    shuffled = pods[:]
    random.Random(1).shuffle(shuffled)
    assert scale(world(*shuffled, machines=there[::-1], offers=(FOUR, ONE))) == first
    written = [one.claim for one in of(first, "launch") if one.claim]
    sent = [dataclasses.replace(one, phase=Phase.PROVISIONING, launch_started=NOON) for one in written]
    rented = [
        instance(one.name, gpu_count=one.offer.gpu_count, created=NOON, instance_type=one.offer.instance_type) for one in sent
    ]
    grown = [*there, *((made, None, listed) for made, listed in zip(sent, rented, strict=True))]
    assert launched(scale(world(*pods, machines=grown, now=at("12:00:30")))) == []
