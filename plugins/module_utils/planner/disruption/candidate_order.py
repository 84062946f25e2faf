# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which idle nodes go, and in which order (L-18)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...model import Claim


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may go for being idle since ``idle_since``."""

    claim: Claim
    idle_since: datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Removal:
    """``go`` in this order; ``kept`` for the floor (minNodes), ``later`` because a run removes no more than it may."""

    go: tuple[Claim, ...]
    kept: tuple[Claim, ...] = ()
    later: tuple[Claim, ...] = ()


def choose(candidates: t.Iterable[Candidate], live: int, min_nodes: int, max_remove: int | None = None) -> Removal:
    """Choose among the idle nodes of one pool. ``live``: usable nodes of the pool, the candidates included.

    Busy nodes fill the floor first; of the idle ones the cheapest are kept, then the youngest. Dearest first go the others, then those
    with most GPUs, the longest idle, by name.
    """
    ranked = sorted(candidates, key=lambda one: (one.claim.price, -_born(one.claim), one.claim.name))
    keep = min(len(ranked), max(0, min_nodes - (live - len(ranked))))
    order = sorted(ranked[keep:], key=lambda one: (-one.claim.price, -one.claim.offer.gpu_count, one.idle_since, one.claim.name))
    count = len(order) if max_remove is None else max_remove
    return Removal(
        tuple(one.claim for one in order[:count]),
        tuple(one.claim for one in ranked[:keep]),
        tuple(one.claim for one in order[count:]),
    )


def _born(claim: Claim) -> float:
    return (claim.launch_started or claim.created).timestamp()
