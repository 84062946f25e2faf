# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Lambda account holds besides machines: keys, file systems, firewall rules, a quota, and how fast it may be called."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
import uuid

from .world import Machine, World

_SLACK = 0.1  # real seconds two calls may drift together on their way through threads and sockets


class Refused(Exception):
    """An error answer of the API."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        error = {"code": code, "message": message}
        if suggestion:
            error["suggestion"] = suggestion
        self.status, self.body = status, {"error": error}


def invalid(field: str, why: str) -> Refused:
    """The refusal of a field; the message begins with its name, as Lambda's do."""
    return Refused(400, "global/invalid-parameters", f"{field}: {why}")


def missing(kind: str, name: str) -> Refused:
    return Refused(404, "global/object-does-not-exist", f"Specified {kind} does not exist: {name}.")


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
    ``list_after``: seconds until a new machine is listed.
    """

    quota: int | None = None
    active: bool = True
    list_after: float = 0.0
    ssh_keys: list[dict[str, str]] = dataclasses.field(default_factory=list)
    file_systems: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    rules: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    rulesets: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    addresses: int = 0
    general: Rate = dataclasses.field(default_factory=lambda: Rate(1.0))
    launches: Rate = dataclasses.field(default_factory=lambda: Rate(12.0))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

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

    def next_addresses(self) -> tuple[str, str]:
        """A public and a private address nobody had before."""
        self.addresses += 1
        high, low = divmod(self.addresses, 250)
        return f"198.18.{high}.{low + 1}", f"10.19.{high}.{low + 1}"

    def check_pace(self, world: World, launch: bool) -> None:
        if not world.rate_limits:
            return
        now, speed = world.clock.seconds(), world.clock.speed
        with self.lock:
            admitted = self.general.admit(now, speed) and (not launch or self.launches.admit(now, speed))
        if not admitted:
            raise Refused(429, "global/too-many-requests", "Too many requests.", "Slow down and try again.")


def machines(world: World) -> list[Machine]:
    """Machines that the account's list shows."""
    return [one for one in world.machines.values() if one.cloud == "lambda" and one.destroyed is None]
