# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen of one machine that did not become usable: the material of a diagnosis (L-11)."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime

from ..model import Device, Instance, Lane, MeshKey, Node, Taint

_EVERY_START = ("InvalidDiskCapacity",)  # warnings that a kubelet gives whenever it starts


@dataclasses.dataclass(frozen=True)
class SystemService:
    """A service of Talos. ``state`` is its word (Running, Finished, Waiting, Failed), ``message`` its newest event."""

    state: str
    message: str = ""

    @property
    def well(self) -> bool:
        return self.state in ("Running", "Finished", "Skipped")


@dataclasses.dataclass(frozen=True, slots=True)
class JoinRequest:
    """A certificate request. ``state`` is pending, approved, issued, denied or failed; ``node`` the node name it asks for;
    ``reason`` the word of who decided."""

    name: str
    username: str
    state: str
    message: str = ""
    node: str = ""
    created: datetime | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a Node. ``status`` is the API's word: True, False or Unknown; ``heartbeat`` is a time of the machine's own clock."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    heartbeat: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod of the system on the node that does not work. ``name`` is namespace/name, ``state`` why, in the API's words."""

    name: str
    phase: str
    state: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class EventSeen:
    """What the cluster noted about the Node or a pod on it. ``about`` is Node/NAME or namespace/POD, ``kind`` Normal or Warning, ``last``
    when it was noted last."""

    about: str
    kind: str
    reason: str
    message: str = ""
    count: int = 1
    last: datetime | None = None

    def __str__(self) -> str:
        often = f" ({self.count} times)" if self.count > 1 else ""
        return f"event of {self.about}: {self.reason}{often}: {self.message}".rstrip(": ")


@dataclasses.dataclass(frozen=True)
class Findings:
    """All that is known of one machine at the end of the wait for it. What could not be read stands in ``unread`` as (what, why) and is
    None in ``instance_listed``, ``devices_read``, ``keys_read``, ``token_found``, ``requests_read``, ``nodes_read``, ``pods_read``,
    ``events_read``: unknown is never a no.

    ``step`` is the last one reached, ``steps`` when each was first seen, ``message`` why the wait says it was not further, ``hopeless``
    why it was given up before its time. ``console`` is None where the cloud shows none. ``token_expires`` is when the API server deletes
    the token by itself. ``namesakes`` are young devices that no claim explains. ``stale``: the Node is older than the launch.
    ``talos_api`` is what the control plane got at port 50000 of the Node; ``schematic`` the image that was ordered. ``services`` are those
    of Talos by their id, None where they were not read, and ``service_logs`` the newest lines of some of them.
    """

    name: str
    now: datetime
    cloud: str = ""
    lane: Lane | None = None
    launched: datetime | None = None
    steps: tuple[tuple[str, datetime], ...] = ()
    step: str = "launched"
    message: str = ""
    hopeless: str = ""
    test_log: tuple[str, ...] | None = None
    untested: str = ""
    instance_id: str = ""
    instance: Instance | None = None
    instance_listed: bool | None = None
    console: tuple[str, ...] | None = None
    uses_mesh: bool = False
    device: Device | None = None
    devices_read: bool | None = None
    namesakes: tuple[Device, ...] = ()
    key_id: str = ""
    key: MeshKey | None = None
    keys_read: bool | None = None
    token_id: str = ""
    token_found: bool | None = None
    token_expires: datetime | None = None
    requests: tuple[JoinRequest, ...] = ()
    requests_read: bool | None = None
    node: Node | None = None
    nodes_read: bool | None = None
    stale: bool = False
    conditions: tuple[Condition, ...] = ()
    pods: tuple[PodSeen, ...] = ()
    pods_read: bool | None = None
    events: tuple[EventSeen, ...] = ()
    events_read: bool | None = None
    desired_labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    desired_taints: tuple[Taint, ...] = ()
    gpu_resource: str = ""
    gpus_expected: int = 0
    server_version: str = ""
    schematic: str = ""
    talos_api: str = ""
    services: t.Mapping[str, SystemService] | None = None
    service_logs: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    endpoint: str = ""
    unread: tuple[tuple[str, str], ...] = ()

    def says(self, *patterns: str) -> str:
        """The last line of its console that has the first of these that is there (regular
        expressions); empty without."""
        lines = self.console or ()
        return next((line.strip() for pattern in patterns for line in reversed(lines) if re.search(pattern, line)), "")

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def warned(self, most: int = 2) -> tuple[str, ...]:
        """The newest warnings among its events, as evidence."""
        return tuple(str(event) for event in self.events if event.kind == "Warning" and event.reason not in _EVERY_START)[:most]

    @property
    def missing_labels(self) -> tuple[str, ...]:
        """Desired labels that the Node does not carry."""
        have = self.node.labels if self.node else {}
        return tuple(sorted(key for key, value in self.desired_labels.items() if have.get(key) != value))

    @property
    def missing_taints(self) -> tuple[str, ...]:
        """Desired taints that the Node does not carry."""
        return tuple(str(taint) for taint in self.desired_taints if self.node is None or taint not in self.node.taints)


# ---- what one rule of a diagnosis says


@dataclasses.dataclass(frozen=True)
class ProbableCause:
    """A cause in one sentence, what to do about it, and the lines that show it. Empty lines of ``evidence`` are dropped."""

    code: str
    cause: str
    remedy: str
    evidence: tuple[str, ...] = ()
    certain: bool = True


Rule = t.Callable[[Findings], "ProbableCause | None"]


def quoted(line: str) -> str:
    """A line of the machine's console as evidence; empty stays empty."""
    return f"console: {line[:300]}" if line else ""
