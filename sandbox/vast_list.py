# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of instances, version 1 of that part of the API: pages of at most 25 rows, filters on stored columns only."""

from __future__ import annotations

import base64
import json
import typing as t
from datetime import timedelta

from .vast_account import Account, living
from .vast_errors import Refused
from .vast_forms import instance
from .world import World

PAGE = 25
STORED = (
    "id",
    "label",
    "actual_status",
    "gpu_name",
    "verification",
    "machine_id",
    "host_id",
    "intended_status",
    "image_uuid",
    "start_date",
)
_FILTERS = frozenset({"eq", "neq", "gt", "lt", "gte", "lte", "in", "notin"})


def listed(world: World, query: t.Mapping[str, str]) -> dict[str, t.Any]:
    """One page. The caller holds the lock."""
    account, now = Account.of(world), world.clock.now()  # rounded as ``created`` is
    limit = _limit(query.get("limit"))
    order = _order(_json(query, "order_by", [{"col": "id", "dir": "asc"}]))
    filters = _json(query, "select_filters", {})
    columns = _json(query, "select_cols", ["*"])
    _check(filters)
    late = timedelta(seconds=account.switches.list_after)
    rows = [instance(world, one) for one in living(world) if now - one.created >= late]
    total = len(rows)
    if account.switches.partial_lists > 0 and rows:
        account.switches.partial_lists -= 1
        rows = rows[: len(rows) // 2]
    rows = [row for row in rows if _passes(row, filters)]
    for name, falling in reversed(order):
        if any(name not in row for row in rows):
            raise Refused(400, "invalid_request", f"order_by: unknown column {name}")
        known = [row for row in rows if row.get(name) is not None]
        rest = [row for row in rows if row.get(name) is None]
        rows = sorted(known, key=lambda row: row[name], reverse=falling) + rest
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["label"] or ""] = counts.get(row["label"] or "", 0) + 1
    begin = _begin(query.get("after_token"), [row["id"] for row in rows])
    page = rows[begin : begin + limit]
    more = begin + limit < len(rows)
    if not isinstance(columns, list):
        raise Refused(400, "invalid_request", "select_cols must be a list")
    if "*" not in columns:
        page = [{name: row.get(name) for name in columns} for row in page]
    return {
        "success": True,
        "instances_found": len(rows),
        "total_instances": total,
        "label_counts": counts,
        "next_token": _token(rows[begin + limit - 1]["id"]) if more else None,
        "instances": page,
    }


def combinations(world: World) -> list[dict[str, t.Any]]:
    """Values that can be filtered by, each combination once."""
    names = ("actual_status", "verification", "gpu_name", "label")
    seen: dict[str, dict[str, t.Any]] = {}
    for row in (instance(world, one) for one in living(world)):
        found = {name: row[name] for name in names}
        seen[json.dumps(found)] = found
    return list(seen.values())


def _json(query: t.Mapping[str, str], name: str, default: t.Any) -> t.Any:
    if not query.get(name):
        return default
    try:
        return json.loads(query[name])
    except ValueError:
        raise Refused(400, "invalid_request", f"{name} is not JSON") from None


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if not text.isdecimal() or not 1 <= int(text) <= PAGE:
        raise Refused(400, "invalid_request", f"limit must be 1 to {PAGE}")
    return int(text)


def _order(parts: t.Any) -> list[tuple[str, bool]]:
    found = []
    for part in parts if isinstance(parts, list) else [None]:
        if not isinstance(part, dict) or not isinstance(part.get("col"), str) or part.get("dir", "asc") not in ("asc", "desc"):
            raise Refused(400, "invalid_request", "order_by must be a list of {col, dir}")
        found.append((part["col"], part.get("dir") == "desc"))
    return found


def _check(filters: t.Any) -> None:
    if not isinstance(filters, dict) or not all(isinstance(wanted, dict) for wanted in filters.values()):
        raise Refused(400, "invalid_request", "select_filters must be an object of operators")
    for name, wanted in filters.items():
        if name not in STORED:
            raise Refused(400, "invalid_request", f"select_filters: cannot filter on computed column {name}")
        for operator, value in wanted.items():
            if operator not in _FILTERS or (operator in ("in", "notin") and not isinstance(value, list)):
                raise Refused(400, "invalid_request", f"select_filters: {name}: bad operator {operator}")


def _passes(row: dict[str, t.Any], filters: dict[str, dict[str, t.Any]]) -> bool:
    return all(_meets(row[name], operator, value) for name, wanted in filters.items() for operator, value in wanted.items())


def _meets(value: t.Any, operator: str, wanted: t.Any) -> bool:
    if operator in ("in", "notin"):
        return (value in wanted) is (operator == "in")
    if operator in ("eq", "neq"):
        return (value == wanted) is (operator == "eq")
    try:
        met: bool = {"gt": value > wanted, "lt": value < wanted, "gte": value >= wanted, "lte": value <= wanted}[operator]
    except TypeError:
        return False
    return met


def _token(number: int) -> str:
    return base64.urlsafe_b64encode(f"after:{number}".encode()).decode()


def _begin(token: str | None, ids: list[int]) -> int:
    """Where the page after the row of the token begins; a row that has gone meanwhile is thought where it was."""
    if not token:
        return 0
    try:
        word, _colon, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        last = int(number)
    except ValueError:
        word, last = "", 0
    if word != "after":
        raise Refused(400, "invalid_token", "after_token is not valid")
    if last in ids:
        return ids.index(last) + 1
    return sum(1 for one in ids if one <= last)
