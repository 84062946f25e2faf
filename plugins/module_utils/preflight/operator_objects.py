# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the Tailscale operator that serve machines: a Connector that routes a network into the tailnet, a ProxyClass for its proxies.

The operator's definitions (``tailscale.com/v1alpha1``, both cluster-scoped) decide whether a spec is valid.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ..core.errors import Conflict, InvalidInput, NotFound, ServerError
from ..core.task import Task
from ..kube.client import Json, Kube
from ..kube.server_side_apply import apply_for, with_hash
from ..mesh.base import check_tags
from ..model.labels import MANAGED_BY_LABEL

API_VERSION = "tailscale.com/v1alpha1"
PLURALS = {"Connector": "connectors", "ProxyClass": "proxyclasses"}
_OURS = "tgp.gpu"
_UNDECLARED = re.compile(r"\.(spec[\w.\[\]]*): field not declared in schema")


def operator_object(kind: str, name: str, spec: t.Mapping[str, t.Any]) -> Json:
    """The object to apply. InvalidInput for tags that are none, and for routes that the tailnet cannot have."""
    if kind == "Connector":
        check_tags([str(tag) for tag in spec.get("tags") or ()])
        for part in ("subnetRouter", "appConnector"):
            settings = spec.get(part)
            for key in ("advertiseRoutes", "routes"):
                for route in (settings.get(key) or ()) if isinstance(settings, dict) else ():
                    _check_route(name, f"spec.{part}.{key}", str(route))
    body = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: _OURS}},
        "spec": dict(spec),
    }
    return with_hash(body)


def _check_route(name: str, field: str, route: str) -> None:
    try:
        ipaddress.ip_network(route)
    except ValueError as error:
        raise InvalidInput(
            f"Connector {name}: {route!r} is not a network: {error}.",
            remedy="Write a network as 10.96.0.0/12, with no bits beyond its prefix.",
            field=field,
        ) from error


def apply_operator_object(task: Task, kube: Kube, body: Json) -> Json:
    """``changed``, ``objects`` and ``diff`` of a module's result. NotFound when the operator's definitions are missing, Conflict for an object
    of another owner, unless ``force``. In check mode missing definitions are a warning: the operator may come with the same run."""
    kind, name = body["kind"], body["metadata"]["name"]
    path = _path(kind, name)
    if not _is_served(kube, kind):
        if not task.check_mode:
            raise _no_operator(kube, kind)
        task.warn(f"The API server does not serve {kind} yet, so its spec is not checked.")
        return {"changed": True, "objects": [{"kind": kind, "namespace": "", "name": name, "result": "created"}]}
    present = kube.find(path)
    if present is not None and not _is_ours(present) and not task.params["force"]:
        raise _of_others(kind, name)
    try:
        return apply_for(task, kube, [body], what=f"{kind} {name}", otherwise="Change them where they are managed")
    except ServerError as error:  # the API server answers an apply with a field that no schema has with 500
        unknown = _UNDECLARED.search(error.message)
        if unknown is None:
            raise
        raise InvalidInput(
            f"{kind} {name}: the definition in the cluster has no field {unknown[1]}.",
            remedy=f"Correct the name (kubectl explain {kind.lower()}.spec), or upgrade the operator.",
            field=unknown[1],
        ) from error


def remove_operator_object(task: Task, kube: Kube, kind: str, name: str) -> bool:
    """Delete the object of ours; False when there is none. Conflict for an object of another owner, unless ``force``."""
    path = _path(kind, name)
    present = kube.find(path) if _is_served(kube, kind) else None
    if present is None:
        return False
    if not _is_ours(present) and not task.params["force"]:
        raise _of_others(kind, name)
    return task.check_mode or kube.delete(path, uid=present["metadata"]["uid"])


def _path(kind: str, name: str = "") -> str:
    return f"/apis/{API_VERSION}/{PLURALS[kind]}{f'/{name}' if name else ''}"


def _is_served(kube: Kube, kind: str) -> bool:
    try:
        served = kube.get(f"/apis/{API_VERSION}").get("resources") or []
    except NotFound:
        return False
    return any(one["kind"] == kind for one in served)


def _is_ours(raw: Json) -> bool:
    return (raw["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == _OURS


def _no_operator(kube: Kube, kind: str) -> NotFound:
    return NotFound(
        f"{kube.source}: the API server does not serve {kind} of {API_VERSION}. The Tailscale operator is not installed, or is too old.",
        remedy="Install it: ansible-playbook tgp.gpu.prereqs -e prereqs_install=true",
        service="kubernetes",
        status=404,
    )


def _of_others(kind: str, name: str) -> Conflict:
    return Conflict(
        f"{kind} {name} exists, and this collection did not create it.",
        remedy="Choose another name, or take it over with force=true.",
        service="kubernetes",
    )
