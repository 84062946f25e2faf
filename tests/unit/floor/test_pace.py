# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a pace is a file that anything may happen to."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import Bucket, RateLimiter


class HandClock:
    """Time that only moves by sleeping."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.moment += timedelta(seconds=seconds)


@pytest.mark.parametrize("left", [b"", b"noon", b"nan", b"inf", b"-inf", b"\xff\xfe", b"\x00\x00", b"1e300"])
def test_a_file_of_nonsense_stops_nobody_and_paces_from_then_on(tmp_path: Path, left: bytes) -> None:
    clock = HandClock()
    pace = RateLimiter("account", {"": Bucket(5.0)}, str(tmp_path))
    pace.wait("", clock)
    (file,) = tmp_path.iterdir()
    file.write_bytes(left)
    clock.slept.clear()
    for _call in range(3):
        pace.wait("", clock)
    assert clock.slept == [0.0, 5.0, 5.0]
