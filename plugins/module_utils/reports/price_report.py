# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of offer_info: asks all clouds at once, filters, keeps what was read, and says it in the desired form."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.errors import InvalidInput, TgpError
from ..core.files import replace, state_folder
from ..core.task import Task
from ..kube.auth.credentials import connect as connect_cluster
from ..kube.client import Kube
from ..model import CloudChoice, Lane, NodeClass, Offer, OfferQuery, Pool, Specs
from ..model.defaults import PRICE_TTL, Settings
from ..observe.clients import cloud_credential, unused
from ..observe.documents import load
from ..offers.history import ConfigMapHistory, FolderHistory, History, lines_of, oldest_needed
from ..offers.listing import as_csv, as_json, gib, history_csv, rejections, row, table, trend_row, trend_table
from ..offers.market import CachedOffers, Quote, open_cache
from ..planner.cost.price_history import Trend, break_even_hours, trends
from ..planner.cost.traffic import Assumption
from ..planner.offers import gpu_models, launch_backoff
from ..planner.offers.ranking import lane_of, offer_key, query_of, select
from ..planner.offers.requirements import is_model, misspelt_region, region_matches
from ..providers.query_all import chosen, each, failures
from ..providers.registry import CAPABILITIES, ENTRIES, canonical_cloud
from ..providers.registry import connect as connect_cloud
from ..store.open_store import open_store
from ..units.values import parse_money, print_money

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
        self.cached_offers = CachedOffers(task, cache, ttl=self.params["cache_ttl"], refresh=self.params["refresh"], keep=keep)
        self.trends: list[Trend] = []
        self.export = history_csv(())

    def result(self) -> dict[str, t.Any]:
        answers = each(self.shopping.clouds, self._quote)
        unanswered = failures(self.task, answers)
        quotes = [answer for answer in answers.values() if not isinstance(answer, TgpError)]
        now = self.task.clock.now()
        self._check_regions([word for quote in quotes for offer in quote.offers for word in (offer.region, offer.cloud_region)])
        offers = [offer for quote in quotes for offer in quote.offers if self.shopping.asked_for(offer)]
        chosen, rejected, reasons = self.shopping.select_offers(offers, now)
        assumed = self.shopping.traffic
        rows = [row(offer, now, lane, place, assumed) for offer, lane, place in sorted(chosen, key=_cheapest_first)]
        data = {
            "offers": rows,
            "rejected": rejected,
            "reasons": reasons,
            "unanswered": unanswered,
            "cache": _hits(quotes, now),
            **self._history(quotes, [choice[0] for choice in chosen], now),
            **purchase_of(self.task, rows),
        }
        lines = self._table(data)
        return {"changed": self._publish(data, lines), **data, "table": lines}

    def _check_regions(self, offered: list[str]) -> None:
        """InvalidInput for a region that no cloud has and that resembles one: what is sold out may have its region without an offer."""
        named = [word for entry in ENTRIES.values() for word in entry.regions]
        for spec in self.params["region"]:
            if near := misspelt_region(spec, [*offered, *named]):
                raise InvalidInput(f"There is no region {spec!r}.", remedy=f"Did you mean {' or '.join(near)}?")

    def _quote(self, name: str) -> Quote:
        return self.cached_offers.offers(
            name, self.shopping.query(name), lambda: self.shopping.ask(name), self.shopping.choice(name)
        )

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
        return {"trend": [trend_row(trend) for trend in self.trends]}

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
        return [entry for entry in rows if entry["gpu_count"]] or rows if self.params["gpu_count"] is None else rows

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


def _cheapest_first(entry: tuple[Offer, str | None, int | None]) -> tuple[t.Any, ...]:
    offer, place = entry[0], entry[2]
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
    clouds = sorted({entry["cloud"] for entry in rejected if entry["reason"] == NO_LANE})
    return [
        f"  {cloud}: {NO_LANE}, because {CAPABILITIES[cloud].lane_reason}" for cloud in clouds if CAPABILITIES[cloud].lane_reason
    ]


def _open_history(task: Task, place: str, kube: Kube | None) -> History | None:
    if place == "cluster" and kube is not None:
        return ConfigMapHistory(kube)
    return FolderHistory(os.path.join(state_folder(task.params), "prices")) if place == "file" else None


# ---- what offer_info is asked for: by its own options, and by the rules of a pool when one is named

_MEMORY = re.compile(r"(?i)\s*(\d+)\s*(?:g(?:i?b?)?|(m(?:i?b?)?))?\s*")
Chosen = tuple[Offer, "str | None", "int | None"]


