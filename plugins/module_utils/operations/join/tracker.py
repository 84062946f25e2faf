# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with every machine that is on its way, be it a node or a service: facts into the record, prices checked, secrets taken back,
and the end of its join. A failed one is explained, booked and terminated at once, while others still boot."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

from ...core.errors import ApiError, LockLost, TgpError
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
from ...providers.base import KeepsUserData
from ...providers.registry import CAPABILITIES
from ...units.values import print_money
from ..launch.payload import take_back
from ..teardown.teardown import teardown_all
from .acceptance import Rejected
from .claim_writes import Change, ClaimWrites


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


_ENDING = 4  # batches of machines that are ended at a time


class JoinTracker:
    """All joins of one step. ``claims`` are the records with the facts that are not written yet. ``devices`` is the mesh's list, ``hope``
    knows when to give up, ``price_jumps`` why a machine is too dear to stay, ``rejected`` why its acceptance test
    failed, and ``untested`` why it gave no result.

    :meth:`track` takes a claim in, :meth:`end` is called with what ended, and :meth:`results` returns how each claim ended. All may be
    called by several threads. Leaving it as a context manager waits for terminations that are under way.

    ``on_failing`` is called when machines have failed, before :meth:`end` returns; ``on_failed`` later, once for each such call, with those
    that are gone by then.
    """

    def __init__(
        self, context: Context, on_failing: t.Callable[[], None], on_failed: t.Callable[[t.Sequence[Claim]], None]
    ) -> None:
        self.context = context
        self._on_failing, self._on_failed = on_failing, on_failed
        self._writes = ClaimWrites(context, self.hold_lock)
        self.claims = self._writes.claims
        self._meshed: set[str] = set()
        self.devices: Feed[Device] = Feed(self._read_devices, context.clock)
        self.hope = Hope()
        self.price_jumps: dict[str, str] = {}
        self.rejected: dict[str, Rejected] = {}
        self.untested: dict[str, str] = {}
        self._explained: dict[str, Explained] = {}
        self._results: dict[str, Joined] = {}
        self._late: dict[str, End] = {}
        self._undecided: dict[str, str] = {}
        self._endings: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(max_workers=_ENDING, thread_name_prefix="end")

    def __enter__(self) -> JoinTracker:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        """A wait that was broken off leaves its facts in the claims, unless the lock is lost: then they are another run's."""
        if isinstance(error, Exception) and not isinstance(error, LockLost):
            with contextlib.suppress(TgpError):
                self._writes.flush()
        self._pool.shutdown()
        self._writes.close()

    def track(self, claim: Claim) -> None:
        """Take it in. One that is Ready already only loses what let it in."""
        self._writes.add(claim)
        if claim.mesh_key_id or claim.is_service:
            self._meshed.add(claim.name)
        if claim.phase is Phase.READY:
            self._endings.append(self._pool.submit(self._forget_secrets, claim))

    def end(self, outcomes: t.Mapping[str, End]) -> None:
        """These have ended: ready ones are done, the others are terminated beside the waiting for the rest."""
        failed = {name: outcome for name, outcome in outcomes.items() if not outcome.ready or name in self.price_jumps}
        for name, outcome in outcomes.items():
            if name not in failed:
                self._late[name] = outcome
        if failed:
            self._writes.leave(failed)
            self._on_failing()
            self._endings.append(self._pool.submit(self._end_failed, failed))

    def undecided(self, name: str, message: str) -> None:
        """Its time is over, and what would decide cannot be asked: the next run goes on with it."""
        self._undecided[name] = message

    def results(self) -> list[Joined]:
        """One for each claim, in the order in which they came. Waits for the terminations; their LockLost is raised here."""
        self._take_late_facts()
        for ending in self._endings:
            ending.result()
        for name, message in self._undecided.items():
            self._results[name] = Joined(self.claims[name], "waiting", message)
        return [self._results[name] for name in self.claims if name in self._results]

    def _take_late_facts(self) -> None:
        """What came to be of complete machines while nobody looked; else the next run would note it. One list serves all of them: to read
        one for each as it became complete would cost a call per machine, squared where each of them is a call."""
        complete, self._late = self._late, {}
        now = self.context.clock.now()
        for name in complete:
            claim = self.claims[name]
            if _lacks_facts(claim) or (name in self._meshed and not claim.mesh_device_id):
                self.take_facts(name, since=now)
        jumped = {name: outcome for name, outcome in complete.items() if name in self.price_jumps}
        self._writes.leave(jumped)
        self._writes.flush()
        for name, outcome in complete.items():
            if name not in jumped:
                self._results[name] = Joined(self.claims[name], "ready", f"after {outcome.seconds:.0f} s", outcome.seen)
        if jumped:
            self._fail_all(jumped)

    # ---- what is seen

    def hold_lock(self) -> None:
        """LockLost ends the wait. A renewal that fails is tried again: to wait does no harm meanwhile."""
        try:
            self.context.lock.renew_if_due()
        except ApiError as error:
            self.context.progress.step("", "lock", f"not renewed yet: {error}", quiet=True)

    def take_facts(self, name: str, since: datetime | None = None) -> ListedFacts:
        """What cloud and mesh list of a claim, noted in it. With ``since``, lists that lacked something are read again if older."""
        claim = self.claims[name]
        instance, listed_at = self._instance(claim, since if _lacks_facts(claim) else None)
        if instance is not None:
            self._take_instance(name, instance)
        device = self._device(claim, None if claim.mesh_device_id else since) if name in self._meshed else None
        if device is not None and not claim.mesh_device_id:
            self._writes.note(name, _with_device(device, self.context.clock.now()))
        return ListedFacts(instance, listed_at, device)

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
        listed = self.devices.items(since)
        if listed is None:
            return None
        return find_device(
            listed, hostname=claim.name, tags=mesh_tags(claim, self.context.specs), created_after=claim.launch_started
        ).device

    def _read_devices(self) -> t.Sequence[Device]:
        mesh = self.context.clients.mesh()
        return mesh.devices() if mesh is not None else ()

    def _take_instance(self, name: str, instance: Instance) -> None:
        """Facts of the instance into the claim, and the price really paid against the one shown (L-13)."""
        now = self.context.clock.now()

        def learn(claim: Claim) -> Claim:
            claim = cost.noted(claim, instance, CAPABILITIES[claim.cloud], self.context.clocks.billed(now))
            if claim.phase is Phase.PROVISIONING and instance.state is InstanceState.RUNNING:
                claim = advance(claim, Phase.BOOTING, now, f"{claim.cloud} says it runs")
            return dataclasses.replace(claim, ip=instance.ip) if instance.ip and instance.ip != claim.ip else claim

        self._writes.note(name, learn)
        pool = self.context.specs.pool_of(self.claims[name].pool)
        if (
            instance.price_hour is not None
            and pool is not None
            and price_verdict(instance.price_hour, pool.max_hourly_price) == "jump"
        ):
            limit = print_money(pool.max_hourly_price) if pool.max_hourly_price is not None else "none"
            self.price_jumps[name] = f"the price jumped to ${print_money(instance.price_hour)}/h, above maxHourlyPrice {limit}"

    def reach(self, name: str, step: str, detail: str) -> None:
        """A step was reached: it is reported, and a sign of life makes the claim Joining."""
        if step in ("device", "csr", "node", "ready"):
            self._writes.note(name, _joining(step, self.context.clock.now()))
        claim = self.claims[name]
        self.context.progress.step(name, step, detail, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)

    # ---- what is done

    def take_back(self, claim: Claim) -> None:
        """The one-use key and the bootstrap token have done their work. A failure here leaves them to expire, and to the next reap."""
        try:
            mesh = self.context.clients.mesh() if claim.mesh_key_id else None
            if mesh is not None:
                mesh.delete_key(claim.mesh_key_id)
            if claim.token_id:
                take_back(self.context, claim.token_id)
        except TgpError as error:
            self.context.warn(f"{claim.name}: its used key or token could not be removed and expires by itself: {error}")
        self._erase_user_data(claim)

    def _erase_user_data(self, claim: Claim) -> None:
        """Where a cloud goes on showing it: any pod with the network of the host can read it, and so can who has the account's key."""
        facts = CAPABILITIES.get(claim.cloud)
        if facts is None or not facts.user_data_stays or not claim.instance_id:
            return
        try:
            t.cast(KeepsUserData, self.context.clients.cloud(claim.cloud)).erase_user_data(claim.instance_id)
        except TgpError as error:
            self.context.warn(f"{claim.name}: its user data could not be emptied, and its cloud goes on showing it: {error}")

    def _forget_secrets(self, claim: Claim) -> None:
        """The end of a join that was interrupted when its node was complete. What cannot be noted now is done again by the next run."""
        self.take_back(claim)
        try:
            self.write(claim.name, lambda claim: dataclasses.replace(claim, token_id="", mesh_key_id=""))
        except ApiError as error:
            self.undecided(claim.name, f"its used key and token were taken back, which could not be noted: {error}")
            return
        self._results[claim.name] = Joined(self.claims[claim.name], "ready", "its used key and token were taken back")

    def write(self, name: str, change: Change) -> Claim:
        """Store the claim as noted, with ``change``; what is noted and not due goes with it."""
        return self._writes.write(name, change)

    # ---- the end

    def _end_failed(self, failed: t.Mapping[str, End]) -> None:
        gone: list[Claim] = []
        try:
            gone = self._fail_all(failed)
        finally:
            self._on_failed(gone)

    def _fail_all(self, failed: t.Mapping[str, End]) -> list[Claim]:
        """Explained, booked as failed joins and terminated in this very run. So are those whose price had jumped by the time they were
        ready. Returns those that are gone."""
        now = self.context.clock.now()
        self._explain(failed)
        unwritten = {name: problem for name, outcome in failed.items() if (problem := self._fail(name, outcome, now))}
        ending = [self.claims[name] for name in failed if name not in unwritten]
        given_back = {ended.claim.name: ended for ended in teardown_all(self.context, ending)}
        for name, outcome in failed.items():
            if name in unwritten:
                claim, tail, left = self.claims[name], unwritten[name], True
            else:
                end = given_back[name]
                claim, left = end.claim, end.result != "gone"
                tail = f"not terminated yet: {end.message}" if left else "terminated"
            message = f"{self._why(name, outcome)} ({tail})"
            self._results[name] = Joined(claim, "failed", message, outcome.seen, self._explained.get(name), left=left)
        return [end.claim for end in given_back.values() if end.result == "gone"]

    def _explain(self, failed: t.Mapping[str, End]) -> None:
        """Ask everybody once more about those that never came, while they still exist, and tell what is found. A price that jumped
        needs no explanation."""
        lost = {
            name: (
                self.claims[name],
                JoinEnd(
                    outcome.step,
                    outcome.message,
                    dict(outcome.seen),
                    outcome.hopeless,
                    test_log=self.rejected[name].log if name in self.rejected else None,
                    untested=self.untested.get(name, ""),
                ),
            )  # fmt: skip
            for name, outcome in failed.items()
            if name not in self.price_jumps and not outcome.ready
        }
        now = self.context.clock.now()
        found = explain_all(self.context, lost, lambda: self.devices.items(now))
        self._explained |= found
        for explained in found.values():
            for line in explained.lines:
                self.context.task.progress(line)

    def _why(self, name: str, outcome: End) -> str:
        explained = self._explained.get(name)
        seen = self._seen(name, outcome)
        return f"{seen} - {explained.cause}" if explained is not None else seen

    def _seen(self, name: str, outcome: End) -> str:
        return f"{outcome.step}: {self.price_jumps[name] if outcome.ready else outcome.message}"

    def _booked(self, name: str, outcome: End) -> str:
        """What stays in claim and ledger, which have little room: the cause and the place of the evidence come first."""
        explained = self._explained.get(name)
        seen = self._seen(name, outcome)
        return (f"{explained.booked} ({seen})" if explained is not None else seen)[:LONGEST_WORDS]

    def _fail(self, name: str, outcome: End, now: datetime) -> str:
        """Book a failed join; the problem when its record could not be written. Then reap.yml finds it overdue and terminates it."""
        claim = self.claims[name]
        why = self._why(name, outcome)
        reason = Reason.PRICE_JUMP if name in self.price_jumps else Reason.FAILED_JOIN
        explained = self._explained.get(name)
        cause = explained.diagnosis.code if explained is not None else ""
        deletion = Deletion(reason=reason, requested=now, last_error=self._booked(name, outcome), cause=cause)

        def fail(claim: Claim) -> Claim:
            failed = claim if claim.phase is Phase.READY else advance(claim, Phase.FAILED, now, why)
            return dataclasses.replace(failed, deletion=deletion)

        self.context.progress.step(name, "failed", why, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)
        rejected = self.rejected.get(name)
        if rejected is not None:  # before its record: a run that is killed between the two has not forgotten the host
            self._block(claim, "acceptance", rejected.why)
        try:
            self.write(name, fail)
        except ApiError as error:
            return f"not terminated yet: {error}"
        if rejected is None:
            self._block(claim, "price" if reason == Reason.PRICE_JUMP else "join", self._seen(name, outcome))
        if not outcome.ready:
            with self._going_all_the_same(name, "the failed join could not be counted"):
                self.context.records.failed_join(claim.pool)
        return ""

    def _block(self, claim: Claim, reason: str, why: str) -> None:
        with self._going_all_the_same(claim.name, "its offer could not be put on the block list, so it may be taken again"):
            for key in launch_backoff.keys_after(claim.offer, reason):
                self.context.records.block(key, reason, why=why, claim=claim.name)

    @contextlib.contextmanager
    def _going_all_the_same(self, name: str, what: str) -> t.Iterator[None]:
        """The machine costs money, so what cannot be noted is a warning."""
        try:
            yield
        except ApiError as error:
            self.context.warn(f"{name}: {what}: {error}")


