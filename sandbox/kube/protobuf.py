# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests in Kubernetes' protobuf, for the few kinds that kubectl insists on sending that way. Answers are always JSON."""

from __future__ import annotations

import base64
import typing as t

Json = dict[str, t.Any]
Message = dict[int, tuple[str, t.Any]]  # field number to (name, "string" | "bytes" | "bool" | message | list | map)

_MAGIC = b"k8s\0"
_TEXTS, _BLOBS = ("map", "string"), ("map", "bytes")

_META: Message = {
    1: ("name", "string"), 2: ("generateName", "string"), 3: ("namespace", "string"), 6: ("resourceVersion", "string"),
    11: ("labels", _TEXTS), 12: ("annotations", _TEXTS), 14: ("finalizers", ("list", "string")),
}  # fmt: skip
_ATTRIBUTES: Message = {
    number: (name, "string")
    for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)
}
_REVIEW: Message = {
    1: ("resourceAttributes", _ATTRIBUTES),
    2: ("nonResourceAttributes", {1: ("path", "string"), 2: ("verb", "string")}),
}
_KINDS: dict[str, Message] = {
    "Namespace": {1: ("metadata", _META)},
    "ServiceAccount": {1: ("metadata", _META)},
    "ConfigMap": {1: ("metadata", _META), 2: ("data", _TEXTS), 3: ("binaryData", _BLOBS), 4: ("immutable", "bool")},
    "Secret": {
        1: ("metadata", _META),
        2: ("data", _BLOBS),
        3: ("type", "string"),
        4: ("stringData", _TEXTS),
        5: ("immutable", "bool"),
    },
    "SelfSubjectAccessReview": {1: ("metadata", _META), 2: ("spec", _REVIEW)},
    "SelfSubjectReview": {1: ("metadata", _META)},
}


class Unreadable(ValueError):
    """Not protobuf as Kubernetes writes it, or of a kind that is not known here."""


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> t.Iterator[tuple[int, t.Any]]:
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _number(data, at)
            yield tag >> 3, value
        elif kind == 2:
            length, at = _number(data, at)
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise Unreadable(f"wire type {kind}")


def _value(data: t.Any, form: t.Any) -> t.Any:
    if form == "string":
        return data.decode()
    if form == "bytes":
        return base64.b64encode(data).decode()
    if form == "bool":
        return bool(data)
    return _message(data, form)


def _message(data: bytes, form: Message) -> Json:
    found: Json = {}
    for number, raw in _fields(data):
        if number not in form:
            continue
        name, kind = form[number]
        if isinstance(kind, tuple) and kind[0] == "map":
            entry = dict(_fields(raw))
            found.setdefault(name, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), kind[1])
        elif isinstance(kind, tuple):
            found.setdefault(name, []).append(_value(raw, kind[1]))
        else:
            found[name] = _value(raw, kind)
    return found


def decode(data: bytes) -> Json:
    """The document as JSON data."""
    if not data.startswith(_MAGIC):
        raise Unreadable("no Kubernetes protobuf")
    try:
        envelope = dict(_fields(data[len(_MAGIC) :]))
        head = _message(envelope[1], {1: ("apiVersion", "string"), 2: ("kind", "string")})
        form = _KINDS.get(head.get("kind", ""))
        if form is None:
            raise Unreadable(head.get("kind", "an unknown kind"))
        return {**head, **_message(envelope.get(2, b""), form)}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise Unreadable(f"cut short: {error}") from None
