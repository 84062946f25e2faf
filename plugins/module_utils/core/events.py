# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event log: what a run decided and did, one JSON line each (docs/reference/events.md, schemas/events.schema.json).

This is the one place that writes it, so it is the one place that keeps secrets out of it. A line is one write to a file opened for
appending: several processes may share the file. It is rotated by size, under a lock, and what cannot be written is given up after one
warning: the run, and the money, go on.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import itertools
import json
import os
import pwd
import socket
import threading
import typing as t
import uuid
from datetime import datetime
from decimal import Decimal

from .clock import Clock, to_text
from .errors import without_details
from .redact import redact_all

ROTATE_AT = 10_000_000  # bytes
KEPT = 5  # files beside the current one
LONGEST = 4000  # characters of one text
_HOW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK  # the path may be a pipe without a reader
_TAIL = 1_000_000  # bytes in which the last line of an earlier step of the run is looked for


class Events:
    """The event log of one run in this process. ``path`` empty: nothing is written. Safe to use from several threads.

    ``fresh``: no earlier process wrote lines of this run, so that the sequence begins at 1. ``warn`` is called once at most.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        run_id: str,
        *,
        fresh: bool = False,
        warn: t.Callable[[str], None] = lambda text: None,
        rotate_at: int = ROTATE_AT,
    ) -> None:
        self.run_id = run_id
        self._path, self._clock, self._warn, self._rotate_at = path, clock, warn, rotate_at
        self._mutex = threading.Lock()
        self._handle = -1
        self._numbers: t.Iterator[int] | None = itertools.count(1) if fresh else None
        self._warned = self._torn = False

    def write(self, kind: str, **facts: t.Any) -> int:
        """Append one line and return its number in the run; 0 when there is no log, or it cannot be written."""
        if not self._path:
            return 0
        given = {key: jsonable(value) for key, value in facts.items() if value not in (None, "", (), [], {})}
        fields = shortened(redact_all(without_details(given)))
        with self._mutex:
            try:
                return self._append(kind, fields)
            except OSError as error:
                self._complain(error)
                return 0

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        with self._mutex:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    # ---- inside, under the mutex

    def _append(self, kind: str, facts: dict[str, t.Any]) -> int:
        self._open()
        if self._numbers is None:
            self._numbers = itertools.count(_last_number(self._path, self.run_id) + 1)
        number = next(self._numbers)
        record = {"time": to_text(self._clock.now()), "run": self.run_id, "seq": number, "kind": kind, **facts}
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        text = b"\n" + line if self._torn else line
        written = os.write(self._handle, text)
        self._torn = 0 < written < len(text)
        if written < len(text):
            raise OSError(errno.ENOSPC, "only a part of a line could be written; the disk may be full")
        return number

    def _open(self) -> None:
        """Have the current file open, and make room in it when it is full."""
        if self._handle >= 0 and self._is_current():
            if os.fstat(self._handle).st_size < self._rotate_at:
                return
            self._rotate()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._handle = os.open(self._path, _HOW, 0o600)
        if os.fstat(self._handle).st_size >= self._rotate_at:
            self._rotate()
            full, self._handle = self._handle, -1
            os.close(full)
            self._handle = os.open(self._path, _HOW, 0o600)

    def _is_current(self) -> bool:
        """False once another process has rotated the file that is open here."""
        try:
            return os.stat(self._path).st_ino == os.fstat(self._handle).st_ino
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        """events.jsonl → events.jsonl.1 → … Who comes second to the lock finds a small file and leaves it."""
        handle = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not os.path.exists(self._path) or os.path.getsize(self._path) < self._rotate_at:
                return
            for number in range(KEPT - 1, 0, -1):
                if os.path.exists(f"{self._path}.{number}"):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
        finally:
            os.close(handle)

    def _complain(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"The event log {self._path} cannot be written ({error.strerror}); the run goes on without it.")


def new_run_id() -> str:
    """Unlike any other run's, readable in a log."""
    return f"{socket.gethostname().partition('.')[0].lower()}-{uuid.uuid4().hex[:8]}"


_BY_AWX = {  # what AWX says of a job among its extra variables; older releases, and forks of them, say it as tower_
    "awx_user": ("awx_user_name", "tower_user_name"),
    "awx_schedule": ("awx_schedule_name", "awx_parent_job_schedule_name", "tower_schedule_name"),
    "awx_job": ("awx_job_id", "tower_job_id"),
}
_LONGEST_NAME = 200


