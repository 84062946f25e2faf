# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda's audit log, the only list of its API that has pages: who did what to which resource, oldest first.

The form of events is documented, the words for most actions are not: those are ours, and so is the size of a page.
"""

from __future__ import annotations

import base64
import typing as t
import uuid
from datetime import UTC, datetime

import flask

from .lambda_account import Account, invalid
from .world import World

CATALOGUE = "2025-09-06"  # version of the events' forms


def record(
    world: World, account: Account, resource: str, action: str, identity: str, *, by_key: bool = True, **details: t.Any
) -> None:
    """Note what happened to a resource such as instance. ``by_key`` False: nobody asked for it, Lambda did it itself."""
    name = f"lrn:cloud:{resource}:{identity}"
    event = {
        "service_name": "cloud",
        "resource_name": resource,
        "action": action,
        "catalog_version": CATALOGUE,
        "event_id": uuid.uuid4().hex,
        "event_time": _text(world.clock.now()),
        "actor_lrn": f"lrn:cloud:identity:{account.owner}" if by_key else None,
        "resource_lrns": [name],
        "resource_owner_lrn": f"lrn:cloud:account:{account.number}",
        "request_api_key_lrn": f"lrn:cloud:api_key:{account.key}" if by_key else None,
        "additional_details": {f"{resource}_lrn": name, **details},
    }
    with account.lock:
        account.events.append(event)


def routes(service: flask.Flask, account: Account) -> None:
    """Add the route to the application."""

    @service.get("/api/v1/audit-events")
    def audit_events() -> t.Any:
        query = flask.request.args
        start, end, wanted = _moment("start"), _moment("end"), query.get("resource_type")
        with account.lock:
            events = list(account.events)
        first = _place(query["page_token"], events) if query.get("page_token") else 0
        found = [
            (place, one)
            for place, one in enumerate(events)
            if (start is None or one["event_time"] >= start)
            and (end is None or one["event_time"] <= end)
            and wanted in (None, f"{one['service_name']}.{one['resource_name']}")
            and place >= first
        ]
        page, rest = found[: account.audit_page], found[account.audit_page :]
        token = base64.urlsafe_b64encode(f"next:{rest[0][1]['event_id']}".encode()).decode() if rest else None
        return flask.jsonify({"data": [one for _place, one in page], "page_token": token})


def _text(moment: datetime) -> str:
    """UTC with microseconds, always of one length: such texts are in the order of their times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(field: str) -> str | None:
    value = flask.request.args.get(field)
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise invalid(field, "Input should be a valid datetime") from None
    return _text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _place(token: str, events: list[dict[str, t.Any]]) -> int:
    """Where the page of this token begins."""
    try:
        word, _colon, identity = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
    except ValueError:
        word, identity = "", ""
    for place, one in enumerate(events):
        if word == "next" and one["event_id"] == identity:
            return place
    raise invalid("page_token", "Value is not a token of a page")
