# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a pod ends that tests the GPUs of its node (L-35), by the behaviour of the machine."""

from __future__ import annotations

import functools
import typing as t
from datetime import datetime, timedelta

from .behaviour import Behaviour
from .kubelet import time_text

LABEL = "tgp.io/acceptance"
PULL, RUN = 3.0, 4.0  # seconds that the image takes to come, and the program to end

Json = dict[str, t.Any]
Status = t.Callable[[Json, datetime], Json]


def course(pod: Json, parts: t.Mapping[str, Behaviour], alive: float, *, first: bool) -> t.Iterator[tuple[float, Status]]:
    """What the kubelet writes and when, in seconds from the pod's placement. ``alive``: for how long the node is there already;
    ``first``: no other pod has tested it."""
    deadline = float(pod["spec"].get("activeDeadlineSeconds") or 1e9)
    if "image_missing" in parts and (not parts["image_missing"].seconds or alive < parts["image_missing"].seconds):
        yield 1.0, _waiting
        yield deadline, functools.partial(_over, ran=None)
        return
    yield PULL, _running
    if "test_evicted" in parts and first:
        yield (
            PULL + 1,
            functools.partial(_ended, code=137, reason="Evicted", message="The node was low on resource: ephemeral-storage."),
        )
    elif "hanging_gpu" in parts:
        yield deadline, functools.partial(_over, ran=deadline - PULL)
    else:
        yield PULL + RUN, functools.partial(_ended, code=1 if "bad_gpu" in parts else 0)


def _containers(pod: Json, state: Json) -> list[Json]:
    return [
        {"name": one["name"], "image": one.get("image", ""), "imageID": "", "restartCount": 0, "ready": False, "state": state}
        for one in pod["spec"]["containers"]
    ]


def _waiting(pod: Json, now: datetime) -> Json:
    image = pod["spec"]["containers"][0].get("image", "")
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
    return {"phase": "Pending", "startTime": time_text(now), "containerStatuses": _containers(pod, {"waiting": waiting})}


def _running(pod: Json, now: datetime) -> Json:
    start = time_text(now - timedelta(seconds=PULL))
    return {
        "phase": "Running",
        "startTime": start,
        "containerStatuses": _containers(pod, {"running": {"startedAt": time_text(now)}}),
    }


def _over(pod: Json, now: datetime, ran: float | None) -> Json:
    """Its activeDeadlineSeconds are over."""
    told = {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }
    if ran is None:
        return told
    return {**told, "containerStatuses": _containers(pod, {"terminated": _end(now, ran, 137)})}


def _ended(pod: Json, now: datetime, code: int, reason: str = "", message: str = "") -> Json:
    whole = {"reason": reason, "message": message} if reason else {}
    states = _containers(pod, {"terminated": _end(now, RUN, code)})
    return {"phase": "Failed" if code else "Succeeded", **whole, "containerStatuses": states}


def _end(now: datetime, ran: float, code: int) -> Json:
    began = time_text(now - timedelta(seconds=ran))
    return {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began, "finishedAt": time_text(now)}
