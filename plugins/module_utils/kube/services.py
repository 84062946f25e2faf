# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of machines, and the lists of endpoints: written when they differ, and only ours are touched."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ..core.errors import Conflict, InvalidInput, LostAnswer, NotFound, ServerError
from ..model import Published
from ..model.labels import (
    CLAIM_LABEL,
    CLUSTER_LABEL,
    MANAGED_BY_LABEL,
    TAILSCALE_EXPOSE_ANNOTATION,
    TAILSCALE_HOSTNAME_ANNOTATION,
    TAILSCALE_PROXY_CLASS_ANNOTATION,
    TAILSCALE_TAGS_ANNOTATION,
)
from .client import Json, Kube

MANAGED = {MANAGED_BY_LABEL: "tgp.gpu"}
_TRIES = 6  # of a read-modify-write that conflicts


def path_of(namespace: str, kind: str, name: str = "") -> str:
    """The API path of ``services`` or ``configmaps`` of a namespace, or of one of them."""
    return f"/api/v1/namespaces/{namespace}/{kind}{f'/{name}' if name else ''}"


def apply_service(kube: Kube, body: Json) -> bool:
    """Make the Service as ``body`` says; what others added to it stays. True when something was written.

    Conflict when a Service of that name exists that is not ours.
    """
    meta = body["metadata"]
    path = path_of(meta["namespace"], "services", meta["name"])
    raw = kube.find(path)
    if raw is None:
        try:
            kube.create(path_of(meta["namespace"], "services"), body)
        except (Conflict, LostAnswer, ServerError):
            if kube.find(path) is None:
                raise
            return apply_service(kube, body)  # it came to be: the answer was lost, or another client was faster
        return True
    if _claim_of(raw) != meta["labels"][CLAIM_LABEL]:
        raise Conflict(
            f"A Service {meta['namespace']}/{meta['name']} exists and is not ours.",
            remedy="Remove or rename it.",
            service="kubernetes",
        )
    patch = _difference(raw, body)
    if patch:
        kube.patch(path, patch)
    return bool(patch)


def _claim_of(raw: Json) -> str:
    return str(((raw.get("metadata") or {}).get("labels") or {}).get(CLAIM_LABEL) or "")


def _difference(existing: Json, body: Json) -> Json:
    """A merge patch of our own fields that differ. ``externalName`` is not among them: the operator writes it."""
    patch: Json = {}
    for key in ("labels", "annotations"):
        there = existing["metadata"].get(key) or {}
        changed = {name: value for name, value in body["metadata"][key].items() if there.get(name) != value}
        if changed:
            patch.setdefault("metadata", {})[key] = changed
    spec, wanted = existing.get("spec") or {}, body["spec"]
    if spec.get("type") != wanted["type"]:
        patch["spec"] = {"type": wanted["type"]}
    ports = [{name: port.get(name) for name in ("name", "port", "protocol")} for port in spec.get("ports") or []]
    if ports != wanted["ports"]:
        patch["spec"] = {**patch.get("spec", {}), "ports": wanted["ports"]}
    return patch


def services_of(kube: Kube, namespace: str, cluster_id: str) -> list[Published]:
    """All Services of ours in a namespace."""
    services, _version = kube.collect(
        path_of(namespace, "services"), _published, {"labelSelector": f"{CLAIM_LABEL},{CLUSTER_LABEL}={cluster_id}"}
    )
    return services


def _published(raw: Json) -> Published:
    meta = raw["metadata"]
    return Published(str(meta.get("namespace") or ""), str(meta.get("name") or ""), str(meta.get("uid") or ""))


def remove_service(kube: Kube, namespace: str, name: str) -> bool:
    """Remove the Service of the machine ``name``; False when there is none of ours (any more)."""
    path = path_of(namespace, "services", name)
    raw = kube.find(path)
    if raw is None or _claim_of(raw) != name:
        return False
    try:
        return kube.delete(path, uid=raw["metadata"]["uid"])
    except Conflict:
        return False  # another object has taken the name


