# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of node_wait."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta

from ..clock import from_text, to_text
from ..errors import InvalidInput, TimedOut
from ..fleet.model import Node
from ..task import Task
from .connect import connect
from .wait import Expected, Outcome, wait_for


def wait_for_nodes(task: Task) -> dict[str, t.Any]:
    """The module's result. TimedOut (with the result of all) when a node is not complete at the deadline."""
    params = task.params
    newer_than = _moment(params["newer_than"])
    deadline = task.clock.now() + timedelta(seconds=params["timeout"])
    expected = [
        Expected(
            name=name,
            claim=name,
            deadline=deadline,
            missing=lambda node: missing(node, params["gpu_resource"], params["gpus"], params["without_taints"]),
            launched=newer_than,
        )
        for name in dict.fromkeys(params["nodes"])
    ]
    kube = connect(task)
    try:
        outcomes = wait_for(
            kube, expected, clock=task.clock, on_step=lambda name, step, text: task.progress(f"  {name:<34} {step:<9} {text}".rstrip())
        )
    finally:
        kube.close()
    result = {"changed": False, "nodes": [_entry(name, outcome) for name, outcome in outcomes.items()]}
    late = [f"{name}: {outcome.step}: {outcome.message}" for name, outcome in outcomes.items() if not outcome.ready]
    if late:
        error = TimedOut(f"{len(late)} of {len(outcomes)} nodes were not complete after {params['timeout']} s: {'; '.join(late)}.")
        error.result = result  # type: ignore[attr-defined]
        raise error
    return result


def missing(node: Node, resource: str, amount: int, taints: t.Collection[str]) -> list[str]:
    """What a Node lacks, in words; empty = complete."""
    lacks = [] if node.ready else [f"not Ready: {node.ready_message}".rstrip(": ")]
    lacks += [f"taint {taint.key}" for taint in node.taints if taint.key in taints]
    found = node.allocatable.get(resource, 0)
    return lacks if found >= amount else [*lacks, f"{found} of {amount} {resource}"]


def _moment(text: str | None) -> datetime | None:
    try:
        return from_text(text) if text else None
    except ValueError as error:
        raise InvalidInput(f"newer_than {text!r} is not a time: {error}.", remedy="Write it like 2026-08-21T12:00:00Z.") from error


def _entry(name: str, outcome: Outcome) -> dict[str, t.Any]:
    return {
        "name": name,
        "ready": outcome.ready,
        "step": outcome.step,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 1),
        "seen": {step: to_text(moment) for step, moment in outcome.seen.items()},
    }
