# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays beside machines (startup scripts, addresses ...) without machine and claim: removed like other orphans (L-12)."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from ...model import Action, CloudView, Extra, MadeToken
from ...model.labels import ACCEPTANCE_LABEL, PRE_PULL_LABEL
from ...model.reasons import ActionKind, Reason
from ..claims.record import BEFORE_READY
from ..plan_builder import Draft
from . import mass_deletion_guard
from .orphans import ORPHAN_AGE
from .ownership import Ownership

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
    extras = sorted(view.extras or (), key=lambda extra: (extra.kind, extra.id))
    ours = [extra for extra in extras if situation.is_ours(extra.name) is Ownership.OURS]
    busy = set(draft.settled) | set(situation.damaged) | {instance.name for instance in view.instances or () if not instance.gone}
    due = [extra for extra in ours if extra.name not in busy and _is_due(draft, extra)]
    if mass_deletion_guard.holds(draft, f"things beside machines ({cloud})", len(due), len(ours)):
        return
    for extra in due:
        action = Action(
            ActionKind.DELETE_EXTRA,
            extra.name,
            Reason.ORPHAN,
            f"{cloud} {extra.kind} {extra.id} has no machine and no claim",
            target=extra.id,
        )
        draft.others.append(dataclasses.replace(action, uid=extra.kind, value=cloud))


def _is_due(draft: Draft, extra: Extra) -> bool:
    key = f"{CASE}|{extra.cloud}|{extra.kind}/{extra.id}"
    first = draft.sighted(key)
    age = (draft.now - (extra.created or first)).total_seconds()
    return age > ORPHAN_AGE and draft.twice(key)


# ---- services of ours in the cluster whose machine and record are gone (O16): what O7 is for Nodes

SERVICE_CASE = "O16"


def remove_services(draft: Draft) -> None:
    """Removed in the second run that sees neither machine nor claim, under the mass guard; decided only when every list is usable."""
    situation = draft.situation
    services = situation.seen.services
    if services is None or situation.unlisted:
        draft.keep_sightings(f"{SERVICE_CASE}|")
        return
    ours = [published for published in services if situation.is_ours(published.name) is Ownership.OURS]
    busy = set(draft.settled) | set(situation.damaged) | situation.names_in_use
    lost = sorted((published for published in ours if published.name not in busy), key=lambda published: published.uid)
    due = [published for published in lost if draft.twice(f"{SERVICE_CASE}||{published.uid}")]
    if mass_deletion_guard.holds(draft, "Services without a machine (O16)", len(due), len(ours)):
        return
    for published in due:
        reason = "O16: no claim, no machine"
        draft.others.append(
            Action(
                ActionKind.DELETE_SERVICE,
                published.name,
                Reason.ORPHAN,
                reason,
                target=f"{published.namespace}/{published.name}",
                uid=published.uid,
            )
        )


# ---- pods that tested a node or pulled its images, left by a run that was killed after it had noted the result (L-35, L-43, case O17)

TRIAL_CASE = "O17"


def remove_trials(draft: Draft) -> None:
    """Removed in the second run that sees it and no machine that still waits for it. Pods tell which are ours by their labels."""
    situation = draft.situation
    if situation.seen.trials is None or situation.seen.claims is None:
        draft.keep_sightings(f"{TRIAL_CASE}|")
        return
    joining = {name for name, settled in draft.settled.items() if settled.claim.phase in BEFORE_READY} | set(situation.damaged)
    for pod in sorted(situation.seen.trials, key=lambda one: one.name):
        name = pod.labels.get(ACCEPTANCE_LABEL) or pod.labels[PRE_PULL_LABEL]
        if name not in joining and pod.deletion is None and draft.twice(f"{TRIAL_CASE}||{pod.uid}"):
            reason = "O17: no machine waits for it any more"
            draft.others.append(Action(ActionKind.DELETE_POD, name, Reason.ORPHAN, reason, target=pod.name, uid=pod.uid))


# ---- orphaned bootstrap tokens (L-12, case O13), like unused keys of the mesh without a claim

TOKEN_CASE = "Token"
LIFE = timedelta(hours=1)  # of each token that we make


def remove_tokens(draft: Draft) -> None:
    """Removed once old enough and seen in two runs, under the mass guard. One whose hour is over is gone already."""
    situation = draft.situation
    if situation.seen.tokens is None:
        draft.keep_sightings(f"{TOKEN_CASE}|")
        return
    good = sorted((token for token in situation.seen.tokens if token.expires > draft.now), key=lambda token: token.id)
    held = {settled.claim.token_id for settled in draft.settled.values()}
    due = [
        token for token in good if token.id not in held and token.machine not in situation.damaged and _token_is_due(draft, token)
    ]
    if mass_deletion_guard.holds(draft, "bootstrap tokens without a claim (O13)", len(due), len(good)):
        return
    for token in due:
        draft.others.append(Action(ActionKind.DELETE_TOKEN, token.machine, Reason.ORPHAN, "O13: without a claim", target=token.id))


def _token_is_due(draft: Draft, token: MadeToken) -> bool:
    seen_twice = draft.twice(f"{TOKEN_CASE}||{token.id}")
    made = token.expires - LIFE
    return seen_twice and (draft.now - made).total_seconds() > ORPHAN_AGE
