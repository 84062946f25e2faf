# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one truth of the sandbox: which machines exist, what they cost, and what every emulator shows a view of."""

from __future__ import annotations

import dataclasses
import random
import threading
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from .clock import ClockClosed, SimClock
from .tailnet import Tailnet


@dataclasses.dataclass
class Offer:
    """A machine type in a region: ``stock`` machines are left. ``price_hour`` is what is really billed.

    ``boot_seconds`` until the machine is up. ``details`` may hold timings of the later steps (see life.py) and what the cloud's
    emulator needs besides (description, vcpus ...). Clouds that bill the disk apart keep ``storage_price_hour`` there (Decimal dollars per
    GB and hour).
    """

    cloud: str
    type: str
    region: str
    price_hour: Decimal
    gpu_count: int
    model: str
    memory_mib: int
    stock: int
    boot_seconds: float
    details: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    unit_seconds: int = 1  # what is billed whole once it has begun
    minimum_seconds: int = 0  # what is billed at least, of each power-on


@dataclasses.dataclass
class Machine:
    """A machine that exists or existed.

    ``state``: booting, active, unhealthy, stopped, preempted, terminating, terminated (own machines: off, starting, on, stopping).
    ``payload`` is what the cloud hands it at boot; an own machine keeps what it was given last. ``steps`` are (time, step, text) of its
    own boot story, ``console`` its boot log. ``created`` is when its bill (of this power-on) began, ``ended`` stops it;
    ``billed_before`` are seconds of earlier power-ons. ``destroyed`` = it left the cloud's lists. ``boots`` counts power-ons: a story
    of an earlier one must not go on; ``began`` is the last one in seconds of the world. ``rates`` are (since when, dollars per hour) of
    a machine whose price changes while it exists, oldest first; without any it is ``price_hour`` all the time. ``agreed`` is the
    offer's price when it was rented, if the offer has another by now. ``placed`` = when it ends, its offer's stock gets a place back.
    ``watch`` is called each time ``state`` was set: clouds whose bill depends on it change the rate there. ``down_gb`` and ``up_gb`` are its
    traffic so far, ``traffic_prices`` dollars per GB of each: an item of the bill beside the price per hour.
    """

    id: str
    cloud: str
    name: str
    hostname: str
    offer: Offer
    created: datetime
    state: str = "booting"
    payload: str | None = None
    ip: str | None = None
    private_ip: str | None = None
    ended: datetime | None = None
    destroyed: datetime | None = None
    details: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    steps: list[tuple[datetime, str, str]] = dataclasses.field(default_factory=list)
    console: list[str] = dataclasses.field(default_factory=list)
    thread: threading.Thread | None = None
    billed_before: float = 0.0
    boots: int = 0
    began: float = 0.0
    rates: list[tuple[datetime, Decimal]] = dataclasses.field(default_factory=list)
    agreed: Decimal | None = None
    placed: bool = True
    watch: t.Callable[[Machine], None] | None = None
    down_gb: Decimal = Decimal(0)
    up_gb: Decimal = Decimal(0)
    traffic_prices: tuple[Decimal, Decimal] = (Decimal(0), Decimal(0))

    def __setattr__(self, name: str, value: t.Any) -> None:
        super().__setattr__(name, value)
        if name == "state" and (watch := self.__dict__.get("watch")):
            watch(self)

    @property
    def price_hour(self) -> Decimal:
        """Dollars per hour it was rented for; what its offer costs others later is nothing to it."""
        return self.offer.price_hour if self.agreed is None else self.agreed

    def set_rate(self, now: datetime, dollars: Decimal) -> None:
        """From ``now`` on an hour costs so much, 0 = nothing. Until the first call it costs ``price_hour``.

        Time is then billed to the microsecond: units of billing and minimums hold only for machines whose price never changed.
        """
        since, before = self.rates[-1] if self.rates else (self.created, None)
        if before != dollars:
            self.rates.append((max(now, since), dollars))

    def rate(self) -> Decimal:
        """Dollars per hour now."""
        if self.ended is not None:
            return Decimal(0)
        return self.rates[-1][1] if self.rates else self.price_hour

    def bill(self, now: datetime) -> list[tuple[timedelta, Decimal]]:
        """How long it was billed at which price per hour, oldest first; for a machine whose price was set."""
        end = max(self.created, self.ended or now)
        starts = [(self.created, self.price_hour), *self.rates]
        stops = [moment for moment, _dollars in self.rates] + [end]
        return [(min(stop, end) - min(start, end), dollars) for (start, dollars), stop in zip(starts, stops, strict=True)]

    def billed_seconds(self, now: datetime) -> float:
        """Seconds billed so far, at whatever price; a started unit (``offer.unit_seconds``) is billed whole, and a power-on
        costs ``offer.minimum_seconds`` at least."""
        if self.rates:
            return sum((span for span, dollars in self.bill(now) if dollars), timedelta(0)).total_seconds()
        passed = max(timedelta(0), (self.ended or now) - self.created)
        if passed:
            passed = max(passed, timedelta(seconds=self.offer.minimum_seconds))
        units = -(-passed // timedelta(seconds=self.offer.unit_seconds))
        return self.billed_before + units * self.offer.unit_seconds

    def transfer(self, down_gb: Decimal, up_gb: Decimal = Decimal(0)) -> None:
        """So many GB come in and go out."""
        self.down_gb += down_gb
        self.up_gb += up_gb

    def traffic_cost(self) -> Decimal:
        """Dollars for traffic so far; :meth:`cost` does not hold them."""
        down, up = self.traffic_prices
        return self.down_gb * down + self.up_gb * up

    def cost(self, now: datetime) -> Decimal:
        """Dollars so far by its prices per hour, without traffic, not rounded."""
        if self.rates:
            micro = timedelta(microseconds=1)
            return sum((dollars * (span // micro) for span, dollars in self.bill(now)), Decimal(0)) / Decimal(3_600_000_000)
        return self.price_hour * Decimal(str(self.billed_seconds(now))) / Decimal(3600)


def cost_until(machine: Machine, when: datetime) -> Decimal:
    """Dollars a machine had cost at a moment."""
    if when <= machine.created:
        return Decimal(0)
    return dataclasses.replace(machine, ended=min(machine.ended or when, when)).cost(when)


class World:
    """State shared by all emulators. Hold ``lock`` while reading or changing it.

    ``on_boot`` is called (in a thread of its own) with each machine that starts to boot, ``on_end`` with each that ends or loses power;
    life.py sets both. ``secrets`` are the credentials the emulators accept, by the names of the environment file
    (LAMBDA_API_KEY, TS_OAUTH_CLIENT_ID ...). ``rate_limits`` False lets clients call as fast as they like. ``on_taken`` says by cloud what
    happens to a machine that the cloud takes back; without a word for it the machine ends. ``on_shutdown``: what
    happens to one whose own system powers it off.
    """

    def __init__(self, clock: SimClock | None = None, seed: int = 0) -> None:
        self.clock = clock or SimClock()
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.offers: list[Offer] = []
        self.machines: dict[str, Machine] = {}
        self._tailnet: Tailnet | None = None
        self.writes: list[tuple[datetime, str, str]] = []
        self.calls: dict[str, int] = {}
        self.secrets: dict[str, str] = {}
        self.rate_limits = True
        self.on_boot: t.Callable[[Machine], None] = lambda machine: None
        self.on_end: t.Callable[[Machine], None] = lambda machine: None
        self.on_taken: dict[str, t.Callable[[Machine], None]] = {}
        self.on_shutdown: dict[str, t.Callable[[Machine], object]] = {}

    @property
    def tailnet(self) -> Tailnet:
        """The world's tailnet, made when it has none yet."""
        with self.lock:
            if self._tailnet is None:
                self._tailnet = Tailnet(self.clock, self.random, lock=self.lock)
            return self._tailnet

    @tailnet.setter
    def tailnet(self, tailnet: Tailnet) -> None:
        self._tailnet = tailnet

    def rent(self, machine: Machine) -> Machine:
        """A machine comes into being and starts to boot; its bill starts now."""
        with self.lock:
            self._place(machine)
            self.machines[machine.id] = machine
        self._start(machine)
        return machine

    def store(self, machine: Machine, price_hour: Decimal) -> Machine:
        """A machine comes into being ``stopped``: it takes no stock, and costs that much an hour from the start."""
        with self.lock:
            machine.state, machine.placed = "stopped", False
            machine.set_rate(machine.created, price_hour)
            self.machines[machine.id] = machine
        return machine

    def halt(self, machine: Machine, price_hour: Decimal) -> bool:
        """A machine loses power and stays: ``stopped``, its stock free for others, from now on at that price. False when it has ended
        or is stopped already."""
        with self.lock:
            if machine.ended is not None or machine.state == "stopped":
                return False
            machine.state = "stopped"
            machine.set_rate(self.clock.now(), price_hour)
            self._leave(machine)
        self.clock.wake()
        self.on_end(machine)
        return True

    def resume(self, machine: Machine, price_hour: Decimal) -> None:
        """A stopped machine boots again, from now on at that price. LookupError when its place was taken meanwhile."""
        with self.lock:
            if machine.ended is not None or machine.state != "stopped":
                raise ValueError("only a stopped machine can be resumed")
            self._place(machine)
            machine.state = "booting"
            machine.set_rate(self.clock.now(), price_hour)
        self._start(machine)

    def _place(self, machine: Machine) -> None:
        if machine.offer.stock <= 0:
            raise LookupError("sold out")
        machine.offer.stock -= 1
        machine.placed = True

    def _leave(self, machine: Machine) -> None:
        if machine.placed:
            machine.offer.stock += 1
        machine.placed = False

    def boot(self, machine: Machine) -> None:
        """Power on a machine that exists already (own machines)."""
        with self.lock:
            self.machines[machine.id] = machine
        self._start(machine)

    def power_on(self, machine: Machine, payload: str | None = None) -> bool:
        """An own machine is switched on, with a new config or with the one it has. False when it is on already."""
        with self.lock:
            if machine.state in ("starting", "on"):
                return False
            now = self.clock.now()
            machine.billed_before = machine.billed_seconds(now)
            machine.created, machine.ended, machine.state = now, None, "starting"
            machine.payload = payload or machine.payload
        self.boot(machine)
        return True

    def power_off(self, machine: Machine, after: float = 0.0) -> bool:
        """An own machine is switched off: silent at once, ``off`` (and unbilled) ``after`` seconds. False when it is off already."""
        with self.lock:
            if machine.state in ("stopping", "off"):
                return False
            machine.state = "stopping"
            boots, began = machine.boots, self.clock.seconds()
        self.clock.wake()
        self.on_end(machine)

        def finish() -> None:
            try:
                self.clock.sleep(after, began)
            except ClockClosed:
                return
            with self.lock:
                if machine.boots == boots and machine.state == "stopping":
                    machine.state, machine.ended = "off", self.clock.now()

        if after > 0:
            threading.Thread(target=finish, name=f"power-off-{machine.name}", daemon=True).start()
        else:
            finish()
        return True

    def _start(self, machine: Machine) -> None:
        with self.lock:
            machine.boots += 1
            machine.began = self.clock.seconds()
            machine.steps.clear()  # at once: nobody shall take the story of the boot before for this one's
            machine.console.clear()
        machine.thread = threading.Thread(target=self.on_boot, args=(machine,), name=f"machine-{machine.name}", daemon=True)
        machine.thread.start()

    def release(self, machine: Machine) -> None:
        """The machine ends: bill stops, stock comes back, its kubelet and mesh client fall silent."""
        with self.lock:
            if machine.ended is not None:
                return
            machine.ended = self.clock.now()
            self._leave(machine)
        self.clock.wake()
        self.on_end(machine)
