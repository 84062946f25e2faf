# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How large a disk a machine is rented with. A cloud is asked once for all pools, with the largest disk that one of them wants; the others
shall not pay for it."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from ...model import NodeClass, Offer, OfferQuery

_GIB, _GB = 2**30, 10**9
_EXACT = Decimal("0.000001")


def wanted_gib(node_class: NodeClass) -> int:
    """The disk that machines of the class get: what it asks for, and no less than system, driver and a few container images need."""
    return max(node_class.min_disk_gib or 0, OfferQuery().disk_gib)


def gigabytes(gib: int) -> int:
    """The least whole number of GB, as some clouds sell disks, that hold ``gib``."""
    return -(-gib * _GIB // _GB)


def gibibytes(gb: int) -> int:
    """The whole GiB that a disk of ``gb`` GB holds."""
    return gb * _GB // _GIB


def cut(offer: Offer, gib: int) -> Offer:
    """The offer with a disk of ``gib``, where its own is larger and is sold by the GB; every other as it is. Where prices are estimates,
    disks are sold in steps."""
    larger = offer.disk_gib is not None and offer.disk_gib > gib
    if not larger or not offer.storage_price_hour or offer.price_hour is None or offer.price_estimated:
        return offer
    disk = (offer.storage_price_hour * gigabytes(gib) / gigabytes(offer.disk_gib or 1)).quantize(_EXACT)
    price = offer.price_hour - offer.storage_price_hour + disk
    return dataclasses.replace(offer, disk_gib=gib, storage_price_hour=disk, price_hour=price)
