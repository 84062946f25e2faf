# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock among the runs of this machine: a file that names the run and the process that owns it.

It is valid for as long as that very process lives, so a killed run frees it at once. The file is replaced as a whole; a second file
beside it is locked while one looks and decides.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import typing as t
from contextlib import contextmanager
from datetime import timedelta

from ..core.clock import Clock, from_text, to_text
from ..core.errors import InvalidInput, Locked
from ..core.files import readable_text

_FOREIGN_LIFE = timedelta(seconds=900)  # how long an owner is believed alive that cannot be looked at from here


class LocalLock:
    """``path`` is the file; ``owner`` the process that lives as long as the run."""

    def __init__(self, path: str, run_id: str, owner: Process, clock: Clock) -> None:
        self._path, self._run, self._owner, self._clock = path, run_id, owner, clock

    def take(self) -> bool:
        """Take it; True when it was ours already (another task of this run). Locked names the holder."""
        with self._guard():
            held = self._read()
            if held is not None and held["run_id"] == self._run:
                return True
            if held is not None and self._valid(held):
                age = (self._clock.now() - from_text(held["taken"])).total_seconds()
                raise Locked(
                    f"Another run is active on this machine: {held['run_id']} (process {held['pid']} on {held['host']}, "
                    f"since {age:.0f} s).",
                    remedy="Let it end, or wait for it (module option lock_wait).",
                    holder=f"{held['host']}/{held['pid']}/{held['run_id']}",
                    age=round(age),
                )
            now = to_text(self._clock.now())
            self._write({"run_id": self._run, **self._owner.to_record(), "taken": now, "renewed": now, "leased": False})
            return False

    def leased(self) -> bool:
        """Did this run hold the cluster's lock too?"""
        with self._guard():
            held = self._read()
            return held is not None and held["run_id"] == self._run and bool(held.get("leased"))

    def renew(self, *, leased: bool) -> None:
        """Note that the run goes on. Where there is no room for that the file stays as it was: it is valid while its process lives."""
        with self._guard():
            held = self._read()
            if held is None or held["run_id"] != self._run:
                return
            try:
                self._write({**held, "renewed": to_text(self._clock.now()), "leased": leased})
            except InvalidInput:
                if bool(held.get("leased")) != leased:
                    raise

    def release(self) -> bool:
        """Free it; False when it was not this run's."""
        with self._guard():
            held = self._read()
            if held is None or held["run_id"] != self._run:
                return False
            os.unlink(self._path)
            return True

    def _valid(self, held: dict[str, t.Any]) -> bool:
        owner = from_record({key: held.get(key) for key in Process.__dataclass_fields__})
        lives = alive(owner) if owner is not None else None
        if lives is not None:
            return lives
        if owner is not None and rebooted(owner):
            return False
        return from_text(held["renewed"]) + _FOREIGN_LIFE >= self._clock.now()

    def _read(self) -> dict[str, t.Any] | None:
        try:
            with open(self._path, encoding="utf-8") as file:
                held = json.load(file)
            for key in ("taken", "renewed"):
                from_text(held[key])
            return {**held, "run_id": str(held["run_id"]), "host": str(held["host"]), "pid": held["pid"]}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"The lock file {self._path} is not understood: {error!r}.",
                remedy="Remove it once no playbook of tgp.gpu runs here.",
            ) from error

    def _write(self, held: dict[str, t.Any]) -> None:
        temporary = f"{self._path}.new"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(held, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            raise InvalidInput(
                f"The lock file {self._path} cannot be written: {error.strerror}.",
                remedy="Make room on that file system, or correct its rights.",
            ) from error

    @contextmanager
    def _guard(self) -> t.Iterator[None]:
        folder = os.path.dirname(self._path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor = os.open(f"{self._path}.guard", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidInput(
                f"The folder {folder} for the run lock cannot be used: {error.strerror}.", remedy="Correct state_dir."
            ) from error
        with os.fdopen(descriptor, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


# ---- which process owns a run, written so that another process of the same machine can prove that it is dead. A run is a whole playbook,
# its tasks are short-lived processes. The owner is therefore the ``ansible-playbook`` process (or ``ansible``, ``ansible-pull``,
# ``ansible-console``): we climb from ourselves to the first ancestor of that name, and on to the last one with the very same command
# line, because Ansible's workers are forks of it. Without such an ancestor (a module on another host, a script) nobody here knows how
# long the run lives: this process is named, without the start time that could prove it dead

_ANSIBLE = frozenset({"ansible", "ansible-playbook", "ansible-pull", "ansible-console"})


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process of one boot of one machine. ``boot_id`` and ``namespace`` are "" where the system has no /proc; ``start_time`` is ""
    where the end of the process would not be the end of the run."""

    host: str
    boot_id: str
    namespace: str
    pid: int
    start_time: str

    def to_record(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


def from_record(record: t.Mapping[str, t.Any]) -> Process | None:
    """The process a record names, None when the record is not understood (then nothing can be proven of it)."""
    values: list[t.Any] = [record.get(field.name) for field in dataclasses.fields(Process)]
    if not all(isinstance(value, str) for value in values[:3] + values[4:]) or type(values[3]) is not int:
        return None
    return Process(*values)


def describe(pid: int | None = None) -> Process:
    """The process ``pid``, by default the owner of this run."""
    number = owner_pid() if pid is None else pid
    is_ours = pid is not None or _is_ansible(_command(number))
    return Process(socket.gethostname(), _boot_id(), _namespace(), number, (start_time(number) or "") if is_ours else "")


def alive(process: Process, *, here: Process | None = None) -> bool | None:
    """Does that very process live? None when it cannot be determined from here: another machine, another boot, another container, or a run
    that is more than its process."""
    me = here or describe(os.getpid())
    if not process.boot_id or not process.start_time or (process.boot_id, process.namespace) != (me.boot_id, me.namespace):
        return None
    return start_time(process.pid) == process.start_time


def rebooted(process: Process, *, here: Process | None = None) -> bool:
    """True when this host has started anew since: whatever ran on it then is dead. Only for records that never left this host."""
    me = here or describe(os.getpid())
    return bool(process.boot_id and me.boot_id) and process.host == me.host and process.boot_id != me.boot_id


def owner_pid(start: int | None = None) -> int:
    """The process that lives as long as the run; see the head of this file."""
    pid = os.getpid() if start is None else start
    fallback = pid
    while pid > 1 and not _is_ansible(_command(pid)):
        pid = _parent(pid)
    if pid <= 1:
        return fallback
    command = _command(pid)
    while (parent := _parent(pid)) > 1 and _command(parent) == command:
        pid = parent
    return pid


def _is_ansible(command: tuple[str, ...]) -> bool:
    """``ansible-playbook …``, ``python /path/ansible-playbook …`` or ``python -m ansible playbook …``."""
    if command[1:3] == ("-m", "ansible"):
        return True
    return any(os.path.basename(word) in _ANSIBLE for word in command[:2])


def _command(pid: int) -> tuple[str, ...]:
    text = readable_text(f"/proc/{pid}/cmdline")
    return tuple(text.rstrip("\0").split("\0")) if text else ()


def _stat(pid: int) -> list[str]:
    """The fields after the command name of /proc/<pid>/stat: state, parent, …"""
    return readable_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def start_time(pid: int) -> str | None:
    """When the process began, in the kernel's ticks since boot; None when there is none or only its zombie."""
    fields = _stat(pid)
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return fields[19]


def _boot_id() -> str:
    return readable_text("/proc/sys/kernel/random/boot_id").strip()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
