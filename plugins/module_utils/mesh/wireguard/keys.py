# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of WireGuard: 32 bytes of Curve25519 in base64."""

from __future__ import annotations

import base64
import typing as t

from ...core.lazy_import import lazy
from ...planner.provisioning.wireguard_rules import is_key

if t.TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = lazy("cryptography.hazmat.primitives.asymmetric.x25519")


def generate() -> tuple[str, str]:
    """A new key pair: private key, public key. The private one is a secret and belongs into one machine's boot payload only."""
    private = _encoded(x25519.X25519PrivateKey.generate().private_bytes_raw())
    return private, public_key(private)


def public_key(private: str) -> str:
    """The public key of a private one. ValueError, without the key in it, when that is none."""
    if not is_key(private):
        raise ValueError("That is no private key of WireGuard: base64 of 32 bytes is one.")
    return _encoded(x25519.X25519PrivateKey.from_private_bytes(base64.b64decode(private)).public_key().public_bytes_raw())


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
