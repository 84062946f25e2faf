# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Costs by team, namespace and requester (L-45): each pays for the GPUs that its pods asked for while they ran, and the rest is named. And for
which teams a machine is launched, whose budgets that counts against (L-16)."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from ...model import LedgerLine, Pod, PodOwner, Pool
from ...model.defaults import Settings
from ...model.names import Labels
from .hours import Piece, in_cents, portion

#: what nobody's pods used, in the order in which people read it: GPUs that were free while a pod ran, then machines without one
UNASSIGNED = ("idle", "waiting", "booting", "joining", "draining", "failed", "unmeasured")
UNKNOWN = "unknown"  # team or requester of pods that name none


def pod_owner(pod: Pod, spaces: t.Mapping[str, Labels] | None, machine: PodOwner | None, settings: Settings) -> PodOwner:
    """For whom a pod runs: its own label counts, then that of its namespace, then that of the pool or request as it was when ``machine`` was
    launched. ``spaces`` are the labels of namespaces; where they are to count and could not be read (None), only the pod's own label does."""
    space = (spaces or {}).get(pod.namespace, {})
    blind = settings.namespace_teams and spaces is None

    def said(key: str, of_machine: str) -> str:
        return pod.labels.get(key) or space.get(key) or ("" if blind else of_machine)

    last = machine or PodOwner("")
    return PodOwner(pod.namespace, said(settings.team_label, last.team), said(settings.requester_label, last.requester))


def owner_of_pool(pool: Pool, settings: Settings) -> PodOwner:
    """For whom the machines of a pool or request are launched, by the labels of its document."""
    labels = pool.document_labels
    return PodOwner(pool.namespace, labels.get(settings.team_label, ""), labels.get(settings.requester_label, ""))


# ---- for which teams a machine is launched

Shares = t.Mapping[str, Fraction]  # team to the part of a machine that is for it


class SharedMachine(t.NamedTuple):
    """A machine that is to be rented for ``pods``, each with how many of its GPUs (or slices) it takes."""

    pool: Pool
    price: Decimal | None
    gpus: int
    pods: tuple[tuple[Pod, int], ...]


def team_of(pod: Pod, pool: Pool, spaces: t.Mapping[str, Labels] | None, settings: Settings) -> str | None:
    """For which team a machine of the pool is launched that is for this pod; None = it is unknown, because the labels of namespaces count and
    could not be read."""
    if settings.namespace_teams and spaces is None and not pod.labels.get(settings.team_label):
        return None
    return pod_owner(pod, spaces, owner_of_pool(pool, settings), settings).team or UNKNOWN


def team_of_pool(pool: Pool, settings: Settings) -> str:
    """For which team a machine of the pool is launched that is for no pod."""
    return owner_of_pool(pool, settings).team or UNKNOWN


def launched_for(machine: SharedMachine, spaces: t.Mapping[str, Labels] | None, settings: Settings) -> tuple[tuple[str, int], ...]:
    """Each team with the GPUs that its pods take of the machine."""
    taken: dict[str, int] = {}
    for pod, gpus in machine.pods:
        team = team_of(pod, machine.pool, spaces, settings) or UNKNOWN
        taken[team] = taken.get(team, 0) + gpus
    return tuple(sorted(taken.items()))


def shares(teams: t.Sequence[tuple[str, int]], gpus: int) -> dict[str, Fraction]:
    """The parts of a machine of so many GPUs; what no team takes is nobody's."""
    whole = max(gpus, sum(taken for _team, taken in teams), 1)
    return {team: Fraction(taken, whole) for team, taken in teams}


# ---- the split


