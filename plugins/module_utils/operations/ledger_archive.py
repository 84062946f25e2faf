# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_archive: old closing lines leave the ledger for a file. A line is removed only after the file was read back with it, and
after what it adds to the metrics was recorded: their counters do not fall."""

from __future__ import annotations

import fcntl
import io
import json
import os
import typing as t
from datetime import datetime, timedelta

from ..core.errors import Conflict, InvalidInput
from ..core.task import Task
from ..metrics.collect import FleetRecords, archive
from ..metrics.state import ARCHIVED, read_archived, stored
from ..observe.context import Context, open_context
from ..planner.cost.cost import closing_keys, ended_before
from ..providers.registry import CAPABILITIES
from ..store.records import LedgerPart, encode, ledger_key
from ..units.values import print_time

SHORTEST = 35  # days; budgets count this month, and WireGuard hubs hear of what was closed in the last 30 days
Line = dict[str, t.Any]


def archive_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_archive."""
    days = task.params["older_than_days"]
    if days < SHORTEST:
        raise InvalidInput(
            f"{task.called('older_than_days')} is {days}; lines of the last {SHORTEST} days stay: budgets count this month.",
            remedy=f"Give {SHORTEST} or more, for example 400.",
        )
    context = open_context(task, documents_required=False)
    try:
        return _archive(context, days)
    finally:
        context.close()


def _archive(context: Context, days: int) -> dict[str, t.Any]:
    task, path = context.task, context.task.params["path"]
    before = context.clock.now() - timedelta(days=days)
    claims, _damaged = context.store.claim_records()
    closing = {key for claim in claims for key in closing_keys(claim)}  # the line says that such a claim is done with
    parts = context.store.ledger_parts()
    due = [part for part in parts if _is_due(part, closing) and all(ended_before(line, before) for line in part.lines)]
    lines = {ledger_key(line): line for part in due for line in part.lines}
    new = not os.path.exists(path)  # made even without a line, so that report.yml can name it from the first day
    if not task.check_mode and (due or new):
        _append(path, lines, task.called("path"))
        if due:
            _record_sums(context, before)
        for part in due:
            _remove(context, part)
    words = "would move" if task.check_mode else "moved"
    task.progress(f"  {words} {len(lines)} lines that ended before {print_time(before)} to {path}")
    return {"changed": bool(lines) or new, "lines": len(lines), "parts": len(due), "path": path}


def _record_sums(context: Context, before: datetime) -> None:
    """What lines that ended before this moment add to the metrics. Written in one call before the first line goes: with it they count from the
    record and not from the ledger, wherever this run is killed."""
    earlier = read_archived(context.store.read_state(ARCHIVED))
    claims, damaged = context.store.claim_records()
    now, settings = context.clock.now(), context.settings
    known = FleetRecords(
        tuple(claims), tuple(damaged), context.records.ledger(), context.specs, settings, now, CAPABILITIES, archived=earlier
    )
    later = archive(known, before)
    if later != earlier:
        context.store.write_state(ARCHIVED, stored(later))


def _is_due(part: LedgerPart, closing: set[str]) -> bool:
    return bool(part.lines) and not part.torn and not any(ledger_key(line) in closing for line in part.lines)


def _remove(context: Context, part: LedgerPart) -> None:
    try:
        context.store.remove_part(part)
    except Conflict:
        context.warn(f"{part.place} was changed meanwhile; the next run moves its lines.")


def read_archive(path: str) -> list[Line]:
    """Every line of an archive file once. InvalidInput for a file that cannot be read, or holds something else."""
    try:
        with open(path, encoding="utf-8") as file:
            return list(_lines(file, path).values())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"The archive {path} cannot be read: {error}", remedy="Give the file that fleet_archive wrote."
        ) from error


def _lines(file: t.TextIO, path: str) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for number, text in enumerate(file, 1):
        if not text.endswith("\n"):
            continue  # a run was killed while it wrote: the line is still in the ledger
        try:
            line = json.loads(text)
            lines.setdefault(ledger_key(line), line)
        except (ValueError, AttributeError, InvalidInput) as error:
            raise InvalidInput(f"{path}, line {number} is not a line of a ledger: {error}", remedy="Give another path.") from error
    return lines


def _append(path: str, lines: t.Mapping[str, Line], called: str) -> None:
    """Append what the file does not hold yet, have it on disk, and read it back. ``called``: the option that names the file."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            there = _lines(file, path)
            _cut_torn_end(file)
            file.seek(0, io.SEEK_END)
            file.writelines(f"{encode(line)}\n" for key, line in sorted(lines.items()) if key not in there)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            missing = lines.keys() - _lines(file, path).keys()
    except OSError as error:
        raise InvalidInput(
            f"The archive {path} cannot be written: {error.strerror}. Nothing was removed from the ledger.",
            remedy=f"Correct {called}.",
        ) from error
    if missing:
        raise InvalidInput(f"{path} does not hold {sorted(missing)[0]} after it was written. Nothing was removed from the ledger.")


def _cut_torn_end(file: t.TextIO) -> None:
    """Take off the half line that a killed run left at the end."""
    data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    os.ftruncate(file.fileno(), data.rfind(b"\n") + 1)
