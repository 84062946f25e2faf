# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What volumes cost that an account keeps beside machines: by their size and their age, whether a machine mounts them or not."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from decimal import Decimal

HOURS_OF_MONTH = 730


@dataclasses.dataclass
class StorageBill:
    """The bill of one account. ``rates``: volume id → dollars a month and since when; ``settled``: dollars of what is over."""

    rates: dict[str, tuple[Decimal, datetime]] = dataclasses.field(default_factory=dict)
    settled: Decimal = Decimal(0)

    def charge(self, identity: str, month: Decimal, now: datetime) -> None:
        """From now on the volume costs so much a month."""
        self.drop(identity, now)
        self.rates[identity] = (month, now)

    def drop(self, identity: str, now: datetime) -> None:
        """The volume costs nothing from now on."""
        if identity in self.rates:
            self.settled += self._of(*self.rates.pop(identity), now)

    def cost(self, now: datetime) -> Decimal:
        """Dollars so far, of volumes that are gone, too."""
        return self.settled + sum((self._of(month, since, now) for month, since in self.rates.values()), Decimal(0))

    @property
    def month(self) -> Decimal:
        """Dollars a month of the volumes that exist."""
        return sum((month for month, _since in self.rates.values()), Decimal(0))

    @staticmethod
    def _of(month: Decimal, since: datetime, now: datetime) -> Decimal:
        return month / HOURS_OF_MONTH * Decimal((now - since).total_seconds()) / 3600
