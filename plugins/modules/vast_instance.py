#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: vast_instance
short_description: Rent or terminate one machine of Vast.ai
description:
  - Makes sure that one machine of a name exists, or that none does. The name is the machine's label, and the identity.
  - The cheapest offer that fits is rented. When it is gone meanwhile, the next one is tried. What a refused bid leaves behind is destroyed.
  - A failure names every machine that it leaves behind, with its price; O(state=absent) ends it.
  - When the answer to the create call is lost, the machine is looked up by its name; a second create call is never sent blindly.
  - Of several machines of the name that this collection made the oldest stays, the others are destroyed. Those that others made, and those of
    another kind, are only reported. When there is none but others', it is an error.
  - Each launch is recorded in C(launches) below C(TGP_STATE_DIR) (C(~/.local/state/tgp)). A second run on this host finds it there while
    the cloud's list does not show it yet; a run on another host does not.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  name:
    description: Name of the machine. At most 60 letters, digits, dashes, dots, colons and underscores.
    type: str
    required: true
  state:
    description: Whether the machine shall exist.
    type: str
    choices: [present, absent]
    default: present
  gpu_type:
    description: GPU model by any of its names, for example V(RTX 4090) or V(A100 80GB). Needed with O(state=present).
    type: str
  gpu_count:
    description: Number of GPUs.
    type: int
    default: 1
  region:
    description: A standard region (V(eu-north)) or the place in Vast.ai's words (V(Sweden, SE)). Default is any.
    type: str
  spot:
    description:
      - Bid for an interruptible machine. The bid is 10 % above the lowest that would win now, and never above O(max_price_hour).
      - Another renter may take its GPUs at any moment; it is then stopped, and its disk goes on being billed until it is destroyed.
    type: bool
    default: false
  vm:
    description: Rent a virtual machine. If V(false), an unprivileged container, which has far more offers.
    type: bool
    default: true
  disk_gib:
    description:
      - Size of the disk. It is part of the price and can never be changed. Vast.ai sells GB, so 64 GiB become 69 GB.
      - A machine that exists with a smaller one is an error.
    type: int
    default: 64
  image:
    description:
      - Of a container its image, which must be given.
      - Of a virtual machine one of V(docker.io/vastai/kvm); default is V(docker.io/vastai/kvm:ubuntu_terminal).
    type: str
  onstart:
    description:
      - Script to run. A virtual machine runs it as root when it begins with C(#!); about 32,000 characters after compression are carried.
      - In a container it is run by C(/bin/sh) in place of the image's own start.
    type: str
  env:
    description:
      - Variables; in a virtual machine they stand in C(/etc/environment). At most 256 characters each, 32,768 together.
      - Vast.ai shows them to everyone who may read the account.
    type: dict
    default: {}
  ports:
    description: Ports to open to the world, for example V(8000) or V(41641/udp). The machine is ready when all of them are mapped.
    type: list
    elements: str
    default: []
  tags:
    description: Marks for the machine, kept in its environment. A mark C(created) with the time is always set.
    type: dict
    default: {}
  max_price_hour:
    description:
      - Dollars per hour, as text, that machine and disk may cost together. What is dearer is not rented.
      - A machine that turns out to cost more is destroyed at once, unless it is within 5 %.
    type: str
  min_reliability:
    description:
      - Share of time, for example V(0.98), for which Vast.ai expects the host to be there. V(0) asks for nothing.
      - Default is V(0.95) for a virtual machine, and nothing for a container.
    type: str
  min_bandwidth:
    description:
      - Mbit/s towards the host. V(0) asks for nothing.
      - Default is V(200) for a virtual machine, and nothing for a container.
    type: int
  unverified:
    description: Also take machines that Vast.ai has not verified.
    type: bool
    default: false
  datacenter:
    description: Take machines in data centres only.
    type: bool
    default: false
  include_unmarked:
    description:
      - With O(state=absent), also destroy machines of the name that this collection did not make.
      - With O(state=present), also accept such a machine, as it is. Without it a machine of the name that others made is an error.
    type: bool
    default: false
  wait:
    description:
      - Wait until the machine runs, has an address and its ports are mapped, or is gone.
      - If V(false), a machine that will not run any more is a failure all the same, and so is one that should be gone and that three looks do
        not see ending.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. Large images on slow hosts take long.
      - A machine that is late stays, and is returned with the failure.
    type: int
    default: 1200
extends_documentation_fragment:
  - tgp.gpu.vast_cloud
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.offer_info
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: See what it would cost
  tgp.gpu.vast_instance:
    name: tgp-vast-demo
    gpu_type: RTX 4090
  check_mode: true
  register: planned

- name: Rent a virtual machine for at most $0.60 an hour, disk included
  tgp.gpu.vast_instance:
    name: tgp-vast-demo
    gpu_type: RTX 4090
    region: us-west
    disk_gib: 100
    max_price_hour: "0.60"
    onstart: |
      #!/bin/bash
      nvidia-smi >/var/log/gpu.txt
    tags:
      team: research
    wait: false
  register: rented

- name: Terminate it
  tgp.gpu.vast_instance:
    name: tgp-vast-demo
    state: absent
    wait: false
"""

RETURN = r"""
instance:
  description: The machine; none when there is none. In check mode the one that would be rented, with an empty id.
  returned: always
  type: dict
  contains: &instance
    cloud: {description: Its cloud., type: str, returned: always, sample: vast}
    id: {description: The cloud's id., type: str, returned: always, sample: "20771845"}
    name: {description: Its name., type: str, returned: always, sample: tgp-vast-demo}
    state:
      description: One of pending, running, stopped, terminating, terminated, failed, unknown.
      type: str
      returned: always
      sample: running
    raw_state: {description: The state in the cloud's own word., type: str, returned: always, sample: running}
    price_hour: {description: Dollars per hour with the disk., type: str, returned: always, sample: "0.3633"}
    ip: {description: Public address; empty while there is none., type: str, returned: always, sample: 203.0.113.9}
    private_ip: {description: Private address., type: str, returned: always, sample: 172.17.0.3}
    region: {description: Where it stands., type: str, returned: always, sample: "Oregon, US"}
    instance_type: {description: Number and model., type: str, returned: always, sample: 1x RTX 4090}
    model: {description: GPU model., type: str, returned: always, sample: RTX4090}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    created: {description: When it was made., type: str, returned: always, sample: "2026-11-20T12:00:00Z"}
    marks: {description: Marks of ours on it., type: dict, returned: always, sample: {team: research}}
    problem: {description: What the cloud says is wrong with it., type: str, returned: always, sample: ""}
instances:
  description: The same as a list of none or one.
  returned: always
  type: list
  elements: dict
  contains: *instance
"""

import typing as t

from ..module_utils.bootstrap.user_data import pack
from ..module_utils.core import redact
from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.model import CloudChoice, LaunchRequest, Quality
from ..module_utils.planner.offers.requirements import for_nodes
from ..module_utils.providers.ensure_instance import NamedInstance
from ..module_utils.providers.registry import connect
from ..module_utils.providers.vast.choice import NODE_QUALITY, Requirements, port
from ..module_utils.providers.vast.cloud import ENTRY, FACTS
from ..module_utils.units.values import parse_money

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        gpu_type=dict(type="str"),
        gpu_count=dict(type="int", default=1),
        region=dict(type="str"),
        spot=dict(type="bool", default=False),
        vm=dict(type="bool", default=True),
        disk_gib=dict(type="int", default=64),
        image=dict(type="str"),
        onstart=dict(type="str", no_log=True),
        env=dict(type="dict", default={}),
        ports=dict(type="list", elements="str", default=[]),
        tags=dict(type="dict", default={}),
        max_price_hour=dict(type="str"),
        min_reliability=dict(type="str"),
        min_bandwidth=dict(type="int"),
        unverified=dict(type="bool", default=False),
        datacenter=dict(type="bool", default=False),
        include_unmarked=dict(type="bool", default=False),
        wait=dict(type="bool", default=True),
        wait_timeout=dict(type="int", default=1200),
        **ENTRY.spec,
    ),
    required_if=[("state", "present", ["gpu_type"])],
    supports_check_mode=True,
)
_SCRIPT = 4000  # a longer one is carried by variables


def run(task: Task) -> dict[str, object]:
    params = task.params
    settings = {key: True for key in ("unverified", "datacenter") if params[key]}
    cloud = connect("vast", task, choice=CloudChoice("vast", settings=settings))
    timeout = float(params["wait_timeout"]) if params["wait"] else None
    try:
        if params["state"] == "absent":
            return NamedInstance(task, cloud, params["name"], timeout).absent(unmarked=params["include_unmarked"])
        wanted = _requirements(task, settings)

        def requests() -> list[LaunchRequest]:
            return wanted.requests(cloud.offers(wanted.query()))

        named = NamedInstance(task, cloud, params["name"], timeout, ready=wanted.ready)
        return named.present(requests, wanted.differs, unmarked=params["include_unmarked"], limit=wanted.max_price_hour)
    finally:
        cloud.close()


def _asked(task: Task) -> Quality:
    """What is said of the host."""
    bandwidth = task.params["min_bandwidth"]
    if bandwidth is not None and bandwidth < 0:
        raise InvalidInput(f"min_bandwidth must not be negative, got {bandwidth}.")
    return Quality(min_reliability=task.read("min_reliability", parse_money), min_bandwidth=bandwidth)


def _requirements(task: Task, settings: dict[str, t.Any]) -> Requirements:
    params = task.params
    if params["gpu_count"] < 1 or params["disk_gib"] < 8:
        raise InvalidInput("gpu_count must be at least 1, disk_gib at least 8.")
    if not params["vm"] and not params["image"]:
        raise InvalidInput("A container needs an image.", remedy="Give image, or let vm be true.")
    environment = {str(key): str(value) for key, value in params["env"].items()}
    redact.register(*(value for value in environment.values() if len(value) >= 16))
    start = params["onstart"] or ""
    if params["vm"] and len(start) > _SCRIPT:
        packed = pack(start, FACTS, params["name"])
        start, environment = packed.user_data, {**environment, **packed.environment}
    ports = [port(entry) for entry in params["ports"]]
    if params["vm"]:
        ports.append("22/tcp")  # that of SSH is always mapped
    return Requirements(
        name=params["name"],
        gpu_type=params["gpu_type"],
        gpu_count=params["gpu_count"],
        region=params["region"] or "",
        spot=params["spot"],
        vm=params["vm"],
        disk_gib=params["disk_gib"],
        max_price_hour=task.read("max_price_hour", parse_money),
        quality=for_nodes(_asked(task), Quality(), NODE_QUALITY if params["vm"] else Quality()),
        image=params["image"] or "",
        start=start,
        environment=environment,
        ports=tuple(dict.fromkeys(ports)),
        marks={"created": str(int(task.clock.now().timestamp())), **{str(k): str(v) for k, v in params["tags"].items()}},
        settings=settings,
    )


if __name__ == "__main__":
    main(SPEC, run)
