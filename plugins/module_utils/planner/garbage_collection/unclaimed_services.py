# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of ours in the cluster whose machine and record are gone (O16): what O7 is for Nodes."""

from __future__ import annotations

from ...model import Action
from ...model.names import Verdict
from ...model.reasons import ActionKind, Reason
from ..plan_builder import Draft
from . import mass_deletion_guard

CASE = "O16"


def remove(draft: Draft) -> None:
    """Removed in the second run that sees neither machine nor claim, under the mass guard; decided only when every list is usable."""
    situation = draft.situation
    found = situation.seen.services
    if found is None or situation.unlisted:
        draft.keep_sightings(f"{CASE}|")
        return
    ours = [one for one in found if situation.is_ours(one.name) is Verdict.OURS]
    busy = set(draft.settled) | set(situation.damaged) | situation.names_in_use
    lost = sorted((one for one in ours if one.name not in busy), key=lambda one: one.uid)
    due = [one for one in lost if draft.twice(f"{CASE}||{one.uid}")]
    if mass_deletion_guard.holds(draft, "Services without a machine (O16)", len(due), len(ours)):
        return
    for one in due:
        what = "O16: no claim, no machine"
        draft.others.append(
            Action(ActionKind.DELETE_SERVICE, one.name, Reason.ORPHAN, what, target=f"{one.namespace}/{one.name}", uid=one.uid)
        )
