# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings together by name what claims, clouds, mesh and cluster say of our machines, for status and inventory."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.clock import to_text
from ..core.events import render
from ..core.task import Task
from ..model import Claim, Device, Instance, Ledger, MeshKey, Node, Observation, Offer, Pool, Probe
from ..model.names import pool_of, pool_part
from ..observe.context import Context, open_context
from ..observe.gather import gather
from ..observe.gpu_metrics import asks_for_gpu_metrics, gpu_facts
from ..planner.cluster_state import Situation
from ..planner.cost.budgets import Purse, Purses, open_purses, outlook
from ..planner.cost.cost import add_up, books, closing_keys, live_cost, read_ledger
from ..planner.cost.price_history import break_even_rows
from ..planner.garbage_collection.ownership import Ownership, ownership_of
from ..planner.garbage_collection.stopped_machines import stopped_rows
from ..planner.offers import launch_backoff
from ..planner.pauses import Pauses, paused_lines, paused_pools, paused_rows
from ..planner.provisioning.service import health_of
from ..planner.provisioning.service_endpoints import address_of
from ..planner.xids import xid_line
from ..providers.registry import CAPABILITIES
from ..units import calendar
from ..units.values import parse_money, print_money
from .machine_state import LIMITS_COMMAND, health_facts, power_is_limited, service_state, state_of
from .pool_rows import Known, class_rows, pool_rows, tables

_COLUMNS = {
    "name": "node", "cloud": "cloud", "model": "model", "gpu_count": "gpus", "region": "region", "price_hour": "$/h", "joined": "joined after",
    "endpoint": "endpoint", "state": "state", "utilization": "GPU use", "age": "age", "cost": "cost $",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Seen:
    """``machines`` is JSON-safe, one entry per name of ours, ``pools`` and ``classes`` one per document; ``totals`` counts things of this
    cluster. All four are of the pools that were asked for, if any were. ``unknown`` is what could not be read (a count is None then);
    ``store`` the identity of the record store, ``foreign`` are machines with names of this cluster that are not ours, ``paused`` pools of
    which nothing is launched or ended (L-31), ``blocked`` what is not rented for a while (L-14), ``stopped`` own machines that are off, with
    what becomes of their Nodes (L-54)."""

    machines: list[dict[str, t.Any]]
    totals: dict[str, t.Any]
    ledger: list[dict[str, t.Any]]
    unknown: list[str]
    spending: dict[str, t.Any]
    store: dict[str, str]
    foreign: list[dict[str, str]] = dataclasses.field(default_factory=list)
    paused: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    blocked: list[dict[str, str]] = dataclasses.field(default_factory=list)
    stopped: list[dict[str, str]] = dataclasses.field(default_factory=list)
    pools: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    classes: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)


def overview(task: Task) -> dict[str, t.Any]:
    """The result of fleet_info, with its table printed."""
    seen = look(task)
    for line in table(seen, narrowed=bool(task.params.get("pools"))):
        task.progress(line)
    return {"changed": False, **vars(seen)}  # its parts are JSON already, and a copy of a long ledger takes time


def table(seen: Seen, *, narrowed: bool = False) -> list[str]:
    """What status prints. ``narrowed``: to some pools, where what is said of money is of all."""
    empty = [key for key in ("endpoint", "utilization") if not any(machine[key] for machine in seen.machines)]
    columns = {key: text for key, text in _COLUMNS.items() if key not in empty}
    lines = render(seen.machines, columns, right=("price_hour", "gpu_count", "age", "cost", "joined"))
    totals = seen.totals
    counts = ", ".join(f"{_count(totals[key])} {key}" for key in ("instances", "devices", "keys", "tokens", "nodes", "claims"))
    sums = f"${totals['price_hour']}/h, ${totals['cost']} so far (${totals['closed_cost']} of it closed)"
    store = f"  records: cluster {seen.store['cluster_id']}, generation {seen.store['generation'] or 'not drawn yet'}"
    foreign = [f"  not ours: {entry['name']}, {entry['cloud']} {entry['id']} {entry['why']}" for entry in seen.foreign]
    unknown = [f"  unknown: {text}" for text in seen.unknown]
    xids = [f"  {machine['name']}: {xid_line(row)}" for machine in seen.machines for row in machine["xids"]]
    paused = [f"  {line}" for line in paused_lines(seen.paused)]
    head = tables(seen.classes, seen.pools)
    money = [*(["  all pools:"] if narrowed else []), *sentences(seen.spending)]
    return [
        *head,
        *lines,
        *([""] if lines else []),
        *xids,
        f"  now: {counts}; {sums}",
        *paused,
        *map(launch_backoff.line, seen.blocked),
        *(f"  {entry['name']}: {entry['text']}" for entry in seen.stopped),
        *money,
        *([f"  power limits of a node: {LIMITS_COMMAND}"] if any(machine["power_limit"] for machine in seen.machines) else []),
        *unknown,
        store,
        *foreign,
    ]


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def look(task: Task) -> Seen:
    """Read everything once; changes nothing."""
    context = open_context(task, documents_required=False, read_only=True, hubs=True)
    try:
        asks = asks_for_gpu_metrics(context.specs.described)
        observation = gather(context, pods=asks, tokens=True, exporters=asks)
        return _seen(context, observation, task.params.get("pools") or [])
    finally:
        context.close()


