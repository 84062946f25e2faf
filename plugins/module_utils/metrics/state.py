# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What metrics keep between runs, in the state folder: counters of the processes, and the last word of each part and each playbook.

A folder has ``base-<n>.json``, all that was added up so far, and ``journal-<n>.jsonl``, one line for each step since then. A line is one write.
The journal is added to the base in one rename, which begins the journal of the next number. So a process that is killed at any moment loses
no line and counts none twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import typing as t

from ..core.clock import from_text, to_text
from ..core.errors import InvalidInput
from ..core.files import replace, state_folder
from .collect import Archived
from .families import FAMILIES, HISTOGRAM, MOST_NAMES, OTHER, Cell, Sample, cell_of

Json = dict[str, t.Any]
ARCHIVED = "archived"  # the state of the record store with what archived lines add to the metrics
_BASE = re.compile(r"base-(\d+)\.json")
_FILE = re.compile(r"(?:base|journal)-(\d+)\.jsonl?")
_CLUSTER = ("kubeconfig", "context", "cluster_id")  # options that say which cluster a run is about
Key = tuple[str, str]  # the name of a series, and its labels as JSON


def folder_of(params: t.Mapping[str, t.Any]) -> str:
    """Of the cluster that a call is about: known before the cluster is reached, since also a run that cannot reach it counts."""
    words = [str(params.get(name) or "") for name in _CLUSTER]
    if not words[0]:
        words[0] = os.environ.get("KUBECONFIG") or ""
    return os.path.join(state_folder(params), "metrics", hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16])


class Kept(t.NamedTuple):
    """Everything that is known now. ``parts`` are samples as the last run noted them, by part; ``runs`` are facts of the last run of each
    playbook. Histograms are cells."""

    cluster: str
    counts: dict[Key, float]
    levels: dict[Key, float]
    cells: dict[Key, Cell]
    parts: dict[str, list[Json]]
    runs: dict[str, Json]

    def samples(self) -> t.Iterator[tuple[str, dict[str, str], float | Cell]]:
        """Every series, with its labels."""
        for part in self.parts.values():
            for entry in part:
                yield entry["name"], entry["labels"], _value(entry)
        for store in (self.counts, self.levels, self.cells):
            for (name, labels), value in t.cast("dict[Key, t.Any]", store).items():
                yield name, json.loads(labels), value
        for playbook, run in self.runs.items():
            mine = {"playbook": playbook}
            yield "tgp_last_run_timestamp_seconds", mine, run["ended"]
            yield "tgp_last_run_duration_seconds", mine, run["seconds"]
            yield "tgp_last_run_outcome", {**mine, "outcome": run["outcome"]}, 1.0
            if run["succeeded"]:
                yield "tgp_last_success_timestamp_seconds", mine, run["succeeded"]


