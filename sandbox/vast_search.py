# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for offers: filters, order, prices with the disk in them, and never more than 64 answers."""

from __future__ import annotations

import typing as t

from .vast_account import Account
from .vast_catalogue import PLACES
from .vast_errors import Refused, invalid
from .vast_offers import vast_offer
from .vast_rows import offer_row, shown
from .world import World

MOST = 64
DEFAULT_STORAGE = 8.0
_TYPES = {"on-demand": "on-demand", "ondemand": "on-demand", "bid": "bid", "interruptible": "bid", "reserved": "reserved"}
_OPTIONS = frozenset({"type", "order", "limit", "allocated_storage", "disable_bundling", "select_cols"})
_IGNORED = frozenset({"georegion", "chunked"})  # for the command line itself; whoever sends them is not refused
_OPERATORS = frozenset({"eq", "neq", "gt", "lt", "gte", "lte", "in", "notin"})
_SLIP = 7  # with inexact filters, every so many-th offer slips through those that compare numbers
_SAMPLE = offer_row(vast_offer({"gpu": "RTX 4090", "id": 1}), "on-demand", DEFAULT_STORAGE, 0.0)
"""A row that has every column, also where nobody offers anything."""


def search(world: World, query: t.Any) -> list[dict[str, t.Any]]:
    """The offers a query finds. The caller holds the lock."""
    if not isinstance(query, dict):
        raise invalid("query must be an object")
    kind, storage, most, order = _options(query)
    filters = _filters(query)
    for one in filters:
        _passes(_SAMPLE, *one)
    for field, _falling in order:
        if field not in _SAMPLE:
            raise invalid(f"order: unknown field {field}")
    inexact = Account.of(world).switches.inexact_filters
    now, found = world.clock.seconds(), []
    for index, offer in enumerate(one for one in world.offers if one.cloud == "vast"):
        slips = inexact and index % _SLIP == _SLIP - 1
        row = offer_row(offer, kind, storage, now)
        if all(_passes(row, *one) or (slips and one[1] not in ("eq", "in", "neq", "notin")) for one in filters):
            found.append(row)
    for field, falling in reversed(order):
        known = [row for row in found if row[field] is not None]
        unknown = [row for row in found if row[field] is None]
        found = sorted(known, key=lambda row: row[field], reverse=falling) + unknown
    return [shown(row) for row in found[:most]]


def _options(query: dict[str, t.Any]) -> tuple[str, float, int, list[tuple[str, bool]]]:
    kind = query.get("type", "on-demand")
    if kind not in _TYPES:
        raise invalid(f"type: unknown offer type {kind!r}")
    storage = _number(query.get("allocated_storage", DEFAULT_STORAGE), "allocated_storage")
    limit = query.get("limit")
    most = MOST if limit is None else int(_number(limit, "limit"))
    if most < 1 or storage < 0:
        raise invalid("limit and allocated_storage must be positive")
    order = query.get("order", [["score", "desc"]])
    if not isinstance(order, list):
        raise invalid("order must be a list of [field, direction]")
    sorted_by = []
    for part in order:
        if not isinstance(part, list) or len(part) != 2 or part[1] not in ("asc", "desc"):
            raise invalid("order must be a list of [field, direction]")
        sorted_by.append((str(part[0]), part[1] == "desc"))
    return _TYPES[kind], storage, min(most, MOST), sorted_by


def _filters(query: dict[str, t.Any]) -> list[tuple[str, str, t.Any]]:
    found = []
    for field, wanted in query.items():
        if field in _OPTIONS or field in _IGNORED:
            continue
        if field == "target_reliability":  # asked for as a promise, kept by those from whom so much is expected
            wanted = wanted if isinstance(wanted, dict) else {"gte": wanted}
            field = "expected_reliability"
        if not isinstance(wanted, dict):
            raise invalid(f"{field}: a filter is an object of operators")
        for operator, value in wanted.items():
            if operator not in _OPERATORS:
                raise invalid(f"{field}: unknown operator {operator}")
            if operator in ("in", "notin") and not isinstance(value, list):
                raise invalid(f"{field}: {operator} takes a list")
            by_number = field == "driver_version" and str(value).isdecimal()  # 570086015 is 570.86.15
            found.append(("driver_vers" if by_number else field, operator, value))
    return found


def _passes(row: dict[str, t.Any], field: str, operator: str, wanted: t.Any) -> bool:
    if field not in row:
        raise invalid(f"unknown field {field}")
    value = row[field]
    if operator in ("in", "notin"):
        hit = any(_same(field, value, one) for one in wanted)
        return hit if operator == "in" else not hit
    if operator in ("eq", "neq"):
        return _same(field, value, wanted) is (operator == "eq")
    if value is None or wanted is None:
        return False
    other = _alike(field, value, wanted)
    if isinstance(value, str) or isinstance(other, str):
        value, other = str(value), str(other)
    compared: bool = {"gt": value > other, "lt": value < other, "gte": value >= other, "lte": value <= other}[operator]
    return compared


def _same(field: str, value: t.Any, wanted: t.Any) -> bool:
    if field == "geolocation":  # asked for by country
        return wanted in (value, PLACES.get(value))
    if value is None or wanted is None:
        return value is wanted
    return bool(value == _alike(field, value, wanted))


def _alike(field: str, value: t.Any, wanted: t.Any) -> t.Any:
    """What was asked for, as the kind of thing the field is: clients send numbers and truths as text."""
    if isinstance(value, bool):
        return {"true": True, "false": False}.get(str(wanted).lower(), wanted)
    if isinstance(value, (int, float)):
        return _number(wanted, field)
    return wanted


def _number(value: t.Any, field: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Refused(400, "invalid_args", f"{field}: {value!r} is not a number") from None
