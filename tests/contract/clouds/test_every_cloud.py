# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract of providers/base.py, held by every client against its emulator."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import Restamps, TellsCharges

from sandbox.lagging import set_list_after

from .stands import Stand

GONE = {None, InstanceState.TERMINATED}


def test_a_machine_lives_and_ends(stand: Stand) -> None:
    cloud = stand.cloud()
    request = stand.request()
    made = cloud.launch(request)
    listed = {one.id: one for one in cloud.instances()}
    assert listed[made].name == request.name
    assert listed[made].state in (InstanceState.PENDING, InstanceState.RUNNING)
    stand.wait_for(cloud, made, {InstanceState.RUNNING})
    assert stand.billed() == 1
    cloud.terminate(made)
    stand.wait_for(cloud, made, GONE)
    assert stand.billed() == 0


def test_a_list_that_lags_shows_a_new_machine_late_and_its_id_at_once(stand: Stand) -> None:
    cloud = stand.cloud()
    late = stand.service != "webhook"  # own machines are always listed
    if late:
        set_list_after(stand.world, stand.service, 60.0)
    made = cloud.launch(stand.request())
    assert (made not in {one.id for one in cloud.instances()}) is late and cloud.instance(made) is not None
    stand.world.clock.advance(61)
    assert made in {one.id for one in cloud.instances()}


def test_terminate_may_be_repeated(stand: Stand) -> None:
    cloud = stand.cloud()
    made = cloud.launch(stand.request())
    cloud.terminate(made)
    cloud.terminate(made)
    stand.wait_for(cloud, made, GONE)
    cloud.terminate(made)
    assert stand.billed() == 0


def test_one_launch_is_one_write(stand: Stand) -> None:
    request = stand.request()
    before = len(stand.world.writes)
    stand.cloud().launch(request)
    written = [what for _when, _service, what in stand.world.writes[before:]]
    assert len([what for what in written if what != "POST /v2/firewalls"]) == 1  # that is made once per cluster
    assert len(written) == (2 if stand.service == "vultr" else 1)


def test_L57_charges_are_what_the_world_bills(stand: Stand) -> None:
    """Of a machine that has ended, and of one that runs, over two days and into the next month. Who tells none has no such call."""
    cloud = stand.cloud()
    if cloud.facts.charges_lag is None:
        assert not hasattr(cloud, "charges")
        return
    began, request = stand.world.clock.now(), stand.request()
    made = cloud.launch(request)
    stand.wait_for(cloud, made, {InstanceState.RUNNING})
    stand.world.clock.advance(31 * 86400)
    cloud.terminate(made)
    stand.wait_for(cloud, made, GONE)
    stand.world.clock.advance(cloud.facts.charges_lag)
    charges = t.cast(TellsCharges, cloud).charges(began.replace(hour=0, minute=0, second=0, microsecond=0), stand.world.clock.now())
    mine = [charge for charge in charges if charge.instance_id == made or (not charge.instance_id and request.name in charge.words)]
    machine = stand.world.machines[made]
    slack = sum((charge.rounding for charge in mine), Decimal(0))
    assert len(mine) >= 2 and abs(sum(charge.amount for charge in mine) - machine.cost(stand.world.clock.now())) <= slack < Decimal(
        "0.1"
    )
    assert abs(sum(charge.traffic for charge in mine) - machine.traffic_cost()) <= slack
    assert mine == charges and all(not charge.words or request.name in charge.words for charge in mine)


def test_L57_an_odd_bill_is_never_nothing(stand: Stand) -> None:
    cloud = stand.cloud()
    if cloud.facts.charges_lag is None:
        return
    now = stand.world.clock.now()
    bodies: tuple[t.Any, ...] = ([], {}, {"records": 3, "results": 3, "pending_charges": 3, "total": 0})
    for body in bodies:
        stand.faults.add({"kind": "body", "method": "GET", "path": r".*(charges|billing).*", "body": body, "times": 1})
        with pytest.raises(errors.BadShape):
            t.cast(TellsCharges, cloud).charges(now, now)


def test_offers_name_price_region_model_and_lanes(stand: Stand) -> None:
    found = stand.cloud().offers()
    assert found
    for offer in found:
        assert offer.cloud == stand.service
        assert offer.id and offer.instance_type and offer.lanes and set(offer.lanes) <= set(stand.cloud().facts.lanes)
        assert offer.price_hour is not None or offer.price_estimated
        assert offer.seen is not None


