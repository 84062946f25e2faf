# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk images of the sandbox's Image Factory: a little over a mebibyte that says what it is, and whose end proves that it is whole."""

from __future__ import annotations

import functools
import hashlib
import re
import typing as t

SIZE = 1024 * 1024 + 4321  # no multiple of what an upload may be cut into
NAMES = re.compile(r"(vultr-amd64\.raw|gcp-(amd64|arm64)\.raw\.tar\.gz)")
_HEAD = re.compile(rb"\x1f\x8btgp-sandbox image ([0-9a-f]{64}) (v[0-9A-Za-z.-]+) ([a-z0-9.-]+)\n")
_DIGEST = 32


class Found(t.NamedTuple):
    """What an image is of."""

    schematic: str
    version: str
    name: str


@functools.lru_cache(maxsize=16)
def content(schematic: str, version: str, name: str) -> bytes:
    """The file that the factory makes, the same each time."""
    head = b"\x1f\x8btgp-sandbox image " + f"{schematic} {version} {name}\n".encode()
    body = head + hashlib.shake_256(head).digest(SIZE - len(head) - _DIGEST)
    return body + hashlib.sha256(body).digest()


def read(data: bytes) -> Found | None:
    """None for something else, and for an image that lacks a part or has one twice."""
    found = _HEAD.match(data)
    if found is None or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        return None
    return Found(*(part.decode() for part in found.groups()))
