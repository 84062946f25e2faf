# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster knows of one node that does not become usable: conditions, system pods in trouble, certificate requests, token."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta

from ...core.clock import from_text
from ...core.errors import ApiError
from ...core.redact import redact_foreign
from ...kube import bootstrap_tokens, csr
from ...kube.client import Json, Kube
from ...kube.nodes import parse, path_of
from ...kube.pods import PATH as PODS
from ...model import Node
from ..facts import Condition, EventSeen, JoinRequest, PodSeen

_MOST = 40  # pods in trouble that are kept
_SYSTEM = ("kube-system", "gpu-operator", "nvidia-gpu-operator", "node-feature-discovery", "kube-flannel")


def node_and_conditions(kube: Kube, name: str) -> tuple[Node | None, tuple[Condition, ...]]:
    """The Node of this name and all its conditions; (None, ()) when there is none."""
    raw = kube.find(path_of(name))
    if raw is None:
        return None, ()
    listed = (raw.get("status") or {}).get("conditions") or []
    return parse(kube, raw), tuple(_condition(entry) for entry in listed if isinstance(entry, dict))


def _condition(raw: Json) -> Condition:
    return Condition(
        str(raw.get("type") or ""),
        str(raw.get("status") or ""),
        str(raw.get("reason") or ""),
        str(raw.get("message") or ""),
        _moment(raw.get("lastTransitionTime")),
        _moment(raw.get("lastHeartbeatTime")),
    )


def system_pods_in_trouble(kube: Kube, node: str) -> tuple[PodSeen, ...]:
    """Pods of the system (its namespaces, and every DaemonSet) on the node that do not work, with why."""
    return tuple(kube.collect(PODS, _trouble, {"fieldSelector": f"spec.nodeName={node}"})[0][:_MOST])


def _trouble(raw: Json) -> PodSeen | None:
    meta, status = raw["metadata"], raw.get("status") or {}
    owners = {reference.get("kind") for reference in meta.get("ownerReferences") or ()}
    if meta.get("namespace") not in _SYSTEM and "DaemonSet" not in owners:
        return None
    phase = str(status.get("phase") or "Pending")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [waiting_of(container) for container in containers if waiting_of(container)]
    if phase == "Succeeded" or (phase == "Running" and not waiting):
        return None
    why = "; ".join(waiting) or str(status.get("message") or status.get("reason") or "")
    return PodSeen(f"{meta.get('namespace')}/{meta.get('name')}", phase, why[:300])


def waiting_of(container: Json) -> str:
    """Why a container does not run, in the API's words; empty when it does, or has ended well."""
    state = container.get("state") or {}
    detail = state.get("waiting") or (state.get("terminated") if not container.get("ready") else None) or {}
    if not detail or detail.get("reason") == "Completed":
        return ""
    return f"{container.get('name')}: {detail.get('reason') or ''} {detail.get('message') or ''}".strip()


def requests_of(
    requests: t.Iterable[csr.SigningRequest], token_id: str, node: str, since: datetime | None
) -> tuple[JoinRequest, ...]:
    """The requests made with this token, and those for this node name that are not older than ``since``."""
    return tuple(
        JoinRequest(request.name, request.username, request.state, request.message, request.node, request.created, request.reason)
        for request in requests
        if (token_id and request.token_id == token_id) or (request.node == node and (since is None or request.created >= since))
    )


def token_exists(kube: Kube, token_id: str) -> bool:
    """Whether the Secret of a bootstrap token is there, by a deletion that is not carried out: to read it would be to know the token."""
    return kube.delete(f"{bootstrap_tokens.PATH}/bootstrap-token-{token_id}", dry_run=True)


# ---- what the cluster noted about one Node and about the pods on it that do not work: its Events, bounded. Read as core/v1, which shows
# the same objects as events.k8s.io/v1 and can select them by what they are about

EVENTS = "/api/v1/events"
PODS_WITH_EVENTS = 5  # pods in trouble whose events are asked for
_PAGE = 200  # events of one object: the API server forgets them after an hour by itself
KEPT = 30
_LONGEST = 300
_SKEW = timedelta(seconds=60)


def events_of(kube: Kube, node: str, pods: t.Sequence[PodSeen], since: datetime | None) -> tuple[EventSeen, ...]:
    """At most :data:`KEPT`, the newest first; none that is older than ``since``, which may be of another machine of that name."""
    events = _about(kube, "Node", "", node)
    for pod in pods[:PODS_WITH_EVENTS]:
        namespace, _slash, name = pod.name.partition("/")
        events += _about(kube, "Pod", namespace, name)
    young = [event for event in events if since is None or event.last is None or event.last >= since - _SKEW]
    young.sort(key=lambda event: event.last.timestamp() if event.last else 0.0, reverse=True)
    return tuple(young[:KEPT])


def events_of_pod(kube: Kube, namespace: str, name: str) -> tuple[EventSeen, ...]:
    """The same of one pod."""
    events = _about(kube, "Pod", namespace, name)
    events.sort(key=lambda event: event.last.timestamp() if event.last else 0.0, reverse=True)
    return tuple(events[:KEPT])


def _about(kube: Kube, kind: str, namespace: str, name: str) -> list[EventSeen]:
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else EVENTS
    listed = kube.get(path, {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}", "limit": str(_PAGE)})
    about = f"{namespace}/{name}" if namespace else f"{kind}/{name}"
    return [_seen(entry, about) for entry in listed.get("items") or () if isinstance(entry, dict)]


def _seen(raw: Json, about: str) -> EventSeen:
    """Events have their time in one of four places, by the age of the client that wrote them."""
    series, meta = raw.get("series") or {}, raw.get("metadata") or {}
    times = (series.get("lastObservedTime"), raw.get("lastTimestamp"), raw.get("eventTime"), meta.get("creationTimestamp"))
    count = series.get("count") or raw.get("count") or 1
    return EventSeen(
        about,
        str(raw.get("type") or ""),
        str(raw.get("reason") or ""),
        " ".join(redact_foreign(str(raw.get("message") or "")).split())[:_LONGEST],
        count if isinstance(count, int) else 1,
        next((moment for text in times if (moment := _moment(text)) is not None), None),
    )


def _moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


# ---- asks, through the API server, whether a port of a node is served. The control plane has a way to its nodes where we may have none

TALOS_API = 50000
KUBELET = 10250
_NO_WAY = (500, 502, 503, 504)  # with which the API server says that it did not get through; no reason to ask again


def refused(kube: Kube, node: str, port: int = TALOS_API) -> str:
    """What the API server says when the node's own system refuses the connection, that is, when nothing listens there. Empty when
    something does, and whenever that cannot be determined: no way, no right (get on nodes/proxy), another server in between. Where the
    kubelet's port refuses as well, the control plane does not reach this node at all, and that says nothing about the other port."""
    if not _is_refused(kube, node, port) or _is_refused(kube, node, KUBELET):
        return ""
    return f"port {port} of the node refuses connections (asked by the control plane): nothing listens there"


def _is_refused(kube: Kube, node: str, port: int) -> bool:
    path = path_of(node).replace("/nodes/", "/nodes/https:")
    try:
        answer = kube.call("GET", f"{path}:{port}/proxy/", ok=_NO_WAY)
    except ApiError:
        return False
    return answer.status in _NO_WAY and "connection refused" in answer.text
