# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""User data as cloud-init of a stock Ubuntu would take it.

No shell is run: the files that are written are read instead, because they hold all that the bootstrap program of the kubelet lane works
with (/etc/tgp/node.env and its neighbours). The program itself must be there, be executable and be started.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import re
import shlex
import typing as t
import zlib

import yaml

from . import payload as p
from .bootstrap_words import STEPS
from .carriers import unpack
from .guard import guard_of
from .hub import Tunnel, public_key, tunnel_of

_HOME = "/etc/tgp/"
PROGRAM = "/usr/local/sbin/tgp-bootstrap"
_HEREDOC = re.compile(r"^(?P<decode>base64 (?:-d|--decode)\s*)?(?:cat\s*)?>\s*(?P<path>/\S+)\s*<<-?\s*(['\"]?)(?P<tag>\w+)\3\s*$|"
                      r"^(?:cat|(?P<decode2>base64 (?:-d|--decode)))\s*<<-?\s*(['\"]?)(?P<tag2>\w+)\6\s*>\s*(?P<path2>/\S+)\s*$")  # fmt: skip


def read_cloud_init(text: str, environment: t.Mapping[str, str] | None = None) -> p.Intent:
    """The intent in user data or in a start script (which may be packed, see carriers.py).

    Raises :class:`payload.Refused` with the words of the machine's log.
    """
    first = text.split("\n", 1)[0].strip()
    if first == "#cloud-config":
        files, commands = _cloud_config(text)
    elif first.startswith("#!"):
        text = unpack(text, environment or {})
        files, commands = _script(text), [text]
    else:
        raise p.Refused(
            "config",
            "cloud-init: Unhandled non-multipart (text/x-not-multipart) userdata: it starts with neither #cloud-config nor #!",
        )
    if _HOME + "node.env" not in files:
        raise p.Refused("config", "cloud-init is done; nothing in it makes this machine a node")
    program, mode = files.get(PROGRAM, ("", 0))
    if not program:
        raise p.Refused("bootstrap", f"{PROGRAM}: No such file or directory")
    if not mode & 0o100:
        raise p.Refused("bootstrap", f"{PROGRAM}: Permission denied")
    if not program.startswith("#!"):
        raise p.Refused("bootstrap", f"{PROGRAM}: Exec format error")
    if not any(_starts_program(command, files) for command in commands):
        raise p.Refused("bootstrap", f"cloud-init is done; nothing starts {PROGRAM}")
    try:
        contents = {path: content for path, (content, _mode) in files.items()}
        return dataclasses.replace(_intent(contents), guard=guard_of(files, commands, _settings(contents[_HOME + "node.env"])))
    except p.Refused as refusal:
        refusal.program = program  # it runs, and says itself why it ends
        raise


def _starts_program(command: str, files: dict[str, tuple[str, int]]) -> bool:
    """Whether a command is the program, or switches on a unit whose file names it."""
    if PROGRAM in command:
        return True
    units = re.findall(r"[\w@.-]+\.service\b|(?<=systemctl )\S+", command)
    return any(PROGRAM in files.get(f"/etc/systemd/system/{unit}", ("", 0))[0] for unit in units if unit.endswith(".service"))


def _cloud_config(text: str) -> tuple[dict[str, tuple[str, int]], list[str]]:
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise p.Refused("config", f"cloud-init: Failed loading yaml blob. Invalid format: {p.yaml_fault(error)}") from error
    if not isinstance(config, dict):
        raise p.Refused(
            "config", f"cloud-init: Failed loading yaml blob. Yaml load allows (dict,) root types, got {type(config).__name__}"
        )
    files: dict[str, tuple[str, int]] = {}
    for entry in config.get("write_files") or []:
        if not isinstance(entry, dict) or not str(entry.get("path", "")).startswith("/"):
            raise p.Refused("config", "cloud-init: write_files: an entry has no absolute path")
        content = _decoded(entry.get("content", ""), str(entry.get("encoding") or ""))
        if entry.get("append") and entry["path"] in files:
            content = files[entry["path"]][0] + content
        mode = str(entry.get("permissions") or "0644")
        files[entry["path"]] = (content, int(mode, 8) if re.fullmatch(r"0?o?[0-7]{3,4}", mode) else 0o644)
    commands = []
    for command in config.get("runcmd") or []:
        if not isinstance(command, (str, list)):
            raise p.Refused("config", "cloud-init: runcmd: a command is neither text nor a list")
        commands.append(command if isinstance(command, str) else shlex.join(map(str, command)))
    return files, commands


