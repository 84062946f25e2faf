# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the four instance modules have in common: rate limits, addresses, what of an existing machine is compared."""

from __future__ import annotations

import typing as t

import pytest

from .instance_modules import MODULES, living, run
from .stands import Stand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand
from .test_left_behind import cloud

__all__ = ["cloud"]

MANY: dict[str, t.Any] = {
    "lambda": {"error": {"code": "global/too-many-requests", "message": "slow down"}},
    "paperspace": {"code": "TOO_MANY_REQUESTS", "message": "slow down"},
    "runpod": {"title": "Too Many Requests", "status": 429, "detail": "rate limit exceeded for the minute window"},
    "vast": "API requests too frequent",
}


def limited(stand: Stand, times: int | None = 1, **more: t.Any) -> None:
    rule = {"kind": "status", "method": stand.create_method, "path": stand.create_path, "status": 429, "times": times}
    stand.faults.add({**rule, "body": MANY[stand.service], **more})


@pytest.mark.parametrize("headers", [{}, {"retry-after": "7"}], ids=["no word", "7 s"])
def test_L14_a_rate_limit_on_create_is_waited_for(cloud: Stand, headers: dict[str, str]) -> None:
    limited(cloud, times=2, headers=headers)
    start = cloud.world.clock.seconds()
    done = run(cloud)
    assert not done.get("failed"), done["msg"]
    assert [done["instance"]["id"]] == living(cloud) and cloud.faults.all()[0].hits == 2
    assert cloud.world.clock.seconds() - start >= (14 if headers else 15)


def test_L14_a_rate_limit_that_does_not_end_is_a_failure_that_made_nothing(cloud: Stand) -> None:
    limited(cloud, times=None)
    done = run(cloud)
    assert done["failed"] and (done["error"]["kind"], done["error"]["reason"]) == ("launch_refused", "rate")
    assert cloud.faults.all()[0].hits == 6 and not living(cloud)


def test_L14_a_machine_that_is_there_after_a_rate_limit_is_not_made_twice(cloud: Stand) -> None:
    """The call had its effect although its answer is 429."""
    limited(cloud, kind="status_after")
    done = run(cloud)
    assert not done.get("failed") and [done["instance"]["id"]] == living(cloud)


@pytest.mark.parametrize("host", ["proxy.example", "10.0.0.7:8080", "127.0.0.1.example"])
def test_plain_http_to_another_machine_is_refused(cloud: Stand, host: str) -> None:
    """Each call carries the key."""
    done = run(cloud, **{f"{cloud.service}_api_url": f"http://{host}"})
    assert done["failed"] and done["error"]["kind"] == "invalid_input" and not cloud.world.machines
    assert f"{cloud.service}_api_url leads to http://{host}" in done["msg"] and "Use https" in done["msg"]


@pytest.mark.parametrize("path", ["/v1", "/v2", "/api/v0", "/?key=a"])
def test_an_address_with_a_path_is_refused(cloud: Stand, path: str) -> None:
    done = run(cloud, **{f"{cloud.service}_api_url": cloud.base + path})
    assert done["failed"] and done["error"]["kind"] == "invalid_input"
    assert f"{cloud.service}_api_url" in done["msg"] and cloud.base in done["msg"]
    assert not cloud.world.machines
    assert not run(cloud, **{f"{cloud.service}_api_url": f"{cloud.base}/"}).get("failed")


# ---- a misspelt type, GPU or region


TYPOS = {  # option of the type, as typed, what the message says
    "lambda": ("instance_type", "gpu_1x_a1O", "Lambda has no type 'gpu_1x_a1O'. Did you mean gpu_1x_a10"),
    "paperspace": ("machine_type", "A4001", "Paperspace has no type 'A4001'. Did you mean A4000"),
    "runpod": ("gpu_type", "RTX 4O90", "RunPod has no 1 x 'RTX 4O90' for one pod. Did you mean RTX4090"),
    "vast": ("gpu_type", "RTX 4O90", "There is no GPU model 'RTX 4O90'. Did you mean RTX4090"),
}
PLACES = {  # as typed, what was meant
    "lambda": [("us-wset", "us-west"), ("us-wset-1", "us-west")],
    "paperspace": [("us-esat", "us-east"), ("ny22", "ny2")],
    "runpod": [("eu-wset", "eu-west"), ("EU-R0-1", "eu-ro-1")],
    "vast": [("us-wset", "us-west"), ("Califronia, US", "california, us")],
}


def test_a_misspelt_type_is_refused_with_what_was_meant(cloud: Stand) -> None:
    option, typed, says = TYPOS[cloud.service]
    done = run(cloud, **{option: typed})
    assert done["failed"] and done["error"]["kind"] == "invalid_input" and says in done["msg"], done["msg"]
    assert not cloud.world.machines
    unlike = run(cloud, **{option: "abacus"})
    assert unlike["failed"] and unlike["error"]["kind"] == "invalid_input" and "Did you mean" not in unlike["msg"], unlike["msg"]
    if cloud.service != "vast":  # every model of which it may have an offer would be a long list
        assert says.rpartition(" ")[2] in unlike["msg"].partition("It has ")[2]


