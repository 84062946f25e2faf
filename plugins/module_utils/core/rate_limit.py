# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls per account, held back so that the cloud's limit is kept by all processes of this machine together.

Each bucket of an account is a small file that holds the next free moment. A caller takes the file's lock, books a slot, lets go
and sleeps until its slot. Files live in a per-user runtime folder and carry no credential, only a hash of it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import math
import os
import tempfile
import typing as t

from .clock import Clock
from .errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Bucket:
    """At most one call every ``interval`` seconds, after ``burst`` calls that may come at once. ``also`` names another bucket
    that the same call must pass (the general limit of the account)."""

    interval: float
    burst: int = 1
    also: str | None = None


class RateLimiter:
    """The limits of one account: ``account`` is hashed, ``buckets`` maps a name to its limit ("" = every call without a name)."""

    def __init__(self, account: str, buckets: t.Mapping[str, Bucket], folder: str | None = None) -> None:
        self._account = hashlib.sha256(account.encode()).hexdigest()[:24]
        self._buckets = buckets
        self._folder = folder or default_folder()

    def wait(self, name: str, clock: Clock) -> None:
        """Sleep until this call may be sent."""
        bucket = self._buckets.get(name) or self._buckets.get("")
        if bucket is None:
            return
        try:
            pause = self._book(name if name in self._buckets else "", bucket, clock)
        except OSError as error:
            raise InvalidInput(
                f"The folder {self._folder}, where calls to clouds are paced, cannot be used: {error.strerror}.",
                remedy="Set TGP_RUNTIME_DIR to a folder that this user may write.",
            ) from error
        clock.sleep(pause)
        if bucket.also is not None:
            self.wait(bucket.also, clock)

    def _book(self, name: str, bucket: Bucket, clock: Clock) -> float:
        """Reserve the next slot; returns the seconds until it."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, f"{self._account}-{name or 'all'}")
        with open(path, "a+", encoding="ascii", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            now = clock.now().timestamp()
            slack = bucket.interval * (bucket.burst - 1)
            free = _number(file.read())
            if free > now + bucket.interval * 1000:
                free = now  # the clock went back, or the file is nonsense: do not wait for hours
            slot = max(free, now - slack)
            file.seek(0)
            file.truncate()
            file.write(repr(slot + bucket.interval))
        return max(0.0, slot - now)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def default_folder() -> str:
    """A folder of this user that does not outlive the machine's boot by design."""
    base = os.environ.get("TGP_RUNTIME_DIR") or os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return os.path.join(base, f"tgp-pace-{os.getuid()}")
