# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets (L-16): what was spent in the running period, whether one machine more may be launched, and what is used up.

The first hour of every machine is reserved when its launch is decided, so that several launches, in one run or in several soon after
each other, do not all count on the same money.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from ...model import Capability, Claim, Ledger, LedgerLine, Pod, Pool, Specs, SpendingBudget
from ...model.defaults import Settings
from ...model.reasons import Finding, Reason, TeamLimit
from ...units.calendar import Period, period_of
from ...units.values import print_money, print_time
from .. import notices
from ..claim_sync import Settled
from ..claims.adoption import adopt
from ..claims.record import counts, may_have_instance
from ..cluster_state import RETRY, Situation
from ..disruption.do_not_disrupt import node_hold
from ..garbage_collection.orphans import Orphan, is_used
from ..plan_builder import Draft
from ..provisioning import service
from .bill import NOTHING
from .cost import add_up, between, books
from .hours import portion
from .spend_report import priced
from .teams import SharedMachine, Shares, Split, shares, split, team_of

ACTIONS = ("stop_launch", "drain_idle", "drain_all")
EVERYTHING = "all"
TEAM = "team"
_NOBODY: Shares = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Purse:
    """One budget in its running period. ``scope`` is pool, class, team or all, ``name`` which one. ``spent`` is at least what was spent;
    ``whole`` False: some of the books could not be read, so it may be more. ``reserved``: first hours that are promised but not over.
    ``unseen``: the part of ``spent`` for create calls with an unknown outcome."""

    scope: str
    name: str
    budget: SpendingBudget
    period: Period
    spent: Decimal
    reserved: Decimal
    whole: bool
    unseen: Decimal = NOTHING

    @property
    def soft(self) -> bool:
        """From here on a notice is sent."""
        return self.spent * 100 >= self.budget.amount * self.budget.soft_percent

    @property
    def used_up(self) -> bool:
        return self.spent >= self.budget.amount

    @property
    def ends_machines(self) -> bool:
        """Whether what is surely spent uses it up: what is unknown ends nothing."""
        return self.whole and self.spent - self.unseen >= self.budget.amount

    @property
    def title(self) -> str:
        whose = "the cluster" if self.scope == EVERYTHING else f"{self.scope} {self.name}"
        return f"{self.budget.period} budget of {whose}"

    @property
    def says(self) -> str:
        """For people: how much of it is spent."""
        least = "" if self.whole else "at least "
        return f"{self.title}: {least}${print_money(self.spent)} of ${print_money(self.budget.amount)} spent in {self.period.key}"

    def covers(self, pool: str, node_class: str) -> bool:
        """Whether what a machine of that pool and class costs comes out of this purse."""
        if self.scope == TEAM:
            return False
        return self.scope == EVERYTHING or (self.name == pool if self.scope == "pool" else self.name == node_class)

    def part(self, pool: str, node_class: str, teams: Shares) -> Fraction:
        """Which part of what a machine of that pool and class costs comes out of this purse."""
        return teams.get(self.name, Fraction(0)) if self.scope == TEAM else Fraction(self.covers(pool, node_class))

    @property
    def shut(self) -> str:
        """Of a team's: why nothing at all is launched on it; empty = something may be."""
        if not self.whole:
            return f"{TeamLimit.UNKNOWN}: {self.title}"
        return f"{TeamLimit.USED_UP}: {self.title}" if self.spent + self.reserved >= self.budget.amount else ""

    def against(self, price: Decimal) -> str:
        """Why no machine at ``price`` may be launched; empty = it may: an hour of it is still affordable."""
        if self.scope == TEAM:
            over = self.spent + self.reserved + price > self.budget.amount
            return (self.shut or f"{TeamLimit.TOO_LITTLE}: {self.title}") if over or not self.whole else ""
        if not self.whole:
            return f"limit:budget.{self.scope} unknown"
        return f"limit:budget.{self.scope}" if self.spent + self.reserved + price > self.budget.amount else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Purses:
    """All budgets of a run. Immutable: each reservation makes a new one."""

    all: tuple[Purse, ...] = ()

    @property
    def of_teams(self) -> Purses:
        """Those of teams."""
        return Purses(tuple(purse for purse in self.all if purse.scope == TEAM))

    def room(self, pool: str, node_class: str, price: Decimal | None, teams: Shares = _NOBODY) -> str:
        """Why one more machine at ``price`` per hour does not fit; empty when it fits. ``teams``: for whom it is."""
        concerned = [(purse, part) for purse in self.all if (part := purse.part(pool, node_class, teams)) or purse.scope != TEAM]
        if not concerned:
            return ""
        if price is None:
            return "price unknown"
        return next((why for purse, part in concerned if part and (why := purse.against(portion(price, part)))), "")

    def plus(self, pool: str, node_class: str, price: Decimal, teams: Shares = _NOBODY) -> Purses:
        """With the first hour of one more machine reserved."""
        return Purses(
            tuple(
                dataclasses.replace(purse, reserved=purse.reserved + portion(price, part))
                if (part := purse.part(pool, node_class, teams))
                else purse
                for purse in self.all
            )
        )


