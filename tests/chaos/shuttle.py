# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``threading``, ``queue``, ``concurrent.futures`` and ``time`` as the modules under test see them while a :class:`Loom` is at work."""

from __future__ import annotations

import collections
import queue
import threading
import time
import types
import typing as t

from .loom import Killed, Loom, Strand


class Lock:
    _reenters = False

    def __init__(self, loom: Loom) -> None:
        self._loom, self._owner, self._depth = loom, t.cast("Strand | None", None), 0
        self._queue: collections.deque[Strand] = collections.deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._loom.current
        if self._owner is me and self._reenters:
            self._depth += 1
            return True
        end = self._loom.now + timeout if timeout >= 0 else None
        while self._owner is not None:
            if not blocking or (end is not None and self._loom.now >= end):
                return False
            self._queue.append(me)
            try:
                self._loom.wait(None if end is None else end - self._loom.now)
            finally:
                if me in self._queue:
                    self._queue.remove(me)
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        me = self._loom.current
        if self._owner is not me:
            if me.doomed or not self._reenters and self._owner is not None:
                if not me.doomed:
                    self._free()
                return
            raise RuntimeError("cannot release a lock that is not held")
        self._depth -= 1
        if not self._depth:
            self._free()

    def _free(self) -> None:
        self._owner = None
        if self._queue:
            self._loom.wake(self._queue.popleft())

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def give_up(self) -> int:
        """Let go of it entirely, for a while; how often it was held."""
        depth, self._depth = self._depth, 0
        self._free()
        return depth

    def take_again(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


class RLock(Lock):
    _reenters = True


class Condition:
    def __init__(self, loom: Loom, lock: Lock | None = None) -> None:
        self._loom, self._lock = loom, lock if lock is not None else RLock(loom)
        self._waiters: list[Strand] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        me = self._loom.current
        depth = self._lock.give_up()
        self._waiters.append(me)
        try:
            woken = self._loom.wait(timeout)
        finally:
            if me in self._waiters:
                self._waiters.remove(me)
        self._lock.take_again(depth)
        return woken

    def wait_for(self, predicate: t.Callable[[], t.Any], timeout: float | None = None) -> t.Any:
        end = None if timeout is None else self._loom.now + timeout
        while not (result := predicate()):
            if end is not None and self._loom.now >= end:
                return result
            self.wait(None if end is None else end - self._loom.now)
        return result

    def notify(self, n: int = 1) -> None:
        for one in self._waiters[:n]:
            self._waiters.remove(one)
            self._loom.wake(one)

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    def __init__(self, loom: Loom) -> None:
        self._flag, self._condition = False, Condition(loom)

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        self._condition.notify_all()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._condition:
            self._condition.wait_for(self.is_set, timeout)
        return self._flag


class Semaphore:
    def __init__(self, loom: Loom, value: int = 1) -> None:
        self._value, self._condition = value, Condition(loom)

    def acquire(self) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._value > 0)
            self._value -= 1
        return True

    def release(self) -> None:
        with self._condition:
            self._value += 1
            self._condition.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


class Thread:
    """``own``: the thread belongs to the world, not to the process that happened to start it."""

    def __init__(
        self, loom: Loom, own: bool, target: t.Callable[..., t.Any], args: t.Sequence[t.Any] = (),
        kwargs: t.Mapping[str, t.Any] | None = None, name: str = "thread", daemon: bool | None = None,
    ) -> None:  # fmt: skip
        self._loom, self._own, self.name, self.daemon = loom, own, name, daemon
        self._work = lambda: target(*args, **(kwargs or {}))
        self._strand: Strand | None = None

    def start(self) -> None:
        self._strand = self._loom.spawn(self._work, self.name, None if self._own else self._loom.current.process)

    def join(self, timeout: float | None = None) -> None:
        if self._strand is not None:
            self._loom.join(self._strand, timeout)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.ended


class Future:
    def __init__(self, loom: Loom) -> None:
        self._condition = Condition(loom)
        self._state, self._result, self._error = "pending", t.cast(t.Any, None), t.cast("BaseException | None", None)
        self._callbacks: list[t.Callable[[Future], t.Any]] = []

    def finish(self, state: str, result: t.Any = None, error: BaseException | None = None) -> None:
        self._state, self._result, self._error = state, result, error
        self._condition.notify_all()
        for one in self._callbacks:
            one(self)

    def done(self) -> bool:
        return self._state != "pending"

    def cancelled(self) -> bool:
        return self._state == "cancelled"

    def add_done_callback(self, callback: t.Callable[[Future], t.Any]) -> None:
        callback(self) if self.done() else self._callbacks.append(callback)

    def result(self, timeout: float | None = None) -> t.Any:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        with self._condition:
            if not self._condition.wait_for(self.done, timeout):
                raise TimeoutError
        return self._error