def test_a_wrong_key_is_unauthorized_and_not_printed(stand: Stand) -> None:
    wrong = "secret_wrong_ffffffffffffffffffff"
    cloud = stand.cloud(key=wrong)
    with pytest.raises(errors.Unauthorized) as caught:
        cloud.check()
    assert wrong not in str(caught.value)
    with pytest.raises(errors.LaunchRefused) as refused:
        cloud.launch(stand.request())
    assert refused.value.reason == "auth"
    assert wrong not in f"{refused.value} {refused.value.details}"
    assert stand.billed() == 0


@pytest.mark.parametrize("body", [[], {}, None, "<html>maintenance</html>", {"data": {}}, {"data": None}, {"state": 3}])
def test_an_odd_answer_is_never_nothing(stand: Stand, body: t.Any) -> None:
    """D-16 and O15: a list that is not understood must not look like "no machines"."""
    stand.cloud().launch(stand.request())
    stand.faults.add({"kind": "body", "method": "GET", "path": stand.list_path, "body": body, "times": None})
    cloud = stand.cloud()
    if stand.service != "webhook":
        with pytest.raises(errors.BadShape):
            cloud.instances()
        return
    states = {one.state for one in cloud.instances()}
    assert states == {InstanceState.UNKNOWN}
    assert {one.available for one in cloud.offers()} == {0}


@pytest.mark.parametrize("kind", ["lost_before", "lost_after", "status_after", "truncate"])
def test_L2_a_lost_answer_to_a_create_call_is_unknown(stand: Stand, kind: str) -> None:
    request = stand.request()
    stand.faults.add({"kind": kind, "method": stand.create_method, "path": stand.create_path, "status": 502, "times": None})
    cloud = stand.cloud()
    if kind == "truncate" and stand.service == "webhook":
        cloud.launch(request)  # its 2xx says all there is to say
        return
    with pytest.raises(errors.LaunchUnknown) as caught:
        cloud.launch(request)
    assert request.name in str(caught.value)
    assert stand.billed() == (0 if kind == "lost_before" else 1)


def test_an_unknown_machine_is_none(stand: Stand) -> None:
    assert stand.cloud().instance("0920582c7ff041399e34823a0be62549") is None


def test_check_says_what_it_saw(stand: Stand) -> None:
    assert stand.cloud().check().sentence.startswith(f"{stand.service}: ")


def test_unknown_settings_are_refused_by_name(stand: Stand) -> None:
    """D-06: nothing is accepted and ignored."""
    request = stand.request(settings={"flavour": "large"})
    with pytest.raises(errors.LaunchRefused, match="flavour") as caught:
        stand.cloud().launch(request)
    assert caught.value.reason == "invalid"
    assert stand.billed() == 0


MARKS = {
    "cluster": "0badcafe",
    "generation": "0b6f3c1e-5d0a-4f0e-9a53-3f1d2c4b5a69",
    "pool": "default/training",
    "nonce": "tgp-0badcafe-x-00000",
}


def test_L48_a_machine_that_runs_is_marked_and_unmarked_as_far_as_its_cloud_can(stand: Stand) -> None:
    """Twice the same is the same, it is not restarted, and an id of no machine is an error that changes nothing."""
    cloud = stand.cloud()
    made = cloud.launch(stand.request())
    stand.wait_for(cloud, made, {InstanceState.RUNNING})
    before = cloud.instance(made)
    assert before is not None
    if not cloud.facts.restamps:
        assert stand.service in ("runpod", "webhook") and not hasattr(cloud, "restamp")
        return
    keeper, named, marked = t.cast(Restamps, cloud), "name" in cloud.facts.restamps, "marks" in cloud.facts.restamps
    assert named or marked
    for _twice in range(2):
        keeper.restamp(made, "tgp-0badcafe-x-00000", MARKS)
    seen = cloud.instance(made)
    assert seen is not None and seen.state is InstanceState.RUNNING
    assert seen.name == ("tgp-0badcafe-x-00000" if named else before.name)
    assert dict(seen.marks) == (MARKS if marked else dict(before.marks))
    keeper.restamp(made, "ex-tgp-0badcafe-x-00000", {})
    seen = cloud.instance(made)
    assert seen is not None and dict(seen.marks) == ({} if marked else dict(before.marks))
    assert stand.billed() == 1
    with pytest.raises(errors.TgpError):
        keeper.restamp("0920582c7ff041399e34823a0be62549", "tgp-0badcafe-x-00000", MARKS)