def _seen(context: Context, observation: Observation, pools: t.Sequence[str]) -> Seen:
    cluster, now = observation.cluster_id, observation.now
    every = _ours(context, observation)
    chosen = _chosen(context, every, pools)
    ours = every if chosen is None else every.of(chosen.has)
    machines = [
        _machine(name, machine, observation, context.specs.pool_of(machine.claim.pool) if machine.claim else None)
        | _service(context, machine.claim, machine.device, observation)
        | gpu_facts(context, machine.claim, observation)
        for name, machine in ours.by_name().items()
    ]
    records, torn = context.store.ledger_records()
    ledger = read_ledger(records, [record.place for record in torn])
    mine = (
        ledger
        if chosen is None
        else dataclasses.replace(ledger, lines=tuple(line for line in ledger.lines if line.pool in chosen.keys))
    )
    totals = _counts(context, observation, ours, chosen) | _sums(machines, ours.claims, mine)
    unclear = [f"GPU use of {one['name']}: {one['utilization_unknown']}" for one in machines if one["utilization_unknown"]]
    unclear += [
        f"XIDs of {one['name']}: {one['xids_unknown']}" for one in machines if one["xids_unknown"] != one["utilization_unknown"]
    ]
    unknown = [*_unknown(context, observation, ledger), *unclear]
    claims = tuple(every.claims.values())
    purses = open_purses(context.specs, context.settings, ledger, claims, now, CAPABILITIES)
    money = spending(context, ledger, claims, now, purses)
    drawn = context.records.generations()
    store = {"cluster_id": cluster, "generation": drawn[0] if drawn else ""}
    foreign = [{"name": instance.name, "cloud": instance.cloud, "id": instance.id, "why": why} for instance, why in every.foreign]
    pauses = Pauses((*observation.pauses, *context.specs.pauses), context.specs.described)
    paused = paused_pools(pauses, context.specs, claims)
    known = Known(context.specs, observation, claims, purses, {pool.pool: pool for pool in paused}, CAPABILITIES)
    rows = [row for row in pool_rows(known) if chosen is None or row["name"] in chosen.keys]
    named = {row["node_class"] for row in rows}
    classes = [row for row in class_rows(known) if chosen is None or row["name"] in named]
    blocked = [] if "blocklist" in observation.state_problems else launch_backoff.reasons(context.records.known_blocks(), now)
    situation = Situation(observation, context.specs, context.settings, CAPABILITIES)
    off = [row for row in stopped_rows(situation) if chosen is None or row["pool"] in chosen.keys]
    return Seen(machines, totals, records, unknown, money, store, foreign, paused_rows(paused), blocked, off, rows, classes)


@dataclasses.dataclass(frozen=True)
class _Together:
    """What was found under one name."""

    claim: Claim | None
    instance: Instance | None
    device: Device | None
    node: Node | None


@dataclasses.dataclass(frozen=True)
class _Ours:
    """Of all that was read what belongs to this cluster, by name. ``listed`` are the machines of clouds, of which several may have one
    name; ``foreign`` those with names of ours that are not ours, and why."""

    claims: dict[str, Claim]
    listed: list[Instance]
    foreign: list[tuple[Instance, str]]
    devices: dict[str, Device]
    nodes: dict[str, Node]

    def of(self, chosen: t.Callable[[str], bool]) -> _Ours:
        """Those of the names that are chosen."""
        return dataclasses.replace(
            self,
            claims={name: claim for name, claim in self.claims.items() if chosen(name)},
            listed=[instance for instance in self.listed if chosen(instance.name)],
            devices={name: device for name, device in self.devices.items() if chosen(name)},
            nodes={name: node for name, node in self.nodes.items() if chosen(name)},
        )

    def by_name(self) -> dict[str, _Together]:
        """All that has a claim or is listed, in order of names."""
        on_record = {claim.instance_id for claim in self.claims.values()}
        by_record = sorted(
            self.listed, key=lambda instance: instance.id in on_record
        )  # of several of one name the claim's own is the last
        instances = {instance.name: instance for instance in by_record}
        return {
            name: _Together(self.claims.get(name), instances.get(name), self.devices.get(name), self.nodes.get(name))
            for name in sorted({*self.claims, *instances})
        }


