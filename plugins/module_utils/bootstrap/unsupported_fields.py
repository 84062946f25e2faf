# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Talos configuration says and the Ubuntu machine of lane ``kubelet`` is not told."""

from __future__ import annotations

import typing as t

from ..talos.documents import Document, at, fields_at, items_at, machine_document
from .kubelet.cloud_config import mesh_environment

_TALOS_ONLY = (
    "machine.registries", "machine.env", "machine.time", "machine.udev", "machine.logging", "machine.pods", "machine.disks",
    "machine.sysfs", "machine.nodeAnnotations", "machine.seccompProfiles", "machine.baseRuntimeSpecOverrides",
    "machine.systemDiskEncryption", "machine.kubelet.credentialProviderConfig", "cluster.acceptedCAs",
)  # fmt: skip
_MESH_HEARD = {"TS_AUTHKEY", "TS_HOSTNAME", "TS_AUTH_ONCE", "TS_ACCEPT_DNS", "TS_EXTRA_ARGS", "TS_ROUTES"}


def left_out(documents: t.Sequence[Document], interface: str = "") -> list[str]:
    """What the configuration says and an Ubuntu machine is not told; one sentence each. ``interface`` is that of its WireGuard tunnel."""
    config = machine_document(documents)
    found = [
        f"{path} is not carried over to the Ubuntu machine of lane kubelet." for path in _unheard(documents, config, interface)
    ]
    for file in at(config, "machine.files") or ():
        if str(file.get("path")).startswith(("/etc/cri/", "/etc/kubernetes/manifests/")):
            found.append(f"machine.files: nothing on the Ubuntu machine of lane kubelet reads {file['path']}.")
    if at(config, "machine.network.kubespan.enabled"):
        found.append("KubeSpan is part of Talos: the Ubuntu machine of lane kubelet cannot be in it.")
    for mount in at(config, "machine.kubelet.extraMounts") or ():
        if mount.get("source") != mount.get("destination"):
            found.append(
                f"machine.kubelet.extraMounts: {mount.get('source')} is not mounted at {mount.get('destination')} in lane kubelet; "
                "the kubelet there sees the machine's own folders."
            )
    for document in documents:
        if document.get("kind") == "WireguardConfig" and document.get("name") == interface:
            continue
        if document.get("kind") not in (None, "HostnameConfig", "ExtensionServiceConfig"):
            found.append(f"The document {document['kind']} is not carried over to the Ubuntu machine of lane kubelet.")
        elif document.get("kind") == "ExtensionServiceConfig" and document.get("name") != "tailscale":
            found.append(f"The extension service {document.get('name')} does not exist on the Ubuntu machine of lane kubelet.")
    return found


def _unheard(documents: t.Sequence[Document], config: Document | None, interface: str) -> t.Iterator[str]:
    """Fields that only Talos acts upon."""
    for path in _TALOS_ONLY:
        if at(config, path):
            yield path
    for name in fields_at(config, "machine.network"):
        if name not in ("hostname", "kubespan", "interfaces"):
            yield f"machine.network.{name}"
    for one in items_at(config, "machine.network.interfaces"):
        device = one.get("interface") if isinstance(one, dict) else one
        if device != interface:
            yield f"machine.network.interfaces {device or '(by deviceSelector)'}"
    for module in items_at(config, "machine.kernel.modules"):
        if module.get("parameters"):
            yield f"machine.kernel.modules: parameters of {module.get('name')}"
    for name in sorted(mesh_environment(documents).keys() - _MESH_HEARD):
        yield f"ExtensionServiceConfig tailscale: {name}"
