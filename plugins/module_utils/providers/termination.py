# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends machines of an instance module, sees that they end, and knows which ones exist: a failure names each with its id and its price."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from datetime import datetime, timedelta

from ..core import errors
from ..core.task import Task
from ..model import Instance, InstanceState
from ..units.values import print_money
from .base import Cloud
from .results import instance_result

ENDING = (InstanceState.TERMINATING, InstanceState.TERMINATED)
_POLL = 10.0  # seconds
_LOOKS = 3  # a poll apart, in which an accepted end has to show
MISSED_FOR = timedelta(seconds=30)  # between the two lists that have to miss a machine before it is gone


def describe(instance: Instance) -> str:
    """A machine in a sentence: where it is, what it is, and what it costs."""
    price = "price unknown" if instance.price_hour is None else f"{print_money(instance.price_hour)} $/h"
    if instance.state is InstanceState.STOPPED and instance.storage_price_hour:
        price += f" while it runs, {print_money(instance.storage_price_hour)} $/h for its disk while it is stopped"
    return f"{instance.cloud} {instance.id} ({', '.join(filter(None, (instance.instance_type, price)))})"


def with_result(error: errors.TgpError, machines: t.Sequence[Instance]) -> errors.TgpError:
    """The failure also returns machines as last seen."""
    shown = [instance_result(machine) for machine in machines]
    error.result = {"instance": shown[0] if shown else None, "instances": shown}
    return error


class LeftBehind:
    """What this call has made, or was to end, and what still exists as far as it knows."""

    def __init__(self) -> None:
        self._machines: dict[str, Instance] = {}

    def note(self, instance: Instance) -> None:
        """It exists; as last seen. One that is gone is dropped."""
        if instance.gone:
            self.drop(instance.id)
        else:
            self._machines[instance.id] = instance

    def drop(self, identity: str) -> None:
        self._machines.pop(identity, None)

    @contextlib.contextmanager
    def named(self) -> t.Iterator[None]:
        """A failure inside names them."""
        try:
            yield
        except errors.TgpError as error:
            if not self._machines:
                raise
            machines = list(self._machines.values())
            listed = ", ".join(describe(machine) for machine in machines)
            verb = "exists and is" if len(machines) == 1 else "exist and are"
            thing = "it" if len(machines) == 1 else "them"
            error.message = f"{error.message} {listed} {verb} billed."
            remedy = f"Run this with state: absent to end {thing}, or terminate {thing} in the console of {machines[0].cloud}."
            error.remedy = f"{error.remedy} {remedy}".strip()
            raise with_result(error, machines) from error.__cause__


class Deadline:
    """The time that a module waits for the machines of ``name``: ``timeout`` seconds from now on."""

    def __init__(self, task: Task, name: str, timeout: float) -> None:
        self._clock, self._name, self._timeout = task.clock, name, timeout
        self._started = self._clock.now()

    def pause(self, goal: str, last: Instance, end: str = ".") -> None:
        """Sleep until the next look. TimedOut with the machine as last seen when the time is over; ``end`` ends its sentence."""
        passed = (self._clock.now() - self._started).total_seconds()
        if passed >= self._timeout:
            message = f"{self._name} ({last.id}) did not {goal} within {self._timeout:g} s{end}"
            raise with_result(errors.TimedOut(message), [last])
        self._clock.sleep(min(_POLL, self._timeout - passed))


@dataclasses.dataclass(frozen=True)
class Termination:
    """Ends machines named ``name`` of ``cloud``. ``left`` keeps what exists; ``accepted`` receives the id of each accepted terminate call."""

    task: Task
    cloud: Cloud
    name: str
    left: LeftBehind
    accepted: t.Callable[[str], None]

    def terminate(self, instance: Instance, why: str) -> None:
        """One terminate call. ``why`` is the sentence with which a failure begins."""
        try:
            self.cloud.terminate(instance.id)
        except errors.ApiError as error:
            with contextlib.suppress(errors.ApiError):
                self.left.note(self.cloud.instance(instance.id) or instance)
            raise self._stays(instance, f"{why} {instance.cloud} {instance.id} could not be terminated: {error}") from error
        self.accepted(instance.id)

    def terminate_and_confirm(self, instance: Instance, why: str) -> None:
        """One terminate call, and looks until the machine ends. That it does not must not hide that it exists and costs money."""
        self.left.note(instance)
        self.terminate(instance, why)
        for look in range(_LOOKS):
            if look:
                self.task.clock.sleep(_POLL)
            try:
                seen = self.cloud.instance(instance.id)
            except errors.ApiError as error:
                self.task.progress(f"{self.name}: the look-up of {instance.id} failed: {error}")
                continue
            if seen is None or seen.state in ENDING:
                self.left.drop(instance.id)
                return
            self.left.note(seen)
        raise self._stays(instance, f"{why} {instance.cloud} accepted the end of {instance.id}, and does not show that it ends.")

    def terminate_all(self, machines: t.Sequence[Instance], *, confirm: bool) -> None:
        """End each. One that cannot be ended does not keep the others alive; the first failure is raised once all were tried."""
        for machine in machines:
            self.left.note(machine)
        end = self.terminate_and_confirm if confirm else self.terminate
        failures: list[errors.TgpError] = []
        for machine in machines:
            self.task.progress(f"{self.name}: destroying {machine.cloud} {machine.id}")
            try:
                end(machine, f"{self.name} was to end.")
                self.left.drop(machine.id)
            except errors.TgpError as error:
                failures.append(error)
        for another in failures[1:]:
            self.task.warn(str(another))
        if failures:
            raise failures[0]

    def wait_until_gone(self, machines: t.Sequence[Instance], deadline: Deadline) -> None:
        """Wait until all are gone: their cloud calls them terminated, or two lists half a minute apart and a look by the id miss them."""
        waiting, missing = {machine.id: machine for machine in machines}, dict[str, datetime]()
        while waiting:
            listed, now = {instance.id: instance for instance in self.cloud.instances()}, self.task.clock.now()
            for identity in list(waiting):
                shown = listed.get(identity)
                if shown is None:
                    since = missing.setdefault(identity, now)
                    if now - since < MISSED_FOR or self._is_there(identity):
                        continue
                elif not shown.gone:
                    missing.pop(identity, None)
                    waiting[identity] = shown
                    self.left.note(shown)
                    continue
                del waiting[identity]
                self.left.drop(identity)
            if waiting:
                deadline.pause("end for certain", next(iter(waiting.values())))

    def _is_there(self, identity: str) -> bool:
        instance = self.cloud.instance(identity)
        return instance is not None and not instance.gone

    def _stays(self, instance: Instance, message: str) -> errors.TgpError:
        return errors.TgpError(message, cloud=instance.cloud, instance_id=instance.id)
