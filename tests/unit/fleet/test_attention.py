# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What deserves a run: waiting pods at once, idle nodes when they become so and when they may go, lost nodes once they stay lost."""

from __future__ import annotations

import dataclasses

from ansible_collections.tgp.gpu.plugins.module_utils.model import Node, Pod, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.capacity import INITIALIZING
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.triggers import (
    NODES_ASKING,
    NODES_IDLE,
    NODES_LOST,
    NODES_READY,
    PODS_WAITING,
    Sighting,
    TriggerDelays,
    Watcher,
)

from .build import at, node, pod

A, B = "tgp-a1b2c3d4-p-00001", "tgp-a1b2c3d4-p-00002"
WAITING = pod("want", "Pending", node="", waiting="Unschedulable", requests={"nvidia.com/gpu": 2})


def told(watcher: Watcher, moment: str, pods: tuple[Pod, ...] = (), nodes: tuple[Node, ...] = ()) -> dict[str, Sighting]:
    return {one.kind: one for one in watcher.look(pods, nodes, at(moment))}


def test_L17_a_waiting_pod_is_told_at_once_and_again_while_it_waits() -> None:
    watcher = Watcher(TriggerDelays(repeat=300))
    first = told(watcher, "12:00", (WAITING,))
    assert first[PODS_WAITING].event() == {
        "kind": "pods_waiting", "names": ["default/want"], "count": 1, "gpus": 2, "since": "2026-08-20T12:00:00Z",
    }  # fmt: skip
    assert told(watcher, "12:04:59", (WAITING,)) == {} and watcher.next(at("12:04:59")) == at("12:05")
    assert told(watcher, "12:05", (WAITING,))[PODS_WAITING].since == at("12:00")
    another = dataclasses.replace(WAITING, name="more", uid="2")
    assert told(watcher, "12:06", (WAITING, another))[PODS_WAITING].gpus == 4, "a new one is told at once, with all"
    assert told(watcher, "12:07") == {}
    assert told(watcher, "12:08", (WAITING,))[PODS_WAITING].since == at("12:08"), "it began to wait anew"


def test_K03_a_pod_that_is_only_loading_its_image_is_nothing() -> None:
    assert told(Watcher(), "12:00", (dataclasses.replace(WAITING, node=A, waiting="ContainerCreating"),)) == {}


def test_L03_an_idle_node_is_told_when_it_becomes_so_when_it_may_go_and_then_now_and_then() -> None:
    watcher, nodes = Watcher(TriggerDelays(idle_after=600, repeat=300)), (node(A),)
    assert told(watcher, "11:59", (pod(),), nodes) == {}
    moments = [minute for minute in range(0, 26) if NODES_IDLE in told(watcher, f"12:{minute:02d}", (), nodes)]
    assert moments == [0, 10, 15, 20, 25]
    assert told(watcher, "12:26", (pod(),), nodes) == {}, "busy again"
    assert told(watcher, "12:27", (), nodes)[NODES_IDLE].since == at("12:27")


def test_L11_a_machine_that_asks_for_its_certificate_is_told_at_once_and_again_while_nobody_answers() -> None:
    watcher = Watcher(TriggerDelays(repeat=300))
    (first,) = watcher.look((), (), at("12:00"), ("csr-1",))
    assert (first.kind, first.names, first.since) == (NODES_ASKING, ("csr-1",), at("12:00")) and "gpus" not in first.event()
    assert watcher.look((), (), at("12:04:59"), ("csr-1",)) == []
    (again,) = watcher.look((), (), at("12:05"), ("csr-1",))
    assert again.since == at("12:00")
    (more,) = watcher.look((), (), at("12:06"), ("csr-1", "csr-2"))
    assert more.names == ("csr-1", "csr-2")
    assert watcher.look((), (), at("12:07")) == [] and watcher.next(at("12:07")) == at("13:07"), "they were answered"


def test_L11_a_node_that_came_up_is_told_until_it_is_marked() -> None:
    watcher = Watcher(TriggerDelays(soon=15))
    fresh = dataclasses.replace(node(A, allocatable={}), taints=(INITIALIZING,))
    assert told(watcher, "12:00", (), (dataclasses.replace(fresh, ready=False),)) == {}
    assert set(told(watcher, "12:00:05", (), (fresh,))) == {NODES_READY}, "and it is not idle"
    assert told(watcher, "12:00:19", (), (fresh,)) == {}
    assert told(watcher, "12:00:20", (), (fresh,))[NODES_READY].names == (A,)
    assert set(told(watcher, "12:00:21", (pod(),), (node(A),))) == set()


def test_L20_a_lost_node_is_told_once_it_stays_lost() -> None:
    watcher, sick = Watcher(TriggerDelays(lost_after=300)), (node(A, ready=None),)
    assert told(watcher, "12:00", (), sick) == {} and watcher.next(at("12:00")) == at("12:05")
    assert told(watcher, "12:04:59", (), sick) == {}
    assert told(watcher, "12:05", (), sick)[NODES_LOST].names == (A,)
    both = (*sick, node(B, ready=False))
    assert told(watcher, "12:06", (pod(),), both) == {}
    assert told(watcher, "12:10", (pod(),), both)[NODES_LOST].names == (A,), "the other is not ripe yet"
    assert told(watcher, "12:11", (pod(),), both)[NODES_LOST].names == (A, B)


def test_a_node_that_vanishes_is_told_once_but_not_one_that_we_removed() -> None:
    leaving = node(B, taints=(Taint("tgp.io/disrupted", "Empty", "NoSchedule"),))
    watcher = Watcher()
    told(watcher, "12:00", (pod(),), (node(A), leaving))
    assert told(watcher, "12:01")[NODES_LOST].names == (A,)
    assert told(watcher, "12:02") == {}


def test_nodes_of_others_are_nobodys_business() -> None:
    foreign = dataclasses.replace(node("worker-1", ready=False), labels={})
    watcher = Watcher(TriggerDelays(lost_after=0))
    assert told(watcher, "12:00", (), (foreign,)) == {} and told(watcher, "12:01") == {}


def test_with_nothing_to_wait_for_nobody_has_to_look() -> None:
    watcher = Watcher()
    told(watcher, "12:00", (pod(),), (node(A),))
    assert watcher.next(at("12:00")) == at("13:00")
