# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Lambda account holds besides machines: keys, file systems, firewall rules, an audit log, a quota, how fast it may be called, and
what a scenario can choose of the service's behaviour."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
import uuid
from datetime import datetime
from decimal import Decimal

from .catalogue import LAMBDA_REGIONS
from .clock import SimClock
from .storage_bill import StorageBill
from .world import Machine, World

PACE_FORMS = ("json", "text", "empty")
_SLACK = 0.1  # real seconds two calls may drift together on their way through threads and sockets


class Refused(Exception):
    """An error answer of the API. ``text`` stands in for the JSON where it is not None."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        error = {"code": code, "message": message}
        if suggestion:
            error["suggestion"] = suggestion
        self.status, self.body = status, {"error": error}
        self.text: str | None = None
        self.headers: dict[str, str] = {}


def invalid(field: str, why: str) -> Refused:
    """The refusal of a field; the message begins with its name, as Lambda's do."""
    return Refused(400, "global/invalid-parameters", f"{field}: {why}")


def missing(kind: str, name: str) -> Refused:
    said = f"Specified {kind} does not exist: {name}."
    return Refused(404, "global/object-does-not-exist", said, f"Check the {kind} and try again.")


def not_found() -> Refused:
    """What is neither a machine nor a ruleset nor named in a launch: keys, regions of new resources, paths."""
    return Refused(404, "global/not-found", "The requested resource was not found.")


