# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power limits of NVIDIA GPUs by model: the objects of the DaemonSet nvidia-powerlimit, and what is wrong with its options."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from ..core.errors import InvalidInput
from ..model.labels import (
    APP_NAME_LABEL,
    CONFIG_CHECKSUM_ANNOTATION,
    EPHEMERAL_TAINT,
    MANAGED_BY_LABEL,
    POWER_LIMIT_LABEL,
    PRIVILEGED_REASON_ANNOTATION,
)
from ..model.resources import NVIDIA_GPU
from .power_limit_script import SCRIPT

Json = dict[str, t.Any]
NAME: t.Final = "nvidia-powerlimit"
NAMESPACE: t.Final = "gpu-device-plugin"
IMAGE: t.Final = "nvcr.io/nvidia/cuda:12.8.1-base-ubuntu22.04"
INTERVAL: t.Final = 1800  # seconds from one check to the next
PRIVILEGED_REASONS: t.Final = {
    NAME: "The NVIDIA driver refuses to change a power limit from a container that is not privileged.",
}
"""Why a container of a DaemonSet is privileged: name of the DaemonSet -> reason, which its pods carry as an annotation."""
_LOWEST, _HIGHEST = 10, 2000  # watts; no NVIDIA GPU is limited to less or more
_SHORTEST_INTERVAL = 10  # seconds
_VENDOR = "NVIDIA "


class Board(t.NamedTuple):
    """What ``nvidia-smi -q -d POWER`` shows for a model, in watts. Boards of other makers differ: the card's own range decides on the
    node, this one only warns early. ``limit`` is set where the user names no other; None: no limit of its own."""

    default: int
    lowest: int
    highest: int
    limit: int | None = None


BOARDS: t.Final[t.Mapping[str, Board]] = {
    "NVIDIA GeForce RTX 3080": Board(340, 100, 375),
    "NVIDIA GeForce RTX 3090": Board(350, 100, 350, limit=300),
    "NVIDIA GeForce RTX 4090": Board(450, 150, 600),
    "NVIDIA GeForce RTX 5080": Board(360, 250, 400),
    "NVIDIA A100-SXM4-40GB": Board(400, 100, 400),
    "NVIDIA A100-SXM4-80GB": Board(400, 100, 400),
    "NVIDIA H100 80GB HBM3": Board(700, 200, 700),
    "Tesla T4": Board(70, 60, 70),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PowerLimits:
    """``watts``: model as nvidia-smi names it -> watts, beside the limits of BOARDS; 0 takes one of those away. Nodes take part by the label
    ``tgp.io/power-limit: "true"``. ``interval``: seconds between two checks."""

    watts: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    interval: int = INTERVAL
    persistence_mode: bool = True
    image: str = IMAGE
    namespace: str = NAMESPACE
    runtime_class: str = "nvidia"
    tolerations: t.Sequence[Json] = (
        {"key": NVIDIA_GPU, "operator": "Exists"},
        {"key": EPHEMERAL_TAINT, "operator": "Exists"},
    )


def _bare(model: str) -> str:
    """Older drivers leave the vendor out."""
    return " ".join(model.split()).removeprefix(_VENDOR)


def limits_of(options: PowerLimits) -> dict[str, int]:
    """Model -> watts, as it is applied. Raises InvalidInput."""
    problems, given = [], dict[str, str]()
    for model, watts in options.watts.items():
        name = _bare(str(model))
        if name in ("", _VENDOR.strip()) or not name.isascii() or not name.isprintable():
            problems.append(
                f"power_limits: {str(model)!r} is not a model. Write it as nvidia-smi names it, like NVIDIA GeForce RTX 3090."
            )
        elif name in given:
            problems.append(f"power_limits: {given[name]} and {model} are the same model. Name it once.")
        if isinstance(watts, bool) or not isinstance(watts, int) or (watts != 0 and not _LOWEST <= watts <= _HIGHEST):
            problems.append(
                f"power_limits[{model}] must be a whole number of watts from {_LOWEST} to {_HIGHEST}, or 0 for no limit, got {watts!r}."
            )
        given.setdefault(name, str(model))
    if options.interval < _SHORTEST_INTERVAL:
        problems.append(f"The interval of the power limits must be at least {_SHORTEST_INTERVAL} s, got {options.interval} s.")
    limits = {_bare(model): board.limit for model, board in BOARDS.items() if board.limit}
    limits |= {_bare(model): watts for model, watts in options.watts.items()}
    if not problems and not any(limits.values()):
        problems.append("power_limits sets no limit for any model. Name a model with its watts, or leave power_limits out.")
    if problems:
        raise InvalidInput("The power limits are not valid.", problems=problems)
    return {model: watts for model, watts in sorted(limits.items()) if watts}


def power_limit_warnings(options: PowerLimits) -> list[str]:
    """Limits that the usual board of a model does not accept. The card decides: on the node its own range is read."""
    boards = {_bare(model): board for model, board in BOARDS.items()}
    return [
        f"power_limits[{model}]: {watts} W are outside of {boards[model].lowest} to {boards[model].highest} W, the range of the usual board. "
        "A card that does not accept it keeps its limit, and its pod reports out_of_range."
        for model, watts in limits_of(options).items()
        if model in boards and not boards[model].lowest <= watts <= boards[model].highest
    ]


def power_limit_objects(options: PowerLimits) -> list[Json]:
    """The ConfigMap with script and table, and the DaemonSet. Raises InvalidInput."""
    data = {
        "power-limit.sh": SCRIPT,
        "limits": "".join(f"{watts} {model}\n" for model, watts in limits_of(options).items()),
    }
    common = {APP_NAME_LABEL: NAME, MANAGED_BY_LABEL: "tgp.gpu"}
    meta: Json = {"name": NAME, "namespace": options.namespace, "labels": common}
    config_map: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    daemon_set: Json = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": {APP_NAME_LABEL: NAME}},
            # all at once: a node that does not permit limits is never Ready, and must not hold up the others
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": _pod_meta(common, data), "spec": _pod(options)},
        },
    }
    return [config_map, daemon_set]


def _pod_meta(labels: t.Mapping[str, str], data: t.Mapping[str, str]) -> Json:
    """The hash restarts the pods when script or table change: a restart tries again what was refused."""
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return {
        "labels": dict(labels),
        "annotations": {CONFIG_CHECKSUM_ANNOTATION: digest[:16], PRIVILEGED_REASON_ANNOTATION: PRIVILEGED_REASONS[NAME]},
    }


def _pod(options: PowerLimits) -> Json:
    program = ["/bin/sh", f"/etc/{NAME}/power-limit.sh"]
    variables: Json = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
        "INTERVAL_SECONDS": str(options.interval),
        "PERSISTENCE_MODE": "1" if options.persistence_mode else "0",
    }
    container: Json = {
        "name": NAME,
        "image": options.image,
        "command": program,
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        # Ready: each listed GPU has its limit. A probe that fails says why, in an event of the pod.
        "readinessProbe": {
            "exec": {"command": [*program, "ready"]},
            "initialDelaySeconds": 2,
            "periodSeconds": 15,
            "timeoutSeconds": 5,
            "failureThreshold": 1,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "config", "mountPath": f"/etc/{NAME}", "readOnly": True},
            {"name": "run", "mountPath": f"/run/{NAME}"},
        ],
    }
    return {
        "runtimeClassName": options.runtime_class,
        "nodeSelector": {POWER_LIMIT_LABEL: "true"},
        "tolerations": [dict(one) for one in options.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }
