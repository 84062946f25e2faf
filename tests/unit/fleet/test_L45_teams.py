# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-45: who pays for shared nodes, to the cent."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import LedgerLine, PodOwner, WorkingPod
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up, ledger_line, read_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.hours import Lifeline, PodTime, look
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.spend_report import owned_parts, report
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.teams import UNASSIGNED, UNKNOWN, Share, Split, pod_owner, rows
from ansible_collections.tgp.gpu.plugins.module_utils.reports.text import split_views
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, offer, one, pod, pool, seen, specs

RED, BLUE = PodOwner("research", "red", "ann"), PodOwner("serving", "blue")
Event = tuple[PodOwner, int, int, int]  # owner, start and end in seconds after 11:00, GPUs


def line(*events: Event, gpus: int = 4, price: str = "3.60", seconds: int = 3600, name: str = "tgp-a1b2c3d4-p-00001") -> LedgerLine:
    """A machine that is usable from its first second, whose pods all stay listed."""
    life = Lifeline(at("11:00"), None, at("11:00"), None, gpus)
    pods = [
        PodTime(WorkingPod(str(number), owner, count), at("11:00") + timedelta(seconds=start), at("11:00") + timedelta(seconds=end))
        for number, (owner, start, end, count) in enumerate(events)
    ]
    end = at("11:00") + timedelta(seconds=seconds)
    work, _due = look(None, life, pods, end)
    mine = claim(name, offer=offer(price, gpu_count=gpus), initialized=at("11:00"), work=work)
    return read_line(ledger_line(from_record(to_record(mine)), end=end))


def cents(*lines: LedgerLine) -> dict[str, dict[str, str]]:
    found = report(lines, None, NOON + timedelta(days=1))
    return {view: {row.word: str(row.cost) for row in entries} for view, entries in rows(found.split, found.total).items()}


def test_L45_E_shared_1_two_teams_on_a_node_of_four_gpus() -> None:
    """An hour at 3.60: red has two GPUs for half an hour, blue one for the whole hour; a GPU hour is 0.90."""
    found = cents(line((RED, 0, 1800, 2), (BLUE, 0, 3600, 1)))
    assert found["teams"] == {"blue": "0.9", "red": "0.9"} and found["unassigned"] == {"idle": "1.8"}
    assert found["namespaces"] == {"research": "0.9", "serving": "0.9"} and found["requesters"] == {"ann": "0.9", UNKNOWN: "0.9"}


def test_L45_E_shared_2_time_without_a_pod_and_gpus_beside_one_are_named_apart() -> None:
    assert cents(line((RED, 0, 900, 4)))["unassigned"] == {"waiting": "2.7"}
    assert cents(line((RED, 0, 3600, 1)))["unassigned"] == {"idle": "2.7"}


def test_L45_E_shared_3_pods_that_ask_for_more_than_there_is_share_it() -> None:
    assert cents(line((RED, 0, 3600, 3), (BLUE, 0, 3600, 1), gpus=2))["teams"] == {"red": "2.7", "blue": "0.9"}


def test_L45_E_shared_4_a_cent_that_cannot_be_divided_goes_to_the_largest_remainder() -> None:
    """0.10 among three equal parts: 4, 3 and 3 cents, always in the same order."""
    thirds = [(PodOwner("x", team), 0, 3600, 1) for team in ("c", "a", "b")]
    assert cents(line(*thirds, gpus=3, price="0.10"))["teams"] == {"a": "0.04", "b": "0.03", "c": "0.03"}


def test_L45_E_shared_5_no_amount_in_cents_is_a_cent_or_more_from_its_dollars() -> None:
    """A bill of 1.944. Amounts that are scaled to 1.94 first, and once more within what is assigned, make 1.59 of 1.603."""
    found = Split(
        teams={"red": Share(cost=Fraction("0.207")), "blue": Share(cost=Fraction("1.603"))},
        namespaces={"x": Share(cost=Fraction("1.81"))},
        unassigned={"idle": Share(cost=Fraction("0.107")), "waiting": Share(cost=Fraction("0.027"))},
    )
    shown = {view: {row.word: str(row.cost) for row in entries} for view, entries in rows(found, Decimal("1.944")).items()}
    assert shown["teams"] == {"blue": "1.6", "red": "0.21"} and shown["namespaces"] == {"x": "1.81"}
    assert shown["unassigned"] == {"idle": "0.11", "waiting": "0.02"}


AMOUNTS = st.dictionaries(st.sampled_from("abcd"), st.fractions(0, 20, max_denominator=997), min_size=1)
NOBODYS = st.dictionaries(st.sampled_from(UNASSIGNED), st.fractions(0, 20, max_denominator=997))


@given(AMOUNTS, NOBODYS)
def test_L45_cents_add_up_to_the_bill_and_each_is_its_amount(teams: dict[str, Fraction], nobodys: dict[str, Fraction]) -> None:
    exact = sum(teams.values()) + sum(nobodys.values())
    total = Decimal(exact.numerator) / exact.denominator
    whole = {"x": Share(cost=sum(teams.values(), Fraction(0)))}
    found = Split(*({word: Share(cost=amount) for word, amount in view.items()} for view in (teams, {}, {}, nobodys)))
    views = rows(dataclasses.replace(found, namespaces=whole), total)
    for view, amounts in (("teams", teams), ("unassigned", nobodys)):
        assert all(abs(row.cost - Decimal(float(amounts[row.word]))) < Decimal("0.01") + Decimal("1e-9") for row in views[view])
    bill = total.quantize(Decimal("0.01"), ROUND_HALF_UP)
    assert sum(row.cost for view in ("teams", "unassigned") for row in views[view]) == bill
    assert sum(row.cost for view in ("namespaces", "unassigned") for row in views[view]) == bill


