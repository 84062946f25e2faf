# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_plan: look, decide, show; then save the plan, or (outside check mode) record it under the run lock."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ..core.errors import ApiError, InvalidInput, Locked, TgpError
from ..core.events import render
from ..core.task import Task
from ..kube.client import ensure_namespace
from ..metrics.collect import Archived, FleetRecords
from ..metrics.state import ARCHIVED, read_archived
from ..model import Action, Ledger, Observation, OffersNotRead, Plan, Pool, Specs
from ..model.defaults import LAUNCHING, REAPING, Destroy, Settings
from ..model.reasons import ActionKind
from ..observe.context import Context, open_context, settings_of
from ..observe.gather import gather, with_offers
from ..observe.queues import with_pod_groups, with_queues
from ..operations.launch.wireguard_peers import hubs_of, refuse_hubs
from ..operations.persist_plan import Recorded, record, without, write_objects
from ..operations.plan_file import write_plan
from ..operations.write_events import report_plan
from ..planner.claims.diff import claim_diff
from ..planner.disruption.schedule import hours
from ..planner.kubernetes_events import of_plan
from ..planner.object_status import World
from ..planner.pauses import paused_lines
from ..planner.plan import plan
from ..planner.plans.migration import COLUMNS as MIGRATION_COLUMNS
from ..planner.plans.migration import migration_result, migration_rows, pools_of, table_row
from ..planner.plans.saved_plan import make
from ..planner.plans.view import headings, rows, summary
from ..preflight.preflight import after_preflight, nothing_could_join
from ..providers.registry import CAPABILITIES
from ..store.run_lock import PATIENT, release, take

_T = t.TypeVar("_T")
_ORPHAN_KINDS = tuple(kind for kind in ActionKind if kind.startswith("delete_"))
_SCHEDULED = ("reap", "autoscale")  # modes of playbooks that a timer starts
_BOOKKEEPING = (ActionKind.UPDATE, ActionKind.ANNOTATE)
STARTS = "starts"  # value of ``loop`` in the first plan of a loop: whoever starts one waits for its answer
_CHANGES = (
    ActionKind.LAUNCH,
    ActionKind.DESTROY,
    ActionKind.RESUME,
    ActionKind.TAINT,
    ActionKind.UNTAINT,
    ActionKind.RESTORE,
    *_ORPHAN_KINDS,
)


