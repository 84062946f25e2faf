# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pauses (L-31): while a pool is paused, no rule launches, drains or terminates anything of it.

A pause is an annotation of a document, or an entry of a record beside the claims, which pause.yml and resume.yml write. An order by name
(destroy.yml) is carried out all the same: whoever gives it knows of the machine."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.errors import BadShape, InvalidInput
from ..model import Claim, Pause, PausedPool, Phase, Pool, Specs
from ..model.labels import PAUSED_ANNOTATION
from ..model.names import pool_of, pool_part
from ..model.reasons import Reason
from ..units.values import parse_time, print_money, print_time
from .claims.record import may_have_instance

STATE = "pauses"
ALL, CLASS, POOL = "all", "class", "pool"
_SCOPES = (ALL, CLASS, POOL)
_PLAIN = ("", "true")
UNREAD = Pause(ALL, why=f"the record tgp-state-{STATE} cannot be read")


def annotated(scope: str, name: str, meta: t.Any) -> Pause | None:
    """The pause that the metadata of a document ask for, whatever else is wrong with it. Every value but ``false`` is one: text is a reason."""
    annotations = meta.get("annotations") if isinstance(meta, t.Mapping) else None
    value = annotations.get(PAUSED_ANNOTATION) if isinstance(annotations, t.Mapping) else None
    if value is None or str(value).strip().lower() == "false":
        return None
    text = str(value).strip()
    return Pause(scope, name, "" if text.lower() in _PLAIN else text, annotation=True)


def sentence(pause: Pause) -> str:
    """Why a pool is paused, for people: a clause about "it"."""
    what = {ALL: "all pools are paused", CLASS: f"its class {pause.name} is paused", POOL: "it is paused"}[pause.scope]
    since = f" since {print_time(pause.since)}" if pause.since is not None else ""
    by = f" by the annotation {PAUSED_ANNOTATION}" if pause.annotation else ""
    return f"{what}{since}{by}{f': {pause.why}' if pause.why else ''}"


class Pauses:
    """All pauses of one run, looked up by pool."""

    def __init__(self, pauses: t.Iterable[Pause], pools: t.Iterable[Pool] = ()) -> None:
        self._by_scope: dict[tuple[str, str], Pause] = {}
        for pause in pauses:
            self._by_scope.setdefault((pause.scope, pause.name), pause)
        self._by_part: dict[str, Pause] = {}
        described = {pool.key: pool.node_class for pool in pools}
        for key in (*described, *(name for scope, name in self._by_scope if scope == POOL)):
            if (found := self.of(key, described.get(key, ""))) is not None:
                self._by_part.setdefault(pool_part(key), found)

    def of(self, pool: str, node_class: str) -> Pause | None:
        """The widest pause that holds for a pool, by its key and the name of its class."""
        wanted = ((ALL, ""), (CLASS, node_class), (POOL, pool))
        return next((self._by_scope[key] for key in wanted if key in self._by_scope), None)

    def of_machine(self, claim: Claim, *, refilled: bool = False) -> Pause | None:
        """The pause by which a machine stays as it is. What a person ordered (destroy.yml) is carried out, and what is past its drain is
        finished, unless work came onto it (``refilled``): its pods have left, and it would be billed for nothing."""
        ordered = claim.deletion is not None and claim.deletion.reason == Reason.MANUAL
        if ordered or (claim.phase is Phase.TERMINATING and not refilled):
            return None
        return self.of(claim.pool, claim.node_class)

    def of_name(self, name: str) -> Pause | None:
        """The same for a thing of ours without a claim, by its name. Pools whose names begin alike are not distinguished: both are spared."""
        return self._by_scope.get((ALL, "")) or self._by_part.get(pool_of(name))


def paused_pools(pauses: Pauses, specs: Specs, claims: t.Iterable[Claim]) -> tuple[PausedPool, ...]:
    """Every pool with a document or a machine that is paused, with what goes on costing meanwhile."""
    classes = {pool.key: pool.node_class for pool in specs.described}
    prices: dict[str, list[Decimal]] = {}
    for claim in claims:
        classes.setdefault(claim.pool, claim.node_class)
        if may_have_instance(claim):
            prices.setdefault(claim.pool, []).append(claim.price)
    for key in specs.paused:
        classes.setdefault(key, "")
    return tuple(
        PausedPool(key, sentence(pause), len(prices.get(key, ())), sum(prices.get(key, ()), Decimal(0)))
        for key, node_class in sorted(classes.items())
        if (pause := pauses.of(key, node_class)) is not None
    )


def paused_rows(paused: t.Iterable[PausedPool]) -> list[dict[str, t.Any]]:
    """Paused pools as data."""
    return [
        {"pool": pool.pool, "why": pool.why, "machines": pool.machines, "price_hour": print_money(pool.price_hour)}
        for pool in paused
    ]


def paused_lines(paused: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """A line for each paused pool of a summary, with what the pause costs."""
    return [
        f"paused: {row['pool']}: {row['why']}. Nothing of it is launched, drained or terminated; "
        f"{row['machines']} machine{'' if row['machines'] == 1 else 's'}, ${row['price_hour']}/h"
        for row in paused
    ]


# ---- the record


def read(state: t.Mapping[str, t.Any]) -> tuple[Pause, ...]:
    """The pauses of the record. BadShape when one of them is not understood."""
    pauses = []
    for key, entry in sorted(state.items()):
        scope, _slash, name = key.partition("/")
        why, since = (entry.get("why"), entry.get("since")) if isinstance(entry, t.Mapping) else (None, None)
        moment = _moment(since)
        if scope not in _SCOPES or (scope == ALL) != (not name) or not isinstance(why, str) or moment is None:
            raise BadShape(
                f"The record tgp-state-{STATE} beside the claims is not understood at {key!r}.",
                remedy="Remove that record while no run is active, and pause anew what is to stay paused.",
                service="claims",
                record=STATE,
            )
        pauses.append(Pause(scope, name, why, moment))
    return tuple(pauses)


def _moment(text: t.Any) -> datetime | None:
    try:
        return parse_time(text)
    except InvalidInput:
        return None


def written(pauses: t.Iterable[Pause]) -> dict[str, t.Any]:
    """The record of these pauses."""
    return {
        f"{pause.scope}/{pause.name}".rstrip("/"): {"why": pause.why, "since": print_time(pause.since)}
        for pause in pauses
        if pause.since is not None
    }


def changed(
    before: t.Sequence[Pause], things: t.Iterable[tuple[str, str]], why: str | None, now: datetime, *, resume: bool
) -> tuple[Pause, ...]:
    """The pauses after ``things`` (scope and name) were paused or resumed. One that was paused already keeps its time, and its reason unless
    another one is given. To resume everything ends every pause."""
    by_thing = {(pause.scope, pause.name): pause for pause in before}
    for thing in things:
        if resume:
            by_thing = {} if thing[0] == ALL else {key: pause for key, pause in by_thing.items() if key != thing}
            continue
        there = by_thing.get(thing)
        by_thing[thing] = Pause(*thing, (there.why if there else "") if why is None else why, there.since if there else now)
    return tuple(by_thing[key] for key in sorted(by_thing))
