# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures round trip and throughput between pods of two nodes with iperf3 (S3-26). One pair after the other, two pods for each.

The server pod runs on one node, the client pod on the other: its runs are two init containers and a container, so the kubelet starts one
after the other and tries a refused one again. Both pods are removed in any case. Each ends by itself after its time
(``activeDeadlineSeconds``), whatever becomes of this process; what a killed run left is removed by the next one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
from datetime import datetime, timedelta

from ..core.clock import from_text
from ..core.errors import InvalidInput, NotFound, TgpError, TimedOut
from ..core.events import render
from ..core.redact import redact_foreign
from ..core.task import Task, like_an_interrupt, undisturbed
from ..kube.client import Json
from ..kube.nodes import nodes
from ..kube.pods import pod_path
from ..model import Claim, Node
from ..model.labels import (
    BENCH_MESH_LABEL,
    CLUSTER_API_DRAIN_LABEL,
    MANAGED_BY_LABEL,
    NODEPOOL_LABEL,
    OWNER_PROCESS_ANNOTATION,
    PROVISIONED_LABEL,
    SAFE_TO_EVICT_ANNOTATION,
    SCALE_UP_ANNOTATION,
)
from ..observe.context import Context, open_context
from ..planner import mesh_benchmark as rules
from ..planner.claims.mesh import mesh_of
from ..planner.mesh_benchmark import BenchPod, MeshNode, MeshPair, RunFailed, RunResult
from ..store.lock_file import alive, describe, from_record
from .gpu_test import why_pod_waits

_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*(@sha256:[0-9a-f]{64})?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EVERY = 2.0  # seconds between two looks
_ROLES = ("server", "client")
_LIMITS = {"seconds": (1, 60), "port": (1024, 65535), "start_timeout": (10, 1800), "max_pairs": (1, 20)}
_COLUMNS = {
    "source": "from", "target": "to", "direction": "direction", "rtt": "idle round trip, ms", "mbit": "Mbit/s", "again": "retransmits",
    "mesh": "mesh", "path": "path",
}  # fmt: skip
_RIGHT = ("rtt", "mbit", "again")
_OVER = ("Succeeded", "Failed")
_NOBODY = 65534
PLANNED, MEASURED, FAILED = "planned", "measured", "failed"


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    image: str
    namespace: str
    seconds: int
    port: int
    start_timeout: int
    max_pairs: int


