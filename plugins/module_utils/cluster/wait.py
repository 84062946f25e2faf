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

from ..clock import Clock
from ..errors import ApiError, TgpError
from ..fleet.model import Node
from . import csr
from .follow import Follow
from .kube import Kube
from .nodes import PATH, parse

STEPS = ("launched", "instance", "device", "csr", "node", "ready", "complete")
_LOOK_EVERY = 5.0  # seconds between two looks at clouds, mesh and certificate requests
_OLDER = timedelta(seconds=60)  # clocks differ; a Node that much older than the launch is another machine's


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
    keeps its Node while it is off, so an old Node is right once it is Ready.
    """

    name: str
    claim: str
    deadline: datetime
    missing: t.Callable[[Node], t.Sequence[str]]
    launched: datetime | None = None
    returns: bool = False


@dataclasses.dataclass
class Outcome:
    """How a wait ended: ``step`` is the last one reached, ``seen`` when each was first seen, ``message`` why it is not further."""

    ready: bool = False
    step: str = "launched"
    message: str = "nothing was seen of it"
    seconds: float = 0.0
    seen: dict[str, datetime] = dataclasses.field(default_factory=dict)
    node: Node | None = None


def _no_evidence(_claim: str) -> Evidence:
    return Evidence()


def _no_step(_claim: str, _step: str, _detail: str) -> None:
    """Nobody listens."""


def _no_ready(_claim: str, _node: Node) -> None:
    """Nothing is to be done."""


def wait_for(
    kube: Kube,
    expected: t.Sequence[Expected],
    *,
    clock: Clock,
    evidence: t.Callable[[str], Evidence] = _no_evidence,
    on_step: t.Callable[[str, str, str], None] = _no_step,
    on_ready: t.Callable[[str, Node], None] = _no_ready,
) -> dict[str, Outcome]:
    """Wait until every node is complete or its time is over; returns an outcome per ``claim``.

    ``on_ready`` runs at once for each node that is complete, beside the waiting for the others; after a TgpError it is called again
    until the node's deadline. Missing rights and an unreachable API server end the whole wait with their error.
    """
    return _Wait(kube, expected, clock, evidence, on_step, on_ready).run()


class _Wait:
    def __init__(
        self,
        kube: Kube,
        expected: t.Sequence[Expected],
        clock: Clock,
        evidence: t.Callable[[str], Evidence],
        on_step: t.Callable[[str, str, str], None],
        on_ready: t.Callable[[str, Node], None],
    ) -> None:
        self._kube, self._clock = kube, clock
        self._evidence, self._on_step, self._on_ready = evidence, on_step, on_ready
        self._expected = {one.claim: one for one in expected}
        self._by_node = {one.name: one for one in expected}
        self._outcomes = {one.claim: Outcome() for one in expected}
        self._open = set(self._expected)
        self._changed = threading.Condition()
        self._nodes: dict[str, Node] = {}
        self._fresh: set[str] = set()
        self._failure: TgpError | None = None
        self._trouble = ""
        self._stale: dict[str, str] = {}
        self._finishing: dict[str, Future[None]] = {}
        self._again: set[str] = set()

    def run(self) -> dict[str, Outcome]:
        if not self._open:
            return self._outcomes
        follow: Follow[Node] = Follow(self._kube, PATH, self._reduce)
        follow.add(self._told)
        next_look = self._clock.now()
        try:
            with ThreadPoolExecutor(max_workers=16, thread_name_prefix="ready") as pool:
                while self._open:
                    self._judge(pool)
                    now = self._clock.now()
                    if now >= next_look:
                        self._look()
                        next_look = self._clock.now() + timedelta(seconds=_LOOK_EVERY)
                    self._expire()
                    self._pause(next_look)
        finally:
            follow.remove(self._told)
        return self._outcomes

    def _reduce(self, raw: dict[str, t.Any]) -> Node | None:
        return parse(self._kube, raw) if raw["metadata"]["name"] in self._by_node else None

    def _told(self, kind: str, _key: str, item: t.Any) -> None:
        """From the watching thread: note what changed and wake the waiting one."""
        with self._changed:
            if kind == "all":
                self._nodes = {node.name: node for node in item.values()}
                self._fresh.update(self._nodes)
            elif kind == "set":
                self._nodes[item.name] = item
                self._fresh.add(item.name)
            elif kind == "gone":
                self._nodes.pop(item.name, None)
            elif kind == "failed":
                self._failure = item
            elif kind == "trouble":
                self._trouble = str(item or _key)
            self._changed.notify_all()

    def _pause(self, until: datetime) -> None:
        with self._changed:
            if self._fresh or self._failure is not None or not self._open:
                return
            seconds = (until - self._clock.now()).total_seconds() / self._clock.speed
            self._changed.wait(max(0.005, min(seconds, 1.0)))

    # ---- nodes

    def _judge(self, pool: ThreadPoolExecutor) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            fresh = [self._nodes[name] for name in self._fresh if name in self._nodes]
            self._fresh.clear()
        for node in fresh:
            one = self._by_node[node.name]
            if one.claim in self._open and one.claim not in self._finishing:
                self._see(one, node, pool)
        for claim, future in list(self._finishing.items()):
            if future.done():
                self._finish(claim, future)

    def _see(self, one: Expected, node: Node, pool: ThreadPoolExecutor) -> None:
        if self._is_stale(one, node):
            self._stale[one.claim] = (
                f"a Node of this name from {node.created:%Y-%m-%d %H:%M:%S}Z exists, older than the machine; it is not taken for it"
            )
            return
        if one.returns and not node.ready and "node" not in self._outcomes[one.claim].seen:
            return  # the Node of a machine that was off; it counts once the kubelet reports again
        self._reach(one, "node", f"uid {node.uid}")
        if node.ready:
            self._reach(one, "ready", f"kubelet {node.kubelet_version}".strip())
        missing = one.missing(node)
        outcome = self._outcomes[one.claim]
        outcome.node = node
        if missing:
            outcome.message = "; ".join(missing)
            return
        self._finishing[one.claim] = pool.submit(self._complete, one, node)

    def _complete(self, one: Expected, node: Node) -> None:
        try:
            self._on_ready(one.claim, node)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _finish(self, claim: str, future: Future[None]) -> None:
        del self._finishing[claim]
        outcome = self._outcomes[claim]
        error = future.exception()
        if error is not None and not isinstance(error, TgpError):
            raise error
        if error is not None:  # a passing fault must not cost a machine that is there: try again until its time is over
            outcome.message = str(error)
            self._again.add(self._expected[claim].name)
            return
        self._reach(self._expected[claim], "complete", "")
        outcome.ready, outcome.message = True, ""
        self._close(claim)

    def _is_stale(self, one: Expected, node: Node) -> bool:
        return not one.returns and one.launched is not None and node.created < one.launched - _OLDER

    # ---- everything that is not a node yet

    def _look(self) -> None:
        with self._changed:
            self._fresh |= self._again
        self._again.clear()
        waiting = [one for one in self._expected.values() if self._is_in_doubt(one.claim)]
        if not waiting:
            return
        found = {one.claim: self._evidence(one.claim) for one in waiting}
        asked = {evidence.token_id for evidence in found.values() if evidence.token_id}
        requests = self._requests() if asked and any(one.running for one in found.values()) else []
        for one in waiting:
            self._weigh(one, found[one.claim], requests)

    def _is_in_doubt(self, claim: str) -> bool:
        """True for what is waited for and has no Ready Node: such a Node says more than any cloud."""
        node = self._outcomes[claim].node
        return claim in self._open and claim not in self._finishing and not (node is not None and node.ready)

    def _requests(self) -> list[csr.Request]:
        try:
            return csr.requests(self._kube)
        except ApiError as error:
            self._trouble = str(error)
            return []

    def _weigh(self, one: Expected, evidence: Evidence, requests: list[csr.Request]) -> None:
        outcome = self._outcomes[one.claim]
        if evidence.hopeless:
            outcome.message = evidence.hopeless
            self._close(one.claim)
            return
        if "node" in outcome.seen:
            return  # its own words count now
        if evidence.instance:
            self._reach(one, "instance", evidence.instance)
            outcome.message = "the machine boots" if not evidence.running else "the machine runs and is not in the mesh yet"
        if evidence.device:
            online = "online" if evidence.device_online else "not online"
            self._reach(one, "device", f"{evidence.device} {online}")
            outcome.message = f"its mesh device is {online}, no certificate request came"
        elif evidence.running and not evidence.uses_mesh:
            outcome.message = "the machine runs, no certificate request came"
        mine = [request for request in requests if request.token_id == evidence.token_id and evidence.token_id]
        for request in mine:
            self._reach(one, "csr", f"{request.name} {request.state}")
            outcome.message = f"its certificate request {request.name} is {request.state}, no Node came"
            if request.state in ("denied", "failed"):
                self._close(one.claim)

    def _reach(self, one: Expected, step: str, detail: str) -> None:
        outcome = self._outcomes[one.claim]
        if step in outcome.seen:
            return
        outcome.seen[step] = self._clock.now()
        if STEPS.index(step) > STEPS.index(outcome.step):
            outcome.step = step
        self._on_step(one.claim, step, detail)

    # ---- the end

    def _expire(self) -> None:
        """Facts beat the clock: what is being completed is waited for, and nodes were judged just before."""
        now = self._clock.now()
        for claim in list(self._open):
            if now >= self._expected[claim].deadline and claim not in self._finishing:
                outcome = self._outcomes[claim]
                words = (self._stale.get(claim, ""), outcome.message)
                outcome.message = f"{'; '.join(filter(None, words))}{f' ({self._trouble})' if self._trouble else ''}"
                self._close(claim)

    def _close(self, claim: str) -> None:
        outcome, one = self._outcomes[claim], self._expected[claim]
        start = one.launched or min(outcome.seen.values(), default=self._clock.now())
        outcome.seconds = (self._clock.now() - start).total_seconds()
        self._open.discard(claim)
