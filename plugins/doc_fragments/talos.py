# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that tell about the Talos cluster."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  talos_secrets:
    description:
      - The cluster's secrets - a bundle of C(talosctl gen secrets), an existing C(worker.yaml) or C(controlplane.yaml), or the output of
        C(talosctl get machineconfig -o yaml). A path, the YAML text, or the mapping itself.
      - Only what a worker needs is taken. Private keys of CAs are never kept.
      - If not set, the environment variable E(TGP_TALOS_SECRETS) is used.
    type: raw
  control_plane_endpoint:
    description:
      - URL of the Kubernetes API as the node reaches it, for example V(https://100.64.0.1:6443). An address is safer than a name, which must
        be resolvable before the mesh is up.
      - Needed when the secrets are a bundle, which does not contain it.
      - If not set, the environment variable E(TGP_CONTROL_PLANE_ENDPOINT) is used.
    type: str
  cluster_name:
    description: Name of the cluster. Taken from the secrets where they have it, else V(talos).
    type: str
  kubernetes_version:
    description: Version of the cluster, for example V(1.36.3). The kubelet gets the same; it must not be newer than the API server.
    type: str
  talos_version:
    description: Talos version that reads the configuration, for example V(1.13.9), where the tag of an image does not tell it. Older ones know
        fewer documents.
    type: str
  mesh_login_server:
    description: URL of the coordination server as the node reaches it, for headscale. Not set for Tailscale itself.
    type: str
"""
