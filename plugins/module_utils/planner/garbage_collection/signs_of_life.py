# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs of life of a machine, and witnesses against it (L-12a). No single list is enough to end what may be at work."""

from __future__ import annotations

from ...model import InstanceState, Node
from ..claim_sync import Settled
from ..claims.mesh import uses_tailnet
from ..cluster_state import Situation
from ..provisioning import service


def of_machine(name: str, node: Node | None, situation: Situation) -> str:
    """A sign that the machine of this name is alive, for people; empty when there is none."""
    if node is not None and node.ready:
        return "its Node is Ready"
    return "its mesh device is online" if situation.in_mesh(name) else ""


def of_claim(settled: Settled, situation: Situation) -> str:
    """The same for a claim."""
    if service.answers(settled.claim, situation):
        return "it answers"
    return of_machine(settled.claim.name, settled.node or settled.stale_node, situation)


def second_witness(settled: Settled, situation: Situation) -> str:
    """What else says that a machine is broken whose Node is not well: its provider, or the mesh. Empty when nothing does."""
    claim, machine = settled.claim, settled.recovery.instance
    if machine is not None and (machine.problem or machine.interrupted or machine.state is not InstanceState.RUNNING):
        return f"{claim.cloud} says {machine.problem or machine.state_word}"
    if uses_tailnet(claim, situation.node_class(claim)) and situation.in_mesh(claim.name) is False:
        return "its mesh device is offline"
    return ""
