#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_info
short_description: See whether the control plane can be reached as its nodes have to reach it
description:
  - Tries the API server (tcp 6443) and, for Talos machines, trustd (tcp 50001) of every control plane, from where Ansible runs, and
    says what is wrong and what to do. Only a TLS handshake takes place.
  - What the tailnet's policy lets the machines' own tags do is asked by M(tgp.gpu.tailscale_policy_info).
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  endpoint:
    description:
      - URL of the Kubernetes API as the machines reach it, for example V(https://100.64.0.1:6443).
      - Taken from E(TGP_CONTROL_PLANE_ENDPOINT) when not given.
    type: str
  control_planes:
    description: Addresses of all control planes. Default is the host of the endpoint.
    type: list
    elements: str
    default: []
  talos:
    description: Whether Talos machines shall join, which need trustd. Machines of lane C(kubelet) do not.
    type: bool
    default: true
  trustd_port:
    description: Port of trustd.
    type: int
    default: 50001
  timeout:
    description: Seconds for each attempt.
    type: float
    default: 5
requirements:
  - cryptography >= 42
extends_documentation_fragment:
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.tailscale_expose
  - module: tgp.gpu.tailscale_policy_info
"""

EXAMPLES = r"""
- name: Both doors of all three control planes
  tgp.gpu.control_plane_info:
    endpoint: "{{ endpoint }}"                # https://100.64.0.1:6443
    control_planes: "{{ control_planes }}"    # [100.64.0.1, 100.64.0.2, 100.64.0.3]
  register: doors
  failed_when: not doors.ok
"""

RETURN = r"""
ok:
  description: Everything that was asked for can be reached.
  type: bool
  returned: always
kubelet_lane:
  description: Whether machines of lane C(kubelet) can join.
  type: bool
  returned: always
talos_lane:
  description: Whether Talos machines can join; null when it was not looked at (O(talos=false)).
  type: bool
  returned: always
doors:
  description: What was tried.
  type: list
  elements: dict
  returned: always
  contains:
    what:
      description: V(API server) or V(trustd).
      type: str
      returned: always
    host:
      description: Name or address.
      type: str
      returned: always
    port:
      description: TCP port.
      type: int
      returned: always
    ok:
      description: Whether it can be used.
      type: bool
      returned: always
    stage:
      description: Where it ended, one of V(name), V(connect), V(refused), V(tls), V(certificate); empty when it is well.
      type: str
      returned: always
    problem:
      description: What is wrong, empty when nothing is.
      type: str
      returned: always
    remedy:
      description: What to do.
      type: str
      returned: always
    certificate_names:
      description: Names and addresses in the certificate.
      type: list
      elements: str
      returned: always
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.preflight.endpoint_check import API, TRUSTD, TRUSTD_PORT, look

SPEC = dict(
    argument_spec=dict(
        endpoint=dict(type="str", fallback=(env_fallback, ["TGP_CONTROL_PLANE_ENDPOINT"])),
        control_planes=dict(type="list", elements="str", default=[]),
        talos=dict(type="bool", default=True),
        trustd_port=dict(type="int", default=TRUSTD_PORT),
        timeout=dict(type="float", default=5),
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params = task.params
    if not params["endpoint"]:
        raise InvalidInput("There is no endpoint.", remedy="Give endpoint, or set TGP_CONTROL_PLANE_ENDPOINT.", field="endpoint")
    if not 0 < params["timeout"] <= 120:
        raise InvalidInput("timeout must be more than 0 and at most 120 seconds.", field="timeout")
    doors = look(
        params["endpoint"],
        params["control_planes"],
        talos=params["talos"],
        trustd_port=params["trustd_port"],
        timeout=params["timeout"],
    )
    api = all(door.ok for door in doors if door.what == API)
    return dict(
        changed=False,
        ok=all(door.ok for door in doors),
        kubelet_lane=api,
        talos_lane=api and all(door.ok for door in doors if door.what == TRUSTD) if params["talos"] else None,
        doors=[
            dict(
                what=door.what,
                host=door.host,
                port=door.port,
                ok=door.ok,
                stage=door.stage,
                problem=door.problem,
                remedy=door.remedy,
                certificate_names=list(door.names),
            )
            for door in doors
        ],
    )


if __name__ == "__main__":
    main(SPEC, run)
