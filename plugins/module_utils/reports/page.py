# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on money as one page that needs nothing else: no script, no network, light and dark, on a telephone and on paper."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape

from ..core.clock import to_text
from ..planner.cost.bill import NOTHING
from ..planner.cost.cost import add_up
from ..planner.cost.spend_report import USES, Report, table_of_days
from ..units.calendar import period_of, zone
from . import charts as report_charts
from . import svg as report_svg
from .svg import series_colour
from .text import (
    HOUR_WORDS,
    WAYS,
    WORDS,
    ImageCosts,
    bill_text,
    cents,
    headline,
    hour_rows,
    missing_text,
    share,
    split_views,
    sums,
    traffic_text,
    volumes_text,
)

_MOST_DAYS = 45
_MOST_MACHINES = 500
_Data = t.Mapping[str, t.Any]


def page(spending: Report, report: _Data, now: datetime, images: ImageCosts = ImageCosts()) -> str:
    """The page as text. ``report`` is what report_text.data made of ``spending`` and ``images``."""
    money = report["spending"]
    since = f"from {to_text(spending.since)} " if spending.since else ""
    body = [
        f"<header><h1>GPU spending</h1><p>Cluster {escape(report['cluster'])}, {since}until {to_text(spending.until)}. "
        f"Days are those of {escape(spending.time_zone)}. Made {to_text(now)}.</p></header>",
        _warnings(spending, report),
        _cards(spending, report),
        f"<p>{escape(missing_text(spending))}.</p>" if spending.missing else "",
        f"<p>{escape(bill_text(spending))}.</p>" if spending.inexact else "",
        f"<p>{escape(traffic_text(spending))}.</p>" if spending.traffic.machines else "",
        f"<p>{escape(kept)}.</p>" if (kept := volumes_text(report["volumes"])) else "",
        f"<p>{escape(images.sentence())}.</p>" if images.sentence() else "",
        _budgets(money["budgets"], whole=money["whole"]),
        _charts(spending, money, now) if spending.parts else "<section><p>Nothing was spent in this time.</p></section>",
        *(_table(spending, way) for way in WAYS if spending.parts),
        _hours(spending),
        *(
            _wide(
                f"By {heading}",
                (heading, "GPU hours", "$"),
                [tuple(row.values()) for row in rows],
                ("all", "", cents(spending.total)),
            )
            for heading, rows in split_views(spending)
        ),
        _provider_bills(report["provider_bills"]),
        _machines(spending),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<link rel="icon" href="data:,"><title>GPU spending</title><style>{STYLE}</style>'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body><main>\n'
        + "\n".join(filter(None, body))
        + "\n</main></body>\n</html>\n"
    )


def _warnings(spending: Report, report: _Data) -> str:
    torn = report["torn"]
    if report["whole"] and not torn:
        return ""
    text = "".join(f"<li>{escape(line)}</li>" for line in headline(spending, report["spending"], torn)[1:])
    lead = "<strong>The books are not whole: every sum is at least what is said.</strong>"
    return f'<section class="alarm" role="alert">{lead}<ul>{text}</ul></section>'


def _cards(spending: Report, report: _Data) -> str:
    money = report["spending"]
    useful = spending.by_use.get("useful", NOTHING)
    per_hour = report["per_useful_gpu_hour"]
    unknown = f", {spending.unknown_gpu_hours.quantize(Decimal('0.01'))} unknown" if spending.unknown_gpu_hours else ""
    cards = [
        ("spent", f"${cents(spending.total)}", f"{spending.machines} machines"),
        (
            "per useful GPU hour",
            f"${per_hour}" if per_hour else "unknown" if spending.unknown_gpu_hours else "–",
            f"{spending.gpu_hours.quantize(Decimal('0.01'))} GPU hours were useful{unknown}",
        ),
        (
            "useful",
            "unknown" if unknown else f"{share(useful, spending.total)} %",
            f"${cents(useful)} of it{' at least' if unknown else ''}",
        ),
        ("now", f"${money['hour']}/h", "what is billed at this moment"),
        (
            f"today, {money['today']['key']}",
            f"${money['today']['spent']}",
            f"${money['today']['forecast']} at its end if nothing changes",
        ),
        (
            f"month {money['month']['key']}",
            f"${money['month']['spent']}",
            f"${money['month']['forecast']} at its end if nothing changes",
        ),
    ]
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(more)}</p></div>" for name, value, more in cards
    )
    return f'<dl class="cards">{inner}</dl>'


