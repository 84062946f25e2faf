# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on money as data, as a table for people, and as CSV for other programs."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

from ..core.clock import to_text
from ..core.events import render
from ..core.files import csv_text
from ..model import LedgerLine, Volume
from ..planner.cost import teams
from ..planner.cost.cost import add_up
from ..planner.cost.spend_report import Inexact, OwnedPart, Report, to_cents
from ..planner.cost.traffic import HOUR_GB, ONCE_GB, Assumption
from ..planner.offers import account_volumes
from ..units.values import print_money
from .status import sentences

WAYS = {"use": "use", "pool": "pool", "cloud": "cloud", "model": "model", "end": "end", "day": "day"}
WORDS = {
    "useful": "useful",
    "idle_tail": "idle tail",
    "starting": "starting up",
    "failed_join": "failed join",
    "failed_launch": "failed launch",
    "duplicate": "duplicate",
    "leaked": "leaked",
    "unused": "no work seen",
    "unknown": "unknown",
}
HOUR_WORDS = {"waiting": "waiting for work"}
SPLIT_WORDS = {"idle": "free beside pods", **HOUR_WORDS}
_MOST_NAMED = 5  # machines in a sentence
_MACHINE = ("day", "machine", "pool", "class", "cloud", "model", "gpus", "region", "spot")
_CSV = (*_MACHINE, "used_for", "ended_for", "cost", "useful_gpu_seconds", "missing_gpu_seconds", "missing_cost")
_TEAMS_CSV = (*_MACHINE, "team", "namespace", "requester", "unassigned", "gpu_seconds", "cost")


# ---- what images of Talos cost: in no other sum


@dataclasses.dataclass(frozen=True, slots=True)
class ImageCost:
    """Dollars of one image: in the time of the report, and for a month. None = its size or its age is not known."""

    cloud: str
    name: str
    created: datetime | None
    cost: Decimal | None
    month: Decimal | None
    basis: str


