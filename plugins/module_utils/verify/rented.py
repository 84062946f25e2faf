# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paid part: the cheapest machine of a cloud through its whole life, watched by read-only calls, under a cap of cost.

The machine has one fixed name per cloud, and its launch is recorded on this host before the paid call (providers/launch_record.py). So a call
that was killed is made good by the next one: it ends what has the name before anything else.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..core import errors
from ..core.files import state_folder
from ..core.task import Task, like_an_interrupt, undisturbed
from ..model import Container, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery
from ..planner.offers.ranking import price_verdict
from ..planner.offers.requirements import good_enough
from ..providers.base import Cloud
from ..providers.ensure_instance import NamedInstance
from ..providers.launch_record import LaunchRecord
from ..units.values import print_money
from .ask import Recording, VerifyTarget
from .boot_log import BootLog
from .facts.fact import LIFE, BootScript, Question, Replies, Reply, Table, WatchCalls, values
from .facts.life import GONE, LISTED, MACHINE

IMAGE = "docker.io/library/busybox:stable"
_COMMAND = "exec sleep 3600"
_POLL = 10.0
_ENDS_WITHIN = 900.0  # seconds for which the end of the machine is awaited
_RESERVE = Decimal("1.25")  # the end takes time, too: the watch ends when so many times the cost is the cap
_LEAST_WATCH = 120.0
_LOGGED_WITHIN = 600.0  # seconds for which the log of a machine that runs is read again
_LISTED_WITHIN = 3  # times the delay that is known; a list that is later than that is not awaited
_READ = 30.0  # seconds that one read may take
_DISK_GIB, _VM_DISK_GIB = 50, 64
_MOST_TRIES = 3
_MOST_PAGES = 40
_HOUR = Decimal(3600)


def machine_name(cloud: str) -> str:
    return f"tgp-verify-{cloud}"


class Budget(t.NamedTuple):
    """``seconds`` for which the machine of ``offer`` may be watched under the cap."""

    offer: Offer
    price_hour: Decimal
    seconds: float
    cap: Decimal

    def spent(self, seconds: float) -> Decimal:
        return self.price_hour * Decimal(str(seconds)) / _HOUR

    def used_up(self, seconds: float) -> bool:
        return self.spent(seconds) * _RESERVE >= self.cap


def affordable_offers(cloud: Cloud, lane: Lane, offers: t.Iterable[Offer], cap: Decimal, option: str) -> list[Budget]:
    """The cheapest offers for the lane that fit under the cap, cheapest first. InvalidInput, which names the cap's ``option``, when there is
    none."""
    usable = [
        (offer.price_hour, offer)
        for offer in offers
        if offer.available != 0 and offer.gpu_count and not offer.spot and offer.price_hour is not None and offer.price_hour > 0
        if lane is Lane.SERVICE or good_enough(offer, cloud.facts.node_quality)
    ]
    if not usable:
        raise errors.LaunchRefused(f"{cloud.facts.cloud} offers nothing with a price for lane {lane.value} now.", reason="capacity")
    usable.sort(key=lambda pair: (pair[0], pair[1].id))
    longest = float(cloud.facts.registration_timeout)
    budgets = []
    for price, offer in usable[:_MOST_TRIES]:
        affordable = float(cap / _RESERVE / price * _HOUR)
        if affordable >= _LEAST_WATCH:
            budgets.append(Budget(offer, price, min(longest, affordable), cap))
    if not budgets:
        price, offer = usable[0]
        needed = price * Decimal(str(_LEAST_WATCH)) / _HOUR * _RESERVE
        raise errors.InvalidInput(
            f"{option} must be at least {print_money(needed)} $: the cheapest machine, {offer.instance_type}, costs {print_money(price)} $/h.",
            remedy=f"Raise {option}, or try again when something cheaper is on sale.",
        )
    return budgets


def default_lane(lanes: t.Sequence[Lane]) -> Lane:
    """Containers where the cloud has them: they are the cheapest, and need no payload."""
    return Lane.SERVICE if Lane.SERVICE in lanes else lanes[0]


def query_for(cloud: Cloud, lane: Lane) -> OfferQuery:
    """What can be rented for the lane, with one GPU."""
    mixed = Lane.SERVICE in cloud.facts.lanes
    disk = _VM_DISK_GIB if mixed and lane is not Lane.SERVICE else _DISK_GIB
    return OfferQuery(gpu_counts=(1,), disk_gib=disk, spot=False, lanes=(lane,) if mixed else ())


