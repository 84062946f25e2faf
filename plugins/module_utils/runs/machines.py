# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of fleet_launch, fleet_join, fleet_teardown and fleet_unlock: open, act on the claims, report."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.clock import to_text
from ..core.errors import LockLost
from ..core.progress import render
from ..core.task import Task
from ..model import Claim, Phase
from ..observe.context import Context
from ..observe.open_context import open_context
from ..operations.join.csr_approval import admit, complete_ones
from ..operations.join.node import Joined, join_all
from ..operations.join.node_sync import Drifted, drifted_nodes, repair_all
from ..operations.launch.launch import launch_all
from ..operations.launch.wireguard_peers import hubs_of
from ..operations.teardown.garbage_collection import checked, rehearsed, remove_leftovers
from ..operations.teardown.teardown import teardown_all
from ..planner.clock_skew import goes_on
from ..store.run_lock import Keeper, resume
from .plan import unlock

_ON_THEIR_WAY = (Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)
_COLUMNS = {"name": "node", "cloud": "cloud", "model": "model", "price_hour": "$/h", "result": "result", "what": "what"}

_INSIDE = ("problem", "remedy", "what")  # of a row: not for the result
_TRY_AGAIN = "The next run of provision.yml takes another offer; this one is left alone for a while."
_ASSERT_AGAIN = "The next run of provision.yml tries again."
_GO_ON = "The next run of reap.yml goes on with it."


def launch_step(task: Task) -> dict[str, t.Any]:
    """Rent for every claim that the plan left without a create call on its way."""
    return _step(task, _unsent, _launch, busy=("launched", "adopted"))


def join_step(task: Task) -> dict[str, t.Any]:
    """Follow every claim that has a machine until it is Ready or its time is over, and set the marks of nodes in use again."""
    work = _join if task.params.get("wait", True) else _look_in
    return _step(task, _unfinished, work, busy=("ready", "failed", "repaired", "admitted", "denied"))


def teardown_step(task: Task) -> dict[str, t.Any]:
    """Take down every claim with a deletion, and leftovers without a claim."""
    return _step(task, lambda claim: claim.deletion is not None, _teardown, busy=("gone", "kept", "removed"))


def scale_step(task: Task) -> dict[str, t.Any]:
    """Rent and give back side by side: no launch waits for a drain, and no drain for a launch."""
    return _step(task, _in_plan, _scale, busy=("launched", "adopted", "gone", "kept", "removed"))


def unlock_step(task: Task) -> dict[str, t.Any]:
    """Let go of the lock. Not a change of the world."""
    return {"changed": False, "released": unlock(task)}


def _unsent(claim: Claim) -> bool:
    """True when no create call of this claim can still show its effect: only then may one be sent."""
    return claim.phase in (Phase.PENDING, Phase.PROVISIONING) and claim.launch_started is None and not claim.instance_id


def _in_plan(claim: Claim) -> bool:
    return claim.deletion is not None or _unsent(claim)


def _unfinished(claim: Claim) -> bool:
    """True for a machine that is not usable yet, and for one that a killed run left usable with its enrolment secrets still valid."""
    if claim.phase is Phase.READY:
        return bool(claim.token_id or claim.mesh_key_id)
    return claim.phase in _ON_THEIR_WAY and bool(claim.instance_id)


Work = t.Callable[[Context, list[Claim]], "list[dict[str, t.Any]]"]


def _step(task: Task, wanted: t.Callable[[Claim], bool], work: Work, *, busy: tuple[str, ...]) -> dict[str, t.Any]:
    leftovers = checked(task.params.get("leftovers") or [])
    context = open_context(task, documents_required=False)
    try:
        names = task.params.get("names") or []
        unrecorded = task.params.get("unrecorded") or []
        everybody = not names and not task.params.get("only_named")
        claims = [
            claim
            for claim in context.known_claims()
            if (everybody or claim.name in names)
            and claim.name not in unrecorded
            and wanted(claim)
            and (claim.deletion is None or work in (_teardown, _scale))
        ]
        wrong = context.wrong_clock()
        if wrong:  # what a person asked for, and what is past its drain, goes on; all else hangs on time (L-27)
            claims, leftovers = [claim for claim in claims if goes_on(claim)], []
            task.params["leftovers"] = leftovers
        drifted = drifted_nodes(context, names) if work in (_join, _look_in) and not wrong else []
        if task.check_mode:
            rows = [_row(one.claim, "drifted", f"would be set again: {', '.join(one.what)}", problem=False) for one in drifted]
            rows += [] if work is _look_in else [_row(one, "planned", _would(one, work), problem=False) for one in claims]
            rows += rehearsed(leftovers)
            return _result(rows, "ok", changed=bool(rows), hubs=hubs_of(context))
        if not (claims or drifted or leftovers):
            return _result(
                [], "partial" if wrong else "ok", changed=False, hubs=hubs_of(context), problems=[wrong] if wrong else []
            )
        context.lock = resume(task, context.kube, context.run_id, context.cluster_id)
        with Keeper(context.lock, context.clock):
            rows = work(context, claims) + _repair(context, drifted)
            hubs = hubs_of(context)
    except LockLost as lost:
        lost.result = {"outcome": "lock_lost", "machines": [], "problems": [str(lost)]}
        raise
    finally:
        context.close()
    problems = [*([wrong] if wrong else []), *(_sentence(row) for row in rows if row["problem"])]
    for line in render([{"what": row["message"], **row} for row in rows], _COLUMNS, right=("price_hour",)):
        task.progress(line)
    changed = any(row["result"] in busy for row in rows)
    outcome = "partial" if problems else "changed" if changed else "ok"
    return _result(rows, outcome, changed=changed, hubs=hubs, problems=problems)


