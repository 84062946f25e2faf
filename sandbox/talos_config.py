# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker's configuration as Talos 1.13 would take it, or refuse it.

Written apart from the collection's own check on purpose: what one of them overlooks, the other may see. The published JSON Schema is read
with a general validator; the rules it lacks are those of Talos's own validation and of its boot sequence. Documents other than the machine
configuration, HostnameConfig and ExtensionServiceConfig are held against the schema only.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import typing as t
from urllib.parse import urlsplit

from . import payload as p
from .talos_documents import against_schema, parse, refuse
from .talos_wireguard import tunnel

_PROTECTED = {
    "apiVersion", "kind", "authentication", "authorization", "cgroupRoot", "kubeletCgroups", "systemCgroups", "port",
    "protectKernelDefaults", "resolvConf", "rotateCertificates", "staticPodPath", "seccompDefault",
}  # fmt: skip
_DENIED_FLAGS = {"bootstrap-kubeconfig", "kubeconfig", "config", "cert-dir", "container-runtime-endpoint"}
_DOMAIN = re.compile(r"^(?!-)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.?$")
_EXISTING_FILES = {"/etc/hosts", "/etc/resolv.conf", "/etc/os-release", "/etc/nfsmount.conf", "/etc/ssl/certs/ca-certificates"}
_INSTALLER = re.compile(
    r"^(?P<host>[^/]+)/(?:(?P<platform>[a-z0-9-]+)-)?installer(?:-secureboot)?/(?P<id>[0-9a-f]{64}):v(?P<version>.+)$"
)


def read_talos(text: str) -> p.Intent:
    """The intent of a configuration; raises :class:`payload.Refused` as the node's log would."""
    documents = parse(text)
    config = next((document for document in documents if "kind" not in document), None)
    if config is None:
        raise p.Refused("config", "no v1alpha1 config document: the node stays in maintenance mode")
    for document in documents:
        against_schema(document)
    _against_rules(config, documents)
    link = tunnel(config, documents)
    machine, cluster = config["machine"], config["cluster"]
    _files(machine.get("files") or [])
    kubelet = machine.get("kubelet") or {}
    extra = kubelet.get("extraConfig") or {}
    taints = extra.get("registerWithTaints") or []
    if fault := p.taint_fault(taints):
        raise p.Refused("kubelet", f"kubelet: failed to load config: {fault}")
    if denied := sorted(_DENIED_FLAGS & set(kubelet.get("extraArgs") or {})):
        raise p.Refused("kubelet", f"KubeletSpecController: extra args are not allowed: {', '.join(denied)}")
    image = str(kubelet.get("image") or "ghcr.io/siderolabs/kubelet:v1.36.3")
    installer = str((machine.get("install") or {}).get("image") or "")
    ordered = _INSTALLER.match(installer)
    return p.Intent(
        lane="talos",
        node_name=_hostname(config, documents),
        server=cluster["controlPlane"]["endpoint"],
        ca_pem=_pem(cluster.get("ca")),
        token=str(cluster.get("token") or ""),
        kubelet_version=image.rpartition(":")[2],
        mesh=_mesh(documents),
        tunnel=link,
        labels={key: str(value) for key, value in (machine.get("nodeLabels") or {}).items()},
        annotations={key: str(value) for key, value in (machine.get("nodeAnnotations") or {}).items()},
        taints=p.clean_taints(taints),
        late_taints=_late_taints(machine.get("nodeTaints") or {}),
        node_subnets=tuple((kubelet.get("nodeIP") or {}).get("validSubnets") or ()),
        os_image=f"Talos (v{ordered['version'] if ordered else '1.13.9'})",
        schematic=ordered["id"] if ordered else "",
        installer=installer,
        trustd=(str(machine.get("token") or ""), _pem(machine.get("ca"))),
    )


def _against_rules(config: dict[str, t.Any], documents: list[dict[str, t.Any]]) -> None:
    """What the schema cannot see."""
    machine, cluster = config.get("machine"), config.get("cluster")
    if not machine:
        raise refuse("machine instructions are required")
    if not cluster:
        raise refuse("cluster instructions are required")
    if config.get("persist") is False:
        raise refuse("persist should be enabled")
    if (machine.get("type") or "worker") != "worker":
        raise refuse(f"a machine of type {machine['type']!r} is no worker")
    for where, section in (("machine.ca", machine), ("cluster.ca", cluster)):
        ca = section.get("ca") or {}
        if ca.get("key"):
            raise refuse(f"{where}: the issuing CA key is not allowed on non-controlplane nodes")
        if ca.get("crt"):
            _pem(ca)
    if not (machine.get("ca") or {}).get("crt") and not machine.get("acceptedCAs"):
        raise refuse("trusted CA certificates are required on worker nodes (.machine.ca.crt or .machine.acceptedCAs)")
    if cluster.get("etcd"):
        raise refuse("etcd is only allowed on control plane nodes")
    if (machine.get("features") or {}).get("kubernetesTalosAPIAccess"):
        raise refuse("kubernetesTalosAPIAccess is only allowed on control plane nodes")
    endpoint = str((cluster.get("controlPlane") or {}).get("endpoint") or "")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refuse(f"invalid cluster endpoint {endpoint!r}")
    dns = (machine.get("features") or {}).get("hostDNS") or {}
    if dns.get("forwardKubeDNSToHost") and not dns.get("enabled"):
        raise refuse("feature hostDNS.forwardKubeDNSToHost requires hostDNS.enabled to be true")
    domain = (cluster.get("network") or {}).get("dnsDomain")
    if domain and not _DOMAIN.match(str(domain)):
        raise refuse(f"{domain!r} is not a valid DNS name")
    _discovery(cluster, bool(((machine.get("network") or {}).get("kubespan") or {}).get("enabled")))
    if fault := p.label_fault({name: str(value) for name, value in (machine.get("nodeLabels") or {}).items()}):
        raise refuse(fault)
    _late_taints(machine.get("nodeTaints") or {})
    kubelet = machine.get("kubelet") or {}
    if protected := sorted(_PROTECTED & set(kubelet.get("extraConfig") or {})):
        raise refuse(f"kubelet configuration fields cannot be overridden: {', '.join(protected)}")
    for subnet in (kubelet.get("nodeIP") or {}).get("validSubnets") or ():
        try:
            ipaddress.ip_network(str(subnet).removeprefix("!"), strict=False)
        except ValueError as error:
            raise refuse(f"kubelet nodeIP subnet {subnet!r} is not valid: {error}") from error
    for document in documents:
        if document.get("kind") == "ExtensionServiceConfig":
            if not document.get("name"):
                raise refuse("ExtensionServiceConfig: name is required")
            if not document.get("environment") and not document.get("configFiles"):
                raise refuse("ExtensionServiceConfig: no settings found")
        if document.get("kind") == "HostnameConfig" and not document.get("hostname") and not document.get("auto"):
            raise refuse("HostnameConfig: either 'auto' or 'hostname' must be set")