def _decoded(content: t.Any, encoding: str) -> str:
    data = content if isinstance(content, bytes) else str(content).encode()
    try:
        if encoding.lower() in ("b64", "base64", "gz+b64", "gzip+b64", "gz+base64", "gzip+base64"):
            data = base64.b64decode(data)
        if encoding.lower().startswith("gz"):
            data = gzip.decompress(data)
        return data.decode()
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise p.Refused("config", f"cloud-init: write_files: content is not {encoding or 'text'}") from error


def _script(text: str) -> dict[str, tuple[str, int]]:
    """Files a script writes with here-documents (plain or through base64 -d), and the modes it gives them."""
    files: dict[str, tuple[str, int]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if found := _HEREDOC.match(line.strip()):
            path, tag = found["path"] or found["path2"], found["tag"] or found["tag2"]
            body = []
            for inner in lines:
                if inner.strip() == tag:
                    break
                body.append(inner)
            content = "\n".join(body) + "\n"
            packed = found["decode"] or found["decode2"]
            files[path] = (_decoded(content, "gz+b64" if packed and content.startswith("H4sI") else "b64" if packed else ""), 0o644)
        elif chmod := re.match(r"^\s*chmod\s+(?:-v\s+)?(\+x|[0-7]{3,4})\s+(.+)$", line):
            for path in shlex.split(chmod[2]):
                if path in files:
                    files[path] = (files[path][0], 0o755 if chmod[1] == "+x" else int(chmod[1], 8))
    return files


def _settings(text: str) -> dict[str, str]:
    """NAME=value lines as a shell would read them."""
    found = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, _value = line.removeprefix("export ").partition("=")
        try:
            words = shlex.split(line.removeprefix("export "), comments=True)
        except ValueError as error:
            raise p.Refused("bootstrap", f"node.env: {error}") from error
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or len(words) != 1:
            raise p.Refused("bootstrap", f"node.env: {name[:40]}: command not found")
        found[name] = words[0].partition("=")[2]
    return found


def _intent(files: dict[str, str]) -> p.Intent:
    settings = _settings(files[_HOME + "node.env"])

    def need(name: str) -> str:
        if name not in settings:
            raise p.Refused("bootstrap", f"node.env: {name}: unbound variable")
        return settings[name]

    name = need("NODE_NAME")
    if not p.NAME.match(name):
        raise p.Refused("bootstrap", f"hostnamectl: invalid host name {name!r}")
    server, ca_pem, token = _kubeconfig(files.get(_HOME + "bootstrap-kubeconfig", ""), files.get(_HOME + "ca.crt", ""))
    if ":7445" in server:  # this machine's own forwarder
        server = f"https://{need('API_SERVER').removeprefix('https://')}"
    labels = dict(pair.partition("=")[::2] for pair in need("NODE_LABELS").split(",") if pair)
    if fault := p.label_fault(labels):
        raise p.Refused("kubelet", f"kubelet: {fault}")
    if forbidden := sorted(label for label in labels if not p.kubelet_may_set(label)):
        raise p.Refused("kubelet", f"kubelet: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: {forbidden}")
    config = _kubelet_config(files.get(_HOME + "kubelet-config.yaml", ""))
    version = need("KUBELET_VERSION")
    wanted = settings.get("GPU_COUNT", "")
    return p.Intent(
        lane="kubelet",
        node_name=name,
        server=server,
        ca_pem=ca_pem,
        token=token,
        kubelet_version=version if version.startswith("v") else f"v{version}",
        mesh=_mesh(settings, files),
        tunnel=_tunnel(settings, files),
        labels=labels,
        labels_at_registration=True,
        taints=p.clean_taints(config.get("registerWithTaints") or []),
        gpus_wanted=int(wanted) if wanted.isdigit() and settings.get("NVIDIA", "1") not in ("0", "") else None,
        program=files[PROGRAM],
        steps=tuple(STEPS.findall(files[PROGRAM])),
        csr_seconds=float(settings["CSR_TIMEOUT"]) if settings.get("CSR_TIMEOUT", "").isdigit() else 600.0,
    )


def _mesh(settings: dict[str, str], files: dict[str, str]) -> p.Mesh | None:
    backend = settings.get("MESH_BACKEND", "tailscale")
    if backend in ("none", "wireguard"):
        return None
    if backend != "tailscale":
        raise p.Refused("mesh", f"the mesh {backend!r} is not known to this machine")
    try:
        flags = p.up_flags(settings.get("MESH_EXTRA_ARGS", "").split())
    except ValueError as error:
        raise p.Refused("mesh", f"tailscale up: {error}") from error
    if (server := settings.get("MESH_LOGIN_SERVER")) and "$MESH_LOGIN_SERVER" in files[PROGRAM]:
        flags["login_server"] = server
    key = files.get(_HOME + "authkey", "").strip()
    if not key:
        raise p.Refused("mesh", "tailscale ip -4: not logged in: there is no key file")
    return p.Mesh(key, settings.get("MESH_HOSTNAME") or settings["NODE_NAME"], **flags)


def _tunnel(settings: dict[str, str], files: dict[str, str]) -> Tunnel | None:
    if settings.get("MESH_BACKEND") != "wireguard":
        return None
    if "wg-quick@" not in files[PROGRAM]:
        raise p.Refused("mesh", "nothing starts wg-quick: this program knows no WireGuard")
    interface, address = settings.get("MESH_INTERFACE", ""), settings.get("MESH_ADDRESS", "")
    text = files.get(f"/etc/wireguard/{interface}.conf")
    if text is None:
        raise p.Refused("mesh", f"/etc/wireguard/{interface}.conf is missing: no key, so no tunnel")
    made = tunnel_of(text, interface, address)
    if made is None or made.hub_key != settings.get("MESH_HUB_KEY"):
        raise p.Refused(
            "mesh", f"no handshake with the hub at {settings.get('MESH_ENDPOINT')}: {interface}.conf has no such hub or address"
        )
    try:
        public_key(made.private_key)
    except ValueError as error:
        raise p.Refused("mesh", f"the tunnel {interface} does not come up: {error}") from error
    return made


def _kubeconfig(text: str, ca_file: str) -> tuple[str, str, str]:
    """Server, CA (PEM) and token of the bootstrap kubeconfig."""
    if not text:
        raise p.Refused("kubelet", "neither a client certificate nor a bootstrap token is here")
    try:
        content = yaml.safe_load(text)
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        packed = cluster.get("certificate-authority-data")
        ca_pem = base64.b64decode(packed).decode() if packed else ca_file if cluster.get("certificate-authority") else ""
        return str(cluster["server"]), ca_pem, str(user["token"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError) as error:
        raise p.Refused("kubelet", f"kubelet: unable to load bootstrap kubeconfig: {type(error).__name__}") from error


def _kubelet_config(text: str) -> dict[str, t.Any]:
    try:
        config = yaml.safe_load(text) if text else None
    except yaml.YAMLError as error:
        raise p.Refused("kubelet", f"kubelet: failed to load kubelet config file: {p.yaml_fault(error)}") from error
    if not isinstance(config, dict) or config.get("kind") != "KubeletConfiguration":
        raise p.Refused("kubelet", "kubelet: failed to load kubelet config file: no KubeletConfiguration")
    if fault := p.taint_fault(config.get("registerWithTaints") or []):
        raise p.Refused("kubelet", f"kubelet: failed to load kubelet config file: {fault}")
    return config
