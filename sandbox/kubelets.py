# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All kubelets of the world in one place: one watch of pods, one agenda of things due, a few hands.

Pods on living nodes start, run and stop. Pods that test a node (label ``tgp.io/acceptance``), pull images (``tgp.io/pre-pull``) or measure
the mesh (``tgp.io/bench-mesh``) end as the behaviour of its machine says: trial.py, pre_pull.py, iperf3.py. Any other pod's annotations
steer it: ``sandbox/run-seconds: "90"`` makes it succeed that many seconds after its start,
``sandbox/pull-seconds: "90"`` lets its image take that long before,
``sandbox/ignore-term: "true"`` lets it go only when its grace period is over.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import socket
import sys
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import httpx

from . import device_plugin, iperf3, kubelet, pre_pull, trial
from .agenda import Agenda
from .behaviour import Behaviour
from .cluster import MERGE, Cluster, KubeError
from .pod_status import crashing_status, finished_status, pulling_status, running_status
from .world import World

RUN_SECONDS, IGNORE_TERM, PULL_SECONDS = "sandbox/run-seconds", "sandbox/ignore-term", "sandbox/pull-seconds"
_START, _STOP = 1.0, 1.0  # seconds a pod takes to start, and to stop after SIGTERM
SILENCE = 40.0  # seconds without a heartbeat until a node counts as unreachable
_HEARTBEAT = 10.0

Json = dict[str, t.Any]


@dataclasses.dataclass
class Node:
    """A node whose kubelet runs (``alive``) or ran."""

    name: str
    uid: str
    address: str
    alive: bool = True
    since: int = 0  # counts silences, so that an old alarm is told from a new one
    gpus: int = 0  # known once the machine's driver has found them
    model: str = ""
    memory_mib: int = 0
    parts: t.Mapping[str, Behaviour] = dataclasses.field(default_factory=dict)
    trials: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)  # pods by their kind, each with its number
    ready: float = 0.0  # seconds of the world at which its kubelet began

    @property
    def plugin_start(self) -> float:
        """Seconds that its device plugin takes until it is Ready."""
        return _START + (self.parts["plugin_late"].seconds if "plugin_late" in self.parts else 0.0)

    @property
    def plugin_crashes(self) -> bool:
        return "plugin_crash" in self.parts


