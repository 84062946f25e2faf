# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-7: what each mark on a pod does, reason by reason."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import expiration
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.do_not_disrupt import node_hold, pod_hold
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import Do, classify, mode_of, rules_of

from .build import NOON, at, claim, decide, instance, node, of, pod, pool, seen, specs

HELD = {"tgp.io/do-not-disrupt": "true"}
UNSAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
SKIP = {"cluster.x-k8s.io/drain": "skip"}
WAITED = {"cluster.x-k8s.io/drain": "wait-completed"}
REASONS = ("Empty", "Drifted", "Underutilized", "Expired", "SpotLost", "InstanceGone", "Manual")


def done(reason: str, one: Pod, *, force: bool = False) -> Do:
    (disposition,) = classify([one], mode_of(reason, force=force), NOON, rules_of(reason))
    return disposition.do


@pytest.mark.parametrize("mark", [HELD, UNSAFE, {"karpenter.sh/do-not-disrupt": "true"}])
@pytest.mark.parametrize(
    ("reason", "expected"),
    list(zip(REASONS, (Do.BLOCK, Do.BLOCK, Do.BLOCK, Do.WAIT, Do.EVICT, Do.EVICT, Do.WAIT), strict=True)),
)
def test_L07_pods_that_must_not_be_disrupted(reason: str, expected: Do, mark: dict[str, str]) -> None:
    assert done(reason, pod(annotations=mark)) is expected


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("reason", REASONS)
def test_L07_drain_skip_leaves_the_pod_alone_and_is_not_waited_for(reason: str, where: str) -> None:
    marked = pod(**t.cast("dict[str, t.Any]", {where: SKIP}))
    assert done(reason, marked) is Do.SKIP


def test_L07_drain_skip_keeps_no_node_busy() -> None:
    idle = node(annotations={"tgp.io/idle-since": "2026-08-20T11:20:00Z"})
    found = decide(seen(claims=(claim(),), nodes=(idle,), pods=(pod(labels=SKIP),), instances=(instance(),)))
    assert [action.reason for action in of(found, "destroy")] == ["Empty"]


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize(
    ("reason", "expected"),
    list(zip(REASONS, (Do.WAIT, Do.WAIT, Do.WAIT, Do.WAIT, Do.EVICT, Do.EVICT, Do.WAIT), strict=True)),
)
def test_L07_wait_completed_is_waited_for_and_not_evicted(reason: str, expected: Do, where: str) -> None:
    assert done(reason, pod(**t.cast("dict[str, t.Any]", {where: WAITED}))) is expected


@pytest.mark.parametrize("reason", ["Empty", "Drifted", "Underutilized"])
def test_L07_safe_to_evict_lets_a_bare_pod_go(reason: str) -> None:
    assert done(reason, pod(owner_kind="", owner_api="")) is Do.BLOCK
    assert done(reason, pod(owner_kind="", owner_api="", annotations=SAFE)) is Do.EVICT


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("Empty", Do.EVICT), ("Drifted", Do.EVICT), ("Underutilized", Do.BLOCK), ("Expired", Do.EVICT), ("Manual", Do.EVICT)],
)
def test_L07_local_data_stops_only_what_need_not_be(reason: str, expected: Do) -> None:
    assert done(reason, pod(empty_dir=True)) is expected
    assert done(reason, pod(empty_dir=True, annotations=SAFE)) is Do.EVICT


@pytest.mark.parametrize(
    "facts",
    [
        {"owner_kind": "DaemonSet", "owner_api": "apps/v1"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"mirror": True},
    ],
)
@pytest.mark.parametrize("reason", REASONS)
def test_L07_marks_of_daemons_and_ended_pods_say_nothing(reason: str, facts: dict[str, t.Any]) -> None:
    assert done(reason, pod(annotations=HELD, **facts)) is Do.SKIP


@pytest.mark.parametrize(("value", "held"), [("true", True), ("2h", True), ("yes", False), ("True", False), ("1d", False)])
def test_L07_only_true_and_durations_hold_and_anything_else_is_warned_about(value: str, held: bool) -> None:
    found = pod_hold(pod(annotations={"karpenter.sh/do-not-disrupt": value}, started=at("11:00")), NOON)
    assert bool(found.why) is held and bool(found.warnings) is not held


def test_L07_an_expired_nodes_pods_are_held_for_the_grace_period_at_most() -> None:
    made, wanted = claim(launch_started=at("08:00")), pool(expire_after=4 * 3600, termination_grace=120)
    end = expiration.holds_end(made, wanted, NOON)
    assert end == at("12:02")
    rules = rules_of("Expired", end)
    for moment, expected in (("12:00", Do.WAIT), ("12:01:59", Do.WAIT), ("12:02", Do.EVICT)):
        (disposition,) = classify([pod(annotations=HELD)], mode_of("Expired"), at(moment), rules)
        assert disposition.do is expected
    assert expiration.holds_end(made, pool(), NOON) is None


@pytest.mark.parametrize("mark", ["tgp.io/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled"])
def test_L07_an_expired_node_that_is_held_goes_after_the_grace_period(mark: str) -> None:
    for moment, reasons in (("12:09:59", []), ("12:10", ["Expired"])):
        observed = seen(
            at(moment),
            claims=(claim(launch_started=at("08:00")),),
            nodes=(node(annotations={mark: "true"}),),
            instances=(instance(),),
            pods=(pod(),),
        )
        found = decide(observed, specs(pool(expire_after=4 * 3600)))
        assert [action.reason for action in of(found, "destroy")] == reasons


def test_L07_hold_until_midnight() -> None:
    """Held until 2026-08-21T00:00:00Z: kept at 23:59 of the 20th, goes at 00:00; it was idle during the hold, and that counts."""
    marks = {"tgp.io/hold-until": "2026-08-21T00:00:00Z", "tgp.io/idle-since": "2026-08-20T23:45:00Z"}
    for moment, reasons in (("23:59", []), ("23:59:59", []), ("24:00", ["Empty"])):
        observed = seen(at(moment), claims=(claim(),), nodes=(node(annotations=marks),), instances=(instance(),))
        assert [action.reason for action in of(decide(observed), "destroy")] == reasons, moment


@pytest.mark.parametrize("annotation", [{"tgp.io/do-not-disrupt": "99999999h"}, {"tgp.io/hold-until": "9999-12-31T23:59:59-05:00"}])
def test_L07_a_hold_for_ever_holds(annotation: dict[str, str]) -> None:
    assert node_hold(node(annotations=annotation), NOON).why.startswith(next(iter(annotation)))
