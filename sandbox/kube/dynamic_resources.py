# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dynamic resource allocation (resource.k8s.io/v1): rules of the kinds, the claim controller, and which devices of a node a pod's claims get.

Whole devices only: no counters, no shared capacity, no binding conditions. Constraints and adminAccess are left to the real scheduler.
"""

from __future__ import annotations

import collections
import typing as t

from . import cel
from .auth import Call
from .parts import Kind, Parts
from .quantity import quantity
from .status import Refusal, cause, invalid
from .store import clone

Json = dict[str, t.Any]
GROUP = "resource.k8s.io"
CLAIMS, CLASSES, SLICES = (GROUP, "resourceclaims"), (GROUP, "deviceclasses"), (GROUP, "resourceslices")
TEMPLATES = (GROUP, "resourceclaimtemplates")
_ENDED = ("Succeeded", "Failed")
_KEEPS_OFF = ("NoSchedule", "NoExecute")


class ResourceClaims(Kind):
    """A claim's spec never changes; its status is written apart."""

    def on_create(self, call: Call, obj: Json) -> None:
        obj.pop("status", None)
        _default(obj.get("spec") or {})

    def check(self, old: Json | None, new: Json) -> None:
        causes = list(_faults(new.get("spec") or {}, "spec"))
        if old is not None and old.get("spec") != new.get("spec"):
            causes.append(cause("FieldValueInvalid", "Invalid value: field is immutable", "spec"))
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)


class ResourceClaimTemplates(Kind):
    """A template has the rules of the claims that are generated from it."""

    def on_create(self, call: Call, obj: Json) -> None:
        _default((obj.get("spec") or {}).get("spec") or {})

    def check(self, old: Json | None, new: Json) -> None:
        causes = list(_faults((new.get("spec") or {}).get("spec") or {}, "spec.spec"))
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)


def _requests(spec: Json) -> list[Json]:
    return list((spec.get("devices") or {}).get("requests") or [])


def _default(spec: Json) -> None:
    for request in _requests(spec):
        for choice in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if choice is not None:
                choice.setdefault("allocationMode", "ExactCount")
                if choice["allocationMode"] == "ExactCount":
                    choice.setdefault("count", 1)


def _faults(spec: Json, path: str) -> t.Iterator[Json]:
    for number, request in enumerate(_requests(spec)):
        at = f"{path}.devices.requests[{number}]"
        if bool(request.get("exactly")) == bool(request.get("firstAvailable")):
            yield cause("FieldValueRequired", "Required value: exactly one of `exactly` or `firstAvailable` is required", at)
        choices = [(f"{at}.exactly", request.get("exactly"))] + [
            (f"{at}.firstAvailable[{place}]", choice) for place, choice in enumerate(request.get("firstAvailable") or ())
        ]
        for where, choice in choices:
            if choice is not None and not choice.get("deviceClassName"):
                yield cause("FieldValueRequired", "Required value", f"{where}.deviceClassName")