class Pool:
    """ThreadPoolExecutor."""

    def __init__(self, loom: Loom, own: bool, max_workers: int | None = None, thread_name_prefix: str = "pool") -> None:
        self._loom, self._own, self._most, self._name = loom, own, max_workers or 8, thread_name_prefix
        self._tasks: collections.deque[tuple[Future, t.Callable[[], t.Any]]] = collections.deque()
        self._workers: list[Thread] = []
        self._busy, self._shut = 0, False

    def submit(self, what: t.Callable[..., t.Any], /, *args: t.Any, **kwargs: t.Any) -> Future:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = Future(self._loom)
        self._tasks.append((future, lambda: what(*args, **kwargs)))
        if self._busy < self._most:
            self._busy += 1
            worker = Thread(self._loom, self._own, self._work, name=self._name)
            self._workers = [*(one for one in self._workers if one.is_alive()), worker]
            worker.start()
        return future

    def _work(self) -> None:
        while self._tasks:
            future, what = self._tasks.popleft()
            if future.done():
                continue
            try:
                result = what()
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001 - as the real one does
                future.finish("done", error=error)
            else:
                future.finish("done", result)
        self._busy -= 1

    def map(self, what: t.Callable[..., t.Any], *lists: t.Iterable[t.Any]) -> t.Iterator[t.Any]:
        futures = [self.submit(what, *args) for args in zip(*lists)]  # noqa: B905 - as the real one does
        return (one.result() for one in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        if cancel_futures:
            while self._tasks:
                self._tasks.popleft()[0].finish("cancelled")
        for worker in list(self._workers) if wait else ():
            worker.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()


class SimpleQueue:
    def __init__(self, loom: Loom) -> None:
        self._items: collections.deque[t.Any] = collections.deque()
        self._condition = Condition(loom)

    def put(self, item: t.Any) -> None:
        self._items.append(item)
        self._condition.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> t.Any:
        with self._condition:
            if not self._items and not (block and self._condition.wait_for(lambda: self._items, timeout)):
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> t.Any:
        return self.get(block=False)


def _wait(loom: Loom) -> t.Callable[..., tuple[set[Future], set[Future]]]:
    def wait(
        futures: t.Iterable[Future], timeout: float | None = None, return_when: str = "ALL_COMPLETED"
    ) -> tuple[set[Future], set[Future]]:
        all_of, end = list(futures), None if timeout is None else loom.now + timeout
        bell = Event(loom)
        for one in all_of:
            one.add_done_callback(lambda _one: bell.set())
        enough = any if return_when == "FIRST_COMPLETED" else all
        while all_of and not enough(one.done() for one in all_of) and (end is None or loom.now < end):
            bell.clear()
            bell.wait(None if end is None else end - loom.now)
        return {one for one in all_of if one.done()}, {one for one in all_of if not one.done()}

    return wait


def replacements(loom: Loom, *, own: bool) -> dict[str, t.Any]:
    """What stands in for the modules ``threading``, ``queue``, ``concurrent`` and ``time``, and for the name ThreadPoolExecutor."""

    def bound(kind: t.Callable[..., t.Any], *first: t.Any) -> t.Callable[..., t.Any]:
        return lambda *args, **kwargs: kind(*first, *args, **kwargs)

    pool = bound(Pool, loom, own)
    futures = types.SimpleNamespace(
        ThreadPoolExecutor=pool, wait=_wait(loom), FIRST_COMPLETED="FIRST_COMPLETED", ALL_COMPLETED="ALL_COMPLETED", Future=Future
    )
    return {
        "threading": types.SimpleNamespace(
            Lock=bound(Lock, loom), RLock=bound(RLock, loom), Condition=bound(Condition, loom), Event=bound(Event, loom),
            Semaphore=bound(Semaphore, loom),
            Thread=bound(Thread, loom, own), local=threading.local,
            current_thread=threading.current_thread, main_thread=threading.main_thread, TIMEOUT_MAX=threading.TIMEOUT_MAX,
            get_native_id=threading.get_native_id,
        ),
        "queue": types.SimpleNamespace(SimpleQueue=bound(SimpleQueue, loom), Empty=queue.Empty),
        "concurrent": types.SimpleNamespace(futures=futures),
        "ThreadPoolExecutor": pool,
        "time": types.SimpleNamespace(
            time=lambda: loom.now, monotonic=lambda: loom.now, perf_counter=lambda: loom.now, sleep=loom.sleep,
            strftime=time.strftime, gmtime=time.gmtime,
        ),
    }  # fmt: skip