def budgets(specs: Specs, settings: Settings) -> list[tuple[str, str, SpendingBudget]]:
    """Every budget of the documents and the run, as scope, name and budget."""
    documented = [("pool", pool.key, pool.budget) for pool in specs.described if pool.budget is not None]
    documented += [
        ("class", name, node_class.budget) for name, node_class in sorted(specs.classes.items()) if node_class.budget is not None
    ]
    teams = [(TEAM, name, budget) for name, budget in settings.team_budgets]
    overall = [(EVERYTHING, EVERYTHING, settings.budget)] if settings.budget is not None else []
    return [*sorted(documented, key=lambda entry: entry[:2]), *teams, *overall]


def open_purses(
    specs: Specs,
    settings: Settings,
    ledger: Ledger | None,
    claims: t.Iterable[Claim],
    now: datetime,
    capabilities: t.Mapping[str, Capability],
    unseen: t.Container[str] = (),
) -> Purses:
    """The budgets with what was spent of them. ``claims``: everything that is billed to us now; those named in ``unseen`` may have no
    machine; ``ledger`` None = could not be read."""
    wanted = budgets(specs, settings)
    if not wanted:
        return Purses()
    held = [claim for claim in claims if counts(claim)]
    lines = books(ledger or Ledger(), held, now, capabilities)
    whole = ledger is not None and not ledger.torn
    ahead = _first_hours(held, lines)
    purses = []
    by_team: dict[datetime, Split] = {}
    for scope, name, budget in wanted:
        purse = Purse(scope, name, budget, period_of(budget.period, now, budget.time_zone), NOTHING, NOTHING, whole)
        if scope == TEAM:
            start = purse.period.start
            if start not in by_team:
                by_team[start] = split((line, piece, cost) for line in lines for piece, cost in priced(line, start, now))
            purses.append(_of_team(purse, by_team[start], ahead))
            continue
        mine = [(line, between(line, purse.period.start, now)) for line in lines if purse.covers(line.pool, line.node_class)]
        spent = add_up(amount for _line, amount in mine)
        unsure = add_up(amount for line, amount in mine if not line.closed and line.name in unseen)
        reserved = add_up(amount for claim, amount in ahead if purse.covers(claim.pool, claim.node_class))
        purses.append(dataclasses.replace(purse, spent=spent, reserved=reserved, unseen=unsure))
    return Purses(tuple(purses))


def _of_team(purse: Purse, spent: Split, ahead: t.Iterable[tuple[Claim, Decimal]]) -> Purse:
    """With what pods of the team used (L-45), and of the first hours of machines that were launched for it its part."""
    used = spent.teams.get(purse.name)
    mine = [
        (amount, shares(claim.launched_for, claim.expected_gpus).get(purse.name)) for claim, amount in ahead if claim.launched_for
    ]
    return dataclasses.replace(
        purse,
        spent=portion(Decimal(1), used.cost) if used is not None else NOTHING,
        reserved=add_up(portion(amount, part) for amount, part in mine if part),
    )


def _first_hours(claims: t.Iterable[Claim], lines: t.Iterable[LedgerLine]) -> list[tuple[Claim, Decimal]]:
    """What is left of the first hour of each machine that stays."""
    so_far = {line.name: line.cost for line in lines if not line.closed}
    left = [(claim, claim.price - so_far.get(claim.name, NOTHING)) for claim in claims if claim.deletion is None]
    return [(claim, amount) for claim, amount in left if amount > 0]


# ---- whose launches the budgets of teams stop (L-16). Nothing is rented for a team that cannot pay, and others
# do not notice it

Stopped = dict[str, dict[str, str]]  # uid of a pod to pools that rent nothing for it, and why


def without_money(situation: Situation, pods: t.Iterable[Pod], purses: Purses) -> Stopped:
    """Pods whose team has nothing left, in the pools where it would be its team that pays."""
    mine = purses.of_teams
    if not mine.all:
        return {}
    shut = {purse.name: purse.shut for purse in reversed(mine.all) if purse.shut}
    blind = f"{TeamLimit.UNKNOWN}: its team, because the namespaces could not be read"
    found: Stopped = {}
    for pod in pods:
        for pool in situation.pools:
            team = team_of(pod, pool, situation.seen.namespaces, situation.settings)
            if why := blind if team is None else shut.get(team, ""):
                found.setdefault(pod.uid, {})[pool.key] = why
    return found


