# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P1 and P7: a whole ``provision.yml`` against its floor, for own machines in real time and for rented ones at their cloud's pace.

Own machines: real time, each call to the power service and the mesh takes 0.2 s, a machine boots in 20 s. Rented ones: one launch every 12 s,
as Lambda allows, in a world that is twenty times as quick; all that the play itself does counts twenty times there.
"""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from .documents import RENTED, class_and_pool, own, own_world, rented_world
from .floor import Floor, floor
from .processes import playbook
from .results import Measured, Row, measurement
from .world import Run, World

LATENCY, BOOT = 0.2, 20.0
QUICKER = 20.0  # speed of the world of rented machines
PAUSE = 12.0  # seconds between two launches of one account


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    unit: str
    speed: float
    latency: float
    pause: float

    def world(self, folder: Path, count: int) -> World:
        scenario = own_world(count, BOOT) if self.name == "own" else rented_world(count)
        return World(folder, scenario, speed=self.speed, latency=self.latency)

    def documents(self, world: World, count: int) -> Path:
        return world.documents(class_and_pool(own(count) if self.name == "own" else RENTED, count))


OWN = Kind("own", "s", 1.0, LATENCY, 0.0)
PACED = Kind("rented", "s of the world", QUICKER, 0.0, PAUSE)
KINDS = {one.name: one for one in (OWN, PACED)}


def rows(folder: Path, kind: Kind, counts: t.Sequence[int], runs: int, *, once: int) -> t.Iterator[Row]:
    """A row for each number of machines, and one for the run after it that finds nothing to do. More than ``once`` machines have one run."""
    with kind.world(folder / "floor", 1) as world:
        alone = floor(world, kind.documents(world, 1), 0.0)
    for count in counts:
        bound = dataclasses.replace(alone, pauses=kind.pause * (count - 1))
        first, second = [], []
        for number in range(runs if count <= once else 1):
            with kind.world(folder / f"{count}-{number}", count) as world:
                command = playbook("provision", "-e", f"tgp_documents={kind.documents(world, count)}", "-e", f"tgp_nodes={count}")
                first.append(_measured(world, world.run(command), bound, count))
                second.append(measurement(world.run(command)))
        yield Row(
            f"P1 {kind.name} {count}", f"provision.yml, {count} {kind.name} machines", kind.unit, first, dataclasses.asdict(bound)
        )
        yield Row(f"P1 {kind.name} {count} again", "  the same again, with nothing to do", "s", second)


def _measured(world: World, run: Run, bound: Floor, count: int) -> Measured:
    """Ends by the world's log and the end of the process, in seconds of the world."""
    stories = world.stories()
    if len(stories) != count:
        raise SystemExit(f"{len(stories)} of {count} machines are complete after provision.yml")
    usable = sorted(story.usable for story in stories)
    last = max(story.complete for story in stories)
    paid = sum(story.usable - story.created for story in stories) - bound.chain * count
    more = {
        "first node usable": usable[0] - run.began,
        "last node usable": usable[-1] - run.began,
        "machine hours beyond the floor's chain": max(0.0, paid) / 3600,
        "end of the play after the last node": run.ended - last,
    }
    return measurement(run, run.ended - run.began, more)
