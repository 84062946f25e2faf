# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine of one name, there or not: what the instance modules of rented clouds do.

The name is the identity, because clouds do not make creation idempotent: it is looked up before the create call and after a lost answer.
A list may show a new machine late, so each launch is recorded on this host before the paid call; an id that the cloud returned is looked up
by that id (L-2a). A machine of the name that others made (a foreign one) is neither used nor terminated (L-1a).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..core import errors
from ..core.files import state_folder
from ..core.task import Task
from ..model import Instance, InstanceState, LaunchRequest, Offer
from ..planner.garbage_collection.ownership import made_here
from ..planner.offers.ranking import price_verdict
from ..units.values import print_money
from .base import Cloud
from .launch_engine import LOOK_UP_INTERVAL, LaunchCandidate, LaunchEngine, oldest_first
from .launch_record import Launch, LaunchRecord
from .results import diff_lines, instance_result, planned, rented
from .termination import ENDING, MISSED_FOR, Deadline, LeftBehind, Termination, describe, with_result

_LOG_EVERY = timedelta(seconds=60)
Differs = t.Callable[[Instance], str]  # why an existing machine is not what is wanted, as the end of a sentence; empty = it is


def has_address(instance: Instance) -> bool:
    """What most machines are awaited for."""
    return instance.state is InstanceState.RUNNING and bool(instance.ip)


