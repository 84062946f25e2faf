# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a person moves in and out in the middle of a story (L-48): ``adopt.yml`` of one made by hand, ``release.yml`` of one of ours.
From a release on it is somebody else's; from an adoption on it is ours. And what must hold of their bills."""

from __future__ import annotations

import json
import random
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from sandbox import strangers
from sandbox.world import Machine, cost_until

from .purse import spans_of

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Call, Json, Sight
    from .stage import Order, Stage

WORD_IN, WORD_OUT = "machine moved in", "machine moved out"
PLAYBOOKS = ("adopt", "release")
RENAMED = ("lambda", "paperspace", "vast", "vultr")  # an adopted machine can get its name there
_BOX = "somebodys-box"
_LIST = "tgp-state-released"
_MINUTE = timedelta(seconds=65)


class Moved:
    """What was moved by now, by the world's own tables. ``offered``: ids that people may take in; ``into``: names of their claims since then;
    ``times``: of each machine, when it moved in and out."""

    def __init__(self) -> None:
        self.offered: dict[str, Machine] = {}
        self.into: dict[str, str] = {}
        self.out: dict[str, str] = {}  # ids that were handed out, with the name that they had
        self.closed: set[str] = set()  # of those, ids whose claim is gone, so that the release is over
        self.times: dict[str, list[tuple[str, datetime]]] = {}

    def names(self) -> set[str]:
        """What machines that were taken in are called until they have a name of ours."""
        return {one.name for one in self.offered.values() if one.id in self.into}

    def is_moved(self, identity: str) -> bool:
        return identity in self.times


def released(sight: Sight) -> dict[str, str]:
    """Ids on the list of what was handed out, with the names."""
    if sight.files is not None:
        file = sight.files.root / "state" / "released.json"
        state = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    else:
        found = sight.configmap(_LIST)
        state = json.loads((found.get("data") or {}).get("state.json", "{}")) if found else {}
    return {key.partition("/")[2]: str(entry["name"]) for key, entry in state.items()}


def follow(stage: Stage, call: Call) -> None:
    """After a write to our records: who moved by it."""
    sight = stage.sight
    moved = sight.moved
    if not call.writes or call.service not in ("kubernetes", "directory") or call.run.mode not in PLAYBOOKS or stage.is_twin:
        return
    listed, claims = released(sight), sight.claims()
    held = {number: name for name, claim in claims.items() for number in claim["ids_seen"]}
    for number, name in listed.items():
        if number not in moved.out and number in sight.by_id():
            _leave(stage, sight.by_id()[number], name)
    for number in [one for one in moved.out if one not in held]:
        moved.closed.add(number)
    for number in moved.offered:
        if number in held and number not in listed and number not in moved.into:
            moved.into[number] = held[number]
            moved.out.pop(number, None)
            moved.closed.discard(number)
            moved.times.setdefault(number, []).append(("in", stage.clock.now()))
            sight.foreign.pop(number, None)
            stage.strangers.machines = [one for one in stage.strangers.machines if one.id != number]
            stage.adverse.words[held[number]] = WORD_IN


def _leave(stage: Stage, machine: Machine, name: str) -> None:
    """It is somebody else's from now on, with its Node and its device."""
    sight = stage.sight
    sight.moved.out[machine.id] = name
    sight.moved.into.pop(machine.id, None)
    sight.moved.times.setdefault(machine.id, []).append(("out", stage.clock.now()))
    sight.foreign[machine.id] = machine
    if not stage.sight.silences.short_lived(machine):
        stage.strangers.machines.append(machine)
    if node := sight.nodes().get(name):
        sight.foreign_things.add(("Node", node["metadata"]["uid"]))
    for device in stage.box.tailnet.devices():
        if device.hostname == name:
            sight.foreign_things |= {("device", device.id), ("device", device.node_id)}
    stage.adverse.words[name] = WORD_OUT


