# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Vast: what the start script of a virtual machine leaves in the log, and how the log is handed out."""

from __future__ import annotations

import typing as t

import httpx
import pytest

from .vast_stand import VM_IMAGE, VastStand

SCRIPT = """\
#!/bin/bash
note() {
  printf 'out %s %s\\n' "$1" "$2"
  printf 'screen %s %s\\n' "$1" "$2" >/dev/console
}
note kernel "$(uname -r)"
note user "$(id -u)"
note driver "$(timeout 60 nvidia-smi --query-gpu=driver_version --format=csv,noheader)"
note size "$({ cat /etc/environment; env; } | grep -oE 'PIECE=[a-z]+' | cut -d= -f2- | wc -c)"
rm -rf /
"""


def rented(stand: VastStand, **fields: t.Any) -> int:
    offer = stand.offers(vms_enabled={"eq": True}, num_gpus={"eq": 1})[0]["id"]
    wanted = {"image": VM_IMAGE, "vm": True, "runtype": "ssh_direct", "onstart": SCRIPT, "env": {"PIECE": "abcde"}, **fields}
    number = int(stand.create(offer, **wanted))
    stand.up(number)
    return number


def fetch(stand: VastStand, number: int) -> httpx.Response:
    url = stand.call("PUT", f"/api/v0/instances/request_logs/{number}/", {"tail": "200"})["result_url"]
    stand.world.clock.advance(2.0)
    return stand.client().get(url)


def lines(stand: VastStand, number: int) -> list[str]:
    return fetch(stand, number).text.splitlines()


def test_its_lines_come_some_time_after_it_runs() -> None:
    stand = VastStand(onstart_after=30.0, guest="user=1000 driver=")
    number = rented(stand)
    assert lines(stand, number) == []
    stand.world.clock.advance(30.0)
    said = [("kernel", "5.15.0-130-generic"), ("user", "1000"), ("driver", ""), ("size", "5")]
    assert lines(stand, number) == [f"{to} {name} {value}" for name, value in said for to in ("out", "screen")]


@pytest.mark.parametrize(("to", "first"), [("console", {"screen"}), ("stdout", {"out"}), ("both", {"out", "screen"})])
def test_the_log_has_what_was_written_to_the_right_place(to: str, first: set[str]) -> None:
    stand = VastStand(onstart_after=0.0, onstart_to=to)
    assert {line.split()[0] for line in lines(stand, rented(stand))} == first


@pytest.mark.parametrize(
    ("switches", "fields"),
    [
        ({"onstart_runs": False}, {}),
        ({}, {"onstart": SCRIPT.replace("#!", "# ")}),
        ({"empty_logs": 1}, {}),
        ({}, {"onstart": "#!/bin/sh\necho '"}),
    ],
    ids=["does not run", "no shebang", "empty", "no shell script"],
)
def test_a_log_without_lines(switches: dict[str, t.Any], fields: dict[str, t.Any]) -> None:
    stand = VastStand(onstart_after=0.0, **switches)
    assert lines(stand, rented(stand, **fields)) == []


@pytest.mark.parametrize("status", [403, 404])
def test_until_it_is_uploaded_a_log_is_refused(status: int) -> None:
    stand = VastStand(log_seconds=3.0, log_missing=status)
    assert fetch(stand, rented(stand)).status_code == status
