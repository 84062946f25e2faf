# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 2: modules for single machines."""

from __future__ import annotations

import typing as t

import httpx
import yaml

from .desk import Desk, Done
from .row import Row, ended

BEHIND = "tests/contract/clouds/test_left_behind.py"
MODULES = "tests/contract/clouds/test_instance_modules.py"
FIRST = 20771845  # the number of the first contract of a Vast.ai that has the seed 0
IMAGE = "docker.io/library/debian:12"
POD: dict[str, t.Any] = {"gpu_type": "RTX 4090", "image": IMAGE, "command": "exec sleep infinity"}


def market(**clouds: t.Any) -> str:
    """A scenario."""
    return yaml.safe_dump(clouds)


MARKET = market(
    **{
        "lambda": {
            "offers": [
                {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 99},
                {"type": "gpu_1x_a6000", "region": "us-east-1", "stock": 99, "price": "1.29", "bills": "9.99"},
            ],
            "preempted_seconds": 1_000_000,
        }
    },
    paperspace={
        "offers": [{"type": "A4000", "region": "ny2", "stock": 9}, {"type": "A5000", "region": "ca1", "stock": 0}],
        "availability": False,
    },
    runpod={
        "offers": [
            {"type": "NVIDIA GeForce RTX 4090", "region": "EU-RO-1", "tier": "SECURE", "stock": 8, "price": "0.59"},
            {"type": "NVIDIA A40", "region": "EU-RO-1", "tier": "SECURE", "stock": 8, "price": "0.40", "boot": 600},
        ]
    },
    vast={"offers": [{"gpu": "RTX 4090", "price": "0.35", "vm": True, "stock": 9}]},
)
BIDS = market(vast={"offers": [{"gpu": "RTX 4090", "price": "0.35", "min_bid": "0.19", "vm": True}]})


def _fault(desk: Desk, service: str, method: str, path: str, **more: t.Any) -> None:
    desk.sandbox.faults({"service": service, "method": method, "path": path, "kind": "status", "times": None, **more})


def _lambda(desk: Desk, **params: t.Any) -> Done:
    return desk.module("lambda_instance", **{"name": desk.name, "instance_type": "gpu_1x_a10", "wait": False, **params})


def _limited(desk: Desk) -> Done:
    body = {"error": {"code": "global/too-many-requests", "message": "slow down"}}
    _fault(desk, "lambda", "POST", "/launch$", status=429, body=body, times=1)
    return _lambda(desk)


def _too_dear_and_not_ended(desk: Desk) -> Done:
    _fault(desk, "lambda", "POST", "/terminate$", status=500)
    return _lambda(desk, instance_type="gpu_1x_a6000", max_price_hour="2")


def _too_dear_and_end_without_effect(desk: Desk) -> Done:
    _fault(desk, "lambda", "POST", "/terminate$", kind="body", body={"data": {"terminated_instances": []}})
    return _lambda(desk, instance_type="gpu_1x_a6000", max_price_hour="2")


def _low_bid(desk: Desk) -> Done:
    body = {"success": False, "error": "bid_too_low", "msg": "Bid 0.209 is below the minimum of 0.34.", "new_contract": FIRST}
    _fault(desk, "vast", "PUT", "/asks/", kind="status_after", status=400, body=body)
    _fault(desk, "vast", "DELETE", "/instances/", status=500)
    return desk.module("vast_instance", name=desk.name, gpu_type="RTX 4090", spot=True, max_price_hour="0.60", wait=False)


def _absent_and_still_there(desk: Desk) -> Done:
    _lambda(desk)
    _fault(desk, "lambda", "POST", "/terminate$", kind="body", body={"data": {"terminated_instances": []}})
    return _lambda(desk, state="absent")


def _absent_not_ended(desk: Desk) -> Done:
    _lambda(desk)
    _fault(desk, "lambda", "POST", "/terminate$", status=500)
    return _lambda(desk, state="absent")


