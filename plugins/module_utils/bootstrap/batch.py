# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations for many nodes in one call: what the module ``talos_config`` does."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import typing as t

from ..core.errors import InvalidInput
from ..core.redact import redact, register
from ..core.task import Task
from ..model import Lane, MeshChoice, Taint
from ..model.mesh import Tunnel
from ..talos import talosctl
from ..talos.config import build
from ..talos.images.nvidia import image_of, schematic_problems
from ..talos.secrets import ClusterSecrets, read
from ..talos.spec import DEFAULT_KUBERNETES, DEFAULT_TALOS, NodeSpec
from ..talos.template import items_at, parse
from ..talos.validation.validate import ValidationResult, placeholder, template_result
from .kubelet.cloud_config import AUTH_KEY
from .payload import Payload, boot_mode, payload
from .talos.configurations import secrets_of

_TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
_PLAIN = ("name", "pool", "index", "cloud", "instance_type", "region", "gpu_count", "model", "install_disk")


def configure(task: Task) -> dict[str, t.Any]:
    """Render, check and, where wanted, write or return the configurations of all nodes. Every fault of every node in one error."""
    params = task.params
    template = _template(params)
    if params["state"] == "validated":
        return _validated(task, template)
    secrets = read(params["talos_secrets"])
    if len(params["nodes"]) > 1 and (params["mesh"] or {}).get("wireguard"):
        raise InvalidInput(
            f"mesh.wireguard is one node's end of a tunnel, and {len(params['nodes'])} nodes are listed: with one key and address for all, "
            "the hub would hear the last of them only.",
            remedy="Call the module once for each node.",
        )
    made: list[tuple[NodeSpec, Payload]] = []
    names = [node["name"] for node in params["nodes"]]
    problems = [f"{name} is listed twice." for name in sorted({name for name in names if names.count(name) > 1})]
    for node in params["nodes"]:
        try:
            spec = _spec(params, node, secrets)
            made.append((spec, payload(spec, template)))
        except InvalidInput as error:
            problems += [f"{node['name']}: {problem}" for problem in error.problems or (str(error),)]
    if problems:
        raise InvalidInput("No configuration was made.", problems=problems)
    _second_opinion(task, next((spec for spec, _one in made if spec.lane is Lane.TALOS), None), template)
    for spec, rendered in made:
        for warning in rendered.warnings:
            task.warn(f"{spec.name}: {warning}")
    return _result(task, made)


def _template(params: t.Mapping[str, t.Any]) -> str | None:
    path = params["template_file"]
    if not path:
        return t.cast("str | None", params["template"])
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"The template file {path} cannot be read: {reason}.") from None


def _validated(task: Task, template: str | None) -> dict[str, t.Any]:
    """Try the template out with placeholders, and with each node's own facts where nodes are given."""
    params = task.params
    results: list[ValidationResult] = []
    if template is not None or not params["nodes"]:
        results.append(template_result(template, params["talos_image"] or "", params["talos_version"] or "", **_tried(params)))
    problems = [problem for result in results for problem in result.errors]
    if params["schematic"] is not None:
        version, tailscale = params["talos_version"] or DEFAULT_TALOS, (params["mesh"] or {}).get("backend") in (None, "tailscale")
        problems += schematic_problems(params["schematic"], params["talos_image"] or "", version, tailscale=tailscale)
    for node in params["nodes"] if not problems else ():
        own = {"secrets": read(params["talos_secrets"])} if params["talos_secrets"] else {}
        stand_in = placeholder(params["talos_version"] or DEFAULT_TALOS, **own, **_mesh_tried(params))
        try:
            payload(_spec(params, node, stand_in.secrets, stand_in), template)
        except InvalidInput as error:
            problems += [f"{node['name']}: {problem}" for problem in error.problems or (str(error),)]
    if problems:
        raise InvalidInput("The machine config template cannot be used.", problems=problems)
    if template is not None or not params["nodes"]:
        _second_opinion(task, None, template)
    warnings = [warning for result in results for warning in result.warnings]
    for warning in warnings:
        task.warn(warning)
    return {"changed": False, "configs": []}


