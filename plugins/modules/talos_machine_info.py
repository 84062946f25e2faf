#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_machine_info
short_description: See whether machines run Talos and wait for a configuration
description:
  - Asks the machine API (port 50000) without any credential. A machine in maintenance mode answers; one that has its configuration asks
    for a client certificate, which tells as much.
  - Nothing secret is sent, so it may be asked over any network. What answers is not proven to be the machine.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  nodes:
    description: The machines.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name for the result. Default is O(nodes[].host).
        type: str
      host:
        description: Address or name of the machine.
        type: str
        required: true
      port:
        description: Port of the machine API.
        type: int
        default: 50000
  call_timeout:
    description: Seconds one call may take, with its connection.
    type: float
    default: 10.0
requirements:
  - PyYAML >= 6.0
  - cryptography >= 42
  - h2 >= 4.1
extends_documentation_fragment:
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.talos_push
"""

EXAMPLES = r"""
- name: Which machines of the rack wait for a configuration?
  tgp.gpu.talos_machine_info:
    nodes:
      - host: "{{ rack[0].host }}"
        port: "{{ rack[0].port }}"
      - host: "{{ rack[1].host }}"
        port: "{{ rack[1].port }}"
  register: seen

- name: Show them
  ansible.builtin.debug:
    msg: "{{ seen.nodes | selectattr('state', 'eq', 'maintenance') | map(attribute='host') }}"
"""

RETURN = r"""
nodes:
  description: One entry per machine, in the order of O(nodes).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name as given, or the host.
      type: str
      returned: always
    host:
      description: As given.
      type: str
      returned: always
    address:
      description: Address that answered, empty when none did.
      type: str
      returned: always
    state:
      description: >-
        V(maintenance) (waits for a configuration), V(configured), V(unreachable) (off, starting, or busy fetching its configuration), or
        V(unknown) (something else answers).
      type: str
      returned: always
      sample: maintenance
    version:
      description: Talos version, empty when it does not tell.
      type: str
      returned: always
      sample: v1.13.9
    arch:
      description: Architecture.
      type: str
      returned: always
      sample: amd64
    platform:
      description: Talos platform.
      type: str
      returned: always
      sample: metal
    mode:
      description: Mode, which decides whether a configuration must say where to install.
      type: str
      returned: always
      sample: metal
    fingerprint:
      description: Fingerprint of the certificate it showed. Compare it with the machine's console before it is used in M(tgp.gpu.talos_push).
      type: str
      returned: always
    problem:
      description: What went wrong, empty when it answered as Talos does.
      type: str
      returned: always
"""

from ..module_utils.bootstrap.talos.push import look
from ..module_utils.core.task import Task, main

SPEC = dict(
    argument_spec=dict(
        nodes=dict(
            type="list",
            elements="dict",
            required=True,
            options=dict(
                name=dict(type="str"),
                host=dict(type="str", required=True),
                port=dict(type="int", default=50000),
            ),
        ),
        call_timeout=dict(type="float", default=10.0),
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return look(task)


if __name__ == "__main__":
    main(SPEC, run)
