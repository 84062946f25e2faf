# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node authorizer: a kubelet sees its own Node and lease, and the Secrets and ConfigMaps of its pods."""

from __future__ import annotations

import typing as t

from .auth import Identity
from .resources import Resource
from .store import Store

Json = dict[str, t.Any]

_REFERENCED = ("configmaps", "secrets")


def _references(spec: Json, kind: str) -> t.Iterator[str]:
    """Names of the Secrets or ConfigMaps that a pod uses."""
    secret = kind == "secrets"
    name, ref, key_ref = ("secretName", "secretRef", "secretKeyRef") if secret else ("name", "configMapRef", "configMapKeyRef")
    source = "secret" if secret else "configMap"
    if secret:
        yield from (entry.get("name", "") for entry in spec.get("imagePullSecrets") or [])
    for volume in spec.get("volumes") or []:
        yield (volume.get(source) or {}).get(name, "")
        for part in (volume.get("projected") or {}).get("sources") or []:
            yield (part.get(source) or {}).get("name", "")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        yield from ((entry.get(ref) or {}).get("name", "") for entry in container.get("envFrom") or [])
        yield from (((entry.get("valueFrom") or {}).get(key_ref) or {}).get("name", "") for entry in container.get("env") or [])


def objection(store: Store, identity: Identity, verb: str, resource: Resource, namespace: str | None, name: str) -> str | None:
    """Why a kubelet may not, in the authorizer's words; None for anybody else and for what it may."""
    node = identity.node
    if node is None:
        return None
    if resource.key == ("", "nodes") and verb == "get" and name and name != node:
        return f"node '{node}' cannot read '{name}', only its own Node object"
    if resource.plural == "leases":
        if namespace != "kube-node-lease":
            return 'can only access leases in the "kube-node-lease" system namespace'
        if name and name != node:
            return "can only access node lease with the same name as the requesting node"
    if resource.group == "" and resource.plural in _REFERENCED:
        if namespace is None:
            return "can only read namespaced object of this type"
        if not name:
            return "No Object name found"
        with store.lock:
            pods = store.table(("", "pods")).select(namespace, node)
        if not any(name in _references(pod.obj["spec"], resource.plural) for pod in pods):
            return f"no relationship found between node '{node}' and this object"
    return None
