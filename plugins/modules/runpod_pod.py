#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: runpod_pod
short_description: Rent or terminate one pod of RunPod
description:
  - Makes sure that one pod of a name exists, or that none does. The name is the identity, because RunPod's names are not unique.
  - A pod is an unprivileged container. It cannot be a node of a cluster.
  - Of the offers that fit, the cheapest comes first; one that is sold out is followed by the next.
  - A failure names every pod that it leaves behind, with its price; O(state=absent) ends it.
  - When the answer to the create call is lost, the pod is looked up by its name; a second create call is never sent blindly.
  - Of several pods of the name that this collection made the oldest stays, the others are destroyed. Those that others made, and those of
    another kind, are only reported. When there is none but others', it is an error.
  - Each launch is recorded in C(launches) below C(TGP_STATE_DIR) (C(~/.local/state/tgp)). A second run on this host finds it there while
    the cloud's list does not show it yet; a run on another host does not.
  - RunPod sells no spot pods any more.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  name:
    description: Name of the pod. At most 60 lower-case letters, digits and dashes.
    type: str
    required: true
  state:
    description: Whether the pod shall exist.
    type: str
    choices: [present, absent]
    default: present
  gpu_type:
    description:
      - GPU, as RunPod's id (V(NVIDIA GeForce RTX 4090)) or by any usual name (V(RTX 4090), V(A100 80GB)).
      - Needed with O(state=present).
    type: str
  gpu_count:
    description: Number of GPUs.
    type: int
    default: 1
  cloud_tier:
    description: V(SECURE) are data centres, V(COMMUNITY) other people's hosts, which have no region.
    type: str
    choices: [SECURE, COMMUNITY, ANY]
    default: ANY
  region:
    description: RunPod's data centre (V(EU-RO-1)) or a standard region (V(us-central)). Default is any.
    type: str
  image:
    description: Container image. Needed with O(state=present).
    type: str
  command:
    description:
      - Text of a script for C(/bin/sh) that the container runs. Default is the image's own start.
      - The shell takes the place of the image's entrypoint. Where the API does not take that, the shell and its script are given to the
        entrypoint as arguments, so that must be absent or run its arguments.
    type: str
  environment:
    description: Environment variables. Whoever holds the account's key can read them. With this collection's own at most 50.
    type: dict
    default: {}
  ports:
    description: Ports to open to the world, for example V(22/tcp) or V(8888/http).
    type: list
    elements: str
    default: []
  disk_gib:
    description:
      - Size of the container's disk. It must hold the image. RunPod sells GB, so 40 GiB become 43 GB.
      - A pod that exists with a smaller one is an error.
    type: int
    default: 40
  registry:
    description: Id of the registry credential of the account that pulls a private image.
    type: str
  min_cuda_version:
    description: Lowest CUDA version of the host, for example V("12.8").
    type: str
  tags:
    description: Marks for the pod, set when it is made. Each becomes an environment variable C(TGP_TAG_) and the key in upper case.
    type: dict
    default: {}
  max_price_hour:
    description:
      - Dollars per hour, as text, that the pod may cost at most. What is dearer is not rented.
      - A pod that turns out to cost more is destroyed at once, unless it is within 5 %.
    type: str
  include_unmarked:
    description:
      - With O(state=absent), also destroy pods of the name that this collection did not make.
      - With O(state=present), also accept such a pod, as it is. Without it a pod of the name that others made is an error.
    type: bool
    default: false
  wait:
    description:
      - Wait until the pod runs and its TCP ports can be reached, or until it is gone.
      - If V(false), a pod that will not run any more is a failure all the same, and so is one that should be gone and that three looks do
        not see ending.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. Most of the time goes into the pull of the image, during which RunPod already calls the pod running.
      - A pod that is late stays, and is returned with the failure. When its log says that the image cannot be pulled, the failure says so, too.
    type: int
    default: 1200
extends_documentation_fragment:
  - tgp.gpu.runpod_cloud
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.offer_info
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: See what a pod would cost
  tgp.gpu.runpod_pod:
    name: tgp-demo
    gpu_type: RTX 4090
    image: docker.io/library/debian:12
  check_mode: true
  register: planned

- name: Rent a pod for at most $0.70 an hour
  tgp.gpu.runpod_pod:
    name: tgp-demo
    gpu_type: RTX 4090
    region: EU-RO-1
    image: docker.io/library/debian:12
    command: exec sleep infinity
    ports: [22/tcp]
    max_price_hour: "0.70"
    tags:
      team: research
    wait: false
  register: rented

