# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights that each playbook needs, in one table. files/rbac.yml grants their sum to one account; the Helm chart has a role for each."""

from __future__ import annotations

import dataclasses
import typing as t

from ..model import Pool, SecretRef
from . import bootstrap_tokens, csr
from .client import NAMESPACE
from .rbac import Right

CLAIMS = "claims"
NODE_CLAIMS = "node_claims"
TOKENS = "tokens"
SECRETS = "secrets"
OBJECTS = "objects"
SERVICES = "services"
ACCEPTANCE = "acceptance"
PRE_PULL = "pre_pull"
UTILIZATION = "utilization"
DEVICES = "devices"
PROVISIONING = "provisioning_requests"
BUFFERS = "capacity_buffers"
NAMESPACES = "namespaces"
GUARD = "guard"
HUBS = "hub_secrets"
FEATURES = {
    CLAIMS: "records in the cluster (claim_store: cluster or crd)",
    NODE_CLAIMS: "claims as GPUNodeClaim objects (claim_store: crd, and move_claims)",
    TOKENS: "machines that join with a bootstrap token: all that are rented as nodes, and own machines with settings.payload: body",
    SECRETS: "credentials and templates in Secrets (the common Secret, credentialsRef, templateRef)",
    OBJECTS: "documents that are objects of the cluster (documents_from_cluster)",
    SERVICES: "pools of services, in the namespace of each",
    ACCEPTANCE: "pools and requests whose new nodes have to pass an acceptance test",
    PRE_PULL: "pools and requests whose new nodes pull images before pods come (prePull)",
    UTILIZATION: "pools that go by the metrics of GPUs (disruption.idleSignal, xids of unhealthyConditions)",
    DEVICES: "pools whose GPUs are devices of a DRA driver (draDriver)",
    PROVISIONING: "pools that serve ProvisioningRequests (provisioningClasses)",
    BUFFERS: "pools that hold the spare room of CapacityBuffers (capacityBuffers)",
    GUARD: "machines that power themselves off while no run renews the run lock (guard.controllerSilentFor)",
    NAMESPACES: "labels of namespaces that say for which team their pods run (namespace_teams)",
    HUBS: "WireGuard hubs of which some stands in Secrets (wireguardConfig.publicKeySecretRef, endpointSecretRef and so on)",
}
"""Optional features. The rights of a feature are needed only where it is used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Rights that belong together, and why a playbook needs them. ``when``: the feature without which nobody does, "" = everybody does.
    ``asked``: a refusal names them if they are missing, and the API server is asked for those of tokens and records before a machine is
    rented; the lack of the others stops nothing that costs money."""

    why: str
    rights: tuple[Right, ...]
    when: str = ""
    asked: bool = True


def _all(verbs: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group, namespace, name) for verb in verbs.split())


def rights_in(namespace: str) -> tuple[Right, ...]:
    """What publishing services needs in one namespace."""
    services = _all("get create patch delete list", "services", namespace=namespace)
    return (*services, *_all("get create patch delete", "configmaps", namespace=namespace))


_KINDS = ("gpunodeclasses", "gpunodepools", "gpurequests")
_NODE_CLAIM = "gpunodeclaims"
_CERTIFICATES = "certificates.k8s.io"
_REQUESTS = "certificatesigningrequests"
PLUGIN_CONFIG = "nvidia-device-plugin-config"
"""The ConfigMap of the stand-alone device plugin. It is read in whichever namespace the plugin is."""
EACH_PLACE = "default"
"""Stands in the table for the namespace of each pool of services."""

