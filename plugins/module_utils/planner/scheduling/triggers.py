# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What in a cluster deserves a run now, for whoever watches instead of asking every few minutes: pods that wait, machines that ask for a
node's certificate, nodes that came up and wait to be marked, idle nodes, lost nodes.

Only that something is to be looked at is decided here. What is done about it is decided by the run, from everything.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...model import Node, Pod
from ...model.defaults import Settings
from ...model.labels import DISRUPTED_TAINT, PROVISIONED_LABEL
from ...units.values import print_time
from ..disruption.emptiness import counts
from .binpacking import gpus
from .capacity import INITIALIZING
from .pending_pods import waits

PODS_WAITING, NODES_ASKING, NODES_READY = "pods_waiting", "nodes_asking", "nodes_ready"
NODES_IDLE, NODES_LOST = "nodes_idle", "nodes_lost"


@dataclasses.dataclass(frozen=True, slots=True)
class TriggerDelays:
    """Seconds. ``idle_after``: when to look again at a node that became idle (consolidateAfter of its pool). ``lost_after``: for how long a
    node may be not Ready. ``repeat``: after which the same is delivered again while it lasts; ``soon``: the same for nodes that came up, which
    may show their GPUs a little later."""

    idle_after: float = 600
    lost_after: float = 300
    repeat: float = 300
    soon: float = 15


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """``kind``: one of the five above. ``names``: pods as "namespace/name", certificate requests, or nodes. ``gpus``: how many the waiting
    pods ask for."""

    kind: str
    names: tuple[str, ...]
    since: datetime
    gpus: int = 0

    def event(self) -> dict[str, t.Any]:
        """The fields of its line in the event log (docs/reference/events.md)."""
        fields: dict[str, t.Any] = {
            "kind": self.kind,
            "names": list(self.names),
            "count": len(self.names),
            "since": print_time(self.since),
        }
        return {**fields, "gpus": self.gpus} if self.kind == PODS_WAITING else fields


@dataclasses.dataclass
class Watcher:
    """Remembers what was delivered. What lasts counts from the first pass that saw it."""

    delays: TriggerDelays = TriggerDelays()
    settings: Settings = Settings()
    idle_mode: str = "workload"
    _since: dict[tuple[str, str], datetime] = dataclasses.field(default_factory=dict)
    _told: dict[tuple[str, str], datetime] = dataclasses.field(default_factory=dict)
    _leaving: dict[str, bool] = dataclasses.field(default_factory=dict)  # every node of the last look: are we about to remove it?

    def look(self, pods: t.Collection[Pod], nodes: t.Iterable[Node], now: datetime, asking: t.Iterable[str] = ()) -> list[Sighting]:
        """What is to be delivered at ``now``: all of a kind, as soon as one of it is new or due again. ``asking``: names of certificate
        requests that nobody has answered."""
        ours = {node.name: node for node in nodes if node.labels.get(PROVISIONED_LABEL) == "true"}
        vanished = {name for name, leaving in self._leaving.items() if name not in ours and not leaving}
        self._leaving = {name: any(taint.key == DISRUPTED_TAINT for taint in node.taints) for name, node in ours.items()}
        staying = {name: node for name, node in ours.items() if not self._leaving[name]}
        busy = {pod.node for pod in pods if pod.node in staying and counts(pod, self.idle_mode, self.settings, now)}
        waiting = {f"{pod.namespace}/{pod.name}": pod for pod in pods if waits(pod, self.settings)}
        fresh = {
            name for name, node in staying.items() if node.ready and any(taint.key == INITIALIZING.key for taint in node.taints)
        }
        idle = {name for name, node in staying.items() if node.ready and name not in busy} - fresh
        sightings = [
            self._sighting(PODS_WAITING, set(waiting), now),
            self._sighting(NODES_ASKING, set(asking), now),
            self._sighting(NODES_READY, fresh, now),
            self._sighting(NODES_IDLE, idle, now),
            self._sighting(NODES_LOST, {name for name, node in staying.items() if not node.ready}, now, vanished),
        ]
        asked = sum(gpus(pod, self.settings.gpu_resources) for pod in waiting.values())
        return [
            dataclasses.replace(sighting, gpus=asked) if sighting.kind == PODS_WAITING else sighting
            for sighting in sightings
            if sighting is not None
        ]

    def next(self, now: datetime) -> datetime:
        """When to look again though nothing changes."""
        return max(now + timedelta(seconds=1), min(map(self._due, self._since), default=now + timedelta(hours=1)))

    def _due(self, key: tuple[str, str]) -> datetime:
        """When this has to be delivered: once it has lasted, for an idle node again when its pool may let it go, then every ``repeat``."""
        since, last = self._since[key], self._told.get(key)
        if last is None:
            return since + timedelta(seconds=self.delays.lost_after if key[0] == NODES_LOST else 0)
        if key[0] == NODES_READY:
            return last + timedelta(seconds=self.delays.soon)
        again = self.delays.idle_after if key[0] == NODES_IDLE and last == since else self.delays.repeat
        return last + timedelta(seconds=again)

    def _sighting(self, kind: str, names: set[str], now: datetime, at_once: t.Collection[str] = ()) -> Sighting | None:
        """``at_once``: names that are delivered now and never again."""
        for key in [key for key in self._since if key[0] == kind and key[1] not in names]:
            del self._since[key]
            self._told.pop(key, None)
        keys = [(kind, name) for name in sorted(names)]
        for key in keys:
            self._since.setdefault(key, now)
        if not at_once and not any(self._due(key) <= now for key in keys):
            return None
        ripe = [key for key in keys if key in self._told or self._due(key) <= now]
        self._told.update({key: now for key in ripe})
        since = min((self._since[key] for key in ripe), default=now)
        return Sighting(kind, tuple(sorted({name for _kind, name in ripe} | set(at_once))), since)
