# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where metrics go at the end of a run: a text file for node_exporter, a Pushgateway, and an HTTP endpoint of a loop.

Nothing here fails a run: what cannot be written or sent is a warning. Options that cannot be meant are refused before the run begins.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import os
import socket
import threading
import typing as t
from urllib.parse import quote, unquote, urlsplit

from ..core import tally
from ..core.clock import from_text
from ..core.errors import ApiError, InvalidInput, TgpError, lazy
from ..core.files import replace
from ..core.http import Api
from ..core.rate_limit import RetryPolicy
from ..core.redact import redact, register
from ..core.task import Task
from ..providers.registry import CAPABILITIES
from .collect import FleetRecords, health_checks, of_demand, of_plan, of_records
from .families import ALIASES, COUNTER, FAMILIES, HISTOGRAM, OTHER, Cell, Family
from .state import Json, Kept, MetricsState, folder_of, noted

if t.TYPE_CHECKING:
    import prometheus_client
    from prometheus_client import core as families
else:
    prometheus_client = lazy("prometheus_client", "prometheus-client")
    families = lazy("prometheus_client.core", "prometheus-client")

JOB = "tgp_gpu"
STALE_AFTER = 604800  # seconds after which a group that this controller pushed and does not push any more is deleted
_DEADLINE = 5.0  # real seconds for one call of the gateway
_SERVICES = frozenset(
    {"kubernetes", "tailscale", "headscale", "image factory", "metrics_push_url", "notify_url", "mesh_proxy", *CAPABILITIES}
)
_PUSHED = "pushed.json"
_SUCCESS = ("ok", "changed", "shortfall")


@dataclasses.dataclass(frozen=True)
class Targets:
    """What the options of a call name. ``push`` is the gateway's root without credentials; ``authorization`` is the header for it."""

    file: str = ""
    push: str = ""
    authorization: str = ""
    listen: tuple[str, int] | None = None
    per_machine: bool = False

    @classmethod
    def of(cls, task: Task) -> Targets:
        """InvalidInput for a value that cannot be meant, without the credentials of a URL."""
        params = task.params
        path = str(params.get("metrics_file") or "")
        if path and not path.endswith(".prom"):
            raise InvalidInput(f"metrics_file {path} does not end with .prom.", remedy="node_exporter reads only files that do.")
        push, authorization = _gateway(str(params.get("metrics_push_url") or ""))
        return cls(
            file=os.path.abspath(os.path.expanduser(path)) if path else "",
            push=push,
            authorization=authorization,
            listen=address_of(str(params.get("metrics_listen") or "")),
            per_machine=bool(params.get("metrics_per_machine")),
        )

    @property
    def wanted(self) -> bool:
        """Whether anybody reads metrics."""
        return bool(self.file or self.push or self.listen)


def _gateway(url: str) -> tuple[str, str]:
    """The root of a Pushgateway, and the header that its credentials make."""
    if not url:
        return "", ""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        host = None
    if not host or parts.query or parts.fragment:
        raise InvalidInput(
            "metrics_push_url is not the http(s) URL of a Pushgateway.", remedy="Write https://host:9091, without a query."
        )
    register(parts.password, url if parts.password else None)
    place = parts.netloc.rpartition("@")[2]
    root = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
    if parts.username is None:
        return root, ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = f"Basic {base64.b64encode(pair.encode()).decode()}"
    register(unquote(parts.password or "") or None, header)
    return root, header


def address_of(text: str) -> tuple[str, int] | None:
    """Host and port of ``metrics_listen``; loopback where it names no host. None for nothing."""
    if not text:
        return None
    host, _colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput(f"metrics_listen is {text!r}.", remedy="Write a port, or host:port, for example 9477 or 0.0.0.0:9477.")
    return host, int(port)


def attend(task: Task) -> Recorder | None:
    """Count in this step of a run, and publish at the end of the run; None where nobody reads metrics, and in check mode."""
    targets = Targets.of(task)
    if task.check_mode or not targets.wanted:
        return None
    tally.begin()
    recorder = Recorder(task, targets)
    task.at_end.append(recorder.step_ended)
    return recorder


