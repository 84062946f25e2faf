# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Lambda checks before it makes a machine, and the making."""

from __future__ import annotations

import re
import typing as t
import uuid

from . import lambda_forms as forms
from .lambda_account import Account, Refused, invalid, machines, missing
from .lambda_audit import record
from .world import Machine, Offer, World

USER_DATA_LIMIT = 1024 * 1024
_FIELDS = {
    "region_name": str,
    "instance_type_name": str,
    "ssh_key_names": list,
    "name": str,
    "hostname": str,
    "image": dict,
    "user_data": str,
    "tags": list,
    "firewall_rulesets": list,
    "file_system_names": list,
    "file_system_mounts": list,
    "quantity": int,  # gone from the documented schema, still sent by older clients
}
_WORDS = {str: "a valid string", list: "a valid list", dict: "a valid dictionary", int: "a valid integer"}
_HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
_TAG_KEY = re.compile(r"[a-z][a-z0-9-:]+")
_MOUNT = re.compile(r"(/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*")


def launch(world: World, account: Account, body: t.Any) -> str:
    """Make one machine; the id, or the documented refusal. Nothing is made when anything is wrong."""
    request = _checked(body)
    with world.lock:
        offer = _offer(world, request)
        keys = request["ssh_key_names"]
        if keys[0] not in {key["name"] for key in account.ssh_keys}:
            raise missing("SSH key", keys[0])
        _check_image(request.get("image"), offer)
        volumes = _volumes(account, request)
        rulesets = _rulesets(account, request)
        if account.quota is not None and sum(1 for one in machines(world) if one.ended is None) >= account.quota:
            raise Refused(400, "global/quota-exceeded", "Quota exceeded.", "Contact Support to increase your quota.")
        if offer.stock <= 0:
            raise Refused(
                400,
                "instance-operations/launch/insufficient-capacity",
                "Not enough capacity to fulfill launch request.",
                "Choose an instance type with more availability, or try again later.",
            )
        public, private = account.next_addresses(world)
        machine = Machine(
            id=uuid.UUID(int=world.random.getrandbits(128)).hex,
            cloud="lambda",
            name=request.get("name", ""),
            hostname=request.get("hostname") or public.replace(".", "-"),
            offer=offer,
            created=world.clock.now(),
            payload=request.get("user_data"),
            details={
                "addresses": (public, private),
                "ssh_key_names": keys,
                "tags": request.get("tags"),
                "image": request.get("image"),
                "file_system_names": [volume["name"] for volume in volumes],
                "firewall_rulesets": rulesets,
                "file_system_mounts": request.get("file_system_mounts"),
            },
        )
        world.rent(machine)
        record(world, account, "instance", "launched", machine.id, instance_type=offer.type, region=offer.region)
        return machine.id


def _checked(body: t.Any) -> dict[str, t.Any]:
    """Form and limits of every field."""
    if not isinstance(body, dict):
        raise invalid("body", "Input should be a valid dictionary")
    for name, value in body.items():
        kind = _FIELDS.get(name)
        if kind is None:
            raise invalid(name, "Extra inputs are not permitted")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise invalid(name, f"Input should be {_WORDS[kind]}")
    for name in ("region_name", "instance_type_name", "ssh_key_names"):
        if name not in body:
            raise invalid(name, "Field required")
    if body.get("quantity", 1) > 1:
        raise invalid("quantity", "Input should be less than or equal to 1")
    if len(body["ssh_key_names"]) != 1 or not isinstance(body["ssh_key_names"][0], str):
        raise invalid("ssh_key_names", "List should have exactly 1 item")
    if len(body.get("name", "")) > 64:
        raise invalid("name", "String should have at most 64 characters")
    if "hostname" in body and not _HOSTNAME.fullmatch(body["hostname"]):
        raise invalid("hostname", "String should match pattern '^[a-z0-9][0-9a-z-]{0,62}$'")
    if len(body.get("user_data", "").encode()) > USER_DATA_LIMIT:
        raise invalid("user_data", "Value should be at most 1 MB")
    image = body.get("image")
    if image is not None and (len(image) != 1 or not isinstance(image.get("id", image.get("family")), str)):
        raise invalid("image", "Input should have exactly one of id and family")
    for tag in body.get("tags", []):
        _check_tag(tag)
    for mount in body.get("file_system_mounts", []):
        path = mount.get("mount_point") if isinstance(mount, dict) else None
        if not isinstance(path, str) or len(path) > 256 or not _MOUNT.fullmatch(path):
            raise invalid(
                "file_system_mounts.mount_point", "String should match pattern '^(/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*$'"
            )
    return body


