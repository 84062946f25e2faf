# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Image Factory of Talos. It has no account."""

from __future__ import annotations

import hashlib
import re

from .fact import Basis, Fact, Group, Question, Replies, Table, Verdict, not_seen, texts, values, verdict

_DOCS = "the API document of the Image Factory 1.5.0"
_EMPTY = "customization: {}\n"
_EMPTY_ID = hashlib.sha256(_EMPTY.encode()).hexdigest()
_VERSION = re.compile(r"v\d+\.\d+\.\d+(-[a-z]+\.\d+)?")
_REFERENCE = re.compile(r"[a-z0-9.-]+(/[a-z0-9._-]+)+:[A-Za-z0-9._-]+(@sha256:[0-9a-f]{64})?")


def _newest(replies: Replies) -> str:
    """The newest release that is not a pre-release."""
    body = replies["versions"].json if "versions" in replies else None
    listed = body if isinstance(body, list) else []
    versions = [one for one in listed if isinstance(one, str) and re.fullmatch(r"v\d+\.\d+\.\d+", one)]
    return max(versions, key=lambda one: [int(part) for part in one[1:].split(".")], default="")


def _official(what: str, replies: Replies) -> str:
    version = _newest(replies)
    return f"/version/{version}/{what}/official" if version else ""


QUESTIONS = (
    Question("versions", "GET", "/versions"),
    Question("extensions", "GET", lambda replies: _official("extensions", replies)),
    Question("overlays", "GET", lambda replies: _official("overlays", replies)),
    Question("schematic", "GET", f"/schematics/{_EMPTY_ID}"),
    Question("unknown_schematic", "GET", f"/schematics/{'0' * 64}"),
    Question("unknown_version", "GET", "/version/v0.0.1/extensions/official"),
    Question("odd_version", "GET", "/version/none/extensions/official", also=(500,)),
)
_catalogue = Group(
    "image_factory",
    _DOCS,
    consequence="Extensions of a release cannot be checked, so templates are refused or images are not found.",
)
_schematics = Group(
    "image_factory", _DOCS, Basis.RECORDED, "Ids of schematics that are computed here name no image of the factory."
)
_errors = Group(
    "image_factory", _DOCS, consequence="A release that the factory does not have is taken for an outage, or the reverse."
)


def _texts(replies: Replies) -> Verdict:
    body = replies["versions"].json
    if not isinstance(body, list):
        return not_seen("it is not a list")
    odd = [one for one in body if not (isinstance(one, str) and _VERSION.fullmatch(one))]
    return verdict(bool(body) and not odd, f"{len(body)} versions, {len(odd)} of another form")


def _tailscale(replies: Replies) -> Verdict:
    names = texts(replies["extensions"].json, "*.name")
    return not_seen("no names") if not names else verdict("siderolabs/tailscale" in names, f"{len(names)} extensions")


def _drivers(replies: Replies) -> Verdict:
    names = {one for one in values(replies["extensions"].json, "*.name") if isinstance(one, str)}
    if not names:
        return not_seen("no names")
    wanted = [f"siderolabs/nvidia-open-gpu-kernel-modules-{track}" for track in ("lts", "production")]
    return verdict(all(one in names for one in wanted), f"{sum(one in names for one in wanted)} of {len(wanted)} tracks")


def _text_has_its_id(replies: Replies) -> Verdict:
    reply = replies["schematic"]
    if reply.status != 200:
        return not_seen(f"HTTP {reply.status}")
    same = hashlib.sha256(reply.text.encode()).hexdigest() == _EMPTY_ID
    return verdict(same, "the SHA-256 of its text" if same else "another SHA-256")


FACTS: tuple[Fact, ...] = (
    _catalogue.status("versions", "GET /versions", 200),
    *_catalogue.fields("versions", "GET /versions", [("", list)]),
    _catalogue.fact("versions.form", "A version is written v1.13.9", "text like v1.13.9", ("versions",), _texts),
    _catalogue.status("extensions", "GET /version/{version}/extensions/official", 200),
    *_catalogue.fields(
        "extensions",
        "GET /version/{version}/extensions/official",
        [("", list), ("*", dict), ("*.name", str), ("*.ref", _REFERENCE), ("*.digest", str)],
    ),
    _catalogue.fact(
        "extensions.tailscale",
        "The newest release has the extension siderolabs/tailscale",
        "it is listed",
        ("extensions",),
        _tailscale,
    ),
    _catalogue.fact(
        "extensions.nvidia",
        "The newest release has NVIDIA's open kernel modules in two tracks",
        "lts and production",
        ("extensions",),
        _drivers,
    ),
    _catalogue.status("overlays", "GET /version/{version}/overlays/official", 200),
    *_catalogue.fields(
        "overlays",
        "GET /version/{version}/overlays/official",
        [("", list), ("*", dict), ("*.name", str), ("*.image", str), ("*.ref", str)],
    ),
    _schematics.status("schematic", "GET /schematics/{id} of the empty schematic", 200),
    _schematics.fact(
        "schematic.id",
        "The id of a schematic is the SHA-256 of its text",
        "the id of the empty schematic",
        ("schematic",),
        _text_has_its_id,
    ),
    _errors.status("unknown_schematic", "A look at an unknown schematic", 404),
    _errors.status("unknown_version", "A look at a release that does not exist", 404),
    _errors.status("odd_version", "A look at a version that cannot be read", 500),
)
TABLE = Table("image_factory", QUESTIONS, FACTS)
