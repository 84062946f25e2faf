# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision: one pure function from what was seen and what is wanted to what shall be done, in the order of L-22."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Observation, Plan, Wishes
from ..model.defaults import MODES, Settings
from ..model.reasons import ActionKind
from . import clock_skew, notices
from .claim_sync import settle
from .claims import damaged
from .cluster_state import Situation
from .cost import budget_enforcement
from .disruption import consolidation, drift, forced_disruption, idleness, interruption, voluntary
from .garbage_collection import auxiliary_resources, document_gone, orphans
from .plan_builder import Draft
from .provisioning import gpu_health, launch_planner
from .scheduling import completed_requests, scale_up, unschedulable_pods


def plan(
    observation: Observation, wishes: Wishes, settings: Settings, capabilities: t.Mapping[str, Capability], run_id: str
) -> Plan:
    """What this run does. The same inputs in any order give the same plan; nothing is read, written or asked meanwhile.

    ``run_id`` seeds the names of new machines. Without the claims nothing can be decided: the plan then holds a problem only.
    """
    if settings.mode not in MODES:
        raise InvalidInput(f"There is no mode {settings.mode!r}.", remedy=f"Use one of {', '.join(MODES)}.")
    if observation.claims is None:
        problem = "The claims could not be read: nothing is launched and nothing is deleted in this run."
        return Plan(problems=(problem,), findings=dict(sorted(observation.findings.items())))
    draft = _draft(Situation(observation, wishes, settings, capabilities))
    if clock_skew.is_wrong(observation.clock_offset) and settings.mode not in (ActionKind.DESTROY, "status"):
        clock_skew.refuse(draft)
        return draft.plan()
    unclaimed = orphans.machines(draft.situation)
    if settings.mode == "provision":
        _provision(draft, unclaimed, run_id)
    elif settings.mode == ActionKind.DESTROY:
        _destroy(draft, unclaimed)
    else:
        _reap(draft, unclaimed, run_id)
    damaged.tell(draft)
    if settings.mode != "status":
        document_gone.tell(draft)
    _unread(draft)
    for name, why in sorted(wishes.blocked.items()):
        draft.warnings.append(f"Nothing is launched for {'pool' if '/' in name else 'class'} {name}: {why}")
    notices.watch(draft, settings)
    return draft.plan(writes=settings.mode != "status")


def _draft(situation: Situation) -> Draft:
    return Draft(situation, {claim.name: settle(claim, situation) for claim in situation.claims})


def _provision(draft: Draft, unclaimed: list[orphans.Orphan], run_id: str) -> None:
    """Launch what is missing. Nothing is given back but a second machine under one name, and what was interrupted."""
    draft.findings.update(draft.situation.seen.findings)
    orphans.adopt_running(draft, unclaimed)
    if draft.situation.nodes is not None:
        interruption.spot_lost(draft)
        orphans.duplicates(draft)
    forced_disruption.prices(draft, destroy=False)
    launch_planner.launch(draft, unclaimed, run_id)


def _destroy(draft: Draft, unclaimed: list[orphans.Orphan]) -> None:
    """Take down what was asked for, and nothing else."""
    seen = draft.situation.seen
    draft.findings.update(seen.findings)
    if clock_skew.is_wrong(seen.clock_offset):  # a person's word hangs on no clock
        draft.problems.append(clock_skew.told(seen.clock_offset or 0.0, seen.clock_source))
    if _blind(draft):
        return
    orphans.destroy_named(draft, unclaimed)
    forced_disruption.named(draft)
    orphans.duplicates(draft)


def _reap(draft: Draft, unclaimed: list[orphans.Orphan], run_id: str) -> None:
    """Give back what is lost, broken, expired, asked for or idle, and clear away what nobody knows (L-22 steps 6 to 10). The modes
    everything and autoscale launch after what has to go and before what is idle: what is lost is replaced in the same plan, under limits
    that count it as still alive, and a node that a pod will run on does not go.

    The judges stand in the order of their reasons (planner/plan_builder.py): each looks at what no stronger one has decided."""
    if _blind(draft):
        draft.findings.update(draft.situation.seen.findings)
        return
    forced_disruption.finish(draft)
    orphans.adopt_running(draft, unclaimed)
    orphans.remove_machines(draft, unclaimed)
    orphans.remove_nodes(draft)
    orphans.remove_devices(draft)
    orphans.remove_keys(draft)
    auxiliary_resources.remove_tokens(draft)
    auxiliary_resources.remove(draft)
    auxiliary_resources.remove_services(draft)
    orphans.report_foreign(draft)
    interruption.spot_lost(draft)  # a machine that was taken away is still there: none of the next two may call it gone
    forced_disruption.lost(draft)
    interruption.given_up(draft)
    forced_disruption.failed_joins(draft)
    forced_disruption.prices(draft, destroy=True)
    purses = budget_enforcement.purses_of(draft, unclaimed)
    budget_enforcement.tell(draft, purses)
    budget_enforcement.act(draft, purses)
    forced_disruption.expired(draft)
    gpu_health.judge(draft)
    forced_disruption.unhealthy(draft)
    document_gone.judge(draft)
    forced_disruption.asked_for(draft)
    forced_disruption.go_on(draft)
    completed_requests.note(draft)  # before anything is rented in their place
    if draft.situation.settings.mode == "autoscale":
        scale_up.scale_up(draft, unclaimed, run_id)
    else:
        unschedulable_pods.keep(draft)
        if draft.situation.settings.mode == "everything":
            launch_planner.launch(draft, unclaimed, run_id)
    idleness.judge(draft)
    gpu_health.replace(draft)
    drift.judge(draft)
    consolidation.judge(draft)
    voluntary.restore(draft)
    orphans.duplicates(draft)
    orphans.carry_over(draft)
    completed_requests.settle(draft)
    if draft.situation.settings.mode == "autoscale":
        draft.join, draft.admit = scale_up.to_join(draft), scale_up.to_admit(draft)


def _unread(draft: Draft) -> None:
    """What could not be read is a failure of the run, whatever was due: nobody would notice a revoked key before a machine has to go.
    A cloud that only claims name belongs to documents of another run, which reads it."""
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


def _blind(draft: Draft) -> bool:
    if draft.situation.nodes is None:
        draft.problems.append("The cluster's Nodes could not be read: nothing is deleted in this run.")
        return True
    return False