def _sold_out(*, wait: bool) -> t.Callable[[Desk], Done]:
    def play(desk: Desk) -> Done:
        wanted = {"name": desk.name, "machine_type": "A5000", "region": "ca1"}
        desk.module("paperspace_machine", **wanted, wait=False)
        desk.sandbox.advance(600)
        return desk.module("paperspace_machine", **wanted, wait=wait)

    return play


def _preempted(desk: Desk) -> Done:
    _lambda(desk)
    desk.sandbox.control.post(f"/machines/{desk.name}/vanish").raise_for_status()
    return _lambda(desk)


def _over_its_cap(desk: Desk) -> Done:
    _lambda(desk)
    return _lambda(desk, max_price_hour="0.01")


def _too_small(desk: Desk) -> Done:
    wanted = {"name": desk.name, "gpu_type": "RTX 4090", "wait": False}
    desk.module("vast_instance", **wanted, disk_gib=64)
    desk.sandbox.advance(90)  # Vast lists it late
    return desk.module("vast_instance", **wanted, disk_gib=100)


def _of_others(desk: Desk) -> Done:
    desk.sandbox.control.post("/strangers", json={"cloud": "paperspace", "name": "prod-db"}).raise_for_status()
    return desk.module("paperspace_machine", name="prod-db", state="absent")


def _pulling(desk: Desk) -> Done:
    """RunPod says RUNNING while the image is pulled."""
    return desk.module("runpod_pod", **{**POD, "gpu_type": "A40"}, name=desk.name, wait_timeout=120)


def _with_path(desk: Desk) -> Done:
    return _lambda(desk, lambda_api_url=f"{desk.sandbox.variables['LAMBDA_API_URL']}/api/v1")


def _disk_of(cloud: str) -> t.Callable[[Desk], Done]:
    """What the cloud was asked for, in its own unit."""

    def play(desk: Desk) -> Done:
        known = desk.sandbox.variables
        if cloud == "vast":
            done = desk.module("vast_instance", name=desk.name, gpu_type="RTX 4090", disk_gib=100, wait=False)
            desk.sandbox.advance(90)
            url, key, field = f"{known['VAST_URL']}/api/v1/instances/", known["VAST_API_KEY"], "disk_space"
        else:
            done = desk.module("runpod_pod", **POD, name=desk.name, disk_gib=100, wait=False)
            url, key, field = f"{known['RUNPOD_API_URL']}/v2/pods", known["RUNPOD_API_KEY"], "disk"
        answer = httpx.get(url, headers={"authorization": f"Bearer {key}"}).raise_for_status().json()
        return Done(done.rc, f"{done.text}\n{cloud} holds GB: {found(answer, desk.name, field)}")

    return play


def found(value: t.Any, name: str, field: str) -> t.Any:
    """This field of the first object of this name, at any depth."""
    if isinstance(value, dict):
        if field in value and name in value.values():
            return value[field]
        value = list(value.values())
    if isinstance(value, list):
        return next((one for one in (found(inner, name, field) for inner in value) if one is not None), None)
    return None


