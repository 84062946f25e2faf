#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_drain
short_description: Empty nodes, with respect for disruption budgets
description:
  - Cordons Nodes and evicts their pods through the eviction API, many nodes side by side. A refused eviction is tried again until the
    deadline, and at once when its budget opens.
  - For V(Empty), V(Underutilized) and V(Drifted) a drain that does not end in time is undone and the node is usable again. For V(Expired) and
    V(Unhealthy) what is left is deleted so that its own grace fits before the deadline. For V(Manual) it fails, and the node stays cordoned.
    For V(SpotLost) each pod is evicted once and nothing is waited for.
  - In check mode evictions are a dry run on the server and nothing changes.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  nodes:
    description: Names of the Nodes.
    type: list
    elements: str
    required: true
  reason:
    description: Why, which decides what happens at the deadline.
    type: str
    choices: [Empty, Underutilized, Drifted, Expired, Unhealthy, SpotLost, Manual]
    default: Manual
  timeout:
    description: Seconds from the beginning of the drain to its deadline. A drain that an earlier run began keeps its own.
    type: int
    default: 600
  parallel:
    description: Pods of one node that are evicted at a time.
    type: int
    default: 10
  force:
    description: With O(reason=Manual), delete at the deadline what is left.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: What would hold up a drain?
  tgp.gpu.node_drain:
    nodes: [rack-1]
    reason: Drifted
  check_mode: true
"""

RETURN = r"""
drains:
  description: One entry per Node, with C(name), C(drained), C(outcome), C(message), C(evicted), C(waited), C(skipped), C(blocked), C(forced),
    C(duration_s) and C(deadline).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.runs.node_drain import drain_nodes

SPEC = dict(
    argument_spec=dict(
        nodes=dict(type="list", elements="str", required=True),
        reason=dict(
            type="str",
            choices=["Empty", "Underutilized", "Drifted", "Expired", "Unhealthy", "SpotLost", "Manual"],
            default="Manual",
        ),
        timeout=dict(type="int", default=600),
        parallel=dict(type="int", default=10),
        force=dict(type="bool", default=False),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return drain_nodes(task)


if __name__ == "__main__":
    main(SPEC, run)