# ---- what lines do


def box(stage: Stage, rest: str) -> None:
    """``box lambda``: somebody rents a machine by hand, without a stamp."""
    number = len(stage.sight.moved.offered)
    try:
        machine = strangers.rent(stage.box, rest, f"{_BOX}-{number}")
    except Exception:  # noqa: BLE001 - nothing is left, or a fault met the person
        return
    finally:
        stage.struck.pop(stage.loom.current, None)
    stage.sight.moved.offered[machine.id] = machine
    stage.sight.foreign[machine.id] = machine
    stage.strangers.machines.append(machine)


def join_in(stage: Stage, rest: str) -> None:
    """``joins 0``: the person makes a machine that was taken in a Node under the name of its claim."""
    moved, nodes = stage.sight.moved, stage.nodes()
    names = [one for one in moved.into if moved.into[one] not in nodes and moved.offered[one].state == "active"]
    claims = stage.sight.claims()
    names = [one for one in names if moved.into[one] in claims and moved.offered[one].ended is None]
    if names:
        number = names[int(rest) % len(names)]
        strangers.join(stage.box, moved.offered[number], moved.into[number])


LINES: dict[str, t.Callable[[Stage, str], None]] = {"box": box, "joins": join_in}


def run(stage: Stage, order: Order, run_id: str, said: Json) -> None:
    """What adopt.yml and release.yml do, for one machine. The n-th that may be moved is ``order.nodes``."""
    moved = stage.sight.moved
    if order.playbook == "adopt":
        free = [one for one in moved.offered.values() if one.ended is None and one.id not in moved.times]
        half = [
            one for number, one in moved.offered.items() if number in moved.into and one.ended is None and not is_named(stage, one)
        ]
        if not (chosen := [*half, *free]):
            return
        one = chosen[0 if half else order.nodes % len(chosen)]
        params = {"pool": "training", "provider": one.cloud, "id": one.id, "apply": True}
        said["adopt"] = stage.run("adopt", run_id, check=order.check, **params)
        return
    unfinished = [name for number, name in moved.out.items() if number not in moved.closed]
    names = unfinished or sorted(stage.sight.claims())
    if names:
        said["release"] = stage.run("release", run_id, check=order.check, machine=names[order.nodes % len(names)])


def is_named(stage: Stage, machine: Machine) -> bool:
    return machine.name == stage.sight.moved.into.get(machine.id)


def finish(stage: Stage) -> None:
    """A person runs again what was interrupted, as the documents say. A machine that never became a Node may be ended by then."""
    from .stage import Order

    moved = stage.sight.moved
    for _turn in range(3):
        if any(number not in moved.closed for number in moved.out):
            stage.perform(Order("release"))
        if any(one.ended is None and not is_named(stage, one) for number, one in moved.offered.items() if number in moved.into):
            stage.perform(Order("adopt"))


# ---- the invariants


def I39_what_was_handed_out_is_not_touched(sight: Sight, call: Call) -> str:
    """Once a release is over, no run but one that moves machines changes the machine, its Node or its device; and from its beginning on nothing
    of it is deleted (I-20)."""
    if call.run.mode in PLAYBOOKS or not call.writes or not sight.moved.out:
        return ""
    for number, name in sight.moved.out.items():
        if number not in sight.moved.closed:
            continue
        machine = sight.by_id()[number]
        if call.service == machine.cloud and (number in call.path or f'"{number}"' in call.body):
            return f"{call.method} for machine {number}, which was handed out as {name}"
        node = sight.nodes().get(name)
        there = node is not None and ("Node", node["metadata"]["uid"]) in sight.foreign_things
        if there and call.service == "kubernetes" and call.path.partition("?")[0] == f"/api/v1/nodes/{name}":
            return f"{call.method} for Node {name}, whose machine was handed out"
    return ""


