# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The create call of Vast.ai: its body, and what its failure means for the machine."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import typing as t
from decimal import ROUND_DOWN, Decimal

from ...core import errors
from ...model import Container, Lane, LaunchRequest
from ...planner.offers.requirements import gigabytes
from ..base import certainly_not_made, check_price, launch_error
from .records import MARKS, variable

VM_IMAGES = "docker.io/vastai/kvm:"
VM_IMAGE = f"{VM_IMAGES}ubuntu_terminal"
MESH_PORT = "-p 41641:41641/udp"  # lets devices of the mesh find a direct path
_SCRIPT_LIMIT = 4048  # characters of onstart and args together
_VALUE_LIMIT, _ENVIRONMENT_LIMIT = 256, 32_768
_LEAST_DISK = 8
_LABEL = re.compile(r"[A-Za-z0-9:_.-]{1,60}")
_CENTS = Decimal("0.000001")
_BID_RANGE = (Decimal("0.001"), Decimal(128))

_TOO_LATE = frozenset({408, 499})  # a proxy stopped waiting: the call may have had its effect

_CODES = {
    "no_such_ask": "conflict",
    "insufficient_credit": "balance",
    "spend_rate_limit": "balance",
    "missing_billing": "balance",
    "no_ssh_key_for_vm": "invalid",
    "invalid_args": "invalid",
    "invalid_price": "invalid",
}
_REMEDIES = {
    "no_ssh_key_for_vm": "Add an SSH key to the account (console.vast.ai, Account): Vast.ai starts virtual machines only with one.",
    "insufficient_credit": "Add credit to the account.",
    "spend_rate_limit": "New accounts may spend only so much per hour; ask Vast.ai to raise it, or rent less.",
    "missing_billing": "Add a payment method to the account.",
}


def refused(problem: str, reason: str = "invalid", remedy: str = "", **details: t.Any) -> errors.LaunchRefused:
    return errors.LaunchRefused(f"vast: {problem}.", reason=reason, remedy=remedy, cloud="vast", **details)


def body_of(request: LaunchRequest) -> dict[str, t.Any]:
    """The body, or LaunchRefused for what Vast.ai would refuse anyway (or worse, would not)."""
    offer = request.offer
    if not _LABEL.fullmatch(request.name):
        raise refused(f"{request.name!r} cannot be a label", remedy="Use at most 60 letters, digits, dashes, dots and colons.")
    check_price("vast", request)
    _check_host(request)
    special = _virtual_machine(request) if request.container is None else _container(request.container)
    own = special.pop("env")
    environment = {**own, **_stamp(request.marks, own)}
    _check_environment(environment)
    body = {
        "client_id": "me",
        "label": request.name,
        "disk": max(gigabytes(offer.disk_gib or 0), _LEAST_DISK),
        "env": environment,
        "target_state": "running",
        "cancel_unavail": True,  # else what cannot start now stays, stopped, and its disk is billed
        **special,
    }
    if offer.spot:
        body["price"] = _bid(request)
    return body


def _check_host(request: LaunchRequest) -> None:
    """A run searches once for all its classes; what one of them allows the others need not."""
    traits, settings = request.offer.traits, request.settings
    if traits.get("verified") == "false" and not settings.get("unverified"):
        raise refused(f"the host of offer {request.offer.id} is not verified, and the class does not say unverified", "conflict")
    if settings.get("datacenter") and traits.get("datacenter") == "false":
        raise refused(f"the host of offer {request.offer.id} is in no data centre", "conflict")


def _virtual_machine(request: LaunchRequest) -> dict[str, t.Any]:
    offer = request.offer
    if Lane.KUBELET not in offer.lanes:
        raise refused(f"offer {offer.id} has no virtual machines, and a container cannot become a node")
    script = request.user_data or ""
    if len(script) > _SCRIPT_LIMIT:
        raise refused(f"the start script has {len(script)} characters, Vast.ai takes {_SCRIPT_LIMIT}", remedy="Make it smaller.")
    if script and not script.startswith("#!"):
        raise refused("the start script does not begin with #!, so a virtual machine would not run it")
    ports = offer.traits.get("ports", "")
    own = {} if ports in ("0", "1") else {MESH_PORT: "1"}  # one port is taken by SSH
    image = request.settings.get("vmImage") or VM_IMAGE
    if not image.startswith(VM_IMAGES):
        raise refused(f"vmImage {image!r} cannot be started as a virtual machine", remedy=f"Take one of {VM_IMAGES}*.")
    body: dict[str, t.Any] = {"vm": True, "image": image, "runtype": "ssh_direct"}
    body["env"] = {**request.environment, **own}
    if script:
        body["onstart"] = script
    return body


