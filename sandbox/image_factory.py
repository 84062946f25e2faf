# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Image Factory: schematics and their real ids, versions, official extensions and overlays, iPXE scripts.

Of images, those for Vultr and Google Cloud are there, a mebibyte each (image_files.py); others are not made (503). Schematics with text of
several lines are refused (400) where the real factory would take them.
"""

from __future__ import annotations

import hashlib
import io
import re
import typing as t

import flask
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.schematic import canonical_text

from . import image_files
from .world import World
from .wsgi import Service

# Talos version -> LTS driver, production driver, container toolkit, tailscale
_SHIPPED = {
    "v1.10.9": ("535.247.01", "570.148.08", "v1.17.8", "1.84.0"),
    "v1.11.6": ("535.247.01", "570.172.08", "v1.17.8", "1.88.1"),
    "v1.12.11": ("580.126.20", "570.211.01", "v1.18.2", "1.94.2"),
    "v1.13.9": ("580.178.04", "595.91.07", "v1.19.1", "1.102.2"),
    "v1.14.0-rc.1": ("580.178.04", "595.91.07", "v1.19.1", "1.102.2"),
}
# what is in every release, whatever its version: enough to be mistaken about
_OTHERS = {
    "amdgpu": "20260410", "amd-ucode": "20260410", "intel-ucode": "20260227", "gvisor": "20260406.0", "iscsi-tools": "v0.2.0",
    "qemu-guest-agent": "10.2.2", "util-linux-tools": "2.41.2", "netbird": "0.60.2", "zerotier": "1.16.0", "nfs-utils": "2.8.4",
}  # fmt: skip
_OVERLAYS = (("rpi_generic", "siderolabs/sbc-raspberrypi"), ("jetson_orin_nano", "siderolabs/sbc-jetson"))
_READS_AS_OTHER = re.compile(
    r"|~|(?i:true|false|yes|no|on|off|y|n|null)|[-+]?[0-9][0-9_]*|0x[0-9A-Fa-f_]+|0o?[0-7_]+|0b[01_]+|<<"
    r"|[-+]?(\.[0-9]|[0-9])[0-9_]*\.?[0-9_]*([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?i:inf|nan)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?|[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"
)
_ID = re.compile(r"[0-9a-f]{64}")


def app(world: World) -> flask.Flask:
    """The factory as a WSGI application. It has no account and no secret, like the public one."""
    factory = Service("image-factory")
    known: dict[str, str] = {hashlib.sha256(b"customization: {}\n").hexdigest(): "customization: {}\n"}

    def plain(text: str, status: int = 200) -> flask.Response:
        return flask.Response(text, status, mimetype="text/plain")

    def unavailable(version: str) -> flask.Response | None:
        if not re.fullmatch(r"v\d+\.\d+\.\d+(-[a-z]+\.\d+)?", version):
            return plain(f"error parsing version {version!r}", 500)
        return None if version in _SHIPPED else plain(f"version {version!r} is not available", 404)

    @factory.get("/healthz")
    def healthy() -> flask.Response:
        return plain("")

    @factory.post("/schematics")
    def create() -> tuple[flask.Response, int] | flask.Response:
        try:
            given: t.Any = yaml.safe_load(flask.request.get_data(as_text=True)) or {}
            if not isinstance(given, dict):
                return plain("yaml: unmarshal errors: the schematic is no mapping", 400)
            text = canonical_text(given, written)
        except (yaml.YAMLError, InvalidInput, TypeError, KeyError, ValueError, AttributeError) as error:
            return plain(f"error creating schematic: {error}", 400)
        number = hashlib.sha256(text.encode()).hexdigest()
        with world.lock:
            known[number] = text
        return flask.jsonify({"id": number, "schematic": text}), 201

    @factory.get("/schematics/<number>")
    def show(number: str) -> flask.Response:
        with world.lock:
            text = known.get(number)
        if text is None:
            return plain(f"schematic {number!r} not found", 404)
        return flask.Response(text, mimetype="application/yaml")

    @factory.get("/versions")
    def versions() -> flask.Response:
        return flask.jsonify(list(_SHIPPED))

    @factory.get("/version/<version>/extensions/official")
    def extensions(version: str) -> flask.Response:
        problem = unavailable(version)
        return problem or flask.jsonify([_extension(name, tag) for name, tag in sorted(_tags(version).items())])

    @factory.get("/version/<version>/overlays/official")
    def overlays(version: str) -> flask.Response:
        return unavailable(version) or flask.jsonify([_overlay(name, image) for name, image in _OVERLAYS])

    def image_problem(number: str, version: str) -> flask.Response | None:
        with world.lock:
            text = known.get(number)
        if text is None or not _ID.fullmatch(number):
            return plain(f"schematic {number!r} not found", 404)
        problem = unavailable(version)
        if problem is not None:
            return problem
        customization = (yaml.safe_load(text) or {}).get("customization") or {}
        names = (customization.get("systemExtensions") or {}).get("officialExtensions") or []
        official = {f"siderolabs/{name}" for name in _tags(version)}
        # the factory looks at names when an image is asked for, not before
        wrong = [name for name in names if name not in official]
        return plain(f"official extension {wrong[0]!r} is not available for Talos version {version}", 400) if wrong else None

    @factory.get("/image/<number>/<version>/<path:name>")
    def image(number: str, version: str, name: str) -> t.Any:
        """The factory leads to its store; HEAD is answered the same way."""
        problem = image_problem(number, version)
        if problem is not None:
            return problem
        if not image_files.NAMES.fullmatch(name):
            return plain("the sandbox makes disk images of Vultr and Google Cloud only", 503)
        return flask.redirect(f"{flask.request.host_url}store/{number}/{version}/{name}?signature={'5a' * 16}", 302)

    @factory.get("/store/<number>/<version>/<name>")
    def stored(number: str, version: str, name: str) -> t.Any:
        """An address that is signed for GET: HEAD is refused. Parts may be asked for."""
        if flask.request.args.get("signature") != "5a" * 16 or flask.request.method != "GET":
            return flask.Response("<Error><Code>SignatureDoesNotMatch</Code></Error>", 403, mimetype="application/xml")
        return flask.send_file(
            io.BytesIO(image_files.content(number, version, name)),
            mimetype="application/octet-stream",
            conditional=True,
            etag=hashlib.sha256(f"{number}{version}{name}".encode()).hexdigest(),
        )

    @factory.get("/pxe/<number>/<version>/<name>")
    def script(number: str, version: str, name: str) -> flask.Response:
        problem = image_problem(number, version)
        match = re.fullmatch(r"([a-z-]+?)-(amd64|arm64)(-secureboot)?", name)
        if problem is not None or match is None:
            return problem or plain(f"invalid path {name!r}", 400)
        below = f"{flask.request.host_url}image/{number}/{version}"
        if match[3]:  # the command line is inside the signed image
            return plain(f"#!ipxe\n\nkernel {below}/{name}.uki.efi\nboot\n")
        with world.lock:
            own = ((yaml.safe_load(known[number]) or {}).get("customization") or {}).get("extraKernelArgs") or []
        line = " ".join([f"talos.platform={match[1]} console=tty0 init_on_alloc=1 slab_nomerge= pti=on", *own])
        return plain(f"#!ipxe\n\nkernel {below}/kernel-{match[2]} {line}\ninitrd {below}/initramfs-{match[2]}.xz\nboot\n")

    return factory


def written(value: t.Any) -> str:
    """A string as the factory's YAML library writes it: quoted only where it would read as something else."""
    if not isinstance(value, str):
        raise TypeError(f"cannot unmarshal {value!r} into string")
    if any(ord(character) < 32 or ord(character) > 126 for character in value):
        raise ValueError("the sandbox writes printable text of one line only")
    if _READS_AS_OTHER.fullmatch(value):
        return f'"{value}"'
    syntax = value[0] in "*&!%@`[]{},|>'\"#" or value.startswith(("- ", "? ", ": ", "---", "...")) or value in ("-", "?", ":")
    inside = ": " in value or " #" in value or value.endswith(":") or value != value.strip(" ")
    return "'" + value.replace("'", "''") + "'" if syntax or inside else value


