# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PodGroups of the coscheduling plugin (scheduling.x-k8s.io): the definition of the kind, and a group as people write it. The emulated
scheduler does not know them: it places each pod alone."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

MANIFEST = pathlib.Path(__file__).parent / "pod_groups.yml"
ALL = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
LABEL = "scheduling.x-k8s.io/pod-group"

Json = dict[str, t.Any]


def manifest() -> Json:
    """The definition of the kind."""
    return t.cast(Json, yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))


def path(namespace: str, name: str = "") -> str:
    """Of the groups of a namespace, or of one of them."""
    return f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups{f'/{name}' if name else ''}"


def group(name: str, least: int) -> Json:
    """A group of which so many pods have to run at once."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least},
    }