class Recorder:
    """The metrics of one step of a run. ``leaves``: the collection leaves the cluster, so that its metrics are taken back."""

    def __init__(self, task: Task, targets: Targets) -> None:
        self._task, self.targets = task, targets
        self._state = MetricsState(folder_of(task.params))
        self._parts: dict[str, list[Json]] = {}
        self.leaves = False

    def note_records(self, known: FleetRecords) -> None:
        """Machines, money and documents as they are at the end of a run."""
        known = dataclasses.replace(known, per_machine=self.targets.per_machine)
        self._parts["records"] = noted(of_records(known))

    def note_plan(self, seen: t.Any, decided: t.Any, *, demand: bool) -> None:
        """What a plan saw (Observation) and decided (Plan). ``demand``: it counted pods and GPUs."""
        self._parts["plan"] = noted(of_plan(seen, decided, per_machine=self.targets.per_machine))
        if demand:
            self._parts["demand"] = noted(of_demand(decided))
        for cloud, status in health_checks(seen):
            tally.count("tgp_operator_health_checks", provider=cloud, status=status)

    def step_ended(self, report: Json | None) -> None:
        """Keep what the step has counted; publish once the run is over (``report``)."""
        counted = tally.take()
        line: Json = {"cluster": self._task.cluster_id, **_with_old_names(counted), "parts": self._parts}
        if report is not None:
            line["run"] = _run_of(report)
        try:
            self._state.append(line)
            if report is not None or self.leaves:
                self._publish(self._state.settle())
        except OSError as error:
            self._task.warn(
                f"The metrics could not be kept in {self._state.folder} ({error.strerror}); the run goes on without them."
            )
        except (TgpError, ValueError) as error:
            self._task.warn(f"The metrics were not published: {redact(str(error))}")

    def _publish(self, kept: Kept) -> None:
        if self.leaves:
            self._withdraw(kept)
            return
        text = exposition(kept)
        problems: list[str] = []
        for target, publish in ((self.targets.file, self._write), (self.targets.push, self._push)):
            if target:
                try:
                    publish(kept, text)
                except TgpError as error:
                    problems.append(error.message)
        for problem in problems:
            self._task.warn(f"The metrics were not published: {redact(problem)}")

    def _write(self, _kept: Kept, text: bytes) -> None:
        folder = os.path.dirname(self.targets.file)
        if not os.path.isdir(folder):
            raise InvalidInput(f"the folder {folder} of metrics_file does not exist.")
        replace(self.targets.file, text, mode=0o644)

    def _withdraw(self, kept: Kept) -> None:
        if self.targets.file:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.targets.file)
        if self.targets.push and kept.cluster:
            with _Gateway(self._task, self.targets) as gateway:
                gateway.delete(kept.cluster)

    # ---- the Pushgateway

    def _push(self, kept: Kept, text: bytes) -> None:
        if not kept.cluster:
            raise TgpError("the id of the cluster is not known yet, by which metrics are grouped at the Pushgateway.")
        with _Gateway(self._task, self.targets) as gateway:
            gateway.put(kept.cluster, text)
            for path, cluster in self._stale(kept.cluster):
                gateway.delete(cluster)
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
        mark = {"gateway": _digest(self.targets.push), "cluster": kept.cluster, "pushed": self._task.clock.now().timestamp()}
        replace(os.path.join(self._state.folder, _PUSHED), json.dumps(mark).encode())

    def _stale(self, cluster: str) -> t.Iterator[tuple[str, str]]:
        """Groups of other clusters that this controller has pushed to the same gateway: that of an earlier cluster behind the same
        kubeconfig, and those that were not pushed for a week."""
        parent, now = os.path.dirname(self._state.folder), self._task.clock.now().timestamp()
        for name in sorted(os.listdir(parent)):
            path = os.path.join(parent, name, _PUSHED)
            try:
                with open(path, encoding="utf-8") as file:
                    mark = json.load(file)
                same, other = mark["gateway"] == _digest(self.targets.push), str(mark["cluster"])
                old = now - float(mark["pushed"]) > STALE_AFTER
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if same and other != cluster and (old or os.path.dirname(path) == self._state.folder):
                yield path, other


