# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lane ``kubelet``: a stock Ubuntu machine becomes a worker by cloud-init, or by a script, of the Talos cluster.

Everything is taken from the same worker configuration that a Talos machine would get, so both lanes give the same node.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import ipaddress
import json
import re
import shlex
import typing as t
from urllib.parse import urlsplit

from ...core.errors import InvalidInput
from ...model import Guard
from ...model.mesh import Tunnel
from ...talos.spec import NodeSpec, plain, tag_of
from ...talos.template import Document, at, items_at, machine_document, of_kind, to_yaml
from ...talos.wireguard import link
from . import guard
from .script import BOOTSTRAP

"""Name of a repository → the fingerprints of all primary keys in its key file, 40 capital hex digits each."""


FORWARDER = "https://127.0.0.1:7445"
PROGRAM = "/usr/local/sbin/tgp-bootstrap"
UNIT = "/etc/systemd/system/tgp-bootstrap.service"
AUTH_KEY = "/etc/tgp/authkey"
_TAILNET_MTU = 1280
_WITHOUT_DRIVER = ("K20c", "K80")  # Kepler: its last driver, 470, is in no Ubuntu that is taken here
_LOCAL_PODS = ("172.31.219.0/24", "192.168.219.0/24", "10.219.219.0/24")
_SAFE = re.compile(r"[A-Za-z0-9_./:,=@+-]*")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_UNIT = """\
[Unit]
Description=Make this machine a worker of the cluster
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/var/lib/tgp/done
StartLimitIntervalSec=4h
StartLimitBurst=3
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/tgp-bootstrap
TimeoutStartSec=3600
Restart=on-failure
RestartSec=60
[Install]
WantedBy=multi-user.target
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Boot:
    """What is done to the machine at its first boot, whoever does it: ``files`` as cloud-init's write_files says them (some are secrets),
    then ``commands``."""

    hostname: str
    files: tuple[Document, ...] = dataclasses.field(repr=False)
    commands: tuple[tuple[str, ...], ...]


def boot(spec: NodeSpec, documents: t.Sequence[Document]) -> Boot:
    """What makes one machine a worker, from its worker configuration. Raises InvalidInput for what cannot be configured on Ubuntu."""
    config = machine_document(documents)
    if config is None:
        raise InvalidInput("There is no machine configuration to derive the bootstrap from.")
    files = [
        _file("/etc/tgp/node.env", _environment(spec, config, documents)),
        _file("/etc/tgp/ca.crt", _ca(config), "0644"),
        _file("/etc/tgp/bootstrap-kubeconfig", _kubeconfig(at(config, "cluster.token"))),
        _file("/etc/tgp/kubelet-config.yaml", to_yaml([kubelet_config(config)]), "0644"),
        _file("/etc/sysctl.d/90-tgp.conf", "".join(f"{key} = {value}\n" for key, value in sysctls(config).items()), "0644"),
    ]
    key = mesh_environment(documents).get("TS_AUTHKEY")
    if key:
        files.append(_file(AUTH_KEY, key))
    if spec.tunnel is not None:
        files.append(_file(path_of(spec.tunnel), conf(documents, config, spec.tunnel)))
    if spec.cni == "local":
        files.append(_file("/etc/tgp/cni.conflist", _conflist(config, _mesh_mtu(spec, documents, config), _beside(spec)), "0644"))
    files += [_packed(file) for file in at(config, "machine.files") or ()]
    if spec.guard is not None:
        files.append(_file(guard.PROGRAM, guard.GUARD, "0700"))
        files += [_file(guard.SERVICE, guard.SERVICE_UNIT, "0644"), _file(guard.TIMER, guard.TIMER_UNIT, "0644")]
    files.append(_file(PROGRAM, BOOTSTRAP, "0700"))
    files.append(_file(UNIT, _UNIT, "0644"))
    folders = [("mkdir", "-p", "-m", "0700", str(mount["source"])) for mount in at(config, "machine.kubelet.extraMounts") or ()]
    units = [*(["tgp-guard.timer"] if spec.guard is not None else []), "tgp-bootstrap.service"]
    start = [("systemctl", "daemon-reload"), *(("systemctl", "enable", "--now", "--no-block", unit) for unit in units)]
    return Boot(spec.name, tuple(files), (*folders, *start))


def cloud_init(made: Boot) -> str:
    """The ``#cloud-config`` that does it."""
    document = {
        "hostname": made.hostname,
        "preserve_hostname": False,
        "write_files": [_compressed(file) if file["path"] in (PROGRAM, guard.PROGRAM) else file for file in made.files],
        "runcmd": [list(command) for command in made.commands],
    }
    return "#cloud-config\n" + to_yaml([document])


