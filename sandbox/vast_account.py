# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Vast.ai account holds besides instances, how fast it may be called, and the moods of the service that a scenario can choose."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
from decimal import Decimal

from .vast_errors import Refused
from .world import Machine, World

_SLACK = 0.1  # real seconds two calls may drift together on their way through threads and sockets
_FIRST_CONTRACT = 20_771_845
SEARCHES, SEARCH_SECONDS = 10, 60.0
INTERVALS = {"list": 1.0, "get": 2.0, "create": 4.5, "destroy": 3.0, "change": 1.0, "bid": 5.5, "ssh": 1.0, "variables": 3.0}
"""Least seconds between two calls of an endpoint."""
PENALTY = {"create": 12.0}


@dataclasses.dataclass
class Switches:
    """How this Vast behaves; the names are keys of a scenario.

    ``credit`` dollars paid in; ``spend_limit`` dollars per hour a new account may spend, 0 = no limit; ``ssh_key`` the account has one;
    ``two_factor`` and ``session_expired`` guard writes. ``auth_status`` of a bad key: 401 or 404. ``missing_rights`` are categories the
    key lacks, separated by blanks. ``list_after`` seconds until a new instance is listed; ``ports_after`` seconds from running to mapped
    ports; ``blank_ip``: the address stays blank. ``partial_lists``, ``delete_lies``, ``delete_refusals``, ``start_failures``: so many of the
    next answers are half a list, a success that is none, a failure with status 200, a contract that does not start. ``gone_as`` "null" or
    "404" for a destroyed instance; ``gone_twice`` "404" or "false" for a second DELETE. ``inexact_filters``: some offers slip through.
    ``pace_form`` of a 429: text, detail, json, or mixed (text and json in turn); ``retry_after`` adds the header, and its number to JSON.
    ``search_quota`` searches a day, 0 = no limit.
    ``low_bid_status`` of a bid too low. ``boot_error_text`` is what a boot that failed says; ``dead_status`` what a dead one shows.
    ``log_seconds`` until requested logs can be fetched, ``log_missing``: the status until then (404 or 403); ``empty_logs``: so many of the
    next logs are empty. ``onstart_runs``: virtual machines run their start script, ``onstart_after`` seconds after they run; what it prints
    is in the log if it goes ``onstart_to`` the console, stdout or both. ``guest``: what its commands say, like "driver= kernel=6.1.0"
    (vast_guest.py has the names). ``kept_seconds``: after its end a stopped contract is kept so long.
    """

    credit: Decimal = Decimal(1000)
    spend_limit: Decimal = Decimal(0)
    ssh_key: bool = True
    two_factor: bool = False
    session_expired: bool = False
    auth_status: int = 401
    missing_rights: str = ""
    list_after: float = 60.0
    ports_after: float = 4.0
    blank_ip: bool = False
    partial_lists: int = 0
    delete_lies: int = 0
    delete_refusals: int = 0
    start_failures: int = 0
    gone_as: str = "null"
    gone_twice: str = "404"
    inexact_filters: bool = False
    pace_form: str = "text"
    retry_after: bool = False
    search_quota: int = 0
    low_bid_status: int = 400
    boot_error_text: str = "Error response from daemon: failed to create task: OCI runtime create failed"
    dead_status: str = "offline"
    log_seconds: float = 1.0
    log_missing: int = 404
    empty_logs: int = 0
    onstart_runs: bool = True
    onstart_after: float = 30.0
    onstart_to: str = "both"
    guest: str = ""
    kept_seconds: float = 48 * 3600.0

    CHOICES: t.ClassVar[dict[str, tuple[t.Any, ...]]] = {
        "auth_status": (401, 404),
        "gone_as": ("null", "404"),
        "gone_twice": ("404", "false"),
        "pace_form": ("text", "detail", "json", "mixed"),
        "dead_status": ("offline", "exited", "unknown"),
        "log_missing": (403, 404),
        "onstart_to": ("both", "console", "stdout"),
    }

    def turn(self, chosen: t.Mapping[str, t.Any]) -> None:
        """Set some of them. ValueError names what cannot be."""
        known = {field.name: field.default for field in dataclasses.fields(self)}
        for name, value in chosen.items():
            if name not in known:
                raise ValueError(f"unknown key {name}; known are {', '.join(known)}")
            if name in self.CHOICES and value not in self.CHOICES[name]:
                raise ValueError(f"{name}: {value!r} should be one of {', '.join(map(str, self.CHOICES[name]))}")
            setattr(self, name, value)