def plan_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_plan."""
    settings = _settings(task)
    context = open_context(task, settings=settings, documents_required=settings.mode in LAUNCHING, hubs=settings.mode != "destroy")
    try:
        context.specs = _chosen(task, context.specs, settings, context.clock.now())
        if task.params.get("migrate"):
            context.settings = dataclasses.replace(settings, migrate=pools_of(task.params["migrate_pools"], context.specs))
        if task.params.get("loop"):
            refuse_hubs(context)
        if (
            task.params.get("loop") == STARTS
            and context.specs.faults
            and not (context.specs.pools or context.records.known_claims())
        ):
            faults = [text for texts in context.specs.faults.values() for text in texts]
            raise InvalidInput("There is no pool without a fault, so the loop would have nothing to do.", problems=faults)
        if task.check_mode or task.params.get("save_to"):
            return _decide(context, writes=False)
        return locked(context, lambda: _decide(context, writes=True))
    finally:
        context.close()


def locked(context: Context, decide: t.Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
    """``decide()`` under the run lock, which is kept after it; the result of a run that was skipped, when another one holds the lock."""
    wait, fails = _lock_choice(context.task.params, context.settings.mode)
    ensure_namespace(context.kube)
    try:
        lock = take(context.task, context.kube, context.run_id, context.cluster_id, wait=wait)
    except Locked as busy:
        if fails:
            raise _told_how_to_wait(busy, context.task.params, wait) from busy
        context.task.progress(f"  {busy}")
        return result_of(context, Plan(), "lock_busy", {}, changed=False, message=str(busy))
    context.lock = lock
    if lock.waited:
        context.refresh()
    try:
        context.records.draw_generation()
        return decide()
    except BaseException:
        lock.release()
        raise


def _lock_choice(params: t.Mapping[str, t.Any], mode: str) -> tuple[float, bool]:
    """How long to wait for another run, and whether a lock that stays busy is a failure (L-30). Who calls provision, apply or destroy wants
    it done; what runs by timer comes again."""
    on_busy, wait = params.get("on_lock_busy"), params.get("lock_wait")
    scheduled = mode in _SCHEDULED and "file" not in params
    fails = on_busy == "fail" if on_busy else not scheduled
    if wait is None:
        wait = 0 if scheduled or on_busy == "skip" else PATIENT
    return float(wait), fails


def _told_how_to_wait(busy: Locked, params: t.Mapping[str, t.Any], wait: float) -> Locked:
    """The same with the variable of the playbook."""
    variable = "apply_lock_wait" if "file" in params else "plan_lock_wait"
    waited = f" This run waited for {wait:.0f} s and did nothing." if wait else " This run did nothing."
    remedy = f"Start it again when that run has ended, or let it wait longer: -e {variable}={2 * PATIENT} (module option lock_wait, seconds)."
    return Locked(busy.message + waited, remedy=remedy, **busy.details)


def _decide(context: Context, *, writes: bool) -> dict[str, t.Any]:
    sight = Sight(context)
    decided, specs = after_preflight(
        context,
        lambda specs: sight.decide(
            lambda seen: plan(seen, specs, context.settings, CAPABILITIES, context.run_id),
            lambda planned: writes and _needs_new_offers(planned, context.settings),
        ),
        lambda planned: _to_look_at(planned, context.settings),
        lambda planned: [action.claim for action in planned.launches if action.claim],
        writes=writes,
        look_again=sight.look,
    )
    observation = sight.seen
    refused = specs.blocked or specs.imageless
    if refused and context.settings.mode == "provision" and not any(action.kind in _CHANGES for action in decided.actions):
        raise nothing_could_join(specs)
    for warning in decided.warnings:
        context.warn(warning)
    outlook = summary(decided, observation)
    show(context, decided, outlook)
    recorded = record(context, decided) if writes else Recorded()
    unwritten = write_objects(context, observation, decided) if writes else []
    changed = recorded.writes > 0 if writes else any(action.kind in _CHANGES for action in decided.actions)
    decided = _asked_in_vain(without(decided, recorded), context)
    if writes:
        report_plan(context, of_plan(World(observation, context.specs, decided, context.settings, CAPABILITIES)))
    if context.task.params.get("save_to"):
        changed = write_plan(context.task, make(decided, observation, context.specs, context.settings, context.run_id))
    result = result_of(context, decided, _outcome(decided), outlook, changed=changed, unrecorded=recorded.unrecorded)
    result["problems"] += unwritten
    if context.task.params.get("migrate"):
        result["migration"] = _migration(context, decided, observation)
    if context.metrics is not None and writes:
        context.metrics.note_plan(observation, decided, demand=context.settings.mode == AUTOSCALE)
    if context.task.diff_mode:
        result["diff"] = diff_of(decided, observation)
    return result


def _migration(context: Context, decided: Plan, observation: Observation) -> dict[str, t.Any]:
    """How far the migration is, after a table of it."""
    pools = context.settings.migrate
    found = migration_rows(decided, observation, context.specs, pools, CAPABILITIES, context.records.ledger())
    for line in render([table_row(row) for row in found], MIGRATION_COLUMNS, right=("elapsed", "cost_both")):
        context.task.progress(line)
    return migration_result(found)


def _asked_in_vain(decided: Plan, context: Context) -> Plan:
    """The plan with a problem for each pool that a person asked for machines, by its name or by a number, and that is paused; and for each that
    was named and may not launch, because its document or class is faulty or is being deleted (L-30)."""
    task, numbers = context.task, context.task.params.get("nodes")
    if context.settings.mode != "provision":
        return decided
    named = {*task.params["pools"], *(name for name, number in (numbers.items() if isinstance(numbers, dict) else ()) if number)}
    by_number = numbers not in (None, "") and not isinstance(numbers, dict) and not named
    problems = [
        f"{pool.pool}: {pool.missing} machines will not come: {pool.why}. To end the pause, run resume.yml."
        for pool in decided.paused
        if pool.missing and (by_number or {pool.pool, pool.pool.partition("/")[2]} & named)
    ]
    stopped = [(key, why) for key, why in sorted(context.specs.paused.items()) if {key, key.partition("/")[2]} & named]
    problems += [f"{key}: no machines will come: {why}." for key, why in stopped]
    return dataclasses.replace(decided, problems=(*decided.problems, *problems))


def _to_look_at(decided: Plan, settings: Settings) -> set[str]:
    """Pools in which the plan launches; where a person reads what will not come, also those in which it would."""
    lacking = set() if settings.mode == AUTOSCALE else {shortfall.pool for shortfall in decided.shortfall}
    return lacking | {action.pool for action in decided.launches}


def _needs_new_offers(decided: Plan, settings: Settings) -> bool:
    """Whether a plan must not be carried out by remembered offers: it changes something, or a person waits for machines that it lacks."""
    return any(action.kind in _CHANGES for action in decided.actions) or (settings.mode != AUTOSCALE and bool(decided.shortfall))


class Sight:
    """One observation with what the run's mode needs. ``seen`` has offers once a decision depended on them: a run that finds everything
    as it is wanted asks no cloud for its prices."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.look()

    def look(self) -> None:
        """Observe; again, after minutes in which the world went on."""
        context, reaps = self._context, self._context.settings.mode in REAPING
        seen = gather(context, extras=reaps, tokens=reaps, exporters=reaps or context.settings.mode == "status")
        self._bare = with_pod_groups(context, with_queues(context, seen))
        self._remembered: frozenset[str] = frozenset()  # clouds whose offers in ``seen`` were read by an earlier run
        self.seen: Observation = self._bare

    def decide(self, decide: t.Callable[[Observation], _T], acts: t.Callable[[_T], bool]) -> _T:
        """``decide`` what to do, by offers that were read in this run if ``acts`` says that it is carried out."""
        try:
            decided = decide(self.seen)
        except OffersNotRead:
            self.seen, self._remembered = with_offers(self._context, self._bare)
            decided = decide(self.seen)
        if self._remembered and acts(decided):
            self.seen, self._remembered = with_offers(self._context, self._bare, again=self._remembered)
            decided = decide(self.seen)
        return decided