def I39_its_bill_is_that_of_its_time(sight: Sight) -> str:
    """The lines of a machine that was moved are those of its times: each begins when it moved in, or was made, and ends when it moved out, or
    ended, give or take a minute; and costs what the world billed for that time, give or take a minute and a unit that is billed whole."""
    machines = sight.by_id()
    lost = sight.forgotten | sight.unbooked | sight.unwritable
    for number, times in sight.moved.times.items():
        one = machines[number]
        if {one.name, sight.moved.out.get(number), sight.moved.into.get(number)} & lost:
            continue  # a person removed its claim, or nobody could write it
        lines = sorted((line for line in sight.ledger() if number in line["ids"]), key=lambda line: str(line["start"]))
        spans = spans_of(one, times, sight.now)
        if len(lines) != len([end for _start, end in spans if end < sight.now]):
            return f"I-39: {number} has {len(lines)} lines, and was ours {len(spans)} times: {times}"
        for line, (start, end) in zip(lines, spans, strict=False):
            if problem := _wrong(one, line, start, end, exact=(end != one.ended)):
                return f"I-39: {line['name']} ({line['reason']}) {problem}"
    return ""


def _wrong(machine: Machine, line: Json, start: datetime, end: datetime, *, exact: bool) -> str:
    begun, ended = (datetime.fromisoformat(str(line[key]).replace("Z", "+00:00")) for key in ("start", "end"))
    if abs(begun - start) > _MINUTE:
        return f"begins at {begun}, and it was ours from {start}"
    if ended < end - _MINUTE or (exact and ended > end + _MINUTE):
        return f"ends at {ended}, and it was ours until {end}"
    real = cost_until(machine, end) - (cost_until(machine, start) if start > machine.created else Decimal(0))
    unit = machine.price_hour * max(60, machine.offer.unit_seconds) / 3600
    cost = Decimal(line["cost"])
    slack = unit + machine.price_hour / 60
    return f"is booked at ${cost}, billed were ${real}" if cost < real - slack or (exact and cost > real + slack) else ""


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {"I-39": I39_what_was_handed_out_is_not_touched}


# ---- chance


def scenes(ground: Ground, dice: random.Random) -> dict[str, list[str]]:
    """One for each direction. At RunPod nothing can be adopted, and at Google no machine can be renamed, so its Node has another name."""
    clouds = [one.cloud for one in ground.clouds() if one.cloud in RENAMED]
    kill = f" kill={int(dice.triangular(2, 45, 18))}{dice.choice(('', ' after'))}"
    after = dice.choice((["run reap"], ["run autoscale"], ["run provision nodes=2"], ["run destroy"]))
    if ground.has_hub() or ground.has_own() or ground.pool:
        return {}
    out = f"run release nodes={dice.randrange(3)}"
    found = {
        WORD_OUT: [
            f"run provision nodes={dice.choice((1, 2, 2))}",
            *dice.choice(([], ["pod 0 busy"], ["pod 0 guarded"])),
            f"{out}{dice.choice(('', kill, kill))}",
            *dice.choice(([], ["rest 70", "run reap"], ["rest 660", *after])),
            *dice.choice(([], [out])),
            "rest 1300",
            *after,
            "rest 70",
            "run reap",
        ]
    }
    if clouds:
        found[WORD_IN] = [
            *dice.choice(([], ["run provision nodes=1"])),
            f"box {dice.choice(clouds)}",
            "rest 240",
            f"run adopt{dice.choice(('', kill, kill))}",
            *dice.choice(([], ["run reap"], ["run autoscale"])),
            "run adopt",
            "joins 0",
            *dice.choice(
                (["rest 70", "run provision nodes=1"], ["run autoscale", "rest 70", "run autoscale"], ["rest 1900", "run reap"])
            ),
            *dice.choice(([], ["pod 0 busy"], [f"{out}{dice.choice(('', kill))}", out])),
            "rest 660",
            *after,
        ]
    return found
