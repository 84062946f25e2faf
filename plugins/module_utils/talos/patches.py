# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategic merge patches, as ``talosctl --config-patch`` takes them: documents laid over documents of the same kind and name.

Mappings are merged, single values replaced, lists appended, but for the few that Talos replaces or merges by a key. Nothing
(null or empty text) changes nothing. ``$patch: delete`` takes a document, a field or, beside a key, an entry of a list away; what
a patch deletes goes before what it adds.
"""

from __future__ import annotations

import copy
import re
import typing as t

from ..core.errors import InvalidInput
from .template import Document, parse

DELETE = "$patch"
_REPLACED = {
    ("", "cluster.network.podSubnets"), ("", "cluster.network.serviceSubnets"), ("NetworkRuleConfig", "ingress"),
    ("NetworkRuleConfig", "portSelector.ports"),
}  # fmt: skip
# lists whose entries are found again by one of these fields
_KEYED = {
    ("", "machine.network.interfaces"): ("interface", "deviceSelector"),
    ("", "machine.network.interfaces.vlans"): ("vlanId",),
    ("ExtensionServiceConfig", "configFiles"): ("mountPath",),
}
_LIST = re.compile(r"(?:[ \t]*(?:#.*)?\n)*(?:---.*\n(?:[ \t]*(?:#.*)?\n)*)?[ \t]*(?:\[|-\s)")


def read(text: str, label: str) -> list[Document]:
    """The documents of one patch. InvalidInput for what is none, and for JSON patches, which know one document only."""
    if _LIST.match(text):
        raise InvalidInput(
            f"{label} is a list, as JSON patches (RFC 6902) are: Talos takes those for a configuration of one document only, and these have "
            "several.",
            remedy="Write a strategic merge patch: the fields as they shall be, and `$patch: delete` where something shall go.",
        )
    documents = parse(text, label)
    for piece in documents:
        unknown = [field for field in ("kind", "apiVersion") if "kind" in piece and field not in piece]
        if unknown:
            raise InvalidInput(f"{label}: a document with kind needs apiVersion, too.")
    return documents


def apply(documents: list[Document], patch: t.Sequence[Document], label: str = "The patch") -> None:
    """Lay the documents of one patch over ``documents``, which are changed. ``label`` names the patch in errors.

    Raises InvalidInput when it deletes what is not there, or lays one kind of value over another.
    """
    for piece in patch:
        kind, name = piece.get("kind", ""), piece.get("name")
        target = next(
            (document for document in documents if document.get("kind", "") == kind and document.get("name") == name), None
        )
        title = " ".join(str(part) for part in (kind, name) if part) or "the machine configuration"
        if piece.get(DELETE) == "delete":
            if not kind:
                raise InvalidInput(f"{label}: the machine configuration as a whole cannot be deleted.")
            if target is None:
                raise InvalidInput(f"{label} deletes {title}, and there is none.")
            documents[:] = [document for document in documents if document is not target]
            continue
        piece = copy.deepcopy(piece)
        deletions = _deletions(piece)
        if target is None:
            if deletions:
                raise InvalidInput(f"{label} deletes something of {title}, and there is none.")
            documents.append(piece)
            continue
        for path, key in deletions:
            _delete(target, path, key, f"{label}: {title}")
        _merge(target, piece, kind, "", f"{label}: {title}")


Path = tuple[str, ...]
Key = tuple[str, t.Any]


def _deletions(value: t.Any, path: Path = ()) -> list[tuple[Path, Key | None]]:
    """Where something is to be deleted: the path, and for an entry of a list its identifying field. Taken out of ``value``."""
    deletions: list[tuple[Path, Key | None]] = []
    if isinstance(value, dict):
        for name in list(value):
            item = value[name]
            if isinstance(item, dict) and item.get(DELETE) == "delete":
                deletions.append(((*path, name), None))
                del value[name]
                continue
            inner = _deletions(item, (*path, name))
            deletions += inner
            if inner and not item:
                del value[name]
    elif isinstance(value, list):
        for entry in [item for item in value if isinstance(item, dict) and item.get(DELETE) == "delete"]:
            key = next(((name, item) for name, item in entry.items() if name != DELETE), None)
            if key is None:
                raise InvalidInput(f"{'.'.join(path)}: beside $patch: delete write the field by which the entry is to be found.")
            deletions.append((path, key))
        value[:] = [entry for entry in value if not (isinstance(entry, dict) and entry.get(DELETE) == "delete")]
        if any(_deletions(entry, path) for entry in value):
            raise InvalidInput(
                f"{'.'.join(path)}: Talos deletes whole entries of a list, and nothing inside of one.",
                remedy="Delete the entry by `$patch: delete` beside its first field, and write it anew in the next patch.",
            )
    return deletions


def _delete(document: Document, path: Path, key: Key | None, label: str) -> None:
    holder: t.Any = document
    for name in path if key else path[:-1]:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if key is None and isinstance(holder, dict) and path[-1] in holder:
        del holder[path[-1]]
        return
    if key is not None and isinstance(holder, list):
        # Talos compares as text
        place = next(
            (n for n, entry in enumerate(holder) if isinstance(entry, dict) and str(entry.get(key[0])) == str(key[1])), None
        )
        if place is not None:
            del holder[place]
            return
    entry = f" with {key[0]} {key[1]}" if key else ""
    raise InvalidInput(f"{label} has no {'.'.join(path)}{entry} that could be deleted.")


def _merge(left: dict[str, t.Any], right: t.Mapping[str, t.Any], kind: str, path: str, label: str) -> None:
    for name, item in right.items():
        here = f"{path}.{name}" if path else name
        there = left.get(name)
        if item is None or (item == "" and there is not None):
            continue
        if there is None:
            left[name] = item
        elif isinstance(there, dict) and isinstance(item, dict):
            if here == "machine.kubelet.extraArgs" and not kind:
                there.update(item)
            else:
                _merge(there, item, kind, here, label)
        elif here.startswith("machine.kubelet.extraArgs.") and not kind:
            left[name] = item
        elif isinstance(there, list) and isinstance(item, list):
            _merge_list(there, item, kind, here, label)
        elif isinstance(there, (dict, list)) or isinstance(item, (dict, list)):
            raise InvalidInput(f"{label}: {here} is {_word(there)}, and the patch has {_word(item)} there.")
        else:
            left[name] = item


def _merge_list(there: list[t.Any], item: list[t.Any], kind: str, here: str, label: str) -> None:
    if (kind, here) in _REPLACED:
        there[:] = item
        return
    keys = _KEYED.get((kind, here), ())
    for entry in item:
        twin = None
        key = next((name for name in keys if isinstance(entry, dict) and entry.get(name)), None)
        if key is not None:
            twin = next(
                (candidate for candidate in there if isinstance(candidate, dict) and candidate.get(key) == entry[key]), None
            )
        if twin is None:
            there.append(entry)
        else:
            _merge(twin, entry, kind, here, label)


def _word(value: t.Any) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"
