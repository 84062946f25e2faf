# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cloud's answer to one question, as it is kept: the offers, when they were read, and what was asked.

Nothing of an account goes in: offers are what anybody is shown. Prices keep every digit.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import typing as t
import zlib
from datetime import datetime
from decimal import Decimal, InvalidOperation

from ..core.clock import from_text, to_text
from ..core.errors import BadShape
from ..model import Lane, Offer, OfferQuery

VERSION = 1
_MONEY = frozenset({"price_hour", "storage_price_hour", "reliability", "min_bid", "traffic_price_gb_down", "traffic_price_gb_up"})
_FIELDS = {field.name: field for field in dataclasses.fields(Offer)}
_DEFAULTS = {
    name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    for name, field in _FIELDS.items()
}


@dataclasses.dataclass(frozen=True, slots=True)
class OfferReading:
    """What a cloud offered at the moment ``read``."""

    cloud: str
    read: datetime
    offers: tuple[Offer, ...]


def key_of(cloud: str, endpoint: t.Sequence[str], query: OfferQuery) -> str:
    """The name of a reading: the cloud and a digest of where and what it was asked. Good as a file name and as a ConfigMap key."""
    asked = {name: _plain(getattr(query, name)) for name in sorted(field.name for field in dataclasses.fields(query))}
    text = json.dumps([list(endpoint), asked], sort_keys=True)
    return f"{cloud}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, tuple):
        return sorted(str(getattr(entry, "value", entry)) for entry in value)
    return value


def pack(reading: OfferReading) -> bytes:
    """Compressed JSON; the same for the same reading."""
    body = {
        "version": VERSION,
        "cloud": reading.cloud,
        "read": to_text(reading.read),
        "offers": [_brief(offer) for offer in reading.offers],
    }
    return gzip.compress(json.dumps(body, sort_keys=True, separators=(",", ":")).encode(), 6, mtime=0)


def unpack(data: bytes, where: str) -> OfferReading:
    """The reading in ``data``; BadShape naming the place when it is torn or odd."""
    try:
        body = json.loads(gzip.decompress(data))
        if body["version"] != VERSION:
            raise ValueError(f"it is of version {body['version']!r}")
        read = from_text(body["read"])
        return OfferReading(str(body["cloud"]), read, tuple(_offer(offer, read) for offer in body["offers"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise BadShape(f"{where} is not understood: {error!r}.", service="offer cache") from error


def _brief(offer: Offer) -> dict[str, t.Any]:
    """The fields that differ from the default; ``seen`` is the reading's own moment."""
    brief: dict[str, t.Any] = {}
    for name in _FIELDS:
        value = getattr(offer, name)
        if name == "seen" or value == _DEFAULTS[name]:
            continue
        if isinstance(value, Decimal):
            value = str(value)
        elif name == "lanes":
            value = [lane.value for lane in value]
        elif name == "traits":
            value = dict(value)
        brief[name] = value
    return brief


def _offer(brief: dict[str, t.Any], read: datetime) -> Offer:
    facts: dict[str, t.Any] = {**brief, "seen": read}
    for name in _MONEY & facts.keys():
        facts[name] = None if facts[name] is None else Decimal(facts[name])
    facts["lanes"] = tuple(Lane(word) for word in facts.get("lanes", ()))
    facts.setdefault("price_hour", None)
    return Offer(**facts)
