# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Will anybody advertise the GPUs of a pool's nodes? Without a device plugin a machine is billed for its whole registration time and fails.

Three answers: yes, none (nothing is launched) and unknown (a warning)."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import DevicePlugin, DevicePlugins, Expression, Node, NodeClass, Placement, Pool, Taint
from ...model.devices import DynamicResources
from ...model.labels import (
    BETA_OS_LABEL,
    GPU_PRESENT_LABEL,
    GPU_TYPE_LABEL,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    OS_LABEL,
    PROVISIONED_LABEL,
)
from ...model.names import label_value
from ...model.resources import NVIDIA_GPU
from ..provisioning.limits import gpu_resource
from . import capacity
from .binpacking import shown
from .node_affinity import against_taints, holds

YES, NONE, UNKNOWN = "yes", "none", "unknown"
INSTALL = "ansible-playbook tgp.gpu.device_plugin -e tgp_documents=..."
_REMEDY = (
    f"Install NVIDIA's device plugin with tolerations for {{taints}}: {INSTALL} with the documents of your pools. Or set gpuWait: none in "
    "the pool."
)


_DRA_REMEDY = (
    "Install NVIDIA's DRA driver for GPUs with tolerations for {taints} on its kubelet plugin. Or set gpuWait: none in the pool."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """``word``: YES, NONE or UNKNOWN; ``why`` for people."""

    word: str
    why: str = ""


def answer(
    pool: Pool,
    node_class: NodeClass,
    plugins: DevicePlugins | None,
    nodes: t.Iterable[Node] | None,
    gpu_resources: t.Collection[str],
    dynamic: DynamicResources | None = None,
) -> Answer:
    """Whether new nodes of the pool will show GPUs. ``plugins`` None = not looked at. A pool with draDriver needs a DRA driver."""
    if plugins is None or pool.service is not None or pool.gpu_wait == "none":
        return Answer(YES)
    showing = [node for node in nodes or () if shown(node.allocatable, gpu_resources) > 0]
    if why := _shown_already(pool, node_class, showing):
        return Answer(YES, why)
    if pool.dra_driver and (why := _undriven(pool, dynamic)):
        return Answer(NONE, f"nobody would advertise its GPUs: {why}")
    if plugins.problem:
        return Answer(UNKNOWN, f"the DaemonSets of the cluster could not be read: {plugins.problem}")
    labels, taints = _known_labels(pool, node_class), (*capacity.taints(pool), capacity.INITIALIZING)
    fitting_kind = [plugin for plugin in plugins.found if plugin.dra or not pool.dra_driver]
    each = [_serves(plugin, labels, taints, wanted=bool(pool.dra_driver)) for plugin in fitting_kind]
    for word in (YES, UNKNOWN):
        if fitting := next((verdict for verdict in each if verdict.word == word), None):
            return fitting
    if not each and showing:
        return Answer(UNKNOWN, f"node {showing[0].name} shows GPUs, and no DaemonSet of a known device plugin exists")
    kind = "DRA driver for GPUs" if pool.dra_driver else "device plugin"
    reasons = "; ".join(verdict.why for verdict in each) or f"the cluster has no DaemonSet of a {kind}"
    taint_list = ", ".join(str(taint) for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))
    return Answer(
        NONE,
        f"nobody would advertise its GPUs: {reasons}. {(_DRA_REMEDY if pool.dra_driver else _REMEDY).format(taints=taint_list)}",
    )


def _undriven(pool: Pool, dynamic: DynamicResources | None) -> str:
    """What of the pool's DRA driver is missing in the cluster; empty when nothing is, or nobody looked."""
    if dynamic is None:
        return ""
    if not dynamic.served:
        return "the cluster does not serve resource.k8s.io/v1, which draDriver needs (Kubernetes 1.34 or newer)"
    if not dynamic.classes:
        return f"there is no DeviceClass, so nothing asks for devices of {pool.dra_driver}. Install NVIDIA's DRA driver for GPUs"
    return ""


def _shown_already(pool: Pool, node_class: NodeClass, showing: t.Sequence[Node]) -> str:
    """Which nodes prove that GPUs are advertised, of those that show some; empty when none does."""
    if any(node.labels.get(NODEPOOL_LABEL) == label_value(pool.name) for node in showing):
        return "nodes of the pool show GPUs"
    own = {machine.node_name or machine.name for choice in node_class.clouds for machine in choice.machines}
    return "own machines of its class show GPUs" if any(node.name in own for node in showing) else ""


def _serves(plugin: DevicePlugin, labels: t.Mapping[str, str], taints: t.Sequence[Taint], *, wanted: bool = False) -> Answer:
    """Whether this one would advertise the GPUs of nodes with these labels, and maybe others, and these taints. ``wanted``: as devices."""
    name = f"DaemonSet {plugin.namespace}/{plugin.name}"
    if why := against_taints(plugin.placement, taints):
        return Answer(NONE, f"{name}: {why}")
    word, label = _selects(plugin.placement, labels)
    if word == NONE:
        return Answer(NONE, f"{name}: its selector does not match the nodes ({label})")
    if plugin.dra and not wanted:
        return Answer(UNKNOWN, f"{name} is a DRA driver; nodes show GPUs only if its DeviceClass names an extended resource")
    if word == UNKNOWN:
        return Answer(UNKNOWN, f"{name} selects nodes by {label}, which is set after a node joins, if at all")
    return Answer(YES, name)


def _known_labels(pool: Pool, node_class: NodeClass) -> dict[str, str]:
    """Labels that every new node of the pool has. Others may come from its offer, its template, or another controller. A pool or
    class without a name stands for any: its name and labels are unknown."""
    ours = {
        NODEPOOL_LABEL: label_value(pool.name),
        NODECLASS_LABEL: label_value(node_class.name),
        PROVISIONED_LABEL: "true",
        GPU_PRESENT_LABEL: "true" if _nvidia(pool, node_class) else "",
    }
    ours = {key: value for key, value in ours.items() if value}
    return {**ours, **pool.labels, OS_LABEL: "linux", BETA_OS_LABEL: "linux"}


def _nvidia(pool: Pool, node_class: NodeClass) -> bool:
    """Whether all GPUs that the pool may get are NVIDIA's: no model of another vendor is named."""
    named = [value for one in pool.requirements if one.key == GPU_TYPE_LABEL and one.operator == "In" for value in one.values]
    return all(gpu_resource(model) == NVIDIA_GPU for model in (*node_class.gpu_types, *named))


def _selects(placement: Placement, labels: t.Mapping[str, str]) -> tuple[str, str]:
    """Whether nodes with these labels, and maybe others, are selected; with the condition that decides against it or is open."""
    words = [_all([Expression(key, "In", (value,)) for key, value in placement.selector], labels)]
    if placement.terms:
        terms = [(UNKNOWN, "a name") if term.fields else _all(term.labels, labels) for term in placement.terms]
        words.append(min(terms, key=lambda pair: (YES, UNKNOWN, NONE).index(pair[0])))
    return max(words, key=lambda pair: (YES, UNKNOWN, NONE).index(pair[0]))


def _all(conditions: t.Iterable[Expression], labels: t.Mapping[str, str]) -> tuple[str, str]:
    result = (YES, "")
    for expression in conditions:
        if expression.key in labels:
            if not holds(expression, labels):
                return NONE, expression.key
        elif expression.operator not in ("NotIn", "DoesNotExist"):
            result = (UNKNOWN, f"label {expression.key}")
    return result
