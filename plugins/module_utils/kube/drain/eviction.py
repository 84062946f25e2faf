# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One eviction, one answer in our words."""

from __future__ import annotations

import re
import typing as t

from ...core.errors import ApiError, Conflict, Forbidden, LostAnswer, NotFound, RateLimited, ServerError, Unreachable
from ...model import Pod
from ..client import Kube, by_server
from ..pods import pod_path

_BUDGET = re.compile(r"disruption budget (\S+)", re.IGNORECASE)


class Answer(t.NamedTuple):
    """``kind``: evicted; gone (it does not exist any more, or another pod has its name); refused (a budget, named by ``by``, or the
    server itself); terminating (its namespace goes away and takes it along); silent (nobody knows); forbidden (a right is missing).
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
    """409: usually another pod of that name; else somebody changed it at the same moment."""
    now = kube.find(pod_path(pod.namespace, pod.name))
    if now is None or now["metadata"].get("uid") != pod.uid:
        return Answer("gone")
    return Answer("refused", "conflict", None, error.message)


def _causes(error: ApiError) -> list[dict[str, t.Any]]:
    details = error.body.get("details") if isinstance(error.body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes or [] if isinstance(cause, dict)]


def _budget(error: ApiError) -> str:
    """The name of the budget that forbids it, "pdb" when the server does not name it, "" when it is no matter of budgets."""
    for cause in _causes(error):
        if cause.get("reason") == "DisruptionBudget":
            found = _BUDGET.search(str(cause.get("message") or ""))
            return found[1] if found else "pdb"
    return "pdb" if "disruption budget" in error.message.lower() else ""
