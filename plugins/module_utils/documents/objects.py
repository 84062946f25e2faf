# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file of Kubernetes objects holds: the items of a List, our documents, and objects of other programs, which are left out.

Folders of documents are often folders of a GitOps tool. A misspelt document of ours must not pass for an object of another program: its pool
would count as gone. So an object is left out only if neither its kind nor its API group is like one of ours."""

from __future__ import annotations

import difflib
import os
import re
import typing as t

from ..core.errors import InvalidInput
from ..model.labels import API_VERSION
from .schemas import KINDS

Mapping = t.Mapping[str, t.Any]
GROUP = API_VERSION.partition("/")[0]
_LIST = "List"
_NEAR_GROUP = 0.65  # "tgp/v1" and "tpg.io/v1" are meant to be ours
_NEAR_KIND = 0.75
_KUSTOMIZE = "Kustomization"
_KUSTOMIZE_FILES = frozenset(("kustomization.yaml", "kustomization.yml"))
_KUSTOMIZE_CHANGES = (  # fields by which kustomize would change documents beside it
    "namespace",
    "namePrefix",
    "nameSuffix",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "replacements",
    "transformers",
    "commonLabels",
    "commonAnnotations",
    "labels",
)
_SHOWN = 5


class Item(t.NamedTuple):
    """An object and where it stands in its YAML document: empty, or like ``items[2]``."""

    path: str
    mapping: Mapping


class Skipped(t.NamedTuple):
    """An object that is left out: what it is, and why beyond that it is not ours."""

    what: str
    why: str = ""


def items_of(mapping: Mapping, path: str = "") -> t.Iterator[Item]:
    """The object itself, or the items of a List of any depth. Items of a list of one of our kinds may leave out apiVersion and kind, as the
    API leaves them out. InvalidInput when a List has no items to read."""
    kind = mapping.get("kind")
    of = kind.removesuffix(_LIST) if isinstance(kind, str) and kind.endswith(_LIST) else None
    version = mapping.get("apiVersion")
    if of is None or not (version == "v1" if of == "" else of in KINDS and _is_ours(version)):
        yield Item(path, mapping)
        return
    items = mapping.get("items")
    place = f"{path}.items" if path else "items"
    if not isinstance(items, list):
        raise InvalidInput(f"{place}: a {kind} needs a list of objects here, not {_shown(items)}.")
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidInput(f"{place}[{number}]: an object is needed, not {_shown(item)}.")
        whole = {"apiVersion": version, "kind": of, **item} if of else item
        yield from items_of(whole, f"{place}[{number}]")


def skipped(mapping: Mapping, path: str = "") -> Skipped | None:
    """What another program's object is, or None for a document of ours, however wrong. ``path``: the file it is from. Everything that is not
    clearly of another program is ours, so that it is checked and its faults are reported."""
    kind, version = mapping.get("kind"), mapping.get("apiVersion")
    if os.path.basename(path) in _KUSTOMIZE_FILES and kind in (None, _KUSTOMIZE, "Component"):
        return Skipped(str(kind or _KUSTOMIZE), _unapplied(mapping))
    if not (isinstance(kind, str) and kind and isinstance(version, str) and version):
        return None
    if _is_like_ours(kind, version):
        return None
    return Skipped(kind, _unapplied(mapping) if kind == _KUSTOMIZE and "kustomize.config" in version else "")


def report(path: str, left_out: t.Sequence[tuple[str, Skipped]]) -> str:
    """One line on what was left out of a file or folder. ``left_out``: places with what stands there."""
    names = [f"{place} ({entry.what})" for place, entry in left_out[:_SHOWN]]
    more = [f"and {len(left_out) - _SHOWN} more"] if len(left_out) > _SHOWN else []
    count = f"{len(left_out)} object{'s' if len(left_out) > 1 else ''}"
    whys = list(dict.fromkeys(entry.why for _place, entry in left_out if entry.why))
    sentences = [
        f"{path}: skipped {count} that {'are' if len(left_out) > 1 else 'is'} not of {API_VERSION}: {', '.join(names + more)}."
    ]
    return " ".join([*sentences, *whys])


def wrong_kind(kind: t.Any, version: t.Any) -> str:
    """What to say of a document whose kind is not one of ours."""
    if not kind:
        return f"this field is missing. {_known()}"
    if kind == _LIST:
        return f"a {_LIST} of objects is of apiVersion v1, not {version!r}."
    near = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.5)
    of = f" of {version}" if isinstance(version, str) and version and not _is_ours(version) else ""
    out = f", or move an object{of} out of these documents" if of else ""
    return f"{kind!r} is not a known kind of document. {f'Did you mean {near[0]}{out}?' if near else _known()}"


def _known() -> str:
    return f"Known are {', '.join(KINDS)}, of apiVersion {API_VERSION}."


def _is_ours(version: t.Any) -> bool:
    return isinstance(version, str) and version.partition("/")[0] == GROUP


def _is_like_ours(kind: str, version: str) -> bool:
    """Whether kind or group are ours, or so near that they may be meant to be. In another group with a domain of its own only kinds of GPUs
    count as near: Karpenter has a NodePool."""
    group = version.rpartition("/")[0] or ("" if re.fullmatch(r"v\d+\w*", version) else version)
    if difflib.SequenceMatcher(None, group.lower(), GROUP).ratio() >= _NEAR_GROUP:
        return True
    plain = re.sub(r"[^a-z]", "", kind.lower()).removesuffix("list").removesuffix("s")
    if group and "gpu" not in plain:
        return False
    names = [name.lower().removesuffix("s") for name in KINDS]
    return bool(difflib.get_close_matches(plain, names, n=1, cutoff=_NEAR_KIND))


def _unapplied(mapping: Mapping) -> str:
    """What of a kustomization is not done to the documents beside it."""
    fields = [name for name in _KUSTOMIZE_CHANGES if mapping.get(name)]
    if not fields:
        return ""
    return f"kustomize is not run, so its {', '.join(fields)} change no document; give the output of kustomize build where they should."


def _shown(value: t.Any) -> str:
    return "nothing" if value is None else type(value).__name__
