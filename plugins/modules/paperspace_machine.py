#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_machine
short_description: Rent or terminate one machine of Paperspace
description:
  - Makes sure that one machine of a name exists, or that none does. The name is the identity, because Paperspace's names are not unique
    and it has no tags. A machine is taken for one of this collection when its name begins with V(tgp-), or when this host has recorded its
    launch. Any other machine of the name is only reported, and is an error when there is none but such.
  - A failure names every machine that it leaves behind, with its price; O(state=absent) ends it.
  - When the answer to the create call is lost, the machine is looked up by its name; a second create call is never sent blindly.
  - With O(state=absent) its startup script, its private network and static addresses assigned to it go with it.
  - Paperspace tells no prices. What is shown beforehand is a published list price; the true one is known once the machine exists.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  name:
    description: Name of the machine. At most 63 lower-case letters, digits and dashes.
    type: str
    required: true
  state:
    description: Whether the machine shall exist.
    type: str
    choices: [present, absent]
    default: present
  machine_type:
    description: Paperspace's type, for example V(A4000) or V(A100-80Gx8). Needed with O(state=present).
    type: str
  region:
    description: Paperspace's region (V(ny2)) or a standard one (V(us-east)). Default is any that has the type.
    type: str
  template_id:
    description: Id of the operating system template. Default is an Ubuntu 22.04 server, or what comes closest for the type.
    type: str
  disk_gib:
    description:
      - Least size of the disk. The next size that is sold is taken.
      - A machine that exists with a smaller one is an error.
    type: int
    default: 50
  startup_script:
    description:
      - Text of a bash script that runs as root at the first boot, packed at most 16,000 bytes.
      - It is sent packed, because the firewall in front of Paperspace refuses what looks like a download piped into a shell.
    type: str
  network:
    description: V(own) for a private network of its own, or the id of one. Default is none.
    type: str
  public_ip:
    description: Whether the machine gets a public address.
    type: str
    choices: [dynamic, none]
    default: dynamic
  max_price_hour:
    description:
      - Dollars per hour, as text, that the machine may cost at most, with its disk. What is dearer by its list price is not rented.
      - A machine that turns out to cost more is destroyed at once, unless it is within 5 %.
    type: str
  include_unmarked:
    description:
      - With O(state=absent), also destroy machines of the name that this collection did not make.
      - With O(state=present), also accept such a machine, as it is. Without it a machine of the name that others made is an error.
      - Needed for a name that does not begin with V(tgp-) on hosts other than the one that launched the machine.
    type: bool
    default: false
    version_added: 0.2.0
  wait:
    description:
      - Wait until the machine runs (and has an address if it gets one), or until it is gone.
      - If V(false), a machine that will not run any more is a failure all the same, and so is one that should be gone and that three looks do
        not see ending.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait.
      - A machine that is late stays, and is returned with the failure.
    type: int
    default: 1200
extends_documentation_fragment:
  - tgp.gpu.paperspace_cloud
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.offer_info
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: See what a machine would cost by its list price
  tgp.gpu.paperspace_machine:
    name: tgp-demo
    machine_type: A4000
  check_mode: true
  register: planned

- name: Rent a machine for at most $0.90 an hour
  tgp.gpu.paperspace_machine:
    name: tgp-demo
    machine_type: A4000
    region: us-east
    max_price_hour: "0.90"
    startup_script: |
      #!/bin/bash
      apt-get install --yes htop
    wait: false
  register: rented

