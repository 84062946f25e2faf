# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of node_wait."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta

from ..core.clock import from_text, to_text
from ..core.errors import InvalidInput, TgpError, TimedOut
from ..core.task import Task
from ..diagnosis.evidence.node import events_of, node_and_conditions, requests_of, system_pods_in_trouble
from ..diagnosis.facts import Findings
from ..diagnosis.rules import Diagnosis, diagnose
from ..diagnosis.view import screen
from ..kube import csr
from ..kube.auth.credentials import connect
from ..kube.client import Kube
from ..kube.wait import Expected, NodeOutcome, is_older, wait_for
from ..model import Node

_STEPS = ("csr", "node", "ready", "complete")


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
            kube,
            expected,
            clock=task.clock,
            on_step=lambda name, step, text: task.progress(f"  {name:<34} {step:<9} {text}".rstrip()),
        )
        explained = _explain_late(kube, task, outcomes, newer_than)
    finally:
        kube.close()
    result = {"changed": False, "nodes": [_entry(name, outcome, explained.get(name)) for name, outcome in outcomes.items()]}
    late = [
        f"{name}: {outcomes[name].step}: {outcomes[name].message} - {diagnosis.cause} [{diagnosis.code}]"
        for name, diagnosis in explained.items()
    ]
    if late:
        text = f"{len(late)} of {len(outcomes)} nodes were not complete after {params['timeout']} s: {'; '.join(late)}."
        raise TimedOut(text, result=result)
    return result


def missing(node: Node, resource: str, amount: int, taints: t.Collection[str]) -> list[str]:
    """What a Node lacks, in words; empty = complete."""
    lacks = [] if node.ready else [f"not Ready: {node.ready_message}".rstrip(": ")]
    lacks += [f"taint {taint.key}" for taint in node.taints if taint.key in taints]
    allocatable = node.allocatable.get(resource, 0)
    return lacks if allocatable >= amount else [*lacks, f"{allocatable} of {amount} {resource}"]


def _moment(text: str | None) -> datetime | None:
    try:
        return from_text(text) if text else None
    except ValueError as error:
        raise InvalidInput(f"newer_than {text!r} is not a time: {error}.", remedy="Write it like 2026-08-21T12:00:00Z.") from error


def _explain_late(
    kube: Kube, task: Task, outcomes: t.Mapping[str, NodeOutcome], newer_than: datetime | None
) -> dict[str, Diagnosis]:
    """Why each Node that is late is not complete, as far as the cluster alone can tell; one screen each."""
    late = {name: outcome for name, outcome in outcomes.items() if not outcome.ready}
    if not late:
        return {}
    shared = _Asked()
    listed = shared.ask("certificate requests", lambda: csr.requests(kube), [])
    version = shared.ask("server version", lambda: str(kube.get("/version").get("gitVersion") or ""), "")
    diagnoses = {}
    for name, outcome in late.items():
        unread = _Asked(shared)
        node, conditions = unread.ask("Node", functools.partial(node_and_conditions, kube, name), (None, ()))
        pods = unread.ask("pods", functools.partial(system_pods_in_trouble, kube, name), ()) if node is not None else ()
        events = unread.ask("events", functools.partial(events_of, kube, name, pods, newer_than), ())
        now = task.clock.now()
        diagnoses[name] = diagnose(
            Findings(
                name=name,
                now=now,
                launched=newer_than,
                steps=tuple(outcome.seen.items()),
                step=outcome.step,
                message=outcome.message,
                requests=requests_of(listed, "", name, newer_than),
                requests_read=None if "certificate requests" in unread else True,
                node=node,
                nodes_read=None if "Node" in unread else True,
                stale=node is not None and newer_than is not None and is_older(node, newer_than),
                conditions=conditions,
                pods=pods,
                pods_read=None if "pods" in unread else True,
                events=events,
                events_read=None if "events" in unread else True,
                gpu_resource=task.params["gpu_resource"],
                gpus_expected=task.params["gpus"],
                server_version=version,
                unread=tuple(unread.items()),
            )
        )
        for line in screen(name, diagnoses[name], outcome.seen, expected=_STEPS, launched=newer_than, now=now):
            task.progress(line)
    return diagnoses


class _Asked(dict[str, str]):
    """What could not be read, and why."""

    def ask(self, source: str, question: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        try:
            return question()
        except TgpError as error:
            self[source] = f"could not be read: {str(error)[:200]}"
            return otherwise


def _entry(name: str, outcome: NodeOutcome, diagnosis: Diagnosis | None) -> dict[str, t.Any]:
    return {
        "diagnosis": None
        if diagnosis is None
        else {key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(diagnosis).items()},
        "name": name,
        "ready": outcome.ready,
        "step": outcome.step,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 1),
        "seen": {step: to_text(moment) for step, moment in outcome.seen.items()},
    }
