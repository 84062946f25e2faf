# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a claim costs (L-16), its line in the ledger, and the books."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Context, Decimal, InvalidOperation

from ...core.errors import InvalidInput
from ...model import Capability, Claim, GpuLoss, Instance, InstanceState, Lane, Ledger, LedgerLine, Node, WorkRecord
from ...units.values import parse_time, print_time
from ..claims.record import decode, encode
from . import hours
from .bill import INEXACT, NOTHING, answered, billed, bounds

HOURS_PER_DAY = 24


def claim_cost(claim: Claim, end: datetime, granularity: int = 1, *, bills_boot: bool = True, minimum: int = 0) -> Decimal:
    """Dollars of a claim until ``end``, the last time its machine was possibly alive. Nothing before a create call was sent.

    ``bills_boot`` False: the GPUs count from ``running_since`` to ``interrupted_at``, the disk all the time."""
    if claim.launch_started is None:
        return Decimal(0)
    return billed(
        claim.price,
        claim.offer.storage_price_hour,
        (claim.bill_start or claim.launch_started, end),
        (claim.running_since, claim.interrupted_at),
        granularity,
        bills_boot=bills_boot,
        minimum=minimum,
    )


def per_day(price_hour: Decimal) -> Decimal:
    """Dollars per day at a price per hour."""
    return price_hour * HOURS_PER_DAY


class Tariff(t.TypedDict, total=False):
    """How a cloud bills, as ``ledger_line`` takes it."""

    granularity: int
    minimum: int
    bills_boot: bool
    off_costs_less: bool


def tariff(facts: Capability) -> Tariff:
    """Of a cloud."""
    return {
        "granularity": facts.billing_granularity,
        "minimum": facts.billing_minimum,
        "bills_boot": facts.bills_boot,
        "off_costs_less": facts.off_costs_less,
    }


def ledger_line(
    claim: Claim,
    *,
    end: datetime,
    granularity: int = 1,
    bills_boot: bool = True,
    lives: bool = False,
    alive: datetime | None = None,
    minimum: int = 0,
    off_costs_less: bool = False,
) -> dict[str, t.Any]:
    """The closing record of a claim, JSON-safe; amounts are exact text. ``joined`` tells whether it ever became usable,
    ``why`` the cause when it did not.
    ``running_since`` and ``interrupted_at`` say between which times the GPUs were billed, where that is not all the time.
    ``useful_seconds`` are those from its first work to its last idle time (or its end), 0 if no work was seen, None if that is unknown;
    ``idle_seconds`` is the usable time after them, all of it without work. ``granularity``, ``minimum``, ``bills_boot`` and
    ``off_costs_less`` say how its cloud bills.
    ``traffic_price_gb_down`` and ``_up`` are dollars per GB, which ``cost`` leaves out: how many GB there were is not known.
    ``gpu_losses``: when its node lacked GPUs that ``cost`` contains all the same.
    ``attempts``, ``phases`` and ``cause`` are for counters that survive runs: see LedgerLine. ``work`` is what pods used (L-44); ``lives``: the
    machine has not ended, and pods that ran when it was last recorded still do. ``alive``: see bounds, from which
    ``cost_least`` and ``cost_most`` are; ``start_told``: its cloud says when the bill began."""
    started = claim.bill_start
    least, most = bounds(
        claim,
        end,
        granularity,
        bills_boot=bills_boot,
        alive=end if lives else alive,
        minimum=minimum,
        off_costs_less=off_costs_less,
    )
    if claim.lane is Lane.SERVICE:  # it is in use from its first answer
        claim = dataclasses.replace(claim, worked_since=claim.initialized, work_watched=True)
    useful, idle = _use(claim, end)
    life = hours.life_of(claim)
    work = hours.service_work(claim, end) if claim.is_service else hours.closed(claim.work, life, end, lives=lives)
    return {
        "name": claim.name,
        "pool": claim.pool,
        "class": claim.node_class,
        "cloud": claim.cloud,
        "instance_type": claim.offer.instance_type,
        "model": claim.offer.model,
        "gpu_count": claim.offer.gpu_count,
        "region": claim.offer.region,
        "spot": claim.offer.spot,
        "ids": list(claim.ids_seen),
        "price_hour": str(claim.price),
        "start": print_time(started) if started else None,
        "end": print_time(end),
        "seconds": max(0, int((end - started).total_seconds())) if started else 0,
        "storage_price_hour": str(claim.offer.storage_price_hour),
        "traffic_price_gb_down": _text(claim.offer.traffic_price_gb_down),
        "traffic_price_gb_up": _text(claim.offer.traffic_price_gb_up),
        "running_since": print_time(claim.running_since) if claim.running_since else None,
        "interrupted_at": print_time(claim.interrupted_at) if claim.interrupted_at else None,
        "cost": str(claim_cost(claim, end, granularity, bills_boot=bills_boot, minimum=minimum)),
        "cost_least": str(least),
        "cost_most": str(most),
        "start_told": claim.billed_since is not None,
        "reason": claim.deletion.reason if claim.deletion else "",
        "why": claim.deletion.last_error if claim.deletion and claim.initialized is None else "",
        "joined": claim.initialized is not None,
        "initialized": print_time(claim.initialized) if claim.initialized else None,
        "idle_since": print_time(claim.idle_since) if claim.initialized and claim.idle_since else None,
        "worked_since": print_time(claim.worked_since) if claim.worked_since else None,
        "work_watched": claim.work_watched,
        "useful_seconds": useful,
        "idle_seconds": idle,
        "granularity": granularity,
        "minimum": minimum,
        "bills_boot": bills_boot,
        "off_costs_less": off_costs_less,
        "gpu_losses": [
            {
                "since": print_time(loss.since),
                "until": print_time(loss.until) if loss.until else None,
                "missing": loss.missing,
                "of": loss.of,
            }
            for loss in claim.gpu_losses
        ],
        "attempts": [list(attempt) for attempt in attempts_of(claim)],
        "phases": [list(phase) for phase in phase_seconds(claim, end)],
        "cause": claim.deletion.cause if claim.deletion else "",
        "draining_since": print_time(life.draining) if life.draining else None,
        "slots": life.slots,
        "work": encode(work),
    }


