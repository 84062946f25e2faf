# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run knows, as samples of metrics: pure, without I/O and clock.

Counters of machines are made of the claims and the ledger each time, so they survive every kill: a machine is in exactly one of the two, or
its line stands for both (cost.books).
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..model import Capability, Claim, DamagedClaim, Ledger, LedgerLine, Observation, Phase, Plan, Specs
from ..model.defaults import Settings
from ..model.reasons import ActionKind, Reason
from ..planner.claims.record import LIVE, counts, may_have_instance
from ..planner.cost.budgets import EVERYTHING, open_purses
from ..planner.cost.cost import books, closing_keys, phase_seconds
from ..planner.cost.spend_report import USES, dollars_by_use, split_by_teams
from ..planner.cost.teams import UNASSIGNED, Share
from .families import FAMILIES, MOST_NAMES, Sample, names, together

UNKNOWN = "unknown"
_BOUNDED = frozenset({"pool", "model", "gpu_type", "region", "team"})  # labels whose names are as many as users make
_RECENT = timedelta(hours=1)
DRAINING = "Draining"  # stands for the phase of a claim in use that is to be terminated
#: how first sightings of orphans begin (planner/garbage_collection/), and of what kind they are
ORPHANS = {"O1": "instance", "O3": "instance", "O4": "instance", "O7": "node", "O9": "device", "O16": "service", "Extra": "extra"}
_UNSIGHTED = {  # what is removed at its first sight
    ActionKind.DELETE_KEY: "key",
    ActionKind.DELETE_TOKEN: "token",
    ActionKind.DELETE_POD: "pod",
    ActionKind.DELETE_INSTANCE: "duplicate",
}


@dataclasses.dataclass(frozen=True)
class Archived:
    """What the lines that ended before ``before`` add to counters and sums, so that none falls when they leave the ledger. Lines of that time
    that are still in it count no more. None = no line has left it."""

    before: datetime | None = None
    samples: tuple[Sample, ...] = ()

    def holds(self, line: LedgerLine) -> bool:
        return self.before is not None and line.closed and line.end < self.before


@dataclasses.dataclass(frozen=True)
class FleetRecords:
    """What is recorded at the end of a run. ``ledger`` None = it could not be read; then nothing that hangs on it is said."""

    claims: tuple[Claim, ...]
    damaged: tuple[DamagedClaim, ...]
    ledger: Ledger | None
    specs: Specs
    settings: Settings
    now: datetime
    capabilities: t.Mapping[str, Capability]
    per_machine: bool = False
    archived: Archived = Archived()


class _Life(t.NamedTuple):
    """A machine of the ledger or of a claim, with the names that its labels have."""

    pool: str
    cloud: str
    model: str
    region: str
    line: LedgerLine
    claim: Claim | None  # None = it is gone

    @property
    def of_pool(self) -> dict[str, str]:
        return {"pool": self.pool, "provider": self.cloud}

    @property
    def of_operator(self) -> dict[str, str]:
        """The labels of tgp-operator."""
        return {"provider": self.cloud, "gpu_type": self.model, "region": self.region}


def of_records(known: FleetRecords) -> list[Sample]:
    """Machines, money and documents."""
    lives = list(_lives(known))
    samples = [*_documents(known), *_limits(known), *_budgets(known)]
    samples += [Sample("tgp_records_damaged", {"record": "claim"}, float(len(known.damaged)))]
    for life in lives:
        samples += _of_claim(life, known) if life.claim is not None else []
        samples += _history(life)
        samples += _recent_failure(life, known.now)
    if known.ledger is not None:
        samples += [Sample("tgp_records_damaged", {"record": "ledger_line"}, float(len(known.ledger.torn)))]
        samples += _sums([life.line for life in lives], known)
        samples += known.archived.samples
    return _bounded(sample for sample in samples if known.per_machine or not FAMILIES[sample.name].per_machine)


def _bounded(samples: t.Iterable[Sample]) -> list[Sample]:
    """Equal series together. At most MOST_NAMES pools, models, regions and teams have a name of their own."""
    found: dict[str, set[str]] = {label: set() for label in _BOUNDED}
    kept = list(samples)
    for sample in kept:
        for label in _BOUNDED & sample.labels.keys():
            found[label].add(sample.labels[label])
    many = {label: names(words) for label, words in found.items() if len(words) > MOST_NAMES}
    if many:
        kept = [
            sample._replace(labels={label: many.get(label, {}).get(word, word) for label, word in sample.labels.items()})
            for sample in kept
        ]
    return together(kept)


