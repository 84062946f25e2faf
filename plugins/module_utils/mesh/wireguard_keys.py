# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of WireGuard: 32 bytes of Curve25519 in base64."""

from __future__ import annotations

import base64
import binascii
import typing as t

from ..libs import lazy

if t.TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = lazy("cryptography.hazmat.primitives.asymmetric.x25519")

_LENGTH = 32  # bytes


def valid_key(text: str) -> bool:
    """Whether WireGuard takes ``text`` as a key: strict base64 of exactly 32 bytes, in the one way of writing them."""
    return _decoded(text) is not None


def generate() -> tuple[str, str]:
    """A new key pair: private key, public key. The private one is a secret and belongs into one machine's boot payload only."""
    private = _encoded(x25519.X25519PrivateKey.generate().private_bytes_raw())
    return private, public_key(private)


def public_key(private: str) -> str:
    """The public key of a private one. ValueError, without the key in it, when that is none."""
    raw = _decoded(private)
    if raw is None:
        raise ValueError("That is no private key of WireGuard: base64 of 32 bytes is one.")
    return _encoded(x25519.X25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw())


def _decoded(text: str) -> bytes | None:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # the latter for what is not ASCII
        return None
    return found if len(found) == _LENGTH and _encoded(found) == text else None


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
