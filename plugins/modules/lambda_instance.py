#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: lambda_instance
short_description: Rent or terminate one machine of Lambda Cloud
description:
  - Makes sure that one machine of a name exists, or that none does. The name is the identity, because Lambda's names
    are not unique.
  - A failure names every machine that it leaves behind, with its price; O(state=absent) ends it.
  - When the answer to the create call is lost, the machine is looked up by its name; a second create call is never sent blindly.
  - Of several machines of the name that this collection made the oldest stays, the others are destroyed. Those that others made, and those of
    another kind, are only reported. When there is none but others', it is an error.
  - Each launch is recorded in C(launches) below C(TGP_STATE_DIR) (C(~/.local/state/tgp)). A second run on this host finds it there while
    the cloud's list does not show it yet; a run on another host does not.
  - At most one machine can be made per 12 seconds. All calls of this computer keep that limit together.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  name:
    description: Name of the machine, also its host name. At most 63 lower-case letters, digits and dashes.
    type: str
    required: true
  state:
    description: Whether the machine shall exist.
    type: str
    choices: [present, absent]
    default: present
  instance_type:
    description: Lambda's type, for example V(gpu_1x_a10). Needed with O(state=present).
    type: str
  region:
    description: Lambda's region (V(us-east-1)) or a standard one (V(us-east)). Default is any that has the type now.
    type: str
  ssh_key:
    description: Name of the SSH key that may log in. Default is the account's only one.
    type: str
  image_family:
    description:
      - Image to boot, newest of its family. Default is V(gpu-base-24-04), which has driver and container toolkit, or
        what comes closest for types that cannot boot it.
    type: str
  user_data:
    description: Text for cloud-init, at most 1 MB.
    type: str
  tags:
    description:
      - Marks for the machine, set when it is made. Each becomes a tag C(tgp:) and the key in lower case.
      - A mark C(created) with the time is always set.
    type: dict
    default: {}
  max_price_hour:
    description:
      - Dollars per hour, as text, that the machine may cost at most. What is dearer is not rented.
      - A machine that turns out to cost more is destroyed at once, unless it is within 5 %.
    type: str
  include_unmarked:
    description:
      - With O(state=absent), also destroy machines of the name that this collection did not make.
      - With O(state=present), also accept such a machine, as it is. Without it a machine of the name that others made is an error.
    type: bool
    default: false
  wait:
    description:
      - Wait until the machine runs and has an address, or is gone.
      - If V(false), a machine that will not run any more is a failure all the same, and so is one that should be gone and that three looks do
        not see ending.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. Eight-GPU machines need up to 25 minutes.
      - A machine that is late stays, and is returned with the failure.
    type: int
    default: 1800
extends_documentation_fragment:
  - tgp.gpu.lambda_cloud
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.offer_info
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: See what it would cost
  tgp.gpu.lambda_instance:
    name: tgp-demo
    instance_type: gpu_1x_a10
  check_mode: true
  register: planned

- name: Rent a machine for at most $1.50 an hour
  tgp.gpu.lambda_instance:
    name: tgp-demo
    instance_type: gpu_1x_a10
    region: us-east
    max_price_hour: "1.50"
    user_data: |
      #cloud-config
      packages: [htop]
    tags:
      team: research
    wait: false
  register: rented

- name: Terminate it
  tgp.gpu.lambda_instance:
    name: tgp-demo
    state: absent
    wait: false
"""

RETURN = r"""
instance:
  description: The machine; none when there is none. In check mode the one that would be rented, with an empty id.
  returned: always
  type: dict
  contains: &instance
    cloud: {description: Its cloud., type: str, returned: always, sample: lambda}
    id: {description: The cloud's id., type: str, returned: always, sample: 0920582c7ff041399e34823a0be62549}
    name: {description: Its name., type: str, returned: always, sample: tgp-demo}
    state:
      description: One of pending, running, stopped, terminating, terminated, failed, unknown.
      type: str
      returned: always
      sample: running
    raw_state: {description: The state in the cloud's own word., type: str, returned: always, sample: active}
    price_hour: {description: Dollars per hour., type: str, returned: always, sample: "1.29"}
    ip: {description: Public address; empty while there is none., type: str, returned: always, sample: 198.51.100.7}
    private_ip: {description: Private address., type: str, returned: always, sample: 10.19.1.2}
    region: {description: The cloud's region., type: str, returned: always, sample: us-east-1}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: gpu_1x_a10}
    model: {description: GPU model., type: str, returned: always, sample: A10}
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

from ..module_utils.core.task import Task, main
from ..module_utils.model import Instance, LaunchRequest, Offer
from ..module_utils.providers.ensure_instance import NamedInstance
from ..module_utils.providers.lambda_.cloud import ENTRY
from ..module_utils.providers.registry import connect
from ..module_utils.providers.results import no_such_type, rentable, within_limit, wrong_region, wrong_type
from ..module_utils.units.values import parse_money

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        instance_type=dict(type="str"),
        region=dict(type="str"),
        ssh_key=dict(type="str", no_log=False),
        image_family=dict(type="str"),
        user_data=dict(type="str", no_log=True),
        tags=dict(type="dict", default={}),
        max_price_hour=dict(type="str"),
        include_unmarked=dict(type="bool", default=False),
        wait=dict(type="bool", default=True),
        wait_timeout=dict(type="int", default=1800),
        **ENTRY.spec,
    ),
    required_if=[("state", "present", ["instance_type"])],
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    params = task.params
    cloud = connect("lambda", task)
    try:
        named = NamedInstance(task, cloud, params["name"], float(params["wait_timeout"]) if params["wait"] else None)
        if params["state"] == "absent":
            return named.absent(unmarked=params["include_unmarked"])
        return named.present(
            lambda: [_request(task, cloud.offers())],
            lambda instance: _differs(task, instance),
            unmarked=params["include_unmarked"],
            limit=task.read("max_price_hour", parse_money),
        )
    finally:
        cloud.close()


def _request(task: Task, offers: list[Offer]) -> LaunchRequest:
    """What to rent: the type, in a region that fits and has it now."""
    params = task.params
    limit = task.read("max_price_hour", parse_money)
    offer, *_others = within_limit(_by_price(task, offers), limit)
    settings = {"sshKey": params["ssh_key"], "imageFamily": params["image_family"]}
    return LaunchRequest(
        name=params["name"],
        offer=offer,
        user_data=params["user_data"],
        marks={str(key): str(value) for key, value in params["tags"].items()},
        max_price_hour=limit,
        settings={key: value for key, value in settings.items() if value},
    )


def _by_price(task: Task, offers: list[Offer]) -> list[Offer]:
    wanted, region = task.params["instance_type"], task.params["region"] or ""
    of_type = [offer for offer in offers if offer.instance_type == wanted]
    if not of_type:
        raise no_such_type(f"Lambda has no type {wanted!r}.", wanted, {offer.instance_type for offer in offers})
    fitting = rentable("Lambda", wanted, region, of_type, offers, ENTRY.regions)
    return sorted(fitting, key=lambda offer: (offer.price_hour or 0, offer.cloud_region))


def _differs(task: Task, instance: Instance) -> str:
    """Why an existing machine is not the wanted one, empty if it is."""
    params = task.params
    return wrong_type(instance, params["instance_type"]) or wrong_region(instance, params["region"] or "", ENTRY.regions)


if __name__ == "__main__":
    main(SPEC, run)
