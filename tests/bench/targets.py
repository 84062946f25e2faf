# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets, each with the value that a run's rows give, and why one that is missed is missed."""

from __future__ import annotations

import dataclasses
import typing as t

from .results import Results, Row

Value = t.Callable[[Results], float | None]
NOT_EXAMINED = "the reason is not known yet"
BUSY_MACHINE = "something else ran on the machine, so its times say little"


@dataclasses.dataclass(frozen=True)
class Target:
    """``limit`` is the most that ``value`` may be, or the least (``least``). ``rows``: those that it is computed from. ``reason``: why it is
    missed when it is; no figure stands in it. ``counted``: how busy the machine is makes no difference."""

    id: str
    what: str
    limit: float
    value: Value
    rows: tuple[str, ...]
    least: bool = False
    reason: str = NOT_EXAMINED
    counted: bool = False

    def verdict(self, results: Results) -> tuple[float | None, str]:
        """The value and the words for it."""
        value = self.value(results)
        if value is None:
            return None, "not measured"
        if value >= self.limit if self.least else value <= self.limit:
            return value, "met"
        disturbed = not self.counted and any(row.disturbed for name in self.rows if (row := results.row(name)))
        return value, f"**missed**: {BUSY_MACHINE if disturbed else self.reason}"


def _of(name: str, what: t.Callable[[Row], float]) -> Value:
    def value(results: Results) -> float | None:
        row = results.row(name)
        return None if row is None else what(row)

    return value


def _ratio(upper: str, lower: str, what: t.Callable[[Row], float], factor: float = 1.0) -> Value:
    """Of two rows; None when one of them is not there."""

    def value(results: Results) -> float | None:
        above, below = results.row(upper), results.row(lower)
        return None if above is None or below is None else factor * what(above) / what(below)

    return value


def _wall(row: Row) -> float:
    return row.wall


def _cpu(row: Row) -> float:
    return row.cpu


def _peak(row: Row) -> float:
    return max(run.peak for run in row.runs)


def _own_lateness(row: Row) -> float:
    """Of the first node, beyond the start of an empty playbook, its own boot and its join."""
    return row.more("first node usable") - row.floor["empty"] - row.floor["chain"]


def _tenth(row: Row) -> float:
    return row.cpu / row.more("CPU seconds for a tenth of all")


_PLAY = "what the play itself does counts as many times as the world is quick"
_IMPORTS = "the play imports the collection, and reads each claim, Node and pod, which the floor does not"
_READS = "it imports the collection and reads claims, Nodes and machines, where the script prints a file"
_JOINS = (
    "the plan asks each power service before it launches, and the machines, which boot at one moment, join at one moment, on the processors "
    "of the run"
)
_CALLS = "most of it is the work of the HTTP client for each call; the loop in which Ansible waits for its task adds to it"
_JOINED = "machines of the other tool run at its end; those of this collection have joined the cluster"
_SHARED = (
    "the calls about a machine are within the target; renewals of the run lock and lists, which a run needs for as long as its launches take, "
    "come on top"
)
_LAST = "the key and the token of the last machines are taken back and their claims written before the task ends, and Ansible's end follows"


def _provision() -> t.Iterator[Target]:
    for count, limit in ((100, 1.15), (300, 1.35)):
        for kind in ("own", "rented"):
            name = f"P1 {kind} {count}"
            ratio, reason = _of(name, lambda row: row.ratio), _JOINS if kind == "own" else NOT_EXAMINED
            yield Target("P1", f"provision.yml, {count} {kind} machines ÷ floor", limit, ratio, (name,), reason=reason)
    for kind in ("own", "rented"):
        name = f"P1 {kind} 100"
        yield Target("P1", f"its CPU seconds, 100 {kind} machines", 6, _of(name, _cpu), (name,), reason=_CALLS)
    calls = _of("P1 rented 100", lambda row: row.calls("kubernetes") / 100)
    yield Target("P1", "cluster calls for each of 100 rented machines", 10, calls, ("P1 rented 100",), reason=_SHARED, counted=True)
    first = "first of 100 rented nodes: seconds beyond an empty playbook, its boot and its join"
    yield Target("P1", first, 5, _of("P1 rented 100", _own_lateness), ("P1 rented 100",), reason=_PLAY)


