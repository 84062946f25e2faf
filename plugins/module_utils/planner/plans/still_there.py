# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the thing that a step of a saved plan is about exists: yes, no, or unknown, which is None and never no."""

from __future__ import annotations

from ...model.reasons import ActionKind
from ..cluster_state import Situation
from .saved_plan import Step


def still_there(step: Step, situation: Situation) -> bool | None:
    """For what removes something; of kinds that nobody knows here nothing is known."""
    seen = situation.seen
    if step.kind in (ActionKind.DESTROY, ActionKind.RESUME):
        return True if any(one.name == step.name for one in situation.claims) else _listed(step.name, situation)
    if step.kind == ActionKind.DELETE_INSTANCE:
        listed = situation.instances(step.value or "")
        return None if listed is None else step.target in listed.by_id
    if step.kind == ActionKind.DELETE_EXTRA:
        view = seen.clouds.get(step.value or "")
        return (
            None
            if view is None or view.extras is None
            else any((one.kind, one.id) == (step.uid, step.target) for one in view.extras)
        )
    if step.kind == ActionKind.DELETE_NODE:
        return None if seen.nodes is None else any(one.uid == step.uid for one in seen.nodes)
    if step.kind == ActionKind.DELETE_DEVICE:
        return None if seen.devices is None else any(one.id == step.target for one in seen.devices)
    if step.kind == ActionKind.DELETE_KEY:
        return None if seen.keys is None else any(one.id == step.target for one in seen.keys)
    if step.kind == ActionKind.DELETE_TOKEN:
        return None if seen.tokens is None else any(one.id == step.target for one in seen.tokens)
    if step.kind == ActionKind.DELETE_SERVICE:
        return None if seen.services is None else any(one.uid == step.uid for one in seen.services)
    return None


def _listed(name: str, situation: Situation) -> bool | None:
    """A machine of this name; no only when every cloud could be listed."""
    if any(one.name == name for one in situation.listed()):
        return True
    return None if situation.unlisted else False
