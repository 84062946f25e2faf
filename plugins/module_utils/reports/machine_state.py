# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status says of the state of a machine: its phase, its Node, the GPUs that the Node lacks, what health agents complain of, and
whether its power is limited."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from ..model import Claim, GpuXids, Instance, Node, Pool
from ..model.labels import POWER_LIMIT_LABEL
from ..planner.cost.cost import live_line, missing_gpus
from ..planner.provisioning.gpu_health import uses_mig, words
from ..planner.provisioning.node_conditions import signs_of
from ..planner.provisioning.registration import allocatable_gpus, awaited_gpus
from ..planner.provisioning.service import Health
from ..providers.registry import CAPABILITIES


def state_of(
    claim: Claim | None, instance: Instance | None, node: Node | None, pool: Pool | None, xids: GpuXids | None = None
) -> str:
    """The state of a machine that is or shall be a node, in words."""
    if claim is None:
        return "no claim"
    if claim.deletion is not None:
        return f"{claim.phase.value} ({claim.deletion.reason})"
    if claim.phase.value == "Ready":
        if node is None:
            return "Ready, Node missing"
        if node.ready is not True:
            return "Ready, Node not ready"
        return ", ".join(["Ready", *(["idle"] if claim.idle_since else []), *_complaints(claim, node, pool, xids)])
    return claim.phase.value if instance or not claim.instance_id else f"{claim.phase.value}, not listed"


def service_state(claim: Claim, health: Health) -> str:
    """The same of one that serves."""
    if claim.deletion is not None or claim.phase.value != "Ready":
        return f"{claim.phase.value} ({claim.deletion.reason})" if claim.deletion is not None else claim.phase.value
    if health.well is False:
        return f"Ready, {health.why}"
    if health.well is None:
        return "Ready, health unknown"
    return "Ready, idle" if claim.idle_since else "Ready"


def health_facts(
    claim: Claim | None, node: Node | None, pool: Pool | None, now: datetime, xids: GpuXids | None = None
) -> dict[str, t.Any]:
    """How many GPUs the Node shows (None = unknown), what was paid for those that it lacks, and the signs on it (L-37, L-55)."""
    if claim is None or claim.is_service:
        return {"gpus_shown": None, "missing_gpus_cost": "0.0000", "signs": []}
    cost = Decimal(0)
    if claim.gpu_losses:
        cost, _seconds = missing_gpus(live_line(claim, now, CAPABILITIES.get(claim.cloud)), claim.created, now)
    shown = None if node is None or uses_mig(node, pool) else allocatable_gpus(claim, node, pool)
    found = signs_of(claim, node, pool, xids) if node is not None and node.ready else ()
    return {
        "gpus_shown": shown,
        "missing_gpus_cost": str(cost.quantize(Decimal("0.0001"))),
        "signs": [sign.name for sign in found],
    }


def _complaints(claim: Claim, node: Node, pool: Pool | None, xids: GpuXids | None) -> list[str]:
    """What is wrong with the node of a machine in use: missing GPUs (L-20a), signs of health agents (L-37), XIDs (L-55)."""
    found = [sign.name for sign in signs_of(claim, node, pool, xids)]
    wanted = awaited_gpus(claim, pool)
    if not uses_mig(node, pool) and (shown := allocatable_gpus(claim, node, pool)) < wanted:
        found.insert(0, words(shown, wanted))
    return found


# ---- power limits

LIMITS_COMMAND = (
    "kubectl exec --namespace gpu-device-plugin POD -- nvidia-smi --query-gpu=index,name,power.limit,power.draw,utilization.gpu --format=csv "
    "(POD: kubectl get pods --namespace gpu-device-plugin --selector app.kubernetes.io/name=nvidia-powerlimit --output wide)"
)
"""What shows the limits, the draw and the use of a node's GPUs now (S4-18); docs/how_to/gpus.md has it, too."""


def power_is_limited(labels: t.Mapping[str, str]) -> bool:
    """Whether a node with these labels is among those whose power is limited."""
    return labels.get(POWER_LIMIT_LABEL) == "true"
