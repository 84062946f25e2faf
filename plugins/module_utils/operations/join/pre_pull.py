# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets new nodes pull images before pods come (L-43): one pod each. What a pod says is judged in planner/provisioning/pre_pull.py."""

from __future__ import annotations

from datetime import datetime

from ...core.errors import Conflict, LostAnswer, RateLimited, ServerError, TgpError, Unreachable
from ...kube.client import NAMESPACE
from ...model import Claim, Node, Pool, PrePull
from ...model.labels import PRE_PULL_LABEL
from ...observe.context import Context
from ...planner.provisioning import pre_pull
from ...planner.provisioning.pre_pull import PullOutcome
from .own_pods import NotListed, OwnPods

_PASSING = (NotListed, Conflict, LostAnswer, RateLimited, ServerError, Unreachable)
"""What may be better at the next try. Whatever else the API server says of the pod, it will say again."""


class NotPulled(TgpError):
    """The images are not there yet."""

    kind = "not_pulled"


class PrePulls:
    """The pulls of one step. :meth:`await_images` may be called by several threads, again and again for one node; it never waits for a pod.
    No node fails by it: what is not pulled is a warning. :meth:`close` ends the watch."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = OwnPods(context, PRE_PULL_LABEL, "prePull")
        self._done: set[str] = set()  # by claim; what comes after it may fail and be tried again

    def await_images(self, claim: Claim, node: Node, pool: Pool | None, until: datetime) -> None:
        """Return when the node has its images, when some cannot be pulled, or from ``until`` on. NotPulled before that."""
        pull = pre_pull.wanted(claim, pool, node)
        if pull is None or claim.name in self._done:
            return
        try:
            verdict = self._look(claim, node, pull, until)
        except _PASSING as error:
            if self._context.clock.now() < until:
                raise NotPulled(f"prePull: {error}") from error
            return self._do_without(claim, f"the images of prePull are not pulled: {error}")
        except TgpError as error:
            return self._do_without(claim, f"the images of prePull are not pulled: {error}")
        if verdict.outcome is not PullOutcome.DONE:
            raise NotPulled(f"prePull: {verdict.pulled} of {pre_pull.counted(pull)} pulled")
        if verdict.lacks:
            return self._do_without(claim, f"pods come before these images are pulled: {'; '.join(verdict.lacks)}")
        self._done.add(claim.name)
        self._tell(claim, "pulled", f"{pre_pull.counted(pull)} pulled")

    def _look(self, claim: Claim, node: Node, pull: PrePull, until: datetime) -> pre_pull.PullVerdict:
        pod = self._pods.of(claim)
        verdict = pre_pull.assess(pod, pre_pull.fingerprint(claim, pull), pull, self._context.clock.now(), until)
        if verdict.outcome is PullOutcome.START:
            self._pods.make(claim, pre_pull.pod(claim, node, pull, NAMESPACE, self._context.cluster_id))
            self._tell(claim, "pulling", f"{pre_pull.counted(pull)}, up to {pull.timeout} s")
        elif verdict.outcome is PullOutcome.AGAIN and pod is not None:
            self._pods.delete(pod)
        return verdict

    def remove(self, claim: Claim) -> None:
        """The node is complete."""
        self._pods.remove(claim)

    def close(self) -> None:
        self._pods.close()

    def _do_without(self, claim: Claim, why: str) -> None:
        self._done.add(claim.name)
        self._context.warn(f"{claim.name}: {why}")

    def _tell(self, claim: Claim, event: str, text: str) -> None:
        self._context.progress.step(claim.name, event, text, since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud)
