# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A saved plan as JSON-safe data and back. What was cut, altered or written by hand is refused, by the field where that shows."""

from __future__ import annotations

import hashlib
import json
import typing as t
from datetime import datetime

from ...core.errors import InvalidInput
from ...model.defaults import CLOCK_TOLERANCE, MODES
from ...model.reasons import ActionKind
from ...units.values import print_duration, print_time
from ..claims.record import decode, encode
from .saved_plan import VERSION, SavedPlan

PLAN_MAX_AGE: t.Final = 1800  # seconds after which a saved plan is no longer applied (L-22)
_AGAIN = "Make the plan again with plan.yml; saved plans are not edited."


def to_record(plan: SavedPlan) -> dict[str, t.Any]:
    """The plan as JSON-safe data (schemas/plan.schema.json): times RFC 3339, money as text, ``digest`` over all the rest."""
    record = t.cast("dict[str, t.Any]", encode(plan))
    return {**record, "digest": _digest(record)}


def from_record(record: t.Any) -> SavedPlan:
    """The plan of a record made by :func:`to_record`. Raises InvalidInput naming the field."""
    if not isinstance(record, t.Mapping):
        raise InvalidInput("plan: an object was expected.", remedy=_AGAIN)
    content = dict(record)
    version = content.get("format_version")
    if version != VERSION or isinstance(version, bool):
        raise InvalidInput(
            f"plan.format_version: {version!r} is not the version {VERSION} that this version of the collection reads.",
            remedy=_AGAIN,
        )
    digest = content.pop("digest", None)
    try:
        plan = decode(SavedPlan, content, "plan")
    except InvalidInput as error:
        raise InvalidInput(error.message, remedy=_AGAIN) from error
    if digest != _digest(content):
        raise InvalidInput("plan.digest: the plan was changed after it was saved.", remedy=_AGAIN)
    _check(plan)
    return plan


def refuse_other(plan: SavedPlan, cluster_id: str, now: datetime) -> None:
    """Raise InvalidInput for another cluster's plan, one that is too old, and one of the future."""
    if plan.cluster_id != cluster_id:
        raise InvalidInput(
            f"plan.cluster_id: the plan was made for cluster {plan.cluster_id}, this is {cluster_id}.",
            remedy="Check the kubeconfig, or apply the plan where it belongs.",
        )
    age = (now - plan.made_at).total_seconds()
    if age > PLAN_MAX_AGE:
        raise InvalidInput(
            f"plan.made_at: the plan is of {print_time(plan.made_at)}, {print_duration(age)} ago; "
            f"plans are good for {print_duration(PLAN_MAX_AGE)}.",
            remedy="Make the plan again with plan.yml.",
        )
    if age < -CLOCK_TOLERANCE:
        raise InvalidInput(
            f"plan.made_at: the plan is of {print_time(plan.made_at)}, which is still to come.",
            remedy="Set up time synchronisation on both machines.",
        )


def _check(plan: SavedPlan) -> None:
    """What the types alone do not say."""
    if plan.request.mode not in MODES or plan.request.mode == "status":
        raise InvalidInput(f"plan.request.mode: there is no mode {plan.request.mode!r}.", remedy=_AGAIN)
    for place, step in enumerate(plan.steps):
        path = f"plan.steps[{place}]"
        if step.kind == ActionKind.LAUNCH and (step.claim is None or step.claim.name != step.name):
            raise InvalidInput(f"{path}.claim: a launch needs the claim that it shall get.", remedy=_AGAIN)
        if step.claim is not None and step.needs.price_bound is None:
            raise InvalidInput(f"{path}.needs.price_bound: what is rented needs a price.", remedy=_AGAIN)


def _digest(content: t.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