_CLUSTER = Need("the cluster's id is made of the UID of kube-system", _all("get", "namespaces", name="kube-system"), asked=False)
_SYSTEM = Need("see that the namespace of the records is there", _all("get", "namespaces", name=NAMESPACE), asked=False)
_NODES = Need("know which machines are nodes", _all("list", "nodes"))
_OWN = Need("tell whether an own machine without statusEndpoint is on: its Node is Ready", _all("get", "nodes"))
_PODS = Need("see what runs", _all("list", "pods"))
_PLUGINS = Need("see whether a device plugin will advertise the GPUs of new nodes", _all("list", "daemonsets", "apps"), asked=False)
_RUNTIMES = Need("see whether there is a RuntimeClass nvidia", _all("list", "runtimeclasses", "node.k8s.io"), asked=False)
_LOGS = Need("read why a device plugin shows no GPUs, and a power limit is not set", _all("get", "pods/log"), asked=False)
_SHARING = Need(
    "see how the device plugin shares GPUs",
    _all("get", "configmaps", name=PLUGIN_CONFIG),
    asked=False,
)
_LIST = Need("list claims and ledger", _all("list", "configmaps", namespace=NAMESPACE), CLAIMS)
_READ = Need("read state: pauses, findings, generation", _all("get", "configmaps", namespace=NAMESPACE), CLAIMS)
_STATE = Need("keep it", _all("create update", "configmaps", namespace=NAMESPACE), CLAIMS)
_BOOKS = Need("add lines to the ledger", _all("patch", "configmaps", namespace=NAMESPACE), CLAIMS)
_CLOSE = Need("remove what is closed", _all("delete", "configmaps", namespace=NAMESPACE), CLAIMS)
_BESIDE = Need("see that no claims are in the other store", _all("list", _NODE_CLAIM, "tgp.io", NAMESPACE), CLAIMS, asked=False)
_LIST_OBJECTS = Need("list claims that are objects", _all("list", _NODE_CLAIM, "tgp.io", NAMESPACE), NODE_CLAIMS)
_KEEP_OBJECTS = Need("write them", _all("get create patch", _NODE_CLAIM, "tgp.io", NAMESPACE), NODE_CLAIMS)
_END_OBJECTS = Need("remove what is closed", _all("delete", _NODE_CLAIM, "tgp.io", NAMESPACE), NODE_CLAIMS)
_DEFINITION = Need(
    "tell a deleted claim from all claims of a definition that is being deleted",
    _all("get", "customresourcedefinitions", "apiextensions.k8s.io", name=f"{_NODE_CLAIM}.tgp.io"),
    NODE_CLAIMS,
    asked=False,
)
_LOCK = Need("hold the run lock", _all("get create update", "leases", "coordination.k8s.io", NAMESPACE))
_CREDENTIALS = Need(
    "credentials: the common Secret, credentialsRef and templateRef",
    _all("get", "secrets", namespace=NAMESPACE),
    SECRETS,
    asked=False,
)
_HUBS = Need(
    "read the WireGuard hubs that classes have in Secrets",
    _all("get", "secrets", namespace=NAMESPACE),
    HUBS,
    asked=False,  # those that the documents name are asked for by name (hub_rights)
)
_DOCUMENTS = Need("read the documents", tuple(Right("list", kind, "tgp.io") for kind in _KINDS), OBJECTS)
_STATUS = Need(
    "write what became of them into their status; read one again that has changed meanwhile",
    tuple(right for kind in _KINDS for right in (Right("get", kind, "tgp.io"), Right("patch", f"{kind}/status", "tgp.io"))),
    OBJECTS,
)
_HOLD = Need(
    "hold them by a finalizer while they have machines (files/admission_policy.yml: change nothing else of them)",
    tuple(Right("patch", kind, "tgp.io") for kind in _KINDS),
    OBJECTS,
)
_MARKS = Need("label, taint and cordon nodes", _all("patch", "nodes"))
_DRAIN = Need(
    "evict pods, follow them and their budgets, delete those that stay on a machine that is gone",
    (
        *_all("get watch delete", "pods"),
        *_all("create", "pods/eviction"),
        *_all("list watch", "poddisruptionbudgets", "policy"),
    ),
)
_REMOVE = Need("remove the nodes whose machine is gone", _all("delete", "nodes"))
_VOLUMES = Need("wait until volumes are detached", _all("list", "volumeattachments", "storage.k8s.io"))
_REACH = Need(
    "see from which nodes the persistent volumes of pods that look for a place can be reached",
    (
        *_all("list", "persistentvolumeclaims"),
        *_all("list", "persistentvolumes"),
        *_all("list", "storageclasses", "storage.k8s.io"),
    ),
    asked=False,
)
_GROUPS = Need(
    "see how many pods of a PodGroup have to run at once, where such pods wait",
    tuple(Right("list", "podgroups", group) for group in ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")),
    asked=False,
)
_END_TOKENS = Need("delete the bootstrap token of a machine", _all("delete", "secrets", namespace="kube-system"), TOKENS)
_REPORT = Need(
    "report in Kubernetes Events what is done for pods, Nodes and documents (L-32)",
    _all("create", "events", "events.k8s.io"),
    asked=False,
)
_FOLLOW = Need("follow joining nodes", _all("watch", "nodes"))
_NEUTRAL = Need("let nodes offer their GPUs under the neutral name tgp.io/gpu, too", _all("patch", "nodes/status"))
_EVENTS = Need(
    "tell why a Node does not become usable: what the cluster noted about it and its pods", _all("list", "events"), asked=False
)
_MAKE_TOKENS = Need(
    "create one bootstrap token for each machine that joins",
    _all("create", "secrets", namespace="kube-system"),
    TOKENS,
)
_ADMIT = Need(
    "approve what the token of a machine asks for that machine's own name, deny all else it asks for, tell why a node does not join",
    (
        *_all("get list watch", _REQUESTS, _CERTIFICATES),
        *_all("update", f"{_REQUESTS}/approval", _CERTIFICATES),
        *_all("approve", "signers", _CERTIFICATES, name=csr.SIGNER),
    ),
    TOKENS,
)
_BINDING = Need(
    "see that the group of these tokens may ask for certificates before a machine is rented",
    _all("get", "clusterrolebindings", "rbac.authorization.k8s.io", name=bootstrap_tokens.OWN_BINDING),
    TOKENS,
)
_PUBLISHED = Need("see which services are published", _all("list", "services", namespace=EACH_PLACE), SERVICES)
_WITHDRAW = Need(
    "withdraw the Service of a container that is gone, and its line in the list of endpoints",
    (
        *_all("get delete", "services", namespace=EACH_PLACE),
        *_all("get patch delete", "configmaps", namespace=EACH_PLACE),
    ),
    SERVICES,
)
_PUBLISH = Need("publish containers as Services, and list their endpoints", rights_in(EACH_PLACE), SERVICES)

_TEST = Need(
    "run the pod of an acceptance test on a new node, and read its log",
    (*_all("create", "pods", namespace=NAMESPACE), *_all("get", "pods/log", namespace=NAMESPACE)),
    ACCEPTANCE,
)

_PULL = Need("run the pod that pulls images on a new node", _all("create", "pods", namespace=NAMESPACE), PRE_PULL)

_BENCH = Need(
    "run the pods that measure the mesh, follow and remove them, read what they print and why one does not start",
    (
        *_all("create get list delete", "pods", namespace=NAMESPACE),
        *_all("get", "pods/log", namespace=NAMESPACE),
        *_all("list", "events", namespace=NAMESPACE),
    ),
)

_EXPORTERS = Need("find the dcgm-exporter of each node", _all("list", "pods"), UTILIZATION)
_UTILIZATION = Need(
    "read how much GPUs are used and which XIDs they had from the dcgm-exporter of each node, through the proxy to its pod",
    _all("get", "pods/proxy"),
    UTILIZATION,
)

_DEVICES = Need(
    "see what pods ask of DRA drivers, and which devices nodes have",
    tuple(Right("list", kind, "resource.k8s.io") for kind in ("deviceclasses", "resourceclaims", "resourceslices")),
    DEVICES,
)

_AUTOSCALING = "autoscaling.x-k8s.io"
_REQUESTED = Need(
    "see which ProvisioningRequests ask for room, and for which pods",
    (*_all("list", "provisioningrequests", _AUTOSCALING), *_all("list", "podtemplates")),
    PROVISIONING,
)
_ANSWER = Need(
    "write into their status what became of them",
    _all("patch", "provisioningrequests/status", _AUTOSCALING),
    PROVISIONING,
)
_BUFFERED = Need(
    "see which CapacityBuffers ask for spare room, for which pods, and how many those have",
    (
        *_all("list", "capacitybuffers", _AUTOSCALING),
        *_all("list", "podtemplates"),
        *(Right("get", plural, "apps") for plural in ("deployments", "statefulsets", "replicasets")),
    ),
    BUFFERS,
)
_ANSWER_BUFFERS = Need(
    "write into their status whether the room is there",
    _all("patch", "capacitybuffers/status", _AUTOSCALING),
    BUFFERS,
)
GUARD_BINDING = "tgp-gpu-guard"
"""Of files/guard.yml: lets nodes read the Leases of the records' namespace."""
_GUARD = Need(
    "see that nodes can read the run lock before a machine is rented that powers itself off by it",
    _all("get", "rolebindings", "rbac.authorization.k8s.io", NAMESPACE, GUARD_BINDING),
    GUARD,
)
_NAMESPACES = Need("read for which team the pods of a namespace run", _all("list", "namespaces"), NAMESPACES, asked=False)

_RECORDS = (_LIST, _BESIDE, _LIST_OBJECTS, _DEFINITION)
_CLOSING = (_CLOSE, _END_OBJECTS)
_LOOK = (_CLUSTER, _NODES, _OWN, _PLUGINS, *_RECORDS, _READ, _CREDENTIALS, _DOCUMENTS)
_PLAN = (*_LOOK, _PODS, _REACH, _GROUPS, _PUBLISHED, _UTILIZATION, _DEVICES, _REQUESTED, _BUFFERED, _NAMESPACES, _HUBS)
_RUN = (_CLUSTER, _SYSTEM, *_RECORDS, _READ, _STATE, _KEEP_OBJECTS, _LOCK)
_TERMINATE = (
    *_RUN, _BOOKS, *_CLOSING, _CREDENTIALS, _DOCUMENTS, _STATUS, _HOLD, _NODES, _OWN, _PODS, _MARKS, _DRAIN, _REMOVE, _VOLUMES,
    _END_TOKENS, _PUBLISHED, _WITHDRAW, _REPORT,
)  # fmt: skip
_EVERYTHING = (
    *_TERMINATE,
    _PLUGINS,
    _FOLLOW,
    _NEUTRAL,
    _EVENTS,
    _MAKE_TOKENS,
    _ADMIT,
    _BINDING,
    _PUBLISH,
    _TEST,
    _PULL,
    _UTILIZATION,
    _REACH,
    _GROUPS,
    _DEVICES,
    _REQUESTED,
    _ANSWER,
    _BUFFERED,
    _ANSWER_BUFFERS,
    _GUARD,
    _HUBS,
)

NEEDS: dict[str, tuple[Need, ...]] = {
    "status": (*_LOOK, _EXPORTERS, _UTILIZATION, _DEVICES, _REQUESTED, _BUFFERED, _HUBS),
    "report": (_CLUSTER, *_RECORDS, _CREDENTIALS, _DOCUMENTS),
    "prices": (_OWN, _LIST, _READ, _STATE, _BOOKS, _CLOSE, _CREDENTIALS),
    "plan": _PLAN,
    "validate": (*_LOOK, _BINDING, _PUBLISH, _GUARD, _HUBS),
    "diagnose": (_CLUSTER, _NODES, _PODS, _PLUGINS, _EVENTS, _RUNTIMES, _LOGS, _SHARING, *_RECORDS, _DOCUMENTS, _UTILIZATION),
    "bench_mesh": (_CLUSTER, _NODES, *_RECORDS, _DOCUMENTS, _BENCH),
    "pause": (*_RUN, _DOCUMENTS),
    "resume": (*_RUN, _DOCUMENTS),
    "archive": (_CLUSTER, *_RECORDS, _READ, _STATE, _CLOSE),
    "move_claims": (*_RUN, _BOOKS, *_CLOSING, _DOCUMENTS),
    "release": (
        *_RUN,
        _BOOKS,
        *_CLOSING,
        _CREDENTIALS,
        _DOCUMENTS,
        _OWN,
        _STATUS,
        _HOLD,
        _NODES,
        _PODS,
        _MARKS,
        _NEUTRAL,
        _END_TOKENS,
    ),
    "adopt": (*_RUN, *_LOOK, _PODS, _MARKS, _NEUTRAL),
    "reap": (*_TERMINATE, _UTILIZATION, _DEVICES, _REACH, _REQUESTED, _BUFFERED, _HUBS),
    "destroy": _TERMINATE,
    "provision": _EVERYTHING,
    "autoscale": _EVERYTHING,
    "apply": _EVERYTHING,
    "join_kubelet": (*_RUN, _CREDENTIALS, _DOCUMENTS, _HUBS, _MAKE_TOKENS, _END_TOKENS, _ADMIT),
}
"""What each playbook needs. The inventory plugin needs what status does. Those that are not here do not work in a cluster, or do what
only its administrator may do."""
WHOLE = "provision"
"""The playbook that needs all of it: a machine's whole life."""


def needs_of(playbook: str, features: t.Collection[str] = tuple(FEATURES)) -> tuple[Need, ...]:
    """What a playbook needs in a set-up with these features; of one that is not in the table, as much as any does."""
    return tuple(need for need in dict.fromkeys(NEEDS.get(playbook, NEEDS[WHOLE])) if not need.when or need.when in features)


def rights_of(playbook: str, features: t.Collection[str] = tuple(FEATURES), *, asked: bool = False) -> tuple[Right, ...]:
    """The same as rights, each once. ``asked``: only those that the API server is asked for before a machine is rented."""
    found = (right for need in needs_of(playbook, features) if need.asked or not asked for right in need.rights)
    return tuple(dict.fromkeys(found))


def hub_rights(secrets: t.Iterable[SecretRef]) -> tuple[Right, ...]:
    """What reading the hubs of documents takes: each Secret by its name, in whichever namespace it is."""
    places = dict.fromkeys((ref.namespace, ref.name) for ref in secrets)
    return tuple(right for namespace, name in places for right in _all("get", "secrets", namespace=namespace, name=name))


def pool_features(pools: t.Iterable[Pool]) -> set[str]:
    """Those that documents ask for."""
    found: set[str] = set()
    for pool in pools:
        found |= {ACCEPTANCE} if pool.acceptance is not None else set()
        found |= {PRE_PULL} if pool.pre_pull is not None else set()
        found |= {UTILIZATION} if pool.reads_exporters else set()
        found |= {DEVICES} if pool.dra_driver else set()
        found |= {PROVISIONING} if pool.provisioning_classes else set()
        found |= {BUFFERS} if pool.capacity_buffers else set()
    return found


def record_features(store: str | None) -> set[str]:
    """Those of the option ``claim_store``. Findings and the ledger are ConfigMaps beside GPUNodeClaim objects, too."""
    return {"directory": set[str](), "crd": {CLAIMS, NODE_CLAIMS}}.get(store or "cluster", {CLAIMS})
