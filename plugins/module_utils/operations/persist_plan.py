# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what a plan decided into our records, before anything is done about it (L-2), and into the objects of the cluster."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ..core.errors import ApiError, BadShape, Conflict, Forbidden, NotFound, Unauthorized, Unreachable
from ..core.notifications import Delivery, Message, Sender
from ..core.task import Task
from ..kube.drain.node_drain import undoing
from ..kube.node_mark import parse_taint
from ..kube.nodes import annotate, change, get_node
from ..model import Action, Claim, Notice, Observation, Plan, StatusObject
from ..model.labels import IDLE_SINCE_ANNOTATION, LOW_UTILIZATION_ANNOTATION, STOPPED_SINCE_ANNOTATION
from ..model.queues import CapacityBuffer, ProvisioningRequest
from ..model.reasons import ActionKind, Finding
from ..observe.context import Context
from ..observe.queues import buffer_path, request_path
from ..planner import finalizers, notices
from ..planner.disruption.interruption import left_alone
from ..planner.object_status import World, statuses
from ..planner.object_status import change as status_change
from ..planner.offers import launch_backoff
from ..planner.provisioning import capacity_buffers, requested_capacity
from ..providers.registry import CAPABILITIES


@dataclasses.dataclass
class Recorded:
    """What was written: claims by name, and how many writes in all. One object that cannot be written never stops the others (L-22)."""

    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    writes: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)  # what could not be written, by claim, Node or record, and why
    unrecorded: set[str] = dataclasses.field(default_factory=set)  # claims of which the plan is not recorded


def record(context: Context, plan: Plan) -> Recorded:
    """Write the plan's claims, node annotations and findings. Launch and destroy themselves come later, from the claims."""
    tell_decisions(context.task, plan)
    telling = Telling(context, plan)
    recorded = Recorded()
    known = {claim.name: claim for claim in context.records.known_claims()}
    going = {claim.name: claim.deletion.reason for claim in known.values() if claim.deletion is not None}
    closed = {
        action.name for action in plan.actions if action.kind == ActionKind.RESTORE and not _restore(context, action, recorded)
    }
    for action in plan.actions:
        if action.name in closed and action.kind == ActionKind.UPDATE:
            continue  # the record of the drain that was begun stays until its marks are off
        if action.claim is not None and action.kind in (
            ActionKind.LAUNCH,
            ActionKind.UPDATE,
            ActionKind.DESTROY,
            ActionKind.RESUME,
        ):
            context.lock.renew_if_due()
            if action.kind == ActionKind.DESTROY and going.get(action.name) != action.reason:
                _leave_alone(context, action.claim, recorded)
            _write(context, action.claim, known.get(action.name), recorded)
        elif action.kind in (ActionKind.TAINT, ActionKind.UNTAINT):
            _taint(context, action, recorded)
        elif action.kind == ActionKind.ANNOTATE:
            _annotate(context, action, recorded)
    _findings(context, plan, recorded)
    telling.add([Notice("records", f"records|{name}", name, why) for name, why in recorded.failed.items()])
    telling.finish()
    return recorded


def without(plan: Plan, recorded: Recorded) -> Plan:
    """The plan without what is not recorded: nothing is launched or destroyed without its record, so it waits for the next run."""
    left = recorded.unrecorded
    return dataclasses.replace(
        plan,
        actions=tuple(action for action in plan.actions if action.name not in left or action.kind == ActionKind.REPORT),
        join=tuple(name for name in plan.join if name not in left),
        admit=tuple(name for name in plan.admit if name not in left),
        failures=(*plan.failures, *recorded.failed.values()),
    )


