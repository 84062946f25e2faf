# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads that take turns by a seed, in a time that jumps to the next thing that happens.

Exactly one thread runs at any moment. It goes on until it waits (for a lock, an answer, a moment); then the dice choose the next of those
that could go on, and when none could, the clock jumps to the earliest appointment. So a story plays the same way each time, an hour of
waiting costs nothing, and which of two runs comes first is up to the seed, not to the machine the test runs on.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import threading
import typing as t

START = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Killed(BaseException):
    """The process ends here: nobody may catch it."""


class Stuck(AssertionError):
    """Every thread waits, and nothing will ever wake one of them."""


class Process:
    """Strands that die together. ``host`` is the machine they run on, ``pid`` their number there."""

    _pids = itertools.count(1000)

    def __init__(self, name: str, host: str) -> None:
        self.name, self.host, self.pid = name, host, next(Process._pids)
        self.dead = False
        self.strands: set[Strand] = set()


class Strand:
    """One thread. ``shield`` > 0: it is inside a service, which finishes its work whatever becomes of the client."""

    def __init__(self, name: str, process: Process | None) -> None:
        self.name, self.process = name, process
        self.turn = threading.Semaphore(0)
        self.token = 0
        self.waiting = self.woken = self.ended = self.doomed = False
        self.shield = 0
        self.after: list[Strand] = []
        self.trouble: BaseException | None = None


class Loom:
    """``now`` is the time in seconds since 1970. Create it in the thread that plays the story; ``close`` ends all others."""

    def __init__(self, seed: t.Any) -> None:
        self.dice = random.Random(f"loom {seed}")
        self.now = START
        self.main = self.current = Strand("main", None)
        self.switches = 0
        self._ready: list[Strand] = []
        self._heap: list[tuple[float, int, Strand, int]] = []
        self._numbers = itertools.count()
        self._alive: set[Strand] = set()

    # ---- waiting

    def wait(self, seconds: float | None = None) -> bool:
        """Let others go on until somebody wakes this thread (True) or the time is over (False)."""
        me = self.current
        self._mortal(me)
        me.token += 1
        me.waiting, me.woken = True, False
        if seconds is not None:
            heapq.heappush(self._heap, (self.now + max(0.0, seconds), next(self._numbers), me, me.token))
        self._switch(me)
        self._mortal(me)
        return me.woken

    def sleep(self, seconds: float) -> None:
        self.wait(seconds)

    def wake(self, strand: Strand) -> None:
        """No effect on one that does not wait."""
        if strand.waiting:
            strand.waiting, strand.woken = False, True
            strand.token += 1
            self._ready.append(strand)

    def _mortal(self, me: Strand) -> None:
        if me.doomed and not me.shield:
            raise Killed(me.name)

    def _switch(self, me: Strand) -> None:
        following = self._next()
        if following is me:
            return
        self.switches += 1
        self.current = following
        following.turn.release()
        if not me.ended:
            me.turn.acquire()

    def _next(self) -> Strand:
        if self._ready:
            place = self.dice.randrange(len(self._ready)) if len(self._ready) > 1 else 0
            self._ready[place], self._ready[-1] = self._ready[-1], self._ready[place]
            return self._ready.pop()
        while self._heap:
            moment, _number, strand, token = heapq.heappop(self._heap)
            if strand.waiting and strand.token == token:
                self.now = max(self.now, moment)
                strand.waiting = False
                strand.token += 1
                return strand
        self.main.waiting = False
        self.main.trouble = Stuck(f"all wait for ever: {', '.join(sorted(one.name for one in self._alive))}")
        return self.main

    # ---- threads

    def spawn(self, what: t.Callable[[], t.Any], name: str, process: Process | None) -> Strand:
        """A new thread, that runs when its turn comes."""
        strand = Strand(name, process)
        self._alive.add(strand)
        if process is not None:
            process.strands.add(strand)
            strand.doomed = process.dead
        threading.Thread(target=self._live, args=(strand, what), name=name, daemon=True).start()
        self._ready.append(strand)
        return strand

    def _live(self, strand: Strand, what: t.Callable[[], t.Any]) -> None:
        strand.turn.acquire()
        try:
            self._mortal(strand)
            what()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told to the thread that plays the story
            strand.trouble = error
        strand.ended = True
        self._alive.discard(strand)
        if strand.process is not None:
            strand.process.strands.discard(strand)
        for one in strand.after:
            self.wake(one)
        self._switch(strand)

    def join(self, strand: Strand, seconds: float | None = None) -> bool:
        """Wait until it has ended; False when the time was over before."""
        end = None if seconds is None else self.now + seconds
        while not strand.ended:
            strand.after.append(self.current)
            self.wait(None if end is None else end - self.now)
            self._told()
            if end is not None and self.now >= end and not strand.ended:
                return False
        return True

    def _told(self) -> None:
        if self.current is self.main and self.main.trouble is not None:
            trouble, self.main.trouble = self.main.trouble, None
            raise trouble

    # ---- processes

    def kill(self, process: Process) -> None:
        """It dies, with everything in it: each of its threads where it waits next."""
        process.dead = True
        for strand in sorted(process.strands, key=lambda one: one.name):
            strand.doomed = True
            if not strand.shield:
                self.wake(strand)

    def play(self, runs: t.Mapping[Process, t.Callable[[], None]]) -> dict[Process, BaseException | None]:
        """Processes side by side, from beginning to end; what each ended with, None when it ended well. Killed for a killed one."""
        ends: dict[Process, BaseException | None] = {}

        def one(process: Process, what: t.Callable[[], None]) -> t.Callable[[], None]:
            def live() -> None:
                ends[process] = Killed(process.name)
                try:
                    what()
                    ends[process] = None
                except Exception as error:  # noqa: BLE001 - handed to the caller
                    ends[process] = error
                finally:
                    self.kill(process)  # what it left running ends with it

            return live

        strands = [self.spawn(one(process, what), process.name, process) for process, what in runs.items()]
        for process, strand in zip(runs, strands, strict=True):
            self.join(strand)
            for turn in itertools.count():
                if not process.strands:
                    break
                # a service that answers slowly goes on for a while, although the one who asked is dead
                self.sleep(0 if turn < 100 else 0.1)
                self._told()
            if strand.trouble is not None:
                raise strand.trouble
        return ends

    def shielded(self) -> contextlib.AbstractContextManager[None]:
        """Around the work of a service: it is not the process of the caller."""
        return self._shielded()

    @contextlib.contextmanager
    def _shielded(self) -> t.Iterator[None]:
        me = self.current
        me.shield += 1
        try:
            yield
        finally:
            me.shield -= 1

    def close(self) -> None:
        """All other threads end."""
        for _turn in range(1000):
            if not self._alive:
                return
            for strand in sorted(self._alive, key=lambda one: one.name):
                strand.doomed, strand.shield = True, 0
                self.wake(strand)
            with contextlib.suppress(Stuck):
                self.sleep(0)
        raise Stuck(f"will not end: {', '.join(sorted(one.name for one in self._alive))}")
