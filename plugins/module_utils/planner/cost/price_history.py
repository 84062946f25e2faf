# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices over time: what a kind of machine costs now, what it cost, and when buying pays."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal

from ...model import Claim, LedgerLine, Offer
from ...units.values import parse_money, print_money
from .hours import useful_hours_a_day

FIELDS = ("cloud", "model", "gpu_count", "gpu_memory_mib", "disk_gib", "region", "cloud_region", "spot", "lane")
"""What makes two machines the same kind, in the order of ``Line.kind``."""
Kind = tuple[t.Any, ...]
SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
_TYPES: tuple[tuple[type, ...], ...] = (
    (str,), (str,), (int,), (int, type(None)), (int, type(None)), (str,), (str,), (bool,), (str,),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """The lowest price per hour of a kind at a moment."""

    time: datetime
    kind: Kind
    price: Decimal

    @classmethod
    def made(cls, time: datetime, kind: Kind, price: t.Any) -> Line:
        """A line of data from outside; TypeError or InvalidInput when it is none."""
        if len(kind) != len(FIELDS) or any(type(entry) not in kinds for entry, kinds in zip(kind, _TYPES, strict=True)):
            raise TypeError(f"{kind!r} names no kind of machine")
        return cls(time, kind, parse_money(price))


@dataclasses.dataclass(slots=True)
class Trend:
    """A kind's price now, at the last run at least so long ago as each of SPANS says (None = nobody looked then), and the bounds of the
    last seven days with now."""

    kind: Kind
    now: Decimal
    then: dict[str, Decimal | None]
    lowest: Decimal
    highest: Decimal


def kinds_of(offer: Offer) -> list[Kind]:
    """One kind per lane that the offer can serve; lane "" when that is not known."""
    place = (offer.region, offer.cloud_region)
    size = (offer.cloud, offer.model, offer.gpu_count, offer.gpu_memory_mib, offer.disk_gib)
    return [(*size, *place, offer.spot, lane) for lane in ([lane.value for lane in offer.lanes] or [""])]


def lowest(offers: t.Iterable[Offer], now: datetime) -> list[Line]:
    """The lowest price of each kind that can be rented now."""
    best: dict[Kind, Decimal] = {}
    for offer in offers:
        if offer.price_hour is None or offer.available == 0:
            continue
        for kind in kinds_of(offer):
            if kind not in best or offer.price_hour < best[kind]:
                best[kind] = offer.price_hour
    return [Line(now, kind, price) for kind, price in sorted(best.items(), key=lambda item: tuple(map(str, item[0])))]


def trends(current: t.Sequence[Line], history: t.Iterable[Line], now: datetime) -> list[Trend]:
    """``current`` beside what ``history`` (any order) tells. A price "24h ago" is the newest one between 24 and 48 hours old, and so
    on: an older one would tell of another time."""
    by_kind = {line.kind: Trend(line.kind, line.price, dict.fromkeys(SPANS), line.price, line.price) for line in current}
    newest: dict[tuple[Kind, str], datetime] = {}
    for line in history:
        trend = by_kind.get(line.kind)
        age = now - line.time
        if trend is None or age < timedelta(0):
            continue
        if age <= SPANS["7d"]:
            trend.lowest, trend.highest = min(trend.lowest, line.price), max(trend.highest, line.price)
        for name, span in SPANS.items():
            if span <= age < span * 2 and newest.get((line.kind, name), line.time) <= line.time:
                newest[line.kind, name] = line.time
                trend.then[name] = line.price
    return list(by_kind.values())


def change(now: Decimal, then: Decimal | None) -> str:
    """The difference in words: ``+5 %``, ``-12 %``, ``=``; empty when the earlier price is unknown or was nothing."""
    if then is None or then == 0:
        return ""
    if now == then:
        return "="
    share = (now - then) / then * 100
    return f"{share:+.0f} %" if abs(share) >= 1 else f"{share:+.1f} %"


def break_even_hours(purchase: Decimal, rent_hour: Decimal, power_price_kwh: Decimal = Decimal(0), watts: int = 0) -> int | None:
    """Hours of use, rounded up, after which a bought machine has cost less than a rented one (L-16); None = never, because its power
    alone costs as much as the rent."""
    saved = rent_hour - power_price_kwh * watts / 1000
    if saved <= 0:
        return None
    return int((purchase / saved).to_integral_value(ROUND_CEILING))


def break_even_rows(
    purchase: Decimal, claims: t.Iterable[Claim], lines: t.Sequence[LedgerLine], now: datetime
) -> list[dict[str, t.Any]]:
    """JSON-safe, for each kind of machine that lives. ``days`` is the time in which it is used for so many hours, at the useful hours a day
    that were recorded of its kind (L-44); None = never, or ``useful_hours_a_day`` None: they were recorded for less than two weeks."""
    rows = []
    for cloud, count, model, hourly in sorted(
        {(one.cloud, one.offer.gpu_count, one.offer.model, one.price) for one in claims if one.price > 0}
    ):
        hours = break_even_hours(purchase, hourly)
        a_day = useful_hours_a_day(
            [line for line in lines if (line.cloud, line.gpu_count, line.model) == (cloud, count, model)], now
        )
        rows.append(
            {
                "what": f"{cloud} {count} × {model or 'GPU'}",
                "price_hour": print_money(hourly),
                "purchase_price": print_money(purchase),
                "hours": hours,
                "useful_hours_a_day": None if a_day is None else str(a_day.quantize(Decimal("0.1"))),
                "days": int((hours / a_day).to_integral_value(ROUND_CEILING)) if a_day and hours is not None else None,
            }
        )
    return rows
