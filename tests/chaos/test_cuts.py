# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process dies at each write of a playbook, before its effect and after it; the same playbook once more brings the world to where it
should be. Prints a table: cut point, what was found, state after the rerun."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

import pytest

from .stage import Order, Stage
from .steps import play
from .test_races import staged

PAUSE = 660.0
EACH = int(os.environ.get("TGP_CHAOS_CUTS", "4"))  # 1 = every write, 4 = every fourth
Prepare = t.Callable[[Stage], None]


def _nothing(_stage: Stage) -> None:
    return


def _idle_machine(stage: Stage) -> None:
    """A machine that has been Ready and idle for long enough to go in the next reap."""
    stage.perform(Order("provision"))
    stage.rest(PAUSE)
    stage.perform(Order("reap"))
    stage.rest(PAUSE)


def _rented_machine(stage: Stage) -> None:
    stage.perform(Order("provision"))


def _waiting_pod(stage: Stage) -> None:
    play(stage, "demand 1")
    stage.rest(5)


def _saved_plan(stage: Stage) -> None:
    stage.perform(Order("plan"))


CASES: dict[str, tuple[Prepare, int]] = {
    "provision": (_nothing, 1),
    "autoscale": (_waiting_pod, 1),
    "apply": (_saved_plan, 1),
    "reap": (_idle_machine, 0),
    "destroy": (_rented_machine, 0),
}


def _writes(playbook: str, prepare: Prepare, folder: Path) -> list[tuple[int, str]]:
    """The calls of an uncut run that write, by their number in it."""
    found: list[tuple[int, str]] = []
    with staged(folder, f"cut {playbook}", 1) as stage:
        prepare(stage)
        before, number = len(stage.world.writes), 0
        calls: dict[int, int] = {}

        def watch(count: int) -> None:
            calls[count] = len(stage.world.writes)

        stage.on_call = watch
        (one,) = stage.perform(Order(playbook))
        assert one.end == "ok" and not stage.broken
        numbers = sorted(calls)
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            after = calls[following] if following is not None else len(stage.world.writes)
            for _when, service, what in stage.world.writes[max(before, calls[number]) : after][:1]:
                found.append((number, f"{service} {what}"))
    return found


def _short(call: str) -> str:
    text = re.sub(r"/(api|apis)/\S*?/(namespaces/[^/]+/)?(?=[a-z]+(/|$))", "", call)
    return re.sub(r"tgp-[0-9a-f]{8}-training-\w{5}", "<name>", text)[:66]


@pytest.mark.parametrize("playbook", sorted(CASES))
def test_L02_a_run_killed_at_any_write_is_finished_by_the_next(playbook: str, tmp_path: Path) -> None:
    prepare, wanted = CASES[playbook]
    points = _writes(playbook, prepare, tmp_path)
    assert len(points) > 5
    print(f"\n{playbook}: {len(points)} writes, every {EACH}. of them is cut")
    print(f"{'cut':>4} {'call':66} {'effect':6}  {'found by the next run':30}  after the rerun")
    for number, label in points[::EACH]:
        for after in (False, True):
            folder = tmp_path / f"{number}-{after}"
            folder.mkdir()
            with staged(folder, f"cut {playbook}", 1) as stage:
                prepare(stage)
                (cut,) = stage.perform(Order(playbook, kill=number, after=after))
                assert cut.end == "killed" and stage.kills == 1, (label, cut.end)
                found = _state(stage)
                runs = _finish(stage, playbook, wanted)
                print(
                    f"{number:>4} {_short(label):66} {'after' if after else 'before':6}  {found:30}  {_state(stage)} ({runs} runs)"
                )
                _check(stage, wanted, f"{label}, {'after' if after else 'before'} its effect")


def _state(stage: Stage) -> str:
    phases = [f"{one['phase']}" for one in stage.sight.claims().values()]
    nodes = [name for name in stage.nodes() if stage.sight.ours(name)]
    return f"{len(stage.sight.living())} machine, {len(nodes)} Node, claim {', '.join(phases) or 'none'}"


def _finish(stage: Stage, playbook: str, wanted: int) -> int:
    """The same playbook again, at once; and, where an open create call must be waited for (L-2), once its time is over."""
    for runs in range(1, 7):
        stage.perform(Order(playbook if runs == 1 or playbook != "apply" else "provision"))  # a plan is applied while it is young
        ready = [one for one in stage.sight.claims().values() if one["phase"] == "Ready"]
        if len(ready) == wanted and (wanted or not stage.left()):
            return runs
        # autoscale leaves the join to its next run, and a machine asks for its certificate for ten minutes only
        stage.rest(300 if playbook == "autoscale" else PAUSE)
    raise AssertionError(f"not finished: {_state(stage)}, {stage.sight.claims()}")


def _check(stage: Stage, wanted: int, where: str) -> None:
    """One machine, one claim, one Node; after the end of all work nothing, one bill, and no more create calls than two."""
    sight = stage.sight
    assert not stage.broken, (where, stage.broken)
    assert len(sight.living()) == len(sight.claims()) == wanted, where
    assert sum(sight.ours(name) for name in stage.nodes()) == wanted, where
    assert stage.creates() <= 2, where
    if wanted:
        stage.rest(PAUSE)
        stage.perform(Order("destroy"))
        stage.perform(Order("reap"))
    stage.rest(3700)  # a bootstrap token that no record names lives for an hour
    assert stage.left() == {} and not sight.holder(), where
    booked = [one for line in sight.ledger() for one in line["ids"]]
    assert sorted(booked) == sorted(one.id for one in sight.made()), where
    stage.check_bill(late=int(PAUSE) // 60 + 1)
