# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the money went (A-07, A-08): each machine's life cut at midnights and at what it was good for. The parts of the whole time add
up to the ledger to the last digit."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from ...model import LedgerLine, PodOwner
from ...model.reasons import Finding, Reason
from ...units.calendar import Period, days_between, period_of
from .bill import NOTHING, billed
from .cost import add_up, between, missing_gpus, use_of
from .hours import HOURS, Piece, in_cents, pieces, portion
from .teams import Split, owned, split
from .traffic import Assumption, Total, of_lines

#: what money was spent for, in the order in which people read it
USES = ("useful", "idle_tail", "starting", "failed_join", "failed_launch", "duplicate", "leaked", "unused", "unknown")
_WHOLE_LIFE: t.Mapping[str, str] = {
    Reason.DUPLICATE: "duplicate",
    Finding.LAUNCH_REFUSED: "failed_launch",
    Reason.LAUNCH_FAILED: "failed_launch",
    Reason.ORPHAN: "leaked",
}
SECONDS = Decimal(3600)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A piece of a machine's life within one day. ``use`` is one of USES; ``gpu_seconds`` are those in which its GPUs were useful, and
    ``unknown_seconds`` those for which it is unknown. ``missing_cost`` is the part of ``cost`` that was paid for GPUs that were not there in
    ``missing_gpu_seconds``."""

    day: str
    line: LedgerLine
    use: str
    cost: Decimal
    gpu_seconds: int
    unknown_seconds: int = 0
    missing_cost: Decimal = NOTHING
    missing_gpu_seconds: int = 0


def parts(lines: t.Iterable[LedgerLine], since: datetime | None, until: datetime, time_zone: str) -> list[Part]:
    """What was spent from ``since`` (None = ever) to ``until``, in parts that cost something or were useful."""
    spent: list[Part] = []
    days: dict[tuple[datetime, datetime], list[Period]] = {}
    for line in lines:
        for use, start, end in phases(line):
            if start >= end:  # it never lived, or its clock ran backwards; what it cost falls on its end
                if line.cost and (since is None or since < end) and end <= until:
                    spent.append(Part(period_of("day", end, time_zone).key, line, use, line.cost, 0))
                continue
            first, last = max(start, since) if since else start, min(end, until)
            if first >= last:
                continue
            key = (first, last)
            if key not in days:
                days[key] = days_between(first, last, time_zone)
            for day in days[key]:
                begin, stop = max(first, day.start), min(last, day.end)
                cost = between(line, begin, stop)
                lost, lacking = missing_gpus(line, begin, stop)
                seconds = max(0, int((stop - begin).total_seconds()) * line.gpu_count - lacking)
                useful, unknown = (seconds if use == counted else 0 for counted in ("useful", "unknown"))
                if cost or useful or unknown:
                    spent.append(Part(day.key, line, use, cost, useful, unknown, min(lost, cost), lacking))
    return sorted(spent, key=lambda part: (part.day, part.line.key, USES.index(part.use)))


def phases(line: LedgerLine) -> list[tuple[str, datetime, datetime]]:
    """What a machine was good for, one time after the other, from its create call to its end without a gap."""
    start = line.start or line.end
    if line.reason in _WHOLE_LIFE:
        return [(_WHOLE_LIFE[line.reason], start, line.end)]
    use = use_of(line, line.end)
    if use is None:
        return [("failed_join" if line.closed else "starting", start, line.end)]
    before = "unused" if use.watched else "unknown"
    usable = max(use.usable, start)
    if use.began is None:
        idle = line.end if use.watched else max(use.idle, usable)
        times = [("starting", start, usable), (before, usable, idle), ("idle_tail", idle, line.end)]
    else:
        began, idle = max(use.began, usable), max(use.idle, usable)
        times = [("starting", start, usable), (before, usable, began), ("useful", began, idle), ("idle_tail", idle, line.end)]
    return [moment for moment in times if moment[1] < moment[2]] or [("starting", start, line.end)]


@dataclasses.dataclass(frozen=True, slots=True)
class MissingGpus:
    """What was paid for GPUs that a machine's node did not show: dollars, GPU hours, and the least that it showed ("7 of 8")."""

    name: str
    cost: Decimal
    gpu_hours: Decimal
    shown: str


