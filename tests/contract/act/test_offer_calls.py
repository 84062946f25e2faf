# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines cost is asked only by runs whose decision depends on it: a loop that finds all as it should be asks no cloud for offers.
What was read less than five minutes ago is remembered, and serves as long as nothing is launched or ended by it."""

from __future__ import annotations

import typing as t

import httpx
import pytest

from sandbox.market import set_price

from .rig import Rig
from .test_autoscale import ask

OFFERS = "/instance-types"  # of Lambda's API


@pytest.fixture
def asked(rig: Rig) -> list[str]:
    """The questions for offers, as they come."""
    found: list[str] = []

    def watch(request: httpx.Request) -> None:
        if request.url.path.endswith(OFFERS):
            found.append(str(request.url))

    rig.watcher = watch
    return found


def look(rig: Rig, mode: str, **params: t.Any) -> dict[str, t.Any]:
    plan = rig.plan(mode, **params)
    rig.unlock(plan["run_id"])
    return plan


def test_a_run_that_rents_asks_once_and_one_with_nothing_to_rent_never(rig: Rig, asked: list[str]) -> None:
    rig.provision()
    assert len(asked) == 1
    asked.clear()
    again = look(rig, "provision", pools=["training"], nodes=1)
    assert again["launch"] == [] and again["outcome"] == "ok"
    for mode in ("autoscale", "reap", "everything"):
        assert look(rig, mode)["launch"] == []
    assert asked == []


def test_a_waiting_pod_is_a_reason_to_ask(rig: Rig, asked: list[str]) -> None:
    assert look(rig, "autoscale")["launch"] == [] and asked == []
    ask(rig, "job")
    assert look(rig, "autoscale", check=True)["launch"] and len(asked) == 1


def test_a_pod_that_has_its_machine_on_the_way_is_none(rig: Rig, asked: list[str]) -> None:
    ask(rig, "job")
    plan = rig.plan("autoscale")
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    asked.clear()
    assert look(rig, "autoscale")["launch"] == [] and asked == []


def test_a_saved_plan_asks_again_only_for_what_it_rents(rig: Rig, asked: list[str]) -> None:
    file = str(rig.folder / "plan.json")
    look(rig, "everything", save_to=file)
    rig.unlock(rig.run("apply", file=file)["run_id"])
    assert asked == []
    look(rig, "everything", save_to=file, pools=["training"], nodes=1)
    assert len(asked) == 1
    applied = rig.run("apply", file=file)
    rig.unlock(applied["run_id"])
    assert applied["launch"] and len(asked) == 2


def test_offers_that_nobody_needs_may_fail(rig: Rig) -> None:
    rig.provision()
    rig.faults.add({"service": "lambda", "path": OFFERS, "kind": "status", "status": 503, "times": None})
    again = look(rig, "provision", pools=["training"], nodes=1)
    assert again["outcome"] == "ok" and not [one for one in rig.warnings if "offers" in one]
    more = look(rig, "provision", pools=["training"], nodes=2)
    assert more["shortfall"] and any("The offers of lambda could not be read" in one for one in rig.warnings)


# ---- remembered


def test_a_pod_for_which_nothing_fits_costs_one_question_in_five_minutes(rig: Rig, asked: list[str]) -> None:
    rig.training["maxHourlyPrice"] = "0.01"
    rig.documents.remove(rig.document("GPUNodePool", "own"))
    ask(rig, "job")
    for _ in range(4):
        assert look(rig, "autoscale")["launch"] == []
    assert len(asked) == 1
    rig.advance(301)
    assert look(rig, "autoscale")["launch"] == [] and len(asked) == 2


def test_a_run_that_rents_asks_again_although_it_remembers(rig: Rig, asked: list[str]) -> None:
    seen = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert seen["launch"] and len(asked) == 1
    look(rig, "everything", save_to=str(rig.folder / "plan.json"), pools=["training"], nodes=1)  # remembers; a rehearsal does not
    asked.clear()
    set_price(rig.world, {"cloud": "lambda", "type": "gpu_1x_rtx6000", "price": "9.00"})
    remembered = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert [one["price_hour"] for one in remembered["plan"]] == [one["price_hour"] for one in seen["plan"]] and asked == []
    rig.rent()
    assert len(asked) == 1 and rig.machine().offer.type == "gpu_1x_a6000"


def test_who_waits_for_machines_is_not_told_of_a_shortage_that_is_over(rig: Rig, asked: list[str]) -> None:
    kinds = ("gpu_1x_rtx6000", "gpu_1x_a6000", "gpu_1x_a10")
    for kind in kinds:
        set_price(rig.world, {"cloud": "lambda", "type": kind, "price": "9.00"})
    assert look(rig, "provision", pools=["training"], nodes=1)["shortfall"] and len(asked) == 1
    set_price(rig.world, {"cloud": "lambda", "type": kinds[1], "price": "0.70"})
    asked.clear()
    rig.rent()
    assert len(asked) == 1 and rig.machine().offer.type == kinds[1]


def test_without_a_cache_every_run_that_needs_offers_asks(rig: Rig, asked: list[str]) -> None:
    for number in (1, 2):
        rig.plan("provision", pools=["training"], nodes=1, check=True, offer_cache="none")
        assert len(asked) == number
