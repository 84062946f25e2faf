#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_policy_info
short_description: Hold the tailnet's policy against what the pools need
description:
  - Says whether the tags exist and may be handed out, whether routes are approved, and whether machines and control planes may reach
    each other, with the line to change for each thing that is wrong.
  - Never changes the policy. RV(policy_snippet) is what to write into it.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  tags:
    description: Tags of the machines.
    type: list
    elements: str
    default: ["tag:gpu"]
  control_planes:
    description: The control planes as the policy writes them, a tag, a host or an address. Without it no connection is tried.
    type: str
  advertise_routes:
    description: Networks that machines shall advertise.
    type: list
    elements: str
    default: []
  pod_network:
    description: What carries the pods' network between nodes; decides which UDP port the rules open.
    type: str
    choices: [flannel, cilium, kubespan, none]
    default: flannel
  client_tag:
    description: Tag of the OAuth client, for the snippet.
    type: str
    default: "tag:tgp"
extends_documentation_fragment:
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
notes:
  - Trying connections is offered by Tailscale alone. With headscale the tests stand in RV(policy_snippet); from 0.29 on it runs them
    itself whenever the policy is set.
seealso:
  - module: tgp.gpu.tailscale_key
"""

EXAMPLES = r"""
- name: Look at the policy before anything is rented
  tgp.gpu.tailscale_policy_info:
    tags: ["tag:gpu"]
    control_planes: tag:k8s-cp
  register: policy
  failed_when: not policy.ok

- name: What to write into it
  ansible.builtin.debug:
    var: policy.policy_snippet
"""

RETURN = r"""
ok:
  description: Nothing wrong was found. What could not be seen does not count.
  type: bool
  returned: always
problems:
  description: What is wrong.
  type: list
  elements: dict
  returned: always
  contains:
    subject:
      description: The tag or route, V(rules) or V(policy).
      type: str
      returned: always
    problem:
      description: What is wrong with it.
      type: str
      returned: always
    remedy:
      description: What to write where.
      type: str
      returned: always
unseen:
  description: What the credential or the server does not show.
  type: list
  elements: str
  returned: always
policy_snippet:
  description: What to write into the policy, beside what is there.
  type: dict
  returned: always
"""

import ipaddress

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.mesh.connect import MESH_SPEC, connect
from ..module_utils.mesh.tailscale.policy import POD_NETWORKS, PolicySpec, report

SPEC = dict(
    argument_spec=dict(
        tags=dict(type="list", elements="str", default=["tag:gpu"]),
        control_planes=dict(type="str"),
        advertise_routes=dict(type="list", elements="str", default=[]),
        pod_network=dict(type="str", choices=list(POD_NETWORKS), default="flannel"),
        client_tag=dict(type="str", default="tag:tgp"),
        **MESH_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params = task.params
    spec = PolicySpec(
        tuple(dict.fromkeys(params["tags"])),
        params["control_planes"] or "",
        tuple(map(_network, params["advertise_routes"])),
        params["pod_network"],
        params["client_tag"],
    )
    mesh = connect(task)
    try:
        policy_report = report(mesh, spec)
    finally:
        mesh.close()
    return dict(
        changed=False,
        ok=not policy_report.problems,
        problems=policy_report.problems,
        unseen=policy_report.unseen,
        policy_snippet=spec.snippet(),
    )


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not a network: {error}.", remedy="Write it like 10.0.0.0/24.", field="advertise_routes"
        ) from None


if __name__ == "__main__":
    main(SPEC, run)
