# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Paperspace is sent to make a machine, and what a refusal means."""

from __future__ import annotations

import hashlib
import re
import typing as t

from ...core import errors
from ...model import LaunchRequest
from ..base import certainly_not_made, check_price, check_settings, invalid_launch, launch_error
from .api import answered
from .records import Template
from .types import NVLINK, disk_step, short_region

SCRIPT_LIMIT = 16_000
SETTINGS: dict[str, dict[str, t.Any]] = {
    "templateId": {"type": "string", "minLength": 1, "description": "id of the operating system template, also one of your own"},
    "region": {"type": "string", "enum": ["ny2", "ca1", "ams1"], "description": "the one region to rent in"},
    "network": {
        "type": "string",
        "minLength": 1,
        "description": "'own': each machine gets a private network; or the id of one there is",
    },
    "publicIp": {"type": "string", "enum": ["dynamic", "none"], "description": "whether machines get a public address"},
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SYSTEMS = ("ubuntu 22.04", "ubuntu 24.04", "ubuntu")  # best first
_WORDS = (
    ("capacity", re.compile(r"(?i)capacity|out of stock|unavailable")),
    ("balance", re.compile(r"(?i)payment|billing|good standing")),
    ("quota", re.compile(r"(?i)\blimit|quota")),
)
_REASONS = {400: "invalid", 403: "auth", 404: "invalid", 405: "invalid", 409: "conflict", 412: "invalid", 413: "invalid"}


def check_request(request: LaunchRequest) -> None:
    """LaunchRefused for what Paperspace would refuse anyway (or worse, would not)."""
    offer, settings = request.offer, request.settings
    check_settings("paperspace", "Paperspace", request, SETTINGS)
    if request.container is not None or request.environment:
        raise invalid("a machine takes a startup script only, no container and no variables", "Use lane kubelet.")
    if not _NAME.fullmatch(request.name):
        raise invalid(f"{request.name!r} is not a host name", "Use at most 63 lower-case letters, digits and dashes.")
    if offer.spot:
        raise invalid("it sells no spot machines", "Allow offers on demand.")
    if settings.get("region") and short_region(offer.cloud_region) != settings["region"]:
        raise invalid(f"{offer.id} is not in the region {settings['region']} that the class wants", "Change the setting region.")
    check_price("paperspace", request)
    size = len((request.user_data or "").encode())
    if size > SCRIPT_LIMIT:
        raise invalid(f"the startup script has {size} bytes, Paperspace takes {SCRIPT_LIMIT}", "Make the payload smaller.")
    if disk_step(offer.disk_gib or 1) is None:
        raise invalid(f"a disk of {offer.disk_gib} GiB is larger than any it sells", "Ask for less.")


def machine_body(request: LaunchRequest, template: str, script: str | None, network: str | None) -> dict[str, t.Any]:
    """``template``, ``script`` and ``network`` are ids."""
    offer = request.offer
    body: dict[str, t.Any] = {
        "name": request.name,
        "machineType": offer.instance_type,
        "templateId": template,
        "region": short_region(offer.cloud_region),
        "diskSize": disk_step(offer.disk_gib or 1),
        "publicIpType": request.settings.get("publicIp") or "dynamic",  # a static one outlives its machine
        "startOnCreate": True,
        "emailPassword": False,
    }
    if script:
        body["startupScriptId"] = script
    if network:
        body["networkId"] = network
    if offer.instance_type in NVLINK:
        body["enableNvlink"] = True
    return body


def choose_template(templates: t.Iterable[Template], label: str) -> Template | None:
    """A Linux server of the provider's that fits the type: Ubuntu 22.04 before newer and older ones."""
    fitting = [
        template
        for template in templates
        if template.agent == "LinuxHeadless" and template.fits is not None and label in template.fits
    ]

    def rank(template: Template) -> tuple[int, int, str]:
        text = f"{template.system} {template.name}".lower()
        place = next((number for number, word in enumerate(_SYSTEMS) if word in text), len(_SYSTEMS))
        return place, len(template.fits or ()), template.name  # made for this type before made for all

    return min(fitting, key=rank, default=None)


def script_name(machine: str, text: str) -> str:
    """The text is never returned, so its hash stands in the name."""
    return f"{machine}.tgp-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def network_name(machine: str) -> str:
    return f"{machine}.tgp"


def outcome(error: errors.ApiError, request: LaunchRequest, *, sent: bool) -> errors.TgpError:
    """What a failed call means for the machine: refused for certain, or unknown. There are no codes for capacity, quota or money: status
    first, then words. ``sent`` False: only something before the create call failed, so nothing can have been made."""
    reason = None
    if isinstance(error, errors.Unauthorized) or (isinstance(error, errors.Forbidden) and not answered(error)):
        reason = "auth"
    elif certainly_not_made(error):
        reason = "rate"
    elif error.status in _REASONS and answered(error):
        reason = next((word for word, pattern in _WORDS if pattern.search(_own_words(error))), _REASONS[error.status])
    elif not sent:
        reason = "rate"
    return launch_error("paperspace", request.name, error, reason)


def _own_words(error: errors.ApiError) -> str:
    return str(error.body.get("message") or "") if isinstance(error.body, dict) else ""


def invalid(problem: str, remedy: str) -> errors.LaunchRefused:
    return invalid_launch("paperspace", problem, remedy)
