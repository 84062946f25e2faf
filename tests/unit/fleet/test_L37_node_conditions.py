# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-37: conditions and taints of health agents: since when they count, which of them replace a machine, and how many at once."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    Instance,
    InstanceState,
    Node,
    Plan,
    Pool,
    StatusCondition,
    Taint,
    UnhealthyCondition,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.interruption import left_alone
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.node_conditions import DEFAULTS, is_due, signs, since
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, instance, node, of, offer, one, pod, pool, seen, specs

REPLACE = pool(unhealthy_conditions=(UnhealthyCondition("KernelDeadlock", action="Replace"),))
GIVEN_UP = "[79] GPU has fallen off the bus - RecommendedAction: RESTART_BM"


def shows(
    kind: str = "KernelDeadlock", since: str | None = "11:20", status: str = "True", message: str = "", **facts: t.Any
) -> Node:
    written = None if since is None else at(since)
    return node(conditions=(StatusCondition(kind, status, "DockerHung", message, written),), **facts)


def key(kind: str = "KernelDeadlock", name: str = "tgp-a1b2c3d4-p-00001", status: str = "True") -> str:
    return f"UnhealthySign|lambda|{name}|condition {kind}={status}"


def run(found: Node, now: str = "12:00", first: str | None = "11:50", wanted: Pool = REPLACE, **facts: t.Any) -> Plan:
    sign = key(found.conditions[0].type, status=found.conditions[0].status) if found.conditions else key()
    usual: dict[str, t.Any] = {"claims": (claim(),), "instances": (instance(),), "pods": (pod(),)}
    usual["findings"] = {} if first is None else {sign: at(first)}
    return decide(seen(at(now), nodes=(found,), **{**usual, **facts}), specs(wanted))


def told(found: Plan) -> str:
    return str([action.detail for action in of(found, "report")])


def test_L37_thirty_minutes_inclusive_by_what_kubernetes_says() -> None:
    assert not of(run(shows(since="11:30:01")), "destroy")
    gone = one(run(shows(since="11:30")), "destroy")
    assert gone.reason == "Unhealthy" and gone.detail.startswith(
        "condition KernelDeadlock=True since 2026-08-20T11:30:00Z (DockerHung)"
    )
    assert one(run(shows(since="11:58"), wanted=quick(120)), "destroy").reason == "Unhealthy"


def quick(seconds: int, action: str = "Replace", **facts: t.Any) -> Pool:
    return pool(unhealthy_conditions=(UnhealthyCondition("KernelDeadlock", lasts=seconds, action=action),), **facts)


def test_L37_two_runs_a_minute_apart_have_to_see_it() -> None:
    first = run(shows(), first=None)
    assert not of(first, "destroy") and first.findings[key()] == NOON and not first.notices
    assert not of(run(shows(), "12:00:59", "12:00"), "destroy")
    second = run(shows(), "12:01", "12:00")
    assert one(second, "destroy").reason == "Unhealthy" and [notice.kind for notice in second.notices] == ["node_condition"]


def test_L37_an_agent_that_does_not_say_since_when_counts_from_its_first_sight() -> None:
    assert not of(run(shows(since=None), "12:19:59", "11:50"), "destroy")
    assert of(run(shows(since=None), "12:20", "11:50"), "destroy")


def test_L37_a_time_of_tomorrow_has_not_lasted() -> None:
    """The clock of the node is ahead."""
    assert not of(run(shows(since="14:00")), "destroy")


def test_L37_what_was_there_before_the_node_was_in_use_counts_from_then() -> None:
    young = claim(initialized=at("11:40"))
    assert not of(run(shows(since="09:00"), claims=(young,)), "destroy")
    assert of(run(shows(since="09:00"), "12:10", claims=(young,)), "destroy")


def test_L37_a_readiness_taint_of_a_young_node_is_no_fault() -> None:
    gate = Taint("readiness.k8s.io/network", "", "NoSchedule")
    wanted = pool(unhealthy_conditions=(UnhealthyCondition(taint="readiness.k8s.io/", lasts=60, action="Replace"),))
    found = run(node(taints=(gate,)), first=None, wanted=wanted, claims=(claim(initialized=None),))
    assert not of(found, "destroy") and not found.findings and "readiness.k8s.io" not in told(found)
    later = run(node(taints=(gate,)), first=None, wanted=pool())
    assert list(later.findings) == ["UnhealthySign|lambda|tgp-a1b2c3d4-p-00001|taint readiness.k8s.io/network:NoSchedule"]
    assert "action Report after 20m" in told(later) and not of(later, "destroy", "taint", "untaint")