def _write(context: Context, claim: Claim, known: Claim | None, recorded: Recorded) -> None:
    """What only brings the hours of a machine up to date (L-44) is not a change: time passes in a run that has nothing to do, too."""
    try:
        recorded.claims[claim.name] = context.store.write(claim)
        recorded.writes += int(known is None or dataclasses.replace(claim, work=known.work) != known)
    except (Unreachable, Unauthorized):
        raise  # no record at all can be written
    except ApiError as error:
        recorded.unrecorded.add(claim.name)
        recorded.failed[claim.name] = (
            f"{claim.name}: its claim cannot be written, so nothing is done with its machine in this run: {error}"
        )


def _findings(context: Context, plan: Plan, recorded: Recorded) -> None:
    """Write what was seen for the first time. A damaged record is replaced."""
    try:
        previous: t.Mapping[str, t.Any] | None = context.records.read_times("findings")
    except BadShape as error:
        if error.service != "claims":
            recorded.failed["tgp-state-findings"] = f"tgp-state-findings cannot be read: {error}"
            return
        previous = None
    except ApiError as error:
        recorded.failed["tgp-state-findings"] = f"tgp-state-findings cannot be read: {error}"
        return
    try:
        if dict(plan.findings) != previous:
            context.records.write_times("findings", plan.findings)
    except ApiError as error:
        text = (
            f"tgp-state-findings cannot be written, so what has no claim counts as seen for the first time by the next run: {error}"
        )
        recorded.failed["tgp-state-findings"] = text


def _restore(context: Context, action: Action, recorded: Recorded) -> bool:
    """Take the marks of a drain off the node again; False when that could not be done."""
    context.lock.renew_if_due()
    try:
        node = get_node(context.kube, action.target)
        if node is not None and node.uid == action.uid:
            recorded.writes += int(change(context.kube, action.target, uid=action.uid, **undoing(node)))
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: it stays cordoned until the next run: {error}")
        return False
    except ApiError as error:
        recorded.failed[action.target] = f"{action.target}: the Node stays cordoned until the next run: {error}"
        return False
    return True


def _leave_alone(context: Context, claim: Claim, recorded: Recorded) -> None:
    """Block where a machine was lost or never joined, and count what never joined for its pool, once, before the record that says so. The
    machine costs money, so it ends also when that cannot be noted."""
    reason = left_alone(claim.deletion.reason if claim.deletion else "", rented=CAPABILITIES[claim.cloud].rented)
    try:
        for key in launch_backoff.keys_after(claim.offer, reason):
            context.records.block(key, reason)
        if reason == "join":
            context.records.failed_join(claim.pool)
    except ApiError as error:
        recorded.failed["tgp-state-blocklist"] = (
            f"tgp-state-blocklist cannot be written, so an offer that failed may be tried again: {error}"
        )


def _taint(context: Context, action: Action, recorded: Recorded) -> None:
    """Set a taint of ours (value "key=value:Effect"), or take it away (value its key)."""
    value = action.value or ""
    spec: dict[str, t.Any] = {"add_taints": [parse_taint(value)]} if action.kind == ActionKind.TAINT else {"remove_taints": [value]}
    context.lock.renew_if_due()
    try:
        recorded.writes += int(change(context.kube, action.target, uid=action.uid, **spec))
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: {action.kind} {value} was not done in this run: {error}")
    except ApiError as error:
        recorded.failed[action.target] = f"{action.target}: {action.kind} {value} of the Node failed: {error}"


_REMEMBERED: t.Mapping[str, str] = {
    Finding.GPUS_UNUSED: LOW_UTILIZATION_ANNOTATION,
    Finding.GPUS_USED: LOW_UTILIZATION_ANNOTATION,
    Finding.STOPPED: STOPPED_SINCE_ANNOTATION,
    Finding.SWITCHED_ON: STOPPED_SINCE_ANNOTATION,
}  # others: idle since


def _annotate(context: Context, action: Action, recorded: Recorded) -> None:
    key = _REMEMBERED.get(action.reason, IDLE_SINCE_ANNOTATION)
    try:
        annotate(context.kube, action.target, {key: action.value}, uid=action.uid)
        recorded.writes += 1
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: {key} not noted in this run: {error}")
    except ApiError as error:
        recorded.failed[action.target] = f"{action.target}: {key} could not be written to the Node: {error}"


