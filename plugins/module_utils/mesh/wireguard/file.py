# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's file on disk: one writer at a time, and whole at every moment.

Its lock file remembers the public keys that were taken out of the file and may still be on the running interface: a run that was
killed between the two is brought to its end by the next one, which could not know otherwise whose those peers were.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import typing as t

from ...core.clock import Clock
from ...core.errors import InvalidInput, Locked

WAIT = 60.0  # seconds; a holder needs a second or two
_STEP = 0.2


class HubFile:
    """The file at ``path``; links are followed, so that the link itself stays."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._lock = f"{self.path}.lock"
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> str:
        """The text; bytes that are no UTF-8 survive :meth:`write`."""
        try:
            with open(self.path, "rb") as file:
                self._seen = _stamp(file.fileno())
                return file.read().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise InvalidInput(
                f"The hub's file {self.path} cannot be read ({error.strerror}); nothing was changed.",
                remedy="Set the hub up first, name the file by config_file, and run the task as root (become).",
            ) from error

    def write(self, text: str) -> None:
        """In one step, with mode and owner of before. InvalidInput when another writer changed the file since it was read, or this process
        may not write it."""
        fresh = f"{self.path}.tgp-new"
        try:
            before = os.stat(self.path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)  # of a run that was killed
            try:
                handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(text.encode("utf-8", "surrogateescape"))
                    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(handle, before.st_uid, before.st_gid)
                    os.fchmod(handle, before.st_mode & 0o7777)
                    file.flush()
                    os.fsync(handle)
                self._refuse_other_writers()
                os.replace(fresh, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
                raise
            _settle(os.path.dirname(self.path))
        except OSError as error:
            raise InvalidInput(
                f"The hub's file {self.path} cannot be written ({error.strerror}); it is as it was.",
                remedy="Run the task as root (become).",
            ) from error

    def _refuse_other_writers(self) -> None:
        with open(self.path, "rb") as file:
            if _stamp(file.fileno()) != self._seen:
                raise InvalidInput(f"{self.path} was edited meanwhile by another writer; nothing was changed.", remedy="Run again.")

    # ---- the lock, and what it remembers

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """Alone among all that use this lock. Locked when another keeps it for a minute."""
        try:
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidInput(
                f"The lock file {self._lock} cannot be opened ({error.strerror}); nothing was changed.",
                remedy="Set the hub up first, name its file by config_file, and run the task as root (become).",
            ) from error
        try:
            waited = 0.0
            while not _taken(handle):
                if waited >= WAIT:
                    raise Locked(
                        f"Another run has kept {self._lock} for {WAIT:.0f} seconds; nothing was changed.", remedy="Run again."
                    )
                clock.sleep(_STEP)
                waited += _STEP
            yield
        finally:
            os.close(handle)  # and with it the lock

    def unfinished(self) -> set[str]:
        """Keys that were taken out of the file and may still be on the interface."""
        try:
            with open(self._lock, encoding="ascii", errors="replace") as file:
                return set(file.read().split())
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise InvalidInput(
                f"The lock file {self._lock} cannot be read ({error.strerror}).", remedy="Run as root (become)."
            ) from error

    def remember(self, keys: t.Collection[str]) -> None:
        """Put these keys, and no others, into the lock file. To be called under the lock."""
        if set(keys) == self.unfinished():
            return
        with open(self._lock, "r+", encoding="ascii") as file:
            file.truncate()
            file.writelines(f"{key}\n" for key in sorted(keys))
            file.flush()
            os.fsync(file.fileno())


def _stamp(handle: int) -> tuple[int, int, int]:
    status = os.fstat(handle)
    return status.st_ino, status.st_mtime_ns, status.st_size


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def _settle(folder: str) -> None:
    """The new name shall survive a power cut, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
