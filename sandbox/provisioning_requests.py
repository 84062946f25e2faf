# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ProvisioningRequests (autoscaling.x-k8s.io) as Kueue makes them: the definition of the kind, a request with its pod template, and the pods
that come once it is provisioned."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

MANIFEST = pathlib.Path(__file__).parent / "provisioning_requests.yml"
GROUP = "/apis/autoscaling.x-k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"

Json = dict[str, t.Any]


def manifest() -> Json:
    """The definition of the kind."""
    return t.cast(Json, yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))


def path(namespace: str, name: str = "") -> str:
    """Of the requests of a namespace, or of one of them."""
    return f"{GROUP}/namespaces/{namespace}/provisioningrequests{f'/{name}' if name else ''}"


def template(name: str, spec: Json) -> Json:
    """The PodTemplate that a pod set names."""
    return {"metadata": {"name": name}, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}


def request(name: str, count: int, provisioning_class: str) -> Json:
    """A request for so many pods of the template of its name."""
    sets = [{"podTemplateRef": {"name": name}, "count": count}]
    body = {"podSets": sets, "provisioningClassName": provisioning_class, "parameters": {}}
    return {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": {"name": name}, "spec": body}


def pods(name: str, count: int, spec: Json) -> list[Json]:
    """The pods of the job that Kueue admits then."""
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}]
    meta = {"annotations": {CONSUMES: name}, "labels": {"app": name}, "ownerReferences": owners}
    return [{"metadata": {**meta, "name": f"{name}-{number}"}, "spec": spec} for number in range(count)]


def conditions(found: Json) -> dict[str, tuple[str, str, str]]:
    """Of a request: type to status, reason and message."""
    listed = (found.get("status") or {}).get("conditions") or []
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in listed}
