# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks, through the API server, whether a port of a node is served. The control plane has a way to its nodes where we may have none."""

from __future__ import annotations

from ..errors import ApiError
from .kube import Kube
from .nodes import path_of

TALOS_API = 50000
_NO_WAY = (500, 502, 503, 504)  # with which the API server says that it did not get through; no reason to ask again


def refused(kube: Kube, node: str, port: int = TALOS_API) -> str:
    """What the API server says when the node's own system refuses the connection, that is, when nothing listens there. Empty when
    something does, and whenever that cannot be told: no way, no right (get on nodes/proxy), another server in between."""
    path = path_of(node).replace("/nodes/", "/nodes/https:")
    try:
        answer = kube.call("GET", f"{path}:{port}/proxy/", ok=_NO_WAY)
    except ApiError:
        return ""
    if answer.status not in _NO_WAY or "connection refused" not in answer.text:
        return ""
    return f"port {port} of the node refuses connections (asked by the control plane): nothing listens there"