class Rate:
    """At most one call per ``interval`` world seconds. Rushed by the speed of the world's clock, threads cannot keep exact
    distances, so as many calls may come early as fit into a moment of real time."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._free = 0.0

    def admit(self, now: float, speed: float) -> bool:
        slack = _SLACK * speed
        if now + slack < self._free:
            return False
        self._free = max(self._free, now - slack) + self.interval
        return True


@dataclasses.dataclass
class Account:
    """``quota`` = machines that may exist at a time, None = no bound. ``active`` False: e-mail or payment were never verified.

    ``list_after``: seconds until a new machine is listed. ``preempted_seconds``: how long one that Lambda took back is still shown.
    ``reuse_addresses``: a new machine has the public address of the one that ended last. ``too_old_after``: seconds of age from which on a
    machine cannot be migrated. ``pace_form`` of a 429: json, text or empty; ``retry_after``: it says how long to wait. ``audit_page``
    events are a page of the log. ``file_system_gb_month``: dollars that a GB in a file system costs in a month; Lambda's lists do not tell.
    ``events`` are that log, oldest first; ``owner``, ``number`` and ``key`` the ids in it of the user, the
    account and the API key.
    """

    quota: int | None = None
    active: bool = True
    list_after: float = 0.0
    preempted_seconds: float = 120.0
    reuse_addresses: bool = False
    too_old_after: float = 0.0
    pace_form: str = "json"
    retry_after: bool = False
    audit_page: int = 100
    file_system_gb_month: Decimal = Decimal("0.20")
    storage: StorageBill = dataclasses.field(default_factory=StorageBill)
    events: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    owner: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    number: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    key: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    ssh_keys: list[dict[str, str]] = dataclasses.field(default_factory=list)
    file_systems: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    rules: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    rulesets: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    addresses: int = 0
    general: Rate = dataclasses.field(default_factory=lambda: Rate(1.0))
    launches: Rate = dataclasses.field(default_factory=lambda: Rate(12.0))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    SWITCHES: t.ClassVar[dict[str, t.Any]] = {
        "quota": 1,
        "active": True,
        "list_after": 0.0,
        "preempted_seconds": 0.0,
        "reuse_addresses": False,
        "too_old_after": 0.0,
        "pace_form": "json",
        "retry_after": False,
        "audit_page": 1,
        "file_system_gb_month": Decimal(0),
        "file_systems": [],
    }
    """Names of what a scenario can choose, with values that show their types."""

    def turn(self, chosen: t.Mapping[str, t.Any], clock: SimClock | None = None) -> None:
        """Set some of them; the values have the right types. ValueError names what cannot be. Without ``clock`` no file system is made."""
        if chosen.get("pace_form", "json") not in PACE_FORMS:
            raise ValueError(f"pace_form: {chosen['pace_form']!r} should be one of {', '.join(PACE_FORMS)}")
        if chosen.get("audit_page") == 0:
            raise ValueError("audit_page: should be above zero")
        for name, value in chosen.items():
            if name != "file_systems":
                setattr(self, name, value)
        for place, entry in enumerate(chosen.get("file_systems", ())):
            wanted = {"name": str, "region": str, "gb": int}
            if not isinstance(entry, dict) or {key: type(value) for key, value in entry.items()} != wanted:
                raise ValueError(f"file_systems[{place}]: should have name, region and gb (whole GB that are stored)")
            if entry["region"] not in LAMBDA_REGIONS:
                raise ValueError(f"file_systems[{place}].region: Lambda has no region {entry['region']!r}")
            if clock is not None:
                self.add_file_system(entry["name"], entry["region"], clock.now(), gb=entry["gb"])

    def add_file_system(self, name: str, place: str, now: datetime, *, gb: int = 0) -> dict[str, t.Any]:
        """Make one in a region; it is billed from now on for what is stored in it."""
        volume = {
            "id": uuid.uuid4().hex,
            "name": name,
            "mount_point": f"/lambda/nfs/{name}",
            "created": now.isoformat(),
            "created_by": {"id": uuid.uuid4().hex, "email": "owner@sandbox.invalid", "status": "active"},
            "is_in_use": False,
            "region": {"name": place, "description": LAMBDA_REGIONS[place]},
            "bytes_used": gb * 10**9,
        }
        self.file_systems.append(volume)
        self.storage.charge(str(volume["id"]), gb * self.file_system_gb_month, now)
        return volume

    @classmethod
    def of(cls, world: World) -> Account:
        """The account of this world, made when first asked for; it has one SSH key, ``tgp``."""
        with world.lock:
            account = world.__dict__.get("lambda_account")
            if account is None:
                account = world.__dict__["lambda_account"] = cls()
                account.add_key("tgp", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFNhbmRib3hLZXlXaXRob3V0UHJpdmF0ZVBhcnQx tgp")
                account.rules.append(
                    {"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "ssh"}
                )
            return t.cast(Account, account)

    def add_key(self, name: str, public: str) -> dict[str, str]:
        key = {"id": uuid.uuid4().hex, "name": name, "public_key": public}
        self.ssh_keys.append(key)
        return key

    def next_addresses(self, world: World) -> tuple[str, str]:
        """A public and a private address. Nobody had them before, unless public ones are reused. The caller holds the world's lock."""
        self.addresses += 1
        high, low = divmod(self.addresses, 250)
        public, private = f"198.18.{high}.{low + 1}", f"10.19.{high}.{low + 1}"
        return (self._given_back(world) if self.reuse_addresses else None) or public, private

    def _given_back(self, world: World) -> str | None:
        """The public address of the machine that ended last, of those whose address nobody has."""
        known = [one for one in world.machines.values() if one.cloud == "lambda" and one.details.get("addresses")]
        held = {one.details["addresses"][0] for one in known if one.ended is None}
        free = [(one.ended, one.details["addresses"][0]) for one in known if one.ended and one.details["addresses"][0] not in held]
        return max(free)[1] if free else None

    def check_pace(self, world: World, launch: bool) -> None:
        if not world.rate_limits:
            return
        now, speed = world.clock.seconds(), world.clock.speed
        with self.lock:
            admitted = self.general.admit(now, speed) and (not launch or self.launches.admit(now, speed))
        if not admitted:
            raise self._too_often(launch)

    def _too_often(self, launch: bool) -> Refused:
        refusal = Refused(429, "global/too-many-requests", "Too many requests.", "Slow down and try again.")
        refusal.text = {"text": "Too many requests.", "empty": ""}.get(self.pace_form)
        if self.retry_after:
            refusal.headers["Retry-After"] = str(round((self.launches if launch else self.general).interval))
        return refusal


def machines(world: World) -> list[Machine]:
    """Machines that the account's list shows."""
    return [one for one in world.machines.values() if one.cloud == "lambda" and one.destroyed is None]
