# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DaemonSet controller: one pod on each node that is selected and tolerated, replaced step by step when the template changes."""

from __future__ import annotations

import hashlib
import json
import math
import typing as t

from .auth import Call
from .parts import Parts
from .pods import is_ready
from .scheduler import selects, tolerates
from .status import Refusal
from .store import clone

Json = dict[str, t.Any]

HASH = "controller-revision-hash"
#: the DaemonSet with which a sandbox begins: its pods are not shown, so that lists of pods are those of the user
WITHOUT_PODS = "kube-system/nvidia-device-plugin-daemonset"
#: on a DaemonSet whose pods somebody else makes
BY_HAND = "sandbox/pods-by-hand"
#: taints that the controller lets every pod of a DaemonSet tolerate
_ALWAYS = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")


def _left_alone(item: t.Any) -> bool:
    return bool(item.key == WITHOUT_PODS or BY_HAND in (item.obj["metadata"].get("annotations") or {}))


class DaemonSets:
    def __init__(self, api: Parts, call: Call) -> None:
        self._api, self._call = api, call
        self._known: set[str] = set()  # uids of those that have had pods

    def run_once(self) -> None:
        """One round: pods that are missing, wrong or of another version, and the status of each DaemonSet."""
        store = self._api.store
        with store.lock:
            sets = [one.obj for one in store.table(("apps", "daemonsets")).select() if not _left_alone(one)]
            if not sets and not self._known:
                return
            nodes = [one.obj for one in store.table(("", "nodes")).select()]
            pods = [one.obj for one in store.table(("", "pods")).select()]
        living = {one["metadata"]["uid"] for one in sets}
        for pod in pods:
            if (owner := _owner(pod)) in self._known and owner not in living:
                self._delete(pod)
        self._known = {owner for pod in pods if (owner := _owner(pod)) in self._known | living} | living
        for one in sets:
            self._one(one, nodes, [pod for pod in pods if _owner(pod) == one["metadata"]["uid"]])

    def _one(self, daemon_set: Json, nodes: t.Sequence[Json], pods: t.Sequence[Json]) -> None:
        template = daemon_set["spec"]["template"]
        version = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        wanted = {node["metadata"]["name"] for node in nodes if _fits(template["spec"], node)}
        there: dict[str, Json] = {}
        for pod in pods:
            node = pod["spec"].get("nodeName", "")
            if node not in wanted or node in there:
                self._delete(pod)
            else:
                there[node] = pod
        self._replace(daemon_set, there, version)
        for node in sorted(wanted - set(there)):
            self._create(daemon_set, node, version)
        self._status(daemon_set, wanted, there, version)

    def _replace(self, daemon_set: Json, there: t.Mapping[str, Json], version: str) -> None:
        """Delete pods of another version: those that are not Ready at once, of the others as many as may be unavailable."""
        old = [pod for pod in there.values() if pod["metadata"]["labels"].get(HASH) != version and not _ending(pod)]
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        if isinstance(most, str):
            most = math.ceil(int(most.rstrip("%")) * len(there) / 100)
        room = int(most) - sum(_ending(pod) or not is_ready(pod) for pod in there.values())
        for pod in old:
            if not is_ready(pod):
                self._delete(pod)
            elif room > 0:
                self._delete(pod)
                room -= 1

    def _create(self, daemon_set: Json, node: str, version: str) -> None:
        meta, template = daemon_set["metadata"], clone(daemon_set["spec"]["template"])
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"]}
        labels = {**(template["metadata"].get("labels") or {}), HASH: version}
        always = [{"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoSchedule"} for word in _ALWAYS]
        always += [{**one, "effect": "NoExecute"} for one in always[:2]]  # not-ready and unreachable
        tolerations = [*(template["spec"].get("tolerations") or []), *always]
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "labels": labels,
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {**template["spec"], "nodeName": node, "tolerations": tolerations},
        }
        try:
            self._api.objects.create(self._api.registry.of("pods"), meta["namespace"], body, self._call)
        except Refusal:
            return  # its namespace is being deleted

    def _delete(self, pod: Json) -> None:
        meta = pod["metadata"]
        if _ending(pod):
            return
        try:
            options = {"preconditions": {"uid": meta["uid"]}}
            self._api.objects.delete(self._api.registry.of("pods"), meta["namespace"], meta["name"], options, self._call)
        except Refusal:
            return  # gone already

    def _status(self, daemon_set: Json, wanted: t.Collection[str], there: t.Mapping[str, Json], version: str) -> None:
        meta = daemon_set["metadata"]
        ready = sum(is_ready(pod) and not _ending(pod) for pod in there.values())
        updated = sum(pod["metadata"]["labels"].get(HASH) == version for pod in there.values())
        status = {
            "observedGeneration": meta["generation"],
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(there),
            "numberMisscheduled": 0,
            "numberReady": ready,
            "updatedNumberScheduled": updated,
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
        }

        def produce(old: Json) -> Json:
            return {**clone(old), "status": {name: value for name, value in status.items() if value or name in _REQUIRED}}

        try:
            self._api.objects.change(
                self._api.registry.of("daemonsets", "apps"), meta["namespace"], meta["name"], produce, self._call, "status"
            )
        except Refusal:
            return  # deleted meanwhile


_REQUIRED = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


def _owner(pod: Json) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(one["uid"]) for one in owners if one.get("controller") and one.get("kind") == "DaemonSet"), "")


def _ending(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _fits(spec: Json, node: Json) -> bool:
    pod = {"spec": spec}
    hard = [one for one in (node.get("spec") or {}).get("taints") or [] if one["effect"] in ("NoSchedule", "NoExecute")]
    always = [f"node.kubernetes.io/{word}" for word in _ALWAYS]
    return selects(pod, node) and all(one["key"] in always or tolerates(pod, one) for one in hard)
