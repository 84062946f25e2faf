# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the dcgm-exporter of a node says: how much its GPUs are used, and which XIDs they had. Its metrics are read through the API server's
proxy to its pod, once for both."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation

from ..core.errors import ApiError
from ..model import GpuUtilization, GpuXids, Pod
from ..model.labels import APP_NAME_LABEL
from .client import Kube
from .pods import pod_path

PORT: t.Final = 9400
OLDEST: t.Final = 300  # seconds: a sample that says itself to be older, or so far ahead, says nothing of now
_TIMEOUT = 5.0  # real seconds for one answer
_LABELS = (("app", "nvidia-dcgm-exporter"), (APP_NAME_LABEL, "dcgm-exporter"))  # the GPU Operator's, the stand-alone chart's
_PERCENT, _RATIO = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_XID = "DCGM_FI_DEV_XID_ERRORS"
_MOST = {_PERCENT: 100, _RATIO: 1, _XID: 9999}
_HOSTS = ("Hostname", "hostname")
_LINE = re.compile(r"(?P<name>DCGM_FI_[A-Z0-9_]+)\{(?P<labels>.*)\}\s+(?P<value>\S+)(?:\s+(?P<time>-?\d+))?\s*")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclasses.dataclass(frozen=True, slots=True)
class GpuMetrics:
    """What one answer says of a node's GPUs."""

    utilization: GpuUtilization
    xids: GpuXids


def unknown(why: str) -> GpuMetrics:
    """Of a node whose exporter is not known, or does not answer."""
    return GpuMetrics(GpuUtilization(why=why), GpuXids(why=why))


def exporters(pods: t.Iterable[Pod]) -> dict[str, Pod]:
    """The pod of dcgm-exporter that runs on each node, by the node's name; of several the first by name."""
    found = [pod for pod in pods if pod.node and pod.phase == "Running" and pod.deletion is None and _is_exporter(pod)]
    return {pod.node: pod for pod in sorted(found, key=lambda pod: (pod.namespace, pod.name), reverse=True)}


def _is_exporter(pod: Pod) -> bool:
    return any(pod.labels.get(key) == value for key, value in _LABELS)


def metrics(kube: Kube, pod: Pod, gpus: int | None, now: datetime) -> GpuMetrics:
    """One question, without a second try: an exporter that does not answer says nothing in this run. ``gpus``: how many the machine has;
    None = unknown."""
    path = f"{pod_path(pod.namespace, f'{pod.name}:{PORT}')}/proxy/metrics"
    try:
        text = kube.call("GET", path, timeout=_TIMEOUT, idempotent=False).text
    except ApiError as error:
        return unknown(f"its dcgm-exporter {pod.namespace}/{pod.name} cannot be read: {error.message}")
    found = read(text, {pod.node, pod.name}, gpus, now)
    return dataclasses.replace(found, xids=dataclasses.replace(found.xids, since=pod.created))


def read(text: str, hosts: t.Collection[str], gpus: int | None, now: datetime) -> GpuMetrics:
    """The busiest GPU or MIG instance, and the XIDs, by the exporter's ``text``; what is missing, odd or old is unknown. ``hosts``: names by
    which the exporter may call its node."""
    seen: dict[tuple[str, str], _Entity] = {}
    odd: list[str] = []
    for line in text.splitlines():
        if not line.startswith("DCGM_FI_"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            odd.append("a line of its metrics cannot be read")
            continue
        labels = dict(_LABEL.findall(match["labels"]))
        gpu = labels.get("UUID") or labels.get("gpu")
        host = next((labels[key] for key in _HOSTS if labels.get(key)), "")
        if not gpu:
            odd.append(f"{match['name']} names no GPU")
        elif host and host not in hosts:
            odd.append(f"its metrics are those of {host}")
        else:
            label = labels.get("gpu") or gpu
            entity = seen.setdefault((gpu, labels.get("GPU_I_ID", "")), _Entity(label, labels.get("GPU_I_ID", "")))
            if match["name"] in _MOST:
                entity.add(match["name"], match["value"], match["time"], now)
    return GpuMetrics(_utilization(seen, odd, gpus), _xids(seen, odd, gpus))


@dataclasses.dataclass
class _Entity:
    """A GPU, or an instance of one that MIG divides. ``odd``: what its values say that cannot be; ``odd_xid`` of its XIDs."""

    gpu: str
    instance: str
    shares: list[Decimal] = dataclasses.field(default_factory=list)
    odd: str = ""
    xids: list[int] = dataclasses.field(default_factory=list)  # 0 = none
    odd_xid: str = ""

    def __str__(self) -> str:
        return f"MIG instance {self.instance} of GPU {self.gpu}" if self.instance else f"GPU {self.gpu}"

    def add(self, name: str, value: str, time: str | None, now: datetime) -> None:
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal("NaN")
        whole = number.is_finite() and number == number.to_integral_value()
        odd = ""
        if not number.is_finite() or not 0 <= number <= _MOST[name] or (name == _XID and not whole):
            odd = f"{name} of {self} is {value[:40]}"
        elif time is not None and not _is_fresh(time, now):
            odd = f"{name} of {self} is a sample of another time than now"
        if name == _XID:
            self.odd_xid = odd or self.odd_xid
            self.xids += [] if odd else [int(number)]
        else:
            self.odd = odd or self.odd
            self.shares += [] if odd else [number / _MOST[name]]


def _is_fresh(time: str, now: datetime) -> bool:
    try:
        sampled = datetime.fromtimestamp(int(time) / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return False
    return abs(now - sampled) <= timedelta(seconds=OLDEST)


def _missing(found: t.Collection[str], gpus: int | None) -> list[str]:
    if not found:
        return ["its metrics name no GPU"]
    return [f"its metrics name {len(found)} of {gpus} GPUs"] if gpus is not None and len(found) < gpus else []


def _utilization(seen: t.Mapping[tuple[str, str], _Entity], odd: t.Sequence[str], gpus: int | None) -> GpuUtilization:
    divided = {gpu for gpu, instance in seen if instance}
    problems = [*odd, *(entity.odd for entity in seen.values() if entity.odd)]
    problems += _missing({gpu for gpu, _instance in seen}, gpus)
    problems += [  # a GPU that MIG divides has no use of its own: that of its instances counts
        f"{entity} has neither {_PERCENT} nor {_RATIO}"
        for (gpu, instance), entity in seen.items()
        if not entity.shares and not entity.odd and (instance or gpu not in divided)
    ]
    shares = [share for entity in seen.values() for share in entity.shares]
    return GpuUtilization(max(shares, default=None), "; ".join(dict.fromkeys(problems[:3])))


def _xids(seen: t.Mapping[tuple[str, str], _Entity], odd: t.Sequence[str], gpus: int | None) -> GpuXids:
    """Those of a GPU and of its MIG instances together. A GPU of which one value is odd, or that has none, is unknown."""
    entities: dict[str, list[_Entity]] = {}
    for (gpu, _instance), entity in seen.items():
        entities.setdefault(gpu, []).append(entity)
    problems = [*odd, *_missing(entities, gpus)]
    last: dict[str, tuple[int, ...]] = {}
    for parts in entities.values():
        label, wrong = parts[0].gpu, next((one.odd_xid for one in parts if one.odd_xid), "")
        found = {xid for one in parts for xid in one.xids}
        if wrong or not found:
            problems.append(wrong or f"GPU {label} has no {_XID}")
        else:
            last[label] = tuple(sorted(found - {0}))
    return GpuXids(last, "; ".join(dict.fromkeys(problems[:3])))