- name: Terminate it, with its startup script
  tgp.gpu.paperspace_machine:
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
    cloud: {description: Its cloud., type: str, returned: always, sample: paperspace}
    id: {description: The cloud's id., type: str, returned: always, sample: ps1a2b3c}
    name: {description: Its name., type: str, returned: always, sample: tgp-demo}
    state:
      description: One of pending, running, stopped, terminating, terminated, failed, unknown.
      type: str
      returned: always
      sample: running
    raw_state: {description: The state in the cloud's own word., type: str, returned: always, sample: ready}
    price_hour: {description: Dollars per hour., type: str, returned: always, sample: "0.7737"}
    ip: {description: Public address; empty while there is none., type: str, returned: always, sample: 198.51.100.7}
    private_ip: {description: Private address., type: str, returned: always, sample: 10.51.0.1}
    region: {description: The cloud's region., type: str, returned: always, sample: ny2}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: A4000}
    model: {description: GPU model., type: str, returned: always, sample: A4000}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    created: {description: When it was made., type: str, returned: always, sample: "2026-11-20T12:00:00Z"}
    marks: {description: Marks of ours on it., type: dict, returned: always, sample: {}}
    problem: {description: What is known to be wrong with it., type: str, returned: always, sample: ""}
instances:
  description: The same as a list of none or one.
  returned: always
  type: list
  elements: dict
  contains: *instance
"""

import typing as t

from ..module_utils.bootstrap.user_data import pack
from ..module_utils.core.errors import Conflict, LaunchRefused
from ..module_utils.core.task import Task, main
from ..module_utils.model import CloudChoice, Extra, Instance, InstanceState, LaunchRequest, Offer, OfferQuery
from ..module_utils.providers.base import Cloud
from ..module_utils.providers.ensure_instance import NamedInstance, has_address
from ..module_utils.providers.paperspace.cloud import ENTRY
from ..module_utils.providers.paperspace.types import machine_type, short_region
from ..module_utils.providers.registry import connect
from ..module_utils.providers.results import no_such_type, rentable, too_small, within_limit, wrong_region, wrong_type
from ..module_utils.units.values import parse_money

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        machine_type=dict(type="str"),
        region=dict(type="str"),
        template_id=dict(type="str"),
        disk_gib=dict(type="int", default=50),
        startup_script=dict(type="str", no_log=True),
        network=dict(type="str"),
        public_ip=dict(type="str", choices=["dynamic", "none"], default="dynamic"),
        max_price_hour=dict(type="str"),
        include_unmarked=dict(type="bool", default=False),
        wait=dict(type="bool", default=True),
        wait_timeout=dict(type="int", default=1200),
        **ENTRY.spec,
    ),
    required_if=[("state", "present", ["machine_type"])],
    supports_check_mode=True,
)
_NETWORK = "private-network"


def run(task: Task) -> dict[str, t.Any]:
    params = task.params
    cloud = connect("paperspace", task, choice=CloudChoice("paperspace", settings=_settings(task)))
    try:
        ready = has_address if params["public_ip"] == "dynamic" else _runs
        timeout = float(params["wait_timeout"]) if params["wait"] else None
        named = NamedInstance(task, cloud, params["name"], timeout, ready=ready)
        if params["state"] == "absent":
            return _absent(task, cloud, named)
        kind = machine_type(params["machine_type"])
        query = OfferQuery(disk_gib=params["disk_gib"])
        if kind is not None:  # capacity is asked for what is asked about
            query = OfferQuery((kind.model,) if kind.model else (), (kind.number,), disk_gib=params["disk_gib"])
        try:
            limit = task.read("max_price_hour", parse_money)
            return named.present(
                lambda: _requests(task, cloud.offers(query)),
                lambda instance: _differs(task, instance),
                unmarked=params["include_unmarked"],
                limit=limit,
            )
        except LaunchRefused as refusal:
            if refusal.instance_id:  # made and destroyed again: too dear
                _discard(task, cloud, _beside(task, cloud))
            raise
    finally:
        cloud.close()


def _absent(task: Task, cloud: Cloud, named: NamedInstance) -> dict[str, t.Any]:
    """The machine first, then what was made for it."""
    result = named.absent(unmarked=task.params["include_unmarked"])
    left = _beside(task, cloud)
    if not task.check_mode:
        _discard(task, cloud, left)
    return {**result, "changed": result["changed"] or bool(left)}


def _beside(task: Task, cloud: Cloud) -> list[Extra]:
    """What was made for a machine of this name; networks last, because machines must have left them."""
    return sorted(
        (extra for extra in cloud.extras() if extra.name == task.params["name"]), key=lambda extra: extra.kind == _NETWORK
    )


def _discard(task: Task, cloud: Cloud, left: list[Extra]) -> None:
    for extra in left:
        try:
            cloud.discard(extra)
        except Conflict as busy:
            task.warn(f"{busy.message} Run this again once the machine is gone, then it goes, too.")


def _settings(task: Task) -> dict[str, t.Any]:
    """What the class of a fleet would say under ``settings``."""
    params = task.params
    wanted = {"templateId": params["template_id"], "network": params["network"], "publicIp": params["public_ip"]}
    return {key: value for key, value in wanted.items() if value}


def _requests(task: Task, offers: list[Offer]) -> list[LaunchRequest]:
    """What to rent: the type, in every region that fits and has it now, cheapest first."""
    params = task.params
    limit = task.read("max_price_hour", parse_money)
    script = params["startup_script"]
    user_data = pack(script, ENTRY.facts, params["name"]).user_data if script else None
    return [
        LaunchRequest(name=params["name"], offer=offer, user_data=user_data, max_price_hour=limit, settings=_settings(task))
        for offer in within_limit(_by_price(task, offers), limit)
    ]


def _by_price(task: Task, offers: list[Offer]) -> list[Offer]:
    wanted, region = task.params["machine_type"], task.params["region"] or ""
    of_type = [offer for offer in offers if offer.instance_type == wanted]
    if not of_type:
        raise no_such_type(f"Paperspace has no type {wanted!r}.", wanted, {offer.instance_type for offer in offers})
    fitting = rentable("Paperspace", wanted, region, of_type, offers, ENTRY.regions, read=short_region)
    return sorted(fitting, key=lambda offer: offer.price_hour or 0)


def _differs(task: Task, instance: Instance) -> str:
    """Why an existing machine is not the wanted one, empty if it is."""
    params = task.params
    return (
        wrong_type(instance, params["machine_type"])
        or wrong_region(instance, params["region"] or "", ENTRY.regions, read=short_region)
        or too_small(instance, params["disk_gib"])
    )


def _runs(machine: Instance) -> bool:
    return machine.state is InstanceState.RUNNING


if __name__ == "__main__":
    main(SPEC, run)
