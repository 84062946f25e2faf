# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that have been served (L-17): their machine went by its own idleTimeout or maxLifetime. Runs that a timer starts rent no other
for them, or such a limit would bound nothing."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...model import Pool
from ...model.reasons import ActionKind, Reason
from ...units.values import print_time
from ..garbage_collection import document_gone
from ..plan_builder import Draft

_CASE = "Served"
_ENDS = (Reason.EXPIRED, Reason.EMPTY)
_BY_TIMER = ("autoscale", "everything")  # provision is an explicit request


def note(draft: Draft) -> None:
    """Remember requests whose machine goes now by a limit of its own."""
    for action in draft.decisions.values():
        if action.kind != ActionKind.DESTROY or action.reason not in _ENDS or action.claim is None:
            continue
        pool = draft.situation.in_force(action.claim)
        if pool is not None and pool.request:
            draft.sighted(_key(pool.key))


def is_served(draft: Draft, pool: Pool) -> bool:
    """Whether this run rents no machine for the request."""
    return pool.request and draft.situation.settings.mode in _BY_TIMER and _since(draft, pool.key) is not None


def settle(draft: Draft) -> None:
    """When all is decided: what goes now is remembered, what went is not forgotten while its document stands and nothing came in its place.
    Runs for a timer tell why there is no machine. A reap that was given a part of the documents forgets nothing."""
    note(draft)
    goes = {action.pool for action in draft.decisions.values() if action.kind == ActionKind.DESTROY}
    alive = {settled.claim.pool for settled in draft.undecided()} | {
        action.pool for action in draft.decisions.values() if action.kind != ActionKind.DESTROY
    }
    for key, since in draft.situation.seen.findings.items():
        pool = key.removeprefix(_key(""))
        described = pool in draft.situation.pool_by_key or document_gone.may_stand(draft, pool)
        stands = described or draft.situation.settings.mode not in _BY_TIMER
        if key == _key(pool) and stands and pool not in alive - goes:
            draft.findings.setdefault(key, since)
    for request in draft.situation.pools:
        if is_served(draft, request) and request.key not in alive | goes:
            went = print_time(_since(draft, request.key) or draft.now)
            draft.warnings.append(
                f"GPURequest {request.name} has been served: its machine went by idleTimeout or maxLifetime, decided at {went}. "
                f"Take the document out, or rent again with provision.yml -e tgp_pool={request.name}."
            )


def is_noted(findings: t.Mapping[str, datetime], pool: str) -> bool:
    """Whether the findings of a run remember the request as served."""
    return _key(pool) in findings


def _since(draft: Draft, pool: str) -> datetime | None:
    return draft.findings.get(_key(pool)) or draft.situation.seen.findings.get(_key(pool))


def _key(pool: str) -> str:
    return f"{_CASE}||{pool}"