@dataclasses.dataclass
class Shopping:
    """One question. ``memory`` is the least GiB per GPU, ``limit`` the highest price; ``specs`` holds the named pool alone, or nothing.
    ``traffic`` is what a machine is assumed to transfer."""

    task: Task
    kube: Kube | None
    clouds: list[str]
    memory: int | None = None
    limit: Decimal | None = None
    pool: Pool | None = None
    node_class: NodeClass | None = None
    specs: Specs = dataclasses.field(default_factory=lambda: Specs({}, ()))
    traffic: Assumption = Assumption()

    @classmethod
    def of(cls, task: Task, kube: Kube | None) -> Shopping:
        """The question of a call's options. InvalidInput for a GPU, an amount or a pool that is none."""
        params = task.params
        for text in params["gpu_type"]:
            if gpu_models.canonical(text) is None:
                near = gpu_models.suggestions(text)
                raise InvalidInput(f"{text!r} is not a known GPU.", remedy=f"Did you mean {' or '.join(near)}?" if near else "")
        memory = task.read("min_gpu_memory", _memory)
        limit = task.read("max_price", parse_money)
        traffic = Assumption.of(params)
        if not params["pool"]:
            if params["documents"] or params["documents_from_cluster"]:
                raise InvalidInput(
                    f"{task.called('documents')} are given and no {task.called('pool')}.",
                    remedy="Name the pool whose rules shall be applied.",
                )
            return cls(task, kube, chosen(task, params["clouds"]), memory, limit, traffic=traffic)
        specs = load(task, kube)
        pool = _pool(specs, params["pool"])
        node_class = specs.classes[pool.node_class]
        alone = Specs({node_class.name: node_class}, (pool,))
        return cls(task, kube, _clouds(task, kube, alone), memory, limit, pool, node_class, alone, traffic)

    # ---- asking

    def query(self, cloud: str) -> OfferQuery:
        """What a cloud that can search is asked for. Of a pool only models and disk narrow the search, so that its other rules can be
        seen at work; the options narrow in everything."""
        params = self.task.params
        of_pool = query_of(self.specs, cloud)
        wanted = tuple(name for name in gpu_models.known() if any(is_model(spec, name, None) for spec in params["gpu_type"]))
        return OfferQuery(
            models=wanted or of_pool.models,
            gpu_counts=() if params["gpu_count"] is None else (params["gpu_count"],),
            # cards show a little less than their nominal size
            min_gpu_memory_mib=None if self.memory is None else self.memory * 1000,
            max_price_hour=self.limit,
            disk_gib=params["disk"] or of_pool.disk_gib,
            spot=params["spot"],
            lanes=tuple(Lane(word) for word in params["lanes"]),
        )

    def ask(self, name: str) -> list[Offer]:
        """The cloud's own answer."""
        choice = self.choice(name)
        credential = None
        if self.pool is not None and self.kube is not None and name in ENTRIES:
            credential = cloud_credential(self.task, self.kube, name, choice)
        cloud = connect_cloud(name, self.task, credential=credential, choice=choice)
        try:
            return cloud.offers(self.query(name))
        finally:
            cloud.close()

    def choice(self, name: str) -> CloudChoice | None:
        """The entry of the pool's class for a cloud."""
        choices = self.node_class.clouds if self.node_class is not None else ()
        return next((choice for choice in choices if choice.cloud == name and choice.enabled), None)

    # ---- choosing

    def asked_for(self, offer: Offer) -> bool:
        """Whether the options let the offer pass. What is sold out passes only on request, or to be shown as a pool's rejection."""
        params = self.task.params
        models, regions, lanes = params["gpu_type"], params["region"], params["lanes"]
        return (
            (params["sold_out"] or self.pool is not None or offer.available != 0)
            and (not models or any(is_model(spec, offer.model, offer.gpu_memory_mib) for spec in models))
            and params["gpu_count"] in (None, offer.gpu_count)
            and (self.memory is None or (offer.gpu_memory_mib is not None and gib(offer.gpu_memory_mib) >= self.memory))
            and (not regions or any(region_matches(spec, offer.region, offer.cloud_region) for spec in regions))
            and (self.limit is None or (offer.price_hour is not None and offer.price_hour <= self.limit))
            and params["spot"] in (None, offer.spot)
            and (not lanes or any(lane.value in lanes for lane in offer.lanes))
        )

    def select_offers(
        self, offers: t.Sequence[Offer], now: datetime
    ) -> tuple[list[Chosen], list[dict[str, t.Any]], dict[str, int]]:
        """What serves, with the lane and the place in the pool's order; what does not, with the first reason; the reasons counted."""
        if self.pool is None or self.node_class is None:
            return [(offer, None, None) for offer in offers], [], {}
        pool = self.pool
        oldest = max(PRICE_TTL, self.task.params["cache_ttl"])
        selection = select(offers, pool, self.node_class, CAPABILITIES, Settings(), now, self._blocks(now), oldest=oldest)
        served: list[Chosen] = []
        for place, offer in enumerate(selection.candidates, start=1):
            lane = lane_of(offer, pool, CAPABILITIES[offer.cloud])
            served.append((offer, lane.value if lane else None, place))
        by_key = {offer_key(offer): offer for offer in offers}
        rejected = [{**row(by_key[key], now, assumed=self.traffic), "reason": reason} for key, reason in selection.rejected.items()]
        rejected.sort(key=lambda entry: (entry["price_hour"] is None, float(entry["price_hour"] or 0), entry["cloud"], entry["id"]))
        return served, rejected, selection.counts()

    def _blocks(self, now: datetime) -> dict[str, datetime]:
        """Offers that failed a short while ago; unknown when the records cannot be read."""
        if self.kube is None and self.task.params["claim_store"] != "directory":
            return {}
        try:
            return dict(launch_backoff.active(open_store(self.task, self.kube).read_state("blocklist"), now))
        except TgpError as error:
            self.task.warn(f"Which offers are blocked is not known: {error}")
            return {}

    def close(self) -> None:
        if self.kube is not None:
            self.kube.close()


