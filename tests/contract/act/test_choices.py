# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run is told to do is what it does: a choice that its mode would not look at is refused, and an empty one is none."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig


def test_D06_reap_for_one_pool_does_not_give_back_machines_of_another(rig: Rig) -> None:
    rig.provision()
    rig.advance(601)
    rig.reap()
    rig.advance(601)
    assert len(rig.plan("reap", check=True)["destroy"]) == 1, "the machine of pool training would go"
    before = rig.writes()
    with pytest.raises(InvalidInput, match="pools cannot be used in mode reap"):
        rig.plan("reap", pools=["own"])
    assert rig.writes() == before and len(rig.machines()) == 1


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("reap", {"pools": ["training"]}),
        ("reap", {"nodes": 2}),
        ("reap", {"names": ["rack-1"]}),
        ("reap", {"force": True}),
        ("autoscale", {"pools": ["training"]}),
        ("autoscale", {"nodes": 0}),
        ("autoscale", {"all": True}),
        ("provision", {"names": ["rack-1"]}),
        ("provision", {"force": True}),
        ("everything", {"all": True}),
        ("destroy", {"all": True, "nodes": 1}),
    ],
)
def test_D06_a_choice_that_a_mode_would_not_look_at_is_refused(rig: Rig, mode: str, given: dict[str, t.Any]) -> None:
    name = list(given)[-1]
    with pytest.raises(InvalidInput, match=f"{name} cannot be used in mode {mode}"):
        rig.plan(mode, check=True, **given)


@pytest.mark.parametrize("mode", ["provision", "everything", "reap", "autoscale"])
def test_what_was_not_chosen_is_not_refused(rig: Rig, mode: str) -> None:
    empty: dict[str, t.Any] = {"pools": [], "names": [], "all": False, "force": False, "nodes": ""}
    assert rig.plan(mode, check=True, **empty)["outcome"] in ("ok", "shortfall")


def test_S0_41_status_of_one_pool_counts_only_that(rig: Rig) -> None:
    """What is said of money stays that of all pools, and says so."""
    rig.provision()
    whole = rig.run("info")
    assert "  all pools:" not in rig.lines
    shown = rig.run("info", pools=["own"])
    assert shown["machines"] == [] and [row["name"] for row in shown["pools"]] == ["default/own"]
    assert shown["totals"] == {**dict.fromkeys(whole["totals"], 0), "price_hour": "0", "cost": "0.0000", "closed_cost": "0.0000"}
    assert shown["spending"]["hour"] == whole["spending"]["hour"] == "0.69" and "  all pools:" in rig.lines
    training = rig.run("info", pools=["training"])
    assert {key: training["totals"][key] for key in ("instances", "devices", "nodes", "claims", "price_hour")} == {
        key: whole["totals"][key] for key in ("instances", "devices", "nodes", "claims", "price_hour")
    }
    assert [(row["name"], row["ready"]) for row in training["pools"]] == [("default/training", 1)] and rig.warnings == []
    assert [row["name"] for row in whole["pools"]] == ["default/own", "default/training"] and len(training["classes"]) == 1
    rig.destroy()
    closed = {pool: rig.run("info", pools=[pool])["totals"]["closed_cost"] for pool in ("own", "training")}
    assert closed["own"] == "0.0000" < closed["training"] == rig.run("info")["totals"]["closed_cost"]


def test_a_pool_that_nobody_knows_is_told(rig: Rig) -> None:
    rig.run("info", pools=["default/training", "trainig"])
    assert rig.warnings == ["There is no pool trainig among the documents and machines."]


@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "12,50"])
def test_a_limit_that_is_no_amount_is_refused_in_words(rig: Rig, amount: str) -> None:
    with pytest.raises(InvalidInput, match=f"max_hourly_total '{amount}' is not an amount"):
        rig.plan("provision", check=True, max_hourly_total=amount)


@pytest.mark.parametrize("named", [{"pools": ["own"]}, {"names": ["rack-1"]}])
def test_everything_and_something_contradict_each_other(rig: Rig, named: dict[str, t.Any]) -> None:
    """Who asks for everything of a pool means that pool."""
    rig.provision()
    with pytest.raises(InvalidInput, match="all means every machine of this cluster"):
        rig.plan("destroy", all=True, **named)
    assert len(rig.machines()) == 1 and rig.claim()["deletion"] is None
