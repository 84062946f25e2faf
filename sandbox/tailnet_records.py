# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's tailnet remembers: devices, keys and access tokens."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime


@dataclasses.dataclass
class Device:
    """A device of the tailnet. ``last_seen`` None while connected or never online."""

    node_id: str
    id: str
    hostname: str
    label: str
    ipv4: str
    ipv6: str
    tags: list[str]
    user: str
    created: datetime
    key_id: str
    ephemeral: bool
    authorized: bool
    machine_key: str
    node_key: str
    online: bool = True
    last_seen: datetime | None = None
    key_expiry_disabled: bool = False
    expires: datetime | None = None
    accept_routes: bool = False
    advertised_routes: list[str] = dataclasses.field(default_factory=list)
    enabled_routes: list[str] = dataclasses.field(default_factory=list)
    attributes: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    external: bool = False
    lock_error: str = ""
    os: str = "linux"
    client_version: str = "1.102.2"

    @property
    def addresses(self) -> list[str]:
        return [self.ipv4, self.ipv6]


@dataclasses.dataclass
class Key:
    """An auth key, API token (kind "api") or OAuth client (kind "client"). ``uses`` counts machines that joined with it."""

    id: str
    kind: str
    secret: str
    description: str
    created: datetime
    expires: datetime | None
    reusable: bool = False
    ephemeral: bool = False
    preauthorized: bool = False
    tags: list[str] = dataclasses.field(default_factory=list)
    scopes: list[str] = dataclasses.field(default_factory=list)
    user: str = ""
    revoked: datetime | None = None
    uses: int = 0

    def invalid(self, now: datetime) -> bool:
        """No machine can join with it any more."""
        over = self.expires is not None and self.expires <= now
        return over or self.revoked is not None or (self.kind == "auth" and self.uses > 0 and not self.reusable)


@dataclasses.dataclass
class Token:
    """An OAuth access token: the rights of its client at the moment it was made, possibly narrowed."""

    secret: str
    client: str
    scopes: frozenset[str]
    tags: frozenset[str]
    expires: datetime
