# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CapacityBuffers (autoscaling.x-k8s.io): the definition of the kind, and objects as people write them."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

MANIFEST = pathlib.Path(__file__).parent / "capacity_buffers.yml"
GROUP = "/apis/autoscaling.x-k8s.io/v1beta1"

Json = dict[str, t.Any]


def manifest() -> Json:
    """The definition of the kind."""
    return t.cast(Json, yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))


def path(namespace: str, name: str = "") -> str:
    """Of the buffers of a namespace, or of one of them."""
    return f"{GROUP}/namespaces/{namespace}/capacitybuffers{f'/{name}' if name else ''}"


def buffer(name: str, **spec: t.Any) -> Json:
    """A buffer of pods of the PodTemplate of its name, unless ``spec`` names something else."""
    body = spec if "scalableRef" in spec else {"podTemplateRef": {"name": name}, **spec}
    return {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": name}, "spec": body}
