# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai, a marketplace of other people's machines (https://docs.vast.ai; list of instances on API v1, everything else on v0).

What is peculiar: a failure may come as 200; a bad key may come as 404; a bid that is too low fails and leaves a machine behind whose
disk is billed; a stopped machine is billed; only offers with KVM can become nodes, all others are unprivileged containers.
"""

from __future__ import annotations

import json
import re
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlsplit

from ...core import errors, redact
from ...core.clock import Clock, SystemClock, now_of
from ...core.errors import Forbidden
from ...core.http import Api
from ...core.rate_limit import RetryPolicy
from ...model import Capability, Carrier, Charge, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ...units.values import print_money
from ..base import (
    EVERYTHING,
    Cloud,
    CloudCheck,
    Entry,
    LaunchTurn,
    NothingBeside,
    Wanted,
    Warn,
    check_settings,
    once,
    readable,
    silent,
    text_option,
    walk,
)
from .api import GONE, VastApi
from .choice import NODE_QUALITY
from .launch import VM_IMAGE, body_of, outcome, refused
from .records import BID, decimal, to_charge, to_instance, to_offer
from .regions import PLACES
from .search import PATH, Filters, Pages, SearchScope, filters, fits

if t.TYPE_CHECKING:
    import httpx
if t.TYPE_CHECKING:
    import httpx


URL = "https://console.vast.ai"
FACTS = Capability(
    cloud="vast",
    lanes=(Lane.KUBELET, Lane.SERVICE),  # an offer without KVM serves containers only
    spot=True,
    stop=True,
    off_costs_less=True,
    tags=True,
    stamped=True,
    created_time=True,
    tells_start=True,
    charges_lag=86400,  # unverified: how late the row of a day is complete
    carrier=Carrier.ENVIRONMENT,
    user_data_limit=32_000,
    registration_timeout=1200,
    list_delay=60,
    billed_until_gone=False,  # deleting an instance ends all its charges
    bills_boot=False,  # the disk from the start, the GPUs while it runs
    restamps=("name",),  # its label; the variables stay as they were
    states={
        "created": StateFacts(InstanceState.PENDING, True),
        "loading": StateFacts(InstanceState.PENDING, True),
        "scheduling": StateFacts(InstanceState.PENDING, True),
        "rebooting": StateFacts(InstanceState.PENDING, True),
        "running": StateFacts(InstanceState.RUNNING, True),
        "frozen": StateFacts(InstanceState.STOPPED, True),
        "stopped": StateFacts(InstanceState.STOPPED, True),
        "exited": StateFacts(InstanceState.FAILED, True),
        "offline": StateFacts(InstanceState.FAILED, True),
        "unknown": StateFacts(InstanceState.UNKNOWN, True),
    },
    credential_env=("VAST_API_KEY",),
    lane_reason="only its KVM machines (vms_enabled, and not deverified) can become nodes; everything else is an unprivileged container",
    login="root",
    node_quality=NODE_QUALITY,
)
SETTINGS: dict[str, dict[str, t.Any]] = {
    "vmImage": {
        "type": "string",
        "pattern": r"^docker\.io/vastai/kvm:.+$",
        "description": f"image of virtual machines, one of docker.io/vastai/kvm; default {VM_IMAGE}",
    },
    "unverified": {"type": "boolean", "description": "also take machines that Vast.ai has not verified"},
    "datacenter": {"type": "boolean", "description": "take machines in data centres only"},
    "minReliability": {
        "type": ["string", "integer"],
        "minimum": 0,
        "description": 'share of time that the host of a node is there, default "95%"; 0 asks for nothing',
    },
    "minBandwidth": {
        "type": "integer",
        "minimum": 0,
        "description": "Mbit/s towards the host of a node, default 200; 0 asks for nothing",
    },
}
_INSTANCES, _INSTANCE, _ASK = "/api/v1/instances/", "/api/v0/instances/{}/", "/api/v0/asks/{}/"
_CHARGES = "/api/v0/charges/"
_PAGE, _CHARGES_PAGE = 25, 500
_DAY = 86400
_CREATE_TIMEOUT = 120.0
_NUMBER = re.compile(r"[0-9]{1,18}")


class VastCloud(NothingBeside):
    """One account (API key). ``scope`` says whose machines it looks at."""

    facts = FACTS

    def __init__(
        self,
        key: str,
        *,
        url: str = URL,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        scope: SearchScope = SearchScope(),
        warn: Warn = silent,
    ) -> None:
        redact.register(key)
        self._clock = clock or SystemClock()
        self._transport = transport
        self._scope, self._warn = scope, once(warn)
        self._api = VastApi(key, url, transport=transport, clock=self._clock)
        self._turn = LaunchTurn(self._api.http, "create")

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api.http

    def check(self) -> CloudCheck:
        return examine(self._api, len(self.instances()))

    def close(self) -> None:
        self._api.close()

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        if query.lanes and not set(query.lanes) & set(FACTS.lanes):
            return []
        offers = []
        for bid in (False, True) if query.spot is None else (query.spot,):
            asked = filters(query, self._scope, bid=bid)
            if asked is not None:
                offers += [
                    offer for offer, row in self._rows_for_rent(asked, query, bid) if fits(offer, row, query, self._scope, bid=bid)
                ]
        return offers

    def _rows_for_rent(self, asked: Filters, query: OfferQuery, bid: bool) -> list[tuple[Offer, dict[str, t.Any]]]:
        """All rows of a search that can be read, each with its offer."""
        now = self._clock.now()

        def read(row: t.Any) -> tuple[Offer, dict[str, t.Any]]:
            return to_offer(self._api.http, row, f"POST {PATH}", query.disk_gib, now, bid=bid), row

        return readable("vast", Pages(self._api, asked).rows(), read, self._warn)

    def instances(self) -> list[Instance]:
        try:
            rows = self._rows()
        except errors.ApiError as error:
            if error.code != "invalid_token":
                raise
            rows = self._rows()  # the list changed under its own page token: once more from the beginning
        now = now_of(self._clock, "vast")  # it says how long machines run, not since when
        return [to_instance(self._api.http, row, f"GET {_INSTANCES}", FACTS, now) for row in rows]

    def _rows(self) -> list[t.Any]:
        """All pages. A page may repeat a machine when the list grows meanwhile; a repeated token is an endless list. The rows must be as many
        as the last page says that there are: half a list must not be taken for the truth."""
        http, operation = self._api.http, f"GET {_INSTANCES}"
        params = {"limit": _PAGE, "order_by": json.dumps([{"col": "id", "dir": "asc"}]), "select_cols": json.dumps(["*"])}

        total: list[t.Any] = [None]

        def page(token: str | None) -> tuple[list[t.Any], str | None]:
            answer = self._api.read(_INSTANCES, pace="list", params={**params, **({"after_token": token} if token else {})})
            rows, following = http.expect(answer.get("instances"), list, operation, "instances"), answer.get("next_token")
            if len(rows) >= _PAGE and "next_token" not in answer:
                raise http.bad_shape(operation, "a full page does not say by its page token whether more follow")
            if following is not None and not isinstance(following, (str, int)):
                raise http.bad_shape(operation, f"its page token is a {type(following).__name__}")
            total[0] = answer.get("total_instances")
            return rows, str(following) if following not in (None, "") else None

        rows = walk(http, operation, page)
        by_id = {
            http.expect(http.expect(row, dict, operation, "an instance").get("id"), int, operation, "id of an instance"): row
            for row in rows
        }
        if total[0] is not None and total[0] != len(by_id):
            raise http.bad_shape(operation, f"it shows {len(by_id)} instances and says that there are {total[0]}")
        return list(by_id.values())

    def instance(self, instance_id: str) -> Instance | None:
        if not _NUMBER.fullmatch(instance_id):
            return None  # no machine of Vast.ai can have it
        http, path = self._api.http, _INSTANCE.format(instance_id)
        try:
            body = self._api.read(path, pace="get")
        except errors.NotFound as error:
            if error.code in GONE:
                return None
            raise
        if "instances" not in body:
            raise http.bad_shape(f"GET {path}", "it has no instances")
        row = body["instances"]
        if row is None:
            return None
        if isinstance(row, list) and len(row) == 1:
            row = row[0]
        instance = to_instance(http, row, f"GET {path}", FACTS, now_of(self._clock, "vast"))
        if instance.id != instance_id:
            raise http.bad_shape(f"GET {path}", f"it is about instance {instance.id}")
        return instance

    def console(self, instance_id: str) -> str | None:
        if not _NUMBER.fullmatch(instance_id):
            return None
        return boot_log(self._api, instance_id, self._transport, self._clock)

    def charges(self, since: datetime, until: datetime) -> list[Charge]:
        """A row for each instance and day (UTC). They must be as many as the last page says: a part of a bill must not pass for all of it."""
        http, operation = self._api.http, f"GET {_CHARGES}"
        first, after = (int(moment.timestamp()) // _DAY * _DAY for moment in (since, until + timedelta(days=1)))
        filters = {"day": {"gte": first, "lte": after - 1}, "type": {"in": ["instance"]}}
        params = {"select_filters": json.dumps(filters), "limit": _CHARGES_PAGE, "latest_first": "false", "format": "table"}
        total = [0]

        def page(token: str | None) -> tuple[list[t.Any], str | None]:
            answer = self._api.read(_CHARGES, params={**params, **({"after_token": token} if token else {})})
            following = answer.get("next_token")
            total[0] = http.expect(answer.get("total"), int, operation, "total")
            return http.expect(answer.get("results"), list, operation, "results"), str(following) if following else None

        rows = walk(http, operation, page)
        if len(rows) < total[0]:
            raise http.bad_shape(operation, f"it shows {len(rows)} charges and says that there are {total[0]}")
        return [charge for row in rows if (charge := to_charge(http, row, operation)) is not None]

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        check_settings("vast", "Vast.ai", request, SETTINGS)
        ask = request.offer.id.removesuffix(BID)
        if not _NUMBER.fullmatch(ask):
            raise refused(f"{request.offer.id!r} is not an offer of Vast.ai")
        body = body_of(request)
        bucket = self._turn.spend()
        path = _ASK.format(ask)
        try:
            answer = self._api.once("PUT", path, json=body, pace=bucket, timeout=_CREATE_TIMEOUT)
            redact.register(*(value for value in (answer.get("instance_api_key"),) if isinstance(value, str)))
            made = self._api.http.expect(answer.get("new_contract"), int, f"PUT {path}", "new_contract")
            if answer.get("success") is not True:
                raise errors.ApiError(
                    f"vast: PUT {path} does not say that it succeeded.", service="vast", status=200, body={"new_contract": made}
                )
        except errors.ApiError as error:
            raise outcome(error, request.name) from error
        return str(made)

    def terminate(self, instance_id: str) -> None:
        if not _NUMBER.fullmatch(instance_id):
            raise errors.InvalidInput(f"vast: {instance_id!r} is not an id of an instance.")
        path = _INSTANCE.format(instance_id)
        try:
            answer = self._api.repeat("DELETE", path, json={}, pace="destroy")
        except errors.NotFound as error:
            if error.code in GONE:
                return
            raise
        self._api.http.expect(answer.get("success"), bool, f"DELETE {path}", "success")

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        if not _NUMBER.fullmatch(instance_id):
            raise errors.InvalidInput(f"vast: {instance_id!r} is not an id of an instance.")
        path = _INSTANCE.format(instance_id)
        answer = self._api.repeat("PUT", path, json={"label": name})
        self._api.http.expect(answer.get("success"), bool, f"PUT {path}", "success")


def _connect(wanted: Wanted) -> Cloud:
    url = ENTRY.address(wanted.task, "vast_api_url", URL)
    scope = SearchScope(unverified=bool(wanted.setting("unverified")), datacenter=bool(wanted.setting("datacenter")))
    return VastCloud(
        ENTRY.credential(wanted),
        url=url,
        transport=wanted.task.transport(url),
        clock=wanted.task.clock,
        scope=scope,
        warn=wanted.task.warn,
    )


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "vast_api_url": text_option("VAST_URL"),
        "vast_api_key": text_option("VAST_API_KEY", no_log=True),
    },
    key="vast_api_key",
    aliases=("vastai",),
    settings=SETTINGS,
    regions=PLACES,
)


# ---- the log of a machine of Vast.ai: it is asked for, uploaded somewhere, and fetched from there. The API key does not go there

_PATH = "/api/v0/instances/request_logs/{}/"
_LINES = "200"
_LONGEST = 64 * 1024  # characters kept, from the end
_TRIES, _PAUSE = 10, 2.0


def boot_log(api: VastApi, instance_id: str, transport: httpx.BaseTransport | None, clock: Clock) -> str | None:
    """Its last lines without known secrets; None when the machine is gone or the log does not come in time."""
    path = _PATH.format(instance_id)
    try:
        answer = api.repeat("PUT", path, json={"tail": _LINES})
    except errors.NotFound as error:
        if error.code in GONE:
            return None
        raise
    url = api.http.expect(answer.get("result_url"), str, f"PUT {path}", "result_url")
    try:
        parts, home = urlsplit(url), urlsplit(api.http.base_url)
    except ValueError as error:
        raise api.http.bad_shape(f"PUT {path}", f"its result_url is not an address: {error}") from error
    redact.register(parts.query)  # a signature: who has it may read the log
    ours = (parts.scheme, parts.netloc) == (home.scheme, home.netloc)
    if not parts.netloc or not (ours or parts.scheme == "https"):
        raise api.http.bad_shape(f"PUT {path}", "its result_url is neither https nor the API's own address")
    place = Api(
        "vast logs",
        f"{parts.scheme}://{parts.netloc}",
        transport=transport if ours else None,
        retry=RetryPolicy(tries=2, first=1.0, longest=2.0, deadline=10.0),
        clock=clock,
    )
    try:
        return _fetch(place, f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", clock)
    finally:
        place.close()


def _fetch(place: Api, path: str, clock: Clock) -> str | None:
    """403 and 404 mean that it is not uploaded yet."""
    for turn in range(_TRIES):
        if turn:
            clock.sleep(_PAUSE)
        answer = place.call("GET", path, ok=(403, 404))
        if answer.status not in (403, 404):
            return redact.redact(answer.text[-_LONGEST:])
    return None


# ---- what a look at an account of Vast.ai shows: whether there is money, and the SSH key without which no virtual machine is made

_USER, _KEYS = "/api/v0/users/current/", "/api/v0/ssh/"


def examine(api: VastApi, count: int) -> CloudCheck:
    """Raises ApiError when the account cannot be read. ``count``: how many instances it has."""
    user = api.read(_USER)
    api.http.expect(user.get("id"), int, f"GET {_USER}", "id")
    credit, balance = (decimal(user.get(key)) or Decimal(0) for key in ("credit", "balance"))
    sentence = (
        f"vast: the API key is accepted; the account has {count} instance{'' if count == 1 else 's'}, "
        f"{_dollars(credit)} credit and a balance of {_dollars(balance)}."
    )
    return CloudCheck(sentence, tuple(_warnings(api, user, credit + balance)))


def _warnings(api: VastApi, user: t.Mapping[str, t.Any], money: Decimal) -> t.Iterator[str]:
    if money <= 0:
        yield "vast: there is no money in the account: nothing can be rented, and what runs is stopped. Add credit."
    if user.get("ssh_key"):
        return
    try:
        listed = _keys(api)
    except Forbidden:
        yield "vast: the API key may not read the account's SSH keys; without one no virtual machine is made."
        return
    if not listed:
        yield "vast: the account has no SSH key: no virtual machine, so no node, can be made (containers can). Add one in the console."


def _keys(api: VastApi) -> list[t.Any]:
    """Documented as an object with the keys in it, seen as a bare list."""
    operation = f"GET {_KEYS}"
    body = api.read_any(_KEYS)
    if isinstance(body, dict):
        body = body.get("ssh_keys")
    return api.http.expect(body, list, operation, "ssh_keys")


def _dollars(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}${print_money(abs(amount))}"