@dataclasses.dataclass
class Account:
    """``ssh_keys`` of the account and its environment ``variables``, which every new machine gets; ``logs`` are (from when, text) by token.
    ``refused`` counts the calls that came too early. Hold the world's lock.
    """

    switches: Switches = dataclasses.field(default_factory=Switches)
    ssh_keys: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    logs: dict[str, tuple[float, str]] = dataclasses.field(default_factory=dict)
    refused: int = 0
    contracts: int = 0
    searches: int = 0
    day: int = 0
    _free: dict[tuple[str, str], float] = dataclasses.field(default_factory=dict)
    _punished: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    _recent: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @classmethod
    def of(cls, world: World) -> Account:
        """The account of this world, made when first asked for."""
        with world.lock:
            account = world.__dict__.get("vast_account")
            if account is None:
                account = world.__dict__["vast_account"] = cls()
                account.add_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFNhbmRib3hLZXlXaXRob3V0UHJpdmF0ZVBhcnQx tgp")
            return t.cast(Account, account)

    def add_key(self, public: str) -> dict[str, t.Any]:
        number = max((int(key["id"]) for key in self.ssh_keys), default=900) + 1
        key = {"id": number, "user_id": 100123, "public_key": public, "deleted_at": None}
        self.ssh_keys.append(key)
        return key

    def keys(self) -> list[dict[str, t.Any]]:
        return self.ssh_keys if self.switches.ssh_key else []

    def next_contract(self) -> int:
        self.contracts += 1
        return _FIRST_CONTRACT + self.contracts - 1

    def left(self, world: World) -> Decimal:
        """Dollars not spent yet."""
        now = world.clock.now()
        return self.switches.credit - sum((one.cost(now) + one.traffic_cost() for one in contracts(world)), Decimal(0))

    # ---- pace

    def check_pace(self, world: World, endpoint: str, caller: str) -> None:
        """Refuse a call that comes too early after the last one of this endpoint."""
        if not world.rate_limits or endpoint not in (*INTERVALS, "search"):
            return
        now, slack = world.clock.seconds(), _SLACK * world.clock.speed
        with self._lock:
            if endpoint == "search":
                early = self._searched(caller, now, slack)
            else:
                early = self._called(endpoint, caller, now, slack)
        if early > 0:
            raise self._too_often(endpoint, early)

    def _called(self, endpoint: str, caller: str, now: float, slack: float) -> float:
        key = (endpoint, caller)
        free = self._free.get(key, 0.0)
        if now + slack < free:
            if key not in self._punished:  # once: who goes on asking does not wait for ever
                self._punished.add(key)
                free = self._free[key] = max(free, now + PENALTY.get(endpoint, 0.0))
            return free - now
        self._punished.discard(key)
        self._free[key] = max(free, now - slack) + INTERVALS[endpoint]
        return 0.0

    def _searched(self, caller: str, now: float, slack: float) -> float:
        recent = [moment for moment in self._recent.get(caller, []) if moment > now + slack - SEARCH_SECONDS]
        self._recent[caller] = recent
        if len(recent) >= SEARCHES:
            return recent[0] + SEARCH_SECONDS - now
        recent.append(now)
        return 0.0

    def _too_often(self, endpoint: str, early: float) -> Refused:
        threshold = INTERVALS.get(endpoint, SEARCH_SECONDS / SEARCHES)
        said, form, wait = (
            f"API requests too frequent: endpoint threshold={threshold}",
            self.switches.pace_form,
            max(1, round(early)),
        )
        with self._lock:
            self.refused += 1
            if form == "mixed":
                form = "text" if self.refused % 2 else "json"
        refusal = Refused(429, "rate_limit_exceeded", said, text=form == "text")
        if form == "detail":
            refusal.body = {"detail": said}
        if self.switches.retry_after:
            refusal.headers["Retry-After"] = str(wait)
            refusal.body["retry_after"] = wait
        return refusal

    def check_quota(self, world: World) -> None:
        """The searches of a day; counted anew at midnight UTC."""
        today = int(world.clock.seconds() // 86400)
        with self._lock:
            if self.day != today:
                self.day, self.searches = today, 0
            self.searches += 1
            if not self.switches.search_quota or self.searches <= self.switches.search_quota:
                return
        refusal = Refused(429, "search_quota_exceeded", "Daily search quota exceeded.")
        refusal.headers["X-RateLimit-Reset"] = str((today + 1) * 86400)
        raise refusal


def contracts(world: World) -> list[Machine]:
    """All instances there ever were, oldest first."""
    return [machine for machine in world.machines.values() if machine.cloud == "vast"]


def living(world: World) -> list[Machine]:
    return [machine for machine in contracts(world) if machine.ended is None]