def archive(known: FleetRecords, before: datetime) -> Archived:
    """The same with all lines of the ledger that ended before this moment, in whole seconds. ``before`` never goes back."""
    before = before.replace(microsecond=0)
    if known.ledger is None or (known.archived.before is not None and before <= known.archived.before):
        return known.archived
    later = [life for life in _lives(known) if life.claim is None and life.line.end < before]
    samples = [*known.archived.samples, *(sample for life in later for sample in _history(life))]
    return Archived(before, tuple(_bounded([*samples, *_sums([life.line for life in later], known)])))


def _sums(lines: t.Sequence[LedgerLine], known: FleetRecords) -> list[Sample]:
    """What machines cost, by use and by teams."""
    spent = dollars_by_use(lines, known.now)
    by_use = [Sample("tgp_spend_by_use_dollars", {"use": use}, float(spent.get(use, 0))) for use in USES]
    return [*by_use, *_teams(lines, known)]


def _teams(lines: t.Sequence[LedgerLine], known: FleetRecords) -> t.Iterator[Sample]:
    """Who used the GPUs, where pods or documents name teams."""
    found = split_by_teams(lines, known.now, always=any("team" in sample.labels for sample in known.archived.samples))
    if found is None:
        return
    for team, share in found.teams.items():
        yield Sample("tgp_spend_by_team_dollars", {"team": team}, float(share.cost))
        yield Sample("tgp_gpu_seconds_by_team", {"team": team}, float(share.gpu_hours * 3600))
    for word in UNASSIGNED:
        share = found.unassigned.get(word, Share())
        yield Sample("tgp_spend_unassigned_dollars", {"state": word}, float(share.cost))


def _lives(known: FleetRecords) -> t.Iterator[_Life]:
    """Every machine once. Without the ledger only those that live, since sums without it would fall."""
    ledger = known.ledger or Ledger()
    lines = [line for line in books(ledger, known.claims, known.now, known.capabilities) if not known.archived.holds(line)]
    written = {line.key for line in ledger.lines}
    claims = {claim.name: claim for claim in known.claims if not written & set(closing_keys(claim))}
    for line in lines:
        labels = line.pool or UNKNOWN, line.cloud or UNKNOWN, line.model or UNKNOWN, line.region or UNKNOWN
        if line.closed and known.ledger is not None:
            yield _Life(*labels, line, None)
        elif not line.closed:
            yield _Life(*labels, line, claims[line.name])


def is_active(claim: Claim) -> bool:
    """Whether its machine is billed, or used, now."""
    return counts(claim) and may_have_instance(claim) and claim.gone_since is None


def _of_claim(life: _Life, known: FleetRecords) -> t.Iterator[Sample]:
    """The state of a machine that has a claim."""
    claim = t.cast(Claim, life.claim)
    price = float(claim.price)
    phase = DRAINING if claim.deletion is not None and claim.phase in LIVE else claim.phase.value
    yield Sample("tgp_machines", {**life.of_pool, "phase": phase}, 1.0)
    if claim.deletion is not None and claim.deletion.started is not None and claim.gone_since is None:
        yield Sample("tgp_terminating_oldest_timestamp_seconds", {"provider": life.cloud}, claim.deletion.started.timestamp())
    info = {**life.of_pool, "model": life.model, "region": life.region, "name": claim.name, "node": claim.node_name, "phase": phase}
    yield Sample("tgp_machine_info", info, 1.0)
    yield Sample("tgp_machine_cost_dollars", {"name": claim.name}, float(life.line.cost))
    yield Sample("tgp_machine_price_dollars_per_hour", {"name": claim.name}, price)
    if claim.idle_since is not None:
        yield Sample("tgp_machine_idle_since_timestamp_seconds", {"name": claim.name}, claim.idle_since.timestamp())
    if not is_active(claim):
        return
    idle = price if claim.phase is Phase.READY and claim.idle_since is not None else 0.0
    loss = claim.gpu_losses[-1] if claim.gpu_losses and claim.gpu_losses[-1].until is None else None
    yield Sample("tgp_cost_dollars_per_hour", life.of_pool, price)
    yield Sample("tgp_idle_cost_dollars_per_hour", life.of_pool, idle)
    yield Sample("tgp_gpus", {**life.of_pool, "model": life.model}, float(claim.offer.gpu_count))
    yield Sample("tgp_gpus_missing", life.of_pool, float(loss.missing if loss is not None else 0))
    yield Sample("tgp_operator_instances_active", life.of_operator, 1.0)
    yield Sample("tgp_operator_instance_hourly_cost_usd", life.of_operator, price)


