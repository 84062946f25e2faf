# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision: one pure function from what was seen and what is wanted to what shall be done (L-22).

It is a table of passes, run in order. docs/explanation/architecture.md, "Passes of a plan", shows the same table to people.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Observation, Phase, Plan, Specs
from ..model.defaults import MODES, REAPING, Settings
from ..model.reasons import ActionKind, Reason
from . import clock_skew, notices
from .claim_sync import settle
from .claims.record import BEFORE_READY
from .cluster_state import Situation
from .cost import budgets
from .disruption import consolidation, drift, forced_disruption, idleness, interruption, voluntary
from .garbage_collection import auxiliary_resources, document_gone, orphans, stopped_machines
from .pauses import paused_pools
from .plan_builder import Draft
from .provisioning import gpu_health, launch_planner, node_conditions, registration, replacements, service
from .provisioning.reservations import LaunchCapacity
from .scheduling import completed_requests, scale_up, unschedulable_pods


def plan(observation: Observation, specs: Specs, settings: Settings, capabilities: t.Mapping[str, Capability], run_id: str) -> Plan:
    """What this run does. The same inputs in any order give the same plan; nothing is read, written or asked meanwhile.

    ``run_id`` seeds the names of new machines. Without the claims nothing can be decided: the plan then holds a problem only.
    """
    mode = settings.mode
    if mode not in MODES:
        raise InvalidInput(f"There is no mode {mode!r}.", remedy=f"Use one of {', '.join(MODES)}.")
    if observation.claims is None:
        problem = "The claims could not be read: nothing is launched and nothing is deleted in this run."
        return Plan(problems=(problem,), findings=dict(sorted(observation.findings.items())))
    draft = _draft(Situation(observation, specs, settings, capabilities))
    if clock_skew.is_wrong(observation.clock_offset) and mode not in (ActionKind.DESTROY, "status"):
        _go_on_only(draft)
        return draft.plan()
    run = Run(draft, orphans.machines(draft.situation), run_id)
    for pass_ in passes_of(mode, blind=draft.situation.nodes is None):
        pass_.run(run)
    return draft.plan(writes=mode != "status")


def _draft(situation: Situation) -> Draft:
    return Draft(situation, {claim.name: settle(claim, situation) for claim in situation.claims})


@dataclasses.dataclass(slots=True)
class Run:
    """What the passes of one run share. ``unclaimed``: machines without a claim; ``run_id`` seeds the names of new machines; ``capacity``:
    what may be launched, with all of it reserved that this run launches, None in a mode that launches nothing."""

    draft: Draft
    unclaimed: list[orphans.Orphan]
    run_id: str
    capacity: LaunchCapacity | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """One step of a plan: it looks at the draft and adds its decisions.

    ``modes``: in which it runs; ``blind``: in which of them also when the cluster's Nodes could not be read.
    ``reasons``: for which it ends machines that have a claim, the strongest first.
    ``after``: passes that run earlier in each mode that has both, and ``why``.
    ``ahead_of``: stronger reasons of later passes, where the order of passes differs from that of reasons; ``why`` says why, too.
    """

    name: str
    run: t.Callable[[Run], object]
    modes: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    after: tuple[str, ...] = ()
    ahead_of: tuple[Reason, ...] = ()
    blind: tuple[str, ...] = ()
    why: str = ""


_PROVISION = ("provision",)
_DESTROY: tuple[str, ...] = (ActionKind.DESTROY,)
_REAP = (*REAPING, "status")  # status decides like reap, and its plan holds nothing but reports
_REAP_ONLY = ("reap", "status")
_WRITING = tuple(mode for mode in MODES if mode != "status")


def passes_of(mode: str, *, blind: bool = False) -> tuple[Pass, ...]:
    """What runs in a mode, in order; ``blind``: while the cluster's Nodes could not be read."""
    return tuple(pass_ for pass_ in PASSES if mode in pass_.modes and (not blind or mode in pass_.blind))


def _keep_findings(run: Run) -> None:
    """All findings stay as they were where this run cannot refute them."""
    draft = run.draft
    if draft.situation.settings.mode not in _REAP or draft.situation.nodes is None:
        draft.findings.update(draft.situation.seen.findings)


