# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every WSGI layer of the sandbox shares: its types, who is calling, and the count of calls."""

from __future__ import annotations

import re
import typing as t

if t.TYPE_CHECKING:
    from .world import World

Environ = dict[str, t.Any]
StartResponse = t.Callable[..., t.Any]
App = t.Callable[[Environ, StartResponse], t.Iterable[bytes]]

MACHINE_AGENT = "tgp-sandbox-machine"
"""User-Agent of the calls that the simulated machines make. They are part of the world, not of what is tested."""

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_READS_BY_BODY = re.compile(
    r"^/graphql$|/oauth/token(-exchange)?$|^/token$|/acl/validate$|/(selfsubjectaccess|selfsubjectrules|subjectaccess|token)reviews$"
    r"|^/api/v0/(bundles|search/asks|instances/request_logs/\d+)/$"
)
_DRY_RUN = re.compile(r"(^|&)dryRun=")


def is_machine(environ: Environ) -> bool:
    """Whether one of the world's own machines is calling."""
    return bool(environ.get("HTTP_USER_AGENT", "").startswith(MACHINE_AGENT))


def is_write(method: str, path: str, query: str = "") -> bool:
    """Whether a request is meant to change something: asking for a token, a right or a rehearsal is not."""
    return method not in _READS and not (method in ("POST", "PUT") and _READS_BY_BODY.search(path)) and not _DRY_RUN.search(query)


class CountingApp:
    """``app``, with each call counted in ``world.calls`` and each write noted in ``world.writes`` as it arrives."""

    def __init__(self, app: App, world: World, service: str) -> None:
        self.app, self._world, self._service = app, world, service

    def __call__(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        if not is_machine(environ):
            method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")
            world = self._world
            with world.lock:
                world.calls[self._service] = world.calls.get(self._service, 0) + 1
                if is_write(method, path, environ.get("QUERY_STRING", "")):
                    world.writes.append((world.clock.now(), self._service, f"{method} {path}"))
        return self.app(environ, start_response)