def _peers() -> t.Iterator[Target]:
    ours = "P1 own 100"
    loop = _ratio("P2 loop 10", ours, _wall, factor=10)
    what = "hcloud in a loop, ten times its time for 10 machines ÷ ours for 100"
    yield Target("P2", what, 80, loop, ("P2 loop 10", ours), True, reason=_JOINED)
    rows, what = ("P2 async 100", ours), "hcloud with async, 100 machines ÷ ours"
    # its jobs are no children of the play, so they count as what others used
    yield Target("P2", what, 3.5, _ratio(*rows, _wall), (ours,), True, reason=_JOINED)


def _beside_many() -> t.Iterator[Target]:
    rows = ("P3 cold 1000", "P3 script 1000")
    yield Target("P3", "inventory of 1,000, cold: CPU ÷ a script's", 1.2, _ratio(*rows, _cpu), rows, reason=_READS)
    rows = ("P3 cached 1000", "P3 script 1000")
    yield Target("P3", "inventory of 1,000, cached: CPU ÷ a script's", 1.1, _ratio(*rows, _cpu), rows)
    name = "P3 cached 1000"
    yield Target("P3", "inventory of 1,000, cached: calls", 0, _of(name, lambda row: row.calls()), (name,), counted=True)
    name = "P4 reap 1000"
    yield Target("P4", "reap.yml beside 1,000 ÷ floor", 1.5, _of(name, lambda row: row.ratio), (name,), reason=_IMPORTS)
    yield Target("P4", "its largest process in MB", 160, _of(name, _peak), (name,), counted=True)
    rows = ("P4 provision 300", "P4 provision 0")
    yield Target("P4", "provision.yml with nothing to do beside 300 ÷ beside none", 1.5, _ratio(*rows, _wall), rows)
    for name in ("provision", "reap", "autoscale", "status"):
        rows = (f"P4 {name} 1000", f"P4 {name} 100")
        yield Target("P4", f"{name}.yml: CPU beside 1,000 ÷ beside 100", 12, _ratio(*rows, _cpu), rows)


def _rest() -> t.Iterator[Target]:
    for mode in ("reap", "provision", "autoscale"):
        name = f"P5 {mode}"
        yield Target("P5", f"the plan alone, mode {mode}: CPU seconds", 1, _of(name, _cpu), (name,))
        yield Target("P5", "÷ for a tenth of all", 12, _of(name, _tenth), (name,))
    rows = ("P6 kubectl", "P6 node_drain")
    yield Target("P6", "kubectl drain, ten nodes at a time ÷ node_drain", 2, _ratio(*rows, _wall), rows, True)
    rows = ("P6 k8s_drain", "P6 node_drain")
    yield Target(
        "P6", "k8s_drain in a loop, ten times its time for 5 nodes ÷ node_drain", 50, _ratio(*rows, _wall, factor=10), rows, True
    )
    name = "P6 budget"
    eviction = _of(name, lambda row: row.more("seconds to the eviction"))
    yield Target("P6", "seconds from a budget that opens to the eviction", 2, eviction, (name,))
    ends = (
        ("P7 node_wait", "seconds after the last node", NOT_EXAMINED),
        ("P1 own 100", "end of the play after the last node", _LAST),
    )
    for name, what, reason in ends:
        late = _of(name, lambda row, what=what: row.more(what))  # type: ignore[misc]
        yield Target("P7", f"{name.partition(' ')[2]}: {what}", 0.5, late, (name,), reason=reason)
    yield Target("P7", "node_wait: CPU seconds", 2, _of("P7 node_wait", _cpu), ("P7 node_wait",))
    name = "P8 autoscale 100"
    late = _of(name, lambda row: row.more("last create call") - row.floor["create call"])
    yield Target("P8", "autoscale.yml, 100 waiting pods: seconds to the last create call, but its own latency", 5, late, (name,))


def targets() -> list[Target]:
    return [*_provision(), *_peers(), *_beside_many(), *_rest()]
