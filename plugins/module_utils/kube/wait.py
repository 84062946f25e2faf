# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for many nodes at once: one list and one watch for all of them, and a word for each on how far it came and why it hangs."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from ..core.clock import Clock
from ..core.errors import ApiError, NeverReady, TgpError
from ..model import Node
from . import csr
from .client import Kube
from .informer import Follow
from .nodes import PATH, parse

STEPS = ("launched", "instance", "device", "csr", "node", "ready", "complete")


def _nothing_wrong(_node: Node) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What others say of a machine that is not a node yet. Empty text = nothing is known. ``hopeless`` ends the wait with its reason."""

    instance: str = ""
    running: bool = False
    device: str = ""
    device_online: bool | None = None
    uses_mesh: bool = False
    token_id: str = ""
    hopeless: str = ""


@dataclasses.dataclass(frozen=True)
class Expected:
    """A node to wait for. ``claim`` is the name it is reported under, ``name`` that of its Node.

    ``missing`` says what a Node still lacks (empty = complete). ``launched`` None: a Node of any age is right; ``returns``: the machine
    keeps its Node while it is off, so an old Node is right once it is Ready. ``wrong`` says why a Node will never do (empty = it may);
    that ends the wait for it. ``again``: it may be complete without a change of the Node. ``token`` is the id of the bootstrap token whose
    certificate request the wait answers, "" where the cluster does: approved for ``name``, denied for anything else, which ends the wait, too.
    """

    name: str
    claim: str
    deadline: datetime
    missing: t.Callable[[Node], t.Sequence[str]]
    launched: datetime | None = None
    returns: bool = False
    wrong: t.Callable[[Node], str] = _nothing_wrong
    token: str = ""
    again: bool = False


@dataclasses.dataclass
class NodeOutcome:
    """How a wait ended: ``step`` is the last one reached, ``seen`` when each was first seen, ``message`` why it is not further,
    ``hopeless`` why it was given up before its time."""

    ready: bool = False
    step: str = "launched"
    message: str = "nothing was seen of it"
    seconds: float = 0.0
    seen: dict[str, datetime] = dataclasses.field(default_factory=dict)
    node: Node | None = None
    hopeless: str = ""


_LOOK_EVERY = 5.0  # seconds between two looks at clouds, mesh and certificate requests
_WORKERS = 97  # nodes finished at a time, and one look
_OLDER = timedelta(seconds=60)  # clocks differ; a Node that much older than the launch is another machine's


_Look = tuple[dict[str, Evidence], list[csr.SigningRequest]]


def _no_step(_claim: str, _step: str, _detail: str) -> None:
    """Nobody listens."""


def _no_ready(_claim: str, _node: Node) -> None:
    """Nothing is to be done."""


def _no_end(_ended: t.Mapping[str, NodeOutcome]) -> None:
    """Nobody needs to know before the end."""


def wait_for(
    kube: Kube,
    expected: t.Sequence[Expected],
    *,
    clock: Clock,
    evidence: t.Callable[[str], Evidence] = lambda _claim: Evidence(),
    on_step: t.Callable[[str, str, str], None] = _no_step,
    on_ready: t.Callable[[str, Node], None] = _no_ready,
) -> dict[str, NodeOutcome]:
    """Wait until every node is complete or its time is over; returns an outcome per ``claim``. See :class:`NodeWait`."""
    wait = NodeWait(kube, clock=clock, evidence=evidence, on_step=on_step, on_ready=on_ready)
    for machine in expected:
        wait.add(machine)
    wait.close()
    return wait.run()


def is_older(node: Node, launched: datetime) -> bool:
    """True for a Node that is too old to be that of a machine launched then."""
    return node.created < launched - _OLDER


class NodeWait:
    """One wait for many nodes, which other threads may extend by :meth:`add` until :meth:`close`.

    ``on_ready`` runs at once for each node that is complete, beside the waiting for the others; after a TgpError it is called again
    until the node's deadline, after NeverReady not any more. ``evidence`` is asked in a thread of its own, for one claim after the other;
    ``on_step`` is called by the caller's thread, and so is ``on_end``, with all that ended in one pass. Missing rights, and an API server
    that cannot be reached when a time is over, end the whole wait with their error.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        evidence: t.Callable[[str], Evidence] = lambda _claim: Evidence(),
        on_step: t.Callable[[str, str, str], None] = _no_step,
        on_ready: t.Callable[[str, Node], None] = _no_ready,
        on_end: t.Callable[[t.Mapping[str, NodeOutcome]], None] = _no_end,
    ) -> None:
        self._kube, self._clock = kube, clock
        self._evidence, self._on_step, self._on_ready, self._on_end = evidence, on_step, on_ready, on_end
        self._expected: dict[str, Expected] = {}
        self._by_node: dict[str, Expected] = {}
        self._by_token: dict[str, Expected] = {}
        self._outcomes: dict[str, NodeOutcome] = {}
        self._open: set[str] = set()
        self._ended: list[str] = []
        self._changed = threading.Condition()
        self._arrived: list[Expected] = []
        self._closed = False
        self._names: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._fresh: set[str] = set()
        self._failure: TgpError | None = None
        self._trouble = ""
        self._stale: dict[str, str] = {}
        self._gone: set[str] = set()
        self._finishing: dict[str, Future[None]] = {}
        self._again: set[str] = set()
        self._looking: Future[_Look] | None = None
        self._asked: dict[str, csr.SigningRequest] = {}
        self._answering: dict[str, Future[str]] = {}
        self._answered: set[str] = set()
        self._asked_again: set[str] = set()
        self._begun = clock.now()

    def add(self, machine: Expected) -> None:
        """From any thread: wait for this one, too."""
        with self._changed:
            self._names.add(machine.name)
            self._arrived.append(machine)
            self._changed.notify_all()

    def expect(self, names: t.Iterable[str]) -> None:
        """From any thread: Nodes of these names may be waited for later. One that exists before is not missed."""
        with self._changed:
            self._names |= set(names)

    def close(self, closed: bool = True) -> None:
        """From any thread: nothing more is added. False, in ``on_end``: what ended may be replaced, so more may be added after all."""
        with self._changed:
            self._closed = closed
            self._changed.notify_all()

    def run(self) -> dict[str, NodeOutcome]:
        """Returns when the wait is closed and everything has ended: an outcome per ``claim``."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._closed)
        if not self._take_arrivals():
            return self._outcomes
        follow: Follow[Node] = Follow(self._kube, PATH, self._reduce)
        follow.add(self._told)
        asked: Follow[csr.SigningRequest] | None = None
        next_look = self._clock.now()
        try:
            with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="ready") as pool:
                while self._open or self._arrived or not self._closed:
                    if self._take_arrivals():
                        next_look = min(next_look, self._clock.now() + timedelta(seconds=_LOOK_EVERY))
                    if self._by_token and asked is None:
                        asked = Follow(self._kube, csr.PATH, csr.parse, csr.OF_KUBELETS)
                        asked.add(self._told_request)
                    self._process_changes(pool)
                    self._expire(pool)
                    self._tell_ends()
                    if self._clock.now() >= next_look:
                        self._look(pool)
                        next_look = self._clock.now() + timedelta(seconds=_LOOK_EVERY)
                    self._pause(next_look)
        finally:
            follow.remove(self._told)
            if asked is not None:
                asked.remove(self._told_request)
        return self._outcomes

    def _take_arrivals(self) -> bool:
        """What was added since the last pass; True when that is anything."""
        with self._changed:
            arrived, self._arrived = self._arrived, []
            for machine in arrived:
                self._expected[machine.claim] = self._by_node[machine.name] = machine
                self._outcomes[machine.claim] = NodeOutcome()
                self._open.add(machine.claim)
                if machine.token:
                    self._by_token[machine.token] = machine
                if machine.name in self._nodes:
                    self._fresh.add(machine.name)
        return bool(arrived)

    def _tell_ends(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._on_end({claim: self._outcomes[claim] for claim in ended})

    def _told_request(self, kind: str, key: str, item: t.Any) -> None:
        """From the thread that watches certificate requests."""
        with self._changed:
            if kind == "all":
                self._trouble = ""
            if kind in ("all", "set"):
                self._asked |= {entry.name: entry for entry in (item.values() if kind == "all" else (item,))}
            elif kind in ("failed", "trouble"):  # the looks go on asking
                self._trouble = str(item or key)
            self._changed.notify_all()

    def _reduce(self, raw: dict[str, t.Any]) -> Node | None:
        return parse(self._kube, raw) if raw["metadata"]["name"] in self._names else None

    def _told(self, kind: str, _key: str, item: t.Any) -> None:
        """From the watching thread: note what changed and wake the waiting one."""
        with self._changed:
            if kind == "all":
                before, self._nodes = self._nodes, {node.name: node for node in item.values()}
                self._gone |= set(before) - set(self._nodes)
                self._fresh.update(self._nodes)
            elif kind == "set":
                self._nodes[item.name] = item
                self._fresh.add(item.name)
            elif kind == "gone":
                self._nodes.pop(item.name, None)
                self._gone.add(item.name)
            elif kind == "failed":
                self._failure = item
            self._changed.notify_all()

    def _wake(self, _future: Future[t.Any]) -> None:
        """Something that ran beside the waiting has ended."""
        with self._changed:
            self._changed.notify_all()

    def _pause(self, until: datetime) -> None:
        with self._changed:
            beside: list[Future[t.Any]] = [*self._finishing.values(), *self._answering.values(), *filter(None, [self._looking])]
            requests = any(request.token_id in self._by_token for request in self._asked.values())
            if self._fresh or requests or self._arrived or self._failure is not None or any(future.done() for future in beside):
                return
            if not self._open and self._closed:
                return
            seconds = (until - self._clock.now()).total_seconds() / self._clock.speed
            self._changed.wait(max(0.005, min(seconds, 1.0)))

    # ---- nodes

    def _process_changes(self, pool: ThreadPoolExecutor) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            fresh = [self._nodes[name] for name in self._fresh if name in self._nodes and name in self._by_node]
            gone = {self._by_node[name].claim for name in self._gone - self._nodes.keys() if name in self._by_node} & self._open
            self._fresh.clear()
            self._gone.clear()
            asked = [request for request in self._asked.values() if request.token_id in self._by_token]
            for request in asked:  # the others are kept: a machine may ask before it is added
                del self._asked[request.name]
        for request in asked:
            self._take_request(request, pool)
        for claim in gone:
            self._lose(self._outcomes[claim])
        for node in fresh:
            machine = self._by_node[node.name]
            if machine.claim in self._open and machine.claim not in self._finishing:
                self._see(machine, node, pool)
        for claim, future in list(self._finishing.items()):
            if future.done():
                self._finish(claim, future)
        for version in [version for version, answer in self._answering.items() if answer.done()]:
            self._take_answer(version, self._answering.pop(version))
        if self._looking is not None and self._looking.done():
            self._seen(self._looking.result())

    # ---- certificate requests that the wait answers

    def _take_request(self, request: csr.SigningRequest, pool: ThreadPoolExecutor) -> None:
        """Answer it if nobody has; a denied one ends the wait for its node, because its token was used for something else."""
        machine = self._by_token[request.token_id]
        if machine.claim not in self._open or machine.claim in self._finishing:
            return
        self._ask_noted(machine, request)
        version = request.version  # the lists of the looks may be older than an answer
        if request.state == "pending" and version not in self._answering.keys() | self._answered and machine.claim in self._open:
            self._answering[version] = pool.submit(csr.answer, self._kube, request, token_id=machine.token, node=machine.name)
            self._answering[version].add_done_callback(self._wake)

    def _take_answer(self, version: str, answer: Future[str]) -> None:
        """The watch reports the outcome; what could not be answered is retried in the next pass."""
        error = answer.exception()
        if isinstance(error, ApiError):
            self._trouble = str(error)
        elif error is not None:
            raise error
        elif answer.result():
            self._answered.add(version)

    def _lose(self, outcome: NodeOutcome) -> None:
        if outcome.node is not None:
            outcome.node, outcome.message = None, "its Node was deleted"

    def _see(self, machine: Expected, node: Node, pool: ThreadPoolExecutor) -> None:
        if self._is_stale(machine, node):
            self._stale[machine.claim] = (
                f"a Node of this name from {node.created:%Y-%m-%d %H:%M:%S}Z exists, older than the machine; it is not taken for it"
            )
            return
        if machine.returns and not node.ready and "node" not in self._outcomes[machine.claim].seen:
            return  # the Node of a machine that was off; it counts once the kubelet reports again
        self._reach(machine, "node", f"uid {node.uid}")
        if node.ready:
            self._reach(machine, "ready", f"kubelet {node.kubelet_version}".strip())
        outcome = self._outcomes[machine.claim]
        outcome.node = node
        if wrong := machine.wrong(node):
            return self._give_up(machine.claim, wrong)
        if missing := machine.missing(node):
            outcome.message = "; ".join(missing)
            return
        self._finishing[machine.claim] = pool.submit(self._on_ready, machine.claim, node)
        self._finishing[machine.claim].add_done_callback(self._wake)

    def _finish(self, claim: str, future: Future[None]) -> None:
        del self._finishing[claim]
        outcome = self._outcomes[claim]
        error = future.exception()
        if error is not None and not isinstance(error, TgpError):
            raise error
        if isinstance(error, NeverReady):
            return self._give_up(claim, str(error))
        if error is not None:  # a passing fault must not cost a machine that is there: try again until its time is over
            outcome.message = str(error)
            self._again.add(self._expected[claim].name)
            return
        self._reach(self._expected[claim], "complete", "")
        outcome.ready, outcome.message = True, ""
        self._close(claim)

    def _is_stale(self, machine: Expected, node: Node) -> bool:
        return not machine.returns and machine.launched is not None and is_older(node, machine.launched)

    # ---- everything that is not a node yet

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Ask clouds and mesh beside the waiting: a slow answer of theirs must not hide a node that is Ready."""
        waiting = {self._expected[claim].name for claim in self._open if self._is_waiting(claim)}
        with self._changed:
            self._fresh |= self._again | waiting  # whether a Node will never do may be a matter of time
        self._again.clear()
        claims = [claim for claim in self._expected if self._is_in_doubt(claim)]
        if claims and self._looking is None:
            self._looking = pool.submit(self._gather, claims)
            self._looking.add_done_callback(self._wake)

    def _is_waiting(self, claim: str) -> bool:
        node = self._outcomes[claim].node
        return node is not None and (self._expected[claim].again or not node.ready)

    def _gather(self, claims: list[str]) -> _Look:
        by_claim = {claim: self._evidence(claim) for claim in claims}
        tokens = {evidence.token_id for evidence in by_claim.values() if evidence.running and evidence.token_id}
        return by_claim, self._requests() if self._trouble or any(token not in self._by_token for token in tokens) else []

    def _seen(self, look: _Look) -> None:
        self._looking = None
        evidence_by_claim, requests = look
        for claim, evidence in evidence_by_claim.items():
            if self._is_in_doubt(claim):
                self._weigh(self._expected[claim], evidence, requests)

    def _is_in_doubt(self, claim: str) -> bool:
        """True for what is waited for and has no Ready Node: such a Node says more than any cloud."""
        node = self._outcomes[claim].node
        return claim in self._open and claim not in self._finishing and not (node is not None and node.ready)

    def _requests(self) -> list[csr.SigningRequest]:
        try:
            return csr.requests(self._kube)
        except ApiError as error:
            self._trouble = str(error)
            return []

    def _weigh(self, machine: Expected, evidence: Evidence, requests: list[csr.SigningRequest]) -> None:
        outcome = self._outcomes[machine.claim]
        if evidence.hopeless:
            return self._give_up(machine.claim, evidence.hopeless)
        if "node" in outcome.seen:
            return  # its own words count now
        if evidence.instance:
            self._reach(machine, "instance", evidence.instance)
            outcome.message = "the machine boots" if not evidence.running else "the machine runs and is not in the mesh yet"
        if evidence.device:
            online = "online" if evidence.device_online else "not online"
            self._reach(machine, "device", f"{evidence.device} {online}")
            outcome.message = f"its mesh device is {online}, no certificate request came"
        elif evidence.running and not evidence.uses_mesh:
            outcome.message = "the machine runs, no certificate request came"
        mine = [request for request in requests if request.token_id == evidence.token_id and evidence.token_id]
        for request in mine:
            if request.state == "pending" and request.token_id in self._by_token:
                with self._changed:  # its answer may have failed
                    self._asked.setdefault(request.name, request)
            if machine.claim in self._open:
                self._ask_noted(machine, request)

    def _ask_noted(self, machine: Expected, request: csr.SigningRequest) -> None:
        outcome = self._outcomes[machine.claim]
        self._reach(machine, "csr", f"{request.name} {request.state}")
        if "node" not in outcome.seen:
            outcome.message = f"its certificate request {request.name} is {request.state}, no Node came"
        if request.state in ("denied", "failed"):
            outcome.message = (
                f"its certificate request {request.name} is {request.state}: {request.message or 'no reason is given'}"
            )
            self._close(machine.claim)

    def _reach(self, machine: Expected, step: str, detail: str) -> None:
        outcome = self._outcomes[machine.claim]
        if step in outcome.seen:
            return
        outcome.seen[step] = self._clock.now()
        if STEPS.index(step) > STEPS.index(outcome.step):
            outcome.step = step
        self._on_step(machine.claim, step, detail)

    # ---- the end

    def _expire(self, pool: ThreadPoolExecutor) -> None:
        """Facts beat the clock: what is being completed is waited for, and before a node is given up the API server is asked once more,
        for a watch may be behind. If it cannot say, nothing is given up: its error ends the wait."""
        late = self._late()
        if not late or self._looking is not None:
            return
        if not late <= self._asked_again:
            self._ask_again(late)
            self._process_changes(pool)
        for claim in self._late() & self._asked_again:
            outcome = self._outcomes[claim]
            words = (self._stale.get(claim, ""), outcome.message)
            outcome.message = f"{'; '.join(filter(None, words))}{f' ({self._trouble})' if self._trouble else ''}"
            self._close(claim)

    def _late(self) -> set[str]:
        now = self._clock.now()
        return {claim for claim in self._open if now >= self._expected[claim].deadline and claim not in self._finishing}

    def _ask_again(self, late: set[str]) -> None:
        listed, _version = self._kube.collect(PATH, self._reduce)
        self._asked_again |= late
        with self._changed:
            for node in listed:
                if node.name in self._by_node and self._by_node[node.name].claim in late:
                    self._nodes[node.name] = node
                    self._fresh.add(node.name)

    def _give_up(self, claim: str, why: str) -> None:
        outcome = self._outcomes[claim]
        outcome.message = outcome.hopeless = why
        self._close(claim)

    def _close(self, claim: str) -> None:
        outcome, machine = self._outcomes[claim], self._expected[claim]
        start = machine.launched or self._begun
        outcome.seconds = (self._clock.now() - start).total_seconds()
        self._open.discard(claim)
        self._ended.append(claim)
