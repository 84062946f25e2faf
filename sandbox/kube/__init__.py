# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small Kubernetes API for people who have only Python: everything in memory, one WSGI app.

    api = KubeApi(clock).start()
    headers = {"Authorization": f"Bearer {api.admin_token}"}
    client = httpx.Client(transport=httpx.WSGITransport(app=api.app), base_url="https://kube", headers=headers)

``serve(api)`` answers on loopback over TLS for kubectl and other programs. What it does not do is listed in ``KNOWN_GAPS``; the same
probes run against it and against a real control plane.
"""

from __future__ import annotations

from .api import KubeApi
from .server import KubeServer, serve

KNOWN_GAPS: tuple[str, ...] = (
    "fieldValidation is honoured for custom resources that are created or replaced: unknown fields of built-in kinds are stored as sent, and "
    "types are checked only where validate.py says so.",
    "Defaults of built-in kinds are filled in for pods and nodes only.",
    "Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs are plain objects: no controller makes pods of them or fills their status.",
    "Owner references are not followed: a deletion does not cascade.",
    "managedFields exist only on objects that a client has applied; before that, all fields count as owned by before-first-apply.",
    "Server-side apply of custom resources treats every list as atomic; x-kubernetes-list-type is ignored (not by validation).",
    "CEL rules of custom resources are evaluated, as far as ours use the language, and their cost is not estimated; conversion webhooks, "
    "admission webhooks and aggregated APIs do not exist.",
    "Answers are JSON only; protobuf is read for the kinds that kubectl create and kubectl auth send; no CBOR, no HTTP/2.",
    "pods/log shows what the world says that a pod printed (KubeApi.pod_logs), since nothing runs; it is not followed.",
    "pods/proxy answers GET, and by the programs that the world adds (KubeApi.pod_servers); services/proxy does not exist.",
    "pods/exec, pods/attach, pods/portforward, pods/ephemeralcontainers, node proxy and scale of built-in kinds do not exist.",
    "ServiceAccount tokens, TokenReview, SubjectAccessReview, impersonation and audit do not exist; anonymous requests are 401.",
    "RBAC knows rules, bindings and resourceNames, but no non-resource URLs, no aggregation and no escalation check.",
    "A kubelet may read any Service, ServiceAccount and VolumeAttachment; its own Secrets and ConfigMaps are those that its pods name.",
    "A list with resourceVersion always shows the newest state; resourceVersionMatch is ignored.",
    "Expired continue tokens bring no token to continue with.",
    "Taints of a node's conditions, token cleaning and taint eviction act within a fraction of a second.",
    "The scheduler does not score or preempt, and knows neither volumes nor ports. It allocates whole devices to claims: no counters, shared "
    "capacity, constraints, adminAccess, or extended resources backed by DRA.",
    "A PDB knows the replicas of Deployments, ReplicaSets and StatefulSets only, and an eviction refused for its precondition costs no budget.",
    "Events of events.k8s.io/v1 are created, read, watched and deleted there; they are changed, and selected by fields, in v1 only.",
    "Services get no cluster IP, events are not expired, and resource quotas and limit ranges do not exist.",
    "The OpenAPI documents name the PATCH parameters of each kind and carry no schemas: kubectl explain shows nothing.",
)

__all__ = ["KNOWN_GAPS", "KubeApi", "KubeServer", "serve"]
