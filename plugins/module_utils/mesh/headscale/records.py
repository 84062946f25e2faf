# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what headscale's API v1 writes into our records."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ...core.http import Api
from ...model import Device, MeshKey
from ..tailscale.records import moment, strings


def precise(when: datetime) -> str:
    """RFC 3339 with microseconds."""
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def device(api: Api, item: t.Mapping[str, t.Any], what: str) -> Device:
    """One node. ``givenName`` is the mesh's name of it: the domain is not told."""
    if not isinstance(item.get("id"), str) or not isinstance(item.get("name"), str):
        raise api.bad_shape(what, "a node has no id or no name")
    if "tags" not in item:
        raise api.bad_shape(what, "a node has no tags, as before headscale 0.28; this collection needs 0.28 or later")
    online = item.get("online")
    key = item.get("preAuthKey")
    return Device(
        id=item["id"],
        hostname=item["name"],
        name=str(item.get("givenName") or ""),
        addresses=strings(item.get("ipAddresses")),
        tags=strings(item.get("tags")),
        online=online if isinstance(online, bool) else None,
        created=moment(item.get("createdAt")),
        last_seen=None if online is True else moment(item.get("lastSeen")),
        ephemeral=key.get("ephemeral") is True if isinstance(key, dict) else None,
        key_expiry_disabled=moment(item.get("expiry")) is None,
        expires=moment(item.get("expiry")),
    )


def key(api: Api, item: t.Mapping[str, t.Any]) -> MeshKey:
    """One pre-auth key. One without an end is of no use: the server takes the missing end for one in the year 1."""
    if not isinstance(item.get("id"), str):
        raise api.bad_shape("GET /preauthkey", "a key has no id")
    expires = moment(item.get("expiration"))
    used_up = item.get("used") is True and item.get("reusable") is not True
    return MeshKey(
        id=item["id"], description="", created=moment(item.get("createdAt")), expires=expires, invalid=used_up or expires is None
    )
