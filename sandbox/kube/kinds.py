# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The remaining built-in kinds with rules of their own, and which strategy serves which kind."""

from __future__ import annotations

import base64
import typing as t

from .auth import Call
from .crd import CustomKinds, CustomObjects
from .csr import Requests
from .disruption import Budgets
from .dynamic_resources import CLAIMS, TEMPLATES, ResourceClaims, ResourceClaimTemplates
from .events import Events
from .nodes import Leases, Nodes
from .parts import Kind, Parts
from .pods import Pods
from .resources import Resource
from .status import forbidden
from .store import Item
from .validate import check_data, check_immutable

Json = dict[str, t.Any]


class Secrets(Kind):
    def on_create(self, call: Call, obj: Json) -> None:
        self._fold(obj)
        obj.setdefault("type", "Opaque")

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        self._fold(new)
        new.setdefault("type", old.get("type"))

    @staticmethod
    def _fold(obj: Json) -> None:
        """stringData is only a way to write data."""
        plain = obj.pop("stringData", None) or {}
        if plain:
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def check(self, old: Json | None, new: Json) -> None:
        check_data(self.resource, new, ("data",))
        check_immutable(self.resource, old, new)


class ConfigMaps(Kind):
    def check(self, old: Json | None, new: Json) -> None:
        check_data(self.resource, new, ("binaryData",))
        check_immutable(self.resource, old, new)


class Namespaces(Kind):
    """A new namespace gets its default service account; a deleted one goes when its last object is gone."""

    def on_create(self, call: Call, obj: Json) -> None:
        name = obj["metadata"].get("name", "")
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def after(self, old: Item | None, new: Item) -> None:
        name = new.obj["metadata"]["name"]
        if old is None:
            objects, registry = self.api.objects, self.api.registry
            call = Call(self.api.itself, "kube-controller-manager")
            objects.create(registry.of("serviceaccounts"), name, {"metadata": {"name": "default"}}, call)
            trust = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self.api.authority.pem}}
            objects.create(registry.of("configmaps"), name, trust, call)
        elif "deletionTimestamp" in new.obj["metadata"]:
            self.api.empty_namespace(name)

    def restrict_delete(self, call: Call, old: Json) -> None:
        name = old["metadata"]["name"]
        if name in ("default", "kube-system", "kube-public"):
            raise forbidden(self.resource, name, "this namespace may not be deleted")

    def on_delete(self, obj: Json) -> None:
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        obj["metadata"].pop("deletionGracePeriodSeconds", None)  # the real server sets none

    def may_vanish(self, obj: Json) -> bool:
        """Only when nothing is left in it; the kinds are asked one by one, which is cheap."""
        name = obj["metadata"]["name"]
        spaced = (resource for resource in self.api.registry.all() if resource.namespaced and resource.stored)
        return not any(self.api.store.table(resource.key).select(name) for resource in spaced)


_OWN: dict[tuple[str, str], type[Kind]] = {
    ("", "nodes"): Nodes,
    ("", "pods"): Pods,
    ("", "secrets"): Secrets,
    ("", "configmaps"): ConfigMaps,
    ("", "namespaces"): Namespaces,
    ("", "events"): Events,
    ("coordination.k8s.io", "leases"): Leases,
    ("policy", "poddisruptionbudgets"): Budgets,
    ("certificates.k8s.io", "certificatesigningrequests"): Requests,
    ("apiextensions.k8s.io", "customresourcedefinitions"): CustomKinds,
    CLAIMS: ResourceClaims,
    TEMPLATES: ResourceClaimTemplates,
}


class Strategies:
    """One strategy object per kind."""

    def __init__(self, api: Parts) -> None:
        self._api = api
        self._made: dict[Resource, Kind] = {}

    def __call__(self, resource: Resource) -> Kind:
        strategy = self._made.get(resource)
        if strategy is None:
            kind = CustomObjects if resource.custom else _OWN.get(resource.key, Kind)
            strategy = self._made.setdefault(resource, kind(self._api, resource))
        if strategy.resource is not resource:  # a custom kind got another schema
            strategy = self._made[resource] = type(strategy)(self._api, resource)
        return strategy