def _budgets(budgets: t.Sequence[_Data], *, whole: bool) -> str:
    if not budgets:
        return ""
    rows = []
    for budget in budgets:
        who = "the cluster" if budget["scope"] == "all" else f"{budget['scope']} {budget['name']}"
        full = min(Decimal(budget["percent"]), Decimal(100))
        level = "over" if budget["state"].startswith("used up") else "low" if budget["state"].startswith("low") else ""
        least = "" if whole else "at least "
        rows.append(
            f'<div class="budget {level}"><p><strong>{escape(who)}</strong>, {escape(budget["period"])} {escape(budget["key"])}: '
            f"{least}${budget['spent']} of ${budget['amount']} ({budget['percent']} %), "
            f"{escape(budget['state'])}; then {escape(budget['action'])}</p>"
            f'<div class="bar" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{full}" aria-label="{escape(who)}">'
            f'<i style="width:{full}%"></i></div></div>'
        )
    return f"<section><h2>Budgets</h2>{''.join(rows)}</section>"


def _charts(report: Report, money: _Data, now: datetime) -> str:
    days = table_of_days(report)
    uses = [use for use in USES if use in report.by_use]
    places, amounts = _buckets(days)
    series = [(WORDS[use], USES.index(use), [amount.get(use, NOTHING) for amount in amounts]) for use in uses]
    legend = "".join(f'<li><i style="background:var({series_colour(USES.index(use))})"></i>{WORDS[use]}</li>' for use in uses)
    draw = _drawing()
    per = "month" if places and len(places[0]) == 7 else "day"
    charts = [
        (
            f"Spent by {per} and what it was good for",
            draw.stacked("days", [_short(place) for place in places], series),
            f'<ul class="legend">{legend}</ul>',
        ),
        ("This month so far, and its end if nothing changes", _course(report, money, now), ""),
        ("By pool", draw.bars("pools", report.by_pool), ""),
        ("By cloud", draw.bars("clouds", report.by_cloud), ""),
        ("By model", draw.bars("models", report.by_model), ""),
        ("By the reason for which machines went", draw.bars("ends", report.by_end), ""),
    ]
    figures = "".join(f"<figure><figcaption>{escape(title)}</figcaption>{svg}{more}</figure>" for title, svg, more in charts if svg)
    return f'<section class="charts">{figures}</section>'


def _drawing() -> t.Any:
    """What draws the charts: matplotlib where it is installed."""
    return report_charts if report_charts.can_draw() else report_svg


def _buckets(days: t.Mapping[str, t.Mapping[str, Decimal]]) -> tuple[list[str], list[dict[str, Decimal]]]:
    """Every day from the first to the last, or every month when there are too many days, with what each use cost."""
    first, last = (datetime.fromisoformat(date) for date in (min(days), max(days)))
    keys = [f"{first + timedelta(days=at):%Y-%m-%d}" for at in range((last - first).days + 1)]
    if len(keys) > _MOST_DAYS:
        keys = list(dict.fromkeys(key[:7] for key in keys))
    costs: list[dict[str, Decimal]] = []
    for key in keys:
        uses: dict[str, Decimal] = {}
        for day in [date for date in days if date.startswith(key)]:
            for use, cost in days[day].items():
                uses[use] = add_up((uses.get(use, NOTHING), cost))
        costs.append(uses)
    return keys, costs


