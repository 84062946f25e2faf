# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod's persistent volume claims demand of a node, in the scheduler's words."""

from __future__ import annotations

import typing as t

from .selectors import term_selects

Json = dict[str, t.Any]
_BETA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_PLACES = (*_BETA, *_BETA.values())


class Volumes:
    """Claims, volumes and classes, by their names; claims by namespace and name."""

    def __init__(
        self, claims: t.Iterable[Json], volumes: t.Iterable[Json], classes: t.Iterable[Json], pods: t.Iterable[Json]
    ) -> None:
        self._claims = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in claims}
        self._volumes = {one["metadata"]["name"]: one for one in volumes}
        self._classes = {one["metadata"]["name"]: one for one in classes}
        self._users: dict[tuple[str, str], set[str]] = {}
        for pod in pods:
            for name in _names(pod):
                self._users.setdefault((pod["metadata"]["namespace"], name), set()).add(pod["metadata"]["uid"])

    def obstacle(self, pod: Json, node: Json) -> str | None:
        """Why the pod's claims keep it off the node."""
        labels = node["metadata"].get("labels") or {}
        space = pod["metadata"]["namespace"]
        for name in _names(pod):
            claim = self._claims.get((space, name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if "deletionTimestamp" in claim["metadata"]:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or []) and self._users.get((space, name), set()) - {
                pod["metadata"].get("uid")
            }:
                return "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            reason = self._bound(claim, node, labels) if claim["spec"].get("volumeName") else self._unbound(claim, node, labels)
            if reason is not None:
                return reason
        return None

    def _bound(self, claim: Json, node: Json, labels: Json) -> str | None:
        volume = self._volumes.get(claim["spec"]["volumeName"])
        if volume is None:
            return "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        if required is not None and not any(term_selects(term, node, labels) for term in required["nodeSelectorTerms"]):
            return "node(s) didn't match PersistentVolume's node affinity"
        marks = volume["metadata"].get("labels") or {}
        if any(key in labels for key in _PLACES):
            for key in _PLACES:
                if key in marks and labels.get(key, labels.get(_BETA.get(key, key))) not in marks[key].split("__"):
                    return "node(s) had no available volume zone"
        return None

    def _unbound(self, claim: Json, node: Json, labels: Json) -> str | None:
        storage = self._classes.get(claim["spec"].get("storageClassName") or "")
        if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return "pod has unbound immediate PersistentVolumeClaims"
        chosen = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
        if chosen and chosen != node["metadata"]["name"]:
            return "node(s) didn't match PersistentVolume's node affinity"
        if storage.get("provisioner") == "kubernetes.io/no-provisioner":
            return "node(s) didn't find available persistent volumes to bind"
        allowed = storage.get("allowedTopologies") or []
        if allowed and not any(
            all(labels.get(one["key"]) in one["values"] for one in term.get("matchLabelExpressions") or []) for term in allowed
        ):
            return "node(s) didn't find available persistent volumes to bind"
        return None


def _names(pod: Json) -> list[str]:
    volumes = pod["spec"].get("volumes") or []
    named = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("persistentVolumeClaim")]
    return [*named, *(f"{pod['metadata']['name']}-{volume['name']}" for volume in volumes if "ephemeral" in volume)]
