# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller manager does for this cluster, as far as a client can notice it."""

from __future__ import annotations

import base64
import logging
import threading
import time
import typing as t
from datetime import datetime, timedelta

from .auth import Call, expired
from .daemon_sets import DaemonSets
from .disruption import Budgets
from .dynamic_resources import CLAIMS, CLASSES, SLICES, TEMPLATES, ClaimController
from .meta import moment, timestamp
from .nodes import ready
from .parts import Parts
from .pods import phase
from .scheduler import Scheduler, tolerates
from .status import Refusal
from .store import clone

Json = dict[str, t.Any]

_log = logging.getLogger(__name__)

_PERIOD = 0.2  # real seconds between two rounds when nothing changes
_PAUSE = 0.02  # real seconds after a change, so that a burst of writes costs one round
_QUARANTINE = 40.0  # clock seconds between the loss of a node and that of its pods
_LOOK = 0.5  # real seconds between two looks at the nodes' signs of life
_DOUBT = 2.0  # real seconds for which a node must stay silent as well: a jump of the clock alone kills nobody


class Controllers:
    def __init__(self, api: Parts, node_grace: float | None) -> None:
        self._api = api
        self._grace = node_grace
        self._scheduler = Scheduler(api)
        self._call = Call(api.identity("system:kube-controller-manager", ["system:masters"]), "kube-controller-manager")
        self._daemon_sets = DaemonSets(api, self._call)
        self._claims = ClaimController(api, self._call)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._silent: dict[str, float] = {}
        self._missing: dict[str, float] = {}  # nodes that pods name and that do not exist: since when
        self._tainted: dict[tuple[str, str, str], datetime] = {}  # NoExecute taints without a time: since when
        self._next_look = 0.0
        self._seen: tuple[int, ...] = ()

    def start(self) -> None:
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="kube-controllers", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        with self._api.store.lock:
            self._api.store.changed.notify_all()
        if self._thread is not None:
            self._thread.join(5)
            self._thread = None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once()
            except Exception:  # noqa: BLE001 - one object that confuses a controller must not end the others' work; the trace tells which
                _log.exception("a controller failed")
            store = self._api.store
            with store.lock:
                if self._revisions() == self._seen:
                    store.changed.wait(_PERIOD)
            self._stop.wait(_PAUSE)

    def _revisions(self) -> tuple[int, ...]:
        watched = (("", "pods"), ("", "nodes"), ("apps", "daemonsets"), CLAIMS, TEMPLATES, CLASSES, SLICES)
        return tuple(self._api.store.table(key).revision for key in watched)

    def run_once(self) -> None:
        """One round of everything."""
        before = self._revisions()
        changed = before != self._seen
        if changed:
            self._daemon_sets.run_once()
            self._claims.run_once()
            self._scheduler.run_once()
            self._budgets()
            self._seen = before
        if changed or self._missing:
            self._collect()
        self._clean_tokens()
        self._evict_by_taint()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK
            self._watch_nodes()

    def _collect(self) -> None:
        """Pods of nodes that have been gone for the quarantine."""
        store = self._api.store
        with store.lock:
            nodes = store.table(("", "nodes"))
            lost = [item for item in store.table(("", "pods")).select()
                    if (where := item.obj["spec"].get("nodeName")) and nodes.get(where) is None]  # fmt: skip
        now = self._api.seconds()
        self._missing = {where: self._missing.get(where, now) for where in {item.obj["spec"]["nodeName"] for item in lost}}
        lost = [item for item in lost if now - self._missing[item.obj["spec"]["nodeName"]] >= _QUARANTINE]
        pods = self._api.registry.of("pods")
        for item in lost:
            self._api.objects.vanish(pods, item.obj["metadata"]["namespace"], item.obj["metadata"]["name"])

    def _budgets(self) -> None:
        strategy = self._api.strategies(self._api.registry.of("poddisruptionbudgets", "policy"))
        if isinstance(strategy, Budgets):
            strategy.refresh(None)

    def _clean_tokens(self) -> None:
        store, now = self._api.store, self._api.now()
        with store.lock:
            secrets = store.table(("", "secrets")).select("kube-system")
        for item in secrets:
            if item.obj.get("type") != "bootstrap.kubernetes.io/token":
                continue
            text = (item.obj.get("data") or {}).get("expiration")
            if text and expired(base64.b64decode(text).decode(errors="replace"), now):
                name = item.obj["metadata"]["name"]
                self._delete("secrets", "kube-system", name, {"preconditions": {"uid": item.obj["metadata"]["uid"]}})

    def _delete(self, plural: str, namespace: str, name: str, options: Json) -> None:
        try:
            self._api.objects.delete(self._api.registry.of(plural), namespace, name, options, self._call)
        except Refusal:
            return  # gone already, or replaced

    def _evict_by_taint(self) -> None:
        """NoExecute taints: pods that do not tolerate one go, those that tolerate it for a while go later."""
        store, now = self._api.store, self._api.now()
        with store.lock:
            tainted = {
                item.key: taints for item in store.table(("", "nodes")).select()
                if (taints := [taint for taint in (item.obj.get("spec") or {}).get("taints") or [] if taint["effect"] == "NoExecute"])
            }  # fmt: skip
            affected = {name: [pod.obj for pod in store.table(("", "pods")).select(None, name)] for name in tainted}
        keys = {(name, taint["key"], taint.get("value", "")) for name, taints in tainted.items() for taint in taints}
        self._tainted = {key: self._tainted.get(key, now) for key in keys}
        pods = []
        for name, taints in tainted.items():
            dated = [
                (taint, moment(taint["timeAdded"]) if "timeAdded" in taint else self._tainted[name, taint["key"], taint.get("value", "")])
                for taint in taints
            ]  # fmt: skip
            pods += [(pod, dated) for pod in affected[name]]
        for pod, taints in pods:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if any((span := self._patience(pod, taint)) is not None and now >= since + span for taint, since in taints):
                metadata = pod["metadata"]
                self._delete("pods", metadata["namespace"], metadata["name"], {"preconditions": {"uid": metadata["uid"]}})

    @staticmethod
    def _patience(pod: Json, taint: Json) -> timedelta | None:
        """How long the pod bears the taint; None = for ever."""
        if not tolerates(pod, taint):
            return timedelta(0)
        spans = []
        for toleration in pod["spec"].get("tolerations") or []:
            if tolerates({"spec": {"tolerations": [toleration]}}, taint):
                if toleration.get("tolerationSeconds") is None:
                    return None
                spans.append(timedelta(seconds=toleration["tolerationSeconds"]))
        return min(spans)

    def _watch_nodes(self) -> None:
        """A node that neither renewed its lease nor wrote its status for the grace period becomes Unknown."""
        if self._grace is None:
            return
        store, now = self._api.store, self._api.now()
        with store.lock:
            leases = store.table(("coordination.k8s.io", "leases"))
            nodes = [(item.obj, leases.get(f"kube-node-lease/{item.key}")) for item in store.table(("", "nodes")).select()]
        silent: dict[str, float] = {}
        for node, lease in nodes:
            if ready(node) not in ("True", "False"):
                continue
            signs = [condition.get("lastHeartbeatTime") or node["metadata"]["creationTimestamp"]
                     for condition in node["status"]["conditions"] if condition["type"] == "Ready"]  # fmt: skip
            if lease is not None and (renewed := (lease.obj.get("spec") or {}).get("renewTime")):
                signs.append(renewed)
            if now <= max(map(moment, signs)) + timedelta(seconds=self._grace):
                continue
            name = node["metadata"]["name"]
            silent[name] = self._silent.get(name, time.monotonic())
            if time.monotonic() - silent[name] >= _DOUBT:
                self._lose(name)
        self._silent = silent

    def _lose(self, name: str) -> None:
        now = timestamp(self._api.now())

        def produce(old: Json) -> Json:
            new = clone(old)
            for condition in new["status"]["conditions"]:
                if condition["status"] != "Unknown":
                    condition.update(status="Unknown", reason="NodeStatusUnknown", lastTransitionTime=now,
                                     message="Kubelet stopped posting node status.")  # fmt: skip
            return t.cast(Json, new)

        nodes = self._api.registry.of("nodes")
        try:
            self._api.objects.change(nodes, None, name, produce, self._call, "status")
        except Refusal:
            return  # deleted meanwhile
        store = self._api.store
        with store.lock:
            pods = [item.obj for item in store.table(("", "pods")).select(None, name) if phase(item.obj) == "Running"]
        for pod in pods:
            self._not_ready(pod["metadata"]["namespace"], pod["metadata"]["name"], now)

    def _not_ready(self, namespace: str, name: str, now: str) -> None:
        """Pods of a lost node are not Ready any more."""

        def produce(old: Json) -> Json:
            new = clone(old)
            for condition in (new.get("status") or {}).get("conditions") or []:
                if condition["type"] == "Ready" and condition["status"] == "True":
                    condition.update(status="False", reason="NodeNotReady", lastTransitionTime=now)
            return t.cast(Json, new)

        try:
            self._api.objects.change(self._api.registry.of("pods"), namespace, name, produce, self._call, "status")
        except Refusal:
            return  # deleted meanwhile
