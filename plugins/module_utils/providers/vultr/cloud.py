# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vultr cloud GPU machines, API v2 (https://api.vultr.com/v2).

What is peculiar: plans are fractions or whole GPUs, and only a list of ours tells (plans.py); stock is asked region by region; a machine says
neither its price nor its GPUs; a stopped machine is billed as if it ran; a machine cannot be deleted while its disk is written; whole
hours are billed; user data stays readable, so it is emptied; there is no image of Talos but a snapshot of one's own.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...core.http import Api, path_segment
from ...model import Capability, Charge, Extra, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ..base import EVERYTHING, CloudCheck, Entry, LaunchTurn, Wanted, Warn, once, readable, silent, text_option, wants_talos
from ..disk_images import ImageOrigin
from .api import Calls, is_absent
from .firewall import Firewall
from .images import VultrImages
from .launch import DEFAULT_OS, SETTINGS, USER_DATA_LIMIT, check_request, invalid, machine_body, outcome
from .plans import REGIONS, gpus_of, has_gpus, is_wanted, model_of, price_in, read_plan, refusal, to_offers
from .records import billed_since, hide_secrets, is_mark, tags_of, to_charge, to_instance

if t.TYPE_CHECKING:
    import httpx

URL = "https://api.vultr.com"
FACTS = Capability(
    cloud="vultr",
    lanes=(Lane.TALOS, Lane.KUBELET),
    stop=True,
    tags=True,
    stamped=True,
    created_time=True,
    tells_start=True,
    charges_lag=86400,  # unverified: how late the pending charges show the last hour
    user_data_limit=USER_DATA_LIMIT,
    user_data_stays=True,
    restamps=("name", "marks"),
    registration_timeout=1800,
    list_delay=60,
    billing_granularity=3600,
    states={
        "pending": StateFacts(InstanceState.PENDING, True),
        "installing": StateFacts(InstanceState.PENDING, True),
        "active/none": StateFacts(InstanceState.PENDING, True),
        "active/locked": StateFacts(InstanceState.PENDING, True),
        "active/installingbooting": StateFacts(InstanceState.PENDING, True),
        "active/isomounting": StateFacts(InstanceState.PENDING, True),
        "active": StateFacts(InstanceState.RUNNING, True),
        "resizing": StateFacts(InstanceState.PENDING, True),
        "stopped": StateFacts(InstanceState.STOPPED, True),  # billed as if it ran
        "suspended": StateFacts(InstanceState.FAILED, True),
        "failed": StateFacts(InstanceState.FAILED, True),
    },
    credential_env=("VULTR_API_KEY",),
    lane_reason="its machines boot stock systems or a snapshot of the account; its containers are no machines",
    login="root",
)
_CREATE_TIMEOUT = 120.0
_FRESH = timedelta(seconds=300)  # how long the list of plans is believed
_NEEDED = {"provisioning": "make machines", "firewall": "make a firewall group"}


