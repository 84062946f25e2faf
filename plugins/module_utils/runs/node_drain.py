# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of node_drain."""

from __future__ import annotations

import typing as t

from ..core.errors import NotFound, TimedOut
from ..core.task import Task
from ..kube.auth.credentials import connect
from ..kube.drain.drain import DrainOptions, Target, drain
from ..kube.nodes import get_node
from ..model.labels import DISRUPTED_TAINT
from ..planner.disruption.drain_rules import is_voluntary, rules_of

_USABLE = "They are usable again."
_CLOSED = (
    "They stay cordoned. Drain again (with reason Manual and force: true what is left is deleted), or open them: node_mark with "
    f"schedulable: true and remove_taints: [{DISRUPTED_TAINT}]."
)


def drain_nodes(task: Task) -> dict[str, t.Any]:
    """The module's result. TimedOut (with the result of all) when a node was not emptied."""
    params = task.params
    kube = connect(task)
    try:
        nodes = {name: get_node(kube, name) for name in params["nodes"]}
        missing = [name for name, node in nodes.items() if node is None]
        if missing:
            raise NotFound(f"There is no Node {', '.join(missing)}.", remedy="Nothing was drained.", service="kubernetes")
        options = DrainOptions(
            timeout=params["timeout"],
            parallel=params["parallel"],
            check=task.check_mode,
            force=params["force"],
            rules=rules_of(params["reason"]),
        )
        drains = drain(
            kube,
            [Target(node.name, node.uid, params["reason"]) for node in nodes.values() if node is not None],
            options,
            clock=task.clock,
            progress=lambda node, text: task.progress(f"  {node:<34} {text}"),
        )
    finally:
        kube.close()
    result = {"changed": any(drain.changed for drain in drains), "drains": [drain.result() for drain in drains]}
    held = [drain for drain in drains if not drain.drained]
    if held and not task.check_mode:
        blockers = "; ".join(
            f"{drained.node}: {drained.message or drained.outcome} {', '.join(f'{pod.pod} ({pod.by})' for pod in drained.blocked)}".strip()
            for drained in held
        )
        state = _USABLE if is_voluntary(params["reason"]) else _CLOSED
        raise TimedOut(f"{len(held)} of {len(drains)} nodes were not emptied: {blockers}.", remedy=state, result=result)
    return result
