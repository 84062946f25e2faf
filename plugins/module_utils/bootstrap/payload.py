# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one machine is handed at boot: rendered, checked, and packed for the lane it takes."""

from __future__ import annotations

import base64
import dataclasses
import posixpath
import re
import shlex
import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Carrier, Lane
from ..talos.config import build
from ..talos.spec import NodeSpec
from ..talos.template import Document, at, fields_at, items_at, machine_document, to_yaml
from ..talos.validation.validate import check
from .kubelet import guard
from .kubelet.cloud_config import PROGRAM, UNIT, Boot, boot, cloud_init, mesh_environment
from .user_data import fits, pack


@dataclasses.dataclass(frozen=True, slots=True)
class Payload:
    """``text`` and ``environment`` are secrets. ``carrier`` says what reads the text: "machine-config" (Talos), "cloud-config" (cloud-init)
    or "script" (bash); ``environment`` are variables without which that script is nothing (Carrier.ENVIRONMENT)."""

    text: str = dataclasses.field(repr=False)
    carrier: str
    warnings: tuple[str, ...] = ()
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


def documents_for(spec: NodeSpec, template: str | None) -> tuple[list[Document], tuple[str, ...]]:
    """The checked worker configuration of one node and the warnings about it. InvalidInput lists every error."""
    documents = build(spec, template)
    result = check(
        documents, mode=boot_mode(documents), talos_version=spec.talos_version, kubernetes_version=spec.kubernetes_version
    )
    if result.errors:
        raise InvalidInput(f"The configuration of node {spec.name} would not boot.", problems=result.errors, node=spec.name)
    return documents, result.warnings


def boot_mode(documents: t.Sequence[Document]) -> str:
    """How Talos will be booted: "metal" when the configuration says where to install it, else "cloud" (a disk image)."""
    install = at(machine_document(documents), "machine.install")
    return "metal" if isinstance(install, dict) and (install.get("disk") or install.get("diskSelector")) else "cloud"


def payload(spec: NodeSpec, template: str | None = None, *, capability: Capability | None = None) -> Payload:
    """What the machine of ``spec`` is handed, by its lane. ``capability`` is that of its cloud: its carrier is used, its size limit kept.
    Without one it is a cloud-config, or the Talos configuration.

    Raises InvalidInput when the configuration is wrong, the lane has no payload, or the cloud cannot carry it.
    """
    documents, warnings = documents_for(spec, template)
    if spec.lane is Lane.TALOS:
        made = Payload(to_yaml(documents), "machine-config", warnings)
    elif spec.lane is Lane.KUBELET:
        warnings = (*warnings, *left_out(documents, spec.tunnel.interface if spec.tunnel else ""))
        if capability is not None and capability.carrier is not Carrier.USER_DATA:
            packed = pack(_script(boot(spec, documents), capability), capability, spec.name)
            return Payload(packed.user_data, "script", warnings, packed.environment)
        made = Payload(cloud_init(boot(spec, documents)), "cloud-config", warnings)
    else:
        raise InvalidInput(
            f"Lane {spec.lane.value} is not served yet, so node {spec.name} cannot be configured for it.",
            remedy="Accept lane kubelet or talos in the pool; role takeover (experimental) is for machines that run already.",
        )
    if capability is not None:
        if capability.carrier is not Carrier.USER_DATA:
            raise InvalidInput(
                f"{capability.cloud} runs scripts: it cannot hand node {spec.name} a machine configuration of Talos."
            )
        pack(made.text, capability, spec.name)  # it is to fit
    return made


# ---- what of a Talos configuration does not apply to the Ubuntu machine of lane ``kubelet``

_TALOS_ONLY = (
    "machine.registries", "machine.env", "machine.time", "machine.udev", "machine.logging", "machine.pods", "machine.disks",
    "machine.sysfs", "machine.nodeAnnotations", "machine.seccompProfiles", "machine.baseRuntimeSpecOverrides",
    "machine.systemDiskEncryption", "machine.kubelet.credentialProviderConfig", "cluster.acceptedCAs",
)  # fmt: skip
_MESH_HEARD = {"TS_AUTHKEY", "TS_HOSTNAME", "TS_AUTH_ONCE", "TS_ACCEPT_DNS", "TS_EXTRA_ARGS", "TS_ROUTES"}


