# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: measures on the sandbox, prints tables, and writes a file from which docs/evidence/benchmarks.md is made. Nothing here
asserts a time.

P1  provision.yml of own and of rented machines against a floor without any delay of ours (provision.py, floor.py)
P2  other tools that create machines (peers.py)
P3  the inventory, and a script that prints the same hosts (quiet.py, fleet.py)
P4  playbooks with nothing to do beside many machines of ours (quiet.py, fleet.py)
P5  the decision alone, for a thousand machines, ten thousand pods and five thousand offers (planning.py)
P6  draining 50 nodes with node_drain, and with kubectl drain ten at a time (nodes.py)
P7  how late one knows that the last node is Ready, and the CPU that waiting cost (nodes.py, provision.py)
P8  a hundred waiting pods and autoscale.yml (waiting_pods.py)
P9  asking four clouds at once, five thousand offers, and two hundred launches at one cloud's pace (offers.py)
P10 the configurations of a thousand nodes, rendered and checked (configs.py)
P11 waiting for a thousand nodes while nothing happens (waiting.py)
P12 the bootstrap program of lane kubelet itself (bootstrap.py)
P13 two thousand waiting pods against five thousand offers (packing.py)
P14 a reap.yml that finds nothing to do beside nodes of others, with a client certificate and with an exec plugin (idle.py)
P15 a thousand looks of autoscale.yml as a loop, and thirty in a large cluster (loop.py)

    python -m tests.bench run --parts P1,P8 --counts 10,100 --runs 3 --to FILE
    python -m tests.bench peers --to FILE
    python -m tests.bench show FILE
    python -m tests.bench keep FILE     (makes it tests/bench/kept/results.json, and writes the page)
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from sandbox.running import ROOT

from . import (
    bootstrap,
    configs,
    idle,
    loop,
    nodes,
    offers,
    packing,
    page,
    peers,
    planning,
    provision,
    quiet,
    results,
    waiting,
    waiting_pods,
)
from .processes import BUSY, OTHERS
from .results import Results, Row

PAGE = ROOT / "docs" / "evidence" / "benchmarks.md"
KEPT, PEERS = (Path(__file__).parent / "kept" / name for name in ("results.json", "peers.json"))
COUNTS, BESIDE = (10, 100, 300), (0, 10, 100, 300, 1000)
ONCE = 100  # machines above which a row has one run
LARGE = 1000


class Options(t.NamedTuple):
    folder: Path
    counts: t.Sequence[int]
    beside: t.Sequence[int]
    runs: int


def _provision(options: Options) -> t.Iterator[Row]:
    for kind in provision.KINDS.values():
        yield from provision.rows(options.folder / kind.name, kind, options.counts, options.runs, once=ONCE)


ROWS: dict[str, t.Callable[[Options], t.Iterable[Row]]] = {
    "P1": _provision,
    "P3": lambda options: quiet.rows(options.folder / "beside", options.beside, options.runs),
    "P5": lambda options: planning.rows(options.runs),
    "P6": lambda options: nodes.rows(options.folder / "nodes", options.runs),
    "P8": lambda options: waiting_pods.rows(options.folder / "pods", options.runs),
}
"""P3 brings P4, and P6 brings P7: they share a world."""
PLAIN: dict[str, t.Callable[[Options], t.Iterable[tuple[str, str]]]] = {
    "P9": lambda options: offers.rows(options.folder / "offers"),
    "P10": lambda _options: configs.rows(),
    "P11": lambda options: waiting.rows(options.folder / "waiting"),
    "P12": lambda _options: bootstrap.rows(),
    "P13": lambda _options: packing.rows(),
    "P14": lambda options: idle.rows(options.folder / "idle"),
    "P15": lambda options: loop.rows(options.folder / "loop"),
}
SLOW = ("P15",)  # with --large, or by name


