# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys for many nodes at once: which exist, which are made, which go."""

from __future__ import annotations

import dataclasses
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from ..core.errors import InvalidInput, TgpError
from ..core.redact import redact
from ..model import MeshKey
from .base import DeviceMesh, Mesh, description_of
from .results import key_result

_AT_ONCE = 16  # calls side by side
Result = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class KeySpec:
    """What every new key should be."""

    tags: tuple[str, ...]
    ephemeral: bool = True
    expiry_seconds: int = 3600
    renew: bool = False


def valid(key: MeshKey, now: datetime) -> bool:
    """A machine could still join with it."""
    return key.invalid is not True and (key.expires is None or key.expires > now)


def issue(mesh: Mesh, nodes: t.Sequence[str], spec: KeySpec, *, now: datetime, dry: bool) -> list[Result]:
    """One result per node (status made, exists or failed; with ``dry`` made stands for what would be made).

    An existing valid key stays and its secret cannot be read again; ``renew`` replaces it, the old one goes after the new one is
    there. A node that fails does not stop the others.
    """
    standing: dict[str, list[MeshKey]] = {}
    for key in mesh.keys():
        if valid(key, now):
            standing.setdefault(key.description, []).append(key)

    def issue_one(node: str) -> Result:
        description = description_of(node)
        old = standing.get(description, [])
        if old and not spec.renew:
            return key_result(node, description, old[0], "exists")
        if dry:
            return key_result(node, description, None, "made")
        try:
            made = mesh.create_key(node, tags=spec.tags, ephemeral=spec.ephemeral, expiry_seconds=spec.expiry_seconds)
        except TgpError as error:
            return key_result(node, description, None, "failed") | {"error": redact(str(error))}
        result = key_result(node, description, made, "made")
        try:
            for key in old:
                mesh.delete_key(key.id)
        except TgpError as error:
            result["error"] = f"the new key was made, but the old one is still there: {redact(str(error))}"
        return result

    return side_by_side(issue_one, list(dict.fromkeys(nodes)))


def revoke(mesh: DeviceMesh, nodes: t.Sequence[str], ids: t.Sequence[str], *, now: datetime, dry: bool) -> list[Result]:
    """Every valid key of the nodes and every key of ``ids`` goes: one result per key (status removed or failed), none for what was
    gone before. A server that keeps no descriptions cannot tell a node's key: InvalidInput for ``nodes``."""
    if nodes and not mesh.describes_keys:
        raise InvalidInput(
            "headscale's API v1 keeps no descriptions of keys, so the keys of a node cannot be found.",
            remedy="Give the ids of the keys, as tailscale_key returned them; unused keys end by themselves.",
            field="nodes",
        )
    owners = {description_of(node): node for node in nodes}
    listed = {key.id: key for key in mesh.keys()}
    doomed = [key for key in listed.values() if valid(key, now) and (key.description in owners or key.id in ids)]
    unlisted = [MeshKey(id=key_id, description="") for key_id in dict.fromkeys(ids) if key_id not in listed]

    def revoke_one(key: MeshKey) -> Result | None:
        result = key_result(owners.get(key.description, ""), key.description, key, "removed")
        if dry:
            return result if key.id in listed else None
        try:
            return result if mesh.delete_key(key.id) else None
        except TgpError as error:
            return result | {"status": "failed", "error": redact(str(error))}

    return [result for result in side_by_side(revoke_one, [*doomed, *unlisted]) if result is not None]


_A = t.TypeVar("_A")
_B = t.TypeVar("_B")


def side_by_side(work: t.Callable[[_A], _B], items: t.Sequence[_A]) -> list[_B]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(work, items))