def starter(extra: t.Mapping[str, t.Any] | None = None) -> dict[str, str]:
    """Who runs this process, and on which host; with the extra variables of a job of AWX also whose job it is. The environment is not asked:
    everybody can write there what he likes."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in a container with an arbitrary uid
        user = f"uid {os.geteuid()}"
    found = {"user": user, "host": socket.gethostname()}
    for field, names in _BY_AWX.items():
        said = [(extra or {}).get(name) for name in names]
        words = [
            str(value)[:_LONGEST_NAME] for value in said if isinstance(value, (str, int)) and not isinstance(value, bool) and value
        ]
        found |= {field: words[0]} if words else {}
    return found


def jsonable(value: t.Any) -> t.Any:
    """``value`` as JSON has it: times (RFC 3339, UTC) and money are texts, a member of an enumeration is its value, a set a list."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, t.Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    return value


def shortened(value: t.Any) -> t.Any:
    """The same with every text cut that is too long. Only after redaction: half a secret would not be known for one."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return [shortened(item) for item in value] if isinstance(value, list) else value


def _last_number(path: str, run_id: str) -> int:
    """The number of the run's last line so far, 0 when it has none. Steps of a run are processes that follow one another."""
    for name in (path, f"{path}.1"):
        for line in reversed(_tail(name)):
            if run_id.encode() not in line:
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("run") == run_id and isinstance(record.get("seq"), int):
                return t.cast(int, record["seq"])
    return 0


def _tail(path: str) -> list[bytes]:
    if not os.path.isfile(path):
        return []
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL))
            return file.read().splitlines()
    except OSError:
        return []


# ---- says what is going on while it goes on: one readable line per step for people, and an event of kind ``progress`` for programs


class Progress:
    """Reports steps of one run. ``say`` prints a line for people; ``events`` (or None) is the run's log."""

    def __init__(self, say: t.Callable[[str], None], clock: Clock, events: Events | None) -> None:
        self._say = say
        self._clock = clock
        self._events = events

    def step(
        self,
        name: str,
        event: str,
        text: str = "",
        *,
        since: datetime | None = None,
        price_hour: Decimal | None = None,
        quiet: bool = False,
        **facts: t.Any,
    ) -> None:
        """Something happened to ``name``. ``since`` is when its clock started: elapsed time and cost so far are shown."""
        now = self._clock.now()
        seconds = (now - since).total_seconds() if since else None
        cost = price_hour * Decimal(str(max(seconds, 0.0))) / 3600 if price_hour is not None and seconds is not None else None
        if not quiet:
            self._say(_line(name, event, text, seconds, cost))
        if self._events is not None:
            self._events.write(
                "progress",
                name=name,
                event=event,
                text=text,
                elapsed=None if seconds is None else round(seconds, 1),
                price_hour=price_hour,
                cost=None if cost is None else str(cost.quantize(Decimal("0.0001"))),
                **facts,
            )


def _line(name: str, event: str, text: str, seconds: float | None, cost: Decimal | None) -> str:
    elapsed = "" if seconds is None else f"{_short(seconds):>6}"
    money = "" if cost is None else f"${cost.quantize(Decimal('0.0001'))}"
    return f"  {elapsed:>6} {money:>8}  {name:<34} {event:<13} {text}".rstrip()


def _short(seconds: float) -> str:
    whole = int(max(seconds, 0))
    if whole < 100:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s"


# ---- rows of text as an aligned table that fits a terminal


def render(rows: t.Sequence[t.Mapping[str, t.Any]], columns: t.Mapping[str, str], *, right: t.Collection[str] = ()) -> list[str]:
    """Lines of a table. ``columns`` maps a row's key to its heading, in order; ``right`` names the right-aligned keys."""
    if not rows:
        return []
    cells = [[_text(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(heading), *(len(line[at]) for line in cells)) for at, heading in enumerate(columns.values())]

    def line(values: t.Sequence[str]) -> str:
        parts = [
            value.rjust(width) if key in right else value.ljust(width)
            for key, value, width in zip(columns, values, widths, strict=True)
        ]
        return "  " + "  ".join(parts).rstrip()

    return [line(list(columns.values())), line(["-" * width for width in widths]), *(line(values) for values in cells)]


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)