def main(arguments: t.Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    match options.command:
        case "show":
            print(page.terminal(results.read(options.file)))
        case "keep":
            keep(options.file)
        case "peers":
            results.write(_peers(options), options.to)
        case _:
            found = _run(options)
            results.write(found, options.to)
            print(page.terminal(found))
    return 0


def keep(file: Path) -> None:
    """Make the results of a run those of the documentation."""
    found = results.read(file)
    if not any(row.id.startswith("P1 ") for row in found.rows):
        results.write(found, PEERS)
        if not KEPT.exists():
            return
        found = results.read(KEPT)
    found = _with_peers(found)
    results.write(found, KEPT)
    PAGE.write_text(page.page(found), encoding="utf-8")


def _with_peers(found: Results) -> Results:
    """With the kept results of other tools."""
    if not PEERS.exists():
        return found
    others = results.read(PEERS)
    names = {row.id for row in others.rows}
    rows = [*(row for row in found.rows if row.id not in names), *others.rows]
    return Results({**found.about, "peers": others.about}, rows, found.plain)


def _run(options: argparse.Namespace) -> Results:
    counts = [*options.counts, *((LARGE,) if options.large else ())]
    chosen = options.parts or [*ROWS, *(name for name in PLAIN if options.large or name not in SLOW)]
    about = {**results.about(_command()), "busy": BUSY, "others": OTHERS, "settings": _settings()}
    began, rows, plain = time.monotonic(), list[Row](), dict[str, list[list[str]]]()
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as folder:
        given = Options(Path(folder), counts, options.beside, options.runs)
        for name in chosen:
            started = time.monotonic()
            if name in ROWS:
                for row in ROWS[name](given):
                    rows.append(row)
                    print("\n".join(page.row_table([row])[2:]), flush=True)
            else:
                plain[name] = [list(one) for one in PLAIN[name](given)]
                plain[name].append(["load average at its end", f"{os.getloadavg()[0]:.1f}"])
            print(f"{name} took {(time.monotonic() - started) / 60:.1f} min", file=sys.stderr, flush=True)
    about["minutes"] = round((time.monotonic() - began) / 60, 1)
    return _with_peers(Results(about, rows, plain))


def _peers(options: argparse.Namespace) -> Results:
    about = {**results.about(_command()), "busy": BUSY, "others": OTHERS, "settings": _settings()}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as folder:
        rows = list(peers.rows(Path(folder), options.python.absolute()))  # modules run in another folder
    about["minutes"] = round((time.monotonic() - began) / 60, 1)
    found = Results(about, rows)
    print("\n".join(page.row_table(rows)))
    return found


def _settings() -> dict[str, float]:
    return {
        "latency": provision.LATENCY,
        "boot": provision.BOOT,
        "pause": provision.PAUSE,
        "quicker": provision.QUICKER,
    }


def _command() -> str:
    return "python -m tests.bench " + shlex.join(sys.argv[1:])


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _parts(text: str) -> list[str]:
    found = [one for one in text.split(",") if one]
    if unknown := [one for one in found if one not in (*ROWS, *PLAIN)]:
        raise argparse.ArgumentTypeError(f"there is no part {', '.join(unknown)}; parts are {', '.join((*ROWS, *PLAIN))}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures on the sandbox.")
    commands = parser.add_subparsers(dest="command", required=True)
    cache = ROOT / ".cache" / "bench"
    run = commands.add_parser("run", help="measure, print the tables and write them to a file")
    run.add_argument("--parts", type=_parts, default=[], help="only these, such as P1,P8")
    run.add_argument("--counts", type=_numbers, default=list(COUNTS), help="machines that are provisioned")
    run.add_argument("--beside", type=_numbers, default=list(BESIDE), help="machines beside which nothing is to do")
    run.add_argument("--runs", type=int, default=3, help=f"of each row; rows of more than {ONCE} machines have one")
    run.add_argument("--large", action="store_true", help=f"also {LARGE} machines, and {', '.join(SLOW)}")
    run.add_argument("--to", type=Path, default=cache / "results.json")
    others = commands.add_parser("peers", help="measure other tools; what is not installed is skipped with a line")
    others.add_argument("--python", type=Path, default=Path(sys.executable), help="of the environment in which they are installed")
    others.add_argument("--to", type=Path, default=cache / "peers.json")
    for name, words in (("show", "print a file's tables"), ("keep", "make a file the one of the documentation")):
        commands.add_parser(name, help=words).add_argument("file", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