def request_for(
    cloud: Cloud, lane: Lane, budget: Budget, replies: Replies, now: datetime, script: BootScript | None = None
) -> LaunchRequest:
    """A machine that joins nothing. Its mark says since when it exists. ``script``: what it runs when it boots."""
    settings = {}
    if cloud.facts.cloud == "lambda" and "keys" in replies:
        names = sorted(one for one in values(replies["keys"].json, "data.*.name") if isinstance(one, str))
        settings = {"sshKey": names[0]} if names else {}
    return LaunchRequest(
        name=machine_name(cloud.facts.cloud),
        offer=budget.offer,
        container=Container(IMAGE, _COMMAND) if lane is Lane.SERVICE else None,
        user_data=script.script if script else None,
        environment=script.environment if script else {},
        marks={"created": str(int(now.timestamp())), "purpose": "verify-provider"},
        max_price_hour=budget.price_hour,
        settings=settings,
    )


def boot_script(table: Table, lane: Lane) -> BootScript | None:
    """What a machine of the lane is to run, if anything."""
    script = table.boot_script
    return script if script is not None and script.lane == lane.value else None


# ---- a call that was killed


def launched_before(task: Task, cloud: Cloud) -> bool:
    """Whether this host has recorded a launch of ours that it has not seen end."""
    return launch_record(task, cloud).read() is not None


def launch_record(task: Task, cloud: Cloud) -> LaunchRecord:
    """Where this host records the launch, before the call that is paid."""
    return LaunchRecord(state_folder(task.params), cloud.facts.cloud, machine_name(cloud.facts.cloud), task.clock)


def end_all(task: Task, cloud: Cloud) -> list[str]:
    """End every machine of ours with the name and what was kept beside it. What could not be ended is returned by provider and name."""
    name, left = machine_name(cloud.facts.cloud), list[str]()
    try:
        NamedInstance(task, cloud, name, _ENDS_WITHIN).absent(unmarked=False)
    except errors.TgpError as error:
        task.warn(str(error))
        left.append(f"{cloud.facts.cloud}, machine {name}")
    try:
        for extra in cloud.extras():
            if extra.name == name:
                cloud.discard(extra)
    except errors.TgpError as error:
        task.warn(str(error))
        left.append(f"{cloud.facts.cloud}, something kept beside machine {name}")
    return left


# ---- one life


@dataclasses.dataclass
class Life:
    """What was seen of one machine; ``as_reply`` is what the facts read. Seconds count from the launch. How long a machine was missing,
    ``unlisted_for`` from the list and ``missing_by_id``, counts from the answer to the create call: until then it may not have existed."""

    looks: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    states: list[str] = dataclasses.field(default_factory=list)
    listed_after: float | None = None
    unlisted_for: float | None = None
    missing_by_id: float | None = None
    running_after: float | None = None
    ended_after: float | None = None
    price_ratio: float | None = None
    stopped_for: str = ""
    watched: float = 0.0

    def as_reply(self) -> Reply:
        return Reply(200, dataclasses.asdict(self))


