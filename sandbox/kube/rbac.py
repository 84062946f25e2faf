# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do what: rights of tokens, ClusterRoles and Roles through their bindings, and the fixed rights of kubelets."""

from __future__ import annotations

import typing as t

from .auth import Identity, Rule, rules_of
from .node_rights import objection
from .resources import Resource
from .status import Refusal, forbidden
from .store import Store

Json = dict[str, t.Any]
_RBAC = "rbac.authorization.k8s.io"

_ANYBODY = (
    Rule(("create",), ("authorization.k8s.io", "authentication.k8s.io"), ("selfsubjectaccessreviews", "selfsubjectreviews")),
)
_KUBELET = (
    Rule(("get", "list", "watch", "create", "update", "patch"), ("",), ("nodes", "nodes/status")),
    Rule(("get", "list", "watch", "create", "delete"), ("",), ("pods",)),
    Rule(("update", "patch"), ("",), ("pods/status",)),
    Rule(("create",), ("",), ("pods/eviction",)),
    Rule(("get", "list", "watch"), ("",), ("services", "configmaps", "secrets", "serviceaccounts")),
    Rule(("create", "update", "patch"), ("",), ("events",)),
    Rule(("get", "create", "update", "patch", "delete"), ("coordination.k8s.io",), ("leases",)),
    Rule(("create", "get", "list", "watch"), ("certificates.k8s.io",), ("certificatesigningrequests",)),
    Rule(("get", "list", "watch"), ("storage.k8s.io",), ("volumeattachments",)),
    Rule(("get", "list", "watch", "create", "update", "patch", "delete"), ("storage.k8s.io",), ("csinodes",)),
)

# What the control plane, Talos on top of it, and files/rbac.yml create for joining nodes.
ROLES: dict[str, list[Json]] = {
    "cluster-admin": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    "system:node-bootstrapper": [
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests"],
            "verbs": ["create", "get", "list", "watch"],
        }
    ],
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/nodeclient"], "verbs": ["create"]}
    ],
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/selfnodeclient"], "verbs": ["create"]}
    ],
}
BINDINGS: dict[str, tuple[str, str]] = {
    "cluster-admin": ("cluster-admin", "system:masters"),
    "system-bootstrap-node-bootstrapper": ("system:node-bootstrapper", "system:bootstrappers:nodes"),
    "system-bootstrap-approve-node-client-csr": (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers:nodes"
    ),
    "tgp-gpu-node-bootstrapper": ("system:node-bootstrapper", "system:bootstrappers:tgp"),  # of files/rbac.yml
    "system-bootstrap-node-renewal": (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"
    ),
}  # fmt: skip


class Authorizer:
    """Answers by the roles and bindings that are in the store now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[Identity, str | None], tuple[Rule, ...]] = {}
        self._revision: tuple[int, ...] = ()

    def allows(
        self, identity: Identity, verb: str, group: str, resource: str, namespace: str | None = None, name: str = ""
    ) -> bool:
        if "system:masters" in identity.groups:
            return True
        return any(rule.allows(verb, group, resource, name) for rule in self._rules(identity, namespace))

    def demand(
        self, identity: Identity, verb: str, resource: Resource, namespace: str | None, name: str, subresource: str = ""
    ) -> None:
        """Refusal 403 in the real server's words unless allowed."""
        path = f"{resource.plural}/{subresource}" if subresource else resource.plural
        why = objection(self._store, identity, verb, resource, namespace, name)
        if why and self._is_bound(identity, verb, resource, path, namespace, name):
            return  # the node authorizer has no opinion then, and RBAC is asked
        if why or not self.allows(identity, verb, resource.group, path, namespace, name):
            raise self.refusal(identity, verb, resource, namespace, name, subresource, why or "")

    def _is_bound(self, identity: Identity, verb: str, resource: Resource, path: str, namespace: str | None, name: str) -> bool:
        """Whether roles and bindings allow a kubelet what is not its own by nature."""
        rules = [rule for rule in self._rules(identity, namespace) if rule not in _KUBELET]
        return any(rule.allows(verb, resource.group, path, name) for rule in rules)

    @staticmethod
    def refusal(
        identity: Identity, verb: str, resource: Resource, namespace: str | None, name: str, subresource: str = "", why: str = ""
    ) -> Refusal:
        path = f"{resource.plural}/{subresource}" if subresource else resource.plural
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        text = f'User "{identity.user}" cannot {verb} resource "{path}" in API group "{resource.group}" {scope}'
        return forbidden(resource, name, f"{text}: {why}" if why else text)

    def _rules(self, identity: Identity, namespace: str | None) -> tuple[Rule, ...]:
        with self._store.lock:
            kinds = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
            revision = tuple(self._store.table((_RBAC, kind)).revision for kind in kinds)
            if revision != self._revision:
                self._known.clear()
                self._revision = revision
            key = (identity, namespace)
            if key not in self._known:
                if len(self._known) > 5_000:
                    self._known.clear()
                self._known[key] = tuple(self._gather(identity, namespace))
            return self._known[key]

    def _gather(self, identity: Identity, namespace: str | None) -> t.Iterator[Rule]:
        yield from _ANYBODY
        yield from identity.rules
        if identity.node:
            yield from _KUBELET
        bindings = self._store.table((_RBAC, "clusterrolebindings")).select()
        if namespace:
            bindings += self._store.table((_RBAC, "rolebindings")).select(namespace)
        for item in bindings:
            if not any(_is(identity, subject) for subject in item.obj.get("subjects") or []):
                continue
            ref = item.obj["roleRef"]
            if ref["kind"] == "ClusterRole":
                role = self._store.table((_RBAC, "clusterroles")).get(ref["name"])
            else:
                role = self._store.table((_RBAC, "roles")).get(f"{item.obj['metadata'].get('namespace')}/{ref['name']}")
            if role is not None:
                yield from rules_of(role.obj.get("rules") or [])


def _is(identity: Identity, subject: Json) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in identity.groups
    if subject["kind"] == "ServiceAccount":
        return identity.user == f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}"
    return bool(subject["name"] == identity.user)
