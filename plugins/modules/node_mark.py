#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_mark
short_description: Set labels, annotations and taints of nodes
description:
  - Makes sure that Nodes carry the given marks, with at most one write per Node and none when they carry them already. Whatever is not
    named is left as it is.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  nodes:
    description: Names of the Nodes.
    type: list
    elements: str
    required: true
  labels:
    description: Labels to set. A null value removes the label.
    type: dict
    default: {}
  annotations:
    description: Annotations to set. A null value removes the annotation.
    type: dict
    default: {}
  taints:
    description: Taints to add, as C(key=value:Effect) or C(key:Effect).
    type: list
    elements: str
    default: []
  remove_taints:
    description: Keys of taints to remove.
    type: list
    elements: str
    default: []
  schedulable:
    description: V(false) cordons, V(true) uncordons. Without it scheduling is left as it is.
    type: bool
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Keep a node until Saturday
  tgp.gpu.node_mark:
    nodes: [rack-1]
    annotations:
      tgp.io/hold-until: "2027-01-09T00:00:00Z"
"""

RETURN = r"""
nodes:
  description: One entry per Node, with C(name) and C(changed).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.kube.node_mark import mark

SPEC = dict(
    argument_spec=dict(
        nodes=dict(type="list", elements="str", required=True),
        labels=dict(type="dict", default={}),
        annotations=dict(type="dict", default={}),
        taints=dict(type="list", elements="str", default=[]),
        remove_taints=dict(type="list", elements="str", default=[]),
        schedulable=dict(type="bool"),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return mark(task)


if __name__ == "__main__":
    main(SPEC, run)
