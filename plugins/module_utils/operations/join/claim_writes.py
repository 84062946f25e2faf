# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claims of machines that join: what is observed changes them at once, and is written with their next write (write-behind)."""

from __future__ import annotations

import dataclasses
import functools
import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from ...core.errors import ApiError, LockLost
from ...model import Claim
from ...observe.context import Context
from ...planner.claims.write_behind import write_due

Change = t.Callable[[Claim], Claim]
_AGAIN = timedelta(seconds=5)  # until a write that failed is retried


@dataclasses.dataclass
class _Unwritten:
    """What is noted and not stored: ``written`` is the claim as it is stored, ``since`` when it began to differ."""

    written: Claim
    since: datetime
    due: datetime


class ClaimWrites:
    """``claims`` are the claims as noted. All methods may be called by several threads.

    Changes are functions, because a claim may be written, and noted meanwhile: what was noted is then applied to what was stored. Writes of
    one claim follow one another; they hold up neither the other claims nor whoever notes. ``hold_lock`` is called before what was put off is
    written, and raises LockLost. ``close`` ends the thread that writes what is due.
    """

    def __init__(self, context: Context, hold_lock: t.Callable[[], None]) -> None:
        self._context, self._hold_lock = context, hold_lock
        self.claims: dict[str, Claim] = {}
        self._writing: dict[str, threading.RLock] = {}
        self._changed = threading.Condition()  # guards everything here; never held during a call
        self._unwritten: dict[str, _Unwritten] = {}
        self._meanwhile: dict[str, list[Change]] = {}  # noted while the claim is being written
        self._left: set[str] = set()
        self._closed = False
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="claims")
        self._behind: Future[None] | None = None

    def add(self, claim: Claim) -> None:
        with self._changed:
            self.claims[claim.name] = claim
            self._writing.setdefault(claim.name, threading.RLock())

    def leave(self, names: t.Iterable[str]) -> None:
        """These are being terminated: nothing more is noted, and only :meth:`write` writes them."""
        with self._changed:
            self._left |= set(names)

    def note(self, name: str, change: Change) -> None:
        """A fact. It is written at once if the bill hangs on it, else later; a write that fails is tried again."""
        now = self._context.clock.now()
        with self._changed:
            before = self.claims[name]
            noted = before if name in self._left else change(before)
            if noted == before:
                return
            if name in self._meanwhile:
                self._meanwhile[name].append(change)
            self._keep(before, noted, now)
            is_due = self._unwritten[name].due <= now
            if self._behind is None:
                self._behind = self._pool.submit(self._write_behind)
            self._changed.notify_all()
        if is_due:
            self._write_noted(name)

    def _keep(self, written: Claim, noted: Claim, now: datetime) -> None:
        entry = self._unwritten.setdefault(noted.name, _Unwritten(written, now, datetime.max.replace(tzinfo=now.tzinfo)))
        entry.due = min(entry.due, write_due(entry.written, noted, entry.since))
        self._remember(noted)

    def _remember(self, claim: Claim) -> None:
        self.claims[claim.name] = claim
        self._context.records.remember(claim)

    def write(self, name: str, change: Change) -> Claim:
        """Store the claim as noted, with ``change``; returns it. What raises leaves the claim as it was noted."""
        with self._writing[name]:
            with self._changed:
                wanted = change(self.claims[name])
                self._meanwhile[name] = []
            try:
                stored = self._context.store.write(wanted)
            except BaseException:
                with self._changed:
                    del self._meanwhile[name]
                raise
            with self._changed:
                self._unwritten.pop(name, None)
                self._remember(stored)
                noted = functools.reduce(lambda claim, later: later(claim), self._meanwhile.pop(name), stored)
                if noted != stored:
                    self._keep(stored, noted, self._context.clock.now())
                    self._changed.notify_all()
                return self.claims[name]

    def flush(self) -> None:
        """Write what is noted, due or not. Raises LockLost, and then writes nothing more."""
        with self._changed:
            names = [name for name in self._unwritten if name not in self._left]
        for name in names:
            self._hold_lock()
            self._write_noted(name)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pool.shutdown()
        if self._behind is not None:
            self._behind.result()

    # ---- behind the notes

    def _write_behind(self) -> None:
        try:
            while names := self._wait():
                for name in names:
                    self._hold_lock()
                    self._write_noted(name)
        except LockLost:
            pass  # the wait for the machines ends with it, too

    def _wait(self) -> list[str]:
        """Those that are due, once there are any; none when this is over."""
        clock = self._context.clock
        with self._changed:
            while not self._closed:
                now = clock.now()
                waiting = {name: entry.due for name, entry in self._unwritten.items() if name not in self._left}
                if due := [name for name, moment in waiting.items() if moment <= now]:
                    return due
                left = min(((moment - now).total_seconds() for moment in waiting.values()), default=None)
                self._changed.wait(None if left is None else max(0.005, min(left / clock.speed, 1.0)))
        return []

    def _write_noted(self, name: str) -> None:
        with self._writing[name]:
            with self._changed:
                if name in self._left or name not in self._unwritten:
                    return
            try:
                self.write(name, lambda claim: claim)
            except ApiError as error:
                with self._changed:
                    if name in self._unwritten:
                        self._unwritten[name].due = self._context.clock.now() + _AGAIN
                self._context.progress.step(name, "record", f"not written yet: {error}", quiet=True)
