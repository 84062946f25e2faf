# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything one node's configuration is made from."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.redact import register
from ..model import Guard, Labels, Lane, MeshChoice, Taint
from ..model.mesh import Tunnel
from ..planner.offers import gpu_models
from ..planner.scheduling.capacity import EPHEMERAL, INITIALIZING
from .secrets import ClusterSecrets

# ---- versions as texts

DEFAULT_TALOS = "1.13.9"
DEFAULT_KUBERNETES = "1.36.3"


def plain(version: str) -> str:
    """Without the leading v."""
    return version.strip().removeprefix("v")


def tag_of(image: str) -> str:
    """The tag of an image reference, "" when it has none (a digest does not count)."""
    last = image.partition("@")[0].rsplit("/", 1)[-1]
    return last.partition(":")[2]


# ---- everything one node's configuration is made from


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node to be configured.

    ``name`` is instance, host, device and node name alike. ``pool`` is the pool's name without namespace. ``endpoint`` is the URL
    of the Kubernetes API (https://host:6443) as the node reaches it; "" takes the one of ``secrets``. ``bootstrap_token`` is this
    node's own ("id.secret"), ``auth_key`` its one-use mesh key, ``login_server`` the URL of a headscale, ``tunnel`` its end of a
    WireGuard tunnel where that is the mesh. ``taints`` stay,
    ``startup_taints`` are taken off when the node is initialised, ``ephemeral_taint`` adds tgp.io/ephemeral. ``installer_image``
    and ``install_disk`` serve machines that install Talos to a disk. ``gpu_count`` None = unknown. ``extensions`` are those of its image,
    None = unknown. ``registry_mirrors``: registry → URLs of its mirrors. ``patches``: texts of strategic merge patches, laid over the
    configuration one after the other; they may use the template's variables.

    Of lane kubelet alone: ``cni`` "local" (a bridge of this node) or "flannel" (Talos's own; ``flannel_cni_url`` and
    ``flannel_cni_sha256`` name the plugin's archive), ``driver_branch`` (NVIDIA's, installed where the image brings no driver),
    ``guard`` (when it powers itself off; None = never) with the path of the Lease that runs renew.
    """

    name: str
    pool: str
    secrets: ClusterSecrets = dataclasses.field(repr=False)
    bootstrap_token: str = dataclasses.field(repr=False)
    lane: Lane = Lane.TALOS
    index: int = 0
    cloud: str = ""
    endpoint: str = ""
    cluster_name: str = ""
    instance_type: str = ""
    region: str = ""
    labels: Labels = dataclasses.field(default_factory=dict)
    annotations: Labels = dataclasses.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    ephemeral_taint: bool = True
    gpu_count: int | None = None
    model: str = ""
    mesh: MeshChoice = MeshChoice()
    auth_key: str = dataclasses.field(default="", repr=False)
    login_server: str = ""
    tunnel: Tunnel | None = None
    kubernetes_version: str = DEFAULT_KUBERNETES
    talos_version: str = DEFAULT_TALOS
    installer_image: str = ""
    install_disk: str = ""
    extensions: tuple[str, ...] | None = None
    registry_mirrors: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    patches: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    cni: str = "local"
    flannel_cni_url: str = ""
    flannel_cni_sha256: str = ""
    driver_branch: str = "580"
    guard: Guard | None = None
    guard_lease: str = ""

    def __post_init__(self) -> None:
        register(self.auth_key, self.bootstrap_token, self.tunnel.private_key if self.tunnel else None)

    @property
    def nvidia(self) -> bool:
        """True when it has NVIDIA GPUs; an unknown model counts as one of theirs."""
        return bool(self.gpu_count) and gpu_models.vendor(gpu_models.canonical(self.model) or "") != "amd"

    @property
    def every_taint(self) -> tuple[Taint, ...]:
        """All taints it registers with, ours at the end; one for each key and effect."""
        wanted = [*self.taints, *self.startup_taints, *((EPHEMERAL,) if self.ephemeral_taint else ()), INITIALIZING]
        taints: dict[tuple[str, str], Taint] = {}
        for taint in wanted:
            taints.setdefault((taint.key, taint.effect), taint)
        return tuple(taints.values())

    @property
    def api_endpoint(self) -> str:
        return self.endpoint or self.secrets.endpoint

    def variables(self) -> dict[str, str]:
        """The names a template may use, and their values."""
        return {
            "MachineToken": self.secrets.trustd_token,
            "ClusterCA": self.secrets.os_ca_crt,
            "ClusterID": self.secrets.cluster_id,
            "ClusterSecret": self.secrets.cluster_secret,
            "ControlPlaneEndpoint": self.api_endpoint,
            "ClusterName": self.cluster_name or self.secrets.cluster_name,
            "TailscaleAuthKey": self.auth_key,
            "NodeName": self.name,
            "NodePool": self.pool,
            "NodeIndex": str(self.index),
            "BootstrapToken": self.bootstrap_token,
            "KubernetesCA": self.secrets.k8s_ca_crt,
            "KubernetesVersion": plain(self.kubernetes_version),
            "TalosVersion": plain(self.talos_version),
            "InstallerImage": self.installer_image,
            "InstallDisk": self.install_disk,
            "Provider": self.cloud,
            "Region": self.region,
            "InstanceType": self.instance_type,
            "GPUType": self.model,
            "GPUCount": str(self.gpu_count or 0),
        }


VARIABLES: t.Final = (
    "MachineToken", "ClusterCA", "ClusterID", "ClusterSecret", "ControlPlaneEndpoint", "ClusterName", "TailscaleAuthKey",
    "NodeName", "NodePool", "NodeIndex", "BootstrapToken", "KubernetesCA", "KubernetesVersion", "TalosVersion",
    "InstallerImage", "InstallDisk", "Provider", "Region", "InstanceType", "GPUType", "GPUCount",
)  # fmt: skip
