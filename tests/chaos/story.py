# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One story from its lines to its rest, and what is judged when it has come to rest."""

from __future__ import annotations

import collections
import dataclasses
import random
import tempfile
import typing as t
from decimal import Decimal
from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import begin_generation

from . import endings, steps
from .grounds import NAMED
from .loom import Loom, Stuck
from .sight import Limits
from .stage import Stage
from .weaving import woven

_UNCLEAN = (
    "strike", "behave", "jump", "forget", "race", "price", "skew", "outage", "slowness", "refuse", "record", "revoke", "foreign", "twin",
    "silence", "lifetime",
)  # fmt: skip


class Violated(AssertionError):
    """The story broke an invariant; the message says which, where, and how to see it again."""


@dataclasses.dataclass
class Sum:
    """What stories amounted to."""

    stories: int = 0
    violations: int = 0  # stories that ended with one; what they amounted to does not count
    runs: int = 0
    calls: int = 0
    faults: int = 0
    kills: int = 0
    made: int = 0
    days: float = 0.0
    bill: Decimal = Decimal(0)
    ours: Decimal = Decimal(0)
    changed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # ingredient to runs

    def add(self, other: Sum) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return (
            f"{self.stories} stories, {self.runs} runs, {self.calls} calls, {self.faults} faults struck, {self.kills} kills, "
            f"{self.made} machines made, {self.days:.0f} days lived, our bill ${self.ours:.2f}, the world's ${self.bill:.2f}, "
            f"violations {self.violations}"
        )


def limits_of(seed: str, lines: t.Iterable[str]) -> Limits:
    """By chance; wide ones where a budget shall be what bounds, and those that a line names."""
    lines = list(lines)
    for line in lines:
        if line.startswith("limits "):
            nodes, cost, gpus = line.split()[1:]
            return Limits(int(nodes), Decimal(cost), int(gpus))
    if any(line.startswith("budget") for line in lines):
        return Limits(4, Decimal("10.00"), 8)
    dice = random.Random(f"limits {seed}")
    return Limits(dice.choice((2, 3, 3, 4)), Decimal(dice.choice(("0.95", "1.60", "10.00"))), dice.choice((2, 4, 8)))


@dataclasses.dataclass(frozen=True)
class Story:
    """``ground``, ``seed`` and ``lines`` say all that will happen."""

    ground: str
    seed: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, ground: str, seed: str) -> Story:
        return cls(ground, seed, tuple(steps.draw(NAMED[ground], f"{ground} {seed}")))

    @classmethod
    def draw_small(cls, ground: str, seed: str) -> Story:
        return cls(ground, seed, tuple(steps.draw_small(NAMED[ground], f"{ground} {seed}")))

    @classmethod
    def parse(cls, text: str) -> Story:
        """As :meth:`text` wrote it; empty lines and lines after ``#`` do not count."""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        first = lines.pop(0).split()
        if len(first) != 4 or (first[0], first[2]) != ("ground", "seed") or first[1] not in NAMED:
            raise ValueError("a story begins with a line `ground <name> seed <seed>`")
        return cls(first[1], first[3], tuple(lines))

    def text(self) -> str:
        return "\n".join([f"ground {self.ground} seed {self.seed}", *self.lines]) + "\n"

    def play(
        self,
        say: t.Callable[[str], None] = lambda _line: None,
        *,
        sabotage: t.Callable[[Stage], None] = lambda _stage: None,
        to_rest: bool = True,
    ) -> Sum:
        """Play it; Violated when something was broken on the way or at the end. ``sabotage`` may break the world first. Not ``to_rest``: it
        ends with its last line, so there is no bill."""
        limits = limits_of(f"{self.ground} {self.seed}", self.lines)
        begin_generation(kept=2)  # the secrets of stories long past need not be looked for
        loom = Loom(f"{self.ground} {self.seed}")
        with tempfile.TemporaryDirectory(prefix="tgp-chaos-") as folder, woven(loom):
            stage = Stage(Path(folder), loom, NAMED[self.ground], limits)
            try:
                sabotage(stage)
                began = stage.clock.now()
                for number, line in enumerate(self.lines, 1):
                    for one in steps.play(stage, line):
                        say(f"{stage.clock.now():%d %H:%M:%S}  {one.run.name} {one.order.playbook}: {one.end} {one.error}")
                    self._whole(stage, f"line {number}: {line}")
                blind = bool(stage.strikes or stage.kills)
                bill = ours = Decimal(0)
                if to_rest:
                    stage.well_again()
                    bill, ours = endings.settle(stage, blind=blind, unclean=self._unclean(stage))
                self._whole(stage, "the end")
                days = (stage.clock.now() - began).total_seconds() / 86400
                return Sum(
                    1, 0, stage.runs, stage.calls, stage.strikes, stage.kills, len(stage.sight.made()), days, bill, ours,
                    collections.Counter(stage.adverse.counts),
                )  # fmt: skip
            except (Stuck, endings.Unsettled) as error:
                raise Violated(f"{error}\n{self.text()}") from error
            finally:
                stage.close()
                loom.close()

    def _unclean(self, stage: Stage) -> bool:
        """Whether machines were taken away or time leapt, so that nobody could know the last moment they lived; or Paperspace had no room for
        one that it had made, which is off then by itself, and booked until a run sees that."""
        homeless = any(one.cloud == "paperspace" and not one.placed for one in stage.sight.made())
        return homeless or any(line.startswith(_UNCLEAN) for line in self.lines)

    def _whole(self, stage: Stage, where: str) -> None:
        if stage.broken:
            raise Violated("\n".join([*stage.broken[:5], f"at {where}", self.text()]))
