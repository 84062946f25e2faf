# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were made from older documents (reason Drifted): reported, or replaced one after the other where the pool says so, or where
the run migrates it to another mesh. Where it is possible, the replacement is usable before the old machine goes (B-12)."""

from __future__ import annotations

import collections
import dataclasses

from ...model import Claim, Phase, Pool
from ...model.reasons import Reason
from ..claim_sync import Settled
from ..claims.mesh import mesh_of
from ..claims.spec_hash import drifted, generation, is_known
from ..plan_builder import Draft
from ..provisioning import service
from ..provisioning.replacements import Refusal, Replacements
from . import surge, voluntary
from .drain_rules import Do

WHAT = "made from an older class or pool"
GONE_FIRST = "disruption.surge: false lets it go first; its pods wait meanwhile"


def replace_drifted(draft: Draft, replacements: Replacements) -> None:
    """Find what has drifted. Only with ``driftPolicy: Replace``, or when the run migrates it, it goes: movable work only, within budget,
    ``max_remove_per_run`` at a time (one, unless it is set), and not before its replacement is usable, if it needs one and can have one."""
    by_pool: dict[str, list[DriftedMachine]] = collections.defaultdict(list)
    for settled in list(draft.undecided()):
        claim, pool, node_class = settled.claim, draft.situation.pool(settled.claim), draft.situation.node_class(settled.claim)
        if claim.phase is not Phase.READY or pool is None or not draft.situation.rented(claim.cloud):
            continue
        if _migrates(draft, settled, pool):
            wanted = draft.situation.specs.classes[pool.node_class].mesh.backend
            by_pool[pool.key].append(DriftedMachine(settled, in_another_mesh(claim, wanted), migrates=True))
        elif node_class is None or node_class.mesh.hub_unread:
            continue
        elif claim.generation and not is_known(
            claim
        ):  # of another version's recipe: taken for today's, so that later changes are seen
            draft.change(dataclasses.replace(claim, generation=generation(node_class, pool)))
        elif drifted(claim, node_class, pool):
            by_pool[pool.key].append(DriftedMachine(settled, WHAT))
    pools = {key: draft.situation.pool_by_key[key] for key in sorted(by_pool)}
    going = [candidate for key, pool in pools.items() for candidate in by_pool[key] if _goes(candidate, pool)]
    replacements.leave({candidate.name for candidate in going})
    for key, pool in pools.items():
        _pool(draft, pool, by_pool[key], replacements)


@dataclasses.dataclass(frozen=True, slots=True)
class DriftedMachine:
    """A drifted machine. ``what`` says how; ``migrates``: it is in another mesh than its class, and the run moves it whatever the policy."""

    settled: Settled
    what: str
    migrates: bool = False

    @property
    def name(self) -> str:
        return self.settled.claim.name


def in_another_mesh(claim: Claim, wanted: str) -> str:
    """What is said of a machine that a migration replaces."""
    return f"in mesh {mesh_of(claim)}, and its class says {wanted}"


def _migrates(draft: Draft, settled: Settled, pool: Pool) -> bool:
    """Whether the machine goes for its mesh: the run migrates its pool, or an earlier one began to drain it and was killed or blocked."""
    before = settled.stored.deletion
    begun = before is not None and before.reason == Reason.DRIFTED
    return (begun or pool.key in draft.situation.settings.migrate) and surge.changes_mesh(settled.claim, draft.situation)


def _goes(candidate: DriftedMachine, pool: Pool) -> bool:
    return candidate.migrates or pool.drift_policy == "Replace"


def _pool(draft: Draft, pool: Pool, candidates: list[DriftedMachine], replacements: Replacements) -> None:
    able: list[DriftedMachine] = []
    failed = voluntary.after_failure(draft, pool)
    for candidate in candidates:
        if not _goes(candidate, pool):
            _report(draft, pool, candidate, "it stays (disruption.driftPolicy: Replace lets it go)")
            continue
        why = _against(draft, pool, candidate) or (failed if candidate.settled.claim.deletion is None else "")
        if why:
            _report(draft, pool, candidate, f"kept: {why}")
        else:
            able.append(candidate)
    able.sort(
        key=lambda candidate: (
            not candidate.migrates,
            _moves(draft, candidate.settled),
            candidate.settled.claim.launched,
            candidate.name,
        )
    )
    if replacements.applies_to(pool):
        _one_after_the_other(draft, pool, able, [one for one in candidates if _goes(one, pool)], replacements)
    elif able:
        voluntary.remove(draft, pool, Reason.DRIFTED, [(candidate.settled.claim, candidate.what) for candidate in able])


def _one_after_the_other(
    draft: Draft, pool: Pool, able: list[DriftedMachine], candidates: list[DriftedMachine], replacements: Replacements
) -> None:
    """Let go what has a usable replacement, or needs none; launch replacements for the next ones. Those on their way, too, count against
    budget and bound."""
    new = {name: draft.replacements[name] for name in (candidate.name for candidate in candidates) if name in draft.replacements}
    ready = [candidate for candidate in able if replacements.usable(new.get(candidate.name, ""))]
    rest = [candidate for candidate in able if candidate.name not in new]
    counted = {old for old in draft.standing_by.values() if old in new} - {candidate.name for candidate in ready}
    waiting = len(counted)
    for candidate in able:
        if candidate.name in new and candidate not in ready:
            _report(draft, pool, candidate, f"waits for its replacement {new[candidate.name]}", new[candidate.name])
    room = voluntary.room(draft, pool, Reason.DRIFTED) if able else voluntary.FREE
    slots = voluntary.at_most(room, voluntary.bound(draft, Reason.DRIFTED), len(able) + waiting) - waiting - len(ready)
    going = [(candidate.settled.claim, candidate.what) for candidate in ready]
    others = replacements.others(pool) - sum(replacements.loses(candidate.settled) for candidate in ready)
    while rest and slots > 0:
        candidate = rest.pop(0)
        settled, what = candidate.settled, candidate.what
        pods = replacements.needs(settled, pool, Reason.DRIFTED, others - replacements.loses(settled))
        found = None if pods is None else replacements.launch(settled, pool, pods, f"was {what}")
        if found is None:
            going.append((settled.claim, what))
        elif isinstance(found, Refusal) and found.gone_first and not candidate.migrates:
            going.append((settled.claim, f"{what}; without a replacement first: {found.why}"))
        elif isinstance(found, Refusal):
            remedy = f" ({GONE_FIRST})" if found.gone_first else ""
            _report(draft, pool, candidate, f"kept: no replacement can be launched: {found.why}{remedy}")
            continue
        else:
            _report(draft, pool, candidate, f"waits for its replacement {found.name}, which this run launches", found.name)
            waiting += 1
            slots -= 1
            continue
        others -= replacements.loses(settled)
        slots -= 1
    voluntary.remove(
        draft, pool, Reason.DRIFTED, [*going, *((candidate.settled.claim, candidate.what) for candidate in rest)], waiting
    )


def _report(draft: Draft, pool: Pool, candidate: DriftedMachine, text: str, replacement: str = "") -> None:
    draft.report(candidate.name, Reason.DRIFTED, f"{candidate.what}; {text}", pool=pool.key, target=replacement)


def _against(draft: Draft, pool: Pool, candidate: DriftedMachine) -> str:
    settled = candidate.settled
    if candidate.migrates and pool.request:
        return "the machine of a GPURequest is never replaced; it ends with its request"
    if old := draft.standing_by.get(settled.claim.name):
        return f"it comes in the place of {old}"
    if settled.claim.is_service:
        probe = service.probe_of(settled.claim, draft.situation)
        idle = probe is not None and probe.idle is True
        return "" if idle else "a service goes only while its idleProbe says that it is idle"
    return voluntary.disruption_blocked(draft, pool, settled, Reason.DRIFTED)


def _moves(draft: Draft, settled: Settled) -> int:
    """How many pods have to move for it."""
    return sum(disposition.do is not Do.SKIP for disposition in voluntary.dispositions(draft, settled, Reason.DRIFTED))