def _history(life: _Life) -> t.Iterator[Sample]:
    """What a machine has gone through so far: the counters and histograms."""
    line, claim = life.line, life.claim
    if claim is None or claim.ids_seen:  # a create call that is on its way may turn out to have made nothing
        yield Sample("tgp_spend_dollars", life.of_pool, float(line.cost))
    attempts = line.attempts
    for cloud, result, reason, number in attempts:
        labels = {"pool": life.pool, "provider": cloud or life.cloud, "result": result, "reason": reason}
        yield Sample("tgp_launches", labels, float(number))
    if line.start is not None and line.initialized is not None:
        took = max(0.0, (line.initialized - line.start).total_seconds())
        yield Sample("tgp_ready_duration_seconds", life.of_pool, [took])
        yield Sample("tgp_operator_instance_launch_duration_seconds", life.of_operator, [took])
    left = line.phases if claim is None else phase_seconds(claim, None)
    for phase, seconds in left:
        yield Sample("tgp_phase_duration_seconds", {"provider": life.cloud, "phase": phase}, [float(seconds)])
        labels = {"provider": life.cloud, "gpu_type": life.model, "phase": phase}
        yield Sample("tgp_operator_gpu_request_duration_seconds", labels, [float(seconds)])
    reached = {phase for phase, _seconds in left} | ({claim.phase.value} if claim is not None else set())
    for phase in sorted(reached or {Phase.READY.value if line.joined else Phase.FAILED.value}):
        yield Sample("tgp_operator_gpu_requests", {**life.of_operator, "phase": phase}, 1.0)
    if claim is None:
        yield from _end(life)


def _end(life: _Life) -> t.Iterator[Sample]:
    """How a machine ended that is gone."""
    line = life.line
    yield Sample("tgp_machines_ended", {**life.of_pool, "reason": line.reason or UNKNOWN}, 1.0)
    if line.reason == Reason.EMPTY:
        yield Sample("tgp_operator_idle_timeouts", {"provider": life.cloud, "gpu_type": life.model}, 1.0)
    if line.reason == Reason.FAILED_JOIN:
        labels = {**life.of_pool, "cause": line.cause or UNKNOWN}
        yield Sample("tgp_failed_joins", labels, 1.0)
        yield Sample("tgp_failed_joins_dollars", labels, float(line.cost))


def _recent_failure(life: _Life, now: datetime) -> t.Iterator[Sample]:
    """1 where the machine failed to join within the last hour, 0 for all others, so that the series goes back."""
    deletion = life.claim.deletion if life.claim is not None else None
    reason, when = (life.line.reason, life.line.end) if life.claim is None else ("", now)
    if deletion is not None:
        reason, when = deletion.reason, deletion.requested
    recent = reason == Reason.FAILED_JOIN and now - when <= _RECENT
    yield Sample("tgp_failed_joins_recent", life.of_pool, float(recent))


def _documents(known: FleetRecords) -> t.Iterator[Sample]:
    specs = known.specs
    yield Sample("tgp_documents", {"kind": "GPUNodeClass"}, float(len(specs.classes)))
    yield Sample("tgp_documents", {"kind": "GPUNodePool"}, float(sum(1 for pool in specs.described if not pool.request)))
    yield Sample("tgp_documents", {"kind": "GPURequest"}, float(sum(1 for pool in specs.described if pool.request)))
    unread = sum(1 for source in specs.sources.values() if source.problem and not source.quiet)
    yield Sample("tgp_documents_faulty", {}, float(len(specs.faults) + unread))


def _limits(known: FleetRecords) -> t.Iterator[Sample]:
    settings = known.settings
    limits: list[tuple[str, str, int | None, Decimal | None]] = [
        (EVERYTHING, EVERYTHING, settings.max_nodes_total, settings.max_hourly_total),
        *(("class", name, one.max_nodes, one.max_hourly_cost) for name, one in sorted(known.specs.classes.items())[:MOST_NAMES]),
        *(("pool", pool.key, pool.max_nodes, None) for pool in known.specs.described[:MOST_NAMES]),
    ]
    for scope, name, machines, dollars in limits:
        if machines is not None:
            yield Sample("tgp_limit_machines", {"scope": scope, "name": name}, float(machines))
        if dollars is not None:
            yield Sample("tgp_limit_dollars_per_hour", {"scope": scope, "name": name}, float(dollars))