@dataclasses.dataclass
class Rental:
    """One machine from its launch to its end. ``left`` is what could not be ended; ``problem``: why it ended early."""

    task: Task
    target: VerifyTarget
    cloud: Cloud
    lane: Lane
    recording: Recording
    budgets: t.Sequence[Budget]
    life: Life = dataclasses.field(default_factory=Life)
    left: list[str] = dataclasses.field(default_factory=list)
    problem: str = ""
    identity: str = ""
    made: bool = False
    began: datetime | None = None
    known: datetime | None = None  # since when the machine exists for certain
    paid: Budget | None = None

    def run(self) -> None:
        """The whole life. Whatever happens in between, the end is tried."""
        with like_an_interrupt():
            try:
                self._launch()
                self._watch()
                self._read_log()
            except errors.TgpError as error:
                self.made = self.made or bool(error.details.get("instance_id"))
                self.problem = f"{error.kind}: {_first_words(error)}"
                self.task.warn(str(error))
            except KeyboardInterrupt:
                self.problem = "interrupted"  # the report is written all the same, and says so
            finally:
                with undisturbed():
                    self._end()
        self.recording.replies[LIFE] = self.life.as_reply()

    def spent(self) -> Decimal:
        """Dollars so far, by the offer's price and our clock."""
        if self.began is None or self.paid is None:
            return Decimal(0)
        return self.paid.spent(self._seconds())

    def _seconds(self) -> float:
        return 0.0 if self.began is None else (self.task.clock.now() - self.began).total_seconds()

    def _known_for(self) -> float:
        """Seconds for which the machine has existed for certain."""
        return 0.0 if self.known is None else max((self.task.clock.now() - self.known).total_seconds(), 0.0)

    def _launch(self) -> None:
        cloud, now = self.cloud, self.task.clock.now()
        named = NamedInstance(self.task, cloud, machine_name(cloud.facts.cloud), None)
        self.began, self.paid = now, self.budgets[-1]  # the dearest that may be rented, until it is known which
        script = boot_script(self.target.table, self.lane)
        requests = [request_for(cloud, self.lane, budget, self.recording.replies, now, script) for budget in self.budgets]
        result = named.present(lambda: requests, lambda _instance: "", limit=self.budgets[-1].price_hour)
        instance = result["instance"]
        self.identity, self.made = str(instance["id"]), True
        record = launch_record(self.task, cloud).read()
        self.began = record.started if record else now
        self.known = named.answered or self.task.clock.now()
        same = [budget for budget in self.budgets if budget.offer.instance_type == instance["instance_type"]]
        self.paid = same[0] if same else self.paid
        if instance["price_hour"] is not None:
            self.life.price_ratio = round(float(Decimal(instance["price_hour"]) / self.paid.price_hour), 4)

    # ---- watching

    def _watch(self) -> None:
        """Look until the machine runs and the list shows it, it fails, or the cap or the timeout is near."""
        paid, watch = self.paid, self.target.table.watch
        if paid is None or watch is None:
            return
        ran = False
        while True:
            seconds = self._seconds()
            self.life.watched = seconds
            self._look(watch, seconds)
            instance = self.cloud.instance(self.identity)
            if instance is not None:
                self._check_price(instance, paid)
            if ran and self._listed_or_given_up():
                return
            if instance is not None and instance.state in (InstanceState.FAILED, InstanceState.TERMINATED):
                self.life.stopped_for = "failed"
                return
            if not ran and instance is not None and self._is_up(instance):
                self.life.running_after, ran = seconds, True  # one more look, of a machine that is up
            if paid.used_up(seconds):
                self.life.stopped_for = "cost"
                return
            if seconds >= paid.seconds:
                self.life.stopped_for = "time"
                return
            self.task.progress(
                f"{instance.name if instance else self.identity}: {instance.raw_state if instance else 'not found'} after {seconds:.0f} s, "
                f"{print_money(self.spent())} of {print_money(paid.cap)} $"
            )
            self.task.clock.sleep(_POLL)

    def _listed_or_given_up(self) -> bool:
        """A machine may run before the list shows it."""
        return self.life.listed_after is not None or self._known_for() > _LISTED_WITHIN * self.cloud.facts.list_delay

    def _is_up(self, instance: Instance) -> bool:
        """Containers need no address of their own."""
        return instance.state is InstanceState.RUNNING and (bool(instance.ip) or self.lane is Lane.SERVICE)

    def _check_price(self, instance: Instance, paid: Budget) -> None:
        if instance.price_hour is None:
            return
        self.life.price_ratio = round(float(instance.price_hour / paid.price_hour), 4)
        if price_verdict(instance.price_hour, paid.price_hour) == "jump":
            raise errors.LaunchRefused(
                f"The machine costs {print_money(instance.price_hour)} $/h, its offer said {print_money(paid.price_hour)} $/h.",
                reason="invalid",
                instance_id=self.identity,
            )

    def _look(self, watch: WatchCalls, seconds: float) -> None:
        """The list and the machine by its id, as they are answered."""
        asked = self._known_for()
        reply, entry = self._listing(watch)
        if entry is None:
            self.recording.replies.pop(LISTED, None)  # the machines of others are none of the report's business
            if reply is not None and self.life.listed_after is None:
                self.life.unlisted_for = asked
        elif reply is not None:
            self.recording.replies[LISTED] = dataclasses.replace(reply, json=_alone(reply.json, watch.entries, entry), text="")
            if self.life.listed_after is None:
                self.life.listed_after = seconds
            self._note(watch, entry, seconds)
        path, asked = watch.machine.format(*self.identity.split("/")), self._known_for()
        single = Question(MACHINE, "GET", path, pace=watch.machine_pace)
        answer = self.recording.add(MACHINE, lambda: self.target.call(single, path, {}))
        if answer is not None and answer.status == 404:
            self.life.missing_by_id = asked
            self.recording.replies.pop(MACHINE)
        elif answer is not None:
            self.life.missing_by_id = self.life.missing_by_id or 0.0
            found = values(answer.json, watch.entry)
            if found and isinstance(found[0], dict):
                self._note(watch, found[0], seconds)

    def _listing(self, watch: WatchCalls) -> tuple[Reply | None, dict[str, t.Any] | None]:
        """The page of the list that shows the machine, else the last one, and its entry."""
        params: dict[str, t.Any] = {}
        reply, entry = None, None
        for _page in range(_MOST_PAGES):
            query = {**watch.list_params, **params}
            question = Question(LISTED, "GET", watch.list_path, query, pace=watch.list_pace)
            reply = self.recording.add(LISTED, functools.partial(self.target.call, question, watch.list_path, query))
            entry = self._entry_of(reply, watch)
            params = watch.more(reply.json) if reply is not None else {}
            if entry is not None or not params:
                break
        return reply, entry

    def _entry_of(self, reply: Reply | None, watch: WatchCalls) -> dict[str, t.Any] | None:
        entries = values(reply.json, watch.entries) if reply is not None else []
        return next((one for one in entries if isinstance(one, dict) and watch.identity(one) == self.identity), None)

    def _note(self, watch: WatchCalls, entry: t.Mapping[str, t.Any], seconds: float) -> None:
        word = entry.get(watch.word)
        look: dict[str, t.Any] = {"at": round(seconds), "state": word if isinstance(word, str) else "null"}
        for aspect in watch.aspects:
            look[aspect] = "absent" if aspect not in entry else "filled" if entry[aspect] not in (None, "", [], {}) else "null"
        self.life.looks.append(look)
        if isinstance(word, str) and (not self.life.states or self.life.states[-1] != word):
            self.life.states.append(word)

    # ---- its log

    def _read_log(self) -> None:
        """Read the log of a machine that runs until its start script has said everything, or the cap or the timeout is near."""
        script, paid, up = boot_script(self.target.table, self.lane), self.paid, self.life.running_after
        if script is None or paid is None:
            return
        log = BootLog(self.target, self.cloud, self.recording, script)
        if up is None:
            log.unread("the machine did not run")
            return
        while (seconds := self._seconds()) - up < _LOGGED_WITHIN and seconds < paid.seconds and not paid.used_up(seconds + _READ):
            log.read(self.identity, seconds - up)
            if log.complete:
                return
            instance = self.cloud.instance(self.identity)
            if instance is not None:
                self._check_price(instance, paid)
            if instance is None or instance.state is not InstanceState.RUNNING:
                return
            self.task.progress(f"{instance.name}: waiting for its log, {print_money(self.spent())} of {print_money(paid.cap)} $")
            self.task.clock.sleep(_POLL)
        if not log.reads:
            log.unread("the cost cap or the timeout ended the watch before")

    # ---- the end

    def _end(self) -> None:
        asked = self.task.clock.now()
        self.left = end_all(self.task, self.cloud)
        if not self.left:
            self.life.ended_after = (self.task.clock.now() - asked) / timedelta(seconds=1)
        watch = self.target.table.watch
        if watch is not None and self.identity:
            path = watch.machine.format(*self.identity.split("/"))
            question = Question(GONE, "GET", path, pace=watch.machine_pace)
            self.recording.add(GONE, lambda: self.target.call(question, path, {}))


def _alone(body: t.Any, place: str, entry: dict[str, t.Any]) -> t.Any:
    """The list's answer with one entry."""
    name, _dot, rest = place.partition(".")
    if not name:
        return entry
    if name == "*":
        return [_alone(None, rest, entry)]
    kept = body if isinstance(body, dict) else {}
    return {**kept, name: _alone(kept.get(name), rest, entry)}


def _first_words(error: errors.TgpError) -> str:
    """The kind of failure without the service's own text, which may name things of the account."""
    if isinstance(error, errors.LaunchRefused) and error.instance_id:
        return "the machine costs more than its offer said"
    reason = error.details.get("reason")
    status = error.details.get("status")
    return " ".join(str(one) for one in (reason, f"HTTP {status}" if status else "") if one) or "see the output of the task"
