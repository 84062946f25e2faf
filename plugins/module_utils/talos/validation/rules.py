# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Talos demands of a worker and its schema does not say. Each rule yields sentences: field, what is wrong, what to write."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import typing as t

from ...model.labels import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    HOSTNAME_LABEL,
    OS_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
)
from ..images.nvidia import image_problems
from ..releases.tables import minor, tables
from ..spec import tag_of
from ..template import Document, at, fields_at, items_at
from .runtime_rules import CRI_PART
from .wireguard_rules import document_rules, interface_rules

Sentences = t.Iterator[str]
_ONLY_CONTROL_PLANE = (
    "etcd", "apiServer", "controllerManager", "scheduler", "aggregatorCA", "serviceAccount", "aescbcEncryptionSecret",
    "secretboxEncryptionSecret", "adminKubeconfig",
)  # fmt: skip
_KUBELET_CONFIG = (
    "apiVersion", "kind", "authentication", "authorization", "cgroupRoot", "kubeletCgroups", "systemCgroups", "port",
    "protectKernelDefaults", "resolvConf", "rotateCertificates", "staticPodPath", "seccompDefault",
)  # fmt: skip
_KUBELET_FLAGS = ("bootstrap-kubeconfig", "kubeconfig", "config", "cert-dir", "container-runtime-endpoint")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?")
_OWNED = tuple(f"talos.dev/owned-{kind}" for kind in ("labels", "annotations", "taints"))
# Documents that an older Talos does not know: kind -> first minor.
SINCE = {
    **dict.fromkeys(("ExistingVolumeConfig", "RawVolumeConfig", "SwapVolumeConfig", "ZswapConfig"), (1, 11)),
    **dict.fromkeys(
        (
            "BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "HCloudVIPConfig", "HostnameConfig",
            "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "OOMConfig", "RegistryAuthConfig", "RegistryMirrorConfig",
            "RegistryTLSConfig", "ResolverConfig", "StaticHostConfig", "TimeSyncConfig", "VLANConfig", "WireguardConfig",
        ),
        (1, 12),
    ),
    **dict.fromkeys(
        (
            "BlackholeRouteConfig", "EnvironmentConfig", "ExternalVolumeConfig", "KubeSpanConfig", "RoutingRuleConfig", "TCPProbeConfig",
            "VRFConfig",
        ),
        (1, 13),
    ),
    **dict.fromkeys(
        (
            "CRICustomizationConfig", "DiscoveryIdentityConfig", "DiscoveryServiceConfig", "EtcFileConfig", "KernelModuleConfig",
            "KubeAPIServerCAConfig", "KubeClusterConfig", "KubeNetworkConfig", "KubeNodeConfig", "KubePrismConfig", "KubeletConfig",
            "SysctlConfig", "UnattendedInstallConfig",
        ),
        (1, 14),
    ),
}  # fmt: skip
_BEFORE = {
    "WireguardConfig": "; write an entry of machine.network.interfaces with wireguard in it instead",
    "KernelModuleConfig": "; write machine.kernel.modules instead",
    "SysctlConfig": "; write machine.sysctls instead",
    "CRICustomizationConfig": f"; write an entry of machine.files with path {CRI_PART} instead",
}


