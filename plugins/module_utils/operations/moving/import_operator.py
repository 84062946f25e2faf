# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopts the machines of a tgp-operator installation (L-49), each as adopt.yml adopts one. Objects of tgp-operator are read and never changed.

Its controller terminates a machine whose GPURequest is deleted or expires, and deletes the Nodes of a GPUNodePool that is deleted. So nothing
is adopted while it runs.
"""

from __future__ import annotations

import typing as t

from ...core.errors import InvalidInput
from ...core.events import render
from ...core.task import Task
from ...observe.context import Context, locked_run
from ...observe.gather import gather
from ...planner.claims.imports import ImportRow, Installation, candidates
from ...planner.claims.moving import IMPORTED
from ...planner.cluster_state import Situation
from ...providers.registry import CAPABILITIES, canonical_cloud
from .adopt_machine import Examined, Step, Wanted, carry_out, examine_all
from .tgp_operator import read

_COLUMNS = {
    "source": "object",
    "provider": "provider",
    "id": "id",
    "node": "node",
    "pool": "pool",
    "price_hour": "$/h",
    "result": "result",
}
_NO_NODE = (
    "no Node of the cluster runs on it, so it would be terminated as a failed join; let it join first, or adopt it with adopt.yml"
)


def import_operator(task: Task) -> dict[str, t.Any]:
    """The result of fleet_adopt with from_operator. Without ``apply`` nothing is changed."""
    others = [name for name in ("generation", "provider", "id", "node") if task.params[name]]
    if others:
        raise InvalidInput(
            f"{task.called('from_operator')} adopts all machines of tgp-operator, and {', '.join(task.called(name) for name in others)} "
            "does not belong to it. Leave it out.",
            remedy="adopt.yml adopts one machine.",
        )
    return locked_run(task, lambda context, writes: _import(context, writes=writes), apply=bool(task.params["apply"]))


def _import(context: Context, *, writes: bool) -> dict[str, t.Any]:
    task, apply = context.task, bool(context.task.params["apply"])
    found, seen = read(context.kube), gather(context, ledger=True)
    situation = Situation(seen, context.specs, context.settings, CAPABILITIES)
    asked = candidates(found, situation, (task.params["pool"] or "").strip(), canonical_cloud)
    wanted = {row: Wanted(row.pool, row.cloud, row.id, row.node, IMPORTED) for row in asked if not row.problem}
    writes = writes and not found.controllers
    examined = _with_nodes(context, seen, list(wanted.values()), writes=writes)
    rows = [_row(row, wanted.get(row), examined, writes=writes) for row in asked]
    for line in render(rows, _COLUMNS, right=("price_hour",)):
        task.progress(line)
    if not rows:
        task.progress("  There is no machine of tgp-operator.")
    steps = list(examined.steps.values())
    if found.controllers:
        _refuse(context, found, apply=apply and any(step.changes for step in steps))
    result = carry_out(context, steps, apply=apply, writes=writes)
    _say_what_stays(context, found, steps)
    return {**result, "not_adopted": [_refused(row) for row in rows if row["reason"]]}


def _with_nodes(context: Context, seen: t.Any, wanted: list[Wanted], *, writes: bool) -> Examined:
    """As examined, without machines that no Node runs on: nothing would be kept by adopting them."""
    found = examine_all(context, seen, wanted, writes=False)
    lonely = {one for one, step in found.steps.items() if step.new and step.arrival.node is None}
    found = examine_all(context, seen, [one for one in wanted if one not in lonely], writes=writes)
    return Examined(found.steps, {**found.problems, **{one: [_NO_NODE] for one in lonely}})


def _row(row: ImportRow, wanted: Wanted | None, examined: Examined, *, writes: bool) -> dict[str, t.Any]:
    step = examined.steps.get(wanted) if wanted is not None else None
    cells = {
        "source": row.source,
        "provider": row.cloud,
        "id": row.id,
        "node": row.node,
        "pool": row.pool,
        "price_hour": "",
        "reason": "",
    }
    if step is None:
        problems = [row.problem] if wanted is None else examined.problems.get(wanted, [])
        return {**cells, "reason": "; ".join(problems), "result": f"not adopted: {'; '.join(problems)}"}
    node, name = step.arrival.node, step.claim.name
    cells |= {"node": node.name if node is not None else "", "pool": step.claim.pool, "price_hour": str(step.claim.price)}
    if not step.changes:
        return {**cells, "result": f"adopted already, as {name}"}
    return {**cells, "result": f"{'is' if writes else 'would be'} adopted as {name}"}


def _refused(row: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {key: str(row[key]) for key in ("source", "provider", "id", "node", "pool", "reason")}


def _refuse(context: Context, found: Installation, *, apply: bool) -> None:
    """InvalidInput where something would be adopted, else a warning."""
    words = "The controller of tgp-operator runs. It may terminate machines that are adopted, and delete their Nodes."
    if not apply:
        context.warn(f"{words} Stop it first: {'; '.join(found.controllers)}.")
        return
    raise InvalidInput(
        f"{words} Nothing was adopted and nothing was changed.",
        problems=[f"{one}." for one in found.controllers],
        remedy="Stop it, and run this again. Machines and pods run on without it.",
    )


def _say_what_stays(context: Context, found: Installation, steps: t.Sequence[Step]) -> None:
    """The objects of tgp-operator, which are a danger to what was adopted, and Nodes on which no pod can start."""
    for step in steps:
        node = step.arrival.node
        if step.new and node is not None and node.unschedulable:
            context.warn(f"Node {node.name} is cordoned, and stays so. To let pods start there: kubectl uncordon {node.name}")
    pools = {step.claim.pool.partition("/")[2] for step in steps}
    theirs = [f"GPURequest {one.name}" for one in found.requests if one.instance_id]
    theirs += [f"GPUNodePool {one.namespace}/{one.name}" for one in found.pools if one.name in pools]
    if steps and theirs:
        context.warn(
            f"Objects of tgp-operator stay as they are: {', '.join(theirs)}. Do not start its controller while they are there: it would "
            "terminate machines and delete Nodes that are adopted now. docs/how_to/moving.md says how to remove them."
        )