def _compressed(file: Document) -> Document:
    packed = base64.b64encode(gzip.compress(file["content"].encode(), 9, mtime=0)).decode()
    return {"path": file["path"], "permissions": file["permissions"], "encoding": "gz+b64", "content": packed}


def mesh_environment(documents: t.Sequence[Document]) -> dict[str, str]:
    """The variables of the tailscale service, {} when the configuration has none."""
    service = of_kind(documents, "ExtensionServiceConfig", "tailscale") or {}
    pairs = (str(entry).partition("=") for entry in service.get("environment") or ())
    return {name: value for name, _equals, value in pairs}


def _environment(spec: NodeSpec, config: Document, documents: t.Sequence[Document]) -> str:
    """node.env: what the bootstrap program reads, as NAME=value for a shell. No secret is in it."""
    mesh = mesh_environment(documents)
    flags = _up_flags(mesh.get("TS_EXTRA_ARGS", ""))
    login = [flag.partition("=")[2] for flag in flags if flag.startswith("--login-server=")]
    flags = [flag for flag in flags if not flag.startswith(("--login-server=", "--authkey", "--auth-key", "--hostname"))]
    if mesh.get("TS_ROUTES"):
        flags.append(f"--advertise-routes={mesh['TS_ROUTES']}")
    labels = at(config, "machine.nodeLabels") or {}
    if spec.nvidia and spec.model in _WITHOUT_DRIVER:
        raise InvalidInput(
            f"Node {spec.name}: no NVIDIA driver that Ubuntu 22.04 or newer has knows the {spec.model}.",
            remedy="Ask for Maxwell or newer in the pool's requirements.",
        )
    values = {
        "NODE_NAME": spec.name,
        "NODE_LABELS": ",".join(f"{key}={value}" for key, value in labels.items()),
        "API_SERVER": _host_and_port(at(config, "cluster.controlPlane.endpoint")),
        "KUBELET_VERSION": _kubelet_version(spec, config),
        "KUBELET_EXTRA_ARGS": " ".join(_flags(at(config, "machine.kubelet.extraArgs") or {})),
        "MESH_BACKEND": "wireguard" if spec.tunnel else "tailscale" if mesh else "none",
        "MESH_HOSTNAME": mesh.get("TS_HOSTNAME", spec.name),
        "MESH_LOGIN_SERVER": login[-1] if login else "",
        "MESH_EXTRA_ARGS": " ".join(flags),
        "GPU_COUNT": str(spec.gpu_count or 0),
        "NVIDIA": "1" if spec.nvidia else "0",
        "DRIVER_BRANCH": spec.driver_branch,
        "KERNEL_MODULES": " ".join([*_modules(config), *(["wireguard"] if spec.tunnel else [])]),
        "CNI": spec.cni,
        **settings(),
        **(_guard_settings(spec.guard, spec.guard_lease) if spec.guard is not None else {}),
    }
    if spec.tunnel is not None:
        values |= tunnel_settings(spec.tunnel)
    if spec.cni == "flannel":
        values |= _flannel(spec)
    elif spec.cni != "local":
        raise InvalidInput(f"cni {spec.cni!r} must be local or flannel.")
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _guard_settings(limits: Guard, lease: str) -> dict[str, str]:
    """What the guard reads: seconds, or never."""
    return {
        "GUARD_SILENT_FOR": "never" if limits.silent_for is None else str(limits.silent_for),
        "GUARD_CONTROLLER_SILENT_FOR": "never" if limits.controller_silent_for is None else str(limits.controller_silent_for),
        "GUARD_LEASE": lease,
    }


def _up_flags(text: str) -> list[str]:
    """Flags of ``tailscale up``, each a word of its own (``--name=value``), in whichever form they were written."""
    flags: list[str] = []
    for word in text.split():
        if word.startswith("-"):
            flags.append(f"--{word.lstrip('-')}")
        elif flags and "=" not in flags[-1]:
            flags[-1] += f"={word}"
        else:
            flags.append(word)
    return flags


