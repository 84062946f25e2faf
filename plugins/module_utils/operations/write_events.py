# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes Kubernetes Events (L-32). They are for people: what cannot be written is a warning, and changes neither the work nor the outcome of a
run."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.errors import ApiError, BadShape, Conflict, Forbidden, NotFound, without_details
from ..core.redact import redact
from ..model import KubernetesEvent
from ..observe.context import Context
from ..planner.kubernetes_events import body, due, remembered

_MEMORY = "events"  # in the state beside the claims: what was written of an object → when
_WORKERS = 8


def report_plan(context: Context, events: t.Sequence[KubernetesEvent]) -> None:
    """Write those that no run has written within 15 minutes. What lasts is in every plan, so what was written is remembered."""
    if not events:
        return
    now = context.clock.now()
    try:
        known = context.records.read_times(_MEMORY)
    except BadShape:
        known = {}  # a damaged record is written anew
    except ApiError as error:
        context.warn(f"The Kubernetes Events that were written before could not be read; none is written: {error}")
        return
    written = write(context, due(events, known, now))
    if not written:
        return
    try:
        context.records.write_times(_MEMORY, remembered(known, written, now))
    except ApiError as error:
        context.warn(f"The Kubernetes Events that were written could not be recorded; they may be written again: {error}")


def write(context: Context, events: t.Sequence[KubernetesEvent]) -> list[KubernetesEvent]:
    """Write them side by side, each once; those that are there now, also by an earlier run. The first refusal for a missing right, or of an
    API server that does not answer, ends it: the others would fail the same way."""
    if not events:
        return []
    ended = threading.Event()
    now = context.clock.now()

    def one(event: KubernetesEvent) -> bool:
        if ended.is_set():
            return False
        document = body(dataclasses.replace(event, note=redact(without_details(event.note))), context.run_id, now)
        try:
            context.kube.create(f"/apis/events.k8s.io/v1/namespaces/{document['metadata']['namespace']}/events", document)
        except Conflict:
            return True
        except NotFound:
            return False  # its namespace is gone
        except ApiError as error:
            if isinstance(error, Forbidden) and error.details.get("verb") is None:
                return False  # by admission, or the namespace is going: another object's event may be written
            if not ended.is_set():
                ended.set()
                context.warn(f"Kubernetes Events are not written in this step: {error}")
            return False
        return True

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(events)), thread_name_prefix="events") as pool:
        return [event for event, done in zip(events, pool.map(one, events), strict=True) if done]
