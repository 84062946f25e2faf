# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing secret may stand in a schematic: whoever knows its id can read it, and it lies in every image made of it."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ...core.errors import InvalidInput
from ...core.redact import redact
from ..images.schematic import Schematic

_TOKEN = re.compile(r"(?<![a-z0-9])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9])")
_PEM = re.compile(r"-----BEGIN|LS0tLS1CRUdJTi")  # a PEM block, plain or in base64
_WORDS = re.compile(r"(?i)(?:^|[^a-z])(?:ts_)?(?:auth_?key|api_?key|password|passwd|secret|token)=[^$&\s]")
_INLINE = ("talos.config.inline", "talos.config.early")
_REMEDY = "Hand secrets to the node in its machine configuration, which is not part of the image."


def refuse_secrets(schematic: Schematic) -> None:
    """InvalidInput that names the places, never the values."""
    customization = schematic.get("customization")
    problems = []
    if isinstance(customization, t.Mapping) and customization.get("embeddedMachineConfiguration"):
        problems.append("customization.embeddedMachineConfiguration: a machine configuration holds the secrets of the cluster.")
    for path, text in _texts(schematic, ""):
        why = _why(text) if not path.startswith("customization.embeddedMachineConfiguration") else ""
        if why:
            problems.append(f"{path}: {why}")
    if problems:
        raise InvalidInput("A schematic is public, and this one holds what must stay secret.", problems=problems, remedy=_REMEDY)


def _why(text: str) -> str:
    name, equals, value = text.partition("=")
    if equals and name in _INLINE:
        return f"{name} carries a machine configuration, which holds the secrets of the cluster."
    if _PEM.search(text):
        return "there is a certificate or a key in it."
    if _TOKEN.search(text):
        return "there is something of the form of a bootstrap or trustd token in it."
    if redact(text) != text:
        return "there is a known secret in it."
    if _WORDS.search(text):
        return "there is a password, key or token in it."
    address = urlsplit(value) if equals and value.startswith(("http://", "https://")) else None
    if address is not None and address.password:
        return "there is a password in its address."
    return ""


def _texts(value: t.Any, path: str) -> t.Iterator[tuple[str, str]]:
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _texts(item, f"{path}[{number}]")
    elif isinstance(value, str):
        yield path, value
