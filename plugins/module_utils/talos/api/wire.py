# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Protocol Buffers on the wire, as far as the machine API's messages need them.

A message is read into ``{field number: [values in their order]}``; numbers come as int, texts, bytes and inner messages as bytes.
"""

from __future__ import annotations

from ...core.errors import BadShape

Fields = dict[int, list["int | bytes"]]

_FIXED = {1: 8, 5: 4}  # wire types of fixed length; the messages read here have none, and later ones are skipped over


def number(field: int, value: int) -> bytes:
    """A number, enum or bool that is not negative. Zero is the default and is left out."""
    return _varint(field << 3) + _varint(value) if value else b""


def block(field: int, value: bytes) -> bytes:
    """Text (UTF-8), bytes or an inner message. Nothing is the default and is left out."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value if value else b""


def read(message: bytes) -> Fields:
    """All fields of a message. Raises BadShape when it is none."""
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _number(message, at)
        elif kind == 2:
            length, at = _number(message, at)
            value, at = message[at : at + length], at + length
        elif kind in _FIXED:
            value, at = message[at : at + _FIXED[kind]], at + _FIXED[kind]
        else:
            raise _broken()
        if at > len(message) or not tag >> 3:
            raise _broken()
        found.setdefault(tag >> 3, []).append(value)
    return found


def messages(fields: Fields, field: int) -> list[Fields]:
    """The inner messages of a repeated field."""
    return [read(one) for one in fields.get(field, ()) if isinstance(one, bytes)]


def inner(fields: Fields, field: int) -> Fields:
    """The inner message of a field, empty when it is absent."""
    found = messages(fields, field)
    return found[-1] if found else {}


def texts(fields: Fields, field: int) -> list[str]:
    """The texts of a repeated field."""
    return [one.decode("utf-8", "replace") for one in fields.get(field, ()) if isinstance(one, bytes)]


def text(fields: Fields, field: int) -> str:
    """The text of a field, "" when it is absent."""
    found = texts(fields, field)
    return found[-1] if found else ""


def integer(fields: Fields, field: int) -> int:
    """The number of a field, 0 when it is absent."""
    found = [one for one in fields.get(field, ()) if isinstance(one, int)]
    return found[-1] if found else 0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _broken()


def _broken() -> BadShape:
    return BadShape("The machine API answered with something that is no message.", service="talos")
