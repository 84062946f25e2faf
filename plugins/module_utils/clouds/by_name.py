# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine of one name, there or not: what the instance modules of rented clouds do.

The name is the identity, because clouds do not make creation idempotent: it is looked up before the create call and after a lost answer.
A second create call is never sent blindly. A list may show a new machine late, so each launch is recorded on this host before the paid call;
an id that the cloud returned is looked up by that id (L-2a). A machine of the name that others made is neither used nor terminated (L-1a).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from .. import errors
from ..fleet.model import Instance, InstanceState, LaunchRequest
from ..fleet.money import print_money
from ..fleet.ownership import made_here
from ..places import state_folder
from ..task import Task
from .base import Cloud
from .launch_record import Launch, LaunchRecord
from .results import instance_result

_LOOK_UPS = 3
_LOOK_UP_PAUSE = 10.0
_POLL = 10.0
_APART = timedelta(seconds=30)  # between the two lists that have to miss a machine before it is gone
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

    def present(
        self,
        request: t.Callable[[], Wish],
        same: t.Callable[[Instance], str],
        *,
        unmarked: bool = False,
        limit: Decimal | None = None,
    ) -> dict[str, t.Any]:
        """One machine of the name. ``request`` says what to rent when there is none (several: the next where one is sold out); ``same``
        why an existing one is not what is wanted (empty = it is). ``unmarked``: one that others made will do. ``limit``: dollars per hour
        that it may cost."""

        def differs(one: Instance) -> str:
            return same(one) or _too_dear(one, limit)

        with contextlib.nullcontext() if self.task.check_mode else self._record.locked():
            ours, strange = self._existing()
            if ours or strange:
                self._tell_strange(strange if ours else ())
                kept, extra = self._choose(ours or self._usable(strange, unmarked), differs)
                self._end(extra)
                found, changed = [kept, *extra], bool(extra)
            else:
                wish = request()
                wanted = [wish] if isinstance(wish, LaunchRequest) else list(wish)
                if self.task.check_mode:
                    return self._result([], [_planned(wanted[0])], changed=True)
                kept, extra, found, changed = self._make(wanted, same), [], [], True
        if not (self.task.check_mode or (found and extra)):
            kept = self._running(kept)
        return self._result(found, [kept], changed=changed)

    def _choose(self, ours: t.Sequence[Instance], differs: t.Callable[[Instance], str]) -> tuple[Instance, list[Instance]]:
        """The oldest that is what is wanted, and its duplicates. One of another kind is no duplicate: it is only told of."""
        fitting = [one for one in ours if not differs(one)]
        if not fitting:
            raise _with_result(
                errors.InvalidInput(
                    f"{self.name} exists ({_told(ours[0])}) and {differs(ours[0])}; that cannot be changed.",
                    remedy="Destroy it first, or use another name.",
                ),
                ours[0],
            )
        for one in ours:
            if problem := differs(one):
                self.task.warn(f"{_told(one)} is also named {self.name} and {problem}: it is neither used nor terminated.")
        return fitting[0], fitting[1:]

    def _usable(self, strange: list[Instance], unmarked: bool) -> list[Instance]:
        """Machines of others, where the user takes the responsibility."""
        if unmarked:
            return strange
        listed = ", ".join(_told(one) for one in strange)
        raise _with_result(
            errors.InvalidInput(
                f"{listed}: named {self.name} and not made by this collection. It is neither used nor terminated, and nothing is rented.",
                remedy="Use another name, or set include_unmarked to use it as it is.",
            ),
            strange[0],
        )

    def _make(self, requests: t.Sequence[LaunchRequest], same: t.Callable[[Instance], str]) -> Instance:
        """The first of them that the cloud does not refuse for want of the thing itself; the last refusal is the failure."""
        *others, last = requests
        for request in others:
            try:
                return self._rent(request, same)
            except errors.LaunchRefused as refusal:
                if refusal.reason not in _NEXT_OFFER:
                    raise
                self.task.progress(f"{self.name}: {refusal.message} Trying the next offer.")
        return self._rent(last, same)

    def _rent(self, request: LaunchRequest, same: t.Callable[[Instance], str]) -> Instance:
        self.task.progress(f"{self.name}: renting {request.offer.id}")
        launch = Launch(self.task.clock.now())
        self._record.write(launch)
        made = ""
        try:
            made = self.cloud.launch(request)
        except errors.LaunchRefused as refusal:
            if refusal.instance_id:  # refused, and there all the same
                self._record.write(dataclasses.replace(launch, id=refusal.instance_id))
                self._give_back(refusal.instance_id, refusal.message)
            else:
                self._record.remove()
            raise
        except errors.LaunchUnknown as unknown:
            self.task.progress(f"{self.name}: {unknown.message} Looking for it by name.")
            found = self._look_up("")
            if not found:
                raise unknown
        else:
            self._record.write(dataclasses.replace(launch, id=made))
            found = self._look_up(made)
            if not found:
                raise errors.LaunchUnknown(
                    f"{self.name} was made as {made}, and {request.offer.cloud} shows it neither in its list nor by this id yet.",
                    remedy="Run this again: this host has recorded the id and looks it up. From another host, look for it in the console.",
                )
        kept, extra = self._choose(found, lambda one: "" if one.interrupted else same(one))  # what became of it is told by the wait
        self._record.write(dataclasses.replace(launch, id=kept.id))
        self._end(extra)
        self._check_price(kept, request.max_price_hour)
        return kept

    def _look_up(self, made: str) -> list[Instance]:
        """Our machines of the name after a create call, the oldest first: by the returned id, and by the name. Without an id three times,
        and for as long as the cloud may list it late; a list that fails is a try that found nothing."""
        turn, shown = 0, self.task.clock.now() + timedelta(seconds=self.cloud.facts.list_delay)
        while turn < _LOOK_UPS or self.task.clock.now() < shown:
            if turn:
                self.task.clock.sleep(_LOOK_UP_PAUSE)
            turn += 1
            try:
                own = self.cloud.instance(made) if made else None
                ours, strange = self._split(self._alive())
            except errors.ApiError as error:
                self.task.progress(f"{self.name}: the look-up failed: {error}")
                continue
            if own is not None and own.id not in [one.id for one in ours]:
                ours = _sorted([own, *(one for one in ours)])
            if any(one.id == made for one in ours) or (ours and not made):
                self._tell_strange(strange)
                return ours
        return []

    def _give_back(self, instance_id: str, why: str, price: str = "") -> None:
        """Terminate what may not stay. That it cannot be terminated must not hide that it exists and costs money."""
        cloud = self.cloud.facts.cloud
        try:
            self.cloud.terminate(instance_id)
        except errors.ApiError as error:
            raise errors.TgpError(
                f"{self.name}: {why} {cloud} {instance_id} exists{price}, is billed, and could not be terminated: {error}",
                remedy="Run this with state: absent as soon as the cloud answers, or terminate it in its console.",
                cloud=cloud,
                instance_id=instance_id,
            ) from error
        self._note_end(instance_id)

    def _check_price(self, made: Instance, limit: Decimal | None) -> None:
        """The price really paid may be up to 5 % above the limit, then the machine is terminated at once (L-13)."""
        if limit is None or made.price_hour is None or made.price_hour <= limit:
            return
        text = f"{self.name} costs {print_money(made.price_hour)} $/h, the limit is {print_money(limit)} $/h"
        if not _too_dear(made, limit):
            self.task.warn(f"{text}; it stays, because that is within 5 %.")
            return
        self._give_back(made.id, f"{text}.", f" at {print_money(made.price_hour)} $/h")
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
        """No machine of the name. Those that carry no mark of ours are kept, and are an error, unless ``unmarked``."""
        with self._alone():
            ours, strange = self._existing()
            if strange and not unmarked:
                raise errors.InvalidInput(
                    f"{self.name}: {', '.join(one.id for one in strange)} was not made by this collection; it is not changed.",
                    remedy="Set include_unmarked to destroy it all the same.",
                )
            found = _sorted([*ours, *strange])
            self._end(found)
        if not self.task.check_mode and self.wait_timeout is not None:
            self._ended(found)
        return self._result(found, [], changed=bool(found))

    @contextlib.contextmanager
    def _alone(self) -> t.Iterator[None]:
        """The lock of the name. That it cannot be had, because the folder cannot be used, keeps no machine alive."""
        with contextlib.ExitStack() as held:
            if not self.task.check_mode:
                try:
                    held.enter_context(self._record.locked())
                except errors.InvalidInput as error:
                    self.task.warn(f"{self.name}: {error}")
            yield

    def _ended(self, found: list[Instance]) -> None:
        """Wait until all are gone: their cloud calls them terminated, or two lists half a minute apart and a look by the id miss them."""
        started, left, missing = self.task.clock.now(), {one.id: one for one in found}, dict[str, datetime]()
        while left:
            seen, now = {one.id: one for one in self.cloud.instances()}, self.task.clock.now()
            for identity in list(left):
                shown = seen.get(identity)
                if shown is None:
                    since = missing.setdefault(identity, now)
                    if now - since < _APART or self._is_there(identity):
                        continue
                elif not shown.gone:
                    missing.pop(identity, None)
                    left[identity] = shown
                    continue
                del left[identity]
            if left:
                self._pause(started, "end for certain", next(iter(left.values())))
        self._record.remove()

    def _is_there(self, identity: str) -> bool:
        one = self.cloud.instance(identity)
        return one is not None and not one.gone

    # ---- both

    @functools.cached_property
    def _record(self) -> LaunchRecord:
        return LaunchRecord(state_folder(self.task.params), self.cloud.facts.cloud, self.name, self.task.clock)

    def _existing(self) -> tuple[list[Instance], list[Instance]]:
        """Our machines of the name, the oldest first, and those of others. One that this host has recorded is waited for as long as the list
        may show it late; after that it is gone when two lists, half a minute apart, and a look by its id miss it."""
        launch, missing = self._recorded(), None
        while True:
            ours, strange = self._split(self._alive())
            if launch is None or any(one.id == launch.id for one in (*ours, *strange)) or (ours and not launch.id):
                return ours, strange
            known = self.cloud.instance(launch.id) if launch.id else None
            if known is not None and known.state not in _ENDING:
                own, others = self._split([known])
                return _sorted([*own, *ours]), [*others, *strange]
            now = self.task.clock.now()
            missing = missing or now
            listed_by = min(launch.started, missing) + timedelta(seconds=self.cloud.facts.list_delay)
            over = launch.ended is not None or known is not None  # asked to end, or ending by its cloud's word
            if self.task.check_mode or over or (now >= listed_by and now - missing >= _APART):
                if not self.task.check_mode and now >= listed_by:
                    self._record.remove()
                return ours, strange
            if missing is now:
                self.task.progress(f"{self.name}: launched at {launch.started:%H:%M:%SZ} and not listed yet; waiting for it.")
            self.task.clock.sleep(_LOOK_UP_PAUSE)

    def _recorded(self) -> Launch | None:
        try:
            return self._record.read()
        except errors.InvalidInput as error:
            if self.task.params.get("state") != "absent":
                raise
            self.task.warn(f"{self.name}: {error}")  # it may name a machine, and the list names it, too
            return None

    def _alive(self) -> list[Instance]:
        """Machines of the name that are not ending, oldest first."""
        return _sorted([one for one in self.cloud.instances() if one.name == self.name and one.state not in _ENDING])

    def _split(self, machines: list[Instance]) -> tuple[list[Instance], list[Instance]]:
        """Ours, and those of others."""
        ours = [one for one in machines if made_here(one, self.cloud.facts)]
        return ours, [one for one in machines if one not in ours]

    def _tell_strange(self, strange: t.Iterable[Instance]) -> None:
        for one in strange:
            self.task.warn(f"{_told(one)} is also named {self.name} and was not made by this collection; it is not changed.")

    def _end(self, machines: t.Sequence[Instance]) -> None:
        for one in machines if not self.task.check_mode else ():
            self.task.progress(f"{self.name}: destroying {one.cloud} {one.id}")
            price = "" if one.price_hour is None else f" at {print_money(one.price_hour)} $/h"
            self._give_back(one.id, "It was to end.", price)

    def _note_end(self, instance_id: str) -> None:
        try:
            launch = self._record.read()
            if launch is not None and launch.id == instance_id:
                self._record.write(dataclasses.replace(launch, ended=self.task.clock.now()))
        except errors.InvalidInput as error:
            self.task.warn(f"{self.name}: {error}")

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


def _sorted(machines: t.Sequence[Instance]) -> list[Instance]:
    return sorted(machines, key=lambda one: (one.created or _NEVER, one.id))


def _told(one: Instance) -> str:
    """A machine in a sentence: where it is, what it is, and what it costs."""
    price = "price unknown" if one.price_hour is None else f"{print_money(one.price_hour)} $/h"
    return f"{one.cloud} {one.id} ({', '.join(filter(None, (one.instance_type, price)))})"


def _too_dear(one: Instance, limit: Decimal | None) -> str:
    """Why a machine costs too much, empty if it does not: a price may turn out 5 % above the limit (L-13)."""
    if limit is None or one.price_hour is None or one.price_hour <= limit * _PRICE_TOLERANCE:
        return ""
    return f"costs {print_money(one.price_hour)} $/h, and the limit is {print_money(limit)} $/h"


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