def identity(config: Document) -> Sentences:
    """Type, certificates and tokens."""
    machine, cluster = at(config, "machine"), at(config, "cluster")
    if not isinstance(machine, dict):
        yield "machine is missing: a worker needs its machine section."
    if not isinstance(cluster, dict):
        yield "cluster is missing: a worker needs its cluster section."
    if at(config, "machine.type") == "controlplane":
        yield "machine.type is controlplane; a rented GPU node must be a worker."
    for path, owner in (("machine.ca", "Talos"), ("cluster.ca", "Kubernetes")):
        if at(config, f"{path}.key") is not None:
            yield f"{path}.key holds the private key of the {owner} CA; a worker must never have it: leave the field out."
        for number, accepted in enumerate(items_at(config, f"{path.partition('.')[0]}.acceptedCAs")):
            if isinstance(accepted, dict) and accepted.get("key") is not None:
                yield f"{path.partition('.')[0]}.acceptedCAs[{number}].key: a worker must never have the private key of a CA; leave it out."
        certificate = at(config, f"{path}.crt")
        if certificate is not None and not is_pem(certificate):
            yield f"{path}.crt must be the base64 text of the {owner} CA's PEM certificate."
    if isinstance(machine, dict) and not at(config, "machine.ca.crt") and not machine.get("acceptedCAs"):
        yield "machine.ca.crt is missing: write the base64 of the Talos (OS) CA's certificate."
    for name in _ONLY_CONTROL_PLANE:
        if isinstance(cluster, dict) and name in cluster:
            yield f"cluster.{name} belongs to control planes; leave it out of a worker's configuration."
    if at(config, "machine.features.kubernetesTalosAPIAccess.enabled"):
        yield "machine.features.kubernetesTalosAPIAccess works on control planes only; leave it out."
    if config.get("persist") is False:
        yield "persist: false is no longer possible; leave the field out."


def joining(config: Document) -> Sentences:
    """What a configuration that is delivered must have, beyond what Talos itself checks."""
    wanted = {
        "machine.type": "worker",
        "machine.token": "the trustd token of the cluster",
        "cluster.token": "a bootstrap token, or the kubelet cannot join",
        "cluster.ca.crt": "the base64 of the Kubernetes CA's certificate, or the kubelet cannot join",
        "cluster.controlPlane.endpoint": "https://host:6443",
        "machine.kubelet.image": "ghcr.io/siderolabs/kubelet:v<version of the cluster>, or Talos takes its own default",
    }
    for path, value in wanted.items():
        if at(config, path) in (None, ""):
            yield f"{path} is missing: write {value}."


def cluster_network(config: Document) -> Sentences:
    """Endpoint, discovery, KubeSpan and subnets."""
    endpoint = at(config, "cluster.controlPlane.endpoint")
    if isinstance(endpoint, str) and not re.fullmatch(r"https://(\[[0-9A-Fa-f:.]+\]|[^\s/:@]+)(:\d{1,5})?/?", endpoint):
        yield f"cluster.controlPlane.endpoint {endpoint!r} must be https://host:6443 without a path."
    discovery = at(config, "cluster.discovery.enabled")
    identified = bool(at(config, "cluster.id")) and bool(at(config, "cluster.secret"))
    service = at(config, "cluster.discovery.registries.service.disabled") is not True
    if discovery and service and not identified:
        yield "cluster.discovery is on and cluster.id or cluster.secret is missing: write both."
    service_endpoint = at(config, "cluster.discovery.registries.service.endpoint")
    if discovery and service and service_endpoint and not re.fullmatch(r"https?://[^\s/]+/?", str(service_endpoint)):
        yield f"cluster.discovery.registries.service.endpoint {service_endpoint!r} must be https://host without a path."
    for interface in items_at(config, "machine.network.interfaces"):
        if isinstance(interface, dict):
            links = [interface, *(vlan for vlan in items_at(interface, "vlans") if isinstance(vlan, dict))]
            if any(link.get("vip") for link in links):
                yield f"machine.network.interfaces: {interface.get('interface')}: only control planes share an address (vip); leave it out."
    span = fields_at(config, "machine.network.kubespan")
    if span.get("enabled"):
        if not (discovery and identified):
            yield "machine.network.kubespan needs cluster.discovery, cluster.id and cluster.secret."
        if isinstance(span.get("mtu"), int) and span["mtu"] < 1280:
            yield "machine.network.kubespan.mtu must be at least 1280."
    domain = at(config, "cluster.network.dnsDomain")
    if isinstance(domain, str) and domain and not _DOMAIN.fullmatch(domain):
        yield f"cluster.network.dnsDomain {domain!r} is not a DNS name; write it like cluster.local."
    for path in ("machine.kubelet.nodeIP.validSubnets", "cluster.network.podSubnets", "cluster.network.serviceSubnets"):
        for subnet in items_at(config, path):
            if not is_subnet(str(subnet).removeprefix("!") if "nodeIP" in path else str(subnet)):
                yield f"{path}: {subnet!r} is not a subnet; write it like 10.0.0.0/8."


