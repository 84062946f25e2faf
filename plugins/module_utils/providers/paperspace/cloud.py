# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace machines (DigitalOcean), API v1 (https://api.paperspace.com/v1).

What is peculiar: there is no list of types (they are gathered from the templates) and no price list (kept in types.py, the true
price is reported by the machine); every change is only queued and fails in its event; there is no user data but startup scripts, which stay in
the account; ``off`` bills the disk on; a wrong key may be answered 200 with ``null``.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...core.http import Api, path_segment
from ...model import Capability, Carrier, Extra, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ...planner.offers import gpu_models
from ..base import EVERYTHING, CloudCheck, Entry, LaunchTurn, Wanted, Warn, once, readable, silent, text_option
from .api import REFUSED, Calls, answered
from .auxiliary_resources import Beside
from .launch import SCRIPT_LIMIT, SETTINGS, check_request, choose_template, invalid, machine_body, outcome
from .records import Template, is_deleted, machine_status, to_event, to_instance, to_offers, to_template
from .types import REGIONS

if t.TYPE_CHECKING:
    import httpx


URL = "https://api.paperspace.com"
FACTS = Capability(
    cloud="paperspace",
    lanes=(Lane.KUBELET,),
    stop=True,
    off_costs_less=True,
    created_time=True,
    tells_start=True,
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
    restamps=("name",),
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
        self._turn = LaunchTurn(self._api)
        self._beside = Beside(self._calls)
        self._catalog = Catalog(self._calls, FACTS, self._clock, template, region, warn)
        self._off: set[str] = set()

    def close(self) -> None:
        self._api.close()

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api

    def check(self) -> CloudCheck:
        return look_at_account(self._calls, lambda: len(self.instances()))

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        return self._catalog.offers(query)

    def instances(self) -> list[Instance]:
        """Events are read for machines of ours that are not up; they tell of failures. One that two pages show is one machine."""
        entries = self._calls.pages("/machines")
        instances = (to_instance(self._api, entry, "GET /machines", FACTS) for entry in entries if not is_deleted(entry))
        once = {instance.id: instance for instance in instances}.values()
        return [self._with_status(instance) if instance.name.startswith(_PREFIX) else instance for instance in once]

    def instance(self, instance_id: str) -> Instance | None:
        try:
            entry = self._calls.get(f"/machines/{instance_id}")
        except errors.NotFound as error:
            if answered(error):
                return None
            raise
        return None if is_deleted(entry) else self._with_status(to_instance(self._api, entry, "GET /machines/{id}", FACTS))

    def _with_status(self, seen: Instance) -> Instance:
        if seen.state in _UP:
            self._off.discard(seen.id)
            return seen
        operation = "GET /machine-events"
        events = [to_event(self._api, entry, operation) for entry in self._calls.pages("/machine-events", machineId=seen.id)]
        status = machine_status(seen.raw_state, events, off_before=seen.id in self._off)
        if seen.raw_state == "off":
            self._off.add(seen.id)
        return dataclasses.replace(seen, state=status.state or seen.state, problem=status.problem)

    def console(self, instance_id: str) -> str | None:
        return None

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        """The script (and network) first, then the machine. When the machine is refused, what was made for it goes again."""
        bucket = self._turn.spend()
        check_request(request)
        made: list[Extra] = []
        sent = False
        try:
            template = self._catalog.template_for(request.offer.instance_type, request.settings.get("templateId"))
            script, network = self._things_for(request, made)
            body = machine_body(request, template, script, network)
            sent = True
            answer = self._calls.send("POST", "/machines", json=body, pace=bucket, timeout=_CREATE_TIMEOUT)
            operation = "POST /machines"
            data = self._api.expect(self._api.expect(answer.json, dict, operation).get("data"), dict, operation, "data")
            identity = self._api.expect(data.get("id"), str, operation, "data.id")
            if not identity:
                raise self._api.bad_shape(operation, "it names no machine id")
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
        spec = request.settings.get("network")
        if spec == "own":
            network, extra = self._beside.network(request.name, request.offer.cloud_region)
            made += [extra] if extra else []
        return script, network or spec

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

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        path = f"/machines/{path_segment(instance_id, 'instance id')}"
        answer = self._calls.send("PUT", path, json={"name": name}, idempotent=True)
        self._calls.api.expect(answer.json, dict, f"PUT {path}")

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


# ---- whether a Paperspace team may rent: session, standing, number of machines


def look_at_account(calls: Calls, count_machines: t.Callable[[], int]) -> CloudCheck:
    """Raises Unauthorized also for a session of ``null``, which is how a wrong key may be answered; InvalidInput when nothing can be
    created."""
    answer = calls.send("GET", "/auth/session")
    session = answer.json
    team = session.get("team") if isinstance(session, dict) else None
    if answer.text.strip() == "null" or (isinstance(session, dict) and not (isinstance(team, dict) and team.get("namespace"))):
        raise errors.Unauthorized(
            "paperspace: the API key is not accepted (there is no session for it).",
            remedy="Check PAPERSPACE_API_KEY (or the option paperspace_api_key); keys are made in the Paperspace console.",
            service="paperspace",
        )
    team = calls.api.expect(team, dict, "GET /auth/session", "team")
    warnings = _standing(calls)
    count, most = count_machines(), team.get("maxMachines")
    if isinstance(most, int) and count >= most:
        warnings.append(f"paperspace: the team may have {most} machines and has {count}: every launch will be refused.")
    machines = f"{count} machine{'' if count == 1 else 's'}" + (f" of at most {most}" if isinstance(most, int) else "")
    return CloudCheck(f"paperspace: the API key is accepted; team {team['namespace']} has {machines}.", tuple(warnings))


def _standing(calls: Calls) -> list[str]:
    """Whether the team may create; the call is not there everywhere."""
    try:
        standing = calls.get("/billing/account-standing")
    except errors.NotFound:
        return []
    listed = standing.get("messages")
    reasons = "; ".join(str(entry) for entry in listed) if isinstance(listed, list) else ""
    if standing.get("isAdminLocked") or standing.get("isInGoodStanding") is False:
        raise errors.InvalidInput(
            f"paperspace: the account may create nothing: {reasons or 'it is locked or not in good standing'}.",
            remedy="See Billing in the Paperspace console.",
        )
    if standing.get("hasPaymentMethod") is False:
        return [f"paperspace: the account has no payment method; launches will be refused. {reasons}".strip()]
    return []


# ---- what Paperspace offers: types gathered from its templates, prices from our list, capacity asked for type by type

_MOST_QUESTIONS = 16  # about capacity, one call each


class Catalog:
    """``template`` (id) and ``region`` narrow it; empty = any."""

    def __init__(self, calls: Calls, facts: Capability, clock: Clock, template: str, region: str, warn: Warn = silent) -> None:
        self._calls, self._facts, self._clock, self._warn = calls, facts, clock, once(warn)
        self._template, self._region = template, region
        self._known: list[Template] | None = None

    def offers(self, query: OfferQuery) -> list[Offer]:
        if query.spot is True or (query.lanes and not set(query.lanes) & set(self._facts.lanes)):
            return []
        now, labels = self._clock.now(), self._labels()
        offers = [
            offer for label in labels for offer in to_offers(label, query.disk_gib, self._facts, now) if self._in_region(offer)
        ]
        return self._with_capacity(offers, query)

    def _labels(self) -> list[str]:
        """All types that some template names and that could be booted."""
        templates = self._templates()
        own = next((template for template in templates if template.id == self._template), None)
        if own is not None and own.fits is not None:
            return sorted(own.fits)
        labels = sorted({label for template in templates for label in template.labels})
        return labels if self._template else [label for label in labels if choose_template(templates, label)]

    def _in_region(self, offer: Offer) -> bool:
        return not self._region or offer.cloud_region == self._region

    def _with_capacity(self, offers: list[Offer], query: OfferQuery) -> list[Offer]:
        """Ask for capacity where it matters: what fits the query, cheapest first, one call each. What was not asked for, or cannot be
        asked here, is left to the launch."""
        asked = sorted(
            (offer for offer in offers if _wanted(offer, query)),
            key=lambda offer: (offer.price_hour is None, offer.price_hour or 0),
        )
        empty: set[str] = set()
        for offer in asked[:_MOST_QUESTIONS]:
            try:
                answer = self._calls.get("/machine-availability", machineType=offer.instance_type, region=offer.cloud_region)
            except errors.NotFound:
                break
            except errors.ApiError as error:
                if error.status not in REFUSED or not answered(error):
                    raise
                continue  # it does not know this type there; neither do we
            if answer.get("available") is False:  # any other word is left to the launch
                empty.add(offer.id)
        return [dataclasses.replace(offer, available=0) if offer.id in empty else offer for offer in offers]

    def _templates(self) -> list[Template]:
        if self._known is None:
            operation = "GET /os-templates"
            entries = self._calls.pages("/os-templates")
            self._known = readable("paperspace", entries, lambda entry: to_template(self._calls.api, entry, operation), self._warn)
        return self._known

    def template_for(self, label: str, spec: str | None) -> str:
        """The id of the template to boot a machine of this type with. LaunchRefused when none fits."""
        chosen = spec or self._template
        if chosen:
            return chosen
        template = choose_template(self._templates(), label)
        if template is None:
            raise invalid(f"no Ubuntu server template fits {label}", "Name one in the setting templateId.")
        return template.id


def _wanted(offer: Offer, query: OfferQuery) -> bool:
    """Whether an offer is one that the query is about."""
    return (
        (not query.models or any(gpu_models.matches(spec, offer.model, offer.gpu_memory_mib) for spec in query.models))
        and (not query.gpu_counts or offer.gpu_count in query.gpu_counts)
        and (query.min_gpu_memory_mib is None or (offer.gpu_memory_mib or 0) >= query.min_gpu_memory_mib)
        and (query.max_price_hour is None or (offer.price_hour is not None and offer.price_hour <= query.max_price_hour))
    )
