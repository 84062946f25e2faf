# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of launches on this host."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, TimedOut
from ansible_collections.tgp.gpu.plugins.module_utils.providers.launch_record import Launch, LaunchRecord

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


class Time:
    """A clock that only sleep moves."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def record(folder: Path, name: str = "tgp-demo", cloud: str = "vast") -> LaunchRecord:
    return LaunchRecord(str(folder), cloud, name, Time())


def test_L2a_what_is_written_is_read_and_removed(tmp_path: Path) -> None:
    one = record(tmp_path)
    assert one.read() is None
    for launch in (Launch(NOON), Launch(NOON, "101"), Launch(NOON, "101", NOON + timedelta(hours=1))):
        one.write(launch)
        assert record(tmp_path).read() == launch
    assert record(tmp_path, name="other").read() is None and record(tmp_path, cloud="runpod").read() is None
    one.remove()
    one.remove()
    assert one.read() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"started": 5, "id": "", "ended": null}', '{"started": "soon", "id": "", "ended": ""}']
)
def test_L2a_a_damaged_record_is_named_and_never_taken_for_none(tmp_path: Path, text: str) -> None:
    one = record(tmp_path)
    one.write(Launch(NOON))
    Path(one.path).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match="damaged") as caught:
        one.read()
    assert one.path in str(caught.value) and "tgp-demo" in str(caught.value)


def test_L2a_a_folder_that_cannot_be_used_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "launches").write_text("in the way")
    one = record(tmp_path)
    with pytest.raises(InvalidInput, match="TGP_STATE_DIR"):
        one.write(Launch(NOON))
    with pytest.raises(InvalidInput, match="TGP_STATE_DIR"), one.locked():
        pass


def test_L2a_another_process_holds_the_name_until_it_ends(tmp_path: Path) -> None:
    one = record(tmp_path)
    with one.locked():
        pass
    other = subprocess.Popen([sys.executable, "-c", HOLD, f"{one.path}.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(TimedOut, match="Another run"), one.locked():
            pass
        with record(tmp_path, name="other").locked():
            pass
    finally:
        other.kill()
        other.wait()
    with one.locked():  # the lock of a process that was killed is free
        pass
