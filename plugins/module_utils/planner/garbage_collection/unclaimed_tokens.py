# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap tokens of ours that no claim knows (L-12, case O13): what an unused key without a claim is at the mesh."""

from __future__ import annotations

from datetime import timedelta

from ...model import Action, MadeToken
from ...model.reasons import ActionKind, Reason
from ..plan_builder import Draft
from . import mass_deletion_guard

CASE = "Token"
LIFE = timedelta(hours=1)  # of each token that we make


def remove(draft: Draft) -> None:
    """Removed once old enough and seen in two runs, under the mass guard. One whose hour is over is gone already."""
    situation = draft.situation
    if situation.seen.tokens is None:
        draft.keep_sightings(f"{CASE}|")
        return
    good = sorted((one for one in situation.seen.tokens if one.expires > draft.now), key=lambda one: one.id)
    held = {one.claim.token_id for one in draft.settled.values()}
    due = [one for one in good if one.id not in held and one.machine not in situation.damaged and _is_due(draft, one)]
    if mass_deletion_guard.holds(draft, "bootstrap tokens without a claim (O13)", len(due), len(good)):
        return
    for one in due:
        draft.others.append(Action(ActionKind.DELETE_TOKEN, one.machine, Reason.ORPHAN, "O13: no claim knows it", target=one.id))


def _is_due(draft: Draft, token: MadeToken) -> bool:
    seen_twice = draft.twice(f"{CASE}||{token.id}")
    made = token.expires - LIFE
    return seen_twice and (draft.now - made).total_seconds() > draft.situation.settings.orphan_age
