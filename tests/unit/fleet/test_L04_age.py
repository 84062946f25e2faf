# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-4: maximum age; the manual request of L-7."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import TERMINATE_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.model.spec import DRAIN_TIMEOUT
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.bill import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import do_not_disrupt, drain_rules, expiration
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.termination_steps import Facts, Step, next_step
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from .build import at, claim, decide, instance, node, of, one, pod, pool, seen, specs

HOUR = 3600


def expired(moment: str, hours: int, **facts: object) -> bool:
    observed = seen(
        at(moment), claims=(claim(launch_started=at("08:00")),), nodes=(node(**facts),), pods=(pod(),), instances=(instance(),)
    )
    actions = of(decide(observed, specs(pool(expire_after=hours * HOUR))), "destroy")
    return bool(actions) and actions[0].reason == "Expired"


def test_L04_due_at_the_second() -> None:
    assert not expired("11:59:59", 4)
    assert expired("12:00", 4)


def test_L04_edits_take_effect_at_once() -> None:
    made = claim(launch_started=at("08:00"))
    assert expiration.due(made, pool(expire_after=2 * HOUR)) == at("10:00")
    assert expired("11:00", 2)
    assert expiration.due(made, pool(expire_after=8 * HOUR)) == at("16:00")
    assert not expired("12:00", 8)


def test_L04_jitter_is_a_part_of_a_share_of_the_time() -> None:
    assert expiration.earlier(24 * HOUR, Decimal("0.1"), Decimal("0.25")) == 36 * 60
    assert expiration.earlier(24 * HOUR, Decimal(0), Decimal("0.25")) == 0
    wanted = pool(expire_after=24 * HOUR, expire_jitter=Decimal("0.1"))
    made = claim("tgp-a1b2c3d4-p-00001", launch_started=at("08:00"))
    assert expiration.fraction(made) == Decimal(int(hashlib.sha256(b"tgp-a1b2c3d4-p-00001").hexdigest()[:8], 16)) / 2**32
    due = expiration.due(made, wanted)
    assert (
        due
        == expiration.due(made, wanted)
        == at("08:00") + timedelta(seconds=24 * HOUR - int(24 * HOUR * expiration.fraction(made) / 10))
    )
    assert expiration.due(made, pool(expire_after=24 * HOUR)) == at("08:00") + timedelta(hours=24)


def test_L04_jitter_spreads_a_batch_over_its_share_and_no_further() -> None:
    wanted = pool(expire_after=24 * HOUR, expire_jitter=Decimal("0.1"))
    dues = {expiration.due(claim(f"tgp-a1b2c3d4-p-{place:05}", launch_started=at("08:00")), wanted) for place in range(50)}
    first, last = at("08:00") + timedelta(seconds=24 * HOUR * 0.9), at("08:00") + timedelta(hours=24)
    assert len(dues) > 45 and all(due is not None and first < due <= last for due in dues)


def test_L04_never_by_default() -> None:
    assert expiration.due(claim(), pool()) is None


def test_L04_a_hold_delays_by_the_grace_period_only() -> None:
    hold = {"annotations": {do_not_disrupt.DO_NOT_DISRUPT[0]: "true"}}
    assert not expired("12:09:59", 4, **hold)
    assert expired("12:10", 4, **hold)


def test_L04_min_nodes_does_not_protect() -> None:
    observed = seen(at("12:00"), claims=(claim(launch_started=at("08:00")),), nodes=(node(),), instances=(instance(),))
    assert one(decide(observed, specs(pool(expire_after=4 * HOUR, min_nodes=1))), "destroy").reason == "Expired"


def test_L04_joining_machine_expires_too() -> None:
    joining = claim(phase=Phase.JOINING, launch_started=at("11:50"))
    observed = seen(at("12:00"), claims=(joining,), instances=(instance(),))
    assert one(decide(observed, specs(pool(expire_after=600))), "destroy").reason == "Expired"


def test_L04_begun_drain_keeps_its_time() -> None:
    begun = claim(launch_started=at("08:00"), deletion=Deletion("Expired", at("12:00")))
    observed = seen(at("12:05"), claims=(begun,), nodes=(node(),), instances=(instance(),))
    action = one(decide(observed, specs(pool(expire_after=4 * HOUR))), "destroy")
    assert action.claim is not None and action.claim.deletion == begun.deletion


@pytest.mark.parametrize(("seconds", "dollars"), [(24 * HOUR, "10.08"), (24 * HOUR + 600, "10.15")])
def test_L04_cost_of_a_day(seconds: int, dollars: str) -> None:
    assert print_money(cost(claim().price, at("00:00"), at("00:00") + timedelta(seconds=seconds))) == dollars


def test_L07_manual_request_beats_holds_and_floor() -> None:
    asked = node(annotations={TERMINATE_ANNOTATION: "now", do_not_disrupt.DO_NOT_DISRUPT[0]: "true"})
    observed = seen(claims=(claim(),), nodes=(asked,), pods=(pod(),), instances=(instance(),))
    action = one(decide(observed, specs(pool(min_nodes=5))), "destroy")
    assert action.reason == "Manual" and "held by" in action.detail
    later = node(annotations={TERMINATE_ANNOTATION: "later"})
    assert not of(decide(seen(claims=(claim(),), nodes=(later,), pods=(pod(),), instances=(instance(),))), "destroy")


def test_L04_a_pod_of_two_minutes_grace_is_deleted_two_minutes_before_the_deadline() -> None:
    """Due at 12:00:00, so the drain ends at 12:10:00; a pod that a budget keeps is deleted at 12:08:00."""
    made = claim(launch_started=at("08:00"))
    due = expiration.due(made, pool(expire_after=4 * HOUR))
    assert due == at("12:00")
    end = drain_rules.deadline(due, DRAIN_TIMEOUT)
    assert end == at("12:10") and drain_rules.mode_of("Expired") is drain_rules.Mode.FORCEFUL
    kept = pod(grace_seconds=120)
    assert drain_rules.direct_delete(kept, at("12:07:59"), end) is None
    assert drain_rules.direct_delete(kept, at("12:08:00"), end) == 120


def test_L04_a_joining_machine_without_work_is_not_drained() -> None:
    joining = claim(phase=Phase.JOINING, deletion=Deletion("Expired", at("12:00")))
    assert next_step(joining, Facts(at("12:00"), instance="present", node=False)) is Step.TERMINATE
    plugin = pod("plugin", owner_kind="DaemonSet", owner_api="apps/v1")
    assert [one.do for one in drain_rules.classify([plugin], drain_rules.mode_of("Expired"), at("12:00"))] == [drain_rules.Do.SKIP]