def _check_tag(tag: t.Any) -> None:
    if not isinstance(tag, dict) or set(tag) != {"key", "value"} or not all(isinstance(value, str) for value in tag.values()):
        raise invalid("tags", "Input should be a key and a value")
    if len(tag["key"]) > 55 or not _TAG_KEY.fullmatch(tag["key"]):
        raise invalid("tags.key", "String should match pattern '^[a-z][a-z0-9-:]+$'")
    if len(tag["value"]) > 128:
        raise invalid("tags.value", "String should have at most 128 characters")


def _offer(world: World, request: dict[str, t.Any]) -> Offer:
    """The type in the region; a region that has the type but never had stock of it is sold out, not unknown."""
    name, place = request["instance_type_name"], request["region_name"]
    offers = [offer for offer in world.offers if offer.cloud == "lambda" and offer.type == name]
    if not offers:
        raise missing("instance type", name)
    if place not in forms.LAMBDA_REGIONS and place not in {offer.region for offer in offers}:
        raise missing("region", place)
    for offer in offers:
        if offer.region == place:
            return offer
    raise Refused(400, "instance-operations/launch/insufficient-capacity", "Not enough capacity to fulfill launch request.")


def _check_image(image: dict[str, str] | None, offer: Offer) -> None:
    """The image exists in this region, for this kind of processor."""
    if image is None:
        return
    wanted = "arm64" if offer.type in forms.ARM_TYPES else "x86_64"
    here = [one for one in forms.images() if one["region"]["name"] == offer.region]  # type: ignore[index]
    if "id" in image:
        here = [one for one in here if one["id"] == image["id"]]
    else:
        here = [one for one in here if one["family"] == image["family"]]
    if not here:
        raise missing("image", image.get("id") or image["family"])
    if wanted not in {one["architecture"] for one in here}:
        raise invalid("image", f"Image is not compatible with {offer.type}")


def _volumes(account: Account, request: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """The named file systems, each once; they must be in the machine's region. Of several of one name that of the region is meant."""
    found: list[dict[str, t.Any]] = []
    for name in request.get("file_system_names", []):
        named = [one for one in account.file_systems if one["name"] == name]
        if not named:
            raise missing("file system", str(name))
        found.append(next((one for one in named if one["region"]["name"] == request["region_name"]), named[0]))
    for mount in request.get("file_system_mounts", []):
        volume = next((one for one in account.file_systems if one["id"] == mount.get("file_system_id")), None)
        if volume is None:
            raise missing("file system", str(mount.get("file_system_id")))
        if volume not in found:
            found.append(volume)
    for volume in found:
        if volume["region"]["name"] != request["region_name"]:
            raise Refused(
                400,
                "instance-operations/launch/file-system-in-wrong-region",
                f"File system {volume['name']} is not in region {request['region_name']}.",
            )
    return found


def _rulesets(account: Account, request: dict[str, t.Any]) -> list[dict[str, str]]:
    chosen = []
    for item in request.get("firewall_rulesets", []):
        identity = item.get("id") if isinstance(item, dict) else None
        ruleset = next((one for one in account.rulesets if one["id"] == identity), None)
        if ruleset is None or ruleset["region"]["name"] != request["region_name"]:
            raise missing("firewall ruleset", str(identity))
        chosen.append({"id": ruleset["id"]})
    return chosen