def _with_device(device: Device, now: datetime) -> Change:
    return lambda claim: claim if claim.mesh_device_id else dataclasses.replace(claim, mesh_device_id=device.id, mesh_seen=now)


def _joining(step: str, now: datetime) -> Change:
    """A sign of life makes the claim Joining."""
    return lambda claim: advance(claim, Phase.JOINING, now, step) if claim.phase in (Phase.PROVISIONING, Phase.BOOTING) else claim


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
        self._ran: set[str] = set()
        self._missing: dict[str, datetime] = {}
        self._broken: dict[str, datetime] = {}

    def lost(self, claim: Claim, instance: Instance | None, listed_at: datetime | None, *, alive: bool) -> str:
        """Why to give up, empty while there is hope. ``listed_at`` is when the cloud's list that (not) shows ``instance`` was asked for,
        None when it never could be; ``alive``: its mesh device is online."""
        if instance is None:
            return self._absent(claim, listed_at)
        self._listed.add(claim.name)
        self._missing.pop(claim.name, None)
        state = instance.state_word
        if instance.interrupted:
            return f"{claim.cloud} took its GPUs away ({state})"
        if instance.state is InstanceState.RUNNING and listed_at is not None and listed_at >= claim.launched:
            self._ran.add(claim.name)
        if instance.state in _OVER and self._can_be_over(claim):
            return f"{claim.cloud} calls the machine {state} {instance.problem}".strip()
        if not instance.problem or alive or listed_at is None:
            self._broken.pop(claim.name, None)
            return ""
        since = self._broken.setdefault(claim.name, listed_at)
        passed = (listed_at - since).total_seconds()
        return (
            f"{claim.cloud} calls the machine {state} for {passed:.0f} s, and nothing is heard of it" if passed >= _BROKEN else ""
        )

    def _can_be_over(self, claim: Claim) -> bool:
        """Whether the word that a machine is off can mean that it has ended. An own machine is off until it is up: the list may be older than
        the call that switched it on, and some power services know no more than whether its system answers."""
        return CAPABILITIES[claim.cloud].rented or claim.name in self._ran

    def _absent(self, claim: Claim, listed_at: datetime | None) -> str:
        if listed_at is None or not CAPABILITIES[claim.cloud].rented:
            return ""
        since = self._missing.setdefault(claim.name, listed_at)
        started = claim.launched
        age = (listed_at - started).total_seconds()
        young = age < (CAPABILITIES[claim.cloud].list_delay if claim.name in self._listed else _LISTED_LATE)
        if young or (listed_at - since).total_seconds() < _MISSING:
            return ""
        return f"{claim.cloud} does not list the machine {claim.instance_id} any more"