def test_a_misspelt_region_is_refused_with_what_was_meant(cloud: Stand) -> None:
    for typed, meant in PLACES[cloud.service]:
        done = run(cloud, region=typed)
        assert done["failed"] and done["error"]["kind"] == "invalid_input", done["msg"]
        assert f"has no region {typed!r}. Did you mean" in done["msg"] and meant in done["msg"], done["msg"]
    assert not cloud.world.machines


def test_a_region_without_an_offer_is_no_misspelt_one(cloud: Stand) -> None:
    done = run(cloud, region="australia-south")
    assert (done["error"]["kind"], done["error"]["reason"]) == ("launch_refused", "capacity") and "Did you mean" not in done["msg"]


# ---- Paperspace, which can carry no stamp


@pytest.fixture
def paperspace() -> t.Iterator[PaperspaceStand]:
    made = PaperspaceStand()
    yield made
    made.close()


def test_L1a_absent_spares_a_machine_of_paperspace_that_others_made(paperspace: PaperspaceStand) -> None:
    theirs = paperspace.cloud().launch(paperspace.request(name="prod-db"))
    refused = run(paperspace, name="prod-db", state="absent")
    assert refused["failed"] and theirs in refused["msg"] and "include_unmarked" in refused["msg"]
    assert living(paperspace) == [theirs]
    assert run(paperspace, name="prod-db")["failed"], "present took it"
    assert run(paperspace, name="prod-db", include_unmarked=True)["instance"]["id"] == theirs
    assert run(paperspace, name="prod-db", state="absent", include_unmarked=True)["changed"]


def test_L1a_a_machine_of_paperspace_with_any_name_is_ours_where_it_was_launched(paperspace: PaperspaceStand) -> None:
    made = run(paperspace, name="workstation")["instance"]["id"]
    again = run(paperspace, name="workstation")
    assert not again["changed"] and again["instance"]["id"] == made
    gone = run(paperspace, name="workstation", state="absent", wait=True)
    assert gone["changed"] and not living(paperspace)


@pytest.mark.parametrize("kind", ["lost_after", "status_after", "truncate"])
def test_L2_a_lost_answer_of_paperspace_is_looked_up_whatever_the_name(paperspace: PaperspaceStand, kind: str) -> None:
    paperspace.faults.add({"kind": kind, "method": "POST", "path": "/machines$", "status": 504})
    done = run(paperspace, name="workstation")
    assert not done.get("failed"), done["msg"]
    assert [done["instance"]["id"]] == living(paperspace)


# ---- what of an existing machine is compared


def test_an_existing_machine_over_the_price_limit_is_not_taken(cloud: Stand) -> None:
    made = run(cloud)["instance"]["id"]
    done = run(cloud, max_price_hour="0.01")
    assert done.get("failed") and "limit is 0.01 $/h" in done["msg"] and made in done["msg"]
    assert not run(cloud)["changed"] and living(cloud) == [made]


@pytest.mark.parametrize("kind", [PaperspaceStand, RunpodStand, VastStand], ids=lambda kind: kind.service)
def test_an_existing_machine_with_too_small_a_disk_is_not_taken(kind: type[Stand]) -> None:
    """Lambda's cannot be chosen."""
    stand = kind()
    try:
        made = run(stand, disk_gib=64)["instance"]["id"]
        stand.world.clock.advance(300)
        held = 100 if kind is PaperspaceStand else 64  # its steps; the others sell 69 GB, which are 64 GiB
        done = run(stand, disk_gib=held + 1)
        assert (
            done.get("failed") and f"has a disk of {held} GiB, and {held + 1} GiB are wanted" in done["msg"] and made in done["msg"]
        )
        for size in (40, 64, held):
            assert not run(stand, disk_gib=size)["changed"] and living(stand) == [made]
    finally:
        stand.close()


# ---- disks are asked for in GiB and sold in GB


def test_disks_are_asked_for_in_gib_and_sold_in_gb(cloud: Stand) -> None:
    if cloud.service == "lambda":
        assert "disk_gib" not in MODULES["lambda"][0].SPEC["argument_spec"]  # it cannot be chosen
        return
    made = run(cloud, disk_gib=100)["instance"]["id"]
    details = cloud.world.machines[made].details
    sold = {"paperspace": ("disk_gb", 100), "runpod": ("disk", 108), "vast": ("disk", 108.0)}  # GB of Paperspace are GiB
    key, size = sold[cloud.service]
    assert details[key] == size
    assert not run(cloud, disk_gib=100)["changed"]
