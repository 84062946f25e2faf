# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status a kubelet writes for a pod whose images it pulls, for one that runs, and for one that has finished."""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]


def running_status(pod: Json, host: str, address: str, now: str) -> Json:
    """All containers started just now."""
    kinds = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(pod, {kind: ("True", "") for kind in kinds}, now),
        "containerStatuses": [
            {**_container(pod, container), "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
            for container in pod["spec"]["containers"]
        ],
        "initContainerStatuses": [
            {**_container(pod, container), "ready": True, "started": False, "state": {"terminated": _end(pod, container, now, now)}}
            for container in pod["spec"].get("initContainers") or []
        ],
    }


def pulling_status(pod: Json, host: str, now: str) -> Json:
    """The kubelet has taken the pod and pulls its images."""
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    kinds = {kind: ("False", "ContainersNotReady") for kind in ("ContainersReady", "Ready")}
    return {
        "phase": "Pending",
        "startTime": now,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "conditions": _conditions(pod, {**kinds, "Initialized": ("True", "")}, now),
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "restartCount": 0,
                "ready": False,
                "started": False,
                "state": waiting,
            }
            for container in pod["spec"]["containers"]
        ],
    }


def crashing_status(pod: Json, host: str, address: str, now: str) -> Json:
    """All containers have ended with an error, several times."""
    status = running_status(pod, host, address, now)
    back_off = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    for container in status["containerStatuses"]:
        container.update(ready=False, started=False, restartCount=3, state=back_off)
    bad = {kind: ("False", "ContainersNotReady") for kind in ("ContainersReady", "Ready")}
    return {**status, "conditions": _conditions({"status": status}, bad, now)}


def finished_status(pod: Json, now: str) -> Json:
    """All containers ended well just now."""
    started = (pod.get("status") or {}).get("startTime") or now
    return {
        "phase": "Succeeded",
        "conditions": _conditions(pod, {kind: ("False", "PodCompleted") for kind in ("ContainersReady", "Ready")}, now),
        "containerStatuses": [
            {
                **_container(pod, container),
                "ready": False,
                "started": False,
                "state": {"terminated": _end(pod, container, started, now)},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _container(pod: Json, container: Json) -> Json:
    identity = f"{pod['metadata']['uid']}-{container['name']}".encode().hex()[:64]
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"{image}@sha256:{'0' * 64}",
        "containerID": f"containerd://{identity}",
        "restartCount": 0,
    }


def _end(pod: Json, container: Json, started: str, finished: str) -> Json:
    return {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": started,
        "finishedAt": finished,
        "containerID": _container(pod, container)["containerID"],
    }


def _conditions(pod: Json, wanted: dict[str, tuple[str, str]], now: str) -> list[Json]:
    """The pod's conditions with some of them set anew."""
    kept = [condition for condition in (pod.get("status") or {}).get("conditions") or [] if condition["type"] not in wanted]
    new = []
    for kind, (status, reason) in wanted.items():
        condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
        new.append({**condition, "reason": reason} if reason else condition)
    return [*kept, *new]
