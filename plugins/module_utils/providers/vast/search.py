# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Searching Vast.ai's market: what to ask, how to get all pages of an answer that has none, and which rows really fit.

An answer holds at most 64 offers whatever limit is asked for, and there is no page token: the next page is asked by price. The server's
filters are a hint only: every one is applied again here.
"""

from __future__ import annotations

import math
import typing as t
from decimal import Decimal

from ...model import Lane, Offer, OfferQuery
from ...planner.offers.requirements import gigabytes, outlasts
from .api import VastApi
from .gpu_names import least_cuda, spellings

PAGE = 64
PATH = "/api/v0/bundles/"
_SLACK = Decimal("1.02")  # the server prices the disk by its own rounding; the exact price is compared here
_MEMORY_SHARE = 0.93  # drivers report less than what a card is sold with
_MOST_PAGES = 1000
_ROUNDED = 0.0001  # how far a price in an answer may be from the one that is compared
Row = dict[str, t.Any]
Filters = dict[str, t.Any]


class SearchScope(t.NamedTuple):
    """Whose machines are looked at: ``unverified`` also those that Vast.ai has not verified, ``datacenter`` none but those in data
    centres."""

    unverified: bool = False
    datacenter: bool = False


def filters(query: OfferQuery, scope: SearchScope, *, bid: bool) -> Filters | None:
    """The body of the search without order; None when Vast.ai cannot have what is asked for. Defaults of its own clients are said
    explicitly, because the server's may change."""
    body: Filters = {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "disk_space": {"gte": gigabytes(query.disk_gib)},
        "type": "bid" if bid else "on-demand",
        "allocated_storage": gigabytes(query.disk_gib),
        "limit": PAGE,
    }
    if not scope.unverified:
        body["verified"] = {"eq": True}
    if scope.datacenter:
        body["hosting_type"] = {"eq": 1}
    if query.models:
        names = spellings(query.models)
        if not names:
            return None
        body["gpu_name"] = {"in": names}
    if query.gpu_counts:
        body["num_gpus"] = {"eq": query.gpu_counts[0]} if len(query.gpu_counts) == 1 else {"in": list(query.gpu_counts)}
    if query.min_gpu_memory_mib is not None:
        body["gpu_ram"] = {"gte": int(query.min_gpu_memory_mib * _MEMORY_SHARE)}
    if query.max_price_hour is not None:
        body["min_bid" if bid else "dph_total"] = {"lte": float(query.max_price_hour * _SLACK)}
    if query.rent_seconds is not None:
        body["duration"] = {"gte": query.rent_seconds}
    if query.lanes and Lane.SERVICE not in query.lanes:
        body["vms_enabled"] = {"eq": True}
    return body


def fits(offer: Offer, row: Row, query: OfferQuery, scope: SearchScope, *, bid: bool) -> bool:
    """Whether a row of the answer is what was asked for, by our own reading of it. A fact that is missing speaks against nothing."""
    conditions = (row.get("rentable") is not False, row.get("rented") is not True, row.get("external") is not True)
    if not all(conditions) or bool(row.get("is_bid", bid)) is not bid:
        return False
    if not scope.unverified and offer.traits.get("verified") == "false":
        return False
    if scope.datacenter and offer.traits.get("datacenter") != "true":
        return False
    if query.models and offer.model not in query.models or query.gpu_counts and offer.gpu_count not in query.gpu_counts:
        return False
    if query.min_gpu_memory_mib is not None and (offer.gpu_memory_mib or 0) < query.min_gpu_memory_mib:
        return False
    if query.max_price_hour is not None and offer.price_hour is not None and offer.price_hour > query.max_price_hour:
        return False
    if query.lanes and not set(query.lanes) & set(offer.lanes):
        return False
    if not outlasts(offer, query.rent_seconds):
        return False
    wanted = gigabytes(query.disk_gib)
    return _number(row.get("disk_space"), wanted) >= wanted and _driver_fits(offer)


def _driver_fits(offer: Offer) -> bool:
    cuda = offer.traits.get("cuda")
    return cuda is None or tuple(int(part) for part in cuda.split(".")[:2]) >= least_cuda(offer.model)


def _number(value: t.Any, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


class Pages:
    """All rows of one search, cheapest first, and behind them the entries that are no rows with an id. Raises ApiError, also BadShape for
    an answer that is none, or that cannot be followed."""

    def __init__(self, api: VastApi, asked: Filters) -> None:
        self._api, self._asked = api, asked
        self._seen: set[int] = set()
        self._odd: dict[str, t.Any] = {}

    def rows(self) -> t.Iterator[t.Any]:
        yield from self._rows()
        yield from self._odd.values()

    def _rows(self) -> t.Iterator[Row]:
        bound: float | None = None
        for _turn in range(_MOST_PAGES):
            page = self._page("dph_total", {} if bound is None else {"dph_total": {"gte": bound}})
            fresh = self._new(page)
            yield from fresh
            if len(page) < PAGE:
                return
            low, high = self._prices(page)
            if bound is not None and low < bound - _ROUNDED:
                raise self._api.http.bad_shape(f"POST {PATH}", f"it was asked for prices from {bound} on and begins at {low}")
            if not fresh or high - low <= 2 * _ROUNDED:
                # more offers at one price than an answer holds: go through them by id, then on above that price
                yield from self._tied(low - _ROUNDED, high + _ROUNDED)
                bound = high + _ROUNDED
            else:
                bound = high - _ROUNDED
        raise self._api.http.bad_shape(f"POST {PATH}", f"it does not end after {_MOST_PAGES} pages")

    def _tied(self, low: float, high: float) -> t.Iterator[Row]:
        after = 0
        for _turn in range(_MOST_PAGES):
            page = self._page("id", {"dph_total": {"gte": low, "lte": high}, "id": {"gt": after}})
            yield from self._new(page)
            highest = max((row["id"] for row in page if _has_id(row)), default=after)
            if len(page) < PAGE or highest <= after:
                return
            after = highest

    def _page(self, order: str, more: Filters) -> list[t.Any]:
        """One answer; ``more`` narrows filters that are there already."""
        body = {**self._asked, "order": [[order, "asc"]]}
        for field, bounds in more.items():
            limit = body.get(field, {}).get("lte", math.inf)
            body[field] = {**body.get(field, {}), **bounds}
            if "lte" in body[field]:
                body[field]["lte"] = min(limit, body[field]["lte"])
        http, operation = self._api.http, f"POST {PATH}"
        return http.expect(self._api.repeat("POST", PATH, json=body, pace="search").get("offers"), list, operation, "offers")

    def _new(self, page: list[t.Any]) -> list[Row]:
        self._odd.update((repr(row), row) for row in page if not _has_id(row))
        fresh = [row for row in page if _has_id(row) and row["id"] not in self._seen]
        self._seen.update(row["id"] for row in fresh)
        return list({row["id"]: row for row in fresh}.values())

    def _prices(self, page: list[t.Any]) -> tuple[float, float]:
        """The lowest and the highest price of an answer: where the next one begins."""
        prices = [value for row in page if _has_id(row) and not math.isnan(value := _number(row.get("dph_total"), math.nan))]
        if not prices:
            raise self._api.http.bad_shape(f"POST {PATH}", "none of its offers has a dph_total to go on from")
        return min(prices), max(prices)


def _has_id(row: t.Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), int) and not isinstance(row["id"], bool)