# ---- what is reported of a plan once it counts: every decision as an event, and notices for people who do not watch the run

_MEMORY = "notices"  # in the state beside the claims: key of a notice → when its notice was sent


def tell_decisions(task: Task, plan: Plan) -> None:
    """One event for each action, with its reason and its price; for what will not come; and for what is in the way."""
    for action in plan.actions:
        task.tell(
            "decision",
            action=action.kind,
            name=action.name,
            pool=action.pool,
            reason=action.reason,
            text=action.detail,
            target=action.target,
            price_hour=action.price_hour if action.price_hour else None,
        )
    for missing in plan.shortfall:
        task.tell(
            "decision",
            action="shortfall",
            pool=missing.pool,
            missing=missing.missing,
            reason=missing.reason,
            rejected=missing.rejected,
        )
    for problem in (*plan.problems, *plan.failures):
        task.tell("decision", action="refuse", reason="problem", text=problem)


class Telling:
    """The notices of one plan on their way to people. Made before the plan is recorded, ``finish`` called afterwards: in between they are
    delivered. Nothing of this fails a run."""

    def __init__(self, context: Context, plan: Plan) -> None:
        self._context, self._plan = context, plan
        self._told: t.Mapping[str, datetime] | None = None
        self._late: Delivery | None = None
        self._sender = sender = Sender(context.task)
        memory = self._read() if sender.is_set or Messages.wanted(context) else None
        self._memory = memory
        ours, theirs = notices.known_to_people(memory or {})
        self._messages = Messages(context, theirs)
        self._messages.begun(plan.notices)
        if sender.is_set:
            self._told = None if memory is None else ours
            due = notices.due(plan.notices, self._told or {}, context.clock.now())
            self._delivery = sender.begin([Message(**_fields(notice)) for notice in due])
            return
        self._delivery = Delivery(sender, context.task, ())
        for notice in plan.notices:
            context.task.tell(
                "notice", notice=notice.kind, name=notice.subject, key=notice.key, text=notice.text, data=dict(notice.data)
            )

    def add(self, more: t.Sequence[Notice]) -> None:
        """Notices of what was found out since."""
        self._plan = dataclasses.replace(self._plan, notices=(*self._plan.notices, *more))
        self._messages.begun(more)
        self._messages.resolved(self._plan)
        if self._sender.is_set:
            late = notices.due(more, self._told or {}, self._context.clock.now())
            self._late = self._sender.begin([Message(**_fields(notice)) for notice in late])
            return
        for notice in more:
            self._context.task.tell(
                "notice", notice=notice.kind, name=notice.subject, key=notice.key, text=notice.text, data=dict(notice.data)
            )

    def finish(self) -> None:
        """Wait for them, within their deadline, and remember which arrived."""
        arrived = [message.key for message in self._delivery.arrived(self._context.warn)]
        arrived += [] if self._late is None else [message.key for message in self._late.arrived(self._context.warn)]
        theirs = self._messages.known_after(self._plan)
        if self._memory is None:
            return
        plan, now = self._plan, self._context.clock.now()
        ours, _theirs = notices.known_to_people(self._memory)
        if self._told is not None:
            ours = notices.remembered(plan.notices, self._told, arrived, plan.judged, now)
        remembered = dict(sorted({**ours, **{f"{notices.PEOPLE}{key}": when for key, when in theirs.items()}}.items()))
        if remembered != self._memory:
            try:
                self._context.records.write_times(_MEMORY, remembered)
            except ApiError as error:
                self._context.warn(f"The notices that were sent could not be recorded; they may be sent again: {error}")

    def _read(self) -> t.Mapping[str, datetime] | None:
        try:
            return self._context.records.read_times(_MEMORY)
        except (ApiError, ValueError) as error:
            self._context.warn(f"The notices that were sent before could not be read; they may be sent again: {error}")
            damaged = isinstance(error, BadShape) and error.service == "claims"
            return {} if damaged else None  # a damaged record is written anew


