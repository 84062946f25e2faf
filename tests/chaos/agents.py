# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Health agents in a story: a condition or a taint that comes, flaps and goes, in a pool that replaces for it or does not; and when that is a
reason to end a machine (L-37)."""

from __future__ import annotations

import random
import typing as t
from datetime import timedelta

from sandbox import health_agent
from sandbox.world import Machine

if t.TYPE_CHECKING:
    from .sight import Sight
    from .stage import Stage

NAME = "health agent"
FIELD = "unhealthyConditions"
LASTS = timedelta(seconds=1200)
_KIND, _TAINT = "KernelDeadlock", "stories.example/sick"


def ail(stage: Stage, rest: str) -> None:
    """``ail <place> <True|False|Unknown|taint>``: the agent of a node in use writes its condition so, or its taint; False takes that away."""
    place, status = rest.split()
    machines = [one for one in stage.sight.living() if stage.sight.is_complete(one) and stage.sight.is_node(one)]
    if machines:
        _write(stage, machines[int(place) % len(machines)].name, status)


def _write(stage: Stage, name: str, status: str) -> None:
    if status in ("True", "taint"):
        stage.sight.ailing.setdefault(name, stage.clock.now())
    elif (since := stage.sight.ailing.pop(name, None)) is not None and stage.clock.now() - since >= LASTS:
        stage.sight.ailed.add(name)  # an end that has begun is carried out
    if status == "taint":
        _put_taint(stage, name, there=True)
        stage.adverse.words[f"taint {_TAINT}"] = NAME
        return
    _put_taint(stage, name, there=False)
    health_agent.report(stage.box.cluster.admin(), name, _KIND, status, stage.clock.now())
    stage.adverse.words[f"condition {_KIND}=True"] = NAME


def _put_taint(stage: Stage, name: str, *, there: bool) -> None:
    taints = stage.nodes()[name]["spec"].get("taints") or []
    kept = [one for one in taints if one["key"] != _TAINT]
    mine = {"key": _TAINT, "value": "yes", "effect": "NoSchedule"}
    if there and kept == taints:
        stage.kube("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": [*kept, mine]}})
    elif not there and kept != taints:
        stage.kube("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": kept}})


def restore(stage: Stage) -> None:
    """The nodes are well again, and no pool replaces for what agents say."""
    for name in [name for name in stage.sight.ailing if name in stage.nodes()]:
        _write(stage, name, "False")
    stage.sight.ailing.clear()


def entries(action: str) -> list[dict[str, str]]:
    """What a pool says of the condition and the taint."""
    return [{sign: name, "for": f"{LASTS.seconds}s", "action": action} for sign, name in (("type", _KIND), ("taint", _TAINT))]


def reason(sight: Sight, machine: Machine, slack: timedelta, action: str = "Replace") -> bool:
    """Whether its sign is there for its time, on a machine whose document asks for that ``action``."""
    since = sight.ailing.get(machine.name)
    asked = any(one.get("action") == action for spec in sight.told(machine) for one in spec.get(FIELD) or ())
    lasted = machine.name in sight.ailed or (since is not None and sight.now - since >= LASTS - slack)
    return asked and lasted


def scene(dice: random.Random, place: int, begin: list[str], after: list[str]) -> list[str]:
    """A node complains, and runs meet it; in some the pool replaces for it, in some it flaps."""
    flaps = [f"ail {place} False", "rest 70", "run reap", f"ail {place} True", "run reap", "rest 600"]
    return [
        *begin,
        *dice.choice(([], [f"pod {place} short"], ["min 1"])),
        *dice.choice(([], [f"change {FIELD} Replace"], [f"change {FIELD} Replace"], [f"change {FIELD} ReplaceWhenEmpty"])),
        f"ail {place} {dice.choice(('True', 'True', 'taint', 'taint', 'Unknown'))}",
        *["run reap", "rest 70"] * 2,
        *dice.choice(([], flaps, [f"ail {place + 1} True"])),
        *after,
        "rest 1300",
        "run reap",
        "rest 70",
        *dice.choice((["run reap"], ["run autoscale"])),
    ]
