# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every wait for machines does, be they nodes or services: facts into the record, prices checked, secrets taken back, failures
booked and terminated."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
from datetime import datetime

from ...core.errors import ApiError, TgpError
from ...diagnosis.evidence.collect import Explained, JoinEnd, explain_all
from ...mesh.base import find_device
from ...model import Claim, Deletion, Device, Instance, InstanceState, Phase
from ...model.reasons import Reason
from ...observe.clients import Feed
from ...observe.context import Context
from ...planner.claims.record import LONGEST_WORDS, advance, mesh_tags
from ...planner.cost import cost
from ...planner.offers import launch_backoff
from ...planner.offers.ranking import price_verdict
from ...providers.registry import CAPABILITIES
from ...units.values import print_money
from ..launch.payload import take_back
from ..teardown.teardown import teardown_all


@dataclasses.dataclass(frozen=True)
class Joined:
    """How one claim ended in this step: ``result`` is ready, failed (terminated) or waiting (the run ended before it was decided).
    ``seen`` is when each step was first seen, ``explained`` why a failed one failed. ``left``: its machine may still be there."""

    claim: Claim
    result: str
    message: str = ""
    seen: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    explained: Explained | None = None
    left: bool = False


class End(t.Protocol):
    """How the wait for one machine ended: ``step`` is the last one reached, ``message`` why it is not further."""

    ready: bool
    step: str
    message: str
    seconds: float
    seen: dict[str, datetime]
    hopeless: str


class ListedFacts(t.NamedTuple):
    """What cloud and mesh list of a machine. ``listed_at``: when the cloud's list was asked for, None when it never could be read."""

    instance: Instance | None
    listed_at: datetime | None
    device: Device | None


