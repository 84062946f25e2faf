# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes that run Talos for what their own system says of NVIDIA's driver; each question by itself."""

from __future__ import annotations

import dataclasses
import functools
import queue
import re
import threading
import time
import typing as t

from ...core.errors import TgpError, Unreachable
from ...core.redact import redact_foreign
from ...core.task import Task
from ...talos.api.reader import NodeReader, access_of
from ..facts import SystemService
from ..gpus.facts import NodeSystem, driver_version

_VERSION_FILE = "/proc/driver/nvidia/version"
_T = t.TypeVar("_T")
_FIRST_LOGS = ("controller-runtime", "kubelet")  # what Talos itself waits for, and why there is no Node
_MOST_LOGS = 8
_LONGEST = 400  # characters of an event


def reader_of(task: Task, seconds: float = 10.0) -> NodeReader:
    """Asks by the talosconfig that the options name, each question within ``seconds``. InvalidInput when the file cannot be used."""
    return NodeReader(access_of(task.params["talosconfig"]), seconds=seconds)


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
        return driver_version(text)


# ---- of a machine that is going to be terminated


@dataclasses.dataclass
class ServicesSeen:
    """``services`` is None when they could not be read. ``unread`` maps what could not be read
    to the reason. ``seconds``: how long it took."""

    services: dict[str, SystemService] | None = None
    logs: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    unread: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


_Answer = t.Callable[[ServicesSeen], None]


def services_of(reader: NodeReader, addresses: t.Sequence[str], seconds: float) -> ServicesSeen:
    """States and logs of a machine's services, by the first address that answers: what is known after ``seconds``. Needs role os:reader.

    A thread asks, for neither a name server nor an endpoint that answers slowly keeps to a limit; it ends with its open question.
    """
    answers: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
    over = threading.Event()

    def work() -> None:
        try:
            for answer in _ask_services(reader, addresses):
                answers.put(answer)
                if over.is_set():
                    return
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            OSError,
            TypeError,
            ValueError,
        ) as error:  # an answer that nobody foresaw
            answers.put(_unread("services", error))
        finally:
            answers.put(None)

    threading.Thread(target=work, name="talos-evidence", daemon=True).start()
    seen, began = ServicesSeen(), time.monotonic()
    try:
        while (answer := answers.get(timeout=max(began + seconds - time.monotonic(), 0.001))) is not None:
            answer(seen)
    except queue.Empty:
        over.set()
        seen.unread.setdefault("services", f"not all of it was read in {seconds:g} s")
    seen.seconds = time.monotonic() - began
    return seen


def _ask_services(reader: NodeReader, addresses: t.Sequence[str]) -> t.Iterator[_Answer]:
    """The services from the first address that answers, then each log."""
    for address in addresses:
        try:
            listed = reader.services(address).items()
        except TgpError as error:
            yield _unread("services", error)
            continue
        services = {name: SystemService(state, redact_foreign(message)[:_LONGEST]) for name, (state, message) in listed}
        yield functools.partial(_note_services, services)
        for name in _wanted_logs(services):
            try:
                yield functools.partial(_note_log, name, reader.log(address, name))
            except TgpError as error:
                yield _unread(f"log of {name}", error)
        return


def _wanted_logs(services: t.Mapping[str, SystemService]) -> list[str]:
    """Talos's own and the kubelet's, then those of services that are not well, then those of extensions such as the mesh."""
    unwell = [name for name, service in services.items() if not service.well]
    return list(dict.fromkeys([*_FIRST_LOGS, *unwell, *(name for name in services if name.startswith("ext-"))]))[:_MOST_LOGS]


def _note_services(services: dict[str, SystemService], seen: ServicesSeen) -> None:
    seen.services = services
    seen.unread.pop("services", None)


def _note_log(name: str, lines: tuple[str, ...], seen: ServicesSeen) -> None:
    seen.logs[name] = lines


def _unread(what: str, error: Exception) -> _Answer:
    def note(seen: ServicesSeen) -> None:
        seen.unread[what] = f"could not be read: {str(error)[:200]}"

    return note