def attempts_of(claim: Claim) -> tuple[tuple[str, str, str, int], ...]:
    """Its create calls: cloud, result, error class, and how many."""
    found = collections.Counter((one.offer.partition("/")[0], one.result, one.error_class) for one in claim.attempts)
    return tuple((*kind, number) for kind, number in sorted(found.items()))


def phase_seconds(claim: Claim, end: datetime | None) -> tuple[tuple[str, int], ...]:
    """Seconds in each phase, in the order of phases; without ``end`` only in those that it left. By whole seconds, as records keep them: a line
    that is written again by a later run is the same."""
    times = [(moment.replace(microsecond=0), phase) for moment, phase, _why in claim.history]
    if end is not None and times:
        times.append((max(end.replace(microsecond=0), times[-1][0]), ""))
    return tuple(
        (phase, max(0, int((left - entered).total_seconds())))
        for (entered, phase), (left, _next) in zip(times, times[1:], strict=False)
    )


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _use(claim: Claim, end: datetime) -> tuple[int | None, int]:
    """Useful and idle seconds, both 0 for a machine that was never usable; useful None = unknown."""
    use = use_of(claim, end)
    if use is None:
        return 0, 0
    idle = int((use.stopped - use.idle).total_seconds())
    if use.began is not None:
        return int((use.idle - use.began).total_seconds()), idle
    return (0, int((use.stopped - use.usable).total_seconds())) if use.watched else (None, idle)