@dataclasses.dataclass(frozen=True, slots=True)
class Inexact:
    """By how many dollars the bill of a cloud may be ``less`` or ``more`` than its machines are booked with. ``start_told``: it says when each
    bill began; ``apart``: it bills disk and GPUs apart; ``off``: it bills a machine less that is off; ``unknown``: machines of lines of
    older versions, which say no bounds."""

    cloud: str
    less: Decimal
    more: Decimal
    start_told: bool
    apart: bool
    off: bool
    unknown: int


# ---- hours by use (L-44): the paid time of every machine, and what it cost


@dataclasses.dataclass(frozen=True, slots=True)
class HourSum:
    """Machine hours of one of HOURS, and their dollars."""

    hours: Decimal
    cost: Decimal


def priced(line: LedgerLine, since: datetime | None, until: datetime) -> list[tuple[Piece, Decimal]]:
    """The paid time of a machine in pieces, each with what it cost. They add up to what the machine cost in that time; a billing unit that is
    billed whole is spread over it."""
    start = line.start or line.end
    first, last = max(start, since) if since else start, min(line.end, until)
    if start >= line.end:  # it never lived; what it cost falls on its end
        inside = (since is None or since < line.end) and line.end <= until
        return [(Piece(line.end, line.end, "failed"), line.cost)] if inside and line.cost else []
    if first >= last:
        return []
    found = pieces(line, first, last)
    weights = [_weight(line, piece) for piece in found]
    if not sum(weights):
        weights = [piece.seconds for piece in found]
    total, whole = between(line, first, last), sum(weights, Fraction(0))
    costs = [portion(total, weight / whole) for weight in weights[:-1]]
    return list(zip(found, [*costs, add_up((total, *(cost.copy_negate() for cost in costs)))], strict=True))


def _weight(line: LedgerLine, piece: Piece) -> Fraction:
    """What a piece would cost if seconds were billed."""
    running = (line.running_since, line.interrupted_at)
    start = line.start or line.end

    def until(moment: datetime) -> Fraction:
        return Fraction(billed(line.price_hour, line.disk_hour, (start, moment), running, bills_boot=line.bills_boot))

    return max(Fraction(0), until(piece.end) - until(piece.start))


@dataclasses.dataclass(frozen=True, slots=True)
class OwnedPart:
    """What one owner's pods used of a machine on one day, or (``owner`` None) what nobody's did, by one of UNASSIGNED."""

    day: str
    line: LedgerLine
    owner: PodOwner | None
    unassigned: str
    gpu_seconds: Fraction
    cost: Decimal


def owned_parts(lines: t.Iterable[LedgerLine], since: datetime | None, until: datetime, time_zone: str) -> list[OwnedPart]:
    """The split by owner (L-45), cut at midnights. The parts of a machine add up to what it cost in that time."""
    found = []
    for line in lines:
        amounts: dict[tuple[str, PodOwner | str], tuple[Fraction, Fraction]] = {}
        pieces_of_line = priced(line, since, until)
        for piece, cost in pieces_of_line:
            for day, of_time, of_cost in _by_day(line, piece, time_zone):
                for who, gpu_seconds, dollars in owned(line, piece, cost):
                    used, paid = amounts.get((day, who), (Fraction(0), Fraction(0)))
                    amounts[day, who] = used + gpu_seconds * of_time, paid + dollars * of_cost
        left = add_up(cost for _piece, cost in pieces_of_line)
        order = sorted(amounts, key=lambda key: (key[0], isinstance(key[1], str), str(key[1])))
        for day, who in order:
            gpu_seconds, dollars = amounts[day, who]
            cost = left if (day, who) == order[-1] else portion(Decimal(1), dollars)
            left = add_up((left, cost.copy_negate()))
            owner, word = (None, who) if isinstance(who, str) else (who, "")
            found.append(OwnedPart(day, line, owner, word, gpu_seconds, cost))
    return sorted(found, key=lambda part: (part.day, part.line.key))


