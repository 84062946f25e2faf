# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods: defaults of a new pod, graceful deletion, binding."""

from __future__ import annotations

import dataclasses
import typing as t

from .auth import Call
from .meta import timestamp
from .parts import Kind
from .resources import Resource
from .status import bad_request, conflict, forbidden, success
from .store import clone
from .validate import check_pod

Json = dict[str, t.Any]

_PRIORITY = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN: Json = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ],
    "defaultMode": 420,
}
_PATIENCE = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
)


def phase(pod: Json) -> str:
    return t.cast(str, (pod.get("status") or {}).get("phase", "Pending"))


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _quality(spec: Json) -> str:
    """The quality-of-service class, from the containers' cpu and memory."""
    guaranteed, any_set = True, False
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in limits or name in requests
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    return "Guaranteed" if guaranteed and any_set else "Burstable" if any_set else "BestEffort"


class Pods(Kind):
    def restrict(self, call: Call, old: Json | None, new: Json, sub: str) -> None:
        node = call.identity.node
        if node is None:
            return
        name, its_node = new["metadata"].get("name", ""), (new.get("spec") or {}).get("nodeName")
        if old is None and _MIRROR not in (new["metadata"].get("annotations") or {}):
            why = f'pod does not have "{_MIRROR}" annotation, node "{node}" can only create mirror pods'
            raise forbidden(self.resource, name, why)
        if its_node != node:
            what = "create pods" if old is None else "update pod status for pods"
            raise forbidden(self.resource, name, f'node "{node}" can only {what} with spec.nodeName set to itself')

    def restrict_delete(self, call: Call, old: Json) -> None:
        node = call.identity.node
        if node is not None and old["spec"].get("nodeName") != node:
            why = f'node "{node}" can only delete pods with spec.nodeName set to itself'
            raise forbidden(self.resource, old["metadata"]["name"], why)

    def on_create(self, call: Call, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        for key, value in (("restartPolicy", "Always"), ("dnsPolicy", "ClusterFirst"), ("schedulerName", "default-scheduler"),
                           ("serviceAccountName", "default"), ("securityContext", {}), ("enableServiceLinks", True)):  # fmt: skip
            spec.setdefault(key, value)
        if spec.get("terminationGracePeriodSeconds") is None:
            spec["terminationGracePeriodSeconds"] = 30
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
            resources = container.setdefault("resources", {})
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
            container.setdefault("terminationMessagePath", "/dev/termination-log")
            container.setdefault("terminationMessagePolicy", "File")
            container.setdefault("imagePullPolicy", "IfNotPresent" if ":" in container.get("image", "") else "Always")
        spec["priority"] = _PRIORITY.get(spec.get("priorityClassName", ""), 0)
        spec["preemptionPolicy"] = "PreemptLowerPriority"
        spec["serviceAccount"] = spec["serviceAccountName"]
        if _MIRROR not in (obj["metadata"].get("annotations") or {}):
            if spec.get("automountServiceAccountToken") is not False:
                self._mount_token(spec)
            tolerations = spec.setdefault("tolerations", [])
            for patience in _PATIENCE:
                if not any(_covers(own, patience) for own in tolerations):
                    tolerations.append(dict(patience))
        obj["status"] = {"phase": "Pending", "qosClass": _quality(spec)}

    def _mount_token(self, spec: Json) -> None:
        """The projected volume that every ordinary pod has."""
        if any(volume["name"].startswith("kube-api-access-") for volume in spec.get("volumes") or []):
            return
        name = self.api.objects.suffixed("kube-api-access-")
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": name, "projected": _TOKEN}]
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
            mounts = container.get("volumeMounts") or []
            if not any(mount["mountPath"] == _TOKEN_PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}]

    def check(self, old: Json | None, new: Json) -> None:
        check_pod(self.resource, old, new)

    def grace(self, obj: Json, asked: int | None) -> int:
        if not obj["spec"].get("nodeName") or phase(obj) in FINISHED:
            return 0
        period = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return 1 if period < 0 else int(period)

    def at_the_end(self, obj: Json) -> Json:
        metadata = {"deletionTimestamp": timestamp(self.api.now()), **obj["metadata"], "deletionGracePeriodSeconds": 0}
        return {**obj, "metadata": metadata}

    # ---- subresources ------------------------------------------------------------------------------------------------

    @property
    def binding(self) -> Resource:
        """The subresource as errors name it."""
        return dataclasses.replace(self.resource, plural="pods/binding")

    def bind(self, namespace: str, name: str, body: Json, call: Call) -> Json:
        """POST binding: the pod goes to ``target.name``."""
        objects = self.api.objects
        with self.api.store.lock:
            pod = objects.get(self.resource, namespace, name).obj
            target = (body.get("target") or {}).get("name")
            if not target:
                raise bad_request("target.name: Required value")
            if pod["spec"].get("nodeName"):
                raise conflict(self.binding, name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
            if "deletionTimestamp" in pod["metadata"]:
                raise conflict(self.binding, name, f"pod {name} is being deleted, cannot be assigned to a host")
            new = clone(pod)
            new["spec"]["nodeName"] = target
            set_condition(new, {"type": "PodScheduled", "status": "True", "lastProbeTime": None,
                                "lastTransitionTime": timestamp(self.api.now())})  # fmt: skip
            if not call.dry_run:
                table = self.api.store.table(self.resource.key)
                self.after(None, self.api.store.put(table, f"{namespace}/{name}", new))
        return success(201)


def _covers(own: Json, patience: Json) -> bool:
    return own.get("effect") in (None, "", "NoExecute") and own.get("key") in (None, "", patience["key"])


def set_condition(obj: Json, condition: Json) -> bool:
    """Put a condition by type; the transition time only moves when the status changes. True if anything changed."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    for at, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            if old["status"] == condition["status"]:
                condition = {**condition, "lastTransitionTime": old.get("lastTransitionTime")}
            conditions[at] = condition
            return bool(old != condition)
    conditions.append(condition)
    return True
