#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_push
short_description: Hand Talos machines in maintenance mode their configuration
description:
  - A machine that booted Talos and found no configuration waits for one on port 50000. This hands it over, as
    C(talosctl apply-config --insecure) does, without that program.
  - In that mode a machine proves nothing about itself, and a configuration holds the cluster's secrets. So it is sent only through
    the mesh, into a network of O(trusted_networks), or to the machine whose fingerprint is given - never just so to an address on the internet.
  - A machine that has a configuration is not changed. Which one it has cannot be seen from outside.
  - In check mode machines are only asked whether they are in maintenance mode; no configuration is sent.
  - No configuration is printed or returned.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  nodes:
    description: The machines. All configurations are checked before the first machine is asked.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node, for messages.
        type: str
        required: true
      host:
        description: Address or name of the machine.
        type: str
        required: true
      port:
        description: Port of the machine API.
        type: int
        default: 50000
      config:
        description: The machine configuration as text, all its documents. One of this and O(nodes[].config_file) is needed.
        type: str
      config_file:
        description: File of the machine configuration, for example one that M(tgp.gpu.talos_config) wrote.
        type: path
      fingerprint:
        description:
          - What the machine's own console shows in maintenance mode, base64 of 32 bytes; C(talosctl --cert-fingerprint) takes the same.
          - Then the machine may be anywhere, and none with another fingerprint gets the configuration.
        type: str
  trusted_networks:
    description:
      - Networks in which nobody else can answer for one of the machines, for example V(10.20.0.0/24). Ranges as wide as the internet are
        refused.
      - Addresses of the mesh (V(100.64.0.0/10), V(fd7a:115c:a1e0::/48)) need not be named where the playbook's own machine is in the mesh.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds to wait for machines that are still starting.
    type: int
    default: 0
  call_timeout:
    description: Seconds one call may take, with its connection.
    type: float
    default: 10.0
  talos_version:
    description: Talos version the configurations are checked for before a machine is asked. A machine that tells its own is checked for that.
    type: str
requirements:
  - PyYAML >= 6.0
  - cryptography >= 42
  - h2 >= 4.1
extends_documentation_fragment:
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.talos_config
  - module: tgp.gpu.talos_machine_info
"""

EXAMPLES = r"""
- name: Hand a machine in the rack its configuration, in a network where nobody else can answer for it
  tgp.gpu.talos_push:
    trusted_networks: ["{{ rack_network }}"]
    wait: 300
    nodes:
      - name: tgp-lab-1
        host: "{{ rack[0].host }}"
        port: "{{ rack[0].port }}"
        config_file: configs/tgp-lab-1.yaml

- name: Hand it to a machine anywhere, by the fingerprint that its console shows
  tgp.gpu.talos_push:
    nodes:
      - name: tgp-lab-1
        host: "{{ rack[1].host }}"
        port: "{{ rack[1].port }}"
        fingerprint: "{{ rack[1].fingerprint }}"
        config_file: configs/tgp-lab-1.yaml
"""

RETURN = r"""
nodes:
  description: One entry per machine, in the order of O(nodes). Also there when machines failed.
  type: list
  elements: dict
  returned: when the machines were asked
  contains:
    name:
      description: Name of the node.
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
        What the machine was doing before - V(maintenance) (waited for a configuration), V(configured), V(unreachable), or V(unknown).
      type: str
      returned: always
      sample: maintenance
    applied:
      description: Whether it took the configuration now.
      type: bool
      returned: always
    would_apply:
      description: Whether it would be handed the configuration.
      type: bool
      returned: in check mode, for machines in maintenance mode
    taken_as:
      description: How the configuration takes effect, as the machine says; empty when its answer was lost and it is seen to have it.
      type: str
      returned: always
      sample: no-reboot
    details:
      description: What the machine says about it.
      type: str
      returned: always
    warnings:
      description: Warnings about the configuration, ours and the machine's.
      type: list
      elements: str
      returned: always
    version:
      description: Talos version of the machine, empty when it does not tell.
      type: str
      returned: always
      sample: v1.13.9
    arch:
      description: Its architecture.
      type: str
      returned: always
      sample: amd64
    platform:
      description: Its Talos platform.
      type: str
      returned: always
      sample: metal
    mode:
      description: Its mode, which decides whether a configuration must say where to install.
      type: str
      returned: always
      sample: metal
    fingerprint:
      description: Fingerprint of the certificate it showed.
      type: str
      returned: always
    problem:
      description: Why it has no configuration now, empty when all is well.
      type: str
      returned: always
"""

from ..module_utils.bootstrap.talos.push import push
from ..module_utils.core.task import Task, main

_NODE = dict(
    name=dict(type="str", required=True),
    host=dict(type="str", required=True),
    port=dict(type="int", default=50000),
    config=dict(type="str", no_log=True),
    config_file=dict(type="path"),
    fingerprint=dict(type="str"),
)

SPEC = dict(
    argument_spec=dict(
        nodes=dict(type="list", elements="dict", required=True, options=_NODE),
        trusted_networks=dict(type="list", elements="str", default=[]),
        wait=dict(type="int", default=0),
        call_timeout=dict(type="float", default=10.0),
        talos_version=dict(type="str"),
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return push(task)


if __name__ == "__main__":
    main(SPEC, run)