def _flannel(spec: NodeSpec) -> dict[str, str]:
    if not spec.flannel_cni_url.startswith("https://") or not re.fullmatch(r"[0-9a-f]{64}", spec.flannel_cni_sha256):
        raise InvalidInput(
            "cni flannel needs flannel_cni_url (https://…tgz of flannel-io/cni-plugin) and flannel_cni_sha256 (64 hex digits): "
            "Talos's flannel brings no plugin binary along, because on Talos it is part of the system."
        )
    return {"FLANNEL_CNI_URL": spec.flannel_cni_url, "FLANNEL_CNI_SHA256": spec.flannel_cni_sha256}


def _host_and_port(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{api_port(endpoint)}"


def _kubelet_version(spec: NodeSpec, config: Document) -> str:
    version = plain(tag_of(at(config, "machine.kubelet.image") or "") or spec.kubernetes_version)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise InvalidInput(f"The kubelet version {version!r} must be like 1.36.3: lane kubelet installs a package of that version.")
    return version


def _flags(arguments: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for name, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            flag = f"--{name}={item}"
            if not _SAFE.fullmatch(flag):
                raise InvalidInput(f"machine.kubelet.extraArgs.{name} has characters that a system unit would take apart.")
            yield flag


def _modules(config: Document) -> list[str]:
    """Kernel modules beyond those of the NVIDIA driver, which Ubuntu loads itself."""
    names = [str(module.get("name", "")) for module in at(config, "machine.kernel.modules") or ()]
    for name in names:
        if not _MODULE.fullmatch(name):
            raise InvalidInput(f"machine.kernel.modules: {name!r} is not a name of a kernel module.")
    return [name for name in names if not name.startswith("nvidia")]


def _file(path: str, content: str, permissions: str = "0600") -> Document:
    return {"path": path, "permissions": permissions, "content": content}


def _packed(file: t.Mapping[str, t.Any]) -> Document:
    """A file of the Talos configuration as cloud-init writes it."""
    made = _file(str(file["path"]), str(file.get("content", "")), f"{int(file.get('permissions') or 0o600):04o}")
    return {**made, "append": True} if file.get("op") == "append" else made


def _ca(config: Document) -> str:
    return base64.b64decode(at(config, "cluster.ca.crt")).decode()


def _kubeconfig(token: str) -> str:
    return to_yaml([{
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": FORWARDER, "certificate-authority": "/etc/kubernetes/pki/ca.crt"}}],
        "users": [{"name": "bootstrap", "user": {"token": token}}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "cluster", "user": "bootstrap"}}],
        "current-context": "bootstrap",
    }])  # fmt: skip


def _mesh_mtu(spec: NodeSpec, documents: t.Sequence[Document], config: Document) -> int | None:
    """The longest packet that the mesh carries whole; None without one."""
    if spec.tunnel is not None:
        return int(link(documents, config, spec.tunnel.interface)["mtu"])
    return _TAILNET_MTU if mesh_environment(documents).get("TS_AUTHKEY") else None


def _beside(spec: NodeSpec) -> tuple[str, ...]:
    """Networks beside the cluster's own that the machine has to reach."""
    return (spec.tunnel.network, *spec.tunnel.allowed) if spec.tunnel is not None else ()