def _memory(text: str) -> int:
    """GiB of ``24``, ``24GiB`` or ``24576MiB``."""
    match = _MEMORY.fullmatch(str(text))
    if match is None:
        raise InvalidInput(f"{text!r} is not an amount of memory.", remedy="Write GiB as a number, or 24GiB, or 24576MiB.")
    return gib(int(match[1])) if match[2] else int(match[1])


def _pool(specs: Specs, name: str) -> Pool:
    pools = [pool for pool in specs.pools if name in (pool.key, pool.name)]
    if len(pools) == 1:
        return pools[0]
    pool_names = ", ".join(sorted(pool.key for pool in specs.pools)) or "none"
    if pools:
        raise InvalidInput(f"There are {len(pools)} pools {name}.", remedy=f"Say which: {', '.join(pool.key for pool in pools)}.")
    raise InvalidInput(f"There is no pool {name} among the documents.", remedy=f"Known pools: {pool_names}.")


def _clouds(task: Task, kube: Kube | None, specs: Specs) -> list[str]:
    """The clouds of the pool's class, less those that nobody named or configured; by option fewer."""
    (node_class,) = specs.classes.values()
    named = [choice for choice in node_class.clouds if choice.enabled and choice.cloud in ENTRIES]
    asked = {canonical_cloud(name) or name for name in task.params["clouds"]}
    if unknown := sorted(asked - {choice.cloud for choice in named}):
        raise InvalidInput(
            f"{node_class.name} does not rent from {', '.join(unknown)}.",
            remedy=f"Leave it out of {task.called('clouds')}, or add a provider.",
        )
    clouds = []
    for choice in named:
        if asked and choice.cloud not in asked:
            continue
        if kube is None:
            idle = choice.implicit and not ENTRIES[choice.cloud].is_configured(task)
        else:
            idle = unused(task, kube, choice.cloud, specs)
        clouds += [] if idle else [choice.cloud]
    if not clouds:
        raise InvalidInput(f"{node_class.name}: no provider is named and no cloud is configured.", remedy="Give the key of one.")
    return clouds


# ---- rent or buy, in numbers


def purchase_of(task: Task, rows: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """``purchase`` against the cheapest row with a price; None when no purchase price was given. ``hours`` None = never."""
    price = task.read("purchase_price", parse_money)
    if price is None:
        return {"purchase": None}
    power = task.read("power_price", parse_money) or Decimal(0)
    watts = task.params["power_watts"]
    cheapest = next((entry for entry in rows if entry["price_hour"] is not None), None)
    if cheapest is None:
        return {
            "purchase": {
                "hours": None,
                "rent_hour": None,
                "sentence": "Nothing can be rented, so there is nothing to compare with.",
            }
        }
    rent = Decimal(cheapest["price_hour"])
    hours = break_even_hours(price, rent, power, watts)
    thing = f"{cheapest['cloud']} {cheapest['id']} at {print_money(rent)} $/h"
    if hours is None:
        sentence = f"Buying never pays: power alone ({watts} W at {print_money(power)} $/kWh) costs as much as {thing}."
    else:
        days = Decimal(hours) / 24
        sentence = (
            f"Buying for {print_money(price)} $ pays after {hours} hours of use ({days:.0f} days without a pause) against {thing}."
        )
    return {"purchase": {"hours": hours, "rent_hour": cheapest["price_hour"], "sentence": sentence}}