@pytest.mark.parametrize(
    "change",
    [
        {"found": shows(status="Unknown")},
        {"found": shows(status="False")},
        {"found": shows(ready=None, ready_since=at("11:55"))},
        {"instances": (instance(state=InstanceState.UNKNOWN),)},
        {"instances": ()},
        {"wanted": pool(unhealthy_conditions=(UnhealthyCondition("KernelDeadlock", contains=("task",), action="Replace"),))},
        {"wanted": pool()},
        {"found": shows(annotations={"tgp.io/do-not-disrupt": "true"})},
    ],
)
def test_L37_what_is_unknown_or_not_asked_for_ends_nothing(change: dict[str, t.Any]) -> None:
    found = run(change.pop("found", shows()), **change)
    assert not [action for action in of(found, "destroy") if action.reason == "Unhealthy"]


def test_L37_a_run_that_cannot_tell_neither_begins_the_time_nor_ends_it() -> None:
    silent = run(shows(ready=None, ready_since=at("11:55")), first="11:50")
    assert silent.findings[key()] == at("11:50")
    assert key() not in run(node(), first="11:50").findings, "a Ready node without the sign is well"


def test_L37_a_sign_that_flaps_begins_anew() -> None:
    gone = run(node(), "12:00", "11:20")
    back = run(shows(since="12:05"), "12:05", findings=gone.findings)
    assert not of(run(shows(since="12:05"), "12:34:59", findings=back.findings), "destroy")
    assert of(run(shows(since="12:05"), "12:35", findings=back.findings), "destroy")


def test_L37_the_pools_own_entries_come_first_and_the_first_that_fits_decides() -> None:
    own = (
        UnhealthyCondition("Odd", contains=("fatal",), lasts=60, action="Replace"),
        UnhealthyCondition("Odd", action="Ignore"),
        UnhealthyCondition("KernelDeadlock", action="Ignore"),
        UnhealthyCondition(taint="nvidia.com/gpu-xid-error", value="true", lasts=0, action="Replace"),
    )
    marks = (
        Taint("nvidia.com/gpu-xid-error", "true", "NoSchedule", at("11:00")),
        Taint("nvidia.com/gpu-xid-error", "", "NoExecute"),
    )
    texts = (("Odd", "", "a fatal one"), ("KernelDeadlock", "", ""), ("DiskBadBlock", "", ""))
    listed = tuple(StatusCondition(kind, "True", reason, message) for kind, reason, message in texts)
    shown = {sign.name: (sign.entry.action, sign.written) for sign in signs(node(conditions=listed, taints=marks), own)}
    assert shown == {
        "condition DiskBadBlock=True": ("Report", None),
        "condition Odd=True": ("Replace", None),
        "taint nvidia.com/gpu-xid-error:NoExecute": ("Report", None),
        "taint nvidia.com/gpu-xid-error=true:NoSchedule": ("Replace", at("11:00")),
    }
    assert not signs(node(conditions=(StatusCondition("Odd", "True"),)), own)


def test_L37_no_built_in_entry_ends_a_machine_on_which_pods_work() -> None:
    assert {entry.action for entry in DEFAULTS} == {"Report", "ReplaceWhenEmpty"}
    for entry in DEFAULTS:
        kind, message = entry.type or "None", GIVEN_UP
        shown = node(
            conditions=(StatusCondition(kind, entry.status, "", message, at("11:11")),),
            taints=(Taint(entry.taint.rstrip("/") or "none", "", "NoSchedule"),),
        )
        found = run(shown, "15:00", "11:12", wanted=pool(consolidate_after=None))
        assert not of(found, "destroy"), entry


