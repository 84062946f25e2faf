# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-16: budgets of teams stop launches for pods, pools and requests of their team, and of no other."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from decimal import Decimal
from fractions import Fraction

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Ledger,
    Offer,
    Phase,
    Placement,
    Plan,
    Pod,
    PodOwner,
    SpendingBudget,
    Toleration,
    WorkingPod,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.observe.context import settings_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.budgets import Purse, open_purses
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, read_ledger
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.hours import Lifeline, PodTime, look
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, decide, instance, node, of, offer, one, pool, seen, specs
from .pods import GPU, waiting
from .test_L39_gangs import GROUP, member
from .test_L42_capacity_buffers import buffer

TOLERATES = Placement(tolerations=(Toleration("tgp.io/ephemeral", "Exists"),))
Budgets = tuple[tuple[str, SpendingBudget], ...]
USED_UP, TOO_LITTLE, UNKNOWN = (
    f"limit:budget.team {word}: day budget of team red" for word in ("used up", "too little left", "unknown")
)


def per_day(**amounts: str) -> Budgets:
    return tuple((team, SpendingBudget("day", Decimal(amount))) for team, amount in sorted(amounts.items()))


def used(*pods: tuple[str, str, str, int], price: str = "3.60", gpus: int = 4) -> Ledger:
    """A ledger of one machine from 11:00 to 12:00. ``pods``: team, start, end and GPUs."""
    life = Lifeline(at("11:00"), None, at("11:00"), None, gpus)
    times = [
        PodTime(WorkingPod(str(number), PodOwner("default", team), count), at(start), at(end))
        for number, (team, start, end, count) in enumerate(pods)
    ]
    work, _due = look(None, life, times, NOON)
    mine = claim("tgp-a1b2c3d4-p-00099", offer=offer(price, gpu_count=gpus), initialized=at("11:00"), work=work)
    return read_ledger([ledger_line(from_record(to_record(mine)), end=NOON)])


def spent(team: str, dollars: str) -> Ledger:
    return used((team, "11:00", "12:00", 1), price=dollars, gpus=1)


def of_team(team: str, name: str = "", gpus: int = 1, **facts: t.Any) -> Pod:
    facts.setdefault("placement", TOLERATES)
    return waiting(name or team, gpus, labels={"tgp.io/team": team} if team else {}, **facts)


def four(price: str = "3.60") -> Offer:
    return offer(price, gpu_count=4, id="four")


def autoscale(*pods: Pod, team_budgets: Budgets = (), ledger: Ledger | None = None, **facts: t.Any) -> Plan:
    facts = {"offers": (offer("0.90", id="one"),), "ledger": Ledger() if ledger is None else ledger, **facts}
    by_space = bool(facts.pop("namespace_teams", False))
    wanted = facts.pop("wanted", specs(pool()))
    return decide(seen(pods=pods, **facts), wanted, "autoscale", team_budgets=team_budgets, namespace_teams=by_space)


def reasons(found: Plan) -> dict[str, str]:
    return {one.name: one.reason for one in found.waiting}


def purse_of(ledger: Ledger | None, *claims: t.Any, budgets: Budgets = per_day(red="20")) -> Purse:
    return open_purses(specs(), Settings(team_budgets=budgets), ledger, claims, NOON, CAPABILITIES).all[0]


# ---- what a team has spent


def test_L16_a_team_spends_what_its_pods_used_and_nothing_of_what_nobody_did() -> None:
    """Two GPUs of four for half an hour at 3.60: 0.90. The 1.80 of idle GPUs are on no budget of a team."""
    ledger = used(("red", "11:00", "11:30", 2), ("blue", "11:00", "12:00", 1))
    assert [purse_of(ledger, budgets=per_day(**{team: "20"})).spent for team in ("red", "blue", "green")] == [
        Decimal("0.9"),
        Decimal("0.9"),
        Decimal(0),
    ]


