# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-9, decided: what a drain does with each pod, when it deletes one itself, and how long it waits between tries."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain import eviction
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import drain_rules
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import Do, Mode, Rules

from .build import NOON, at, pod

PLUGIN = pod("plugin", owner_kind="DaemonSet", owner_api="apps/v1")
PROXY = pod("kube-proxy", mirror=True)
FINISHED = pod("finished", "Succeeded")
JOB = pod("job", empty_dir=True)
BARE = pod("bare", owner_kind="", owner_api="")
WEB = pod("web", owner_kind="ReplicaSet", owner_api="apps/v1")


def done(mode: Mode, *pods: t.Any, rules: Rules = Rules()) -> dict[str, tuple[Do, str]]:
    return {one.pod.name: (one.do, one.why) for one in drain_rules.classify(pods, mode, NOON, rules)}


def test_L09_the_node_of_the_worked_example() -> None:
    node = (PLUGIN, PROXY, FINISHED, JOB, BARE, WEB)
    skipped = {"plugin": (Do.SKIP, "daemonset"), "kube-proxy": (Do.SKIP, "static"), "finished": (Do.SKIP, "finished")}
    drifted = done(drain_rules.mode_of("Drifted"), *node)
    assert drifted == {**skipped, "job": (Do.EVICT, ""), "bare": (Do.BLOCK, "unmanaged"), "web": (Do.EVICT, "")}
    expired = done(drain_rules.mode_of("Expired"), *node)
    assert expired == {**skipped, "job": (Do.EVICT, ""), "bare": (Do.EVICT, ""), "web": (Do.EVICT, "")}


@pytest.mark.parametrize("reason", ["Empty", "Underutilized", "Drifted"])
def test_L09_a_pod_that_nobody_starts_again_blocks_every_voluntary_reason(reason: str) -> None:
    assert done(drain_rules.mode_of(reason), BARE)["bare"] == (Do.BLOCK, "unmanaged")
    assert done(drain_rules.mode_of(reason), BARE, rules=Rules(unmanaged=True))["bare"][0] is Do.EVICT


def test_L09_local_data_costs_nothing_but_where_the_node_is_merely_used_too_little() -> None:
    assert done(Mode.VOLUNTARY, JOB, rules=drain_rules.rules_of("Empty"))["job"][0] is Do.EVICT
    assert done(Mode.VOLUNTARY, JOB, rules=drain_rules.rules_of("Underutilized"))["job"] == (Do.BLOCK, "local-data")


def test_L09_every_reason_has_its_way_and_an_unknown_one_none() -> None:
    assert drain_rules.mode_of("Manual", force=True) is Mode.FORCEFUL and drain_rules.mode_of("Manual") is Mode.MANUAL
    assert drain_rules.mode_of("SpotLost") is Mode.LOST and drain_rules.mode_of("Orphan") is Mode.GONE
    with pytest.raises(Exception, match="'Boredom' is not a reason to drain a node"):
        drain_rules.mode_of("Boredom")


def test_L09_a_blocked_pod_is_deleted_in_time_for_its_own_grace() -> None:
    end = at("12:10")
    web = dataclasses.replace(WEB, grace_seconds=30)
    assert drain_rules.direct_delete(web, at("12:09:29"), end) is None
    assert drain_rules.direct_delete(web, at("12:09:30"), end) == 30, "t = 570 of 600"
    refused = [
        second for second in range(0, 600, 5) if drain_rules.direct_delete(web, NOON + timedelta(seconds=second), end) is None
    ]
    assert len(refused) == 114 and refused[-1] == 565


def test_L09_a_grace_longer_than_the_drain_is_cut_to_what_is_left() -> None:
    patient = dataclasses.replace(WEB, grace_seconds=900)
    assert [drain_rules.direct_delete(patient, NOON + timedelta(seconds=passed), at("12:10")) for passed in (0, 590, 600)] == [
        600,
        10,
        1,
    ]


def test_L09_a_refused_eviction_waits_five_seconds_or_as_told() -> None:
    assert [eviction.pause_after_refusal(told) for told in (None, 0.0, 4.9, 5.0, 12.0)] == [5.0, 5.0, 5.0, 5.0, 12.0]
    assert [eviction.pause_after_silence(times) for times in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 10, 10]


def test_L09_a_drain_that_was_begun_in_an_earlier_run_keeps_its_end() -> None:
    assert drain_rules.deadline(at("12:00"), 600) == at("12:10")


def test_L09_after_a_blocked_drain_the_pause_doubles_to_two_hours() -> None:
    pauses, times = [], 0
    for _try in range(6):
        pause, times = drain_rules.backoff_after_block(times)
        pauses.append(pause.total_seconds() / 60)
    assert pauses == [15, 30, 60, 120, 120, 120]


def test_L09_a_lost_machine_is_not_waited_for_and_a_gone_one_has_no_grace() -> None:
    leaving = dataclasses.replace(WEB, deletion=at("12:00:30"))
    assert done(Mode.LOST, WEB, leaving) == {"web": (Do.WAIT, "")} and done(Mode.LOST, WEB)["web"][0] is Do.EVICT
    assert done(Mode.GONE, leaving)["web"][0] is Do.EVICT
    assert done(Mode.NONE, WEB)["web"] == (Do.SKIP, "not drained")


def test_L09_a_grace_that_no_date_can_bear_ends_with_the_deadline() -> None:
    endless = pod(grace_seconds=2**63 - 1)
    assert drain_rules.direct_delete(endless, NOON, NOON + timedelta(seconds=600)) == 600
