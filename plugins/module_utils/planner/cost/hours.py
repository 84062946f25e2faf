# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hours by use (L-44): what the paid time of a machine went to, from the times that its GPU pods themselves say.

The claim holds what was used until a moment, and which pods ran then. Both are written at once, so a run that is killed loses nothing and
counts nothing twice: the next run goes on from the same moment.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal
from fractions import Fraction

from ...model import Claim, LedgerLine, Phase, Pod, PodOwner, PodUse, WorkingPod, WorkRecord, WorkSpan
from ...model.defaults import Settings
from ...model.reasons import Finding, Reason
from ...model.resources import PARTIAL_GPU_PREFIXES
from ..disruption.emptiness import TERMINATING_GRACE, requests_gpu, would_count

#: what the paid hours of a machine go to, in the order in which people read it
HOURS = ("useful", "waiting", "booting", "joining", "draining", "failed", "unmeasured")
LOOK_AGAIN: t.Final = 900  # seconds after which a machine with running pods is recorded again although nothing has changed
LOOK_AGAIN_IDLE: t.Final = 3600  # the same for a machine without one
LONGEST_GAP: t.Final = 7200  # seconds between two records; beyond, the time that no listed pod covers is unmeasured
MOST_OWNERS: t.Final = 50  # owners of pods of one machine and day; those with the least use count together as unseen
_WHOLE_LIFE: t.Mapping[str, str] = {
    Reason.DUPLICATE: "failed",
    Finding.LAUNCH_REFUSED: "failed",
    Reason.LAUNCH_FAILED: "failed",
    Reason.ORPHAN: "unmeasured",
}


# ---- what one run sees


class PodTime(t.NamedTuple):
    """A GPU pod from its first container's start to its end; None = it still runs."""

    pod: WorkingPod
    start: datetime
    end: datetime | None


class Lifeline(t.NamedTuple):
    """A machine's life as far as its use hangs on it: when its bill began, since when it joins, is usable and is drained (None = not), and how
    many GPUs or slices its node is to show."""

    began: datetime
    joining: datetime | None
    usable: datetime | None
    draining: datetime | None
    slots: int


def life_of(claim: Claim) -> Lifeline:
    """That of a claim."""
    draining = claim.deletion.requested if claim.deletion is not None else None
    return Lifeline(
        _whole(claim.bill_start or claim.created),
        next((_whole(moment) for moment, phase, _why in claim.history if phase == Phase.JOINING.value), None),
        _whole(claim.initialized),
        _whole(draining),
        claim.expected_gpus or claim.offer.gpu_count,
    )


def pod_times(pods: t.Iterable[Pod], settings: Settings, now: datetime, owner: t.Callable[[Pod], PodOwner]) -> list[PodTime]:
    """The times of those that ran and ask for GPUs. One that has ended and does not say when is left out: what it used is unknown."""
    times = []
    for pod in pods:
        start = pod.ran_since or (pod.started if pod.phase == "Running" or pod.ended else None)
        if start is None or start > now or not requests_gpu(pod, settings):
            continue
        if not would_count(pod, "gpu", settings, min(now, pod.deletion or now)):
            continue
        end = pod.finished if pod.ended else None
        if pod.ended and end is None:
            continue
        if end is None and pod.deletion is not None:  # its kubelet does not answer any more
            last = pod.deletion + timedelta(seconds=TERMINATING_GRACE)
            end = last if last < now else None
        times.append(PodTime(WorkingPod(pod.uid, owner(pod), _gpus(pod, settings)), start, end))
    return times


def _gpus(pod: Pod, settings: Settings) -> int:
    """How many GPUs or slices it asks for; one where only a claim for devices says that it uses some."""
    named = (
        amount for name, amount in pod.requests.items() if name in settings.gpu_resources or name.startswith(PARTIAL_GPU_PREFIXES)
    )
    return max(1, sum(named))


# ---- the record of a machine


