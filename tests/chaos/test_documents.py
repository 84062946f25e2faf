# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that go, break, come again and appear (L-25), in files and in the cluster, each in a story of its own. Where it is to go, the
machine is a container that serves, which nothing else ends."""

from __future__ import annotations

import pytest

from .adverse import INGREDIENTS
from .grounds import ALL
from .sources import LATER, SOURCES
from .stage import Stage
from .story import Story

_HOUR = ("run reap", "rest 300") * 12


def _living(ground: str, *lines: str, to_rest: bool = True) -> list[int]:
    """How many machines live after each run."""
    stages: list[Stage] = []
    living: list[int] = []
    Story(ground, "documents", lines).play(
        lambda _line: living.append(len(stages[0].sight.living())), sabotage=stages.append, to_rest=to_rest
    )
    return living


def _ends(*lines: str, source: str = "folder", to_rest: bool = True) -> int:
    """The run of ``reap`` after which the machine of the first run did not live any more; 0 when it lived to the last line."""
    living = _living("runpod", f"documents {source}", "run provision nodes=1", *lines, to_rest=to_rest)
    return living.index(0) if 0 in living else 0


@pytest.mark.parametrize(
    ("source", "line"),
    [
        *(("folder", f"source {state}") for state in ("empty", "missing")),
        *(("folder", f"document {state} {name}") for state in ("yaml", "field") for name in ("training", "demo")),
        *(("file", f"source {state}") for state in ("empty", "missing")),
        *(("file", f"document {state} training") for state in ("yaml", "field")),
        *(
            ("cluster", line)
            for line in ("source missing", "document yaml training", "document field training", "document field demo")
        ),
    ],
)
def test_I21_nothing_ends_while_a_source_tells_nothing_or_a_document_is_broken(source: str, line: str) -> None:
    assert _ends(line, *_HOUR[:12], source=source, to_rest=False) == 0  # drawn stories bring these to rest


@pytest.mark.parametrize("source", ["folder", "file"])
def test_I21_a_broken_file_hides_that_another_document_is_gone(source: str) -> None:
    assert _ends("document yaml demo", "document vanish training", *_HOUR, source=source) == 0


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_I21_a_machine_whose_document_is_gone_ends_after_ten_minutes(source: str) -> None:
    assert 2 < _ends("document vanish training", *_HOUR, source=source) <= 4


def test_I21_a_list_of_the_cluster_that_is_empty_is_believed() -> None:
    assert 2 < _ends("source empty", *_HOUR, source="cluster") <= 4


@pytest.mark.parametrize("source", ["folder", "cluster"])
def test_I21_a_document_that_comes_again_keeps_its_machine(source: str) -> None:
    assert _ends("document vanish training", *_HOUR[:4], "document return training", *_HOUR, source=source) == 0


def test_I21_a_document_that_said_keep_leaves_its_machine_to_its_limits() -> None:
    keep = ("document keep training", "run provision nodes=1", "document vanish training", *_HOUR)
    assert _ends(*keep) == 0
    assert 0 < _ends("change expireAfter 30m", *keep) <= 9


@pytest.mark.parametrize("source", sorted(SOURCES))
@pytest.mark.parametrize("kind", ["request", "pool"])
def test_a_document_that_appears_gets_a_machine_that_goes_with_it(kind: str, source: str) -> None:
    begin = ("run autoscale", f"document appear {kind}", "run autoscale")
    living = _living("lambda", f"documents {source}", *begin, f"document vanish {LATER}", *("run reap", "rest 330") * 5)
    assert living[:2] == [0, 1] and living[-1] == 0


def test_stories_draw_where_documents_stand_and_which_appear() -> None:
    stories = [Story.draw(ground, f"1/{number}") for ground in sorted(ALL) for number in range(12)]
    assert {one.lines[0] for one in stories} == {f"documents {source}" for source in SOURCES}
    lines = {line for one in stories for line in one.lines}
    assert lines >= {"document appear request", "document appear pool", "source empty", "source missing"}


@pytest.mark.parametrize(
    ("ground", "ingredient", "lines"),
    [
        ("lambda", "documents from a folder", ("run provision nodes=1",)),
        ("lambda", "documents from a file", ("documents file", "run provision nodes=1")),
        ("lambda", "documents from the cluster", ("documents cluster", "run provision nodes=1")),
        ("lambda", "document appear", ("document appear request", "run autoscale")),
        ("lambda", "empty source", ("source empty", "run reap")),
        ("paperspace", "several classes and pools", ("run provision nodes=1 pool=batch",)),
        ("runpod", "lane service", ("run provision nodes=1",)),
    ],
)
def test_an_ingredient_of_documents_is_counted(ground: str, ingredient: str, lines: tuple[str, ...]) -> None:
    assert ingredient in INGREDIENTS
    assert Story(ground, "counted", lines).play().changed[ingredient] >= 1
