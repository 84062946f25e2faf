# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A smaller or cheaper machine instead of one that is used too little (L-5, ``replaceCheaperPercent``)."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ...model import Claim, Offer, Pod, Pool
from ...units.money import print_money
from ..offers.ranking import select
from ..plan_builder import Draft
from ..scheduling.binpacking import fit
from ..scheduling.capacity import of_offer
from . import expiration

LEAST_LIFE = 3600  # seconds a machine must still have before it: who goes within the hour is not worth a move


def saves(old: Decimal, new: Decimal, share: Decimal) -> bool:
    """Whether ``new`` is cheaper than ``old`` by at least the share (of the old price)."""
    return new < old and old - new >= share * old


def instead(draft: Draft, pool: Pool, claim: Claim, moving: t.Sequence[Pod]) -> Offer | None:
    """The cheapest offer that takes all the pods, is cheaper by the pool's share, and is no less firm; None without any."""
    node_class, situation = draft.situation.node_class(claim), draft.situation
    due = expiration.due(claim, pool)
    if pool.replace_cheaper <= 0 or node_class is None or (due is not None and (due - draft.now).total_seconds() < LEAST_LIFE):
        return None
    known = [offer for cloud in sorted(situation.seen.clouds) for offer in situation.offers(cloud) or ()]
    chosen = select(known, pool, node_class, situation.capabilities, situation.settings, draft.now, situation.seen.blocks)
    for offer in sorted(chosen.candidates, key=lambda one: (one.price_hour or Decimal(0), one.cloud, one.id)):
        if offer.price_hour is None or not saves(claim.price, offer.price_hour, pool.replace_cheaper):
            continue
        if not situation.rented(offer.cloud) or (offer.spot and not claim.offer.spot):
            continue
        if not fit(moving, [of_offer(offer, pool, node_class, situation.seen.cluster_id, True, situation.settings)]).left:
            return offer
    return None


def told(claim: Claim, offer: Offer) -> str:
    """The replacement in words."""
    price = print_money(offer.price_hour or Decimal(0))
    return f"{offer.cloud} {offer.instance_type} for ${price}/h would do instead of ${print_money(claim.price)}/h"
