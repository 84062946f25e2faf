# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the clouds offer, and the hand that changes prices and stock while the world lives."""

from __future__ import annotations

import typing as t
from decimal import Decimal, InvalidOperation

from .world import Offer, World

_PLACE = ("cloud", "type", "region")


class MarketError(Exception):
    """A change that cannot be made; ``status`` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def offers(world: World) -> list[dict[str, t.Any]]:
    """All offers of the rented clouds as JSON data."""
    with world.lock:
        return [_picture(offer) for offer in world.offers]


def set_price(world: World, wanted: t.Any) -> list[dict[str, t.Any]]:
    """``{"cloud", "type", "region", "price"}``: what new machines are shown and billed. Machines that exist keep their price."""
    found = _find(world, wanted, "price")
    try:
        price = Decimal(str(wanted["price"]))
    except InvalidOperation:
        price = Decimal(-1)
    if isinstance(wanted["price"], bool) or price.is_nan() or not 0 <= price <= 1_000_000:
        raise MarketError(400, f"{wanted['price']!r} is no price")
    if any(offer.cloud == "lambda" for offer in found) and price * 100 != int(price * 100):
        raise MarketError(400, "Lambda's prices are whole cents")
    with world.lock:
        for machine in world.machines.values():  # also those that have ended: their bill is written
            if machine.agreed is None and any(machine.offer is offer for offer in found):
                machine.agreed = machine.offer.price_hour
        for offer in found:
            offer.price_hour = price
            if "shown_price" in offer.details:
                offer.details["shown_price"] = price
        return [_picture(offer) for offer in found]


def set_stock(world: World, wanted: t.Any) -> list[dict[str, t.Any]]:
    """``{"cloud", "type", "region", "stock"}``: how many can still be had."""
    found = _find(world, wanted, "stock")
    stock = wanted["stock"]
    if isinstance(stock, bool) or not isinstance(stock, int) or stock < 0:
        raise MarketError(400, f"stock {stock!r} should be a whole number of zero or more")
    with world.lock:
        for offer in found:
            offer.stock = stock
        return [_picture(offer) for offer in found]


def _find(world: World, wanted: t.Any, what: str) -> list[Offer]:
    """The offers that are meant: all of the cloud that fit what is said of type and region."""
    if not isinstance(wanted, dict) or "cloud" not in wanted or what not in wanted or set(wanted) - {*_PLACE, what}:
        raise MarketError(400, f'send {{"cloud": ..., "type": ..., "region": ..., "{what}": ...}}; type and region may be left out')
    with world.lock:
        found = [
            offer for offer in world.offers if all(wanted.get(key, getattr(offer, key)) == getattr(offer, key) for key in _PLACE)
        ]
    if not found:
        words = " ".join(str(wanted[key]) for key in _PLACE if key in wanted)
        raise MarketError(404, f"nobody offers {words}; GET /offers shows what there is")
    return found


def _picture(offer: Offer) -> dict[str, t.Any]:
    return {
        "cloud": offer.cloud,
        "type": offer.type,
        "region": offer.region,
        "gpus": offer.gpu_count,
        "model": offer.model,
        "memory_gib": offer.memory_mib / 1024,
        "price_hour": str(offer.price_hour),
        "shown_price": str(offer.details.get("shown_price", offer.price_hour)),
        "stock": offer.stock,
    }
