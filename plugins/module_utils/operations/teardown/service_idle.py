# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last question before a machine goes for being idle: is it still? The plan may be minutes old, the run that began it longer dead."""

from __future__ import annotations

from ...core.errors import ApiError
from ...kube.pods import pods
from ...model import Claim, Node, Pool
from ...model.labels import DRAIN_STARTED_ANNOTATION
from ...model.reasons import Reason
from ...observe.context import Context
from ...observe.gather import address_in_mesh
from ...observe.gpu_metrics import utilization_now
from ...observe.probe import Prober
from ...planner.disruption.consolidation import POLICY as CONSOLIDATES
from ...planner.disruption.drain_rules import is_voluntary
from ...planner.disruption.emptiness import counts
from ...planner.disruption.utilization import gpu_verdict, noted_on


def not_idle_any_more(context: Context, claim: Claim) -> str:
    """Why a service that was to go only while it is idle must stay; empty when it goes, for that or for another reason."""
    idle, detail = _ask(context, claim)
    return "" if idle else detail if idle is False else f"whether it is still idle is unknown: {detail}"


def got_work(context: Context, claim: Claim) -> str:
    """What a service says that an earlier run had closed for being idle; empty when it is idle, or does not answer: it may be gone."""
    idle, detail = _ask(context, claim)
    return detail if idle is False else ""


def node_in_use(context: Context, claim: Claim, node: Node, pool: Pool | None) -> str:
    """What speaks against the drain of a node that is to go for its unused GPUs or by its idleProbe; empty = nothing, or nobody has to ask. A
    drain that has begun goes on: its pods are leaving."""
    reason = claim.deletion.reason if claim.deletion is not None else ""
    if pool is None or DRAIN_STARTED_ANNOTATION in node.annotations or reason not in (Reason.EMPTY, Reason.UNDERUTILIZED):
        return ""
    if reason == Reason.UNDERUTILIZED and pool.consolidation_policy == CONSOLIDATES:
        return ""  # its pods move to other nodes, with the use of their GPUs
    if pool.idle_probed and pool.idle_probe is not None:
        try:
            address = address_in_mesh(context, claim, node)
        except ApiError as error:
            return f"whether it is still idle is unknown: {error.message}"
        idle, detail = Prober(context.task).node_idle(pool.idle_probe, claim.name, address)
        if idle is not True:
            return detail if idle is False else f"whether it is still idle is unknown: {detail}"
    if pool.idle_signal == "pods":
        return ""
    try:
        here = pods(context.kube, node=node.name, gpu_resources=context.settings.gpu_resources)
    except ApiError as error:
        return f"whether its GPUs are used is unknown: {error.message}"
    now = context.clock.now()
    work = [pod for pod in here if counts(pod, pool.idle_mode, context.settings, now)]
    verdict = gpu_verdict(noted_on(node.annotations), utilization_now(context, claim, here), work, pool, now)
    return "" if verdict.used is False else verdict.why


def _ask(context: Context, claim: Claim) -> tuple[bool | None, str]:
    """Whether it is idle (None = it cannot be asked), and its words. True where nobody has to ask."""
    deletion, pool = claim.deletion, context.specs.pool_of(claim.pool)
    if deletion is None or not is_voluntary(deletion.reason) or deletion.force or pool is None or pool.service is None:
        return True, ""
    mesh = context.clients.mesh()
    try:
        device = mesh.device(claim.mesh_device_id) if mesh is not None and claim.mesh_device_id else None
    except ApiError as error:
        return None, str(error)
    if device is None or not device.online:
        return None, "it is not in the mesh"
    return Prober(context.task).idle(pool, device)
