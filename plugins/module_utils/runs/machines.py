# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of fleet_launch, fleet_join, fleet_teardown and fleet_unlock: open, act on the claims, report."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.clock import to_text
from ..core.errors import ApiError, LockLost
from ..core.events import render
from ..core.task import Task
from ..model import Claim, Phase
from ..observe.context import Context, open_context
from ..operations.join.csr_approval import admit, complete_ones
from ..operations.join.join import Joined, Joins, join_all
from ..operations.join.node_sync import Drifted, drifted_nodes, repair_all
from ..operations.launch.launch import Launched, launch_all
from ..operations.launch.wireguard_peers import hubs_of
from ..operations.persist_plan import write_finalizers
from ..operations.teardown.garbage_collection import checked, rehearsed, remove_orphans
from ..operations.teardown.teardown import Ended, teardown_all
from ..operations.write_events import write
from ..planner import finalizers
from ..planner.clock_skew import goes_on
from ..planner.kubernetes_events import MachineResult, of_results
from ..planner.pauses import Pauses
from ..store.run_lock import Keeper, resume
from .plan import unlock
from .replacement import plan_replacements

_ON_THEIR_WAY = (Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)
_COLUMNS = {"name": "node", "cloud": "cloud", "model": "model", "price_hour": "$/h", "result": "result", "what": "what"}

_INSIDE = ("problem", "remedy", "what", "claim")  # of a row: not for the result
_RENTED_THEN, _FOLLOWED = "would be rented", "would be followed until it is usable"
_TRY_AGAIN = "The next run of provision.yml takes another offer; this one is backed off for a while."
_ASSERT_AGAIN = "The next run of provision.yml tries again."
_GO_ON = "The next run of reap.yml goes on with it."


def launch_step(task: Task) -> dict[str, t.Any]:
    """Rent for every claim that the plan left without a create call on its way. With ``join`` each machine is followed from the moment it
    is rented, beside those that are on their way already."""
    return _step(task, _PROVISION if task.params.get("join") else _LAUNCH)


def join_step(task: Task) -> dict[str, t.Any]:
    """Follow every claim that has a machine until it is Ready or its time is over, and set the marks of nodes in use again."""
    return _step(task, _JOIN if task.params.get("wait", True) else _LOOK_IN)


def teardown_step(task: Task) -> dict[str, t.Any]:
    """Terminate every claim with a deletion, and orphans without a claim."""
    return _step(task, _TEARDOWN)


def scale_step(task: Task) -> dict[str, t.Any]:
    """Rent and terminate side by side: no launch waits for a drain, and no drain for a launch. With ``join`` as in :func:`launch_step`."""
    return _step(task, _SCALE_AND_JOIN if task.params.get("join") else _SCALE)


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


@dataclasses.dataclass(frozen=True)
class MachineStep:
    """One kind of work on claims: which of them it takes (``select``), and what it does with them (``run``). ``changed`` are the results of
    machines that are a change. ``would`` is what check mode says of a claim that stays, None when nothing is foreseen. ``deletes``: claims
    with a deletion are taken, too. ``joins``: so are those that are on their way. ``drifted``: nodes in use get their marks again.
    ``rents``: machines are made, so what they are made from has to be known."""

    select: t.Callable[[Claim], bool]
    run: t.Callable[[Context, list[Claim]], list[dict[str, t.Any]]]
    changed: frozenset[str]
    would: str | None = None
    deletes: bool = False
    joins: bool = False
    drifted: bool = False
    rents: bool = False


