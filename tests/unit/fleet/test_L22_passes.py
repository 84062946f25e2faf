# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22, L-26: a plan is a table of passes; docs/explanation/architecture.md shows it, and its order is that of the reasons."""

from __future__ import annotations

import itertools
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Observation, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import MODES, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import ActionKind, Reason
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claim_sync import settle
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import orphans
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import PASSES, Pass, Run, passes_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan_builder import Draft, rank, stronger
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, decide, seen
from .test_L24_invariants import wanted, worlds

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "architecture.md"


def table() -> list[dict[str, str]]:
    """The rows of the table in docs/explanation/architecture.md, a cell by the text at the head of its column."""
    section = PAGE.read_text(encoding="utf-8").partition("## Passes of a plan\n")[2].partition("\n## ")[0]
    head, _rule, *rows = (
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", section, re.MULTILINE)
    )
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("mode", MODES)
def test_L22_the_passes_of_each_mode_are_those_of_the_page(mode: str) -> None:
    rows = [row for row in table() if row[mode] == "yes"]
    assert [one.name for one in passes_of(mode)] == [row["pass"] for row in rows]
    assert [", ".join(one.reasons) or "-" for one in passes_of(mode)] == [row["ends machines for"] for row in rows]


def test_L22_a_pass_has_one_name_and_runs_in_modes_that_exist() -> None:
    names = [one.name for one in PASSES]
    assert len(set(names)) == len(names)
    assert all(set(one.blind) <= set(one.modes) <= set(MODES) and one.modes for one in PASSES)


@pytest.mark.parametrize("mode", MODES)
def test_L22_each_pass_runs_after_those_it_needs_and_says_why(mode: str) -> None:
    names = [one.name for one in passes_of(mode)]
    for one in passes_of(mode):
        assert set(one.after) <= {other.name for other in PASSES}
        late = [other for other in one.after if other in names and names.index(other) > names.index(one.name)]
        assert late == [], one.name
        assert one.why or not (one.after or one.ahead_of), one.name


@pytest.mark.parametrize("mode", MODES)
def test_L26_passes_stand_in_the_order_of_their_reasons(mode: str) -> None:
    """Each by its strongest reason. A launch that rented nothing competes with no machine."""
    ending = [one for one in passes_of(mode) if one.reasons and Reason.LAUNCH_FAILED not in one.reasons]
    for first, second in itertools.combinations(ending, 2):
        strongest = min(second.reasons, key=rank)
        early = stronger(strongest, min(first.reasons, key=rank))
        assert early == (strongest in first.ahead_of), (first.name, second.name)


def test_L26_every_exception_from_the_order_is_used() -> None:
    for one in PASSES:
        later = {reason for mode in one.modes for other in _after(one, mode) for reason in other.reasons}
        assert set(one.ahead_of) <= later, one.name


def _after(one: Pass, mode: str) -> tuple[Pass, ...]:
    passes = passes_of(mode)
    return passes[passes.index(one) + 1 :]


@given(world=worlds(), asked=wanted(), mode=st.sampled_from(MODES))
def test_L26_a_pass_ends_machines_for_its_own_reasons_only(world: Observation, asked: Specs, mode: str) -> None:
    """Beside those whose end an earlier run has begun."""
    situation = Situation(world, asked, Settings(mode=mode), CAPABILITIES)
    draft = Draft(situation, {claim.name: settle(claim, situation) for claim in situation.claims})
    run = Run(draft, orphans.machines(situation), "run")
    for one in passes_of(mode):
        before = dict(draft.decisions)
        one.run(run)
        changed = {name: action for name, action in draft.decisions.items() if before.get(name) is not action}
        assert not set(changed) & set(before), f"{one.name} decides anew"
        new = {action.reason for name, action in changed.items() if action.kind == ActionKind.DESTROY and _is_new(draft, name)}
        assert new <= set(one.reasons) | _goes_on(one), one.name


def _is_new(draft: Draft, name: str) -> bool:
    return draft.settled[name].stored.deletion is None


def _goes_on(one: Pass) -> t.Collection[str]:
    """A claim in phase Terminating without a reason goes on as if a person had asked for it."""
    return {Reason.MANUAL} if one.name == "terminating" else set()


@pytest.mark.parametrize("mode", MODES)
def test_L22_without_the_nodes_only_reports_are_made(mode: str) -> None:
    told = {
        "keep-findings",
        "wrong-clock",
        "unread-nodes",
        "paused-pools",
        "damaged-claims",
        "document-faults",
        "unread-sources",
        "blocked-pools",
        "notices",
    }
    blind = {one.name for one in passes_of(mode, blind=True)}
    assert blind - told == ({"price-warnings", "launch"} if mode == "provision" else set())
    assert [one.kind for one in decide(seen(nodes=None), mode=mode).actions if one.kind != ActionKind.REPORT] == []
