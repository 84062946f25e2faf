# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Empties nodes (L-9): cordon, evict in two groups, ask again while budgets forbid, give up or delete at the deadline.

One loop serves all nodes of a call: a watch tells which pods are left, another one when a budget opens, so nothing is polled. When an
eviction is sent again is said in eviction.py.
"""

from __future__ import annotations

import queue
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ...core import tally
from ...core.clock import Clock, ShiftedClock, others_ahead
from ...core.errors import InvalidInput, TgpError
from ...model import Pod
from ...planner.clock_skew import is_wrong
from ..client import Json, Kube
from ..informer import Follow
from ..pods import PATH as PODS
from ..pods import reducer
from .node_drain import DrainOptions, Emptying, Ports, Target
from .result import Blocked, Drained

__all__ = ["Blocked", "DrainOptions", "Drained", "Target", "drain"]

_PDBS = "/apis/policy/v1/poddisruptionbudgets"
_SLICE = 0.25  # real seconds; a simulated clock may be moved while we wait
_OWN_WATCHES = 8  # nodes watched one by one; more share a watch on all pods


def drain(
    kube: Kube,
    targets: t.Sequence[Target],
    options: DrainOptions = DrainOptions(),
    *,
    clock: Clock,
    progress: t.Callable[[str, str], None] = lambda node, text: None,
) -> list[Drained]:
    """Empty all nodes side by side; one :class:`Drained` each, in the order given. Failures of one node are in its record.

    ``progress`` receives node and text. Times are the API server's where those of ``clock`` are known to be wrong (L-27).
    """
    clock = _by_server(clock)
    if len({target.name for target in targets}) != len(targets):
        raise InvalidInput("A node is named twice in one drain.")
    if options.parallel < 1 or options.timeout < 0:
        raise InvalidInput(
            f"A drain by {options.parallel} pods at a time within {options.timeout:g} s cannot evict anything; nothing was drained."
        )
    if not targets:
        return []
    inbox: queue.SimpleQueue[t.Callable[[], None]] = queue.SimpleQueue()
    with ThreadPoolExecutor(max_workers=min(32, 4 + options.parallel * len(targets)), thread_name_prefix="drain") as pool:

        def submit(work: t.Callable[[], t.Any], callback: t.Callable[[t.Any], None]) -> None:
            """Do a blocking call in the pool and hand its result (or TgpError) back to the loop."""

            def call() -> None:
                try:
                    result: t.Any = work()
                except TgpError as error:
                    result = error
                except BaseException as error:  # what nobody expects ends the drain; without an answer it would wait for ever
                    unexpected = error
                    inbox.put(lambda: _raise(unexpected))
                    raise
                inbox.put(lambda: callback(result))

            pool.submit(call)

        loop = _Loop(kube, clock, inbox, options.settings.gpu_resources)
        ports = Ports(submit, say=progress, on_refusal=loop.watch_budgets)
        nodes = [Emptying(kube, clock, target, options, ports) for target in targets]
        try:
            done = loop.run(nodes, follow=not options.check)
            for one in done if not options.check else ():
                tally.count("tgp_drains", reason=one.reason, result=one.outcome)
            return done
        finally:
            loop.close()


def _by_server(clock: Clock) -> Clock:
    """The API server dates the pods that leave, and another host may go on with this drain: a wrong clock would end its time early."""
    _source, ahead = others_ahead(clock, {"kubernetes"}, 0.0) or ("", 0.0)
    return ShiftedClock(clock, ahead) if is_wrong(ahead) else clock


def _raise(error: BaseException) -> None:
    raise error


class _Loop:
    """Runs everything that decides in one thread; blocking calls and watches hand their news in through ``inbox``."""

    def __init__(
        self, kube: Kube, clock: Clock, inbox: queue.SimpleQueue[t.Callable[[], None]], gpu_resources: tuple[str, ...]
    ) -> None:
        self._kube, self._clock, self._inbox, self._gpus = kube, clock, inbox, gpu_resources
        self._nodes: dict[str, Emptying] = {}
        self._closers: list[t.Callable[[], None]] = []
        self._budgets: dict[str, int] | None = None

    def run(self, nodes: t.Sequence[Emptying], *, follow: bool) -> list[Drained]:
        self._nodes = {node.name: node for node in nodes}
        for node in nodes:
            node.begin()
        followed = False
        while any(node.result is None for node in nodes):
            working = [node for node in nodes if node.result is None and node.working]
            if working and follow and not followed:
                followed = True
                self._watch_pods(nodes)
            wake = min((node.step() for node in working), default=60.0)
            self._take(max(0.0, min(wake / self._clock.speed, _SLICE)))
        return [node.result for node in nodes if node.result is not None]

    def _take(self, seconds: float) -> None:
        """Handle what has come in; wait a little if nothing has."""
        try:
            news = self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait()
            while True:
                news()
                news = self._inbox.get_nowait()
        except queue.Empty:
            return

    def close(self) -> None:
        for close in self._closers:
            close()

    # ---- pods

    def _watch_pods(self, nodes: t.Sequence[Emptying]) -> None:
        follows = self._kube.follows
        alone = len(nodes) == 1 and follows.count("pods of ") < _OWN_WATCHES
        name = f"pods of {nodes[0].name}" if alone else "pods"
        field = f"spec.nodeName={nodes[0].name}" if alone else "spec.nodeName!="
        reduce = reducer(self._kube, gpu_resources=self._gpus)

        def make() -> Follow[Pod]:
            return Follow(self._kube, PODS, reduce, {"fieldSelector": field})

        def listen(kind: str, key: str, item: t.Any) -> None:
            self._inbox.put(lambda: self._pods(kind, key, item))

        self._closers.append(follows.open(name, make, listen))

    def _pods(self, kind: str, key: str, item: t.Any) -> None:
        if kind == "all":
            pods_by_node: dict[str, dict[str, Pod]] = {name: {} for name in self._nodes}
            for uid, pod in item.items():
                if pod.node in pods_by_node:
                    pods_by_node[pod.node][uid] = pod
            for name, pods in pods_by_node.items():
                self._nodes[name].see_all(pods)
        elif kind in ("set", "gone") and item.node in self._nodes:
            self._nodes[item.node].see(key, item if kind == "set" else None)
        elif kind == "trouble":
            for node in self._nodes.values():
                node.trouble = key
        elif kind == "failed":
            for node in self._nodes.values():
                node.fail(item)

    # ---- budgets

    def watch_budgets(self) -> None:
        """From the first refusal on: learn when a budget opens. Without the right to look, evictions are just tried again later."""
        if self._budgets is not None:
            return
        self._budgets = {}

        def listen(kind: str, key: str, item: t.Any) -> None:
            self._inbox.put(lambda: self._budget(kind, key, item))

        follows = self._kube.follows
        self._closers.append(follows.open("budgets", lambda: Follow(self._kube, _PDBS, _allowed), listen))

    def _budget(self, kind: str, key: str, item: t.Any) -> None:
        if self._budgets is None or kind not in ("all", "set", "gone"):
            return
        if kind == "gone":  # a budget that is deleted forbids nothing any more
            self._budgets.pop(key, None)
            for node in self._nodes.values():
                node.budget_opened(item[0])
            return
        for uid, (namespace, allowed) in item.items() if kind == "all" else [(key, item)]:
            closed = self._budgets.get(uid, 0) <= 0
            self._budgets[uid] = allowed
            if allowed > 0 and closed:
                for node in self._nodes.values():
                    node.budget_opened(namespace)


def _allowed(raw: Json) -> tuple[str, int]:
    """Namespace and disruptions allowed now."""
    return raw["metadata"]["namespace"], int((raw.get("status") or {}).get("disruptionsAllowed") or 0)