def unaffordable(situation: Situation, pods: t.Sequence[Pod], machines: t.Iterable[SharedMachine], purses: Purses) -> Stopped:
    """Which of ``pods`` are for teams that cannot pay their part of the ``machines`` for an hour. The first of a machine's pods pay first; once
    a team cannot pay for one, it pays in that pool for no other that asks for the same."""
    left = purses.of_teams
    paid: set[str] = set()
    refused: list[tuple[Pool, str, Pod, str]] = []

    def refuses(pool: Pool, team: str | None, pod: Pod) -> bool:
        return any(pool.key == place.key and team == whose and _alike(pod, example) for place, whose, example, _why in refused)

    def team(pod: Pod, pool: Pool) -> str | None:
        return team_of(pod, pool, situation.seen.namespaces, situation.settings)

    for machine in machines:
        for pod, gpus in machine.pods:
            whose = team(pod, machine.pool)
            if whose is None or refuses(machine.pool, whose, pod):
                continue
            part = shares(((whose, gpus),), machine.gpus)
            if why := left.room("", "", machine.price, part):
                refused.append((machine.pool, whose, pod, why))
            else:
                left = left.plus("", "", machine.price or NOTHING, part)
                paid.add(pod.uid)
    found: Stopped = {}
    for pool, whose, example, why in refused:
        for pod in pods:
            if pod.uid not in paid and _alike(pod, example) and team(pod, pool) == whose:
                found.setdefault(pod.uid, {})[pool.key] = why
    return found


def _alike(pod: Pod, other: Pod) -> bool:
    return pod.requests == other.requests and pod.placement == other.placement


# ---- what is spent per hour now, what today and this month have cost so far, and what they will cost if nothing changes (L-16)

_SECONDS = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """Dollars. ``hour`` is what is billed per hour now; a period's forecast is what it cost so far + ``hour`` × the hours left of it."""

    hour: Decimal
    day_key: str
    day: Decimal
    day_forecast: Decimal
    month_key: str
    month: Decimal
    month_forecast: Decimal


def outlook(lines: t.Sequence[LedgerLine], claims: t.Iterable[Claim], now: datetime, time_zone: str = "UTC") -> Outlook:
    """``lines``: every machine, closed or not (ledger.books)."""
    hour = add_up(claim.price for claim in claims if counts(claim) and may_have_instance(claim) and claim.gone_since is None)
    day, month = (period_of(kind, now, time_zone) for kind in ("day", "month"))
    spent = [add_up(between(line, period.start, now) for line in lines) for period in (day, month)]
    left = [hour * Decimal((period.end - now).total_seconds()) / _SECONDS for period in (day, month)]
    return Outlook(hour, day.key, spent[0], spent[0] + left[0], month.key, spent[1], spent[1] + left[1])


# ---- what is done when a budget runs low or is used up (L-16): a notice is sent, idle machines are terminated at once, or all
# are. Books that cannot be read whole delete nothing


def purses_of(draft: Draft, orphans: t.Sequence[Orphan], without: t.Container[str] = ()) -> Purses:
    """The budgets of this run, with everything that is billed to us: claims (but those named in ``without``), second machines, machines
    without a claim."""
    situation = draft.situation
    claims = [_billed(settled, situation) for settled in draft.settled.values() if settled.claim.name not in without]
    return open_purses(
        situation.specs,
        situation.settings,
        situation.seen.ledger,
        (*claims, *_unclaimed(draft, orphans)),
        draft.now,
        situation.capabilities,
        {name for name, settled in draft.settled.items() if _is_unseen(settled)},
    )


def _is_unseen(settled: Settled) -> bool:
    """Whether is unknown if the claim ever had a machine."""
    return (
        not settled.claim.ids_seen
        and settled.claim.initialized is None
        and settled.recovery.instance is None
        and settled.node is None
    )


def _billed(settled: Settled, situation: Situation) -> Claim:
    """The claim as it is billed. One that lives although its cloud does not list it (O5) costs on; one whose create call certainly made
    nothing costs nothing."""
    if settled.recovery.what in RETRY:
        return dataclasses.replace(settled.claim, launch_started=None)
    lives = (settled.node is not None and bool(settled.node.ready)) or service.lives(settled.claim, situation)
    return dataclasses.replace(settled.claim, gone_since=None) if lives and settled.claim.gone_since is not None else settled.claim


