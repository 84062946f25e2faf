#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_device
short_description: Remove devices from the tailnet, or set their tags, approval and key expiry
description:
  - Works on all given devices in one call. A device that is gone already is not a failure.
  - Devices are found by the hostname their machine asked for, never by the name the mesh made of it, which has a C(-1) at its end
    when the wanted name was taken.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description:
      - V(absent) removes every device of the hostnames and IDs.
      - V(present) sets what is given of O(tags), O(authorized) and O(key_expiry); of several devices with one hostname, on the
        newest connected one. A device that does not exist is a failure, since only a machine can bring itself in.
    type: str
    choices: [present, absent]
    default: present
  hostnames:
    description: Hostnames the machines asked for.
    type: list
    elements: str
    default: []
  ids:
    description: Node IDs of devices.
    type: list
    elements: str
    default: []
  tags:
    description:
      - With O(state=present) the tags the devices shall have, all others are taken away.
      - With O(state=absent) only devices that carry all of these are removed by their hostname.
    type: list
    elements: str
  authorized:
    description: Whether the devices shall be approved. headscale cannot take an approval back.
    type: bool
  key_expiry:
    description: Whether the devices' own keys shall expire.
    type: bool
extends_documentation_fragment:
  - tgp.gpu.tailscale
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.tailscale_device_info
"""

EXAMPLES = r"""
- name: Forget two machines at once instead of waiting for the tailnet to do it
  tgp.gpu.tailscale_device:
    state: absent
    hostnames: [tgp-a1b2c3d4-training-0k3zq, tgp-a1b2c3d4-training-9zz01]
    tags: ["tag:gpu"]
"""

RETURN = r"""
devices:
  description: The devices as they are afterwards; with O(state=absent) those that could not be removed.
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
removed:
  description: Node IDs of the devices that were (in check mode would be) removed.
  type: list
  elements: str
  returned: always
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.mesh.connect import MESH_SPEC, connect
from ..module_utils.mesh.device_batch import DeviceSpec, assure, difference, remove
from ..module_utils.mesh.results import device_result

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "absent"], default="present"),
        hostnames=dict(type="list", elements="str", default=[]),
        ids=dict(type="list", elements="str", default=[]),
        tags=dict(type="list", elements="str"),
        authorized=dict(type="bool"),
        key_expiry=dict(type="bool", no_log=False),
        **MESH_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params = task.params
    hostnames, ids, tags = params["hostnames"], params["ids"], params["tags"]
    if params["state"] == "absent" and (params["authorized"] is not None or params["key_expiry"] is not None):
        raise InvalidInput("authorized and key_expiry mean nothing with state=absent.", remedy="Leave them out.")
    mesh = connect(task)
    try:
        if params["state"] == "absent":
            outcome = remove(mesh, hostnames, ids, tags or (), dry=task.check_mode)
        else:
            spec = DeviceSpec(None if tags is None else tuple(tags), params["authorized"], params["key_expiry"])
            outcome = assure(mesh, hostnames, ids, spec, dry=task.check_mode)
    finally:
        mesh.close()
    for text in outcome.warnings:
        task.warn(text)
    result = dict(changed=outcome.changed, devices=[device_result(device) for device in outcome.devices], removed=outcome.removed)
    if task.diff_mode:
        result["diff"] = difference(outcome)
    if outcome.failed:
        result.update(failed=True, msg="\n".join(outcome.failed))
    return result


if __name__ == "__main__":
    main(SPEC, run)
