# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Terminates machines in the order that leaks nothing (L-10), many side by side, each step recorded before the next.

drain → Terminating → volumes detached → destroy every id ever handed out → confirmed gone → mesh device and key → Node (or Service) → what the
cloud keeps beside the machine → token → ledger line → claim removed. planner/garbage_collection/termination_steps.py decides which step is
next; here each is done. Nothing is given up: what does not end in this run is continued by the next one.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal

from ...core.clock import looks
from ...core.errors import ApiError, Conflict, Forbidden, LockLost, NotFound, TgpError, Unauthorized
from ...core.rate_limit import RetryPolicy, is_rate_limited, resend
from ...kube.drain.drain import Drained, DrainOptions, Target, drain
from ...kube.nodes import attached_volumes, delete_node, get_node
from ...kube.pods import pods
from ...model import Claim, Instance, InstanceState, Node, Phase
from ...model.labels import DRAIN_STARTED_ANNOTATION
from ...model.reasons import Finding, Reason
from ...observe.context import Context
from ...planner.claims.record import LONGEST_WORDS, advance, in_force
from ...planner.cluster_state import UNKNOWN_WINDOW
from ...planner.cost.cost import ledger_line, tariff
from ...planner.disruption.drain_rules import backoff_after_block, is_voluntary, rules_of
from ...planner.disruption.expiration import holds_end
from ...planner.garbage_collection.termination_steps import VOLUME_WAIT, Facts, Step, alarm, came_back, next_step, waits
from ...providers.base import Cloud
from ...providers.registry import CAPABILITIES
from ..join.service_endpoints import withdraw
from ..launch.payload import take_back_all
from .duplicate_instances import book, without_booked
from .end_of_bill import end_of_bill, last_look, seen_running, shown_at
from .garbage_collection import delete_device, discard_extras, extras_of, forget_stop
from .service_idle import got_work, node_in_use, not_idle_any_more
from .slots import MOST, Slots, emptiest_first

_CONFIRM = 120.0
# Of a destroy call that the cloud answered 429: the deadline ends it, not the number of tries.
_RATE_LIMITED = RetryPolicy(tries=120, jitter=(1.0, 1.0), deadline=_CONFIRM, retry_after=(1.0, math.inf))
_DELETES = (Step.DRAIN, Step.DELETE_DEVICE, Step.DELETE_KEY, Step.DELETE_NODE, Step.DISCARD_EXTRAS, Step.REMOVE_CLAIM)
_POLL = 5.0
_APART = 30.0  # seconds between two lists that have to miss a machine
_LOOKS = int(2 * _APART / _POLL)  # at least that many, of which one may take as long as the whole wait


@dataclasses.dataclass(frozen=True)
class Ended:
    """How one claim ended in this step: ``result`` is gone, kept (a voluntary drain was held up), in_use (drained by an earlier run, and work
    came since) or pending (next run goes on)."""

    claim: Claim
    result: str
    message: str = ""
    drained: Drained | None = None


def teardown_all(context: Context, claims: t.Sequence[Claim]) -> list[Ended]:
    """Take every claim down side by side; one that fails never stops the others. LockLost ends the whole step."""
    if not claims:
        return []
    slots, ordered = Slots(), emptiest_first(context, claims)
    with ThreadPoolExecutor(max_workers=min(MOST, len(claims)), thread_name_prefix="teardown") as pool:
        ended = {result.claim.name: result for result in pool.map(lambda claim: _guarded(context, claim, slots), ordered)}
    return [ended[claim.name] for claim in claims]


def _guarded(context: Context, claim: Claim, slots: Slots) -> Ended:
    work = _Teardown(context, claim, slots)
    try:
        return work.run()
    except LockLost:
        raise
    except TgpError as error:
        return work.pending(str(error))


