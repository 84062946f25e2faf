# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of node_info: Nodes with their GPUs and the pods that keep them busy."""

from __future__ import annotations

import collections
import typing as t

from ..core.task import Task
from ..kube.auth.credentials import connect
from ..kube.nodes import nodes
from ..kube.pods import is_gpu, pods
from ..model import Node, Pod
from ..model.defaults import Settings
from ..model.labels import PROVISIONED_LABEL
from ..planner.disruption.emptiness import counts


def report(task: Task) -> dict[str, t.Any]:
    """The module's result."""
    params = task.params
    kube = connect(task)
    try:
        matching = nodes(kube, selector=f"{PROVISIONED_LABEL}=true" if params["provisioned_only"] else "")
        names = params["names"]
        chosen = [node for node in matching if not names or node.name in names]
        by_node: dict[str, list[Pod]] = collections.defaultdict(list)
        for pod in pods(kube):
            by_node[pod.node].append(pod)
    finally:
        kube.close()
    now, settings = task.clock.now(), Settings()
    return {
        "changed": False,
        "nodes": [
            _entry(node, [pod for pod in by_node[node.name] if counts(pod, params["idle_mode"], settings, now)]) for node in chosen
        ],
    }


def _entry(node: Node, working: list[Pod]) -> dict[str, t.Any]:
    requested: collections.Counter[str] = collections.Counter()
    for pod in working:
        requested.update(pod.requests)
    return {
        "name": node.name,
        "uid": node.uid,
        "ready": node.ready,
        "message": node.ready_message,
        "schedulable": not node.unschedulable,
        "labels": dict(node.labels),
        "taints": [str(taint) for taint in node.taints],
        "gpus": {name: amount for name, amount in node.allocatable.items() if is_gpu(name)},
        "gpus_requested": {name: amount for name, amount in requested.items() if is_gpu(name)},
        "busy_pods": [f"{pod.namespace}/{pod.name}" for pod in working],
        "addresses": list(node.addresses),
    }