def change_list(kube: Kube, namespace: str, name: str, key: str, change: t.Callable[[str | None], str], empty: str) -> bool:
    """Change one key of a ConfigMap of ours: ``change`` gets its text (None: nothing there) and gives the new one. Written only when it
    differs; removed when the new text is ``empty``. True when something was written."""
    path = path_of(namespace, "configmaps", name)
    for _attempt in range(_TRIES):
        raw = kube.find(path)
        before = None if raw is None else (raw.get("data") or {}).get(key)
        after = change(before)
        if after == before or (raw is None and after == empty):
            return False
        try:
            if raw is None:
                meta = {"name": name, "namespace": namespace, "labels": MANAGED}
                kube.create(
                    path_of(namespace, "configmaps"),
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: after}},
                )
            elif after == empty:
                kube.delete(path, uid=raw["metadata"]["uid"], resource_version=raw["metadata"]["resourceVersion"])
            else:
                version = raw["metadata"]["resourceVersion"]
                kube.patch(path, {"metadata": {"resourceVersion": version}, "data": {key: after}})
            return True
        except (Conflict, NotFound, LostAnswer, ServerError) as error:
            if isinstance(error, NotFound) and raw is None:
                raise  # the namespace itself is missing
            last = error  # look again: it was changed meanwhile, or the write had its effect
    raise last


# ---- lets the Tailscale operator bring a Service into the tailnet: by annotations, of which only ours are touched

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_EXPOSING = (
    TAILSCALE_EXPOSE_ANNOTATION,
    TAILSCALE_HOSTNAME_ANNOTATION,
    TAILSCALE_TAGS_ANNOTATION,
    TAILSCALE_PROXY_CLASS_ANNOTATION,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Exposed:
    """``before`` and ``after``: our annotations of the Service; ``ports`` those at which it is reached in the tailnet."""

    before: dict[str, str]
    after: dict[str, str]
    ports: tuple[int, ...]

    @property
    def changed(self) -> bool:
        return self.before != self.after


def for_operator(hostname: str, tags: t.Sequence[str], proxy_class: str = "") -> dict[str, str]:
    """What the operator reads. InvalidInput for a hostname that the tailnet would rewrite."""
    if not _LABEL.fullmatch(hostname):
        raise InvalidInput(
            f"{hostname!r} cannot be the name of a machine in the tailnet.",
            remedy="Write one label of letters a to z, digits and hyphens, at most 63 characters, without the tailnet's domain.",
            field="hostname",
        )
    return {
        TAILSCALE_EXPOSE_ANNOTATION: "true",
        TAILSCALE_HOSTNAME_ANNOTATION: hostname,
        **({TAILSCALE_TAGS_ANNOTATION: ",".join(tags)} if tags else {}),
        **({TAILSCALE_PROXY_CLASS_ANNOTATION: proxy_class} if proxy_class else {}),
    }


def expose(kube: Kube, namespace: str, name: str, wanted: t.Mapping[str, str], *, dry: bool) -> Exposed:
    """Give the Service exactly ``wanted`` of our four annotations ({} takes them away); all others stay.

    Raises InvalidInput when there is no such Service.
    """
    path = path_of(namespace, "services", name)
    try:
        raw = kube.get(path)
    except NotFound as error:
        raise InvalidInput(
            f"There is no Service {namespace}/{name}.",
            remedy="The API server's own is default/kubernetes; see kubectl get service -A.",
        ) from error
    there: Json = raw["metadata"].get("annotations") or {}
    before = {key: str(there[key]) for key in _EXPOSING if key in there}
    ports = tuple(int(port["port"]) for port in (raw.get("spec") or {}).get("ports") or ())
    result = Exposed(before, dict(wanted), ports)
    if result.changed and not dry:
        change: dict[str, str | None] = {**dict.fromkeys(before), **wanted}
        kube.patch(path, {"metadata": {"annotations": change}})
    return result
