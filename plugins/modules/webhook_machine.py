#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: webhook_machine
short_description: Switch an own machine on or off through its power webhook
description:
  - Calls the endpoint that switches a configured machine on or off. A machine with a status endpoint is not called when it is so
    already; without one the call is made each time, and reports no change when the service answers 409.
  - Switching may be repeated by contract, so a call without an answer is sent once more after 2 seconds.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  name:
    description: Name of the machine.
    type: str
    required: true
  state:
    description: V(present) and V(started) switch it on, V(absent) and V(stopped) switch it off.
    type: str
    choices: [present, absent, started, stopped]
    default: started
  machine_config:
    description: Machine configuration for the boot service, with O(webhook_payload=body).
    type: str
  wait:
    description: Wait until the machine is on or off. Needs a status endpoint.
    type: bool
    default: false
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 900
extends_documentation_fragment:
  - tgp.gpu.webhook
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
notes:
  - This switches power only. Drain the node first, for example with M(tgp.gpu.node_drain).
seealso:
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: Switch a machine on and wait for it
  tgp.gpu.webhook_machine:
    name: rack-1
    wait: true
    webhook_machines:
      - name: rack-1
        gpu_count: 1
        scale_up_endpoint: /rack-1/start
        scale_down_endpoint: /rack-1/stop
        status_endpoint: /rack-1/status

- name: Switch it off
  tgp.gpu.webhook_machine:
    name: rack-1
    state: stopped
    webhook_machines:
      - name: rack-1
        gpu_count: 1
        scale_up_endpoint: /rack-1/start
        scale_down_endpoint: /rack-1/stop
        status_endpoint: /rack-1/status
"""

RETURN = r"""
instance:
  description: The machine as it is now.
  returned: always
  type: dict
  contains: &instance
    cloud: {description: Always webhook., type: str, returned: always, sample: webhook}
    id: {description: Its name., type: str, returned: always, sample: rack-1}
    name: {description: Its name., type: str, returned: always, sample: rack-1}
    state:
      description: pending (starting), running, terminating (stopping), terminated (off) or unknown.
      type: str
      returned: always
      sample: running
    raw_state: {description: "off, starting, on, stopping or unknown.", type: str, returned: always, sample: "on"}
    price_hour: {description: Its hourly cost., type: str, returned: always, sample: "0.00"}
    ip: {description: Empty., type: str, returned: always, sample: ""}
    private_ip: {description: Empty., type: str, returned: always, sample: ""}
    region: {description: Where it stands., type: str, returned: always, sample: home}
    instance_type: {description: Its name., type: str, returned: always, sample: rack-1}
    model: {description: GPU model., type: str, returned: always, sample: RTX3090}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    created: {description: Not known., type: str, returned: always, sample: null}
    marks: {description: Empty., type: dict, returned: always, sample: {}}
    problem: {description: Why its state is not known., type: str, returned: always, sample: ""}
instances:
  description: The same as a list of one.
  returned: always
  type: list
  elements: dict
  contains: *instance
"""

from ..module_utils.core.task import Task, main
from ..module_utils.providers.webhook.cloud import ENTRY
from ..module_utils.providers.webhook.power import switch

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent", "started", "stopped"], default="started"),
        machine_config=dict(type="str", no_log=True),
        wait=dict(type="bool", default=False),
        wait_timeout=dict(type="int", default=900),
        **ENTRY.spec,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    params = task.params
    return switch(
        task,
        params["name"],
        on=params["state"] in ("present", "started"),
        config=params["machine_config"],
        wait_timeout=params["wait_timeout"] if params["wait"] else None,
    )


if __name__ == "__main__":
    main(SPEC, run)
