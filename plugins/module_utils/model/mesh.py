# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mesh knows: devices, and the keys that let them in."""

from __future__ import annotations

import dataclasses
from datetime import datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """An entry of the mesh. ``hostname`` is what the node asked for, ``name`` what the mesh made of it ("-1" suffix possible).
    ``ephemeral`` and ``online`` are None where the server does not tell."""

    id: str
    hostname: str
    name: str = ""
    addresses: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    online: bool | None = None
    created: datetime | None = None
    last_seen: datetime | None = None
    ephemeral: bool | None = False
    external: bool = False
    authorized: bool = True
    problem: str = ""
    key_expiry_disabled: bool | None = None
    expires: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MeshKey:
    """An enrolment key without its secret. ``description`` names the node it was made for."""

    id: str
    description: str
    created: datetime | None = None
    expires: datetime | None = None
    invalid: bool | None = None