def kubelet(config: Document, talos: tuple[int, int], cluster_version: str) -> Sentences:
    """The kubelet's image, its fields that Talos keeps to itself, and taints at registration."""
    image = at(config, "machine.kubelet.image")
    if isinstance(image, str) and image:
        yield from _kubelet_version(image, talos, cluster_version)
    for flag, value in fields_at(config, "machine.kubelet.extraArgs").items():
        if isinstance(value, list) and talos < (1, 13):
            yield f"machine.kubelet.extraArgs.{flag} is a list, which Talos takes from 1.13 on; write one text."
        if str(flag).lstrip("-") in _KUBELET_FLAGS:
            yield f"machine.kubelet.extraArgs.{flag} is set by Talos itself; leave it out."
    for field in fields_at(config, "machine.kubelet.extraConfig"):
        if field in _KUBELET_CONFIG:
            yield f"machine.kubelet.extraConfig.{field} is set by Talos itself; leave it out."
    where = "machine.kubelet.extraConfig.registerWithTaints"
    for number, taint in enumerate(items_at(config, where)):
        yield from _taint(taint, f"{where}[{number}]")
    if at(config, where) is not None and not isinstance(at(config, where), list):
        yield f"{where} must be a list of key, value, effect."


def _kubelet_version(image: str, talos: tuple[int, int], cluster_version: str) -> Sentences:
    tag = tag_of(image)
    version = minor(tag)
    if version is None:
        if "@" not in image:
            yield f"machine.kubelet.image {image!r} has no version; end it with :v<version of the cluster>."
        return
    low, high = tables().kubernetes(talos) or (0, 999)
    if not low <= version[1] <= high:
        yield f"machine.kubelet.image: Talos {talos[0]}.{talos[1]} runs Kubernetes 1.{low} to 1.{high}, not {tag}."
    cluster = minor(cluster_version)
    if cluster and version > cluster:
        yield f"machine.kubelet.image {tag} is newer than the cluster ({cluster_version}); a kubelet must not be."
    elif cluster and version[1] < cluster[1] - 3:
        yield f"machine.kubelet.image {tag} is more than three minors older than the cluster ({cluster_version})."


def _taint(taint: t.Any, where: str) -> Sentences:
    if not isinstance(taint, dict) or not isinstance(taint.get("key"), str):
        yield f"{where} must have key, value and effect."
        return
    if taint.get("effect") not in EFFECTS:
        yield f"{where}.effect must be {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}."
    for problem in (key_problem(taint["key"]), _value(taint.get("value", ""))):
        if problem:
            yield f"{where}: {problem}"


def _value(value: t.Any) -> str:
    return value_problem(value) if isinstance(value, str) else f"{value!r} must be text: write it in quotes."


def marks(config: Document) -> Sentences:
    """Labels, annotations and taints that Talos writes with the kubelet's rights: one refused refuses all."""
    for key, value in fields_at(config, "machine.nodeLabels").items():
        problem = key_problem(str(key)) or (value_problem(value) if isinstance(value, str) else "")
        if problem:
            yield f"machine.nodeLabels: {problem}"
        elif not may_set(str(key)):
            yield f"machine.nodeLabels.{key}: a node may not give itself this label, and would get none at all; use the pool's labels."
    annotations = fields_at(config, "machine.nodeAnnotations")
    for key in annotations:
        if key in _OWNED:
            yield f"machine.nodeAnnotations.{key} is kept by Talos itself; leave it out."
        elif problem := key_problem(str(key)):
            yield f"machine.nodeAnnotations: {problem}"
    if sum(len(str(key)) + len(str(value)) for key, value in annotations.items()) > 256 * 1024:
        yield "machine.nodeAnnotations are larger than 256 KiB together."
    if at(config, "machine.nodeTaints"):
        yield (
            "machine.nodeTaints: a node may not change its taints after it registered, and then gets no label either; "
            "put them into the pool's taints (they are registered by machine.kubelet.extraConfig.registerWithTaints)."
        )