def _ours(context: Context, observation: Observation) -> _Ours:
    claims = {claim.name: claim for claim in observation.claims or ()}

    def is_ours(name: str) -> bool:
        return ownership_of(name, observation.cluster_id) is Ownership.OURS or name in claims

    listed = [instance for view in observation.clouds.values() for instance in view.instances or ()]
    named = [instance for instance in listed if not instance.gone and is_ours(instance.name)]
    foreign = {
        instance.id: why
        for instance in named
        if CAPABILITIES[instance.cloud].rented and (why := context.records.owner(instance).why)
    }
    return _Ours(
        claims=claims,
        listed=[instance for instance in named if instance.id not in foreign],
        foreign=[(instance, foreign[instance.id]) for instance in named if instance.id in foreign],
        devices={device.hostname: device for device in observation.devices or () if is_ours(device.hostname)},
        nodes={node.name: node for node in observation.nodes or () if is_ours(node.name)},
    )


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The pools that were asked for, by their keys. A thing without a claim is of the pools that its name fits."""

    keys: frozenset[str]
    claims: t.Mapping[str, Claim]

    def has(self, name: str) -> bool:
        claim = self.claims.get(name)
        return claim.pool in self.keys if claim is not None else pool_of(name) in {pool_part(key) for key in self.keys}


def _counts(context: Context, observation: Observation, ours: _Ours, chosen: _Chosen | None) -> dict[str, int | None]:
    """How many there are of each kind; None where they could not be read. A mesh that is not used has none."""
    unread = any(view.instances is None for view in observation.clouds.values())
    meshless = not context.clients.uses_mesh()
    keys = _own_keys(observation.keys, observation.cluster_id, chosen)
    return {
        "instances": None if unread else len(ours.listed),
        "devices": len(ours.devices) if observation.devices is not None or meshless else None,
        "keys": keys if observation.keys is not None or meshless else None,
        "tokens": None
        if observation.tokens is None
        else sum(1 for token in observation.tokens if chosen is None or chosen.has(token.machine)),
        "nodes": len(ours.nodes),
        "claims": len(ours.claims),
    }


def _sums(machines: t.Sequence[t.Mapping[str, t.Any]], claims: t.Mapping[str, Claim], ledger: Ledger) -> dict[str, str]:
    """What all machines cost in an hour, and what they and those before them have cost."""
    closed = add_up(line.cost for line in ledger.lines)
    written = {line.key for line in ledger.lines}  # the removal of such a claim was cut off
    booked = {name for name, claim in claims.items() if written & set(closing_keys(claim))}
    running = sum((Decimal(machine["cost"]) for machine in machines if machine["name"] not in booked), Decimal(0))
    return {
        "price_hour": str(sum((Decimal(machine["price_hour"]) for machine in machines if machine["price_hour"]), Decimal(0))),
        "cost": str((closed + running).quantize(Decimal("0.0001"))),
        "closed_cost": str(closed.quantize(Decimal("0.0001"))),
    }


def _unknown(context: Context, observation: Observation, ledger: Ledger) -> list[str]:
    """A sentence for everything that could not be read."""
    unknown = [f"{name}: {view.problem}" for name, view in observation.clouds.items() if view.problem]
    unknown += [
        f"the claim of {damaged.name} ({damaged.where}) cannot be read: {damaged.problem}" for damaged in observation.damaged
    ]
    unknown += [problem for _state, problem in sorted(observation.state_problems.items())]
    unknown += [sentence for sentences in context.specs.faults.values() for sentence in sentences]
    unknown += [source.problem for source in context.specs.sources.values() if source.problem and not source.quiet]
    unknown += [f"a line of the ledger is torn, so every sum is at least what is said: {place}" for place in ledger.torn]
    if observation.tokens is None:
        unknown.append("our list of bootstrap tokens could not be read")
    if context.clients.uses_mesh():
        read = {"devices": observation.devices, "keys": observation.keys}
        unknown += [f"the mesh's {kind} could not be read" for kind, listed in read.items() if listed is None]
    return unknown


def _chosen(context: Context, ours: _Ours, pools: t.Sequence[str]) -> _Chosen | None:
    """Those that were asked for; None when none was named. A name that fits nothing is a warning."""
    if not pools:
        return None
    keys = (
        {claim.pool for claim in ours.claims.values()} | {pool.key for pool in context.specs.described} | set(context.specs.paused)
    )
    if strange := sorted(set(pools) - keys - {key.partition("/")[2] for key in keys}):
        context.warn(f"There is no pool {', '.join(strange)} among the documents and machines.")
    return _Chosen(frozenset(key for key in keys if key in pools or key.partition("/")[2] in pools), ours.claims)


def _own_keys(keys: tuple[MeshKey, ...] | None, cluster: str, chosen: _Chosen | None) -> int:
    """Keys that still open the door. A long node name is shortened in a key's description, so only its beginning is compared."""
    pools = ("",) if chosen is None else tuple(f"{pool_part(key)}-" for key in chosen.keys)
    return sum(
        1
        for key in keys or ()
        if not key.invalid and any(key.description.startswith(f"tgp tgp-{cluster}-{pool}") for pool in pools)
    )