class VultrCloud:
    """One account (API key). ``snapshot`` (an image of Talos) or ``policy`` (of images) opens lane talos; ``regions`` narrow what is offered;
    empty = all."""

    facts = FACTS

    def __init__(
        self,
        key: str,
        *,
        url: str = URL,
        snapshot: str = "",
        policy: str = "",
        regions: t.Collection[str] = (),
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        warn: Warn = silent,
    ) -> None:
        redact.register(key)
        self._clock, self._warn = clock or SystemClock(), once(warn)
        self._calls = Calls(key, url, transport, self._clock)
        self._api = self._calls.api
        self._turn = LaunchTurn(self._api)
        self._firewall = Firewall(self._calls)
        self._lanes = FACTS.lanes if snapshot or policy else (Lane.KUBELET,)
        self._regions = tuple(regions)
        self._guard = threading.Lock()
        self._plans: tuple[datetime, list[dict[str, t.Any]]] | None = None
        self._systems: dict[str, int] = {}

    def close(self) -> None:
        self._api.close()

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api

    def check(self) -> CloudCheck:
        account = self._account()
        rights = account.get("acls")
        lacking = [f"{name} (to {why})" for name, why in _NEEDED.items() if isinstance(rights, list) and name not in rights]
        warnings = tuple(f"vultr: the API key lacks the right {one}." for one in lacking)
        count = len(self.instances())
        return CloudCheck(f"vultr: the API key is accepted; the account has {count} instance{'' if count == 1 else 's'}.", warnings)

    def _account(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self._calls.get("/account", dict, "account"))

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        """Lists are answered without a key, too, but empty; so the account is read first. One call per region tells its stock."""
        if query.spot is True or (query.lanes and not set(query.lanes) & set(self._lanes)):
            return []
        self._account()
        plans = [plan for plan in self._read_plans() if has_gpus(plan) and is_wanted(model_of(plan), query)]
        whole = [plan for plan in plans if not refusal(plan)]
        self._tell_refused(plans, query)
        stock = self._stock() if whole else {}
        now = self._clock.now()
        return [
            offer
            for plan in whole
            for offer in to_offers(plan, [region for region, ids in stock.items() if plan["id"] in ids], self._lanes, now)
        ]

    def _tell_refused(self, plans: t.Sequence[dict[str, t.Any]], query: OfferQuery) -> None:
        """Why nothing is offered of a model that Vultr seems to sell."""
        if not query.models or any(not refusal(plan) for plan in plans):
            return
        for plan in plans:
            self._warn(f"vultr: {plan['id']} is not offered: it {refusal(plan)}.")

    def _read_plans(self) -> list[dict[str, t.Any]]:
        operation, now = "GET /plans", self._clock.now()
        with self._guard:
            if self._plans is None or now - self._plans[0] > _FRESH:
                entries = self._calls.pages("/plans", "plans", type="all")
                plans = readable("vultr", entries, lambda entry: read_plan(self._api, entry, operation), self._warn)
                self._plans = now, plans
            return self._plans[1]

    def _stock(self) -> dict[str, frozenset[str]]:
        """The plans that each region has now."""
        regions = self._regions
        if not regions:
            entries, operation = self._calls.pages("/regions", "regions"), "GET /regions"
            named = [self._api.expect(entry, dict, operation, "a region") for entry in entries]
            regions = tuple(self._api.expect(entry.get("id") or None, str, operation, "id of a region") for entry in named)
        return {region: self._available(region) for region in regions}

    def _available(self, region: str) -> frozenset[str]:
        path = f"/regions/{path_segment(region, 'region')}/availability"
        plans = self._calls.get(path, list, "available_plans")
        return frozenset(self._api.expect(plan, str, f"GET {path}", "a plan") for plan in plans)

    def instances(self) -> list[Instance]:
        """One that two pages show is one machine."""
        entries = self._calls.pages("/instances", "instances")
        found = [to_instance(self._api, entry, "GET /instances", FACTS, self._price_of) for entry in entries]
        return list({instance.id: instance for instance in found}.values())

    def instance(self, instance_id: str) -> Instance | None:
        entry = self._calls.find(self._path(instance_id), "instance")
        if entry is None:
            return None
        return to_instance(self._api, entry, "GET /instances/{id}", FACTS, self._price_of)

    def _price_of(self, plan_id: str, region: str) -> tuple[Decimal | None, str, int | None]:
        plan = next((one for one in self._read_plans() if one["id"] == plan_id), None)
        known = gpus_of(plan_id)
        model, count = (known.model, known.number) if known else (model_of(plan) if plan and has_gpus(plan) else "", None)
        return (None if plan is None else price_in(plan, region)), model, count

    def console(self, instance_id: str) -> str | None:
        return None

    def _path(self, instance_id: str) -> str:
        return f"/instances/{path_segment(instance_id, 'instance id')}"

    def charges(self, since: datetime, until: datetime) -> list[Charge]:
        """The pending charges of this month, and the items of the invoices of the months before."""
        pending = self._calls.get("/billing/pending-charges", list, "pending_charges")
        invoices = self._calls.pages("/billing/invoices", "billing_invoices")
        for identity in billed_since(self._api, invoices, since, until):
            pending = [*pending, *self._calls.pages(f"/billing/invoices/{identity}/items", "invoice_items")]
        return [to_charge(self._api, entry) for entry in pending]

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        bucket = self._turn.spend()
        check_request(request)
        sent = False
        with self._firewall_group(request) as group:
            try:
                body = machine_body(request, self._image_for(request), group)
                sent = True
                made = self._calls.made("/instances", body, "instance", pace=bucket, timeout=_CREATE_TIMEOUT)
                hide_secrets(made)
                return t.cast(str, self._api.expect(made.get("id") or None, str, "POST /instances", "id"))
            except errors.ApiError as error:
                raise outcome(error, request, sent=sent, in_stock=lambda: self._is_in_stock(request.offer)) from error

    @contextlib.contextmanager
    def _firewall_group(self, request: LaunchRequest) -> t.Iterator[str]:
        """A group that cannot be made refuses the launch: nothing was sent."""
        try:
            with self._firewall.group_for(request) as group:
                yield group
        except errors.ApiError as error:
            raise outcome(error, request, sent=False) from error

    def _image_for(self, request: LaunchRequest) -> dict[str, t.Any]:
        """A number that is not looked up by its name boots something else one day."""
        if wants_talos(request):
            return {"snapshot_id": request.settings["snapshotId"]}
        wanted = request.settings.get("os", DEFAULT_OS)
        with self._guard:
            if not self._systems:
                operation, expect = "GET /os", self._api.expect
                entries = [expect(entry, dict, operation, "a system") for entry in self._calls.pages("/os", "os")]
                self._systems = {str(entry.get("name")): expect(entry.get("id"), int, operation, "id") for entry in entries}
        if wanted not in self._systems:
            near = sorted(name for name in self._systems if name.split()[0] in ("Ubuntu", "Debian"))
            raise invalid(f"it has no operating system {wanted!r}", f"Set os to one of {', '.join(near)}.")
        return {"os_id": self._systems[wanted]}

    def _is_in_stock(self, offer: Offer) -> bool | None:
        """None when that cannot be read."""
        try:
            return offer.instance_type in self._available(offer.cloud_region)
        except errors.ApiError:
            return None

    def terminate(self, instance_id: str) -> None:
        """A machine whose disk is written is locked, and then it is asked again for some minutes."""
        self._calls.delete_machine(self._path(instance_id))

    def erase_user_data(self, instance_id: str) -> None:
        """Success also when the machine is gone."""
        try:
            self._calls.send("PATCH", self._path(instance_id), json={"user_data": ""}, idempotent=True)
        except errors.NotFound as error:
            if not is_absent(error):
                raise

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        """Tags are written as a whole, so they are read right before."""
        path = self._path(instance_id)
        tags = self._calls.get(path, dict, "instance").get("tags") or []
        kept = [tag for tag in self._api.expect(tags, list, "GET /instances/{id}", "tags") if not is_mark(tag)]
        self._calls.send("PATCH", path, json={"label": name, "tags": [*kept, *tags_of(marks)]}, idempotent=True)

    def extras(self) -> list[Extra]:
        return self._firewall.unused()

    def discard(self, extra: Extra) -> None:
        self._firewall.discard(extra)


def _connect(wanted: Wanted) -> VultrCloud:
    url = ENTRY.address(wanted.task, "vultr_api_url", URL)
    return VultrCloud(
        ENTRY.credential(wanted),
        url=url,
        snapshot=wanted.setting("snapshotId") or "",
        policy=wanted.setting("imagePolicy") or "",
        regions=wanted.setting("regions") or (),
        transport=wanted.task.transport(url),
        clock=wanted.task.clock,
        warn=wanted.task.warn,
    )


def _images(wanted: Wanted, origin: ImageOrigin) -> VultrImages:
    url, key = ENTRY.address(wanted.task, "vultr_api_url", URL), ENTRY.credential(wanted)
    redact.register(key)
    return VultrImages(Calls(key, url, wanted.task.transport(url), wanted.task.clock), origin.address_of)


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "vultr_api_url": text_option("VULTR_API_URL"),
        "vultr_api_key": text_option("VULTR_API_KEY", no_log=True),
    },
    key="vultr_api_key",
    aliases=("vultrcom",),
    settings=SETTINGS,
    regions=REGIONS,
    images=_images,
    image_setting="snapshotId",
)
