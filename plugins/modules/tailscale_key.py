#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_key
short_description: Make or revoke the keys with which machines join the tailnet
description:
  - Makes one key per node, all in one call. A key works once, is preauthorised, carries the tags and ends after an hour by default.
  - The secret of a key is returned once, when it is made. A valid key that exists already is not changed and its secret cannot be read
    again; O(renew=true) replaces it.
  - When the answer to a create call is lost, the key it may have made is found by its description, revoked, and made anew.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description: Whether the nodes shall have a valid key.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description: Names of the nodes. The description of a key is C(tgp) and the name, shortened to 50 characters where needed.
    type: list
    elements: str
    default: []
  ids:
    description: IDs of keys to revoke, with O(state=absent).
    type: list
    elements: str
    default: []
  tags:
    description: Tags of the machines that join with the keys. An OAuth client must give at least one.
    type: list
    elements: str
    default: []
  ephemeral:
    description: Let the tailnet forget a machine some time after it fell silent.
    type: bool
    default: true
  expiry_seconds:
    description: How long a key may be used to join, from 1 to 7776000 seconds. A machine that joined stays.
    type: int
    default: 3600
  renew:
    description: Make a new key even where a valid one exists, and revoke that one.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.tailscale
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
notes:
  - A headscale before 0.30 keeps no descriptions of keys. There each call makes new keys, and keys are revoked by O(ids) only.
  - RV(tailscale_keys[].key) is a secret. Put C(no_log=true) on the task and hand the value on without writing it anywhere.
seealso:
  - module: tgp.gpu.tailscale_device
"""

EXAMPLES = r"""
- name: A key for each of two machines
  tgp.gpu.tailscale_key:
    nodes: [tgp-a1b2c3d4-training-0k3zq, tgp-a1b2c3d4-training-9zz01]
    tags: ["tag:gpu"]
  no_log: true
  register: mesh

- name: The machines never came, so the keys go
  tgp.gpu.tailscale_key:
    state: absent
    nodes: [tgp-a1b2c3d4-training-0k3zq, tgp-a1b2c3d4-training-9zz01]
"""

RETURN = r"""
tailscale_keys:
  description: One entry per node; with O(state=absent) one per revoked key.
  type: list
  elements: dict
  returned: always
  contains:
    node:
      description: The node, empty for a key named by its ID that is of none of the nodes.
      type: str
      returned: always
    id:
      description: ID of the key, null in check mode for a key that would be made.
      type: str
      returned: always
    description:
      description: The key's description in the tailnet.
      type: str
      returned: always
    created:
      description: When it was made, RFC 3339.
      type: str
      returned: always
    expires:
      description: When it ends, RFC 3339.
      type: str
      returned: always
    key:
      description: The secret, only when it was made in this call; else null.
      type: str
      returned: always
    status:
      description: One of V(made), V(exists), V(removed), V(failed).
      type: str
      returned: always
    error:
      description: What went wrong, empty when nothing did.
      type: str
      returned: always
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.mesh.connect import MESH_SPEC, connect
from ..module_utils.mesh.key_batch import KeySpec, issue, revoke
from ..module_utils.mesh.results import key_difference

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "absent"], default="present"),
        nodes=dict(type="list", elements="str", default=[]),
        ids=dict(type="list", elements="str", default=[]),
        tags=dict(type="list", elements="str", default=[]),
        ephemeral=dict(type="bool", default=True),
        expiry_seconds=dict(type="int", default=3600),
        renew=dict(type="bool", default=False),
        **MESH_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params, now, dry = task.params, task.clock.now(), task.check_mode
    present = params["state"] == "present"
    if present and params["ids"]:
        raise InvalidInput("A key cannot be made with an ID of one's choice.", remedy="Give nodes, or state=absent.", field="ids")
    mesh = connect(task)
    try:
        if present:
            spec = KeySpec(tuple(params["tags"]), params["ephemeral"], params["expiry_seconds"], params["renew"])
            keys = issue(mesh, params["nodes"], spec, now=now, dry=dry)
        else:
            keys = revoke(mesh, params["nodes"], params["ids"], now=now, dry=dry)
    finally:
        mesh.close()
    problems = [f"{entry['node'] or entry['id']}: {entry['error']}" for entry in keys if entry["error"]]
    result = dict(
        changed=any(entry["status"] in ("made", "removed") for entry in keys), tailscale_keys=keys, _reveal=["tailscale_keys"]
    )
    if task.diff_mode:
        result["diff"] = key_difference(keys)
    if problems:
        result.update(failed=True, msg="\n".join(problems))
    return result


if __name__ == "__main__":
    main(SPEC, run)
