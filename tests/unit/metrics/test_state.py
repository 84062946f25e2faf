# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters between runs: neither lost nor counted twice, wherever a process is killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import tally
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.metrics import state
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import FAMILIES, MOST_NAMES, OTHER, Cell, Sample
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.state import MetricsState, folder_of, noted

WAITS = ("tgp_rate_limit_waits", '{"provider": "lambda"}')
CALLS = "tgp_provider_request_duration_seconds"


def line(amount: float = 1.0, **more: t.Any) -> dict[str, t.Any]:
    return {"counts": [["tgp_rate_limit_waits", {"provider": "lambda"}, amount]], **more}


def run(outcome: str = "ok", playbook: str = "reap", ended: float = 100.0) -> dict[str, t.Any]:
    return {"playbook": playbook, "outcome": outcome, "ended": ended, "seconds": 4.0, "success": outcome == "ok"}


@pytest.fixture
def kept(tmp_path: Path) -> MetricsState:
    return MetricsState(str(tmp_path / "metrics"))


def test_S1_26_counters_survive_runs(kept: MetricsState) -> None:
    for number in range(3):
        kept.append(line(2.0, cluster="a1b2c3d4"))
        assert MetricsState(kept.folder).settle().counts[WAITS] == 2.0 * (number + 1)
    assert kept.settle().cluster == "a1b2c3d4"
    assert sorted(os.listdir(kept.folder)) == ["base-3.json", "lock"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", ["before the base", "after the base", "after one removal"])
def test_S1_26_a_process_that_is_killed_while_it_adds_up_loses_and_doubles_nothing(
    kept: MetricsState, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kept.append(line())
    kept.settle()
    kept.append(line())
    removed = itertools.count(1)
    with monkeypatch.context() as patched:
        if point == "before the base":
            patched.setattr(state, "replace", _killed)
        elif point == "after the base":
            patched.setattr(MetricsState, "_remove_before", _killed)
        else:
            real = os.remove
            patched.setattr(os, "remove", lambda path: real(path) if next(removed) == 1 else _killed())
        with pytest.raises(Killed):
            kept.settle()
    again = MetricsState(kept.folder)
    again.append(line())
    assert again.settle().counts[WAITS] == 3.0 == again.settle().counts[WAITS]


def _killed(*_given: t.Any) -> t.NoReturn:
    raise Killed


WRITER = """
import sys
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.state import MetricsState

kept = MetricsState(sys.argv[1])
while True:
    kept.append({"counts": [["tgp_rate_limit_waits", {"provider": "lambda"}, 1.0]]})
    print("appended", flush=True)
    kept.settle()
"""


def test_S1_26_kill_9_of_a_process_that_writes_loses_no_line_that_it_wrote_and_doubles_none(kept: MetricsState) -> None:
    for _process in range(2):
        before = kept.settle().counts.get(WAITS, 0.0)
        with subprocess.Popen([sys.executable, "-c", WRITER, kept.folder], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            written = [writer.stdout.readline() for _line in range(25)]
            writer.kill()
            written += writer.stdout.readlines()
        whole = written.count("appended\n")
        assert writer.returncode == -signal.SIGKILL and whole >= 25
        assert kept.settle().counts[WAITS] - before in (whole, whole + 1), "the last line may not have been said any more"


def test_S1_26_a_line_that_was_cut_off_spoils_no_other_one(kept: MetricsState) -> None:
    kept.append(line())
    journal = Path(kept.folder) / "journal-0.jsonl"
    journal.write_text(journal.read_text() + '{"counts": [["tgp_ra')
    kept.append(line())
    assert kept.settle().counts[WAITS] == 2.0


def test_S1_26_processes_that_write_at_the_same_time_lose_nothing(kept: MetricsState) -> None:
    with ThreadPoolExecutor(3) as pool:  # a lock belongs to an open file, so threads are to each other as processes are
        list(pool.map(_write, [kept.folder] * 3))
    assert kept.settle().counts[WAITS] == 60.0


def _write(folder: str) -> None:
    for _ in range(20):
        MetricsState(folder).append(line())
        MetricsState(folder).settle()


def test_a_damaged_base_begins_anew_and_what_no_version_knows_is_dropped(kept: MetricsState) -> None:
    kept.append({"counts": [["tgp_never_heard_of", {}, 1.0]], "values": [["tgp_rate_limit_waits", {}, [1.0]]]})
    assert (kept.settle().counts, kept.settle().cells) == ({}, {})
    (Path(kept.folder) / "base-1.json").write_text("{")
    kept.append(line())
    assert kept.settle().counts == {WAITS: 1.0}


def test_values_fall_into_the_buckets_of_their_family(kept: MetricsState) -> None:
    labels = {"provider": "lambda", "operation": "get"}
    for values in ([0.004, 0.005], [0.3, 99.0]):
        kept.append({"values": [[CALLS, labels, values]]})
    (cell,) = kept.settle().cells.values()
    assert sum(cell.counts) == 4 and cell.counts[0] == 2 and cell.counts[-1] == 1 and cell.total == pytest.approx(99.309)
    base = Path(kept.folder) / "base-1.json"
    content = json.loads(base.read_text())
    content["cells"][0][2] = [1, 2]  # as a version with other buckets wrote it
    base.write_text(json.dumps(content))
    assert kept.settle().cells == {}


def test_a_part_is_replaced_as_a_whole_and_the_others_stay(kept: MetricsState) -> None:
    kept.append(
        {"parts": {"plan": noted([Sample("tgp_mesh_up", {}, 1.0)]), "records": noted([Sample("tgp_pools_paused", {}, 2.0)])}}
    )
    kept.append({"parts": {"plan": noted([])}})
    assert list(kept.settle().samples()) == [("tgp_pools_paused", {}, 2.0)]


def test_histograms_of_records_are_kept_as_cells(kept: MetricsState) -> None:
    kept.append({"parts": {"records": noted([Sample("tgp_ready_duration_seconds", {"pool": "p", "provider": "x"}, [40.0, 1e9])])}})
    ((name, _labels, cell),) = kept.settle().samples()
    assert isinstance(cell, Cell) and cell.counts[1] == cell.counts[-1] == 1 and len(cell.counts) == len(FAMILIES[name].buckets) + 1


def test_the_last_run_of_each_playbook_and_the_last_that_succeeded(kept: MetricsState) -> None:
    for outcome, ended in (("ok", 100.0), ("error", 160.0)):
        kept.append({"run": run(outcome, ended=ended)})
    found = {(name, labels.get("outcome", "")): value for name, labels, value in kept.settle().samples()}
    assert found["tgp_last_run_timestamp_seconds", ""] == 160.0 and found["tgp_last_success_timestamp_seconds", ""] == 100.0
    assert found["tgp_last_run_outcome", "error"] == 1.0 and ("tgp_last_run_outcome", "ok") not in found
    assert found["tgp_runs", "ok"] == found["tgp_runs", "error"] == 1.0


def test_playbooks_of_others_do_not_make_series_without_end(kept: MetricsState) -> None:
    for number in range(MOST_NAMES + 5):
        kept.append({"run": run(playbook=f"mine-{number}")})
    runs = kept.settle().runs
    assert len(runs) == MOST_NAMES + 1 and OTHER in runs


def test_each_cluster_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    one, other = ({"state_dir": "/s", "kubeconfig": path} for path in ("/a", "/b"))
    assert folder_of(one) == folder_of(dict(one)) != folder_of(other)
    monkeypatch.setenv("KUBECONFIG", "/a")
    assert folder_of({"state_dir": "/s"}) == folder_of(one)


def test_a_folder_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("")
    with pytest.raises((OSError, InvalidInput)):
        MetricsState(str(tmp_path / "metrics")).append(line())


def test_the_tally_is_taken_once() -> None:
    tally.take()
    tally.count("tgp_drains", reason="Empty", result="before anybody reads it")
    tally.begin()
    tally.count("tgp_drains", reason="Empty", result="blocked")
    tally.count("tgp_drains", reason="Empty", result="blocked")
    tally.level("tgp_offer_cache_age_seconds", 3.0, provider="lambda")
    tally.called("lambda", "GET", "ok", 0.25)
    taken = tally.take()
    assert taken.counts[0] == ["tgp_drains", {"reason": "Empty", "result": "blocked"}, 2.0]
    assert taken.levels == [["tgp_offer_cache_age_seconds", {"provider": "lambda"}, 3.0]]
    assert taken.values == [[CALLS, {"operation": "get", "provider": "lambda"}, [0.25]]]
    assert tally.take() == tally.Counted([], [], [])
