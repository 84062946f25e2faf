# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod pods, REST API v2 (https://api.runpod.io/v2).

What is peculiar: pods are unprivileged containers; the catalogue's prices are per GPU; 400 means a broken rule or no capacity; there are no
tags, so name and a stamp in the environment say whose a pod is; a new pod may be "not found" by its id for a while although it is listed.
"""

from __future__ import annotations

import json
import time
import typing as t
from datetime import datetime, timedelta

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...core.http import Answer, Api
from ...model import Capability, Charge, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts, Volume
from ..base import (
    EVERYTHING,
    CloudCheck,
    Entry,
    LaunchTurn,
    NothingBeside,
    Wanted,
    Warn,
    launch_error,
    mounts_of,
    once,
    readable,
    silent,
    text_option,
)
from .api import Calls, is_problem
from .launch import SETTINGS, as_text, has_no_exec_form, outcome, pod_body
from .records import COMMUNITY, REGIONS, SECURE, USUAL_COUNTS, to_charge, to_instance, to_offers, to_volume

if t.TYPE_CHECKING:
    import httpx


URL = "https://api.runpod.io"
FACTS = Capability(
    cloud="runpod",
    lanes=(Lane.SERVICE,),
    stop=True,
    tags=True,  # variables of the pod's environment
    stamped=True,
    created_time=True,
    tells_start=True,
    charges_lag=3600,  # bills are settled about every five minutes
    registration_timeout=1200,
    list_delay=120,
    states={
        "PROVISIONING": StateFacts(InstanceState.PENDING, True),
        "STARTING": StateFacts(InstanceState.PENDING, True),
        "RUNNING": StateFacts(InstanceState.RUNNING, True),
        "EXITED": StateFacts(InstanceState.STOPPED, True),  # its disk
        "ERROR": StateFacts(InstanceState.FAILED, True),
        "TERMINATED": StateFacts(InstanceState.TERMINATED, False),
    },
    credential_env=("RUNPOD_API_KEY",),
    volumes=1,
    lane_reason="pods are unprivileged containers and cannot be Kubernetes nodes",
)
_LAUNCH_TIMEOUT = 90.0
_SHY = timedelta(seconds=120)  # a new pod may be unknown by its id for so long
_SHY_PAUSE = 10.0
_MOST_COUNTS = 4  # different counts that are asked for one by one


class RunpodCloud(NothingBeside):
    """One account (API key). ``tiers``: SECURE, COMMUNITY or both."""

    facts = FACTS

    def __init__(
        self,
        key: str,
        *,
        url: str = URL,
        tiers: t.Sequence[str] = (SECURE, COMMUNITY),
        min_cuda: str = "",
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        warn: Warn = silent,
    ) -> None:
        redact.register(key)
        self._clock = clock or SystemClock()
        self._tiers, self._min_cuda = tuple(tiers), min_cuda
        self._warn = once(warn)
        self._exec_form = True
        self._young: dict[str, datetime] = {}
        self._calls = Calls(key, url, transport, self._clock)
        self._api = self._calls.api
        self._turn = LaunchTurn(self._api)

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api

    def check(self) -> CloudCheck:
        count = len(self.instances())
        api, operation = self._api, "GET /catalog/gpus"
        api.expect(self._calls.get("/catalog/gpus").get("gpus"), list, operation, "gpus")
        pods = f"{count} pod{'' if count == 1 else 's'}"
        return CloudCheck(f"runpod: the API key is accepted; the account has {pods}. Its balance is shown in the console only.")

    def close(self) -> None:
        self._api.close()

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        """Asked once per tier; for a few desired counts once for each, because stock depends on the count."""
        if query.spot is True or (query.lanes and not set(query.lanes) & set(FACTS.lanes)):
            return []
        desired = tuple(dict.fromkeys(count for count in query.gpu_counts if count > 0))
        if query.gpu_counts and not desired:
            return []
        asked = [(count,) for count in desired] if 0 < len(desired) <= _MOST_COUNTS else [tuple(sorted(desired)) or USUAL_COUNTS]
        return [offer for tier in self._tiers for counts in asked for offer in self._catalogue(tier, counts, query.disk_gib)]

    def _catalogue(self, tier: str, counts: tuple[int, ...], disk_gib: int) -> list[Offer]:
        operation = "GET /catalog/gpus"
        params: dict[str, t.Any] = {"include": "AVAILABILITY", "product": "POD", "cloud": tier, "count": counts[0]}
        if self._min_cuda:
            params["minCudaVersion"] = self._min_cuda
        answer = self._calls.get("/catalog/gpus", **params)
        now = self._clock.now()

        def read(entry: t.Any) -> list[Offer]:
            return list(to_offers(self._api, entry, operation, tier, counts, disk_gib=disk_gib, facts=FACTS, now=now))

        listed = self._api.expect(answer.get("gpus"), list, operation, "gpus")
        return [offer for offers in readable("runpod", listed, read, self._warn) for offer in offers]

    def instances(self) -> list[Instance]:
        """One that two pages show, because others came or went meanwhile, is one pod and not its own duplicate."""
        instances = (to_instance(self._api, entry, "GET /pods", FACTS) for entry in self._calls.pages("/pods", "pods"))
        return list({instance.id: instance for instance in instances}.values())

    def instance(self, instance_id: str) -> Instance | None:
        """A 404 counts when the list does not have it either; of a pod made a moment ago only once it is old enough to be found."""
        while True:
            instance = self._by_id(instance_id) or self._in_list(instance_id)
            if instance is not None or not self._is_young(instance_id):
                return instance
            self._clock.sleep(_SHY_PAUSE)

    def _by_id(self, instance_id: str) -> Instance | None:
        try:
            entry = self._calls.get(f"/pods/{instance_id}")
        except errors.NotFound as error:
            if is_problem(error):
                return None
            raise
        return to_instance(self._api, entry, "GET /pods/{id}", FACTS)

    def _in_list(self, instance_id: str) -> Instance | None:
        return next((instance for instance in self.instances() if instance.id == instance_id), None)

    def _is_young(self, instance_id: str) -> bool:
        made = self._young.get(instance_id)
        return made is not None and self._clock.now() - made < _SHY

    def volumes(self) -> list[Volume]:
        operation = "GET /network-volumes"
        return [to_volume(self._api, entry, operation) for entry in self._calls.pages("/network-volumes", "networkVolumes")]

    def charges(self, since: datetime, until: datetime) -> list[Charge]:
        """Of each pod and day (UTC), ended ones included. The API wants both ends of the time."""
        operation = "GET /billing/pods"
        times = {name: moment.strftime("%Y-%m-%dT%H:%M:%SZ") for name, moment in (("startTime", since), ("endTime", until))}
        answer = self._calls.get("/billing/pods", **times, bucketSize="day")
        records = self._api.expect(answer.get("records"), list, operation, "records")
        return [to_charge(self._api, record, operation) for record in records]

    def console(self, instance_id: str) -> str | None:
        return read_log(self._api, f"/v2/pods/{instance_id}/logs")

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        body = pod_body(request, self._tiers)
        try:
            mounts = mounts_of("runpod", request, self.volumes)
        except errors.ApiError as error:
            raise launch_error(
                "runpod", request.name, error, "auth" if isinstance(error, errors.Unauthorized) else "rate"
            ) from error
        if mounts:
            body["mounts"] = {"network": [{"volumeId": volume.id, "path": path} for volume, path in mounts]}
        bucket = self._turn.spend()
        try:
            answer = self._create(body, bucket)
            operation = "POST /pods"
            made = self._api.expect(self._api.expect(answer.json, dict, operation).get("id"), str, operation, "id")
            if not made:
                raise self._api.bad_shape(operation, "it names no pod id")
        except errors.ApiError as error:
            raise outcome(error, request, may_do_nothing=self._is_forbidden_everything) from error
        self._young[made] = self._clock.now()
        return t.cast(str, made)

    def _create(self, body: dict[str, t.Any], bucket: str) -> Answer:
        """Where the API does not take the exec form of a command, the same command is sent as a text, from then on at once."""
        exec_form = self._exec_form  # launches beside this one may change it meanwhile
        try:
            sent = body if exec_form else as_text(body)
            return self._calls.send("POST", "/pods", json=sent, pace=bucket, timeout=_LAUNCH_TIMEOUT)
        except errors.ApiError as error:
            if not exec_form or not has_no_exec_form(error):
                raise
        self._exec_form = False
        return self._calls.send("POST", "/pods", json=as_text(body), timeout=_LAUNCH_TIMEOUT)

    def _is_forbidden_everything(self) -> bool:
        try:
            self._calls.get("/pods")
        except errors.Forbidden:
            return True
        except errors.ApiError:
            return False  # nothing is learned; the candidate alone is given up
        return False

    def terminate(self, instance_id: str) -> None:
        """A second 404 is success; one for a pod that is still listed, or was made a moment ago, is not believed."""
        while True:
            try:
                answer = self._calls.send("DELETE", f"/pods/{instance_id}", idempotent=True)
                if answer.status != 204 and not isinstance(answer.json, dict):
                    raise self._calls.api.bad_shape("DELETE pod", "it is neither empty nor about a pod")
                self._young.pop(instance_id, None)
                return
            except errors.NotFound as error:
                if not is_problem(error):
                    raise
                listed = self._in_list(instance_id)
                young = self._is_young(instance_id) or (
                    listed is not None and listed.created is not None and self._clock.now() - listed.created < 2 * _SHY
                )
                if listed is None and not young:
                    return
                if not young:
                    raise
            self._clock.sleep(_SHY_PAUSE)


def _connect(wanted: Wanted) -> RunpodCloud:
    url = ENTRY.address(wanted.task, "runpod_api_url", URL)
    tier = wanted.setting("cloudTier") or "ANY"
    return RunpodCloud(
        ENTRY.credential(wanted),
        url=url,
        tiers=(SECURE, COMMUNITY) if tier == "ANY" else (tier,),
        min_cuda=wanted.setting("minCudaVersion") or "",
        transport=wanted.task.transport(url),
        clock=wanted.task.clock,
        warn=wanted.task.warn,
    )


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "runpod_api_url": text_option("RUNPOD_API_URL"),
        "runpod_api_key": text_option("RUNPOD_API_KEY", no_log=True),
    },
    key="runpod_api_key",
    aliases=("runpodio",),
    settings=SETTINGS,
    regions=REGIONS,
)


# ---- the log of a pod: server-sent events that may never end, so reading ends with the lines asked for or with silence

_LINES = 200
_SILENCE = 5.0  # real seconds
_LONGEST = 15.0


def read_log(api: Api, path: str) -> str | None:
    """What the platform said (image pull, start), then what the container printed; None when the pod is not found."""
    try:
        lines = [line for source in ("system", "container") for line in _tail(api, path, source)]
    except errors.NotFound:
        return None
    return "\n".join(lines)


def _tail(api: Api, path: str, source: str) -> list[str]:
    started, lines = time.monotonic(), list[str]()
    opened = False
    try:
        with api.stream(path, params={"source": source, "tail": _LINES}, timeout=_SILENCE) as events:
            opened = True
            for event in events:
                if event.startswith("data:"):
                    lines.append(_text(event.removeprefix("data:").strip()))
                if len(lines) >= _LINES or time.monotonic() - started > _LONGEST:
                    break
    except errors.LostAnswer:
        if not opened:
            raise  # once it is open, silence is its end
    return lines


def _text(data: str) -> str:
    """``{"source", "line", "ts"}`` as a line; what is none of these stands as it is."""
    try:
        event = json.loads(data)
    except ValueError:
        return data
    if not isinstance(event, dict) or "line" not in event:
        return data
    return f"{event.get('ts') or ''} {event['line']}".strip()