def _container(wanted: Container) -> dict[str, t.Any]:
    """The command takes the place of the image's own start: ``onstart`` is what runs, ``args`` what it is given. Without a command the
    image starts as it was made. No port of it is opened to the world."""
    body: dict[str, t.Any] = {"image": wanted.image, "runtype": "args", "env": dict(wanted.environment)}
    if wanted.command:
        command = wanted.command
        if len(command) + len("/bin/sh-c") > _SCRIPT_LIMIT:
            packed = base64.b64encode(gzip.compress(command.encode(), 9, mtime=0)).decode()
            command = f"echo {shlex.quote(packed)} | base64 -d | gzip -dc >/tmp/tgp-start\nexec /bin/sh /tmp/tgp-start\n"
        if len(command) + len("/bin/sh-c") > _SCRIPT_LIMIT:
            raise refused(f"the container's command has {len(wanted.command)} characters and does not fit", remedy="Shorten it.")
        body |= {"onstart": "/bin/sh", "args": ["-c", command], "user": "root"}
    return body


def _stamp(marks: t.Mapping[str, str], given: t.Mapping[str, str]) -> dict[str, str]:
    """Marks as variables, and the list of them: what a copied label cannot have. Values are shortened to what Vast.ai takes. A variable
    that is ``given`` may say the same as a mark, and nothing else."""
    stamped: dict[str, str] = {}
    for key, value in sorted(marks.items()):
        if key.split() != [key] or variable(key) in (MARKS, *stamped) or given.get(variable(key), value) != value:
            raise refused(
                f"the mark {key!r} cannot be kept: {variable(key)} is not a distinct name", remedy="Give it another name."
            )
        stamped[variable(key)] = str(value)[:_VALUE_LIMIT]
    return {**stamped, MARKS: " ".join(sorted(marks))} if marks else {}


def _check_environment(environment: t.Mapping[str, str]) -> None:
    for name, value in environment.items():
        if max(len(name), len(value)) > _VALUE_LIMIT:
            raise refused(f"the variable {name[:60]} has {len(value)} characters, Vast.ai takes {_VALUE_LIMIT}")
    size = sum(len(name) + len(value) for name, value in environment.items())
    if size > _ENVIRONMENT_LIMIT:
        raise refused(f"the variables have {size} characters together, Vast.ai takes {_ENVIRONMENT_LIMIT}")


def _bid(request: LaunchRequest) -> float:
    """Dollars per hour for the machine without its disk, which is billed beside the bid."""
    offer = request.offer
    if offer.price_hour is None:
        raise refused(f"offer {offer.id} has no price to bid")
    bid = (offer.price_hour - offer.storage_price_hour).quantize(_CENTS, ROUND_DOWN)
    if not _BID_RANGE[0] <= bid <= _BID_RANGE[1]:
        raise refused(f"a bid of {bid} $/h is not possible", remedy="Vast.ai takes 0.001 to 128 $/h.")
    if offer.min_bid is not None and bid < offer.min_bid.quantize(_CENTS, ROUND_DOWN):
        raise refused(f"a bid of {bid} $/h is below the lowest that would win, {offer.min_bid} $/h", "capacity")
    return float(bid)


# ---- what a failure means


def outcome(error: errors.ApiError, name: str) -> errors.TgpError:
    """Refused for certain, refused but with a machine left behind that must be destroyed, or unknown."""
    body = error.body if isinstance(error.body, dict) else {}
    left = body.get("new_contract")
    if isinstance(left, int) and not isinstance(left, bool):
        return errors.LaunchRefused(
            f"{name} was not started, but instance {left} was left behind: {error.message}",
            reason="capacity",
            remedy="It has to be destroyed, because its disk is billed.",
            instance_id=str(left),
            cloud="vast",
            status=error.status,
            code=error.code,
        )
    reason = _reason(error, body)
    return launch_error("vast", name, error, reason, remedy=_REMEDIES.get(_code(error), ""))


def _code(error: errors.ApiError) -> str:
    """The code, or one that only the sentence holds ("error 404/3603: no_such_ask ...")."""
    words = error.message.lower()
    return next((code for code in _CODES if code in words and not code.startswith("invalid")), error.code or "")


def _reason(error: errors.ApiError, body: t.Mapping[str, t.Any]) -> str | None:
    if isinstance(error, errors.Unauthorized):
        return "auth"
    if certainly_not_made(error):
        return "rate"
    status = error.status or 0
    is_refusal = bool(body) and (status == 200 or 400 <= status < 500) and status not in _TOO_LATE
    if not is_refusal or isinstance(error, errors.BadShape):
        return None
    if isinstance(error, errors.Forbidden):
        return "auth"  # a right is missing; its code is that of a wrong request
    if reason := _CODES.get(_code(error)):
        return reason
    return "capacity" if status == 410 else "invalid"
