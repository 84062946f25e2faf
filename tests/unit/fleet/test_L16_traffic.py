# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-16: traffic that is billed by the GB is an estimate with a stated assumption, and in no other sum."""

from __future__ import annotations

import json
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, LedgerLine
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, read_ledger, read_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.spend_report import report
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.traffic import Assumption, Estimate, of_lines, of_offer
from ansible_collections.tgp.gpu.plugins.module_utils.reports.text import data, table

from .build import NOON, at, claim, offer

PRICES = {"traffic_price_gb_down": Decimal("0.002"), "traffic_price_gb_up": Decimal("0.004")}
MONEY = {"whole": True, "hour": "0.00", "budgets": [], "break_even": [], "time_zone": "UTC"}
MONEY |= {word: {"key": "k", "spent": "0.00", "forecast": "0.00"} for word in ("today", "month")}


def line(end: str = "14:00", **prices: Decimal | None) -> LedgerLine:
    """Launched at 11:00 for 0.42 an hour."""
    made = claim(offer=offer("0.42", cloud="vast", **(prices or PRICES)), deletion=Deletion("Empty", at("11:55")))
    return read_line(json.loads(json.dumps(ledger_line(made, end=at(end)))))


@pytest.mark.parametrize(
    ("down", "up", "assumed", "wanted"),
    [
        ("0.002", "0.004", Assumption(), ("0.06", "0.006")),  # 30 GB once, 1 GB per hour in each direction
        ("0.002", "0.004", Assumption(100, 5), ("0.2", "0.03")),
        ("5", "5", Assumption(), ("150", "10")),
        ("0.002", None, Assumption(), ("0.06", "0.002")),
        (None, "0.004", Assumption(), ("0", "0.004")),
        ("0", "0", Assumption(), None),
        (None, None, Assumption(), None),
    ],
)
def test_L16_traffic_is_estimated_from_a_stated_assumption(
    down: str | None, up: str | None, assumed: Assumption, wanted: tuple[str, str] | None
) -> None:
    prices = [None if one is None else Decimal(one) for one in (down, up)]
    made = offer("0.42", traffic_price_gb_down=prices[0], traffic_price_gb_up=prices[1])
    assert of_offer(made, assumed) == (None if wanted is None else Estimate(*map(Decimal, wanted)))
    assert made.price_hour == Decimal("0.42")


def test_L16_three_hours_of_traffic() -> None:
    assert Estimate(Decimal("0.06"), Decimal("0.006")).until(timedelta(hours=3)) == Decimal("0.078")
    assert of_lines([line()], None, at("20:00"), Assumption()).dollars == Decimal("0.078")
    assert of_lines([line()], at("12:00"), at("13:00"), Assumption()).dollars == Decimal("0.006"), "the download was before"
    assert of_lines([line()], None, at("11:30"), Assumption()).dollars == Decimal("0.063")
    nothing = [line(traffic_price_gb_down=None), line(traffic_price_gb_down=Decimal(0))]
    for lines, since in (([line()], at("14:00")), (nothing, None)):
        assert of_lines(lines, since, at("20:00"), Assumption()).machines == 0


def test_L16_the_ledger_names_the_prices_of_traffic_and_costs_without_it() -> None:
    found, free = line(), line(traffic_price_gb_down=None)
    assert (found.traffic_price_gb_down, found.traffic_price_gb_up) == (Decimal("0.002"), Decimal("0.004"))
    assert free.traffic_price_gb_down is None and found.cost == free.cost == Decimal("1.26")
    older = {key: value for key, value in ledger_line(claim(), end=NOON).items() if not key.startswith("traffic")}
    assert read_line(older).traffic_price_gb_up is None
    for odd in (-1, "much", 0.1):
        assert read_ledger([{**older, "traffic_price_gb_up": odd}]).torn


def test_L16_a_claim_of_an_older_version_names_none() -> None:
    record = to_record(claim(offer=offer("0.42", **PRICES)))
    assert from_record(record).offer.traffic_price_gb_up == Decimal("0.004")
    for key in PRICES:
        del record["offer"][key]
    assert from_record(record).offer.traffic_price_gb_up is None


def test_L16_the_report_says_what_its_sums_leave_out() -> None:
    found = report([line(), line("12:00")], None, at("20:00"))
    told = t.cast("dict[str, t.Any]", data(found, MONEY, [], "a1b2c3d4"))
    assert told["traffic"] == {"machines": 2, "estimate": "0.144", "once_gb": 30, "hour_gb": 1} and told["total"] == "1.68"
    assert any(
        one.strip().startswith("Traffic of 2 machines is not in these sums: about $0.144, an estimate for 30 GB")
        for one in table(found, MONEY, [])
    )
    silent = report([line(traffic_price_gb_down=None)], None, at("20:00"))
    assert silent.traffic.machines == 0 and not any("raffic" in one for one in table(silent, MONEY, []))


@pytest.mark.parametrize("wrong", [{"traffic_once_gb": -1}, {"traffic_hour_gb": 10**7}])
def test_L16_an_assumption_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Assumption.of({"traffic_once_gb": 30, "traffic_hour_gb": 1, **wrong})
