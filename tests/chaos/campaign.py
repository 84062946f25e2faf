# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches and teardowns on one cloud with faults drawn at random, and the comparison with what the world knows."""

from __future__ import annotations

import copy
import dataclasses
import random
import typing as t
from decimal import Decimal
from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.errors import TgpError

from sandbox.world import Machine

from ..contract.act.rig import Rig

WINDOW = 660  # seconds: longer than a create call may stay unexplained (L-2), and than a list may lack a machine
MOST_RUNS = 14  # after the last fault everything has to be gone within so many


@dataclasses.dataclass(frozen=True)
class Ground:
    """One cloud of a campaign: which calls of its API create, destroy, list and show, as expressions; what its class and pool say."""

    cloud: str
    create: tuple[str, str]
    destroy: tuple[str, str]
    lists: str
    offers: str
    scenario: dict[str, t.Any]
    settings: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    pool: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    unit: int = 60  # seconds that may be billed more or less than known; what takes 0.3 s here is a minute of the world's


def rules(ground: Ground, dice: random.Random) -> list[dict[str, t.Any]]:
    """Up to three things that go wrong, anywhere between us and the cloud."""
    create, destroy = ground.create, ground.destroy
    menu: list[tuple[str, str, dict[str, t.Any]]] = [
        (*create, {"kind": "lost_before"}),
        (*create, {"kind": "lost_after"}),
        (*create, {"kind": "status", "status": 500}),
        (*create, {"kind": "status", "status": 503}),
        (*create, {"kind": "status_after", "status": 502}),
        (*create, {"kind": "status", "status": 429}),
        (*create, {"kind": "truncate"}),
        (*create, {"kind": "body", "body": {"surprise": True}}),
        (*destroy, {"kind": "lost_before"}),
        (*destroy, {"kind": "lost_after"}),
        (*destroy, {"kind": "status", "status": 500}),
        (*destroy, {"kind": "status_after", "status": 503}),
        ("GET", ground.lists, {"kind": "status", "status": 502, "times": 2}),
        ("GET", ground.lists, {"kind": "body", "body": []}),
        ("GET", ground.lists, {"kind": "truncate"}),
        ("GET", ground.lists, {"kind": "lost_before"}),
        ("GET", ground.lists, {"kind": "body", "body": "<html>maintenance</html>"}),
        ("", ground.offers, {"kind": "status", "status": 500, "times": 1}),
    ]
    return [
        {"service": ground.cloud, "method": method, "path": path, "after_calls": dice.choice((0, 0, 0, 1)), **rule}
        for method, path, rule in dice.sample(menu, dice.choice((1, 1, 2, 3)))
    ]


@dataclasses.dataclass
class Report:
    """What a campaign saw: ``made`` machines of the world, ``faults`` that struck, ``stories`` of runs that ended badly."""

    runs: int = 0
    made: int = 0
    faults: int = 0
    bill: Decimal = Decimal(0)
    ours: Decimal = Decimal(0)
    stories: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.faults} faults struck, {self.made} machines made, 0 left, "
            f"our bill ${self.ours:.4f}, the world's ${self.bill:.4f}"
        )


class Campaign:
    """``run(number)`` plays one story from its own seed and brings the world back to nothing."""

    def __init__(self, ground: Ground, folder: Path, seed: int) -> None:
        self.ground, self.seed = ground, seed
        folder.mkdir(parents=True)
        self.rig = Rig(folder, **{"machines": [], "lambda": [], **copy.deepcopy(ground.scenario)})
        self.rig.demo_class["providers"] = [{"name": ground.cloud, "settings": ground.settings}]
        self.rig.training.clear()
        self.rig.training.update(
            {
                "nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"},
                "maxHourlyPrice": "4.00",
                **copy.deepcopy(ground.pool),
            }
        )
        self.rig.documents = [one for one in self.rig.documents if one["metadata"]["name"] in ("demo", "training")]
        self.report = Report()
        self.known: set[str] = set()

    def close(self) -> None:
        self.rig.close()

    def run(self, number: int) -> None:
        dice = random.Random(f"{self.seed}/{self.ground.cloud}/{number}")
        rig = self.rig
        added = [rig.faults.add(rule) for rule in rules(self.ground, dice)]
        wanted = dice.choice((1, 1, 2))
        try:
            rig.rent(nodes=wanted)
            if dice.random() < 0.3:
                rig.join()
                rig.advance(3600)  # long enough for the bill to mean something
            if dice.random() < 0.5:
                rig.destroy()
        except TgpError:
            pass  # said clearly, by name; what it left behind is what the rest of the story is about
        struck = [one for one in added if one.hits]
        self.report.faults += sum(one.hits for one in struck)
        rig.faults.clear()
        self.settle(number)
        self.check(number, blind=bool(struck))

    def settle(self, number: int) -> None:
        """No faults any more: runs of reap and destroy, some minutes apart, until nothing is left (I-10)."""
        rig = self.rig
        for _turn in range(MOST_RUNS):
            rig.destroy() if rig.claims() else rig.reap()
            if not self.left():
                return
            rig.advance(WINDOW)
        raise AssertionError(f"story {number} of seed {self.seed}: left after {MOST_RUNS} runs: {self.left()}")

    def left(self) -> dict[str, int]:
        return self.rig.left()

    def machines(self) -> list[Machine]:
        with self.rig.world.lock:
            return [one for one in self.rig.world.machines.values() if one.cloud == self.ground.cloud]

    def check(self, number: int, *, blind: bool) -> None:
        """I-2 and I-13: every machine the world made is in exactly one line of the ledger, and the line costs what the world billed,
        give or take one unit. ``blind``: calls failed meanwhile; then a line may say more, for time in which nobody could know that the
        machine was gone, and never less."""
        rig, where = self.rig, f"story {number} of seed {self.seed}"
        lines = rig.ledger()
        booked = [one for line in lines for one in line["ids"]]
        assert sorted(booked) == sorted(set(booked)), f"{where}: booked twice"
        made = {one.id: one for one in self.machines()}
        assert set(made) == set(booked), f"{where}: {set(made) ^ set(booked)} are in the world's list or in ours, not in both"
        now = rig.clock.now()
        for line in lines:
            if not set(line["ids"]) - self.known:
                continue
            theirs = sum((made[one].cost(now) for one in line["ids"]), Decimal(0))
            unit = Decimal(line["price_hour"]) * self.ground.unit / 3600 * len(line["ids"])
            over = Decimal(line["cost"]) - theirs
            assert over >= -unit and (blind or over <= unit), (where, line, theirs)
            self.report.bill += theirs
            self.report.ours += Decimal(line["cost"])
        self.known |= set(booked)
        self.report.runs += 1
        self.report.made = len(made)
