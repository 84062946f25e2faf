# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.findings`` replays each finding on version 0.1 (commit 4022514) and on this commit, and prints a Markdown table: item,
finding, command, output before and after, and the test that holds it now. ``--only 5`` or ``--only 5.2``: of this item, this row of it. On
version 0.1 the names of variables lack their ``tgp_``. The exit status is 1 if a row ended otherwise than the table says."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .desk import Desk, Done, Version, versions
from .row import Ended, Row
from .table import ROWS

HEAD = "| item | finding | command | before | after | | test |\n|---|---|---|---|---|---|---|"


class Played(t.NamedTuple):
    """``faults``: how it ended otherwise than it has to."""

    command: str
    done: Done
    faults: list[str]


def numbered() -> dict[str, Row]:
    """Rows by item and place in it: 5.2."""
    seen: dict[int, int] = {}
    found: dict[str, Row] = {}
    for row in ROWS:
        seen[row.item] = seen.get(row.item, 0) + 1
        found[f"{row.item}.{seen[row.item]}"] = row
    return found


def play(version: Version, rows: t.Mapping[str, Row], folder: Path, verbose: bool) -> dict[str, Played]:
    desk = Desk(version, folder)
    found: dict[str, Played] = {}
    try:
        for number, row in rows.items():
            begun = time.monotonic()
            expected = row.before if version.old else row.after
            try:
                with desk.row(number, row.scenario, alone=row.alone):
                    done = row.play(desk)
                found[number] = Played(desk.command, done, expected.faults(done))
            except Exception as error:  # noqa: BLE001 - one row that cannot be played must not hide the others
                found[number] = Played(
                    desk.command, Done(-1, str(error)), [f"it could not be played: {type(error).__name__}: {error}"]
                )
            _progress(version, number, found[number], time.monotonic() - begun, verbose)
    finally:
        desk.close()
    return found


def _progress(version: Version, number: str, played: Played, seconds: float, verbose: bool) -> None:
    print(f"{version.name:12} {number:5} {seconds:5.1f} s  {'; '.join(played.faults) or 'ok'}"[:2000], file=sys.stderr, flush=True)
    if verbose:
        print(played.done.text, file=sys.stderr, flush=True)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")


def _output(expected: Ended, played: Played) -> str:
    return f"rc={played.done.rc} `{cell(expected.telling(played.done))}`"


def lines(rows: t.Mapping[str, Row], before: t.Mapping[str, Played], after: t.Mapping[str, Played]) -> list[str]:
    found = [HEAD]
    for number, row in rows.items():
        old, new = before[number], after[number]
        verdict = "DIFFERS" if old.faults or new.faults else "ok"
        cells = [
            number,
            cell(row.finding),
            f"`{cell(new.command)}`",
            _output(row.before, old),
            _output(row.after, new),
            verdict,
            f"`{row.test}`",
        ]
        found.append(f"| {' | '.join(cells)} |")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.findings", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="an item or a row; all without one")
    parser.add_argument("--out", type=Path, help="write the table to this file")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="1: one version after the other")
    parser.add_argument("--verbose", action="store_true", help="print everything that commands print")
    given = parser.parse_args()
    rows = {
        number: row for number, row in numbered().items() if not given.only or {number, number.partition(".")[0]} & set(given.only)
    }
    if not rows:
        parser.error(f"there is no item or row {', '.join(given.only)}")
    with tempfile.TemporaryDirectory(prefix="tgp-findings-") as scratch:
        folder = Path(scratch).resolve()
        both = versions(folder)
        with ThreadPoolExecutor(given.jobs) as pool:
            waited = [pool.submit(play, one, rows, folder / f"rows-{at}", given.verbose) for at, one in enumerate(both)]
            before, after = (one.result() for one in waited)
    table = lines(rows, before, after)
    print("\n".join(table))
    if given.out:
        given.out.write_text("\n".join(table) + "\n")
    differs = [
        f"{number} {name}: {fault}"
        for number in rows
        for name, side in (("before", before), ("after", after))
        for fault in side[number].faults
    ]
    print(f"\n{len(rows)} rows, {len(differs)} faults", *differs, sep="\n")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
