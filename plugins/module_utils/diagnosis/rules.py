# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a machine did not become usable: from what was seen of it to one cause, its evidence and a remedy (L-11).

The rules are asked in the order in which a machine becomes a node; the first that knows an answer gives it. What no rule recognises is
called unknown, together with what was looked at.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..model import Lane
from . import boot, join, mesh
from . import node as diagnosis_node
from .facts import Findings, ProbableCause, SystemService

_RULES = (
    *diagnosis_node.TESTED,
    *boot.GONE,
    *diagnosis_node.WRONG_NODE,
    *boot.BOOTSTRAP,
    *mesh.RULES,
    *join.RULES,
    *diagnosis_node.RULES,
)
_FOR_SERVICES = (
    *boot.GONE,
    *boot.CONTAINER,
    *mesh.LOGIN,
    *boot.CONTAINER_IN_MESH,
    *mesh.AFTER_LOGIN,
)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """``code`` is one word for programs (docs/how_to/diagnosis.md lists them), ``step`` the last step that was reached. ``certain`` False: the
    facts fit this cause and do not prove it. ``looked_at`` says what was asked, and what could not be."""

    code: str
    step: str
    cause: str
    remedy: str
    evidence: tuple[str, ...] = ()
    certain: bool = True
    looked_at: tuple[str, ...] = ()


def diagnose(findings: Findings) -> Diagnosis:
    """The diagnosis of one machine."""
    rules = _FOR_SERVICES if findings.lane is Lane.SERVICE else _RULES
    probable = next((cause for rule in rules if (cause := rule(findings)) is not None), None) or _unknown(findings)
    return Diagnosis(
        probable.code,
        findings.step,
        probable.cause,
        probable.remedy,
        tuple(dict.fromkeys(line for line in probable.evidence if line)),
        probable.certain,
        looked_at(findings),
    )


def looked_at(findings: Findings) -> tuple[str, ...]:
    """One line per place that was asked, with what it said."""
    unread = dict(findings.unread)
    lines: list[str] = []
    if findings.cloud:
        lines = [f"cloud: {_instance(findings)}", f"console: {_console(findings)}"]
    if findings.uses_mesh:
        lines += [f"mesh device: {_device(findings)}", f"mesh key: {_key(findings)}"]
    if findings.lane is Lane.SERVICE:
        return tuple(lines)
    if findings.token_id:
        lines.append(f"bootstrap token: {_token(findings)}")
    requests = ", ".join(f"{request.name} {request.state}" for request in findings.requests)
    lines.append(
        f"certificate requests: {requests or ('none' if findings.requests_read else unread.get('certificate requests', 'not asked'))}"
    )
    lines.append(f"Node: {_node(findings)}")
    if findings.node is not None:
        marks = [*(f"label {key}" for key in findings.missing_labels), *(f"taint {taint}" for taint in findings.missing_taints)]
        if findings.desired_labels or findings.desired_taints:
            lines.append(f"marks: {'not yet set: ' + ', '.join(marks) if marks else 'all set'}")
        broken = "; ".join(f"{pod.name} {pod.state or pod.phase}" for pod in findings.pods)
        lines.append(f"system pods: {broken or ('none in trouble' if findings.pods_read else unread.get('pods', 'not asked'))}")
    if findings.events_read or "events" in unread:
        lines.append(f"events: {_events(findings) if findings.events_read else unread['events']}")
    if findings.services is not None or "services" in unread:
        lines.append(f"services of Talos: {unread['services'] if findings.services is None else _services(findings.services)}")
    return tuple(lines)


def _services(services: t.Mapping[str, SystemService]) -> str:
    unwell = "; ".join(f"{name} {one.state}: {one.message}".rstrip(": ") for name, one in services.items() if not one.well)
    return unwell or f"{len(services)}, all running or finished"


def _events(findings: Findings) -> str:
    warned = findings.warned(most=3)
    return "; ".join(warned) or (f"{len(findings.events)}, no warning among them" if findings.events else "none")


def _instance(findings: Findings) -> str:
    instance = findings.instance
    if instance is not None:
        return f"{instance.id} {instance.state_word} {instance.problem}".rstrip()
    if findings.instance_listed:
        return f"{findings.instance_id or 'the machine'} is not listed"
    return dict(findings.unread).get("cloud", "not asked")


def _console(findings: Findings) -> str:
    lines = findings.console
    if lines is None:
        return dict(findings.unread).get("console") or f"{findings.cloud} shows none"
    return f"{len(lines)} lines" + (f", the last: {lines[-1][:160]}" if lines else "")


def _device(findings: Findings) -> str:
    device = findings.device
    if device is not None:
        online = {True: "online", False: "not online", None: "online or not is unknown"}[device.online]
        return f"{device.name or device.hostname} {online} {device.problem}".rstrip()
    return "none" if findings.devices_read else dict(findings.unread).get("mesh devices", "not asked")


def _key(findings: Findings) -> str:
    if findings.key is not None:
        expires = f", expires {findings.key.expires:%H:%M:%SZ}" if findings.key.expires else ""
        return f"{findings.key.id} {'not valid any more' if findings.key.invalid else 'valid'}{expires}"
    if not findings.keys_read:
        return dict(findings.unread).get("mesh keys", "not asked")
    return f"{findings.key_id} is not listed" if findings.key_id else "none was made"


def _token(findings: Findings) -> str:
    if findings.token_found is None:
        return dict(findings.unread).get("bootstrap tokens", "not asked")
    if not findings.token_found:
        return f"{findings.token_id} does not exist"
    return f"{findings.token_id}" + (f" expires {findings.token_expires:%H:%M:%SZ}" if findings.token_expires else "")


def _node(findings: Findings) -> str:
    node = findings.node
    if node is None:
        return "none" if findings.nodes_read else dict(findings.unread).get("Node", "not asked")
    ready = {True: "Ready", False: "not Ready", None: "Ready is unknown"}[node.ready]
    older = ", older than the machine" if findings.stale else ""
    return f"{ready}, kubelet {node.kubelet_version or '?'}, made {node.created:%Y-%m-%d %H:%M:%SZ}{older}"


def _unknown(findings: Findings) -> ProbableCause:
    return ProbableCause(
        "unknown",
        f"The cause is unknown; the wait ended with: {findings.message or 'nothing was seen of it'}.",
        "Read what was looked at; keep the next machine with registrationTimeout raised and read its log by hand.",
        looked_at(findings),
        certain=False,
    )
