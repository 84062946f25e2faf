# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acceptance tests of new nodes in stories (L-35): machines whose GPUs fail or never answer, and what must hold of them."""

from __future__ import annotations

import json
import random
import typing as t
from datetime import timedelta

from sandbox.world import Machine

from . import own

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Call, Sight
    from .stage import Stage

WORD = "failed acceptance test"
_FAIL = ("bad_gpu", "hanging_gpu")  # whatever tests them, and however often
_BACKED_OFF = timedelta(seconds=3600 - 125)  # a clock may be two minutes wrong (L-27)


def ask(stage: Stage) -> None:
    """From now on nodes of the pool have to pass a test."""
    stage.sight.tested_since = stage.clock.now()
    stage.training["acceptance"] = {"test": "vectoradd", "timeout": "5m"}
    stage.adverse.words |= {f"[acceptance_{end}]": WORD for end in ("failed", "unknown")}


def fails(sight: Sight, machine: Machine) -> bool:
    """Whether its pool asked for a test before it was rented, and its GPUs pass none."""
    if not _is_tested(sight, machine):
        return False
    found = _parts(sight, machine)
    never = "image_missing" in found and not found["image_missing"].seconds
    return never or any(kind in found for kind in _FAIL)


def _parts(sight: Sight, machine: Machine) -> t.Mapping[str, t.Any]:
    kubelets = sight.rig.box.kubelets
    return kubelets.behaviours(machine.name) if kubelets is not None else {}


def _is_tested(sight: Sight, machine: Machine) -> bool:
    since = sight.tested_since
    return since is not None and machine.created > since and all("acceptance" in spec for spec in sight.told(machine))


# ---- the invariants


def I32_a_node_that_fails_takes_no_pods(sight: Sight, _call: Call) -> str:
    if sight.tested_since is None:
        return ""
    for one in sight.living():
        if "struck" not in one.details and sight.is_complete(one) and not sight.is_cordoned(one.name) and fails(sight, one):
            return f"{one.name} is open to pods, and passes no test"
    return ""


def I33_where_gpus_fail_nothing_is_rented_for_an_hour(sight: Sight, call: Call) -> str:
    """Of own machines each is an offer by itself, and their clocks are those of runs: they are not judged."""
    if sight.tested_since is None or sight.rig.adverse.skews:  # type: ignore[attr-defined]
        return ""
    for one in sight.aimed_at(call) if call.destroys() and 200 <= call.status < 300 else ():
        reason = ((sight.claims().get(one.name) or {}).get("deletion") or {}).get("reason", "")
        if reason == "FailedJoin" and not own.is_own(one) and fails(sight, one) and one.name in sight.nodes():
            sight.rejected.setdefault(_place(one), sight.now)
    for one in sight.living() if call.creates() else ():
        since = sight.rejected.get(_place(one))
        if since is not None and since < one.created < since + _BACKED_OFF:
            return f"{one.name} is rented where GPUs failed a test at {since:%d %H:%M:%S}"
    return ""


def _place(machine: Machine) -> tuple[str, str, str]:
    return machine.offer.cloud, machine.offer.type, machine.offer.region


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {
    "I-32": I32_a_node_that_fails_takes_no_pods,
    "I-33": I33_where_gpus_fail_nothing_is_rented_for_an_hour,
}


# ---- chance


def draw(ground: Ground, seed: str, nodes: bool) -> tuple[list[str], float]:
    """In three of ten stories with nodes, and where in it."""
    dice = random.Random(f"acceptance {seed}")
    if not nodes or ground.has_own() or dice.random() >= 0.3:
        return [], 0.0
    kind = dice.choice(("bad_gpu", "bad_gpu", "hanging_gpu", "image_missing", "test_evicted"))
    bad = json.dumps({"kind": kind, "times": 1, "seconds": dice.choice((0, 400))})
    kill = f" kill={int(dice.triangular(10, 110, 45))}{dice.choice(('', ' after'))}" if dice.random() < 0.4 else ""
    again = dice.choice((["run provision nodes=2"], ["run autoscale"], ["run reap", "rest 70", "run provision nodes=2 host=b"]))
    begin = dice.choice(([], ["run provision nodes=1"]))
    return [
        *begin,
        "change acceptance vectoradd",
        f"behave {bad}",
        f"run provision nodes=2{kill}",
        "rest 70",
        *again,
    ], dice.random()
