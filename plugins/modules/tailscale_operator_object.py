#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_operator_object
short_description: Apply a Connector or a ProxyClass of the Tailscale operator
description:
  - A Connector is a pod in the cluster that routes networks into the tailnet, for example the LAN of the control planes, or the networks of
    pods and Services. A ProxyClass sets how the pods of the operator's proxies look. M(tgp.gpu.tailscale_expose) and a Connector refer to
    it by name.
  - The object is applied server-side. An object that this collection did not create is left as it is, unless O(force=true).
  - Routes of a Connector need an approval in the tailnet, see C(autoApprovers) in docs/how_to/mesh.md.
  - Whether the operator could do what the object says stands in the object's own conditions. The module does not wait for them.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description: Whether the object shall exist.
    type: str
    choices: [present, absent]
    default: present
  kind:
    description: Kind of the object.
    type: str
    choices: [Connector, ProxyClass]
    required: true
  name:
    description: Name of the object.
    type: str
    required: true
  spec:
    description:
      - Its C(spec), as the definition of the operator has it. Needed with O(state=present).
      - A field that the definition in the cluster does not have is an error, before anything is written.
    type: dict
  force:
    description: Take over an object, or fields of it, that another manager owns.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.tailscale_expose
  - module: tgp.gpu.tailscale_policy_info
"""

EXAMPLES = r"""
- name: The LAN of the control planes for machines of the tailnet
  tgp.gpu.tailscale_operator_object:
    kind: Connector
    name: control-planes
    spec:
      hostname: control-planes
      tags: ["tag:k8s"]
      subnetRouter:
        advertiseRoutes: [192.168.10.0/24]
"""

RETURN = r"""
objects:
  description: The object and what happened to it.
  type: list
  elements: dict
  returned: always
  contains:
    kind:
      description: Kind of the object.
      type: str
    namespace:
      description: Always empty, both kinds are cluster-scoped.
      type: str
    name:
      description: Name of the object.
      type: str
    result:
      description: V(created), V(changed), V(unchanged) or V(deleted); in check mode what the module would do.
      type: str
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC, connect
from ..module_utils.preflight.operator_objects import PLURALS, apply_operator_object, operator_object, remove_operator_object

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "absent"], default="present"),
        kind=dict(type="str", choices=list(PLURALS), required=True),
        name=dict(type="str", required=True),
        spec=dict(type="dict"),
        force=dict(type="bool", default=False),
        **CLUSTER_SPEC,
    ),
    required_if=[("state", "present", ["spec"])],
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    kind, name, spec = task.params["kind"], task.params["name"], task.params["spec"]
    present = task.params["state"] == "present"
    if present and not spec:
        raise InvalidInput(f"{kind} {name} has no spec.", remedy="Give spec as the operator's definition has it.", field="spec")
    body = operator_object(kind, name, spec) if present else None
    kube = connect(task)
    try:
        if body is not None:
            return apply_operator_object(task, kube, body)
        gone = remove_operator_object(task, kube, kind, name)
    finally:
        kube.close()
    return {
        "changed": gone,
        "objects": [{"kind": kind, "namespace": "", "name": name, "result": "deleted" if gone else "unchanged"}],
    }


if __name__ == "__main__":
    main(SPEC, run)