def _sentence(row: t.Mapping[str, t.Any]) -> str:
    """A problem for people: which machine, on which cloud, what happened, what to do."""
    where = f" on {row['cloud']}" if row.get("cloud") else ""
    return f"{row['name']}{where}: {row['message'].rstrip('.')}. {row.get('remedy', '')}".rstrip()


def _result(
    rows: list[dict[str, t.Any]], outcome: str, *, changed: bool, hubs: list[dict[str, t.Any]], problems: t.Sequence[str] = ()
) -> dict[str, t.Any]:
    machines = [{key: value for key, value in row.items() if key not in _INSIDE} for row in rows]
    return {"changed": changed, "outcome": outcome, "machines": machines, "problems": list(problems), "hubs": hubs}


def _row(claim: Claim, result: str, message: str, *, problem: bool, remedy: str = "") -> dict[str, t.Any]:
    return {
        "name": claim.name,
        "pool": claim.pool,
        "cloud": claim.cloud,
        "model": claim.offer.model,
        "phase": claim.phase.value,
        "price_hour": str(claim.price),
        "result": result,
        "message": message,
        "problem": problem,
        "remedy": remedy,
    }


def _would(claim: Claim, work: Work) -> str:
    """What check mode says of a claim."""
    if claim.deletion is not None:
        return f"would be given back: {claim.deletion.reason}"
    return "would be followed until it is usable" if work is _join else "would be rented"


def _launch(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    done = launch_all(context, claims)
    return [_row(one.claim, one.result, one.message, problem=one.result in ("failed", "waiting")) for one in done]


def _join(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    done = join_all(context, claims)
    return [
        _row(one.claim, one.result, one.message, problem=one.result != "ready", remedy=_after_join(one)) | _course(one)
        for one in done
    ]


def _look_in(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    """Without waiting for anybody: those that are complete are joined, the others' requests for a certificate are answered."""
    complete = complete_ones(context, claims)
    answers = admit(context, [claim for claim in claims if claim not in complete])
    rows = [
        _row(one.claim, one.result, one.message, problem=one.result in ("denied", "error"), remedy=_ASSERT_AGAIN) for one in answers
    ]
    return rows + _join(context, complete)


def _repair(context: Context, drifted: list[Drifted]) -> list[dict[str, t.Any]]:
    done = repair_all(context, drifted)
    return [
        _row(one.claim, "drifted" if one.problem else "repaired", one.message, problem=bool(one.problem), remedy=_ASSERT_AGAIN)
        for one in done
    ]


def _course(one: Joined) -> dict[str, t.Any]:
    """When each step was first seen, and why it ended early; the table shows no more than the cause, a screen has told the rest."""
    end = "given back" if one.message.endswith("(given back)") else "not given back yet"
    short = {"what": f"{one.explained.cause} ({end})"} if one.explained is not None else {}
    return short | {
        "seen": {step: to_text(moment) for step, moment in one.seen.items()},
        "diagnosis": one.explained.result if one.explained is not None else None,
    }


def _after_join(one: Joined) -> str:
    """What comes next: the same again, another machine, or first the end of this one."""
    if one.result == "waiting":
        return _ASSERT_AGAIN
    return _GO_ON if one.left else _TRY_AGAIN


def _teardown(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    done = teardown_all(context, claims)
    rows = [_row(one.claim, one.result, one.message, problem=one.result == "pending", remedy=_GO_ON) for one in done]
    return rows + remove_leftovers(context, context.task.params.get("leftovers") or [])


def _scale(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scale") as pool:
        going = pool.submit(_teardown, context, [claim for claim in claims if claim.deletion is not None])
        return _launch(context, [claim for claim in claims if claim.deletion is None]) + going.result()
