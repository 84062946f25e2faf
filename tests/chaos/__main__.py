# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Play, search and shorten stories by hand; see docs/evidence/chaos.md."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from . import adverse, bites, faults
from .grounds import ALL, NAMED
from .shrink import shortest
from .story import Story, Sum, Violated


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    search = tasks.add_parser("search", help="play stories drawn from seeds until one fails, and shorten it")
    search.add_argument("--seeds", default="1", help="as 7 or 1-20")
    search.add_argument("--stories", type=int, default=20, help="stories for each seed and ground")
    search.add_argument("--ground", action="append", choices=sorted(NAMED))
    search.add_argument(
        "--full", action="store_true", help="a full search: an ingredient that changed an action in too few runs fails it"
    )
    search.add_argument("--small", action="store_true", help="stories of one or two scenes, many more in the same time")
    search.add_argument("--go-on", action="store_true", help="tell each failure and go on, without shortening")
    for name, text in (("replay", "play a story from a file, each run told"), ("shrink", "shorten a failing story")):
        tasks.add_parser(name, help=text).add_argument("file", type=Path)
    bite = tasks.add_parser(
        "bites", help="break one decision for each invariant, and tell how many runs it takes until it is caught"
    )
    bite.add_argument("--stories", type=int, default=40, help="drawn stories for each fault, at most")
    fault = tasks.add_parser("faults", help="draw faults of the product by seed, and play until each is found")
    fault.add_argument("--seed", default="1")
    fault.add_argument("--count", default="10", help="how many are drawn, or all")
    fault.add_argument("--full", action="store_true", help="with what each invariant said, and the story")
    one = tasks.add_parser("hunt", help="play against the collection that is first on the path, until an invariant is broken")
    one.add_argument("--edge", default="", help="a story of edges.py that comes first")
    one.add_argument("--seed", default="1")
    for parts in (fault, one):
        parts.add_argument(
            "--seconds", type=float, default=faults.SECONDS, help="of CPU for each fault; 0: the directed story alone"
        )
    given = parser.parse_args(words)
    if given.task == "faults":
        count = 0 if given.count == "all" else int(given.count)
        return 1 if faults.table(given.seed, count, print, seconds=given.seconds, full=given.full) else 0
    if given.task == "hunt":
        faults.tell(given.edge, given.seed, given.seconds)
        return 0
    if given.task == "bites":
        return 1 if bites.table(given.stories, print) else 0
    if given.task == "search":
        return _search(given)
    story = Story.parse(given.file.read_text(encoding="utf-8"))
    if given.task == "shrink":
        print(shortest(story).text())
        return 0
    try:
        print(story.play(print))
    except Violated as error:
        print(f"VIOLATED {error}")
        return 1
    return 0


def _search(given: argparse.Namespace) -> int:
    first, _dash, last = given.seeds.partition("-")
    whole = Sum()
    for seed in range(int(first), int(last or first) + 1):
        total, began = Sum(), time.monotonic()
        for ground in given.ground or sorted(ALL):
            for number in range(given.stories):
                story = (Story.draw_small if given.small else Story.draw)(ground, f"{seed}/{number}")
                try:
                    total.add(story.play())
                except Exception as error:  # noqa: BLE001 - what nobody foresaw ends a story, not the search
                    total.violations += 1
                    told = str(error) if isinstance(error, Violated) else f"{traceback.format_exc()}{story.text()}"
                    print(f"VIOLATED {told}", flush=True)
                    if not given.go_on:
                        print(f"the shortest that fails the same way:\n{shortest(story).text()}")
                        return 1
        print(f"seed {seed}: {total}, {time.monotonic() - began:.0f} s", flush=True)
        whole.add(total)
    print(f"in all: {whole}\nruns in which an ingredient changed an action:")
    missing = adverse.report(whole.changed, print)
    if missing:
        print(f"changed an action in fewer than {adverse.LEAST} runs, so not really there: {', '.join(missing)}")
    return 1 if whole.violations or (given.full and missing) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
