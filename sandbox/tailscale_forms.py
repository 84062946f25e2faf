# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the Tailscale API writes devices and keys, and how headscale's compatible API differs."""

from __future__ import annotations

import typing as t
from datetime import datetime

from .tailnet import ALWAYS, HEADSCALE, Tailnet
from .tailnet_records import Device, Key

ZERO_TIME = "0001-01-01T00:00:00Z"


def moment(value: datetime | None) -> str | None:
    """RFC 3339 in whole seconds."""
    return None if value is None else value.strftime("%Y-%m-%dT%H:%M:%SZ")


def _without_none(fields: dict[str, t.Any]) -> dict[str, t.Any]:
    return {name: value for name, value in fields.items() if value is not None}


def device(tailnet: Tailnet, record: Device, everything: bool) -> dict[str, t.Any]:
    """One device; ``everything`` = fields=all."""
    headscale = tailnet.profile == HEADSCALE
    form = _without_none(
        {
            "addresses": record.addresses,
            "id": record.id,
            "nodeId": record.node_id,
            "user": record.user,
            "name": tailnet.dns_name(record),
            "hostname": record.hostname,
            "clientVersion": record.client_version,
            "updateAvailable": False,
            "os": record.os,
            "created": moment(record.created),
            "connectedToControl": None if headscale else record.online,
            "lastSeen": _last_seen(tailnet, record, everything),
            "keyExpiryDisabled": record.key_expiry_disabled,
            "expires": moment(record.expires) or (None if headscale else ZERO_TIME),
            "authorized": record.authorized,
            "isExternal": record.external,
            "isEphemeral": record.ephemeral or (False if headscale else None),
            "machineKey": record.machine_key,
            "nodeKey": record.node_key,
            "blocksIncomingConnections": False,
            "tailnetLockKey": "" if headscale else f"nlpub:{record.node_key[-16:]}",
            "tailnetLockError": record.lock_error,
            "tags": record.tags or None,
        }
    )
    if record.external:  # shared in from another tailnet: most is not ours to see
        kept = ("addresses", "id", "nodeId", "user", "name", "hostname", "os", "isExternal", "connectedToControl", "authorized")
        return {**{key: form[key] for key in kept if key in form}, "created": "", "clientVersion": "", "machineKey": ""}
    if not everything:
        return form
    routes = {"advertisedRoutes": record.advertised_routes, "enabledRoutes": record.enabled_routes}
    if headscale:
        return {**form, **{name: value for name, value in routes.items() if value}}
    connectivity = {
        "endpoints": [f"{record.ipv4}:41641"],
        "latency": {"Frankfurt": {"latencyMs": 11.5, "preferred": True}},
        "mappingVariesByDestIP": False,
        "clientSupports": {"hairPinning": None, "ipv6": False, "pcp": False, "pmp": False, "udp": True, "upnp": False},
    }
    return {**form, **routes, "clientConnectivity": connectivity, "sshEnabled": False, "postureIdentity": {}, "distro": {}}


def _last_seen(tailnet: Tailnet, record: Device, everything: bool) -> str | None:
    """Sources disagree on connected devices: they have no such time, or have it in the long form. One that never connected has none."""
    if record.online and tailnet.profile != HEADSCALE and tailnet.last_seen == ALWAYS and everything:
        return moment(tailnet.clock.now())
    return None if record.online else moment(record.last_seen)


def key(tailnet: Tailnet, record: Key, *, secret: bool = False) -> dict[str, t.Any]:
    """One key; its secret only in the answer that made it."""
    form: dict[str, t.Any] = {
        "id": record.id,
        "keyType": record.kind,
        "description": record.description,
        "created": moment(record.created),
        "invalid": None if record.kind == "api" else record.invalid(tailnet.clock.now()),
        "userId": record.user or None,
        "revoked": moment(record.revoked),
        "expires": moment(record.expires),
    }
    if record.expires is not None:
        form["expirySeconds"] = int((record.expires - record.created).total_seconds())
    if record.kind == "auth":
        form["capabilities"] = {
            "devices": {
                "create": {
                    "reusable": record.reusable,
                    "ephemeral": record.ephemeral,
                    "preauthorized": record.preauthorized,
                    "tags": record.tags,
                }
            }
        }
        form["tags"] = record.tags
    else:
        form.update(scopes=record.scopes, tags=record.tags)
    if secret:
        form["key"] = record.secret
    return _without_none(form)