def _short(key: str) -> str:
    """11-21 of a day, 2026-11 of a month."""
    return key[5:] if len(key) > 7 else key


def ends_of_days(by_day: t.Mapping[str, Decimal], month: str, today: int) -> list[tuple[float, Decimal]]:
    """Day of the month and dollars since its beginning, at the beginning of each day until ``today``; a day without a cost is level."""
    total, steps = NOTHING, [(1.0, NOTHING)]
    for day in range(1, today):
        total = add_up((total, by_day.get(f"{month}-{day:02d}", NOTHING)))
        steps.append((day + 1.0, total))
    return steps


def _course(report: Report, money: _Data, now: datetime) -> str:
    """The month's course, where the report reaches over the whole month so far."""
    month = period_of("month", now, report.time_zone)
    if (report.since is not None and report.since > month.start) or report.until < now:
        return ""
    local = now.astimezone(zone(report.time_zone))
    today = local.day + (local.hour + local.minute / 60) / 24
    steps = ends_of_days(report.by_day, month.key, local.day)
    end = (month.end - month.start).days + 1.0
    spent, forecast = Decimal(money["month"]["spent"]), Decimal(money["month"]["forecast"])
    return _drawing().course("month", steps, (today, spent), (end, forecast))


def _table(report: Report, way: str) -> str:
    rows = "".join(
        f"<tr><td>{escape(WORDS.get(word, word))}</td><td>{cents(cost)}</td><td>{share(cost, report.total)}</td></tr>"
        for word, cost in sums(report, way).items()
    )
    head = f'<tr><th scope="col">{escape(WAYS[way])}</th><th scope="col">$</th><th scope="col">%</th></tr>'
    foot = f"<tr><td>all</td><td>{cents(report.total)}</td><td></td></tr>"
    inner = f"<table><thead>{head}</thead><tbody>{rows}</tbody><tfoot>{foot}</tfoot></table>"
    return f'<details{" open" if way == "use" else ""}><summary>By {escape(WAYS[way])}</summary><div class="wide">{inner}</div></details>'


def _hours(report: Report) -> str:
    """Machine hours by use (L-44)."""
    rows = [
        (HOUR_WORDS.get(use, use), str(one.hours.quantize(Decimal("0.01"))), cents(cost))
        for (use, one), cost in zip(*hour_rows(report), strict=True)
    ]
    return _wide("Machine hours by use", ("used for", "hours", "$"), rows, ("all", "", cents(report.total)))


