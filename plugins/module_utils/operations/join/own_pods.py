# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our pods on new nodes, one for each claim: made, followed by one watch for all of them, and removed."""

from __future__ import annotations

import threading
import typing as t

from ...core.errors import ApiError, TgpError
from ...kube.client import NAMESPACE
from ...kube.informer import Follow
from ...kube.pods import pod_path, trial_pod
from ...model import Claim, TrialPod
from ...model.labels import CLUSTER_LABEL, MANAGED_BY_LABEL
from ...observe.context import Context

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_LISTED_WITHIN = 10.0  # real seconds in which the first list of our pods should come


class NotListed(TgpError):
    """What the pod of a claim does is not known yet."""

    kind = "not_listed"


class OwnPods:
    """Those with the label ``label``; ``purpose`` says in errors what they are for. Several threads may call all of it. :meth:`close` ends
    the watch."""

    def __init__(self, context: Context, label: str, purpose: str) -> None:
        self._context, self._label, self._purpose = context, label, purpose
        self._mutex = threading.Lock()  # guards everything here; never held during a call
        self._follow: Follow[TrialPod] | None = None
        self._listed = threading.Event()
        self._pods: dict[str, TrialPod] = {}
        self._failure: TgpError | None = None
        self._trouble = ""
        self._made: set[str] = set()

    def of(self, claim: Claim) -> TrialPod | None:
        """The claim's pod as the watch shows it. NotListed before the first list, and while one that was just made is not shown yet."""
        self._watch()
        if not self._listed.wait(_LISTED_WITHIN):
            raise NotListed(f"{self._purpose}: our pods could not be listed yet ({self._trouble or 'no answer came'})")
        with self._mutex:
            if self._failure is not None:
                raise self._failure
            pod = self._pods.get(claim.name)
            if pod is None and claim.name in self._made:
                raise NotListed(f"{self._purpose}: its pod was made and is not listed yet")
            return pod

    def make(self, claim: Claim, body: dict[str, t.Any]) -> None:
        """A pod of its name that exists all the same is a Conflict: then it is not ours, or the watch will show it."""
        self._context.kube.create(PODS, body)
        with self._mutex:
            if claim.name not in self._pods:
                self._made.add(claim.name)

    def delete(self, pod: TrialPod) -> None:
        """This very pod: it carries our labels, and one that took its name has another uid."""
        self._context.kube.delete(pod_path(NAMESPACE, pod.name), uid=pod.uid)

    def remove(self, claim: Claim) -> None:
        """The claim's pod, if one was shown; its work is done. What stays is removed by the next reap, and with the Node at the latest."""
        with self._mutex:
            pod = self._pods.get(claim.name)
        if pod is not None:
            try:
                self.delete(pod)
            except ApiError as error:
                self._context.warn(f"{claim.name}: the pod of its {self._purpose} could not be removed yet: {error}")

    def close(self) -> None:
        with self._mutex:
            follow, self._follow = self._follow, None
        if follow is not None:
            follow.remove(self._told)

    def _watch(self) -> None:
        with self._mutex:
            if self._follow is not None:
                return
            selector = f"{self._label},{MANAGED_BY_LABEL}=tgp.gpu,{CLUSTER_LABEL}={self._context.cluster_id}"
            self._follow = Follow(self._context.kube, PODS, trial_pod, {"labelSelector": selector})
            follow = self._follow
        follow.add(self._told)

    def _told(self, kind: str, key: str, item: t.Any) -> None:
        """From the watching thread."""
        with self._mutex:
            if kind == "all":
                self._pods = {pod.claim: pod for pod in item.values()}
                self._made.clear()
            elif kind == "set":
                self._pods[item.claim] = item
                self._made.discard(item.claim)
            elif kind == "gone" and (known := self._pods.get(item.claim)) is not None and known.uid == item.uid:
                del self._pods[item.claim]
            elif kind == "failed":
                self._failure = item
            elif kind == "trouble":
                self._trouble = key
        if kind in ("all", "failed"):
            self._listed.set()
