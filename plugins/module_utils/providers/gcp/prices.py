# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Google's machines cost, since its Compute API has no prices. A table of list prices with its date, none of
which was compared with a bill.

It holds for the regions of :data:`REGIONS`. Elsewhere, and for machine types that are not listed, the class says what they cost.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import date
from decimal import Decimal

from ...model.defaults import TABLE_STALE_AFTER

AS_OF = date(2026, 11, 1)
REGIONS = ("us-central1", "us-east1", "us-west1")  # they have the same prices
ON_DEMAND: t.Mapping[str, Decimal] = {
    name: Decimal(dollars)
    for name, dollars in {
        "g2-standard-4": "0.7068",
        "g2-standard-8": "0.8536",
        "g2-standard-12": "1.0004",
        "g2-standard-16": "1.1472",
        "g2-standard-24": "2.0007",
        "g2-standard-32": "1.7343",
        "g2-standard-48": "4.0014",
        "g2-standard-96": "8.0028",
        "a2-highgpu-1g": "3.6739",
        "a2-highgpu-2g": "7.3477",
        "a2-highgpu-4g": "14.6955",
        "a2-highgpu-8g": "29.3910",
        "a2-megagpu-16g": "55.7395",
        "a2-ultragpu-1g": "5.0688",
        "a2-ultragpu-2g": "10.1376",
        "a2-ultragpu-4g": "20.2752",
        "a2-ultragpu-8g": "40.5504",
        "a3-highgpu-8g": "88.4902",
        "a3-ultragpu-8g": "84.8069",
        "n1-standard-4+nvidia-tesla-t4": "0.5400",
        "n1-standard-8+nvidia-tesla-p100": "1.8400",
        "n1-standard-8+nvidia-tesla-v100": "2.8600",
    }.items()
}
SPOT_SHARE = Decimal("0.4")  # of the price on demand: the least discount that Google announces is 60 %
_DISK_GIB_MONTH, _HOURS = Decimal("0.1"), 730  # pd-balanced and hyperdisk-balanced


def age_warning(today: date) -> str:
    """A sentence once the table is old; empty before."""
    days = (today - AS_OF).days
    if days <= TABLE_STALE_AFTER.days:
        return ""
    return (
        f"gcp: the table of list prices is of {AS_OF}, {days} days ago: Google may have changed them. Upgrade the collection, or give the "
        "prices of your machine types in the class (settings prices and spotPrices)."
    )


def disk_hour(gib: int) -> Decimal:
    """Dollars per hour of a disk."""
    return (_DISK_GIB_MONTH / _HOURS * gib).quantize(Decimal("0.000001"))


@dataclasses.dataclass(frozen=True)
class PriceTable:
    """The table, and what the class says instead: dollars per hour of a machine type without its disk, the same in all regions."""

    on_demand: t.Mapping[str, Decimal] = dataclasses.field(default_factory=dict)
    spot: t.Mapping[str, Decimal] = dataclasses.field(default_factory=dict)

    def machine_hour(self, instance_type: str, region: str, *, spot: bool) -> Decimal | None:
        """None where neither says one."""
        own = (self.spot if spot else self.on_demand).get(instance_type)
        listed = self.on_demand.get(instance_type) or (ON_DEMAND.get(instance_type) if region in REGIONS else None)
        if own is not None or listed is None:
            return own
        return listed * SPOT_SHARE if spot else listed

    def price_hour(self, instance_type: str, region: str, disk_gib: int, *, spot: bool) -> Decimal | None:
        """The same with a disk."""
        machine = self.machine_hour(instance_type, region, spot=spot)
        return None if machine is None else machine + disk_hour(disk_gib)