class MetricsState:
    """The state of one cluster in one folder, which is made at the first write. OSError where the folder cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def append(self, entry: t.Mapping[str, t.Any]) -> None:
        """Add one line: what a step has counted and noted."""
        with self._locked():
            path = os.path.join(self.folder, f"journal-{self._generation()}.jsonl")
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                os.write(handle, b"\n" * torn + json.dumps(entry, separators=(",", ":")).encode() + b"\n")
            finally:
                os.close(handle)

    def settle(self) -> Kept:
        """Add the journal to the base; everything that is known."""
        with self._locked():
            number = self._generation()
            kept, lines = self._read(number)
            if lines:
                for line in lines:
                    kept = _added(kept, line)
                replace(os.path.join(self.folder, f"base-{number + 1}.json"), json.dumps(_encoded(kept)).encode())
                self._remove_before(number + 1)
            return kept

    # ---- inside, under the lock

    @contextlib.contextmanager
    def _locked(self) -> t.Iterator[None]:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        handle = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _generation(self) -> int:
        return max((int(found[1]) for name in os.listdir(self.folder) if (found := _BASE.fullmatch(name))), default=0)

    def _read(self, number: int) -> tuple[Kept, list[Json]]:
        base, journal = (os.path.join(self.folder, name) for name in (f"base-{number}.json", f"journal-{number}.jsonl"))
        kept = Kept("", {}, {}, {}, {}, {})
        with contextlib.suppress(FileNotFoundError, ValueError, LookupError, TypeError), open(base, encoding="utf-8") as file:
            kept = _decoded(json.load(file))  # of one that is damaged the counters begin anew
        lines: list[Json] = []
        with contextlib.suppress(FileNotFoundError), open(journal, encoding="utf-8", errors="replace") as file:
            for text in file:
                with contextlib.suppress(ValueError):  # a process was killed while it wrote
                    lines.append(json.loads(text))
        return kept, lines

    def _remove_before(self, number: int) -> None:
        for name in os.listdir(self.folder):
            found = _FILE.fullmatch(name)
            if found and int(found[1]) < number:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, name))


def noted(samples: t.Iterable[Sample]) -> list[Json]:
    """Samples as they are kept."""
    entries: list[Json] = []
    for name, labels, value in samples:
        entry: Json = {"name": name, "labels": labels}
        if isinstance(value, (list, Cell)):
            cell = cell_of(name, value)
            entries.append({**entry, "counts": cell.counts, "total": cell.total})
        else:
            entries.append({**entry, "value": value})
    return entries


def stored(archived: Archived) -> Json:
    """For the record of what has left the ledger."""
    return {"before": None if archived.before is None else to_text(archived.before), "samples": noted(archived.samples)}


def read_archived(record: t.Mapping[str, t.Any]) -> Archived:
    """The same back; nothing of an empty record. InvalidInput for what is none. A series that no family knows any more, or has with other
    buckets, is left out."""
    if not record:
        return Archived()
    try:
        samples = [Sample(entry["name"], dict(entry["labels"]), _value(entry)) for entry in record["samples"] if _is_known(entry)]
        return Archived(None if record["before"] is None else from_text(record["before"]), tuple(samples))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"The record {ARCHIVED} of what has left the ledger cannot be read: {error}") from error


def _is_known(entry: Json) -> bool:
    return entry["name"] in FAMILIES and ("counts" not in entry or _fits(entry["name"], entry["counts"]))


def _fits(name: str, counts: t.Sequence[int]) -> bool:
    """Whether a cell has the buckets of its family."""
    return name in FAMILIES and len(counts) == len(FAMILIES[name].buckets) + 1


def _value(entry: Json) -> float | Cell:
    return Cell(entry["counts"], entry["total"]) if "counts" in entry else float(entry["value"])


def _key(name: str, labels: t.Mapping[str, str]) -> Key:
    return name, json.dumps(labels, sort_keys=True)


def _added(kept: Kept, line: Json) -> Kept:
    """The state with one more line of the journal. What the families do not know any more, or have with other buckets, is dropped."""
    for name, labels, amount in line.get("counts", ()):
        if name in FAMILIES:
            kept.counts[_key(name, labels)] = kept.counts.get(_key(name, labels), 0.0) + amount
    for name, labels, value in line.get("levels", ()):
        if name in FAMILIES:
            kept.levels[_key(name, labels)] = value
    for name, labels, values in line.get("values", ()):
        if name in FAMILIES and FAMILIES[name].kind == HISTOGRAM:
            kept.cells.setdefault(_key(name, labels), Cell.of(FAMILIES[name])).add(FAMILIES[name], values)
    kept.parts.update(line.get("parts", {}))
    if run := line.get("run"):
        name = run["playbook"] or "unknown"  # playbooks of others call our modules, too, so their number is bounded
        playbook = name if name in kept.runs or len(kept.runs) < MOST_NAMES else OTHER
        before = kept.runs.get(playbook, {}).get("succeeded", 0.0)
        kept.runs[playbook] = {**run, "succeeded": run["ended"] if run["success"] else before}
        key = _key("tgp_runs", {"playbook": playbook, "outcome": run["outcome"]})
        kept.counts[key] = kept.counts.get(key, 0.0) + 1.0
    return kept._replace(cluster=line.get("cluster") or kept.cluster)


def _encoded(kept: Kept) -> Json:
    return {
        "cluster": kept.cluster,
        "counts": [[*key, value] for key, value in kept.counts.items()],
        "levels": [[*key, value] for key, value in kept.levels.items()],
        "cells": [[*key, cell.counts, cell.total] for key, cell in kept.cells.items()],
        "parts": kept.parts,
        "runs": kept.runs,
    }


def _decoded(base: Json) -> Kept:
    cells = {(name, labels): Cell(counts, total) for name, labels, counts, total in base["cells"] if _fits(name, counts)}
    counts, levels = (
        {(name, labels): value for name, labels, value in base[store] if name in FAMILIES} for store in ("counts", "levels")
    )
    return Kept(base["cluster"], counts, levels, cells, base["parts"], base["runs"])
