# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why no offer is left for a pool, said so that the true cause comes first (L-13).

Each cloud that the pool may rent from has one cause. First what says nothing about its market: it could not be read, all of it is blocked, or
its image of Talos is missing.
Then the offer that came furthest: its stock or its price. Then what the cloud never has: the lane, interruptible machines. That other
offers are of another model or size counts only where nothing else is known.
"""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...model import Capability, CloudChoice, NodeClass, Pool
from ...units.values import print_time
from . import launch_backoff as blocklist
from .ranking import IMAGE, REASONS, Selection, accepted_lanes, no_lane, spot_wanted, takes

_FURTHEST = frozenset(REASONS[REASONS.index("not available") :])
UNKNOWN, NEAR, NEVER, UNFIT, NOTHING = range(5)
Cause = tuple[int, int, str]  # one of the ranks, how far from the last check the best offer was, the text


def why_none(
    pool: Pool,
    node_class: NodeClass,
    selection: Selection,
    capabilities: t.Mapping[str, Capability],
    unread: t.Mapping[str, str],
    blocks: t.Mapping[str, datetime],
    now: datetime,
    imageless: t.Mapping[str, str],
) -> str:
    """One line for people. ``unread``: clouds that could not be read, with what is unknown of them, or whose volumes are not as a
    class wants them (L-51); ``blocks``: key → until; ``imageless``: why machines of lane talos have no image, by cloud (L-56)."""
    reasons: dict[str, str] = {}
    for key, reason in selection.rejected.items():
        cloud = key.partition("/")[0]
        reasons[cloud] = max(reason, reasons.get(cloud, reason), key=_place)
    causes = sorted(
        _cause(
            choice, pool, node_class, reasons.get(choice.cloud, ""), capabilities.get(choice.cloud), unread, blocks, now, imageless
        )
        for choice in node_class.clouds
        if takes(pool, node_class, choice.cloud)
    )
    near = [text for rank, _far, text in causes if rank == NEAR][:1]
    groups = [text for rank, _far, text in causes if rank == UNKNOWN], near, [text for rank, _far, text in causes if rank == NEVER]
    sentences = dict.fromkeys(text for texts in groups for text in texts)
    if sentences:
        return "; ".join(sentences)
    return causes[0][2] if causes else "no offers"


def of_class(selection: Selection, node_class: NodeClass) -> dict[str, int]:
    """How many offers each reason excluded, without those of clouds that the class does not name: nobody asked for them."""
    named = {choice.cloud for choice in node_class.clouds}
    mine = {key: reason for key, reason in selection.rejected.items() if key.partition("/")[0] in named}
    return Selection((), mine).counts()


def _cause(
    choice: CloudChoice,
    pool: Pool,
    node_class: NodeClass,
    furthest: str,
    capability: Capability | None,
    unread: t.Mapping[str, str],
    blocks: t.Mapping[str, datetime],
    now: datetime,
    imageless: t.Mapping[str, str],
) -> Cause:
    """The cause of one cloud. For a cloud that is not named it is not a cause that it never has what is wanted."""
    cloud = choice.cloud
    if cloud in unread:
        return UNKNOWN, 0, unread[cloud]
    if furthest == IMAGE:
        return UNKNOWN, 0, imageless.get(cloud, f"{cloud}: it has no image of Talos for the class")
    until = blocks.get(blocklist.key_of_cloud(cloud))
    if furthest == "blocked" and until is not None and until > now:
        return UNKNOWN, 0, f"{cloud}: blocked until {print_time(until)} after it refused a launch for quota or balance"
    if capability is not None and not choice.implicit:
        if furthest == "no accepted lane" or not set(accepted_lanes(pool)) & set(capability.lanes):
            return NEVER, 0, no_lane(cloud, pool, capability)
        if not capability.spot and spot_wanted(pool, node_class):
            return (
                NEVER,
                1,
                f"{cloud}: it rents no interruptible machines, and the pool takes no others; allow others, or leave the cloud out",
            )
    if not furthest:
        return NOTHING, 0, "no offers"
    return (NEAR if furthest in _FURTHEST else UNFIT), -_place(furthest), furthest


def _place(reason: str) -> int:
    return REASONS.index(reason) if reason in REASONS else len(REASONS)
