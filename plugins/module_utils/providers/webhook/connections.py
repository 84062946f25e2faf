# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP clients of power services, one for each host."""

from __future__ import annotations

import socket
import threading
import typing as t
from urllib.parse import SplitResult, unquote, urlsplit

from ...core import errors, redact
from ...core.clock import Clock
from ...core.http import Api
from ...core.rate_limit import RetryPolicy
from .machines import LINK_LOCAL, is_link_local, secrets_of

if t.TYPE_CHECKING:
    import httpx


class Connections:
    """``timeout`` in seconds. ``resolve``: the addresses of a name, asked before each call; None = those of the network, where it is used.
    May be used by several threads."""

    def __init__(
        self,
        timeout: float,
        transport: t.Callable[[str], httpx.BaseTransport | None],
        resolve: t.Callable[[str], t.Iterable[str]] | None,
        clock: Clock,
    ) -> None:
        self.timeout = timeout
        self._transport = transport
        self._resolve = resolve
        self._clock = clock
        self._apis: dict[str, Api] = {}
        self._guard = threading.Lock()

    def to(self, endpoint: str) -> tuple[Api, str]:
        """The client for the endpoint's host, and what comes after the host. An address may hold a secret: it is registered."""
        parts = urlsplit(endpoint)
        redact.register(*secrets_of(parts))
        if self._resolve is not None or self._transport(_origin_of(parts)) is None:
            _check_name(parts.hostname or "", self._resolve or _addresses_of)
        return self.client(endpoint), f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"

    def client(self, endpoint: str) -> Api:
        """The client for the endpoint's host. It asks the network nothing."""
        parts = urlsplit(endpoint)
        key = f"{parts.scheme}://{parts.netloc}"
        with self._guard:
            if key not in self._apis:
                self._apis[key] = Api(
                    "webhook",
                    _origin_of(parts),
                    auth=(unquote(parts.username), unquote(parts.password or "")) if parts.username else None,
                    transport=self._transport(_origin_of(parts)),
                    timeout=self.timeout,
                    retry=RetryPolicy(tries=1),
                    clock=self._clock,
                    auth_hint="Check WEBHOOK_AUTH_VALUE (option webhook_auth_value) and the header's name.",
                )
            return self._apis[key]

    def close(self) -> None:
        for api in self._apis.values():
            api.close()


def _origin_of(address: SplitResult) -> str:
    """Scheme, host and port, without user and password."""
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def _addresses_of(name: str) -> set[str]:
    """What the resolver says; nothing where it says nothing, which the call itself will tell."""
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()


def _check_name(name: str, resolve: t.Callable[[str], t.Iterable[str]]) -> None:
    """ApiError for a name that leads to a link-local address now. Nothing was sent."""
    link_local = sorted(address for address in resolve(name) if is_link_local(address))
    if link_local:
        raise errors.ApiError(f"webhook: {name} was not called: it resolves to {link_local[0]}, {LINK_LOCAL}", service="webhook")
