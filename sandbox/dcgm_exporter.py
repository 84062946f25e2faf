# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's dcgm-exporter on every node on which its DaemonSet has a pod (``sandbox/dcgm_exporter.yml``): how much its GPUs are used is what
:meth:`DcgmExporters.use` said last, else nothing; the XIDs are those of :meth:`DcgmExporters.xid`, which stay until the exporter starts again;
and what can be wrong with its metrics."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import typing as t

import yaml

from .kube import KubeApi

MANIFEST = pathlib.Path(__file__).parent / "dcgm_exporter.yml"
PORT = 9400
XID = "DCGM_FI_DEV_XID_ERRORS"
#: down: 503 · missing: GPUs without their use · stale: samples of an hour ago · garbage: a page of something else · nan: a value that is none ·
#: one_missing: the last GPU is not named · other_node: the metrics are those of another node · no_xids: a list of metrics without XIDs
FAULTS = ("down", "missing", "stale", "garbage", "nan", "one_missing", "other_node", "no_xids")
Json = dict[str, t.Any]
_LABELS = (("app", "nvidia-dcgm-exporter"), ("app.kubernetes.io/name", "dcgm-exporter"))


def manifest() -> Json:
    """The DaemonSet, with the labels of the GPU Operator's."""
    return t.cast(Json, yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))


@dataclasses.dataclass
class GpuUse:
    """Of one node: per cent of each GPU in their order (missing ones are idle), whether MIG divides them, what is wrong, and the last XID of
    each GPU that had one since the exporter started."""

    percent: tuple[float, ...] = ()
    mig: bool = False
    fault: str = ""
    xids: t.Mapping[int, int] = dataclasses.field(default_factory=dict)


class DcgmExporters:
    """Answers GET /metrics of every exporter's pod. ``asked`` counts the answers by node."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._uses: dict[str, GpuUse] = {}
        self._lock = threading.Lock()
        self.asked: dict[str, int] = {}
        api.pod_servers.append(self._serve)

    def use(self, node: str, *percent: float, mig: bool = False, fault: str = "") -> None:
        """From now on the node's GPUs are used so much."""
        if fault and fault not in FAULTS:
            raise ValueError(f"there is no fault {fault!r}; there are {', '.join(FAULTS)}")
        with self._lock:
            self._uses[node] = GpuUse(percent, mig, fault, self._uses.get(node, GpuUse()).xids)

    def xid(self, node: str, gpu: int, number: int) -> None:
        """A GPU of the node reports an XID: the metric has it until another comes."""
        with self._lock:
            use = self._uses.get(node, GpuUse())
            self._uses[node] = dataclasses.replace(use, xids={**use.xids, gpu: number})

    def restart(self, node: str) -> None:
        """The node's exporter starts again in its pod: it knows of no XID."""
        with self._lock:
            self._uses[node] = dataclasses.replace(self._uses.get(node, GpuUse()), xids={})

    def _serve(self, pod: Json, port: int, path: str) -> tuple[int, str] | None:
        labels = pod["metadata"].get("labels") or {}
        if port != PORT or not any(labels.get(key) == value for key, value in _LABELS):
            return None
        if path != "/metrics":
            return 404, "404 page not found\n"
        name = pod["spec"]["nodeName"]
        with self._lock:
            self.asked[name] = self.asked.get(name, 0) + 1
            use = self._uses.get(name, GpuUse())
        _status, node = self._api.request("GET", f"/api/v1/nodes/{name}")
        return self._answer(name, _gpus(node), use)

    def _answer(self, node: str, gpus: int, use: GpuUse) -> tuple[int, str]:
        if use.fault == "down":
            return 503, "DCGM initialization error\n"
        if use.fault == "garbage":
            return 200, "<html><body>It works!</body></html>\n"
        host = "another-node" if use.fault == "other_node" else node
        time = f" {int((self._api.seconds() - 3600) * 1000)}" if use.fault == "stale" else ""
        lines: list[str] = []
        for metric, of in (
            (XID, None),
            ("DCGM_FI_DEV_GPU_TEMP", None),
            ("DCGM_FI_DEV_GPU_UTIL", 1),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100),
        ):
            left_out = (of and use.fault == "missing") or (metric == XID and use.fault == "no_xids")
            if left_out or (metric == "DCGM_FI_DEV_GPU_UTIL" and use.mig):
                continue
            lines += [f"# HELP {metric} As dcgm-exporter has it.", f"# TYPE {metric} gauge"]
            for gpu in range(gpus - (use.fault == "one_missing")):
                share = use.percent[gpu] if gpu < len(use.percent) else 0
                value = str(use.xids.get(gpu, 0)) if metric == XID else "41" if of is None else f"{share / of:g}"
                if use.fault == "nan" and not gpu and metric != "DCGM_FI_DEV_GPU_TEMP":
                    value = "NaN"
                labels = f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",device="nvidia{gpu}",modelName="NVIDIA A10",Hostname="{host}"'
                instances = [(f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{one}"', value if one == 7 else "0") for one in (7, 8)]
                lines += [
                    f"{metric}{{{labels}{more}}} {each}{time}" for more, each in (instances if use.mig and of else [("", value)])
                ]
        return 200, "\n".join(lines) + "\n"


def _gpus(node: Json) -> int:
    labels = node["metadata"].get("labels") or {}
    capacity = (node.get("status") or {}).get("capacity") or {}
    return int(labels.get("tgp.io/gpu-count") or capacity.get("nvidia.com/gpu") or 0)
