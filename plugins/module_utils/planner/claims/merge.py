# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two changes of one claim at the same time: what may be put on top of another writer's change, and what contradicts it."""

from __future__ import annotations

import dataclasses

from ...model import Claim

#: what runs observe; everything else says what becomes of the machine (phase, ids, offer, deletion ...)
_OBSERVED = frozenset(
    {
        "price_paid", "ip", "node_name", "node_uid", "mesh_device_id", "mesh_seen", "registered", "initialized", "idle_since",
        "underused_since", "blocked_until", "blocked_times", "gone_since", "running_since", "interrupted_at",
        "worked_since",
    }
)  # fmt: skip


def rebased(base: Claim, ours: Claim, theirs: Claim) -> Claim | None:
    """``ours`` on top of ``theirs``, both made from ``base``; None when the two contradict.

    They contradict when both changed the same field to different values, and when both changed what becomes of the machine: an id that
    another writer recorded is never overwritten, and no decision is put on top of another one.
    """
    mine, other = _changed(base, ours), _changed(base, theirs)
    if any(getattr(ours, name) != getattr(theirs, name) for name in mine & other):
        return None
    if mine - _OBSERVED and other - _OBSERVED:
        return None
    changes = {name: getattr(ours, name) for name in mine}
    return dataclasses.replace(theirs, **changes)


def _changed(before: Claim, after: Claim) -> set[str]:
    names = (field.name for field in dataclasses.fields(Claim) if field.name != "version")
    return {name for name in names if getattr(before, name) != getattr(after, name)}
