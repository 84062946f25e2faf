# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace that holds our records."""

from __future__ import annotations

from ..core.errors import Conflict, Forbidden, InvalidInput
from ..model.labels import MANAGED_BY_LABEL
from ..model.names import CLUSTER_ID
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


# ---- the cluster id that is part of every name (L-1)


def cluster_id(kube: Kube | None, option: str | None = None) -> str:
    """The option if it is set (8 lower-case hex digits), else the first 8 of the UID of namespace kube-system."""
    if option:
        if not CLUSTER_ID.fullmatch(option):
            raise InvalidInput(f"cluster_id {option!r} is not 8 lower-case hexadecimal digits.", remedy="For example a1b2c3d4.")
        return option
    if kube is None:
        raise InvalidInput("Without a cluster to ask, cluster_id must be set.", remedy="Set it to 8 lower-case hex digits.")
    return kube.cluster_id()
