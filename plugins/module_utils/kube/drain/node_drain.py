# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node on its way to being empty. All methods but the submitted calls run in the loop of drain.py; nothing here blocks."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...core.clock import Clock, from_text, to_text
from ...core.errors import Conflict, Forbidden, TgpError
from ...model import Node, Pod, Taint
from ...model.defaults import Settings
from ...model.labels import (
    CORDONED_BEFORE_DRAIN_ANNOTATION,
    DISRUPTED_TAINT,
    DRAIN_STARTED_ANNOTATION,
    EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
)
from ...model.reasons import Reason
from ...planner.disruption.drain_rules import (
    Do,
    Mode,
    PodDisposition,
    Rules,
    busy,
    classify,
    deadline,
    direct_delete,
    mode_of,
    time_to_end,
)
from ..client import Kube
from ..nodes import change, get_node
from ..pods import pod_path, pods
from .eviction import Answer, Eviction, evict
from .result import Blocked, Drained

STARTED = DRAIN_STARTED_ANNOTATION
_LOOK = 5.0  # seconds; a hold may end without any event
_FIRST_LIST = 60.0  # real seconds for the first list of pods, whenever the deadline is


def undoing(node: Node) -> dict[str, t.Any]:
    """What :func:`change` needs to open a drained node again. One that a person had cordoned before stays cordoned."""
    return {
        "labels": {EXCLUDE_FROM_LOAD_BALANCERS_LABEL: None},
        "annotations": {STARTED: None, CORDONED_BEFORE_DRAIN_ANNOTATION: None},
        "remove_taints": [DISRUPTED_TAINT],
        "unschedulable": None if CORDONED_BEFORE_DRAIN_ANNOTATION in node.annotations else False,
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A Node to empty: this very one, by name and UID, for a reason of drain_rules.MODES."""

    name: str
    uid: str
    reason: str


@dataclasses.dataclass(frozen=True)
class DrainOptions:
    """How nodes are drained, the same for all nodes of a call.

    ``timeout`` seconds count from the first beginning (annotation tgp.io/drain-started), also over several runs. ``parallel`` pods of a
    node are evicted at once. ``force``: the reason Manual deletes at the deadline what is left. ``check``: evictions are sent with dryRun
    and nothing is changed. ``rules``: what may be lost. ``idle_mode`` and ``settings`` say which pods keep a node busy that is drained for
    the reason Empty.
    """

    timeout: float = 600
    parallel: int = 10
    check: bool = False
    force: bool = False
    rules: Rules = Rules()
    idle_mode: str = "workload"
    settings: Settings = Settings()


@dataclasses.dataclass(frozen=True)
class Ports:
    """What a node needs of the loop of drain.py. ``submit`` does a blocking call elsewhere and hands its result (or TgpError) back to the
    loop; ``say`` reports progress (node, text); ``on_refusal`` is called when an eviction was refused."""

    submit: t.Callable[[t.Callable[[], t.Any], t.Callable[[t.Any], None]], None]
    say: t.Callable[[str, str], None]
    on_refusal: t.Callable[[], None]


class Emptying:
    """``result`` is None until it is decided; ``working`` between the cordon and the end; ``trouble``: why its pods are not seen."""

    def __init__(self, kube: Kube, clock: Clock, target: Target, options: DrainOptions, ports: Ports) -> None:
        self.kube, self.clock = kube, clock
        self.name, self.uid, self.reason = target.name, target.uid, target.reason
        self.mode = mode_of(target.reason, force=options.force)
        self._options, self._rules, self._settings = options, options.rules, options.settings
        self._submit, self._say, self._on_refusal = ports.submit, ports.say, ports.on_refusal
        self._begun = clock.now()
        self._end: datetime | None = None
        self._pods: dict[str, Pod] | None = None
        self._evictions: dict[str, Eviction] = {}
        self._evicted: list[str] = []
        self._waited: dict[str, None] = {}
        self._skipped: dict[str, str] = {}
        self._forced: list[str] = []
        self._changed = False
        self._ending = False
        self._broken: TgpError | None = None
        self.trouble = ""
        self._preparing = False
        self.working = False
        self.result: Drained | None = None

    # ---- the beginning

    def begin(self) -> None:
        self._preparing = True
        self._submit(self._prepare, self._prepared)

    def _prepare(self) -> Drained | None:
        """Blocking. A result when nothing remains to be done in the loop."""
        node = get_node(self.kube, self.name)
        if node is None:
            return self._result(True, "gone", "there is no such Node (any more)")
        if node.uid != self.uid:
            return self._result(True, "replaced", f"another Node has taken the name (uid {node.uid}); it was not changed")
        if self.mode is Mode.NONE:
            return self._result(True, "not needed", f"the reason {self.reason} needs no drain")
        if self.mode is Mode.GONE and node.ready:
            return self._result(False, "ready", "the Node is Ready, so its machine runs: nothing was deleted")
        now = self.clock.now()
        here = pods(self.kube, node=self.name, gpu_resources=self._settings.gpu_resources)
        refused = self._refused(here, node, now)
        if refused is not None:
            return refused
        dispositions = classify(here, self.mode, now, self._rules)
        self._note(dispositions)
        started = (_moment(node.annotations.get(STARTED)) if self._goes_on(node) else None) or now
        self._end = deadline(started, self._options.timeout)
        if self._options.check:
            return self._rehearse(node, dispositions)
        self._changed = self._mark(node, started)
        if self.mode in (Mode.LOST, Mode.GONE):
            return self._at_once(dispositions)
        self._say(self.name, f"cordoned, {self._count(dispositions)} pods to go, deadline {to_text(self._end)}")
        return None

    def _refused(self, here: list[Pod], node: Node, now: datetime) -> Drained | None:
        """Reasons not to begin at all; marks of an earlier beginning are taken off again."""
        refusal: tuple[str, str] | None = None
        if self.reason == Reason.EMPTY and (counting := busy(here, self._options.idle_mode, self._settings, now)):
            refusal = "busy", f"not empty any more: pod {_name(counting[0])}"
        blocked = [
            Blocked(_name(disposition.pod), disposition.why)
            for disposition in classify(here, self.mode, now, self._rules)
            if disposition.do is Do.BLOCK
        ]
        if refusal is None and blocked:
            refusal = "blocked", f"not begun: {_list(blocked)}"
        if refusal is None:
            return None
        if STARTED in node.annotations and not self._options.check:
            self._restore()
        return self._result(False, *refusal, blocked=blocked)

    def _goes_on(self, node: Node) -> bool:
        """Whether the drain that was begun was for the same reason: another one has its own deadline."""
        begun = [taint.value for taint in node.taints if taint.key == DISRUPTED_TAINT]
        return not begun or self.reason in begun

    def _mark(self, node: Node, started: datetime) -> bool:
        effect = "NoExecute" if self.reason == Reason.SPOT_LOST else "NoSchedule"
        annotations: dict[str, str | None] = {STARTED: to_text(started)}
        if STARTED not in node.annotations:
            annotations[CORDONED_BEFORE_DRAIN_ANNOTATION] = "true" if node.unschedulable else None
        return change(
            self.kube,
            self.name,
            uid=self.uid,
            labels={EXCLUDE_FROM_LOAD_BALANCERS_LABEL: ""},
            annotations=annotations,
            add_taints=[Taint(DISRUPTED_TAINT, self.reason, effect)],
            unschedulable=True,
        )

    def _rehearse(self, node: Node, dispositions: list[PodDisposition]) -> Drained:
        """Check mode: what would be evicted now, and what a budget would forbid now."""
        blocked = []
        for disposition in dispositions:
            if disposition.do is Do.EVICT:
                answer = evict(self.kube, disposition.pod, dry_run=True)
                if answer.kind in ("evicted", "gone"):
                    self._evicted.append(_name(disposition.pod))
                else:
                    blocked.append(Blocked(_name(disposition.pod), answer.by))
        self._changed = self._count(dispositions) > 0 or not self._is_marked(node)
        return self._result(not blocked, "blocked" if blocked else "drained", "dry run, nothing was changed", blocked=blocked)

    def _is_marked(self, node: Node) -> bool:
        """Whether the node has all marks of an earlier drain for the same reason."""
        marked = any(taint.key == DISRUPTED_TAINT and taint.value == self.reason for taint in node.taints)
        return marked and node.unschedulable and STARTED in node.annotations and EXCLUDE_FROM_LOAD_BALANCERS_LABEL in node.labels

    def _at_once(self, dispositions: list[PodDisposition]) -> Drained:
        """Nothing is waited for: the machine is about to vanish (evict once), or gone (delete without grace)."""
        for disposition in dispositions:
            if disposition.do is not Do.EVICT:
                continue
            if self.mode is Mode.GONE:
                try:
                    self.kube.delete(pod_path(disposition.pod.namespace, disposition.pod.name), uid=disposition.pod.uid, grace=0)
                except Conflict:
                    continue  # another pod has its name by now
                self._forced.append(_name(disposition.pod))
            elif evict(self.kube, disposition.pod).kind == "evicted":
                self._evicted.append(_name(disposition.pod))
        return self._result(True, "lost", "nothing was waited for")

    def _prepared(self, outcome: Drained | TgpError | None) -> None:
        self._preparing = False
        if isinstance(outcome, TgpError):
            self.fail(outcome)
        elif outcome is not None:
            self.result = outcome
        else:
            self.working = True
            if self._broken is not None:
                self.fail(self._broken)

    # ---- news

    def see_all(self, seen: dict[str, Pod]) -> None:
        self._pods = dict(seen)

    def see(self, uid: str, pod: Pod | None) -> None:
        if self._pods is None:
            return
        if pod is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod

    def budget_opened(self, namespace: str) -> None:
        """Evictions that this namespace's budgets refused may be tried at once."""
        for uid, eviction in self._evictions.items():
            pod = (self._pods or {}).get(uid)
            if pod is not None and pod.namespace == namespace:
                eviction.budget_opened()

    def fail(self, error: TgpError) -> None:
        """Something that no retry mends. A cordon that is on its way has to be there before it can be taken off."""
        if self._preparing:
            self._broken = error
        elif self.result is None and not self._ending:
            outcome = "forbidden" if isinstance(error, Forbidden) else "error"
            self._finish(False, outcome, str(error), restore=self.mode is Mode.VOLUNTARY and self.working)

    # ---- one look

    def step(self) -> float:
        """Do what is due; returns the seconds until something may be due again."""
        now = self.clock.now()
        if self._pods is None and not self._ending:
            self._fail_unseen(now)
        if self._pods is None or self._ending:
            return _LOOK
        here = list(self._pods.values())
        dispositions = classify(here, self.mode, now, self._rules)
        self._note(dispositions)
        left = [disposition for disposition in dispositions if disposition.do is not Do.SKIP]
        if self.reason == Reason.EMPTY and (counting := busy(here, self._options.idle_mode, self._settings, now)):
            self._finish(False, "busy", f"not empty any more: pod {_name(counting[0])}", restore=True)
        elif not left and self._in_flight() and now < (self._end or now):
            return _LOOK  # a pod may go before the answer to its eviction comes, and the result shall name it
        elif not left:
            self._confirm()
        elif self._end is not None and now >= self._end:
            self._over(left)
        else:
            return self._work(left, now)
        return _LOOK

    def _fail_unseen(self, now: datetime) -> None:
        """Pods that cannot be listed have no deadline of their own."""
        allowed = timedelta(seconds=max(self._options.timeout, _FIRST_LIST * self.clock.speed))
        if now >= max(self._end or now, self._begun + allowed):
            self.fail(TgpError(f"The pods of {self.name} could not be listed: {self.trouble or 'no answer'}"))

    def _work(self, left: list[PodDisposition], now: datetime) -> float:
        wake = [_LOOK]
        end = self._end or now
        wake.append((end - now).total_seconds())
        if self.mode is Mode.FORCEFUL:
            for disposition in left:
                self._delete_when_due(disposition.pod, now, end)
                wake.append((end - now).total_seconds() - time_to_end(disposition.pod))
        normal = [disposition for disposition in left if not disposition.critical]
        due = [disposition.pod for disposition in normal or left if disposition.do is Do.EVICT]
        seconds = now.timestamp()
        flying = self._in_flight()
        for pod in due:
            eviction = self._evictions.setdefault(pod.uid, Eviction())
            if not eviction.can_be_sent:
                continue
            if eviction.not_before > seconds:
                wake.append(eviction.not_before - seconds)
            elif flying < self._options.parallel:
                flying += 1
                self._evict(pod, eviction)
        return max(0.01, min(second for second in wake if second > 0))

    def _in_flight(self) -> int:
        return sum(eviction.flying for eviction in self._evictions.values())

    def _evict(self, pod: Pod, eviction: Eviction) -> None:
        eviction.flying = True
        self._submit(lambda: evict(self.kube, pod), lambda answer: self._answered(pod, eviction, answer))

    def _answered(self, pod: Pod, eviction: Eviction, answer: Answer | TgpError) -> None:
        if isinstance(answer, TgpError):
            answer = Answer("silent", "error", None, str(answer))
        eviction.take(answer, self.clock.now().timestamp())
        match answer.kind:
            case "evicted":
                self._evicted.append(_name(pod))
                self._say(self.name, f"evicted {_name(pod)}")
            case "gone":
                self.see(pod.uid, None)
            case "refused":
                self._say(self.name, f"{_name(pod)} is held by {answer.by}")
                self._on_refusal()
            case "forbidden" if self.mode is not Mode.FORCEFUL:
                blocked = [Blocked(_name(pod), "forbidden")]
                self._finish(False, "forbidden", answer.message, restore=self.mode is Mode.VOLUNTARY, blocked=blocked)

    def _delete_when_due(self, pod: Pod, now: datetime, end: datetime) -> None:
        """Forceful: its own grace must fit before the deadline."""
        eviction = self._evictions.setdefault(pod.uid, Eviction())
        grace = direct_delete(pod, now, end)
        if grace is None or eviction.forced or eviction.flying or (pod.deletion is not None and pod.deletion <= end):
            return
        eviction.forced = True
        self._forced.append(_name(pod))
        self._say(self.name, f"deleting {_name(pod)} with {grace} s of grace")
        path = pod_path(pod.namespace, pod.name)
        self._submit(lambda: self.kube.delete(path, uid=pod.uid, grace=grace), lambda answer: self._deleted(eviction, answer))

    def _deleted(self, eviction: Eviction, answer: t.Any) -> None:
        if isinstance(answer, TgpError):
            eviction.by = f"could not be deleted: {answer}"

    # ---- the end

    def _confirm(self) -> None:
        """Nothing is left in view: ask once more, since a pod may have been bound just before the cordon."""
        self._ending = True
        self._submit(
            lambda: pods(self.kube, node=self.name, gpu_resources=self._settings.gpu_resources),
            lambda remaining: self._confirmed(remaining),
        )

    def _confirmed(self, remaining: list[Pod] | TgpError) -> None:
        self._ending = False
        if isinstance(remaining, TgpError):
            self.fail(remaining)
            return
        if any(disposition.do is not Do.SKIP for disposition in classify(remaining, self.mode, self.clock.now(), self._rules)):
            self.see_all({pod.uid: pod for pod in remaining})
            return
        self.result = self._result(True, "drained", "")
        self._say(self.name, f"drained after {self.result.duration:.0f} s")

    def _over(self, left: list[PodDisposition]) -> None:
        """The deadline."""
        blocked = [self._blocked(disposition) for disposition in left]
        if self.mode is Mode.FORCEFUL:
            self._finish(True, "forced", f"the deadline came with {_list(blocked)}", blocked=blocked)
        else:
            self._finish(
                False, "blocked", f"held until the deadline: {_list(blocked)}", restore=self.mode is Mode.VOLUNTARY, blocked=blocked
            )

    def _blocked(self, disposition: PodDisposition) -> Blocked:
        eviction = self._evictions.get(disposition.pod.uid)
        return Blocked(_name(disposition.pod), disposition.why or (eviction.by if eviction and eviction.by else "still there"))

    def _finish(
        self, drained: bool, outcome: str, message: str, *, restore: bool = False, blocked: t.Sequence[Blocked] = ()
    ) -> None:
        """Decide. A node that stays gets its old state back; one that a person wants away keeps its cordon, with a fresh deadline for
        the next try."""
        result = self._result(drained, outcome, message, blocked=blocked)
        if drained or not self.working or not (restore or self.mode is Mode.MANUAL):
            self.result = result
            return
        self._ending = True

        def restored(failure: t.Any) -> None:
            text = f"{message}; its marks could not be taken off: {failure}" if isinstance(failure, TgpError) else message
            self.result = dataclasses.replace(result, message=text)
            self._say(self.name, f"{outcome}: {text}")

        self._submit(self._restore if restore else self._forget_start, restored)

    def _restore(self) -> None:
        """Blocking: as if nothing had been begun; a cordon that was there before stays."""
        node = get_node(self.kube, self.name)
        if node is None or node.uid != self.uid:
            return
        change(self.kube, self.name, uid=self.uid, **undoing(node))

    def _forget_start(self) -> None:
        change(self.kube, self.name, uid=self.uid, annotations={STARTED: None})

    def _note(self, dispositions: t.Iterable[PodDisposition]) -> None:
        for disposition in dispositions:
            if disposition.do is Do.SKIP:
                self._skipped.setdefault(_name(disposition.pod), disposition.why)
            elif disposition.do is Do.WAIT:
                self._waited.setdefault(_name(disposition.pod))

    def _count(self, dispositions: t.Iterable[PodDisposition]) -> int:
        return sum(disposition.do is not Do.SKIP for disposition in dispositions)

    def _result(self, drained: bool, outcome: str, message: str, *, blocked: t.Sequence[Blocked] = ()) -> Drained:
        return Drained(
            self.name,
            self.reason,
            drained,
            outcome,
            message,
            tuple(self._evicted),
            tuple(name for name in self._waited if name not in self._evicted),
            tuple(self._skipped.items()),
            tuple(blocked),
            tuple(self._forced),
            (self.clock.now() - self._begun).total_seconds(),
            self._end,
            self._changed,
        )


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _list(blocked: t.Sequence[Blocked]) -> str:
    return ", ".join(f"{entry.pod} ({entry.by})" for entry in blocked) or "nothing left"


def _moment(text: str | None) -> datetime | None:
    try:
        return from_text(text) if text else None
    except ValueError:
        return None
