# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of node_mark: marks of many nodes, side by side, at most one write each."""

from __future__ import annotations

import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.errors import InvalidInput, NotFound
from ..core.task import Task
from ..model import Node, Taint
from .auth.credentials import connect
from .client import Kube
from .nodes import change, get_node

_WORD = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_TAINT = re.compile(
    rf"(?P<key>([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD})(=(?P<value>({_WORD})?))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)"
)


def mark(task: Task) -> dict[str, t.Any]:
    """The module's result. NotFound names the Nodes that do not exist, before any is changed."""
    params = task.params
    taints = [parse_taint(text) for text in params["taints"]]
    _only_texts(params)
    kube = connect(task)
    try:
        with ThreadPoolExecutor(max_workers=16, thread_name_prefix="mark") as pool:
            before = list(pool.map(lambda name: get_node(kube, name), params["nodes"]))
            missing = [name for name, node in zip(params["nodes"], before, strict=True) if node is None]
            if missing:
                raise NotFound(f"There is no Node {', '.join(missing)}.", remedy="Nothing was changed.", service="kubernetes")
            nodes = [node for node in before if node is not None]
            changed = list(pool.map(lambda node: _mark(kube, node, params, taints, dry_run=task.check_mode), nodes))
    finally:
        kube.close()
    result: dict[str, t.Any] = {
        "changed": any(changed),
        "nodes": [{"name": node.name, "changed": is_changed} for node, is_changed in zip(nodes, changed, strict=True)],
    }
    if task.diff_mode:
        touched = [node for node, is_changed in zip(nodes, changed, strict=True) if is_changed]
        result["diff"] = {"before": _text(touched), "after": "".join(f"{node.name}: {_spec(params)}\n" for node in touched)}
    return result


def _only_texts(params: t.Mapping[str, t.Any]) -> None:
    """YAML makes a truth of ``true`` and a moment of a time, and Ansible's templates keep numbers; a Node has texts."""
    problems = [
        f"{kind}: the value of {key} is {value!r}, which is not text."
        for kind in ("labels", "annotations")
        for key, value in params[kind].items()
        if not isinstance(value, (str, type(None)))
    ]
    if problems:
        raise InvalidInput(
            "The Nodes cannot be marked like this; nothing was changed.",
            remedy='Write such values in quotes, and templates with the filter string: "{{ number | string }}".',
            problems=problems,
        )


def _mark(kube: Kube, node: Node, params: t.Mapping[str, t.Any], taints: list[Taint], *, dry_run: bool) -> bool:
    return change(
        kube,
        node.name,
        uid=node.uid,
        labels=params["labels"],
        annotations=params["annotations"],
        add_taints=taints,
        remove_taints=params["remove_taints"],
        unschedulable=None if params["schedulable"] is None else not params["schedulable"],
        allow={*params["labels"], *params["annotations"], *(taint.key for taint in taints), *params["remove_taints"]},
        dry_run=dry_run,
    )


def parse_taint(text: str) -> Taint:
    """``key=value:Effect`` or ``key:Effect``. InvalidInput for anything else."""
    match = _TAINT.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text!r} is not a taint.",
            remedy="Write key=value:Effect or key:Effect; effects are NoSchedule, PreferNoSchedule, NoExecute.",
        )
    return Taint(match["key"], match["value"] or "", match["effect"])


def _text(nodes: list[Node]) -> str:
    return "".join(
        f"{node.name}: labels {dict(node.labels)}, annotations {dict(node.annotations)}, taints {[str(taint) for taint in node.taints]}, "
        f"schedulable {not node.unschedulable}\n"
        for node in nodes
    )


def _spec(params: t.Mapping[str, t.Any]) -> str:
    names = ("labels", "annotations", "taints", "remove_taints", "schedulable")
    return ", ".join(f"{name} {params[name]}" for name in names if params[name] not in (None, {}, []))