class Messages:
    """Messages to people of one plan, beside the notices. ``known``: what they know, and since when."""

    def __init__(self, context: Context, known: t.Mapping[str, datetime]) -> None:
        self._context, self._known = context, known
        self._sent: list[tuple[list[notices.Announcement], Delivery]] = []
        self._now = context.clock.now()
        people = context.people
        self._people = people if people is not None and people.is_set else None
        self._quiet = self._people is not None and self._people.quiet is not None and self._people.quiet.holds(self._now)

    @staticmethod
    def wanted(context: Context) -> bool:
        """Whether any go anywhere."""
        return context.people is not None and context.people.is_set

    def begun(self, found: t.Sequence[Notice]) -> None:
        """Send what has begun."""
        if self._people is not None:
            reminded = self._people.summary is None
            self._send(notices.begun(found, self._known, self._now, quiet=self._quiet, reminded=reminded))

    def resolved(self, plan: Plan) -> None:
        """Send what is resolved, and the summary, once a day."""
        if self._people is None:
            return
        words = notices.resolved(plan.notices, self._known, plan.judged, quiet=self._quiet)
        if self._people.summary is not None and plan.judged:
            last = self._people.summary.last(self._now)
            words += notices.summary(self._context.records.known_claims(), plan.notices, self._known, last)
        self._send(words)

    def known_after(self, plan: Plan) -> dict[str, datetime]:
        """Wait for all of them; what people know then."""
        if self._people is None:
            return dict(self._known)
        arrived: list[notices.Announcement] = []
        for words, delivery in self._sent:
            keys = {(message.key, message.data["state"]) for message in self._people.arrived(delivery)}
            arrived += [word for word in words if (word.key, word.state) in keys]
        return notices.people_know(plan.notices, self._known, arrived, plan.judged, self._now)

    def _send(self, words: list[notices.Announcement]) -> None:
        if self._people is not None and words:
            messages = [
                Message(word.key.partition("|")[0], word.key, word.subject, word.text, {"state": word.state}) for word in words
            ]
            self._sent.append((words, self._people.begin(messages)))


def _fields(notice: Notice) -> dict[str, t.Any]:
    return {field.name: getattr(notice, field.name) for field in dataclasses.fields(notice)}


# ---- finalizers and status of objects of the cluster


def write_objects(context: Context, seen: Observation, decided: Plan) -> list[str]:
    """Writes finalizers and status of the objects whose documents the run has read: each at most once per object and run, and only what has
    changed. What could not be written, as sentences; the run goes on all the same."""
    problems: list[str] = []
    refused: set[str] = set()  # kinds: a right that is missing for one object is missing for all
    world = World(seen, context.specs, decided, context.settings, CAPABILITIES)
    if seen.claims is not None:
        held = finalizers.changes(context.specs, world.claims, seen.damaged)
        objects = write_finalizers(context, held, problems)
        world = dataclasses.replace(world, specs=dataclasses.replace(context.specs, objects=objects))
    problems += write_queues(context, decided)
    for one, status in statuses(world):
        patch = status_change(one.status, status, seen.now)
        if patch is None or one.kind in refused:
            continue
        context.lock.renew_if_due()
        try:
            _write_status(context, one, status, patch)
        except NotFound:
            continue  # it was deleted meanwhile
        except Conflict:
            continue  # another client keeps changing it; the next run tries again
        except Forbidden as error:
            refused.add(one.kind)
            problems.append(f"The status of {one.kind} objects cannot be written: {error}")
        except ApiError as error:
            problems.append(f"The status of {one.place} cannot be written: {error}")
    return problems


_Written = tuple[ProvisioningRequest | CapacityBuffer, str, dict[str, t.Any] | None]