@dataclasses.dataclass(frozen=True)
class _View:
    """A machine as its claim has it or, where it has none, as its cloud does. ``hardware`` says what it is and where."""

    cloud: str
    hardware: Offer | Instance
    instance_id: str
    price: Decimal | None
    started: datetime | None
    cost: Decimal = Decimal(0)
    pool: str = ""
    node_class: str = ""
    lane: str = ""
    phase: str = ""
    initialized: datetime | None = None
    idle_since: datetime | None = None

    @classmethod
    def of_claim(cls, claim: Claim, now: datetime) -> _View:
        return cls(
            cloud=claim.cloud,
            hardware=claim.offer,
            instance_id=claim.instance_id,
            price=claim.price,
            started=claim.launch_started,
            cost=live_cost(claim, now, CAPABILITIES.get(claim.cloud)),
            pool=claim.pool,
            node_class=claim.node_class,
            lane=claim.lane.value,
            phase=claim.phase.value,
            initialized=claim.initialized,
            idle_since=claim.idle_since,
        )

    @classmethod
    def of_instance(cls, instance: Instance) -> _View:
        return cls(
            cloud=instance.cloud,
            hardware=instance,
            instance_id=instance.id,
            price=instance.price_hour,
            started=instance.created,
        )

    @property
    def joined(self) -> str:
        """How long it took to become a node, or a service; empty while it has not."""
        return _duration((self.initialized - self.started).total_seconds()) if self.initialized and self.started else ""


def _machine(name: str, machine: _Together, observation: Observation, pool: Pool | None) -> dict[str, t.Any]:
    instance, device, node, now = machine.instance, machine.device, machine.node, observation.now
    xids = observation.xids.get(node.name) if node is not None else None
    if machine.claim is not None:
        view = _View.of_claim(machine.claim, now)
    else:
        view = _View.of_instance(t.cast(Instance, instance))  # a name comes from the one or the other
    return {
        "name": name,
        "pool": view.pool,
        "node_class": view.node_class,
        "cloud": view.cloud,
        "model": view.hardware.model,
        "gpu_count": view.hardware.gpu_count,
        "instance_type": view.hardware.instance_type,
        "region": view.hardware.region,
        "lane": view.lane,
        "phase": view.phase,
        "state": state_of(machine.claim, instance, node, pool, xids),
        "price_hour": "" if view.price is None else str(view.price),
        "cost": str(view.cost.quantize(Decimal("0.0001"))),
        "age": _duration((now - view.started).total_seconds()) if view.started else "",
        "joined": view.joined,
        "accepted": to_text(machine.claim.accepted) if machine.claim is not None and machine.claim.accepted is not None else "",
        "instance_id": view.instance_id,
        "instance_state": instance.state.value if instance else "",
        "ip": instance.ip if instance else "",
        "mesh_addresses": list(device.addresses) if device else [],
        "mesh_online": device.online if device else None,
        "node_ready": node.ready if node else None,
        "power_limit": node is not None and power_is_limited(node.labels),
        "idle_since": to_text(view.idle_since) if view.idle_since else "",
        **health_facts(machine.claim, node, pool, now, xids),
    }