def _by_day(line: LedgerLine, piece: Piece, time_zone: str) -> t.Iterator[tuple[str, Fraction, Fraction]]:
    """The days of a piece, each with its part of the time and of the cost."""
    if not piece.seconds:
        yield period_of("day", piece.end, time_zone).key, Fraction(1), Fraction(1)
        return
    whole = _weight(line, piece)
    for day in days_between(piece.start, piece.end, time_zone):
        here = dataclasses.replace(piece, start=max(piece.start, day.start), end=min(piece.end, day.end))
        of_time = here.seconds / piece.seconds
        yield day.key, of_time, _weight(line, here) / whole if whole else of_time


def hour_sums(lines: t.Iterable[LedgerLine], since: datetime | None, until: datetime) -> dict[str, HourSum]:
    """Hours and dollars by HOURS, those that are not 0."""
    seconds: dict[str, Fraction] = dict.fromkeys(HOURS, Fraction(0))
    dollars: dict[str, list[Decimal]] = {use: [] for use in HOURS}
    for line in lines:
        for piece, cost in priced(line, since, until):
            if not piece.seconds:
                dollars[piece.state].append(cost)
            for use, lasted in piece.hours.items():
                seconds[use] += lasted
                dollars[use].append(portion(cost, lasted / piece.seconds))
    return {
        use: HourSum(portion(Decimal(1), seconds[use] / 3600), add_up(dollars[use]))
        for use in HOURS
        if seconds[use] or dollars[use]
    }


