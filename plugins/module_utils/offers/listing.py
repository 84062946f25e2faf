# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers, rejections and prices over time as people and other programs read them: a table, JSON, CSV."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.clock import to_text
from ..core.events import render
from ..core.files import csv_text
from ..model import Offer
from ..planner.cost.price_history import FIELDS, SPANS, Line, Trend, change
from ..planner.cost.traffic import Assumption, of_offer
from ..providers.results import exact, offer_result
from ..units.values import print_money

FORMATS = ("table", "json", "csv")
COLUMNS = (
    "cloud", "id", "instance_type", "model", "gpu_count", "gpu_memory_gib", "region", "cloud_region", "spot", "price_hour",
    "price_gpu_hour", "price_estimated", "traffic_price_gb_down", "traffic_price_gb_up", "traffic_once", "traffic_hour",
    "available", "lanes", "lane", "place", "reliability", "traits", "vcpus", "memory_mib",
    "disk_gib", "arch", "age_seconds",
)  # fmt: skip
_TABLE = {
    "place": "#",
    "cloud": "cloud",
    "model": "model",
    "gpu_count": "GPUs",
    "memory": "GiB",
    "where": "region",
    "kind": "kind",
    "quality": "quality",
    "price": "$/h",
    "each": "$/GPU·h",
    "traffic": "traffic $",
    "become": "lanes",
    "free": "free",
    "age": "age",
    "note": "note",
}
_RIGHT = ("place", "gpu_count", "memory", "price", "each", "traffic", "free", "age")
_ONLY_WHERE_NEEDED = ("place", "traffic", "note")
_REJECTED = {
    "cloud": "cloud",
    "id": "offer",
    "model": "model",
    "gpu_count": "GPUs",
    "price": "$/h",
    "where": "region",
    "reason": "why not",
}
_TREND = {
    "cloud": "cloud",
    "model": "model",
    "gpu_count": "GPUs",
    "where": "region",
    "kind": "kind",
    "lane": "lane",
    "now": "now",
    **dict.fromkeys(SPANS, ""),
    "bounds": "lowest and highest in 7d",
}


def row(
    offer: Offer, now: datetime, lane: str | None = None, place: int | None = None, assumed: Assumption = Assumption()
) -> dict[str, t.Any]:
    """An offer as result. ``lane`` and ``place``: what a pool would make of it, and after how many others. ``traffic_once`` and
    ``traffic_hour`` are dollars for the traffic that is ``assumed``; None = no traffic is billed, or the cloud does not tell."""
    seconds = None if offer.seen is None else max(int((now - offer.seen).total_seconds()), 0)
    memory = None if offer.gpu_memory_mib is None else gib(offer.gpu_memory_mib)
    traffic = of_offer(offer, assumed)
    return {
        **offer_result(offer),
        "traffic_once": exact(traffic.once) if traffic else None,
        "traffic_hour": exact(traffic.hour) if traffic else None,
        "gpu_memory_gib": memory,
        "age_seconds": seconds,
        "lane": lane,
        "place": place,
    }


