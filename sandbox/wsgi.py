# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every WSGI layer of the sandbox shares: its types, its routes, who is calling, and the count of calls."""

from __future__ import annotations

import re
import threading
import typing as t

import flask
from werkzeug.routing import Map, MapAdapter, Rule, RuleFactory

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


def _options(rule: Rule) -> dict[str, t.Any]:
    return {name: value for name, value in rule.get_empty_kwargs().items() if name != "methods"}  # a set: its text has no order


class _Routes(Map):
    """The routes of one app. They are compiled for the first call, and once for all apps of a process that have the same routes.

    To compile those of one sandbox takes 0.13 s of a processor, and each test has a sandbox.
    """

    _compiled: t.ClassVar[dict[tuple[str, ...], Map]] = {}
    _lock: t.ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self._added: list[Rule] = []
        self._map: Map | None = None

    def add(self, rulefactory: RuleFactory) -> None:
        self._added.extend(rulefactory.get_rules(self))

    def iter_rules(self, endpoint: str | None = None) -> t.Iterator[Rule]:
        return (rule for rule in self._added if endpoint in (None, rule.endpoint))

    def bind(self, *args: t.Any, **kwargs: t.Any) -> MapAdapter:
        return self._whole().bind(*args, **kwargs)

    def bind_to_environ(self, *args: t.Any, **kwargs: t.Any) -> MapAdapter:
        return self._whole().bind_to_environ(*args, **kwargs)

    def _whole(self) -> Map:
        with self._lock:
            if self._map is None:  # from here on Flask takes no more routes
                key = tuple(f"{rule.rule} {sorted(rule.methods or ())} {_options(rule)}" for rule in self._added)
                self._map = self._compiled.get(key)
            if self._map is None:
                self._map = self._compiled[key] = Map(self._added)
            return self._map


class Service(flask.Flask):
    """The WSGI application of one service."""

    url_map_class = _Routes


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
