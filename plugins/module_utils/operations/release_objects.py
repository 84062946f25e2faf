# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_release: removes our finalizers from all objects, so that they and their definitions can be deleted (L-33)."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput
from ..core.task import Task
from ..model import Claim, DamagedClaim
from ..observe.context import Context, locked_run
from ..planner.finalizers import releases
from .persist_plan import write_finalizers


def release_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_release. A run in progress ends first, because it would set finalizers again."""
    task.params["documents_from_cluster"] = True
    return locked_run(task, lambda context, writes: _release(context, writes=writes), documents_required=False)


def _release(context: Context, *, writes: bool) -> dict[str, t.Any]:
    task, specs = context.task, context.specs
    unread = [source.problem for source in specs.sources.values() if source.problem and not source.quiet]
    if unread:
        raise InvalidInput("Which objects there are is not known, so nothing was changed.", problems=unread)
    claims, damaged = context.store.claim_records()
    there = [*(_said(claim) for claim in claims), *(f"{record.where}, which cannot be read" for record in damaged)]
    if there and not task.params["force"]:
        raise InvalidInput(
            f"{len(there)} machines still have a claim, so nothing was changed.",
            problems=there,
            remedy=f"End them with destroy.yml first. To leave them running and billed, set {task.called('force')}.",
        )
    wanted = releases(specs.objects)
    problems: list[str] = []
    if writes:
        write_finalizers(context, wanted, problems)
    for line in there:
        context.warn(f"{line} continues, and is billed.")
    for change in wanted:
        task.progress(f"  {change.one.place}: {'its finalizer is removed' if writes else 'its finalizer would be removed'}.")
    if problems:
        raise InvalidInput("Not every finalizer could be removed.", problems=problems)
    if writes and context.metrics is not None:
        context.metrics.leaves = True
    return {
        "changed": bool(wanted),
        "objects": [change.one.place for change in wanted],
        "machines": [one.name for one in _names(claims, damaged)],
    }


def _names(claims: t.Sequence[Claim], damaged: t.Sequence[DamagedClaim]) -> list[Claim | DamagedClaim]:
    return sorted((*claims, *damaged), key=lambda record: record.name)


def _said(claim: Claim) -> str:
    return f"{claim.name} ({claim.cloud}, {claim.phase.value}, ${claim.price}/h)"
