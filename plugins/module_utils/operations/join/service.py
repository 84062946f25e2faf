# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows rented containers until they are services (lane service): in the mesh, answering, published in the cluster. One loop for all."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from ...core.errors import LockLost, LostAnswer, RateLimited, ServerError, TgpError, Unreachable
from ...model import Claim, Device, Phase, Probe
from ...observe.probe import Prober
from ...planner.claims.record import advance, in_force
from ...planner.provisioning.registration import timeout
from ...planner.provisioning.service import failure_class
from ...providers.registry import CAPABILITIES
from .service_endpoints import publish
from .tracker import JoinTracker

_EVERY = 5.0  # seconds between two looks at one machine
_WORKERS = 32
_PASSING = (ServerError, LostAnswer, Unreachable, RateLimited)
_FAILED = "tgp-fail "


@dataclasses.dataclass
class Wait:
    """How far one machine came: ``step`` is the last one reached (launched, instance, device, healthy), ``message`` why it is not
    further. ``undecided``: its time is over, and what would have to be asked cannot be reached."""

    deadline: datetime
    started: datetime
    ready: bool = False
    undecided: bool = False
    step: str = "launched"
    message: str = "nothing was seen of it"
    seconds: float = 0.0
    hopeless: str = ""
    looked: datetime | None = None
    asked: datetime | None = None
    seen: dict[str, datetime] = dataclasses.field(default_factory=dict)


