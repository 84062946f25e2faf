# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Paperspace team holds besides machines, how its account is set up, and how fast it may be called."""

from __future__ import annotations

import dataclasses
import math
import threading
import typing as t
from datetime import datetime
from decimal import Decimal

from .paperspace_errors import Refused
from .paperspace_types import TYPES, storage_hour, templates
from .world import Machine, World

CALLS_PER_SECOND = 2.0  # the real figure is not published
BURST = 20
_SLACK = 0.1  # real seconds two calls may drift together on their way through threads and sockets
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclasses.dataclass
class Switches:
    """What nobody has documented, or what differs from account to account; a scenario sets them by these names.

    A status (``delete_while_starting``, ``delete_while_on``, ``script_delete_while_assigned``): refuse so; 0 = accept.
    """

    availability: bool = True  # False: GET /machine-availability is a 404
    name_filter: str = "contains"  # or exact: what ?name= finds among machines, scripts and networks
    errors_as_200: bool = False  # errors have the status 200
    delete_while_starting: int = 0
    delete_while_on: int = 0
    delete_seconds: float = 8.0  # from a deletion that is accepted until the machine is gone
    delete_spread: float = 0.0  # seconds; by chance it takes up to so much longer
    delete_fails: int = 0  # that many deletions are accepted, and their event ends as error
    deleted_shown: bool = False  # GET of a deleted machine: dtDeleted is set, no 404
    no_capacity: str = "off"  # or provisioning: where a machine without capacity ends
    no_capacity_seconds: float = 60.0  # until it does
    scripts_on_restart: bool = True  # False: a startup script runs at the first boot only
    script_delete_while_assigned: int = 0
    max_machines: int = 20
    limit_status: int = 412  # 400, 403 or 412: how one machine too many is refused
    needs_approval: list[str] = dataclasses.field(default_factory=list)  # types that support has not unlocked
    good_standing: bool = True
    payment_method: bool = True
    admin_locked: bool = False
    retry_after: bool = True  # whether a 429 says how long to wait
    firewall: bool = True  # HTML 403 for bodies that look like an attack
    static_ip_hour: Decimal = Decimal("0.0041")  # dollars
    list_after: float = 0.0  # seconds until a new machine is listed

    CHOICES: t.ClassVar[dict[str, tuple[t.Any, ...]]] = {
        "delete_while_starting": (0, 400, 409, 412),
        "delete_while_on": (0, 400, 409, 412),
        "script_delete_while_assigned": (0, 400, 409, 412),
        "limit_status": (400, 403, 412),
        "name_filter": ("contains", "exact"),
        "no_capacity": ("off", "provisioning"),
    }

    def turn(self, chosen: t.Mapping[str, t.Any]) -> None:
        """Set some of them; the values have the right types. ValueError names what cannot be."""
        for name, value in chosen.items():
            if value not in self.CHOICES.get(name, (value,)):
                raise ValueError(f"{name}: {value!r} should be one of {', '.join(map(str, self.CHOICES[name]))}")
            if name == "needs_approval" and (unknown := [one for one in value if one not in TYPES]):
                raise ValueError(f"needs_approval: Paperspace has no type {unknown[0]!r}")
            setattr(self, name, value)

    def named(self, wanted: str | None, name: str) -> bool:
        """Whether ``?name=`` finds this name; None = it was not asked for."""
        return wanted is None or (wanted == name if self.name_filter == "exact" else wanted in name)


@dataclasses.dataclass
class Event:
    """What became of a request. ``turn`` is the machine's count of requests so far; it tells whether a later one overtook this."""

    id: str
    machine_id: str
    name: str
    created: datetime
    turn: int
    state: str = "new"
    error: str | None = None
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def open(self) -> bool:
        return self.state in ("new", "in progress")

    def end(self, now: datetime, state: str = "done", error: str | None = None) -> None:
        self.started, self.finished, self.state, self.error = self.started or now, now, state, error


@dataclasses.dataclass
class Script:
    """A startup script; its text never leaves the account but for a machine."""

    id: str
    name: str
    text: str
    run_once: bool
    created: datetime
    enabled: bool = True
    machines: list[str] = dataclasses.field(default_factory=list)
    deleted: datetime | None = None


@dataclasses.dataclass
class Network:
    """A private network."""

    id: str
    name: str
    network: str
    region: str
    created: datetime
    deleted: datetime | None = None


