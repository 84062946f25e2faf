# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/evidence/benchmarks.md says what a run's file holds, and nothing better than it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import ec2, page, results, targets
from tests.bench.__main__ import KEPT, PAGE
from tests.bench.results import Measured, Results, Row

ABOUT = {
    "command": "python -m tests.bench run", "date": "2026-01-01", "commit": "0123abcd", "changed": False, "cores": 2, "memory_gib": 24,
    "system": "Linux 6.1", "python": "3.13.0", "ansible_core": "2.21.5", "load": 0.1, "minutes": 1.0, "busy": 1.5, "others": 0.25,
    "settings": {"latency": 0.2, "boot": 20, "pause": 12, "quicker": 20},
}  # fmt: skip
FLOOR = {"empty": 0.5, "chain": 24.5, "pauses": 0.0}
MORE = {"first node usable": 26.0, "last node usable": 27.0, "end of the play after the last node": 0.75}


def provision(*walls: float, load: float = 0.4) -> Row:
    """100 own machines, whose floor is 25 s."""
    runs = [Measured(wall, 5.0, load, 2.0, 0.01, 90.0, 8, {"kubernetes": 1000, "webhook": 300}, MORE) for wall in walls]
    return Row("P1 own 100", "provision.yml, 100 own machines", "s", runs, FLOOR)


def line(text: str, what: str) -> str:
    (found,) = (one for one in text.splitlines() if what in one)
    return found


def reason_of(what: str) -> str:
    (found,) = (one.reason for one in targets.targets() if what in one.what)
    return found


def test_the_page_is_what_the_generator_makes_of_the_committed_results() -> None:
    if KEPT.exists():
        assert PAGE.read_text(encoding="utf-8") == page.page(results.read(KEPT))
    else:
        assert "tests.bench keep" not in PAGE.read_text(encoding="utf-8"), "the page was generated: commit the results, too"


def test_results_survive_their_file() -> None:
    found = Results(ABOUT, [provision(26.0, 30.0, 27.0)], {"P9": [["a table", "1.23"]]})
    again = Results.parse(found.text())
    assert (again.about, again.plain, list(again.rows)) == (found.about, found.plain, list(found.rows))


def test_results_of_another_format_are_refused() -> None:
    with pytest.raises(ValueError, match="format 0"):
        Results.parse('{"format": 0}')


def test_a_target_is_compared_with_the_median_of_all_runs() -> None:
    met = page.page(Results(ABOUT, [provision(26.0, 60.0, 27.5)]))
    assert line(met, "100 own machines ÷ floor").endswith("| ≤ 1.15 | 1.10 | met |")
    assert "| 3 | 26, 27.50, 60 s | 25 | 1.10 | 5 | 2 | 90 | 8 | kubernetes 1,000, webhook 300 | 0.4 | 0.01 |" in met


def test_a_missed_target_is_shown_as_missed_with_the_reason() -> None:
    ratio = "100 own machines ÷ floor"
    missed = page.page(Results(ABOUT, [provision(50.0, 50.0, 26.0)]))
    assert line(missed, ratio).endswith(f"| 2 | **missed**: {reason_of(ratio)} |")


def test_a_load_is_marked_and_only_what_something_else_used_excuses_a_time() -> None:
    calls = {"kubernetes": 2500}

    def text(others: float) -> str:
        runs = [Measured(50.0, 9.0, 1.6, others=others, calls=calls, more=MORE)]
        return page.page(Results(ABOUT, [dataclasses.replace(provision(50.0), id="P1 rented 100", runs=runs)]))

    quiet, disturbed = text(0.1), text(0.5)
    assert "| 1.6 ! | 0.10 |" in quiet and "| 1.6 ! | 0.50 |" in disturbed
    ratio, count = "100 rented machines ÷ floor", "cluster calls for each of 100 rented"
    assert line(quiet, ratio).endswith(f"**missed**: {reason_of(ratio)} |")
    assert line(disturbed, ratio).endswith(f"**missed**: {targets.BUSY_MACHINE} |")
    assert line(disturbed, count).endswith(f"| ≤ 10 | 25 | **missed**: {reason_of(count)} |"), "a load excuses no count"