class Kubelets:
    """Call :meth:`start`, hand over nodes with :meth:`adopt`, take them away with :meth:`silence`, :meth:`stop` at the end."""

    def __init__(self, world: World, cluster: Cluster, logs: dict[tuple[str, str], str] | None = None) -> None:
        self._world, self._cluster = world, cluster
        self._logs = {} if logs is None else logs  # what containers print, where the API server looks for it
        self._nodes: dict[str, Node] = {}
        self._lock = threading.Lock()
        self._agenda = Agenda(world.clock, self._do)
        self._numbers = itertools.count()
        self._planned: set[tuple[str, str]] = set()
        self._pods: dict[str, Json] = {}
        self._plugins: dict[str, device_plugin.Sharing] = {}  # by the uid of their pod, with what each has read
        self._stopped = threading.Event()
        self._stream: httpx.Response | None = None
        self._hands = ThreadPoolExecutor(4, thread_name_prefix="kubelets")
        self._thread = threading.Thread(target=self._watch, name="kubelets-watch", daemon=True)

    def start(self) -> None:
        self._agenda.start()
        self._thread.start()
        self._agenda.add(_HEARTBEAT, self._beat)

    def stop(self) -> None:
        self._stopped.set()
        self._agenda.stop()
        if self._stream is not None:
            _hang_up(self._stream)
        self._hands.shutdown(wait=True, cancel_futures=True)
        self._thread.join(5)

    # ---- nodes

    def adopt(self, name: str, uid: str, address: str, parts: t.Mapping[str, Behaviour] | None = None) -> None:
        """A machine's kubelet runs from now on; ``parts`` are its machine's behaviours, by their kind."""
        with self._lock:
            old = self._nodes.get(name)
            since, now = old.since + 1 if old else 0, self._world.clock.seconds()
            self._nodes[name] = Node(name, uid, address, since=since, parts=parts or {}, ready=now)
            pods = list(self._pods.values())
        self._do(lambda: kubelet.renew_lease(self._cluster.admin(), name, uid, self._world.clock.now(), create=True))
        for pod in pods:
            self._look(pod)

    def equip(self, name: str, gpus: int, model: str, memory_mib: int) -> device_plugin.Sharing | None:
        """The machine's driver has found its GPUs. How the pod of a device plugin that runs there shares them; None without one."""
        with self._lock:
            if name in self._nodes:
                node = self._nodes[name]
                node.gpus, node.model, node.memory_mib = gpus, model, memory_mib
            found = [
                self._plugins[uid] for uid, pod in self._pods.items() if uid in self._plugins and pod["spec"]["nodeName"] == name
            ]
        return found[0] if found else None

    def behaviours(self, name: str) -> t.Mapping[str, Behaviour]:
        """Those of the machine whose kubelet made the Node last, by their kind; empty without one."""
        with self._lock:
            return self._nodes[name].parts if name in self._nodes else {}

    def silence(self, name: str) -> None:
        """The machine is gone or dead: nothing on it answers any more. The cluster notices :data:`SILENCE` seconds later."""
        with self._lock:
            node = self._nodes.get(name)
            if node is None or not node.alive:
                return
            node.alive, since = False, node.since
        if not self._cluster.foreign:  # a real cluster notices by itself
            self._agenda.add(SILENCE, lambda: self._lost(name, since))

    def _lost(self, name: str, since: int) -> None:
        with self._lock:
            node = self._nodes.get(name)
            if node is None or node.alive or node.since != since:
                return
        self._do(lambda: kubelet.lost(self._cluster.admin(), name, self._world.clock.now()))

    def _beat(self) -> None:
        """One heartbeat of all nodes, then the appointment for the next."""
        started = time.monotonic()
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.alive]
        for node in nodes:
            if self._stopped.is_set():
                return
            self._try(functools.partial(kubelet.renew_lease, self._cluster.admin(), node.name, node.uid, self._world.clock.now()))
        pause = max(1.0, 5 * (time.monotonic() - started))  # real seconds: heartbeats are not what the machine here is for
        self._agenda.add(max(_HEARTBEAT, pause * self._world.clock.speed), self._beat)

    # ---- pods

    def _watch(self) -> None:
        version = ""
        while not self._stopped.is_set():
            try:
                version = self._follow(version) if version else self._relist()
            except (KubeError, httpx.HTTPError, httpx.StreamError, ValueError):
                version = ""
                self._stopped.wait(0.5)

    def _relist(self) -> str:
        listed = self._cluster.admin().call("GET", "/api/v1/pods", fieldSelector="spec.nodeName!=")
        with self._lock:
            self._pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        for pod in listed["items"]:
            self._look(pod)
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        seconds = int(15 * (1 if self._cluster.foreign else self._world.clock.speed)) or 1
        parameters = {"watch": "1", "fieldSelector": "spec.nodeName!=", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        client = self._cluster.admin().http
        request = client.build_request("GET", "/api/v1/pods", params={**parameters, "allowWatchBookmarks": "true"}, timeout=60.0)
        self._stream = client.send(request, stream=True)
        try:
            if self._stream.status_code != 200:
                return ""
            for line in self._stream.iter_lines():
                if self._stopped.is_set():
                    break
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._forget(event["object"]["metadata"]["uid"])
                elif event["type"] != "BOOKMARK":
                    with self._lock:
                        self._pods[event["object"]["metadata"]["uid"]] = event["object"]
                    self._look(event["object"])
        finally:
            self._stream.close()
        return version

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)
            self._plugins.pop(uid, None)
            self._planned = {entry for entry in self._planned if entry[0] != uid}

    def _look(self, pod: Json) -> None:
        """Plan what the pod's kubelet does next, once."""
        meta, status = pod["metadata"], pod.get("status") or {}
        node = self._alive(pod)
        if node is None or "kubernetes.io/config.mirror" in (meta.get("annotations") or {}):
            return
        if meta.get("deletionTimestamp"):
            self._plan(pod, "delete", self._stop_seconds(pod), self._delete)
        elif (
            kind := next((one for one in (trial, pre_pull, iperf3) if one.LABEL in (meta.get("labels") or {})), None)
        ) is not None:
            self._try_out(pod, kind)
        elif status.get("phase", "Pending") == "Pending":
            pull = _seconds((meta.get("annotations") or {}).get(PULL_SECONDS)) or 0.0
            if pull:
                self._plan(pod, "pull", 0.0, self._pull)
            self._plan(pod, "run", pull + (node.plugin_start if device_plugin.is_plugin(pod) else _START), self._run)
        elif (
            status.get("phase") == "Running" and (seconds := _seconds((meta.get("annotations") or {}).get(RUN_SECONDS))) is not None
        ):
            started = _moment(status.get("startTime")) or self._world.clock.now()
            passed = (self._world.clock.now() - started).total_seconds()
            self._plan(pod, "finish", max(0.0, seconds - passed), self._finish)

    def _stop_seconds(self, pod: Json) -> float:
        meta = pod["metadata"]
        end = _moment(meta["deletionTimestamp"])
        left = (end - self._world.clock.now()).total_seconds() if end else 0.0
        if (meta.get("annotations") or {}).get(IGNORE_TERM) == "true":
            return max(0.0, left)
        return min(_STOP, max(0.0, left))

    def _plan(self, pod: Json, what: str, seconds: float, action: t.Callable[[Json], None]) -> None:
        entry = (pod["metadata"]["uid"], what if what != "delete" else f"delete {pod['metadata']['deletionTimestamp']}")
        with self._lock:
            if entry in self._planned:
                return
            self._planned.add(entry)

        def act() -> None:
            if self._alive(pod) is None:  # the machine died meanwhile; if it comes back, it looks again
                with self._lock:
                    self._planned.discard(entry)
                return
            try:
                action(pod)
            except KubeError as error:
                if error.status not in (404, 409, 422):
                    with self._lock:
                        self._planned.discard(entry)
                    self._agenda.add(5.0, lambda: self._look(pod))
                    raise

        self._agenda.add(seconds, act)

    def _alive(self, pod: Json) -> Node | None:
        with self._lock:
            node = self._nodes.get(pod["spec"].get("nodeName", ""))
            return node if node is not None and node.alive else None

    def _run(self, pod: Json) -> None:
        node = self._alive(pod)
        if node is None:
            return
        client, plugin = self._cluster.admin(), device_plugin.is_plugin(pod)
        sharing = device_plugin.read_sharing(client, pod) if plugin else None
        number = next(self._numbers)
        address = f"10.244.{number // 250 % 250}.{number % 250 + 2}"
        made = crashing_status if plugin and node.plugin_crashes else running_status
        status = made(pod, node.address, address, kubelet.time_text(self._world.clock.now()))
        client.call("PATCH", f"{_path(pod)}/status", {"status": status}, kind=MERGE)
        if sharing is not None and not node.plugin_crashes:
            with self._lock:
                self._plugins[pod["metadata"]["uid"]] = sharing
            if node.gpus:
                kubelet.offer_gpus(client, node.name, node.gpus, sharing, model=node.model, memory_mib=node.memory_mib)

    def _pull(self, pod: Json) -> None:
        node = self._alive(pod)
        if node is not None:
            status = pulling_status(pod, node.address, kubelet.time_text(self._world.clock.now()))
            self._cluster.admin().call("PATCH", f"{_path(pod)}/status", {"status": status}, kind=MERGE)

    def _try_out(self, pod: Json, kind: t.Any) -> None:
        """A pod that tests its node or pulls images: what its machine makes of it, step by step."""
        node = self._alive(pod)
        if node is None:
            return
        tried = node.trials.setdefault(kind.LABEL, {})
        tried.setdefault(pod["metadata"]["uid"], len(tried))
        first, alive = not tried[pod["metadata"]["uid"]], self._world.clock.seconds() - node.ready
        for number, (seconds, status) in enumerate(kind.course(pod, node.parts, alive, first=first)):
            self._plan(pod, f"trial {number}", seconds, functools.partial(self._show, status=status))

    def _show(self, pod: Json, status: trial.Status) -> None:
        body = status(pod, self._world.clock.now())
        for container, text in body.pop(iperf3.PRINTED, {}).items():
            self._logs[pod["metadata"]["namespace"], f"{pod['metadata']['name']}/{container}"] = text
        self._cluster.admin().call("PATCH", f"{_path(pod)}/status", {"status": body}, kind=MERGE)

    def _finish(self, pod: Json) -> None:
        status = finished_status(pod, kubelet.time_text(self._world.clock.now()))
        self._cluster.admin().call("PATCH", f"{_path(pod)}/status", {"status": status}, kind=MERGE)

    def _delete(self, pod: Json) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        client, node = self._cluster.admin(), self._alive(pod)
        with self._lock:
            sharing = self._plugins.pop(pod["metadata"]["uid"], None)
        if sharing is not None and node is not None and node.gpus:
            kubelet.lose_gpus(client, node.name, sharing)
        client.call("DELETE", _path(pod), {**body, "preconditions": {"uid": pod["metadata"]["uid"]}})

    # ---- doing

    def _do(self, action: t.Callable[[], None]) -> None:
        if not self._stopped.is_set():
            try:
                self._hands.submit(self._try, action)
            except RuntimeError:  # the pool was shut down in this moment
                return

    def _try(self, action: t.Callable[[], None]) -> None:
        try:
            action()
        except KubeError as error:
            if error.status != 404 and not self._stopped.is_set():  # a Node or pod that somebody deleted
                print(f"sandbox kubelet: {error}", file=sys.stderr)


def _hang_up(stream: httpx.Response) -> None:
    """End a stream that another thread is reading."""
    connection = stream.extensions.get("network_stream")
    if connection is None:
        stream.close()
        return
    try:
        connection.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended by itself
        return


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _seconds(text: t.Any) -> float | None:
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return None


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
