# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a loop says: what changed since the last look, and nothing when nothing did."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ..core.clock import to_text
from ..core.task import Task

AGAIN = 300.0  # seconds after which it is said again that nothing can be seen
_PODS = 10
_NUMBERS = ("machines", "wanted", "used", "free", "coming", "waiting")
Result = t.Mapping[str, t.Any]


def under_way(plan: Result) -> bool:
    """Whether the next look should come soon: pods wait, machines come or go, or the last look did not see everything."""
    if plan.get("failed") or plan["outcome"] == "lock_busy" or plan["changed"]:
        return True
    return bool(
        plan["waiting"] or plan["join"] or plan["destroy"] or plan["problems"] or any(entry["coming"] for entry in plan["gpus"])
    )


def state_lines(plan: Result) -> list[str]:
    """Wanted, used, free and waiting GPUs, a line for each pool (S2-18), and the pods that nobody can serve."""
    lines = [f"{entry['pool']}: {', '.join(f'{name} {entry[name]}' for name in _NUMBERS)}" for entry in plan["gpus"]]
    hopeless = [entry for entry in plan["waiting"] if entry["reason"]]
    lines += [f"{entry['pod']} waits for {entry['gpus']} GPUs: {entry['reason']}" for entry in hopeless[:_PODS]]
    return lines + ([f"and {len(hopeless) - _PODS} more pods that get no machine"] if len(hopeless) > _PODS else [])


class Teller:
    """Prints through ``task.progress``. It remembers the last look only, so it stays as small as it is."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._state: list[str] = []
        self._problems: list[str] = []
        self._warned: set[str] = set()
        self._warnings: set[str] = set()
        self._busy = False
        self._blind: datetime | None = None
        self._told = task.clock.now()
        self._first = True

    def say(self, line: str) -> None:
        self._task.progress(f"  {to_text(self._task.clock.now())} {line}")

    def warn(self, text: str) -> None:
        """A warning of a look; said unless the look before had it, too."""
        if text not in self._warned | self._warnings:
            self.say(f"warning: {text}")
        self._warnings.add(text)

    def end(self) -> None:
        """The look is over."""
        self._warned, self._warnings = self._warnings, set()

    def looked(self, plan: Result, lines: t.Sequence[str]) -> None:
        """``lines``: what the plan said; shown when anything is done for it."""
        now = self._task.clock.now()
        if self._blind is not None:
            self.say(f"can look again after {(now - self._blind).total_seconds():.0f} s")
            self._blind = None
        self._busy = False
        state = state_lines(plan)
        for line in state:
            if line not in self._state:
                self.say(line)
        if not state and (self._state or self._first):
            self.say("no machine, and no pod that waits for one")
        self._state, self._first = state, False
        if plan["launch"] or plan["destroy"] or plan["orphans"]:
            for line in lines:
                self._task.progress(line)

    def problems(self, lines: list[str]) -> None:
        for line in lines:
            if line not in self._problems:
                self.say(f"problem: {line}")
        self._problems = lines

    def busy(self, message: str) -> None:
        """Another run holds the lock: one line, however long it does."""
        if not self._busy:
            self.say(f"skipped: {message}")
        self._busy = True

    def failed(self, message: str) -> None:
        """Nothing can be seen, so nothing is done; said at once and then every five minutes."""
        now = self._task.clock.now()
        if self._blind is None:
            self._blind = self._told = now
            self.say(f"cannot look, and does nothing until it can: {message}")
        elif (now - self._told).total_seconds() >= AGAIN:
            self._told = now
            self.say(f"cannot look since {to_text(self._blind)}, and does nothing: {message}")
