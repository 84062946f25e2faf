# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report asks providers for their bills and compares them with the ledger (L-57)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest

from sandbox.world import Machine

from .rig import Rig
from .used_hours import SCENARIO

DAY = 86400 + 300
CENT = Decimal("0.01")


@pytest.fixture
def two(build: t.Callable[..., Rig]) -> Rig:
    """A machine of Vast.ai and one of Lambda have come and gone; a day has passed since."""
    rig = build(speed=80.0, **SCENARIO)
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    rig.demo_class["providers"] = [{"name": "lambda", "settings": {"sshKey": "tgp"}}, {"name": "vast", "settings": {}}]
    rig.training["template"]["spec"]["lanes"] = ["kubelet"]
    rig.training["maxHourlyPrice"] = "9"
    for cloud in ("lambda", "vast"):
        rig.training["template"]["spec"]["requirements"] = [{"key": "tgp.io/provider", "operator": "In", "values": [cloud]}]
        rig.rent()
        rig.join()
        rig.advance(5000)
        plan = rig.plan("destroy", all=True, force=True)
        rig.run("teardown", plan["run_id"], orphans=plan["orphans"], unrecorded=plan.get("unrecorded", []))
        rig.unlock(plan["run_id"])
    rig.advance(DAY)
    return rig


def bills(rig: Rig, **params: t.Any) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
    """The part of the report, and its clouds by name. The warnings are those of this call."""
    rig.warnings.clear()
    found = rig.run("report", provider_bills=True, **params)["report"]["provider_bills"]
    return found, {one["name"]: one for one in found["clouds"]}


def machine_of(rig: Rig, cloud: str) -> Machine:
    return next(one for one in rig.machines(living=False) if one.cloud == cloud)


def test_L57_the_bill_of_a_provider_stands_beside_the_ledger(two: Rig) -> None:
    before = two.writes
    two.world.calls.clear()
    assert two.run("report")["report"]["provider_bills"] is None and two.world.calls.get("vast", 0) == 0  # nobody asked for it
    found, clouds = bills(two)
    theirs = machine_of(two, "vast").cost(two.clock.now())
    assert clouds["vast"]["available"] and abs(Decimal(clouds["vast"]["billed"]) - theirs) < CENT / 2
    assert (clouds["lambda"]["available"], clouds["lambda"]["why"]) == (False, "its API has no bill")
    assert not found["whole"] and found["problems"] == [] and not any("billed" in warning for warning in two.warnings)
    assert abs(Decimal(found["total"]) - theirs - machine_of(two, "lambda").cost(two.clock.now())) < 2 * CENT
    assert two.writes == before and two.world.calls.get("vast", 0) == 1  # one list for all machines
    page = two.folder / "report.html"
    bills(two, format="html", path=str(page))
    assert "Bills of the providers" in page.read_text() and "not available" in page.read_text()
    two.fault("status", "vast", "GET", "/api/v0/charges/", status=403, times=None)
    found, clouds = bills(two)
    assert not clouds["vast"]["available"] and "lambda" in clouds and not found["whole"]
    assert any("What vast billed could not be read" in warning for warning in two.warnings)
    assert abs(Decimal(found["total"]) - sum(Decimal(line["cost"]) for line in two.ledger())) < CENT / 100


def test_L57_what_a_bill_shows_and_the_ledger_does_not_is_a_warning(two: Rig) -> None:
    """A machine that was billed longer, one that no line knows, and one without a charge."""
    machine = machine_of(two, "vast")
    name = f"tgp-{two.cluster_id}-training-lost0"
    lost = dataclasses.replace(machine, id="777777", name=name, details={**machine.details, "label": name})
    two.world.machines[lost.id] = lost
    found, clouds = bills(two)
    assert [one["name"] for one in clouds["vast"]["unrecorded"]] == [name] and "run orphans.yml" in found["problems"][0]
    del two.world.machines[lost.id]
    assert machine.ended is not None
    machine.ended += timedelta(hours=3)
    found, clouds = bills(two)
    (outside,) = clouds["vast"]["outside"]
    assert outside["ids"] == [machine.id] and Decimal(outside["billed"]) > Decimal(outside["most"])
    (sentence,) = found["problems"]
    assert sentence in two.warnings and sentence.startswith("vast billed $") and machine.id in sentence
    del two.world.machines[machine.id]
    found, clouds = bills(two)
    assert [one["ids"] for one in clouds["vast"]["missing"]] == [[machine.id]] and "shows no charge for" in found["problems"][0]