@dataclasses.dataclass
class StaticIP:
    """A claimed address; billed from ``created`` until ``released``."""

    ip: str
    region: str
    created: datetime
    machine_id: str | None = None
    released: datetime | None = None


@dataclasses.dataclass
class Template:
    """A template of the team's own; its disk is billed until it is ``deleted``."""

    id: str
    name: str
    parent: Machine
    region: str
    created: datetime
    deleted: datetime | None = None


@dataclasses.dataclass
class Account:
    """The team."""

    switches: Switches = dataclasses.field(default_factory=Switches)
    events: dict[str, Event] = dataclasses.field(default_factory=dict)
    scripts: dict[str, Script] = dataclasses.field(default_factory=dict)
    networks: dict[str, Network] = dataclasses.field(default_factory=dict)
    static_ips: list[StaticIP] = dataclasses.field(default_factory=list)
    custom: dict[str, Template] = dataclasses.field(default_factory=dict)
    templates: list[dict[str, t.Any]] = dataclasses.field(default_factory=templates)
    password_mails: list[str] = dataclasses.field(default_factory=list)  # names of machines whose password was sent
    addresses: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _paid_until: float = 0.0  # world time at which the calls made so far were within the pace

    @classmethod
    def of(cls, world: World) -> Account:
        """The team of this world, made when first asked for."""
        with world.lock:
            account = world.__dict__.setdefault("paperspace_account", cls())
            return t.cast(Account, account)

    def new_id(self, world: World, prefix: str) -> str:
        return prefix + "".join(world.random.choice(_ALPHABET) for _ in range(8))

    def event(self, world: World, machine: Machine, name: str) -> Event:
        """A new event; those of the machine that are still open are overtaken by it."""
        now = world.clock.now()
        for old in self.events.values():
            if old.machine_id == machine.id and old.open:
                old.end(now, "cancelled")
        machine.details["turn"] = machine.details.get("turn", 0) + 1
        made = Event(self.new_id(world, "ev"), machine.id, name, now, machine.details["turn"])
        self.events[made.id] = made
        return made

    def script_of(self, machine: Machine) -> Script | None:
        """The startup script assigned to a machine."""
        return next((one for one in self.scripts.values() if one.deleted is None and machine.id in one.machines), None)

    def next_addresses(self) -> tuple[str, str]:
        """A public and a private address nobody had before."""
        self.addresses += 1
        high, low = divmod(self.addresses, 250)
        return f"198.51.{100 + high}.{low + 1}", f"10.51.{high}.{low + 1}"

    def claim_ip(self, world: World, region: str) -> StaticIP:
        claimed = StaticIP(self.next_addresses()[0], region, world.clock.now())
        self.static_ips.append(claimed)
        return claimed

    def extras_cost(self, now: datetime) -> Decimal:
        """Dollars so far for static addresses and own templates."""
        total = Decimal(0)
        for ip in self.static_ips:
            total += self.switches.static_ip_hour * _hours(ip.created, ip.released or now)
        for template in self.custom.values():
            total += storage_hour(template.parent.details["disk_gb"]) * _hours(template.created, template.deleted or now)
        return total

    def extras_hour(self) -> Decimal:
        """Dollars per hour for those that are held now."""
        held = [self.switches.static_ip_hour for one in self.static_ips if one.released is None]
        held += [storage_hour(one.parent.details["disk_gb"]) for one in self.custom.values() if one.deleted is None]
        return sum(held, Decimal(0))

    def check_pace(self, world: World) -> None:
        """A bucket of ``BURST`` calls that fills with ``CALLS_PER_SECOND`` of the world's seconds."""
        if not world.rate_limits:
            return
        now, slack = world.clock.seconds(), _SLACK * world.clock.speed
        with self.lock:
            behind = max(self._paid_until, now) - now - (BURST - 1) / CALLS_PER_SECOND
            if behind <= slack:
                self._paid_until = max(self._paid_until, now) + 1 / CALLS_PER_SECOND
                return
        wait = {"Retry-After": str(math.ceil(behind))} if self.switches.retry_after else {}
        raise Refused("TOO_MANY_REQUESTS", "Too many requests", headers=wait)


def _hours(begin: datetime, end: datetime) -> Decimal:
    return Decimal(str((end - begin).total_seconds())) / 3600


def machines(world: World) -> list[Machine]:
    """Machines that the team's list shows."""
    return [one for one in world.machines.values() if visible(one)]


def visible(machine: Machine) -> bool:
    return machine.cloud == "paperspace" and machine.destroyed is None
