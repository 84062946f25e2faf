# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace that holds our records."""

from __future__ import annotations

from ..core.errors import Conflict, Forbidden
from ..model.labels import MANAGED_BY_LABEL
from .client import Kube

NAMESPACE = "tgp-system"


def ensure_namespace(kube: Kube, name: str = NAMESPACE) -> bool:
    """Make sure the namespace exists; returns whether it was created now."""
    path = f"/api/v1/namespaces/{name}"
    try:
        if kube.find(path) is not None:
            return False
    except Forbidden:
        pass  # somebody who may only work inside it cannot read it; creating it tells
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: "tgp.gpu"}},
    }
    try:
        kube.create("/api/v1/namespaces", body)
    except Conflict:
        return False
    return True
