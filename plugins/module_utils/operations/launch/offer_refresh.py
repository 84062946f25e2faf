# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices that are too old to rent by are read again, once per cloud and step (L-13)."""

from __future__ import annotations

from datetime import datetime

from ...core.errors import TgpError
from ...model import NodeClass, Offer, Pool
from ...observe.context import Context
from ...planner.offers import bids, disks
from ...planner.offers.query import query_of
from ...planner.offers.ranking import offer_key


class Prices:
    """What can be rented by in one step. An offer that is only queued for its cloud's pacing may be older than ``oldest`` by then: the
    price paid is looked at after the launch."""

    def __init__(self, context: Context, oldest: datetime) -> None:
        self._context = context
        self._oldest = oldest

    def fresh(self, offer: Offer, pool: Pool | None, node_class: NodeClass) -> Offer | None:
        """The offer, or what it is now, at our bid where it is an auction's; None when it is gone, sold out, or cannot be read."""
        if offer.seen is None or offer.seen >= self._oldest:
            return offer
        found = self._listed(offer.cloud).get(offer_key(offer))
        if found is None or found.available == 0:
            return None
        choice = next((one for one in node_class.clouds if one.cloud == offer.cloud), None)
        limit = pool.max_hourly_price if pool else None
        found = disks.cut(found, disks.wanted_gib(node_class))
        now = found if choice is None else bids.priced(found, choice.bid_margin, limit)
        return None if now.price_hour is None or (limit is not None and now.price_hour > limit) else now

    def _listed(self, cloud: str) -> dict[str, Offer]:
        return self._context.once(("offers again", cloud), lambda: self._read(cloud))

    def _read(self, cloud: str) -> dict[str, Offer]:
        try:
            offers = self._context.cloud(cloud).offers(query_of(self._context.wishes, cloud))
        except TgpError as error:
            self._context.warn(f"The offers of {cloud} are too old to rent by and could not be read again: {error}")
            return {}
        return {offer_key(one): one for one in offers}
