# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this process counts for the metrics while it works: calls, waits, cache hits. A step of a run takes it over at its end (metrics/).

Names are those of metrics/families.py. Nothing is counted until a step begins to, so that a process whose metrics nobody reads keeps nothing.
Safe to use from several threads.
"""

from __future__ import annotations

import threading
import typing as t

Labels = tuple[tuple[str, str], ...]
_mutex = threading.Lock()
_counting = threading.Event()
_counts: dict[tuple[str, Labels], float] = {}
_levels: dict[tuple[str, Labels], float] = {}
_values: dict[tuple[str, Labels], list[float]] = {}


class Counted(t.NamedTuple):
    """``counts`` are to be added to counters, ``levels`` are the last values of gauges, ``values`` go into histograms. Each entry is
    [name, labels, number or numbers], as JSON has it."""

    counts: list[list[t.Any]]
    levels: list[list[t.Any]]
    values: list[list[t.Any]]


def begin() -> None:
    """Count from now on, until :func:`take`."""
    take()
    _counting.set()


def count(name: str, amount: float = 1.0, **labels: str) -> None:
    """Add to a counter."""
    if not _counting.is_set():
        return
    with _mutex:
        key = _key(name, labels)
        _counts[key] = _counts.get(key, 0.0) + amount


def level(name: str, value: float, **labels: str) -> None:
    """Set a gauge."""
    if not _counting.is_set():
        return
    with _mutex:
        _levels[_key(name, labels)] = value


def observe(name: str, value: float, **labels: str) -> None:
    """Note one value of a histogram."""
    if not _counting.is_set():
        return
    with _mutex:
        _values.setdefault(_key(name, labels), []).append(value)


def take() -> Counted:
    """Everything since :func:`begin`, which ends the counting."""
    _counting.clear()
    with _mutex:
        taken = Counted(_listed(_counts), _listed(_levels), _listed(_values))
        for store in (_counts, _levels, _values):
            store.clear()
    return taken


def called(service: str, method: str, status: str, seconds: float) -> None:
    """A call of a service has ended: ``status`` is ok, or the kind of the error."""
    operation = method.lower()
    count("tgp_provider_requests", provider=service, operation=operation, status=status)
    observe("tgp_provider_request_duration_seconds", round(seconds, 4), provider=service, operation=operation)


def waited(service: str, seconds: float) -> None:
    """A call waited for its turn under the rate limit of an account."""
    if seconds > 0:
        count("tgp_rate_limit_waits", provider=service)
        count("tgp_rate_limit_wait_seconds", seconds, provider=service)


def _key(name: str, labels: t.Mapping[str, str]) -> tuple[str, Labels]:
    return name, tuple(sorted(labels.items()))


def _listed(store: t.Mapping[tuple[str, Labels], t.Any]) -> list[list[t.Any]]:
    return [[name, dict(labels), value] for (name, labels), value in sorted(store.items())]
