# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's JSON read into our records: the only place that knows its words."""

from __future__ import annotations

import math
import re
import typing as t
from datetime import datetime, timezone
from decimal import Decimal

from ...core.clock import from_text
from ...core.http import Api
from ...model import Capability, Extra, Instance, InstanceState, Offer
from ...model.names import PATTERN
from ...planner.offers import gpu_models
from ...planner.offers.requirements import standard_region
from .types import NOT_OFFERED, REGIONS, disk_price, disk_step, machine_type, regions_of, short_region

SCRIPT, NETWORK, ADDRESS = "startup-script", "private-network", "public-ip"
_GIB = 2**30  # what it calls GB: a disk of 100 has storageTotal 107374182400
_OURS = re.compile(r"(?P<machine>[a-z0-9][a-z0-9-]{0,62})\.tgp(-[0-9a-f]{8})?")
_POWER_ON = frozenset({"create", "start", "restart"})
_POWER_OFF = frozenset({"stop", "vm-shutdown-force"})
_DELETE = "deactivate"
_FAILED = frozenset({"error", "cancelled"})
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


class Template(t.NamedTuple):
    """An operating system template. ``fits``: labels of machine types it can boot, None = it does not say."""

    id: str
    name: str
    agent: str
    system: str
    fits: frozenset[str] | None
    labels: tuple[str, ...]


class Event(t.NamedTuple):
    """A queued change and what became of it."""

    name: str
    state: str
    error: str
    created: datetime


class MachineStatus(t.NamedTuple):
    """What events say of a machine beyond its own word: another state (None: none) and a problem in words."""

    state: InstanceState | None
    problem: str


def to_template(api: Api, entry: t.Any, operation: str) -> Template:
    """Types may be null or absent; all that is needed is the id."""
    api.expect(entry, dict, operation, "a template")
    identity = api.expect(entry.get("id") or None, str, operation, "id of a template")
    listed = entry.get("availableMachineTypes")
    kinds = None
    if listed is not None:
        api.expect(listed, list, operation, f"{identity}: availableMachineTypes")
        kinds = [item for item in listed if isinstance(item, dict) and isinstance(item.get("machineTypeLabel"), str)]
    return Template(
        identity,
        str(entry.get("name") or ""),
        str(entry.get("agentType") or ""),
        str(entry.get("operatingSystemLabel") or ""),
        None if kinds is None else frozenset(kind["machineTypeLabel"] for kind in kinds if kind.get("isAvailable") is not False),
        tuple(kind["machineTypeLabel"] for kind in kinds or ()),
    )


def to_offers(label: str, disk_gib: int, facts: Capability, now: datetime) -> t.Iterator[Offer]:
    """One offer per region that has the type. The price is a published one, disk added."""
    kind, disk = machine_type(label), disk_step(disk_gib)
    if label in NOT_OFFERED or disk is None:
        return
    model, count, memory, price = kind if kind else (label, 1, None, None)
    for region in regions_of(label):
        yield Offer(
            cloud="paperspace",
            id=f"{label}@{region}",
            instance_type=label,
            model=model,
            gpu_count=count,
            price_hour=None if price is None else price + disk_price(disk),
            region=standard_region(region, REGIONS),
            cloud_region=region,
            gpu_memory_mib=memory,
            disk_gib=disk,
            storage_price_hour=disk_price(disk),
            lanes=facts.lanes,
            seen=now,
            price_estimated=True,
        )


def to_instance(api: Api, entry: t.Any, operation: str, facts: Capability) -> Instance:
    """One machine as it says itself. ``id`` and ``state`` must be there."""
    api.expect(entry, dict, operation, "a machine")
    identity = api.expect(entry.get("id") or None, str, operation, "id of a machine")
    state = api.expect(entry.get("state"), str, operation, f"state of {identity}")
    label = str(entry.get("machineType") or "")
    model, count = _gpus(label, entry.get("accelerators"))
    storage = _number(entry.get("storageRate")) or Decimal(0)
    usage = _number(entry.get("usageRate"))
    return Instance(
        cloud="paperspace",
        id=identity,
        name=str(entry.get("name") or ""),
        state=facts.read_state(state),
        raw_state=state,
        created=moment(entry.get("dtCreated")),
        price_hour=None if usage is None else usage + storage,
        ip=str(entry.get("publicIp") or ""),
        private_ip=str(entry.get("privateIp") or ""),
        region=short_region(str(entry.get("region") or "")),
        instance_type=label,
        model=model,
        gpu_count=count,
        spot=False,
        storage_price_hour=storage,
        disk_gib=None if (size := _number(entry.get("storageTotal"))) is None else round(size / _GIB) or None,
    )


def is_deleted(entry: t.Any) -> bool:
    """A deleted machine may still be answered for a while."""
    return isinstance(entry, dict) and entry.get("dtDeleted") is not None


def to_event(api: Api, entry: t.Any, operation: str) -> Event:
    api.expect(entry, dict, operation, "an event")
    state = api.expect(entry.get("state"), str, operation, "state of an event")
    created = moment(entry.get("dtCreated")) or _LONG_AGO
    return Event(str(entry.get("name") or ""), state, str(entry.get("error") or ""), created)


def machine_status(word: str, events: t.Iterable[Event], *, off_before: bool) -> MachineStatus:
    """What became of a machine that is not up. Paperspace has no word for failed: the event of the last switching on tells, unless
    it was switched off since. ``off_before``: it was off at the last look, too."""
    ordered = sorted(events, key=lambda event: event.created)
    if not ordered:
        return MachineStatus(None, "")
    last = ordered[-1]
    if last.name == _DELETE and last.state not in _FAILED:  # also one that was over before the machine had left what we read
        return MachineStatus(InstanceState.TERMINATING, "")
    problem = f"its deletion failed: {last.error or last.state}" if last.name == _DELETE else ""
    power = [event for event in ordered if event.name in _POWER_ON | _POWER_OFF]
    if not power or power[-1].name in _POWER_OFF:
        return MachineStatus(None, problem)
    if power[-1].state in _FAILED:
        return MachineStatus(InstanceState.FAILED, f"its {power[-1].name} failed: {power[-1].error or power[-1].state}")
    if word == "off" and off_before and power[-1].state == "done":
        return MachineStatus(InstanceState.FAILED, "it went off and nobody switched it off; its disk is billed on")
    return MachineStatus(None, problem)


def to_extra(api: Api, entry: t.Any, operation: str, kind: str) -> Extra | None:
    """A startup script or private network of ours, by its name; None for those of others."""
    api.expect(entry, dict, operation, "an entry")
    identity = api.expect(entry.get("id"), str, operation, "id of an entry")
    machine = machine_of(str(entry.get("name") or ""))
    if not machine or is_deleted(entry):
        return None
    return Extra("paperspace", kind, identity, machine, moment(entry.get("dtCreated")))


def machine_of(name: str) -> str:
    """The machine that a thing of this name was made for, empty if it is none of ours."""
    match = _OURS.fullmatch(name)
    return match["machine"] if match else (name if PATTERN.fullmatch(name) else "")


def moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _gpus(label: str, listed: t.Any) -> tuple[str, int | None]:
    kind = machine_type(label)
    if kind is not None:
        return kind.model, kind.number
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and entry.get("name"):
            count = entry.get("count")
            return gpu_models.canonical(str(entry["name"])) or str(entry["name"]), count if isinstance(count, int) else None
    return "", None


def _number(value: t.Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return Decimal(str(value))
