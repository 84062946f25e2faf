# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How devices and keys look in module results: the one place for all modules."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ..core.clock import to_text
from ..model import Device, MeshKey
from .base import NewKey, is_suffixed


def device_result(device: Device) -> dict[str, t.Any]:
    """A device; times are RFC 3339 or None."""
    return {
        "id": device.id,
        "hostname": device.hostname,
        "name": device.name,
        "suffixed": is_suffixed(device),
        "addresses": list(device.addresses),
        "tags": list(device.tags),
        "online": device.online,
        "created": _text(device.created),
        "last_seen": _text(device.last_seen),
        "ephemeral": device.ephemeral,
        "external": device.external,
        "authorized": device.authorized,
        "key_expiry": None if device.key_expiry_disabled is None else not device.key_expiry_disabled,
        "expires": _text(device.expires),
        "problem": device.problem,
    }


def key_result(node: str, description: str, key: NewKey | MeshKey | None, status: str) -> dict[str, t.Any]:
    """A key of a node. ``key`` (the secret) is there only for a key made just now."""
    return {
        "node": node,
        "id": key.id if key else None,
        "description": description,
        "created": _text(key.created) if key else None,
        "expires": _text(key.expires) if key else None,
        "key": key.secret if isinstance(key, NewKey) else None,
        "status": status,
        "error": "",
    }


def key_difference(results: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """Ansible's diff of key results, without secrets: a node's key is new, stays, or goes."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for result in results:
        name = result["description"] or result["id"]
        if result["status"] in ("exists", "removed"):
            before[name] = f"key {result['id']}, valid until {result['expires']}"
        if result["status"] == "exists":
            after[name] = before[name]
        elif result["status"] == "made":
            after[name] = f"key {result['id']}, valid until {result['expires']}" if result["id"] else "a new key"
    return {"before": before, "after": after}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)