class Following:
    """One wait for several claims. ``claims`` are the records as last written."""

    def __init__(self, context: Context, claims: t.Sequence[Claim]) -> None:
        self.context = context
        self.claims = {claim.name: claim for claim in claims}
        self.order = [claim.name for claim in claims if claim.phase is not Phase.READY]
        self._lock = threading.RLock()
        self._meshed = {claim.name for claim in claims if claim.mesh_key_id or claim.is_service}
        self._devices: Feed[Device] = Feed(self._read_devices, context.clock)
        self._hope = Hope()
        self._ended: dict[str, str] = {}
        self._explained: dict[str, Explained] = {}

    # ---- what is seen

    def _hold_lock(self) -> None:
        """LockLost ends the wait. A renewal that fails is tried again: to wait does no harm meanwhile."""
        try:
            self.context.lock.renew_if_due()
        except ApiError as error:
            self.context.progress.step("", "lock", f"not renewed yet: {error}", quiet=True)

    def _take_facts(self, name: str, since: datetime | None = None) -> ListedFacts:
        """What cloud and mesh list of a claim, noted in it. With ``since``, lists that lacked something are read again if older."""
        claim = self.claims[name]
        instance, listed_at = self._instance(claim, since if _lacks_facts(claim) else None)
        if instance is not None:
            self._take_instance(instance)
        device = self._device(claim, None if claim.mesh_device_id else since) if name in self._meshed else None
        if device is not None and not claim.mesh_device_id:
            self._note(name, mesh_device_id=device.id, mesh_seen=self.context.clock.now())
        return ListedFacts(instance, listed_at, device)

    def _take_late_facts(self, outcomes: t.Mapping[str, End]) -> None:
        """What came to be of complete machines while nobody looked; else the next run would note it. One list serves all of them: to read
        one for each as it became complete would cost a call per machine, squared where each of them is a call."""
        now = self.context.clock.now()
        for name in self.order:
            claim = self.claims[name]
            if outcomes[name].ready and (_lacks_facts(claim) or (name in self._meshed and not claim.mesh_device_id)):
                self._take_facts(name, since=now)

    def _instance(self, claim: Claim, since: datetime | None) -> tuple[Instance | None, datetime | None]:
        """As its cloud lists it, and the date of that list. One that a fresh list lacks (``since``) is asked for by its id: lists show new
        machines late."""
        listing = self.context.clients.listing(claim.cloud, since)
        if listing is None:
            return None, None
        instance = next((machine for machine in listing.items if machine.id == claim.instance_id), None)
        if instance is not None or since is None or not claim.instance_id:
            return instance, listing.asked
        try:
            instance = self.context.clients.cloud(claim.cloud).instance(claim.instance_id)
        except ApiError:
            instance = None
        return None if instance is None or instance.gone else instance, listing.asked

    def _device(self, claim: Claim, since: datetime | None) -> Device | None:
        listed = self._devices.items(since)
        if listed is None:
            return None
        return find_device(
            listed, hostname=claim.name, tags=mesh_tags(claim, self.context.specs), created_after=claim.launch_started
        ).device

    def _read_devices(self) -> t.Sequence[Device]:
        mesh = self.context.clients.mesh()
        return mesh.devices() if mesh is not None else ()

    def _take_instance(self, instance: Instance) -> None:
        """Facts of the instance into the claim, and the price really paid against the one shown (L-13)."""
        with self._lock:
            claim = self.claims[instance.name if instance.name in self.claims else self._name_of(instance)]
            changes: dict[str, t.Any] = {"ip": instance.ip} if instance.ip and instance.ip != claim.ip else {}
            base = cost.noted(claim, instance, CAPABILITIES[claim.cloud], self.context.clock.now())
            if claim.phase is Phase.PROVISIONING and instance.state is InstanceState.RUNNING:
                base = advance(base, Phase.BOOTING, self.context.clock.now(), f"{claim.cloud} says it runs")
            if changes or base is not claim:
                self._note(claim.name, base, **changes)
            pool = self.context.specs.pool_of(claim.pool)
            if (
                instance.price_hour is not None
                and pool is not None
                and price_verdict(instance.price_hour, pool.max_hourly_price) == "jump"
            ):
                limit = print_money(pool.max_hourly_price) if pool.max_hourly_price is not None else "none"
                self._ended[claim.name] = f"the price jumped to ${print_money(instance.price_hour)}/h, above maxHourlyPrice {limit}"

    def _name_of(self, instance: Instance) -> str:
        return next(name for name, claim in self.claims.items() if claim.instance_id == instance.id)

    def _reach(self, name: str, step: str, detail: str) -> None:
        """A step was reached: it is reported, and a sign of life makes the claim Joining."""
        with self._lock:
            claim = self.claims[name]
            if step in ("device", "csr", "node", "ready") and claim.phase in (Phase.PROVISIONING, Phase.BOOTING):
                self._note(name, advance(claim, Phase.JOINING, self.context.clock.now(), step))
        self.context.progress.step(name, step, detail, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)

    # ---- what is done

    def _take_back(self, claim: Claim) -> None:
        """The one-use key and the bootstrap token have done their work. A failure here leaves them to expire, and to the next reap."""
        try:
            mesh = self.context.clients.mesh() if claim.mesh_key_id else None
            if mesh is not None:
                mesh.delete_key(claim.mesh_key_id)
            if claim.token_id:
                take_back(self.context, claim.token_id)
        except TgpError as error:
            self.context.warn(f"{claim.name}: its used key or token could not be removed and expires by itself: {error}")

    def forget_secrets(self, claim: Claim) -> Joined:
        """The end of a join that was interrupted when its node was complete. What cannot be noted now is done again by the next run."""
        self._take_back(claim)
        try:
            self._write(claim.name, token_id="", mesh_key_id="")
        except ApiError as error:
            return Joined(claim, "waiting", f"its used key and token were taken back, which could not be noted: {error}")
        return Joined(self.claims[claim.name], "ready", "its used key and token were taken back")

    def _note(self, name: str, base: Claim | None = None, **changes: t.Any) -> None:
        """A fact for the record that is not lost when it cannot be written now: the next look, or the end of the wait, brings it again."""
        try:
            self._write(name, base, **changes)
        except ApiError as error:
            self.context.progress.step(name, "record", f"not written yet: {error}", quiet=True)

    def _write(self, name: str, base: Claim | None = None, **changes: t.Any) -> None:
        with self._lock:
            claim = self.context.store.write(dataclasses.replace(base or self.claims[name], **changes))
            self.claims[name] = claim
            self.context.records.remember(claim)

    # ---- the end

    def finish(self, outcomes: t.Mapping[str, End]) -> list[Joined]:
        """Ready ones are done; the others are explained, booked as failed joins and terminated in this very run. So are those whose
        price had jumped by the time they were ready."""
        self._take_late_facts(outcomes)
        now = self.context.clock.now()
        failed = [name for name in self.order if not outcomes[name].ready or name in self._ended]
        self._explain(failed, outcomes)
        unwritten = {name: problem for name in failed if (problem := self._fail(name, outcomes[name], now))}
        ending = [self.claims[name] for name in failed if name not in unwritten]
        given_back = {ended.claim.name: ended for ended in teardown_all(self.context, ending)}
        results = []
        for name in self.order:
            outcome = outcomes[name]
            if name not in failed:
                results.append(Joined(self.claims[name], "ready", f"after {outcome.seconds:.0f} s", outcome.seen))
                continue
            if name in unwritten:
                message = f"{self._why(name, outcome)} ({unwritten[name]})"
                results.append(Joined(self.claims[name], "failed", message, outcome.seen, self._explained.get(name), left=True))
                continue
            end = given_back[name]
            tail = "terminated" if end.result == "gone" else f"not terminated yet: {end.message}"
            message = f"{self._why(name, outcome)} ({tail})"
            left = end.result != "gone"
            results.append(Joined(end.claim, "failed", message, outcome.seen, self._explained.get(name), left=left))
        return results

    def _explain(self, failed: t.Sequence[str], outcomes: t.Mapping[str, End]) -> None:
        """Ask everybody once more about those that never came, while they still exist, and tell what is found. A price that jumped
        needs no explanation."""
        lost = {
            name: (self.claims[name], JoinEnd(outcome.step, outcome.message, dict(outcome.seen), outcome.hopeless))
            for name in failed
            if name not in self._ended and not (outcome := outcomes[name]).ready
        }
        now = self.context.clock.now()
        self._explained = explain_all(self.context, lost, lambda: self._devices.items(now))
        for explained in self._explained.values():
            for line in explained.lines:
                self.context.task.progress(line)

    def _why(self, name: str, outcome: End) -> str:
        explained = self._explained.get(name)
        seen = self._seen(name, outcome)
        return f"{seen} - {explained.cause}" if explained is not None else seen

    def _seen(self, name: str, outcome: End) -> str:
        return f"{outcome.step}: {self._ended[name] if outcome.ready else outcome.message}"

    def _booked(self, name: str, outcome: End) -> str:
        """What stays in claim and ledger, which have little room: the cause and the place of the evidence come first."""
        explained = self._explained.get(name)
        seen = self._seen(name, outcome)
        return (f"{explained.booked} ({seen})" if explained is not None else seen)[:LONGEST_WORDS]

    def _fail(self, name: str, outcome: End, now: datetime) -> str:
        """Book a failed join; the problem when its record could not be written. Then reap.yml finds it overdue and terminates it."""
        claim = self.claims[name]
        why = self._why(name, outcome)
        reason = Reason.PRICE_JUMP if name in self._ended else Reason.FAILED_JOIN
        failed = claim if claim.phase is Phase.READY else advance(claim, Phase.FAILED, now, why)
        self.context.progress.step(name, "failed", why, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)
        try:
            self._write(name, failed, deletion=Deletion(reason=reason, requested=now, last_error=self._booked(name, outcome)))
        except ApiError as error:
            return f"not terminated yet: {error}"
        try:
            for key in launch_backoff.keys_after(claim.offer, "price" if reason == Reason.PRICE_JUMP else "join"):
                self.context.records.block(key, "price" if reason == Reason.PRICE_JUMP else "join")
            if not outcome.ready:
                self.context.records.failed_join(claim.pool)
        except ApiError as error:  # the machine costs money, so it goes all the same
            self.context.warn(f"{name}: its offer could not be put on the block list, so it may be taken again: {error}")
        return ""


