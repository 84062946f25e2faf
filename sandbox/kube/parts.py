# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kinds, controllers and routes see of the API server that holds them all (api.py)."""

from __future__ import annotations

import typing as t
from datetime import datetime

from .auth import Identity
from .objects import Objects
from .paging import Pages
from .pki import Authority
from .pod_proxy import PodServer
from .rbac import Authorizer
from .resources import Registry, Resource
from .store import Store
from .strategy import Strategy


class Parts(t.Protocol):
    """See api.KubeApi."""

    version: str
    store: Store
    registry: Registry
    authority: Authority
    authorizer: Authorizer
    objects: Objects
    pages: Pages
    itself: Identity
    pod_logs: dict[tuple[str, str], str]
    pod_servers: list[PodServer]

    @property
    def strategies(self) -> t.Callable[[Resource], Strategy]:
        """What each kind adds to the write path."""
        ...

    @property
    def speed(self) -> float:
        """Clock seconds per real second."""
        ...

    def now(self) -> datetime: ...

    def seconds(self) -> float: ...

    def identity(self, user: str, groups: t.Iterable[str]) -> Identity: ...

    def empty_namespace(self, name: str) -> None:
        """Delete all that is in it."""
        ...


class Kind(Strategy):
    """A kind that looks at others, or writes them."""

    def __init__(self, api: Parts, resource: Resource) -> None:
        super().__init__(resource)
        self.api = api
