# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategic merge patch: lists that Kubernetes merges by a key are merged, all others are replaced."""

from __future__ import annotations

import typing as t

from .status import bad_request
from .store import clone

Json = dict[str, t.Any]

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "conditions": "type",
    "addresses": "type",
    "imagePullSecrets": "name",
    "secrets": "name",
    "ownerReferences": "uid",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}
_SETS = frozenset({"finalizers", "podCIDRs"})
_CONTAINERS = frozenset({"containers", "initContainers", "ephemeralContainers"})


def merge_key(kind: str, path: tuple[str, ...]) -> str | None:
    """The key by which the list at ``path`` (field names only) of a kind is merged; None = the list is atomic."""
    name, parent = path[-1], path[-2] if len(path) > 1 else ""
    if name == "ports":
        return "containerPort" if parent in _CONTAINERS else "port" if kind == "Service" and path == ("spec", "ports") else None
    if name == "conditions" and kind == "CertificateSigningRequest":
        return None
    if name == "secrets" and kind != "ServiceAccount":
        return None
    if name == "addresses" and path != ("status", "addresses"):
        return None
    return _MERGE_KEYS.get(name)


def is_set(path: tuple[str, ...]) -> bool:
    """Lists of plain values that are merged as sets."""
    return path[-1] in _SETS


def strategic_patch(kind: str, target: Json, patch: Json) -> Json:
    """The patched copy of ``target``."""
    if not isinstance(patch, dict):
        raise bad_request("invalid strategic merge patch: not an object")
    return t.cast(Json, _map(kind, target, patch, ()))


def _map(kind: str, target: t.Any, patch: Json, path: tuple[str, ...]) -> Json:
    mode = patch.get("$patch")
    if mode == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch"}
    if mode == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if retained := patch.get("$retainKeys"):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _map(kind, result.get(key), value, (*path, key))
        elif isinstance(value, list):
            result[key] = _list(kind, result.get(key), value, (*path, key))
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith("$setElementOrder/") and isinstance(result.get(key.partition("/")[2]), list):
            name = key.partition("/")[2]
            result[name] = _ordered(result[name], order, merge_key(kind, (*path, name)))
    return result


def _list(kind: str, target: t.Any, patch: list[t.Any], path: tuple[str, ...]) -> list[t.Any]:
    current = list(target) if isinstance(target, list) else []
    if is_set(path):
        return current + [value for value in patch if value not in current]
    key = merge_key(kind, path)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return t.cast(list[t.Any], clone(patch))
    if any(item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if "$patch" not in item]
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((at for at, old in enumerate(current) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del current[at]
        elif at is None:
            current.append(_map(kind, {}, item, path))
        else:
            current[at] = _map(kind, current[at], item, path)
    return current


def _ordered(items: list[t.Any], order: list[t.Any], key: str | None) -> list[t.Any]:
    rank: dict[t.Any, int] = {}
    for position, entry in enumerate(order):
        rank[entry.get(key) if isinstance(entry, dict) and key else entry] = position
    return sorted(items, key=lambda item: rank.get(item.get(key) if isinstance(item, dict) and key else item, len(rank)))
