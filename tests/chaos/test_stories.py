# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories drawn by chance, on every ground; docs/evidence/chaos.md says what happens in them. ``TGP_CHAOS_RUNS`` is how many stories
a ground gets, ``TGP_CHAOS_SEED`` which (as 3 or 1-20)."""

from __future__ import annotations

import gc
import os
import threading

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import redact

from .grounds import ALL, BY_NAME, NAMED
from .story import Story, Sum

STORIES = int(os.environ.get("TGP_CHAOS_RUNS", "2"))
FIRST, _DASH, LAST = os.environ.get("TGP_CHAOS_SEED", "1").partition("-")


@pytest.mark.parametrize("ground", [*sorted(ALL), *BY_NAME])
def test_L24_whatever_happens_nothing_leaks_and_no_limit_is_passed(ground: str) -> None:
    """Every invariant. Of grounds that no search draws by itself there is half as many stories."""
    stories = STORIES if ground in ALL else (STORIES + 1) // 2
    for seed in range(int(FIRST), int(LAST or FIRST) + 1):
        total = Sum()
        for number in range(stories):
            total.add(Story.draw(ground, f"{seed}/{number}").play())
        print(f"{ground}, seed {seed}: {total}")
        assert total.stories == stories


def test_a_small_story_is_one_or_two_scenes() -> None:
    """With the same lines each time, on every ground with lines that can be played."""
    for ground in NAMED:
        story = Story.draw_small(ground, "1/0")
        assert story == Story.draw_small(ground, "1/0") and story.lines[0].startswith("limits ")
        assert 1 < len(story.lines) < 60 and Story.parse(story.text()) == story


def test_stories_leave_no_file_no_thread_and_no_secret_behind() -> None:
    """However many are played, a killed run in each: after the fifth there is no more than after the first, of secrets those of two."""
    files, threads, secrets = list[int](), list[int](), list[int]()
    for number in range(5):
        Story("mixed", f"files/{number}", ("run provision nodes=2 kill=60", "rest 70", "race provision | reap host=b")).play()
        gc.collect()
        files.append(len(os.listdir("/proc/self/fd")))
        threads.append(threading.active_count())
        secrets.append(len(redact._known))
    assert files[4] == files[0] and threads[4] == threads[0]
    assert secrets[4] < 3 * secrets[0]


def test_a_story_plays_the_same_way_each_time() -> None:
    """Same lines, same seed: the same runs end the same way at the same second."""
    story = Story.draw("mixed", "again/3")
    first, second = list[str](), list[str]()
    assert str(story.play(first.append)) == str(Story.parse(story.text()).play(second.append))
    assert first == second and len(first) > 3