def files(config: Document) -> Sentences:
    """Talos's root is read-only: files can be made below /var only."""
    for number, file in enumerate(items_at(config, "machine.files")):
        if not isinstance(file, dict):
            continue
        path, op = str(file.get("path", "")), file.get("op")
        where = f"machine.files[{number}]"
        if not op:
            yield f"{where}.op is missing: write create, overwrite or append; Talos has no default and would fail at boot."
        if not path.startswith("/"):
            yield f"{where}.path {path!r} must be absolute."
        elif path == "/var" or not (path + "/").startswith("/var/"):
            yield from _outside_var(path, op, where)
        elif "/../" in path + "/":
            yield f"{where}.path {path!r} must not climb out of /var."


def _outside_var(path: str, op: t.Any, where: str) -> Sentences:
    if path == CRI_PART or path.startswith("/etc/kubernetes/manifests/"):
        return
    if "/systemd/" in path:
        advice = "Talos has no systemd; a service comes as a system extension in the image, with an ExtensionServiceConfig document"
    elif "tailscale" in path:
        advice = "leave it out: the mesh key reaches the node in an ExtensionServiceConfig document that is added to each node"
    elif path.startswith("/etc/cri/conf.d/") and "nvidia" in path:
        advice = (
            f"only {CRI_PART} is taken there, and the extension nvidia-container-toolkit registers the runtime nvidia by itself"
        )
    elif path.startswith("/etc/cri/conf.d/"):
        advice = f"only {CRI_PART} is taken there"
    elif op != "create":
        return  # overwriting a file of the image is a read-only bind mount over it: possible
    else:
        advice = "choose a path below /var"
    yield f"{where}: {path} cannot be made, because Talos creates files below /var only and would fail at boot; {advice}."


def mode_rules(config: Document, mode: str) -> Sentences:
    """What the way of booting demands: metal (installs itself), cloud (a disk image) or container."""
    install = at(config, "machine.install")
    if mode == "metal":
        chosen = isinstance(install, dict) and (install.get("disk") or install.get("diskSelector"))
        if not chosen:
            yield "machine.install.disk is missing: a machine that installs Talos must know its disk (or diskSelector)."
    if mode == "container":
        for flag in ("enabled", "forwardKubeDNSToHost"):
            if at(config, f"machine.features.hostDNS.{flag}") is not True:
                yield f"machine.features.hostDNS.{flag} must be true in a container."
    elif at(config, "machine.features.hostDNS.forwardKubeDNSToHost") and not at(config, "machine.features.hostDNS.enabled"):
        yield "machine.features.hostDNS.forwardKubeDNSToHost needs machine.features.hostDNS.enabled: true."
    if isinstance(install, dict):
        if install.get("disk") and install.get("diskSelector"):
            yield "machine.install has both disk and diskSelector: write one of them."
        if install.get("extraKernelArgs") and install.get("grubUseUKICmdline"):
            yield "machine.install.extraKernelArgs and grubUseUKICmdline exclude each other."
        if install.get("image"):
            yield from (f"machine.install.image: {problem}" for problem in image_problems(str(install["image"])))


