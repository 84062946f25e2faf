# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of offer_info: asks all clouds at once, filters, keeps what was read, and says it in the wished form."""

from __future__ import annotations

import os
import typing as t
from datetime import datetime

from ..core.errors import InvalidInput, TgpError
from ..core.files import replace
from ..core.task import Task
from ..kube.auth.connect import connect as connect_cluster
from ..kube.client import Kube
from ..model import Offer
from ..offers.history import ConfigMapHistory, FolderHistory, History, lines_of, oldest_needed
from ..offers.listing import as_csv, as_json, history_csv, rejections, row, table, trend_row, trend_table
from ..offers.market import Market, Quote, open_cache
from ..planner.cost.price_history import Trend, trends
from ..planner.offers.regions import misspelt_region
from ..providers.query_all import each, failures
from ..providers.registry import CAPABILITIES, ENTRIES
from ..store.records import state_dir
from .buy_vs_rent import purchase_of
from .offer_query import Shopping

NO_LANE = "no accepted lane"  # of fleet.offers.REASONS


def offers_run(task: Task) -> dict[str, t.Any]:
    """The result of offer_info."""
    shopping = Shopping.of(task, _cluster(task))
    try:
        return _Run(task, shopping).result()
    finally:
        shopping.close()


def _cluster(task: Task) -> Kube | None:
    """The cluster where one is needed for certain, or may hold the key of a cloud; None when there is none to speak of."""
    params = task.params
    needed = "cluster" in (params["cache"], params["history"]) or params["documents_from_cluster"]
    if not needed and not params["pool"]:
        return None
    try:
        return connect_cluster(task)
    except InvalidInput:
        if needed:
            raise
        return None


