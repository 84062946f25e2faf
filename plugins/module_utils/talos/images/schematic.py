# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ids of Image Factory schematics, computed without the factory.

The id is the SHA-256 of the schematic as the factory writes it: fields in a fixed order, empty ones left out, four blanks per
level. That is exact for plain strings; where the factory's YAML library would quote, the id must be asked for instead.
"""

from __future__ import annotations

import hashlib
import re
import typing as t

from ...core.errors import InvalidInput

Schematic = t.Mapping[str, t.Any]
Write = t.Callable[[t.Any], str]

# (field, its inner order) in the factory's own order; None = a value or a list of values
_OVERLAY = ("image", "name", "options")
_CUSTOMIZATION = (
    "embeddedMachineConfiguration", "extraKernelArgs", "meta", "systemExtensions", "bootloader", "secureboot", "diskImage",
)  # fmt: skip
BOOTLOADERS = ("auto", "sd-boot", "dual-boot", "grub")
_PLAIN = re.compile(r"(?!---)(?=.*[/=])[A-Za-z0-9/-][A-Za-z0-9/_.,=${}&?:+-]*(?<!:)")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,}")
_TYPED = frozenset({"true", "false", "yes", "null", "off"})


def plain_only(value: t.Any) -> str:
    """``value`` if the factory writes it without quotes; else InvalidInput with the detail ``uncertain``."""
    if not isinstance(value, str) or not (_PLAIN.fullmatch(value) or (_WORD.fullmatch(value) and value.lower() not in _TYPED)):
        raise InvalidInput(
            f"The schematic has the value {value!r}, whose quoting is not certain; ask the factory for its id.", uncertain=True
        )
    return value


def canonical_text(schematic: Schematic, write: Write | None = None) -> str:
    """The text that is hashed. ``write`` writes one string.

    InvalidInput for unknown fields, and for strings that ``write`` does not take. Without it all has to be certain: the quoting of strings,
    and the order of options.
    """
    text = write or plain_only
    _known(schematic, ("owner", "overlay", "customization"), "")
    lines: list[str] = []
    if schematic.get("owner"):
        lines.append(f"owner: {text(schematic['owner'])}")
    overlay = schematic.get("overlay") or {}
    _known(overlay, _OVERLAY, "overlay.")
    lacking = [key for key in ("image", "name") if overlay and not overlay.get(key)]
    if lacking:
        raise InvalidInput(f"The schematic's overlay has no {lacking[0]}: an overlay is named by its image and its name in it.")
    inner = [f"    {key}: {text(overlay[key])}" for key in ("image", "name") if overlay]
    options = overlay.get("options") or {}
    if write is None and len(options) > 1 and not all(str(key).isalpha() for key in options):
        raise InvalidInput(
            "The schematic's overlay has options whose order is not certain, because the factory counts in names with digits and signs; ask "
            "it for the id.",
            uncertain=True,
        )
    if options:
        inner += ["    options:", *(f"        {text(key)}: {_scalar(options[key], text)}" for key in sorted(options))]
    lines += ["overlay:", *inner] if inner else []
    body = _customization(schematic.get("customization") or {}, text)
    lines += ["customization:", *body] if body else ["customization: {}"]
    return "\n".join(lines) + "\n"


def schematic_id(schematic: Schematic) -> str:
    """64 hex digits. Sort extensions before: their order counts."""
    return hashlib.sha256(canonical_text(schematic).encode()).hexdigest()


def gpu_schematic(extensions: t.Iterable[str], kernel_args: t.Iterable[str] = ()) -> dict[str, t.Any]:
    """A schematic with these official extensions (sorted, once each) and kernel arguments (in their order)."""
    customization: dict[str, t.Any] = {}
    arguments = list(kernel_args)
    if arguments:
        customization["extraKernelArgs"] = arguments
    names = sorted(set(extensions))
    if names:
        customization["systemExtensions"] = {"officialExtensions": names}
    return {"customization": customization}


def _customization(given: t.Mapping[str, t.Any], text: Write) -> list[str]:
    _known(given, _CUSTOMIZATION, "customization.")
    if given.get("embeddedMachineConfiguration"):
        raise InvalidInput(
            "The id of a schematic with an embedded machine configuration is not computed here; ask the factory for it.",
            remedy="Only a factory of your own may ever see such a schematic: it contains the cluster's secrets.",
        )
    lines: list[str] = []
    arguments = _items(given, "extraKernelArgs")
    if arguments:
        lines += ["    extraKernelArgs:", *(f"        - {text(item)}" for item in arguments)]
    meta = _items(given, "meta")
    if meta:
        lines.append("    meta:")
    for item in meta:
        if not isinstance(item, t.Mapping) or set(item) != {"key", "value"} or item["key"] not in range(256):
            raise InvalidInput("The schematic's customization.meta must be a list of key (0 to 255) and value.")
        lines += [f"        - key: {int(item['key'])}", f"          value: {text(item['value'])}"]
    systems = given.get("systemExtensions") or {}
    _known(systems, ("officialExtensions",), "customization.systemExtensions.")
    extensions = _items(systems, "officialExtensions")
    if extensions:
        lines += ["    systemExtensions:", "        officialExtensions:", *(f"            - {text(item)}" for item in extensions)]
    if given.get("bootloader"):
        if given["bootloader"] not in BOOTLOADERS:
            raise InvalidInput(f"The schematic's customization.bootloader must be one of {', '.join(BOOTLOADERS)}.")
        lines.append(f"    bootloader: {text(given['bootloader'])}")
    for name, fields in (("secureboot", ("enrollKeys", "includeWellKnownCertificates")), ("diskImage", ("sectorSize",))):
        part = given.get(name) or {}
        _known(part, fields, f"customization.{name}.")
        inner = [f"        {key}: {_scalar(part[key], text)}" for key in fields if part.get(key)]
        lines += [f"    {name}:", *inner] if inner else []
    return lines


def _items(given: t.Mapping[str, t.Any], field: str) -> list[t.Any]:
    value = given.get(field) or []
    if not isinstance(value, list):
        raise InvalidInput(f"The schematic's {field} must be a list.")
    return value


def _known(given: t.Mapping[str, t.Any], fields: t.Collection[str], where: str) -> None:
    if not isinstance(given, t.Mapping):
        raise InvalidInput(f"The schematic's {where.rstrip('.') or 'text'} must be a mapping of fields.")
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise InvalidInput(f"The schematic has a field that the factory does not know: {where}{unknown[0]}.")


def _scalar(value: t.Any, text: Write) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else text(value)
