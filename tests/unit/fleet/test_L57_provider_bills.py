# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-57: what providers billed is compared with the ledger, machine by machine."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Attempt, Charge, Deletion, LedgerLine
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, live_line, read_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.provider_bills import (
    CLOCKS,
    BillState,
    ProviderBill,
    compare,
    window,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES as REAL
from ansible_collections.tgp.gpu.plugins.module_utils.reports.provider_bills import alarms, bills_data, bills_lines, sentences
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, at, claim, offer

NAME = "tgp-a1b2c3d4-p-00001"
CLOUD = dataclasses.replace(CAPABILITIES["lambda"], charges_lag=3600)
HOUR = timedelta(hours=1)


def line(name: str = NAME, **facts: t.Any) -> LedgerLine:
    """At $3.60 an hour: asked for at 11:00:00, answered at 11:00:04, ended between 12:00:00 and 12:00:10, so $3.596 to $3.61."""
    answer = Attempt(at("11:00:04"), "lambda/x", "ok")
    ended = Deletion("Empty", at("11:59"), started=at("12:00"))
    mine = claim(name, **{"offer": offer("3.60"), "attempts": (answer,), "deletion": ended, **facts})
    return dataclasses.replace(read_line(ledger_line(mine, end=at("12:00:10"))), key=name)


def charge(amount: str, instance_id: str = "i-00001", *words: str, **facts: t.Any) -> Charge:
    return Charge(instance_id, frozenset(words), Decimal(amount), **facts)


def bill(*charges: Charge, now: str = "23:00", lines: t.Sequence[LedgerLine] = (), known: t.Container[str] = ()) -> ProviderBill:
    return compare("lambda", list(lines) or [line()], charges, at(now), CLOUD, known)


@pytest.mark.parametrize(
    ("amounts", "now", "state"),
    [
        (["3.60"], "23:00", BillState.AGREES),
        (["3.00", "0.61"], "23:00", BillState.AGREES),  # two days
        (["3.595"], "23:00", BillState.AGREES),  # $3.595 is what it cost at the least
        (["3.594"], "23:00", BillState.OUTSIDE),
        (["3.611"], "23:00", BillState.OUTSIDE),
        (["3.611"], "12:01", BillState.OUTSIDE),  # it will not shrink
        (["3.594"], "12:59", BillState.PENDING),  # more may come within an hour after the end
        (["3.594"], "13:00:10", BillState.OUTSIDE),
        ([], "12:59", BillState.PENDING),
        ([], "23:00", BillState.MISSING),
    ],
)
def test_L57_a_bill_is_judged_by_the_bounds_of_its_line(amounts: list[str], now: str, state: BillState) -> None:
    (machine,) = bill(*(charge(amount) for amount in amounts), now=now).machines
    assert (machine.line.cost_least, machine.line.cost_most) == (Decimal("3.595"), Decimal("3.61"))
    assert machine.state is state and machine.charged == (sum(map(Decimal, amounts)) if amounts else None)


def test_L57_a_rounded_amount_has_its_rounding_as_slack() -> None:
    rounding = Decimal("0.0005")
    assert bill(charge("3.6105", rounding=rounding)).machines[0].state is BillState.AGREES
    assert bill(charge("3.6106", rounding=rounding)).machines[0].state is BillState.OUTSIDE
    assert bill(charge("3.5945", rounding=rounding)).machines[0].state is BillState.AGREES


def test_L57_a_machine_is_found_by_all_its_ids_and_by_name_where_there_is_no_id() -> None:
    twice = dataclasses.replace(line(), ids=("i-1", "i-2"))
    assert bill(charge("3.00", "i-1"), charge("0.60", "i-2"), charge("9", "i-3"), lines=[twice]).theirs == Decimal("3.60")
    assert bill(charge("3.60", "", NAME, "vcg-a16")).machines[0].state is BillState.AGREES
    assert bill(charge("3.60", "", NAME + "x")).machines[0].state is BillState.MISSING
    # an id counts for more than a name that was given twice
    assert bill(charge("3.60", "i-00001", NAME), charge("3.60", "i-9", NAME)).theirs == Decimal("3.60")


def test_L57_traffic_is_reported_and_is_in_no_sum() -> None:
    found = bill(charge("3.60", traffic=Decimal("1.25")))
    assert (found.theirs, found.traffic, found.difference) == (Decimal("3.60"), Decimal("1.25"), Decimal("3.60") - line().cost)
    assert sentences(found) == ["lambda billed $1.25 for traffic beside these sums"]


def test_L57_of_a_living_machine_less_is_pending_and_more_is_wrong() -> None:
    lives = claim(offer=offer("3.60"), attempts=(Attempt(at("11:00:04"), "lambda/x", "ok"),))
    now = live_line(lives, at("13:00"), CAPABILITIES["lambda"])
    for amount, state in (
        ("0.10", BillState.PENDING),
        ("7.20", BillState.AGREES),
        ("7.26", BillState.AGREES),
        ("7.27", BillState.OUTSIDE),
    ):
        assert bill(charge(amount), now="13:00", lines=[now]).machines[0].state is state, amount
    assert CLOCKS == 60  # seconds: $0.06
    assert bill(now="13:00", lines=[now]).machines[0].state is BillState.PENDING


def test_L57_nothing_is_charged_for_what_was_never_rented() -> None:
    never = dataclasses.replace(line(), ids=(), start=None, cost=Decimal(0), cost_least=Decimal(0), cost_most=Decimal(0))
    (machine,) = bill(lines=[never]).machines
    assert (machine.state, machine.charged) == (BillState.AGREES, Decimal(0))


def test_L57_a_machine_with_a_name_of_this_cluster_that_no_line_knows_is_reported() -> None:
    lost = "tgp-a1b2c3d4-p-zzzzz"
    others = [charge("1", "i-7", "tgp-ffffffff-p-00001"), charge("1", "i-8", "database")]
    found = bill(charge("3.60"), charge("2.5", "i-9", lost), charge("0.5", "i-9", lost), *others)
    assert found.strangers == {lost: Decimal("3.0")}
    assert bill(charge("3.60"), charge("2.5", "i-9", lost), known={lost}).strangers == {}
    (sentence,) = alarms([found])
    assert sentence.startswith(f"lambda billed $3.00 for {lost}, which has a name of this cluster and is in no line of the ledger")


def test_L57_what_has_to_be_looked_at_is_a_sentence_each() -> None:
    (outside,) = alarms([bill(charge("9.99"))])
    assert outside.startswith(f"lambda billed $9.99 for {NAME} (i-00001); the ledger says $3.61 and expects $3.595 to $3.61.")
    (missing,) = alarms([bill()])
    assert missing.startswith(f"lambda shows no charge for {NAME}, and the ledger says $3.61")
    assert alarms([bill(charge("3.60")), bill(now="12:01")]) == []


def test_L57_what_is_shown() -> None:
    without = ProviderBill("paperspace", False, bill(now="12:01").machines, "its API has no bill")
    bills = [bill(charge("3.60")), without]
    assert bills_lines(bills) == [
        "  provider's bill  machines  ledger $       billed $  difference $",
        "  ---------------  --------  --------  -------------  ------------",
        "  lambda                  1      3.61           3.60         -0.01",
        "  paperspace              1      3.61  not available",
        "  paperspace: its API has no bill; the sums above are the ledger's",
    ]
    data = bills_data(bills)
    assert (data["total"], data["whole"], data["problems"]) == ("7.21", False, [])
    assert [(one["name"], one["available"], one["charged_machines"], one["billed"]) for one in data["clouds"]] == [
        ("lambda", True, 1, "3.60"),
        ("paperspace", False, 0, "0"),
    ]
    assert bills_data([bill(charge("3.60"))])["whole"] and bills_lines([]) == []
    (pending,) = sentences(bill(now="12:01"))
    assert pending == f"lambda: the bill of 1 machine is not complete yet ({NAME})"


def test_L57_the_time_that_is_asked_for() -> None:
    """Whole days (UTC) from the first create call on."""
    assert window([line(), dataclasses.replace(line(), start=at("10:00") - 3 * 24 * HOUR)], at("23:00")) == (
        at("00:00") - 3 * 24 * HOUR,
        at("23:00"),
    )
    assert window([dataclasses.replace(line(), start=None)], at("23:00")) is None and window([], at("23:00")) is None


def test_L57_which_providers_tell_their_bills() -> None:
    assert {name: facts.charges_lag for name, facts in REAL.items() if facts.charges_lag is not None} == {
        "runpod": 3600,
        "vast": 86400,
        "vultr": 86400,
    }


AMOUNTS = st.lists(st.integers(0, 10_000).map(lambda cents: Decimal(cents) / 100), max_size=4)


@given(amounts=AMOUNTS, minutes=st.integers(0, 600))
def test_L57_no_charge_is_lost_and_none_counts_twice(amounts: list[Decimal], minutes: int) -> None:
    found = compare(
        "lambda", [line()], [charge(str(amount)) for amount in amounts], at("12:00:10") + timedelta(minutes=minutes), CLOUD
    )
    (machine,) = found.machines
    assert found.theirs == sum(amounts, Decimal(0))
    assert (machine.charged is None) == (not amounts)
    data = bills_data([found])
    assert Decimal(data["total"]) == (sum(amounts, Decimal(0)) if amounts else line().cost)
    if machine.state is BillState.AGREES:
        assert Decimal("3.595") <= found.theirs <= Decimal("3.61")
