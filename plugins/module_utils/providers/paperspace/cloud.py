# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace machines (DigitalOcean), API v1 (https://api.paperspace.com/v1).

What is peculiar: there is no list of types (they are gathered from the templates) and no price list (kept in types.py, the true
price is told by the machine); every change is only queued and fails in its event; there is no user data but startup scripts, which stay in
the account; ``off`` bills the disk on; a wrong key may be answered 200 with ``null``.
"""

from __future__ import annotations

import dataclasses
import threading
import typing as t

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...model import Capability, Carrier, Extra, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ..base import EVERYTHING, CloudCheck
from ..provider import Entry, Wanted, text_option
from ..readable import Warn, silent
from .account import look_at_account
from .api import REFUSED, Calls, answered
from .auxiliary_resources import Beside
from .launch import SCRIPT_LIMIT, SETTINGS, check_request, machine_body, outcome
from .offers import Market
from .records import is_deleted, judge, to_event, to_instance
from .types import REGIONS

if t.TYPE_CHECKING:
    import httpx

URL = "https://api.paperspace.com"
FACTS = Capability(
    cloud="paperspace",
    lanes=(Lane.KUBELET,),
    stop=True,
    created_time=True,
    list_delay=60,
    carrier=Carrier.SCRIPT,
    user_data_limit=SCRIPT_LIMIT,
    registration_timeout=1200,
    states={
        "provisioning": StateFacts(InstanceState.PENDING, True),
        "starting": StateFacts(InstanceState.PENDING, True),
        "restarting": StateFacts(InstanceState.PENDING, True),
        "upgrading": StateFacts(InstanceState.PENDING, True),
        "serviceready": StateFacts(InstanceState.RUNNING, True),
        "ready": StateFacts(InstanceState.RUNNING, True),
        "stopping": StateFacts(InstanceState.STOPPED, True),
        "off": StateFacts(InstanceState.STOPPED, True),  # the disk is billed on
    },
    credential_env=("PAPERSPACE_API_KEY",),
    lane_reason="its machines boot stock templates and run a startup script; no image or network boot of one's own",
    login="paperspace",
)
_CREATE_TIMEOUT = 120.0
_STOP_POLL, _STOP_POLLS = 5.0, 36
_UP = (InstanceState.RUNNING,)
_PREFIX = "tgp-"


class PaperspaceCloud:
    """One team (API key). ``template`` and ``region`` narrow what is offered, as the class's settings of these names do."""

    facts = FACTS

    def __init__(
        self,
        key: str,
        *,
        url: str = URL,
        template: str = "",
        region: str = "",
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        warn: Warn = silent,
    ) -> None:
        redact.register(key)
        self._clock = clock or SystemClock()
        self._calls = Calls(key, url, transport, self._clock)
        self._api = self._calls.api
        self._beside = Beside(self._calls)
        self._market = Market(self._calls, FACTS, self._clock, template, region, warn)
        self._off: set[str] = set()
        self._turn = threading.local()

    def close(self) -> None:
        self._api.close()

    def check(self) -> CloudCheck:
        return look_at_account(self._calls, lambda: len(self.instances()))

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        return self._market.offers(query)

    def instances(self) -> list[Instance]:
        """Events are read for machines of ours that are not up; they tell of failures. One that two pages show is one machine."""
        entries = self._calls.pages("/machines")
        found = (to_instance(self._api, one, "GET /machines", FACTS) for one in entries if not is_deleted(one))
        once = {one.id: one for one in found}.values()
        return [self._judged(one) if one.name.startswith(_PREFIX) else one for one in once]

    def instance(self, instance_id: str) -> Instance | None:
        try:
            entry = self._calls.get(f"/machines/{instance_id}")
        except errors.NotFound as error:
            if answered(error):
                return None
            raise
        return None if is_deleted(entry) else self._judged(to_instance(self._api, entry, "GET /machines/{id}", FACTS))

    def _judged(self, seen: Instance) -> Instance:
        if seen.state in _UP:
            self._off.discard(seen.id)
            return seen
        what = "GET /machine-events"
        events = [to_event(self._api, one, what) for one in self._calls.pages("/machine-events", machineId=seen.id)]
        verdict = judge(seen.raw_state, events, off_before=seen.id in self._off)
        if seen.raw_state == "off":
            self._off.add(seen.id)
        return dataclasses.replace(seen, state=verdict.state or seen.state, problem=verdict.problem)

    def console(self, instance_id: str) -> str | None:
        return None

    # ---- writing

    def queue(self) -> None:
        self._api.take_turn("")
        self._turn.taken = True

    def launch(self, request: LaunchRequest) -> str:
        """The script (and network) first, then the machine. When the machine is refused, what was made for it goes again."""
        bucket = "queued" if getattr(self._turn, "taken", False) else ""
        self._turn.taken = False
        check_request(request)
        made: list[Extra] = []
        sent = False
        try:
            template = self._market.template_for(request.offer.instance_type, request.settings.get("templateId"))
            script, network = self._things_for(request, made)
            body = machine_body(request, template, script, network)
            sent = True
            answer = self._calls.send("POST", "/machines", json=body, pace=bucket, timeout=_CREATE_TIMEOUT)
            what = "POST /machines"
            data = self._api.expect(self._api.expect(answer.json, dict, what).get("data"), dict, what, "data")
            identity = self._api.expect(data.get("id"), str, what, "data.id")
            if not identity:
                raise self._api.bad_shape(what, "it names no machine id")
            return t.cast(str, identity)
        except errors.ApiError as error:
            result = outcome(error, request, sent=sent)
            if isinstance(result, errors.LaunchRefused):
                self._take_back(made)
            raise result from error
        except errors.LaunchRefused:
            self._take_back(made)
            raise

    def _things_for(self, request: LaunchRequest, made: list[Extra]) -> tuple[str | None, str | None]:
        """Ids of script and network; what was made now is added to ``made``."""
        script = network = None
        if request.user_data is not None:
            script, extra = self._beside.script(request.name, request.user_data)
            made += [extra] if extra else []
        wish = request.settings.get("network")
        if wish == "own":
            network, extra = self._beside.network(request.name, request.offer.cloud_region)
            made += [extra] if extra else []
        return script, network or wish

    def _take_back(self, made: list[Extra]) -> None:
        for extra in reversed(made):
            try:
                self._beside.discard(extra)
            except errors.ApiError:
                pass  # extras() goes on showing it, so the next clean-up finds it

    def terminate(self, instance_id: str) -> None:
        """Running machines may be refused; then it is stopped first. What takes too long is gone on with by the next call."""
        path = f"/machines/{instance_id}"
        was_off = False
        for _round in range(_STOP_POLLS):
            try:
                answer = self._calls.send("DELETE", path, idempotent=True)
                self._calls.api.expect(answer.json, dict, f"DELETE {path}")
                return
            except errors.NotFound as error:
                if answered(error):
                    return
                raise
            except errors.ApiError as error:
                if error.status not in REFUSED or not answered(error):
                    raise
                refusal = error
            seen = self.instance(instance_id)
            if seen is None or seen.state is InstanceState.TERMINATING:
                return
            if was_off:
                raise refusal  # it is off, so that is not the reason
            was_off = seen.raw_state == "off"
            if not was_off and seen.raw_state != "stopping":
                self._stop(path)
            self._clock.sleep(_STOP_POLL)
        raise errors.Conflict(
            f"{refusal.message} It was stopped first and is not off yet.",
            remedy="The next call goes on.",
            service="paperspace",
            status=refusal.status,
        )

    def _stop(self, path: str) -> None:
        try:
            self._calls.send("PATCH", f"{path}/stop", json={}, idempotent=True)
        except errors.ApiError as error:
            # "currently stopping" and the like: it is on its way, the next look tells
            if error.status not in REFUSED or not answered(error):
                raise

    def extras(self) -> list[Extra]:
        return self._beside.all()

    def discard(self, extra: Extra) -> None:
        self._beside.discard(extra)


def _connect(wanted: Wanted) -> PaperspaceCloud:
    url = ENTRY.address(wanted.task, "paperspace_api_url", URL)
    return PaperspaceCloud(
        ENTRY.credential(wanted),
        url=url,
        template=wanted.setting("templateId") or "",
        region=wanted.setting("region") or "",
        transport=wanted.task.transport(url),
        clock=wanted.task.clock,
        warn=wanted.task.warn,
    )


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "paperspace_api_url": text_option("PAPERSPACE_API_URL"),
        "paperspace_api_key": text_option("PAPERSPACE_API_KEY", no_log=True),
    },
    key="paperspace_api_key",
    aliases=("digitaloceanpaperspace", "paperspacecom"),
    settings=SETTINGS,
    regions=REGIONS,
)
