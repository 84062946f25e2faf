# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the acceptance tests of new nodes (L-35): one pod each, and one watch for all of them. What a pod says is judged in
planner/provisioning/acceptance.py."""

from __future__ import annotations

import dataclasses
import threading
from datetime import datetime, timedelta

from ...core.errors import ApiError, NeverReady, TgpError
from ...core.redact import redact_foreign
from ...kube.client import NAMESPACE
from ...kube.pods import pod_path
from ...model import AcceptanceTest, Claim, Node, Pool, TrialPod
from ...model.labels import ACCEPTANCE_LABEL
from ...observe.context import Context
from ...planner.provisioning import acceptance, registration
from ...planner.provisioning.acceptance import TrialOutcome, TrialVerdict
from .own_pods import OwnPods

LOG_LINES = 50
_LONGEST = 400  # characters of a line
_REST = timedelta(seconds=30)  # between two tries


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A node that failed its test: why, in one line, and the end of its log."""

    why: str
    log: tuple[str, ...]


class NotTested(TgpError):
    """The test has no result yet."""

    kind = "not_tested"


class AcceptanceTests:
    """The tests of one step. :meth:`passed` may be called by several threads, again and again for one node; it never waits for a pod.
    ``rejected`` are the nodes that failed, by claim, ``untested`` why there is no result of one yet. :meth:`close` ends the watch."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = OwnPods(context, ACCEPTANCE_LABEL, "acceptance test")
        self._mutex = threading.Lock()  # guards what follows; never held during a call
        self._rests: dict[str, tuple[datetime, str]] = {}
        self._passed: dict[str, datetime] = {}
        self.rejected: dict[str, Rejected] = {}
        self.untested: dict[str, str] = {}

    def passed(self, claim: Claim, node: Node, pool: Pool | None) -> datetime | None:
        """When the node passed its test, None where it has none. NotTested while that is not known, NeverReady when it failed."""
        test = registration.required_test(claim, pool, node)
        if test is None or pool is None:
            return registration.accepted(claim, node)
        if claim.name in self._passed:  # what comes after it is not done yet
            return self._passed[claim.name]
        pod = self._pods.of(claim)
        verdict = acceptance.assess(pod, acceptance.fingerprint(claim, test), test, self._context.clock.now())
        match verdict.outcome:
            case TrialOutcome.PASSED:
                self._tell(claim, "accepted", f"acceptance test {test.name} passed")
                self._passed[claim.name] = self._context.clock.now()
                return self._passed[claim.name]
            case TrialOutcome.FAILED:
                raise NeverReady(self._reject(claim, test, verdict))
            case TrialOutcome.START:
                self._start(claim, node, pool, test)
            case TrialOutcome.AGAIN if pod is not None:
                self._try_again(claim, pod, verdict.why)
        with self._mutex:
            self.untested[claim.name] = f"acceptance test {test.name}: {verdict.why or 'started'}"
            raise NotTested(self.untested[claim.name])

    def remove(self, claim: Claim) -> None:
        """The test is over and recorded."""
        self._pods.remove(claim)

    def close(self) -> None:
        self._pods.close()

    def _start(self, claim: Claim, node: Node, pool: Pool, test: AcceptanceTest) -> None:
        with self._mutex:
            until, why = self._rests.get(claim.name, (None, ""))
        if until is not None and self._context.clock.now() < until:
            raise NotTested(f"acceptance test {test.name}: {why}")
        self._pods.make(claim, acceptance.pod(claim, node, pool, test, NAMESPACE, self._context.cluster_id))
        self._tell(claim, "testing", f"acceptance test {test.name}, up to {test.timeout} s")

    def _try_again(self, claim: Claim, pod: TrialPod, why: str) -> None:
        self._pods.delete(pod)
        with self._mutex:
            self._rests[claim.name] = (self._context.clock.now() + _REST, why)
        self._tell(claim, "untested", f"{why}; it is tried again")

    def _reject(self, claim: Claim, test: AcceptanceTest, verdict: TrialVerdict) -> str:
        log = self._log(claim, verdict.container)
        last = f": {log[-1]}" if log else ""
        why = f"acceptance test {test.name} failed: {verdict.why}{last}"
        with self._mutex:
            self.rejected[claim.name] = Rejected(why, log)
        return why

    def _log(self, claim: Claim, container: str) -> tuple[str, ...]:
        """The last lines that the container wrote, without anything that is or may be a secret. Without a log the machine goes, too."""
        path = f"{pod_path(NAMESPACE, acceptance.pod_name(claim))}/log"
        try:
            answer = self._context.kube.call("GET", path, params={"container": container, "tailLines": str(LOG_LINES)})
        except ApiError as error:
            self._context.warn(f"{claim.name}: the log of its acceptance test could not be read: {error}")
            return ()
        return tuple(line[:_LONGEST] for line in redact_foreign(answer.text).splitlines() if line.strip())[-LOG_LINES:]

    def _tell(self, claim: Claim, event: str, text: str) -> None:
        self._context.progress.step(claim.name, event, text, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)