def left_out(documents: t.Sequence[Document], interface: str = "") -> list[str]:
    """What of the configuration does not apply to an Ubuntu machine; one sentence each. ``interface`` is that of its WireGuard tunnel."""
    config = machine_document(documents)
    warnings = [
        f"{path} is not carried over to the Ubuntu machine of lane kubelet." for path in _unheard(documents, config, interface)
    ]
    for file in at(config, "machine.files") or ():
        if str(file.get("path")).startswith(("/etc/cri/", "/etc/kubernetes/manifests/")):
            warnings.append(f"machine.files: nothing on the Ubuntu machine of lane kubelet reads {file['path']}.")
    if at(config, "machine.network.kubespan.enabled"):
        warnings.append("KubeSpan is part of Talos: the Ubuntu machine of lane kubelet cannot be in it.")
    for mount in at(config, "machine.kubelet.extraMounts") or ():
        if mount.get("source") != mount.get("destination"):
            warnings.append(
                f"machine.kubelet.extraMounts: {mount.get('source')} is not mounted at {mount.get('destination')} in lane kubelet; "
                "the kubelet there sees the machine's own folders."
            )
    for document in documents:
        if document.get("kind") == "WireguardConfig" and document.get("name") == interface:
            continue
        if document.get("kind") not in (None, "HostnameConfig", "ExtensionServiceConfig"):
            warnings.append(f"The document {document['kind']} is not carried over to the Ubuntu machine of lane kubelet.")
        elif document.get("kind") == "ExtensionServiceConfig" and document.get("name") != "tailscale":
            warnings.append(f"The extension service {document.get('name')} does not exist on the Ubuntu machine of lane kubelet.")
    return warnings


def _unheard(documents: t.Sequence[Document], config: Document | None, interface: str) -> t.Iterator[str]:
    """Fields that only Talos acts upon."""
    for path in _TALOS_ONLY:
        if at(config, path):
            yield path
    for name in fields_at(config, "machine.network"):
        if name not in ("hostname", "kubespan", "interfaces"):
            yield f"machine.network.{name}"
    for entry in items_at(config, "machine.network.interfaces"):
        device = entry.get("interface") if isinstance(entry, dict) else entry
        if device != interface:
            yield f"machine.network.interfaces {device or '(by deviceSelector)'}"
    for module in items_at(config, "machine.kernel.modules"):
        if module.get("parameters"):
            yield f"machine.kernel.modules: parameters of {module.get('name')}"
    for name in sorted(mesh_environment(documents).keys() - _MESH_HEARD):
        yield f"ExtensionServiceConfig tailscale: {name}"


# ---- the first boot of lane ``kubelet`` as a shell script, for clouds that run a script where others read a cloud-config

_HEAD = f"""\
#!/bin/bash
# Makes this machine a Kubernetes worker. Written by the Ansible collection tgp.gpu.
set -eu
umask 077
# the unit is written last: when it is there, a boot before this one has done the rest
[[ ! -e {UNIT} ]] || exec systemctl enable --now --no-block {posixpath.basename(UNIT)}
"""
_END = "TGP"
_COMMENT = re.compile(r"^[ ]*# .*\n", re.MULTILINE)


def start_script(made: Boot) -> str:
    """The text; it may be run at every boot. Files are never readable by others, not even for a moment, unless they shall be."""
    folders = dict.fromkeys(posixpath.dirname(file["path"]) for file in made.files)
    parts = [_HEAD, f"(umask 022 && mkdir -p {shlex.join(folders)})\n"]
    parts += [_written(file) for file in made.files]
    parts += [_run(command) for command in made.commands]
    return "".join(parts)


def _script(made: Boot, capability: Capability) -> str:
    """The start script for a cloud; without the comments of our own programs where it is too long with them."""
    whole = start_script(made)
    return whole if fits(whole, capability) else start_script(_without_comments(made))


def _without_comments(made: Boot) -> Boot:
    """Files of users stay as they are: there a number sign may mean something else."""
    own = (PROGRAM, guard.PROGRAM)
    files = tuple({**file, "content": _COMMENT.sub("", file["content"])} if file["path"] in own else file for file in made.files)
    return dataclasses.replace(made, files=files)


def _run(command: tuple[str, ...]) -> str:
    """As cloud-init runs it: folders above one that is made are for everybody to pass, the mode is for the last alone."""
    if command[0] == "mkdir":
        return f"# shellcheck disable=SC2174\n(umask 022 && {shlex.join(command)})\n"
    return f"{shlex.join(command)}\n"


def _written(file: Document) -> str:
    """A here-document: as it is, or in base64 where a here-document would change it (it ends with a line end and holds no NUL)."""
    path, content = shlex.quote(file["path"]), str(file["content"])
    lines = content.split("\n")
    plain = lines[-1] == "" and len(lines) > 1 and "\0" not in content and _END not in lines
    body = content if plain else base64.b64encode(content.encode()).decode() + "\n"
    target = f">{'>' if file.get('append') else ''}{path}"
    return f"{'cat' if plain else 'base64 -d'} {target} <<'{_END}'\n{body}{_END}\nchmod {file['permissions']} {path}\n"