def look(
    record: WorkRecord | None, life: Lifeline, seen: t.Sequence[PodTime], now: datetime, *, closed_to_pods: bool = False
) -> tuple[WorkRecord | None, bool]:
    """The record after a look at ``now`` that saw these pods, and whether it must be written. Without ``True`` the same look may be made later:
    it gives the same. ``closed_to_pods``: the Node was found cordoned. The decision to drain alone cordons nothing: a run that is killed right
    after it leaves an open Node, and pods come that may be gone again at this look."""
    now = _whole(now)
    since = record.until if record is not None else life.began
    running = {pod.uid: pod for pod in record.running} if record is not None else {}
    if now <= since:
        return record, False
    listed = {each.pod.uid for each in seen}
    known = []
    for each in seen:
        start = since if each.pod.uid in running else max(each.start, since)
        pod = running.get(each.pod.uid, each.pod)
        if (stop := min(each.end or now, now)) > start:
            known.append((start, stop, pod))
    vanished = [pod for uid, pod in running.items() if uid not in listed]
    changed = (
        bool(vanished)
        or any(pod.uid not in running for _start, _stop, pod in known)
        or any(each.end is not None and each.pod.uid in running for each in seen)
    )
    again = LOOK_AGAIN if running else LOOK_AGAIN_IDLE
    due = changed or (bool(running or life.usable) and (now - since).total_seconds() >= again)
    if not due and not running:
        return record, False
    fresh = _spans(known, vanished, (since, now), life, _unmeasured(life, since, now, closed_to_pods=closed_to_pods))
    still = tuple(
        sorted(
            (running.get(each.pod.uid, each.pod) for each in seen if each.end is None or each.end > now), key=lambda pod: pod.uid
        )
    )
    cuts = {life.joining, life.usable, life.draining}
    return WorkRecord(now, still, _merged((*(record.spans if record else ()), *fresh), cuts)), due


def _unmeasured(life: Lifeline, since: datetime, now: datetime, *, closed_to_pods: bool) -> tuple[datetime, datetime] | None:
    """Between which moments idleness is not believed: a usable machine, for long without a record, that new pods could reach."""
    start = max(since, life.usable or now)
    if now - start <= timedelta(seconds=LONGEST_GAP):
        return None
    return start, now if life.draining is None or not closed_to_pods else min(max(life.draining, start), now)


def closed(record: WorkRecord | None, life: Lifeline, end: datetime, *, lives: bool) -> WorkRecord:
    """The record at the end of its machine: when pods that ran at the last look ended is unknown. ``lives``: it has not ended, so
    that they count as running."""
    end = _whole(end)
    record = record or WorkRecord(life.began)
    if end <= record.until:
        return _until(record, end)
    seen = [PodTime(pod, record.until, None) for pod in record.running] if lives else []
    found, _due = look(record, life, seen, end)
    if found is record or found is None:  # nothing ran
        cuts = {life.joining, life.usable, life.draining}
        return WorkRecord(end, (), _merged((*record.spans, *_spans([], [], (record.until, end), life, None)), cuts))
    return dataclasses.replace(found, running=())


def service_work(claim: Claim, end: datetime) -> WorkRecord:
    """The record of a service (lane service): it works from its first answer to its last idle time, or its end."""
    life = life_of(claim)
    end = max(_whole(end), life.began)
    pod = WorkingPod(claim.name, claim.owner or PodOwner(claim.pool.partition("/")[0]), life.slots)
    stop = min(_whole(claim.idle_since or end), end)
    known = [(max(life.usable, life.began), stop, pod)] if life.usable is not None and life.usable < stop else []
    return WorkRecord(
        end, (), _merged(_spans(known, [], (life.began, end), life, None), {life.joining, life.usable, life.draining})
    )


def _until(record: WorkRecord, end: datetime) -> WorkRecord:
    """The record without what a run saw after ``end``, which a later one found out."""
    spans = [span if span.end <= end else _part(span, end) for span in record.spans if span.start < end]
    return WorkRecord(end, (), tuple(spans))


def _part(span: WorkSpan, end: datetime) -> WorkSpan:
    share = Fraction(_seconds(span.start, end), _seconds(span.start, span.end))
    uses = tuple(dataclasses.replace(use, gpu_seconds=int(use.gpu_seconds * share)) for use in span.uses)
    return WorkSpan(span.start, end, int(span.useful * share), int(span.unmeasured * share), uses, int(span.unseen * share))


_Known = tuple[datetime, datetime, WorkingPod]


def _spans(
    known: t.Sequence[_Known],
    vanished: t.Sequence[WorkingPod],
    time: tuple[datetime, datetime],
    life: Lifeline,
    unmeasured: tuple[datetime, datetime] | None,
) -> list[WorkSpan]:
    """The time in pieces in which the same pods ran. ``vanished`` pods may have run in all of it, unknown ones between the moments of
    ``unmeasured``."""
    since, now = time
    moments = {since, now, *_midnights(since, now)}
    moments |= {moment for start, stop, _pod in known for moment in (start, stop)}
    moments |= {
        moment
        for moment in (life.joining, life.usable, life.draining, *(unmeasured or ()))
        if moment is not None and since < moment < now
    }
    order = sorted(moments)
    spans = []
    for start, stop in zip(order, order[1:], strict=False):
        seconds = _seconds(start, stop)
        here = [pod for begin, end, pod in known if begin <= start and stop <= end]
        uses = _allotted(here, seconds * life.slots, seconds)
        free = seconds * life.slots - sum(use.gpu_seconds for use in uses)
        if here:
            unseen = min(free, seconds * sum(pod.gpus for pod in vanished))
            spans.append(WorkSpan(start, stop, seconds, 0, uses, unseen))
        elif vanished or (unmeasured is not None and unmeasured[0] <= start < unmeasured[1]):
            spans.append(WorkSpan(start, stop, 0, seconds, (), free))
        else:
            spans.append(WorkSpan(start, stop))
    return spans


