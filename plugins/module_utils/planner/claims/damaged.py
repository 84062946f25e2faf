# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims that exist and cannot be read: each concerns the machine of its own name and the limits, nothing else (L-2, L-16, L-22).

What has such a name is no orphan, is never adopted and never ended, and its name is not used again. It counts against limits: by what the
cloud's list says of its machine, and while no list says that, nothing is launched of its class.
"""

from __future__ import annotations

import dataclasses

from ...model import Claim, DamagedClaim, Instance, NodeClass, Pool
from ...model.names import pool_of, pool_part
from ..cluster_state import Situation
from ..garbage_collection.ownership import Ownership
from ..plan_builder import Draft
from .adoption import adopt


def tell(draft: Draft) -> None:
    """Each is a failure of the run, and a notice."""
    for damaged in draft.situation.damaged.values():
        text = (
            f"{damaged.name}: its claim ({damaged.where}) cannot be read: {damaged.problem}. "
            "Nothing is done with its machine, Node and mesh device. "
            "Repair the claim, or delete it once its machine is gone from the provider's console."
        )
        draft.failures.append(text)
        draft.notice("records", damaged.name, text, where=damaged.where)


def pool(damaged: DamagedClaim, situation: Situation) -> Pool | None:
    """The pool of the claim's machine: as found beside the claim, else the only one that its name fits."""
    if damaged.pool in situation.pool_by_key:
        return situation.pool_by_key[damaged.pool]
    named = [found for found in situation.pools if pool_part(found.name) == pool_of(damaged.name)]
    return named[0] if len(named) == 1 and not damaged.pool else None


def stand_ins(situation: Situation) -> list[Claim]:
    """What counts against limits and budgets for those whose machine a cloud lists with its price and size."""
    claims = []
    for damaged in situation.damaged.values():
        for instance in _machines(damaged, situation):
            claim, known = adopt(instance, situation.nodes_by_name.get(damaged.name), situation), pool(damaged, situation)
            node_class = known.node_class if known else damaged.node_class or claim.node_class
            claims.append(dataclasses.replace(claim, pool=known.key if known else claim.pool, node_class=node_class))
    return claims


def pauses(node_class: NodeClass, situation: Situation) -> str:
    """Why nothing may be launched of the class: a machine of it, of unknown price and size, may exist, or its address in the tunnel is
    unknown. Empty when there is no such claim."""
    for damaged in situation.damaged.values():
        if node_class.mesh.hub is not None:
            return f"claim {damaged.name} cannot be read, and with it the address of its machine in the tunnel"
        if _machines(damaged, situation) or damaged.name in situation.machines:
            continue  # own machines are known from their documents; one that is off costs nothing
        known = pool(damaged, situation)
        its_class = known.node_class if known else damaged.node_class
        if its_class in ("", node_class.name):
            return f"claim {damaged.name} cannot be read, and no provider lists its machine"
    return ""


def _machines(damaged: DamagedClaim, situation: Situation) -> list[Instance]:
    """Listed machines of the claim of which price and number of GPUs are known."""
    return [
        instance
        for instance in situation.listed()
        if (
            instance.id in damaged.ids or (instance.name == damaged.name and situation.ownership(instance) is not Ownership.FOREIGN)
        )
        and (not situation.rented(instance.cloud) or (instance.price_hour is not None and instance.gpu_count is not None))
    ]