def _outcome(decided: Plan) -> str:
    if decided.failures:
        return "partial"
    if decided.problems:
        return "guard_refused"
    return "shortfall" if decided.shortfall or any(pod.reason for pod in decided.waiting) else "ok"


def result_of(
    context: Context,
    decided: Plan,
    outcome: str,
    outlook: dict[str, t.Any],
    *,
    changed: bool,
    message: str = "",
    unrecorded: t.Collection[str] = (),
) -> dict[str, t.Any]:
    result: dict[str, t.Any] = {
        "changed": changed,
        "run_id": context.run_id,
        "outcome": outcome,
        "plan": rows(decided),
        "summary": outlook,
        "shortfall": outlook.get("shortfall", []),
        "launch": [action.name for action in decided.actions if action.kind in (ActionKind.LAUNCH, ActionKind.RESUME)],
        "destroy": [action.name for action in decided.actions if action.kind == ActionKind.DESTROY],
        "orphans": [_orphan(action) for action in decided.actions if action.kind in _ORPHAN_KINDS],
        "problems": [*decided.problems, *decided.failures],
        "unrecorded": sorted(unrecorded),
        "hubs": [] if outcome == "lock_busy" else hubs_of(context),
        "wanted": dict(context.specs.nodes) if context.settings.mode == "provision" else {},
    }
    if context.settings.mode == AUTOSCALE:
        result |= demand_of(decided)
    elif context.settings.mode in LAUNCHING:
        result["problems"] += [
            f"{shortfall.pool}: {shortfall.missing} machines will not come: {shortfall.reason}" for shortfall in decided.shortfall
        ]
    if message:
        result["msg"] = message
    return result


def _orphan(action: Action) -> dict[str, str]:
    cloud = action.value or "" if action.kind in (ActionKind.DELETE_INSTANCE, ActionKind.DELETE_EXTRA) else ""
    return {
        "kind": action.kind, "name": action.name, "target": action.target, "uid": action.uid, "reason": action.reason, "cloud": cloud
    }  # fmt: skip


def show(context: Context, decided: Plan, outlook: dict[str, t.Any]) -> None:
    say = context.task.progress
    shown = rows(
        dataclasses.replace(decided, actions=tuple(action for action in decided.actions if action.kind not in _BOOKKEEPING))
    )
    for line in render(shown, headings(shown), right=("price_hour", "price_day")) or ["  Nothing to do."]:
        say(line)
    show_demand(say, decided)
    for line in paused_lines(outlook["paused"]):
        say(f"  {line}")
    for shortfall in decided.shortfall:
        reason = f"{shortfall.reason} {_counts(shortfall.rejected)}"
        say(f"  {shortfall.pool}: {shortfall.missing} of the wanted machines will not come: {reason}".rstrip())
    if shown:
        say(
            f"  now ${outlook['cost_hour_now']}/h (${outlook['cost_day_now']}/day), "
            f"then ${outlook['cost_hour_after']}/h (${outlook['cost_day_after']}/day)"
        )


