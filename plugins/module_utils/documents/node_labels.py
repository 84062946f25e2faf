# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels, annotations and taints of a pool, checked before anything is rented: what the API server refuses, it refuses on a machine that
costs already, and a node without them is never complete."""

from __future__ import annotations

import typing as t

from ..model.labels import (
    CLUSTER_LABEL,
    DISRUPTED_TAINT,
    GPU_LOST_TAINT,
    INITIALIZING_TAINT,
    INSTANCE_ID_LABEL,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    PROVIDER_LABEL,
    PROVISIONED_LABEL,
)
from ..talos.validation.labels import key_problem, value_problem
from .reading import Reader

_OURS = "is set by the collection itself. Remove it."
_LABELS = frozenset(  # by which we find what is ours
    (NODEPOOL_LABEL, NODECLASS_LABEL, PROVIDER_LABEL, PROVISIONED_LABEL, CLUSTER_LABEL, INSTANCE_ID_LABEL)
)
_TAINTS = frozenset((INITIALIZING_TAINT, DISRUPTED_TAINT, GPU_LOST_TAINT))  # by which we say how a node is
Spec = t.Mapping[str, t.Any]


def check_marks(template: Spec, reader: Reader) -> None:
    """A fault for each mark under ``spec.template`` that no node could carry, or that would speak for us."""
    meta: Spec = template.get("metadata", {})
    inner: Spec = template.get("spec", {})
    for key, value in meta.get("labels", {}).items():
        if problem := key_problem(key) or value_problem(value) or (f"{key} {_OURS}" if key in _LABELS else ""):
            reader.fault("spec.template.metadata.labels", problem)
    for key in meta.get("annotations", {}):
        if problem := key_problem(key):
            reader.fault("spec.template.metadata.annotations", problem.replace("no label key", "no key of an annotation"))
    stays: set[str] = set()
    for field in ("taints", "startupTaints"):
        known: set[tuple[str, str]] = set()
        for place, taint in enumerate(inner.get(field, ())):
            key, path = taint["key"], f"spec.template.spec.{field}[{place}]"
            problem = key_problem(key).replace("no label key", "no key of a taint") or value_problem(taint.get("value", ""))
            if not problem and key in _TAINTS:
                problem = f"{key} {_OURS}"
            elif (key, taint["effect"]) in known:
                problem = f"there are two taints {key} with effect {taint['effect']}. Keep one."
            elif key in stays:
                problem = f"{key} is among taints, too, which stay: the node would never be complete. Keep one of the two."
            if problem:
                reader.fault(path, problem)
            known.add((key, taint["effect"]))
        stays = {key for key, _effect in known}
