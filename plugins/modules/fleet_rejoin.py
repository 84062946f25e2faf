#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_rejoin
short_description: Make new enrolment secrets for a machine that has not become a node
description:
  - For a rented machine of lane V(kubelet) that exists and is paid for, but whose join failed half-way or whose user data never arrived.
  - Takes back its old mesh key and bootstrap token, makes new ones, and writes the configuration of the machine (a C(#cloud-config)) to
    O(dest). Role C(tgp.gpu.join_kubelet) brings that to the machine over SSH.
  - The result holds no secret. The deadline of the join is not moved.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  name:
    description: Name of the machine (its claim).
    type: str
    required: true
  state:
    description:
      - V(rendered) makes the secrets and writes them to O(dest).
      - V(approved) waits until the machine asks for its certificate and approves that, for this very node name only; whatever else its
        token asks for is denied, and the task fails. M(tgp.gpu.fleet_join) does the same for as long as it waits.
    type: str
    choices: [rendered, approved]
    default: rendered
  dest:
    description: File on the controller that gets the user data, a secret, readable by its owner alone. Needed with O(state=rendered).
    type: path
  timeout:
    description: Seconds to wait for its request, with O(state=approved).
    type: int
    default: 300
  lock_wait:
    description: Seconds to wait for another run to finish. A line a minute says who holds the lock.
    type: int
    default: 900
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Make new secrets for a machine that did not join
  tgp.gpu.fleet_rejoin:
    name: "{{ plan_result.launch | first }}"    # tgp-a1b2c3d4-a10-0k3zq
    dest: "{{ lookup('ansible.builtin.env', 'XDG_RUNTIME_DIR') }}/tgp-user-data"
    documents: [examples/lambda.yml]
"""

RETURN = r"""
name:
  description: Name of the machine.
  type: str
  returned: always
cloud:
  description: Its cloud.
  type: str
  returned: always
address:
  description: Its public address, empty when its cloud tells none.
  type: str
  returned: always
login:
  description: The SSH user of the Ubuntu images of its cloud, empty when that is unknown (own machines).
  type: str
  returned: always
deadline:
  description: When the machine counts as failed unless it is a node by then.
  type: str
  returned: always
hubs:
  description: WireGuard hubs that classes name, each with C(host), C(interface), C(cluster_id), the C(peers) that it is to have of this
    cluster, and machines that are C(gone) or C(unknown), for M(tgp.gpu.wireguard_peer) (docs/how_to/wireguard.md).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.rejoin import rejoin

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["rendered", "approved"], default="rendered"),
        dest=dict(type="path"),
        timeout=dict(type="int", default=300),
        lock_wait=dict(type="int", default=900),
        **FLEET_SPEC,
    ),
    required_if=[("state", "rendered", ["dest"])],
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return rejoin(task)


if __name__ == "__main__":
    main(SPEC, run)
