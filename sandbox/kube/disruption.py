# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PodDisruptionBudgets: how many pods may go now, and evictions that respect it."""

from __future__ import annotations

import math
import typing as t

from .auth import Call
from .meta import timestamp
from .parts import Kind, Parts
from .pods import FINISHED, is_ready, phase
from .resources import Resource
from .selectors import selector_test
from .status import Refusal, bad_request, cause, forbidden, invalid, success
from .store import Item
from .validate import check_selector

Json = dict[str, t.Any]
_SCALED = {"Deployment": ("apps", "deployments"), "ReplicaSet": ("apps", "replicasets"), "StatefulSet": ("apps", "statefulsets")}


def _rounded_up(value: t.Any, of: int) -> int:
    text = str(value)
    return math.ceil(int(text[:-1]) * of / 100) if text.endswith("%") else int(text)


def _scale(api: Parts, namespace: str, pods: list[Json]) -> int:
    """Pods that the owners of these pods want. Pods without an owner that can be scaled do not count, as on the real server: a
    percentage or maxUnavailable of theirs allows nothing."""
    owners: dict[str, int] = {}
    for pod in pods:
        owner = next((ref for ref in pod["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)
        if owner and owner["kind"] in _SCALED:
            item = api.store.table(_SCALED[owner["kind"]]).get(f"{namespace}/{owner['name']}")
            if item is not None:
                owners[f"{owner['kind']}/{item.key}"] = (item.obj.get("spec") or {}).get("replicas", 1)
    return sum(owners.values())


def figures(api: Parts, pdb: Json) -> Json:
    """The status of a budget, computed from the pods that exist now."""
    namespace = pdb["metadata"]["namespace"]
    spec = pdb.get("spec") or {}
    chosen = selector_test(spec.get("selector"))
    pods = [item.obj for item in api.store.table(("", "pods")).select(namespace)]
    pods = [pod for pod in pods if phase(pod) not in FINISHED and chosen(pod["metadata"].get("labels") or {})]
    healthy = sum(1 for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
    if (most := spec.get("maxUnavailable")) is not None:
        expected = _scale(api, namespace, pods)
        desired = max(0, expected - _rounded_up(most, expected))
    else:
        least = spec.get("minAvailable", 1)
        expected = _scale(api, namespace, pods) if str(least).endswith("%") else len(pods)
        desired = _rounded_up(least, expected)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    now = timestamp(api.now())
    reason = "SufficientPods" if allowed > 0 else "InsufficientPods"
    generation = pdb["metadata"].get("generation", 1)
    conditions = (pdb.get("status") or {}).get("conditions") or []
    state = "True" if allowed > 0 else "False"
    since = conditions[0]["lastTransitionTime"] if conditions and conditions[0]["status"] == state else now
    condition = {"type": "DisruptionAllowed", "status": state, "observedGeneration": generation, "lastTransitionTime": since,
                 "reason": reason, "message": ""}  # fmt: skip
    return {"observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired,
            "expectedPods": expected, "conditions": [condition]}  # fmt: skip


class Budgets(Kind):
    """The status is refreshed whenever a budget is read; what clients write there is lost, as under the real controller."""

    def refresh(self, namespace: str | None, name: str | None = None) -> None:
        table = self.api.store.table(self.resource.key)
        with self.api.store.lock:
            items = table.select(namespace) if name is None else [table.get(f"{namespace}/{name}")]
            for item in items:
                if item is not None and item.obj.get("status") != (status := figures(self.api, item.obj)):
                    self.api.store.put(table, item.key, {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status})

    def check(self, old: Json | None, new: Json) -> None:
        spec = new.get("spec") or {}
        check_selector(self.resource, new["metadata"]["name"], spec.get("selector"))
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            told = "Invalid value: minAvailable and maxUnavailable cannot be both set"
            raise invalid(self.resource, new["metadata"]["name"], [cause("FieldValueInvalid", told, "spec")])

    def covering(self, pod: Json) -> list[Item]:
        labels = pod["metadata"].get("labels") or {}
        items = self.api.store.table(self.resource.key).select(pod["metadata"]["namespace"])
        return [item for item in items if selector_test((item.obj.get("spec") or {}).get("selector"))(labels)]

    def evict(self, pods: Resource, namespace: str, name: str, body: Json, call: Call) -> Json:
        """POST eviction. Status document of success, or a Refusal: 429 without Retry-After when the budget is used up."""
        given = (body.get("metadata") or {}).get("name")
        if given and given != name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = body.get("deleteOptions") or {}
        if options.get("dryRun"):
            call = Call(call.identity, call.manager, True)
        with self.api.store.lock:
            pod = self.api.objects.get(pods, namespace, name).obj
            node = call.identity.node
            if node is not None and pod["spec"].get("nodeName") != node:
                raise forbidden(pods, name, f"node {node} can only evict pods with spec.nodeName set to itself")
            if phase(pod) not in (*FINISHED, "Pending") and "deletionTimestamp" not in pod["metadata"]:
                self._ask(pod)
            self.api.objects.delete(pods, namespace, name, options, call)
        return success(201)

    def _ask(self, pod: Json) -> None:
        budgets = self.covering(pod)
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise Refusal(500, "", message)
        for item in budgets:
            status = figures(self.api, item.obj)
            if not is_ready(pod):
                policy = (item.obj.get("spec") or {}).get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
                if policy == "AlwaysAllow" or status["currentHealthy"] >= status["desiredHealthy"] > 0:
                    return
            if status["disruptionsAllowed"] <= 0:
                name = item.obj["metadata"]["name"]
                if status["currentHealthy"] <= status["desiredHealthy"]:
                    count = f"{status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
                    told = f"The disruption budget {name} needs {count}"
                else:
                    told = f"The disruption budget {name} does not allow evicting pods currently"
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Refusal(429, "TooManyRequests", message, {"causes": [cause("DisruptionBudget", told)]})