def _budgets(known: FleetRecords) -> t.Iterator[Sample]:
    """Nothing of budgets while the books are unread: 0 spent would be a lie."""
    if known.ledger is None:
        return
    purses = open_purses(known.specs, known.settings, known.ledger, known.claims, known.now, known.capabilities)
    for purse in purses.all[:MOST_NAMES]:
        labels = {"scope": purse.scope, "name": purse.name, "period": purse.budget.period}
        yield Sample("tgp_budget_dollars", labels, float(purse.budget.amount))
        yield Sample("tgp_budget_spent_dollars", labels, float(purse.spent))
        yield Sample("tgp_budget_left_dollars", labels, float(purse.budget.amount - purse.spent))


# ---- what a plan saw


def of_plan(seen: Observation, decided: Plan, *, per_machine: bool = False) -> list[Sample]:
    """Orphans, providers, what is missing and what is held back."""
    samples = [*_orphans(seen, decided)]
    for cloud, view in seen.clouds.items():
        if view.expected:
            samples.append(Sample("tgp_provider_up", {"provider": cloud}, float(view.instances is not None)))
            samples.append(Sample("tgp_provider_key_refused", {"provider": cloud}, float(view.refused)))
    samples.append(Sample("tgp_mesh_up", {}, float(not seen.mesh_problem)))
    samples.append(Sample("tgp_offers_blocked", {}, float(len(seen.blocks))))
    samples.append(Sample("tgp_pools_paused", {}, float(len(decided.paused))))
    pools = names(shortfall.pool for shortfall in decided.shortfall)
    samples += [Sample("tgp_shortfall_machines", {"pool": pools[one.pool]}, float(one.missing)) for one in decided.shortfall]
    if per_machine:
        used = ((node, found.busiest) for node, found in seen.utilization.items())
        samples += [Sample("tgp_gpu_utilization_ratio", {"name": node}, float(share)) for node, share in used if share is not None]
        shown = ((node, gpu, str(xid)) for node, found in seen.xids.items() for gpu, last in found.last.items() for xid in last)
        samples += [Sample("tgp_gpu_xid", {"name": node, "gpu": gpu, "xid": xid}, 1.0) for node, gpu, xid in shown]
    return together(samples)


def _orphans(seen: Observation, decided: Plan) -> t.Iterator[Sample]:
    for cloud in seen.clouds:
        yield Sample("tgp_orphans", {"provider": cloud, "kind": "instance"}, 0.0)
    for key, first in decided.findings.items():
        case, cloud, *_rest = (*key.split("|"), "")
        if case in ORPHANS:
            labels = {"provider": cloud, "kind": ORPHANS[case]}
            yield Sample("tgp_orphans", labels, 1.0)
            yield Sample("tgp_orphan_oldest_timestamp_seconds", labels, first.timestamp())
    for action in decided.actions:
        if action.kind in _UNSIGHTED:
            cloud = (action.value or "") if action.kind == ActionKind.DELETE_INSTANCE else ""
            yield Sample("tgp_orphans", {"provider": cloud, "kind": _UNSIGHTED[action.kind]}, 1.0)


def of_demand(decided: Plan) -> list[Sample]:
    """What autoscale counted of pods and GPUs."""
    pools = names([*(one.pool for one in decided.tally), *(pod.pool for pod in decided.waiting)])
    states = ("wanted", "used", "free", "coming", "waiting")
    samples = [
        Sample("tgp_gpus_demand", {"pool": pools[one.pool], "state": state}, float(getattr(one, state)))
        for one in decided.tally
        for state in states
    ]
    samples += [Sample("tgp_pods_waiting", {"pool": "", "served": served}, 0.0) for served in ("true", "false")]
    for pod in decided.waiting:
        samples.append(Sample("tgp_pods_waiting", {"pool": pools[pod.pool], "served": "false" if pod.reason else "true"}, 1.0))
    return together(samples)


def health_checks(seen: Observation) -> t.Iterator[tuple[str, str]]:
    """Provider and result of the look at each node in use."""
    nodes = {node.name: node for node in seen.nodes or ()}
    for claim in seen.claims or ():
        if claim.phase is Phase.READY and claim.deletion is None and not claim.is_service:
            node = nodes.get(claim.node_name)
            ready = None if node is None else node.ready
            yield claim.cloud, UNKNOWN if ready is None else "healthy" if ready else "unhealthy"
