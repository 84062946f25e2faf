# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance modules and machines of their name that somebody else made: adopted, preferred to ours, and returned for what was asked."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from sandbox.world import Machine

from ..clouds.instance_modules import NAME, run
from ..clouds.stands import LambdaStand, Stand, lambda_offer
from ..clouds.stands_runpod import RunpodStand
from ..clouds.stands_vast import VastStand

BARE: dict[str, dict[str, t.Any]] = {"lambda": {"tags": None}, "runpod": {"env_form": {}}, "vast": {"extra_env": []}}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TGP_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(params=[LambdaStand, RunpodStand, VastStand], ids=lambda kind: kind.service)
def cloud(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    made = request.param()
    yield made
    made.close()


def foreign(stand: Stand, **changes: t.Any) -> Machine:
    """A machine of the name that somebody made in the console."""
    made = stand.cloud().launch(stand.request(name=NAME, **changes))
    machine = stand.world.machines[made]
    machine.details.update(BARE[stand.service])
    assert stand.cloud().instances()[0].marks == {}
    stand.world.clock.advance(300)
    return machine


def test_L1a_a_foreign_machine_is_not_adopted(cloud: Stand) -> None:
    theirs = foreign(cloud)
    done = run(cloud)
    assert done.get("failed"), f"it took the foreign machine {theirs.id} for ours"
    price = print_money(cloud.cloud().instances()[0].price_hour or Decimal(0))
    assert theirs.id in done["msg"] and f"{price} $/h" in done["msg"] and "include_unmarked" in done["msg"]
    assert cloud.billed() == 1 and theirs.ended is None
    assert run(cloud, include_unmarked=True)["instance"]["id"] == theirs.id  # the user takes the responsibility


@pytest.mark.parametrize(
    "cloud",
    [pytest.param(LambdaStand, marks=pytest.mark.control), RunpodStand, VastStand],
    indirect=True,
    ids=["lambda", "runpod", "vast"],
)
def test_L1a_ours_is_not_ended_in_favour_of_an_older_foreign_one(cloud: Stand) -> None:
    theirs = foreign(cloud)
    ours = cloud.world.machines[cloud.cloud().launch(cloud.request(name=NAME))]
    cloud.world.clock.advance(300)
    done = run(cloud)
    assert ours.ended is None and theirs.ended is None, "ours or the foreign machine was terminated"
    assert not done.get("failed") and not done["changed"] and done["instance"]["id"] == ours.id
    assert any(theirs.id in text for text in done["warnings"])


def test_item_09_what_is_returned_is_what_was_launched() -> None:
    """The list lags: the look before the call shows nothing, the one after it an H100 of the same name that another controller made."""
    stand = LambdaStand()
    try:
        stand.world.offers.append(lambda_offer("gpu_8x_h100_sxm5", "us-south-2"))
        request = stand.request(name=NAME, offer_id="gpu_8x_h100_sxm5@us-south-2")
        theirs = stand.cloud().launch(dataclasses.replace(request, marks={"created": "1780000000"}))
        stand.faults.add({"kind": "body", "path": "/instances$", "body": {"data": []}, "times": 1})
        done = run(stand)
        assert not done.get("failed"), done["msg"]
        assert (done["instance"]["instance_type"], done["instance"]["price_hour"]) == ("gpu_1x_a10", "1.29"), (
            "a foreign machine was returned as ours"
        )
        assert stand.world.machines[theirs].ended is None and stand.billed() == 2
        assert any(theirs in text and "31.92 $/h" in text for text in done["warnings"])
    finally:
        stand.close()
