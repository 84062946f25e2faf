# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What RunPod is sent to make a pod, and what a refusal means."""

from __future__ import annotations

import re
import shlex
import typing as t

from ...core import errors
from ...model import LaunchRequest
from ...planner.offers.requirements import gigabytes
from ..base import certainly_not_made, check_price, check_settings, invalid_launch, launch_error
from .api import is_problem
from .records import COMMUNITY, SECURE, Kind, stamp

SETTINGS: dict[str, dict[str, t.Any]] = {
    "cloudTier": {
        "type": "string",
        "enum": [SECURE, COMMUNITY, "ANY"],
        "description": "where pods may run: RunPod's own data centres, other people's hosts, or both",
    },
    "image": {"type": "string", "minLength": 1, "description": "container image where the pool names none"},
    "registry": {"type": "string", "minLength": 1, "description": "id of the registry credential that pulls the image"},
    "minCudaVersion": {"type": "string", "pattern": r"^\d+\.\d+$", "description": "lowest CUDA version of the host"},
    "ports": {
        "type": "array",
        "items": {"type": "string", "pattern": r"^[0-9]{1,5}/(tcp|http)$"},
        "description": "ports to open to the world; none unless said",
    },
}
NO_SPOT = "RunPod sells no spot pods any more; take one on demand"
DISK_GIB = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_MOST_VARIABLES = 50
_ABOUT_THE_KEY = re.compile(r"(?i)read[ -]?only|api key|permission|scope")
_NO_CAPACITY = re.compile(r"(?i)does not have the resources to deploy|no (longer any )?instances (currently )?available")
_EXEC_FORM = re.compile(r"\b(entrypoint|cmd)\b")
_REASONS = {402: "balance", 404: "invalid", 405: "invalid", 409: "conflict", 410: "invalid", 415: "invalid", 422: "invalid"}


def pod_body(request: LaunchRequest, tiers: t.Collection[str]) -> dict[str, t.Any]:
    """The request, or LaunchRefused for what RunPod would refuse anyway (or worse, would not)."""
    offer, settings, container = request.offer, request.settings, request.container
    check_settings("runpod", "RunPod", request, SETTINGS)
    kind = Kind.read(offer.instance_type)
    if kind is None:
        raise invalid(f"{offer.instance_type!r} names no GPU, count and tier", "Take the offer from this cloud's own list.")
    if offer.spot:
        raise invalid(NO_SPOT, "Allow offers on demand.")
    if kind.tier not in tiers:
        raise invalid(f"{offer.id} is not in the tier that the class wants", "Change the setting cloudTier.")
    if request.user_data is not None or request.environment:
        raise invalid("a pod is a container and reads no user data", "Use lane service, or a cloud with virtual machines.")
    if not _NAME.fullmatch(request.name):
        raise invalid(f"{request.name!r} is not a host name", "Use at most 60 lower-case letters, digits and dashes.")
    image = (container.image if container else "") or settings.get("image")
    if not image:
        raise invalid("no image is named", "Name one in the pool's service, or in the setting image of the class.")
    check_price("runpod", request)
    variables = {**(container.environment if container else {}), **stamp(request.name, request.marks)}
    if len(variables) > _MOST_VARIABLES:
        raise invalid(f"{len(variables)} environment variables are too many, RunPod takes {_MOST_VARIABLES}", "Set fewer.")
    gpu: dict[str, t.Any] = {"id": kind.gpu, "count": kind.number}
    body: dict[str, t.Any] = {
        "name": request.name,
        "image": image,
        "cloud": kind.tier,
        "gpu": gpu,
        "disk": gigabytes(offer.disk_gib or DISK_GIB),
        "env": {key: str(value) for key, value in variables.items()},
        "ports": list(settings.get("ports") or []),
    }
    if settings.get("minCudaVersion"):
        gpu["minCudaVersion"] = settings["minCudaVersion"]
    if settings.get("registry"):
        body["registry"] = settings["registry"]
    if container and container.command:
        body |= {"entrypoint": ["/bin/sh", "-c"], "cmd": [container.command]}
    if kind.tier == SECURE and offer.cloud_region:
        body["dataCenterIds"] = [offer.cloud_region]  # never in the community tier: such a create fails even where there is stock
    return body


def as_text(body: dict[str, t.Any]) -> dict[str, t.Any]:
    """The same with the command as a text, which the API hands to the image's own entrypoint: one that runs its arguments, or none, becomes
    a shell with our script."""
    lists = (body.get("entrypoint") or [], body.get("cmd") or [])
    rest = {key: value for key, value in body.items() if key not in ("entrypoint", "cmd")}
    return {**rest, "args": shlex.join(word for words in lists for word in words)} if any(lists) else rest


def has_no_exec_form(error: errors.ApiError) -> bool:
    """Whether the API knows ``args`` alone. A body that fails its schema makes nothing, so it may be sent anew."""
    return error.status == 422 and is_problem(error) and _EXEC_FORM.search(error.message) is not None


def outcome(error: errors.ApiError, request: LaunchRequest, *, may_do_nothing: t.Callable[[], bool]) -> errors.TgpError:
    """What a failed create means: refused for certain, or unknown. A 400 is a broken rule or no capacity, nobody can tell which: it is
    capacity, and its text is kept for the day on which every candidate says so. A 500 is capacity only when its text says so.
    ``may_do_nothing`` finds out whether the key is forbidden everything."""
    reason = None
    if isinstance(error, errors.Unauthorized):
        reason = "auth"
    elif isinstance(error, errors.Forbidden):
        reason, error = _forbidden(error, may_do_nothing)
    elif certainly_not_made(error):
        reason = "rate"
    elif (error.status == 400 and is_problem(error)) or _is_full(error):
        reason = "capacity"
    elif error.status == 402 or (error.status in _REASONS and is_problem(error)):
        reason = _REASONS[error.status]
    return launch_error("runpod", request.name, error, reason)


def _is_full(error: errors.ApiError) -> bool:
    """A failure of RunPod whose text is lack of capacity."""
    return error.status == 500 and isinstance(error.body, dict) and _NO_CAPACITY.search(error.message) is not None


def _forbidden(error: errors.Forbidden, may_do_nothing: t.Callable[[], bool]) -> tuple[str, errors.ApiError]:
    """403: this GPU or data centre is not for this account, and the next may be; or the key may create nothing at all."""
    if not is_problem(error):
        return "auth", error
    nothing = bool(_ABOUT_THE_KEY.search(error.message)) or may_do_nothing()
    meaning = "The API key may create no pods at all." if nothing else "This account may not use that GPU or data centre."
    remedy = "Make a key with write access to pods in the RunPod console." if nothing else ""
    refusal = errors.Forbidden(f"{error.message} {meaning}", remedy=remedy, service=error.service, status=error.status)
    return ("auth" if nothing else "capacity"), refusal


def invalid(problem: str, remedy: str) -> errors.LaunchRefused:
    return invalid_launch("runpod", problem, remedy)