def test_L16_a_team_has_its_part_of_the_first_hour_of_a_machine_reserved() -> None:
    """Launched at 11:30 for 4.00 an hour, three of four GPUs for red: 2.00 of the hour are left, 1.50 of them are red's."""
    young = claim(phase=Phase.BOOTING, launch_started=at("11:30"), offer=four("4.00"), launched_for=(("blue", 1), ("red", 3)))
    assert (purse_of(Ledger(), young).spent, purse_of(Ledger(), young).reserved) == (0, Decimal("1.5"))
    old = claim(phase=Phase.BOOTING, launch_started=at("11:00"), offer=four("4.00"), launched_for=(("red", 4),))
    assert purse_of(Ledger(), old).reserved == 0
    assert from_record(to_record(young)).launched_for == (("blue", 1), ("red", 3))


# ---- what it stops


def test_L16_a_budget_that_is_used_up_stops_launches_for_its_team_alone() -> None:
    found = autoscale(
        of_team("red"), of_team("blue"), of_team("", "nobody"), team_budgets=per_day(red="20", blue="20"), ledger=spent("red", "20")
    )
    assert reasons(found) == {"red": USED_UP, "blue": "", "nobody": ""}
    assert len(of(found, "launch")) == 2
    (notice,) = found.notices
    assert (notice.kind, notice.subject) == ("budget_hard", "team red 2026-08-20")
    assert any("day budget of team red: $20.00 of $20.00 spent" in text for text in found.warnings)


@pytest.mark.parametrize(("amount", "for_red", "reason"), [("0.90", 1, ""), ("0.8999", 0, TOO_LITTLE)])
def test_L16_teams_share_a_new_machine_and_each_pays_for_its_gpus(amount: str, for_red: int, reason: str) -> None:
    """Four GPUs at 3.60: a pod with one GPU needs 0.90 of its team's budget for an hour."""
    pods = [of_team("red"), of_team("blue", "b1"), of_team("blue", "b2")]
    found = autoscale(*pods, team_budgets=per_day(red=amount, blue="1.80"), offers=(four(),))
    launch = one(found, "launch").claim
    assert launch is not None and dict(launch.launched_for) == {"blue": 2, **({"red": 1} if for_red else {})}
    assert reasons(found) == {"red": reason, "b1": "", "b2": ""}


def test_L16_a_team_rents_as_far_as_its_money_goes() -> None:
    """1.80 are two hours of a machine for 0.90: of three pods that ask for the same, the last one waits."""
    found = autoscale(*(of_team("red", f"r{number}") for number in range(3)), team_budgets=per_day(red="1.80"))
    assert len(of(found, "launch")) == 2 and list(reasons(found).values()) == ["", "", USED_UP]


def test_L16_pods_without_money_take_no_room_on_a_new_machine_from_others() -> None:
    """The older pod of red would fill half of the first machine."""
    pods = [of_team("red", created=at("11:00")), of_team("blue", "b1"), of_team("blue", "b2")]
    found = autoscale(*pods, team_budgets=per_day(red="1"), ledger=spent("red", "1"), offers=(offer("1.80", gpu_count=2),))
    assert len(of(found, "launch")) == 1 and reasons(found) == {"red": USED_UP, "b1": "", "b2": ""}


def test_L16_a_pod_without_money_still_counts_on_free_gpus_after_all_others() -> None:
    there = {"claims": (claim(),), "instances": (instance(),), "nodes": (node(),)}
    alone = autoscale(of_team("red"), team_budgets=per_day(red="1"), ledger=spent("red", "1"), **there)
    assert reasons(alone) == {"red": ""} and not of(alone, "launch", "destroy")
    both = autoscale(
        of_team("red", created=at("11:00")), of_team("blue"), team_budgets=per_day(red="1"), ledger=spent("red", "1"), **there
    )
    assert reasons(both) == {"red": USED_UP, "blue": ""} and not of(both, "launch")


def test_L16_books_that_cannot_be_read_stop_the_launches_of_teams_with_a_budget() -> None:
    torn = Ledger((), ("tgp-ledger-00000",))
    found = autoscale(of_team("red"), of_team("blue"), team_budgets=per_day(red="20"), ledger=torn)
    assert reasons(found) == {"red": UNKNOWN, "blue": ""}