# ---- what the usable time of a machine was good for: from its first work to its last idle time it was useful


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Moments of one life, in order: ``usable`` ≤ ``began`` ≤ ``idle`` ≤ ``stopped``. ``began`` None = no work was seen, and ``watched`` tells
    whether that means that there was none. ``stopped``: the machine ended or was interrupted."""

    usable: datetime
    began: datetime | None
    idle: datetime
    stopped: datetime
    watched: bool


def use_of(record: Claim | LedgerLine, end: datetime) -> Use | None:
    """The use of a machine that ended at ``end``, None for one that was never usable. An idle time that began before the first work is over."""
    if record.initialized is None:
        return None
    stopped = min(record.interrupted_at or end, end)
    usable = min(record.initialized, stopped)
    began = None if record.worked_since is None else min(max(record.worked_since, usable), stopped)
    idle = record.idle_since
    if idle is None or (began is not None and idle < began):
        idle = stopped
    return Use(usable, began, min(max(idle, usable), stopped), stopped, record.work_watched)


# ---- GPUs that are paid for and not there (L-20a): each time in which their number was the same, in the claim and then in the ledger

MOST_LOSSES: t.Final = 20  # times of one machine that are kept; of more the shortest is dropped


def with_loss(losses: tuple[GpuLoss, ...], missing: int, of: int, since: datetime, now: datetime) -> tuple[GpuLoss, ...]:
    """The times after a look at ``now`` that found so many GPUs missing ``since`` then; 0 = all are there. The same again changes nothing."""
    last = losses[-1] if losses and losses[-1].until is None else None
    if last is not None and (last.missing, last.of) == (missing, of):
        return losses
    begins = since if last is None or since > last.since else now
    if last is not None:
        losses = (*losses[:-1], dataclasses.replace(last, until=begins if missing else now))
    if missing:
        losses = (*losses, GpuLoss(begins, missing, of))
    if len(losses) > MOST_LOSSES:
        shortest = min(range(len(losses) - 1), key=lambda place: _lasted(losses[place]))
        losses = (*losses[:shortest], *losses[shortest + 1 :])
    return losses


def _lasted(loss: GpuLoss) -> timedelta:
    return (loss.until or loss.since) - loss.since


def missing_gpus(line: LedgerLine, start: datetime, end: datetime) -> tuple[Decimal, int]:
    """Dollars and GPU seconds from ``start`` to ``end`` of GPUs that were paid for and not there: their share of what that time cost."""
    cost, seconds = NOTHING, 0
    for loss in line.gpu_losses:
        begin, stop = max(start, loss.since), min(end, loss.until or line.end, line.end)
        if begin < stop:
            cost += between(line, begin, stop) * loss.missing / loss.of
            seconds += int((stop - begin).total_seconds()) * line.gpu_count * loss.missing // loss.of
    return cost, seconds


# ---- what the bill of a machine hangs on, from what its cloud says of it (L-16): the price, and when its GPUs ran


def noted(claim: Claim, instance: Instance, capability: Capability | None, now: datetime, node: Node | None = None) -> Claim:
    """The claim with what ``instance``, its own machine, says of its bill.

    When the bill began, once, where the cloud tells. Where disk and GPUs are billed apart: since when the GPUs run (the first sighting, if the
    cloud does not tell), and when they were taken away or stopped. No cloud tells that; a Node that fell silent after it began to run tells it
    better than the first look at the cloud.
    """
    paid = claim.price_paid if instance.price_hour is None else instance.price_hour
    running, interrupted = claim.running_since, claim.interrupted_at
    if capability is not None and not capability.bills_boot:
        reported = instance.running_since
        if reported is not None and claim.adopted is not None and claim.launch_started is not None:
            reported = max(reported, claim.launch_started)  # what it cost before it was ours is not on our bill
        exact = instance.state is InstanceState.RUNNING  # else a bound, for a claim that knows nothing better
        if reported is not None and (running is None or (exact and reported < running - timedelta(seconds=INEXACT))):
            running = reported
        elif running is None and instance.state is InstanceState.RUNNING:
            running = now
        if (instance.interrupted or instance.halted) and interrupted is None:
            interrupted = _silent_since(node, running) or now
    since = _billed_since(claim, instance, capability, now)
    before = (claim.price_paid, claim.running_since, claim.interrupted_at, claim.billed_since)
    if (paid, running, interrupted, since) == before:
        return claim
    return dataclasses.replace(claim, price_paid=paid, running_since=running, interrupted_at=interrupted, billed_since=since)


def _billed_since(claim: Claim, instance: Instance, capability: Capability | None, now: datetime) -> datetime | None:
    """The whole second in which its cloud says that the bill began. A clock over there that differs from ours moves it neither before the
    create call nor behind its answer; what a machine cost before it was ours is not on our bill."""
    if claim.billed_since is not None or claim.launch_started is None or instance.created is None:
        return claim.billed_since
    if capability is None or not capability.tells_start:
        return None
    return min(max(instance.created, claim.launch_started), answered(claim) or now).replace(microsecond=0)


def _silent_since(node: Node | None, running: datetime | None) -> datetime | None:
    if node is None or node.ready or node.ready_since is None or running is None or node.ready_since <= running:
        return None
    return node.ready_since


# ---- the books (L-16): closing lines as they are stored, machines that still live, and what each cost between two moments. What a
# machine cost until a moment never falls as time goes on, and at its end it is the cost of its line. So the parts of a life, however it
# is cut, add up to that cost exactly

_EXACT = Context(prec=120)  # amounts have 28 digits; sums and differences of very many of them still lose none


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
    granularity, minimum = int(record.get("granularity") or 1), int(record.get("minimum") or 0)
    cost, price, disk = (_dollars(record.get(key) or "0") for key in ("cost", "price_hour", "storage_price_hour"))
    if "cost" not in record or granularity < 1 or minimum < 0:
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
        cost_least=_told(record.get("cost_least")),
        cost_most=_told(record.get("cost_most")),
        start_told=bool(record.get("start_told")),
        granularity=granularity,
        minimum=minimum,
        bills_boot=bool(record.get("bills_boot", True)),
        off_costs_less=bool(record.get("off_costs_less")),
        reason=str(record.get("reason") or ""),
        why=str(record.get("why") or ""),
        joined=bool(record.get("joined")),
        closed=closed,
        traffic_price_gb_down=_told(record.get("traffic_price_gb_down")),
        traffic_price_gb_up=_told(record.get("traffic_price_gb_up")),
        gpu_losses=tuple(_loss(loss) for loss in record.get("gpu_losses") or ()),
        attempts=tuple((str(cloud), str(result), str(error), int(n)) for cloud, result, error, n in record.get("attempts") or ()),
        phases=tuple((str(phase), int(seconds)) for phase, seconds in record.get("phases") or ()),
        cause=str(record.get("cause") or ""),
        draining_since=_time(record.get("draining_since")),
        slots=int(record.get("slots") or 0),
        work=decode(WorkRecord, record["work"], "work") if record.get("work") else None,
    )


def _loss(record: t.Mapping[str, t.Any]) -> GpuLoss:
    missing, of = int(record["missing"]), int(record["of"])
    if not 0 < missing <= of:
        raise ValueError(f"{missing} of {of} GPUs cannot be missing")
    return GpuLoss(parse_time(record["since"]), missing, of, _time(record.get("until")))


def live_line(claim: Claim, now: datetime, capability: Capability | None) -> LedgerLine:
    """A machine that is still recorded, as if its line were written now."""
    end = _lived_until(claim, now)
    lives = claim.gone_since is None
    line = ledger_line(claim, end=end, lives=lives, **(tariff(capability) if capability else {}))
    return read_line(line, closed=False)


def live_cost(claim: Claim, now: datetime, capability: Capability | None) -> Decimal:
    """The cost of this line, without the rest of it."""
    end = _lived_until(claim, now)
    if capability is None:
        return claim_cost(claim, end)
    unit, minimum = capability.billing_granularity, capability.billing_minimum
    return claim_cost(claim, end, unit, bills_boot=capability.bills_boot, minimum=minimum)


def _lived_until(claim: Claim, now: datetime) -> datetime:
    return now if claim.gone_since is None else min(claim.gone_since, now)


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
    bills_boot, minimum = line.bills_boot, line.minimum
    life = (line.start, moment)
    formula = billed(line.price_hour, line.disk_hour, life, running, line.granularity, bills_boot=bills_boot, minimum=minimum)
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
