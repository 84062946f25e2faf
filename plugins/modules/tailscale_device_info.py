#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_device_info
short_description: List the devices of the tailnet
description:
  - Lists the devices the credential can see, by hostname. All given conditions must hold.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  hostnames:
    description: Only devices that asked for one of these hostnames.
    type: list
    elements: str
    default: []
  prefix:
    description: Only devices whose hostname begins so.
    type: str
    default: ""
  tags:
    description: Only devices that carry all of these tags.
    type: list
    elements: str
    default: []
  offline_for:
    description:
      - Only devices that have been silent for at least that many seconds.
      - One that never connected counts from its creation; one whose state cannot be known is left out.
    type: int
extends_documentation_fragment:
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.tailscale_device
"""

EXAMPLES = r"""
- name: Machines of cluster a1b2c3d4 that have been silent for ten minutes
  tgp.gpu.tailscale_device_info:
    prefix: tgp-a1b2c3d4-
    tags: ["tag:gpu"]
    offline_for: 600
  register: silent
"""

RETURN = r"""
devices:
  description: The devices, by hostname.
  type: list
  elements: dict
  returned: always
  contains:
    id:
      description: Node ID of the device.
      type: str
      returned: always
    hostname:
      description: The hostname the machine asked for.
      type: str
      returned: always
    name:
      description: The name the mesh gave it.
      type: str
      returned: always
    suffixed:
      description: True when the mesh had to add a number to the name, because another device has or had it.
      type: bool
      returned: always
    addresses:
      description: Its addresses in the mesh.
      type: list
      elements: str
      returned: always
    tags:
      description: Its tags.
      type: list
      elements: str
      returned: always
    online:
      description: Whether it is connected; null when that cannot be known.
      type: bool
      returned: always
    created:
      description: When it joined, RFC 3339.
      type: str
      returned: always
    last_seen:
      description: When it was last connected, RFC 3339; null while it is connected.
      type: str
      returned: always
    ephemeral:
      description: Whether the tailnet forgets it some time after it fell silent. V(null) where headscale does not tell.
      type: bool
      returned: always
    external:
      description: Whether it is shared in from another tailnet.
      type: bool
      returned: always
    authorized:
      description: Whether it is approved.
      type: bool
      returned: always
    key_expiry:
      description: Whether its own key expires; null when the service does not say.
      type: bool
      returned: always
    expires:
      description: When its own key expires, RFC 3339; null when never.
      type: str
      returned: always
    problem:
      description: What keeps it from working, empty when nothing is known.
      type: str
      returned: always
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.mesh.connect import MESH_SPEC, connect
from ..module_utils.mesh.device_batch import select
from ..module_utils.mesh.results import device_result

SPEC = dict(
    argument_spec=dict(
        hostnames=dict(type="list", elements="str", default=[]),
        prefix=dict(type="str", default=""),
        tags=dict(type="list", elements="str", default=[]),
        offline_for=dict(type="int"),
        **MESH_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params = task.params
    if params["offline_for"] is not None and params["offline_for"] < 0:
        raise InvalidInput("offline_for cannot be negative.", remedy="Give seconds, 0 or more.", field="offline_for")
    mesh = connect(task)
    try:
        devices = select(
            mesh.devices(),
            hostnames=params["hostnames"],
            prefix=params["prefix"],
            tags=params["tags"],
            offline_for=params["offline_for"],
            now=task.clock.now(),
        )
    finally:
        mesh.close()
    return dict(changed=False, devices=[device_result(device) for device in devices])


if __name__ == "__main__":
    main(SPEC, run)
