#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_wait
short_description: Wait until nodes are Ready and show their GPUs
description:
  - Waits for many Nodes at once with one watch on the API server, and says of each which step it reached and why it is not further.
  - Fails when one of them is not complete at the deadline; the result then tells about all of them.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  nodes:
    description: Names of the Nodes.
    type: list
    elements: str
    required: true
  newer_than:
    description: A time in RFC 3339. Nodes that were created before are ignored.
    type: str
  gpu_resource:
    description: The resource that has to be allocatable.
    type: str
    default: nvidia.com/gpu
  gpus:
    description: How much of it, at least.
    type: int
    default: 0
  without_taints:
    description: Keys of taints that have to be gone.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait.
    type: int
    default: 900
requirements:
  - cryptography >= 42
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Wait for a node and its GPU
  tgp.gpu.node_wait:
    nodes: [rack-1]
    gpus: 1
    timeout: 600
"""

RETURN = r"""
nodes:
  description:
    - One entry per Node, with C(name), C(ready), C(step), C(message), C(seconds), C(seen) (when each step was first seen) and
      C(diagnosis), null for one that is ready. It has C(code), C(step), C(cause), C(remedy), C(evidence), C(looked_at) and C(certain).
  type: list
  elements: dict
  returned: always
"""

from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import NVIDIA_GPU

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.runs.node_wait import wait_for_nodes

SPEC = dict(
    argument_spec=dict(
        nodes=dict(type="list", elements="str", required=True),
        newer_than=dict(type="str"),
        gpu_resource=dict(type="str", default=NVIDIA_GPU),
        gpus=dict(type="int", default=0),
        without_taints=dict(type="list", elements="str", default=[]),
        timeout=dict(type="int", default=900),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return wait_for_nodes(task)


if __name__ == "__main__":
    main(SPEC, run)