class _Gateway:
    """One Pushgateway. An error names its host, and neither path nor credentials."""

    def __init__(self, task: Task, targets: Targets) -> None:
        parts = urlsplit(targets.push)
        root = f"{parts.scheme}://{parts.netloc}"
        self._host, self._path = parts.hostname, parts.path
        headers = {"authorization": targets.authorization} if targets.authorization else {}
        retry = RetryPolicy(tries=2, first=0.25, longest=0.5, deadline=_DEADLINE)
        transport = task.transport(root)
        self._api = Api("metrics_push_url", root, headers=headers, transport=transport, retry=retry, timeout=_DEADLINE)

    def __enter__(self) -> _Gateway:
        return self

    def __exit__(self, *_error: object) -> None:
        self._api.close()

    def put(self, cluster: str, text: bytes) -> None:
        """Replace all metrics of the group."""
        headers = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        self._call("PUT", cluster, content=text, headers=headers)

    def delete(self, cluster: str) -> None:
        self._call("DELETE", cluster)

    def _call(self, method: str, cluster: str, **more: t.Any) -> None:
        try:
            self._api.call(method, f"{self._path}/metrics/job/{JOB}/cluster/{quote(cluster, safe='')}", idempotent=True, **more)
        except ApiError as error:
            how = f"answered {error.status}" if error.status else "cannot be reached"
            raise TgpError(f"the Pushgateway at {self._host} {how}.") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _run_of(report: Json) -> Json:
    """The facts of a run that are kept."""
    ended = from_text(report["ended"]).timestamp()
    seconds = max(0.0, ended - from_text(report["started"]).timestamp())
    success = report["outcome"] in _SUCCESS and not report["error"]
    return {"playbook": report["playbook"], "outcome": report["outcome"], "ended": ended, "seconds": seconds, "success": success}


def _with_old_names(counted: tally.Counted) -> Json:
    """What was counted, and of clouds also under the names of tgp-operator. Services that are no providers, as those of pools, share a
    label."""
    kept: Json = {}
    for store, entries in counted._asdict().items():
        named = [[name, _bounded(labels), value] for name, labels, value in entries]
        mine = [entry for entry in named if entry[0] in ALIASES and entry[1]["provider"] in CAPABILITIES]
        kept[store] = [*named, *([ALIASES[name], labels, value] for name, labels, value in mine)]
    return kept


def _bounded(labels: dict[str, str]) -> dict[str, str]:
    return {**labels, "provider": OTHER} if "provider" in labels and labels["provider"] not in _SERVICES else labels


# ---- as text


def exposition(kept: Kept) -> bytes:
    """Everything that is known in the text format of Prometheus."""
    found: dict[str, dict[tuple[str, ...], t.Any]] = {}
    for name, labels, value in kept.samples():
        family = FAMILIES.get(name)
        if family is None or set(labels) != set(family.labels):
            continue  # of another version
        key = tuple(labels[label] for label in family.labels)
        found.setdefault(name, {})[key] = value
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(_Shown([_metric(FAMILIES[name], series) for name, series in sorted(found.items())]))
    return prometheus_client.generate_latest(registry)


class _Shown:
    def __init__(self, metrics: list[t.Any]) -> None:
        self._metrics = metrics

    def collect(self) -> t.Iterable[t.Any]:
        return self._metrics


def _metric(family: Family, series: t.Mapping[tuple[str, ...], t.Any]) -> t.Any:
    kinds = {COUNTER: families.CounterMetricFamily, HISTOGRAM: families.HistogramMetricFamily}
    metric = kinds.get(family.kind, families.GaugeMetricFamily)(family.name, family.help, labels=family.labels)
    for labels, value in sorted(series.items()):
        if isinstance(value, Cell):
            metric.add_metric(labels, _buckets(family, value), value.total)
        else:
            metric.add_metric(labels, value)
    return metric


def _buckets(family: Family, cell: Cell) -> list[tuple[str, float]]:
    """Cumulative, as the format has them."""
    total, buckets = 0, []
    for bound, count in zip((*map(str, family.buckets), "+Inf"), cell.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


# ---- the endpoint of a loop


class Endpoint:
    """GET /metrics, with the text that was shown last."""

    def __init__(self, address: tuple[str, int], called: str) -> None:
        self._text = b""
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = (200, endpoint._text) if self.path.partition("?")[0] == "/metrics" else (404, b"see /metrics\n")
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: t.Any) -> None:
                """Not a line for each scrape."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        try:
            self._server = Server(address, Handler)
        except OSError as error:
            raise InvalidInput(
                f"{called}: {address[0]}:{address[1]} cannot be listened on: {error.strerror}.", remedy="Choose a free port."
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def show(self, text: bytes) -> None:
        self._text = text

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def listen(task: Task) -> Endpoint | None:
    """The endpoint that the options ask for."""
    address = Targets.of(task).listen
    return Endpoint(address, task.called("metrics_listen")) if address is not None and not task.check_mode else None


def current(task: Task) -> bytes:
    """The metrics as they are kept now. Empty, after a warning, when they cannot be read."""
    try:
        return exposition(MetricsState(folder_of(task.params)).settle())
    except (OSError, TgpError) as error:
        task.warn(f"The metrics were not published: {redact(str(error))}")
        return b""