def _wide(title: str, heads: t.Sequence[str], rows: t.Sequence[t.Sequence[str]], foot: t.Sequence[str]) -> str:
    """A table that opens; nothing without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in row) + "</tr>" for row in rows)
    last = "".join(f"<td>{escape(word)}</td>" for word in foot)
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot><tr>{last}</tr></tfoot></table>"
    return f'<details><summary>{escape(title)}</summary><div class="wide">{inner}</div></details>'


def _provider_bills(bills: _Data | None) -> str:
    """What the providers billed, where they were asked."""
    if not bills or not bills["clouds"]:
        return ""
    rows = [
        (
            cloud["name"],
            str(cloud["machines"]),
            cents(Decimal(cloud["ledger"])),
            cents(Decimal(cloud["billed"])) if cloud["available"] else "not available",
            cents(Decimal(cloud["difference"])) if cloud["available"] else "",
        )
        for cloud in bills["clouds"]
    ]
    problems = "".join(f"<p>{escape(problem)}</p>" for problem in bills["problems"])
    heads = ("provider", "machines", "ledger $", "billed $", "difference $")
    return _wide("Bills of the providers", heads, rows, ("all", "", "", cents(Decimal(bills["total"])), "")) + problems


def _machines(report: Report) -> str:
    """Every machine with what it cost in this time, the dearest first."""
    costs: dict[str, list[Decimal]] = {}
    lines = {part.line.key: part.line for part in report.parts}
    for part in report.parts:
        costs.setdefault(part.line.key, []).append(part.cost)
    order = sorted(((add_up(several), key) for key, several in costs.items()), key=lambda item: (-item[0], item[1]))
    if not order:
        return ""
    rows = []
    for cost, key in order[:_MOST_MACHINES]:
        line = lines[key]
        began = to_text(line.start) if line.start else ""
        ended = to_text(line.end) if line.closed else "still there"
        words = (
            line.name,
            line.pool,
            line.cloud,
            f"{line.gpu_count} × {line.model}",
            began,
            ended,
            line.reason if line.closed else "",
        )
        rows.append("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in words) + f"<td>{cents(cost)}</td></tr>")
    head = "".join(f'<th scope="col">{word}</th>' for word in ("machine", "pool", "cloud", "GPUs", "began", "ended", "for", "$"))
    more = f"<p>The {_MOST_MACHINES} dearest of {len(order)}.</p>" if len(order) > _MOST_MACHINES else ""
    inner = f'<table class="left"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<details><summary>Machines ({len(order)})</summary><div class="wide">{inner}</div>{more}</details>'


# ---- how the page of the report looks: colours for light and dark, and a layout from a telephone's width on

STYLE = """
:root{--paper:#fff;--card:#f5f6f8;--ink:#1d2129;--faint:#5d6675;--grid:#dfe3e9;--alarm:#b3261e;--low:#b26a00;
--s0:#2563a8;--s1:#d08a1e;--s2:#7a8594;--s3:#c0392b;--s4:#8e5bb5;--s5:#2a9d8f;--s6:#6b1f1a;--s7:#4a4a4a;--s8:#a9956c}
@media (prefers-color-scheme:dark){:root{
--paper:#14171c;--card:#1e232b;--ink:#e8ebf0;--faint:#9aa5b5;--grid:#333b47;--alarm:#ff8a80;--low:#ffb74d;
--s0:#6aa9ea;--s1:#eab35a;--s2:#8d99a9;--s3:#ef7266;--s4:#b78ad9;--s5:#5cc9bb;--s6:#e0a09b;--s7:#b0b0b0;--s8:#c9b68f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:26px;margin:0}
h2{font-size:17px;margin:0 0 8px}
header p{margin:4px 0 18px;color:var(--faint)}
section,details{margin:0 0 18px}
.alarm{border-left:4px solid var(--alarm);background:var(--card);padding:10px 14px;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:12px;margin:0 0 18px}
.cards div,figure,.budget{background:var(--card);border-radius:8px;padding:12px 14px}
dt{color:var(--faint);font-size:13px}
dd{margin:2px 0;font-size:23px;font-weight:600;font-variant-numeric:tabular-nums}
.cards p{margin:0;color:var(--faint);font-size:12.5px}
.budget{margin:0 0 8px}
.budget p{margin:0 0 8px}
.bar{height:10px;border-radius:5px;background:var(--grid);overflow:hidden}
.bar i{display:block;height:100%;background:var(--s0)}
.low .bar i{background:var(--low)}
.over .bar i{background:var(--alarm)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
figure{margin:0;min-width:0}
figcaption{font-weight:600;margin:0 0 6px}
svg{display:block;width:100%;height:auto;max-width:640px}
svg text{font-family:inherit}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:8px 0 0;padding:0;font-size:13px;color:var(--faint)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
summary{cursor:pointer;font-weight:600;padding:6px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;min-width:280px;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:5px 14px 5px 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child,.left th,.left td{text-align:left}
.left th:last-child,.left td:last-child{text-align:right}
th{color:var(--faint);font-weight:500}
tfoot td{font-weight:600;border-bottom:0}
@media print{body{font-size:12px}main{max-width:none}details>div{display:block}}
"""
