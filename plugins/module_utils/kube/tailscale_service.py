# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the Tailscale operator bring a Service into the tailnet: by annotations, of which only ours are touched."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ..core.errors import InvalidInput, NotFound
from ..model.labels import TAILSCALE_EXPOSE_ANNOTATION, TAILSCALE_HOSTNAME_ANNOTATION, TAILSCALE_TAGS_ANNOTATION
from .client import Json, Kube
from .services import path_of

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True)
class Exposed:
    """``before`` and ``after``: our annotations of the Service; ``ports`` those at which it is reached in the tailnet."""

    before: dict[str, str]
    after: dict[str, str]
    ports: tuple[int, ...]

    @property
    def changed(self) -> bool:
        return self.before != self.after


def for_operator(hostname: str, tags: t.Sequence[str]) -> dict[str, str]:
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
    }


def expose(kube: Kube, namespace: str, name: str, wanted: t.Mapping[str, str], *, dry: bool) -> Exposed:
    """Give the Service exactly ``wanted`` of our three annotations ({} takes them away); all others stay.

    Raises InvalidInput when there is no such Service.
    """
    path = path_of(namespace, "services", name)
    try:
        found = kube.get(path)
    except NotFound as error:
        raise InvalidInput(
            f"There is no Service {namespace}/{name}.",
            remedy="The API server's own is default/kubernetes; see kubectl get service -A.",
        ) from error
    there: Json = found["metadata"].get("annotations") or {}
    before = {
        key: str(there[key])
        for key in (TAILSCALE_EXPOSE_ANNOTATION, TAILSCALE_HOSTNAME_ANNOTATION, TAILSCALE_TAGS_ANNOTATION)
        if key in there
    }
    ports = tuple(int(one["port"]) for one in (found.get("spec") or {}).get("ports") or ())
    result = Exposed(before, dict(wanted), ports)
    if result.changed and not dry:
        change: dict[str, str | None] = {**dict.fromkeys(before), **wanted}
        kube.patch(path, {"metadata": {"annotations": change}})
    return result