class ServiceJoins:
    """The containers of one step that become services; :meth:`add` and :meth:`close` may be called by other threads."""

    def __init__(self, tracker: JoinTracker) -> None:
        self.context, self._tracker = tracker.context, tracker
        self._prober = Prober(self.context.task)
        self._waits: dict[str, Wait] = {}
        self._open: list[str] = []
        self._ended: dict[str, Wait] = {}
        self._asking: dict[str, Future[Probe]] = {}
        self._changed = threading.Condition()
        self._arrived: list[Claim] = []
        self._closed = False

    def add(self, claim: Claim) -> None:
        with self._changed:
            self._arrived.append(claim)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        """What ended may be replaced: more may be added until the next :meth:`close`."""
        with self._changed:
            self._closed = False

    def _wait_of(self, claim: Claim) -> Wait:
        started = claim.launched
        seconds = timeout(claim, in_force(claim, self.context.specs), CAPABILITIES[claim.cloud])
        return Wait(started + timedelta(seconds=seconds), started)

    def run(self) -> None:
        """Returns when all have ended and nothing more is added."""
        with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="serve") as pool:
            while self._take_arrivals():
                self._tracker.hold_lock()
                for name in list(self._open):
                    self._look(name, pool)
                self._tell_ends()
                if self._open:
                    self._pause()

    def _take_arrivals(self) -> bool:
        """What was added since the last pass; waits while there is nothing to follow. False = it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._arrived or self._closed)
            arrived, self._arrived = self._arrived, []
        for claim in arrived:
            self._waits[claim.name] = self._wait_of(claim)
            self._open.append(claim.name)
        return bool(self._open)

    def _tell_ends(self) -> None:
        ended, self._ended = self._ended, {}
        for name, wait in ended.items():
            if wait.undecided:
                self._tracker.undecided(name, f"{wait.step}: {wait.message}")
        self._tracker.end({name: wait for name, wait in ended.items() if not wait.undecided})

    def _pause(self) -> None:
        clock = self.context.clock
        if self._asking:
            concurrent.futures.wait(
                self._asking.values(), timeout=max(0.005, _EVERY / clock.speed), return_when=concurrent.futures.FIRST_COMPLETED
            )
        else:
            clock.sleep(_EVERY)

    # ---- one look at one machine

    def _look(self, name: str, pool: ThreadPoolExecutor) -> None:
        wait, asking = self._waits[name], self._asking.get(name)
        if asking is not None:
            if not asking.done():
                return
            del self._asking[name]
            self._answered(name, asking)
            if wait.ready:
                return
        now = self.context.clock.now()
        late = now >= wait.deadline
        if wait.looked is not None and (now - wait.looked).total_seconds() < _EVERY and not wait.looked < wait.deadline <= now:
            return
        wait.looked = now
        instance, listed_at, device = self._tracker.take_facts(name, since=wait.deadline if late else None)
        claim = self._tracker.claims[name]
        online = device is not None and device.online is True
        hopeless = self._tracker.price_jumps.get(name) or self._tracker.hope.lost(claim, instance, listed_at, alive=online)
        if hopeless:
            wait.message = wait.hopeless = hopeless
            self._close(name)
            return
        if instance is not None:
            self._step(name, "instance", instance.state_word)
        if device is not None:
            self._step(name, "device", f"{device.name or device.hostname} {'online' if online else 'not online'}")
        if online and device is not None and device.addresses:
            if self._is_due(wait, now):
                wait.asked = now
                self._asking[name] = pool.submit(self._ask, name, device)
                return
        else:
            wait.message = f"{failure_class(claim, instance, device)}: {self._where(device)}"
        if late:
            self._expire(name, online)

    @staticmethod
    def _is_due(wait: Wait, now: datetime) -> bool:
        """Every few seconds, and once more when its time is over: facts beat the clock."""
        if wait.asked is None or (now - wait.asked).total_seconds() >= _EVERY:
            return wait.asked is None or wait.asked < wait.deadline
        return wait.asked < wait.deadline <= now

    @staticmethod
    def _where(device: Device | None) -> str:
        return "it is not in the mesh yet" if device is None else "its mesh device is not online"

    def _expire(self, name: str, online: bool) -> None:
        wait = self._waits[name]
        if not online and self._tracker.devices.problem:
            wait.undecided, wait.message = True, f"its time is over, but the mesh cannot be read: {self._tracker.devices.problem}"
        self._close(name)

    def _close(self, name: str) -> None:
        wait = self._waits[name]
        wait.seconds = (self.context.clock.now() - wait.started).total_seconds()
        self._open.remove(name)
        self._ended[name] = wait
        if not wait.ready and not wait.undecided:
            words = self._last_words(self._tracker.claims[name])
            wait.message = f"{wait.message}; the container says: {words}" if words else wait.message

    def _last_words(self, claim: Claim) -> str:
        """What our start script said last, if it failed and the cloud shows logs."""
        try:
            text = self.context.clients.cloud(claim.cloud).console(claim.instance_id) if claim.instance_id else None
        except TgpError:
            return ""  # a log is good to have, no more
        failures = [line.partition(_FAILED)[2] for line in (text or "").splitlines() if _FAILED in line]
        return failures[-1][:300] if failures else ""

    def _step(self, name: str, step: str, detail: str) -> None:
        wait = self._waits[name]
        if step not in wait.seen:
            wait.seen[step] = self.context.clock.now()
            wait.step = step
            self._tracker.reach(name, step, detail)

    # ---- asking, beside the loop

    def _ask(self, name: str, device: Device) -> Probe:
        """Ask the health path; a service that answers is published and taken for usable at once, whatever the others do."""
        claim = self._tracker.claims[name]
        pool = self.context.specs.pool_of(claim.pool)
        if pool is None or pool.service is None:
            return Probe(None, f"no document says what the services of {claim.pool} run")
        probe = self._prober.health(pool.service, device)
        if probe.healthy:
            publish(self.context, claim, device)
            self._complete(name, device)
        return probe

    def _answered(self, name: str, asking: Future[Probe]) -> None:
        wait = self._waits[name]
        error = asking.exception()
        if isinstance(error, LockLost) or (error is not None and not isinstance(error, TgpError)):
            raise error
        if error is not None:  # a passing fault must not cost a machine that works: it is tried again until its time is over
            self._step(name, "healthy", "its health path answers")
            wait.message = f"it works, and could not be published: {error}"
            wait.undecided = isinstance(error, _PASSING) and wait.asked is not None and wait.asked >= wait.deadline
            return
        probe = asking.result()
        if probe.healthy:
            wait.ready, wait.step, wait.message = True, "healthy", ""
            self._close(name)
        else:
            wait.message = f"unhealthy: {probe.detail}"

    def _complete(self, name: str, device: Device) -> None:
        now = self.context.clock.now()
        self._tracker.take_facts(name)
        self._tracker.take_back(self._tracker.claims[name])

        def complete(claim: Claim) -> Claim:
            joining = claim if claim.phase is Phase.JOINING else advance(claim, Phase.JOINING, now, "device")
            return dataclasses.replace(
                advance(joining, Phase.READY, now, "its health path answers"), mesh_device_id=device.id, mesh_seen=claim.mesh_seen or now,
                registered=claim.registered or now, initialized=now, token_id="", mesh_key_id="",
            )  # fmt: skip

        claim = self._tracker.write(name, complete)
        self.context.progress.step(
            name,
            "joined",
            "the service answers and is published",
            since=claim.launch_started,
            price_hour=claim.price,
            cloud=claim.cloud,
        )
