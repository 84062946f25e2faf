# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of what pods ask for, saved and applied (L-17, L-22)."""

from __future__ import annotations

from pathlib import Path

from .rig import Rig
from .test_autoscale import ask
from .test_saved_plan import apply, results


def test_L22_a_machine_for_a_pod_is_planned_and_rented_once(rig: Rig) -> None:
    file = Path(rig.folder) / "plan.json"
    ask(rig, "job")
    planned = rig.plan("autoscale", save_to=str(file))
    assert len(planned["launch"]) == 1 and rig.claims() == {}
    assert results(apply(rig, file)) == [("launch", "applied")]
    assert results(apply(rig, file)) == [("launch", "done")]
    assert len(rig.claims()) == 1


def test_L22_a_machine_for_a_pod_that_is_gone_is_refused(rig: Rig) -> None:
    file = Path(rig.folder) / "plan.json"
    ask(rig, "job")
    rig.plan("autoscale", save_to=str(file))
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.until(lambda: rig.api.request("GET", "/api/v1/namespaces/default/pods/job")[0] == 404, "it is gone")
    found = apply(rig, file)
    assert results(found) == [("launch", "refused")] and "as many machines as it wants by now" in found["steps"][0]["why"]
    assert rig.claims() == {}


def test_L16_a_planned_machine_is_refused_when_its_team_has_no_money_any_more(rig: Rig) -> None:
    file = Path(rig.folder) / "plan.json"
    ask(rig, "job", labels={"tgp.io/team": "red"})
    known = {"team": "red", "period": "day", "time_zone": "UTC", "soft_percent": 80}
    planned = rig.plan("autoscale", save_to=str(file), team_budgets=[{**known, "amount": "20"}])
    assert len(planned["launch"]) == 1
    found = apply(rig, file, team_budgets=[{**known, "amount": "0.10"}])
    assert results(found) == [("launch", "refused")] and "limit:budget.team too little left" in found["steps"][0]["why"]
    assert rig.claims() == {}
