# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The eviction of one pod and its retries: the call, its answer in our words, and when it is sent again.

Nothing sleeps here: :attr:`Eviction.not_before` is read by the loop of a drain, which waits for many pods and nodes at once.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ...core.errors import ApiError, Conflict, Forbidden, LostAnswer, NotFound, RateLimited, ServerError, Unreachable
from ...core.rate_limit import RetryPolicy
from ...model import Pod
from ..client import Kube, by_server
from ..pods import pod_path

# While a PodDisruptionBudget (or the server) forbids it, until the drain ends; at once when the budget opens.
_REFUSED = RetryPolicy(first=5.0, growth=1.0, jitter=(1.0, 1.0), retry_after=(5.0, math.inf))
_SILENT = RetryPolicy(first=1.0, longest=10.0, jitter=(1.0, 1.0))
_BUDGET = re.compile(r"disruption budget (\S+)", re.IGNORECASE)


class Answer(t.NamedTuple):
    """``kind``: evicted; gone (it does not exist any more, or another pod has its name); refused (a budget, named by ``by``, or the
    server itself); terminating (its namespace goes away and takes it along); silent (outcome unknown); forbidden (a right is missing).
    """

    kind: str
    by: str = ""
    retry_after: float | None = None
    message: str = ""


def evict(kube: Kube, pod: Pod, *, dry_run: bool = False) -> Answer:
    """Ask once for the eviction of this very pod."""
    path = pod_path(pod.namespace, pod.name)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        kube.call("POST", f"{path}/eviction", params={"dryRun": "All"} if dry_run else None, json=body)
        return Answer("evicted")
    except NotFound as error:
        return Answer("gone") if by_server(error) else Answer("silent", "no answer", None, error.message)
    except Conflict as error:
        return _after_conflict(kube, pod, error)
    except RateLimited as error:
        return Answer("refused", _budget(error) or "too many requests", error.retry_after, error.message)
    except Forbidden as error:
        if "NamespaceTerminating" in [cause.get("reason") for cause in _causes(error)]:
            return Answer("terminating", "namespace is terminating")
        return Answer("forbidden", "forbidden", None, str(error))
    except ServerError as error:
        several = "more than one PodDisruptionBudget" in error.message  # others name it, too: its update met conflicts
        return Answer("refused", "multiple-pdb" if several else f"server error {error.status}", None, error.message)
    except (LostAnswer, Unreachable) as error:
        return Answer("silent", "no answer", None, error.message)


def _after_conflict(kube: Kube, pod: Pod, error: Conflict) -> Answer:
    """409: usually another pod of that name; else another client changed it at the same moment."""
    now = kube.find(pod_path(pod.namespace, pod.name))
    if now is None or now["metadata"].get("uid") != pod.uid:
        return Answer("gone")
    return Answer("refused", "conflict", None, error.message)


def _causes(error: ApiError) -> list[dict[str, t.Any]]:
    details = error.body.get("details") if isinstance(error.body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes or [] if isinstance(cause, dict)]


def _budget(error: ApiError) -> str:
    """The name of the budget that forbids it, "pdb" when the server does not name it, "" when no budget is involved."""
    for cause in _causes(error):
        if cause.get("reason") == "DisruptionBudget":
            match = _BUDGET.search(str(cause.get("message") or ""))
            return match[1] if match else "pdb"
    return "pdb" if "disruption budget" in error.message.lower() else ""


# ---- retries


@dataclasses.dataclass
class Eviction:
    """The evictions of one pod so far. ``not_before``: when the next one may be sent (clock seconds); ``forced``: the pod was deleted
    instead. ``by``: what held it last; ``silent``: answers missing in a row."""

    not_before: float = 0.0
    flying: bool = False
    evicted: bool = False
    forced: bool = False
    silent: int = 0
    by: str = ""
    refused: bool = False

    @property
    def can_be_sent(self) -> bool:
        return not (self.flying or self.evicted or self.forced)

    def take(self, answer: Answer, now: float) -> None:
        """Note the answer that came at ``now``, and when the eviction is sent again: never after one that a right is missing for."""
        self.flying = False
        self.by, self.refused = answer.by, answer.kind == "refused"
        self.evicted = answer.kind == "evicted"
        self.silent = self.silent + 1 if answer.kind == "silent" else 0
        match answer.kind:
            case "refused" | "terminating":
                self.not_before = now + pause_after_refusal(answer.retry_after)
            case "silent":
                self.not_before = now + pause_after_silence(self.silent)
            case "forbidden":
                self.not_before = math.inf

    def budget_opened(self) -> None:
        """A budget that may have forbidden it forbids nothing now."""
        if self.refused:
            self.not_before = 0.0


def pause_after_refusal(retry_after: float | None) -> float:
    """Seconds until a refused eviction is sent again: 5, or as the server says when that is longer."""
    return _REFUSED.pause(1, retry_after)


def pause_after_silence(times: int) -> float:
    """Seconds after the ``times``-th eviction in a row that got no answer: 1, 2, 4, 8, then 10."""
    return _SILENT.pause(times)