def test_L45_parts_of_owners_are_cut_at_midnights_and_add_up_to_the_bill() -> None:
    """Two days at the longest, in a place whose midnight is 11:15 UTC; a third of a cent has no last digit."""
    lines = [line((RED, 0, 3600, 2), (BLUE, 600, 1800, 1), price="1.99"), line(gpus=3, price="0.10", name="tgp-a1b2c3d4-p-00002")]
    found = report(lines, None, NOON + timedelta(days=1), "Pacific/Chatham")
    parts = owned_parts(lines, None, NOON + timedelta(days=1), "Pacific/Chatham")
    assert add_up(part.cost for part in parts) == found.total
    red = [part for part in parts if part.owner == RED]
    assert [(part.day, part.gpu_seconds) for part in red] == [("2026-08-20", 1800), ("2026-08-21", 5400)]
    for owner in (RED, BLUE):
        share = found.split.teams[owner.team]
        assert sum(part.gpu_seconds for part in parts if part.owner == owner) == share.gpu_hours * 3600
        assert float(sum(part.cost for part in parts if part.owner == owner)) == pytest.approx(float(share.cost), abs=1e-20)
    assert {part.unassigned for part in parts if part.owner is None} == set(found.split.unassigned)


@pytest.mark.parametrize(
    ("labels", "spaces", "machine", "team"),
    [
        ({"tgp.io/team": "pod"}, {"tgp.io/team": "space"}, "pool", "pod"),
        ({}, {"tgp.io/team": "space"}, "pool", "space"),
        ({}, {}, "pool", "pool"),
        ({}, {}, "", ""),
        ({"tgp.io/team": "pod"}, None, "pool", "pod"),
        ({}, None, "pool", ""),  # the right is missing: what the namespace says would go before the pool
    ],
)
def test_L45_whose_label_counts(labels: dict[str, str], spaces: dict[str, str] | None, machine: str, team: str) -> None:
    settings = Settings(namespace_teams=True)
    known = None if spaces is None else {"default": spaces}
    assert pod_owner(pod(labels=labels), known, PodOwner("default", machine), settings).team == team
    assert pod_owner(pod(labels={"cost": "x"}), None, None, Settings(team_label="cost")) == PodOwner("default", "x")


def test_L45_namespaces_do_not_count_unless_they_are_asked_for() -> None:
    assert pod_owner(pod(), None, PodOwner("default", "pool"), Settings()).team == "pool"


def test_L45_a_machine_remembers_for_whom_it_was_launched() -> None:
    wanted = pool(document_labels={"tgp.io/team": "red", "tgp.io/requester": "ann"})
    launched = one(decide(seen(offers=(offer(),)), specs(wanted, p=1), "provision"), "launch").claim
    assert launched is not None and launched.owner == PodOwner("default", "red", "ann")


def test_L45_people_read_the_views_in_which_somebody_is_known() -> None:
    found = report([line((RED, 0, 1800, 2))], None, NOON + timedelta(days=1))
    assert [heading for heading, _rows in split_views(found)] == ["team", "namespace", "requester"]
    unknown = report([line((PodOwner("x"), 0, 1800, 2))], None, NOON + timedelta(days=1))
    assert [heading for heading, _rows in split_views(unknown)] == ["namespace"]


@given(st.integers(0, 2**32), st.sampled_from(["0.42", "1.99", "3.3333", "12.5"]))
def test_L45_the_split_is_the_integral_by_the_second_and_the_cents_are_those_of_the_bill(seed: int, price: str) -> None:
    chance = random.Random(seed)
    owners = [PodOwner(f"n{number % 2}", f"t{number % 3}") for number in range(4)]
    lines, exact = [], {f"t{number}": Fraction(0) for number in range(3)}
    for number in range(chance.randint(1, 3)):
        gpus, seconds = chance.choice((1, 2, 8)), chance.randint(60, 1500)
        events = [
            (
                chance.choice(owners),
                start := chance.randint(0, seconds - 1),
                chance.randint(start + 1, seconds),
                chance.randint(1, 3),
            )
            for _event in range(chance.randint(0, 5))
        ]
        machine = dataclasses.replace(line(*events, gpus=gpus, price=price, seconds=seconds), key=str(number))
        lines.append(machine)
        for second in range(seconds):
            here = [event for event in events if event[1] <= second < event[2]]
            wanted = max(gpus, sum(event[3] for event in here))
            for event in here:
                exact[event[0].team] += Fraction(event[3], wanted) * Fraction(machine.cost) / seconds
    found = report(lines, None, NOON + timedelta(days=1))
    split = found.split
    for team, amount in exact.items():
        cost = split.teams[team].cost if team in split.teams else Fraction(0)
        assert abs(cost - amount) < Fraction(1, 100)
    total = found.total.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")
    views: t.Any = rows(split, found.total)
    for view in ("teams", "namespaces", "requesters"):
        assert sum(row.cost for row in (*views[view], *views["unassigned"])) == total, view