def to_cents(amounts: t.Mapping[str, Decimal], total: Decimal) -> dict[str, Decimal]:
    """Amounts in whole cents that add up to ``total`` in whole cents."""
    cents = int((total * 100).to_integral_value(ROUND_HALF_UP))
    whole = in_cents({name: Fraction(amount) for name, amount in amounts.items()}, cents)
    return {name: Decimal(amount) / 100 for name, amount in whole.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Sums in dollars, exact, by the words of each way to look at them; the dearest first, days and uses in their own order. None of them
    contains ``traffic``, which is an estimate. ``missing``: machines that lacked GPUs, the dearest first; their dollars are in all sums, and
    their GPUs in no hour of use. ``by_hours``: machine hours by use, from the times that pods themselves say
    (L-44). ``split``: dollars by who used the GPUs (L-45). ``inexact``: how exact the sums are, by cloud."""

    since: datetime | None
    until: datetime
    time_zone: str
    parts: tuple[Part, ...]
    total: Decimal
    by_day: t.Mapping[str, Decimal]
    by_use: t.Mapping[str, Decimal]
    by_pool: t.Mapping[str, Decimal]
    by_cloud: t.Mapping[str, Decimal]
    by_model: t.Mapping[str, Decimal]
    by_end: t.Mapping[str, Decimal]
    gpu_hours: Decimal
    unknown_gpu_hours: Decimal
    machines: int
    traffic: Total
    missing: tuple[MissingGpus, ...] = ()
    by_hours: t.Mapping[str, HourSum] = dataclasses.field(default_factory=dict)
    split: Split = dataclasses.field(default_factory=Split)
    inexact: tuple[Inexact, ...] = ()

    @property
    def per_gpu_hour(self) -> Decimal | None:
        """Everything that was spent ÷ the GPU hours that were of use; None = none were, or it is unknown of some."""
        return self.total / self.gpu_hours if self.gpu_hours and not self.unknown_gpu_hours else None


def report(lines: t.Sequence[LedgerLine], since: datetime | None, until: datetime, time_zone: str = "UTC") -> Report:
    """The sums over ``lines`` (ledger.books) from ``since`` to ``until``."""
    spent = tuple(parts(lines, since, until, time_zone))
    uses = _sums(spent, lambda part: part.use)
    return Report(
        since=since,
        until=until,
        time_zone=time_zone,
        parts=spent,
        total=add_up(part.cost for part in spent),
        by_day=dict(sorted(_sums(spent, lambda part: part.day).items())),
        by_use={use: uses[use] for use in USES if use in uses},
        by_pool=_dearest(_sums(spent, lambda part: part.line.pool or "unknown")),
        by_cloud=_dearest(_sums(spent, lambda part: part.line.cloud or "unknown")),
        by_model=_dearest(_sums(spent, lambda part: part.line.model or "unknown")),
        by_end=_dearest(_sums(spent, lambda part: (part.line.reason or "unknown") if part.line.closed else "still there")),
        gpu_hours=sum(part.gpu_seconds for part in spent) / SECONDS,
        unknown_gpu_hours=sum(part.unknown_seconds for part in spent) / SECONDS,
        machines=len({part.line.key for part in spent}),
        traffic=of_lines(lines, since, until, Assumption()),
        missing=_missing(spent),
        by_hours=hour_sums(lines, since, until),
        split=split((line, piece, cost) for line in lines for piece, cost in priced(line, since, until)),
        inexact=_inexact({part.line.key: part.line for part in spent}.values()),
    )


def dollars_by_use(lines: t.Iterable[LedgerLine], now: datetime) -> dict[str, Decimal]:
    """The same sums by use as in the report of all time, without the rest of it."""
    return _sums(parts(lines, None, now, "UTC"), lambda part: part.use)


def split_by_teams(lines: t.Sequence[LedgerLine], now: datetime, *, always: bool = False) -> Split | None:
    """The split of the report of all time (L-45). None where no pod names a team, since it takes longer than all other
    sums. ``always``: also then."""
    uses = (use for line in lines if line.work is not None for span in line.work.spans for use in span.uses)
    if not always and not any(use.owner.team for use in uses):
        return None
    return split((line, piece, cost) for line in lines for piece, cost in priced(line, None, now))


def _inexact(lines: t.Iterable[LedgerLine]) -> tuple[Inexact, ...]:
    """Of whole machines, also where only a part of their life is reported."""
    by_cloud: dict[str, list[LedgerLine]] = {}
    for line in lines:
        by_cloud.setdefault(line.cloud or "unknown", []).append(line)
    return tuple(
        Inexact(
            cloud,
            add_up(line.cost - line.cost_least for line in several if line.cost_least is not None),
            add_up(line.cost_most - line.cost for line in several if line.cost_most is not None),
            all(line.start_told for line in several),
            not all(line.bills_boot for line in several),
            any(line.off_costs_less and line.bills_boot for line in several),
            sum(line.cost_least is None or line.cost_most is None for line in several),
        )
        for cloud, several in sorted(by_cloud.items())
    )


def _missing(spent: t.Iterable[Part]) -> tuple[MissingGpus, ...]:
    lacking: dict[str, list[Part]] = {}
    for part in spent:
        if part.missing_gpu_seconds:
            lacking.setdefault(part.line.key, []).append(part)
    rows = []
    for several in lacking.values():
        line = several[0].line
        worst = max(line.gpu_losses, key=lambda loss: (Decimal(loss.missing) / loss.of, loss.since))
        hours = sum(part.missing_gpu_seconds for part in several) / SECONDS
        shown = f"{worst.of - worst.missing} of {worst.of}"
        rows.append(MissingGpus(line.name, add_up(part.missing_cost for part in several), hours, shown))
    return tuple(sorted(rows, key=lambda row: (-row.cost, row.name)))


def _sums(spent: t.Iterable[Part], word: t.Callable[[Part], str]) -> dict[str, Decimal]:
    amounts: dict[str, list[Decimal]] = {}
    for part in spent:
        amounts.setdefault(word(part), []).append(part.cost)
    return {name: add_up(several) for name, several in amounts.items()}


def _dearest(sums: t.Mapping[str, Decimal]) -> dict[str, Decimal]:
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def table_of_days(spending: Report) -> dict[str, dict[str, Decimal]]:
    """Day → use → dollars, for charts."""
    days: dict[str, dict[str, Decimal]] = {}
    for part in spending.parts:
        uses = days.setdefault(part.day, {})
        uses[part.use] = add_up((uses.get(part.use, NOTHING), part.cost))
    return days
