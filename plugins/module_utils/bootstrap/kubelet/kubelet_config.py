# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's own configuration and kernel settings on a machine that is not Talos, as close to Talos as Ubuntu allows."""

from __future__ import annotations

import ipaddress
import typing as t
from urllib.parse import urlsplit

from ...core.errors import InvalidInput
from ...talos.documents import Document, at

# What the kubelet insists on with protectKernelDefaults, and what bridged pods need.
_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
_TALOS_ONLY = ("kernel.kexec_load_disabled",)  # about Talos's way to reboot


def kubelet_config(config: Document) -> Document:
    """KubeletConfiguration for a worker; the configuration's ``extraConfig`` (taints included) goes on top."""
    dns = at(config, "machine.kubelet.clusterDNS") or [
        _dns_of(subnet) for subnet in at(config, "cluster.network.serviceSubnets") or ["10.96.0.0/12"]
    ]
    extra: dict[str, t.Any] = at(config, "machine.kubelet.extraConfig") or {}
    base: Document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": True,
        "serverTLSBootstrap": False,  # nothing in a Talos cluster would approve the request
        "tlsMinVersion": "VersionTLS13",
        "clusterDNS": dns,
        "clusterDomain": at(config, "cluster.network.dnsDomain") or "cluster.local",
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": "/run/systemd/resolve/resolv.conf",  # the stub at 127.0.0.53 would loop
        "protectKernelDefaults": True,
        "seccompDefault": at(config, "machine.kubelet.defaultRuntimeSeccompProfileEnabled") is not False,
        "serializeImagePulls": False,
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
        "systemReserved": {"cpu": "50m", "memory": "384Mi", "pid": "100", "ephemeral-storage": "256Mi"},
    }
    return {**base, **extra}


def _dns_of(subnet: str) -> str:
    """Where the cluster's DNS answers: the tenth address."""
    network = ipaddress.ip_network(subnet, strict=False)
    if network.num_addresses <= 10:
        raise InvalidInput(f"cluster.network.serviceSubnets: {subnet} is too small to have the cluster's DNS in it.")
    return str(network[10])


def sysctls(config: Document) -> dict[str, str]:
    """Kernel settings, those of the configuration on top."""
    given = at(config, "machine.sysctls") or {}
    return {**_SYSCTLS, **{key: str(value) for key, value in given.items() if key not in _TALOS_ONLY}}


def api_port(endpoint: str) -> int:
    """The port of an https URL."""
    return urlsplit(endpoint).port or 443
