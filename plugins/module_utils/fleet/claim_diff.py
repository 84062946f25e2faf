# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan changes in the claims, as lines of text: the fields that differ, as they are recorded."""

from __future__ import annotations

import typing as t

from .claim_record import to_record
from .model import Claim, Offer, Plan
from .offers import offer_key

_QUIET = frozenset({"record_version", "version", "name"})


def claim_diff(plan: Plan, stored: t.Iterable[Claim]) -> tuple[list[str], list[str]]:
    """Lines before and after, by claim. Of a new claim everything that is set stands after it; of a known one only what differs."""
    known = {claim.name: claim for claim in stored}
    before: list[str] = []
    after: list[str] = []
    for action in plan.actions:
        if action.claim is None:
            continue
        old = _fields(known.get(action.name))
        new = _fields(action.claim)
        changed = [field for field in {**old, **new} if old.get(field) != new.get(field)]
        if not changed:
            continue
        head = f"claim {action.name} ({action.kind}: {action.reason})"
        if old:
            before += [head, *(f"  {field}: {old[field]}" for field in changed if field in old)]
        after += [head, *(f"  {field}: {new[field]}" for field in changed if field in new)]
    return before, after


def _fields(claim: Claim | None) -> dict[str, str]:
    """Field by field, what is set: nested ones by a path, an offer and a list of offers in one line each."""
    if claim is None:
        return {}
    record = {key: value for key, value in to_record(claim).items() if key not in _QUIET}
    record["offer"] = _offer(claim.offer)
    record["candidates"] = [_offer(one) for one in claim.candidates]
    return dict(_flat("", record))


def _flat(path: str, value: t.Any) -> t.Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list) and path in ("history", "attempts"):
        for place, item in enumerate(value):
            text = " ".join(str(part) for part in (item.values() if isinstance(item, dict) else item) if part not in ("", None))
            yield f"{path}[{place}]", text
    elif isinstance(value, list):
        if value:
            yield path, ", ".join(str(item) for item in value)
    elif value not in ("", None):
        yield path, str(value)


def _offer(offer: Offer) -> str:
    where = offer.cloud_region or offer.region
    return " ".join(part for part in (offer_key(offer), offer.instance_type, where, f"${offer.price_hour}/h") if part)
