# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Compute Engine, API v1 (https://compute.googleapis.com).

What is peculiar: a call is answered with an operation, and the refusals for quotas and missing capacity are errors inside of one that is DONE;
there are no prices (prices.py) and no stock; a project may have no GPUs until a quota is raised; a stopped machine exists on and its disk
is billed; an empty list has no items; labels take few letters; user data stays readable, so it is removed; machines end by themselves after a
time that is set when they are made.
"""

from __future__ import annotations

import difflib
import pathlib
import re
import threading
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...core import errors
from ...core.clock import Clock, SystemClock
from ...core.http import Api, path_segment
from ...core.task import Task
from ...model import Capability, Extra, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts
from ..base import EVERYTHING, CloudCheck, Entry, LaunchTurn, Wanted, Warn, once, silent, text_option
from ..disk_images import ImageOrigin
from . import leftovers, storage
from .api import Calls, host_of, is_absent
from .images import GcpImages, read_source
from .launch import SETTINGS, USER_DATA, USER_DATA_LIMIT, check_request, longest_life, machine_body, outcome, request_id
from .machine_types import (
    ALL_REGIONS,
    FILTER,
    REGIONS,
    GcpMachineType,
    Quotas,
    is_wanted,
    read_quotas,
    read_types,
    region_of,
    to_offer,
    with_attached,
)
from .prices import AS_OF, PriceTable, age_warning
from .records import identity_of, labels_of, to_instance, without_marks
from .service_account import read_service_account

if t.TYPE_CHECKING:
    import httpx

URL = "https://compute.googleapis.com"
FACTS = Capability(
    cloud="gcp",
    lanes=(Lane.TALOS, Lane.KUBELET),
    spot=True,
    stop=True,
    off_costs_less=True,
    tags=True,
    stamped=True,
    created_time=True,
    tells_start=True,
    billing_minimum=60,
    user_data_limit=USER_DATA_LIMIT,
    user_data_stays=True,
    restamps=("marks",),  # a name is for ever
    registration_timeout=1200,
    list_delay=60,
    states={
        "PROVISIONING": StateFacts(InstanceState.PENDING, True),
        "STAGING": StateFacts(InstanceState.PENDING, True),
        "RUNNING": StateFacts(InstanceState.RUNNING, True),
        "REPAIRING": StateFacts(InstanceState.PENDING, True),
        "STOPPING": StateFacts(InstanceState.TERMINATING, True),
        "SUSPENDING": StateFacts(InstanceState.STOPPED, True),
        "SUSPENDED": StateFacts(InstanceState.STOPPED, True),
        "TERMINATED": StateFacts(InstanceState.STOPPED, True),  # it exists, and its disk is billed
    },
    credential_env=("GCP_SERVICE_ACCOUNT_CONTENTS",),
    lane_reason="its machines boot stock systems or an image of the project; its containers are no machines",
    login="ubuntu",
)
_CREATE_TIMEOUT = 120.0
_FOLLOWED = 60.0  # seconds for which the operation of a create call is looked at: missing capacity shows within them
_FRESH = timedelta(seconds=300)  # how long lists of zones and machine types are believed
_TRIES = 3  # at metadata that another client changes meanwhile
_INSTANCES = "compute#instanceAggregatedList"
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")


class GcpCloud:
    """One project. ``contents``: the text of a service account's key file. ``talos_image`` or ``policy`` (of images) opens lane talos.
    ``zones`` (or regions) narrow what is offered; empty = all."""

    facts = FACTS

    def __init__(
        self,
        contents: str,
        *,
        url: str = "",
        project: str = "",
        zones: t.Collection[str] = (),
        talos_image: str = "",
        policy: str = "",
        prices: PriceTable = PriceTable(),
        transport: httpx.BaseTransport | None = None,
        token_transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        warn: Warn = silent,
    ) -> None:
        self._account = read_service_account(contents)
        self.project = project or self._account.project
        if not _PROJECT.fullmatch(self.project):
            raise errors.InvalidInput(f"gcp: {self.project!r} is not the id of a project.", field="project")
        self._clock, self._warn = clock or SystemClock(), once(warn)
        token_url = url or host_of(self._account.token_uri)
        self._calls = Calls(self._account, self.project, url or URL, token_url, transport, self._clock, token_transport)
        self._api = self._calls.api
        self._turn = LaunchTurn(self._api)
        self._zones = tuple(zones)
        self._talos_image = talos_image
        self._lanes = FACTS.lanes if talos_image or policy else (Lane.KUBELET,)
        self._prices = prices
        self._guard = threading.Lock()
        self._sold: tuple[datetime, list[GcpMachineType]] | None = None

    def close(self) -> None:
        self._calls.close()

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api

    def check(self) -> CloudCheck:
        """Also whether the image of Talos exists, and which quotas would make every launch fail."""
        quotas, warnings = self._quotas(), []
        if self._zones:
            self._chosen_zones()
        if self._talos_image.startswith(f"projects/{self.project}/"):
            self._calls.send("GET", self._talos_image.removeprefix(f"projects/{self.project}"))
        if quotas.everywhere == 0:
            warnings.append(
                f"gcp: the quota {ALL_REGIONS} of {self.project} is used up or 0, so no machine with a GPU can be made."
            )
        if (age := age_warning(self._clock.now().date())) and not self._prices.on_demand:
            warnings.append(age)
        lanes = (
            "" if Lane.TALOS in self._lanes else " The class names no image of Talos (talosImage), so lane talos is not offered."
        )
        count = len(self.instances())
        return CloudCheck(
            f"gcp: the service account {self._account.email} is accepted; project {self.project} has {count} "
            f"instance{'' if count == 1 else 's'}. Prices are list prices of {AS_OF:%Y-%m}, not checked against a bill.{lanes}",
            tuple(warnings),
        )

    # ---- reading

    def _project(self) -> dict[str, t.Any]:
        try:
            return self._calls.send("GET", "")
        except (errors.Forbidden, errors.NotFound) as error:
            error.remedy = self._calls.access
            raise

    def _quotas(self) -> Quotas:
        return read_quotas(self._api, self._project(), self._calls.pages("/regions", "compute#regionList"))

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        """Whether a zone has a machine is known only by trying; what the quotas forbid is sold out."""
        if query.lanes and not set(query.lanes) & set(self._lanes):
            return []
        quotas = self._quotas()
        kinds = [kind for kind in self._machine_types() if is_wanted(kind.model, query)]
        whole = [kind for kind in kinds if not kind.problem]
        if query.models and not whole:
            for kind in kinds:
                self._warn(f"gcp: {kind.name} is not offered: it {kind.problem}.")
        now, offers = self._clock.now(), []
        for kind in whole:
            for spot in (False, True) if query.spot is None else (query.spot,):
                lack = quotas.lack(kind, spot=spot)
                offers.append(to_offer(kind, self._prices, query, self._lanes, now, spot=spot, allowed=not lack))
                if lack and query.models:
                    self._warn(f"gcp: {kind.offered_as} cannot be rented: the quota {lack} of {self.project} allows no more.")
        return offers

    def _machine_types(self) -> list[GcpMachineType]:
        """Of the zones that are chosen and up."""
        with self._guard:
            now = self._clock.now()
            if self._sold is None or now - self._sold[0] > _FRESH:
                zones = self._chosen_zones()
                types = self._calls.aggregated("machineTypes", "compute#machineTypeAggregatedList", filter=FILTER)
                extra = self._calls.aggregated("acceleratorTypes", "compute#acceleratorTypeAggregatedList")
                operation = "GET /aggregated/acceleratorTypes"
                named = [(zone, self._api.expect(entry, dict, operation, "an accelerator").get("name")) for zone, entry in extra]
                found = with_attached(
                    read_types(self._api, types, "GET /aggregated/machineTypes"),
                    {(zone, self._api.expect(name, str, operation, "name of an accelerator")) for zone, name in named},
                )
                self._sold = now, [kind for kind in found if kind.zone in zones]
            return self._sold[1]

    def _chosen_zones(self) -> frozenset[str]:
        """InvalidInput for a zone or region that there is not."""
        operation = "GET /zones"
        entries = [self._api.expect(one, dict, operation, "a zone") for one in self._calls.pages("/zones", "compute#zoneList")]
        states = {self._api.expect(one.get("name") or None, str, operation, "name of a zone"): one.get("status") for one in entries}
        known = {*states, *map(region_of, states)}
        for wanted in self._zones:
            if wanted not in known:
                near = difflib.get_close_matches(wanted, sorted(known), n=3, cutoff=0.6)
                raise errors.InvalidInput(
                    f"gcp: the project {self.project} has no zone or region {wanted!r}.",
                    remedy=f"Did you mean {' or '.join(near)}?" if near else "Change the setting zones of the class.",
                    field="zones",
                )
        chosen = [zone for zone in states if not self._zones or {zone, region_of(zone)} & set(self._zones)]
        return frozenset(zone for zone in chosen if states[zone] == "UP")

    def instances(self) -> list[Instance]:
        entries = self._calls.aggregated("instances", _INSTANCES)
        operation = "GET /aggregated/instances"
        found = [to_instance(self._api, zone, entry, operation, FACTS, self._prices) for zone, entry in entries]
        return list({instance.id: instance for instance in found}.values())

    def instance(self, instance_id: str) -> Instance | None:
        path = _path(instance_id)
        if not path:
            return None
        entry = self._calls.find(path)
        if entry is None:
            return None
        return to_instance(self._api, instance_id.partition("/")[0], entry, "GET of an instance", FACTS, self._prices)

    def console(self, instance_id: str) -> str | None:
        return None

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        """Polls the operation for a minute. If it fails, no machine was created. If it is still running then, or cannot be read, the machine is
        taken to exist."""
        bucket = self._turn.spend()
        check_request(request)
        zone, call = request.offer.cloud_region, f"POST /zones/{request.offer.cloud_region}/instances"
        identity, sent = identity_of(zone, request.name), False
        try:
            self._calls.tokens.bearer()
            sent = True
            operation = self._calls.send(
                "POST",
                f"/zones/{path_segment(zone, 'zone')}/instances",
                once=True,
                json=machine_body(request),
                params={"requestId": request_id(self.project, request)},
                pace=bucket,
                timeout=_CREATE_TIMEOUT,
            )
            self._calls.operation_name(operation, call)
        except errors.Conflict as error:
            if error.code == "alreadyExists" and self._is_made_for(identity, request):
                return identity
            raise outcome(error, request, sent=True) from error
        except errors.ApiError as error:
            raise outcome(error, request, sent=sent) from error
        try:
            failure = self._calls.follow(operation, zone, call, _FOLLOWED)
        except errors.ApiError:
            return identity
        if failure is not None:
            raise outcome(failure, request, sent=True, followed=True) from failure
        return identity

    def _is_made_for(self, identity: str, request: LaunchRequest) -> bool:
        """Whether the machine that has the name was made by an earlier call for the same claim."""
        try:
            found = self.instance(identity)
        except errors.ApiError:
            return False
        nonce = request.marks.get("nonce")
        return found is not None and bool(nonce) and found.marks.get("nonce") == nonce

    def terminate(self, instance_id: str) -> None:
        """Success also for one that is being deleted."""
        path = _path(instance_id)
        if not path:
            return
        try:
            operation = self._calls.send("DELETE", path, idempotent=True)
        except errors.NotFound as error:
            if not is_absent(error, path):
                raise
        except errors.ApiError as error:
            if error.code != "resourceNotReady":
                raise
            found = self.instance(instance_id)
            if found is not None and found.state is not InstanceState.TERMINATING:
                raise
        else:
            self._calls.operation_name(operation, "DELETE of an instance")

    def erase_user_data(self, instance_id: str) -> None:
        """Success also when the machine is gone. Metadata is written as a whole, with the fingerprint of what was read: a change of
        another client meanwhile is kept."""
        path = _path(instance_id)
        for tried in range(1, _TRIES + 1):
            try:
                entry = self._calls.send("GET", path)
                metadata = self._api.expect(entry.get("metadata"), dict, "GET of an instance", "metadata")
                items = self._api.expect(metadata.get("items", []), list, "GET of an instance", "items of metadata")
                kept = [item for item in items if not (isinstance(item, dict) and item.get("key") == USER_DATA)]
                if len(kept) == len(items):
                    return
                body = {"fingerprint": metadata.get("fingerprint"), "items": kept}
                call = f"POST {path}/setMetadata"
                operation = self._calls.send("POST", f"{path}/setMetadata", json=body, idempotent=True)
                failure = self._calls.follow(operation, instance_id.partition("/")[0], call, _FOLLOWED)
            except errors.NotFound as error:
                if is_absent(error, path):
                    return
                raise
            except errors.Conflict:
                if tried == _TRIES:
                    raise
                continue
            if failure is not None:
                raise failure
            return

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        """Labels are written as a whole, with the fingerprint of what was read."""
        path = _path(instance_id)
        if not path:
            raise errors.InvalidInput(f"gcp: {instance_id!r} is not an id of an instance.")
        zone, call = instance_id.partition("/")[0], "POST setLabels"
        for tried in range(1, _TRIES + 1):
            entry = self._calls.send("GET", path)
            have = self._api.expect(entry.get("labels") or {}, dict, "GET of an instance", "labels")
            body = {"labels": {**without_marks(have), **labels_of(marks)}, "labelFingerprint": entry.get("labelFingerprint")}
            try:
                operation = self._calls.send("POST", f"{path}/setLabels", json=body, idempotent=True)
            except errors.Conflict:
                if tried == _TRIES:
                    raise
                continue
            if (failure := self._calls.follow(operation, zone, call, _FOLLOWED)) is not None:
                raise failure
            return

    def extras(self) -> list[Extra]:
        return leftovers.unused(self._calls)

    def discard(self, extra: Extra) -> None:
        leftovers.discard(self._calls, extra)


def _path(instance_id: str) -> str:
    """Empty for what is not the id of a machine: there is none that has it."""
    zone, _slash, name = instance_id.partition("/")
    return f"/zones/{path_segment(zone, 'zone')}/instances/{path_segment(name, 'instance id')}" if zone and name else ""


def _contents(wanted: Wanted) -> str:
    """The text of the key file: given itself, or by its path, or found elsewhere."""
    given = ENTRY.option(wanted.task, ENTRY.key)
    path = ENTRY.option(wanted.task, "gcp_service_account_file")
    if given or not path:
        return ENTRY.credential(wanted)
    try:
        return pathlib.Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its content is not text"
        raise errors.InvalidInput(
            f"gcp: the service account's key file {path} cannot be read: {why}.",
            remedy="Give the path of a file that this user may read, on the machine where the module runs.",
            field="gcp_service_account_file",
        ) from error


def _connect(wanted: Wanted) -> GcpCloud:
    url = ENTRY.address(wanted.task, "gcp_api_url", "")
    contents = _contents(wanted)
    token_url = url or host_of(read_service_account(contents).token_uri)

    def dollars(name: str) -> dict[str, Decimal]:
        return {kind: Decimal(text) for kind, text in (wanted.setting(name) or {}).items()}

    return GcpCloud(
        contents,
        url=url,
        project=wanted.setting("project") or "",
        zones=wanted.setting("zones") or (),
        talos_image=wanted.setting("talosImage") or "",
        policy=wanted.setting("imagePolicy") or "",
        prices=PriceTable(dollars("prices"), dollars("spotPrices")),
        transport=wanted.task.transport(url or URL),
        token_transport=wanted.task.transport(token_url),
        clock=wanted.task.clock,
        warn=wanted.task.warn,
    )


def _images(wanted: Wanted, origin: ImageOrigin) -> GcpImages:
    task, url, account = wanted.task, ENTRY.address(wanted.task, "gcp_api_url", ""), read_service_account(_contents(wanted))
    token_url, project = url or host_of(account.token_uri), wanted.setting("project") or account.project
    calls = Calls(account, project, url or URL, token_url, task.transport(url or URL), task.clock, task.transport(token_url))
    bucket = None
    if origin.bucket:
        place = url or storage.URL
        bucket = storage.open_bucket(
            account, origin.bucket, place, token_url, task.transport(place), task.transport(token_url), task.clock
        )
    source = "/".join(read_source(origin.source)) if origin.source else ""
    return GcpImages(calls, project, bucket=bucket, source=source, archive_of=origin.archive_of, tell=origin.tell)


def _configured(task: Task) -> bool:
    return bool(ENTRY.option(task, ENTRY.key) or ENTRY.option(task, "gcp_service_account_file"))


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "gcp_api_url": text_option("GCP_API_URL"),
        "gcp_service_account_contents": text_option("GCP_SERVICE_ACCOUNT_CONTENTS", no_log=True),
        "gcp_service_account_file": text_option("GCP_SERVICE_ACCOUNT_FILE"),
    },
    key="gcp_service_account_contents",
    aliases=("google", "googlecloud", "gce"),
    settings=SETTINGS,
    regions=REGIONS,
    configured=_configured,
    longest_life=longest_life,
    images=_images,
    image_setting="talosImage",
)
