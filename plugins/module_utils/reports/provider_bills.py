# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What providers billed, beside what the report says (L-57): asked, as data, and for people."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ..core.errors import TgpError
from ..core.events import render
from ..model import Claim, Ledger, LedgerLine
from ..observe.context import Context
from ..planner.cost.bill import NOTHING
from ..planner.cost.cost import add_up, books
from ..planner.cost.provider_bills import BilledMachine, BillState, ProviderBill, compare, expected, window
from ..planner.cost.spend_report import Report
from ..providers.base import TellsCharges
from ..providers.query_all import each
from ..providers.registry import CAPABILITIES
from ..units.values import print_money
from .text import to_cent

_COLUMNS = {
    "cloud": "provider's bill",
    "machines": "machines",
    "ours": "ledger $",
    "theirs": "billed $",
    "difference": "difference $",
}
_MOST_NAMED = 5  # machines in a sentence
NO_BILL = "its API has no bill"


def ask(context: Context, claims: t.Sequence[Claim], lines: t.Sequence[LedgerLine], reported: Report) -> tuple[ProviderBill, ...]:
    """The bills of the providers for the machines of the report, whole machines also where it is about a part of their life. Providers are
    asked side by side; one that fails hides no other, and is a warning."""
    keys = {part.line.key for part in reported.parts}
    shown: dict[str, list[LedgerLine]] = {}
    for line in lines:
        if line.key in keys and _is_rented(line.cloud):
            shown.setdefault(line.cloud, []).append(line)
    known = {line.name for line in lines} | {claim.name for claim in claims}

    def bill(cloud: str) -> ProviderBill:
        mine = shown[cloud]
        capability, asked = CAPABILITIES.get(cloud), window(mine, context.clock.now())
        if capability is None or capability.charges_lag is None or asked is None:
            return _without_bill(cloud, mine, NO_BILL)
        client = t.cast(TellsCharges, context.clients.cloud(cloud))
        charges, now = client.charges(*asked), context.clock.now()
        living = {line.key: line for line in books(Ledger((), ()), claims, now, CAPABILITIES)}  # as of the answer
        return compare(cloud, [line if line.closed else living[line.key] for line in mine], charges, now, capability, known)

    bills = []
    for cloud, answer in each(sorted(shown), bill).items():
        if isinstance(answer, TgpError):
            context.task.warn(f"What {cloud} billed could not be read: {answer}")
            answer = _without_bill(cloud, shown[cloud], answer.message)
        bills.append(answer)
    for sentence in alarms(bills):
        context.task.warn(sentence)
    return tuple(bills)


def _is_rented(cloud: str) -> bool:
    return cloud not in CAPABILITIES or CAPABILITIES[cloud].rented


def _without_bill(cloud: str, lines: t.Sequence[LedgerLine], why: str) -> ProviderBill:
    return ProviderBill(cloud, False, tuple(BilledMachine(line, None, NOTHING, BillState.PENDING) for line in lines), why)


# ---- as data


def bills_data(bills: t.Sequence[ProviderBill]) -> dict[str, t.Any]:
    """JSON-safe; amounts are exact text. ``total``: what providers billed, and of machines of which they tell nothing (yet) what the ledger
    says; ``whole``: no machine is of the second kind. ``problems``: see ``alarms``."""
    machines = [machine for bill in bills for machine in bill.machines]
    return {
        "total": str(add_up(machine.line.cost if machine.charged is None else machine.charged for machine in machines)),
        "whole": all(machine.charged is not None and machine.state is not BillState.PENDING for machine in machines),
        "problems": alarms(bills),
        "clouds": [
            {
                "name": bill.cloud,
                "available": bill.available,
                "why": bill.problem,
                "machines": len(bill.machines),
                "charged_machines": sum(machine.charged is not None for machine in bill.machines),
                "ledger": str(bill.ours),
                "billed": str(bill.theirs),
                "difference": str(bill.difference),
                "traffic": str(bill.traffic),
                **{state.value: [_machine(one) for one in bill.of(state)] for state in (BillState.OUTSIDE, BillState.MISSING)},
                "pending": [one.line.name for one in bill.of(BillState.PENDING)],
                "unrecorded": [{"name": name, "billed": str(amount)} for name, amount in bill.strangers.items()],
            }
            for bill in bills
        ],
    }


def _machine(machine: BilledMachine) -> dict[str, t.Any]:
    line = machine.line
    least, most = expected(line)
    return {
        "name": line.name,
        "ids": list(line.ids),
        "billed": None if machine.charged is None else str(machine.charged),
        "ledger": str(line.cost),
        "least": str(least),
        "most": str(most),
    }


# ---- for people


def bills_lines(bills: t.Sequence[ProviderBill]) -> list[str]:
    """A table of the providers, and a sentence for each that tells nothing or not all yet. Empty without rented machines."""
    rows = [
        {
            "cloud": bill.cloud,
            "machines": len(bill.machines),
            "ours": print_money(bill.ours),
            "theirs": print_money(bill.theirs) if bill.available else "not available",
            "difference": f"{to_cent(bill.difference):+}" if bill.available else "",
        }
        for bill in bills
    ]
    drawn = render(rows, _COLUMNS, right=("machines", "ours", "theirs", "difference"))
    return [*drawn, *(f"  {text}" for bill in bills for text in sentences(bill))]


def sentences(bill: ProviderBill) -> list[str]:
    """What of a provider's bill is not known, and what it bills beside."""
    if not bill.available:
        return [f"{bill.cloud}: {bill.problem}; the sums above are the ledger's"]
    found = []
    if pending := bill.of(BillState.PENDING):
        number = len(pending)
        found.append(
            f"{bill.cloud}: the bill of {number} machine{'s' * (number != 1)} is not complete yet ({_names(one.line.name for one in pending)})"
        )
    if bill.traffic:
        found.append(f"{bill.cloud} billed ${print_money(bill.traffic)} for traffic beside these sums")
    return found


def alarms(bills: t.Iterable[ProviderBill]) -> list[str]:
    """What you have to look at, each with what it means and what to do."""
    found = []
    for bill in bills:
        for one in bill.of(BillState.OUTSIDE):
            billed, ledger, least, most = (
                print_money(Decimal(_machine(one)[word])) for word in ("billed", "ledger", "least", "most")
            )
            found.append(
                f"{bill.cloud} billed ${billed} for {one.line.name} ({', '.join(one.line.ids)}); the ledger says ${ledger} and expects "
                f"${least} to ${most}. Its price changed, it existed longer or shorter than was recorded, or it was adopted while it ran. "
                "Compare its times with the provider's console."
            )
        if missing := bill.of(BillState.MISSING):
            found.append(
                f"{bill.cloud} shows no charge for {_names(one.line.name for one in missing)}, and the ledger says "
                f"${print_money(add_up(one.line.cost for one in missing))}: they were billed to another account, or not at all."
            )
        for name, amount in bill.strangers.items():
            found.append(
                f"{bill.cloud} billed ${print_money(amount)} for {name}, which has a name of this cluster and is in no line of the ledger. "
                "Give the archive if its line was archived; else run orphans.yml, and look for it in the provider's console."
            )
    return found


def _names(names: t.Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return f"{', '.join(listed[:_MOST_NAMED])}{more}"
