# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Image Factory: schematics and their real ids, versions, official extensions.

Images themselves are not made here (503), and schematics with strings whose quoting is not certain are refused (400) where the
real factory would take them.
"""

from __future__ import annotations

import hashlib
import re
import typing as t

import flask
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.schematic import canonical

from .world import World

# Talos version -> LTS driver, production driver, container toolkit, tailscale
_SHIPPED = {
    "v1.10.9": ("535.247.01", "570.148.08", "v1.17.8", "1.84.0"),
    "v1.11.6": ("535.247.01", "570.172.08", "v1.17.8", "1.88.1"),
    "v1.12.11": ("580.126.20", "570.211.01", "v1.18.2", "1.94.2"),
    "v1.13.9": ("580.178.04", "595.91.07", "v1.19.1", "1.102.2"),
    "v1.14.0-rc.1": ("580.178.04", "595.91.07", "v1.19.1", "1.102.2"),
}
_ID = re.compile(r"[0-9a-f]{64}")


def app(world: World) -> flask.Flask:
    """The factory as a WSGI application. It has no account and no secret, like the public one."""
    factory = flask.Flask("image-factory")
    schematics: dict[str, str] = {hashlib.sha256(b"customization: {}\n").hexdigest(): "customization: {}\n"}

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
            text = canonical(given)
        except (yaml.YAMLError, InvalidInput, TypeError, KeyError, ValueError, AttributeError) as error:
            return plain(f"error creating schematic: {error}", 400)
        number = hashlib.sha256(text.encode()).hexdigest()
        with world.lock:
            schematics[number] = text
        return flask.jsonify({"id": number, "schematic": text}), 201

    @factory.get("/schematics/<number>")
    def show(number: str) -> flask.Response:
        with world.lock:
            text = schematics.get(number)
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

    @factory.get("/image/<number>/<version>/<path:name>")
    def image(number: str, version: str, name: str) -> flask.Response:
        with world.lock:
            known = number in schematics
        if not _ID.fullmatch(number) or not known:
            return plain(f"schematic {number!r} not found", 404)
        return unavailable(version) or plain("the sandbox describes images and does not make them", 503)

    return factory


def _tags(version: str) -> dict[str, str]:
    """Official extensions of a Talos version, those that matter to GPU nodes, and their versions."""
    lts, production, toolkit, tailscale = _SHIPPED[version]
    found = {"tailscale": tailscale}
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
