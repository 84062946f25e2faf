# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes that are still attached to a node."""

from __future__ import annotations

from .client import Json, Kube

_PATH = "/apis/storage.k8s.io/v1/volumeattachments"


def attached_volumes(kube: Kube, node: str) -> list[str]:
    """Names of the persistent volumes (or of the attachment, where it names none) attached to ``node``, sorted."""

    def reduce(item: Json) -> str | None:
        spec = item.get("spec") or {}
        if spec.get("nodeName") != node or (item.get("status") or {}).get("attached") is False:
            return None
        return str((spec.get("source") or {}).get("persistentVolumeName") or item["metadata"]["name"])

    return sorted(kube.collect(_PATH, reduce)[0])
