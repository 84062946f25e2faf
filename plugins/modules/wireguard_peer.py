#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: wireguard_peer
short_description: Keep the peers of one cluster on a WireGuard hub
description:
  - Brings the peers that a cluster's machines have on a WireGuard hub in line with a list, in the file of C(wg-quick) and on the
    running interface. Sessions of peers that stay are not interrupted.
  - Runs on the hub itself, so send the task there (C(delegate_to)) with the rights of root (C(become)).
  - A peer belongs to a cluster when a comment at the beginning of its section, C(# tgp), has a machine name with the cluster's id.
    All other peers, and everything else in the file, stay byte for byte as they are.
  - Nothing is written when anything is wrong with the list, collides with another peer, or the file cannot be edited safely.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - ansible-core >= 2.19 (on the controller)
  - Python 3.10 or newer on the hub, and no library
  - wireguard-tools on the hub (C(wg), C(wg-quick)), but for O(apply=false)
options:
  cluster_id:
    description: The cluster's id, eight characters of 0-9 and a-f. It is the second part of all its machine names.
    type: str
    required: true
  peers:
    description: The peers.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the machine.
        type: str
        required: true
      public_key:
        description:
          - The machine's public key. Required unless O(state=absent).
          - With O(state=absent) a peer that has another one is a failure.
        type: str
      allowed_ips:
        description:
          - Its addresses in the tunnel, each with a prefix length, V(10.77.0.11/32). Required unless O(state=absent).
          - With O(state=absent) a peer that has others is a failure.
        type: list
        elements: str
  state:
    description:
      - V(exact) gives the cluster these peers and no others.
      - V(present) adds or renews these peers and keeps the cluster's others.
      - V(absent) removes the peers of these names.
    type: str
    choices: [present, exact, absent]
    default: exact
  gone:
    description:
      - Names of machines that are known to be gone. With O(state=exact) their peers do not count among those of which no more than three, or
        half, may go at once.
    type: list
    elements: str
    default: []
  unknown:
    description: Names of machines whose claims cannot be read. With O(state=exact) their peers stay as they are.
    type: list
    elements: str
    default: []
  keep_younger_than:
    description:
      - With O(state=exact), peers that were added so few seconds ago stay although O(peers) lacks them, unless O(gone) names their machines.
      - Another controller may have added one for a machine that no cloud lists yet.
    type: int
    default: 0
    version_added: 0.2.0
  interface:
    description: The hub's interface.
    type: str
    default: wg-tgp
  config_file:
    description: The file of C(wg-quick). The default is V(/etc/wireguard/<interface>.conf).
    type: path
  apply:
    description:
      - Whether to bring the running interface in line with the file, too (C(wg syncconf)). This also applies what others have
        edited in the file and not applied yet.
      - It is refused when the interface has peers of others that the file does not have, since they would be cut off.
    type: bool
    default: true
  allow_mass_delete:
    description: Let O(state=exact) remove more than three peers and more than half of the cluster's at once.
    type: bool
    default: false
attributes:
  action:
    description: Has an action plugin that runs on the controller.
    support: none
    details: Unlike all other modules of this collection it runs on the host of the task.
  async:
    description: Can be used with the C(async) keyword.
    support: full
  become:
    description: Can be used with the C(become) keywords.
    support: full
  connection:
    description: Uses the connection of the task's host to run code there.
    support: full
  delegation:
    description: Can be used with C(delegate_to) to run on another host.
    support: full
  platform:
    description: Systems of the hub on which it runs.
    platforms: linux
    support: full
extends_documentation_fragment:
  - tgp.gpu.attributes
"""

EXAMPLES = r"""
- name: Let two machines in, and no others of this cluster
  tgp.gpu.wireguard_peer:
    cluster_id: a1b2c3d4
    config_file: "{{ hub_config }}"
    peers:
      - name: tgp-a1b2c3d4-training-0k3zq
        public_key: j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
        allowed_ips: [10.77.0.11/32]
      - name: tgp-a1b2c3d4-training-9zz01
        public_key: c9n3cWWwP0rqF2brMs++lHzbKjOSRDEOj3xn4MpGBAM=
        allowed_ips: [10.77.0.12/32]
  delegate_to: "{{ hub }}"

- name: Forget a machine
  tgp.gpu.wireguard_peer:
    cluster_id: a1b2c3d4
    config_file: "{{ hub_config }}"
    state: absent
    peers:
      - name: tgp-a1b2c3d4-training-9zz01
  delegate_to: "{{ hub }}"
"""

RETURN = r"""
added:
  description: Names of machines whose peers are new, or have another key or other addresses than before.
  type: list
  elements: str
  returned: success
removed:
  description: Names of machines whose peers were (in check mode would be) removed.
  type: list
  elements: str
  returned: success
kept:
  description: Names of the cluster's machines whose peers stay as they were.
  type: list
  elements: str
  returned: success
applied:
  description:
    - Whether the running interface has these peers now; in check mode, whether it would.
    - False with O(apply=false), and, with a warning, when the interface is not up.
  type: bool
  returned: success
peers:
  description: All peers of the cluster, as the file has them afterwards.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the machine.
      type: str
      returned: always
    public_key:
      description: Its public key.
      type: str
      returned: always
    allowed_ips:
      description: Its addresses in the tunnel.
      type: list
      elements: str
      returned: always
    last_handshake:
      description: When it last proved to be there, RFC 3339; null when never, or when the interface was not asked.
      type: str
      returned: always
    endpoint:
      description: From where it spoke last, address and port; null when never, or when the interface was not asked.
      type: str
      returned: always
"""

import re

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.mesh.wireguard.hub import Order, bring_in_line
from ..module_utils.mesh.wireguard.peers import specs

SPEC = dict(
    argument_spec=dict(
        cluster_id=dict(type="str", required=True),
        peers=dict(
            type="list",
            elements="dict",
            default=[],
            options=dict(
                name=dict(type="str", required=True),
                public_key=dict(type="str", no_log=False),
                allowed_ips=dict(type="list", elements="str"),
            ),
        ),
        state=dict(type="str", choices=["present", "exact", "absent"], default="exact"),
        gone=dict(type="list", elements="str", default=[]),
        unknown=dict(type="list", elements="str", default=[]),
        keep_younger_than=dict(type="int", default=0),
        interface=dict(type="str", default="wg-tgp"),
        config_file=dict(type="path"),
        apply=dict(type="bool", default=True),
        allow_mass_delete=dict(type="bool", default=False),
    ),
    supports_check_mode=True,
)
_INTERFACE = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9_=+.-]{0,14}")


def run(task: Task) -> dict:
    params = task.params
    interface = params["interface"]
    if not _INTERFACE.fullmatch(interface):
        raise InvalidInput(f'interface "{interface}" is not a name of an interface (1 to 15 letters, digits and _ = + . -).')
    order = Order(
        cluster_id=params["cluster_id"],
        interface=interface,
        config_file=params["config_file"] or f"/etc/wireguard/{interface}.conf",
        wanted=tuple(specs(params["cluster_id"], params["peers"] or [], params["state"])),
        state=params["state"],
        apply=params["apply"],
        allow_mass_delete=params["allow_mass_delete"],
        gone=tuple(params["gone"] or ()),
        unknown=tuple(params["unknown"] or ()),
        keep_younger_than=params["keep_younger_than"],
    )
    outcome = bring_in_line(order, task.clock, dry=task.check_mode)
    for text in outcome.warnings:
        task.warn(text)
    change = outcome.change
    result = dict(
        changed=outcome.changed,
        added=list(change.added),
        removed=list(change.removed),
        kept=list(change.kept),
        applied=outcome.applied,
        peers=list(outcome.peers),
    )
    if task.diff_mode:
        header = f"{order.config_file}, peers of {order.cluster_id}"
        result["diff"] = dict(before=outcome.before, after=outcome.after, before_header=header, after_header=header)
    return result


if __name__ == "__main__":
    main(SPEC, run)
