# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_pause: what a person pauses or resumes, written beside the claims under the run lock (L-31)."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput
from ..core.task import Task
from ..model import Pause
from ..observe.context import Context, locked_run
from ..planner.pauses import ALL, CLASS, POOL, Pauses, changed, paused_lines, paused_pools, paused_rows, sentence, written
from ..store.records import encode

_RESUMED = "resumed"


def pause_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_pause. A run in progress ends first: when this one has ended, none acts that does not know of the pause."""
    if task.params["state"] == _RESUMED and task.params["reason"] is not None:
        raise InvalidInput("A reason is that of a pause.", remedy=f"Leave {task.called('reason')} out to resume.")
    return locked_run(task, lambda context, writes: _change(context, writes=writes), documents_required=False)


def _change(context: Context, *, writes: bool) -> dict[str, t.Any]:
    task = context.task
    things = _things(context)
    before = context.records.pauses()
    resume = task.params["state"] == _RESUMED
    after = changed(before, things, task.params["reason"], context.clock.now(), resume=resume)
    if writes and after != before:
        context.records.write_pauses(after)
    holding = Pauses((*after, *context.specs.pauses), context.specs.described)
    rows = paused_rows(paused_pools(holding, context.specs, context.records.known_claims()))
    for line in paused_lines(rows) or ["Nothing is paused."]:
        task.progress(f"  {line}")
    result: dict[str, t.Any] = {"changed": after != before, "pauses": [_row(pause) for pause in after], "paused": rows}
    if task.diff_mode:
        texts = [encode(written(pauses)) + "\n" for pauses in (before, after)]
        result["diff"] = {"before_header": "pauses now", "after_header": "pauses then", "before": texts[0], "after": texts[1]}
    if resume and (still := _still(holding, things, context)):
        raise InvalidInput("Not everything that was to be resumed is.", problems=still, result=result)
    return result


def _things(context: Context) -> list[tuple[str, str]]:
    """What is meant, as scope and name; everything when nothing is named. A name that nothing has is refused: it may be a typing error."""
    task, specs = context.task, context.specs
    pools, classes = task.params["pools"], task.params["classes"]
    if not pools and not classes:
        return [(ALL, "")]
    claims, recorded = context.records.known_claims(), context.records.pauses()
    keys = {pool.key for pool in specs.described} | set(specs.paused) | {claim.pool for claim in claims}
    keys |= {pause.name for pause in recorded if pause.scope == POOL}
    names = set(specs.classes) | {pool.node_class for pool in specs.described} | {claim.node_class for claim in claims}
    names |= {pause.name for pause in (*recorded, *specs.pauses) if pause.scope == CLASS}
    problems, things = [], []
    for word in pools:
        meant = [key for key in sorted(keys) if word in (key, key.partition("/")[2])]
        if len(meant) == 1:
            things.append((POOL, meant[0]))
        elif meant:
            problems.append(f"{task.called('pools')}: {word} may be {' or '.join(meant)}. Write the namespace, too.")
        else:
            problems.append(f"{task.called('pools')}: there is no pool {word}. Known are: {', '.join(sorted(keys)) or 'none'}.")
    for word in classes:
        if word in names:
            things.append((CLASS, word))
        else:
            known = ", ".join(sorted(names - {""})) or "none"
            problems.append(f"{task.called('classes')}: there is no class {word}. Known are: {known}.")
    if problems:
        raise InvalidInput("Nothing was paused or resumed.", problems=problems)
    return things


def _still(holding: Pauses, things: t.Sequence[tuple[str, str]], context: Context) -> list[str]:
    """What stays paused although it was to be resumed: something wider is paused, or its document says so."""
    classes = {pool.key: pool.node_class for pool in context.specs.described}
    annotated = {(pause.scope, pause.name) for pause in context.specs.pauses}
    if (ALL, "") in things:
        things = [*things, *sorted(annotated)]
    found = []
    for scope, name in things:
        pause = holding.of(name if scope == POOL else "", classes.get(name, "") if scope == POOL else name)
        if pause is not None:
            remedy = "Remove it from the document." if pause.annotation else "Resume that, too."
            found.append(f"{scope} {name}: {sentence(pause)}. {remedy}")
    return found


def _row(pause: Pause) -> dict[str, t.Any]:
    (entry,) = written([pause]).values()
    return {"scope": pause.scope, "name": pause.name, **entry}
