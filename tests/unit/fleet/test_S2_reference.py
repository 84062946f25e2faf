# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our decisions beside those of k8s-gpu-autoprovision, over random situations of own machines.

``Reference`` is one tick of that program as its behaviour is described (docs/evidence/coverage.md, rows S2): sums of GPUs, machines with a
running GPU pod as the only capacity, one POST down per tick. Each of its defects can be mended by name, and so a difference between it and
us is explained when mending a few of them makes both agree. One that nothing explains is a failure.

    K-01 machines that are off are told to go down, too      K-03 pods that only load their image ask for machines
    K-04 a machine that boots, or idles, is no capacity      K-05 free GPUs of several machines are one sum
    K-06 selectors, taints and gates are not looked at       L-18 while machines come, none goes at all, or one of the same size
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Machine,
    MeshChoice,
    Phase,
    Placement,
    Pod,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.capacity import EPHEMERAL

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, pool, seen, specs
from .pods import GPU, waiting

SITUATIONS = 2000
MENDED = ("K-01", "K-03", "K-04", "K-05", "K-06", "L-18")
Calls = tuple[tuple[str, ...], str]  # POST up to these, POST down to this one ("" = none)


@dataclasses.dataclass(frozen=True)
class Job:
    """A pod: how many GPUs, on which machine ("" = none), and whether anything can ever run it (``odd``: a taint it does not tolerate, a
    selector that no machine has, or a gate)."""

    name: str
    gpus: int
    machine: str = ""
    running: bool = False
    odd: str = ""


@dataclasses.dataclass(frozen=True)
class World:
    """``states``: machine to off, booting or on."""

    sizes: dict[str, int]
    states: dict[str, str]
    jobs: tuple[Job, ...]


class Reference:
    """One tick of the reference, with some of its defects mended."""

    def __init__(self, world: World, mended: frozenset[str]) -> None:
        self.world, self.mended = world, mended
        self.names = sorted(world.sizes, key=lambda name: (world.sizes[name], name))

    def tick(self) -> Calls:
        jobs = [job for job in self.world.jobs if not (job.odd and "K-06" in self.mended)]
        held = [job for job in jobs if job.machine and (job.running or "K-03" in self.mended)]
        waits = [job for job in jobs if not job.running and not (job.machine and "K-03" in self.mended)]
        usage = collections.Counter[str]()
        for job in held:
            usage[job.machine] += job.gpus
        active = [name for name in self.names if self._is_capacity(name, usage)]
        up = self._by_packing(waits, usage, active) if "K-05" in self.mended else self._by_sum(waits, usage, active)
        if up and "L-18" not in self.mended:
            return (tuple(sorted(up)), "")
        return (tuple(sorted(up)), self._down(usage, self._counted_on(waits, usage, active), up))

    def _is_capacity(self, name: str, usage: collections.Counter[str]) -> bool:
        return self.world.states[name] != "off" if "K-04" in self.mended else usage[name] > 0

    def _by_sum(self, waits: list[Job], usage: collections.Counter[str], active: list[str]) -> list[str]:
        needed = sum(job.gpus for job in waits) - sum(self.world.sizes[name] - usage[name] for name in active)
        up = []
        for name in self.names:
            if needed > 0 and name not in active:
                up.append(name)
                needed -= self.world.sizes[name]
        return up

    def _pack(self, waits: list[Job], free: dict[str, int]) -> tuple[dict[str, str], list[Job]]:
        """First fit, the largest first."""
        left, placed = [], {}
        for job in sorted(waits, key=lambda one: (-one.gpus, one.name)):
            where = next((name for name, room in free.items() if room >= job.gpus), None)
            if where is None:
                left.append(job)
            else:
                free[where] -= job.gpus
                placed[job.name] = where
        return placed, left

    def _free(self, usage: collections.Counter[str], active: list[str]) -> dict[str, int]:
        order = sorted(active, key=lambda name: (self.world.states[name] != "on", name))
        return {name: self.world.sizes[name] - usage[name] for name in order}

    def _by_packing(self, waits: list[Job], usage: collections.Counter[str], active: list[str]) -> list[str]:
        """The smallest machine that holds the largest pod, filled up; then the next."""
        _placed, left = self._pack(waits, self._free(usage, active))
        up: list[str] = []
        while left:
            fitting = [
                name for name in self.names if name not in active and name not in up and self.world.sizes[name] >= left[0].gpus
            ]
            if not fitting:
                left = left[1:]
                continue
            up.append(fitting[0])
            left = self._pack(left, {fitting[0]: self.world.sizes[fitting[0]]})[1]
        return up

    def _counted_on(self, waits: list[Job], usage: collections.Counter[str], active: list[str]) -> set[str]:
        if "K-05" not in self.mended:
            return set()
        return set(self._pack(waits, self._free(usage, active))[0].values())

    def _down(self, usage: collections.Counter[str], counted_on: set[str], up: list[str]) -> str:
        coming = {self.world.sizes[name] for name in self.names if self.world.states[name] == "booting" or name in up}
        idle = [name for name in self.names if not usage[name] and name not in counted_on]
        if "K-01" in self.mended:
            idle = [name for name in idle if self.world.states[name] == "on"]
        if "L-18" in self.mended:
            idle = [name for name in idle if self.world.sizes[name] not in coming]
        largest = max((self.world.sizes[name] for name in idle), default=0)
        return next((name for name in sorted(idle) if self.world.sizes[name] == largest), "")


