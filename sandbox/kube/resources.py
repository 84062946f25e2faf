# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kinds the API serves, and how each behaves."""

from __future__ import annotations

import dataclasses
import typing as t

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclasses.dataclass(frozen=True)
class Resource:
    """A served kind. ``subresources`` besides status; ``keeps_status`` = a create may carry a status; ``generation`` = the object counts
    changes of its spec; ``blind_update`` = PUT without resourceVersion is taken; ``upsert`` = PUT may create; ``schema`` = the OpenAPI
    schema of a custom resource; ``scale`` = the paths of its wanted and its real number; ``fields`` = field selectors besides
    metadata.name and metadata.namespace; ``shares`` = the group of the same plural whose objects it shows with other field names."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    status: bool = False
    subresources: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    keeps_status: bool = False
    generation: bool = False
    blind_update: bool = True
    upsert: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    returns_deleted: bool = False
    fields: tuple[str, ...] = ()
    custom: bool = False
    scale: tuple[str, str] = ("", "")
    shares: str | None = None
    schema: t.Any = dataclasses.field(default=None, hash=False, compare=False)
    columns: t.Any = dataclasses.field(default=(), hash=False, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Of the table that holds its objects."""
        return self.group if self.shares is None else self.shares, self.plural

    @property
    def qualified(self) -> str:
        """``nodes``, ``deployments.apps``: as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored(self) -> bool:
        """False for kinds that are only an answer to a POST."""
        return "get" in self.verbs


_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
    "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
)  # fmt: skip
_POD_FIELDS = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase",
    "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"

BUILT_IN: tuple[Resource, ...] = (
    Resource("", "v1", "namespaces", "Namespace", False, True, ("finalize",), ("ns",), returns_deleted=True, fields=("status.phase",)),
    Resource("", "v1", "nodes", "Node", False, True, (), ("no",), keeps_status=True, fields=("spec.unschedulable",)),
    Resource("", "v1", "pods", "Pod", True, True, ("eviction", "binding", "log"), ("po",), ("all",), generation=True,
             returns_deleted=True, fields=_POD_FIELDS),
    Resource("", "v1", "configmaps", "ConfigMap", True, short=("cm",)),
    Resource("", "v1", "secrets", "Secret", True, fields=("type",)),
    Resource("", "v1", "services", "Service", True, True, (), ("svc",), ("all",), returns_deleted=True,
             fields=("spec.clusterIP", "spec.type")),
    Resource("", "v1", "events", "Event", True, short=("ev",), upsert=True, fields=_EVENT_FIELDS),
    Resource("events.k8s.io", "v1", "events", "Event", True, short=("ev",), shares="",
             verbs=("create", "delete", "deletecollection", "get", "list", "watch")),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", True, short=("sa",), returns_deleted=True),
    Resource("apps", "v1", "daemonsets", "DaemonSet", True, True, (), ("ds",), ("all",), generation=True),
    Resource("apps", "v1", "deployments", "Deployment", True, True, (), ("deploy",), ("all",), generation=True),
    Resource("apps", "v1", "replicasets", "ReplicaSet", True, True, (), ("rs",), ("all",), generation=True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True, True, (), ("sts",), ("all",), generation=True),
    Resource("batch", "v1", "jobs", "Job", True, True, (), (), ("all",), generation=True, fields=("status.successful",)),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", True, blind_update=False, upsert=True),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, True, (), ("pdb",), generation=True,
             blind_update=False),
    Resource("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False, True, ("approval",),
             ("csr",), fields=("spec.signerName",)),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, True),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True),
    Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, fields=("spec.nodeName", "spec.driver")),
    Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, True),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False),
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, short=("sc",)),
    Resource("", "v1", "podtemplates", "PodTemplate", True, generation=True),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", False, True, (), ("pv",)),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, True, (), ("pvc",)),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Resource(_RBAC, "v1", "roles", "Role", True),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding", True),
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, True, (), ("crd",),
             ("api-extensions",), generation=True),
    Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, verbs=("create",)),
    Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, verbs=("create",)),
)  # fmt: skip


class Registry:
    """The served kinds by group, version and plural; custom ones come and go."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in BUILT_IN:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._served[resource.group, resource.version, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            del self._served[key]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def of(self, plural: str, group: str = "") -> Resource:
        """The kind, whatever its version. LookupError if it is not served."""
        for (its_group, _version, its_plural), resource in self._served.items():
            if its_group == group and its_plural == plural:
                return resource
        raise LookupError(f"{plural}.{group}")

    def groups(self) -> dict[str, list[str]]:
        """Group to its versions, in the order of their arrival."""
        found: dict[str, list[str]] = {}
        for group, version, _plural in self._served:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def in_group(self, group: str, version: str) -> list[Resource]:
        return [resource for key, resource in self._served.items() if key[:2] == (group, version)]

    def all(self) -> list[Resource]:
        return list(self._served.values())
