# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda Cloud, API version 1.10 (https://cloud.lambda.ai/api/v1).

What is peculiar: types come as a dict with the regions that have capacity now; money is cents for the whole machine; one
machine per launch call and one launch per 12 s; names are not unique; tags can be set at launch only and are the one place for
a creation time; a 404 proves absence only with the code for it (a wrong address answers 404 too).
"""

from __future__ import annotations

import re
import typing as t

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...core.http import Api, path_segment
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy
from ...model import Capability, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, StateFacts, Volume
from ...model.labels import PREFIX
from ..base import (
    EVERYTHING,
    CloudCheck,
    Entry,
    LaunchTurn,
    NothingBeside,
    Wanted,
    Warn,
    certainly_not_made,
    check_price,
    check_settings,
    invalid_launch,
    launch_error,
    mounts_of,
    once,
    readable,
    silent,
    text_option,
)
from .records import REGIONS, to_instance, to_offers, to_volume

if t.TYPE_CHECKING:
    import httpx

URL = "https://cloud.lambda.ai"
# Virtual machines with stock Ubuntu and cloud-init; no image, ISO or network boot of one's own, so no Talos by itself.
FACTS = Capability(
    cloud="lambda",
    lanes=(Lane.KUBELET,),
    tags=True,
    stamped=True,
    created_time=True,  # our own tag
    user_data_limit=1_000_000,
    registration_timeout=1800,
    list_delay=60,
    billing_granularity=60,
    billed_until_gone=False,  # "until terminate"
    states={
        "booting": StateFacts(InstanceState.PENDING, True),
        "active": StateFacts(InstanceState.RUNNING, True),
        "unhealthy": StateFacts(InstanceState.RUNNING, True),
        "terminating": StateFacts(InstanceState.TERMINATING, False),
        "terminated": StateFacts(InstanceState.TERMINATED, False),
        # Lambda ended it, but nothing says that the bill ended too: it still has to be destroyed.
        "preempted": StateFacts(InstanceState.FAILED, True),
    },
    credential_env=("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY"),
    lane_reason="its machines boot stock Ubuntu; no image, ISO or network boot of one's own",
    login="ubuntu",
    restamps=("name",),  # tags can be set at launch only
    volumes=10,  # file systems; no bound is documented, this one is ours
    volume_paths=r"(/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*",
)
SETTINGS: dict[str, dict[str, t.Any]] = {
    "sshKey": {"type": "string", "minLength": 1, "description": "name of an SSH key of the account"},
    "imageFamily": {"type": "string", "minLength": 1, "description": "family of the operating system image"},
}

_API = "/api/v1"
LIMITS = {"": Bucket(1.0), "launch": Bucket(12.0, also=""), "queued": Bucket(0.0)}  # queued: its turn was waited for already
_LAUNCH_TIMEOUT = 120.0
_ADD_KEY = "Add one in the Lambda console."
_GONE = "global/object-does-not-exist"
_AGAIN = "global/unknown"  # what a second terminate of a machine that is ending may be answered
_REFUSALS = {
    "instance-operations/launch/insufficient-capacity": "capacity",
    "global/quota-exceeded": "quota",
    "global/invalid-api-key": "auth",
    "global/account-inactive": "auth",
    "global/invalid-address": "auth",
    "global/forbidden": "auth",
    "global/conflict": "conflict",
    "global/duplicate": "conflict",
}
_HOSTNAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class LambdaCloud(NothingBeside):
    """One account (API key). ``clock`` also dates the machines it makes. ``ssh_key``: the name that launches are going to use, "" = the
    only one of the account; it matters to ``check`` alone."""

    facts = FACTS

    def __init__(
        self,
        key: str,
        *,
        url: str = URL,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        ssh_key: str = "",
        warn: Warn = silent,
    ) -> None:
        redact.register(key)
        self._wanted_key, self._warn = ssh_key, once(warn)
        self._clock = clock or SystemClock()
        self._ssh_key: str | None = None
        self._volumes: list[Volume] | None = None
        self._api = Api(
            "lambda",
            url,
            headers={"authorization": f"Bearer {key}"},
            transport=transport,
            timeout=60.0,
            rate_limiter=RateLimiter(f"lambda {url} {key}", LIMITS),
            retry=RetryPolicy(tries=6, first=4.0, longest=60.0, deadline=150.0),
            clock=self._clock,
            auth_hint="Check LAMBDA_API_KEY (or the option lambda_api_key); keys are made in the Lambda console.",
        )
        self._turn = LaunchTurn(self._api, "launch")

    @property
    def api(self) -> Api:
        """The connection with its credential and pace, for questions that this client does not ask (verify/)."""
        return self._api

    def check(self) -> CloudCheck:
        count, names = len(self.instances()), self._ssh_keys()
        if not names:
            raise errors.InvalidInput("lambda: the account has no SSH key, and no launch goes without.", remedy=_ADD_KEY)
        if self._wanted_key and self._wanted_key not in names:
            raise errors.InvalidInput(
                f"lambda: the account has no SSH key {self._wanted_key}, but {', '.join(names)}.",
                remedy="Correct the setting sshKey.",
            )
        warnings: tuple[str, ...] = ()
        if not self._wanted_key and len(names) > 1:
            warnings = (f"lambda: the account has {len(names)} SSH keys ({', '.join(names)}); launches need the setting sshKey.",)
        return CloudCheck(
            f"lambda: the API key is accepted; the account has {count} instance{'' if count == 1 else 's'}.", warnings
        )

    def _ssh_keys(self) -> list[str]:
        keys = self._data("/ssh-keys", list, "GET ssh-keys")
        return sorted({key["name"] for key in keys if isinstance(key, dict) and isinstance(key.get("name"), str)})

    def close(self) -> None:
        self._api.close()

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        operation = "GET instance-types"
        types = self._data("/instance-types", dict, operation)
        now = self._clock.now()

        def read(name: str) -> list[Offer]:
            return list(to_offers(self._api, types[name], operation, FACTS.lanes, now))

        return [offer for offers in readable("lambda", sorted(types), read, self._warn) for offer in offers]

    def instances(self) -> list[Instance]:
        return [to_instance(self._api, entry, "GET instances", FACTS) for entry in self._data("/instances", list, "GET instances")]

    def instance(self, instance_id: str) -> Instance | None:
        try:
            return to_instance(self._api, self._data(f"/instances/{instance_id}", dict, "GET instance"), "GET instance", FACTS)
        except errors.NotFound as error:
            if error.code == _GONE:
                return None
            raise

    def volumes(self) -> list[Volume]:
        operation = "GET file-systems"
        return [to_volume(self._api, entry, operation) for entry in self._data("/file-systems", list, operation)]

    def console(self, instance_id: str) -> str | None:
        return None

    def _data(self, path: str, kind: type, operation: str) -> t.Any:
        answer = self._api.expect(self._api.get(_API + path), dict, operation)
        return self._api.expect(answer.get("data"), kind, operation, "data")

    # ---- writing

    def queue(self) -> None:
        self._turn.wait()

    def launch(self, request: LaunchRequest) -> str:
        body = self._launch_body(request)
        operation = "POST instance-operations/launch"
        bucket = self._turn.spend()
        try:
            answer = self._api.call("POST", f"{_API}/instance-operations/launch", json=body, pace=bucket, timeout=_LAUNCH_TIMEOUT)
            data = self._api.expect(self._api.expect(answer.json, dict, operation).get("data"), dict, operation, "data")
            ids = self._api.expect(data.get("instance_ids"), list, operation, "data.instance_ids")
            if not ids or not isinstance(ids[0], str) or not ids[0]:
                raise self._api.bad_shape(operation, "it names no instance id")
            return ids[0]
        except errors.ApiError as error:
            raise _outcome(error, request) from error

    def _launch_body(self, request: LaunchRequest) -> dict[str, t.Any]:
        """The request, or LaunchRefused for what Lambda would refuse anyway (or worse, would not)."""
        offer, settings = request.offer, request.settings
        check_settings("lambda", "Lambda", request, SETTINGS)
        if not _HOSTNAME.fullmatch(request.name):
            raise _invalid(f"{request.name!r} is not a host name", "Use at most 63 lower-case letters, digits and dashes.")
        if not offer.cloud_region:
            raise _refused(f"lambda: {offer.instance_type} is sold out in every region.", "capacity")
        check_price("lambda", request)
        if request.user_data is not None and len(request.user_data.encode()) > (FACTS.user_data_limit or 0):
            size = len(request.user_data.encode())
            raise _invalid(f"the user data has {size} bytes, Lambda takes {FACTS.user_data_limit}", "Make the payload smaller.")
        body: dict[str, t.Any] = {
            "region_name": offer.cloud_region,
            "instance_type_name": offer.instance_type,
            "ssh_key_names": [settings.get("sshKey") or self._only_ssh_key(request)],
            "name": request.name,
            "hostname": request.name,
            "image": {"family": settings.get("imageFamily") or default_image_family(offer)},
            "tags": _tags({"created": str(int(self._clock.now().timestamp())), **request.marks}),
        }
        if request.user_data is not None:
            body["user_data"] = request.user_data
        if mounts := self._mounts(request):
            body["file_system_names"] = [volume.name for volume, _path in mounts]
            body["file_system_mounts"] = [{"mount_point": path, "file_system_id": volume.id} for volume, path in mounts]
        return body

    def _known_volumes(self) -> list[Volume]:
        """The list as of the first launch of this client: each call takes a second of its pace, and a launch checks the ids again."""
        if self._volumes is None:
            self._volumes = self.volumes()
        return self._volumes

    def _mounts(self, request: LaunchRequest) -> list[tuple[Volume, str]]:
        """The file systems of the request; nothing is sent while they cannot be read."""
        try:
            return mounts_of("lambda", request, self._known_volumes)
        except errors.ApiError as error:
            raise _outcome(error, request, sent=False) from error

    def _only_ssh_key(self, request: LaunchRequest) -> str:
        """Lambda wants exactly one key by name; when the account has just one there is nothing to ask."""
        if self._ssh_key is None:
            try:
                names = self._ssh_keys()
            except errors.ApiError as error:
                raise _outcome(error, request, sent=False) from error
            if len(names) != 1:
                has = f"has {len(names)} SSH keys ({', '.join(names)})" if names else "has no SSH key"
                raise _invalid(
                    f"a launch names exactly one SSH key and the account {has}",
                    _ADD_KEY if not names else "Say which: setting sshKey of the class, option ssh_key.",
                )
            self._ssh_key = names[0]
        return self._ssh_key

    def terminate(self, instance_id: str) -> None:
        operation = "POST instance-operations/terminate"
        try:
            answer = self._api.call(
                "POST", f"{_API}/instance-operations/terminate", json={"instance_ids": [instance_id]}, idempotent=True
            )
        except errors.ApiError as error:
            if error.code == _GONE and isinstance(error, errors.NotFound):
                return
            if error.code == _AGAIN and self._is_ending(instance_id):
                return
            raise
        self._api.expect(self._api.expect(answer.json, dict, operation).get("data"), dict, operation, "data")

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        operation = "POST instance"
        answer = self._api.call(
            "POST", f"{_API}/instances/{path_segment(instance_id, 'instance id')}", json={"name": name}, idempotent=True
        )
        self._api.expect(self._api.expect(answer.json, dict, operation).get("data"), dict, operation, "data")

    def _is_ending(self, instance_id: str) -> bool:
        """Whether a machine whose end was asked for before is gone or on its way."""
        seen = self.instance(instance_id)
        return seen is None or seen.state in (InstanceState.TERMINATING, InstanceState.TERMINATED)


def default_image_family(offer: Offer) -> str:
    """Driver and container toolkit on plain Ubuntu; the two kinds of machine for which Lambda has no such image get
    its own stack."""
    if offer.arch == "arm64":
        return "lambda-stack-24-04"
    return "lambda-stack-legacy-22-04" if offer.model.startswith("V100") else "gpu-base-24-04"


def _tags(marks: t.Mapping[str, str]) -> list[dict[str, str]]:
    """Marks as tags ``tgp:<word>``; keys may hold lower-case letters, digits, dashes and colons only."""
    tags = []
    for key, value in sorted(marks.items()):
        word = re.sub(r"[^a-z0-9-]", "-", key.lower().removeprefix(PREFIX).removeprefix("tgp:"))
        tags.append({"key": f"tgp:{word}"[:55], "value": str(value)[:128]})
    return tags


def _refused(message: str, reason: str, remedy: str = "", **details: t.Any) -> errors.LaunchRefused:
    return errors.LaunchRefused(message, reason=reason, remedy=remedy, cloud="lambda", **details)


def _invalid(problem: str, remedy: str) -> errors.LaunchRefused:
    return invalid_launch("lambda", problem, remedy)


def _outcome(error: errors.ApiError, request: LaunchRequest, *, sent: bool = True) -> errors.TgpError:
    """What a failed call means for the machine: refused for certain, or unknown.

    ``sent`` False: only something before the create call failed, so nothing can have been made. A cloud that takes no calls now
    (429, or unreachable) is reason rate.
    """
    code = error.code or ""
    reason = _REFUSALS.get(code)
    if reason is None and isinstance(error, (errors.Unauthorized, errors.Forbidden)):
        reason = "auth"
    elif certainly_not_made(error) or reason is None and not sent:
        reason = "rate"
    elif reason is None and error.status is not None and 400 <= error.status < 500 and code and not _upstream(code):
        reason = "invalid"
    return launch_error("lambda", request.name, error, reason)


def _upstream(code: str) -> bool:
    """Codes from layers behind the API: an outage there may have made the machine."""
    return code.startswith("provider/") or code in ("global/internal-error", "global/unknown")


def _connect(wanted: Wanted) -> LambdaCloud:
    url = ENTRY.address(wanted.task, "lambda_api_url", URL)
    key, clock = ENTRY.credential(wanted), wanted.task.clock
    ssh_key, transport = wanted.setting("sshKey") or "", wanted.task.transport(url)
    return LambdaCloud(key, url=url, transport=transport, clock=clock, ssh_key=ssh_key, warn=wanted.task.warn)


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "lambda_api_url": text_option("LAMBDA_API_URL"),
        "lambda_api_key": text_option("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY", no_log=True),
    },
    key="lambda_api_key",
    aliases=("lambdalabs", "lambdacloud", "lambdaai"),
    settings=SETTINGS,
    regions=REGIONS,
)