def _wrong_clock(run: Run) -> None:
    seen = run.draft.situation.seen
    if clock_skew.is_wrong(seen.clock_offset):
        run.draft.problems.append(clock_skew.told(seen.clock_offset or 0.0, seen.clock_source))


def _go_on_only(draft: Draft) -> None:
    """The whole decision of a run whose clock is wrong. Times that it would write are wrong, so no claim is brought up to date."""
    seen = draft.situation.seen
    text = clock_skew.told(seen.clock_offset or 0.0, seen.clock_source)
    draft.findings.update(seen.findings)
    draft.problems.append(text)
    draft.notice("clock", seen.clock_source, text, seconds=f"{seen.clock_offset:.0f}")
    for settled in draft.settled.values():
        claim = settled.stored
        if clock_skew.goes_on(claim) and claim.deletion is not None and claim.name not in draft.refilled:
            draft.change(claim)
            draft.destroy(claim, claim.deletion.reason, "goes on", force=claim.deletion.force)
    draft.settled = {name: settled for name, settled in draft.settled.items() if name in draft.decisions}


def _unread_nodes(run: Run) -> None:
    if run.draft.situation.nodes is None:
        run.draft.problems.append("The cluster's Nodes could not be read: nothing is deleted in this run.")


def _budgets(run: Run) -> None:
    purses = budgets.purses_of(run.draft, run.unclaimed)
    budgets.tell(run.draft, purses)
    budgets.act(run.draft, purses)


def _paused_pools(run: Run) -> None:
    situation = run.draft.situation
    claims = (settled.claim for settled in run.draft.settled.values())
    run.draft.paused = paused_pools(situation.pauses, situation.specs, claims)


def _launch(run: Run, launch: t.Callable[[Draft, t.Sequence[orphans.Orphan], str], LaunchCapacity]) -> None:
    if run.draft.standing_by:
        replacements.note_pods(run.draft)
    run.capacity = launch(run.draft, run.unclaimed, run.run_id)


def _replacements(run: Run) -> replacements.Replacements:
    return replacements.Replacements(run.draft, run.capacity, run.run_id)


def _joins(run: Run) -> None:
    draft = run.draft
    draft.join, draft.admit = (
        tuple(name for name in names if not draft.pause_of(draft.settled[name].claim))
        for names in (_to_join(draft), _to_admit(draft))
    )


def _to_join(draft: Draft) -> tuple[str, ...]:
    """Machines that the step of joining has something to do for at once: complete but for our marks, or with marks that are gone."""
    names = []
    situation = draft.situation
    for settled in draft.settled.values():
        claim, pool = settled.claim, situation.pool(settled.claim)
        if claim.deletion is not None or pool is None:
            continue
        if claim.phase is Phase.READY:
            left = bool(claim.token_id or claim.mesh_key_id)
            due = left or (
                settled.node is not None and bool(registration.drift(claim, settled.node, pool, situation.seen.cluster_id))
            )
        elif claim.is_service:
            due = claim.phase in BEFORE_READY and bool(claim.instance_id) and service.answers(claim, situation)
        else:
            complete = settled.node is not None and not registration.not_initialized(claim, settled.node, pool, marking=True)
            due = claim.phase in BEFORE_READY and bool(claim.instance_id) and complete
        if due:
            names.append(claim.name)
    return tuple(sorted(names))


def _to_admit(draft: Draft) -> tuple[str, ...]:
    """Machines on their way that have no Node yet: they may be asking for their certificate."""
    return tuple(
        settled.claim.name
        for settled in draft.settled.values()
        if settled.claim.phase in BEFORE_READY
        and settled.claim.deletion is None
        and settled.claim.token_id
        and settled.claim.instance_id
        and settled.node is None
        and not settled.claim.is_service
    )