def _tags(version: str) -> dict[str, str]:
    """Official extensions of a Talos version, those that matter to GPU nodes, and their versions."""
    lts, production, toolkit, tailscale = _SHIPPED[version]
    found = {**_OTHERS, "tailscale": tailscale, "nvidia-gdrdrv-device": f"v2.5.1-{version}"}
    for track, driver in (("lts", lts), ("production", production)):
        found[f"nvidia-open-gpu-kernel-modules-{track}"] = f"{driver}-{version}"
        found[f"nonfree-kmod-nvidia-{track}"] = f"{driver}-{version}"
        found[f"nvidia-container-toolkit-{track}"] = f"{driver}-{toolkit}"
        found[f"nvidia-fabricmanager-{track}"] = driver
    return found


def _extension(name: str, version: str) -> dict[str, str]:
    reference = f"ghcr.io/siderolabs/{name}:{version}"
    digest = "sha256:" + hashlib.sha256(reference.encode()).hexdigest()
    return {"name": f"siderolabs/{name}", "ref": reference, "digest": digest, "author": "sandbox", "description": name}


def _overlay(name: str, image: str) -> dict[str, str]:
    reference = f"ghcr.io/{image}:v0.2.0"
    return {"name": name, "image": image, "ref": reference, "digest": "sha256:" + hashlib.sha256(reference.encode()).hexdigest()}
