# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects what a diagnosis of GPUs looks at. Each source is asked by itself: one that does not answer is unknown, with its reason."""

from __future__ import annotations

import dataclasses
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ...core.errors import TgpError
from ...core.redact import redact_foreign
from ...kube import dcgm_exporter
from ...kube.client import Json
from ...kube.nodes import DAEMON_SETS, device_plugin_of, parse
from ...kube.nodes import PATH as NODES
from ...kube.pods import PATH as PODS
from ...kube.pods import is_gpu, placement_of, pod_path, reducer
from ...model import Claim, GpuXids, Node, Pod
from ...model.labels import (
    APP_NAME_LABEL,
    GPU_COUNT_LABEL,
    GPU_PRESENT_LABEL,
    GPU_TEST_LABEL,
    GPU_TYPE_LABEL,
    NODEPOOL_LABEL,
    PROVISIONED_LABEL,
)
from ...observe.context import Context
from ...talos.images.nvidia import mismatches, needs_fabric_manager
from ...units.values import whole
from ..gpus.facts import ClusterGpus, DaemonPod, GpuDaemon, GpuNodeFacts, HostSystem, NodeSystem, PendingPod
from ..gpus.node_checks import CDI_GEN, SOCKETS
from .node import events_of_pod, waiting_of
from .plugin_config import read_config
from .ssh_node import SshNodes
from .talos_node import TalosNodes

