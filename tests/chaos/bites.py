# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One wrong decision of the collection for each of some invariants, and how many runs it takes until the invariant catches it."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet import guard
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import RequestReason
from ansible_collections.tgp.gpu.plugins.module_utils.operations.moving import release_machine
from ansible_collections.tgp.gpu.plugins.module_utils.planner import cluster_state, pauses
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost import cost as costs
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import (
    drain_rules,
    emptiness,
    expiration,
    idleness,
    voluntary,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import document_gone, stopped_machines
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import Ownership
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import (
    acceptance,
    pre_pull,
    replacements,
    requested_capacity,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import scale_up
from ansible_collections.tgp.gpu.plugins.module_utils.runs import plan

from . import switches
from .story import Story, Violated

Patch = tuple[t.Any, str, t.Any]


@dataclasses.dataclass(frozen=True)
class Bite:
    """``fault`` in words, ``patches`` make it; the story of ``lines`` on ``ground`` shows it, with its last line or ``at_rest``."""

    fault: str
    patches: t.Callable[[], list[Patch]]
    ground: str
    lines: tuple[str, ...]
    needs: str = ""  # a switch that has to be on
    at_rest: bool = True


def _expired(*_given: t.Any) -> expiration.Age:
    return expiration.Age(None, True, "a wrong decision")


def _no_floor(candidates: t.Iterable[t.Any], live: int, _floor: int, most: int | None = None) -> voluntary.Removal:
    return _CHOOSE(candidates, live, 0, most)


def _silent(*given: t.Any, **more: t.Any) -> dict[str, t.Any]:
    return {**_RESULT(*given, **more), "problems": []}


def _no_disk(price: t.Any, disk: t.Any, *given: t.Any, **more: t.Any) -> t.Any:
    return _BILLED(price - disk, disk * 0, *given, **more)


def _passed(*_given: t.Any) -> acceptance.TrialVerdict:
    return acceptance.TrialVerdict(acceptance.TrialOutcome.PASSED)


def _provisioned_at_once(draft: t.Any, request: t.Any, _text: str) -> t.Any:
    return requested_capacity._provisioned(draft, request, RequestReason.PROVISIONED, {}, {})


def _half(*given: t.Any, **more: t.Any) -> dict[str, t.Any]:
    line = _LINE(*given, **more)
    return {**line, "cost": str(Decimal(line["cost"]) / 2)}


_CHOOSE, _RESULT, _BILLED, _LINE = voluntary.choose, plan.result_of, costs.billed, release_machine.ledger_line
_CUT = 'behave {"kind": "cut_off", "seconds": 900, "times": 1}'
_IDLE = ("rest 660", "run reap") * 3
BITES: dict[str, Bite] = {
    "I-17": Bite(
        "planner/disruption/emptiness.counts: no pod counts",
        lambda: [(one, "counts", lambda *_given: False) for one in (emptiness, drain_rules)],
        "lambda",
        ("run provision nodes=1", "pod 0 busy", *_IDLE),
    ),
    "I-18": Bite(
        "planner/disruption/expiration.age_of: every machine is expired",
        lambda: [(expiration, "age_of", _expired)],
        "lambda",
        ("run provision nodes=1", "rest 70", "run reap"),
    ),
    "I-19": Bite(
        "planner/disruption/candidate_order.choose: minNodes is ignored",
        lambda: [(voluntary, "choose", _no_floor)],
        "lambda",
        ("min 1", "run provision nodes=1", *_IDLE),
    ),
    "I-20": Bite(
        "planner/cluster_state.owner: everything is ours",
        lambda: [
            (cluster_state.Situation, "ownership", lambda *_given: Ownership.OURS),
            (cluster_state.Situation, "is_ours", lambda *_given: Ownership.OURS),
        ],
        "runpod",
        (
            "run provision nodes=1",
            "foreign machine 1 unstamped",
            "jump 900",
            "run reap",
            "rest 70",
            "run reap",
            "rest 70",
            "run reap",
        ),
    ),
    "I-21": Bite(
        "planner/garbage_collection/document_gone.reconcile: no document is ever gone",
        lambda: [(document_gone, "reconcile", lambda _draft: None)],
        "runpod",
        ("run provision nodes=1", "rest 660", "document vanish training"),
    ),
    "I-22": Bite(
        "planner/disruption/emptiness.emptiness_blocked: idle at once",
        lambda: [(emptiness, "emptiness_blocked", lambda *_given: ""), (idleness, "growth", lambda *_given: lambda _claim: "")],
        "lambda",
        (),
        "I-22",
    ),
    "I-23": Bite(
        "runs/plan.result_of: problems are not told",
        lambda: [(plan, "result_of", _silent)],
        "lambda",
        ("stock 0 0", "stock 1 0", "run provision nodes=1"),
    ),
    "I-24": Bite(
        "planner/cost/cost.cost: disks cost nothing",
        lambda: [(costs, "billed", _no_disk)],
        "vast",
        ("min 1", "run provision nodes=1", "rest 7200"),
    ),
    "I-28": Bite(
        "planner/pauses.of: nothing is ever paused",
        lambda: [(pauses.Pauses, "of", lambda *_given: None)],
        "lambda",
        ("run provision nodes=1", "pause training", *_IDLE),
    ),
    "I-34": Bite(
        "planner/scheduling/scale_up: pods belong to no gang",
        lambda: [(scale_up, "gangs", lambda *_given: ())],
        "lambda",
        ("limits 2 10.00 8", "ask gang jobset 3", "rest 30", "run autoscale"),
        at_rest=False,
    ),
    "I-32": Bite(
        "planner/provisioning/acceptance.assess: every test passes",
        lambda: [(acceptance, "assess", _passed)],
        "lambda",
        ("change acceptance vectoradd", 'behave {"kind": "bad_gpu", "times": 1}', "run provision nodes=1"),
        at_rest=False,
    ),
    "I-35": Bite(
        "planner/provisioning/requested_capacity: machines on their way are room",
        lambda: [(requested_capacity, "_waits", _provisioned_at_once)],
        "lambda",
        ("limits 3 10.00 8", "ask request 2", "rest 30", "run autoscale"),
        at_rest=False,
    ),
    "I-36": Bite(
        "planner/provisioning/pre_pull.wanted: no node pulls anything",
        lambda: [(pre_pull, "wanted", lambda *_given: None)],
        "lambda",
        ("change prePull there", "run provision nodes=1"),
        at_rest=False,
    ),
    "I-37": Bite(
        "planner/provisioning/replacements: each replacement is usable at once",
        lambda: [(replacements.Replacements, "usable", lambda _self, name: bool(name))],
        "lambda",
        ("limits 3 10.00 8", "run provision nodes=1", "pod 0 busy", "rest 1300", "mesh wireguard", *("run migrate", "rest 5") * 3),
        at_rest=False,
    ),
    "I-38": Bite(
        "bootstrap/kubelet/guard: its program is empty",
        lambda: [(guard, "GUARD", "\n")],
        "lambda",
        ("guard 1h Never", _CUT, "run provision nodes=1", "silence 9000"),
        at_rest=False,
    ),
    "I-39": Bite(
        "operations/moving/release_machine: half of the bill is booked",
        lambda: [(release_machine, "ledger_line", _half)],
        "lambda",
        ("run provision nodes=1", "rest 3600", "run release"),
    ),
    "I-40": Bite(
        "planner/garbage_collection/stopped_machines: the time of each stopped machine is over",
        lambda: [(stopped_machines.Stopped, "goes", lambda one, _now: one.ends is not None)],
        "own",
        (
            "change deleteStoppedAfter 1h",
            "run provision nodes=1",
            "rest 70",
            "run destroy",
            "rest 120",
            "run reap",
            "rest 70",
            "run reap",
        ),
    ),
    "I-33": Bite(
        "planner/offers/launch_backoff.keys_after: no failure blocks anything",
        lambda: [(launch_backoff, "keys_after", lambda *_given: ())],
        "lambda",
        ("change acceptance vectoradd", 'behave {"kind": "hanging_gpu", "times": 1}', "run provision nodes=1"),
        at_rest=False,
    ),
}


@contextlib.contextmanager
def broken(patches: t.Iterable[Patch]) -> t.Iterator[None]:
    """While it lasts, decisions are wrong."""
    undo = []
    try:
        for owner, name, value in patches:
            undo.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def until_caught(number: str, stories: t.Iterable[Story]) -> tuple[int, str]:
    """Runs played until the invariant ``number`` was the first to be broken, and what it said; -1 when none of the stories broke it."""
    runs = 0
    for story in stories:
        said: list[str] = []
        with broken(BITES[number].patches()):
            try:
                runs += story.play(said.append).runs
            except Violated as error:
                runs += len(said) + 1
                if any(line.startswith(f"{number}:") for line in str(error).splitlines()):
                    return runs, str(error).splitlines()[0]
    return -1, f"not within {runs} runs"


def directed(number: str) -> Story:
    """The story that shows the fault."""
    return Story(BITES[number].ground, "bite", BITES[number].lines)


def table(most: int, say: t.Callable[[str], None]) -> int:
    """The table (invariant, fault, runs until caught): by stories drawn by chance, at most ``most``, and by one that is made for it."""
    say(f"{'':5} {'fault':48} {'runs of drawn stories':>22} {'runs of its own story':>22}")
    missed = 0
    for number, bite in sorted(BITES.items()):
        if bite.needs and not switches.on(bite.needs):
            say(f"{number:5} {bite.fault:48} {'off: ' + switches.OFF[bite.needs]:>22}")
            continue
        drawn, _word = until_caught(number, (Story.draw(bite.ground, f"bite/{one}") for one in range(most)))
        own, word = until_caught(number, [directed(number)])
        missed += own < 0
        say(f"{number:5} {bite.fault:48} {drawn if drawn >= 0 else 'none':>22} {own if own >= 0 else 'none':>22}  {word[:90]}")
    return missed
