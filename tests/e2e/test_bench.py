# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark measures what it says, with a few machines and without a look at any time but the world's own."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from sandbox.scenario import TIMINGS
from tests.bench import floor, peers, provision, quiet, results, waiting_pods
from tests.bench.documents import QUICK
from tests.bench.processes import Ended, environment, measured

pytestmark = pytest.mark.slow
QUICK_OWN = dataclasses.replace(provision.OWN, speed=20.0)


def test_the_machine_of_a_floor_becomes_a_node_without_any_playbook(tmp_path: Path) -> None:
    """It asks for a certificate, which the script approves, and no machine is complete sooner than its own steps take."""
    with provision.PACED.world(tmp_path / "world", 1) as world:
        found = floor.floor(world, provision.PACED.documents(world, 1), 24.0)
        (story,) = world.stories()
        node = world.sandbox.kube.get(f"/api/v1/nodes/{story.node}").raise_for_status().json()
    assert found.chain >= sum(TIMINGS.values())
    assert found.total == found.empty + found.chain + 24.0
    assert story.written is None, "nothing but the script has changed its Node"
    assert floor.INITIALIZING not in {taint["key"] for taint in node["spec"].get("taints") or []}


def test_a_row_has_counts_ends_by_the_world_s_log_and_a_floor(tmp_path: Path) -> None:
    first, again = provision.rows(tmp_path, QUICK_OWN, [2], 1, once=100)
    (run,) = first.runs
    assert (first.id, again.id, first.floor["pauses"]) == ("P1 own 2", "P1 own 2 again", 0.0)
    assert first.floor["chain"] >= 0.98 * (provision.BOOT + sum(QUICK.values()))  # the log has a moment a little after its step
    assert first.ratio > 1
    assert run.calls["webhook"] >= 4 and run.calls["kubernetes"] and run.tasks and run.cpu and run.world_cpu
    usable, end = run.more["last node usable"], run.more["end of the play after the last node"]
    assert provision.BOOT < run.more["first node usable"] <= usable < run.wall and 0 < end < run.wall
    assert again.calls("webhook") < run.calls["webhook"]
    found = results.Results(results.about("a test"), [first, again])
    assert list(results.Results.parse(found.text()).rows)[1].runs[0].tasks == again.runs[0].tasks


def test_nothing_is_to_be_done_in_a_world_of_copied_machines(tmp_path: Path) -> None:
    rows = {row.id: row for row in quiet.rows(tmp_path, [3], 1)}
    assert list(rows) == [
        *(f"P4 {name} 3" for name in quiet.PLAYBOOKS),
        *(f"P3 {name} 3" for name in ("script", "cold", "cached")),
    ]
    assert rows["P3 cached 3"].calls() == rows["P3 script 3"].calls() == 0 < rows["P3 cold 3"].calls()
    assert rows["P4 reap 3"].floor["reading nodes and pods"] > 0


def test_the_last_create_call_is_found_in_the_world_s_log(tmp_path: Path) -> None:
    (row,) = waiting_pods.rows(tmp_path, 1, pods=5)
    assert 0 < row.more("first create call") <= row.more("last create call") < row.wall
    assert row.calls("webhook") >= 5


def test_what_is_measured_does_not_compile_its_modules_anew() -> None:
    assert environment({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/root"}) == {"HOME": "/root"}


def test_the_peak_is_the_command_s_and_not_that_of_the_benchmark() -> None:
    kept = bytearray(200_000_000)
    for start in range(0, len(kept), 4096):
        kept[start] = 1
    assert measured([sys.executable, "-I", "-S", "-c", "pass"], os.environ).peak < 100


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(Ended, match="ended with 3:\nwhy"):
        measured(["sh", "-c", "echo why; exit 3"], os.environ)
    with pytest.raises(Ended, match="did not start(.|\n)*FileNotFoundError"):
        measured(["no-such-program"], os.environ)


def test_the_script_creates_all_servers_of_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BOOT", 1.0)
    with peers.StandIn() as api:
        peers.create(api.address, 3)
        assert 6 <= api.calls() <= 12


def test_peers_that_are_not_installed_are_skipped_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "_script", lambda: results.Row("P2 script 1", "a script", "s", []))
    rows = list(peers.rows(tmp_path, tmp_path / "nowhere" / "bin" / "python"))
    assert [row.id for row in rows] == ["P2 script 1"]
    said = capfd.readouterr().err
    assert said.count(" is skipped: ") == 6 and "hetzner.hcloud in a loop is skipped: " in said
