# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker template used where a class brings none of its own; the same text as examples/templates/worker.yaml."""

from __future__ import annotations

WORKER = """\
# A complete worker configuration for a GPU node, to start from. Module talos_config uses it word for word where it is given no
# template; a GPUNodeClass has to name one, so that nobody rents machines with a configuration they never saw.
# Written by the collection itself, whatever the template says: secrets, endpoint, host name, taints, the labels under tgp.io,
# the tailscale service with its key, and on NVIDIA machines the kernel modules.
version: v1alpha1
debug: false
machine:
  type: worker
  token: {{ MachineToken }}
  ca:
    crt: {{ ClusterCA }}
  certSANs: [127.0.0.1]
  kubelet:
    image: ghcr.io/siderolabs/kubelet:v{{ KubernetesVersion }}
    defaultRuntimeSeccompProfileEnabled: true
    disableManifestsDirectory: true
  nodeLabels:
    tgp.io/nodepool: "{{ NodePool }}"
    tgp.io/provisioned: "true"
  features:
    diskQuotaSupport: true
    kubePrism: {enabled: true, port: 7445}
    hostDNS: {enabled: true, forwardKubeDNSToHost: true}
cluster:
  id: {{ ClusterID }}
  secret: {{ ClusterSecret }}
  clusterName: "{{ ClusterName }}"
  controlPlane:
    endpoint: {{ ControlPlaneEndpoint }}
  network:
    dnsDomain: cluster.local
    podSubnets: [10.244.0.0/16]
    serviceSubnets: [10.96.0.0/12]
  discovery:
    enabled: true
    registries:
      kubernetes: {disabled: true}
      service: {}
"""
