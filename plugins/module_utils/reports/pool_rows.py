# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status says of classes, pools and requests: wanted and there, limits and money, and what comes next (S0-40, S0-41).

It asks nobody: it is made of the documents, the claims and what was read for the machines. Pods are not read, so ``wanted`` is what
documents ask for by themselves."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ..core.clock import to_text
from ..core.events import render
from ..model import Capability, Claim, Observation, PausedPool, Phase, Pool, Specs
from ..model.reasons import Reason
from ..planner.claims.record import BEFORE_READY, counts, may_have_instance
from ..planner.cost import paid_hours
from ..planner.cost.budgets import Purse, Purses
from ..planner.cost.cost import add_up
from ..planner.disruption.expiration import age_of
from ..planner.disruption.idleness import idle_end
from ..planner.disruption.schedule import hours
from ..units.values import print_money

Row = dict[str, t.Any]
_NEVER = "Never"  # a consolidationPolicy


@dataclasses.dataclass(frozen=True)
class Known:
    """What the rows are made of."""

    specs: Specs
    seen: Observation
    claims: tuple[Claim, ...]
    purses: Purses
    paused: t.Mapping[str, PausedPool]
    capabilities: t.Mapping[str, Capability] = dataclasses.field(default_factory=dict)

    def purse(self, scope: str, name: str) -> Purse | None:
        return next((purse for purse in self.purses.all if (purse.scope, purse.name) == (scope, name)), None)


def class_rows(known: Known) -> list[Row]:
    """One for each class that a document describes or a machine has."""
    names = {*known.specs.classes, *(claim.node_class for claim in known.claims)}
    return [_class(name, known) for name in sorted(names)]


def pool_rows(known: Known) -> list[Row]:
    """One for each pool or request that a document describes or a machine has."""
    keys = {pool.key for pool in known.specs.described} | set(known.specs.paused) | {claim.pool for claim in known.claims}
    return [_pool(key, known) for key in sorted(keys) if key]


def _class(name: str, known: Known) -> Row:
    document = known.specs.classes.get(name)
    claims = [claim for claim in known.claims if claim.node_class == name]
    return {
        "name": name,
        "pools": sum(1 for pool in known.specs.described if pool.node_class == name),
        **_counts(claims),
        "max_nodes": None if document is None else document.max_nodes,
        "max_hourly_cost": "" if document is None or document.max_hourly_cost is None else print_money(document.max_hourly_cost),
        **_money(known.purse("class", name)),
    }


def _pool(key: str, known: Known) -> Row:
    pool = known.specs.pool_of(key)
    claims = [claim for claim in known.claims if claim.pool == key]
    idle = [claim.idle_since for claim in claims if claim.idle_since is not None and claim.deletion is None]
    return {
        "name": key,
        "kind": "GPURequest" if pool is not None and pool.request else "GPUNodePool",
        "node_class": pool.node_class if pool is not None else claims[0].node_class if claims else "",
        "wanted": _wanted(pool, known),
        **_counts(claims),
        "max_nodes": None if pool is None else pool.max_nodes,
        **_money(known.purse("pool", key)),
        "idle_since": to_text(min(idle)) if idle else "",
        "next": _next(key, pool, claims, known),
    }


def _counts(claims: t.Sequence[Claim]) -> Row:
    stay = [claim for claim in claims if claim.deletion is None and claim.phase is not Phase.TERMINATING]
    billed = [claim for claim in claims if counts(claim) and may_have_instance(claim) and claim.gone_since is None]
    return {
        "ready": sum(1 for claim in stay if claim.phase is Phase.READY),
        "launching": sum(1 for claim in stay if claim.phase in BEFORE_READY),
        "terminating": len(claims) - len(stay),
        "price_hour": print_money(add_up(claim.price for claim in billed)),
    }


def _money(purse: Purse | None) -> Row:
    """``budget`` and ``spent`` of the running period; empty without one."""
    if purse is None:
        return {"budget": "", "spent": "", "period": ""}
    return {"budget": print_money(purse.budget.amount), "spent": print_money(purse.spent), "period": purse.budget.period}