def _conflist(config: Document, mtu: int | None, beside: t.Sequence[str] = ()) -> str:
    """A bridge of this machine's own: pods reach the internet and the API, not the pods of other nodes. ``mtu`` is that of the mesh where
    there is one: what a pod sends there, and what it is sent from behind a subnet router, then fits without asking."""
    taken = [
        ipaddress.ip_network(subnet, strict=False)
        for path in ("cluster.network.podSubnets", "cluster.network.serviceSubnets")
        for subnet in at(config, path) or ()
    ]
    taken += [ipaddress.ip_network(subnet) for subnet in beside]
    free = next((p for p in _LOCAL_PODS if not any(ipaddress.ip_network(p).overlaps(n) for n in taken if n.version == 4)), None)
    if free is None:
        raise InvalidInput(
            "No subnet is free for the node's own bridge; the cluster's pod and service subnets, and what lies behind the mesh, take all."
        )
    ipam = {"type": "host-local", "ranges": [[{"subnet": free}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge: Document = {
        "type": "bridge", "bridge": "cni-tgp", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam
    }  # fmt: skip
    if mtu:
        bridge["mtu"] = mtu
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "tgp", "plugins": [bridge, portmap]})


# ---- A node's WireGuard tunnel on a stock Ubuntu machine: the file that wg-quick reads, from the same configuration that Talos would
# read

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def path_of(tunnel: Tunnel) -> str:
    """Where wg-quick looks for it."""
    return f"/etc/wireguard/{tunnel.interface}.conf"


def conf(documents: t.Sequence[Document], config: Document, tunnel: Tunnel) -> str:
    """The file. Routes need no lines: wg-quick makes one for each allowed network. Raises InvalidInput for what it could not express."""
    device = link(documents, config, tunnel.interface)
    lines = ["# Written by the Ansible collection tgp.gpu.", "[Interface]"]
    lines += [f"Address = {address['address']}" for address in items_at(device, "addresses")]
    lines.append(f"PrivateKey = {device['privateKey']}")
    for field, name in (("mtu", "MTU"), ("listenPort", "ListenPort"), ("firewallMark", "FwMark")):
        if device.get(field):
            lines.append(f"{name} = {device[field]}")
    for peer in items_at(device, "peers"):
        lines += ["", "[Peer]", f"PublicKey = {peer['publicKey']}"]
        if peer.get("presharedKey"):
            lines.append(f"PresharedKey = {peer['presharedKey']}")
        if peer.get("endpoint"):
            lines.append(f"Endpoint = {peer['endpoint']}")
        if peer.get("allowedIPs"):
            lines.append(f"AllowedIPs = {', '.join(peer['allowedIPs'])}")
        if peer.get("persistentKeepaliveInterval"):
            lines.append(f"PersistentKeepalive = {_seconds(str(peer['persistentKeepaliveInterval']))}")
    if any("\n" in line or "\r" in line for line in lines):
        raise InvalidInput(f"WireGuard {tunnel.interface}: a setting has a line end in it.")
    return "\n".join(lines) + "\n"


def tunnel_settings(tunnel: Tunnel) -> dict[str, str]:
    """What node.env says of it; no secret."""
    return {
        "MESH_INTERFACE": tunnel.interface,
        "MESH_ADDRESS": tunnel.ip,
        "MESH_HUB_KEY": tunnel.hub_key,
        "MESH_ENDPOINT": tunnel.endpoint,
    }


def _seconds(duration: str) -> int:
    match = _DURATION.fullmatch(duration)
    if not match or not duration:
        raise InvalidInput(f"persistentKeepaliveInterval {duration!r} must be in hours, minutes and whole seconds, like 25s.")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


# ---- who may sign the repositories that lane kubelet installs from: the one place where their keys are pinned. A key that says another
# expiry date, or has other subkeys, keeps its fingerprint and needs nothing here. One that its owner replaces needs a new line here, or
# KEY_<NAME> in a pool's template (docs/how_to/kubelet_lane.md) until there is one

# Docker's is in Docker's installation guide. Those of Docker, Kubernetes and NVIDIA were computed from the key files that Debian hands out in
# its signed package extrepo-offline-data. Tailscale publishes no fingerprint: its own was computed from a stored copy of its key file, and is
# what dnf shows when it takes the key of pkgs.tailscale.com.
PINNED: t.Mapping[str, tuple[str, ...]] = {
    "kubernetes": ("DE15B14486CD377B9E876E1A234654DA9A296436",),
    "docker": ("9DC858229FC7DD38854AE2D88D81803C0EBFCD88",),
    "tailscale": ("2596A99EAAB33821893C0A79458CA832957F5868",),
    "nvidia": ("C95B321B61E88C1809C4F759DDCAE044F796ECB0",),
}


def settings() -> dict[str, str]:
    """They as node.env says them: KEY_DOCKER and so on, fingerprints parted by blanks."""
    return {f"KEY_{name.upper()}": " ".join(fingerprints) for name, fingerprints in PINNED.items()}


# ---- the kubelet's own configuration and kernel settings on a machine that is not Talos, as close to Talos as Ubuntu allows

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