@dataclasses.dataclass(frozen=True, slots=True)
class ImageCosts:
    """``problems``: why the images of an account are not known, one sentence each."""

    images: tuple[ImageCost, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def total(self) -> Decimal:
        return add_up(image.cost for image in self.images if image.cost is not None)

    @property
    def month(self) -> Decimal:
        return add_up(image.month for image in self.images if image.month is not None)

    @property
    def whole(self) -> bool:
        return not self.problems and all(image.cost is not None for image in self.images)

    def data(self) -> dict[str, t.Any]:
        """JSON-safe. The ``cost`` of the images is in whole cents, and adds up to the ``total`` in whole cents."""
        known = {f"{image.cloud}/{image.name}": image.cost for image in self.images if image.cost is not None}
        cents = to_cents(known, self.total)
        return {
            "whole": self.whole,
            "total": str(to_cent(self.total)),
            "month": str(to_cent(self.month)),
            "images": [
                {
                    "cloud": image.cloud,
                    "name": image.name,
                    "created": to_text(image.created) if image.created else None,
                    "cost": None if image.cost is None else str(cents[f"{image.cloud}/{image.name}"]),
                    "month_cost": None if image.month is None else str(image.month),
                    "price_basis": image.basis,
                }
                for image in self.images
            ],
            "problems": list(self.problems),
        }

    def sentence(self) -> str:
        """For people; empty when nothing is to be said."""
        if not self.images:
            return "; ".join(self.problems)
        least, number = "" if self.whole else "at least ", len(self.images)
        amounts = f"{least}${to_cent(self.total)} in this time, ${to_cent(self.month)} a month"
        unverified = sorted({image.cloud for image in self.images if image.basis == "unverified"})
        basis = f" (the price of {', '.join(unverified)} is unverified)" if unverified else ""
        text = f"{number} image{'s' * (number != 1)} of Talos {'are' if number != 1 else 'is'} not in these sums: {amounts}{basis}"
        return "; ".join((text, *self.problems))


def to_cent(amount: Decimal) -> Decimal:
    """Rounded to the cent, and never -0.00."""
    return amount.quantize(Decimal("0.01"), ROUND_HALF_UP) + 0


# ---- the report


def data(
    report: Report, money: t.Mapping[str, t.Any], torn: t.Sequence[str], cluster: str, images: ImageCosts = ImageCosts()
) -> dict[str, t.Any]:
    """JSON-safe. Amounts are exact text; ``per_useful_gpu_hour`` None = nothing was useful, or it is unknown of some hours."""
    per_hour = report.per_gpu_hour
    return {
        "cluster": cluster,
        "since": to_text(report.since) if report.since else None,
        "until": to_text(report.until),
        "time_zone": report.time_zone,
        "whole": money["whole"],
        "torn": list(torn),
        "total": str(report.total),
        "machines": report.machines,
        "traffic": {
            "machines": report.traffic.machines,
            "estimate": print_money(report.traffic.dollars),
            "once_gb": ONCE_GB,
            "hour_gb": HOUR_GB,
        },
        "bill": bill_data(report),
        "talos_images": images.data(),
        "missing_gpus": {
            "cost": str(add_up(row.cost for row in report.missing)),
            "gpu_hours": str(_hours(sum((row.gpu_hours for row in report.missing), Decimal(0)))),
            "machines": [
                {"name": row.name, "shown": row.shown, "cost": str(row.cost), "gpu_hours": str(_hours(row.gpu_hours))}
                for row in report.missing
            ],
        },
        "useful_gpu_hours": str(report.gpu_hours.quantize(Decimal("0.0001"))),
        "unknown_gpu_hours": str(report.unknown_gpu_hours.quantize(Decimal("0.0001"))),
        "per_useful_gpu_hour": None if per_hour is None else print_money(per_hour),
        "hours": [
            {"use": use, "hours": str(_hours(one.hours)), "cost": str(cost)}
            for (use, one), cost in zip(*hour_rows(report), strict=True)
        ],
        "split": {
            view: [{"name": row.word, "gpu_hours": str(_hours(row.gpu_hours)), "cost": str(row.cost)} for row in lines]
            for view, lines in teams.rows(report.split, report.total).items()
        },
        **{f"by_{way}": {word: str(cost) for word, cost in sums(report, way).items()} for way in WAYS},
        "spending": dict(money),
    }


def sums(report: Report, way: str) -> t.Mapping[str, Decimal]:
    """The sums of one of WAYS."""
    return t.cast("t.Mapping[str, Decimal]", getattr(report, f"by_{way}"))


def hour_rows(report: Report) -> tuple[list[tuple[str, t.Any]], list[Decimal]]:
    """Machine hours by use, and their dollars to the cent: together those of the total."""
    costs = to_cents({use: one.cost for use, one in report.by_hours.items()}, report.total)
    return list(report.by_hours.items()), [costs[use] for use in report.by_hours]


def split_views(report: Report) -> list[tuple[str, list[dict[str, str]]]]:
    """Who used the GPUs, by team, namespace and requester, each with what nobody used. A view in which nobody is known is left out."""
    views = teams.rows(report.split, report.total)
    rest = [(f"unassigned: {SPLIT_WORDS.get(row.word, row.word)}", row) for row in views["unassigned"]]
    found = []
    for name, heading in (("teams", "team"), ("namespaces", "namespace"), ("requesters", "requester")):
        known = [(row.word, row) for row in views[name]]
        if any(word != teams.UNKNOWN for word, _row in known):
            lines = [
                {"word": word, "hours": str(row.gpu_hours.quantize(Decimal("0.01"))), "cost": cents(row.cost)}
                for word, row in (*known, *rest)
            ]
            found.append((heading, lines))
    return found


def table(report: Report, money: t.Mapping[str, t.Any], torn: t.Sequence[str], images: ImageCosts = ImageCosts()) -> list[str]:
    """For a terminal."""
    lines: list[str] = []
    for way, heading in WAYS.items():
        rows = [
            {"word": WORDS.get(word, word), "cost": cents(cost), "share": share(cost, report.total)}
            for word, cost in sums(report, way).items()
        ]
        drawn = render(rows, {"word": heading, "cost": "$", "share": "%"}, right=("cost", "share"))
        lines += [*drawn, ""] if drawn else []
    hours = [
        {"word": HOUR_WORDS.get(use, use), "hours": str(one.hours.quantize(Decimal("0.01"))), "cost": cents(cost)}
        for (use, one), cost in zip(*hour_rows(report), strict=True)
    ]
    lines += [*render(hours, {"word": "machine hours", "hours": "h", "cost": "$"}, right=("hours", "cost")), ""] if hours else []
    for heading, view in split_views(report):
        drawn = render(view, {"word": heading, "hours": "GPU h", "cost": "$"}, right=("hours", "cost"))
        lines += [*drawn, ""]
    texts = [
        *headline(report, money, torn),
        *filter(None, [missing_text(report), bill_text(report), traffic_text(report), images.sentence()]),
    ]
    return [*lines, *(f"  {text}" for text in texts), *sentences(money)]


def headline(report: Report, money: t.Mapping[str, t.Any], torn: t.Sequence[str]) -> list[str]:
    """The sum, what an hour of use cost, and what is missing from it."""
    least = "" if money["whole"] else "at least "
    use = use_text(report)
    since = f"from {to_text(report.since)} " if report.since else ""
    text = f"{least}${print_money(report.total)} {since}until {to_text(report.until)} for {report.machines} machines; {use}"
    return [text, *(f"TORN: {place}: what its machine cost is not in any of these sums" for place in torn)]


def missing_text(report: Report) -> str:
    """What was paid for GPUs that were rented and not there (L-20a), and where."""
    if not report.missing:
        return ""
    hours = sum((row.gpu_hours for row in report.missing), Decimal(0)).quantize(Decimal("0.01"))
    named = ", ".join(f"{row.name} with {row.shown} GPUs ${print_money(row.cost)}" for row in report.missing[:_MOST_NAMED])
    more = f" and {len(report.missing) - _MOST_NAMED} more" if len(report.missing) > _MOST_NAMED else ""
    paid = print_money(add_up(row.cost for row in report.missing))
    return f"${paid} of it was paid for GPUs that were rented and not there ({hours} GPU hours): {named}{more}"


def bill_data(report: Report) -> dict[str, t.Any]:
    """Between which amounts the bills of the providers lie, as exact text. ``unknown_machines``: those whose lines say no bounds."""
    return {
        "least": str(add_up((report.total, *(row.less.copy_negate() for row in report.inexact)))),
        "most": str(add_up((report.total, *(row.more for row in report.inexact)))),
        "unknown_machines": sum(row.unknown for row in report.inexact),
        "clouds": [{"name": row.cloud, "less": str(row.less), "more": str(row.more), "why": _why(row)} for row in report.inexact],
    }


def bill_text(report: Report) -> str:
    """How exact the sums are: by how many cents the bills of the providers may differ, and why. Empty without machines."""
    if not report.inexact:
        return ""
    parts = []
    for row in report.inexact:
        by = [f"${_up(amount)} {word}" for word, amount in (("less", row.less), ("more", row.more)) if amount]
        if by:
            parts.append(f"{row.cloud} at most {' and '.join(by)} ({_why(row)})")
    unknown = sum(row.unknown for row in report.inexact)
    if unknown:
        parts.append(f"{unknown} machine{'s' * (unknown != 1)} of an older version by an unknown amount")
    if not parts:
        return "The bills of the providers are these sums, to the cent"
    return f"The bills of the providers may differ from these sums: {'; '.join(parts)}"


def _why(row: Inexact) -> str:
    """What a provider does not say."""
    ends = "when a bill ends" if row.start_told else "when a bill begins and ends"
    apart = ", and says to half a minute since when GPUs run" if row.apart else ""
    return f"it does not say {ends}{apart}" + ("; a machine that was off cost only its disk" if row.off else "")


def _up(amount: Decimal) -> Decimal:
    """To the next cent: a bound is never too small."""
    return amount.quantize(Decimal("0.01"), ROUND_CEILING)


def volumes_data(rows: t.Sequence[Volume], unread: t.Sequence[str]) -> dict[str, t.Any]:
    """The existing volumes that classes name, as data. ``month``: dollars a month of all of them, None while one price is not known."""
    month = None if unread else account_volumes.total(rows)
    return {
        "month": None if month is None else print_money(month),
        "unread": list(unread),
        "volumes": [
            {
                "cloud": row.cloud,
                "id": row.id,
                "name": row.name,
                "region": row.region,
                "size_gb": None if row.size_gb is None else str(row.size_gb),
                "month": None if row.price_month is None else print_money(row.price_month),
            }
            for row in rows
        ],
    }


def volumes_text(kept: t.Mapping[str, t.Any]) -> str:
    """The same (``volumes_data``) for people: a sentence of its own, because no sum over machines contains it. Empty without volumes."""
    if not kept["volumes"] and not kept["unread"]:
        return ""
    cost = "the price of one is not known" if kept["month"] is None else f"${kept['month']} a month"
    named = [
        f"{row['cloud']} {row['name'] or row['id']} in {row['region']} "
        + ("price not known" if row["month"] is None else f"${row['month']}")
        for row in kept["volumes"]
    ]
    named += [f"{cloud} not read" for cloud in kept["unread"]]
    return f"Volumes are not in these sums and are billed without machines, too: {cost} ({'; '.join(named)})"


def _hours(hours: Decimal) -> Decimal:
    return hours.quantize(Decimal("0.0001"))


def traffic_text(report: Report) -> str:
    """What the sums leave out where a cloud bills traffic."""
    machines = report.traffic.machines
    if not machines:
        return ""
    amount, who = print_money(report.traffic.dollars), f"{machines} machine{'s' * (machines != 1)}"
    return (
        f"Traffic of {who} is not in these sums: about ${amount}, an estimate for {Assumption()}; what was transferred is not known"
    )


def use_text(report: Report) -> str:
    """How many GPU hours were useful, and what each cost; "unknown" where nobody noted it."""
    hours, unknown = (amount.quantize(Decimal("0.01")) for amount in (report.gpu_hours, report.unknown_gpu_hours))
    if report.unknown_gpu_hours:
        useful = f"; {hours} others were useful" if report.gpu_hours else ""
        return f"whether {unknown} GPU hours were useful is unknown (no version noted it then){useful}"
    per_hour = report.per_gpu_hour
    return "no hour of it was useful" if per_hour is None else f"{hours} useful GPU hours, ${print_money(per_hour)} each"


def cents(amount: Decimal) -> str:
    """Dollars to the cent, for people; the exact amounts are in JSON and CSV."""
    return f"{amount.quantize(Decimal('0.01'), rounding=ROUND_HALF_UP):,}"


def share(cost: Decimal, total: Decimal) -> str:
    """Per cent, to a tenth."""
    return str((cost * 100 / total).quantize(Decimal("0.1"))) if total else "0.0"


def as_csv(report: Report) -> str:
    """One line for each day, machine and use; the costs add up to the total exactly."""
    lines = []
    for part in report.parts:
        ended = part.line.reason if part.line.closed else ""
        seconds = "unknown" if part.unknown_seconds else part.gpu_seconds
        missing = (part.missing_gpu_seconds, f"{part.missing_cost:f}")
        lines.append((*_machine(part.day, part.line), part.use, ended, f"{part.cost:f}", seconds, *missing))
    return csv_text(_CSV, lines)


def teams_csv(parts: t.Iterable[OwnedPart]) -> str:
    """One line for each day, machine and owner of pods, and for what nobody's pods used; the costs add up to the total exactly."""
    lines = []
    for part in parts:
        owner = part.owner
        who = ("", "", "") if owner is None else (owner.team or teams.UNKNOWN, owner.namespace, owner.requester or teams.UNKNOWN)
        seconds = (Decimal(part.gpu_seconds.numerator) / part.gpu_seconds.denominator).quantize(Decimal("0.001"))
        lines.append((*_machine(part.day, part.line), *who, part.unassigned, seconds, f"{part.cost:f}"))
    return csv_text(_TEAMS_CSV, lines)


def _machine(day: str, line: LedgerLine) -> tuple[t.Any, ...]:
    spot = "yes" if line.spot else "no"
    return day, line.name, line.pool, line.node_class, line.cloud, line.model, line.gpu_count, line.region, spot
