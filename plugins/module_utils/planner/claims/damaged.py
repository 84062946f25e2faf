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
    for one in draft.situation.damaged.values():
        text = (
            f"{one.name}: its claim ({one.where}) cannot be read: {one.problem}. Nothing is done with its machine, Node and mesh device. "
            "Repair the claim, or delete it once its machine is gone from the provider's console."
        )
        draft.failures.append(text)
        draft.notice("records", one.name, text, where=one.where)


def pool(one: DamagedClaim, situation: Situation) -> Pool | None:
    """The pool of the claim's machine: as found beside the claim, else the only one that its name fits."""
    if one.pool in situation.pool_by_key:
        return situation.pool_by_key[one.pool]
    named = [found for found in situation.pools if pool_part(found.name) == pool_of(one.name)]
    return named[0] if len(named) == 1 and not one.pool else None


def stand_ins(situation: Situation) -> list[Claim]:
    """What counts against limits and budgets for those whose machine a cloud lists with its price and size."""
    found = []
    for one in situation.damaged.values():
        for instance in _machines(one, situation):
            claim, known = adopt(instance, situation.nodes_by_name.get(one.name), situation), pool(one, situation)
            node_class = known.node_class if known else one.node_class or claim.node_class
            found.append(dataclasses.replace(claim, pool=known.key if known else claim.pool, node_class=node_class))
    return found


def pauses(node_class: NodeClass, situation: Situation) -> str:
    """Why nothing may be launched of the class: a machine of it, of unknown price and size, may exist, or its address in the tunnel is
    unknown. Empty when there is no such claim."""
    for one in situation.damaged.values():
        if node_class.mesh.hub is not None:
            return f"claim {one.name} cannot be read, and with it the address of its machine in the tunnel"
        if _machines(one, situation) or one.name in situation.machines:
            continue  # own machines are known from their documents; one that is off costs nothing
        known = pool(one, situation)
        its_class = known.node_class if known else one.node_class
        if its_class in ("", node_class.name):
            return f"claim {one.name} cannot be read, and no provider lists its machine"
    return ""


def _machines(one: DamagedClaim, situation: Situation) -> list[Instance]:
    """Listed machines of the claim of which price and number of GPUs are known."""
    return [
        instance
        for instance in situation.listed()
        if (instance.id in one.ids or (instance.name == one.name and situation.ownership(instance) is not Ownership.FOREIGN))
        and (not situation.rented(instance.cloud) or (instance.price_hour is not None and instance.gpu_count is not None))
    ]
