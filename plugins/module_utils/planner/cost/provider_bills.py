# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What providers say that they billed, beside what the ledger says (L-57): machine by machine, each within the bounds of its line (L-16)."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from ...model import Capability, Charge, LedgerLine
from ...model.names import PATTERN
from .bill import NOTHING
from .cost import add_up

CLOCKS: t.Final = 60  # seconds by which the clocks of a provider and of ours may differ while a machine lives


class BillState(enum.Enum):
    """What the provider's bill of a machine says of its line."""

    AGREES = "agrees"
    OUTSIDE = "outside"
    PENDING = "pending"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True, slots=True)
class BilledMachine:
    """A machine and what its provider billed for it without traffic, in dollars: None = its API shows no charge of it."""

    line: LedgerLine
    charged: Decimal | None
    traffic: Decimal
    state: BillState


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderBill:
    """The machines of one cloud. ``available`` False: its API has no bill, or it could not be read; ``problem`` says why. ``strangers``:
    charges for machines with names of this cluster that are in no line, by name: dollars."""

    cloud: str
    available: bool
    machines: tuple[BilledMachine, ...]
    problem: str = ""
    strangers: t.Mapping[str, Decimal] = dataclasses.field(default_factory=dict)

    @property
    def ours(self) -> Decimal:
        """What the ledger says of the machines."""
        return add_up(machine.line.cost for machine in self.machines)

    @property
    def theirs(self) -> Decimal:
        """What was billed for the machines that are charged so far."""
        return add_up(machine.charged for machine in self.machines if machine.charged is not None)

    @property
    def difference(self) -> Decimal:
        """Theirs less ours, of the machines that are charged."""
        return add_up(machine.charged - machine.line.cost for machine in self.machines if machine.charged is not None)

    @property
    def traffic(self) -> Decimal:
        return add_up(machine.traffic for machine in self.machines)

    def of(self, state: BillState) -> tuple[BilledMachine, ...]:
        return tuple(machine for machine in self.machines if machine.state is state)


def window(lines: t.Iterable[LedgerLine], now: datetime) -> tuple[datetime, datetime] | None:
    """The time for which a provider is asked: from the day (UTC) on which the first of the machines was rented until now. None without any."""
    starts = [line.start.astimezone(timezone.utc) for line in lines if line.start is not None]
    return (min(starts).replace(hour=0, minute=0, second=0, microsecond=0), now) if starts else None


def compare(
    cloud: str,
    lines: t.Sequence[LedgerLine],
    charges: t.Sequence[Charge],
    now: datetime,
    capability: Capability,
    known: t.Container[str] = (),
) -> ProviderBill:
    """The bill of one cloud. ``lines``: its machines in the report; ``known``: names of all machines of the ledger and of all claims, of
    any time. A machine is found by its ids, and by its name where the provider names no id."""
    by_id: dict[str, list[Charge]] = {}
    by_word: dict[str, list[Charge]] = {}
    for charge in charges:
        if charge.instance_id:
            by_id.setdefault(charge.instance_id, []).append(charge)
            continue
        for word in charge.words:
            by_word.setdefault(word, []).append(charge)
    lag = timedelta(seconds=capability.charges_lag or 0)
    machines = []
    for line in lines:
        found = [charge for identity in line.ids for charge in by_id.get(identity, ())] + by_word.get(line.name, [])
        machines.append(_judged(line, found, now, lag))
    return ProviderBill(cloud, True, tuple(machines), strangers=_strangers(lines, charges, known))


def expected(line: LedgerLine) -> tuple[Decimal, Decimal]:
    """The least and the most dollars of its bill; what is booked, where a line of an older version has no bounds."""
    return (
        line.cost if line.cost_least is None else line.cost_least,
        line.cost if line.cost_most is None else line.cost_most,
    )


def _judged(line: LedgerLine, charges: t.Sequence[Charge], now: datetime, lag: timedelta) -> BilledMachine:
    """AGREES within the bounds of the line; PENDING while more may come; else OUTSIDE, and MISSING without a charge."""
    whole = line.closed and now - line.end >= lag
    least, most = expected(line)
    if not charges:
        state = BillState.AGREES if whole and not least else BillState.MISSING if whole else BillState.PENDING
        return BilledMachine(line, NOTHING if whole and not least else None, NOTHING, state)
    charged, slack = add_up(charge.amount for charge in charges), add_up(charge.rounding for charge in charges)
    most += slack + (NOTHING if line.closed else line.price_hour * CLOCKS / 3600)
    if charged > most or (whole and charged < least - slack):
        state = BillState.OUTSIDE
    else:
        state = BillState.AGREES if charged >= least - slack else BillState.PENDING
    return BilledMachine(line, charged, add_up(charge.traffic for charge in charges), state)


def _strangers(lines: t.Sequence[LedgerLine], charges: t.Iterable[Charge], known: t.Container[str]) -> dict[str, Decimal]:
    """Charges for machines with names of this cluster that are in no line and no claim."""
    clusters = {match["cluster"] for line in lines if (match := PATTERN.fullmatch(line.name))}
    ids = {identity for line in lines for identity in line.ids}
    found: dict[str, list[Decimal]] = {}
    for charge in charges:
        for word in charge.words:
            match = PATTERN.fullmatch(word)
            if match and match["cluster"] in clusters and word not in known and charge.instance_id not in ids:
                found.setdefault(word, []).append(charge.amount)
    return {name: add_up(amounts) for name, amounts in sorted(found.items())}