def _discovery(cluster: dict[str, t.Any], kubespan: bool) -> None:
    discovery = cluster.get("discovery") or {}
    service = (discovery.get("registries") or {}).get("service") or {}
    if discovery.get("enabled") and not service.get("disabled"):
        for key in ("id", "secret"):
            if not cluster.get(key):
                raise refuse(f"cluster discovery service requires .cluster.{key}")
        if (endpoint := service.get("endpoint")) and not urlsplit(str(endpoint)).scheme:
            raise refuse(f"cluster discovery service registry endpoint is invalid: {endpoint!r}")
    if kubespan and not (discovery.get("enabled") and cluster.get("id") and cluster.get("secret")):
        raise refuse(".cluster.discovery should be enabled when KubeSpan is enabled, with .cluster.id and .cluster.secret")


def _files(files: list[dict[str, t.Any]]) -> None:
    """Not a matter of validation: the boot sequence stops here, and the node reboots after 35 minutes."""
    for file in files:
        path, op = str(file.get("path", "")), file.get("op", "")
        if (
            path.startswith("/var/")
            or path == "/etc/cri/conf.d/20-customization.part"
            or path.startswith("/etc/kubernetes/manifests/")
        ):
            continue
        if op not in ("create", "append", "overwrite"):
            raise p.Refused("files", f"task userSetup: unknown operation {op!r} for {path!r}")
        if op == "create":
            raise p.Refused("files", f"task userSetup: create operation not allowed outside of /var: {path!r}")
        if path not in _EXISTING_FILES:
            raise p.Refused("files", f"task userSetup: stat {path}: no such file or directory")


def _late_taints(taints: dict[str, str]) -> tuple[dict[str, str], ...]:
    found = []
    for key, text in taints.items():
        value, _colon, effect = str(text).rpartition(":")
        found.append({"key": key, "value": value, "effect": effect})
    if fault := p.taint_fault(found):
        raise refuse(fault)
    return p.clean_taints(found)


def _hostname(config: dict[str, t.Any], documents: list[dict[str, t.Any]]) -> str:
    old = str(((config["machine"].get("network") or {}).get("hostname")) or "")
    document = next((document for document in documents if document.get("kind") == "HostnameConfig"), {})
    new = str(document.get("hostname") or "")
    if old and document:
        raise refuse("static hostname is already set in v1alpha1 config")
    if new and document.get("auto") not in (None, "off"):
        raise refuse("HostnameConfig: hostname and auto cannot be set at the same time")
    name = new or old
    if name and not p.NAME.match(name):
        raise p.Refused("node", f"kubelet: Unable to register node with API server: metadata.name: Invalid value: {name!r}")
    return name


def _mesh(documents: list[dict[str, t.Any]]) -> p.Mesh | None:
    for document in documents:
        if document.get("kind") == "ExtensionServiceConfig" and document.get("name") == "tailscale":
            settings = dict(str(entry).partition("=")[::2] for entry in document.get("environment") or ())
            key = settings.get("TS_AUTHKEY") or settings.get("TS_AUTH_KEY") or ""
            try:
                flags = p.up_flags(settings.get("TS_EXTRA_ARGS", "").split())
            except ValueError as error:
                raise p.Refused("mesh", f"ext-tailscale: tailscale up: {error}") from error
            routes = tuple(part for part in settings.get("TS_ROUTES", "").split(",") if part)
            if routes:
                flags["advertise_routes"] = routes
            if settings.get("TS_USERSPACE", "").lower() in ("true", "1"):
                raise p.Refused("mesh", "ext-tailscale: userspace networking: there is no tailscale0 for the kubelet")
            return p.Mesh(key, settings.get("TS_HOSTNAME", ""), **flags)
    return None


def _pem(ca: t.Any) -> str:
    """The text of a base64 ``crt``; empty when absent. Whether it is a certificate shows when it is used."""
    value = (ca or {}).get("crt")
    text = str(value).lower() if isinstance(value, bool) else str(value or "")
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except ValueError as error:
        raise refuse("a CA certificate is not base64") from error
