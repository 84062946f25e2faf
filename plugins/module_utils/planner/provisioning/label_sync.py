# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of our marks a node that is in use has lost, or never got (L-19), the neutral name of its GPUs among them (L-17)."""

from __future__ import annotations

from ...model import Claim, Node, Phase, Pool
from ...model.resources import NEUTRAL_GPU
from ..scheduling.capacity import advertised
from . import node_labels
from .registration import not_initialized


def drift(claim: Claim, node: Node, pool: Pool, cluster_id: str) -> tuple[str, ...]:
    """The labels, annotations, taints and neutral GPUs that differ from what claim and pool say, in words; empty = all is as it should be.

    A node that is not (or no longer) the very one of a claim in use has no marks of ours to lose.
    """
    if claim.phase is not Phase.READY or claim.deletion is not None or node.uid != claim.node_uid:
        return ()
    found = [
        f"label {key}"
        for key, value in node_labels.asserted_labels(claim, pool, cluster_id, node).items()
        if node.labels.get(key) != value
    ]
    found += [
        f"annotation {key}"
        for key, value in node_labels.node_annotations(claim, pool).items()
        if node.annotations.get(key) != value
    ]
    have = {(taint.key, taint.effect): taint.value for taint in node.taints}
    found += [f"taint {taint}" for taint in node_labels.taints(pool) if have.get((taint.key, taint.effect)) != taint.value]
    if lacks_neutral_gpus(claim, node, pool):
        found.append(f"{NEUTRAL_GPU} {node.allocatable.get(NEUTRAL_GPU, 0)} instead of {advertised(claim, pool)}")
    if startup_taint_is_left(claim, node, pool):
        found.append(f"taint {node_labels.INITIALIZING} that should be gone")
    return tuple(found)


def lacks_neutral_gpus(claim: Claim, node: Node, pool: Pool) -> bool:
    """True when the node does not offer its GPUs under the neutral name, too, or another number of them."""
    return node.allocatable.get(NEUTRAL_GPU, 0) != advertised(claim, pool)


def startup_taint_is_left(claim: Claim, node: Node, pool: Pool) -> bool:
    """True when our own startup taint is on a node that lacks nothing else."""
    present = any(taint.key == node_labels.INITIALIZING.key for taint in node.taints)
    return present and not not_initialized(claim, node, pool, marking=True)
