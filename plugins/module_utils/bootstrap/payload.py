# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one machine is handed at boot: rendered, checked, and packed for the lane it takes."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.errors import InvalidInput
from ..model import Capability, Carrier, Lane
from ..talos.config import build
from ..talos.documents import Document, at, machine_document, to_yaml
from ..talos.spec import NodeSpec
from ..talos.validation.validate import check
from .kubelet.cloud_config import boot, cloud_init
from .start_script import start_script
from .unsupported_fields import left_out
from .user_data import pack


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
    found = check(
        documents, mode=boot_mode(documents), talos_version=spec.talos_version, kubernetes_version=spec.kubernetes_version
    )
    if found.errors:
        raise InvalidInput(f"The configuration of node {spec.name} would not boot.", problems=found.errors, node=spec.name)
    return documents, found.warnings


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
            packed = pack(start_script(boot(spec, documents)), capability, spec.name)
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
