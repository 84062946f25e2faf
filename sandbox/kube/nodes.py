# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: what a kubelet may not do (NodeRestriction), and the taints that follow from conditions."""

from __future__ import annotations

import typing as t

from .auth import Call
from .meta import key_causes, timestamp, value_causes
from .parts import Kind
from .status import cause, forbidden, invalid
from .store import Item
from .validate import check_amounts, check_lease, check_times

Json = dict[str, t.Any]

_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
        "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    }
)  # fmt: skip
_KUBELET_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion",
    "operatingSystem", "architecture",
)  # fmt: skip
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def _within(domain: str, parents: t.Iterable[str]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def forbidden_label(key: str) -> bool:
    """A label that a kubelet may not set on its own Node."""
    domain = key.rpartition("/")[0]
    if _within(domain, ("node-restriction.kubernetes.io",)):
        return True
    if key in _KUBELET_LABELS or _within(domain, _KUBELET_NAMESPACES):
        return False
    return _within(domain, ("kubernetes.io", "k8s.io"))


def ready(node: Json) -> str | None:
    """Status of the Ready condition: True, False, Unknown; None without one."""
    for condition in node.get("status", {}).get("conditions") or []:
        if condition.get("type") == "Ready":
            return t.cast(str, condition.get("status"))
    return None


class Nodes(Kind):
    def restrict(self, call: Call, old: Json | None, new: Json, sub: str) -> None:
        node = call.identity.node
        if node is None:
            return
        name = new["metadata"]["name"]
        if name != node:
            raise forbidden(self.resource, name, f'node "{node}" is not allowed to modify node "{name}"')
        before = (old["metadata"].get("labels") if old else None) or {}
        after = new["metadata"].get("labels") or {}
        touched = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key) and forbidden_label(key)]
        if touched:
            what = "is not allowed to modify labels" if old else f'node "{node}" is not allowed to set the following labels'
            raise forbidden(self.resource, name, f"{what}: {', '.join(touched)}")
        if old is not None and (old.get("spec", {}).get("taints") or []) != (new.get("spec", {}).get("taints") or []):
            raise forbidden(self.resource, name, f'node "{node}" is not allowed to modify taints')

    def on_create(self, call: Call, obj: Json) -> None:
        obj.setdefault("spec", {})
        status = obj["status"] = dict(obj.get("status") or {})
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(status.get("nodeInfo") or {})}
        self._settle(None, obj)

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        self._settle(old, new)

    def _settle(self, old: Json | None, node: Json) -> None:
        """What admission and the node lifecycle controller add: allocatable, and the taints of the node's conditions."""
        spec = node["spec"] = {key: value for key, value in (node.get("spec") or {}).items() if value not in (False, None, [])}
        status = node.get("status") or {}
        if status.get("capacity") and not status.get("allocatable"):
            node["status"] = {**status, "allocatable": dict(status["capacity"])}
        state = ready(node)
        wanted = []
        if spec.get("unschedulable"):
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        if state == "Unknown":
            wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        elif state == "False":
            wanted += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
        elif state is None:
            wanted.append((NOT_READY, "NoSchedule"))
        taints = [
            {key: value for key, value in taint.items() if value != ""}
            for taint in spec.get("taints") or []
            if taint.get("key") not in (NOT_READY, UNREACHABLE, UNSCHEDULABLE) or (taint["key"], taint.get("effect")) in wanted
        ]
        present = {(taint.get("key"), taint.get("effect")) for taint in taints}
        now = timestamp(self.api.now())
        stamp = {} if old is None else {"timeAdded": now}
        taints += [{"key": key, "effect": effect, **stamp} for key, effect in wanted if (key, effect) not in present]
        if taints:
            spec["taints"] = taints
        else:
            spec.pop("taints", None)

    def check(self, old: Json | None, new: Json) -> None:
        status = new.get("status") or {}
        check_amounts(self.resource, status.get("capacity"), status.get("allocatable"))
        check_times(self.resource, status.get("conditions") or [], ("lastHeartbeatTime", "lastTransitionTime"))
        check_times(self.resource, new["spec"].get("taints") or [], ("timeAdded",))
        causes = []
        seen = set()
        for at, taint in enumerate(new["spec"].get("taints") or []):
            field = f"metadata.taints[{at}]"  # so the real server calls it
            if not taint.get("key"):
                causes.append(cause("FieldValueInvalid", 'Invalid value: "": name part must be non-empty', f"{field}.key"))
            else:
                causes += key_causes(taint["key"], f"{field}.key")
            causes += value_causes(taint.get("value") or "", f"{field}.value")
            if taint.get("effect") not in _EFFECTS:
                allowed = ", ".join(f'"{effect}"' for effect in _EFFECTS)
                told = f'Unsupported value: "{taint.get("effect", "")}": supported values: {allowed}'
                causes.append(cause("FieldValueNotSupported", told, f"{field}.effect"))
            both = (taint.get("key"), taint.get("effect"))
            if both in seen:
                told = "Duplicate value: taints must be unique by key and effect pair"
                causes.append(cause("FieldValueDuplicate", told, field))
            seen.add(both)
        before, after = (old or {}).get("spec", {}).get("providerID"), new["spec"].get("providerID")
        if before and after != before:
            told = 'Forbidden: node updates may only change labels, taints, or capacity (the providerID only from "" to valid)'
            causes.append(cause("FieldValueForbidden", told, "spec.providerID"))
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)

    def gone(self, last: Item) -> None:
        name = last.obj["metadata"]["name"]
        self.api.objects.vanish(self.api.registry.of("leases", "coordination.k8s.io"), "kube-node-lease", name)


class Leases(Kind):
    """Leases: a kubelet only has its own; times are micro times."""

    def restrict(self, call: Call, old: Json | None, new: Json, sub: str) -> None:
        node, name = call.identity.node, new["metadata"]["name"]
        if node is not None and name != node:  # a create names no object in its path
            raise forbidden(self.resource, name, "can only access node lease with the same name as the requesting node")

    def check(self, old: Json | None, new: Json) -> None:
        check_lease(self.resource, new)
