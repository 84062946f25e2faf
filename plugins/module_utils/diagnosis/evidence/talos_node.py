# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes that run Talos for what their own system says of NVIDIA's driver; each question by itself."""

from __future__ import annotations

import functools
import re
import typing as t

from ...core.errors import TgpError, Unreachable
from ...core.redact import redact_foreign
from ...talos.api.reader import NodeReader
from ..gpus.facts import NodeSystem, SystemService

_VERSION_FILE = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_T = t.TypeVar("_T")


class TalosNodes:
    """``read`` never fails: what does not answer stands in ``unread``. Safe to use from several threads."""

    def __init__(self, reader: NodeReader) -> None:
        self._reader = reader

    def read(self, address: str, logs_of: t.Sequence[str], *, sockets_in: str = "") -> NodeSystem:
        """``logs_of``: the services whose log is wanted, in any case; of other NVIDIA services it is read where they do not run.
        ``sockets_in``: a folder whose files are wanted."""
        unread: dict[str, str] = {}

        def ask(what: str, question: t.Callable[[], _T]) -> _T | None:
            try:
                return question()
            except TgpError as error:
                unread[what] = f"could not be read: {str(error)[:200]}"
                return None

        try:
            modules: tuple[str, ...] | None = self._reader.modules(address)
        except Unreachable as error:  # one wait is enough
            return NodeSystem(unread=tuple((what, str(error)[:200]) for what in ("driver", "modules", "services")))
        except TgpError as error:
            modules, unread["modules"] = None, f"could not be read: {str(error)[:200]}"
        listed = ask("services", lambda: self._reader.services(address))
        services = None if listed is None else {name: SystemService(*pair) for name, pair in listed.items()}
        wanted = {
            name for name, service in (services or {}).items()
            if name in logs_of or (name.startswith("ext-nvidia") and service.state != "Running")
        }  # fmt: skip
        read = {name: ask(f"log of {name}", functools.partial(self._reader.log, address, name)) for name in sorted(wanted)}
        return NodeSystem(
            modules=modules,
            services=services,
            logs={name: tuple(redact_foreign("\n".join(lines)).splitlines()) for name, lines in read.items() if lines is not None},
            driver=ask("driver", lambda: self._driver(address)),
            sockets=ask("sockets", lambda: self._reader.folder(address, sockets_in)) if sockets_in else None,
            unread=tuple(sorted(unread.items())),
        )

    def _driver(self, address: str) -> str:
        try:
            text = self._reader.file(address, _VERSION_FILE)
        except TgpError as error:
            if re.search(r"(?i)no such file|not_found", str(error)):
                return ""
            raise
        match = _VERSION.search(text)
        return match[1] if match else ""
