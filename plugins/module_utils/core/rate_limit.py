# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls per account, held back so that the cloud's limit is kept by all processes of this machine together; and when a call that was
turned away all the same is sent again.

Each bucket of an account is a small file that holds the next free moment. A caller takes the file's lock, books a slot, lets go
and sleeps until its slot. Files live in a per-user runtime folder and carry no credential, only a hash of it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import math
import os
import random
import tempfile
import time
import typing as t

from . import errors
from .clock import Clock
from .errors import InvalidInput

_T = t.TypeVar("_T")


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


# ---- calls that failed or were turned away


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """How often and how late a call is sent again; times in seconds.

    Without ``Retry-After`` the pause after the n-th try is min(longest, first · growth ** (n - 1)) times a factor drawn from ``jitter``.
    With it, it is the service's number, kept within the bounds ``retry_after``, times a factor drawn from ``retry_after_jitter``.
    ``deadline`` counts from the first try: a pause that would end behind it is not begun. ``quota_codes`` are the service's codes for a
    quota that no pause brings back.
    """

    tries: int = 5
    first: float = 1.0
    longest: float = 30.0
    growth: float = 2.0
    jitter: tuple[float, float] = (0.0, 1.0)
    deadline: float = 90.0
    retry_after: tuple[float, float] = (1.0, 60.0)
    retry_after_jitter: tuple[float, float] = (1.0, 1.0)
    quota_codes: t.Collection[str] = ()

    def pause(self, tried: int, retry_after: float | None = None) -> float:
        """Seconds to wait after the ``tried``-th try (from 1), which was answered with ``retry_after`` (None = it did not say)."""
        if retry_after is not None:
            shortest, longest = self.retry_after
            return min(max(retry_after, shortest), longest) * random.uniform(*self.retry_after_jitter)
        return min(self.longest, self.first * self.growth ** min(tried - 1, 60)) * random.uniform(*self.jitter)


def is_rate_limited(error: errors.TgpError) -> bool:
    """A call that was answered 429 was turned away unseen: also a write may be sent again."""
    return isinstance(error, errors.RateLimited)


def resend(
    send: t.Callable[[], _T],
    policy: RetryPolicy,
    clock: Clock,
    *,
    when: t.Callable[[errors.TgpError], bool] = is_rate_limited,
    before: t.Callable[[], object] = lambda: None,
) -> _T:
    """``send()``, again as ``policy`` allows after errors of which ``when`` is true; raises the last one. ``before`` runs ahead of each
    try, and what it raises ends them."""
    started, slept, tried = time.monotonic(), 0.0, 0
    while True:
        tried += 1
        before()
        try:
            return send()
        except errors.TgpError as error:
            if not when(error) or tried >= policy.tries or error.details.get("code") in policy.quota_codes:
                raise
            pause = policy.pause(tried, error.details.get("retry_after"))
            if max((time.monotonic() - started) * clock.speed, slept) + pause > policy.deadline:
                raise
        clock.sleep(pause)
        slept += pause
