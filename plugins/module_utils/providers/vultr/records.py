# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vultr's machines and firewall groups read into our records."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime
from decimal import Decimal, InvalidOperation

from ...core import redact
from ...core.clock import from_text
from ...core.http import Api
from ...model import Capability, Charge, Instance

GROUP = "firewall group"
_ROUNDED = Decimal("0.005")  # unverified: to how many digits a charge is rounded
CUSTOM = 159  # the os_id of a machine that boots an image of one's own
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TAG = re.compile(r"tgp:([a-z0-9-]+)=(.*)")
_GROUP = re.compile(r"tgp-[0-9a-f]{8}-firewall-group")
_PROBLEMS = {
    "suspended": "Vultr has suspended it; see the account's console. It is billed on",
    "failed": "Vultr calls it failed",
    "stopped": "it is switched off, and billed as if it ran",
}


def state_word(entry: t.Mapping[str, t.Any]) -> str:
    """Vultr says a state in three fields; this is the word of FACTS.states for them. A machine with an image of its own may be shown as
    locked for ever, so for it ``active`` is enough."""
    status, power, server = (str(entry.get(key) or "") for key in ("status", "power_status", "server_status"))
    if status != "active":
        return status
    if power == "stopped":
        return "stopped"
    if server == "ok" or entry.get("snapshot_id") or entry.get("os_id") == CUSTOM:
        return "active"
    return f"active/{server or 'none'}"


def to_instance(
    api: Api,
    entry: t.Any,
    operation: str,
    facts: Capability,
    price_of: t.Callable[[str, str], tuple[Decimal | None, str, int | None]],
) -> Instance:
    """One machine as it says itself. ``id`` and ``status`` must be there. ``price_of``: price, model and number of GPUs of a plan in a
    region, which no machine says itself."""
    api.expect(entry, dict, operation, "an instance")
    hide_secrets(entry)
    identity = api.expect(entry.get("id") or None, str, operation, "id of an instance")
    api.expect(entry.get("status") or None, str, operation, f"status of {identity}")
    word, plan, region = state_word(entry), str(entry.get("plan") or ""), str(entry.get("region") or "")
    price, model, count = price_of(plan, region)
    return Instance(
        cloud="vultr",
        id=identity,
        name=str(entry.get("label") or ""),
        state=facts.read_state(word),
        raw_state=word,
        created=moment(entry.get("date_created")),
        price_hour=price,
        ip=_address(entry.get("main_ip")),
        private_ip=_address(entry.get("internal_ip")),
        region=region,
        instance_type=plan,
        model=model,
        gpu_count=count,
        spot=False,
        marks=_marks(entry.get("tags")),
        problem=_PROBLEMS.get(word, ""),
    )


def hide_secrets(entry: t.Mapping[str, t.Any]) -> None:
    """The root password and the address of the console, with its token, are shown in no output."""
    redact.register(*(str(entry[key]) for key in ("default_password", "kvm") if isinstance(entry.get(key), str) and entry[key]))


def tags_of(marks: t.Mapping[str, str]) -> list[str]:
    """Marks as tags ``tgp:<word>=<value>``."""
    return [f"tgp:{re.sub(r'[^a-z0-9-]', '-', key.lower())}={value}" for key, value in sorted(marks.items())]


def is_mark(tag: t.Any) -> bool:
    """Whether a tag is one of ours."""
    return isinstance(tag, str) and _TAG.fullmatch(tag) is not None


def _marks(tags: t.Any) -> dict[str, str]:
    """Tags of other forms are no marks of ours."""
    found = [_TAG.fullmatch(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return {match[1]: match[2] for match in found if match}


def group_name(cluster: str) -> str:
    """What the firewall group of a cluster is called: the form of a machine's name, so that it is known as the cluster's."""
    return f"tgp-{cluster}-firewall-group"


def is_group(description: str) -> bool:
    return _GROUP.fullmatch(description) is not None


def moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _address(value: t.Any) -> str:
    """Before it has one it says 0.0.0.0."""
    return value if isinstance(value, str) and value != "0.0.0.0" else ""


def billed_since(api: Api, invoices: t.Iterable[t.Any], since: datetime, until: datetime) -> list[int]:
    """Ids of the invoices that may hold what was used in this time. An invoice is written after the month that it is about."""
    found = []
    for invoice in invoices:
        operation = "GET /billing/invoices"
        written = api.expect(api.expect(invoice, dict, operation, "an invoice").get("date"), str, operation, "date of an invoice")
        try:
            inside = since <= from_text(written) <= until
        except ValueError as error:
            raise api.bad_shape(operation, "the date of an invoice is not a time") from error
        if inside:
            found.append(api.expect(invoice.get("id"), int, operation, "id of an invoice"))
    return found


def to_charge(api: Api, entry: t.Any) -> Charge:
    """An entry of the bill. It names no id; its description holds the machine's label, somewhere."""
    operation = "GET /billing/pending-charges"
    text = api.expect(api.expect(entry, dict, operation, "a charge").get("description"), str, operation, "description of a charge")
    total = entry.get("total")
    try:
        amount = Decimal(str(total))
    except InvalidOperation as error:
        raise api.bad_shape(operation, "the total of a charge is not a number") from error
    if isinstance(total, bool) or not amount.is_finite():
        raise api.bad_shape(operation, "the total of a charge is not a number")
    return Charge("", frozenset(_WORD.findall(text)), amount, rounding=_ROUNDED)