@pytest.mark.parametrize(
    ("spaces", "expected"),
    [
        ({"default": {"tgp.io/team": "red"}}, USED_UP),
        ({"default": {"tgp.io/team": "blue"}}, ""),
        (None, "limit:budget.team unknown: its team, because the namespaces could not be read"),
    ],
)
def test_L16_whose_budget_it_is_when_namespaces_count(spaces: dict[str, dict[str, str]] | None, expected: str) -> None:
    facts: dict[str, t.Any] = {"namespaces": spaces, "namespace_teams": True, "ledger": spent("red", "20")}
    found = autoscale(of_team("", "a"), of_team("blue"), team_budgets=per_day(red="20"), **facts)
    assert reasons(found) == {"a": expected, "blue": ""}


@pytest.mark.parametrize("mode", ["provision", "autoscale"])
def test_L16_machines_that_are_for_no_pod_are_their_pools_teams(mode: str) -> None:
    labels = {team: {"tgp.io/team": team} for team in ("red", "blue")}
    pools = [pool(team, document_labels=labels[team], min_nodes=1) for team in labels]
    facts: dict[str, t.Any] = {"offers": (offer("0.90"),), "ledger": spent("red", "20")}
    found = decide(seen(**facts), specs(*pools), mode, team_budgets=per_day(red="20"))
    assert [(action.pool, action.claim and action.claim.launched_for) for action in of(found, "launch")] == [
        ("default/blue", (("blue", 1),))
    ]
    assert [(short.pool, short.reason) for short in found.shortfall] == [("default/red", USED_UP)]


def test_L16_a_launch_that_made_nothing_is_not_made_anew_for_a_team_without_money() -> None:
    again = claim(phase=Phase.PENDING, launched_for=(("red", 1),))
    facts: dict[str, t.Any] = {"team_budgets": per_day(red="1"), "ledger": spent("red", "1"), "claims": (again,)}
    assert not of(autoscale(of_team("red"), **facts), "launch", "resume")
    served = one(autoscale(of_team("red", created=at("11:00")), of_team("blue"), **facts), "resume").claim
    assert served is not None and served.launched_for == (("blue", 1),)


@pytest.mark.parametrize(("amount", "launches"), [("3.60", 5), ("3.59", 1)])
def test_L16_a_gang_is_paid_for_as_a_whole_or_not_at_all(amount: str, launches: int) -> None:
    """Four machines at 0.90 for the gang of red, one for blue."""
    gang = [member(f"g-{number}", labels={**GROUP, "tgp.io/team": "red"}) for number in range(4)]
    found = autoscale(*gang, of_team("blue"), team_budgets=per_day(red=amount, blue="0.90"))
    assert len(of(found, "launch")) == launches and reasons(found)["blue"] == ""
    why = "" if launches == 5 else f"PodGroup default/g: room for 3 of 4; {TOO_LITTLE}"
    assert {reasons(found)[pod.name] for pod in gang} == {why}


@pytest.mark.parametrize(("team", "launches"), [("red", 0), ("blue", 1)])
def test_L16_spare_room_of_a_team_without_money_is_not_rented(team: str, launches: int) -> None:
    spare = dataclasses.replace(t.cast(Pod, buffer(1).pod), labels={"tgp.io/team": team})
    facts: dict[str, t.Any] = {"buffers": (buffer(1, pod=spare, replicas=1),), "wanted": specs(pool(capacity_buffers=True))}
    found = autoscale(team_budgets=per_day(red="20", blue="20"), ledger=spent("red", "20"), **facts)
    assert len(of(found, "launch")) == launches
    assert (USED_UP in found.buffers[0].conditions[1].message) is (not launches)


# ---- whatever waits


