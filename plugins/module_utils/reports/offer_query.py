# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What offer_info is asked for: by its own options, and by the rules of a pool when one is named."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.errors import InvalidInput, TgpError
from ..core.task import Task
from ..kube.client import Kube
from ..model import CloudChoice, Lane, NodeClass, Offer, OfferQuery, Pool, Wishes
from ..model.defaults import Settings
from ..observe.credentials import cloud_credential, unused
from ..observe.documents import load
from ..offers.listing import gib, row
from ..planner.cost.traffic import Assumption
from ..planner.offers import gpu_models, launch_backoff
from ..planner.offers.query import query_of
from ..planner.offers.ranking import lane_of, offer_key, select
from ..planner.offers.regions import region_matches
from ..planner.offers.requirements import is_model
from ..providers.query_all import chosen
from ..providers.registry import CAPABILITIES, ENTRIES, canonical_cloud
from ..providers.registry import connect as connect_cloud
from ..store.records import open_store
from ..units.money import parse_money

_MEMORY = re.compile(r"(?i)\s*(\d+)\s*(?:g(?:i?b?)?|(m(?:i?b?)?))?\s*")
Chosen = tuple[Offer, "str | None", "int | None"]


@dataclasses.dataclass
class Shopping:
    """One question. ``memory`` is the least GiB per GPU, ``limit`` the highest price; ``wishes`` holds the named pool alone, or nothing.
    ``traffic`` is what a machine is assumed to transfer."""

    task: Task
    kube: Kube | None
    clouds: list[str]
    memory: int | None = None
    limit: Decimal | None = None
    pool: Pool | None = None
    node_class: NodeClass | None = None
    wishes: Wishes = dataclasses.field(default_factory=lambda: Wishes({}, ()))
    traffic: Assumption = Assumption()

    @classmethod
    def of(cls, task: Task, kube: Kube | None) -> Shopping:
        """The question of a call's options. InvalidInput for a GPU, an amount or a pool that is none."""
        params = task.params
        for text in params["gpu_type"]:
            if gpu_models.canonical(text) is None:
                near = gpu_models.suggestions(text)
                raise InvalidInput(f"{text!r} is no GPU we know.", remedy=f"Did you mean {' or '.join(near)}?" if near else "")
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
        wishes = load(task, kube)
        pool = _pool(wishes, params["pool"])
        node_class = wishes.classes[pool.node_class]
        alone = Wishes({node_class.name: node_class}, (pool,))
        return cls(task, kube, _clouds(task, kube, alone), memory, limit, pool, node_class, alone, traffic)

    # ---- asking

    def query(self, cloud: str) -> OfferQuery:
        """What a cloud that can search is asked for. Of a pool only models and disk narrow the search, so that its other rules can be
        seen at work; the options narrow in everything."""
        params = self.task.params
        of_pool = query_of(self.wishes, cloud)
        wanted = tuple(name for name in gpu_models.known() if any(is_model(wish, name, None) for wish in params["gpu_type"]))
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
        return next((one for one in choices if one.cloud == name and one.enabled), None)

    # ---- judging

    def asked_for(self, offer: Offer) -> bool:
        """Whether the options let the offer pass. What is sold out passes only on request, or to be shown as a pool's rejection."""
        params = self.task.params
        models, regions, lanes = params["gpu_type"], params["region"], params["lanes"]
        return (
            (params["sold_out"] or self.pool is not None or offer.available != 0)
            and (not models or any(is_model(wish, offer.model, offer.gpu_memory_mib) for wish in models))
            and params["gpu_count"] in (None, offer.gpu_count)
            and (self.memory is None or (offer.gpu_memory_mib is not None and gib(offer.gpu_memory_mib) >= self.memory))
            and (not regions or any(region_matches(wish, offer.region, offer.cloud_region) for wish in regions))
            and (self.limit is None or (offer.price_hour is not None and offer.price_hour <= self.limit))
            and params["spot"] in (None, offer.spot)
            and (not lanes or any(lane.value in lanes for lane in offer.lanes))
        )

    def judge(self, offers: t.Sequence[Offer], now: datetime) -> tuple[list[Chosen], list[dict[str, t.Any]], dict[str, int]]:
        """What serves, with the lane and the place in the pool's order; what does not, with the first reason; the reasons counted."""
        if self.pool is None or self.node_class is None:
            return [(offer, None, None) for offer in offers], [], {}
        pool = self.pool
        settings = Settings(price_ttl=max(Settings().price_ttl, self.task.params["cache_ttl"]))
        selection = select(offers, pool, self.node_class, CAPABILITIES, settings, now, self._blocks(now))
        served: list[Chosen] = []
        for place, offer in enumerate(selection.candidates, start=1):
            lane = lane_of(offer, pool, CAPABILITIES[offer.cloud])
            served.append((offer, lane.value if lane else None, place))
        by_key = {offer_key(offer): offer for offer in offers}
        rejected = [{**row(by_key[key], now, assumed=self.traffic), "reason": reason} for key, reason in selection.rejected.items()]
        rejected.sort(key=lambda one: (one["price_hour"] is None, float(one["price_hour"] or 0), one["cloud"], one["id"]))
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
    found = _MEMORY.fullmatch(str(text))
    if found is None:
        raise InvalidInput(f"{text!r} is no amount of memory.", remedy="Write GiB as a number, or 24GiB, or 24576MiB.")
    return gib(int(found[1])) if found[2] else int(found[1])


def _pool(wishes: Wishes, name: str) -> Pool:
    found = [pool for pool in wishes.pools if name in (pool.key, pool.name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(pool.key for pool in wishes.pools)) or "none"
    if found:
        raise InvalidInput(f"There are {len(found)} pools {name}.", remedy=f"Say which: {', '.join(pool.key for pool in found)}.")
    raise InvalidInput(f"There is no pool {name} among the documents.", remedy=f"Known pools: {known}.")


def _clouds(task: Task, kube: Kube | None, wishes: Wishes) -> list[str]:
    """The clouds of the pool's class, less those that nobody named or configured; by option fewer."""
    (node_class,) = wishes.classes.values()
    named = [one for one in node_class.clouds if one.enabled and one.cloud in ENTRIES]
    asked = {canonical_cloud(name) or name for name in task.params["clouds"]}
    if unknown := sorted(asked - {one.cloud for one in named}):
        raise InvalidInput(
            f"{node_class.name} does not rent from {', '.join(unknown)}.",
            remedy=f"Leave it out of {task.called('clouds')}, or add a provider.",
        )
    found = []
    for choice in named:
        if asked and choice.cloud not in asked:
            continue
        if kube is None:
            idle = choice.implicit and not ENTRIES[choice.cloud].is_configured(task)
        else:
            idle = unused(task, kube, choice.cloud, wishes)
        found += [] if idle else [choice.cloud]
    if not found:
        raise InvalidInput(f"{node_class.name}: no provider is named and no cloud is configured.", remedy="Give the key of one.")
    return found