_WORKERS = 16
_LOG_LINES, _LOG_BYTES = 200, 65_536
_MOST_PENDING = 40  # pods that wait and get a row each
_EXTENSIONS = "extensions.talos.dev/"
_POWER = "nvidia-powerlimit"
_SHOWN = (("/api/v1", "pods"), ("/apis/apps/v1", "daemonsets"), ("/api/v1", "services"), ("/apis/apps/v1", "deployments"))
_T = t.TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is asked about; empty fields: everything. ``pod`` is namespace and name."""

    node: str = ""
    pool: str = ""
    pod: tuple[str, str] | None = None

    def has(self, node: GpuNodeFacts) -> bool:
        if self.node:
            return node.node.name == self.node
        return not self.pool or self.pool in (node.pool, node.pool.partition("/")[2])


@dataclasses.dataclass(frozen=True)
class _RawPod:
    """A pod as far as it matters here. ``daemon`` is the DaemonSet that owns it."""

    record: Pod
    daemon: str
    container: str
    ready: bool
    trouble: str
    failed: str
    runtime_class: str


class GpuCollector:
    """One look. ``talos`` asks nodes that run Talos, ``ssh`` the others; None where there is no talosconfig or no user, and ``unasked`` says
    so (of the first, of the second). ``deep``: what is only asked for on request, too."""

    def __init__(
        self,
        context: Context,
        subject: Subject,
        talos: TalosNodes | None,
        ssh: SshNodes | None,
        unasked: tuple[str, str],
        *,
        deep: bool = False,
    ) -> None:
        self._context, self._kube, self._subject = context, context.kube, subject
        self._talos, self._ssh, self._unasked, self._deep = talos, ssh, unasked, deep
        self._unread: dict[str, str] = {}

    def collect(self) -> ClusterGpus:
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="diagnose") as pool:
            nodes_read = pool.submit(self._ask, "nodes", self._nodes)
            daemons_read = pool.submit(self._ask, "DaemonSets", self._daemons)
            pods_read = pool.submit(self._ask, "pods", self._pods)
            classes_read = pool.submit(self._ask, "RuntimeClasses", self._runtime_classes)
            claims_read = pool.submit(self._ask, "claims", self._context.records.known_claims)
            raw_nodes, daemons, pods = nodes_read.result() or [], daemons_read.result(), pods_read.result()
            gpu_nodes = self._gpu_nodes(raw_nodes, claims_read.result() or [])
            mine = self._of_subject(gpu_nodes, pods or [])
            config_read = pool.submit(self._ask, "ConfigMap", lambda: read_config(self._kube, daemons or ()))
            objects_read = pool.submit(self._ask, "objects", lambda: self._objects(daemons or ())) if self._deep else None
            systems = pool.map(self._system, mine)
            exporters = dcgm_exporter.exporters(raw.record for raw in pods or ())
            xids = pool.map(lambda node: self._xids(node, exporters.get(node.node.name)), mine)
            daemon_pods = None if pods is None else list(pool.map(self._daemon_pod, self._pods_of(daemons or (), pods, mine)))
            pending = None if pods is None else list(pool.map(self._pending, self._waiting(pods, mine)))
            nodes = [
                dataclasses.replace(node, system=system, host=host, unasked=why, xids=found)
                for node, (system, host, why), found in zip(mine, systems, xids, strict=True)
            ]
            return ClusterGpus(
                nodes=tuple(nodes),
                daemons=daemons,
                pods=None if daemon_pods is None else tuple(daemon_pods),
                runtime_classes=classes_read.result(),
                config=config_read.result(),
                objects=objects_read.result() if objects_read is not None else None,
                pending=None if pending is None else tuple(pending),
                all_nodes=tuple(node for node, _capacity in raw_nodes),
                used=_used(pods or ()),
                unread=tuple(sorted(self._unread.items())),
            )

    def _ask(self, source: str, question: t.Callable[[], _T]) -> _T | None:
        try:
            return question()
        except TgpError as error:
            self._unread[source] = f"could not be read: {str(error)[:300]}"
            return None

    # ---- nodes

    def _nodes(self) -> list[tuple[Node, dict[str, int]]]:
        def reduce(raw: Json) -> tuple[Node, dict[str, int]]:
            capacity = (raw.get("status") or {}).get("capacity") or {}
            return parse(self._kube, raw), {name: whole(str(text), name) for name, text in capacity.items() if is_gpu(name)}

        return self._kube.collect(NODES, reduce)[0]

    def _gpu_nodes(self, nodes: t.Iterable[tuple[Node, dict[str, int]]], claims: t.Iterable[Claim]) -> list[GpuNodeFacts]:
        by_node = {claim.node_name or claim.name: claim for claim in claims}
        found = []
        for node, capacity in nodes:
            claim = by_node.get(node.name)
            marked = PROVISIONED_LABEL in node.labels or node.labels.get(GPU_PRESENT_LABEL) == "true"
            if claim is not None or capacity or marked or node.name == self._subject.node:
                found.append(_gpu_node(node, capacity, claim))
        return sorted(found, key=lambda one: one.node.name)

    def _of_subject(self, nodes: list[GpuNodeFacts], pods: t.Sequence[_RawPod]) -> list[GpuNodeFacts]:
        """Those that are asked about; of a pod its node, or where it has none all nodes."""
        subject = self._subject
        if subject.pod is not None:
            bound = next((raw.record.node for raw in pods if (raw.record.namespace, raw.record.name) == subject.pod), "")
            return [node for node in nodes if not bound or node.node.name == bound]
        return [node for node in nodes if subject.has(node)]

    def _system(self, node: GpuNodeFacts) -> tuple[NodeSystem | None, HostSystem | None, str]:
        """What its own system says, of Talos or of another, or why neither was asked."""
        addresses = [one for one in node.node.addresses if one[:1].isdigit() or ":" in one]
        if (self._talos if node.talos else self._ssh) is None:
            return None, None, self._unasked[not node.talos]
        if not addresses:
            return None, None, "its Node has no address"
        if node.talos and self._talos is not None:
            return self._talos.read(addresses[0], (CDI_GEN,), sockets_in=SOCKETS if self._deep else ""), None, ""
        return None, self._ssh.read(addresses) if self._ssh is not None else None, ""

    def _xids(self, node: GpuNodeFacts, exporter: Pod | None) -> GpuXids | None:
        """What its dcgm-exporter says of XIDs, whatever its pool asks for; None where none runs on it."""
        if exporter is None:
            return None
        return dcgm_exporter.metrics(self._kube, exporter, node.gpus, self._context.clock.now()).xids

    # ---- DaemonSets and their pods

    def _daemons(self) -> tuple[GpuDaemon, ...]:
        return tuple(self._kube.collect(DAEMON_SETS, _daemon)[0])

    def _objects(self, daemons: t.Iterable[GpuDaemon]) -> tuple[str, ...]:
        """What is in the namespaces of the plugins, as kubectl get all shows it."""
        found = []
        for namespace in sorted({daemon.namespace for daemon in daemons}):
            for prefix, kind in _SHOWN:
                for entry in self._kube.list(f"{prefix}/namespaces/{namespace}/{kind}"):
                    phase = (entry.get("status") or {}).get("phase") or ""
                    found.append(f"{kind}/{namespace}/{entry['metadata']['name']} {phase}".rstrip())
        return tuple(found)

    def _runtime_classes(self) -> dict[str, str]:
        listed = self._kube.list("/apis/node.k8s.io/v1/runtimeclasses")
        return {str(entry["metadata"]["name"]): str(entry.get("handler") or "") for entry in listed}

    def _pods(self) -> list[_RawPod]:
        parse_pod = reducer(self._kube)
        return self._kube.collect(PODS, lambda raw: _pod(parse_pod(raw), raw))[0]

    def _pods_of(
        self, daemons: t.Iterable[GpuDaemon], pods: t.Iterable[_RawPod], nodes: t.Iterable[GpuNodeFacts]
    ) -> list[tuple[GpuDaemon, _RawPod]]:
        known = {(daemon.namespace, daemon.name): daemon for daemon in daemons}
        names = {node.node.name for node in nodes}
        return [
            (known[key], raw)
            for raw in pods
            if raw.daemon and (key := (raw.record.namespace, raw.daemon)) in known and raw.record.node in names
        ]

    def _daemon_pod(self, pair: tuple[GpuDaemon, _RawPod]) -> DaemonPod:
        daemon, raw = pair
        record = raw.record
        found = DaemonPod(
            daemon.name, daemon.kind, f"{record.namespace}/{record.name}", record.node, record.phase, raw.ready, raw.trouble
        )
        if record.phase == "Pending":
            return dataclasses.replace(found, unread="it has not started")
        try:
            return dataclasses.replace(found, log=self.log(record.namespace, record.name, raw.container))
        except TgpError as error:
            return dataclasses.replace(found, unread=f"could not be read: {str(error)[:200]}")

    def log(self, namespace: str, name: str, container: str) -> tuple[str, ...]:
        """The newest lines of a container, without what may be a secret."""
        params = {"tailLines": str(_LOG_LINES), "limitBytes": str(_LOG_BYTES), **({"container": container} if container else {})}
        text = self._kube.call("GET", f"{pod_path(namespace, name)}/log", params=params).text
        return tuple(line for line in redact_foreign(text).splitlines() if line.strip())

    # ---- pods that wait

    def _waiting(self, pods: t.Iterable[_RawPod], nodes: t.Sequence[GpuNodeFacts]) -> list[_RawPod]:
        subject, names = self._subject, {node.node.name for node in nodes}
        found = []
        for raw in pods:
            key = (raw.record.namespace, raw.record.name)
            if subject.pod is not None:
                if key == subject.pod:
                    found.append(raw)
            elif _waits(raw) and (raw.record.node in names or (not subject.node and self._may_want(raw, nodes))):
                found.append(raw)
        return found[:_MOST_PENDING]

    def _may_want(self, raw: _RawPod, nodes: t.Sequence[GpuNodeFacts]) -> bool:
        """Whether a pod without a node may be one for the pool that is asked about."""
        if raw.record.node:
            return False
        pool = self._subject.pool.rpartition("/")[2]
        wanted = dict(raw.record.placement.selector).get(NODEPOOL_LABEL)
        return not pool or wanted is None or wanted == pool

    def _pending(self, raw: _RawPod) -> PendingPod:
        found = PendingPod(raw.record, raw.runtime_class, raw.trouble, raw.failed)
        try:
            return dataclasses.replace(found, events=events_of_pod(self._kube, raw.record.namespace, raw.record.name))
        except TgpError as error:
            return dataclasses.replace(found, unread=f"its events could not be read: {str(error)[:200]}")


def _used(pods: t.Iterable[_RawPod]) -> dict[str, dict[str, int]]:
    """GPUs that pods hold, by node and resource."""
    used: dict[str, dict[str, int]] = {}
    for raw in pods:
        if raw.record.node and not raw.record.ended:
            held = used.setdefault(raw.record.node, {})
            for name, amount in raw.record.requests.items():
                if is_gpu(name):
                    held[name] = held.get(name, 0) + amount
    return used


def _gpu_node(node: Node, capacity: t.Mapping[str, int], claim: Claim | None) -> GpuNodeFacts:
    extensions = {key.removeprefix(_EXTENSIONS): value for key, value in node.labels.items() if key.startswith(_EXTENSIONS)}
    count = node.labels.get(GPU_COUNT_LABEL, "")
    gpus = claim.offer.gpu_count if claim is not None else int(count) if count.isdigit() else None
    model = claim.offer.model if claim is not None else node.labels.get(GPU_TYPE_LABEL, "")
    release = node.os_image.partition("(")[2].rstrip(")")
    return GpuNodeFacts(
        node,
        capacity,
        gpus=gpus,
        model=model,
        pool=claim.pool if claim is not None else node.labels.get(NODEPOOL_LABEL, ""),
        talos=node.os_image.startswith("Talos"),
        extensions=extensions,
        wrong_driver=tuple(mismatches(tuple(extensions), [model], release)) if model and extensions else (),
        needs_fabric_manager=bool(model) and needs_fabric_manager(model, gpus),
    )


def _daemon(raw: Json) -> GpuDaemon | None:
    meta, template = raw["metadata"], raw["spec"]["template"]
    labels, spec = template["metadata"].get("labels") or {}, template["spec"]
    power = _POWER in (meta["name"], labels.get(APP_NAME_LABEL))
    if not power and device_plugin_of(raw) is None:
        return None
    volumes = [volume["configMap"].get("name", "") for volume in spec.get("volumes") or () if volume.get("configMap")]
    return GpuDaemon(
        "power" if power else "plugin",
        meta["namespace"],
        meta["name"],
        _origin(meta, labels),
        placement_of(spec, meta["namespace"]),
        runtime_class=spec.get("runtimeClassName") or "",
        config_map=next(iter(volumes), "") if not power else "",
    )


def _origin(meta: Json, labels: t.Mapping[str, str]) -> str:
    """Whose manifest it is, by the marks that each of them leaves."""
    owners = {reference.get("kind") for reference in meta.get("ownerReferences") or ()}
    if owners & {"ClusterPolicy", "NVIDIADriver"} or labels.get("app") == "nvidia-device-plugin-daemonset":
        return "GPU Operator"
    if (meta.get("labels") or {}).get("helm.sh/chart"):
        return "NVIDIA's Helm chart"
    if labels.get("name") == "nvidia-device-plugin-ds":
        return "NVIDIA's static manifest"
    return "stand-alone"


def _pod(record: Pod, raw: Json) -> _RawPod | None:
    spec, status = raw["spec"], raw.get("status") or {}
    daemon = next(
        (reference["name"] for reference in raw["metadata"].get("ownerReferences") or () if reference.get("kind") == "DaemonSet"),
        "",
    )
    wants = any(is_gpu(name) for name in record.requests) or spec.get("runtimeClassName") == "nvidia"
    if not daemon and not wants:
        return None
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = "; ".join(text for container in containers if (text := waiting_of(container)))
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or ()}
    failed = f"{status.get('reason') or ''}: {status.get('message') or ''}".strip(": ") if record.phase == "Failed" else ""
    return _RawPod(
        record,
        daemon,
        str(spec["containers"][0].get("name") or ""),
        conditions.get("Ready") == "True",
        redact_foreign(waiting or str(status.get("message") or ""))[:400],
        redact_foreign(failed)[:400],
        str(spec.get("runtimeClassName") or ""),
    )


def _waits(raw: _RawPod) -> bool:
    """Whether it is a workload that should run and does not. The kubelet leaves pods behind that it turned away."""
    record = raw.record
    if raw.daemon or record.deletion is not None or GPU_TEST_LABEL in record.labels:
        return False
    turned_away = raw.failed.startswith("UnexpectedAdmissionError")
    return record.phase == "Pending" or turned_away or (record.phase == "Running" and bool(raw.trouble) and not raw.ready)