ITEM_2 = [
    Row(
        2, "a 429 on create is retried", _limited,
        ended(2, "lambda"), ended(0, "localhost | CHANGED"),
        f"{MODULES}::test_L14_a_rate_limit_on_create_is_waited_for", MARKET,
    ),
    Row(
        2, "over the cap, and DELETE fails: id, price, that it bills, what to do", _too_dear_and_not_ended,
        ended(2, "was answered 500", never=("billed",)), ended(2, "9.99", "billed", "state: absent"),
        f"{BEHIND}::test_L13_over_the_cap_and_not_terminated", MARKET,
    ),
    Row(
        2, "over the cap, and DELETE has no effect", _too_dear_and_end_without_effect,
        ended(2, "destroyed again"), ended(2, "9.99", "billed", "state: absent", never=("destroyed again",)),
        f"{BEHIND}::test_L13_over_the_cap_and_not_terminated", MARKET,
    ),
    Row(
        2, "what a low bid leaves is named", _low_bid,
        ended(2, "DELETE", never=("billed",)), ended(2, "billed", "state: absent"),
        f"{BEHIND}::test_what_a_low_bid_leaves_is_named_and_no_further_bid_is_made", BIDS, alone=True,
    ),
    Row(
        2, "absent, and DELETE fails", _absent_not_ended,
        ended(2, "was answered 500", never=("billed",)), ended(2, "billed", "1.29", "state: absent"),
        f"{BEHIND}::test_every_machine_of_the_name_is_ended_although_one_cannot_be", MARKET,
    ),
    Row(
        2, "absent with wait: false, and DELETE has no effect", _absent_and_still_there,
        ended(0, "localhost | CHANGED"), ended(2, "billed", "state: absent"),
        f"{BEHIND}::test_an_accepted_end_without_effect_is_no_success", MARKET,
    ),
    Row(
        2, "Paperspace out of capacity: the machine that stays is named", _sold_out(wait=True),
        ended(2, "capacity", never=("billed",)), ended(2, "billed", "capacity", "state: absent"),
        f"{BEHIND}::test_paperspace_out_of_capacity_is_named_whether_awaited_or_not", MARKET,
    ),
    Row(
        2, "`wait: false` is no success for that machine", _sold_out(wait=False),
        ended(0, "localhost | SUCCESS"), ended(2, "billed", "capacity", "state: absent"),
        f"{BEHIND}::test_paperspace_out_of_capacity_is_named_whether_awaited_or_not", MARKET,
    ),
    Row(
        2, "`wait: false` is no success for a preempted machine", _preempted,
        ended(0, "localhost | SUCCESS"), ended(2, "preempted", "billed"),
        f"{BEHIND}::test_wait_false_is_no_success_for_a_dead_machine_of_lambda", MARKET,
    ),
    Row(
        2, "`state: present` compares the price limit", _over_its_cap,
        ended(0, "localhost | SUCCESS"), ended(2, "limit is 0.01 $/h"),
        f"{MODULES}::test_an_existing_machine_over_the_price_limit_is_not_taken", MARKET,
    ),
    Row(
        2, "`state: present` compares the disk", _too_small,
        ended(0, "localhost | SUCCESS"), ended(2, "has a disk of 64 GiB, and 100 GiB are wanted"),
        f"{MODULES}::test_an_existing_machine_with_too_small_a_disk_is_not_taken", MARKET,
    ),
    Row(
        2, "`absent` of Paperspace spares what others made", _of_others,
        ended(0, "localhost | CHANGED"), ended(2, "include_unmarked"),
        f"{MODULES}::test_L1a_absent_spares_a_machine_of_paperspace_that_others_made", MARKET,
    ),
    Row(
        2, "runpod_pod waits until the container runs", _pulling,
        ended(0, "localhost | CHANGED"), ended(2, "120 s"),
        "tests/contract/reproductions/test_15_runpod_boot.py::test_item_15_the_module_waits_until_the_container_runs", MARKET,
    ),
    Row(
        2, "a base URL with a path is refused", _with_path,
        ended(2, "404"), ended(2, "lambda_api_url", "path", never=("404",)),
        f"{MODULES}::test_an_address_with_a_path_is_refused", MARKET,
    ),
    Row(
        2, "disk_gib is converted to GB and rounded up (Vast.ai)", _disk_of("vast"),
        ended(0, "vast holds GB: 100"), ended(0, "vast holds GB: 108"),
        f"{MODULES}::test_disks_are_asked_for_in_gib_and_sold_in_gb", MARKET,
    ),
    Row(
        2, "disk_gib is converted to GB and rounded up (RunPod)", _disk_of("runpod"),
        ended(0, "runpod holds GB: 100"), ended(0, "runpod holds GB: 108"),
        f"{MODULES}::test_disks_are_asked_for_in_gib_and_sold_in_gb", MARKET,
    ),
]  # fmt: skip