@dataclasses.dataclass
class NamedInstance:
    """The machines named ``name`` of ``cloud``. ``wait_timeout`` in seconds, None = do not wait. ``ready``: what is waited for.
    ``log_problem``: what a pending machine's own log says is wrong, empty = nothing; it is read once a minute and ends no wait."""

    task: Task
    cloud: Cloud
    name: str
    wait_timeout: float | None
    ready: t.Callable[[Instance], bool] = has_address
    log_problem: t.Callable[[Instance], str] = lambda _instance: ""

    def __post_init__(self) -> None:
        self._left = LeftBehind()
        self._launch: Launch | None = None  # as this host has recorded it
        self.answered: datetime | None = None  # when the create call of this run was
        self._termination = Termination(self.task, self.cloud, self.name, self._left, self._record_end)

    # ---- present

    def present(
        self,
        requests: t.Callable[[], t.Sequence[LaunchRequest]],
        differs: Differs,
        *,
        unmarked: bool = False,
        limit: Decimal | None = None,
    ) -> dict[str, t.Any]:
        """One machine of the name. ``requests`` says what to rent when there is none: the next where one is sold out. ``unmarked``: a foreign
        one will do. ``limit``: dollars per hour that it may cost."""
        with self._left.named():
            return self._present(requests, differs, unmarked, limit)

    def _present(
        self, requests: t.Callable[[], t.Sequence[LaunchRequest]], differs: Differs, unmarked: bool, limit: Decimal | None
    ) -> dict[str, t.Any]:
        with contextlib.nullcontext() if self.task.check_mode else self._record.locked():
            ours, foreign = self._existing()
            if ours or foreign:
                self._warn_of_foreign(foreign if ours else ())
                usable = ours or self._usable(foreign, unmarked)
                kept, duplicates = self._choose(usable, lambda instance: differs(instance) or _too_expensive(instance, limit))
                self._end_duplicates(duplicates)
                before, changed = [kept, *duplicates], bool(duplicates)
            else:
                wanted = requests()
                if self.task.check_mode:
                    return self._result([], [planned(wanted[0])], changed=True)
                kept, duplicates, before, changed = self._rent(wanted, differs), [], [], True
        if not duplicates:
            kept = self._running(kept)
        return self._result(before, [kept], changed=changed)

    def _choose(self, machines: t.Sequence[Instance], differs: Differs) -> tuple[Instance, list[Instance]]:
        """The oldest that is what is wanted, and its duplicates. One of another kind is not a duplicate: it is only warned of."""
        fitting = [machine for machine in machines if not differs(machine)]
        if not fitting:
            raise with_result(
                errors.InvalidInput(
                    f"{self.name} exists ({describe(machines[0])}) and {differs(machines[0])}; that cannot be changed.",
                    remedy="Destroy it first, or use another name.",
                ),
                machines[:1],
            )
        for machine in machines:
            if problem := differs(machine):
                self.task.warn(f"{describe(machine)} is also named {self.name} and {problem}: it is neither used nor terminated.")
        return fitting[0], fitting[1:]

    def _usable(self, foreign: list[Instance], unmarked: bool) -> list[Instance]:
        """Foreign machines, which the user asked for."""
        if unmarked:
            return foreign
        listed = ", ".join(describe(instance) for instance in foreign)
        raise with_result(
            errors.InvalidInput(
                f"{listed}: named {self.name} and not made by this collection. It is neither used nor terminated, and nothing is rented.",
                remedy="Use another name, or set include_unmarked to use it as it is.",
            ),
            foreign[:1],
        )

    def _end_duplicates(self, machines: t.Sequence[Instance]) -> None:
        if not self.task.check_mode:
            self._termination.terminate_all(machines, confirm=True)

    # ---- present: the launch

    def _rent(self, requests: t.Sequence[LaunchRequest], differs: Differs) -> Instance:
        """The machine of the first request that the cloud does not refuse."""
        launching = _Launching(self, requests)
        outcome = launching.engine.launch(launching.candidates())
        machines = list(outcome.found) or self._shown(launching, outcome.instance_id)
        self._warn_of_foreign(launching.foreign)
        for machine in machines:
            self._left.note(machine)
        # one that was interrupted meanwhile is not another kind: the wait says what became of it
        kept, duplicates = self._choose(machines, lambda instance: "" if instance.interrupted else differs(instance))
        self._write(dataclasses.replace(launching.started, id=kept.id))
        self._end_duplicates(duplicates)
        self._check_price(kept, launching.request.max_price_hour)
        return kept

    def _shown(self, launching: _Launching, instance_id: str) -> list[Instance]:
        """Our machines of the name, once the cloud shows the one that it answered."""
        cloud = launching.request.offer.cloud
        machines = launching.engine.look_up(cloud, functools.partial(launching.find, instance_id))
        if not machines:
            raise errors.LaunchUnknown(
                f"{self.name} was made as {instance_id}, and {cloud} shows it neither in its list nor by this id yet.",
                remedy="Run this again: this host has recorded the id and looks it up. From another host, look for it in the console.",
            )
        return machines

    def _check_price(self, made: Instance, limit: Decimal | None) -> None:
        """The price really paid may be up to 5 % above the limit, then the machine is terminated at once (L-13)."""
        if limit is None or made.price_hour is None or made.price_hour <= limit:
            return
        text = f"{self.name} costs {print_money(made.price_hour)} $/h, the limit is {print_money(limit)} $/h"
        if not _too_expensive(made, limit):
            self.task.warn(f"{text}; it stays, because that is within 5 %.")
            return
        self._termination.terminate_and_confirm(made, f"{text}.")
        raise errors.LaunchRefused(f"{text}; it was destroyed again.", reason="invalid", instance_id=made.id)

    # ---- present: the wait

    def _running(self, instance: Instance) -> Instance:
        """The machine once it is ready, or as it is when nobody wants to wait. One that will never run is a failure."""
        if self.wait_timeout is None or self.task.check_mode:
            return self._as_it_is(instance)
        deadline, read_log_at, problem = Deadline(self.task, self.name, self.wait_timeout), self.task.clock.now(), ""
        last = instance
        while True:
            self._left.note(last)
            if self.ready(last):
                return last
            if (now := self.task.clock.now()) >= read_log_at and last.state is InstanceState.PENDING:
                read_log_at, before = now + _LOG_EVERY, problem
                problem = self._read_log(last)
                if problem and problem != before:
                    self.task.progress(f"{self.name}: {problem}")
            self._check_alive(last, "ended while it was awaited")
            end = f". Its log says: {problem}" if problem else "."
            deadline.pause(f"run and have an address (last state: {last.raw_state})", last, end)
            last = self.cloud.instance(instance.id) or dataclasses.replace(last, state=InstanceState.TERMINATED, raw_state="gone")

    def _as_it_is(self, instance: Instance) -> Instance:
        """A list may not tell why a machine does not run; the machine itself does."""
        if instance.id and instance.state is not InstanceState.RUNNING:
            self._left.note(instance)
            instance = self.cloud.instance(instance.id) or instance
        self._check_alive(instance, "will not run")
        if instance.state is InstanceState.STOPPED:
            self.task.warn(
                f"{describe(instance)} is stopped ({instance.raw_state}). Nothing here starts it, and its disk is billed."
            )
        return instance

    def _check_alive(self, instance: Instance, failure: str) -> None:
        """TgpError for a machine that does not come up any more, and is billed all the same."""
        stuck = instance.state is InstanceState.STOPPED and instance.problem  # without a problem it may be on its way up
        if instance.interrupted or stuck or instance.state in (InstanceState.FAILED, *ENDING):
            self._left.note(instance)
            why = f"{instance.raw_state} {instance.problem}".strip().rstrip(".")
            raise with_result(errors.TgpError(f"{self.name} {failure}: {why}."), [instance])

    def _read_log(self, instance: Instance) -> str:
        try:
            return self.log_problem(instance)
        except errors.ApiError as error:
            return f"the log could not be read: {error}"

    # ---- absent

    def absent(self, *, unmarked: bool) -> dict[str, t.Any]:
        """No machine of the name. Foreign ones are kept, and are an error, unless ``unmarked``."""
        with self._left.named():
            return self._absent(unmarked)

    def _absent(self, unmarked: bool) -> dict[str, t.Any]:
        with self._locked_if_possible():
            ours, foreign = self._existing()
            if foreign and not unmarked:
                raise errors.InvalidInput(
                    f"{self.name}: {', '.join(instance.id for instance in foreign)} was not made by this collection; it is not changed.",
                    remedy="Set include_unmarked to destroy it all the same.",
                )
            machines = oldest_first([*ours, *foreign])
            if not self.task.check_mode:
                self._termination.terminate_all(
                    machines, confirm=self.wait_timeout is None
                )  # else the wait sees that they are gone
        if not self.task.check_mode and self.wait_timeout is not None:
            self._termination.wait_until_gone(machines, Deadline(self.task, self.name, self.wait_timeout))
            self._record.remove()
        return self._result(machines, [], changed=bool(machines))

    @contextlib.contextmanager
    def _locked_if_possible(self) -> t.Iterator[None]:
        """The lock of the name. That it cannot be had, because the folder cannot be used, keeps no machine alive."""
        with contextlib.ExitStack() as held:
            if not self.task.check_mode:
                try:
                    held.enter_context(self._record.locked())
                except errors.InvalidInput as error:
                    self.task.warn(f"{self.name}: {error}")
            yield

    # ---- which machines there are

    def _existing(self) -> tuple[list[Instance], list[Instance]]:
        """Our machines of the name, the oldest first, and foreign ones. One that this host has recorded is waited for as long as the list may
        show it late; after that it is gone when two lists, half a minute apart, and a look by its id miss it."""
        self._launch = launch = self._recorded()
        missing = None
        while True:
            ours, foreign = self._split(self._alive())
            if launch is None or any(instance.id == launch.id for instance in (*ours, *foreign)) or (ours and not launch.id):
                return ours, foreign
            instance = self.cloud.instance(launch.id) if launch.id else None
            if instance is not None and instance.state not in ENDING:
                own, others = self._split([instance])
                return oldest_first([*own, *ours]), [*others, *foreign]
            now = self.task.clock.now()
            missing = missing or now
            listed_by = min(launch.started, missing) + timedelta(seconds=self.cloud.facts.list_delay)
            over = launch.ended is not None or instance is not None  # asked to end, or ending by its cloud's word
            if self.task.check_mode or over or (now >= listed_by and now - missing >= MISSED_FOR):
                if not self.task.check_mode and now >= listed_by:
                    self._record.remove()
                return ours, foreign
            if missing is now:
                self.task.progress(f"{self.name}: launched at {launch.started:%H:%M:%SZ} and not listed yet; waiting for it.")
            self.task.clock.sleep(LOOK_UP_INTERVAL)

    def _alive(self) -> list[Instance]:
        """Machines of the name that are not ending, oldest first."""
        return oldest_first(
            instance for instance in self.cloud.instances() if instance.name == self.name and instance.state not in ENDING
        )

    def _split(self, machines: list[Instance]) -> tuple[list[Instance], list[Instance]]:
        """Ours, and foreign ones."""
        ours = [
            machine
            for machine in machines
            if made_here(machine, self.cloud.facts, recorded=self._launch is not None and self._launch.made(machine))
        ]
        return ours, [machine for machine in machines if machine not in ours]

    def _warn_of_foreign(self, foreign: t.Iterable[Instance]) -> None:
        for instance in foreign:
            self.task.warn(
                f"{describe(instance)} is also named {self.name} and was not made by this collection; it is not changed."
            )

    # ---- the record of this host

    @functools.cached_property
    def _record(self) -> LaunchRecord:
        return LaunchRecord(state_folder(self.task.params), self.cloud.facts.cloud, self.name, self.task.clock)

    def _write(self, launch: Launch) -> None:
        self._launch = launch
        self._record.write(launch)

    def _recorded(self) -> Launch | None:
        try:
            return self._record.read()
        except errors.InvalidInput as error:
            if self.task.params.get("state") != "absent":
                raise
            self.task.warn(f"{self.name}: {error}")  # it may name a machine, and the list names it, too
            return None

    def _record_end(self, instance_id: str) -> None:
        """The cloud accepted the end of a machine."""
        try:
            launch = self._record.read()
            if launch is not None and launch.id == instance_id:
                self._write(dataclasses.replace(launch, ended=self.task.clock.now()))
        except errors.InvalidInput as error:
            self.task.warn(f"{self.name}: {error}")

    # ---- the result

    def _result(self, before: list[Instance], after: list[Instance], *, changed: bool) -> dict[str, t.Any]:
        shown = [instance_result(instance) for instance in after]
        result = {"changed": changed, "instance": shown[0] if shown else None, "instances": shown}
        if self.task.diff_mode:
            result["diff"] = {"before": diff_lines(before), "after": diff_lines(after if changed else before)}
        return result


