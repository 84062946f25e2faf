# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply, simplified: who owns which field is kept in ``metadata.managedFields`` once somebody has applied.

A field is a path of steps as in the ``fieldsV1`` format: ``f:name`` a member, ``k:{...}`` a list entry by its keys, ``v:...`` a value of a
set, ``.`` the entry itself.
"""

from __future__ import annotations

import json
import typing as t

from .status import Refusal, cause
from .store import clone
from .strategic import is_set, merge_key

Json = dict[str, t.Any]
Path = tuple[str, ...]

_SYSTEM = frozenset(
    {
        ("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"), ("f:metadata", "f:uid"),
        ("f:metadata", "f:resourceVersion"), ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:generation"),
        ("f:metadata", "f:generateName"), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:deletionGracePeriodSeconds"),
    }
)  # fmt: skip


def _step(key: str, value: t.Any) -> str:
    return "k:" + json.dumps({key: value}, separators=(",", ":"))


def fields_of(kind: str, obj: Json) -> set[Path]:
    """The paths of all leaves, without those that the server itself writes."""
    found: set[Path] = set()

    def walk(node: t.Any, path: Path, names: tuple[str, ...]) -> None:
        if isinstance(node, dict) and (node or not path):
            for key, value in node.items():
                walk(value, (*path, f"f:{key}"), (*names, key))
            return
        if isinstance(node, list) and names and is_set(names):
            found.update((*path, "v:" + json.dumps(item)) for item in node)
            return
        key = merge_key(kind, names) if isinstance(node, list) else None
        if key and all(isinstance(item, dict) and key in item for item in node):
            for item in node:
                here = (*path, _step(key, item[key]))
                found.add((*here, "."))
                walk(item, here, names)
            return
        found.add(path)

    walk({key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}, (), ())
    return {path for path in found if path not in _SYSTEM and path[:2] != ("f:metadata", "f:managedFields")}


def _value(node: t.Any, path: Path) -> t.Any:
    """What stands at a path; KeyError if nothing."""
    for step in path:
        if step == ".":
            return True
        if step.startswith("f:"):
            node = node[step[2:]]
        elif step.startswith("v:"):
            if json.loads(step[2:]) not in node:
                raise KeyError(step)
            return True
        else:
            ((key, value),) = json.loads(step[2:]).items()
            node = next((item for item in node if item.get(key) == value), None)
            if node is None:
                raise KeyError(step)
    return node


def _lookup(node: t.Any, path: Path) -> tuple[bool, t.Any]:
    try:
        return True, _value(node, path)
    except (KeyError, TypeError, AttributeError):
        return False, None


def _erase(node: t.Any, path: Path) -> None:
    """Take a leaf away, with the maps that become empty by it."""
    head, rest = path[0], path[1:]
    try:
        if head.startswith("f:"):
            name = head[2:]
            if not rest:
                node.pop(name, None)
                return
            _erase(node[name], rest)
            if node[name] in ({}, []):
                del node[name]
        elif head.startswith("v:"):
            node.remove(json.loads(head[2:]))
        elif head.startswith("k:"):
            ((key, value),) = json.loads(head[2:]).items()
            entry = next(item for item in node if item.get(key) == value)
            if rest == (".",):
                node.remove(entry)
            else:
                _erase(entry, rest)
    except (KeyError, ValueError, StopIteration, TypeError, AttributeError):
        return  # it is gone already


def _merge(kind: str, live: t.Any, wanted: t.Any, names: tuple[str, ...]) -> t.Any:
    if isinstance(wanted, dict) and isinstance(live, dict):
        result = dict(live)
        for key, value in wanted.items():
            result[key] = _merge(kind, live.get(key), value, (*names, key))
        return result
    if isinstance(wanted, list) and isinstance(live, list) and names:
        if is_set(names):
            return live + [item for item in wanted if item not in live]
        if key := merge_key(kind, names):
            items = list(live)
            for entry in wanted:
                at = next((at for at, old in enumerate(items) if old.get(key) == entry.get(key)), None)
                if at is None:
                    items.append(clone(entry))
                else:
                    items[at] = _merge(kind, items[at], entry, names)
            return items
    return clone(wanted)


def _to_tree(paths: t.Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def _from_tree(tree: Json, path: Path = ()) -> t.Iterator[Path]:
    for step, below in tree.items():
        if below:
            yield from _from_tree(below, (*path, step))
        else:
            yield (*path, step)


class Owners:
    """The managers of an object: (manager, operation) to field paths."""

    def __init__(self, obj: Json) -> None:
        self.entries: dict[tuple[str, str], set[Path]] = {}
        for entry in obj["metadata"].get("managedFields") or []:
            self.entries[entry["manager"], entry["operation"]] = set(_from_tree(entry["fieldsV1"]))

    def write(self, obj: Json, api_version: str, now: str) -> None:
        before = {(entry["manager"], entry["operation"]): entry for entry in obj["metadata"].get("managedFields") or []}
        fields = []
        for (manager, operation), paths in self.entries.items():
            if not paths:
                continue
            tree = _to_tree(paths)
            old = before.get((manager, operation))
            time = old["time"] if old and old["fieldsV1"] == tree else now
            fields.append({"manager": manager, "operation": operation, "apiVersion": api_version, "time": time,
                           "fieldsType": "FieldsV1", "fieldsV1": tree})  # fmt: skip
        obj["metadata"]["managedFields"] = fields

    def lose(self, paths: set[Path], but: tuple[str, str]) -> None:
        for who, owned in self.entries.items():
            if who != but:
                owned -= paths


def note_update(kind: str, old: Json, new: Json, manager: str, api_version: str, now: str) -> None:
    """After a plain write to an object under apply: who changed a field owns it now."""
    before, after = fields_of(kind, old), fields_of(kind, new)
    changed = {path for path in after if path not in before or _lookup(old, path) != _lookup(new, path)}
    owners = Owners(new)
    who = (manager, "Update")
    if changed:
        owners.entries.setdefault(who, set()).update(changed)
    owners.lose(changed, who)
    for owned in owners.entries.values():
        owned &= after
    owners.write(new, api_version, now)


def apply(kind: str, live: Json | None, wanted: Json, manager: str, force: bool, api_version: str, now: str) -> Json:
    """The object after ``manager`` applied ``wanted``. Refusal 409 names each field that somebody else owns with another value."""
    paths = fields_of(kind, wanted)
    who = (manager, "Apply")
    if live is None:
        result = clone(wanted)
        owners = Owners({"metadata": {}})
        owners.entries[who] = paths
        owners.write(result, api_version, now)
        return t.cast(Json, result)
    owners = Owners(live)
    if not owners.entries:
        owners.entries["before-first-apply", "Update"] = fields_of(kind, live)
    disputed: set[Path] = set()
    causes = []
    for other, owned in owners.entries.items():
        if other == who:
            continue
        using = f" using {api_version}" if other[1] == "Update" else ""
        for path in sorted(paths & owned):
            if path[-1] != "." and _lookup(live, path) != _lookup(wanted, path):
                disputed.add(path)
                name = "." + ".".join(step[2:] if step.startswith("f:") else f"[{step[2:]}]" for step in path).replace(".[", "[")
                causes.append(cause("FieldManagerConflict", f'conflict with "{other[0]}"{using}', name))
    if causes and not force:
        told = ", ".join(f"{entry['message']}: {entry['field']}" for entry in causes)
        head = "Apply failed with 1 conflict: " if len(causes) == 1 else f"Apply failed with {len(causes)} conflicts: "
        raise Refusal(409, "Conflict", head + told, {"causes": causes})
    result = clone(_merge(kind, live, wanted, ()))
    owners.lose(disputed, who)
    given_up = owners.entries.get(who, set()) - paths
    for path in sorted(given_up, key=lambda path: path[-1] != "."):  # whole entries first: they are found by a field of theirs
        if not any(path in owned or _below(path, owned) for other, owned in owners.entries.items() if other != who):
            _erase(result, path)
    owners.entries[who] = paths
    owners.write(result, api_version, now)
    return t.cast(Json, result)


def _below(path: Path, owned: set[Path]) -> bool:
    """Somebody owns a field inside the list entry that ``path`` stands for."""
    return path[-1] == "." and any(other[: len(path) - 1] == path[:-1] for other in owned)
