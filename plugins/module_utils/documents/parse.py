# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All documents of one run, checked together: what the user wants, or every fault at once."""

from __future__ import annotations

import dataclasses
import difflib
import typing as t

from ..errors import InvalidInput
from ..fleet.marks import EPHEMERAL
from ..fleet.model import CloudChoice, Machine, MeshChoice, NodeClass, Pool, Taint, Wishes
from .document import Document
from .faults import faults
from .node_class import OWN_MACHINES, node_class
from .node_pool import node_pool, request
from .origins import by_origin, check_class, forbidden, namespace_of
from .reading import Reader
from .schemas import API_VERSION, KINDS

GROUPS = "node-groups"
_NO_TOLERATION_NEEDED = Taint(EPHEMERAL.key, EPHEMERAL.value, "PreferNoSchedule")  # pods of who brings no documents have none


@dataclasses.dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where documents say nothing."""

    namespace: str = "default"


def parse(
    documents: t.Sequence[Document],
    *,
    defaults: Defaults = Defaults(),
    machines: t.Sequence[Machine] = (),
    nodes: t.Mapping[str, int] | None = None,
    allow_commands: t.Sequence[str] = (),
) -> tuple[Wishes, list[str]]:
    """Wishes and warnings of ``documents``.

    ``machines``: own machines given otherwise (node groups); classes with a webhook entry that lists none take them, and without any
    document they get a class and a pool of their own. ``nodes``: machines wanted per pool, by "namespace/name" or by an unambiguous name.
    ``allow_commands``: beginnings of commands that the operator's documents may name.
    Raises InvalidInput whose ``problems`` are one sentence per fault: document, place, what is wrong, what to do.
    """
    problems: list[str] = []
    warnings: list[str] = []
    documents = by_origin(documents)
    good = [(kind, document) for document in documents if (kind := _kind(document, allow_commands, problems))]
    classes: dict[str, NodeClass] = {}
    for kind, document in good:
        if kind == "GPUNodeClass":
            found = node_class(document.mapping, Reader(document.place, problems, warnings), machines)
            if found.name in classes:
                problems.append(f"{document.place}: metadata.name: there are two classes named {found.name}. Rename one.")
            classes.setdefault(found.name, found)
    broken = {_name(one.mapping) for one in documents if one.mapping.get("kind") == "GPUNodeClass"} - set(classes)
    pools: dict[str, Pool] = {}
    for kind, document in good:
        source, reader = document.place, Reader(document.place, problems, warnings, namespace_of(document))
        if kind == "GPUNodePool":
            pool = node_pool(document.mapping, reader, classes, broken, defaults.namespace)
            check_class(document, pool, classes.get(pool.node_class), reader)
            _add(pools, pool, source, problems)
        elif kind == "GPURequest":
            own_class, pool = request(document.mapping, reader, machines)
            if own_class.name in classes:
                problems.append(f"{source}: metadata.name: a class named {own_class.name} exists. Rename the request or the class.")
            classes.setdefault(own_class.name, own_class)
            _add(pools, pool, source, problems)
    _place_machines(machines, documents, classes, pools, problems)
    wanted = _nodes(nodes or {}, pools, problems)
    if problems:
        count = len(problems)
        raise InvalidInput(
            f"The documents have {count} fault{'' if count == 1 else 's'}; nothing was done.",
            problems=list(dict.fromkeys(problems)),
        )
    ordered = tuple(pools[key] for key in sorted(pools))
    return Wishes({name: classes[name] for name in sorted(classes)}, ordered, wanted), list(dict.fromkeys(warnings))


def _kind(document: Document, allow_commands: t.Sequence[str], problems: list[str]) -> str:
    """The document's kind if it is valid by its schema and says what its origin may; otherwise its faults are noted."""
    source, kind = document.place, document.mapping.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(KINDS)}, of apiVersion {API_VERSION}."
        what = f"{kind!r} is no kind of document we know." if kind else "this field is missing."
        problems.append(f"{source}: kind: {what} {remedy}")
        return ""
    found = faults(kind, document.mapping) or forbidden(kind, document, allow_commands)
    problems.extend(f"{source}: {sentence}" for sentence in found)
    return "" if found else kind


def _name(document: t.Mapping[str, t.Any]) -> str:
    meta = document.get("metadata")
    return str(meta.get("name")) if isinstance(meta, t.Mapping) else ""


def _add(pools: dict[str, Pool], pool: Pool, source: str, problems: list[str]) -> None:
    if pool.key in pools:
        problems.append(f"{source}: metadata.name: there are two pools named {pool.key}. Rename one.")
    pools.setdefault(pool.key, pool)


def _place_machines(
    machines: t.Sequence[Machine],
    documents: t.Sequence[Document],
    classes: dict[str, NodeClass],
    pools: dict[str, Pool],
    problems: list[str],
) -> None:
    """Own machines that no class lists."""
    if machines and not documents:
        choice = CloudChoice(OWN_MACHINES, machines=tuple(machines))
        classes[GROUPS] = NodeClass(GROUPS, (choice,), mesh=MeshChoice(backend="none"), max_nodes=len(machines))
        pools[f"default/{GROUPS}"] = Pool("default", GROUPS, GROUPS, taints=(_NO_TOLERATION_NEEDED,), idle_mode="gpu")
        return
    taken = {machine.name for one in classes.values() for choice in one.clouds for machine in choice.machines}
    lost = [machine.name for machine in machines if machine.name not in taken]
    if lost and not problems:
        problems.append(
            f"node groups: no GPUNodeClass takes {', '.join(lost)}. Add a providers entry `name: webhook` without machines."
        )
    _one_owner(classes, problems)


def _one_owner(classes: t.Mapping[str, NodeClass], problems: list[str]) -> None:
    """A machine in two classes would be switched by both."""
    owners: dict[str, str] = {}
    for name in sorted(classes):
        for machine in (one for choice in classes[name].clouds for one in choice.machines):
            if owners.setdefault(machine.name, name) != name:
                problems.append(
                    f"machine {machine.name}: the classes {owners[machine.name]} and {name} both have it. Keep it in one."
                )


def _nodes(nodes: t.Mapping[str, int], pools: t.Mapping[str, Pool], problems: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for name, count in nodes.items():
        keys = [key for key, pool in pools.items() if name in (key, pool.name)]
        if len(keys) != 1:
            listed = ", ".join(sorted(keys or pools)) or "none"
            what = "names several pools" if keys else "is no pool"
            problems.append(f"nodes: {name} {what}. {'Say which of' if keys else 'Known are'}: {listed}.")
        elif isinstance(count, bool) or not isinstance(count, int) or count < 0:
            problems.append(f"nodes: {name}: {count!r} is not a number of machines.")
        elif pools[keys[0]].request and count != 1:
            problems.append(f"nodes: {name} is a GPURequest, which is always one machine.")
        else:
            wanted[keys[0]] = count
    return wanted
