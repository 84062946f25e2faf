# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Vultr account holds besides machines, how fast it may be called, and what a scenario can choose of the service's behaviour."""

from __future__ import annotations

import base64
import dataclasses
import re
import threading
import typing as t
import uuid
from datetime import datetime, timezone

from .lambda_account import Rate
from .world import Machine, World

ACLS = ("subscriptions", "subscriptions_view", "provisioning", "billing", "support", "abuse", "dns", "upgrade", "firewall")
_IMAGE = re.compile(r"https?://[^/]+/image/(?P<schematic>[0-9a-f]{64})/(?P<version>v[0-9][0-9A-Za-z.-]*)/vultr-amd64\.raw")


class Refused(Exception):
    """An error answer of the API: a status and a free text, no code."""

    def __init__(self, status: int, error: str, headers: t.Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.status, self.headers = status, dict(headers or {})
        self.body = {"error": error, "status": status}


@dataclasses.dataclass
class Group:
    """A firewall group. Without rules it lets nothing in."""

    id: str
    description: str
    created: datetime
    rules: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Snapshot:
    """An image of one's own, fetched from ``url`` once. One that cannot be fetched vanishes at ``ready``."""

    id: str
    description: str
    url: str
    ready: float
    created: datetime
    fails: bool = False

    @property
    def schematic(self) -> str:
        """The Image Factory's id of a Talos image, empty for any other."""
        found = _IMAGE.fullmatch(self.url)
        return found["schematic"] if found else ""


@dataclasses.dataclass
class Account:
    """``quota`` = machines that may exist at a time. ``in_credit`` False: the spending limit is reached. ``active`` False: the key may do
    nothing. ``list_after``: seconds until a new machine is listed. ``lying_stock``: plans that are sold out are still called available.
    ``locked_share``: for which share of its boot a machine cannot be deleted. ``import_seconds``: until a snapshot is complete.
    ``failing_imports``: so many snapshots vanish, since their image could not be fetched. ``stuck_imports``: snapshots stay pending.
    ``snapshot_quota`` = snapshots that may exist at a time.
    ``page_size``: the largest page, whatever is asked for."""

    quota: int = 1000
    in_credit: bool = True
    active: bool = True
    list_after: float = 0.0
    lying_stock: bool = False
    locked_share: float = 0.35
    import_seconds: float = 300.0
    failing_imports: int = 0
    stuck_imports: bool = False
    snapshot_quota: int = 100
    page_size: int = 500
    groups: dict[str, Group] = dataclasses.field(default_factory=dict)
    snapshots: dict[str, Snapshot] = dataclasses.field(default_factory=dict)
    addresses: int = 0
    rate: Rate = dataclasses.field(default_factory=lambda: Rate(1 / 30))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    SWITCHES: t.ClassVar[dict[str, t.Any]] = {
        "quota": 1,
        "in_credit": True,
        "active": True,
        "list_after": 0.0,
        "lying_stock": False,
        "locked_share": 0.0,
        "import_seconds": 0.0,
        "failing_imports": 1,
        "stuck_imports": True,
        "snapshot_quota": 1,
        "page_size": 1,
    }
    """Names of what a scenario can choose, with values that show their types."""

    def turn(self, chosen: t.Mapping[str, t.Any]) -> None:
        """Set some of them; the values have the right types. ValueError names what cannot be."""
        if chosen.get("page_size") == 0:
            raise ValueError("page_size: should be above zero")
        if chosen.get("locked_share", 0) > 1:
            raise ValueError("locked_share: should be at most one")
        for name, value in chosen.items():
            setattr(self, name, value)

    @classmethod
    def of(cls, world: World) -> Account:
        """The account of this world, made when first asked for."""
        with world.lock:
            account = world.__dict__.get("vultr_account")
            if account is None:
                account = world.__dict__["vultr_account"] = cls()
            return t.cast(Account, account)

    def next_addresses(self) -> tuple[str, str]:
        """A public and a private address. The caller holds the world's lock."""
        self.addresses += 1
        high, low = divmod(self.addresses, 250)
        return f"198.19.{high}.{low + 1}", f"10.20.{high}.{low + 1}"

    def check_pace(self, world: World) -> None:
        if not world.rate_limits:
            return
        with self.lock:
            admitted = self.rate.admit(world.clock.seconds(), world.clock.speed)
        if not admitted:
            raise Refused(429, "Rate limit exceeded.", {"Retry-After": "1"})

    def snapshot_state(self, found: Snapshot, now: float) -> str:
        """pending, complete, or empty when it could not be fetched: then its record is gone."""
        if now < found.ready:
            return "pending"
        return (
            "complete" if not found.fails and found.url.partition("?")[0].endswith(".raw") and ".invalid/" not in found.url else ""
        )


def new_id(world: World) -> str:
    return str(uuid.UUID(int=world.random.getrandbits(128), version=4))


def machines(world: World) -> list[Machine]:
    """Machines that exist for the API."""
    return [one for one in world.machines.values() if one.cloud == "vultr" and one.destroyed is None]


def moment(when: datetime) -> str:
    """ISO 8601 with an offset, as Vultr writes it."""
    return when.astimezone(timezone.utc).replace(microsecond=0).isoformat()


def page(account: Account, root: str, entries: t.Sequence[t.Any], query: t.Mapping[str, str]) -> dict[str, t.Any]:
    """One page. The cursor is no number and no address: base64, with the signs that have to be quoted in a query."""
    size = int(query["per_page"]) if query.get("per_page", "").isdecimal() else 100
    if size > 500 or size < 1:
        raise Refused(400, "Invalid per_page.")
    size = min(size, account.page_size)
    start = _place(query.get("cursor", ""))
    shown = entries[start : start + size]
    more = start + size < len(entries)
    links = {"next": _cursor(start + size) if more else "", "prev": _cursor(max(0, start - size)) if start else ""}
    return {root: list(shown), "meta": {"total": len(entries), "links": links}}


def _cursor(place: int) -> str:
    return base64.b64encode(f"next>>?{place}".encode()).decode() + "+/="


def _place(cursor: str) -> int:
    if not cursor:
        return 0
    try:
        text = base64.b64decode(cursor.removesuffix("+/="), validate=True).decode()
        return int(text.removeprefix("next>>?"))
    except ValueError:
        raise Refused(400, "Invalid cursor.") from None