def stream(documents: t.Sequence[Document], talos: tuple[int, int]) -> Sentences:
    """Rules between documents."""
    seen: set[tuple[str, str]] = set()
    configs = [document for document in documents if "kind" not in document]
    if not configs:
        yield "There is no machine configuration (a document with version: v1alpha1 and without kind)."
    elif len(configs) > 1:
        yield "There are several machine configurations; write one document without kind."
    for document in documents:
        kind, name = str(document.get("kind", "")), str(document.get("name", ""))
        if kind and (kind, name) in seen:
            yield f"{kind} {name}".rstrip() + " occurs twice; write it once."
        seen.add((kind, name))
        since = SINCE.get(kind)
        if since and talos < since:
            yield f"{kind} needs Talos {since[0]}.{since[1]} or newer, this is {talos[0]}.{talos[1]}{_BEFORE.get(kind, '')}."
        if kind == "WireguardConfig":
            yield from document_rules(document)
        if kind == "ExtensionServiceConfig" and not (document.get("environment") or document.get("configFiles")):
            yield f"ExtensionServiceConfig {name} needs an environment entry or a config file."
        if kind == "ExtensionServiceConfig" and not name:
            yield "ExtensionServiceConfig: name is missing: write the extension's service, for example tailscale."
        if kind == "HostnameConfig" and not document.get("hostname") and not document.get("auto"):
            yield "HostnameConfig: hostname is missing."
        if kind == "HostnameConfig" and document.get("hostname") and document.get("auto") not in (None, "off"):
            yield "HostnameConfig: hostname and auto exclude each other; write hostname only."
    interfaces = (
        interface
        for config in configs
        for interface in items_at(config, "machine.network.interfaces")
        if isinstance(interface, dict)
    )
    yield from interface_rules(interfaces, documents)
    yield from both_forms(configs, documents)


def is_pem(value: t.Any) -> bool:
    """True for base64 text of a PEM certificate."""
    try:
        return isinstance(value, str) and b"-----BEGIN CERTIFICATE-----" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def is_subnet(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


# ---- what Talos takes as a field of the machine configuration or as a document of its own, and refuses when both are there

# document -> fields that say the same
_FORMS = {
    "HostnameConfig": ("machine.network.hostname", "machine.features.stableHostname"),
    "KernelModuleConfig": ("machine.kernel.modules",),
    "KubeSpanConfig": ("machine.network.kubespan",),
    "ResolverConfig": ("machine.network.nameservers", "machine.network.searchDomains", "machine.network.disableSearchDomain"),
    "TimeSyncConfig": ("machine.time.servers", "machine.time.disabled", "machine.time.bootTimeout"),
}


def both_forms(configs: t.Sequence[Document], documents: t.Sequence[Document]) -> t.Iterator[str]:
    """A sentence for each pair that excludes each other."""
    for kind, fields in _FORMS.items():
        if not any(document.get("kind") == kind for document in documents):
            continue
        for field in fields:
            if any(at(config, field) not in (None, "", False, []) for config in configs):
                yield f"{field} and {kind} exclude each other; write {kind} only."


# ---- labels, annotations and taints as Kubernetes takes them from a node (L-19)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALLOWED = frozenset({
    HOSTNAME_LABEL,
    ARCH_LABEL,
    OS_LABEL,
    BETA_ARCH_LABEL,
    BETA_OS_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
})  # fmt: skip
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def may_set(key: str) -> bool:
    """True when a kubelet may put this label on its own Node (NodeRestriction admission)."""
    domain, slash, _name = key.rpartition("/")
    if not slash or not re.search(r"(^|\.)(kubernetes|k8s)\.io$", domain):
        return True
    if domain == "node-restriction.kubernetes.io" or domain.endswith(".node-restriction.kubernetes.io"):
        return False
    return key in _ALLOWED or any(domain == allowed or domain.endswith("." + allowed) for allowed in _ALLOWED_DOMAINS)


def key_problem(key: str) -> str:
    """Why this is not a qualified name, "" when it is one."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return f"{key!r} is not a label key: the part after the slash is 1 to 63 letters, digits, '-', '_' or '.', ends included."
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return f"{key!r} is not a label key: the part before the slash must be a DNS name in lower case."
    return ""


def value_problem(value: str) -> str:
    """Why this is not a label value, "" when it is one."""
    if value and not _NAME.fullmatch(value):
        return f"{value!r} is not a label value: at most 63 letters, digits, '-', '_' or '.', a letter or digit at both ends."
    return ""
