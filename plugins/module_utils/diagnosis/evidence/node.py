# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster knows of one node that does not become usable: conditions, system pods in trouble, certificate requests, token."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...core.clock import from_text
from ...kube import bootstrap_tokens, csr
from ...kube.client import Json, Kube
from ...kube.nodes import parse, path_of
from ...kube.pods import PATH as PODS
from ...model import Node
from ..facts import Condition, PodSeen, Request

_MOST = 40  # pods in trouble that are kept
_SYSTEM = ("kube-system", "gpu-operator", "nvidia-gpu-operator", "node-feature-discovery", "kube-flannel")


def node_and_conditions(kube: Kube, name: str) -> tuple[Node | None, tuple[Condition, ...]]:
    """The Node of this name and all its conditions; (None, ()) when there is none."""
    raw = kube.find(path_of(name))
    if raw is None:
        return None, ()
    listed = (raw.get("status") or {}).get("conditions") or []
    return parse(kube, raw), tuple(_condition(one) for one in listed if isinstance(one, dict))


def _condition(raw: Json) -> Condition:
    return Condition(
        str(raw.get("type") or ""),
        str(raw.get("status") or ""),
        str(raw.get("reason") or ""),
        str(raw.get("message") or ""),
        _moment(raw.get("lastTransitionTime")),
        _moment(raw.get("lastHeartbeatTime")),
    )


def _moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def system_pods_in_trouble(kube: Kube, node: str) -> tuple[PodSeen, ...]:
    """Pods of the system (its namespaces, and every DaemonSet) on the node that do not work, with why."""
    return tuple(kube.collect(PODS, _trouble, {"fieldSelector": f"spec.nodeName={node}"})[0][:_MOST])


def _trouble(raw: Json) -> PodSeen | None:
    meta, status = raw["metadata"], raw.get("status") or {}
    owners = {one.get("kind") for one in meta.get("ownerReferences") or ()}
    if meta.get("namespace") not in _SYSTEM and "DaemonSet" not in owners:
        return None
    phase = str(status.get("phase") or "Pending")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [_waiting(one) for one in containers if _waiting(one)]
    if phase == "Succeeded" or (phase == "Running" and not waiting):
        return None
    why = "; ".join(waiting) or str(status.get("message") or status.get("reason") or "")
    return PodSeen(f"{meta.get('namespace')}/{meta.get('name')}", phase, why[:300])


def _waiting(container: Json) -> str:
    state = container.get("state") or {}
    found = state.get("waiting") or (state.get("terminated") if not container.get("ready") else None) or {}
    if not found or found.get("reason") == "Completed":
        return ""
    return f"{container.get('name')}: {found.get('reason') or ''} {found.get('message') or ''}".strip()


def requests_of(found: t.Iterable[csr.Request], token_id: str, node: str, since: datetime | None) -> tuple[Request, ...]:
    """The requests made with this token, and those for this node name that are not older than ``since``."""
    return tuple(
        Request(one.name, one.username, one.state, one.message, one.node, one.created)
        for one in found
        if (token_id and one.token_id == token_id) or (one.node == node and (since is None or one.created >= since))
    )


def token_exists(kube: Kube, token_id: str) -> bool:
    """Whether the Secret of a bootstrap token is there, by a deletion that is not carried out: to read it would be to know the token."""
    return kube.delete(f"{bootstrap_tokens.PATH}/bootstrap-token-{token_id}", dry_run=True)
