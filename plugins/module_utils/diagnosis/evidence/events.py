# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster noted about one Node and about the pods on it that do not work: its Events, bounded.

Read as core/v1, which shows the same objects as events.k8s.io/v1 and can select them by what they are about.
"""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta

from ...core.clock import from_text
from ...core.redact import redact_foreign
from ...kube.client import Json, Kube
from ..facts import EventSeen, PodSeen

PATH = "/api/v1/events"
PODS = 5  # pods in trouble whose events are asked for
_PAGE = 200  # events of one object: the API server forgets them after an hour by itself
KEPT = 30
_LONGEST = 300
_SKEW = timedelta(seconds=60)


def events_of(kube: Kube, node: str, pods: t.Sequence[PodSeen], since: datetime | None) -> tuple[EventSeen, ...]:
    """At most :data:`KEPT`, the newest first; none that is older than ``since``, which may be of another machine of that name."""
    found = _about(kube, "Node", "", node)
    for pod in pods[:PODS]:
        namespace, _slash, name = pod.name.partition("/")
        found += _about(kube, "Pod", namespace, name)
    young = [one for one in found if since is None or one.last is None or one.last >= since - _SKEW]
    young.sort(key=lambda one: one.last.timestamp() if one.last else 0.0, reverse=True)
    return tuple(young[:KEPT])


def _about(kube: Kube, kind: str, namespace: str, name: str) -> list[EventSeen]:
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else PATH
    listed = kube.get(path, {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}", "limit": str(_PAGE)})
    about = f"{namespace}/{name}" if namespace else f"{kind}/{name}"
    return [_seen(one, about) for one in listed.get("items") or () if isinstance(one, dict)]


def _seen(raw: Json, about: str) -> EventSeen:
    """Events have their time in one of four places, by the age of the client that wrote them."""
    series, meta = raw.get("series") or {}, raw.get("metadata") or {}
    times = (series.get("lastObservedTime"), raw.get("lastTimestamp"), raw.get("eventTime"), meta.get("creationTimestamp"))
    count = series.get("count") or raw.get("count") or 1
    return EventSeen(
        about,
        str(raw.get("type") or ""),
        str(raw.get("reason") or ""),
        " ".join(redact_foreign(str(raw.get("message") or "")).split())[:_LONGEST],
        count if isinstance(count, int) else 1,
        next((moment for text in times if (moment := _moment(text)) is not None), None),
    )


def _moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
