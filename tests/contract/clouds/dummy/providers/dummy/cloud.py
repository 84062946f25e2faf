# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud that does not exist, whole: what one has to write to add a cloud. It stands in no folder of the product; tests put it there."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation

from ...core import errors, redact
from ...core.http import Api
from ...model import Capability, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ...planner.offers.requirements import standard_region
from ..base import EVERYTHING, CloudCheck, Entry, NothingBeside, Wanted, text_option

if t.TYPE_CHECKING:
    import httpx

    from ...core.clock import Clock

URL = "https://dummy.example"
FACTS = Capability(
    cloud="dummy",
    lanes=(Lane.KUBELET,),
    tags=True,
    stamped=True,
    created_time=True,
    user_data_limit=64_000,
    registration_timeout=900,
    states={
        "coming": StateFacts(InstanceState.PENDING, True),
        "up": StateFacts(InstanceState.RUNNING, True),
        "broken": StateFacts(InstanceState.FAILED, True),
        "going": StateFacts(InstanceState.TERMINATING, True),
        "gone": StateFacts(InstanceState.TERMINATED, False),
    },
    credential_env=("DUMMY_API_KEY",),
    lane_reason="its machines boot stock Ubuntu",
)
SETTINGS: dict[str, dict[str, t.Any]] = {"shelf": {"type": "string", "enum": ["upper", "lower"], "description": "where it stands"}}
REGIONS = {"attic": "eu-central"}
_REASONS = {402: "balance", 403: "auth", 401: "auth", 409: "capacity", 422: "invalid", 429: "rate"}


class DummyCloud(NothingBeside):
    """One account (API key)."""

    facts = FACTS

    def __init__(self, key: str, url: str, transport: httpx.BaseTransport | None, clock: Clock) -> None:
        redact.register(key)
        self._clock = clock
        self._api = Api(
            "dummy",
            url,
            headers={"x-key": key},
            transport=transport,
            clock=clock,
            auth_hint="Check DUMMY_API_KEY (or the option dummy_api_key).",
        )

    def check(self) -> CloudCheck:
        return CloudCheck(f"dummy: the API key is accepted; the account has {len(self.instances())} machines.")

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        return [self._offer(one) for one in self._list("/offers")]

    def instances(self) -> list[Instance]:
        return [self._instance(one, "GET /machines") for one in self._list("/machines")]

    def instance(self, instance_id: str) -> Instance | None:
        try:
            return self._instance(self._api.get(f"/machines/{instance_id}"), "GET /machines/...")
        except errors.NotFound as error:
            if error.code == "no_such_machine":
                return None
            raise

    def queue(self) -> None:
        """Nothing to wait for."""

    def launch(self, request: LaunchRequest) -> str:
        if unknown := sorted(set(request.settings) - set(SETTINGS)):
            raise errors.LaunchRefused(f"dummy: unknown setting {', '.join(unknown)}.", reason="invalid", cloud="dummy")
        body = {
            "name": request.name,
            "offer": request.offer.id,
            "shelf": request.settings.get("shelf", "upper"),
            "script": request.user_data,
            "tags": dict(request.marks),
        }
        try:
            answer = self._api.call("POST", "/machines", json=body)
            return str(
                self._api.expect(self._api.expect(answer.json, dict, "POST /machines").get("id"), str, "POST /machines", "id")
            )
        except errors.ApiError as error:
            if isinstance(error, errors.Unreachable) or error.status in _REASONS:
                reason = _REASONS.get(error.status or 0, "rate")
                raise errors.LaunchRefused(
                    f"{request.name} was not made: {error.message}", reason=reason, remedy=error.remedy, cloud="dummy"
                ) from error
            raise errors.LaunchUnknown(
                f"{error.message} Whether {request.name} was made is unknown.", remedy="It is looked up by name.", cloud="dummy"
            ) from error

    def terminate(self, instance_id: str) -> None:
        try:
            self._api.call("DELETE", f"/machines/{instance_id}", idempotent=True)
        except errors.NotFound as error:
            if error.code != "no_such_machine":
                raise

    def console(self, instance_id: str) -> str | None:
        return None

    def close(self) -> None:
        self._api.close()

    # ---- reading

    def _list(self, path: str) -> list[t.Any]:
        return t.cast("list[t.Any]", self._api.expect(self._api.get(path), list, f"GET {path}"))

    def _money(self, value: t.Any, what: str) -> Decimal:
        try:
            return Decimal(self._api.expect(value, str, what, "price"))
        except InvalidOperation as error:
            raise self._api.bad_shape(what, f"{value!r} is no price") from error

    def _offer(self, entry: t.Any) -> Offer:
        what = "GET /offers"
        found = self._api.expect(entry, dict, what, "an entry")
        place = self._api.expect(found.get("place"), str, what, "place")
        return Offer(
            cloud="dummy",
            id=self._api.expect(found.get("id"), str, what, "id"),
            instance_type=self._api.expect(found.get("kind"), str, what, "kind"),
            model=self._api.expect(found.get("gpu"), str, what, "gpu"),
            gpu_count=self._api.expect(found.get("gpus"), int, what, "gpus"),
            price_hour=self._money(found.get("price"), what),
            region=standard_region(place, REGIONS),
            cloud_region=place,
            gpu_memory_mib=found.get("memory_mib"),
            available=self._api.expect(found.get("free"), int, what, "free"),
            lanes=FACTS.lanes,
            seen=self._clock.now(),
        )

    def _instance(self, entry: t.Any, what: str) -> Instance:
        found = self._api.expect(entry, dict, what, "an entry")
        word = self._api.expect(found.get("state"), str, what, "state")
        return Instance(
            cloud="dummy",
            id=self._api.expect(found.get("id"), str, what, "id"),
            name=self._api.expect(found.get("name"), str, what, "name"),
            state=FACTS.read_state(word),
            raw_state=word,
            created=datetime.fromtimestamp(self._api.expect(found.get("made"), int, what, "made"), timezone.utc),
            price_hour=self._money(found.get("price"), what),
            ip=found.get("ip") or "",
            region=found.get("place") or "",
            instance_type=found.get("kind") or "",
            marks=found.get("tags") or {},
        )


def _connect(wanted: Wanted) -> DummyCloud:
    url = ENTRY.option(wanted.task, "dummy_api_url") or URL
    return DummyCloud(ENTRY.credential(wanted), url, wanted.task.transport(url), wanted.task.clock)


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "dummy_api_url": text_option("DUMMY_API_URL"),
        "dummy_api_key": text_option("DUMMY_API_KEY", no_log=True),
    },
    key="dummy_api_key",
    aliases=("dummycloud",),
    settings=SETTINGS,
    regions=REGIONS,
)