def _second_opinion(task: Task, spec: NodeSpec | None, template: str | None) -> None:
    """Let talosctl, where there is one, look at one configuration: that of ``spec``, else one of placeholders where only a template is
    tried out. What differs between nodes are names, keys and the GPU, which it does not judge."""
    params = task.params
    if spec is None and params["state"] != "validated":
        return
    version = spec.talos_version if spec is not None else params["talos_version"] or DEFAULT_TALOS
    program = talosctl.find(params["talosctl"])
    why_not = talosctl.unfit(program, version) if program else ""
    if why_not and params["talosctl"]:
        raise InvalidInput(f"talosctl cannot be asked: {why_not}")
    if program is None or why_not:
        return
    if spec is None:
        spec = placeholder(version, **_tried(params))
    documents = build(spec, template)
    problems = talosctl.validate(program, documents, boot_mode(documents))
    if problems:
        raise InvalidInput("talosctl would not take this configuration.", problems=problems)


def _tried(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What a placeholder has of the options."""
    return {"patches": tuple(params["patches"]), "registry_mirrors": _mirrors(params["registry_mirrors"]), **_mesh_tried(params)}


def _mesh_tried(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    if (params["mesh"] or {}).get("backend") != "wireguard":
        return {}
    tunnel = _tunnel(params["mesh"])
    return {"mesh": MeshChoice(backend="wireguard"), **({"tunnel": tunnel} if tunnel else {})}


def _tunnel(mesh: t.Mapping[str, t.Any]) -> Tunnel | None:
    """The tunnel of option ``mesh``; the network of its address is what goes through it, unless more is named."""
    given = mesh.get("wireguard")
    if not given:
        return None
    try:
        network = str(ipaddress.ip_interface(given["address"]).network)
    except ValueError:
        raise InvalidInput(
            f"mesh.wireguard.address: {given['address']!r} is not an address with a prefix length, like 10.77.0.11/24."
        ) from None
    return Tunnel(
        private_key=given["private_key"],
        address=given["address"],
        hub_key=given["hub_public_key"],
        endpoint=given["endpoint"],
        hub_address=given["hub_address"],
        allowed=tuple(given.get("allowed_ips") or (network,)),
        interface=given["interface"],
        mtu=given["mtu"],
        keepalive=given["keepalive"],
    )


def _spec(
    params: t.Mapping[str, t.Any], node: t.Mapping[str, t.Any], secrets: ClusterSecrets, stand_in: NodeSpec | None = None
) -> NodeSpec:
    """The spec of one entry of ``nodes``. ``stand_in`` lends its secrets where none are given (validation only)."""
    mesh = params["mesh"] or {}
    image = image_of(params["schematic"], params["talos_image"] or "", params["talos_version"] or DEFAULT_TALOS)
    facts: dict[str, t.Any] = {key: node[key] for key in _PLAIN if node.get(key) is not None}
    own: dict[str, t.Any] = {
        key: node.get(key) or (getattr(stand_in, key) if stand_in else "") for key in ("bootstrap_token", "auth_key")
    }
    endpoint = params["control_plane_endpoint"] or secrets.endpoint or (stand_in.endpoint if stand_in else "")
    return NodeSpec(
        **facts,
        **own,
        secrets=secrets,
        lane=Lane(node["lane"]),
        labels=_texts(node.get("labels")),
        annotations=_texts(node.get("annotations")),
        taints=_taints(node.get("taints")),
        startup_taints=_taints(node.get("startup_taints")),
        ephemeral_taint=params["ephemeral_taint"],
        endpoint=endpoint,
        cluster_name=params["cluster_name"] or secrets.cluster_name or "talos",
        mesh=MeshChoice(
            backend=mesh.get("backend") or "tailscale",
            accept_routes=bool(mesh.get("accept_routes")),
            advertise_routes=tuple(mesh.get("advertise_routes") or ()),
        ),
        login_server=params["mesh_login_server"] or "",
        tunnel=_tunnel(mesh) or (stand_in.tunnel if stand_in else None),
        kubernetes_version=params["kubernetes_version"] or DEFAULT_KUBERNETES,
        talos_version=image.release(params["talos_version"] or DEFAULT_TALOS),
        installer_image=image.installer,
        extensions=image.extensions,
        registry_mirrors=_mirrors(params["registry_mirrors"]),
        patches=(*params["patches"], *(node.get("patches") or ())),
        cni=params["cni"],
        flannel_cni_url=params["flannel_cni_url"] or "",
        flannel_cni_sha256=params["flannel_cni_sha256"] or "",
        driver_branch=params["driver_branch"],
    )


def _texts(given: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    return {str(key): str(value) for key, value in (given or {}).items()}


def _mirrors(given: t.Mapping[str, t.Any]) -> dict[str, tuple[str, ...]]:
    return {str(registry): tuple(map(str, urls)) if isinstance(urls, list) else (str(urls),) for registry, urls in given.items()}


def _taints(given: t.Sequence[t.Mapping[str, str]] | None) -> tuple[Taint, ...]:
    return tuple(Taint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in given or ())


def _result(task: Task, made: t.Sequence[tuple[NodeSpec, Payload]]) -> dict[str, t.Any]:
    dest = task.params["dest"]
    if dest and not os.path.isdir(dest) and not task.check_mode:
        try:
            os.makedirs(dest, mode=0o700)
        except OSError as error:
            raise InvalidInput(f"The folder {dest} cannot be made: {error.strerror}.") from None
    configs, diffs, changed = [], [], False
    for spec, rendered in made:
        entry: dict[str, t.Any] = {
            "name": spec.name,
            "lane": spec.lane.value,
            "carrier": rendered.carrier,
            "bytes": len(rendered.text.encode()),
            "sha256": hashlib.sha256(rendered.text.encode()).hexdigest(),
            "warnings": list(rendered.warnings),
        }
        if dest:
            path = os.path.join(dest, spec.name + (".yaml" if rendered.carrier == "machine-config" else ".cloud-init"))
            entry["path"] = path
            before = _write(path, rendered.text, task.check_mode)
            if before != rendered.text:
                changed = True
                texts = {"before": _shown(before or ""), "after": _shown(rendered.text)}
                diffs.append({"before_header": path, "after_header": path, **texts})
        if task.params["reveal"]:
            entry["content"] = base64.b64encode(rendered.text.encode()).decode()
        configs.append(entry)
    result: dict[str, t.Any] = {"changed": changed, "configs": configs}
    if task.params["reveal"]:
        result["_reveal"] = ["configs"]
    if task.diff_mode and diffs:
        result["diff"] = diffs
    return result


def _shown(text: str) -> str:
    """What people may see of a configuration, whoever made it: secrets of an earlier call are known to nobody any more."""
    try:
        documents = parse(text, "The file")
    except InvalidInput:
        return f"{len(text.encode())} bytes that are no configuration\n"
    files = (file for document in documents for file in items_at(document, "write_files") if isinstance(file, dict))
    keys = (str(file.get("content", "")).strip() for file in files if file.get("path") == AUTH_KEY)
    register(*_TOKEN.findall(text), *secrets_of(documents), *keys)
    return redact(text)


def _write(path: str, text: str, check_mode: bool) -> str | None:
    """Put ``text`` there, readable by its owner alone; returns what stood there (None = nothing, or readable by others)."""
    try:
        with open(path, encoding="utf-8") as file:
            before: str | None = file.read()
            if os.fstat(file.fileno()).st_mode & 0o077:
                before = None
    except FileNotFoundError:
        before = None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    if before != text and not check_mode:
        temporary = f"{path}.{os.getpid()}.new"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None
    return before
