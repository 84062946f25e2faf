# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pairs of nodes a measurement of the mesh connects, with which runs of iperf3, what their output says, and which pods are orphaned."""

from __future__ import annotations

import dataclasses
import json
import math
import typing as t
from datetime import datetime, timedelta

from ..core.errors import InvalidInput, TgpError
from ..model import Node
from ..model.cluster import Taint
from ..model.labels import (
    CLOUD_PROVIDER_TAINT_PREFIX,
    DISRUPTED_TAINT,
    GPU_LOST_TAINT,
    GPU_XID_TAINT,
    INITIALIZING_TAINT,
    NODE_TAINT_PREFIX,
    READINESS_TAINT_PREFIX,
)

IDLE, FORWARD, REVERSE = "idle", "forward", "reverse"
RUNS = (IDLE, FORWARD, REVERSE)
_BETWEEN_RUNS = 15  # seconds that a run may take beside its own: to connect, exchange results, and start the next container
_CONNECT = 60  # seconds for which a client that is refused tries again
_SPARE = 60  # seconds that pods outlive the longest measurement before they end by themselves
_IDLE_RATE, _IDLE_BLOCK = "320K", "4000"  # ten writes a second. Their last segment is not a full one, so its ACK is not delayed
_CONNECT_MS = "5000"
_QUOTED = 300  # characters of an output that is not understood
#: errors of iperf3 after which a later try may succeed: the server does not listen yet, or still serves another client
RETRIED = ("unable to connect to server", "the server is busy", "unable to connect stream")
_CLOSED_TO_PODS = frozenset({DISRUPTED_TAINT, GPU_LOST_TAINT, GPU_XID_TAINT, INITIALIZING_TAINT})
_CLOSED_PREFIXES = (NODE_TAINT_PREFIX, CLOUD_PROVIDER_TAINT_PREFIX, READINESS_TAINT_PREFIX)
_KEEPS_OUT = ("NoSchedule", "NoExecute")


# ---- which pairs


@dataclasses.dataclass(frozen=True, slots=True)
class MeshNode:
    """A Node. ``ours``: a claim or a label of ours names it. ``pool``: "namespace/name", or the name alone where only the label tells.
    ``mesh``: tailscale or wireguard, empty = no claim says it."""

    node: Node
    ours: bool = False
    pool: str = ""
    mesh: str = ""

    @property
    def name(self) -> str:
        return self.node.name


@dataclasses.dataclass(frozen=True, slots=True)
class MeshPair:
    """Two nodes that are measured. The client runs on ``source``, the server on ``target``."""

    source: MeshNode
    target: MeshNode

    def __str__(self) -> str:
        return f"{self.source.name} and {self.target.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class PairChoice:
    """``skipped``: one sentence for each node or pair that is not measured although the options include it."""

    pairs: tuple[MeshPair, ...]
    skipped: tuple[str, ...] = ()


def choose_pairs(nodes: t.Sequence[MeshNode], *, source: str, target: str, pool: str, most: int) -> PairChoice:
    """The pairs that the options name. InvalidInput, with the reason, where there is none.

    ``source`` and ``target``: these two. ``source`` alone: with a node that is not ours. ``pool`` and ``target``: each node of the pool with
    that one. ``pool`` alone: its nodes in the order of their names, each with the next; a single one with a node that is not ours.
    """
    by_name = {one.name: one for one in nodes}
    if source and pool:
        raise InvalidInput(
            "A pool and a node to measure from are given together.",
            remedy="Give one of the two. A node to measure to goes with either.",
        )
    if source:
        first = _named(by_name, source)
        second = _named(by_name, target) if target else _outside(nodes, source)
        if first.name == second.name:
            raise InvalidInput(f"{source} is measured with itself.", remedy="Name two nodes: pods of one node do not use the mesh.")
        return PairChoice((MeshPair(first, second),))
    if not pool:
        raise InvalidInput(
            "Nothing says between which nodes to measure.",
            remedy="Give a pool, or the node to measure from and the node to measure to.",
        )
    return _of_pool(nodes, by_name, pool, target, most)


