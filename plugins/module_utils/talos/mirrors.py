# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mirrors of container registries, in the form that the node's Talos reads."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ..core.errors import InvalidInput
from .documents import Document, at, of_kind
from .spec import NodeSpec
from .versions import minor

_HOST = re.compile(r"\*|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")


def mirrors(spec: NodeSpec, config: Document, documents: list[Document]) -> None:
    """Put the node's ``registry_mirrors`` into its configuration. What the template says of the same registry is replaced.

    From Talos 1.12 on a document for each registry; before, and where the template has the old form, a field (never both).
    """
    if not spec.registry_mirrors:
        return
    problems = mirror_problems(spec.registry_mirrors)
    if problems:
        raise InvalidInput("The registry mirrors cannot be used.", problems=problems, node=spec.name)
    old = (minor(spec.talos_version) or (1, 12)) < (1, 12) or bool(at(config, "machine.registries"))
    for registry, urls in spec.registry_mirrors.items():
        if old:
            machine = config["machine"]
            registries = machine.setdefault("registries", {})
            registries.setdefault("mirrors", {})[registry] = {"endpoints": list(urls)}
            continue
        document = of_kind(documents, "RegistryMirrorConfig", registry)
        if document is None:
            document = {"apiVersion": "v1alpha1", "kind": "RegistryMirrorConfig", "name": registry}
            documents.append(document)
        document["endpoints"] = [{"url": url} for url in urls]


def mirror_problems(given: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """What is wrong with registry → URLs, one sentence each. No URL with a password is repeated."""
    found = []
    for registry, urls in given.items():
        where = f"registryMirrors.{registry}"
        if not _HOST.fullmatch(registry):
            found.append(f"{where}: write the registry as images name it (docker.io, ghcr.io, registry.example.org:5000), or *.")
        if not urls:
            found.append(f"{where}: no mirror is listed.")
        for url in urls:
            parts = urlsplit(url)
            if parts.password or parts.username:
                found.append(f"{where}: a password does not belong into an address; write a RegistryAuthConfig document.")
            elif parts.scheme not in ("http", "https") or not parts.netloc:
                found.append(f"{where}: {url!r} is no address; write https://host.")
    return found
