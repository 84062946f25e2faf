# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that go, break and come again (L-25), each in a story of its own. The machine is a container that serves, which nothing else
ends."""

from __future__ import annotations

import pytest

from .stage import Stage
from .story import Story

_HOUR = ("run reap", "rest 300") * 12


def _ends(*lines: str) -> int:
    """The run of ``reap`` after which the machine of the first run did not live any more; 0 when it lived to the last line."""
    stages: list[Stage] = []
    alive: list[bool] = []

    def look(_line: str) -> None:
        alive.append(bool(stages[0].sight.living()))

    Story("runpod", "documents", ("run provision nodes=1", *lines)).play(look, sabotage=stages.append)
    return 0 if alive[-1] else alive.index(False)


@pytest.mark.parametrize(
    "line", ["folder empty", "document yaml training", "document field training", "document yaml demo", "document field demo"]
)
def test_I21_nothing_ends_while_a_source_is_empty_or_a_file_is_broken(line: str) -> None:
    assert _ends(line, *_HOUR) == 0


def test_I21_a_broken_file_hides_that_another_document_is_gone() -> None:
    assert _ends("document yaml demo", "document vanish training", *_HOUR) == 0


def test_I21_a_machine_whose_document_is_gone_ends_after_ten_minutes() -> None:
    assert 2 < _ends("document vanish training", *_HOUR) <= 4


def test_I21_a_document_that_comes_again_keeps_its_machine() -> None:
    assert _ends("document vanish training", *_HOUR[:4], "document return training", *_HOUR) == 0


def test_I21_a_document_that_said_keep_leaves_its_machine_to_its_limits() -> None:
    keep = ("document keep training", "run provision nodes=1", "document vanish training", *_HOUR)
    assert _ends(*keep) == 0
    assert 0 < _ends("change expireAfter 30m", *keep) <= 9