def _wanted(pool: Pool | None, known: Known) -> int:
    """What the document asks for by itself, whatever pods wait."""
    if pool is None or pool.key in known.specs.deleted:
        return 0
    now = hours(pool, known.seen.now)
    return 0 if now.closed else max(now.min_nodes, int(pool.request))


# ---- what comes next


def _next(key: str, pool: Pool | None, claims: t.Sequence[Claim], known: Known) -> str:
    """The next thing that a run does in the pool, or what it waits for; empty when nothing is due."""
    going = sorted(claim.name for claim in claims if claim.deletion is not None or claim.phase is Phase.TERMINATING)
    if key in known.paused:
        return f"nothing: {known.paused[key].why}"
    if going:
        return f"terminate {_names(going)}"
    if key in known.specs.paused:
        return f"no launch: {known.specs.paused[key]}"
    if pool is None:
        return "no document: its machines go by their own limits" if claims else ""
    joining = sorted(claim.name for claim in claims if claim.phase in BEFORE_READY)
    stay = [claim for claim in claims if claim.phase is Phase.READY]
    missing = _wanted(pool, known) - len(stay) - len(joining)
    if missing > 0:
        return f"launch {missing}"
    if joining:
        return f"join {_names(joining)}"
    ends = sorted(_ends(pool, stay, known))
    return "" if not ends else f"terminate {ends[0][1]} ({ends[0][2]}) from {to_text(ends[0][0])} on"


def _ends(pool: Pool, stay: t.Sequence[Claim], known: Known) -> t.Iterator[tuple[datetime, str, str]]:
    """When each machine's time is over, by its age, or by its idleness if it is more than the pool keeps."""
    for claim in stay:
        if (due := age_of(claim, None, pool, known.seen.now).due) is not None:
            yield due, claim.name, Reason.EXPIRED
    exact = pool.replicas is not None  # then neither the policy nor any time holds
    if not exact and (pool.consolidation_policy == _NEVER or pool.consolidate_after is None):
        return
    idle = [(claim.idle_since, claim) for claim in stay if claim.idle_since is not None]
    spare = max(0, len(stay) - _wanted(pool, known))
    for since, claim in sorted(idle, key=lambda one: (-one[1].price, one[0], one[1].name))[:spare]:
        if exact:
            due = max(since, claim.initialized or since)
        else:
            due = paid_hours.goes_from_of(claim, idle_end(claim, since, pool), known.capabilities.get(claim.cloud))
        yield due, claim.name, Reason.EMPTY


def _names(names: t.Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# ---- as tables

_CLASS_COLUMNS = {
    "name": "class", "pools": "pools", "ready": "ready", "launching": "launching", "terminating": "ending", "max_nodes": "max",
    "price_hour": "$/h", "max_hourly_cost": "max $/h", "money": "budget",
}  # fmt: skip
_POOL_COLUMNS = {
    "name": "pool", "node_class": "class", "wanted": "wanted", "ready": "ready", "launching": "launching", "terminating": "ending",
    "max_nodes": "max", "price_hour": "$/h", "money": "budget", "idle_since": "idle since", "next": "next",
}  # fmt: skip
_RIGHT = ("pools", "wanted", "ready", "launching", "terminating", "max_nodes", "price_hour", "max_hourly_cost")


def tables(classes: t.Sequence[Row], pools: t.Sequence[Row]) -> list[str]:
    """Both, each followed by an empty line. A budget has no column where nobody has one."""
    lines: list[str] = []
    for rows, columns in ((classes, _CLASS_COLUMNS), (pools, _POOL_COLUMNS)):
        if rows:
            shown = [{**row, "money": _spent(row)} for row in rows]
            given = {key: text for key, text in columns.items() if key != "money" or any(row["money"] for row in shown)}
            lines += [*render(shown, given, right=_RIGHT), ""]
    return lines


def _spent(row: Row) -> str:
    return f"${row['spent']} of ${row['budget']} per {row['period']}" if row["budget"] else ""