- name: Terminate it
  tgp.gpu.runpod_pod:
    name: tgp-demo
    state: absent
    wait: false
"""

RETURN = r"""
instance:
  description: The pod; none when there is none. In check mode the one that would be rented, with an empty id.
  returned: always
  type: dict
  contains: &instance
    cloud: {description: Its cloud., type: str, returned: always, sample: runpod}
    id: {description: The cloud's id., type: str, returned: always, sample: k3v9d0x1aq7m2c}
    name: {description: Its name., type: str, returned: always, sample: tgp-demo}
    state:
      description: One of pending, running, stopped, terminating, terminated, failed, unknown.
      type: str
      returned: always
      sample: running
    raw_state: {description: The state in the cloud's own word., type: str, returned: always, sample: RUNNING}
    price_hour: {description: Dollars per hour., type: str, returned: always, sample: "0.59"}
    ip: {description: Public address; empty while there is none., type: str, returned: always, sample: 203.0.113.20}
    private_ip: {description: Private address., type: str, returned: always, sample: 10.51.0.1}
    region: {description: The cloud's region., type: str, returned: always, sample: EU-RO-1}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: NVIDIA GeForce RTX 4090 x1 secure}
    model: {description: GPU model., type: str, returned: always, sample: RTX4090}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    created: {description: When it was made., type: str, returned: always, sample: "2026-11-20T12:00:00Z"}
    marks: {description: Marks of ours on it., type: dict, returned: always, sample: {node: tgp-demo, team: research}}
    problem: {description: What is known to be wrong with it., type: str, returned: always, sample: ""}
instances:
  description: The same as a list of none or one.
  returned: always
  type: list
  elements: dict
  contains: *instance
ports:
  description: Where its opened ports are reached, by port of the container. A TCP port is missing until RunPod tells its address.
  returned: always
  type: dict
  sample: {"22": "203.0.113.20:10341"}
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.diagnosis.boot import pull_error
from ..module_utils.model import CloudChoice, Container, Instance, InstanceState, LaunchRequest, Offer, OfferQuery
from ..module_utils.planner.offers import gpu_models
from ..module_utils.providers.base import Cloud
from ..module_utils.providers.ensure_instance import NamedInstance
from ..module_utils.providers.registry import connect
from ..module_utils.providers.results import no_such_type, rentable, too_small, within_limit, wrong_region
from ..module_utils.providers.runpod.cloud import ENTRY
from ..module_utils.providers.runpod.records import Kind, gpu_of
from ..module_utils.units.values import parse_money

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        gpu_type=dict(type="str"),
        gpu_count=dict(type="int", default=1),
        cloud_tier=dict(type="str", choices=["SECURE", "COMMUNITY", "ANY"], default="ANY"),
        region=dict(type="str"),
        image=dict(type="str"),
        command=dict(type="str", no_log=True),
        environment=dict(type="dict", default={}, no_log=True),
        ports=dict(type="list", elements="str", default=[]),
        disk_gib=dict(type="int", default=40),
        registry=dict(type="str"),
        min_cuda_version=dict(type="str"),
        tags=dict(type="dict", default={}),
        max_price_hour=dict(type="str"),
        include_unmarked=dict(type="bool", default=False),
        wait=dict(type="bool", default=True),
        wait_timeout=dict(type="int", default=1200),
        **ENTRY.spec,
    ),
    required_if=[("state", "present", ["gpu_type", "image"])],
    supports_check_mode=True,
)
_MOST_TRIES = 10
_STOCK = {"high": 0, "medium": 1, "low": 2}


def run(task: Task) -> dict[str, object]:
    params = task.params
    cloud = connect("runpod", task, choice=CloudChoice("runpod", settings=_settings(task)))
    try:
        timeout = float(params["wait_timeout"]) if params["wait"] else None
        named = NamedInstance(
            task, cloud, params["name"], timeout, lambda pod: _reachable(task, pod), lambda pod: _pull_error(cloud, pod)
        )
        if params["state"] == "absent":
            return {**named.absent(unmarked=params["include_unmarked"]), "ports": {}}
        _check_ports(params["ports"])
        query = OfferQuery(gpu_counts=(params["gpu_count"],), disk_gib=params["disk_gib"])
        result = named.present(
            lambda: _requests(task, cloud.offers(query)),
            lambda instance: _differs(task, instance),
            unmarked=params["include_unmarked"],
            limit=task.read("max_price_hour", parse_money),
        )
        identity = result["instance"]["id"]
        pod = cloud.instance(identity) if identity and params["ports"] else None
        return {**result, "ports": dict(pod.ports) if pod else {}}
    finally:
        cloud.close()


def _settings(task: Task) -> dict[str, object]:
    """What the class of a fleet would say under ``settings``."""
    params = task.params
    wanted = {
        "cloudTier": params["cloud_tier"],
        "registry": params["registry"],
        "minCudaVersion": params["min_cuda_version"],
        "ports": params["ports"],
    }
    return {key: value for key, value in wanted.items() if value}


def _check_ports(ports: list[str]) -> None:
    for port in ports:
        number, _slash, kind = port.partition("/")
        if kind not in ("tcp", "http") or not number.isdecimal() or not 0 < int(number) < 65536:
            raise InvalidInput(f"{port!r} is not a port of a pod.", remedy="Write 22/tcp or 8888/http; RunPod carries no UDP.")


def _requests(task: Task, offers: list[Offer]) -> list[LaunchRequest]:
    """What to rent: everything that fits, cheapest first."""
    params = task.params
    limit = task.read("max_price_hour", parse_money)
    container = Container(params["image"], params["command"] or "", {str(k): str(v) for k, v in params["environment"].items()})
    return [
        LaunchRequest(
            name=params["name"],
            offer=offer,
            container=container,
            marks={str(key): str(value) for key, value in params["tags"].items()},
            max_price_hour=limit,
            settings=_settings(task),
        )
        for offer in within_limit(_by_price(task, offers), limit)[:_MOST_TRIES]
    ]


def _by_price(task: Task, offers: list[Offer]) -> list[Offer]:
    """Of one price what is in good supply comes first."""
    wanted, region, count = task.params["gpu_type"], task.params["region"] or "", task.params["gpu_count"]
    of_type = [offer for offer in offers if _is_gpu(wanted, offer)]
    if not of_type:
        names = {offer.model for offer in offers}
        near = [suggestion for suggestion in gpu_models.suggestions(wanted) if suggestion in names]
        raise no_such_type(f"RunPod has no {count} x {wanted!r} for one pod.", wanted, names, near)
    fitting = rentable("RunPod", f"{count} x {wanted}", region, of_type, offers, ENTRY.regions)
    return sorted(
        fitting, key=lambda offer: (offer.price_hour or 0, _STOCK.get(offer.traits.get("stock", ""), 3), offer.cloud_region)
    )


def _is_gpu(wanted: str, offer: Offer) -> bool:
    kind = Kind.read(offer.instance_type)
    by_id = kind is not None and kind.gpu.lower() == wanted.strip().lower()
    return by_id or gpu_models.matches(wanted, offer.model, offer.gpu_memory_mib)


def _differs(task: Task, instance: Instance) -> str:
    """Why an existing pod is not the wanted one, empty if it is."""
    params, kind = task.params, Kind.read(instance.instance_type)
    if kind is None:
        return ""
    model, memory = gpu_of(kind.gpu)
    if kind.gpu.lower() != params["gpu_type"].strip().lower() and not gpu_models.matches(params["gpu_type"], model, memory):
        return f"has {kind.gpu}, not {params['gpu_type']}"
    if kind.number != params["gpu_count"]:
        return f"has {kind.number} GPUs, not {params['gpu_count']}"
    if params["cloud_tier"] not in ("ANY", kind.tier):
        return f"is in the tier {kind.tier}, not {params['cloud_tier']}"
    return wrong_region(instance, params["region"] or "", ENTRY.regions) or too_small(instance, params["disk_gib"])


def _pull_error(cloud: Cloud, pod: Instance) -> str:
    """What the platform says of an image that it cannot pull; the state alone is the same for a pull that takes long."""
    return pull_error((cloud.console(pod.id) or "").splitlines())


def _reachable(task: Task, pod: Instance) -> bool:
    """It runs, and every TCP port that was asked for has an address."""
    wanted = [port.partition("/")[0] for port in task.params["ports"]]
    return pod.state is InstanceState.RUNNING and not pod.problem and all(number in pod.ports for number in wanted)


if __name__ == "__main__":
    main(SPEC, run)