def bench_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_bench_mesh. Fails with the reasons when a pair could not be measured; what was measured is in the result."""
    options = _options(task)
    context = open_context(task, documents_required=False, read_only=True)
    try:
        choice = rules.choose_pairs(
            _mesh_nodes(context),
            source=str(task.params.get("from_node") or ""),
            target=str(task.params.get("to_node") or ""),
            pool=str(task.params.get("pool") or ""),
            most=options.max_pairs,
        )
        for sentence in choice.skipped:
            context.warn(sentence)
        if "@" not in options.image:
            context.warn(
                f"The image {options.image} is not pinned by a digest (@sha256:…): whoever can move its tag runs a program here."
            )
        if task.check_mode:
            return _planned(task, choice.pairs, options)
        with like_an_interrupt():
            return _measured(context, choice.pairs, options)
    finally:
        context.close()


def _options(task: Task) -> _Options:
    """Checked before anything is read: without an image nothing can run."""
    image = str(task.params.get("image") or "")
    if not image:
        raise InvalidInput(
            f"{task.called('image')} is missing: the measurement runs iperf3, and this collection publishes no image.",
            remedy="Give an image that contains iperf3, for example registry.example.org/tools/iperf3@sha256:… (docs/how_to/mesh.md).",
        )
    if not _IMAGE.fullmatch(image):
        raise InvalidInput(f"{task.called('image')}: {image!r} is not the name of an image.")
    namespace = str(task.params["namespace"])
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidInput(f"{task.called('namespace')}: {namespace!r} is not the name of a namespace.")
    for name, (least, most) in _LIMITS.items():
        if not least <= task.params[name] <= most:
            raise InvalidInput(f"{task.called(name)} is {task.params[name]}; it is {least} to {most}.")
    return _Options(image, namespace, *(task.params[name] for name in ("seconds", "port", "start_timeout", "max_pairs")))


def _mesh_nodes(context: Context) -> list[MeshNode]:
    by_node = {claim.node_name or claim.name: claim for claim in context.records.known_claims()}
    return [_mesh_node(node, by_node.get(node.name)) for node in nodes(context.kube)]


def _mesh_node(node: Node, claim: Claim | None) -> MeshNode:
    pool = node.labels.get(NODEPOOL_LABEL, "")
    if claim is None:
        return MeshNode(node, ours=bool(pool) or PROVISIONED_LABEL in node.labels, pool=pool)
    return MeshNode(node, ours=True, pool=claim.pool, mesh=mesh_of(claim))


# ---- the result


def _planned(task: Task, pairs: t.Sequence[MeshPair], options: _Options) -> dict[str, t.Any]:
    seconds = sum(rules.deadlines(options.seconds, options.start_timeout)[0] for _pair in pairs)
    task.progress(f"  Would measure, one pair after the other, each by two pods in {options.namespace}, for at most {seconds} s:")
    rows = [{"source": pair.source.name, "target": pair.target.name, "mesh": rules.mesh_between(pair)} for pair in pairs]
    for line in render(rows, {key: _COLUMNS[key] for key in ("source", "target", "mesh")}):
        task.progress(line)
    return {"changed": False, "pairs": [_record(pair, PLANNED) for pair in pairs], "writes": 0}


def _measured(context: Context, pairs: t.Sequence[MeshPair], options: _Options) -> dict[str, t.Any]:
    task, found, rows, problems, writes = context.task, [], [], [], 0
    runner = _Runner(context, options)
    try:
        runner.remove_orphans()
        for number, pair in enumerate(pairs, 1):
            task.progress(f"  Measuring between {pair} ({number} of {len(pairs)}).")
            try:
                results = runner.measure(pair, number)
            except TgpError as error:
                problems.append(f"Between {pair}: {error}")
                found.append(_record(pair, FAILED, problem=str(error)))
                rows.append(_row(pair, "→", rtt="not measured"))
                continue
            found.append(_record(pair, MEASURED, results))
            rows += _rows(pair, results)
    finally:
        writes = runner.writes
        if runner.kept:
            context.warn(
                f"Pods that could not be removed: {', '.join(sorted(runner.kept))}. They end by themselves, and the next run removes them: "
                f"kubectl -n {options.namespace} get pods -l {BENCH_MESH_LABEL}"
            )
    for line in render(rows, _COLUMNS, right=_RIGHT):
        task.progress(line)
    result: dict[str, t.Any] = {"changed": False, "pairs": found, "writes": writes}
    if problems:
        raise TgpError("The mesh could not be measured:\n" + "\n".join(f"  - {one}" for one in problems), result=result)
    return result


def _record(pair: MeshPair, state: str, results: t.Mapping[str, RunResult] | None = None, problem: str = "") -> dict[str, t.Any]:
    path, why = rules.path_between(pair)
    record: dict[str, t.Any] = {
        "from_node": pair.source.name, "to_node": pair.target.name, "mesh": rules.mesh_between(pair), "path": path, "path_reason": why,
        "state": state, "problem": problem, "round_trip_ms": None, "forward": None, "reverse": None, "iperf3": "",
    }  # fmt: skip
    if results:
        idle = results[rules.IDLE]
        record["iperf3"] = idle.version
        if idle.rtt_mean_ms is not None:
            record["round_trip_ms"] = {"mean": idle.rtt_mean_ms, "min": idle.rtt_min_ms}
        for name in (rules.FORWARD, rules.REVERSE):
            record[name] = {"mbit_per_s": round(results[name].mbit_s, 1), "retransmits": results[name].retransmits}
    return record


def _rows(pair: MeshPair, results: t.Mapping[str, RunResult]) -> list[dict[str, str]]:
    idle = results[rules.IDLE]
    rtt = "not reported" if idle.rtt_mean_ms is None else f"{idle.rtt_mean_ms:.2f}"
    return [
        _row(pair, arrow, rtt=rtt if name == rules.FORWARD else "", result=results[name])
        for arrow, name in (("→", rules.FORWARD), ("←", rules.REVERSE))
    ]


def _row(pair: MeshPair, arrow: str, *, rtt: str, result: RunResult | None = None) -> dict[str, str]:
    again = "" if result is None else "not reported" if result.retransmits is None else str(result.retransmits)
    return {
        "source": pair.source.name, "target": pair.target.name, "direction": arrow, "rtt": rtt, "again": again,
        "mbit": "" if result is None else f"{result.mbit_s:.1f}", "mesh": rules.mesh_between(pair), "path": rules.path_between(pair)[0],
    }  # fmt: skip


# ---- the pods


class _Runner:
    """Makes, follows and removes the pods. ``writes`` counts calls that create or delete, ``kept`` the pods that could not be removed."""

    def __init__(self, context: Context, options: _Options) -> None:
        self._kube, self._clock, self._run = context.kube, context.clock, context.run_id
        self._options, self._base = options, f"/api/v1/namespaces/{options.namespace}/pods"
        self.writes = 0
        self.kept: set[str] = set()

    def measure(self, pair: MeshPair, number: int) -> dict[str, RunResult]:
        """The results of all runs, by name. The pods are gone afterwards, whatever happens."""
        server, client = (f"tgp-bench-{self._run[-8:].lower()}-{number}-{role}" for role in _ROLES)
        options, tried = self._options, []
        for_server, for_client = rules.deadlines(options.seconds, options.start_timeout)
        try:
            tried.append(server)
            self._create(
                self._pod(server, pair.target.node, for_server, [self._container("server", rules.server_arguments(options.port))])
            )
            address = self._address(server)
            runs = [self._container(run, rules.client_arguments(run, address, options.port, options.seconds)) for run in rules.RUNS]
            tried.append(client)
            self._create(self._pod(client, pair.source.node, for_client, runs))
            self._finish(client)
            return {run: self._read(client, run) for run in rules.RUNS}
        finally:
            with undisturbed():
                for name in reversed(tried):
                    self._remove(name)

    def remove_orphans(self) -> None:
        """Remove what killed runs left. InvalidInput while another measurement runs."""
        now = self._clock.now()
        pods = [_bench_pod(raw) for raw in self._kube.list(self._base, {"labelSelector": BENCH_MESH_LABEL})]
        for pod in rules.orphans(pods, now):
            self._remove(pod.name, pod.uid)
        other = rules.busy(pods, now)
        if other is not None:
            raise InvalidInput(
                f"Another measurement runs: the pod {self._options.namespace}/{other.name} of run {other.run} is there until "
                f"{other.until:%H:%M:%S}Z at the latest. Two at once would measure each other.",
                remedy="Let it end. If its run was killed, delete its pods: "
                f"kubectl -n {self._options.namespace} delete pods -l {BENCH_MESH_LABEL}={other.run}",
            )

    def _create(self, body: Json) -> None:
        self.writes += 1
        try:
            self._kube.create(self._base, body)
        except NotFound as error:
            raise InvalidInput(
                f"There is no namespace {self._options.namespace} for the pods.", remedy="Create it, or name another one."
            ) from error

    def _remove(self, name: str, uid: str = "") -> None:
        """What cannot be removed ends by itself; that must not hide what was measured."""
        self.writes += 1
        try:
            self._kube.delete(pod_path(self._options.namespace, name), uid=uid)
        except TgpError:
            self.kept.add(name)

    def _pod(self, name: str, node: Node, seconds: int, containers: list[Json]) -> Json:
        """A pod that the standard "restricted" of Kubernetes admits, on exactly this node. It rents no machine, and no drain waits for it."""
        labels = {MANAGED_BY_LABEL: "tgp.gpu", BENCH_MESH_LABEL: self._run, CLUSTER_API_DRAIN_LABEL: "skip"}
        owner = json.dumps(describe().to_record())
        marks = {OWNER_PROCESS_ANNOTATION: owner, SCALE_UP_ANNOTATION: "false", SAFE_TO_EVICT_ANNOTATION: "true"}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        spec: Json = {
            "restartPolicy": "OnFailure",
            "activeDeadlineSeconds": seconds,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _NOBODY,
                "runAsGroup": _NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
            "tolerations": rules.tolerations(node),
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
            "containers": containers[-1:],
        }
        if containers[:-1]:
            spec["initContainers"] = containers[:-1]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": marks}, "spec": spec}

    def _container(self, name: str, arguments: list[str]) -> Json:
        return {
            "name": name,
            "image": self._options.image,
            "command": ["iperf3"],
            "args": arguments,
            "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # iperf3 maps its buffers from files there
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }

    # ---- following them

    def _look(self, name: str) -> Json:
        raw = self._kube.find(pod_path(self._options.namespace, name))
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            raise TgpError(f"The pod {name} is gone: its node, a drain or another client deleted it.")
        return raw

    def _address(self, name: str) -> str:
        """The address of the server, once its container runs."""
        until = self._clock.now() + timedelta(seconds=self._options.start_timeout)
        while True:
            pod = self._look(name)
            status = pod.get("status") or {}
            self._refuse_ended(name, status)
            for one in _states(status):
                self._refuse_broken(name, one)
                if (one.get("state") or {}).get("running") and status.get("podIP"):
                    return str(status["podIP"])
            if self._clock.now() >= until:
                raise self._late(pod)
            self._clock.sleep(_EVERY)

    def _finish(self, name: str) -> None:
        """Wait until all runs of the client have ended well."""
        options, began = self._options, self._clock.now()
        by_start = began + timedelta(seconds=options.start_timeout)
        by_end = began + timedelta(seconds=rules.longest(options.seconds, options.start_timeout))
        refused: dict[str, datetime] = {}
        while True:
            pod = self._look(name)
            status = pod.get("status") or {}
            if status.get("phase") == "Succeeded":
                return
            self._refuse_ended(name, status)
            now = self._clock.now()
            for one in _states(status):
                said = self._refused(name, one)
                if said and rules.refused_for_good(refused.setdefault(str(one.get("name")), now), now):
                    raise TgpError(
                        f"The pod {name} does not reach the server: {said}.",
                        remedy="Look for a NetworkPolicy, the network plugin's tunnel between the two nodes, and the mesh of both machines.",
                    )
            started = any(_has_run(one) for one in _states(status))
            if (now >= by_start and not started) or now >= by_end:
                raise self._late(pod)
            self._clock.sleep(_EVERY)

    def _refused(self, name: str, container: Json) -> str:
        """What iperf3 said when it was refused and is started once more; empty when it was not. Other errors end the measurement."""
        failed = _failed(container)
        if failed is None or (container.get("state") or {}).get("running"):
            return ""
        if failed.get("reason") != "Error":  # it could not be started, or was killed: it has printed nothing about itself
            self._refuse_broken(name, container)
        if not (text := self._log(name, str(container.get("name")))).strip():  # the next instance has begun meanwhile
            return ""
        try:
            rules.read_run(text, redact_foreign)
        except RunFailed as error:
            if error.again:
                return str(error)
            raise
        self._refuse_broken(name, container)
        return ""

    def _read(self, name: str, container: str) -> RunResult:
        return rules.read_run(self._log(name, container), redact_foreign)

    def _log(self, name: str, container: str) -> str:
        return self._kube.call("GET", f"{pod_path(self._options.namespace, name)}/log", params={"container": container}).text

    def _refuse_ended(self, name: str, status: Json) -> None:
        if status.get("phase") in _OVER:
            detail = f"{status.get('reason') or status['phase']}: {status.get('message') or ''}".strip(": ")
            raise TgpError(f"The pod {name} ended early ({redact_foreign(detail)[:300]}).")

    def _refuse_broken(self, name: str, container: Json) -> None:
        """A container that cannot be started, or whose program ended with an error, and says so in its status."""
        failed = _failed(container)
        if failed is not None:
            detail = (
                f"{failed.get('reason') or 'Error'}, exit status {failed.get('exitCode')}: {failed.get('message') or ''}".strip(
                    ": "
                )
            )
            raise TgpError(
                f"The container {container.get('name')} of pod {name} failed ({redact_foreign(detail)[:300]}).",
                remedy=f"Does the image {self._options.image} contain iperf3?",
            )

    def _late(self, pod: Json) -> TimedOut:
        name, node = pod["metadata"]["name"], (pod["spec"].get("nodeName") or "no node yet")
        why = why_pod_waits(self._kube, self._options.namespace, pod)
        return TimedOut(f"The pod {name} ({node}) did not get on in time: {why}.")


def _states(status: Json) -> list[Json]:
    """Of all containers, in the order in which the kubelet starts them."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _has_run(container: Json) -> bool:
    state = container.get("state") or {}
    return bool(state.get("running") or state.get("terminated") or container.get("restartCount"))


def _failed(container: Json) -> Json | None:
    """How the newest instance of a container that does not run now ended, if it ended with an error."""
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended is not None:
            return t.cast(Json, ended) if ended.get("exitCode") else None
    return None


def _bench_pod(raw: Json) -> BenchPod:
    meta = raw["metadata"]
    record = _json((meta.get("annotations") or {}).get(OWNER_PROCESS_ANNOTATION))
    owner = from_record(record) if isinstance(record, dict) else None
    return BenchPod(
        name=str(meta["name"]),
        uid=str(meta.get("uid") or ""),
        run=str(meta["labels"][BENCH_MESH_LABEL]),
        created=from_text(meta["creationTimestamp"]),
        lasts=int(raw["spec"].get("activeDeadlineSeconds") or 0),
        owner_lives=alive(owner) if owner is not None else None,
        ended=(raw.get("status") or {}).get("phase") in _OVER,
        deleting=bool(meta.get("deletionTimestamp")),
    )


def _json(text: str | None) -> t.Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None
