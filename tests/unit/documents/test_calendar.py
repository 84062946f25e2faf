# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused in a pool's calendar, with its place."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .test_meaning import read

OFFICE = {"from": "08:00", "to": "18:00"}


def told(calendar: dict[str, t.Any], folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read("GPUNodePool", {"nodeClassRef": {"name": "base"}, "calendar": calendar}, folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("calendar", "words"),
    [
        (
            {"timeZone": "Europe/Atlantis", "windows": [OFFICE]},
            "spec.calendar.timeZone: there is no time zone 'Europe/Atlantis'",
        ),
        ({"timeZone": "../../etc/passwd", "windows": [OFFICE]}, "spec.calendar.timeZone: there is no time zone"),
        ({"windows": [{"from": "08:00", "to": "08:00"}]}, "windows[0].to: 08:00 is also when the window begins"),
        ({"windows": [{**OFFICE, "to": "25:00"}]}, "windows[0].to"),
        ({"windows": [{**OFFICE, "days": ["Monday"]}]}, "windows[0].days[0]"),
        ({"windows": []}, "spec.calendar.windows"),
        ({"windows": [{"from": "08:00"}]}, "to"),
        ({"windows": [OFFICE], "hardStop": "20:00"}, "hardStop"),
    ],
)
def test_L18_what_is_odd_in_a_calendar_is_named(calendar: dict[str, t.Any], words: str, tmp_path: Path) -> None:
    assert words in told(calendar, tmp_path)
