# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_archive: old lines of the ledger move into a file, and no cent is lost or counted twice (L-16)."""

from __future__ import annotations

import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.operations.ledger_archive import read_archive
from ansible_collections.tgp.gpu.plugins.module_utils.store import configmap
from prometheus_client.parser import text_string_to_metric_families

from .rig import Rig

MONTHS = 40 * 86400


@pytest.fixture
def old(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Three machines that ended 40 days ago, each line in a part of its own, and one that ended just now."""
    monkeypatch.setattr(configmap, "_PART_SIZE", 800)
    for _machine in range(3):
        rig.provision()
        rig.destroy()
    rig.advance(MONTHS)
    rig.provision()
    rig.destroy()
    assert len(rig.ledger()) == 4 and len(rig.configmaps("tgp.io/ledger")) == 4
    return rig


def total(rig: Rig, **params: t.Any) -> str:
    return str(rig.run("report", **params)["report"]["total"])


def counters(rig: Rig, path: Path) -> dict[str, float]:
    """Counters and sums of machines and money, as a run writes them. They are the same wherever the lines are."""
    call, rig.call = rig.call, lambda code, task: execute(code.SPEC, code.run, _as_reap(task), code.__name__)
    try:
        plan = rig.plan("reap", metrics_file=str(path))
        rig.run("unlock", plan["run_id"], metrics_file=str(path))
    finally:
        rig.call = call
    chosen = (
        "tgp_spend_",
        "tgp_machines_ended",
        "tgp_launches",
        "tgp_phase_",
        "tgp_ready_",
        "tgp_operator_gpu",
        "tgp_operator_instance_launch",
    )
    return {
        f"{sample.name}{sorted(sample.labels.items())}": round(sample.value, 6)
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if sample.name.startswith(chosen) and not sample.name.endswith("_created")
    }


def _as_reap(task: Task) -> Task:
    task.playbook = "reap"
    return task


def held(path: Path) -> list[str]:
    return [line["name"] for line in read_archive(str(path))]


def test_L16_old_lines_move_and_the_report_says_the_same(old: Rig, tmp_path: Path) -> None:
    path, whole, prom = tmp_path / "kept" / "ledger.jsonl", total(old), tmp_path / "tgp.prom"
    counted = counters(old, prom)
    assert sum(value for name, value in counted.items() if name.startswith("tgp_machines_ended_total")) == 4
    before, names = old.writes(), {one["name"] for one in old.ledger()}
    rehearsed = old.run("archive", path=str(path), older_than_days=35, check=True)
    assert (rehearsed["changed"], rehearsed["lines"]) == (True, 3) and old.writes() == before and not path.exists()
    done = old.run("archive", path=str(path), older_than_days=35)
    assert (done["changed"], done["lines"], done["parts"]) == (True, 3, 3)
    assert len(old.ledger()) == 1 and {*held(path), old.ledger()[0]["name"]} == names
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert total(old) != whole and total(old, archive=str(path)) == whole
    before, text = old.writes(), path.read_text()
    again = old.run("archive", path=str(path), older_than_days=35)
    assert not again["changed"] and again["lines"] == 0 and old.writes() == before and path.read_text() == text
    assert counters(old, prom) == counted
    old.provision()
    old.destroy()
    assert len(old.ledger()) == 2, "the ledger goes on"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_L16_a_run_that_is_killed_loses_no_line(old: Rig, tmp_path: Path, number: int, after: bool) -> None:
    path, whole, prom = tmp_path / "ledger.jsonl", total(old), tmp_path / "tgp.prom"
    counted = counters(old, prom)
    with old.killed_at(number, after=after):
        old.run("archive", path=str(path), older_than_days=35)
    assert total(old, archive=str(path)) == whole and counters(old, prom) == counted
    with path.open("a") as file:
        file.write('{"name": "tgp-half')  # a line that a killed run had begun to write
    assert total(old, archive=str(path)) == whole
    old.run("archive", path=str(path), older_than_days=35)
    assert path.read_text().count('"cost"') == len(held(path)) == 3 and len(old.ledger()) == 1
    assert total(old, archive=str(path)) == whole and counters(old, prom) == counted


def test_L16_a_ledger_of_files_is_archived_as_well(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_LEDGER", "file")
    path, kept = tmp_path / "ledger.jsonl", tmp_path / "state" / rig.cluster_id / "ledger"
    for _machine in range(2):
        rig.provision()
        rig.destroy()
        rig.advance(MONTHS)
    whole = total(rig)
    assert (len(list(kept.iterdir())), rig.ledger()) == (2, [])
    done = rig.run("archive", path=str(path), older_than_days=35)
    assert (done["lines"], len(held(path)), list(kept.iterdir())) == (2, 2, [])
    assert total(rig) != whole and total(rig, archive=str(path)) == whole
    assert rig.run("archive", path=str(path), older_than_days=35)["lines"] == 0


def test_L16_lines_whose_claim_is_left_stay(old: Rig, tmp_path: Path) -> None:
    """A run was killed between the line and the removal of its claim: without the line it would be written twice."""
    path = tmp_path / "ledger.jsonl"
    old.provision()
    old.fault("status", "kubernetes", "DELETE", "configmaps/tgp-claim-", status=500, times=None)
    old.destroy()
    old.faults.clear()
    (claim,) = old.claims()
    old.advance(MONTHS)
    assert old.run("archive", path=str(path), older_than_days=35)["lines"] == 4
    assert claim in {one["name"] for one in old.ledger()}


def test_L16_torn_lines_and_what_is_too_young_stay(old: Rig, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = old.configmaps("tgp.io/ledger")[0]
    (key,) = first["data"]
    old.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/{first['metadata']['name']}", {"data": {key: "{"}})
    assert old.run("archive", path=str(path), older_than_days=400)["lines"] == 0
    assert old.run("archive", path=str(path), older_than_days=35)["lines"] == 2


@pytest.mark.parametrize("days", [34, 0, -400])
def test_L16_what_budgets_need_is_never_moved(old: Rig, tmp_path: Path, days: int) -> None:
    with pytest.raises(InvalidInput, match=r"lines of the last 35 days stay"):
        old.run("archive", path=str(tmp_path / "ledger.jsonl"), older_than_days=days)


def test_L16_a_file_that_cannot_be_written_or_read_costs_no_line(old: Rig, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Nothing was removed from the ledger"):
        old.run("archive", path=str(tmp_path), older_than_days=35)
    strange = tmp_path / "notes.txt"
    strange.write_text("hello\n")
    for module in (
        {"module": "archive", "path": str(strange), "older_than_days": 35},
        {"module": "report", "archive": str(strange)},
    ):
        with pytest.raises(InvalidInput, match="notes.txt, line 1 is not a line of a ledger"):
            old.run(**t.cast("dict[str, t.Any]", module))
    assert len(old.ledger()) == 4 and strange.read_text() == "hello\n"
    with pytest.raises(InvalidInput, match="cannot be read"):
        old.run("report", archive=str(tmp_path / "none.jsonl"))