def _story(seed: int) -> tuple[list[Pod], dict[str, t.Any], dict[str, tuple[Decimal, Decimal]]]:
    """Pods, what there is, and of each team the amount and what is spent of it."""
    chance = random.Random(seed)
    teams = ("red", "blue", "green")
    pods = [
        of_team(chance.choice((*teams, "")), f"p{number}", chance.choice((1, 1, 2, 4)), created=at(f"11:{chance.randint(10, 50)}"))
        for number in range(chance.randint(1, 9))
    ]
    offers = tuple(
        offer(str(Decimal(count) * chance.choice((1, 2)) / 3 + Decimal("0.01")), gpu_count=count, id=f"o{count}")
        for count in (1, 2, 4)
        if count == 4 or chance.random() < 0.6
    )
    team = chance.choice(teams)
    ledger = spent(team, "2")
    amounts: dict[str, tuple[Decimal, Decimal]] = {}
    for name in teams:
        if chance.random() < 0.7:
            gone = Decimal(2) if name == team else Decimal(0)
            amounts[name] = (gone + Decimal(chance.choice(("0.3", "0.7", "1.5", "4"))), gone)
    facts: dict[str, t.Any] = {"offers": offers, "ledger": ledger}
    if chance.random() < 0.5:
        free = chance.choice((1, 2))
        facts |= {
            "claims": (claim(offer=offer("1", gpu_count=free)),),
            "instances": (instance(gpu_count=free),),
            "nodes": (node(allocatable={GPU: free}),),
        }
    return pods, facts, amounts


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_L16_no_launches_of_a_team_pass_its_budget(seed: int) -> None:
    pods, facts, amounts = _story(seed)
    found = autoscale(*pods, team_budgets=per_day(**{team: str(amount) for team, (amount, _gone) in amounts.items()}), **facts)
    of_pod = {pod.name: pod for pod in pods}
    hours: dict[str, Fraction] = {}
    for action in of(found, "launch"):
        assert action.claim is not None
        mine = [of_pod[one.name] for one in found.waiting if one.machine == action.name]
        taken: dict[str, int] = {}
        for pod in mine:
            team = pod.labels.get("tgp.io/team", "unknown")
            taken[team] = taken.get(team, 0) + pod.requests[GPU]
        assert dict(action.claim.launched_for) == taken or not amounts
        for team, gpus in taken.items():
            hours[team] = hours.get(team, Fraction(0)) + Fraction(action.claim.price) * gpus / action.claim.expected_gpus
    for team, (amount, gone) in amounts.items():
        assert hours.get(team, Fraction(0)) <= Fraction(amount - gone)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["red", "blue", "green"]))
def test_L16_pods_of_a_team_without_money_change_nothing_for_others(seed: int, team: str) -> None:
    pods, facts, amounts = _story(seed)
    facts["ledger"] = spent(team, "2")
    budgets = per_day(**{name: str(amount) for name, (amount, _gone) in amounts.items() if name != team}, **{team: "2"})
    others = [pod for pod in pods if pod.labels.get("tgp.io/team") != team]
    both, alone = (autoscale(*some, team_budgets=budgets, **facts) for some in (pods, others))
    assert of(both, "launch") == of(alone, "launch")
    names = {pod.name for pod in others}
    assert [one for one in both.waiting if one.name in names] == list(alone.waiting)


# ---- the option


def of_option(**fields: t.Any) -> dict[str, t.Any]:
    return {"team": "red", "period": "month", "amount": "20", "time_zone": "UTC", "soft_percent": 80, **fields}


def test_L16_a_team_may_have_a_budget_for_each_period() -> None:
    found = settings_of(Task({"team_budgets": [of_option(), of_option(period="day", amount="2"), of_option(team="blue")]}))
    assert [(team, budget.period, budget.amount, budget.action) for team, budget in found.team_budgets] == [
        ("blue", "month", 20, "stop_launch"),
        ("red", "day", 2, "stop_launch"),
        ("red", "month", 20, "stop_launch"),
    ]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([of_option(amount="-5")], r"team_budgets\[0\], team red: .*-5"),
        ([of_option(amount="0")], "A budget of 0 lets nothing be launched"),
        ([of_option(time_zone="Europe/Nowhere")], r"team_budgets\[0\], team red: "),
        ([of_option(soft_percent=0)], "soft_percent must be between 1 and 100"),
        ([of_option(), of_option(amount="30")], r"team_budgets\[1\]: team red has two budgets per month"),
        ([of_option(team="")], r"team_budgets\[0\].team: is empty"),
        ([of_option(team="red team")], r"team_budgets\[0\].team: "),
    ],
)
def test_L16_a_budget_of_a_team_that_cannot_be_is_refused(entries: list[dict[str, t.Any]], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        settings_of(Task({"team_budgets": entries}))