def _step(task: Task, step: MachineStep) -> dict[str, t.Any]:
    orphans = checked(task.params.get("orphans") or [])
    context = open_context(task, documents_required=False, hubs=step.rents)
    try:
        claims = _claims_of(context, step)
        wrong = context.clocks.problem()
        if wrong:  # what a person asked for, and what is past its drain, goes on; all else hangs on time (L-27)
            claims, orphans = [claim for claim in claims if goes_on(claim)], []
            task.params["orphans"] = orphans
        joined_names = task.params.get("join_names" if step.joins else "names") or []
        drifted = drifted_nodes(context, joined_names) if step.drifted and not wrong else []
        if task.check_mode:
            rows = _foreseen(step, claims, drifted) + rehearsed(orphans)
            return _result(rows, "ok", changed=bool(rows), hubs=hubs_of(context))
        if not (claims or drifted or orphans):
            return _ended([], wrong, step, hubs_of(context), [])
        context.lock = resume(task, context.kube, context.run_id, context.cluster_id)
        with Keeper(context.lock, context.clock):
            rows = step.run(context, claims) + _repair(context, drifted)
            context.records.tokens.settle()
            unreleased = _release(context) if step.deletes else []
            write(context, of_results(_machine_results(rows), context.specs, context.store.claim_uid))
            hubs = hubs_of(context)
            unjoined = [claim.name for claim in map(context.records.current, claims) if _unfinished(claim) and _behind_hub(claim)]
    except LockLost as lost:
        lost.result = {"outcome": "lock_lost", "machines": [], "problems": [str(lost)]}
        raise
    finally:
        context.close()
    for line in render([{"what": row["message"], **row} for row in rows], _COLUMNS, right=("price_hour",)):
        task.progress(line)
    return _ended(rows, wrong, step, hubs, unjoined, unreleased)


def _release(context: Context) -> list[str]:
    """Let go of deleted objects whose last machine has ended in this step, by the claims as they are now."""
    specs = context.specs
    if not any(one.deleted and finalizers.is_held(one) for one in specs.objects):
        return []
    problems: list[str] = []
    try:
        claims, damaged = context.store.claim_records()
        write_finalizers(context, finalizers.changes(specs, claims, damaged), problems)
    except ApiError as error:
        problems.append(f"Which deleted objects have ended is unknown, so they wait for the next run: {error}")
    return problems


def _claims_of(context: Context, step: MachineStep) -> list[Claim]:
    """The claims that the step takes, of those that the task names."""
    params = context.task.params
    names, unrecorded = params.get("names") or [], params.get("unrecorded") or []
    everybody = not names and not params.get("only_named")
    join_names = params.get("join_names") or []
    taken = [
        claim
        for claim in context.records.known_claims()
        if (
            (everybody or claim.name in names)
            and claim.name not in unrecorded
            and step.select(claim)
            and (claim.deletion is None or step.deletes)
        )
        or (step.joins and _unfinished(claim) and claim.deletion is None and (not join_names or claim.name in join_names))
    ]
    if not taken:
        return []
    paused = Pauses((*context.records.pauses_or_all(), *context.specs.pauses), context.specs.described)
    return [claim for claim in taken if paused.of_machine(claim) is None]


def _foreseen(step: MachineStep, claims: list[Claim], drifted: list[Drifted]) -> list[dict[str, t.Any]]:
    """What check mode says of nodes and claims."""
    rows = [_row(drift.claim, "drifted", f"would be set again: {', '.join(drift.what)}", problem=False) for drift in drifted]
    if step.would is None:
        return rows
    return rows + [_row(claim, "planned", _would(claim, step.would), problem=False) for claim in claims]


def _would(claim: Claim, would: str) -> str:
    if claim.deletion is not None:
        return f"would be terminated: {claim.deletion.reason}"
    return would if _unsent(claim) else _FOLLOWED


def _ended(
    rows: list[dict[str, t.Any]],
    wrong: str,
    step: MachineStep,
    hubs: list[dict[str, t.Any]],
    unjoined: list[str],
    unreleased: t.Sequence[str] = (),
) -> dict[str, t.Any]:
    """The result of what was done. ``wrong`` is what is wrong with the clock, empty when nothing is; ``unreleased``, why deleted objects
    remain."""
    problems = [*([wrong] if wrong else []), *(_sentence(row) for row in rows if row["problem"]), *unreleased]
    changed = any(row["result"] in step.changed for row in rows)
    outcome = "partial" if problems else "changed" if changed else "ok"
    result = _result(rows, outcome, changed=changed, hubs=hubs, problems=problems)
    return {**result, "unjoined": unjoined} if step.joins else result


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
        "claim": claim,
    }


