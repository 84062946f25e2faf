# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seven phases of a claim and the only way from one to another (L-2)."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from ...core.errors import TgpError
from ...model import Claim, Phase

ORDER = tuple(Phase)
BEFORE_READY = (Phase.PENDING, Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)
LIVE = (*BEFORE_READY, Phase.READY)
HISTORY_LENGTH = 40
LONGEST_WORDS = 500  # characters of one reason: 25 refusals and the history together must fit into a record


class IllegalTransition(TgpError):
    """A claim was to go where it must never go. It stays as it is; this is a defect, not a situation."""

    kind = "illegal_transition"


def legal(old: Phase, new: Phase) -> bool:
    """Forward along the table, anything to Terminating, what is not Ready yet to Failed, Failed to Terminating."""
    if new is Phase.TERMINATING:
        return old is not Phase.TERMINATING
    if new is Phase.FAILED:
        return old in BEFORE_READY
    return old in LIVE and ORDER.index(new) > ORDER.index(old)


def advance(claim: Claim, phase: Phase, now: datetime, why: str) -> Claim:
    """``claim`` in ``phase``, with a line of history. The same phase again changes nothing. Raises IllegalTransition."""
    if claim.phase is phase:
        return claim
    if not legal(claim.phase, phase):
        raise IllegalTransition(
            f"Claim {claim.name} cannot go from {claim.phase.value} to {phase.value}.",
            remedy="The claim was left as it is; please report this as a defect.",
            claim=claim.name,
        )
    line = (now, phase.value, why[:LONGEST_WORDS])
    return dataclasses.replace(claim, phase=phase, phase_since=now, history=(*claim.history, line)[-HISTORY_LENGTH:])


def may_have_instance(claim: Claim) -> bool:
    """True while a machine of this claim may exist and be billed: an id is known, or a create call may have gone out."""
    return bool(claim.instance_id or claim.ids_seen or claim.launch_started is not None)


def counts(claim: Claim) -> bool:
    """True when the claim counts against limits (L-16): every phase, but a Failed one only with a possible machine."""
    return claim.phase is not Phase.FAILED or may_have_instance(claim)
