# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the sandbox's Google Cloud. One is made of an object in a bucket, by an operation that fails when the object is no whole image:
then there is no image, although the call was accepted. What nobody documents and we chose: the codes and the texts of such a failure."""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t
from datetime import datetime

import flask

from . import image_files
from .gcp_account import PROJECT, Account, Operation, Refused, moment, page
from .gcp_catalogue import matches
from .world import World

ROOT = "/compute/v1/projects/<project>/global"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SOURCE = re.compile(r"https://storage\.googleapis\.com/([^/]+)/(.+)")


@dataclasses.dataclass
class Image:
    """An image of the project's own. At ``ready`` it is there, or gone when its import fails."""

    name: str
    family: str
    schematic: str
    labels: dict[str, str]
    size: int
    created: datetime
    ready: float
    fails: bool = False


def living(world: World, account: Account) -> dict[str, Image]:
    """Images that exist, those in the making among them. The caller holds the world's lock."""
    now, images = world.clock.seconds(), account.own_images
    account.own_images = {name: one for name, one in images.items() if not (one.fails and one.ready <= now)}
    return t.cast("dict[str, Image]", account.own_images)


def schematic_of(world: World, account: Account, name: str) -> str | None:
    """That of the image, or of the newest of the family, with this name; None when none is ready."""
    if name in account.images:
        return account.images[name]
    ready = [
        one for one in living(world, account).values() if one.ready <= world.clock.seconds() and name in (one.name, one.family)
    ]
    return max(ready, key=lambda one: one.created).schematic if ready else None


def image_routes(service: flask.Flask, world: World, account: Account, shown: t.Callable[[World, Operation], t.Any]) -> None:
    def find(name: str) -> Image:
        if name not in living(world, account):
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/global/images/{name}' was not found")
        return account.own_images[name]

    @service.get(f"{ROOT}/images")
    def images(project: str) -> t.Any:
        wanted = flask.request.args.get("filter", "")
        with world.lock:
            forms = [form(world, one) for one in living(world, account).values()]
        return page(account, "compute#imageList", [one for one in forms if matches(wanted, one)], flask.request.args)

    @service.get(f"{ROOT}/images/<name>")
    @service.get(f"{ROOT}/images/family/<name>")
    def one_image(project: str, name: str) -> t.Any:
        is_family = "/family/" in flask.request.path
        with world.lock:
            if name in account.images:
                return {"kind": "compute#image", "name": name, "status": "READY", "diskSizeGb": "10"}
            if not is_family:
                return form(world, find(name))
            members = [one for one in living(world, account).values() if one.family == name and one.ready <= world.clock.seconds()]
            if not members:
                raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/global/images/family/{name}' was not found")
            return form(world, max(members, key=lambda one: one.created))

    @service.post(f"{ROOT}/images")
    def insert_image(project: str) -> t.Any:
        content = flask.request.get_json(silent=True)
        if not isinstance(content, dict):
            raise Refused(400, "parseError", "Parse Error")
        request_id = flask.request.args.get("requestId", "")
        with world.lock:
            if request_id and request_id in account.requests:
                return shown(world, account.operations[account.requests[request_id]])
            operation = _insert(world, account, content)
            if request_id:
                account.requests[request_id] = operation.name
            return shown(world, operation)

    @service.delete(f"{ROOT}/images/<name>")
    def delete_image(project: str, name: str) -> t.Any:
        with world.lock:
            gone = find(name)
            _check_right(account, "compute.images.delete", name)
            del account.own_images[gone.name]
            return shown(world, _operation(world, account, "delete", name, 1.0))

    @service.get(f"{ROOT}/operations/<name>")
    def global_operation(project: str, name: str) -> t.Any:
        with world.lock:
            if name not in account.operations:
                raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/global/operations/{name}' was not found")
            return shown(world, account.operations[name])


def _check_right(account: Account, right: str, name: str) -> None:
    if not account.image_rights:
        raise Refused(403, "forbidden", f"Required '{right}' permission for 'projects/{PROJECT}/global/images/{name}'")


def _insert(world: World, account: Account, content: t.Mapping[str, t.Any]) -> Operation:
    name, family = str(content.get("name") or ""), str(content.get("family") or "")
    if not _NAME.fullmatch(name):
        raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{name}'.")
    _check_right(account, "compute.images.create", name)
    if name in living(world, account) or name in account.images:
        raise Refused(409, "alreadyExists", f"The resource 'projects/{PROJECT}/global/images/{name}' already exists")
    labels = dict(content.get("labels") or {})
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not re.fullmatch(r"[a-z0-9_-]{0,63}", str(value)):
            raise Refused(400, "invalid", f"Invalid value for field 'resource.labels.{key}': '{value}'.")
    source = _SOURCE.fullmatch(str((content.get("rawDisk") or {}).get("source") or ""))
    if source is None:
        raise Refused(400, "invalid", "Invalid value for field 'resource.rawDisk.source'. A Cloud Storage URL is wanted.")
    stored = account.buckets.get(source[1], {}).get(source[2])
    if stored is None:
        raise Refused(404, "notFound", f"The resource 'https://storage.googleapis.com/{source[1]}/{source[2]}' was not found")
    seconds = math.inf if account.stuck_imports else account.import_seconds
    read = image_files.read(stored.data)
    operation = _operation(world, account, "insert", name, seconds)
    if account.failing_imports > 0 or read is None:
        account.failing_imports = max(0, account.failing_imports - 1)
        text = f"The tar archive '{source[2]}' is not a valid image."
        operation.errors = [{"code": "INVALID_IMAGE", "message": text}]
    schematic = read.schematic if read is not None else ""
    made = Image(name, family, schematic, labels, len(stored.data), world.clock.now(), operation.done, bool(operation.errors))
    account.own_images[name] = made
    return operation


def _operation(world: World, account: Account, kind: str, name: str, seconds: float) -> Operation:
    now = world.clock.seconds()
    number = f"operation-{int(now * 1000)}-{account.next_number():06d}"
    made = Operation(number, kind, "", f"projects/{PROJECT}/global/images/{name}", now, now + seconds)
    account.operations[number] = made
    return made


def form(world: World, image: Image) -> dict[str, t.Any]:
    """One image. Sizes are texts."""
    ready = image.ready <= world.clock.seconds()
    return {
        "kind": "compute#image",
        "name": image.name,
        "family": image.family,
        "status": "READY" if ready else "PENDING",
        "labels": dict(image.labels),
        "creationTimestamp": moment(image.created),
        "diskSizeGb": "8",
        "archiveSizeBytes": str(image.size) if ready else "0",
        "selfLink": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/images/{image.name}",
    }