class ClaimController:
    """Generates claims from templates, takes back those of pods that are gone or have ended, and slices of nodes that are gone."""

    def __init__(self, api: Parts, call: Call) -> None:
        self._api, self._call = api, call

    def run_once(self) -> None:
        store = self._api.store
        with store.lock:
            pods = [item.obj for item in store.table(("", "pods")).select()]
            claims = [item.obj for item in store.table(CLAIMS).select()]
            slices = [item.obj for item in store.table(SLICES).select()]
            nodes = {item.obj["metadata"]["name"] for item in store.table(("", "nodes")).select()}
        for pod in pods:
            if pod["spec"].get("resourceClaims") and "deletionTimestamp" not in pod["metadata"]:
                self._generate(pod)
        if claims:
            self._release(pods, claims)
        for one in slices:
            if (node := one["spec"].get("nodeName")) and node not in nodes:
                self._delete("resourceslices", None, one["metadata"]["name"])

    def _generate(self, pod: Json) -> None:
        known = {entry["name"] for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        made: list[Json] = []
        for entry in pod["spec"]["resourceClaims"]:
            template = entry.get("resourceClaimTemplateName")
            if not template or entry["name"] in known:
                continue
            space, registry, objects = pod["metadata"]["namespace"], self._api.registry, self._api.objects
            found = objects.find(registry.of("resourceclaimtemplates", GROUP), space, template)
            if found is None:
                continue
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            metadata = {
                "generateName": f"{pod['metadata']['name']}-{entry['name']}-",
                "annotations": {"resource.kubernetes.io/pod-claim-name": entry["name"]},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            }
            body = {"metadata": metadata, "spec": clone(found.obj["spec"]["spec"])}
            claim = objects.create(registry.of("resourceclaims", GROUP), space, body, self._call)
            made.append({"name": entry["name"], "resourceClaimName": claim.obj["metadata"]["name"]})
        if made:
            statuses = [*((pod.get("status") or {}).get("resourceClaimStatuses") or ()), *made]
            self._status("pods", "", pod, {"resourceClaimStatuses": statuses})

    def _release(self, pods: t.Sequence[Json], claims: t.Sequence[Json]) -> None:
        using = {pod["metadata"]["uid"] for pod in pods if (pod.get("status") or {}).get("phase") not in _ENDED}
        living = {pod["metadata"]["uid"] for pod in pods}
        for claim in claims:
            meta, status = claim["metadata"], claim.get("status") or {}
            owner = next((one["uid"] for one in meta.get("ownerReferences") or () if one["kind"] == "Pod"), None)
            if owner is not None and owner not in using:
                self._delete("resourceclaims", meta["namespace"], meta["name"])
                continue
            reserved = status.get("reservedFor") or []
            left = [one for one in reserved if one.get("resource") != "pods" or one["uid"] in using & living]
            if left != reserved:
                self._status("resourceclaims", GROUP, claim, {"reservedFor": left} if left else None)

    def _status(self, plural: str, group: str, obj: Json, status: Json | None) -> None:
        def produce(old: Json) -> Json:
            return {**clone(old), "status": {} if status is None else {**(old.get("status") or {}), **status}}

        meta = obj["metadata"]
        try:
            self._api.objects.change(
                self._api.registry.of(plural, group), meta["namespace"], meta["name"], produce, self._call, "status"
            )
        except Refusal:
            return  # deleted meanwhile

    def _delete(self, plural: str, namespace: str | None, name: str) -> None:
        try:
            self._api.objects.delete(self._api.registry.of(plural, GROUP), namespace, name, {}, self._call)
        except Refusal:
            return  # gone already


class Allocator:
    """One look at claims, classes and slices; what it promises in one round is not promised twice."""

    def __init__(self, api: Parts) -> None:
        self._api = api
        store = api.store
        with store.lock:
            self.claims = {item.key: clone(item.obj) for item in store.table(CLAIMS).select()}
            self._classes = {item.obj["metadata"]["name"]: item.obj for item in store.table(CLASSES).select()}
            slices = [item.obj["spec"] for item in store.table(SLICES).select()]
        self._devices = _published(slices)
        self._used = {
            (one["driver"], one["pool"], one["device"])
            for claim in self.claims.values()
            for one in _results((claim.get("status") or {}).get("allocation") or {})
        }

    def claims_of(self, pod: Json) -> list[Json] | None:
        """None while one of them is not there: the scheduler does not look at the pod then."""
        made = {one["name"]: one.get("resourceClaimName") for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        found: list[Json] = []
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or made.get(entry["name"])
            claim = self.claims.get(f"{pod['metadata']['namespace']}/{name}")
            if claim is None:
                return None
            if claim not in found:
                found.append(claim)
        return found

    def obstacle(self, claims: t.Sequence[Json], node: str) -> str | None:
        """Why the claims cannot be had on the node, in the scheduler's words."""
        for claim in claims:
            pinned = _node_of(claim)
            if pinned is not None and pinned != node:
                return "resourceclaim not available on the node"
        return None if self._choose(claims, node) is not None else "cannot allocate all claims"

    def take(self, pod: Json, claims: t.Sequence[Json], node: str, call: Call) -> None:
        """Allocate and reserve for the pod."""
        for claim, results in (self._choose(claims, node) or {}).values():
            self._used |= {(one["driver"], one["pool"], one["device"]) for one in results}
            terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
            allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
            self._write(claim, {"allocation": allocation}, call)
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for claim in claims:
            reserved = (claim.get("status") or {}).get("reservedFor") or []
            self._write(claim, {"reservedFor": [*reserved, user]}, call)

    def _write(self, claim: Json, status: Json, call: Call) -> None:
        meta = claim["metadata"]
        claim["status"] = {**(claim.get("status") or {}), **status}
        self._api.objects.change(
            self._api.registry.of("resourceclaims", GROUP), meta["namespace"], meta["name"],
            lambda old: {**clone(old), "status": clone(claim["status"])}, call, "status",
        )  # fmt: skip

    def _choose(self, claims: t.Sequence[Json], node: str) -> dict[str, tuple[Json, list[Json]]] | None:
        """Devices for every claim without an allocation; None when some request cannot be met."""
        used, chosen = set(self._used), {}
        for claim in claims:
            if (claim.get("status") or {}).get("allocation"):
                continue
            results: list[Json] = []
            for request in _requests(claim["spec"]):
                picked = self._pick(request, node, used)
                if picked is None:
                    return None
                used |= {(one["driver"], one["pool"], one["device"]) for one in picked}
                results += picked
            chosen[claim["metadata"]["uid"]] = (claim, results)
        return chosen

    def _pick(self, request: Json, node: str, used: t.Collection[tuple[str, str, str]]) -> list[Json] | None:
        ways = [(request["name"], request["exactly"])] if request.get("exactly") else [
            (f"{request['name']}/{one['name']}", one) for one in request["firstAvailable"]
        ]  # fmt: skip
        for name, way in ways:
            fitting = [one for one in self._devices[node] if self._fits(way, one)]
            free = [one for one in fitting if one["key"] not in used and not one["tainted"]]
            count = len(fitting) if way["allocationMode"] == "All" else way["count"]
            if fitting and len(free) >= count:
                keys = [one["key"] for one in free[:count]]
                return [{"request": name, "driver": driver, "pool": pool, "device": device} for driver, pool, device in keys]
        return None

    def _fits(self, way: Json, device: Json) -> bool:
        device_class = self._classes.get(way["deviceClassName"])
        if device_class is None:
            return False
        selectors = [*((device_class.get("spec") or {}).get("selectors") or ()), *(way.get("selectors") or ())]
        try:
            return all(cel.selector(one["cel"]["expression"])(device["seen"]) is True for one in selectors)
        except cel.Fault:
            return False


def _results(allocation: Json) -> list[Json]:
    return list((allocation.get("devices") or {}).get("results") or ())


def _node_of(claim: Json) -> str | None:
    terms = ((((claim.get("status") or {}).get("allocation") or {}).get("nodeSelector") or {}).get("nodeSelectorTerms")) or ()
    return next((one["values"][0] for term in terms for one in term.get("matchFields") or ()), None)


def _published(slices: t.Sequence[Json]) -> dict[str, list[Json]]:
    """Node to the devices of complete pools, as selectors see them."""
    pools: dict[tuple[str, str], list[Json]] = collections.defaultdict(list)
    for one in slices:
        pools[one["driver"], one["pool"]["name"]].append(one)
    found: dict[str, list[Json]] = collections.defaultdict(list)
    for (driver, pool), parts in sorted(pools.items()):
        newest = max(part["pool"]["generation"] for part in parts)
        current = [part for part in parts if part["pool"]["generation"] == newest]
        if len(current) == current[0]["pool"]["resourceSliceCount"]:
            for device in (one for part in current for one in part.get("devices") or ()):
                tainted = any(taint.get("effect") in _KEEPS_OFF for taint in device.get("taints") or ())
                seen = _seen(device, driver)
                found[current[0].get("nodeName", "")].append(
                    {"key": (driver, pool, device["name"]), "tainted": tainted, "seen": seen}
                )
    return found


def _seen(device: Json, driver: str) -> Json:
    attributes: dict[str, Json] = collections.defaultdict(dict)
    capacity: dict[str, Json] = collections.defaultdict(dict)
    for name, value in (device.get("attributes") or {}).items():
        domain, _slash, short = name.rpartition("/")
        kind, content = next(iter(value.items()))
        attributes[domain or driver][short] = cel.semver(content) if kind == "version" else content
    for name, value in (device.get("capacity") or {}).items():
        domain, _slash, short = name.rpartition("/")
        capacity[domain or driver][short] = cel.Ordered(quantity(value["value"]))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": False}
