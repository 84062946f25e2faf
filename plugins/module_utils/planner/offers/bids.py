# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to bid where spot is an auction (L-13): a margin above the lowest bid that would win, and never more than may be paid."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from ...model import Offer


def bid(min_bid: Decimal, margin: Decimal, cap: Decimal | None = None) -> Decimal:
    """Dollars per hour to offer for the machine without its disk. ``cap``: the most that may be paid for it, None = no bound; below
    ``min_bid`` it leaves no bid that could win, and ``min_bid`` is returned for the caller's own check."""
    wanted = min_bid * (1 + margin)
    return wanted if cap is None else max(min(wanted, cap), min_bid)


def priced(offer: Offer, margin: Decimal, max_hourly_price: Decimal | None) -> Offer:
    """An auction's offer at the price of our bid, disk included; every other offer as it is. When even the lowest bid is above the
    limit, the price is that of the lowest bid, so that the offer leaves for its price."""
    if not offer.spot or offer.min_bid is None:
        return offer
    disk = offer.storage_price_hour
    cap = None if max_hourly_price is None else max_hourly_price - disk
    return dataclasses.replace(offer, price_hour=bid(offer.min_bid, margin, cap) + disk)
