# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan changes in the machines, as lines of text. What only the records need (candidates, generations, counters) is in the claims."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Claim, Offer, Plan
from .record import to_record

_GONE = "deletion.reason"
# Fields of a claim that a person would call a change, with what they are called
_SHOWN = {
    "pool": "pool",
    "replaces": "replaces",
    "lane": "lane",
    "offer": "offer",
    "phase": "phase",
    "instance_id": "instance",
    "price_paid": "price paid",
    "worked_since": "at work since",
    "idle_since": "idle since",
    "underused_since": "underused since",
    "interrupted_at": "interrupted",
    "document_gone_since": "document gone since",
    _GONE: "terminated for",
}
_LIMITS = "limits."  # of a machine that is there: its document has changed


def claim_diff(plan: Plan, stored: t.Iterable[Claim]) -> tuple[list[str], list[str]]:
    """Lines before and after, by machine. Of a new one all that is shown stands after it, of one that goes before it; of another one only
    what differs."""
    claims = {claim.name: claim for claim in stored}
    before: list[str] = []
    after: list[str] = []
    for action in plan.actions:
        if action.claim is None:
            continue
        old = _fields(claims.get(action.name))
        new = _fields(action.claim)
        changed = [field for field in {**old, **new} if old.get(field) != new.get(field) and _is_shown(field, bool(old))]
        if not changed:
            continue
        head = f"machine {action.name} ({action.kind}: {action.reason})"
        if old:
            was = list(_SHOWN) if _GONE in changed else changed
            before += [head, *(f"  {_called(field)}: {old[field]}" for field in was if field in old)]
        after += [head, *(f"  {_called(field)}: {new[field]}" for field in changed if field in new)]
    return before, after


def _is_shown(field: str, is_known: bool) -> bool:
    return field in _SHOWN or (is_known and field.startswith(_LIMITS))


def _called(field: str) -> str:
    return _SHOWN.get(field, field.removeprefix(_LIMITS).replace("_", " "))


def _fields(claim: Claim | None) -> dict[str, str]:
    """Field by field, what is set: nested ones by a path, an offer in one line."""
    if claim is None:
        return {}
    record = to_record(claim)
    record["offer"] = _offer(claim.offer)
    return dict(_flat("", record))


def _flat(path: str, value: t.Any) -> t.Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list):
        if value:
            yield path, ", ".join(str(item) for item in value)
    elif value not in ("", None):
        yield path, str(value)


def _offer(offer: Offer) -> str:
    gpus = f"{offer.gpu_count} × {offer.model}" if offer.gpu_count else ""
    place = f"in {offer.cloud_region or offer.region}" if offer.cloud_region or offer.region else ""
    machine = " ".join(part for part in (offer.cloud, offer.instance_type, place) if part)
    return ", ".join(part for part in (machine, gpus, "spot" if offer.spot else "", f"${offer.price_hour}/h") if part)


# ---- two changes of one claim at the same time: what may be put on top of another writer's change, and what contradicts it

#: what runs observe; everything else says what becomes of the machine (phase, ids, offer, deletion ...)
_OBSERVED = frozenset(
    {
        "price_paid", "ip", "node_name", "node_uid", "mesh_device_id", "mesh_seen", "registered", "initialized", "idle_since",
        "underused_since", "blocked_until", "blocked_times", "gone_since", "billed_since", "running_since", "interrupted_at",
        "worked_since", "work",
    }
)  # fmt: skip


def rebased(base: Claim, ours: Claim, theirs: Claim) -> Claim | None:
    """``ours`` on top of ``theirs``, both made from ``base``; None when the two contradict.

    They contradict when both changed the same field to different values, and when both changed what becomes of the machine: an id that
    another writer recorded is never overwritten, and no decision is put on top of another one.
    """
    mine, other = _changed(base, ours), _changed(base, theirs)
    if any(getattr(ours, name) != getattr(theirs, name) for name in mine & other):
        return None
    if mine - _OBSERVED and other - _OBSERVED:
        return None
    changes = {name: getattr(ours, name) for name in mine}
    return dataclasses.replace(theirs, **changes)


def _changed(before: Claim, after: Claim) -> set[str]:
    names = (field.name for field in dataclasses.fields(Claim) if field.name != "version")
    return {name for name in names if getattr(before, name) != getattr(after, name)}