def _counts(rejected: t.Mapping[str, int]) -> str:
    """How many offers each reason excluded, as a parenthesis."""
    return f"({', '.join(f'{number} offers: {reason}' for reason, number in rejected.items())})" if rejected else ""


def diff_of(decided: Plan, observation: Observation) -> dict[str, str]:
    """Machines before and after, and what else would go."""
    before, after = claim_diff(decided, observation.claims or ())
    gone = [
        f"{action.kind.removeprefix('delete_')} {action.target} ({action.reason})"
        for action in decided.actions
        if action.kind in _ORPHAN_KINDS
    ]
    return {
        "before_header": "machines now",
        "after_header": "machines then",
        "before": "".join(f"{line}\n" for line in (*before, *gone)),
        "after": "".join(f"{line}\n" for line in after),
    }


# ---- what the user chose


def _settings(task: Task) -> Settings:
    refuse_choices(task)
    params = task.params
    destroy = Destroy(
        names=tuple(params["names"]), pools=tuple(params["pools"]), all=bool(params["all"]), force=bool(params["force"])
    )
    if params["mode"] == "destroy":
        names, pools, everything = (task.called(name) for name in ("names", "pools", "all"))
        if not (destroy.names or destroy.pools or destroy.all):
            raise InvalidInput("Nothing is named to be terminated.", remedy=f"Set {names}, {pools}, or {everything}: true.")
        if destroy.all and (destroy.names or destroy.pools):
            raise InvalidInput(
                f"{everything} means every machine of this cluster, and {names} or {pools} were given, too.",
                remedy=f"Leave out {everything} to terminate what is named, or {names} and {pools} to terminate everything.",
            )
        return dataclasses.replace(settings_of(task), mode="destroy", destroy=destroy)
    return dataclasses.replace(settings_of(task), mode=params["mode"])


def _chosen(task: Task, specs: Specs, settings: Settings, now: datetime) -> Specs:
    """The specs with the pools that were asked for and the numbers wanted in them."""
    if settings.mode == AUTOSCALE or settings.mode not in LAUNCHING:
        return specs
    asked: list[str] = task.params["pools"]
    numbers = task.params.get("nodes")
    keys = {*(pool.key for pool in specs.pools), *specs.paused}
    names = {*keys, *(key.partition("/")[2] for key in keys)}
    unknown = [str(name) for name in (*asked, *(numbers if isinstance(numbers, dict) else ())) if name not in names]
    if unknown:
        raise InvalidInput(
            f"There is no pool {', '.join(unknown)} among the documents.",
            remedy=f"Known pools: {', '.join(sorted(keys)) or 'none'}.",
        )
    pools = [pool for pool in specs.pools if not asked or pool.key in asked or pool.name in asked]
    default = 1 if settings.mode == "provision" and not task.params.get("save_to") else 0
    wanted = {pool.key: _number(numbers, pool, now, default, task.called("nodes")) for pool in pools}
    by_default = [pool.key for pool in pools if default and _is_unasked(numbers, pool) and wanted[pool.key] == default]
    if by_default:
        task.progress(
            f"  {', '.join(by_default)}: {default} (default of provision; give {task.called('nodes')}=… for another number)"
        )
    if not wanted:  # those that were asked for are paused; no other one is wanted instead
        wanted = dict.fromkeys(specs.paused, 0)
    return dataclasses.replace(specs, nodes=wanted)


def _is_unasked(nodes: t.Any, pool: Pool) -> bool:
    """Whether neither the run nor the document says how many machines the pool shall have (L-29)."""
    return nodes in (None, "") and not pool.request and pool.replicas is None and not pool.min_nodes


def _number(nodes: t.Any, pool: Pool, now: datetime, default: int, called: str) -> int:
    """How many machines a pool shall have: the run's number, else its replicas or minNodes. ``default``: what a run without any number
    means by a pool that has neither. A request is always one machine."""
    unasked = _is_unasked(nodes, pool)
    if isinstance(nodes, dict):
        nodes = nodes.get(pool.key, nodes.get(pool.name))
    if pool.request:
        return 1
    if nodes is None or nodes == "":
        open_now = hours(pool, now)
        return 0 if open_now.closed else max(open_now.min_nodes, default if unasked else 0)
    try:
        number = int(nodes)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(nodes, (bool, float)):
        raise InvalidInput(
            f"{called} for {pool.key} is {nodes!r}.", remedy="Give a whole number, 0 or more, or a mapping of pools to numbers."
        )
    if pool.replicas is not None and number != pool.replicas:
        raise InvalidInput(
            f"{called} for {pool.key} is {number}, and its spec.replicas says exactly {pool.replicas}.",
            remedy=f"Change spec.replicas, or leave the pool out of {called} and name the other pools.",
        )
    return number