def _unread_sources(run: Run) -> None:
    """What could not be read is a failure of the run, whatever was due: nobody would notice a revoked key before a machine has to go.
    A cloud that only claims name belongs to documents of another run, which reads it."""
    draft = run.draft
    seen = draft.situation.seen
    for cloud in draft.situation.unlisted:
        text = f"The machines of {cloud} could not be listed; nothing that needs this list is decided. {seen.clouds[cloud].problem}"
        if not seen.clouds[cloud].expected:
            draft.warnings.append(f"{text} No document of this run names {cloud}.")
            continue
        draft.failures.append(text.strip())
        draft.notice("provider_unreadable", cloud, text.strip(), cloud=cloud)
    if seen.mesh_problem:
        text = f"The mesh could not be read, so nothing of it is removed. {seen.mesh_problem}"
        draft.failures.append(text)
        draft.notice("provider_unreadable", "mesh", text)
    for state, problem in sorted(seen.state_problems.items()):
        draft.failures.append(problem)
        draft.notice("records", f"tgp-state-{state}", problem)


def _blocked_pools(run: Run) -> None:
    for name, why in sorted(run.draft.situation.specs.blocked.items()):
        run.draft.warnings.append(f"Nothing is launched for {'pool' if '/' in name else 'class'} {name}: {why}")


