# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a run: for a terminal, and as docs/evidence/benchmarks.md. Every figure comes from the run's file; none stands in this one."""

from __future__ import annotations

import statistics
import typing as t

from .results import Results, Row
from .targets import targets

_HEAD = "<!-- written by `python -m tests.bench keep`; change tests/bench/page.py and not this page -->"
_INTRODUCTION = """# Benchmarks

{head}

<!-- illustration -->
```sh
make bench
```

This measures on the sandbox, which runs as a process of its own, and prints the tables below. `make bench-large` adds rows for more
machines. `make bench-peers` measures other tools, whose results are kept and reused. No test asserts a time. `make test` asserts counts:
tasks, and calls for each machine.

## Run

| | |
|---|---|
| command | `{command}` |
| date | {date} |
| commit | `{commit}`{changed} |
| machine | {cores} cores, {memory_gib} GiB memory, {system} |
| Python | {python} |
| ansible-core | {ansible_core} |
| load average before it | {load} |
| minutes | {minutes} |
{peers}"""
_PEERS = "| other tools | measured on {date} at commit `{commit}`, on {cores} cores, {memory_gib} GiB memory, {system} |\n"
_TARGETS = """
## Targets

{table}

A target is compared with the median of the runs. Rows that began at a load average above {busy} are marked with `!` below. What is measured
adds to that load itself, so *others* is how many processors something else used meanwhile. Above {others}, times say little.
"""
_SECTIONS = {
    "P1": (
        "Provision",
        "A whole `provision.yml`, from an empty world to usable nodes. The floor has no delay of the collection in it: the start of an empty "
        "playbook, the boot and join of one machine in an otherwise empty world, where a script approves certificate requests and removes the "
        "taint at once, and the pauses that the cloud sets, counted once. Own machines: real time, {latency} s for each call to the power "
        "service and the mesh, {boot} s for a boot. Rented machines: one launch every {pause} s of the world, whose clock is {quicker} times "
        "as quick, so what the play itself does counts {quicker} times. Ends are taken from the world's log and the end of the process.",
    ),
    "P2": (
        "Other tools that create machines",
        "The same latencies against a stand-in of Hetzner's API. These tools create servers and wait until they run; they join nothing.",
    ),
    "P3": ("Inventory", "`ansible-inventory --list`, and a script that prints the same hosts, variables and groups."),
    "P4": (
        "Runs with nothing to do",
        "Playbooks beside machines of the collection: claims, instances, devices, Nodes, working pods and a ledger. The floor is the start of "
        "an empty playbook, and reading all nodes and pods page by page.",
    ),
    "P5": ("The plan alone", "The decision, without reading and acting, and beside it the same for a tenth of all."),
    "P6": ("Drain", "Nodes whose pods take a while to end, and a disruption budget that opens late. Real time."),
    "P7": ("Wait", "Nodes that become Ready one after the other, at the same moments in each run. Real time."),
    "P8": ("Autoscale", "From the start of `autoscale.yml` to the last create call, by the world's log."),
}
_ROWS = (
    "| | runs | wall: min, median, max | floor | ÷ | CPU s | CPU s of the world | MB | tasks | calls by service | load | others |"
)
_PLAIN = """
## Other measurements

These are tables of single measurements, without a target of the list above.
"""


def page(results: Results) -> str:
    """The page for these results."""
    about = {**results.about, "changed": ", with changes" if results.about["changed"] else ""}
    about["peers"] = _PEERS.format(**about["peers"]) if "peers" in about else ""
    parts = [
        _INTRODUCTION.format(head=_HEAD, **about),
        _TARGETS.format(table="\n".join(target_table(results)), **about),
    ]
    for name, (title, words) in _SECTIONS.items():
        rows = [row for row in results.rows if row.id.partition(" ")[0] == name]
        if rows:
            parts.append(
                f"\n## {title} ({name})\n\n{_wrapped(words.format(**results.about['settings']))}\n\n"
                + "\n".join(row_table(rows))
                + "\n"
            )
            if details := detail_table(rows):
                parts.append("\n" + "\n".join(details) + "\n")
    if results.plain:
        parts.append(_PLAIN)
    for title, lines in results.plain.items():
        width = max(len(what) for what, _value in lines)
        parts.append(f"\n### {title}\n\n```text\n" + "\n".join(f"{what:<{width}}  {value}" for what, value in lines) + "\n```\n")
    return "".join(parts)


def target_table(results: Results) -> list[str]:
    lines = ["| | what | target | measured | |", "|---|---|---|---|---|"]
    for target in targets():
        value, words = target.verdict(results)
        sign = "≥" if target.least else "≤"
        lines.append(
            f"| {target.id} | {target.what} | {sign} {_number(target.limit)} | {'' if value is None else _number(value)} | {words} |"
        )
    return lines


def row_table(rows: t.Sequence[Row]) -> list[str]:
    return [_ROWS, "|" + "---|" * (_ROWS.count("|") - 1), *(_row(row) for row in rows)]


def _row(row: Row) -> str:
    walls = sorted(run.wall for run in row.runs)
    wall = ", ".join(map(_number, (walls[0], statistics.median(walls), walls[-1])))
    cells = [
        row.what.strip(),
        str(len(row.runs)),
        f"{wall} {row.unit}",
        _number(sum(row.floor.values())) if row.floor else "",
        _number(row.ratio) if row.floor else "",
        _number(row.cpu),
        _number(row.median(lambda run: run.world_cpu)),
        _number(max(run.peak for run in row.runs), digits=0) if row.runs[0].peak else "",
        _count(row.median(lambda run: run.tasks)),
        ", ".join(f"{name} {_count(row.calls(name))}" for name in _services(row)),
        f"{row.load:.1f}{' !' if row.marked else ''}",
        _number(row.others),
    ]
    return "| " + " | ".join(cells) + " |"


def _services(row: Row) -> list[str]:
    return sorted({name for run in row.runs for name in run.calls})


def detail_table(rows: t.Sequence[Row]) -> list[str]:
    """What else was seen, and the parts of the floors."""
    lines = []
    for row in rows:
        details = [f"{what} {_number(row.more(what))}" for what in row.runs[0].more]
        parts = [f"{what} {_number(value)}" for what, value in row.floor.items() if value]
        if details or parts:
            lines.append(f"| {row.what.strip()} | {', '.join(details)} | {', '.join(parts)} |")
    return ["| | medians | parts of the floor |", "|---|---|---|", *lines] if lines else []


def terminal(results: Results) -> str:
    """The same tables, as plain text."""
    lines = [*target_table(results), "", *row_table(results.rows), "", *detail_table(results.rows)]
    for title, plain in results.plain.items():
        lines += ["", title, *(f"  {what:<84} {value}" for what, value in plain)]
    return "\n".join(lines)


def _number(value: float, digits: int = 2) -> str:
    """With so many digits behind the point, fewer where the number is large or whole."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits if abs(value) < 100 else min(digits, 1)}f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value else ""


def _wrapped(words: str, width: int = 132) -> str:
    lines, line = [], ""
    for word in words.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])
