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

from ..core import errors
from ..core.files import state_folder
from ..core.task import Task
from ..model import Instance, InstanceState, LaunchRequest
from ..planner.garbage_collection.ownership import made_here
from ..units.money import print_money
from .base import Cloud
from .launch_errors import PATIENCE, patience
from .launch_record import Launch, LaunchRecord
from .left_behind import LeftBehind, told, with_result
from .results import diff_lines, instance_result, planned, rented

_LOOK_UPS = 3
_LOOK_UP_PAUSE = 10.0
_POLL = 10.0
_ENDS = 3  # looks, a poll apart, in which an accepted end has to show
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

    def __post_init__(self) -> None:
        self._left = LeftBehind()
        self._launch: Launch | None = None  # as this host has recorded it

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

        with self._left.named():
            return self._present(request, same, differs, unmarked)

    def _present(
        self, request: t.Callable[[], Wish], same: t.Callable[[Instance], str], differs: t.Callable[[Instance], str], unmarked: bool
    ) -> dict[str, t.Any]:
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
                    return self._result([], [planned(wanted[0])], changed=True)
                kept, extra, found, changed = self._make(wanted, same), [], [], True
        if not extra:
            kept = self._running(kept)
        return self._result(found, [kept], changed=changed)

    def _choose(self, ours: t.Sequence[Instance], differs: t.Callable[[Instance], str]) -> tuple[Instance, list[Instance]]:
        """The oldest that is what is wanted, and its duplicates. One of another kind is no duplicate: it is only told of."""
        fitting = [one for one in ours if not differs(one)]
        if not fitting:
            raise with_result(
                errors.InvalidInput(
                    f"{self.name} exists ({told(ours[0])}) and {differs(ours[0])}; that cannot be changed.",
                    remedy="Destroy it first, or use another name.",
                ),
                ours[:1],
            )
        for one in ours:
            if problem := differs(one):
                self.task.warn(f"{told(one)} is also named {self.name} and {problem}: it is neither used nor terminated.")
        return fitting[0], fitting[1:]

    def _usable(self, strange: list[Instance], unmarked: bool) -> list[Instance]:
        """Machines of others, where the user takes the responsibility."""
        if unmarked:
            return strange
        listed = ", ".join(told(one) for one in strange)
        raise with_result(
            errors.InvalidInput(
                f"{listed}: named {self.name} and not made by this collection. It is neither used nor terminated, and nothing is rented.",
                remedy="Use another name, or set include_unmarked to use it as it is.",
            ),
            strange[:1],
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
        self._write(launch)
        made = ""
        try:
            made = self._patiently(request)
        except errors.LaunchRefused as refusal:
            if refusal.instance_id:  # refused, and there all the same
                self._write(dataclasses.replace(launch, id=refusal.instance_id))
                self._give_back(rented(request, refusal.instance_id), refusal.message)
            else:
                self._record.remove()
            raise
        except errors.LaunchUnknown as unknown:
            self.task.progress(f"{self.name}: {unknown.message} Looking for it by name.")
            found = self._look_up("")
            if not found:
                raise unknown
        else:
            self._left.note(rented(request, made))
            self._write(dataclasses.replace(launch, id=made))
            found = self._look_up(made)
            if not found:
                raise errors.LaunchUnknown(
                    f"{self.name} was made as {made}, and {request.offer.cloud} shows it neither in its list nor by this id yet.",
                    remedy="Run this again: this host has recorded the id and looks it up. From another host, look for it in the console.",
                )
        for one in found:
            self._left.note(one)
        kept, extra = self._choose(found, lambda one: "" if one.interrupted else same(one))  # what became of it is told by the wait
        self._write(dataclasses.replace(launch, id=kept.id))
        self._end(extra)
        self._check_price(kept, request.max_price_hour)
        return kept

    def _patiently(self, request: LaunchRequest) -> str:
        """A cloud that answers 429 has made nothing: the same call is sent again a few times (L-14), unless the name is there by then."""
        for usual in PATIENCE:
            try:
                return self.cloud.launch(request)
            except errors.LaunchRefused as refusal:
                if refusal.reason != "rate" or refusal.details.get("status") != 429:
                    raise
                pause = patience(refusal, usual)
                self.task.progress(f"{self.name}: {request.offer.cloud} is rate limited, retrying in {pause:.0f} s")
                self.task.clock.sleep(pause)
                if (found := self._made_meanwhile()) is not None:
                    return found.id
        return self.cloud.launch(request)

    def _made_meanwhile(self) -> Instance | None:
        """Our machine of the name. A list that cannot be read says nothing: the answer to the call was that nothing was made."""
        try:
            return next(iter(self._split(self._alive())[0]), None)
        except errors.ApiError as error:
            self.task.progress(f"{self.name}: the look-up failed: {error}")
            return None

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

    def _give_back(self, one: Instance, why: str) -> None:
        """Terminate what may not stay, and see that it ends. That it cannot be terminated must not hide that it exists and costs money."""
        self._left.note(one)
        self._terminate(one, why)
        for turn in range(_ENDS):
            if turn:
                self.task.clock.sleep(_POLL)
            try:
                seen = self.cloud.instance(one.id)
            except errors.ApiError as error:
                self.task.progress(f"{self.name}: the look-up of {one.id} failed: {error}")
                continue
            if seen is None or seen.state in _ENDING:
                self._left.drop(one.id)
                return
            self._left.note(seen)
        raise self._stays(one, f"{why} {one.cloud} accepted the end of {one.id}, and does not show that it ends.")

    def _terminate(self, one: Instance, why: str) -> None:
        """Ask for its end; the failure says what it was to end for."""
        try:
            self.cloud.terminate(one.id)
        except errors.ApiError as error:
            with contextlib.suppress(errors.ApiError):
                self._left.note(self.cloud.instance(one.id) or one)
            raise self._stays(one, f"{why} {one.cloud} {one.id} could not be terminated: {error}") from error
        self._note_end(one.id)

    def _stays(self, one: Instance, message: str) -> errors.TgpError:
        return errors.TgpError(message, cloud=one.cloud, instance_id=one.id)

    def _check_price(self, made: Instance, limit: Decimal | None) -> None:
        """The price really paid may be up to 5 % above the limit, then the machine is terminated at once (L-13)."""
        if limit is None or made.price_hour is None or made.price_hour <= limit:
            return
        text = f"{self.name} costs {print_money(made.price_hour)} $/h, the limit is {print_money(limit)} $/h"
        if not _too_dear(made, limit):
            self.task.warn(f"{text}; it stays, because that is within 5 %.")
            return
        self._give_back(made, f"{text}.")
        raise errors.LaunchRefused(f"{text}; it was destroyed again.", reason="invalid", instance_id=made.id)

    def _running(self, instance: Instance) -> Instance:
        """The machine once it runs and has an address, or as it is when nobody wants to wait. One that will never run is a failure."""
        started, last = self.task.clock.now(), instance
        if self.wait_timeout is None or self.task.check_mode:
            return self._as_it_is(instance)
        asked, trouble = started, ""
        while True:
            self._left.note(last)
            if self.ready(last):
                return last
            if (now := self.task.clock.now()) >= asked and last.state is InstanceState.PENDING:
                asked, before = now + timedelta(seconds=_LOG_EVERY), trouble
                trouble = self._told(last)
                if trouble and trouble != before:
                    self.task.progress(f"{self.name}: {trouble}")
            self._check_alive(last, "ended while it was awaited")
            end = f". Its log says: {trouble}" if trouble else "."
            self._pause(started, f"run and have an address (last state: {last.raw_state})", last, end)
            last = self.cloud.instance(instance.id) or dataclasses.replace(last, state=InstanceState.TERMINATED, raw_state="gone")

    def _as_it_is(self, one: Instance) -> Instance:
        """A list may not tell why a machine does not run; the machine itself does."""
        if one.id and one.state is not InstanceState.RUNNING:
            self._left.note(one)
            one = self.cloud.instance(one.id) or one
        self._check_alive(one, "will not run")
        if one.state is InstanceState.STOPPED:
            self.task.warn(f"{told(one)} is stopped ({one.raw_state}). Nothing here starts it, and its disk is billed.")
        return one

    def _check_alive(self, one: Instance, what: str) -> None:
        """TgpError for a machine that does not come up any more, and is billed all the same."""
        stuck = one.state is InstanceState.STOPPED and one.problem  # without a problem it may be on its way up
        if one.interrupted or stuck or one.state in (InstanceState.FAILED, *_ENDING):
            self._left.note(one)
            why = f"{one.raw_state} {one.problem}".strip().rstrip(".")
            raise with_result(errors.TgpError(f"{self.name} {what}: {why}."), [one])

    def _told(self, instance: Instance) -> str:
        try:
            return self.told(instance)
        except errors.ApiError as error:
            return f"the log could not be read: {error}"

    # ---- absent

    def absent(self, *, unmarked: bool) -> dict[str, t.Any]:
        """No machine of the name. Those that carry no mark of ours are kept, and are an error, unless ``unmarked``."""
        with self._left.named():
            return self._absent(unmarked)

    def _absent(self, unmarked: bool) -> dict[str, t.Any]:
        with self._alone():
            ours, strange = self._existing()
            if strange and not unmarked:
                raise errors.InvalidInput(
                    f"{self.name}: {', '.join(one.id for one in strange)} was not made by this collection; it is not changed.",
                    remedy="Set include_unmarked to destroy it all the same.",
                )
            found = _sorted([*ours, *strange])
            if not self.task.check_mode:
                end = self._give_back if self.wait_timeout is None else self._terminate  # the wait sees that they are gone
                self._end_all(found, lambda one: end(one, f"{self.name} was to end."))
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
                    self._left.note(shown)
                    continue
                del left[identity]
                self._left.drop(identity)
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
        self._launch = launch = self._recorded()
        missing = None
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

    def _alive(self) -> list[Instance]:
        """Machines of the name that are not ending, oldest first."""
        return _sorted([one for one in self.cloud.instances() if one.name == self.name and one.state not in _ENDING])

    def _split(self, machines: list[Instance]) -> tuple[list[Instance], list[Instance]]:
        """Ours, and those of others."""
        ours = [
            one
            for one in machines
            if made_here(one, self.cloud.facts, recorded=self._launch is not None and self._launch.made(one))
        ]
        return ours, [one for one in machines if one not in ours]

    def _tell_strange(self, strange: t.Iterable[Instance]) -> None:
        for one in strange:
            self.task.warn(f"{told(one)} is also named {self.name} and was not made by this collection; it is not changed.")

    def _end(self, machines: t.Sequence[Instance]) -> None:
        """End duplicates, and see that they end."""
        if not self.task.check_mode:
            self._end_all(machines, lambda one: self._give_back(one, f"{self.name} was to end."))

    def _end_all(self, machines: t.Sequence[Instance], end: t.Callable[[Instance], None]) -> None:
        """One that cannot be ended does not keep the others alive; the first failure is told once all were tried."""
        for one in machines:
            self._left.note(one)
        failed: list[errors.TgpError] = []
        for one in machines:
            self.task.progress(f"{self.name}: destroying {one.cloud} {one.id}")
            try:
                end(one)
                self._left.drop(one.id)
            except errors.TgpError as error:
                failed.append(error)
        for another in failed[1:]:
            self.task.warn(str(another))
        if failed:
            raise failed[0]

    def _note_end(self, instance_id: str) -> None:
        try:
            launch = self._record.read()
            if launch is not None and launch.id == instance_id:
                self._write(dataclasses.replace(launch, ended=self.task.clock.now()))
        except errors.InvalidInput as error:
            self.task.warn(f"{self.name}: {error}")

    def _pause(self, started: datetime, goal: str, last: Instance, end: str = ".") -> None:
        passed = (self.task.clock.now() - started).total_seconds()
        if passed >= (self.wait_timeout or 0):
            raise with_result(
                errors.TimedOut(f"{self.name} ({last.id}) did not {goal} within {self.wait_timeout:g} s{end}"), [last]
            )
        self.task.clock.sleep(min(_POLL, (self.wait_timeout or 0) - passed))

    def _result(self, before: list[Instance], after: list[Instance], *, changed: bool) -> dict[str, t.Any]:
        shown = [instance_result(one) for one in after]
        result = {"changed": changed, "instance": shown[0] if shown else None, "instances": shown}
        if self.task.diff_mode:
            result["diff"] = {"before": diff_lines(before), "after": diff_lines(after if changed else before)}
        return result


def _sorted(machines: t.Sequence[Instance]) -> list[Instance]:
    return sorted(machines, key=lambda one: (one.created or _NEVER, one.id))


def _too_dear(one: Instance, limit: Decimal | None) -> str:
    """Why a machine costs too much, empty if it does not: a price may turn out 5 % above the limit (L-13)."""
    if limit is None or one.price_hour is None or one.price_hour <= limit * _PRICE_TOLERANCE:
        return ""
    return f"costs {print_money(one.price_hour)} $/h, and the limit is {print_money(limit)} $/h"


def too_small(one: Instance, disk_gib: int) -> str:
    """Why its disk, which cannot grow, is too small; empty if it is not."""
    if one.disk_gib is None or one.disk_gib >= disk_gib:
        return ""
    return f"has a disk of {one.disk_gib} GiB, and {disk_gib} GiB are wanted"
