# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our list of the bootstrap tokens that we made, beside the claims (L-12).

A token whose id never reached its claim, or whose claim somebody deleted, can be found only if it is known otherwise. To ask the cluster
would take the right to list the Secrets of kube-system, which are worth more than any token. So each is noted here before it is made, and
taken off when it is deleted; ids are no secret. One whose hour is over is gone, and is left out at the next writing.
"""

from __future__ import annotations

import typing as t
from datetime import datetime

from ..core.clock import from_text, to_text
from ..core.errors import BadShape, TgpError
from ..model import MadeToken

if t.TYPE_CHECKING:
    from .context import Context

STATE = "tokens"


def made_tokens(context: Context) -> tuple[MadeToken, ...]:
    """Those that may still be good, read now, in the order of their ids. BadShape when the list is not understood, ApiError when it cannot be
    read: both mean that nobody knows, never that there are none."""
    now = context.clock.now()
    found = (_token(identity, raw) for identity, raw in sorted(context.store.read_state(STATE).items()))
    return tuple(one for one in found if one.expires > now)


def note(context: Context, token: MadeToken) -> None:
    """Put it on the list; to be called before the token exists. Raises like :func:`made_tokens`."""
    with context.money:
        kept = {one.id: one for one in made_tokens(context)}
        _write(context, {**kept, token.id: token})


def forget(context: Context, token_id: str) -> None:
    """Take one off that was deleted. If that fails it is found without a claim by a later run, which sees that it is gone."""
    try:
        with context.money:
            kept = {one.id: one for one in made_tokens(context)}
            if kept.pop(token_id, None) is not None:
                _write(context, kept)
    except TgpError as error:
        context.warn(f"Bootstrap token {token_id} is deleted, but could not be taken off our list of tokens: {error}")


def of_machine(context: Context, name: str) -> tuple[MadeToken, ...]:
    """Those made for one machine; none, with a warning, when the list cannot be read."""
    try:
        return tuple(one for one in made_tokens(context) if one.machine == name)
    except TgpError as error:
        context.warn(f"Our list of bootstrap tokens could not be read, so lost ones stay until they expire: {error}")
        return ()


def _write(context: Context, tokens: t.Mapping[str, MadeToken]) -> None:
    state = {one.id: {"machine": one.machine, "expires": to_text(one.expires)} for one in tokens.values()}
    context.store.write_state(STATE, state)


def _token(identity: str, raw: t.Any) -> MadeToken:
    machine = raw.get("machine") if isinstance(raw, dict) else None
    if not (isinstance(machine, str) and machine and len(identity) == 6 and identity.isascii() and identity.isalnum()):
        raise _odd(identity)
    return MadeToken(identity, machine, _moment(identity, raw.get("expires")))


def _moment(identity: str, text: t.Any) -> datetime:
    try:
        return from_text(str(text))
    except ValueError:
        raise _odd(identity) from None


def _odd(identity: str) -> BadShape:
    return BadShape(
        f"The list of the bootstrap tokens that we made (tgp-state-{STATE}) is not understood at {identity!r}.",
        remedy="Remove that record once no run is at work. Tokens that no claim knows then stay until their hour is over.",
        service="claims",
        record=STATE,
    )
