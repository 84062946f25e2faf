# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock among the runs of this machine: a file that names the run and the process that owns it.

It is valid for as long as that very process lives, so a killed run frees it at once. The file is replaced as a whole; a second file
beside it is locked while one looks and decides.
"""

from __future__ import annotations

import fcntl
import json
import os
import typing as t
from contextlib import contextmanager
from datetime import timedelta

from ..core.clock import Clock, from_text, to_text
from ..core.errors import InvalidInput, Locked
from .process import Process, alive, from_record, rebooted

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
                    f"Another run on this machine is at work: {held['run_id']} (process {held['pid']} on {held['host']}, "
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