def test_L37_what_nvsentinel_gives_up_is_replaced_once_it_is_empty() -> None:
    """Within the disruption budgets and after twenty minutes, also where minNodes would keep an idle node; other recommendations are told."""
    floor, dead = pool(min_nodes=1), shows("SysLogsGPUFallenOff", "11:30", message=GIVEN_UP)
    facts: dict[str, t.Any] = {"wanted": floor, "pods": ()}
    gone = one(run(dead, **facts), "destroy")
    assert gone.reason == "Replaced" and "fallen off the bus" in gone.detail
    assert not of(run(dead, "11:49:59", "11:30", **facts), "destroy")
    busy = run(dead, wanted=floor)
    assert not of(busy, "destroy") and "kept: pod default/job works there" in told(busy)
    assert not of(run(dead, wanted=floor, pods=None), "destroy")
    reset = shows("SysLogsXIDError", "11:30", message="[119] GSP timeout - RecommendedAction: COMPONENT_RESET")
    assert not of(run(reset, **facts), "destroy") and "COMPONENT_RESET" in told(run(reset, **facts))
    closed = dataclasses.replace(dead, unschedulable=True)
    assert not of(run(closed, wanted=floor), "uncordon", "untaint", "restore"), "another one's cordon stays"


@pytest.mark.parametrize(
    ("size", "sick", "young", "ends"),
    [(1, 1, 0, 1), (3, 1, 0, 1), (3, 2, 0, 0), (5, 2, 0, 2), (5, 3, 0, 0), (5, 2, 1, 0), (10, 4, 0, 4), (10, 5, 0, 0)],
)
def test_L37_guard_counts_signs_however_new_they_are(size: int, sick: int, young: int, ends: int) -> None:
    found = fleet(size, {place: "11:20" if place < sick else "11:59" for place in range(sick + young)})
    assert len(of(found, "destroy")) == ends and bool(found.problems) is not bool(ends)
    if not ends:
        assert f"guard_refused: {sick + young} of {size} nodes" in found.problems[0]


def fleet(size: int, sick: t.Mapping[int, str], now: datetime = NOON, deleted: t.Collection[int] = ()) -> Plan:
    """A pool of so many machines, of which some show a sign since a time of the day; all were seen so ten minutes ago."""
    names = [f"tgp-a1b2c3d4-p-000{place:02d}" for place in range(size)]
    claims, nodes, machines = map(claim, names), [node(name) for name in names], map(instance, names)
    for place, moment in sick.items():
        nodes[place] = dataclasses.replace(
            nodes[place], conditions=(StatusCondition("KernelDeadlock", "True", "", "", at(moment)),)
        )
    findings = {key(name=names[place]): now - timedelta(minutes=10) for place in sick}
    return decide(
        seen(now, claims=tuple(claims), nodes=tuple(nodes), instances=tuple(machines), pods=None, findings=findings), specs(REPLACE)
    )


def test_L37_a_false_alarm_does_not_keep_a_machine_that_is_silent() -> None:
    """Three of five show the sign, which is refused; the one whose kubelet is silent is replaced all the same (L-20)."""
    names = [f"tgp-a1b2c3d4-p-0000{place}" for place in range(5)]
    sign = (StatusCondition("KernelDeadlock", "True", "", "", at("11:20")),)
    nodes = tuple(
        node(name, ready=place > 0, ready_since=at("11:10"), conditions=sign if place in (1, 2, 3) else ())
        for place, name in enumerate(names)
    )
    found = decide(
        seen(
            claims=tuple(map(claim, names)),
            nodes=nodes,
            instances=tuple(map(instance, names)),
            pods=None,
            findings={key(name=name): at("11:50") for name in names[1:4]},
        ),
        specs(REPLACE),
    )
    assert [action.name for action in of(found, "destroy")] == names[:1] and "4 of 5 nodes" in found.problems[0]


def test_L37_the_host_is_left_alone_where_the_cloud_names_it() -> None:
    hosted = offer(host_id="7")
    assert launch_backoff.keys_after(hosted, "unhealthy") == (launch_backoff.key_of(hosted), "host:lambda:7")
    assert launch_backoff.keys_after(offer(), "unhealthy") == (), "the next machine of the same offer is another one"
    assert launch_backoff.FIRST["unhealthy"] == 3600
    assert left_alone("Unhealthy", rented=True) == left_alone("Replaced", rented=True) == "unhealthy"
    assert left_alone("Unhealthy", rented=False) == "" and left_alone("FailedJoin", rented=False) == "join", (
        "an own machine is switched on again"
    )


