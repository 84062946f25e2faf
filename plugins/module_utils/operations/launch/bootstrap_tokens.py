# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap tokens with their place on our list: on it before they are made, off it once they are deleted (L-12)."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...kube import bootstrap_tokens
from ...kube.bootstrap_tokens import Token
from ...model import Claim, MadeToken
from ...observe import token_registry
from ...observe.context import Context


def make_token(context: Context, machine: str, *, life_seconds: int, groups: str) -> Token:
    """A fresh one. It is noted first: a run that is killed in between leaves a note too many, never a token that nobody knows."""
    while True:
        token = bootstrap_tokens.draw(machine, now=context.clock.now(), life_seconds=life_seconds)
        token_registry.note(context, MadeToken(token.id, machine, t.cast(datetime, token.expires)))
        if bootstrap_tokens.put(context.kube, token, groups):
            return token
        token_registry.forget(context, token.id)  # the id is somebody else's token: it must never be taken for ours


def take_back(context: Context, token_id: str) -> bool:
    """Make one worthless now. False when it was gone already."""
    found = bootstrap_tokens.delete(context.kube, token_id)
    token_registry.forget(context, token_id)
    return found


def take_back_all(context: Context, claim: Claim) -> None:
    """The one that the claim knows, and those of a killed run that were made for its machine and never reached the claim."""
    lost = (one.id for one in token_registry.of_machine(context, claim.name))
    for token_id in dict.fromkeys((*((claim.token_id,) if claim.token_id else ()), *lost)):
        take_back(context, token_id)
