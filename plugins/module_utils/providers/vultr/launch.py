# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Vultr is sent to make a machine, and what a refusal means."""

from __future__ import annotations

import base64
import re
import typing as t

from ...core import errors
from ...model import LaunchRequest
from ..base import certainly_not_made, check_price, check_settings, check_talos_image, invalid_launch, launch_error
from ..disk_images import POLICY_SETTING
from .api import answered, own_words
from .plans import gpus_of
from .records import tags_of

USER_DATA_LIMIT = 65_535  # ours: Vultr publishes none
DEFAULT_OS = "Ubuntu 24.04 LTS x64"
SETTINGS: dict[str, dict[str, t.Any]] = {
    "os": {"type": "string", "minLength": 1, "description": "name of the operating system for lane kubelet, as GET /v2/os has it"},
    "snapshotId": {
        "type": "string",
        "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "description": "id of a snapshot of the account with Talos, for lane talos",
    },
    "imagePolicy": POLICY_SETTING,
    "regions": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "pattern": "^[a-z]{3}$"},
        "description": "the regions to rent in, as Vultr names them",
    },
    "firewallGroup": {
        "type": "string",
        "minLength": 1,
        "description": "'own': one group per cluster that lets nothing in; 'none'; or the id of a group of the account",
    },
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_WORDS = (
    ("balance", re.compile(r"(?i)spending limit|payment|billing|balance|funds")),
    ("quota", re.compile(r"(?i)maximum number|\bquota|limit")),
    ("capacity", re.compile(r"(?i)sold out|out of stock|capacity|not (currently )?available in|unavailable")),
)
_REASONS = {
    400: "invalid",
    402: "balance",
    404: "invalid",
    405: "invalid",
    409: "conflict",
    412: "invalid",
    413: "invalid",
    422: "invalid",
}


def check_request(request: LaunchRequest) -> None:
    """LaunchRefused for what Vultr would refuse anyway (or worse, would not)."""
    offer, settings = request.offer, request.settings
    check_settings("vultr", "Vultr", request, SETTINGS)
    if request.container is not None or request.environment:
        raise invalid("a machine takes user data only, no container and no variables", "Use lane kubelet or talos.")
    if not _NAME.fullmatch(request.name):
        raise invalid(f"{request.name!r} is not a host name", "Use at most 63 lower-case letters, digits and dashes.")
    if offer.spot:
        raise invalid("no call orders a preemptible machine", "Allow offers on demand.")
    if gpus_of(offer.instance_type) is None:
        why = "is not known to have whole GPUs: most plans share one (vGPU), which needs NVIDIA's licensed GRID driver"
        raise invalid(f"the plan {offer.instance_type} {why}", "Take one of those that are offered.")
    if not offer.cloud_region:
        raise errors.LaunchRefused(f"vultr: {offer.instance_type} is sold out in every region.", reason="capacity", cloud="vultr")
    if settings.get("regions") and offer.cloud_region not in settings["regions"]:
        raise invalid(
            f"{offer.id} is not in the regions {', '.join(settings['regions'])} that the class wants", "Change the setting regions."
        )
    check_price("vultr", request)
    size = len((request.user_data or "").encode())
    if size > USER_DATA_LIMIT:
        raise invalid(f"the user data has {size} bytes, and {USER_DATA_LIMIT} are sent at most", "Make the payload smaller.")
    check_talos_image("vultr", "Vultr", request, "snapshotId")


def machine_body(request: LaunchRequest, image: t.Mapping[str, t.Any], group: str) -> dict[str, t.Any]:
    """``image``: the one field that says what it boots. ``group``: id of its firewall group, empty = none."""
    body: dict[str, t.Any] = {
        "region": request.offer.cloud_region,
        "plan": request.offer.instance_type,
        "label": request.name,
        "hostname": request.name,
        "tags": tags_of(request.marks),
        "enable_ipv6": True,
        "activation_email": False,
        "backups": "disabled",  # they cost, as does the next
        "ddos_protection": False,
        **image,
    }
    if request.user_data is not None:
        body["user_data"] = base64.b64encode(request.user_data.encode()).decode()
    if group:
        body["firewall_group_id"] = group
    return body


def outcome(
    error: errors.ApiError, request: LaunchRequest, *, sent: bool, in_stock: t.Callable[[], bool | None] = lambda: None
) -> errors.TgpError:
    """What a failed call means for the machine: refused for certain, or unknown. There are no codes: status first, then words, then whether
    the plan is still ``in_stock``. ``sent`` False: only something before the create call failed, so nothing can have been made."""
    reason = None
    if isinstance(error, (errors.Unauthorized, errors.Forbidden)):
        reason = "auth"
    elif certainly_not_made(error):
        reason = "rate"
    elif error.status in _REASONS and answered(error):
        reason = next((word for word, pattern in _WORDS if pattern.search(own_words(error))), _REASONS[error.status])
        if reason == "invalid" and sent and in_stock() is False:
            reason = "capacity"
    elif not sent:
        reason = "rate"
    return launch_error("vultr", request.name, error, reason)


def invalid(problem: str, remedy: str) -> errors.LaunchRefused:
    return invalid_launch("vultr", problem, remedy)