def _of_pool(nodes: t.Sequence[MeshNode], by_name: t.Mapping[str, MeshNode], pool: str, target: str, most: int) -> PairChoice:
    inside = sorted(
        (one for one in nodes if one.ours and pool in (one.pool, one.pool.rpartition("/")[2])), key=lambda one: one.name
    )
    if not inside:
        raise InvalidInput(
            f"No node of the cluster is of a pool {pool}.", remedy="Name a pool that has machines; status.yml lists them."
        )
    usable = [one for one in inside if not why_unusable(one.node)]
    skipped = [f"{one.name} is not measured: it {why}." for one in inside if (why := why_unusable(one.node))]
    if target:
        end = _named(by_name, target)
        pairs = [MeshPair(one, end) for one in usable if one.name != target]
    elif len(usable) > 1:
        pairs = [MeshPair(one, other) for one, other in zip(usable, usable[1:], strict=False)]
    else:
        pairs = [MeshPair(one, _outside(nodes, one.name)) for one in usable]
    if not pairs:
        raise InvalidInput(f"No node of the pool {pool} can be measured.", problems=skipped)
    skipped += [f"{pair} are not measured: more than {most} pairs." for pair in pairs[most:]]
    return PairChoice(tuple(pairs[:most]), tuple(skipped))


def _named(by_name: t.Mapping[str, MeshNode], name: str) -> MeshNode:
    if name not in by_name:
        raise InvalidInput(f"There is no Node {name}.", remedy="kubectl get nodes lists them.")
    if why := why_unusable(by_name[name].node):
        raise InvalidInput(f"Node {name} cannot be measured: it {why}.")
    return by_name[name]


def _outside(nodes: t.Sequence[MeshNode], source: str) -> MeshNode:
    """A node that is not ours and that takes pods without a toleration, the first by name."""
    fits = [one for one in nodes if not one.ours and not why_unusable(one.node) and not _keeping_out(one.node)]
    if not fits:
        raise InvalidInput(
            f"There is no second node to measure {source} with: every other node is one of ours, is not Ready, or has a taint.",
            remedy="Name the node to measure to. Taints of a node that is named are tolerated.",
        )
    return min(fits, key=lambda one: one.name)


def why_unusable(node: Node) -> str:
    """Why no pod of a measurement goes to this node, as the end of a sentence; empty when one may."""
    if node.ready is not True:
        detail = f" ({node.ready_message})" if node.ready_message else ""
        return f"is not Ready{detail}" if node.ready is False else f"is not Ready: its kubelet does not report{detail}"
    if node.unschedulable:
        return "is cordoned"
    closed = [taint for taint in _keeping_out(node) if taint.key in _CLOSED_TO_PODS or taint.key.startswith(_CLOSED_PREFIXES)]
    return f"has the taint {closed[0]}" if closed else ""


def tolerations(node: Node) -> list[dict[str, str]]:
    """Those that exactly this node asks for."""
    return [
        {
            "key": taint.key,
            "effect": taint.effect,
            **({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}),
        }
        for taint in _keeping_out(node)
    ]


def _keeping_out(node: Node) -> list[Taint]:
    return [taint for taint in node.taints if taint.effect in _KEEPS_OUT]


def mesh_between(pair: MeshPair) -> str:
    """The mesh of the two machines, or both where they are in different ones; empty where no claim says it."""
    return ", ".join(dict.fromkeys(one.mesh for one in (pair.source, pair.target) if one.mesh))


def path_between(pair: MeshPair) -> tuple[str, str]:
    """Whether packets go through something in between (``relayed``, ``unknown``), and how that is known."""
    meshes = {pair.source.mesh, pair.target.mesh}
    if meshes == {"wireguard"}:
        return "relayed", "both are peers of the WireGuard hub, and what they send to each other passes it"
    if "tailscale" in meshes:
        return "unknown", "the tailnet's API does not say it; `tailscale status` on one of the machines shows direct or relay"
    return "unknown", "no claim says how the two nodes reach each other"


# ---- which runs, and for how long


def server_arguments(port: int) -> list[str]:
    return ["-s", "-p", str(port)]


def client_arguments(run: str, host: str, port: int, seconds: int) -> list[str]:
    """The idle run sends almost nothing, so that its round trips are those of an idle link."""
    more = {IDLE: ["-b", _IDLE_RATE, "-l", _IDLE_BLOCK], FORWARD: [], REVERSE: ["-R"]}[run]
    return ["-c", host, "-p", str(port), "-t", str(seconds), "-J", "--connect-timeout", _CONNECT_MS, *more]


def longest(seconds: int, start_timeout: int) -> int:
    """Seconds that the client of one pair may take from its creation: its start, refused connections, and all runs."""
    return start_timeout + _CONNECT + len(RUNS) * (seconds + _BETWEEN_RUNS)


def deadlines(seconds: int, start_timeout: int) -> tuple[int, int]:
    """``activeDeadlineSeconds`` of server and client. The server starts first, and waits until the client has ended."""
    client = longest(seconds, start_timeout)
    return start_timeout + client + _SPARE, client + _SPARE