def _allotted(pods: t.Sequence[WorkingPod], room: int, seconds: int) -> tuple[PodUse, ...]:
    """What the owners of the pods used; where pods ask for more than there is, each its share of what there is."""
    wanted: dict[PodOwner, int] = {}
    for pod in pods:
        wanted[pod.owner] = wanted.get(pod.owner, 0) + pod.gpus * seconds
    if sum(wanted.values()) > room:
        wanted = in_proportion(wanted, room)
    return tuple(PodUse(owner, amount) for owner, amount in sorted(wanted.items()) if amount)


_Key = t.TypeVar("_Key", bound=t.Hashable)


def in_proportion(shares: t.Mapping[_Key, int | Fraction], total: int) -> dict[_Key, int]:
    """``total`` divided in whole numbers in proportion to ``shares``."""
    sum_of_all = sum(shares.values())
    if not sum_of_all:
        return dict.fromkeys(shares, 0)
    return largest_remainder({key: Fraction(share * total) / sum_of_all for key, share in shares.items()}, total)


def largest_remainder(exact: t.Mapping[_Key, Fraction], total: int) -> dict[_Key, int]:
    """Amounts as whole numbers that add up to ``total``, which is the sum of ``exact`` as a whole number: each is rounded down, and those with
    the largest remainders get one more. So none differs by one or more from what it is. Equal remainders go by the order of keys, so that the
    same amounts always give the same numbers."""
    whole = {key: math.floor(amount) for key, amount in exact.items()}
    left = total - sum(whole.values())
    for key in sorted(exact, key=lambda key: (whole[key] - exact[key], str(key)))[:left]:
        whole[key] += 1
    return whole


def in_cents(dollars: t.Mapping[_Key, Fraction], cents: int) -> dict[_Key, int]:
    """Dollars as whole cents that add up to ``cents``, which is what all of them are in cents. Each is less than a cent from its amount."""
    return largest_remainder({key: amount * 100 for key, amount in dollars.items()}, cents)


def _midnights(since: datetime, now: datetime) -> t.Iterator[datetime]:
    moment = datetime(since.year, since.month, since.day, tzinfo=timezone.utc) + timedelta(days=1)
    while moment < now:
        yield moment
        moment += timedelta(days=1)


def _merged(spans: t.Sequence[WorkSpan], cuts: t.Container[datetime | None]) -> tuple[WorkSpan, ...]:
    """Neighbours of one day, between the same ``cuts``, as one."""
    whole: list[WorkSpan] = []
    for span in spans:
        last = whole[-1] if whole else None
        if last is None or last.end != span.start or last.start.date() != span.start.date() or span.start in cuts:
            whole.append(span)
            continue
        whole[-1] = _bounded(
            WorkSpan(
                last.start,
                span.end,
                last.useful + span.useful,
                last.unmeasured + span.unmeasured,
                _added(last.uses, span.uses),
                last.unseen + span.unseen,
            )
        )
    return tuple(whole)


def _added(one: t.Iterable[PodUse], other: t.Iterable[PodUse]) -> tuple[PodUse, ...]:
    sums: dict[PodOwner, int] = {}
    for use in (*one, *other):
        sums[use.owner] = sums.get(use.owner, 0) + use.gpu_seconds
    return tuple(PodUse(owner, amount) for owner, amount in sorted(sums.items()))


def _bounded(span: WorkSpan) -> WorkSpan:
    if len(span.uses) <= MOST_OWNERS:
        return span
    most = sorted(span.uses, key=lambda use: (-use.gpu_seconds, use.owner))
    dropped = sum(use.gpu_seconds for use in most[MOST_OWNERS:])
    kept = tuple(sorted(most[:MOST_OWNERS], key=lambda use: use.owner))
    return dataclasses.replace(span, uses=kept, unseen=span.unseen + dropped)


