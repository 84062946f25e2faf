# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines behind power webhooks: a fixed list with names of its own, of which one or the other is in use without us."""

from __future__ import annotations

import random
import typing as t
from datetime import timedelta
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.units.values import parse_duration

from sandbox.world import Machine

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Call, Sight
    from .stage import Stage

CLOUD = "webhook"
FIELD = "deleteStoppedAfter"
_CLOCKS = timedelta(seconds=130)  # by which a note may be ahead, and clocks be wrong
PRICE = "0.30"
NAMES = ("rack-1", "rack-2", "rack-3", "rack-4")
IN_USE = "rack-9"  # of the same list; its owner switched it on and works there
MACHINES = [{"name": name, "gpus": 1, "boot": 20, "price": PRICE} for name in (*NAMES, IN_USE)]


def entries() -> list[dict[str, t.Any]]:
    """The machines as a class lists them."""
    return [
        {
            "name": name,
            "gpuCount": 1,
            "gpuType": "RTX3090",
            "hourlyCost": PRICE,
            "scaleUpEndpoint": f"/{name}/start",
            "scaleDownEndpoint": f"/{name}/stop",
            "statusEndpoint": f"/{name}/status",
        }
        for name in (*NAMES, IN_USE)
    ]


def is_own(machine: Machine) -> bool:
    return machine.cloud == CLOUD


def install(stage: Stage) -> None:
    """The owner's machine runs; from now on a power-on is one of our runs, or :func:`by_hand`. A machine begins a new life with it: what
    befell it in the one before does not count."""
    sight, world = stage.sight, stage.world
    for one in world.machines.values():
        if is_own(one):
            one.details["system"] = "ubuntu" if stage.ground.lane == "kubelet" else "talos"
    mine = world.machines[IN_USE]
    world.power_on(mine)
    sight.foreign[mine.id] = mine
    stage.strangers.machines.append(mine)
    plain = world.power_on

    def power_on(machine: Machine, payload: str | None = None) -> bool:
        starts = machine.state not in ("starting", "on")
        if starts:
            machine.details.pop("struck", None)
            sight.started.add(machine.name)
            sight.gpus_lost.pop(machine.name, None)
            for names in (sight.forgotten, sight.asked, sight.misread, sight.given_up):
                names.discard(machine.name)
        return plain(machine, payload)

    world.power_on = power_on  # type: ignore[method-assign]
    stage.by_hand = lambda machine: plain(machine)


def by_hand(stage: Stage, place: int) -> None:
    """The owner switches on a machine that is off and that no claim names."""
    sight = stage.sight
    taken = set(sight.claims()) | stage.adverse.records | set(sight.foreign)
    free = [one for one in stage.world.machines.values() if is_own(one) and one.state == "off" and one.name not in taken]
    if free:
        one = free[place % len(free)]
        sight.started.discard(one.name)
        sight.unbooked.add(one.name)
        sight.outdated.discard(one.id)
        sight.foreign[one.id] = one
        one.details.pop("struck", None)
        stage.by_hand(one)


def follow(stage: Stage, call: Call) -> None:
    """Before a call: a run takes a machine whose webhook told an old status since its owner switched it on. The power-on answers that it is
    on already, which is success by docs/reference/rules.md, so it counts as ours from now on."""
    sight = stage.sight
    if not sight.outdated:
        return
    for number in sight.outdated & set(call.claim().get("ids_seen") or ()):
        sight.outdated.discard(number)
        if (one := sight.foreign.pop(number, None)) is not None:
            sight.started.add(one.name)


def put_away(stage: Stage) -> None:
    """Owners have no more use for what they switched on, and for what runs without a claim because somebody removed it by hand."""
    sight = stage.sight
    for one in list(stage.world.machines.values()):
        lent = one.id in sight.foreign and one.name != IN_USE
        if is_own(one) and (lent or (one.name in sight.forgotten and one.name not in sight.claims())):
            sight.foreign.pop(one.id, None)
            stage.world.power_off(one)
            for device in stage.box.tailnet.devices():
                if device.hostname == one.name:
                    stage.box.tailnet.leave(device.node_id)


# ---- chance


