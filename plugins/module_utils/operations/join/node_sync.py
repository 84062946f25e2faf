# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asserts our marks again on nodes that are in use (L-19): what was removed or changed comes back with the next run."""

from __future__ import annotations

import dataclasses
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ...core.errors import TgpError
from ...kube.nodes import advertise, change
from ...model import Claim, Node, Phase, Pool
from ...model.resources import NEUTRAL_GPU
from ...observe.context import Context, nodes_with_devices
from ...planner.garbage_collection.ownership import ids_of
from ...planner.provisioning.registration import drift, startup_taint_is_left
from ...planner.scheduling import capacity
from ...planner.scheduling.capacity import advertised

_WORKERS = 16


@dataclasses.dataclass(frozen=True)
class Drifted:
    """A node whose marks differ from what they should be: ``what`` in words."""

    claim: Claim
    node: Node
    pool: Pool
    what: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Repaired:
    """``problem`` is why it could not be done, empty when it is."""

    claim: Claim
    message: str
    problem: str = ""


def drifted_nodes(context: Context, names: t.Collection[str] = ()) -> list[Drifted]:
    """Nodes in use that lost marks; none, with a warning, when the Nodes cannot be read. Where no document describes the pool any
    more, it is not known what its nodes should carry."""
    used = [
        (claim, pool)
        for claim in context.records.known_claims()
        if claim.phase is Phase.READY and claim.deletion is None and not claim.is_service and (not names or claim.name in names)
        if (pool := context.specs.pool_of(claim.pool)) is not None
    ]
    if not used:
        return []
    try:
        by_name = {node.name: node for node in nodes_with_devices(context)}
    except TgpError as error:
        context.warn(f"Whether nodes still carry their marks could not be seen: {error}")
        return []
    drifted = []
    for claim, pool in used:
        node = by_name.get(claim.node_name or claim.name)
        if node is not None and (differences := drift(claim, node, pool, context.cluster_id)):
            drifted.append(Drifted(claim, node, pool, differences))
    # the release of one that was handed out was cut off: it lost its marks by that
    released = ids_of(context.records.released()) if drifted else frozenset()
    return [one for one in drifted if (one.claim.cloud, one.claim.instance_id) not in released]


def repair_all(context: Context, drifted: t.Sequence[Drifted]) -> list[Repaired]:
    """Bring the marks back, side by side, with one write each (two where the neutral GPUs differ). Keys that are not ours are never
    touched; who changes a Node at the same moment is not overwritten."""
    if not drifted:
        return []
    with ThreadPoolExecutor(min(_WORKERS, len(drifted)), thread_name_prefix="repair") as pool:
        return list(pool.map(lambda entry: _repair(context, entry), drifted))


def _repair(context: Context, drifted: Drifted) -> Repaired:
    left = startup_taint_is_left(drifted.claim, drifted.node, drifted.pool)
    text = ", ".join(drifted.what)
    context.lock.renew_if_due()
    try:
        offering = advertise(context.kube, drifted.node, NEUTRAL_GPU, advertised(drifted.claim, drifted.pool))
        change(
            context.kube,
            drifted.node.name,
            uid=drifted.node.uid,
            labels=capacity.asserted_labels(drifted.claim, drifted.pool, context.cluster_id, drifted.node),
            annotations=capacity.node_annotations(drifted.claim, drifted.pool),
            add_taints=capacity.taints(drifted.pool),
            remove_taints=(capacity.INITIALIZING.key,) if left else (),
            allow=capacity.keys_of(drifted.pool),
            base=offering,
        )
    except TgpError as error:
        return Repaired(drifted.claim, f"its marks differ ({text}) and could not be set: {error}", str(error))
    context.progress.step(drifted.claim.name, "repaired", text, cloud=drifted.claim.cloud)
    return Repaired(drifted.claim, f"set again: {text}")
