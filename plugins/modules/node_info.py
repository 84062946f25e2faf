#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Show GPU nodes and what runs on them
description:
  - Lists Nodes with their readiness, taints and GPUs, and for each how many GPUs are requested and which pods keep it busy.
  - Nodes and pods are read page by page; pods that do not count as work (of DaemonSets, finished, mirror pods) are left out.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  names:
    description: Only these Nodes.
    type: list
    elements: str
    default: []
  provisioned_only:
    description: Only Nodes that carry the label C(tgp.io/provisioned).
    type: bool
    default: true
  idle_mode:
    description:
      - Which pods keep a node busy. V(workload) means all but those of system namespaces without a GPU, V(gpu) only pods that request a GPU,
        V(all) all.
    type: str
    choices: [workload, gpu, all]
    default: workload
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Which GPU nodes are there, and who uses them?
  tgp.gpu.node_info:
  register: gpu
"""

RETURN = r"""
nodes:
  description: One entry per Node, with C(name), C(uid), C(ready), C(schedulable), C(labels), C(taints), C(gpus) (allocatable per resource),
    C(gpus_requested), C(busy_pods) and C(addresses).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.runs.node_info import report

SPEC = dict(
    argument_spec=dict(
        names=dict(type="list", elements="str", default=[]),
        provisioned_only=dict(type="bool", default=True),
        idle_mode=dict(type="str", choices=["workload", "gpu", "all"], default="workload"),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return report(task)


if __name__ == "__main__":
    main(SPEC, run)
