# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 14: a host whose clock is wrong ends no machine, launches none, and says so."""

from __future__ import annotations

import pytest

from tests.contract.act.rig import Rig

BEHIND, AHEAD = -7200, 7200


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """A machine at work, 71 minutes old, that may become three hours old."""
    rig.training["disruption"] = {"expireAfter": "3h", "consolidateAfter": "10m"}
    rig.provision()
    rig.pod(rig.claim()["node_name"])
    rig.advance(71 * 60)
    return rig


@pytest.mark.parametrize("mode", ["reap", "everything", "autoscale"])
def test_L27_a_host_two_hours_ahead_ends_no_machine_at_work(busy: Rig, mode: str) -> None:
    busy.host.ahead = AHEAD
    for _run in range(2):
        done = busy.reap(mode)
        assert len(busy.machines()) == 1 and busy.claims(), "a machine that is 71 minutes old was ended by a wrong clock"
        assert busy.api.request("GET", "/api/v1/namespaces/default/pods/job")[0] == 200
        assert any("clock" in text for text in done["plan"]["problems"]), "the run has to fail, or nobody sets the clock"
        busy.advance(61)
    assert busy.creates() == 1


def test_a_host_two_hours_ahead_changes_no_record(busy: Rig) -> None:
    busy.reap()
    before, writes = busy.claim(), len(busy.writes())
    busy.host.ahead = AHEAD
    busy.reap()
    assert busy.claims() == {before["name"]: before}, "a wrong clock changed a record"
    changed = [one for one in busy.writes()[writes:] if "tgp-state-notices" not in one and "/configmaps" not in one]
    assert changed == []


def test_a_host_two_hours_behind_does_not_reset_the_idle_time(rig: Rig) -> None:
    rig.provision()
    name = rig.claim()["node_name"]
    rig.advance(601)
    rig.reap()
    since = rig.nodes()[name]["metadata"]["annotations"]["tgp.io/idle-since"]
    rig.host.ahead = BEHIND
    rig.reap()
    assert rig.nodes()[name]["metadata"]["annotations"]["tgp.io/idle-since"] == since, "a wrong clock changed a record"
    rig.host.ahead = 0
    rig.advance(601)
    rig.reap()
    assert rig.machines() == []


def test_a_wrong_clock_launches_nothing(rig: Rig) -> None:
    rig.host.ahead = AHEAD
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert rig.creates() == 0, "launched by a wrong clock"
    assert rig.claims() == {} and any("clock" in text for text in plan["problems"])


def test_a_joining_machine_is_not_given_up_by_a_wrong_clock(rig: Rig) -> None:
    rig.behave("never_ready")
    rig.rent()
    rig.advance(120)
    rig.host.ahead = AHEAD
    rig.join()
    assert len(rig.machines()) == 1 and rig.claims(), "a machine was given up by a wrong clock"


def test_what_a_person_asks_for_is_done_and_billed_by_the_true_time(busy: Rig) -> None:
    busy.host.ahead = AHEAD
    done = busy.destroy(force=True)
    assert busy.machines() == [] and busy.claims() == {}
    assert any("clock" in text for text in done["plan"]["problems"]), "a wrong clock is not reported"
    busy.check_bill()
