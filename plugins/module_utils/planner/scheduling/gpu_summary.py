# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many GPUs are wanted, used, free, on their way and waited for, per pool."""

from __future__ import annotations

import typing as t

from ...model import Pool, Tally, WaitingPod
from .binpacking import gpus, spare
from .existing_nodes import Place


def count(places: t.Iterable[Place], waiting: t.Iterable[WaitingPod], pools: t.Iterable[Pool]) -> tuple[Tally, ...]:
    """One line per pool, by name, and one without a pool for pods that none of them serves, if there are any."""
    lines: dict[str, dict[str, int]] = {pool.key: {} for pool in pools}
    for place in places:
        line = lines.setdefault(place.claim.pool, {})
        free = spare(place.room.free)
        if place.node is None:
            _add(line, coming=free)
        else:
            _add(line, machines=1, free=free)
        _add(line, used=sum(gpus(pod) for pod in place.room.pods))
    for pod in waiting:
        _add(lines.setdefault(pod.pool, {}), waiting=pod.gpus)
    return tuple(
        Tally(pool, line.get("used", 0) + line.get("waiting", 0), **{name: line.get(name, 0) for name in _COUNTED})
        for pool, line in sorted(lines.items())
    )


_COUNTED = ("machines", "used", "free", "coming", "waiting")


def _add(line: dict[str, int], **more: int) -> None:
    for name, number in more.items():
        line[name] = line.get(name, 0) + number
