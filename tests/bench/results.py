# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the benchmarks found, as JSON: rows of measured runs, the machine they ran on, the command, the commit and the date."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import typing as t
from datetime import datetime, timezone
from pathlib import Path

from sandbox.running import ROOT

from .processes import BUSY, OTHERS
from .world import Run

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run. ``wall`` in the row's unit, ``peak`` in MB. ``others``: how many processors something else used meanwhile, beside the
    command, the world and the benchmark. ``calls`` by service. ``more``: what else was seen, each by what it is."""

    wall: float
    cpu: float
    load: float
    world_cpu: float = 0.0
    others: float = 0.0
    peak: float = 0.0
    tasks: int = 0
    calls: dict[str, int] = dataclasses.field(default_factory=dict)
    more: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """``id`` names it for targets and readers of the file. ``floor``: what no tool could avoid, by part, in the row's unit."""

    id: str
    what: str
    unit: str
    runs: t.Sequence[Measured]
    floor: t.Mapping[str, float] = dataclasses.field(default_factory=dict)

    def median(self, of: t.Callable[[Measured], float]) -> float:
        return statistics.median(of(run) for run in self.runs)

    @property
    def wall(self) -> float:
        return self.median(lambda run: run.wall)

    @property
    def cpu(self) -> float:
        return self.median(lambda run: run.cpu)

    @property
    def ratio(self) -> float:
        """The median of its runs ÷ the floor."""
        return self.wall / sum(self.floor.values())

    @property
    def load(self) -> float:
        return max(run.load for run in self.runs)

    @property
    def marked(self) -> bool:
        return self.load > BUSY

    @property
    def others(self) -> float:
        return max(run.others for run in self.runs)

    @property
    def disturbed(self) -> bool:
        """Something else ran on the machine: the times say little, the counts hold."""
        return self.others > OTHERS

    def more(self, what: str) -> float:
        return self.median(lambda run: run.more[what])

    def calls(self, service: str = "") -> float:
        """Calls of a run, to one service or to all."""
        return self.median(lambda run: run.calls.get(service, 0) if service else sum(run.calls.values()))


def measurement(run: Run, wall: float | None = None, more: t.Mapping[str, float] | None = None) -> Measured:
    """``wall`` where it is not the process's own time."""
    cost = run.cost
    return Measured(
        cost.wall if wall is None else wall,
        cost.cpu,
        cost.load,
        run.world_cpu,
        max(0.0, cost.elsewhere - run.world_cpu) / cost.wall,
        cost.peak,
        cost.tasks,
        run.calls,
        dict(more or {}),
    )


@dataclasses.dataclass(frozen=True)
class Results:
    """``plain``: tables of the benchmarks that are not against the world, by heading, as (what, value)."""

    about: dict[str, t.Any]
    rows: t.Sequence[Row]
    plain: dict[str, list[list[str]]] = dataclasses.field(default_factory=dict)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.id == name), None)

    def text(self) -> str:
        content = {
            "format": FORMAT,
            "about": self.about,
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "plain": self.plain,
        }
        return json.dumps(_rounded(content), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Results:
        content = json.loads(text)
        if content.get("format") != FORMAT:
            raise ValueError(f"the results have format {content.get('format')}, this version reads {FORMAT}")
        rows = [Row(**{**row, "runs": [Measured(**run) for run in row["runs"]]}) for row in content["rows"]]
        return cls(content["about"], rows, content["plain"])


def _rounded(value: t.Any) -> t.Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


# ---- where and how


def about(command: str) -> dict[str, t.Any]:
    """The command, the machine and what is measured, at the beginning of a run."""
    from ansible.release import __version__ as core

    return {
        "command": command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short=8", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "ansible_core": core,
        "load": round(os.getloadavg()[0], 2),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def read(path: Path) -> Results:
    return Results.parse(path.read_text(encoding="utf-8"))


def write(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.text(), encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)
