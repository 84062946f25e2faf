# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events, which two groups show with fields of different names. They are stored with those of v1 (``message``, ``involvedObject``).

What is created as events.k8s.io/v1 is checked as the real server checks it, which names the fields of v1 in its answer. It does not compare
the namespaces of an event and of its object there.
"""

from __future__ import annotations

import typing as t

from .auth import Call
from .meta import key_causes
from .parts import Kind
from .status import cause, invalid
from .validate import check_micro_time

Json = dict[str, t.Any]

GROUP = "events.k8s.io"
_NAMES = {
    "note": "message", "regarding": "involvedObject", "reportingController": "reportingComponent", "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
}  # fmt: skip
_BACK = {name: ours for ours, name in _NAMES.items()}
_LONGEST = 128
_LONGEST_NOTE = 1024  # bytes
_TYPES = ("Normal", "Warning")


def _stored(event: Json) -> Json:
    return {_NAMES.get(key, key): value for key, value in event.items()}


def shown(event: Json) -> Json:
    """A stored event with the field names of events.k8s.io/v1."""
    empty: Json = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None, "eventTime": None}
    return {**empty, **{_BACK.get(key, key): value for key, value in event.items()}}


class Events(Kind):
    def on_create(self, call: Call, obj: Json) -> None:
        if self.resource.group != GROUP:
            return
        stored = _stored(obj)
        obj.clear()
        obj.update({"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None, **stored})

    def check(self, old: Json | None, new: Json) -> None:
        if self.resource.group == GROUP and old is None and (causes := [*_causes(self.resource, new)]):
            raise invalid(self.resource, new["metadata"]["name"], causes)


def _causes(resource: t.Any, event: Json) -> t.Iterator[Json]:
    check_micro_time(resource, event.get("eventTime"))
    if not event.get("eventTime"):
        yield cause("FieldValueRequired", "Required value", "eventTime")
    if event.get("type") not in _TYPES:
        yield _invalid(f"has invalid value: {event.get('type') or ''}", "type")
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield cause("FieldValueRequired", "Required value", "reportingController")
        yield _invalid("name part must be non-empty", "reportingController")
    yield from key_causes(controller, "reportingController")
    for field in ("reportingInstance", "action", "reason"):
        text = str(event.get(field) or "")
        if not text:
            yield cause("FieldValueRequired", "Required value", field)
        if len(text.encode()) > _LONGEST:
            yield _invalid(f"can have at most {_LONGEST} characters", field)
    if len(str(event.get("message") or "").encode()) > _LONGEST_NOTE:
        yield _invalid(f"can have at most {_LONGEST_NOTE} characters", "message")
    for field in ("source", "firstTimestamp", "lastTimestamp", "count"):
        if event.get(field):
            yield _invalid("needs to be unset", field)


def _invalid(told: str, field: str) -> Json:
    return cause("FieldValueInvalid", f'Invalid value: "": {told}', field)
