# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Google is sent to make a machine, and what a refusal means."""

from __future__ import annotations

import re
import typing as t
import uuid

from ...core import errors
from ...model import LaunchRequest
from ..base import (
    certainly_not_made,
    check_price,
    check_settings,
    check_talos_image,
    invalid_launch,
    launch_error,
    wants_talos,
)
from ..disk_images import POLICY_SETTING
from .machine_types import ALL_REGIONS, ATTACHED, LEAST_DISK, disk_type, parted, region_of
from .records import MANAGED, labels_of

USER_DATA_LIMIT = 262_144  # bytes of one metadata value
USER_DATA = "user-data"  # the metadata item that cloud-init and Talos read
DEFAULT_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
DEFAULT_RUN_HOURS = 720
_IMAGE = "^projects/[a-z0-9.:-]+/global/images/(family/)?[a-z][a-z0-9-]*$"
_DOLLARS = {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}}
SETTINGS: dict[str, dict[str, t.Any]] = {
    "project": {"type": "string", "minLength": 1, "description": "the project to rent in; that of the service account without it"},
    "zones": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "pattern": "^[a-z]+-[a-z]+[0-9]+(-[a-z])?$"},
        "description": "the zones or whole regions to rent in",
    },
    "image": {"type": "string", "pattern": _IMAGE, "description": "image or image family with Ubuntu, for lane kubelet"},
    "talosImage": {"type": "string", "pattern": _IMAGE, "description": "image or image family of yours with Talos, for lane talos"},
    "imagePolicy": POLICY_SETTING,
    "imageBucket": {
        "type": "string",
        "pattern": "^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$",
        "description": "bucket that the file of a missing image goes through, for imagePolicy",
    },
    "network": {"type": "string", "minLength": 1, "description": "network, such as global/networks/default"},
    "subnetwork": {"type": "string", "minLength": 1, "description": "subnetwork, such as regions/us-central1/subnetworks/gpu"},
    "externalAddress": {"type": "boolean", "description": "false: no address of its own, where Cloud NAT leads out"},
    "maxRunHours": {
        "type": "integer",
        "minimum": 1,
        "maximum": 2880,
        "description": "hours after which Google deletes the machine, whatever else happens",
    },
    "prices": {**_DOLLARS, "description": "dollars per hour on demand by machine type, without the disk"},
    "spotPrices": {**_DOLLARS, "description": "dollars per hour as a spot machine by machine type, without the disk"},
}
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "tgp.gpu")
_CAPACITY = re.compile(r"(?i)ZONE_RESOURCE_POOL_EXHAUSTED|insufficientCapacity|UNSUPPORTED_OPERATION|stockout")
_QUOTA = re.compile(r"(?i)quota")
_BILLING = re.compile(r"(?i)billing")
_CONFLICTS = ("alreadyExists", "resourceNotReady", "RESOURCE_NOT_READY", "RESOURCE_ALREADY_EXISTS")
_ASK = "Ask for more under IAM & Admin > Quotas & System Limits in the Google Cloud console: a new project has none for GPUs."


def check_request(request: LaunchRequest) -> None:
    """LaunchRefused for what Google would refuse anyway (or worse, would not)."""
    offer, settings = request.offer, request.settings
    check_settings("gcp", "Google", request, SETTINGS)
    if request.container is not None or request.environment:
        raise invalid("a machine takes user data only, no container and no variables", "Use lane kubelet or talos.")
    if not _NAME.fullmatch(request.name):
        raise invalid(
            f"{request.name!r} cannot be the name of a machine",
            "Use at most 63 lower-case letters, digits and dashes, a letter first.",
        )
    _name, accelerator = parted(offer.instance_type)
    if accelerator and accelerator not in ATTACHED:
        raise invalid(f"{accelerator} is not attached to machines by this version", "Take one of those that are offered.")
    if not offer.cloud_region:
        raise invalid(f"{offer.id} names no zone", "Take one of those that are offered.")
    wanted = settings.get("zones")
    if wanted and not {offer.cloud_region, region_of(offer.cloud_region)} & set(wanted):
        raise invalid(f"{offer.id} is not in the zones {', '.join(wanted)} that the class wants", "Change the setting zones.")
    check_price("gcp", request)
    size = len((request.user_data or "").encode())
    if size > USER_DATA_LIMIT:
        raise invalid(f"the user data has {size} bytes, and {USER_DATA_LIMIT} are taken at most", "Make the payload smaller.")
    check_talos_image("gcp", "Google", request, "talosImage")