class _Run:
    def __init__(self, task: Task, shopping: Shopping) -> None:
        self.task, self.params, self.shopping = task, task.params, shopping
        keep = not task.check_mode
        cache = open_cache(task, self.params["cache"], shopping.kube)
        self.market = Market(task, cache, ttl=self.params["cache_ttl"], refresh=self.params["refresh"], keep=keep)
        self.trends: list[Trend] = []
        self.export = history_csv(())

    def result(self) -> dict[str, t.Any]:
        answers = each(self.shopping.clouds, self._quote)
        unanswered = failures(self.task, answers)
        quotes = [answer for answer in answers.values() if not isinstance(answer, TgpError)]
        now = self.task.clock.now()
        self._check_regions([word for quote in quotes for one in quote.offers for word in (one.region, one.cloud_region)])
        found = [offer for quote in quotes for offer in quote.offers if self.shopping.asked_for(offer)]
        chosen, rejected, reasons = self.shopping.judge(found, now)
        assumed = self.shopping.traffic
        rows = [row(offer, now, lane, place, assumed) for offer, lane, place in sorted(chosen, key=_cheapest_first)]
        data = {
            "offers": rows,
            "rejected": rejected,
            "reasons": reasons,
            "unanswered": unanswered,
            "cache": _hits(quotes, now),
            **self._history(quotes, [one[0] for one in chosen], now),
            **purchase_of(self.task, rows),
        }
        lines = self._table(data)
        return {"changed": self._publish(data, lines), **data, "table": lines}

    def _check_regions(self, offered: list[str]) -> None:
        """InvalidInput for a region that no cloud has and that resembles one: what is sold out may have its region without an offer."""
        named = [word for entry in ENTRIES.values() for word in entry.regions]
        for wish in self.params["region"]:
            if near := misspelt_region(wish, [*offered, *named]):
                raise InvalidInput(f"There is no region {wish!r}.", remedy=f"Did you mean {' or '.join(near)}?")

    def _quote(self, name: str) -> Quote:
        return self.market.offers(name, self.shopping.query(name), lambda: self.shopping.ask(name), self.shopping.choice(name))

    # ---- prices over time

    def _history(self, quotes: t.Sequence[Quote], shown: t.Sequence[Offer], now: datetime) -> dict[str, t.Any]:
        history = _open_history(self.task, self.params["history"], self.shopping.kube)
        if history is None:
            return {"trend": []}
        current = lines_of(shown, now)
        fresh = lines_of((offer for quote in quotes if not quote.hit for offer in quote.offers), now)
        try:
            if self.params["trend"]:
                self.trends = trends(current, history.lines(oldest_needed(now)), now)
            if not self.task.check_mode:
                history.append(fresh)
            if self.params["history_path"]:
                self.export = history_csv(history.lines())
        except TgpError as error:
            if self.params["history_path"]:
                raise
            self.task.warn(f"Prices over time are not known or were not kept: {error}")
        return {"trend": [trend_row(one) for one in self.trends]}

    # ---- saying it

    def _table(self, data: dict[str, t.Any]) -> list[str]:
        limit = self.params["limit"]
        lines = table(self._of_interest(data["offers"]), data["unanswered"], limit, self.shopping.traffic)
        lines += _remembered(data["cache"])
        lines += rejections(data["rejected"], data["reasons"], limit)
        lines += _why_no_lane(data["rejected"])
        lines += trend_table(self.trends, limit)
        if data.get("purchase"):
            lines.append(f"  {data['purchase']['sentence']}")
        return lines

    def _of_interest(self, rows: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
        """People who look for GPUs do not look for machines without one, unless there is nothing else or they say so."""
        return [one for one in rows if one["gpu_count"]] or rows if self.params["gpu_count"] is None else rows

    def _publish(self, data: dict[str, t.Any], lines: list[str]) -> bool:
        """Write the files that were asked for, or print when that was; returns whether a file changed."""
        changed = False
        match self.params["format"]:
            case "json":
                text = as_json(data)
            case "csv":
                text = as_csv(data["offers"])
            case _:
                text = "".join(f"{line}\n" for line in lines)
        if self.params["path"]:
            changed = self._write(self.params["path"], text)
        elif self.params["format"]:
            for line in text.splitlines():
                self.task.progress(line)
        if self.params["history_path"]:
            changed = self._write(self.params["history_path"], self.export) or changed
        return changed

    def _write(self, path: str, text: str) -> bool:
        full = os.path.expanduser(path)
        try:
            with open(full, encoding="utf-8") as file:
                if file.read() == text:
                    return False
        except (OSError, UnicodeDecodeError):
            pass  # not there, or something else: it is written anew, and an error of that says why not
        if not self.task.check_mode:
            replace(full, text.encode(), mode=0o644)
        return True


def _cheapest_first(one: tuple[Offer, str | None, int | None]) -> tuple[t.Any, ...]:
    offer, place = one[0], one[2]
    return (offer.price_hour is None, offer.price_hour or 0, place or 0, offer.cloud, offer.id)


def _hits(quotes: t.Sequence[Quote], now: datetime) -> dict[str, t.Any]:
    """How much was remembered, and how old each cloud's answer is."""
    hits = sum(quote.hit for quote in quotes)
    return {"hits": hits, "misses": len(quotes) - hits, "age_seconds": {quote.cloud: quote.age(now) for quote in quotes}}


def _remembered(cache: t.Mapping[str, t.Any]) -> list[str]:
    """One line about the age of what is shown."""
    if not cache["hits"]:
        return []
    ages = ", ".join(f"{cloud} {age} s" for cloud, age in cache["age_seconds"].items() if age)
    return [f"  {cache['hits']} of {cache['hits'] + cache['misses']} answers were remembered; age: {ages or '0 s'}"]


def _why_no_lane(rejected: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Why a cloud's machines cannot become what the pool wants, once for each cloud."""
    clouds = sorted({one["cloud"] for one in rejected if one["reason"] == NO_LANE})
    return [
        f"  {cloud}: {NO_LANE}, because {CAPABILITIES[cloud].lane_reason}" for cloud in clouds if CAPABILITIES[cloud].lane_reason
    ]


def _open_history(task: Task, place: str, kube: Kube | None) -> History | None:
    if place == "cluster" and kube is not None:
        return ConfigMapHistory(kube)
    return FolderHistory(os.path.join(state_dir(task), "prices")) if place == "file" else None