PASSES: tuple[Pass, ...] = (
    # ---- what the run can and cannot tell
    Pass("keep-findings", _keep_findings, MODES, blind=MODES),
    Pass("wrong-clock", _wrong_clock, _DESTROY, blind=_DESTROY, why="what a person asks for is done whatever the clock says"),
    Pass("unread-nodes", _unread_nodes, (*_DESTROY, *_REAP), blind=(*_DESTROY, *_REAP)),
    Pass("paused-pools", _paused_pools, MODES, blind=MODES, why="every mode says what is paused"),
    # ---- what a person names
    Pass("named-orphans", lambda run: orphans.destroy_named(run.draft, run.unclaimed), _DESTROY),
    Pass(
        "named-machines",
        lambda run: forced_disruption.named(run.draft),
        _DESTROY,
        reasons=(Reason.MANUAL,),
        after=("named-orphans",),
        why="a name that a machine without a claim has is not reported as unknown",
    ),
    # ---- garbage collection
    Pass(
        "terminating",
        lambda run: forced_disruption.finish(run.draft),
        _REAP,
        reasons=(Reason.LAUNCH_FAILED,),
        why="once the pods have left the reason stays, so no later pass decides about the machine again",
    ),
    Pass("adopt-running", lambda run: orphans.adopt_running(run.draft, run.unclaimed), (*_PROVISION, *_REAP)),
    Pass("orphaned-machines", lambda run: orphans.remove_machines(run.draft, run.unclaimed), _REAP),
    Pass("orphaned-nodes", lambda run: orphans.remove_nodes(run.draft), _REAP),
    Pass("orphaned-devices", lambda run: orphans.remove_devices(run.draft), _REAP),
    Pass("orphaned-keys", lambda run: orphans.remove_keys(run.draft), _REAP),
    Pass("orphaned-tokens", lambda run: auxiliary_resources.remove_tokens(run.draft), _REAP),
    Pass("orphaned-extras", lambda run: auxiliary_resources.remove(run.draft), _REAP),
    Pass("orphaned-services", lambda run: auxiliary_resources.remove_services(run.draft), _REAP),
    Pass("orphaned-acceptance-pods", lambda run: auxiliary_resources.remove_trials(run.draft), _REAP),
    Pass("foreign-machines", lambda run: orphans.report_foreign(run.draft), _REAP),
    Pass("cut-off-releases", lambda run: orphans.report_cut_off_releases(run.draft), _PROVISION),
    # ---- machines that end whatever their pods do, the strongest reason first
    Pass(
        "interruption",
        lambda run: interruption.spot_lost(run.draft),
        (*_PROVISION, *_REAP),
        reasons=(Reason.SPOT_LOST,),
        ahead_of=(Reason.INSTANCE_GONE,),
        why="an interrupted machine is still there: missing-machines and failed-machines must not call it gone",
    ),
    Pass(
        "missing-machines",
        lambda run: forced_disruption.lost(run.draft),
        _REAP,
        reasons=(Reason.INSTANCE_GONE, Reason.FAILED_JOIN),
        after=("interruption",),
        why="an interrupted machine keeps its own reason, which backs its offer off",
    ),
    Pass(
        "failed-machines",
        lambda run: interruption.given_up(run.draft),
        _REAP,
        reasons=(Reason.INSTANCE_GONE, Reason.FAILED_JOIN),
        after=("interruption",),
        why="an interrupted machine is stopped, too",
    ),
    Pass(
        "failed-joins",
        lambda run: forced_disruption.failed_joins(run.draft),
        _REAP,
        reasons=(Reason.FAILED_JOIN,),
        after=("missing-machines", "failed-machines"),
        why="a machine that its provider lost or gave up is not a join that took too long",
    ),
    Pass(
        "provision-duplicates",
        lambda run: orphans.duplicates(run.draft),
        _PROVISION,
        after=("interruption",),
        why="an interrupted machine goes with all its ids, so it has no duplicates left",
    ),
    Pass(
        "price-warnings",
        lambda run: forced_disruption.prices(run.draft, destroy=False),
        _PROVISION,
        blind=_PROVISION,
    ),
    Pass("gpu-warnings", lambda run: gpu_health.warn(run.draft), _PROVISION),
    Pass("price-jump", lambda run: forced_disruption.prices(run.draft, destroy=True), _REAP, reasons=(Reason.PRICE_JUMP,)),
    Pass("budgets", _budgets, _REAP, reasons=(Reason.BUDGET,)),
    Pass("expiration", lambda run: forced_disruption.expired(run.draft), _REAP, reasons=(Reason.EXPIRED,)),
    Pass("gpu-health", lambda run: gpu_health.update_taints(run.draft), _REAP),
    Pass(
        "node-repair",
        lambda run: forced_disruption.unhealthy(run.draft),
        _REAP,
        reasons=(Reason.UNHEALTHY,),
        after=("gpu-health",),
        why="gpu-health marks nodes without GPUs, also those that end here",
    ),
    Pass(
        "node-conditions",
        lambda run: node_conditions.repair(run.draft),
        _REAP,
        reasons=(Reason.UNHEALTHY,),
        after=("node-repair",),
        why="nodes that end as not Ready count when the guard asks how many of a pool are unhealthy",
    ),
    Pass("document-gone", lambda run: document_gone.reconcile(run.draft), _REAP, reasons=(Reason.DOCUMENT_GONE,)),
    Pass("termination-requests", lambda run: forced_disruption.asked_for(run.draft), _REAP, reasons=(Reason.MANUAL,)),
    Pass(
        "continue-drains",
        lambda run: forced_disruption.go_on(run.draft),
        _REAP,
        after=("failed-joins", "price-jump", "budgets", "expiration", "node-conditions", "document-gone", "termination-requests"),
        why="a drain of an earlier run goes on for its own reason only where no stronger one holds now",
    ),
    # ---- launches: after what has to go, so that it is replaced in the same plan, under limits that count it as still alive
    Pass(
        "note-completed-requests",
        lambda run: completed_requests.note(run.draft),
        _REAP,
        after=("expiration",),
        why="a request whose machine expires in this run is served: nothing is launched in its place",
    ),
    Pass(
        "scale-up",
        lambda run: _launch(run, scale_up.scale_up),
        ("autoscale",),
        reasons=(Reason.LAUNCH_FAILED,),
        after=("continue-drains", "note-completed-requests"),
        why="pods are placed on machines that stay",
    ),
    Pass("unschedulable-pods", lambda run: unschedulable_pods.keep(run.draft), (*_REAP_ONLY, "everything")),
    Pass(
        "launch",
        lambda run: _launch(run, launch_planner.launch),
        ("provision", "everything"),
        reasons=(Reason.LAUNCH_FAILED,),
        after=("interruption", "continue-drains", "note-completed-requests"),
        blind=_PROVISION,
        why="what ends is replaced, and an offer that this run loses a machine at is not taken again",
    ),
    # ---- machines that may stay: voluntary disruption
    Pass(
        "emptiness",
        lambda run: idleness.remove_idle(run.draft),
        _REAP,
        reasons=(Reason.EMPTY,),
        after=("scale-up", "launch"),
        ahead_of=(Reason.REPLACED, Reason.DRIFTED, Reason.UNDERUTILIZED),
        why="a node that a pending pod will run on stays; idle nodes use the disruption budget before nodes whose pods must move",
    ),
    Pass(
        "gpu-replacement",
        lambda run: gpu_health.replace(run.draft),
        _REAP,
        reasons=(Reason.REPLACED,),
        after=("gpu-health", "emptiness"),
        why="gpu-health notes since when GPUs are missing",
    ),
    Pass(
        "empty-unhealthy",
        lambda run: node_conditions.replace_empty(run.draft),
        _REAP,
        reasons=(Reason.REPLACED,),
        after=("node-conditions", "emptiness", "gpu-replacement"),
        why="node-conditions notes since when a sign is there; an idle node goes as idle where it may",
    ),
    Pass(
        "drift",
        lambda run: drift.replace_drifted(run.draft, _replacements(run)),
        _REAP,
        reasons=(Reason.DRIFTED,),
        after=("scale-up", "launch", "emptiness"),
        why="as emptiness says; replacements are launched with what other launches leave",
    ),
    Pass(
        "unused-gpus",
        lambda run: idleness.remove_unused(run.draft),
        _REAP,
        reasons=(Reason.UNDERUTILIZED,),
        after=("emptiness", "drift"),
        why="emptiness finds them, and idle nodes go first",
    ),
    Pass(
        "consolidation",
        lambda run: consolidation.consolidate(run.draft),
        _REAP,
        reasons=(Reason.UNDERUTILIZED,),
        after=("emptiness", "gpu-replacement", "drift"),
        why="pods move only to nodes that no other pass ends",
    ),
    Pass(
        "replacements",
        lambda run: replacements.before_expiry(_replacements(run)),
        _REAP,
        after=("expiration", "scale-up", "launch", "emptiness", "drift", "unused-gpus", "consolidation"),
        why="a machine that ends before it expires needs no replacement for that",
    ),
    Pass(
        "stopped-machines",
        lambda run: stopped_machines.remove_stopped(run.draft),
        _REAP,
        after=("scale-up", "launch", "drift", "replacements"),
        why="an own machine that this plan switches on keeps its Node",
    ),
    # ---- what follows from the decisions
    Pass(
        "uncordon",
        lambda run: voluntary.restore(run.draft),
        _REAP,
        after=("document-gone", "emptiness", "gpu-replacement", "drift", "unused-gpus", "consolidation"),
        why="a node opens again only when no pass goes on with its drain",
    ),
    Pass(
        "duplicates",
        lambda run: orphans.duplicates(run.draft),
        (*_DESTROY, *_REAP),
        after=("named-machines", "consolidation"),
        why="a machine that ends goes with all its ids, so it has no duplicates left",
    ),
    Pass(
        "unrefuted-findings",
        lambda run: orphans.carry_over(run.draft),
        _REAP,
        after=("orphaned-machines", "orphaned-nodes", "orphaned-devices", "consolidation"),
        why="a finding that no pass could check stays as it was",
    ),
    Pass(
        "completed-requests",
        lambda run: completed_requests.settle(run.draft),
        _REAP,
        after=("scale-up", "launch", "emptiness"),
        why="a request is served when its machine ends and nothing comes in its place",
    ),
    Pass("joins", _joins, ("autoscale",), after=("scale-up", "consolidation"), why="machines that end are not joined"),
    # ---- notices
    Pass("damaged-claims", lambda run: notices.tell(run.draft), MODES, blind=MODES),
    Pass("document-faults", lambda run: document_gone.tell(run.draft), _WRITING, blind=_WRITING),
    Pass("unread-sources", _unread_sources, MODES, blind=MODES),
    Pass("blocked-pools", _blocked_pools, MODES, blind=MODES),
    Pass("notices", lambda run: notices.watch(run.draft, run.draft.situation.settings), MODES, blind=MODES),
)
