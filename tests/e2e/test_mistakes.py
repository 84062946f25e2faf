# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each of the sixty-five mistakes ends as tests/mistakes/table.py says, and nothing is rented by any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.desk import Desk
from tests.mistakes.table import MISTAKES

from .box import Sandbox


@pytest.mark.parametrize("number", range(1, len(MISTAKES) + 1), ids=[one.what for one in MISTAKES])
def test_a_mistake_is_answered_in_words_that_help(sandbox: Sandbox, tmp_path: Path, number: int) -> None:
    desk, one = Desk(sandbox, tmp_path), MISTAKES[number - 1]
    desk.begin(number)
    done = one.make(desk)
    assert one.faults(done) == [], done.text
    assert sandbox.totals()["instances"] == 0


def test_all_of_them_are_there() -> None:
    assert len(MISTAKES) == 65 == len({one.what for one in MISTAKES})