def ours(world: World) -> Calls:
    """What our plan does, without a grace time, with one machine down per run."""
    machines = tuple(Machine(name, size, "http://up", "http://down") for name, size in world.sizes.items())
    own = node_class(clouds=[CloudChoice("webhook", machines=machines)], mesh=MeshChoice("none"))
    offers = {
        name: offer("0", id=name, cloud="webhook", gpu_count=size, model="", instance_type="own")
        for name, size in world.sizes.items()
    }
    claims, nodes, instances = [], [], []
    for name, state in world.states.items():
        if state == "off":
            continue
        phase = Phase.READY if state == "on" else Phase.BOOTING
        late = {} if state == "on" else {"launch_started": at("11:58"), "created": at("11:58")}
        claims.append(claim(name, phase, offer=offers[name], instance_id=name, ids_seen=(name,), **late))
        if state == "on":
            nodes.append(node(name, allocatable={GPU: world.sizes[name]}, taints=(EPHEMERAL,)))
            instances.append(instance(name, cloud="webhook", id=name, gpu_count=world.sizes[name], created=None))
    pods = tuple(map(_pod, world.jobs))
    view = {"webhook": CloudView(tuple(instances), tuple(offers.values()))}
    wanted = specs(pool(consolidate_after=0, min_age=0, idle_mode="gpu"), classes=(own,))
    facts = {"clouds": view, "claims": tuple(claims), "nodes": tuple(nodes), "pods": pods, "devices": None}
    found = decide(seen(NOON, **facts), wanted, "autoscale", max_remove_per_run=1)
    down = [one.name for one in of(found, "destroy")]
    assert len(down) <= 1, found.actions
    return (tuple(sorted(one.name for one in of(found, "launch"))), down[0] if down else "")


def _pod(job: Job) -> Pod:
    tolerated = (Toleration("tgp.io/ephemeral", "Exists"),) if job.odd != "taint" else ()
    facts = {"placement": Placement(tolerations=tolerated, selector=(("zone", "moon"),) if job.odd == "selector" else ())}
    if job.machine:
        return waiting(job.name, job.gpus, phase="Running" if job.running else "Pending", node=job.machine, waiting="", **facts)
    return waiting(job.name, job.gpus, **facts, **({"waiting": "SchedulingGated"} if job.odd == "gate" else {}))


def situation(dice: random.Random) -> World:
    sizes = {f"rack-{number}": dice.choice((1, 2, 4, 8)) for number in range(1, dice.randint(2, 6))}
    states = {name: dice.choice(("off", "off", "booting", "on", "on")) for name in sizes}
    jobs: list[Job] = []
    for name, size in sizes.items():
        free = size
        while states[name] == "on" and free and dice.random() < 0.5:
            gpus = dice.randint(1, free)
            jobs.append(Job(f"job-{len(jobs)}", gpus, name, dice.random() < 0.8))
            free -= gpus
    for _one in range(dice.choice((0, 0, 1, 1, 2, 3))):
        odd = dice.choice(("", "", "", "", "taint", "selector", "gate"))
        jobs.append(Job(f"job-{len(jobs)}", dice.choice((1, 1, 2, 4, 8)), odd=odd))
    return World(sizes, states, tuple(jobs))


def explanation(world: World, decided: Calls) -> tuple[str, ...] | None:
    """The fewest defects that explain why the reference differs; () when it does not."""
    for count in range(len(MENDED) + 1):
        for some in itertools.combinations(MENDED, count):
            if Reference(world, frozenset(some)).tick() == decided:
                return some
    return None


def test_S2_every_difference_to_the_reference_has_a_name() -> None:
    dice = random.Random(20250630)
    found: collections.Counter[str] = collections.Counter()
    for number in range(SITUATIONS):
        world = situation(dice)
        decided = ours(world)
        why = explanation(world, decided)
        assert why is not None, (number, world, decided, Reference(world, frozenset(MENDED)).tick())
        found[" and ".join(why) or "the same calls"] += 1
    print(f"{SITUATIONS} situations: " + ", ".join(f"{what} {count}" for what, count in found.most_common()))
    assert found["the same calls"] > SITUATIONS / 10
    assert {name for what in found for name in MENDED if name in what} == set(MENDED), "each of them was met"


def test_S2_a_tick_without_its_defects_is_ours() -> None:
    dice = random.Random(7)
    for _number in range(500):
        world = situation(dice)
        assert Reference(world, frozenset(MENDED)).tick() == ours(world), world