def _unclaimed(draft: Draft, orphans: t.Sequence[Orphan]) -> t.Iterator[Claim]:
    """Stand-ins for machines without a claim that can be read."""
    situation = draft.situation
    yield from notices.stand_ins(situation)
    for orphan in orphans:
        if is_used(orphan, situation):
            for number, instance in enumerate((orphan.instance, *orphan.others)):
                claim = adopt(instance, orphan.node, situation)
                if number or claim.name not in draft.settled:
                    yield dataclasses.replace(claim, name=f"{claim.name}#{instance.id}")
    for settled in draft.settled.values():
        for extra in (*settled.recovery.duplicates, *situation.elsewhere(settled.claim)):
            price = extra.price_hour if extra.price_hour is not None else settled.claim.price
            started = extra.created or settled.claim.launch_started
            name = f"{settled.claim.name}#{extra.id}"
            yield dataclasses.replace(settled.claim, name=name, cloud=extra.cloud, price_paid=price, launch_started=started)


def tell(draft: Draft, purses: Purses) -> None:
    """Warn about budgets that run low or are used up, and tell people, once in each period."""
    for purse in purses.all:
        if not purse.whole:
            draft.warnings.append(
                f"The {purse.title} cannot be watched: {_unread(draft)} Nothing is launched on it, and nothing is terminated for it."
            )
        if not (purse.soft or purse.used_up):
            continue
        kind = "budget_hard" if purse.used_up else "budget_soft"
        text = f"{purse.says}; {_what(purse)}" if purse.used_up else purse.says
        draft.warnings.append(text)
        subject = f"{purse.scope} {purse.name} {purse.period.key}"
        data = {"scope": purse.scope, "name": purse.name, "period": purse.period.key, "action": purse.budget.action}
        draft.notice(kind, subject, text, spent=str(purse.spent), amount=str(purse.budget.amount), **data)


def _what(purse: Purse) -> str:
    word = {"stop_launch": "nothing more is launched", "drain_idle": "idle machines go at once", "drain_all": "all its machines go"}
    if purse.whole and not purse.ends_machines and purse.budget.action != "stop_launch":
        return f"${print_money(purse.unseen)} of it may be spent for machines that were never observed, so nothing is terminated for it yet"
    return word[purse.budget.action] if purse.whole else "nothing is terminated for it, because the books are not whole"


def _unread(draft: Draft) -> str:
    ledger = draft.situation.seen.ledger
    if ledger is None:
        return "the ledger could not be read."
    return f"{len(ledger.torn)} lines of the ledger cannot be understood ({'; '.join(ledger.torn[:3])}); repair or remove them."


def act(draft: Draft, purses: Purses) -> None:
    """The actions of budgets that are used up. Machines that cost nothing stay."""
    for purse in purses.all:
        if not purse.whole:
            draft.keep_sightings(f"{Reason.BUDGET}|{purse.scope}|{purse.name}|{purse.period.key}")
        if not purse.ends_machines:
            continue
        if purse.budget.action == "drain_idle":
            for pool in draft.situation.described:
                if purse.covers(pool.key, pool.node_class):
                    draft.hurried.setdefault(pool.key, f"the {purse.title} is used up")
        elif purse.budget.action == "drain_all":
            _drain_all(draft, purse)


def _drain_all(draft: Draft, purse: Purse) -> None:
    since = draft.sighted(f"{Reason.BUDGET}|{purse.scope}|{purse.name}|{purse.period.key}")
    for settled in list(draft.undecided()):
        claim = settled.claim
        if claim.price == 0 or not purse.covers(claim.pool, claim.node_class):
            continue
        pool = draft.situation.in_force(claim)
        last = since + timedelta(seconds=pool.termination_grace if pool is not None else 0)
        held = _held(draft, settled)
        if held and draft.now < last:
            draft.report(
                claim.name, Finding.HELD, f"{purse.title} used up, held by {held} until {print_time(last)}", pool=claim.pool
            )
        else:
            draft.destroy(claim, Reason.BUDGET, purse.says)


def _held(draft: Draft, settled: Settled) -> str:
    return node_hold(settled.node, draft.now).why if settled.node is not None else ""


def hurried(draft: Draft, pool: Pool) -> Pool:
    """The pool as idleness shall judge it: with its budget used up, what is idle goes at once, down to no machine at all."""
    if pool.key not in draft.hurried:
        return pool
    return dataclasses.replace(pool, consolidate_after=0, min_age=0, min_nodes=0, replicas=None, consolidation_policy="WhenIdle")