def _lacks_facts(claim: Claim) -> bool:
    """Whether its cloud has not reported its price or address yet. It never reports the address of an own machine."""
    return claim.price_paid is None or (CAPABILITIES[claim.cloud].rented and not claim.ip)


# ---- when there is no use in waiting for a machine any longer, although its time is not over: the cloud itself has given it up

_OVER = (InstanceState.TERMINATED, InstanceState.FAILED, InstanceState.STOPPED)
_MISSING = 60.0  # seconds a machine that was listed before must be absent from good lists
_LISTED_LATE = 600.0  # seconds after the create call in which a new machine may not be listed yet
_BROKEN = 300.0  # seconds of a complaint of the cloud, with no sign of life; some complaints pass


class Hope:
    """Remembers since when something speaks against each machine of one wait."""

    def __init__(self) -> None:
        self._listed: set[str] = set()
        self._missing: dict[str, datetime] = {}
        self._broken: dict[str, datetime] = {}

    def lost(self, claim: Claim, instance: Instance | None, listed_at: datetime | None, *, alive: bool) -> str:
        """Why to give up, empty while there is hope. ``listed_at`` is when the cloud's list that (not) shows ``instance`` was asked for,
        None when it never could be; ``alive``: its mesh device is online."""
        if instance is None:
            return self._absent(claim, listed_at)
        self._listed.add(claim.name)
        self._missing.pop(claim.name, None)
        state = instance.raw_state or instance.state.value
        if instance.interrupted:
            return f"{claim.cloud} took its GPUs away ({state})"
        if instance.state in _OVER:
            return f"{claim.cloud} calls the machine {state} {instance.problem}".strip()
        if not instance.problem or alive or listed_at is None:
            self._broken.pop(claim.name, None)
            return ""
        since = self._broken.setdefault(claim.name, listed_at)
        passed = (listed_at - since).total_seconds()
        return (
            f"{claim.cloud} calls the machine {state} for {passed:.0f} s, and nothing is heard of it" if passed >= _BROKEN else ""
        )

    def _absent(self, claim: Claim, listed_at: datetime | None) -> str:
        if listed_at is None or not CAPABILITIES[claim.cloud].rented:
            return ""
        since = self._missing.setdefault(claim.name, listed_at)
        started = claim.launch_started or claim.created
        age = (listed_at - started).total_seconds()
        young = age < (CAPABILITIES[claim.cloud].list_delay if claim.name in self._listed else _LISTED_LATE)
        if young or (listed_at - since).total_seconds() < _MISSING:
            return ""
        return f"{claim.cloud} does not list the machine {claim.instance_id} any more"
