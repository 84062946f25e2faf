# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longest life that a cloud gives a machine, beside the one that a pool wants: the cloud ends a machine without notice to its pods."""

from __future__ import annotations

from ..model import CloudChoice, NodeClass, Pool
from ..model.labels import PROVIDER_LABEL
from ..providers.registry import ENTRIES
from ..units.values import print_duration
from .node_pool import DISRUPTION_PATH
from .reading import Reader


def check_lifetime(pool: Pool, node_class: NodeClass | None, reader: Reader) -> None:
    """A fault when a cloud of the class deletes a machine before its pool lets it expire, a warning when it does so within the grace
    period. A cloud that no document names is not looked at."""
    if pool.expire_after is None or node_class is None:
        return
    path = "spec.maxLifetime" if pool.request else f"{DISRUPTION_PATH}.expireAfter"
    for choice in node_class.clouds:
        longest = ENTRIES[choice.cloud].longest_life
        if longest is None or not choice.enabled or choice.implicit or not _may_rent(pool, choice):
            continue
        setting, hours = longest(choice.settings)
        ends, wanted = print_duration(hours * 3600), print_duration(pool.expire_after)
        if pool.expire_after > hours * 3600:
            reader.fault(
                path,
                f"{choice.cloud} deletes a machine after {ends} ({setting} of class {node_class.name}), so none lives {wanted}, and pods get "
                f"no notice. Shorten it, or raise {setting}.",
            )
        elif pool.expire_after + pool.termination_grace > hours * 3600:
            reader.warn(
                path,
                f"{choice.cloud} deletes a machine after {ends} ({setting} of class {node_class.name}): that is within the grace period "
                f"of a node that expires after {wanted}.",
            )


def _may_rent(pool: Pool, choice: CloudChoice) -> bool:
    """Whether the requirements of the pool leave it the cloud."""
    if pool.cloud and pool.cloud != choice.cloud:
        return False
    named = [(requirement.operator, requirement.values) for requirement in pool.requirements if requirement.key == PROVIDER_LABEL]
    return all((choice.cloud in values) is (operator == "In") for operator, values in named if operator in ("In", "NotIn"))