# ---- what the whole life of a machine went to


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A time of a machine in which it was in one ``state`` of HOURS where no pod ran. ``useful`` and ``unmeasured`` are seconds, ``uses`` (by
    owner) and ``unseen`` seconds × GPUs."""

    start: datetime
    end: datetime
    state: str
    useful: Fraction = Fraction(0)
    unmeasured: Fraction = Fraction(0)
    uses: tuple[tuple[PodUse, Fraction], ...] = ()
    unseen: Fraction = Fraction(0)

    @property
    def seconds(self) -> Fraction:
        """How long it is."""
        return _span(self.start, self.end)

    @property
    def hours(self) -> dict[str, Fraction]:
        """Its seconds by HOURS."""
        found = {"useful": self.useful, "unmeasured": self.unmeasured}
        found[self.state] = found.get(self.state, Fraction(0)) + self.seconds - self.useful - self.unmeasured
        return {use: found[use] for use in HOURS if found.get(use)}


def pieces(line: LedgerLine, start: datetime, end: datetime) -> list[Piece]:
    """The paid time of a machine from ``start`` to ``end``, one piece after the other without a gap."""
    found = []
    for state, begins, stops in _states(line):
        first, last = max(start, begins), min(end, stops)
        while first < last:
            span = _span_at(line, first)
            stop = last if span is None else min(last, span.end if span.start <= first else span.start)
            inside = span if span is not None and span.start <= first else None
            found.append(_piece(state, first, stop, inside))
            first = stop
    return found


def _span_at(line: LedgerLine, moment: datetime) -> WorkSpan | None:
    """The recorded time at that moment, or the next one after it."""
    return next((span for span in (line.work.spans if line.work else ()) if span.end > moment), None)


def _piece(state: str, start: datetime, end: datetime, span: WorkSpan | None) -> Piece:
    if span is None or state in ("failed", "unmeasured"):
        return Piece(start, end, state)
    share = _span(start, end) / _span(span.start, span.end)
    uses = tuple((use, use.gpu_seconds * share) for use in span.uses)
    return Piece(start, end, state, span.useful * share, span.unmeasured * share, uses, span.unseen * share)


def _states(line: LedgerLine) -> list[tuple[str, datetime, datetime]]:
    """What a machine was, one time after the other, from its create call to its end."""
    start, end = line.start or line.end, line.end
    if line.reason in _WHOLE_LIFE:
        return [(_WHOLE_LIFE[line.reason], start, end)]
    if line.initialized is None and line.closed:
        return [("failed", start, end)]
    usable = min(max(line.initialized or end, start), end)
    joining = min(max(_joining(line) or start, start), usable)
    stops = [moment for moment in (line.draining_since, line.interrupted_at) if moment is not None]
    draining = min(max(min(stops, default=end), usable), end)
    times = [
        ("booting", start, joining),
        ("joining", joining, usable),
        ("waiting" if line.work is not None else "unmeasured", usable, draining),
        ("draining", draining, end),
    ]
    return [entry for entry in times if entry[1] < entry[2]]


def _joining(line: LedgerLine) -> datetime | None:
    """When it entered phase Joining; None = it is not known."""
    entered = line.end - timedelta(seconds=sum(seconds for _phase, seconds in line.phases))
    for phase, seconds in line.phases:
        if phase in ("Joining", "Ready"):
            return entered
        entered += timedelta(seconds=seconds)
    return None if not line.phases else line.end


def _span(start: datetime, end: datetime) -> Fraction:
    lasts = end - start
    return Fraction((lasts.days * 86400 + lasts.seconds) * 1_000_000 + lasts.microseconds, 1_000_000)


def _seconds(start: datetime, end: datetime) -> int:
    return int((end - start).total_seconds())


_Moment = t.TypeVar("_Moment", datetime, "datetime | None")


def _whole(moment: _Moment) -> _Moment:
    """By whole seconds, as records keep times."""
    return moment if moment is None else moment.replace(microsecond=0)


_EXACT = Context(prec=60)


def portion(amount: Decimal, share: Fraction) -> Decimal:
    """A share of an amount, exact to sixty digits."""
    return _EXACT.divide(_EXACT.multiply(amount, Decimal(share.numerator)), Decimal(share.denominator))


# ---- what buying would have saved: useful hours a day, once they have been recorded for long enough

RECORDED_DAYS: t.Final = 14  # of records, before they replace the assumption that a machine is used without a pause
_DAY = 86400


def useful_hours_a_day(lines: t.Iterable[LedgerLine], now: datetime) -> Decimal | None:
    """Hours a day in which machines of these lines were useful, at most 24; None = they were recorded for less than RECORDED_DAYS. What is
    unmeasured is in no hour."""
    recorded = [line for line in lines if line.work is not None and line.start is not None]
    if not recorded:
        return None
    first = min(line.start for line in recorded if line.start is not None)
    days = _span(first, now) / _DAY
    if days < RECORDED_DAYS:
        return None
    useful = sum((piece.useful for line in recorded for piece in pieces(line, first, now)), Fraction(0))
    return Decimal(24) if useful / 3600 > 24 * days else portion(Decimal(1), useful / 3600 / days)