def request_id(project: str, request: LaunchRequest) -> str:
    """The same for each repetition of one create call of a claim, so that Google makes one machine of them. Another attempt of the claim has
    another time of creation, and so another id: under the same one it would be answered with the failure of the first."""
    offer = request.offer
    attempt = (project, offer.cloud_region, request.name, offer.instance_type, str(offer.spot), request.marks.get("created", ""))
    return str(uuid.uuid5(_NAMESPACE, "/".join(attempt)))


def longest_life(settings: t.Mapping[str, t.Any]) -> tuple[str, int]:
    """The setting that limits it, and the hours after which Google deletes a machine."""
    return "maxRunHours", settings.get("maxRunHours", DEFAULT_RUN_HOURS)


def machine_body(request: LaunchRequest) -> dict[str, t.Any]:
    """No service account is attached: a node needs none."""
    offer, settings, zone = request.offer, request.settings, request.offer.cloud_region
    name, accelerator = parted(offer.instance_type)
    labels = labels_of(request.marks)
    interface: dict[str, t.Any] = {"network": settings.get("network", "global/networks/default")}
    if settings.get("subnetwork"):
        interface = {"subnetwork": settings["subnetwork"]}
    if settings.get("externalAddress", True):
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    disk = {
        "sourceImage": settings["talosImage"] if wants_talos(request) else settings.get("image", DEFAULT_IMAGE),
        "diskSizeGb": str(offer.disk_gib or LEAST_DISK),
        "diskType": f"zones/{zone}/diskTypes/{disk_type(name)}",
        "labels": {MANAGED: "true", **labels},
    }
    body: dict[str, t.Any] = {
        "name": request.name,
        "machineType": f"zones/{zone}/machineTypes/{name}",
        "labels": labels,
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
        "networkInterfaces": [interface],
        "scheduling": {
            "onHostMaintenance": "TERMINATE",  # machines with GPUs cannot move
            "automaticRestart": False,
            "provisioningModel": "SPOT" if offer.spot else "STANDARD",
            "instanceTerminationAction": "DELETE",
            "maxRunDuration": {"seconds": str(longest_life(settings)[1] * 3600)},
        },
    }
    if accelerator:
        body["guestAccelerators"] = [{"acceleratorType": f"zones/{zone}/acceleratorTypes/{accelerator}", "acceleratorCount": 1}]
    if request.user_data is not None:
        body["metadata"] = {"items": [{"key": USER_DATA, "value": request.user_data}]}
    return body


def outcome(error: errors.ApiError, request: LaunchRequest, *, sent: bool, followed: bool = False) -> errors.TgpError:
    """What a failed call means for the machine: refused for certain, or unknown. ``sent`` False: only something before the create call
    failed. ``followed``: the operation itself failed, so that there is no machine."""
    reason, remedy = _reason(error, sent=sent or followed), ""
    if reason is None and followed:
        reason = "invalid"
    if _is_quota(error):
        remedy = _ASK
    return launch_error("gcp", request.name, error, reason, remedy=remedy)


def _is_quota(error: errors.ApiError) -> bool:
    return _QUOTA.search(error.code or "") is not None


def _reason(error: errors.ApiError, *, sent: bool) -> str | None:
    code = error.code or ""
    if isinstance(error, errors.Unauthorized):
        return "auth"
    if certainly_not_made(error):
        return "rate"
    if _CAPACITY.search(code):
        return "capacity"
    if _is_quota(error):  # one of a region leaves the others
        return "quota" if ALL_REGIONS in error.message else "capacity"
    if isinstance(error, errors.Forbidden):
        return "balance" if _BILLING.search(f"{code} {error.message}") else "auth"
    if code in _CONFLICTS:
        return "conflict"
    if code and error.status == 404:
        return "capacity" if "Types/" in error.message else "invalid"  # a machine type that the zone does not have
    if code and error.status in (400, 409, 412, 413):
        return "invalid"
    return None if sent else "rate"


def invalid(problem: str, remedy: str) -> errors.LaunchRefused:
    return invalid_launch("gcp", problem, remedy)
