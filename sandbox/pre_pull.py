# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet makes of a pod that pulls images (L-43): it pulls one after the other, and starts a program that is in none of them.

An image whose name ends with ``/missing`` cannot be pulled, and no container can be made of one that ends with ``/broken``.
"""

from __future__ import annotations

import functools
import typing as t
from datetime import datetime

from .behaviour import Behaviour
from .kubelet import time_text
from .trial import Json, Status

LABEL = "tgp.io/pre-pull"
PULL, BACK_OFF = 3.0, 10.0  # seconds that an image takes to come, and until the kubelet tries a pull once more
_NO_PROGRAM = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    'container process: error during container init: exec: "{0}": stat {0}: no such file or directory'
)


def course(pod: Json, parts: t.Mapping[str, Behaviour], alive: float, *, first: bool) -> t.Iterator[tuple[float, Status]]:
    """What the kubelet writes and when, in seconds from the pod's placement. It writes nothing while it pulls: the containers show their
    ends together. ``alive``: for how long the node is there already; ``first``: the node had no other pod of this kind."""
    deadline = float(pod["spec"].get("activeDeadlineSeconds") or 1e9)
    each = parts["slow_pull"].seconds if "slow_pull" in parts else PULL
    unreachable = "image_missing" in parts and (not parts["image_missing"].seconds or alive < parts["image_missing"].seconds)
    end = sum(PULL if unreachable or is_missing(one) else each for one in pod["spec"]["containers"])
    yield 0.5, _creating
    if "test_evicted" in parts and first:
        yield 1.0, _evicted
        return
    if end < deadline:
        yield end, functools.partial(_pulled, unreachable=unreachable, reason="ErrImagePull")
        lacking = unreachable or any(is_missing(one) for one in pod["spec"]["containers"])
        if lacking and end + BACK_OFF < deadline:
            yield end + BACK_OFF, functools.partial(_pulled, unreachable=unreachable, reason="ImagePullBackOff")
        if not lacking and not any(_is_broken(one) for one in pod["spec"]["containers"]):
            return
    yield deadline, _over


def is_missing(container: Json) -> bool:
    return _name(container).endswith("/missing")


def _is_broken(container: Json) -> bool:
    return _name(container).endswith("/broken")


def _name(container: Json) -> str:
    """The image without its tag."""
    return str(container.get("image", "")).partition("@")[0].rpartition(":")[0] or str(container.get("image", ""))


def _container(container: Json, state: Json, *, there: bool = False) -> Json:
    image = container.get("image", "")
    known = f"{image}@sha256:{'0' * 64}" if there else ""
    return {"name": container["name"], "image": image, "imageID": known, "restartCount": 0, "ready": False, "state": state}


def _creating(pod: Json, now: datetime) -> Json:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    statuses = [_container(one, waiting) for one in pod["spec"]["containers"]]
    return {"phase": "Pending", "startTime": time_text(now), "containerStatuses": statuses}


def _pulled(pod: Json, now: datetime, *, unreachable: bool, reason: str) -> Json:
    statuses = [_after(one, now, unreachable=unreachable, reason=reason) for one in pod["spec"]["containers"]]
    return {
        "phase": "Failed" if all("terminated" in one["state"] for one in statuses) else "Pending",
        "containerStatuses": statuses,
    }


def _after(container: Json, now: datetime, *, unreachable: bool, reason: str) -> Json:
    image = container.get("image", "")
    if unreachable or is_missing(container):
        what = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": not found'
        words = (
            f'Back-off pulling image "{image}": {what}'
            if reason == "ImagePullBackOff"
            else f"rpc error: code = NotFound desc = {what}"
        )
        return _container(container, {"waiting": {"reason": reason, "message": words}})
    if _is_broken(container):  # the image is there, and its configuration is of no use
        words = "failed to generate container spec: no users found"
        return _container(container, {"waiting": {"reason": "CreateContainerError", "message": words}})
    words = _NO_PROGRAM.format((container.get("command") or [""])[0])
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "message": words,
        "startedAt": "1970-01-01T00:00:00Z",
        "finishedAt": time_text(now),
    }
    return _container(container, {"terminated": ended}, there=True)


def _over(_pod: Json, _now: datetime) -> Json:
    """Its activeDeadlineSeconds are over."""
    return {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }


def _evicted(_pod: Json, _now: datetime) -> Json:
    return {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
