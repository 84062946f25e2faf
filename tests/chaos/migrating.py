# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools that move to another mesh in the middle of a story (``migrate.yml``, docs/how_to/migrate_mesh.md): a person changes the mesh of the
class of pool training, and runs of ``migrate`` move its machines, killed and continued. And what must hold of it."""

from __future__ import annotations

import copy
import random
import re
import typing as t
from pathlib import Path

from . import hub
from .sight import pool_in, works

if t.TYPE_CHECKING:
    from sandbox.world import Machine

    from .grounds import Ground
    from .sight import Call, Json, Sight
    from .stage import Stage

WORD = "mesh migration"
POOL, CLASS = "training", "demo"
MESHES = ("tailscale", "wireguard")
PASSES = 60  # of migrate.yml at rest, until every machine has to have moved
_FIELDS = {"tailscale": "tailscaleConfig", "wireguard": "wireguardConfig"}
_WAITS = ("waits for its replacement", "draining")


# ---- what lines do


def enter(stage: Stage, mesh: str) -> None:
    """``mesh wireguard``, ``mesh tailscale``: machines of the class enter this mesh from now on."""
    spec = stage.demo_class
    stage.meshes.setdefault(mesh_of_class(spec), {name: spec[name] for name in _FIELDS.values() if name in spec})
    for field in _FIELDS.values():
        spec.pop(field, None)
    spec |= copy.deepcopy(stage.meshes.get(mesh) or {_FIELDS[mesh]: hub.CONFIG if mesh == "wireguard" else {"tags": ["tag:gpu"]}})
    stage.sight.mesh = mesh
    stage.adverse.words[", and its class says "] = WORD


def tidy(stage: Stage) -> None:
    """A person removes from the hub's file the peers of machines that no longer exist, as docs/how_to/migrate_mesh.md says: where the class
    itself changed, no run speaks to a hub that could not be reached in the last pass."""
    claims, file = stage.sight.claims(), Path(stage.sight.hub)
    head, *peers = file.read_text(encoding="utf-8").split("[Peer]")
    kept = [one for one in peers if (name := re.search(r"^# tgp: (\S+)", one, re.MULTILINE)) is None or name[1] in claims]
    file.write_text("[Peer]".join([head, *kept]), encoding="utf-8")


def mesh_of_class(spec: Json) -> str:
    return "wireguard" if "wireguardConfig" in spec else "tailscale"


LINES: dict[str, t.Callable[[Stage, str], None]] = {"mesh": enter}


# ---- the invariants


def entered(machine: Machine) -> str:
    """The mesh that a machine entered when it booted, by its own steps; empty for one that is on its way."""
    texts = [text for _time, step, text in machine.steps if step == "mesh" and not text.startswith(("failed", "no handshake"))]
    return "" if not texts else "wireguard" if "behind the hub" in texts[-1] else "tailscale"


def I37_a_migration_loses_no_work(sight: Sight, call: Call) -> str:
    """A machine begins to go as Drifted in a run of ``migrate`` only, and only one in another mesh than its class enters. A pod that counts
    leaves it by an eviction, which its budget can refuse, and once another node can take pods."""
    claim = call.claim()
    if (claim.get("deletion") or {}).get("reason") == "Drifted" != _reason(sight, claim["name"]):
        return _begins(sight, call, claim)
    namespace, name = call.pod_that_goes()
    pod = sight.pod(namespace, name) if name else None
    if pod is None or not works(pod):
        return ""
    node = pod["spec"].get("nodeName", "")
    if _reason(sight, node) != "Drifted" or not sight.is_ready(node):
        return ""
    if call.method == "DELETE":
        return f"pod {name} is deleted, not evicted, from {node}, which moves to another mesh"
    return "" if _another(sight, node) else f"pod {name} is evicted from {node}, and no other node of ours can take pods"


def _begins(sight: Sight, call: Call, claim: Json) -> str:
    name = claim["name"]
    if call.run.mode != "migrate":
        return f"{name} begins to go as Drifted in a run of {call.run.mode}"
    if pool_in(name) != POOL or CLASS in sight.unread or not sight.mesh:
        return "" if pool_in(name) == POOL else f"{name} begins to go as Drifted, and nobody changed its class"
    for one in sight.by_name(name):
        if one.ended is None and "struck" not in one.details and entered(one) == sight.mesh:
            return f"{name} begins to go as Drifted, and it is in mesh {sight.mesh} already"
    return ""


def _reason(sight: Sight, name: str) -> str:
    return str(((sight.claims().get(name) or {}).get("deletion") or {}).get("reason", ""))


def _another(sight: Sight, node: str) -> bool:
    """Whether another node of ours can take pods, or could until something befell it that no run can have seen."""
    others = [one for one in sight.made() if one.name != node]
    return any(
        "struck" in one.details or one.name in sight.gpus_lost or (one.ended is None and sight.is_complete(one)) for one in others
    )


def I37_a_migration_ends(rows: t.Sequence[Json], machines: t.Sequence[tuple[str, str]], mesh: str) -> str:
    """After enough runs at rest every machine of the pool is in the mesh of its class, or is as before and the report says why. ``rows`` of
    the last run's report; ``machines``: names of those that are in use, with the mesh that each entered."""
    told = {row["machine"]: row for row in rows}
    if moving := [name for name, row in told.items() if row["state"] in _WAITS]:
        return f"I-37: after {PASSES} runs of migrate these are on their way: {', '.join(moving)}"
    left = [name for name, at in machines if at and at != mesh and not (told.get(name) or {}).get("detail")]
    return f"I-37: these are not in mesh {mesh}, and no report says why: {', '.join(left)}" if left else ""


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {"I-37": I37_a_migration_loses_no_work}


# ---- chance


def scene(ground: Ground, dice: random.Random, place: int) -> list[str]:
    """A pool with work moves, is cut off, and moves on; in some it moves back."""
    here = "wireguard" if ground.has_hub() else "tailscale"
    there = next(one for one in MESHES if one != here)
    kill = f" kill={int(dice.triangular(5, 130, 50))}{dice.choice(('', ' after'))}"
    host, loses = dice.choice(("", "", " host=b")), '{"service": "hub", "kind": "lost_before", "times": 1}'
    between = dice.choice(
        (
            [],
            ["run autoscale"],
            ["run reap"],
            [f"fault {loses}"],
            [f"strike {dice.choice(('dies', 'crash'))} {place}"],
            ["race migrate wait | autoscale host=b", "rest 70"],
            ["rest 1900", "run autoscale"],
            ["demand 1", "rest 30"],
            ['behave {"kind": "never_boots", "times": 1}'],
        )
    )
    work = dice.choice(
        ([f"pod {place} busy"], [f"pod {place} guarded"], ["pod 0 busy", "pod 1 guarded"], ["min 1"], [f"pod {place} bare"])
    )
    back = [f"mesh {here}", *["run migrate wait", "rest 70"] * 2]
    return [
        f"run provision nodes={dice.choice((1, 1, 2))}",
        *work,
        "rest 1300",
        f"mesh {there}",
        f"run migrate{dice.choice(('', ' wait'))}{kill}{host}",
        "rest 70",
        *between,
        f"run migrate wait{dice.choice(('', kill))}",
        *["rest 70", "run migrate wait"] * dice.choice((1, 2)),
        *dice.choice(([], ["done", "run migrate wait"], ["rest 3700", "run migrate"], back)),
    ]
