# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays beside machines (startup scripts, addresses ...) without machine and claim: removed like other leftovers (L-12)."""

from __future__ import annotations

import dataclasses

from ...model import Action, CloudView, Extra
from ...model.names import Verdict
from ...model.reasons import ActionKind, Reason
from ..plan_builder import Draft
from . import mass_deletion_guard

CASE = "Extra"


def remove(draft: Draft) -> None:
    """Extras of ours, by name, that no machine and no claim has: once old enough and seen in two runs, under the mass guard per cloud."""
    for cloud in sorted(draft.situation.seen.clouds):
        view = draft.situation.seen.clouds[cloud]
        if view.extras is None or view.instances is None:
            draft.keep_sightings(f"{CASE}|{cloud}|")
        else:
            _remove(draft, cloud, view)


def _remove(draft: Draft, cloud: str, view: CloudView) -> None:
    situation = draft.situation
    extras = sorted(view.extras or (), key=lambda one: (one.kind, one.id))
    ours = [one for one in extras if situation.is_ours(one.name) is Verdict.OURS]
    busy = set(draft.settled) | set(situation.damaged) | {one.name for one in view.instances or () if not one.gone}
    due = [one for one in ours if one.name not in busy and _is_due(draft, one)]
    if mass_deletion_guard.holds(draft, f"things beside machines ({cloud})", len(due), len(ours)):
        return
    for one in due:
        action = Action(
            ActionKind.DELETE_EXTRA,
            one.name,
            Reason.ORPHAN,
            f"{cloud} {one.kind} {one.id} has no machine and no claim",
            target=one.id,
        )
        draft.others.append(dataclasses.replace(action, uid=one.kind, value=cloud))


def _is_due(draft: Draft, extra: Extra) -> bool:
    key = f"{CASE}|{extra.cloud}|{extra.kind}/{extra.id}"
    first = draft.sighted(key)
    age = (draft.now - (extra.created or first)).total_seconds()
    return age > draft.situation.settings.orphan_age and draft.twice(key)
