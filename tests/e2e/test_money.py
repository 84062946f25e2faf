# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.yml, and a budget that stops a launch, as a user meets them."""

from __future__ import annotations

import json
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from .box import Sandbox


@pytest.fixture(scope="module")
def spent(start: t.Callable[..., Sandbox]) -> Sandbox:
    """A machine that came, was of use for two hours, and went."""
    sandbox = start(speed=100)
    sandbox.playbook("provision", extra_vars={"nodes": {"training": 1, "own": 0}, "pool": "training"}).succeeded()
    sandbox.advance(7200)
    sandbox.playbook("destroy", extra_vars={"everything": True, "force": True}).succeeded()
    return sandbox


def test_A07_report_says_where_the_money_went(spent: Sandbox, tmp_path: Path) -> None:
    """report.yml in all its forms adds up to the ledger, and writes nothing to any service."""
    before = spent.writes()
    total = add_up(Decimal(line["cost"]) for line in spent.ledger())
    text = spent.playbook("report", documents=None).succeeded()
    assert text.count("changed") == 0 and "useful" in text.out and f"${print_money(total)} until" in text.words
    for form in ("json", "html"):
        path = tmp_path / f"report.{form}"
        spent.playbook("report", extra_vars={"format": form, "path": str(path), "provider_bills": form == "json"}).succeeded()
        assert path.exists()
    written = json.loads((tmp_path / "report.json").read_text())
    assert Decimal(written["total"]) == total and "provider_bills" not in text.words
    (bill,) = written["provider_bills"]["clouds"]
    assert (bill["name"], bill["available"], bill["why"]) == ("lambda", False, "its API has no bill")
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert spent.writes() == before


def test_A02_a_budget_stops_a_launch(spent: Sandbox) -> None:
    """A budget from the environment reaches the plan, and no cloud gets a call that writes."""
    before = spent.writes()
    stopped = spent.playbook(
        "provision",
        extra_vars={"nodes": 1, "pool": "training"},
        env={"TGP_BUDGET": "period=month amount=0.60 time_zone=Europe/Berlin"},
    ).failed()
    assert "limit:budget.all" in stopped.words and "month budget of the cluster" in stopped.words
    assert [one for one in spent.writes()[len(before) :] if one.startswith("lambda")] == []
    state = spent.playbook("status", env={"TGP_BUDGET": "period=month amount=0.60"}).succeeded()
    assert "used up" in state.words
