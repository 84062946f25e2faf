# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event log as a file: numbered over processes, shared, rotated, without secrets, and never in the way (S2-21)."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import signal
import threading
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import note_detail
from ansible_collections.tgp.gpu.plugins.module_utils.core.events import KEPT, LONGEST, Events
from ansible_collections.tgp.gpu.plugins.module_utils.core.files import events_path
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import register

SECRET = "secret-of-the-event-log-0123456789"


def lines(path: Path) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def events(path: Path, run: str = "run-1", **more: t.Any) -> Events:
    return Events(str(path), SystemClock(), run, **more)


def test_numbers_go_on_in_the_next_process_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    first = events(path, fresh=True)
    assert [first.write("progress", event="one"), first.write("progress", event="two")] == [1, 2]
    other = events(path, "run-10", fresh=True)
    assert other.write("progress", event="elsewhere") == 1
    assert events(path).write("progress", event="three") == 3, "run-10 begins like run-1 and is another"
    assert [(one["run"], one["seq"]) for one in lines(path)] == [("run-1", 1), ("run-1", 2), ("run-10", 1), ("run-1", 3)]
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_log_is_rotated_by_size_and_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = events(path, fresh=True, rotate_at=300)
    for number in range(60):
        log.write("progress", event="x", text=str(number))
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix != ".lock") == [
        "events.jsonl", *(f"events.jsonl.{number}" for number in range(1, KEPT + 1))
    ]  # fmt: skip
    order = [*(tmp_path / f"events.jsonl.{number}" for number in range(KEPT, 0, -1)), path]
    told = [one["seq"] for file in order for one in lines(file)]
    assert told == list(range(told[0], 61)), "nothing between two files is lost"
    assert all(file.stat().st_size < 300 + 200 for file in order)
    assert events(path, rotate_at=300).write("progress", event="later") == 61, "the run's last line may lie in the file before"


def test_another_process_that_rotates_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = events(path, fresh=True)
    log.write("progress", event="old")
    os.replace(path, tmp_path / "events.jsonl.1")
    log.write("progress", event="new")
    assert [one["event"] for one in lines(path)] == ["new"]
    path.unlink()
    log.write("progress", event="newer")
    assert [one["event"] for one in lines(path)] == ["newer"]


def _many(path: str, run: str) -> None:
    log = Events(path, SystemClock(), run, fresh=True, rotate_at=50_000)
    threads = [
        threading.Thread(target=lambda: [log.write("progress", event="x", text="y" * 200) for _ in range(25)]) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def test_processes_that_share_the_file_lose_and_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    processes = [multiprocessing.get_context("spawn").Process(target=_many, args=(str(path), f"run-{one}")) for one in range(3)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    told: dict[str, list[int]] = {}
    for file in [*reversed(sorted(tmp_path.glob("events.jsonl.[0-9]"))), path]:
        for line in lines(file):
            told.setdefault(line["run"], []).append(line["seq"])
    assert told == {f"run-{one}": list(range(1, 101)) for one in range(3)}


def test_what_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    warnings: list[str] = []
    log = events(tmp_path / "file" / "events.jsonl", warn=warnings.append)
    assert [log.write("progress", event="x") for _ in range(3)] == [0, 0, 0]
    assert len(warnings) == 1
    assert "the run goes on without it" in warnings[0]


def test_a_pipe_that_nobody_reads_does_not_stop_a_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    warnings: list[str] = []
    assert events(tmp_path / "pipe", fresh=True, warn=warnings.append).write("progress", event="x") == 0
    assert len(warnings) == 1
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert events(tmp_path / "pipe").write("progress", event="read") == 1
    assert json.loads(os.read(reader, 10_000))["event"] == "read"
    os.close(reader)


def test_a_file_that_cannot_be_opened_again_after_rotation_closes_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed file is soon another one's."""
    path = tmp_path / "events.jsonl"
    path.write_text("x" * 100)
    log, opened, real = events(path, fresh=True, rotate_at=50), [], os.open

    def scarce(name: t.Any, *more: t.Any) -> int:
        opened.append(name)
        if len(opened) == 3:  # the full one, the lock, the new one
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(name, *more)

    monkeypatch.setattr(os, "open", scarce)
    assert log.write("progress", event="x") == 0
    theirs = real(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    log.close()
    os.fstat(theirs)
    assert log.write("progress", event="y") > 0
    os.fstat(theirs)
    os.close(theirs)


def test_a_full_disk_tears_one_line_and_the_next_stands_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    warnings: list[str] = []
    log = events(path, fresh=True, warn=warnings.append)
    log.write("progress", event="before")
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
        assert log.write("progress", event="cut") == 0
        assert log.write("progress", event="lost") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert log.write("progress", event="after") > 0
    texts = path.read_text().splitlines()
    assert len(warnings) == 1
    assert (json.loads(texts[0])["event"], json.loads(texts[-1])["event"]) == ("before", "after")
    assert len(texts) == 3


def test_of_an_error_of_a_service_the_status_and_the_code_are_kept(tmp_path: Path) -> None:
    kept, said = "lambda: POST /launch was answered 400 global/x", "user_data holds words of the service " + "x" * 2 * LONGEST
    note_detail(kept, said)
    path = tmp_path / "events.jsonl"
    events(path, fresh=True).write("outcome", call="launch", text=f"{kept}: {said}.", data={"why": [f"refused: {kept}: {said}"]})
    (line,) = lines(path)
    assert (line["text"], line["data"]) == (f"{kept}.", {"why": [f"refused: {kept}"]})


def test_secrets_are_masked_before_texts_are_cut(tmp_path: Path) -> None:
    register(SECRET)
    path = tmp_path / "events.jsonl"
    border = "x" * (LONGEST - 10) + SECRET
    events(path, fresh=True).write("progress", event="x", text=border, data={SECRET: [f"a{SECRET}b"]}, price_hour=Decimal("0.10"))
    said = path.read_text()
    assert SECRET not in said
    assert SECRET[:10] not in said
    (line,) = lines(path)
    assert len(line["text"]) <= LONGEST
    assert line["price_hour"] == "0.10"


@pytest.mark.parametrize(
    "params, variables, expected",
    [
        ({"events_file": "/var/a.jsonl"}, {"TGP_EVENTS_FILE": "/var/b.jsonl"}, "/var/a.jsonl"),
        ({"events_file": None, "state_dir": "/s"}, {"TGP_EVENTS_FILE": "/var/b.jsonl"}, "/var/b.jsonl"),
        ({"state_dir": "/s"}, {}, "/s/events.jsonl"),
        ({}, {"TGP_STATE_DIR": "/t"}, "/t/events.jsonl"),
        ({"events_file": "none", "state_dir": "/s"}, {}, ""),
        ({"state_dir": "/s"}, {"TGP_EVENTS_FILE": "None"}, ""),
    ],
)
def test_where_the_log_lies(
    params: dict[str, t.Any], variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TGP_EVENTS_FILE", "TGP_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert events_path(params) == expected
