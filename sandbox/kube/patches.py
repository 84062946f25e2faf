# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import typing as t

from .status import Refusal, bad_request
from .store import clone


def merge_patch(target: t.Any, patch: t.Any) -> t.Any:
    """RFC 7386; both arguments stay untouched."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def _parts(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise bad_request(f"invalid JSON pointer {pointer!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _failed() -> Refusal:
    """The real server does not say what was wrong."""
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", {})


def _index(items: list[t.Any], part: str, grow: bool) -> int:
    if part == "-" and grow:
        return len(items)
    if not part.isdigit() or int(part) >= len(items) + grow:
        raise _failed()
    return int(part)


def _step(node: t.Any, part: str) -> t.Any:
    if isinstance(node, list):
        return node[_index(node, part, False)]
    if isinstance(node, dict) and part in node:
        return node[part]
    raise _failed()


def _read(root: t.Any, pointer: str) -> t.Any:
    for part in _parts(pointer):
        root = _step(root, part)
    return root


def _write(root: t.Any, pointer: str, value: t.Any, replace: bool) -> t.Any:
    parts = _parts(pointer)
    if not parts:
        return value
    node = root
    for part in parts[:-1]:
        node = _step(node, part)
    last = parts[-1]
    if isinstance(node, list):
        position = _index(node, last, not replace)
        node[position : position + replace] = [value]
    elif isinstance(node, dict):
        node[last] = value  # a replace of a missing member is taken as an add, as the real server does
    else:
        raise _failed()
    return root


def _remove(root: t.Any, pointer: str) -> t.Any:
    parts = _parts(pointer)
    if not parts:
        raise _failed()
    node = root
    for part in parts[:-1]:
        node = _step(node, part)
    if isinstance(node, list):
        del node[_index(node, parts[-1], False)]
    elif isinstance(node, dict) and parts[-1] in node:
        del node[parts[-1]]
    else:
        raise _failed()
    return root


def json_patch(target: t.Any, operations: t.Any) -> t.Any:
    """RFC 6902 on a copy of ``target``. A failed test or a missing path is 422."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")
    root = clone(target)
    for operation in operations:
        op, path = operation.get("op"), operation.get("path", "")
        if op in ("add", "replace"):
            root = _write(root, path, clone(operation.get("value")), op == "replace")
        elif op == "remove":
            root = _remove(root, path)
        elif op == "test":
            if _read(root, path) != operation.get("value"):
                raise _failed()
        elif op in ("copy", "move"):
            value = clone(_read(root, operation["from"]))
            root = _write(_remove(root, operation["from"]) if op == "move" else root, path, value, False)
        else:
            raise bad_request(f"unexpected patch operation {op!r}")
    return root
