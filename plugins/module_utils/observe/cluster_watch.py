# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows pods, Nodes and certificate requests of a cluster by a watch each, and tells what deserves a run (planner/scheduling/triggers.py)."""

from __future__ import annotations

import threading
import time
import typing as t
from datetime import datetime, timedelta

from ..core.clock import Clock, to_text
from ..core.errors import Forbidden, TgpError
from ..kube import csr
from ..kube import nodes as node_api
from ..kube import pods as pod_api
from ..kube.client import Kube
from ..kube.informer import Follow
from ..model import Node, Pod
from ..model.resources import GPU_RESOURCES
from ..planner.scheduling.triggers import Watcher

UNREACHABLE = "cluster_unreachable"
_REQUESTS = "requests"
_SLICE = 1.0  # real seconds; a clock may be moved meanwhile
Event = dict[str, t.Any]


class Attention:
    """``run`` calls ``tell`` with one event after the other until ``stop``; each with ``seen``, when the first change of its look came in, and
    ``reported``, when it was handed over, in milliseconds.

    Changes are looked at once nothing has changed for ``quiet`` seconds, or ``most`` seconds after the first of them (real ones), so that
    a hundred pods of one job are one event. While the cluster cannot be read only that is reported, once it has lasted
    ``unreadable_after`` seconds. TgpError when it cannot be read for a reason that does not pass: no right, a key that is
    refused. Without the right to certificate requests, which only machines of lane kubelet need, it watches pods and Nodes alone.
    """

    def __init__(
        self, kube: Kube, watcher: Watcher, tell: t.Callable[[Event], None], clock: Clock, *, quiet: float = 0.2, most: float = 2.0,
        unreadable_after: float = 60.0, gpu_resources: tuple[str, ...] = GPU_RESOURCES,
    ) -> None:  # fmt: skip
        self._watcher, self._tell, self._clock = watcher, tell, clock
        self._quiet, self._most, self._unreadable_after = quiet, most, unreadable_after
        self._mutex = threading.Lock()
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._failure: TgpError | None = None
        self._seen: datetime | None = None
        self._trouble: dict[str, tuple[datetime, str]] = {}
        self._told_trouble: datetime | None = None
        self._items: dict[str, dict[str, t.Any]] = {"pods": {}, "nodes": {}, _REQUESTS: {}}
        self._known: set[str] = set()
        pods: Follow[Pod] = Follow(kube, pod_api.PATH, pod_api.reducer(kube, gpu_resources=gpu_resources))
        nodes: Follow[Node] = Follow(kube, node_api.PATH, lambda raw: node_api.parse(kube, raw))
        requests: Follow[str] = Follow(kube, csr.PATH, csr.asking, csr.OF_KUBELETS)
        self._follows: list[tuple[Follow[t.Any], t.Callable[[str, str, t.Any], None]]] = [
            (follow, self._listener(resource)) for resource, follow in (("pods", pods), ("nodes", nodes), (_REQUESTS, requests))
        ]

    def stop(self) -> None:
        """End :meth:`run`; may be called from any thread."""
        self._stop.set()
        self._changed.set()

    def run(self) -> None:
        for follow, listener in self._follows:
            follow.add(listener)
        try:
            while not self._stop.is_set():
                self._look()
                self._pause()
        finally:
            for follow, listener in self._follows:
                follow.remove(listener)

    # ---- inside

    def _listener(self, resource: str) -> t.Callable[[str, str, t.Any], None]:
        def listen(kind: str, key: str, item: t.Any) -> None:
            with self._mutex:
                self._seen = self._seen or self._clock.now()
                if kind == "failed" and resource == _REQUESTS and isinstance(item, Forbidden):
                    self._note(resource, "all", "", {})
                elif kind == "failed":
                    self._failure = item
                elif kind == "trouble":
                    self._trouble.setdefault(resource, (self._clock.now(), key))
                else:
                    self._trouble.pop(resource, None)
                    self._note(resource, kind, key, item)
            self._changed.set()

        return listen

    def _note(self, resource: str, kind: str, key: str, item: t.Any) -> None:
        if kind == "all":
            self._items[resource] = dict(item)
            self._known.add(resource)
        elif kind == "set":
            self._items[resource][key] = item
        else:
            self._items[resource].pop(key, None)

    def _look(self) -> None:
        now = self._clock.now()
        with self._mutex:
            if self._failure is not None:
                raise self._failure
            trouble = min(self._trouble.values(), default=None)
            complete = len(self._known) == len(self._items)
            pods, nodes = list(self._items["pods"].values()), list(self._items["nodes"].values())
            asking = list(self._items[_REQUESTS].values())
            seen, self._seen = self._seen or now, None
        if trouble is not None:
            self._tell_trouble(trouble, now)
        elif complete:
            self._told_trouble = None
            for sighting in self._watcher.look(pods, nodes, now, asking):
                self._tell({**sighting.event(), "seen": _exact(seen), "told": _exact(self._clock.now())})

    def _tell_trouble(self, trouble: tuple[datetime, str], now: datetime) -> None:
        since, message = trouble
        last = self._told_trouble
        if (now - since).total_seconds() < self._unreadable_after or (
            last is not None and (now - last).total_seconds() < self._unreadable_after
        ):
            return
        self._told_trouble = now
        self._tell({"kind": UNREACHABLE, "since": to_text(since), "message": message})

    def _pause(self) -> None:
        """Until something changes and it is quiet again, or something is due."""
        due = self._due()
        while not self._changed.is_set() and (left := (due - self._clock.now()).total_seconds()) > 0:
            self._changed.wait(min(left / self._clock.speed, _SLICE))
        if not self._changed.is_set():
            return
        end = time.monotonic() + self._most
        while not self._stop.is_set() and time.monotonic() < end:
            self._changed.clear()
            if not self._changed.wait(min(self._quiet, max(0.0, end - time.monotonic()))):
                return
        self._changed.clear()

    def _due(self) -> datetime:
        now = self._clock.now()
        with self._mutex:
            blind = bool(self._trouble) or len(self._known) < len(self._items)
        due = self._watcher.next(now)
        return min(due, now + timedelta(seconds=self._unreadable_after / 4)) if blind else due


def _exact(moment: datetime) -> str:
    """RFC 3339 with milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