def draw(ground: Ground, seed: str) -> tuple[list[str], float]:
    """In four of ten stories the pool has its second timer: machines stop, some are switched on again, and runs come when it may be over."""
    dice = random.Random(f"stopped {seed}")
    if not ground.has_own() or dice.random() >= 0.4:
        return [], 0.0
    after = dice.choice(("0s", "5m", "20m", "1h"))
    kill = f" kill={int(dice.triangular(1, 60, 20))}{dice.choice(('', ' after'))}" if dice.random() < 0.4 else ""
    end = dice.choice(("run destroy", "rest 660"))
    between = dice.choice(([], [f"hand {dice.randrange(4)}"], ["demand 1", "run autoscale"], ["run provision nodes=1"]))
    rest = f"rest {dice.choice((70, 400, 1300, 4000))}"
    return [
        f"change {FIELD} {after}", f"run provision nodes={dice.choice((1, 2))}", end, "run reap", "rest 70", "run reap", *between, rest,
        f"run reap{kill}", "rest 70", "run reap",
    ], dice.random()  # fmt: skip


# ---- checks


def may_be_on(sight: Sight, name: str) -> bool:
    """Whether it is an own machine that a claim names and that nobody else switched on: a lost answer does not tell whether it is on."""
    return name in NAMES and name in sight.claims() and not any(one.name == name for one in sight.foreign.values())


def I03_one_without_a_claim_stays_on(sight: Sight, machines: t.Iterable[Machine]) -> str:
    """A machine is switched off only while a claim names it: a list of machines says nothing about who switched them on."""
    loose = [one.name for one in machines if is_own(one) and one.name not in sight.claims()]
    return f"{', '.join(loose)} is switched off, and no claim names it" if loose else ""


def I13_each_machine_is_booked(sight: Sight, *, strict: bool) -> tuple[str, Decimal, Decimal]:
    """One name has many lines. Together they are its hours since the first power-on, give or take a minute for each; not judged where a
    claim was removed or the owner ran the machine. The problem, their bill, ours."""
    problem, theirs, ours = "", Decimal(0), Decimal(0)
    for one in sight.by_id().values():
        lines = [line for line in sight.ledger() if one.id in line["ids"]]
        booked = sum((Decimal(line["cost"]) for line in lines), Decimal(0))
        if not is_own(one) or one.name in sight.unbooked or one.id in sight.foreign:
            continue
        real, slack = one.cost(sight.now), Decimal(PRICE) / 60 * max(1, one.boots)
        if booked < real - slack or (strict and booked > real + slack):
            problem = problem or f"I-13: {one.name} is booked at ${booked} in {len(lines)} lines, it cost ${real}"
        theirs, ours = theirs + real, ours + booked
    return problem, theirs, ours


def node_that_goes(sight: Sight, call: Call) -> Machine | None:
    """The own machine whose Node the call deletes."""
    name = call.deleted("/api/v1/nodes/") if call.service == "kubernetes" else ""
    return next((one for one in sight.by_id().values() if is_own(one) and one.name == name), None)


def I40_the_node_of_a_stopped_machine_waits(sight: Sight, call: Call) -> str:
    """Its Node goes only when no claim names the machine, and it has been off for as long as its pool's document says or said."""
    one = node_that_goes(sight, call)
    if one is None:
        return ""
    if one.name in sight.claims():
        return f"the Node of {one.name} goes, and a claim names it"
    said = [text for spec in sight.told(one) if (text := (spec.get("disruption") or {}).get(FIELD, "Never")) != "Never"]
    if not said:
        return f"the Node of {one.name} goes, and its pool has no {FIELD}"
    if one.ended is None:
        return f"the Node of {one.name} goes, and the machine is {one.state}"
    if one.name in sight.unbooked:
        return ""  # its owner may have switched it on and off again between two runs
    waits = min(timedelta(seconds=parse_duration(text) or 0) for text in said)
    off = sight.now - one.ended
    return f"the Node of {one.name} goes {off} after it stopped, which is before {waits}" if off < waits - _CLOCKS else ""


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {"I-40": I40_the_node_of_a_stopped_machine_waits}
