# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far pools are on their way to another mesh: one row per machine, by a plan that migrates them (L-5)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...core.errors import InvalidInput
from ...model import Capability, Claim, Ledger, Observation, Phase, Plan, Specs
from ...model.reasons import ActionKind, Reason
from ...units.values import print_duration, print_money
from ..claims.mesh import mesh_of
from ..claims.record import LIVE
from ..disruption.drift import in_another_mesh

COLUMNS = {
    "machine": "machine",
    "pool": "pool",
    "mesh": "mesh now",
    "wanted": "mesh wanted",
    "state": "state",
    "elapsed": "elapsed",
    "cost_both": "cost of both",
    "detail": "detail",
}
MOVED, COMING, OWN = "moved", "coming", "own machine"
WAITING, DRAINING, KEPT = "waits for its replacement", "draining", "kept"
UNFINISHED = (WAITING, DRAINING, KEPT)
_HOUR = Decimal(3600)


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationRow:
    """``mesh`` is what the machine entered, empty = its claim does not say; ``wanted`` what its class enters now, empty = there is no such
    class. ``elapsed``: seconds since its replacement was launched, or that both were there; ``cost``: dollars of the replacement in them."""

    machine: str
    pool: str
    mesh: str
    wanted: str
    state: str
    detail: str = ""
    elapsed: int | None = None
    cost: Decimal | None = None


def pools_of(names: t.Sequence[str], specs: Specs) -> tuple[str, ...]:
    """The keys of the pools that a migration names, by name or namespace/name; without a name all pools. InvalidInput for an unknown one."""
    keys = sorted({*(pool.key for pool in specs.described), *specs.paused})
    short = {key: key.partition("/")[2] for key in keys}
    if unknown := [name for name in names if name not in keys and name not in short.values()]:
        raise InvalidInput(
            f"There is no pool {', '.join(unknown)} among the documents.", remedy=f"Known pools: {', '.join(keys) or 'none'}."
        )
    return tuple(key for key in keys if not names or key in names or short[key] in names)


def migration_rows(
    plan: Plan,
    observation: Observation,
    specs: Specs,
    pools: t.Collection[str],
    capabilities: t.Mapping[str, Capability],
    ledger: Ledger,
) -> list[MigrationRow]:
    """The machines of the pools by name. The plan says what becomes of each."""
    coming = [action.claim for action in plan.actions if action.kind == ActionKind.LAUNCH and action.claim is not None]
    claims = sorted(observation.claims or (), key=lambda claim: claim.name)
    newer = {claim.replaces: claim for claim in (*claims, *coming) if claim.replaces}
    ended = {line.name: line.end for line in ledger.lines}
    backends = {
        pool.key: specs.classes[pool.node_class].mesh.backend for pool in specs.described if pool.node_class in specs.classes
    }
    found = []
    for claim in claims:
        if claim.pool not in pools or not (claim.phase in LIVE or claim.phase is Phase.TERMINATING):
            continue
        wanted, mesh = backends.get(claim.pool, ""), mesh_of(claim)
        row = MigrationRow(claim.name, claim.pool, mesh, wanted, KEPT)
        if wanted == (mesh or "none"):
            if claim.phase is not Phase.TERMINATING:
                state = MOVED if claim.phase is Phase.READY else COMING
                found.append(_timed(dataclasses.replace(row, state=state), claim, ended.get(claim.replaces)))
        elif claim.cloud in capabilities and not capabilities[claim.cloud].rented:
            found.append(dataclasses.replace(row, state=OWN, detail="it is not made anew; change its mesh on the machine"))
        else:
            state, detail = _on_the_way(plan, claim, wanted)
            found.append(_timed(dataclasses.replace(row, state=state, detail=detail), newer.get(claim.name), observation.now))
    return found


def _on_the_way(plan: Plan, claim: Claim, wanted: str) -> tuple[str, str]:
    """State and detail of a machine that is not in the mesh that is wanted."""
    actions = [action for action in plan.actions if action.name == claim.name]
    ends = next((action for action in actions if action.kind == ActionKind.DESTROY), None)
    if ends is not None or claim.phase is Phase.TERMINATING:
        reason = ends.reason if ends is not None else claim.deletion.reason if claim.deletion is not None else ""
        return DRAINING, "" if reason == Reason.DRIFTED else reason
    if not wanted:
        return KEPT, "its GPUNodeClass is not among the documents, or has a fault"
    if not mesh_of(claim):
        return KEPT, "its claim does not say in which mesh it is; replace it with destroy.yml"
    if claim.phase is not Phase.READY:
        return KEPT, f"it is {claim.phase.value}; it goes when it is Ready"
    said = [action for action in actions if action.kind == ActionKind.REPORT and action.reason == Reason.DRIFTED]
    if waits := next((action.target for action in said if action.target), ""):
        return WAITING, waits
    details = [action.detail for action in said or actions if action.kind == ActionKind.REPORT]
    return KEPT, "; ".join(detail.removeprefix(f"{in_another_mesh(claim, wanted)}; ").removeprefix("kept: ") for detail in details)


def _timed(row: MigrationRow, replacement: Claim | None, until: datetime | None) -> MigrationRow:
    """The row with how long both machines have been there, and what the replacement cost meanwhile."""
    if replacement is None or replacement.launch_started is None or until is None:
        return row
    seconds = max(0, int((until - replacement.launch_started).total_seconds()))
    return dataclasses.replace(row, elapsed=seconds, cost=replacement.price * seconds / _HOUR)


def migration_result(rows: t.Sequence[MigrationRow]) -> dict[str, t.Any]:
    """The result of a module: the rows as text, and what follows of them."""
    costs = [row.cost for row in rows if row.cost is not None]
    return {
        "machines": [table_row(row) for row in rows],
        "moved": sum(row.state == MOVED for row in rows),
        "unfinished": [row.machine for row in rows if row.state in UNFINISHED],
        "kept": {row.machine: row.detail for row in rows if row.state == KEPT},
        "under_way": any(row.state in (WAITING, DRAINING) for row in rows),
        "cost_both": print_money(sum(costs, Decimal(0))),
    }


def table_row(row: MigrationRow) -> dict[str, str]:
    """The columns as text."""
    return {
        "machine": row.machine,
        "pool": row.pool,
        "mesh": row.mesh or "unknown",
        "wanted": row.wanted or "unknown",
        "state": row.state,
        "elapsed": "" if row.elapsed is None else print_duration(row.elapsed),
        "cost_both": "" if row.cost is None else f"${print_money(row.cost)}",
        "detail": row.detail,
    }