def test_L18_of_idle_nodes_the_degraded_go_first() -> None:
    """[E] 7 of 8 GPUs, 3: idle and degraded goes first, although it is the cheapest; a busy one stays."""
    names = [f"tgp-a1b2c3d4-p-0000{place}" for place in range(3)]
    claims = tuple(
        claim(name, offer=offer(price, gpu_count=8)) for name, price in zip(names, ("1.00", "2.00", "3.00"), strict=True)
    )
    machines = tuple(instance(one.name, price_hour=one.offer.price_hour) for one in claims)
    idle = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}
    nodes = tuple(
        node(name, allocatable={"nvidia.com/gpu": gpus}, annotations=idle) for name, gpus in zip(names, (7, 8, 7), strict=True)
    )
    work = (pod(node=names[2], requests={"nvidia.com/gpu": 1}),)
    found = decide(seen(claims=claims, nodes=nodes, instances=machines, pods=work), specs(pool(min_nodes=2)), "reap")
    assert [action.name for action in of(found, "destroy")] == names[:1]
    world = seen(claims=claims, nodes=nodes, instances=machines, pods=work)
    both = [decide(world, specs(pool(min_nodes=1)), "reap", max_remove_per_run=most) for most in (1, 2)]
    assert [[action.name for action in of(found, "destroy")] for found in both] == [names[:1], names[:2]]


@dataclasses.dataclass(frozen=True)
class _World:
    """Machines of one pool: minutes since the sign was written (None = no time), seconds since it was first seen, its status, or none."""

    machines: tuple[tuple[int | None, int, str] | None, ...]


_sign = st.tuples(st.none() | st.integers(0, 120), st.integers(0, 7200), st.sampled_from(["True", "False", "Unknown"]))


@given(st.lists(st.none() | _sign, min_size=1, max_size=10).map(lambda listed: _World(tuple(listed))), st.integers(0, 60))
def test_L37_at_most_the_limit_and_nothing_before_its_time(world: _World, minutes: int) -> None:
    wanted = pool(unhealthy_conditions=(UnhealthyCondition("KernelDeadlock", lasts=minutes * 60, action="Replace"),))
    claims: list[Claim] = []
    nodes: list[Node] = []
    findings: dict[str, datetime] = {}
    due: set[str] = set()
    machines: list[Instance] = []
    for place, shown in enumerate(world.machines):
        name = f"tgp-a1b2c3d4-p-000{place:02d}"
        claims.append(claim(name, initialized=at("09:00")))
        machines.append(instance(name))
        sign = ()
        if shown is not None:
            written = None if shown[0] is None else NOON - timedelta(minutes=shown[0])
            first = NOON - timedelta(seconds=shown[1])
            sign = (StatusCondition("KernelDeadlock", shown[2], "", "", written),)
            findings[key(name=name, status=shown[2])] = first
            began = first if written is None else written
            if shown[2] == "True" and shown[1] >= 60 and (NOON - began).total_seconds() >= minutes * 60:
                due.add(name)
        nodes.append(node(name, conditions=sign))
    found = decide(
        seen(claims=tuple(claims), nodes=tuple(nodes), instances=tuple(machines), pods=None, findings=findings), specs(wanted)
    )
    ended = {action.name for action in of(found, "destroy")}
    alarmed = sum(1 for shown in world.machines if shown is not None and shown[2] == "True")
    most = max(1, int(len(world.machines) * 0.4))
    assert ended == (due if alarmed <= most else set()) and len(ended) <= most


@given(st.integers(0, 7200), st.none() | st.integers(-7200, 7200), st.integers(0, 7200), st.integers(0, 3600))
def test_L37_time_only_makes_a_sign_more_due(seen_for: int, written: int | None, age: int, lasts: int) -> None:
    """While nothing else changes; and never before it was seen for a minute and the node was in use for its time."""
    first, made = NOON - timedelta(seconds=seen_for), NOON - timedelta(seconds=age)
    sign = signs(shows(since=None), (UnhealthyCondition("KernelDeadlock", lasts=lasts),))[0]
    sign = dataclasses.replace(sign, written=None if written is None else NOON - timedelta(seconds=written))
    if is_due(sign, first, made, NOON):
        assert seen_for >= 60 and age >= lasts and since(sign, first, made) <= NOON
        assert is_due(sign, first, made, NOON + timedelta(hours=1))