def unlock(task: Task) -> bool:
    """Release the lock of this run; False when it did not hold it."""
    run_id = task.params.get("run_id")
    if not run_id or task.check_mode:
        return False
    try:
        context = open_context(task, documents_required=False)
    except ApiError as error:
        task.warn(f"The run lock could not be released and ends by itself: {error}")
        return False
    try:
        released = release(task, context.kube, run_id, context.cluster_id)
        _note_records(context)
        return released
    except TgpError as error:
        task.warn(f"The run lock could not be released and ends by itself: {error}")
        return False
    finally:
        context.close()


def _note_records(context: Context) -> None:
    """For the metrics: what is recorded once the run is over."""
    if context.metrics is None:
        return
    try:
        claims, damaged = context.store.claim_records()
        try:
            ledger: Ledger | None = context.records.ledger()
            archived = read_archived(context.store.read_state(ARCHIVED))
        except TgpError as error:
            ledger, archived = None, Archived()
            context.warn(f"The ledger could not be read, so the metrics lack what hangs on it: {error}")
    except TgpError as error:
        context.warn(f"The claims could not be read, so the metrics keep the last state of the machines: {error}")
        return
    specs, settings, now = context.specs, context.settings, context.clock.now()
    records = FleetRecords(tuple(claims), tuple(damaged), ledger, specs, settings, now, CAPABILITIES, archived=archived)
    context.metrics.note_records(records)


# ---- what fleet_plan does besides in mode autoscale: pods and GPUs for the result and the screen

AUTOSCALE = "autoscale"
_CHOICES = {  # of a run, with the modes that look at them
    "pools": ("provision", "everything", "destroy"),
    "nodes": ("provision", "everything"),
    "names": ("destroy",),
    "all": ("destroy",),
    "force": ("destroy",),
    "migrate": ("autoscale",),
    "migrate_pools": ("autoscale",),
}
_GPUS = ("pool", "machines", "wanted", "used", "free", "coming", "waiting")
_PODS = {"pod": "waiting pod", "gpus": "gpus", "pool": "pool", "machine": "machine", "reason": "why not"}


def refuse_choices(task: Task) -> None:
    """What the run's mode would not look at is refused, so that nobody believes that it did."""
    params, mode = task.params, task.params["mode"]
    if params.get("migrate_pools") and not params.get("migrate"):
        raise InvalidInput("migrate_pools has no effect without migrate.", remedy="Set migrate: true, or leave migrate_pools out.")
    given = [choice for choice, modes in _CHOICES.items() if mode not in modes and not _is_empty(params.get(choice))]
    if given:
        uses = "; ".join(f"{task.called(name)} is for {', '.join(_CHOICES[name])}" for name in given)
        looks = f" Mode {mode} looks at all pools." if "pools" in given else ""
        raise InvalidInput(
            f"{', '.join(map(task.called, given))} cannot be used in mode {mode}.", remedy=f"Leave it out: {uses}.{looks}"
        )


def _is_empty(choice: t.Any) -> bool:
    return choice is False or choice is None or choice in ("", [], {})


def demand_of(plan: Plan) -> dict[str, t.Any]:
    """The part of the result that is about pods."""
    return {"waiting": _pods(plan), "gpus": _gpus(plan), "join": sorted({*plan.join, *plan.admit})}


def show_demand(say: t.Callable[[str], None], plan: Plan) -> None:
    """Two tables: GPUs per pool, and the pods that wait. Nothing where no pods were looked at."""
    numbers = tuple(name for name in _GPUS if name != "pool")
    for line in render(_gpus(plan), {name: name for name in _GPUS}, right=numbers):
        say(line)
    for line in render(_pods(plan), _PODS, right=("gpus",)):
        say(line)


def _gpus(plan: Plan) -> list[dict[str, t.Any]]:
    return [{**{name: getattr(tally, name) for name in _GPUS}, "pool": tally.pool or "(none)"} for tally in plan.tally]


def _pods(plan: Plan) -> list[dict[str, t.Any]]:
    return [
        {"pod": f"{pod.namespace}/{pod.name}", "gpus": pod.gpus, "pool": pod.pool, "machine": pod.machine, "reason": pod.reason}
        for pod in plan.waiting
    ]