class _Launching:
    """One launch of a named instance: its engine, and the engine's journal, which is the record of this host. ``request``: the one that is
    tried; ``started``: its record before the id was known; ``foreign``: foreign machines of the name, as last looked."""

    def __init__(self, named: NamedInstance, requests: t.Sequence[LaunchRequest]) -> None:
        self._named, self._requests = named, requests
        self.request = requests[0]
        self.started = Launch(named.task.clock.now())
        self.foreign: list[Instance] = []
        self._tried: LaunchRequest | None = None
        facts = named.cloud.facts
        self.engine = LaunchEngine(
            facts={facts.cloud: facts},
            journal=self,
            find=self.find,
            give_back=self._give_back,
            progress=lambda _step, text: named.task.progress(f"{named.name}: {text}"),
            clock=named.task.clock,
            look_before_resend=True,
        )

    def candidates(self) -> list[LaunchCandidate]:
        return [LaunchCandidate(request.offer, functools.partial(self._prepare, request)) for request in self._requests]

    def _prepare(self, request: LaunchRequest) -> t.Callable[[], str]:
        """The create call. It is recorded once: what is sent again after a rate limit stands for the same launch."""
        named = self._named
        if request is not self._tried:
            self.request = self._tried = request
            named.task.progress(f"{named.name}: renting {request.offer.id}")
            self.started = Launch(named.task.clock.now())
            named._write(self.started)
        return functools.partial(named.cloud.launch, request)

    def find(self, instance_id: str = "") -> list[Instance]:
        """Our machines of the name. With an id only if they include that machine, which the list may still miss."""
        own = self._named.cloud.instance(instance_id) if instance_id else None
        ours, self.foreign = self._named._split(self._named._alive())
        if own is not None and own.id not in [instance.id for instance in ours]:
            ours = [own, *ours]
        return ours if not instance_id or any(instance.id == instance_id for instance in ours) else []

    def _give_back(self, refusal: errors.LaunchRefused) -> None:
        if refusal.instance_id:
            self._named._termination.terminate_and_confirm(rented(self.request, refusal.instance_id), refusal.message)

    # ---- the journal

    def created(self, _offer: Offer, instance_id: str) -> None:
        self._named.answered = self._named.task.clock.now()
        self._named._left.note(rented(self.request, instance_id))
        self._named._write(dataclasses.replace(self.started, id=instance_id))

    def refused(self, _offer: Offer, refusal: errors.LaunchRefused) -> None:
        if refusal.instance_id:
            self._named._write(dataclasses.replace(self.started, id=refusal.instance_id))
        else:
            self._named._record.remove()

    def unknown(self, _offer: Offer, _unknown: errors.LaunchUnknown) -> None:
        """The record without an id says it already."""


def _too_expensive(instance: Instance, limit: Decimal | None) -> str:
    """Why a machine costs too much, empty if it does not: a price may turn out 5 % above the limit (L-13)."""
    if limit is None or instance.price_hour is None or price_verdict(instance.price_hour, limit) != "jump":
        return ""
    return f"costs {print_money(instance.price_hour)} $/h, and the limit is {print_money(limit)} $/h"