@dataclasses.dataclass(slots=True)
class Share:
    """GPU hours (of slices: their share) and dollars."""

    gpu_hours: Fraction = Fraction(0)
    cost: Fraction = Fraction(0)

    def add(self, gpu_seconds: Fraction, cost: Fraction) -> None:
        """Some more of it."""
        self.gpu_hours += gpu_seconds / 3600
        self.cost += cost


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """Dollars of a time by who used them. Each of the three views adds up, with ``unassigned``, to all that was spent. An empty team or
    requester is unknown."""

    teams: dict[str, Share] = dataclasses.field(default_factory=dict)
    namespaces: dict[str, Share] = dataclasses.field(default_factory=dict)
    requesters: dict[str, Share] = dataclasses.field(default_factory=dict)
    unassigned: dict[str, Share] = dataclasses.field(default_factory=dict)


def split(priced: t.Iterable[tuple[LedgerLine, Piece, Decimal]]) -> Split:
    """The split of pieces of machines' lives, each with what it cost."""
    found = Split()
    for line, piece, cost in priced:
        for who, gpu_seconds, dollars in owned(line, piece, cost):
            if isinstance(who, str):
                _of(found.unassigned, who).add(gpu_seconds, dollars)
                continue
            for view, word in (
                (found.teams, who.team or UNKNOWN),
                (found.namespaces, who.namespace),
                (found.requesters, who.requester or UNKNOWN),
            ):
                _of(view, word).add(gpu_seconds, dollars)
    return found


def owned(line: LedgerLine, piece: Piece, cost: Decimal) -> t.Iterator[tuple[PodOwner | str, Fraction, Fraction]]:
    """Who used a piece of a machine's life that cost so much, an owner of pods or one of UNASSIGNED, with seconds × GPUs and dollars. The
    dollars add up to the cost."""
    dollars, room = Fraction(cost), line.slots * piece.seconds
    if not room:
        yield piece.state, Fraction(0), dollars
        return
    for use, amount in piece.uses:
        yield use.owner, _gpus(line, amount), dollars * amount / room
    for word, amount in _rest(piece, line.slots).items():
        if amount:
            yield word, _gpus(line, amount), dollars * amount / room


def _rest(piece: Piece, slots: int) -> dict[str, Fraction]:
    """Seconds × GPUs that nobody used, by name."""
    used = sum((amount for _use, amount in piece.uses), Fraction(0))
    without_pods = (piece.seconds - piece.useful - piece.unmeasured) * slots
    rest = {"idle": piece.seconds * slots - used - piece.unseen - without_pods, "unmeasured": piece.unseen}
    rest[piece.state] = rest.get(piece.state, Fraction(0)) + without_pods
    return rest


def _gpus(line: LedgerLine, slot_seconds: Fraction) -> Fraction:
    """Seconds × whole GPUs."""
    return slot_seconds * line.gpu_count / line.slots if line.gpu_count else slot_seconds


def _of(view: dict[str, Share], word: str) -> Share:
    return view.setdefault(word, Share())


# ---- whole cents


class CostRow(t.NamedTuple):
    """One line of a view, for people: dollars in whole cents."""

    word: str
    gpu_hours: Decimal
    cost: Decimal


def rows(found: Split, total: Decimal) -> dict[str, list[CostRow]]:
    """The views in whole cents, the dearest first. Each of teams, namespaces and requesters adds up, with unassigned, to ``total`` in cents:
    what is assigned in all is rounded first, then divided."""
    shares = {word: found.unassigned[word].cost for word in UNASSIGNED if word in found.unassigned}
    assigned = sum((share.cost for share in found.namespaces.values()), Fraction(0))
    parts = in_cents({**shares, "": assigned}, int((total * 100).to_integral_value(ROUND_HALF_UP)))
    views = {"unassigned": [_row(word, found.unassigned[word], parts[word]) for word in shares]}
    for name in ("teams", "namespaces", "requesters"):
        view: dict[str, Share] = getattr(found, name)
        whole = in_cents({word: share.cost for word, share in view.items()}, parts[""])
        order = sorted(view, key=lambda word: (-whole[word], word))
        views[name] = [_row(word, view[word], whole[word]) for word in order]
    return views


def _row(word: str, share: Share, cents: int) -> CostRow:
    return CostRow(word, portion(Decimal(1), share.gpu_hours), Decimal(cents) / 100)