def gib(mib: int) -> int:
    """Memory as it is advertised: cards show a little less than their nominal size."""
    return -(-mib // 1024)


def table(
    rows: t.Sequence[t.Mapping[str, t.Any]],
    unanswered: t.Sequence[t.Mapping[str, str]],
    limit: int | None = None,
    assumed: Assumption = Assumption(),
) -> list[str]:
    """Lines for people. A cloud that did not answer has a row of its own, so that nobody takes its silence for "nothing to rent"."""
    shown = [_for_people(entry) for entry in (rows if limit is None else rows[:limit])]
    shown += [{"cloud": entry["cloud"], "note": f"NO ANSWER: {_first_line(entry['msg'])}"} for entry in unanswered]
    present = {key for key in _ONLY_WHERE_NEEDED if any(entry.get(key) not in (None, "") for entry in shown)}
    wanted = {key: name for key, name in _TABLE.items() if key not in _ONLY_WHERE_NEEDED or key in present}
    lines = render(shown, wanted, right=_RIGHT)
    if not rows:
        lines.append("  Nothing fits.")
    elif limit is not None and len(rows) > limit:
        lines.append(f"  and {len(rows) - limit} more")
    if "traffic" in present:
        lines.append(f"  traffic: billed beside $/h; an estimate for {assumed}")
    return lines


def _for_people(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    price = "?" if entry["price_hour"] is None else print_money(Decimal(entry["price_hour"]))
    return {
        **entry,
        "memory": entry["gpu_memory_gib"],
        "where": _where(entry["region"], entry["cloud_region"]),
        "kind": "spot" if entry["spot"] else "firm",
        "quality": _quality(entry),
        "price": f"~{price}" if entry["price_estimated"] and entry["price_hour"] else price,
        "each": entry["price_gpu_hour"],
        "traffic": _traffic(entry),
        "become": entry["lane"] or " ".join(entry["lanes"]),
        "free": {None: "-", 0: "no"}.get(entry["available"], entry["available"]),
        "age": None if entry["age_seconds"] is None else f"{entry['age_seconds']}s",
        "note": _note(entry),
    }


def _note(entry: t.Mapping[str, t.Any]) -> str:
    if entry["price_hour"] is None:
        return "price unknown until it exists"
    return "published price" if entry["price_estimated"] else ""


def _traffic(entry: t.Mapping[str, t.Any]) -> str:
    """What traffic may cost, once and per hour."""
    if entry["traffic_once"] is None:
        return ""
    return f"{print_money(Decimal(entry['traffic_once']))} + {print_money(Decimal(entry['traffic_hour']))}/h"


def _where(region: str, own: str) -> str:
    """The standard region and the cloud's word; some clouds place a machine where they like."""
    return (region or "any") if region == own or not own else f"{region} ({own})"


def _quality(entry: t.Mapping[str, t.Any]) -> str:
    """Reliability as a share, and whether the cloud has looked at the host; a cloud of its own machines says neither."""
    share = "" if entry["reliability"] is None else f"{Decimal(entry['reliability']) * 100:.1f} %"
    verified = {"true": "verified", "false": "unverified"}.get(str(entry["traits"].get("verified", "")), "")
    return " ".join(part for part in (share, verified, str(entry["traits"].get("stock", ""))) if part)


def _first_line(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 120 else f"{line[:117]}..."


def rejections(rejected: t.Sequence[t.Mapping[str, t.Any]], reasons: t.Mapping[str, int], limit: int) -> list[str]:
    """What a pool does not take: how many for each reason, then one by one."""
    if not rejected:
        return []
    counted = ", ".join(f"{number} {reason}" for reason, number in reasons.items())
    shown = [
        {**entry, "price": entry["price_hour"] or "?", "where": _where(entry["region"], entry["cloud_region"])}
        for entry in rejected[:limit]
    ]
    more = [f"  and {len(rejected) - limit} more"] if len(rejected) > limit else []
    return [
        f"  {len(rejected)} offers are not for this pool: {counted}",
        *render(shown, _REJECTED, right=("gpu_count", "price")),
        *more,
    ]


def trend_row(trend: Trend) -> dict[str, t.Any]:
    """A trend as result; prices exact."""
    kind = dict(zip(FIELDS, trend.kind, strict=True))
    spans = {name: exact(price) for name, price in trend.then.items()}
    return {**kind, "now": exact(trend.now), **spans, "lowest": exact(trend.lowest), "highest": exact(trend.highest)}


def trend_table(trends: t.Sequence[Trend], limit: int) -> list[str]:
    """Kinds whose earlier price is known, cheapest first."""
    priced = [trend for trend in trends if any(price is not None for price in trend.then.values())]
    if not priced:
        return []
    columns = {key: name or f"{key} ago" for key, name in _TREND.items()}
    shown = [_trend_for_people(trend) for trend in sorted(priced, key=lambda trend: trend.now)[:limit]]
    more = [f"  and {len(priced) - limit} more"] if len(priced) > limit else []
    return ["  Prices over time, dollars per hour:", *render(shown, columns, right=("gpu_count", "now", *SPANS)), *more]


def _trend_for_people(trend: Trend) -> dict[str, t.Any]:
    kind = dict(zip(FIELDS, trend.kind, strict=True))
    then = {
        name: "" if price is None else f"{print_money(price)} ({change(trend.now, price)})" for name, price in trend.then.items()
    }
    return {
        **kind,
        "where": _where(kind["region"], kind["cloud_region"]),
        "kind": "spot" if kind["spot"] else "firm",
        "now": print_money(trend.now),
        **then,
        "bounds": f"{print_money(trend.lowest)} to {print_money(trend.highest)}",
    }


def as_json(result: t.Mapping[str, t.Any]) -> str:
    """The parts of a result that are data, as JSON text."""
    return json.dumps(result, indent=2, ensure_ascii=False) + "\n"


def as_csv(rows: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """One line per offer, columns COLUMNS; lists are joined by blanks, unknown is empty."""
    return csv_text(COLUMNS, ([_cell(entry.get(name)) for name in COLUMNS] for entry in rows))


def history_csv(lines: t.Iterable[Line]) -> str:
    """One line per kind and run, oldest first."""
    cells = ([to_text(line.time), *map(_cell, line.kind), exact(line.price)] for line in lines)
    return csv_text(("time", *FIELDS, "price_hour"), cells)


def _cell(value: t.Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return " ".join(f"{key}={value[key]}" for key in sorted(value))
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
