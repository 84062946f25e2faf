# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan in the making: at most one decision per claim, everything else in the order it was found."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import datetime
from decimal import Decimal

from ..model import Action, Claim, Deletion, Notice, PausedPool, Phase, Plan, Pod, Shortfall, Tally, WaitingPod
from ..model.queues import BufferStatus, RequestStatus
from ..model.reasons import ActionKind, Finding, Reason
from .claim_sync import Settled
from .claims.record import LIVE
from .cluster_state import Situation
from .disruption import surge
from .garbage_collection.termination_steps import refilled
from .pauses import sentence
from .scheduling.topology import Topology

SECOND_RUN_AFTER: t.Final = 60  # seconds between two runs that count as two: what must be seen twice is seen so far apart
# reasons of reports that a machine stays, although
_STAYS = frozenset(
    {
        Finding.KEPT,
        Finding.UNHEALTHY_SIGN,
        Reason.EXPIRED,
        Reason.EMPTY,
        Reason.DRIFTED,
        Reason.UNDERUTILIZED,
        Reason.REPLACED,
        Reason.DOCUMENT_GONE,
    }
)


@dataclasses.dataclass
class Draft:
    """What has been decided so far.

    By name of a machine: ``settled`` its claim with what was found of it, in the order of names; ``decisions`` the one action about it;
    ``counted_on`` the pod ("namespace/name") that waits and will run there; ``meant_for`` the pods that its launch is for;
    ``unused`` since when its pods leave its GPUs unused; ``spared`` why a machine of a paused pool stays that would go.

    By key of a pool ("namespace/name"): ``hurried`` why its idle machines go at once; ``withheld`` how many machines a paused one lacks.

    ``findings``: by key, when a finding was first seen. ``around``: which pods are where, None where that matters to no pod that waits (L-40).
    The other fields are those of Plan.
    """

    situation: Situation
    settled: dict[str, Settled]
    decisions: dict[str, Action] = dataclasses.field(default_factory=dict)
    others: list[Action] = dataclasses.field(default_factory=list)
    launches: list[Action] = dataclasses.field(default_factory=list)
    reports: list[Action] = dataclasses.field(default_factory=list)
    shortfall: list[Shortfall] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    findings: dict[str, datetime] = dataclasses.field(default_factory=dict)
    notices: dict[str, Notice] = dataclasses.field(default_factory=dict)
    judged: set[str] = dataclasses.field(default_factory=set)
    waiting: list[WaitingPod] = dataclasses.field(default_factory=list)
    tally: tuple[Tally, ...] = ()
    requests: tuple[RequestStatus, ...] = ()
    buffers: tuple[BufferStatus, ...] = ()
    counted_on: dict[str, str] = dataclasses.field(default_factory=dict)
    around: Topology | None = None
    meant_for: dict[str, tuple[Pod, ...]] = dataclasses.field(default_factory=dict)
    join: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    unused: dict[str, datetime] = dataclasses.field(default_factory=dict)
    hurried: dict[str, str] = dataclasses.field(default_factory=dict)
    spared: dict[str, str] = dataclasses.field(default_factory=dict)
    paused: tuple[PausedPool, ...] = ()
    withheld: dict[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def refilled(self) -> dict[str, str]:
        """Drained machines onto which work came before they were deleted, and which (planner/garbage_collection/termination_steps.py)."""
        reasons = {name: refilled(settled, self.situation) for name, settled in self.settled.items()}
        return {name: why for name, why in reasons.items() if why}

    @functools.cached_property
    def replacements(self) -> dict[str, str]:
        """Machines that another one was launched for, and its name (planner/disruption/surge.py)."""
        named = any(settled.claim.replaces for settled in self.settled.values())
        return surge.replacements(self.settled) if named else {}

    @functools.cached_property
    def standing_by(self) -> dict[str, str]:
        """Replacements that wait for the machine in whose place they come, and its name. No rule that can wait ends them meanwhile."""
        return surge.standing_by(self.settled, self.situation) if self.replacements else {}

    def is_extra(self, name: str) -> bool:
        """Whether a machine does not count for its pool: it stands by, and the one in whose place it comes still counts."""
        old = self.settled.get(self.standing_by.get(name, ""))
        return old is not None and self.counts(old)

    def counts(self, settled: Settled) -> bool:
        """Whether a machine lives and nothing has been decided that ends it."""
        decided = self.decisions.get(settled.claim.name)
        going = decided is not None and decided.kind == ActionKind.DESTROY
        return settled.claim.phase in LIVE and settled.claim.deletion is None and not going

    @property
    def now(self) -> datetime:
        return self.situation.now

    def undecided(self) -> t.Iterator[Settled]:
        """Claims nothing has been decided about yet."""
        return (settled for name, settled in self.settled.items() if name not in self.decisions)

    def change(self, claim: Claim) -> None:
        """The claim's facts shall be written so."""
        self.settled[claim.name] = dataclasses.replace(self.settled[claim.name], claim=claim)

    def destroy(self, claim: Claim, reason: str, detail: str = "", *, force: bool = False) -> None:
        """The claim shall go for ``reason``, or goes on for the stronger one that was decided earlier (L-26). Whatever the reason, a machine
        that is not ours is never terminated."""
        if problem := self.situation.foreign(claim):
            self.problems.append(problem)
            return
        if pause := self.pause_of(claim):
            if claim.name not in self.spared:
                would = f"{reason}: {detail}".rstrip(": ")
                self.report(claim.name, Finding.PAUSED, f"{pause}; it would go as {would}", pool=claim.pool)
            self.spared.setdefault(claim.name, pause)
            return
        new = Deletion(reason=reason, requested=self.now, force=force)
        deletion = decided(claim, new, refilled=claim.name in self.refilled)
        if deletion.reason != reason:
            detail = f"goes on; also {reason}: {detail}".rstrip(": ")
        if deletion != claim.deletion:
            claim = dataclasses.replace(claim, deletion=deletion)
        if claim.name in self.settled:
            self.change(claim)
        self._decide(
            Action(ActionKind.DESTROY, claim.name, deletion.reason, detail, pool=claim.pool, claim=claim, price_hour=-claim.price)
        )

    def pause_of(self, claim: Claim) -> str:
        """Why no rule ends the machine (L-31)."""
        if self.situation.settings.mode == ActionKind.DESTROY:
            return ""
        pause = self.situation.pauses.of_machine(claim, refilled=claim.name in self.refilled)
        return "" if pause is None else sentence(pause)

    def resume(self, claim: Claim, reason: str, detail: str = "", price_hour: Decimal = Decimal(0)) -> None:
        """The claim of an earlier run goes on."""
        self.change(claim)
        self._decide(Action(ActionKind.RESUME, claim.name, reason, detail, pool=claim.pool, claim=claim, price_hour=price_hour))

    def _decide(self, action: Action) -> None:
        self.decisions[action.name] = action

    def explain(self, name: str, more: str) -> None:
        """Add to what the decision about a claim says."""
        action = self.decisions[name]
        self.decisions[name] = dataclasses.replace(action, detail=f"{action.detail}; {more}")

    def report(self, name: str, reason: str, detail: str, *, pool: str = "", target: str = "") -> None:
        """Something a person should read; nothing is done about it."""
        self.reports.append(Action(ActionKind.REPORT, name, reason, detail, pool=pool, target=target))

    def notice(self, kind: str, subject: str, text: str, **data: str) -> None:
        """A notice: sent once per kind and subject."""
        key = f"{kind}|{subject}"
        self.notices.setdefault(key, Notice(kind, key, subject, text, data))

    def sighted(self, key: str) -> datetime:
        """Note a finding and return when it was first seen (now, if it is new)."""
        first = min(self.situation.seen.findings.get(key, self.now), self.now)
        self.findings[key] = first
        return first

    def keep_sightings(self, prefix: str) -> None:
        """Findings whose key begins so stay as they were: the list that could refute them is not usable (O15)."""
        for key, first in self.situation.seen.findings.items():
            if key.startswith(prefix):
                self.findings.setdefault(key, first)

    def twice(self, key: str) -> bool:
        """Note a finding; True when an earlier run, at least a minute ago, saw it too."""
        return (self.now - self.sighted(key)).total_seconds() >= SECOND_RUN_AFTER

    def _is_over(self, report: Action) -> bool:
        """Why a machine stays is not reported for one that is terminated after all, for another reason."""
        decided = self.decisions.get(report.name)
        return report.reason in _STAYS and decided is not None and decided.kind == ActionKind.DESTROY

    def _unpaused(self, actions: t.Iterable[Action]) -> t.Iterator[Action]:
        """The actions but those that remove things of paused pools, or open a node that is still to be emptied; each of them is reported."""
        for action in actions:
            ends = action.kind.startswith("delete_") or action.kind == ActionKind.RESTORE
            why = self.situation.paused_name(action.name) if ends else ""
            if ends and not why and (settled := self.settled.get(action.name)) is not None:
                why = self.situation.paused(settled.claim.pool, settled.claim.node_class)
            if not why or self.situation.settings.mode == ActionKind.DESTROY:
                yield action
                continue
            text = f"{why}; it would be {'opened' if action.kind == ActionKind.RESTORE else 'removed'} ({action.reason}: {action.detail})"
            self.report(action.name, Finding.PAUSED, text, pool=action.pool, target=action.target)

    def plan(self, *, writes: bool = True) -> Plan:
        """The finished plan; without ``writes`` only what is to be read."""
        actions: list[Action] = []
        if writes:
            updates = [
                Action(
                    ActionKind.UPDATE, name, Finding.OBSERVED, _difference(settled), pool=settled.claim.pool, claim=settled.claim
                )
                for name, settled in self.settled.items()
                if settled.changed and name not in self.decisions
            ]
            decided = [self.decisions[name] for name in sorted(self.decisions)]
            actions = [*updates, *decided, *self._unpaused(self.others), *self.launches]
        return Plan(
            actions=(*actions, *(report for report in self.reports if not self._is_over(report))),
            shortfall=tuple(self.shortfall),
            warnings=tuple(dict.fromkeys(self.warnings)),
            problems=tuple(dict.fromkeys(self.problems)),
            failures=tuple(dict.fromkeys(self.failures)),
            findings={key: self.findings[key] for key in sorted(self.findings)},
            notices=tuple(self.notices[key] for key in sorted(self.notices)),
            judged=frozenset(self.judged),
            waiting=tuple(self.waiting),
            tally=self.tally,
            join=self.join,
            admit=self.admit,
            requests=self.requests,
            buffers=self.buffers,
            paused=tuple(dataclasses.replace(pool, missing=self.withheld.get(pool.pool, 0)) for pool in self.paused),
        )


def _difference(settled: Settled) -> str:
    if settled.stored.phase is not settled.claim.phase:
        return f"{settled.stored.phase.value} → {settled.claim.phase.value}"
    names = [
        field.name
        for field in dataclasses.fields(Claim)
        if getattr(settled.claim, field.name) != getattr(settled.stored, field.name)
    ]
    return "new facts: " + ", ".join(names)


# ---- the order of reasons to end a machine (L-26): a stronger one replaces a weaker one that is under way, never the other way round.
# The passes of a run (planner/plan.py) stand in this order, too, but where one says why not: the first reason that holds is the strongest

ORDER = tuple(Reason)


def rank(reason: str) -> int:
    """0 is the strongest. A reason that is not listed is the weakest: it gives way to every one that is known."""
    return ORDER.index(reason) if reason in ORDER else len(ORDER)


def stronger(reason: str, than: str) -> bool:
    """Whether ``reason`` replaces ``than``."""
    return rank(reason) < rank(than)


def decided(claim: Claim, new: Deletion, *, refilled: bool = False) -> Deletion:
    """The deletion of ``claim`` after ``new`` was decided. What is under way for the same reason, or a stronger one, keeps its times; and
    once the pods have left (phase Terminating) there is nothing more that a reason governs, unless others came (``refilled``). Force that
    a person asked for is never lost."""
    pending = claim.deletion
    if pending is None:
        return new
    force = pending.force or new.force
    if (claim.phase is Phase.TERMINATING and not refilled) or not stronger(new.reason, pending.reason):
        return pending if pending.force == force else dataclasses.replace(pending, force=force)
    return dataclasses.replace(new, force=force)
