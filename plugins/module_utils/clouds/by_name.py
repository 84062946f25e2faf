# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine of one name, there or not: what the instance modules of rented clouds do.

The name is the identity, because clouds do not make creation idempotent: it is looked up before the create call, after a
lost answer, and once more after a success. A second create call is never sent blindly.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from .. import errors
from ..fleet.model import Instance, InstanceState, LaunchRequest
from ..fleet.money import print_money
from ..task import Task
from .base import Cloud
from .results import instance_result

_LOOK_UPS = 3
_LOOK_UP_PAUSE = 10.0
_POLL = 10.0
_LOG_EVERY = 60.0
_PRICE_TOLERANCE = Decimal("1.05")
_ENDING = (InstanceState.TERMINATING, InstanceState.TERMINATED)
_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_NEXT_OFFER = ("capacity", "conflict")  # refusals after which another offer may do
Wish = LaunchRequest | t.Sequence[LaunchRequest]


def has_address(instance: Instance) -> bool:
    """What most machines are awaited for."""
    return instance.state is InstanceState.RUNNING and bool(instance.ip)


@dataclasses.dataclass
class ByName:
    """The machines named ``name`` of ``cloud``. ``wait_timeout`` in seconds, None = do not wait. ``ready``: what is waited for. ``told``: what
    a pending machine's own log says is wrong, empty = nothing; it is read once a minute and ends no wait."""

    task: Task
    cloud: Cloud
    name: str
    wait_timeout: float | None
    ready: t.Callable[[Instance], bool] = has_address
    told: t.Callable[[Instance], str] = lambda _instance: ""

    # ---- present

    def present(self, request: t.Callable[[], Wish], same: t.Callable[[Instance], str]) -> dict[str, t.Any]:
        """One machine of the name. ``request`` says what to rent when there is none (several: the next where one is sold out); ``same``
        why an existing one is not what is wanted (empty = it is)."""
        found = self._alive()
        if found:
            kept, extra = found[0], self._ours(found[1:])
            if problem := same(kept):
                raise errors.InvalidInput(
                    f"{self.name} exists and {problem}; that cannot be changed.", remedy="Destroy it first, or use another name."
                )
            self._end(extra)
            if not extra or self.task.check_mode:
                kept = self._running(kept)
            return self._result(found, [kept], changed=bool(extra))
        wish = request()
        wanted = [wish] if isinstance(wish, LaunchRequest) else list(wish)
        if self.task.check_mode:
            return self._result([], [_planned(wanted[0])], changed=True)
        made = self._make(wanted)
        return self._result([], [self._running(made)], changed=True)

    def _make(self, requests: t.Sequence[LaunchRequest]) -> Instance:
        """The first of them that the cloud does not refuse for want of the thing itself; the last refusal is the failure."""
        *others, last = requests
        for request in others:
            try:
                return self._rent(request)
            except errors.LaunchRefused as refusal:
                if refusal.reason not in _NEXT_OFFER:
                    raise
                self.task.progress(f"{self.name}: {refusal.message} Trying the next offer.")
        return self._rent(last)

    def _rent(self, request: LaunchRequest) -> Instance:
        self.task.progress(f"{self.name}: renting {request.offer.id}")
        try:
            made = self.cloud.launch(request)
        except errors.LaunchRefused as refusal:
            if refusal.instance_id:
                self.cloud.terminate(refusal.instance_id)  # refused, and there all the same
            raise
        except errors.LaunchUnknown as unknown:
            self.task.progress(f"{self.name}: {unknown.message} Looking for it by name.")
            found = self._look_up()
            if not found:
                raise unknown
        else:
            found = self._look_up() or self._by_id(made)
            if not found:
                raise errors.LaunchUnknown(
                    f"{self.name} was made as {made}, and {request.offer.cloud} shows it neither in its list nor by this id yet.",
                    remedy="Look for it in the console, and run again once it is listed: an earlier run would make a second one.",
                )
        kept, extra = found[0], self._ours(found[1:])
        self._end(extra)
        self._check_price(kept, request.max_price_hour)
        return kept

    def _look_up(self) -> list[Instance]:
        """By name, three times and for as long as its cloud may list it late; a list that fails is a try that found nothing."""
        turn, shown = 0, self.task.clock.now() + timedelta(seconds=self.cloud.facts.list_delay)
        while turn < _LOOK_UPS or self.task.clock.now() < shown:
            if turn:
                self.task.clock.sleep(_LOOK_UP_PAUSE)
            turn += 1
            try:
                if found := self._alive():
                    return found
            except errors.ApiError as error:
                self.task.progress(f"{self.name}: the look-up failed: {error}")
        return []

    def _by_id(self, made: str) -> list[Instance]:
        """A machine that was certainly made and is not listed yet: without it nobody would know that it runs."""
        try:
            found = self.cloud.instance(made)
        except errors.ApiError as error:
            self.task.progress(f"{self.name}: the look-up of {made} failed: {error}")
            return []
        return [found] if found is not None else []

    def _check_price(self, made: Instance, limit: Decimal | None) -> None:
        """The price really paid may be up to 5 % above the limit, then the machine goes back at once (L-13)."""
        if limit is None or made.price_hour is None or made.price_hour <= limit:
            return
        text = f"{self.name} costs {print_money(made.price_hour)} $/h, the limit is {print_money(limit)} $/h"
        if made.price_hour <= limit * _PRICE_TOLERANCE:
            self.task.warn(f"{text}; it stays, because that is within 5 %.")
            return
        self.cloud.terminate(made.id)
        raise errors.LaunchRefused(f"{text}; it was destroyed again.", reason="invalid", instance_id=made.id)

    def _running(self, instance: Instance) -> Instance:
        """The machine once it runs and has an address, or as it is when nobody wants to wait."""
        if self.wait_timeout is None or self.task.check_mode:
            return instance
        started, last = self.task.clock.now(), instance
        asked, trouble = started, ""
        while True:
            if self.ready(last):
                return last
            if (now := self.task.clock.now()) >= asked and last.state is InstanceState.PENDING:
                asked, before = now + timedelta(seconds=_LOG_EVERY), trouble
                trouble = self._told(last)
                if trouble and trouble != before:
                    self.task.progress(f"{self.name}: {trouble}")
            stuck = last.state is InstanceState.STOPPED and last.problem  # without a problem it may be on its way up
            if last.interrupted or stuck or last.state in (InstanceState.FAILED, *_ENDING):
                why = f"{last.raw_state} {last.problem}".strip()
                raise _with_result(errors.TgpError(f"{self.name} ended while it was awaited: {why}."), last)
            end = f". Its log says: {trouble}" if trouble else "."
            self._pause(started, f"run and have an address (last state: {last.raw_state})", last, end)
            last = self.cloud.instance(instance.id) or dataclasses.replace(last, state=InstanceState.TERMINATED, raw_state="gone")

    def _told(self, instance: Instance) -> str:
        try:
            return self.told(instance)
        except errors.ApiError as error:
            return f"the log could not be read: {error}"

    # ---- absent

    def absent(self, *, unmarked: bool) -> dict[str, t.Any]:
        """No machine of the name. Those that carry no mark of ours are left alone, and are an error, unless ``unmarked``."""
        found = self._alive()
        strange = [one for one in found if not one.marks]
        if strange and not unmarked:
            raise errors.InvalidInput(
                f"{self.name}: {', '.join(one.id for one in strange)} was not made by this collection and is left alone.",
                remedy="Set include_unmarked to destroy it all the same.",
            )
        self._end(found)
        if not self.task.check_mode and self.wait_timeout is not None:
            self._ended(found)
        return self._result(found, [], changed=bool(found))

    def _ended(self, found: list[Instance]) -> None:
        started, left = self.task.clock.now(), [one.id for one in found]
        while True:
            seen = {one.id: one for one in self.cloud.instances()} if left else {}
            left = [one for one in left if one in seen and not seen[one].gone]
            if not left:
                return
            self._pause(started, "be gone", seen[left[0]])

    # ---- both

    def _alive(self) -> list[Instance]:
        """Machines of the name that are not ending, oldest first."""
        found = [one for one in self.cloud.instances() if one.name == self.name and one.state not in _ENDING]
        return sorted(found, key=lambda one: (one.created or _NEVER, one.id))

    def _ours(self, extra: list[Instance]) -> list[Instance]:
        """Of surplus machines those that we made; the others are somebody's and only reported."""
        for one in extra:
            if not one.marks:
                self.task.warn(f"{one.cloud} {one.id} is also named {self.name} and was not made by this collection: left alone.")
        return [one for one in extra if one.marks]

    def _end(self, machines: list[Instance]) -> None:
        for one in machines if not self.task.check_mode else ():
            self.task.progress(f"{self.name}: destroying {one.cloud} {one.id}")
            self.cloud.terminate(one.id)

    def _pause(self, started: datetime, goal: str, last: Instance, end: str = ".") -> None:
        passed = (self.task.clock.now() - started).total_seconds()
        if passed >= (self.wait_timeout or 0):
            raise _with_result(errors.TimedOut(f"{self.name} ({last.id}) did not {goal} within {self.wait_timeout:g} s{end}"), last)
        self.task.clock.sleep(min(_POLL, (self.wait_timeout or 0) - passed))

    def _result(self, before: list[Instance], after: list[Instance], *, changed: bool) -> dict[str, t.Any]:
        shown = [instance_result(one) for one in after]
        result = {"changed": changed, "instance": shown[0] if shown else None, "instances": shown}
        if self.task.diff_mode:
            result["diff"] = {"before": _lines(before), "after": _lines(after if changed else before)}
        return result


def _planned(request: LaunchRequest) -> Instance:
    """What check mode shows in place of a machine."""
    offer = request.offer
    return Instance(
        cloud=offer.cloud,
        id="",
        name=request.name,
        state=InstanceState.PENDING,
        raw_state="planned",
        price_hour=offer.price_hour,
        region=offer.cloud_region,
        instance_type=offer.instance_type,
        model=offer.model,
        gpu_count=offer.gpu_count,
        marks=dict(request.marks),
    )


def _lines(machines: list[Instance]) -> str:
    """Machines as text for a diff: what does not change from run to run."""
    prices = ["?" if one.price_hour is None else print_money(one.price_hour) for one in machines]
    return "".join(
        f"{one.name}: {one.instance_type} in {one.region}, {price} $/h\n" for one, price in zip(machines, prices, strict=True)
    )


def _with_result(error: errors.TgpError, instance: Instance) -> errors.TgpError:
    """The failure also returns the machine as last seen, so that nobody forgets that it exists."""
    error.result = {"instance": instance_result(instance), "instances": [instance_result(instance)]}  # type: ignore[attr-defined]
    return error