def _machine_results(rows: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[MachineResult]:
    """Of rows that are about a machine with a claim."""
    for row in rows:
        if row.get("claim") is not None:
            yield MachineResult(row["claim"], row["result"], row["message"], seen=bool(row.get("seen")))


def _launch(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    return [_launched_row(launched) for launched in launch_all(context, claims)]


def _launched_row(launched: Launched) -> dict[str, t.Any]:
    row = _row(launched.claim, launched.result, launched.message, problem=launched.result in ("failed", "waiting"))
    return row | {"launched": launched.result in _RENTED}


def _join(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    return [_joined_row(joined) for joined in join_all(context, claims)]


def _joined_row(joined: Joined) -> dict[str, t.Any]:
    row = _row(joined.claim, joined.result, joined.message, problem=joined.result != "ready", remedy=_after_join(joined))
    return row | _course(joined)


def _launch_and_join(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    """Each machine is followed from the moment it is rented, beside those that were on their way. One row per machine."""
    return _LaunchAndJoin(context).run(claims)


class _LaunchAndJoin:
    """A machine behind a WireGuard hub is left for a later step: tasks of the playbook tell its hub of it first. One that fails is replaced
    in the pools of which the task says how many machines they shall have (``wanted``)."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wanted: dict[str, int] = context.task.params.get("wanted") or {}
        self._joins = Joins(context, self._replace)
        self._stopped = threading.Event()
        self._guard = threading.Lock()
        self._launched: list[Launched] = []
        self._replacing: dict[str, str] = {}  # name of the new claim → name of one that failed
        self._numbers = itertools.count(1)

    def run(self, claims: list[Claim]) -> list[dict[str, t.Any]]:
        unsent = [claim for claim in claims if _unsent(claim)]
        for claim in claims:
            if not _unsent(claim):
                self._follow(claim)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="launches") as pool:
            launching = pool.submit(self._launch_first, unsent)
            try:
                joined = self._joins.run()
            except BaseException:
                self._stopped.set()
                raise
            launching.result()
        return self._rows(joined)

    def _launch_first(self, claims: list[Claim]) -> None:
        try:
            self._launch(claims)
        finally:
            self._joins.close()

    def _launch(self, claims: list[Claim]) -> None:
        self._joins.expect(claims)
        launched = launch_all(self._context, claims, self._follow, self._stopped)
        with self._guard:
            self._launched += launched

    def _follow(self, claim: Claim) -> None:
        if not _behind_hub(claim):
            self._joins.add(claim)

    def _replace(self, gone: t.Sequence[Claim]) -> None:
        failed: dict[str, list[str]] = {}
        for claim in gone:
            if claim.pool in self._wanted:
                failed.setdefault(claim.pool, []).append(claim.name)
        planned = plan_replacements(self._context, {pool: self._wanted[pool] for pool in failed}, next(self._numbers))
        with self._guard:
            for claim in planned:
                if failed.get(claim.pool):
                    self._replacing[claim.name] = failed[claim.pool].pop()
        self._launch(planned)

    def _rows(self, joined: list[Joined]) -> list[dict[str, t.Any]]:
        """A failed machine counts as a problem until its replacement, or the replacement of that, is usable."""
        results = {result.claim.name: result.result for result in joined}
        solved = set[str]()
        for name in reversed(self._replacing):
            if results.get(name) == "ready" or name in solved:
                solved.add(self._replacing[name])
        rows = [_launched_row(launched) for launched in self._launched if launched.claim.name not in results]
        rented = {launched.claim.name for launched in self._launched if launched.result in _RENTED}
        for result in joined:
            row = _joined_row(result) | {"launched": result.claim.name in rented}
            rows.append(row | {"result": "replaced", "problem": False} if result.claim.name in solved else row)
        return rows


def _behind_hub(claim: Claim) -> bool:
    """Whether tasks of the playbook configure the hub through which it reaches the cluster."""
    return claim.peer is not None and bool(claim.peer.host)


def _look_in(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    """Without waiting for anybody: those that are complete are joined, the others' requests for a certificate are answered."""
    complete = complete_ones(context, claims)
    answers = admit(context, [claim for claim in claims if claim not in complete])
    rows = [
        _row(answer.claim, answer.result, answer.message, problem=answer.result in ("denied", "error"), remedy=_ASSERT_AGAIN)
        for answer in answers
    ]
    return rows + _join(context, complete)


def _repair(context: Context, drifted: list[Drifted]) -> list[dict[str, t.Any]]:
    results = repair_all(context, drifted)
    return [
        _row(
            repaired.claim,
            "drifted" if repaired.problem else "repaired",
            repaired.message,
            problem=bool(repaired.problem),
            remedy=_ASSERT_AGAIN,
        )
        for repaired in results
    ]


def _wants_a_person(ended: Ended) -> bool:
    """A drain that a budget or a busy pod held up goes on by itself; one that may not be done does not."""
    return ended.result == "pending" or (ended.drained is not None and ended.drained.forbidden)


def _course(joined: Joined) -> dict[str, t.Any]:
    """When each step was first seen, and why it ended early; the table shows no more than the cause, a screen has shown the rest."""
    end = "not terminated yet" if joined.left else "terminated"
    short = {"what": f"{joined.explained.cause} ({end})"} if joined.explained is not None else {}
    return short | {
        "seen": {step: to_text(moment) for step, moment in joined.seen.items()},
        "diagnosis": joined.explained.result if joined.explained is not None else None,
    }


def _after_join(joined: Joined) -> str:
    """What comes next: the same again, another machine, or first the end of this one."""
    if joined.result == "waiting":
        return _ASSERT_AGAIN
    return _GO_ON if joined.left else _TRY_AGAIN


def _teardown(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
    results = teardown_all(context, claims)
    rows = [_row(ended.claim, ended.result, ended.message, problem=_wants_a_person(ended), remedy=_GO_ON) for ended in results]
    return rows + remove_orphans(context, context.task.params.get("orphans") or [])


def _beside_teardown(
    work: t.Callable[[Context, list[Claim]], list[dict[str, t.Any]]],
) -> t.Callable[[Context, list[Claim]], list[dict[str, t.Any]]]:
    """``work`` for the claims that stay, while the others are terminated."""

    def run(context: Context, claims: list[Claim]) -> list[dict[str, t.Any]]:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scale") as pool:
            going = pool.submit(_teardown, context, [claim for claim in claims if claim.deletion is not None])
            return work(context, [claim for claim in claims if claim.deletion is None]) + going.result()

    return run


_RENTED = frozenset({"launched", "adopted"})
_JOINED = frozenset({"ready", "failed", "replaced", "repaired", "admitted", "denied"})
_ENDED = frozenset({"gone", "kept", "removed"})

_LAUNCH = MachineStep(_unsent, _launch, _RENTED, would=_RENTED_THEN, rents=True)
_PROVISION = MachineStep(_unsent, _launch_and_join, _RENTED | _JOINED, would=_RENTED_THEN, joins=True, drifted=True, rents=True)
_JOIN = MachineStep(_unfinished, _join, _JOINED, would=_FOLLOWED, drifted=True)
_LOOK_IN = MachineStep(_unfinished, _look_in, _JOINED, drifted=True)
_TEARDOWN = MachineStep(lambda claim: claim.deletion is not None, _teardown, _ENDED, would="", deletes=True)
_SCALE = MachineStep(_in_plan, _beside_teardown(_launch), _RENTED | _ENDED, would=_RENTED_THEN, deletes=True, rents=True)
_SCALE_AND_JOIN = MachineStep(
    _in_plan,
    _beside_teardown(_launch_and_join),
    _RENTED | _ENDED | _JOINED,
    would=_RENTED_THEN,
    deletes=True,
    joins=True,
    drifted=True,
    rents=True,
)
