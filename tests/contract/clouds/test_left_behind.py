# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failed call of an instance module names every machine that it leaves behind: id, price, that it is billed, and what to do."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState

from .instance_modules import NAME, living, run
from .stands import LambdaStand, Stand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand

ACCEPTED: dict[str, tuple[str, str, t.Any]] = {  # a destroy call that is accepted and does nothing
    "lambda": ("POST", "/terminate$", {"data": {"terminated_instances": []}}),
    "paperspace": ("DELETE", "/machines/", {"data": {}}),
    "runpod": ("DELETE", "/pods/", {}),
    "vast": ("DELETE", "/instances/", {"success": True}),
}
DEAR = Decimal("9.99")


@pytest.fixture(params=[LambdaStand, PaperspaceStand, RunpodStand, VastStand], ids=lambda kind: kind.service)
def cloud(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    made = request.param()
    yield made
    made.close()


def jump(stand: Stand) -> None:
    """The machine costs more than its offer said."""
    app = stand.app

    def dearer(environ: t.Any, start: t.Any) -> t.Any:
        if environ["REQUEST_METHOD"] == stand.create_method and stand.create_path.strip("^$") in environ["PATH_INFO"]:
            for one in stand.world.offers:
                one.details.setdefault("shown_price", one.price_hour)
                one.price_hour = DEAR
        return app(environ, start)

    stand.app = dearer  # type: ignore[assignment]


def no_end(stand: Stand, how: str) -> None:
    method, path, body = ACCEPTED[stand.service]
    if how == "fails":
        stand.faults.add({"kind": "status", "method": method, "path": path, "status": 500, "times": None})
    else:
        stand.faults.add({"kind": "body", "method": method, "path": path, "body": body, "times": None})


def names_it(done: dict[str, t.Any], stand: Stand, price: str = "") -> None:
    left = living(stand)
    assert done.get("failed") and left, done
    for one in left:
        assert one in done["msg"], done["msg"]
    assert "billed" in done["msg"] and "state: absent" in done["msg"] and price in done["msg"], done["msg"]
    assert sorted(one["id"] for one in done["instances"]) == sorted(left)


@pytest.mark.parametrize("how", ["fails", "does nothing"])
def test_L13_over_the_cap_and_not_terminated(cloud: Stand, how: str) -> None:
    jump(cloud)
    no_end(cloud, how)
    done = run(cloud, max_price_hour="2")
    names_it(done, cloud, "10.0044 $/h" if cloud.service == "vast" else "9.99")
    assert "limit is 2.00 $/h" in done["msg"] and "destroyed again" not in done["msg"]


@pytest.mark.parametrize("how", ["fails", "does nothing"])
def test_what_a_low_bid_leaves_is_named_and_no_further_bid_is_made(how: str) -> None:
    stand = VastStand()
    try:
        app, searched = stand.app, list[int]()

        def rise(environ: t.Any, start: t.Any) -> t.Any:
            if environ["PATH_INFO"].startswith("/api/v0/asks/") and not searched:
                searched.append(1)
                stand.world.offers[0].details["min_bid"] = Decimal("0.34")
            return app(environ, start)

        stand.app = rise  # type: ignore[assignment]
        no_end(stand, how)
        done = run(stand, spot=True, max_price_hour="0.60")
        assert len(stand.world.machines) == 1, "it bid for the next offer"
        names_it(done, stand, "$/h")
    finally:
        stand.close()


def test_every_machine_of_the_name_is_ended_although_one_cannot_be() -> None:
    stand = LambdaStand()
    try:
        cloud = stand.cloud()
        ids = [cloud.launch(stand.request(name=NAME)) for _number in range(3)]
        stand.faults.add({"kind": "status", "method": "POST", "path": "/terminate$", "status": 400, "times": 1})
        done = run(stand, state="absent")
        assert len(living(stand)) == 1 and living(stand)[0] in ids, "it gave up at the first"
        names_it(done, stand, "1.29")
    finally:
        stand.close()


@pytest.mark.parametrize("wait", [True, False])
def test_an_accepted_end_without_effect_is_no_success(cloud: Stand, wait: bool) -> None:
    made = run(cloud)["instance"]["id"]
    no_end(cloud, "does nothing")
    done = run(cloud, state="absent", wait=wait, wait_timeout=60)
    names_it(done, cloud, "$/h")
    assert living(cloud) == [made]
    cloud.faults.clear()
    gone = run(cloud, state="absent", wait=wait)
    assert gone["changed"] and gone["instances"] == [] and living(cloud) == []


def test_a_late_machine_is_named_with_its_price(cloud: Stand) -> None:
    for one in cloud.world.offers:
        one.boot_seconds = 100_000.0
    done = run(cloud, wait=True, wait_timeout=60)
    assert done["error"]["kind"] == "timeout"
    names_it(done, cloud, "$/h")


def test_a_cloud_that_fails_while_its_machine_is_awaited(cloud: Stand) -> None:
    """The answer to the create call gives the id; from then on every look ends with 401."""
    for one in cloud.world.offers:
        one.boot_seconds = 100_000.0
    made = run(cloud)["instance"]["id"]
    item = {"lambda": "/instances/", "paperspace": "/machines/", "runpod": "/pods/", "vast": "/api/v0/instances/"}[cloud.service]
    cloud.faults.add({"kind": "status", "method": "GET", "path": f"{item}{made}", "status": 401, "times": None})
    names_it(run(cloud, wait=True), cloud, "$/h")


def test_wait_false_is_no_success_for_a_dead_machine_of_lambda() -> None:
    stand = LambdaStand()
    try:
        made = run(stand)["instance"]["id"]
        stand.world.machines[made].state = "preempted"
        done = run(stand)
        names_it(done, stand, "1.29")
        assert "preempted" in done["msg"]
    finally:
        stand.close()


@pytest.mark.parametrize("wait", [True, False])
def test_paperspace_out_of_capacity_is_named_whether_awaited_or_not(wait: bool) -> None:
    stand = PaperspaceStand()
    try:
        stand.account.switches.availability = False
        wanted = {"machine_type": "A5000", "region": "ca1"}
        run(stand, **wanted)
        stand.world.clock.advance(600)
        done = run(stand, wait=wait, **wanted)
        names_it(done, stand, "$/h")
        assert "insufficient capacity" in done["msg"]
    finally:
        stand.close()


def test_wait_false_looks_at_a_stopped_machine_itself() -> None:
    """Its list does not tell why a machine whose name is not one of ours is off; the machine's events do."""
    stand = PaperspaceStand()
    try:
        stand.account.switches.availability = False
        wanted = {"machine_type": "A5000", "region": "ca1", "name": "workstation"}
        run(stand, **wanted)
        stand.world.clock.advance(600)
        names_it(run(stand, **wanted), stand, "$/h")
    finally:
        stand.close()


def test_wait_false_warns_of_a_machine_that_somebody_stopped() -> None:
    stand = PaperspaceStand()
    try:
        made = run(stand, wait=True)["instance"]["id"]
        cloud = stand.cloud()
        cloud._stop(f"/machines/{made}")
        stand.wait_for(cloud, made, {InstanceState.STOPPED})
        done = run(stand)
        assert not done.get("failed") and done["instance"]["state"] == "stopped"
        assert any(made in text and "is stopped" in text for text in done["warnings"])
    finally:
        stand.close()
