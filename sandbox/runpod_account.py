# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's account: its money, its rights, its keys, how fast it may call; and the answers that refuse."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
import uuid
from decimal import Decimal

from .storage_bill import StorageBill
from .world import World

RECORDED, DOCUMENTED = "recorded", "documented"
WINDOWS = (("minute", 60, 60), ("hour", 3000, 3600), ("day", 50000, 86400))
NO_CAPACITY = "There are no longer any instances available with the requested specifications. Please refresh and try again."
NONE_AVAILABLE = "no instances available"
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
}


class Problem(Exception):
    """An answer of type application/problem+json. ``headers`` ride on it."""

    def __init__(self, status: int, detail: str, errors: t.Sequence[str] = (), headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers or {}
        self.body: dict[str, t.Any] = {"title": _TITLES.get(status, "Error"), "status": status, "detail": detail}
        if errors:
            self.body["errors"] = list(errors)


def invalid(*errors: str) -> Problem:
    """The 422 of a body or a query."""
    return Problem(422, "validation failed", errors)


class Windows:
    """Fixed windows of a minute, an hour and a day, in the world's time."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._used: dict[str, int] = {}
        self.windows = WINDOWS

    def take(self, now: float) -> str:
        """Count a call; the name of the window that is full, or ""."""
        full = ""
        for name, quota, seconds in self.windows:
            begin = now // seconds * seconds
            if self._begun.get(name) != begin:
                self._begun[name], self._used[name] = begin, 0
            if self._used[name] >= quota:
                full = full or name
        if not full:
            for name in self._used:
                self._used[name] += 1
        return full

    def left(self, now: float, name: str) -> tuple[int, int]:
        """Calls left in a window, and whole seconds until it begins anew."""
        quota, seconds = next((quota, seconds) for known, quota, seconds in self.windows if known == name)
        begin = now // seconds * seconds
        used = self._used.get(name, 0) if self._begun.get(name) == begin else 0
        return max(0, quota - used), max(1, int(-(-(begin + seconds - now) // 1)))

    def headers(self, now: float) -> dict[str, str]:
        shown = [(name, *self.left(now, name)) for name, _quota, _seconds in self.windows]
        return {
            "RateLimit": ", ".join(f'"{name}";r={left};t={seconds}' for name, left, seconds in shown),
            "RateLimit-Policy": ", ".join(f'"{name}";q={quota};w={seconds}' for name, quota, seconds in self.windows),
        }


@dataclasses.dataclass
class Account:
    """``boot_states``: the words for a pod whose image is pulled, "recorded" (RUNNING without a runtime, as recorded on the real service) or
    "documented" (PROVISIONING, then STARTING). ``list_after``: seconds until a new pod is listed. ``page_size`` None: lists come whole and
    without a ``pagination`` object, as the published document has them; a number: in pages of at most that many. ``shy_seconds``: how long a
    new pod is not found by its id. ``balance`` dollars (None: no end), ``spend_limit`` dollars per hour of all pods. ``forbidden``: GPU ids
    and data centres this account may not use. ``ports_after``: seconds from the start of a container until its public ports show.
    ``cpu_stock``: vCPUs of each flavour in each data centre that has it. ``exec_form`` False: ``entrypoint`` and ``cmd`` are unknown fields,
    as in the document of August 2026. ``own_entrypoint``: images (with or without a tag) whose ENTRYPOINT is a program of its own, which
    takes the command as arguments; that of all others runs it. ``graphql`` False: that interface is retired, as from 2027 on.
    ``kept_without_money``: seconds until a pod that was stopped because the balance ran out is terminated, unless it has a network volume.
    """

    boot_states: str = RECORDED
    list_after: float = 0.0
    page_size: int | None = None
    shy_seconds: float = 0.0
    balance: Decimal | None = None
    spend_limit: Decimal = Decimal(80)
    forbidden: tuple[str, ...] = ()
    ports_after: float = 8.0
    cpu_stock: int = 256
    exec_form: bool = True
    own_entrypoint: tuple[str, ...] = ()
    graphql: bool = True
    kept_without_money: float = 48 * 3600.0
    ssh_keys: list[str] = dataclasses.field(default_factory=list)
    registries: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    volumes: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    storage: StorageBill = dataclasses.field(default_factory=StorageBill)
    templates: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    clusters: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    ports: int = 10340
    addresses: int = 0
    windows: Windows = dataclasses.field(default_factory=Windows)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @classmethod
    def of(cls, world: World) -> Account:
        """The account of this world, made when first asked for."""
        with world.lock:
            account = world.__dict__.get("runpod_account")
            if account is None:
                account = world.__dict__["runpod_account"] = cls()
            return t.cast(Account, account)

    def admit(self, world: World) -> None:
        """Count a call; 429 when a window is full."""
        if not world.rate_limits:
            return
        now = world.clock.seconds()
        with self.lock:
            full = self.windows.take(now)
            if full:
                _left, seconds = self.windows.left(now, full)
                raise Problem(429, f"rate limit exceeded for the {full} window", headers={"Retry-After": str(seconds)})

    def left(self, world: World) -> Decimal | None:
        """What is left of the balance, never below 0; None = no end."""
        if self.balance is None:
            return None
        now = world.clock.now()
        spent = sum((one.cost(now) for one in world.machines.values() if one.cloud == "runpod"), Decimal(0))
        return max(Decimal(0), self.balance - spent - self.storage.cost(now))

    def add_volume(self, world: World, volume: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Keep a network volume; its whole size is billed from now on."""
        identity = new_id(world)[:10]
        self.volumes[identity] = {"id": identity, **volume}
        self.storage.charge(identity, volume_month(volume), world.clock.now())
        return self.volumes[identity]

    def unknown_fields(self) -> tuple[str, ...]:
        """Fields of bodies that this API does not know."""
        return () if self.exec_form else ("entrypoint", "cmd")

    def has_program(self, image: str) -> bool:
        """Whether the image's ENTRYPOINT takes a command as its arguments."""
        return image in self.own_entrypoint or image.partition(":")[0] in self.own_entrypoint

    def next_port(self) -> int:
        """A public port nobody had before."""
        self.ports += 1
        return self.ports

    def next_addresses(self) -> tuple[str, str]:
        """A public address, shared by several pods, and a private one."""
        self.addresses += 1
        high, low = divmod(self.addresses, 250)
        return f"203.0.113.{self.addresses // 4 % 250 + 1}", f"10.65.{high}.{low + 1}"


def volume_month(volume: t.Mapping[str, t.Any]) -> Decimal:
    """Dollars a month of a network volume: less for each GB beyond the first TB. What other types than STANDARD cost is not known; here the
    same."""
    first = min(int(volume["size"]), 1000)
    return Decimal("0.07") * first + Decimal("0.05") * (int(volume["size"]) - first)


def new_id(world: World) -> str:
    """Fourteen small letters and digits, as pods have them."""
    return uuid.UUID(int=world.random.getrandbits(128)).hex[:14]


def check_key(world: World, header: str, method: str) -> None:
    """401 for a key nobody knows; 403 for one that may not do this. ``RUNPOD_READ_ONLY_KEY`` and ``RUNPOD_RESTRICTED_KEY`` (no right on
    anything) are accepted when the world has such secrets."""
    scheme, _blank, key = header.partition(" ")
    secrets = world.secrets
    if scheme.lower() == "bearer" and key.strip():
        if key.strip() == secrets.get("RUNPOD_API_KEY"):
            return
        if key.strip() == secrets.get("RUNPOD_READ_ONLY_KEY"):
            if method in ("GET", "HEAD"):
                return
            raise Problem(403, "the API key is read only")
        if key.strip() == secrets.get("RUNPOD_RESTRICTED_KEY"):
            raise Problem(403, "the API key has no permission for this resource")
    raise Problem(401, "invalid or missing API key")
