# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last question before a service goes for being idle: is it still? The plan may be minutes old, the run that began it longer dead."""

from __future__ import annotations

from ...core.errors import ApiError
from ...model import Claim
from ...observe.context import Context
from ...observe.probe import Prober
from ...planner.disruption.drain_rules import is_voluntary


def not_idle_any_more(context: Context, claim: Claim) -> str:
    """Why a service that was to go only while it is idle must stay; empty when it goes, for that or for another reason."""
    idle, detail = _ask(context, claim)
    return "" if idle else detail if idle is False else f"whether it is still idle is unknown: {detail}"


def got_work(context: Context, claim: Claim) -> str:
    """What a service says that an earlier run had closed for being idle; empty when it is idle, or does not answer: it may be gone."""
    idle, detail = _ask(context, claim)
    return detail if idle is False else ""


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