class _Teardown:
    """The teardown of one claim. ``claim`` is always the record as last written."""

    def __init__(self, context: Context, claim: Claim, slots: Slots) -> None:
        self.context = context
        self.claim = claim
        self._slots = slots
        self.drained: Drained | None = None
        self.node: Node | None = None
        self.known = Facts(context.clock.now())
        self._accepted: datetime | None = None
        self._alive: datetime | None = None  # when its cloud showed it last
        self._missing: dict[str, datetime] = {}  # id → when the first list was asked for that did not show it
        self._absent: dict[str, datetime] = {}  # id → when that list was answered
        self._attached: t.Sequence[str] = ()
        self._no_mesh = ""
        if claim.deletion is None:
            raise TgpError(f"{claim.name}: asked to take down a machine that no plan decided to terminate.")
        self.deletion = claim.deletion

    def run(self) -> Ended:
        """Do the next step until one of them ends this run's work."""
        self.node = self._node()
        if why := self._refilled():
            return self._stay(why)
        mesh = self._has_mesh()
        self._learn(
            instance="present",
            node=self.node is not None,
            node_ready=self.node.ready if self.node else None,
            device=mesh,
            key=mesh if self.claim.mesh_key_id else False,
            keeps_node=not CAPABILITIES[self.claim.cloud].rented,  # own machines come back under their name (L-21)
        )
        steps: dict[Step, t.Callable[[], Ended | None]] = {
            Step.DRAIN: self._drain,
            Step.TERMINATE: self._terminating,
            Step.WAIT_VOLUMES: lambda: self.context.clock.sleep(_POLL),
            Step.DESTROY: self._destroy,
            Step.CONFIRM: self._confirm,
            Step.DELETE_DEVICE: self._delete_device,
            Step.DELETE_KEY: self._delete_key,
            Step.DELETE_NODE: self._delete_node,
            Step.DISCARD_EXTRAS: self._discard_extras,
            Step.REMOVE_CLAIM: self._close,
            Step.WAIT: self._wait,
        }
        while True:
            step = next_step(self.claim, self._look())
            with self._slots.of(step):
                if step in _DELETES:
                    self.context.lock.confirm()
                ended = steps[step]()
            if ended is not None:
                return ended

    def _refilled(self) -> str:
        """Which work came after the drain of a run that was killed before it deleted the machine (the plan may be minutes old)."""
        claim = self.claim
        if not waits(claim):
            return ""
        listed = self.context.clients.instances(claim.cloud)
        if listed is not None and not any(
            instance.id == claim.instance_id and instance.state is InstanceState.RUNNING for instance in listed
        ):
            return ""
        return self._work_since_drain()

    def _work_since_drain(self) -> str:
        """Which work came after the drain; empty for reasons that cannot wait."""
        claim, pool = self.claim, in_force(self.claim, self.context.specs)
        if not waits(claim):
            return ""
        if claim.is_service:
            return got_work(self.context, claim)
        if self.node is None:
            return ""
        settings = self.context.settings
        try:
            here = pods(self.context.kube, node=self.node.name, gpu_resources=settings.gpu_resources)
        except ApiError:
            here = None
        return came_back(claim, self.node, here, pool.idle_mode if pool else "workload", settings, self.context.clock.now())

    def _stay(self, why: str) -> Ended:
        """Nothing is written: its drain is over, and it goes when the work has ended, or for a stronger reason."""
        self.context.progress.step(self.claim.name, "in use", why, **self._money())
        return Ended(self.claim, "in_use", f"kept: {why}")

    def _has_mesh(self) -> bool | None:
        """None when it cannot be opened. The machine goes all the same: it costs money, its device does not."""
        try:
            return self.context.clients.mesh() is not None
        except TgpError as error:
            self._no_mesh = str(error)
            return None

    def _wait(self) -> Ended:
        if self.known.device is None:
            return self.pending(f"its machine is gone, its mesh device is not: {self._no_mesh}")
        return self.pending(f"what {self.claim.cloud} keeps beside its machines could not be read")

    def _learn(self, **facts: t.Any) -> None:
        self.known = dataclasses.replace(self.known, **facts)

    def _look(self) -> Facts:
        """What is known now. Volumes are looked at as long as the machine is there."""
        now = self.context.clock.now()
        if self.claim.phase is Phase.TERMINATING and self.node is not None and self.known.instance == "present":
            self._attached = self._volumes(self.node.name)
            self._learn(volumes=len(self._attached), volumes_since=self.known.volumes_since or now)
        self._learn(now=now)
        return self.known

    def _volumes(self, node: str) -> t.Sequence[str]:
        """Those attached. Volumes that cannot be seen are waited for like one that is, and no longer: the machine costs money."""
        try:
            return attached_volumes(self.context.kube, node)
        except ApiError as error:
            return (f"unknown ({error})",)

    # ---- drain

    def _node(self) -> Node | None:
        if self.claim.is_service:
            return None
        node = get_node(self.context.kube, self.claim.node_name or self.claim.name)
        if node is None or (self.claim.node_uid and node.uid != self.claim.node_uid):
            return None
        return node

    def _drain(self) -> Ended | None:
        """Let its pods go; the end of the work when the machine may not go now."""
        node, pool = self.node, in_force(self.claim, self.context.specs)
        if node is None:
            self._learn(node=False)
            return None
        if why := node_in_use(self.context, self.claim, node, pool):
            return self._keep_idle(why)
        self.context.progress.step(self.claim.name, "draining", f"reason {self.deletion.reason}", **self._money())
        until = None
        if pool is not None and self.deletion.reason == Reason.EXPIRED:
            until = holds_end(self.claim, pool, self.context.clock.now())
        options = DrainOptions(
            timeout=self.context.drain_timeout(pool),
            force=self.deletion.force,
            rules=rules_of(self.deletion.reason, until),
            idle_mode=pool.idle_mode if pool else "workload",
            settings=self.context.settings,
        )
        [self.drained] = drain(
            self.context.kube,
            [Target(node.name, node.uid, self.deletion.reason)],
            options,
            clock=self.context.clock,
            progress=lambda _node, text: self.context.progress.step(self.claim.name, "draining", text, **self._money()),
        )
        self._learn(drained=self.drained.drained)
        return None if self.drained.drained else self._keep()

    def _keep(self) -> Ended:
        """A voluntary drain was held up: the node is usable again, the claim goes on as it was, with a pause before the next try."""
        message = f"kept: {self.drained.why if self.drained else ''}"
        if not is_voluntary(self.deletion.reason) or self.claim.phase is Phase.TERMINATING:
            return self.pending(message)
        if (node := self._node()) is not None and DRAIN_STARTED_ANNOTATION in node.annotations:
            return self.pending(message)  # its marks are still on: without this record no run would open it again
        now = self.context.clock.now()
        pause, times = backoff_after_block(self.claim.blocked_times)
        became_busy = self.drained is not None and self.drained.busy
        self._write(
            deletion=None,
            idle_since=None if became_busy else self.claim.idle_since,
            blocked_until=None if became_busy else now + pause,
            blocked_times=0 if became_busy else times,
        )
        self.context.progress.step(self.claim.name, "kept", message, **self._money())
        return Ended(self.claim, "kept", message, self.drained)

    def _keep_idle(self, why: str) -> Ended:
        """It was to go for being idle, and is not (or nobody can tell) any more: the claim goes on, and its idle time begins anew."""
        self._write(deletion=None, idle_since=None)
        self.context.progress.step(self.claim.name, "kept", why, **self._money())
        return Ended(self.claim, "kept", f"kept: {why}")

    def _terminating(self) -> Ended | None:
        if self.claim.is_service and (why := not_idle_any_more(self.context, self.claim)):
            return self._keep_idle(why)
        now = self.context.clock.now()
        self._write(advance(self.claim, Phase.TERMINATING, now, self.deletion.reason))
        return None

    # ---- destroy

    def _destroy(self) -> Ended | None:
        """Ask for the end of every machine that was ever made under this name."""
        if self._attached:
            self.context.warn(f"{self.claim.name}: volumes still attached after {VOLUME_WAIT} s: {', '.join(self._attached)}")
        ids = self._ids()
        if not ids:
            return self._nothing_rented()
        self._refuse_foreign(ids)
        self._note_bill()
        if self.node is not None and self.node.ready and self.deletion.started is None and self.claim.gone_since is not None:
            self._write(gone_since=None)  # it lives, although its cloud did not list it: it is billed until it is gone
        # volumes were waited for, and a pod that tolerates every taint takes a free GPU at once
        if why := self._work_since_drain():
            return self._stay(why)
        own = self.claim.instance_id or ids[0]
        for instance_id in ids:
            other, since = None if instance_id == own else self._second(instance_id), self.context.clocks.billed_now()
            self._ask(instance_id)
            if other is not None and not other.gone:  # the closing line tells of one machine only
                book(
                    self.context,
                    self.claim,
                    other,
                    Finding.LAUNCH_REFUSED if instance_id in self.claim.rejects else Reason.DUPLICATE,
                    since,
                )
        self._learn(instance=None)
        return None

    def _refuse_foreign(self, ids: t.Collection[str]) -> None:
        """A claim may know a machine that is not ours: its records were copied, or another owner uses the name."""
        for instance in self.context.clients.instances(self.claim.cloud) or ():
            if instance.id in ids and not instance.gone and not self.context.records.is_ours(instance):
                raise TgpError(
                    f"{instance.cloud} {instance.id} {self.context.records.owner(instance).why}: it is not terminated.",
                    remedy="If another cluster runs it, remove this claim; if it is yours, run adopt.yml.",
                )

    def _ids(self) -> tuple[str, ...]:
        """Every id that the claim's cloud handed out for it. What a refusal left at another cloud was terminated before the claim went on
        to this one, which may not even take such a word for an id."""
        claim = self.claim
        left = {
            attempt.instance_id: attempt.offer.partition("/")[0]
            for attempt in claim.attempts
            if attempt.instance_id in claim.rejects
        }
        return tuple(instance_id for instance_id in claim.ids_seen if left.get(instance_id, claim.cloud) == claim.cloud)

    def _second(self, instance_id: str) -> Instance | None:
        """Another machine of this name, for the books; that it cannot be read must not keep it alive."""
        try:
            return self.context.clients.cloud(self.claim.cloud).instance(instance_id)
        except ApiError:
            return None

    def _nothing_rented(self) -> Ended | None:
        """A claim without an id: only a usable list without our name proves that there is nothing to destroy."""
        if self.claim.launch_started is not None:
            unsure = self.claim.unknown_since or self.claim.launch_started
            settled = unsure + timedelta(seconds=UNKNOWN_WINDOW)  # a list that was asked for by then may still lack it
            is_settled = self.context.clock.now() >= settled
            listed = self.context.clients.instances_since(self.claim.cloud, settled if is_settled else unsure)
            named = [instance for instance in listed if instance.name == self.claim.name and not instance.gone]
            ids = tuple(instance.id for instance in named if self.context.records.is_ours(instance))
            if ids:
                self._write(instance_id=ids[0], ids_seen=(*self.claim.ids_seen, *ids))
                return None
            if not is_settled:
                return self.pending("the cloud does not yet say that the machine is gone")
        self._gone()
        return None

    def _note_bill(self) -> None:
        current = last_look(self.context, self.claim, self.node)
        if current is not self.claim:
            self._write(current)

    def _confirm(self) -> Ended | None:
        """Wait, within this run, until the cloud says that every machine is gone."""
        cloud = self.context.clients.cloud(self.claim.cloud)
        for _ in looks(self.context.clock, within=_CONFIRM, every=_POLL, least=_LOOKS):
            if all(self._is_gone(cloud, instance_id) for instance_id in self._ids()):
                break
        else:
            return self.pending("the cloud does not yet say that the machine is gone")
        if self.claim.gone_since is None:
            self._write(gone_since=end_of_bill(self.context, self.claim.cloud, self._accepted, self._absent.values()))
        self._gone()
        return None

    def _gone(self) -> None:
        """There is no machine (any more): what is left of it otherwise?"""
        self.node = forget_stop(self.context, self._node())
        beside = extras_of(self.context, self.claim)
        self._learn(instance="absent", node=self.node is not None, extras=None if beside is None else bool(beside))

    def _ask(self, instance_id: str) -> None:
        """The destroy call, resent while the cloud answers 429 and the run lock is ours."""
        self._alive = shown_at(self.context, self.claim) or self._alive
        context, now, cloud = self.context, self.context.clock.now(), self.claim.cloud
        deletion = dataclasses.replace(self.deletion, attempts=self.deletion.attempts + 1)
        if deletion.started is None:
            deletion = dataclasses.replace(deletion, started=now, seen_running=seen_running(context, self.claim))
        self._write(deletion=deletion)
        self.deletion = deletion
        context.progress.step(self.claim.name, "destroying", f"{cloud} id {instance_id}", **self._money())

        def terminate() -> None:
            try:
                context.clients.cloud(cloud).terminate(instance_id)
                self._accepted = context.clocks.billed_now()
            except (Unauthorized, Forbidden) as error:
                context.clients.give_up(cloud, error)
                context.warn(f"ALARM: {cloud} does not let us destroy {self.claim.name} ({instance_id}): {error}")
                raise
            except Conflict:
                return  # locked over there: the confirmation loop and the next run ask again
            except ApiError as error:
                if not is_rate_limited(error):
                    self._note(str(error))
                raise

        resend(terminate, _RATE_LIMITED, context.clock, before=context.lock.confirm)

    def _is_gone(self, cloud: Cloud, instance_id: str) -> bool:
        """Its cloud says so of it, or two lists, half a minute apart, and a look by its id miss it (L-2a)."""
        listing = self.context.clients.listing(self.claim.cloud)
        if listing is None:
            return False
        asked = listing.asked
        shown = next((instance for instance in listing.items if instance.id == instance_id), None)
        if shown is not None and not shown.gone:
            self._missing.pop(instance_id, None)
            return False
        first = instance_id not in self._missing
        if first:
            self._absent[instance_id] = listing.answered
        since = self._missing.setdefault(instance_id, min(self.claim.gone_since or asked, asked))
        sure = shown is not None or (asked - since).total_seconds() >= _APART
        if not (first or sure):
            return False
        instance = cloud.instance(instance_id)
        if instance is not None and not instance.gone:
            self._missing.pop(instance_id)
            return False
        return sure or instance is not None

    # ---- orphans

    def _delete_device(self) -> None:
        delete_device(self.context, self.claim)
        self._learn(device=False)

    def _delete_key(self) -> None:
        mesh = self.context.clients.mesh()
        if mesh is not None:
            mesh.delete_key(self.claim.mesh_key_id)
        self._learn(key=False)

    def _delete_node(self) -> None:
        if self.node is not None:
            try:
                delete_node(self.context.kube, self.node.name, uid=self.node.uid)
            except (NotFound, Conflict):
                pass  # gone, or another machine has taken the name
        self._learn(node=False)

    def _discard_extras(self) -> Ended | None:
        problem = discard_extras(self.context, self.claim)
        self._learn(extras=False)
        return self.pending(problem) if problem else None

    def _close(self) -> Ended:
        if self.claim.is_service:
            withdraw(self.context, self.claim)
        take_back_all(self.context, self.claim)
        end = self.claim.gone_since or self.context.clocks.billed_now()
        ids = without_booked(self.context, self.claim)
        billed = dataclasses.replace(self.claim, ids_seen=ids, launch_started=self.claim.launch_started if ids else None)
        facts = CAPABILITIES[self.claim.cloud]
        line = ledger_line(billed, end=end, alive=self._alive, **tariff(facts))
        if not facts.rented:  # an own machine comes again under its name: one line for each time it was on
            line["key"] = f"{self.claim.name}.{self.claim.created:%Y%m%d%H%M%S}"
            line["cost_least"] = line["cost_most"] = line["cost"]  # nobody else writes its bill
        self.context.store.ledger(line)
        self.context.store.remove(self.claim)
        self.context.records.forget(self.claim)
        self.context.progress.step(
            self.claim.name, "gone", f"{self.deletion.reason}, cost ${Decimal(line['cost']):.4f}", since=self.claim.launch_started
        )
        return Ended(self.claim, "gone", self.deletion.reason, self.drained)

    # ---- the record

    def pending(self, why: str) -> Ended:
        """Not finished in this run. An alarm is raised once a destroy has been asked for longer than 15 minutes."""
        try:
            self._note(why)
        except ApiError as error:  # the record stays as it was; that alone must not hide what became of the others
            why = f"{why} (not noted: {error})"
        if self.claim.gone_since is None and alarm(self.claim, self.context.clock.now()):
            self.context.warn(f"ALARM: {self.claim.name} ({self.claim.cloud} {', '.join(self.claim.ids_seen)}) still exists: {why}")
        self.context.progress.step(self.claim.name, "pending", why, **self._money())
        return Ended(self.claim, "pending", why, self.drained)

    def _note(self, why: str) -> None:
        if self.claim.deletion is not None:
            self.deletion = dataclasses.replace(self.claim.deletion, last_error=why[:LONGEST_WORDS])
            self._write(deletion=self.deletion)

    def _write(self, base: Claim | None = None, **changes: t.Any) -> None:
        self.claim = self.context.store.write(dataclasses.replace(base or self.claim, **changes))
        self.context.records.remember(self.claim)

    def _money(self) -> dict[str, t.Any]:
        return {"since": self.claim.launch_started, "price_hour": self.claim.price}