def _service(context: Context, claim: Claim | None, device: Device | None, observation: Observation) -> dict[str, t.Any]:
    """Where a service is reached, and whether it works (None = unknown; for nodes both say nothing)."""
    if claim is None or not claim.is_service:
        return {"endpoint": "", "healthy": None}
    health = health_of(device, observation.probes.get(claim.name, Probe()), listed=observation.devices is not None)
    pool = context.specs.pool_of(claim.pool)
    address = address_of(device) if device else ""
    port = pool.service.health_port if pool and pool.service else None
    return {
        "endpoint": f"{address}:{port}" if address and port else address,
        "healthy": health.well,
        "state": service_state(claim, health),
    }


def _duration(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}h{rest // 60:02d}m"
    return f"{rest // 60}m{rest % 60:02d}s" if whole >= 60 else f"{whole}s"


# ---- what status says about money: now, today, this month, the budgets, and when buying would have paid (L-16, S1-07)


def spending(
    context: Context, ledger: Ledger | None, claims: t.Sequence[Claim], now: datetime, purses: Purses | None = None
) -> dict[str, t.Any]:
    """JSON-safe, amounts as text. ``whole`` False: the books could not be read whole, so that every sum is "at least". ``purses``: the budgets,
    where they are open already."""
    context.task.read("time_zone", calendar.zone)
    purchase = context.task.read("purchase_price", parse_money)
    zone = context.task.params.get("time_zone") or "UTC"
    lines = books(ledger or Ledger(), claims, now, CAPABILITIES)
    forecast = outlook(lines, claims, now, zone)
    if purses is None:
        purses = open_purses(context.specs, context.settings, ledger, claims, now, CAPABILITIES)
    return {
        "hour": print_money(forecast.hour),
        "today": {"key": forecast.day_key, "spent": print_money(forecast.day), "forecast": print_money(forecast.day_forecast)},
        "month": {
            "key": forecast.month_key,
            "spent": print_money(forecast.month),
            "forecast": print_money(forecast.month_forecast),
        },
        "time_zone": zone,
        "whole": ledger is not None and not ledger.torn,
        "budgets": [budget_row(purse) for purse in purses.all],
        "break_even": break_even_rows(purchase, claims, lines, now) if purchase is not None else [],
    }


def sentences(money: t.Mapping[str, t.Any]) -> list[str]:
    """The same for people."""
    least = "" if money["whole"] else "at least "
    parts = [
        f"{word} ({money[word]['key']}): {least}${money[word]['spent']}, ${money[word]['forecast']} at its end if nothing changes"
        for word in ("today", "month")
    ]
    lines = [f"  ${money['hour']}/h now; {'; '.join(parts)}; {money['time_zone']}"]
    for entry in money["budgets"]:
        who = "the cluster" if entry["scope"] == "all" else f"{entry['scope']} {entry['name']}"
        spent = f"{least}${entry['spent']} of ${entry['amount']} ({entry['percent']} %), ${entry['left']} left"
        lines.append(
            f"  {entry['period']} budget of {who}, {entry['key']}: {spent}, {entry['state']}; when it is used up: {entry['action']}"
        )
    for entry in money["break_even"]:
        lines.append(
            f"  buying for ${entry['purchase_price']} instead of renting {entry['what']} "
            f"at ${entry['price_hour']}/h pays after {entry['hours']} h" + _recorded(entry)
        )
    return lines


def budget_row(purse: Purse) -> dict[str, t.Any]:
    """A budget as data."""
    state = "used up" if purse.used_up else "low" if purse.soft else "in bounds"
    return {
        "scope": purse.scope,
        "name": purse.name,
        "period": purse.budget.period,
        "key": purse.period.key,
        "amount": print_money(purse.budget.amount),
        "spent": print_money(purse.spent),
        "left": print_money(max(purse.budget.amount - purse.spent, Decimal(0))),
        "percent": str((purse.spent * 100 / purse.budget.amount).quantize(Decimal("0.1"))),
        "state": state if purse.whole else f"{state}, as far as the books can be read",
        "action": purse.budget.action,
    }


def _recorded(entry: t.Mapping[str, t.Any]) -> str:
    """In how many days that is at the recorded use."""
    if entry["useful_hours_a_day"] is None:
        return ""
    use = f"{entry['useful_hours_a_day']} recorded useful hours a day"
    return f" of use: never at {use}" if entry["days"] is None else f" of use: {entry['days']} days at {use}"
