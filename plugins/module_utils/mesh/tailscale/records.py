# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what the API writes into our records. Missing fields are tolerated where headscale leaves them out, odd ones are not."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...core.clock import from_text
from ...core.http import Api
from ...model import Device, MeshKey


def moment(value: t.Any) -> datetime | None:
    """A time, None when absent, empty, unreadable or the zero time (year 1), which stands for "none"."""
    if not isinstance(value, str) or not value:
        return None
    try:
        parsed = from_text(value)
    except ValueError:
        return None
    return parsed if parsed.year > 1 else None


def listed(api: Api, body: t.Any, field: str, what: str) -> list[dict[str, t.Any]]:
    """The list under ``field``. Anything but a list of objects is BadShape: an odd answer is never "there are none"."""
    items = api.expect(api.expect(body, dict, what).get(field), list, what, field)
    return [api.expect(item, dict, what, f"an entry of {field}") for item in items]


def device(api: Api, item: t.Mapping[str, t.Any], what: str) -> Device:
    """One device."""
    device_id = item.get("nodeId") or item.get("id")
    if not isinstance(device_id, str) or not isinstance(item.get("hostname"), str):
        raise api.bad_shape(what, "a device has no id or no hostname")
    created = moment(item.get("created"))
    addresses = strings(item.get("addresses"))
    expiry_off = item.get("keyExpiryDisabled")
    return Device(
        id=device_id,
        hostname=item["hostname"],
        name=str(item.get("name") or ""),
        addresses=addresses,
        tags=strings(item.get("tags")),
        online=_online(item, bool(addresses) and created is not None),
        created=created,
        last_seen=moment(item.get("lastSeen")),
        ephemeral=item.get("isEphemeral") is True,
        external=item.get("isExternal") is True,
        authorized=item.get("authorized") is not False,
        problem=_problem(item),
        key_expiry_disabled=expiry_off if isinstance(expiry_off, bool) else None,
        expires=moment(item.get("expires")),
    )


def _online(item: t.Mapping[str, t.Any], joined: bool) -> bool | None:
    """``connectedToControl`` where the service has it. Without it: a device that has joined is online while ``lastSeen`` is left
    out; one without address or creation time never connected, and of a shared-in device it cannot be told."""
    connected = item.get("connectedToControl")
    if isinstance(connected, bool):
        return connected
    if item.get("isExternal") is True:
        return None
    return joined and not item.get("lastSeen")


def _problem(item: t.Mapping[str, t.Any]) -> str:
    found = []
    if item.get("tailnetLockError"):
        found.append(f"tailnet lock lets no traffic through: {item['tailnetLockError']}")
    if item.get("authorized") is False:
        found.append("it waits for approval by an administrator")
    if item.get("multipleConnections") is True:
        found.append("several machines use its identity (copied state)")
    return "; ".join(found)


def key(item: t.Mapping[str, t.Any]) -> MeshKey:
    """One key, without its secret."""
    invalid = item.get("invalid")
    if moment(item.get("revoked")) is not None:
        invalid = True
    return MeshKey(
        id=str(item["id"]),
        description=str(item.get("description") or ""),
        created=moment(item.get("created")),
        expires=moment(item.get("expires")),
        invalid=invalid if isinstance(invalid, bool) else None,
    )


def strings(value: t.Any) -> tuple[str, ...]:
    """The texts of a list; anything else is none."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
