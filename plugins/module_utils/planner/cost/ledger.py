# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The books (L-16): closing lines as they are stored, machines that still live, and what each cost between two moments.

What a machine cost until a moment never falls as time goes on, and at its end it is the cost of its line. So the parts of a life, however
it is cut, add up to that cost exactly.
"""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Context, Decimal, InvalidOperation

from ...core.errors import InvalidInput
from ...model import Capability, Claim, Ledger, LedgerLine
from ...units.durations import parse_time
from .cost import billed, ledger_line

_EXACT = Context(prec=120)  # amounts have 28 digits; sums and differences of very many of them still lose none
NOTHING = Decimal(0)


def read_ledger(records: t.Iterable[t.Mapping[str, t.Any]], torn: t.Iterable[str] = ()) -> Ledger:
    """The ledger of stored lines; ``torn`` are places that could not be read at all. A line that makes no sense counts as torn."""
    lines: list[LedgerLine] = []
    odd = list(torn)
    for record in records:
        try:
            lines.append(read_line(record))
        except (InvalidInput, KeyError, TypeError, ValueError, InvalidOperation) as error:
            odd.append(f"{record.get('key') or record.get('name') or 'a line without a name'}: {error}")
    return Ledger(tuple(sorted(lines, key=lambda line: (line.end, line.key))), tuple(sorted(odd)))


def read_line(record: t.Mapping[str, t.Any], *, closed: bool = True) -> LedgerLine:
    """One stored line. Raises InvalidInput, KeyError, TypeError, ValueError or InvalidOperation for what is none."""
    name = record["name"]
    if not isinstance(name, str) or not name:
        raise ValueError("it names no machine")
    granularity = int(record.get("granularity") or 1)
    cost, price, disk = (_dollars(record.get(key) or "0") for key in ("cost", "price_hour", "storage_price_hour"))
    if "cost" not in record or granularity < 1:
        raise ValueError("it says no cost")
    return LedgerLine(
        key=str(record.get("key") or name),
        name=name,
        pool=str(record.get("pool") or ""),
        node_class=str(record.get("class") or ""),
        cloud=str(record.get("cloud") or ""),
        model=str(record.get("model") or ""),
        gpu_count=int(record.get("gpu_count") or 0),
        region=str(record.get("region") or ""),
        spot=bool(record.get("spot")),
        ids=tuple(str(identity) for identity in record.get("ids") or ()),
        price_hour=price,
        disk_hour=disk,
        start=_time(record.get("start")),
        end=parse_time(record["end"]),
        running_since=_time(record.get("running_since")),
        interrupted_at=_time(record.get("interrupted_at")),
        initialized=_time(record.get("initialized")),
        worked_since=_time(record.get("worked_since")),
        work_watched=bool(record.get("work_watched")),
        idle_since=_time(record.get("idle_since")),
        cost=cost,
        granularity=granularity,
        bills_boot=bool(record.get("bills_boot", True)),
        reason=str(record.get("reason") or ""),
        why=str(record.get("why") or ""),
        joined=bool(record.get("joined")),
        closed=closed,
        traffic_price_gb_down=_told(record.get("traffic_price_gb_down")),
        traffic_price_gb_up=_told(record.get("traffic_price_gb_up")),
    )


def live_line(claim: Claim, now: datetime, capability: Capability | None) -> LedgerLine:
    """A machine that is still on record, as if its line were written now."""
    end = now if claim.gone_since is None else min(claim.gone_since, now)
    granularity = capability.billing_granularity if capability else 1
    bills_boot = capability.bills_boot if capability else True
    return read_line(ledger_line(claim, end=end, granularity=granularity, bills_boot=bills_boot), closed=False)


def books(
    ledger: Ledger, claims: t.Iterable[Claim], now: datetime, capabilities: t.Mapping[str, Capability]
) -> tuple[LedgerLine, ...]:
    """Every machine once: closed lines, then what still lives. A claim whose line is written already (its removal was cut off) is that line."""
    written = {line.key for line in ledger.lines}
    live = [
        live_line(claim, now, capabilities.get(claim.cloud))
        for claim in sorted(claims, key=lambda claim: claim.name)
        if not written & set(closing_keys(claim))
    ]
    return (*ledger.lines, *live)


def closing_keys(claim: Claim) -> tuple[str, str]:
    """The keys under which a claim's closing line may stand: rented machines by name, own ones by name and time."""
    return claim.name, own_machine_key(claim)


def own_machine_key(claim: Claim) -> str:
    """An own machine comes again under its name: one line for each time it was on."""
    return f"{claim.name}.{claim.created:%Y%m%d%H%M%S}"


def ended_before(record: t.Mapping[str, t.Any], moment: datetime) -> bool:
    """Whether a stored line makes sense and its machine ended before ``moment``."""
    try:
        return read_line(record).end < moment
    except (InvalidInput, KeyError, TypeError, ValueError, InvalidOperation):
        return False


def until(line: LedgerLine, moment: datetime) -> Decimal:
    """Dollars that the machine had cost at ``moment``; a started billing unit counts whole, in the period in which it begins."""
    if moment >= line.end:
        return line.cost
    if line.start is None or moment <= line.start:
        return NOTHING
    running = (line.running_since, line.interrupted_at)
    formula = billed(line.price_hour, line.disk_hour, (line.start, moment), running, line.granularity, bills_boot=line.bills_boot)
    return min(formula, line.cost)


def between(line: LedgerLine, start: datetime, end: datetime) -> Decimal:
    """Dollars that fall on the time from ``start`` to ``end``."""
    return _EXACT.subtract(until(line, end), until(line, start)) if start < end else NOTHING


def add_up(amounts: t.Iterable[Decimal]) -> Decimal:
    """The sum without losing a digit."""
    total = NOTHING
    for amount in amounts:
        total = _EXACT.add(total, amount)
    return total


def _dollars(value: t.Any) -> Decimal:
    if isinstance(value, float):
        raise TypeError(f"{value!r} is not an exact amount")
    amount = Decimal(str(value))
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{value!r} is not a possible amount")
    return amount


def _told(value: t.Any) -> Decimal | None:
    return None if value is None else _dollars(value)


def _time(text: t.Any) -> datetime | None:
    return None if text is None else parse_time(text)
