# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks, through the API server, whether a port of a node is served. The control plane has a way to its nodes where we may have none."""

from __future__ import annotations

from ...core.errors import ApiError
from ...kube.client import Kube
from ...kube.nodes import path_of

TALOS_API = 50000
KUBELET = 10250
_NO_WAY = (500, 502, 503, 504)  # with which the API server says that it did not get through; no reason to ask again


def refused(kube: Kube, node: str, port: int = TALOS_API) -> str:
    """What the API server says when the node's own system refuses the connection, that is, when nothing listens there. Empty when
    something does, and whenever that cannot be told: no way, no right (get on nodes/proxy), another server in between. Where the
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