def refused_for_good(since: datetime, now: datetime) -> bool:
    """Whether a client that is refused has tried for long enough."""
    return now >= since + timedelta(seconds=_CONNECT)


# ---- what iperf3 says


class OddOutput(TgpError):
    """What a run of iperf3 printed is not its JSON report."""

    kind = "odd_output"


class RunFailed(TgpError):
    """iperf3 reports an error of its own. ``again``: a later try may succeed."""

    kind = "run_failed"

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


@dataclasses.dataclass(frozen=True, slots=True)
class RunResult:
    """``mbit_s``: what arrived, in 10^6 bits per second. ``retransmits``: segments that the sender repeated, None = not reported.
    ``rtt_mean_ms`` and ``rtt_min_ms``: round trips that the sender's kernel saw, None = not reported."""

    mbit_s: float
    retransmits: int | None = None
    rtt_mean_ms: float | None = None
    rtt_min_ms: float | None = None
    version: str = ""


def read_run(text: str, clean: t.Callable[[str], str] = str) -> RunResult:
    """The report of ``iperf3 -J``, which warnings may precede. OddOutput quotes what is none, RunFailed iperf3's own error; ``clean`` removes
    from a quotation what may be a secret."""
    start = text.find("{")
    try:
        report = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise _odd("is not JSON", clean(text))
    if report.get("error"):
        said = str(report["error"])
        raise RunFailed(f"iperf3: {clean(said)[:_QUOTED]}", again=said.startswith(RETRIED))
    ends = _part(report, "end")
    received, sent = _part(ends, "sum_received"), _part(ends, "sum_sent")
    bits = _number(received.get("bits_per_second"))
    if bits is None:
        raise _odd("has no end.sum_received.bits_per_second", clean(text))
    if not bits:
        raise RunFailed("iperf3 reports that nothing arrived", again=False)
    streams = ends.get("streams")
    first = _part(streams[0], "sender") if isinstance(streams, list) and streams and isinstance(streams[0], dict) else {}
    repeated = _number(sent.get("retransmits"))
    return RunResult(
        mbit_s=bits / 1e6,
        retransmits=None if repeated is None else int(repeated),
        rtt_mean_ms=_milliseconds(first.get("mean_rtt")),
        rtt_min_ms=_milliseconds(first.get("min_rtt")),
        version=str(_part(report, "start").get("version") or ""),
    )


def _odd(what: str, text: str) -> OddOutput:
    quote = " ".join(text.split())[:_QUOTED]
    return OddOutput(
        f"The output of iperf3 {what}: {quote!r}" if quote else "iperf3 printed nothing",
        remedy="The image must contain iperf3 3.1 or newer under that name.",
    )


def _part(holder: t.Mapping[str, t.Any], key: str) -> t.Mapping[str, t.Any]:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _number(value: t.Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if usable else None


def _milliseconds(micro: t.Any) -> float | None:
    """iperf3 has microseconds, and 0 where the kernel says nothing."""
    found = _number(micro)
    return found / 1000 if found else None


# ---- pods of other runs


@dataclasses.dataclass(frozen=True, slots=True)
class BenchPod:
    """A pod of some measurement. ``run``: the run that made it. ``lasts``: its activeDeadlineSeconds. ``owner_lives``: whether the process
    of that run lives, None = that cannot be known from here. ``ended``: none of its containers runs any more."""

    name: str
    uid: str
    run: str
    created: datetime
    lasts: int
    owner_lives: bool | None = None
    ended: bool = False
    deleting: bool = False

    @property
    def until(self) -> datetime:
        return self.created + timedelta(seconds=self.lasts)


def busy(pods: t.Sequence[BenchPod], now: datetime) -> BenchPod | None:
    """A pod of a measurement that may still run: two at once would measure each other."""
    return next((pod for pod in pods if not (pod.ended or pod.deleting or _abandoned(pod, now))), None)


def orphans(pods: t.Sequence[BenchPod], now: datetime) -> tuple[BenchPod, ...]:
    """Pods that no run removes any more: their time is over, or the process of their run is known to be dead. Those that have ended, too,
    while no measurement runs; one that runs still reads what they printed."""
    idle = busy(pods, now) is None
    return tuple(pod for pod in pods if not pod.deleting and (_abandoned(pod, now) or idle))


def _abandoned(pod: BenchPod, now: datetime) -> bool:
    return pod.owner_lives is False or pod.until <= now