def test_what_was_not_measured_is_said_to_be_so() -> None:
    nothing = page.page(Results(ABOUT, [provision(26.0)]))
    assert line(nothing, "300 own machines ÷ floor").endswith("|  | not measured |")
    assert "## Autoscale" not in nothing


def test_a_peer_of_another_size_and_day_is_said_to_be_so() -> None:
    loop = Row("P2 loop 10", "hcloud in a loop", "s", [Measured(250.0, 10.0, 0.2)])
    text = page.page(Results({**ABOUT, "peers": {**ABOUT, "date": "2025-12-31"}}, [provision(25.0), loop]))
    assert line(text, "hcloud in a loop, ten times").endswith("| ≥ 80 | 100 | met |")
    assert "| other tools | measured on 2025-12-31 at commit `0123abcd`" in text


def test_results_that_are_kept_have_the_rows_of_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is measured last, and in the place of older ones."""
    names = {name: tmp_path / f"{name}.json" for name in ("KEPT", "PEERS")}
    for name, path in (*names.items(), ("PAGE", tmp_path / "page.md")):
        monkeypatch.setattr(command, name, path)

    def measured(name: str, *rows: Row) -> Path:
        path = tmp_path / name
        results.write(Results({**ABOUT, "date": name}, list(rows)), path)
        return path

    def loop(wall: float) -> Row:
        return Row("P2 loop 10", "hcloud in a loop", "s", [Measured(wall, 10.0, 0.2)])

    command.keep(measured("first", loop(100.0)))
    assert not names["KEPT"].exists()
    command.keep(measured("ours", provision(25.0)))
    assert line((tmp_path / "page.md").read_text(), "hcloud in a loop, ten times").endswith(
        "| ≥ 80 | 40 | **missed**: " + targets._JOINED + " |"
    )
    command.keep(measured("second", loop(250.0)))
    page_now = (tmp_path / "page.md").read_text()
    assert line(page_now, "hcloud in a loop, ten times").endswith("| ≥ 80 | 100 | met |")
    assert "| other tools | measured on second" in page_now and "| date | ours |" in page_now
    assert [row.id for row in results.read(names["KEPT"]).rows] == ["P1 own 100", "P2 loop 10"]


def test_the_stand_in_of_ec2_pages_and_refuses_what_it_does_not_know() -> None:
    form, seen = {"Action": ["DescribeInstances"], "MaxResults": ["400"]}, list[str]()
    for expected in (400, 400, 200):
        status, text = ec2.answer(form, 1000)
        ids = re.findall(r"<instanceId>(.*?)</instanceId>", text)
        assert status == 200 and len(ids) == expected
        seen += ids
        form["NextToken"] = re.findall(r"<nextToken>(\d+)</nextToken>", text)
    assert len(set(seen)) == 1000 and form["NextToken"] == []
    assert ec2.answer({"Action": ["RunInstances"]}, 1000)[0] == 400


def test_no_figure_stands_in_the_page_s_own_words() -> None:
    words = [page._INTRODUCTION, page._PEERS, page._TARGETS, page._PLAIN, *(words for _title, words in page._SECTIONS.values())]
    reasons = [one.reason for one in targets.targets()]
    assert [found for text in (*words, *reasons) for found in re.findall(r"\d+", text)] == []


def test_every_target_of_the_design_has_a_row() -> None:
    assert {one.id for one in targets.targets()} == {f"P{number}" for number in range(1, 9)}


def test_the_floor_counts_the_pauses_of_a_cloud_once() -> None:
    row = dataclasses.replace(provision(100.0), floor={"empty": 1.0, "chain": 20.0, "pauses": 29.0})
    assert row.ratio == 2.0
