# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the instance modules of this host remember of a machine: one small file per cloud and name, written before the paid call (L-2a).

A list may show a new machine a minute or two late, and a second run of the same name must not rent another one meanwhile. The files lie in
the folder ``launches`` of the state folder. They hold no credential. Another host, or another user of this one, does not see them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import typing as t
from datetime import datetime, timedelta

from ..core.clock import Clock, from_text, to_text
from ..core.errors import InvalidInput, TimedOut
from ..model import Instance

_LONGEST = 600.0  # seconds for which a run waits for another one of the same name: a create call and its look-up take less
_PAUSE = 1.0
_SKEW = timedelta(seconds=60)  # by which the clock of a cloud may be behind ours


@dataclasses.dataclass(frozen=True)
class Launch:
    """One create call. ``id`` is empty while its answer is unknown; ``ended``: when the cloud accepted the end of the machine."""

    started: datetime
    id: str = ""
    ended: datetime | None = None

    def made(self, instance: Instance) -> bool:
        """Whether it is what the call made: by the id, or while that is unknown by the time. Before a launch there was none of the name."""
        if self.id:
            return instance.id == self.id
        return instance.created is not None and instance.created >= self.started - _SKEW


class LaunchRecord:
    """The record of the machines that are named ``name`` at ``cloud``."""

    def __init__(self, state_folder: str, cloud: str, name: str, clock: Clock) -> None:
        self._folder = os.path.join(state_folder, "launches")
        self._name, self._cloud, self._clock = name, cloud, clock
        key = hashlib.sha256(name.encode()).hexdigest()[:16]  # a name may hold anything, a file's may not
        self.path = os.path.join(self._folder, f"{cloud}-{key}.json")

    def read(self) -> Launch | None:
        """None when nothing was launched, or it is gone. InvalidInput for a record that is not understood."""
        try:
            with open(self.path, encoding="utf-8") as file:
                content = json.load(file)
            ended = content["ended"]
            return Launch(from_text(content["started"]), str(content["id"]), from_text(ended) if ended else None)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"The record {self.path} of the last launch of {self._name} is damaged.",
                remedy=f"Look in the console of {self._cloud} whether a machine of this name exists, then remove the file.",
            ) from error

    def write(self, launch: Launch) -> None:
        """Complete on the disk before it returns."""
        content = {
            "cloud": self._cloud,
            "name": self._name,
            "started": to_text(launch.started),
            "id": launch.id,
            "ended": to_text(launch.ended) if launch.ended else None,
        }
        try:
            self._make_folder()
            with open(f"{self.path}.new", "w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{self.path}.new", self.path)
        except OSError as error:
            raise self._unusable(error) from error

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)

    @contextlib.contextmanager
    def locked(self) -> t.Iterator[None]:
        """One run at a time for this cloud and name; TimedOut when another one goes on for ten minutes."""
        try:
            self._make_folder()
            file = open(f"{self.path}.lock", "a", encoding="ascii")  # noqa: SIM115  # closed below: that is what ends the lock
        except OSError as error:
            raise self._unusable(error) from error
        with file:
            deadline = self._clock.now().timestamp() + _LONGEST
            while not _taken(file):
                if self._clock.now().timestamp() >= deadline:
                    raise TimedOut(
                        f"Another run has launched or ended {self._name} at {self._cloud} for {_LONGEST:g} s.",
                        remedy=f"Wait for it. The lock is {self.path}.lock; it ends with the process that holds it.",
                    )
                self._clock.sleep(_PAUSE)
            yield

    def _make_folder(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def _unusable(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"The folder {self._folder}, where launches are recorded, cannot be used: {error.strerror}.",
            remedy="Set TGP_STATE_DIR to a folder that this user may write.",
        )


def _taken(file: t.TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
