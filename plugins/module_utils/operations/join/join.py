# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows rented machines until they are usable: nodes in node.py, services in service.py, side by side, and each from the moment it is
rented."""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

from ...model import Claim, Phase
from ...observe.context import Context
from .node import NodeJoins
from .service import ServiceJoins
from .tracker import Joined, JoinTracker

__all__ = ["Joined", "Joins", "join_all"]


def join_all(context: Context, claims: t.Sequence[Claim]) -> list[Joined]:
    """Wait for all at once; returns one outcome per claim. Those that are Ready already only lose what let them in."""
    joins = Joins(context)
    for claim in claims:
        joins.add(claim)
    joins.close()
    return joins.run()


def _no_replacement(_gone: t.Sequence[Claim]) -> None:
    """The next run takes another machine."""


class Joins:
    """The joins of one step, which other threads may extend by :meth:`add` until :meth:`close`.

    ``on_failed`` is called, in a thread of its own, with machines that failed and are gone. What it adds is followed, too.
    """

    def __init__(self, context: Context, on_failed: t.Callable[[t.Sequence[Claim]], None] = _no_replacement) -> None:
        self._tracker = JoinTracker(context, self._hold, self._failed)
        self._nodes = NodeJoins(self._tracker)
        self._services = ServiceJoins(self._tracker)
        self._on_failed = on_failed
        self._guard = threading.Lock()
        self._holds = 1  # reasons not to end yet: whoever adds, and each batch of failed machines that is being ended
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="services")
        self._serving: Future[None] | None = None
        self._broken = False  # nothing is followed any more

    def expect(self, claims: t.Iterable[Claim]) -> None:
        """From any thread: these may be added when they are rented."""
        self._nodes.expect(claims)

    def add(self, claim: Claim) -> None:
        """From any thread: follow this one, too."""
        self._tracker.track(claim)
        if claim.phase is Phase.READY:
            return
        if not claim.is_service:
            self._nodes.add(claim)
            return
        self._services.add(claim)
        with self._guard:
            if self._serving is None:
                self._serving = self._pool.submit(self._services.run)

    def close(self) -> None:
        """From any thread: its caller adds nothing more."""
        with self._guard:
            self._holds -= 1
            if not self._holds:
                self._nodes.close()
                self._services.close()

    def _hold(self) -> None:
        with self._guard:
            self._holds += 1
            if self._holds == 1:  # closed, and the last one may just have failed
                self._nodes.reopen()
                self._services.reopen()

    def _failed(self, gone: t.Sequence[Claim]) -> None:
        try:
            if gone and not self._broken:
                self._on_failed(gone)
        finally:
            self.close()

    def run(self) -> list[Joined]:
        """Returns when the joins are closed and all have ended: one outcome per claim, in the order in which they were added."""
        with self._tracker, self._pool:
            try:
                self._nodes.run()
            except BaseException:
                self._broken = True
                self._services.close()  # it is not to be waited for
                raise
            if self._serving is not None:
                self._serving.result()
            return self._tracker.results()