def write_queues(context: Context, decided: Plan) -> list[str]:
    """Writes the status of ProvisioningRequests and CapacityBuffers (L-42), each at most once per run, and only what has changed. What could
    not be written, as sentences."""
    problems: list[str] = []
    requests: list[_Written] = [
        (one.request, request_path(one.request), requested_capacity.status_patch(one)) for one in decided.requests
    ]
    buffers: list[_Written] = [(one.buffer, buffer_path(one.buffer), capacity_buffers.status_patch(one)) for one in decided.buffers]
    for one, path, patch in (*requests, *buffers):
        if patch is None:
            continue
        context.lock.renew_if_due()
        try:
            context.kube.patch(f"{path}/status", {"metadata": {"resourceVersion": one.version}, "status": patch})
        except (NotFound, Conflict):
            continue  # it is gone, or another client has changed it: the next run decides anew
        except ApiError as error:
            problems.append(f"The status of {one.title} cannot be written: {error}")
            if isinstance(error, Forbidden):
                break
    return problems


def write_finalizers(
    context: Context, wanted: t.Iterable[finalizers.FinalizerChange], problems: list[str]
) -> tuple[StatusObject, ...]:
    """Sets and removes finalizers (L-33). Returns the objects that remain, as they are then. What could not be written is added to
    ``problems``."""
    objects = {one.path: one for one in context.specs.objects}
    refused: set[str] = set()
    for each in wanted:
        one = each.one
        if one.kind in refused:
            continue
        context.lock.renew_if_due()
        try:
            written = _patch_finalizers(context, each)
        except NotFound:
            written = None
        except Conflict:
            continue  # another client keeps changing it; the next run tries again
        except Forbidden as error:
            refused.add(one.kind)
            problems.append(f"The finalizers of {one.kind} objects cannot be written: {error}")
            continue
        except ApiError as error:
            problems.append(f"The finalizers of {one.place} cannot be written: {error}")
            continue
        if written is None or (one.deleted and not each.finalizers):
            del objects[one.path]
        else:
            version = str(written["metadata"].get("resourceVersion", ""))
            objects[one.path] = dataclasses.replace(one, version=version, finalizers=each.finalizers)
        if one.deleted:
            context.task.progress(f"  {one.place}: nothing of it is left; its finalizer is removed.")
    return tuple(objects.values())


def _patch_finalizers(context: Context, wanted: finalizers.FinalizerChange) -> dict[str, t.Any] | None:
    """The object as it is then, None when it is gone. One more try when it has changed since it was read; Conflict when its finalizers have."""
    one = wanted.one
    try:
        return _patched_finalizers(context, one.path, one.version, wanted.finalizers)
    except Conflict:
        meta = (context.kube.find(one.path) or {}).get("metadata")
        if meta is None or meta.get("uid") != one.uid:
            return None
        if tuple(meta.get("finalizers") or ()) != one.finalizers or bool(meta.get("deletionTimestamp")) != one.deleted:
            raise
        return _patched_finalizers(context, one.path, str(meta["resourceVersion"]), wanted.finalizers)


def _patched_finalizers(context: Context, path: str, version: str, names: t.Sequence[str]) -> dict[str, t.Any]:
    return context.kube.patch(path, {"metadata": {"resourceVersion": version, "finalizers": list(names)}})


def _write_status(context: Context, one: StatusObject, status: t.Mapping[str, t.Any], patch: dict[str, t.Any]) -> None:
    """With one more try when the object has changed since it was read."""
    try:
        _patch_status(context, one, one.version, patch)
    except Conflict:
        found = context.kube.get(one.path)
        again = status_change(found.get("status") or {}, status, context.clock.now())
        if again is not None and found["metadata"].get("uid") == one.uid:
            _patch_status(context, one, found["metadata"]["resourceVersion"], again)


def _patch_status(context: Context, one: StatusObject, version: str, patch: dict[str, t.Any]) -> None:
    context.kube.patch(f"{one.path}/status", {"metadata": {"resourceVersion": version}, "status": patch})
