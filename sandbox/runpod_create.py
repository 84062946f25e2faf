# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What RunPod checks before it makes a pod, where it puts it, and the making."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .container import CONTAINER
from .runpod_account import NO_CAPACITY, NONE_AVAILABLE, Account, Problem, invalid, new_id
from .runpod_command import started
from .runpod_stock import CLOUD, cuda_fits, fitting, free, free_vcpus, pod_offer, pods
from .runpod_templates import applied
from .runpod_types import COMMUNITY, CPU_COUNTS, CPUS, DATA_CENTERS, GPUS, SECURE
from .world import Machine, Offer, World

_DISK_RUNNING = Decimal("0.10") / 730  # dollars per hour of one GB of a running pod, of its own disk and of its volume
_VOLUME_STOPPED = Decimal("0.20") / 730  # dollars per hour of one GB of a stopped pod's persistent volume


def create(world: World, account: Account, request: dict[str, t.Any]) -> Machine:
    """Make a pod of a body that fits the schema; nothing is made when anything is wrong."""
    with world.lock:
        request = applied(account, request)
        _check(account, request)
        if "gpu" in request:
            shelf, offer = _place(world, account, request)
        else:
            shelf, offer = None, _processor(world, account, request)
        machine = _machine(world, account, request, shelf, offer)
        _check_money(world, account, running_rate(machine))
        machine.set_rate(machine.created, running_rate(machine))
        return world.rent(machine)


def create_many(world: World, account: Account, request: dict[str, t.Any], places: t.Sequence[dict[str, t.Any]]) -> list[Machine]:
    """The pods of a cluster, one per place in it, in one data centre; none is made when anything is wrong."""
    with world.lock:
        request = applied(account, request)
        _check(account, request)
        made = []
        for shelf, place in zip(_shelves_together(world, account, request, len(places)), places, strict=True):
            member = {**request, "name": f"{request['name']}-{place['rank']}"}
            made.append(_machine(world, account, member, shelf, pod_offer(shelf, request["gpu"]["count"]), place))
        _check_money(world, account, sum((running_rate(one) for one in made), Decimal(0)))
        for machine in made:
            machine.set_rate(machine.created, running_rate(machine))
            world.rent(machine)
        return made


def running_rate(machine: Machine) -> Decimal:
    """Dollars per hour of a running pod: what ``cost`` tells, its container's disk and its persistent volume."""
    return machine.offer.price_hour + _DISK_RUNNING * (machine.details["disk"] + _volume(machine))


def stopped_rate(machine: Machine) -> Decimal:
    """Dollars per hour of a stopped pod: its persistent volume."""
    return _VOLUME_STOPPED * _volume(machine)


def mount_paths(mounts: dict[str, t.Any]) -> list[str]:
    """Where a container has what outlives it."""
    return [str(mount["path"]) for mount in [mounts.get("persistent"), *mounts.get("network", [])] if mount]


def _volume(machine: Machine) -> int:
    """GB of its persistent volume."""
    return int((machine.details["mount_form"].get("persistent") or {}).get("size", 0))


def set_environment(account: Account, machine: Machine) -> None:
    """The variables inside a pod: what was ordered, and what RunPod adds."""
    facts = machine.details
    added = {
        "RUNPOD_POD_ID": machine.id,
        "RUNPOD_POD_HOSTNAME": f"{machine.id}-{facts['host']}",
        "RUNPOD_PUBLIC_IP": facts["addresses"][0],
        "RUNPOD_DC_ID": facts["data_center"] or "",
        "RUNPOD_GPU_COUNT": str(machine.offer.gpu_count),
    }
    if facts["cluster"]:
        added["NODE_RANK"] = str(facts["cluster"]["rank"])
    for text in facts["port_form"]:
        port, _slash, kind = text.partition("/")
        if kind == "tcp":
            added[f"RUNPOD_TCP_PORT_{port}"] = str(facts["public_ports"][text])
    if facts["start_ssh"] and account.ssh_keys:
        added["PUBLIC_KEY"] = "\n".join(account.ssh_keys)
    if facts["start_jupyter"]:
        added["JUPYTER_PASSWORD"] = facts["jupyter_password"]
    facts["environment"] = {**added, **facts["env_form"]}


def set_addresses(account: Account, machine: Machine) -> None:
    """A public address and ports, new ones with each start."""
    facts = machine.details
    facts["addresses"] = account.next_addresses()
    facts["ports"] = [int(text.partition("/")[0]) for text in facts["port_form"]]
    facts["public_ports"] = {text: account.next_port() for text in facts["port_form"]}
    machine.ip, machine.private_ip = None, None


def _check(account: Account, request: dict[str, t.Any]) -> None:
    """The rules that concern several fields, and names of what must exist."""
    gpu, mounts = request.get("gpu"), request.get("mounts") or {}
    if ("gpu" in request) == ("cpu" in request):
        raise Problem(400, "exactly one of gpu and cpu is required")
    if not request.get("image"):
        raise invalid("$: missing property 'image'")
    if "persistent" in mounts and mounts.get("network"):
        raise Problem(400, "mounts.persistent and mounts.network are mutually exclusive")
    if gpu is None and "persistent" in mounts:
        raise Problem(400, "mounts.persistent is not available for CPU pods")
    if gpu is not None and gpu.get("allowedCudaVersions") and "minCudaVersion" in gpu:  # an empty list is no constraint
        raise Problem(400, "gpu.allowedCudaVersions and gpu.minCudaVersion are mutually exclusive")
    if request.get("registry") is not None and request["registry"] not in account.registries:
        raise Problem(404, "registry not found")
    for place in request.get("dataCenterIds", []):
        if place in account.forbidden:
            raise Problem(403, f"your account is not allowed to use data center {place}")
    for mount in mounts.get("network", []):
        if mount["volumeId"] not in account.volumes:
            raise Problem(404, "network volume not found")
    if gpu is not None:
        if gpu["id"] not in GPUS:
            raise Problem(400, f"gpu type {gpu['id']} does not exist")
        if gpu["id"] in account.forbidden:
            raise Problem(403, f"your account is not allowed to use {gpu['id']}")
        if "count" not in gpu:  # the real answer says nothing of the missing field either
            raise Problem(400, NONE_AVAILABLE)
    elif request["cpu"]["id"] not in CPUS:
        raise Problem(400, f"cpu flavor {request['cpu']['id']} does not exist")
    elif request["cpu"]["vcpuCount"] not in CPU_COUNTS:
        raise Problem(400, f"vcpuCount should be one of {', '.join(map(str, CPU_COUNTS))}")
    if request.get("globalNetworking") and (gpu is None or GPUS[gpu["id"]].manufacturer != "NVIDIA"):
        raise Problem(400, "global networking requires an NVIDIA GPU")


def _wanted(account: Account, request: dict[str, t.Any]) -> list[str]:
    """The data centres it may go to, preferred ones first; none = anywhere. A network volume leaves its own."""
    wanted = list(request.get("dataCenterIds", []))
    for mount in (request.get("mounts") or {}).get("network", []):
        place = account.volumes[mount["volumeId"]]["dataCenter"]
        if wanted and place not in wanted:
            raise Problem(400, f"network volume is in data center {place}")
        wanted = [place]
    return wanted


def _place(world: World, account: Account, request: dict[str, t.Any]) -> tuple[Offer, Offer]:
    """The shelf the pod's GPUs come from, and what the pod costs."""
    gpu, wanted = request["gpu"], _wanted(account, request)
    if request.get("cloud", SECURE) == COMMUNITY and wanted:  # the stock of the catalogue does not help here
        raise Problem(400, NO_CAPACITY)
    found = _shelves(world, account, request, wanted)
    if not found:
        raise Problem(400, NO_CAPACITY if wanted or gpu["count"] > 1 else f"{NONE_AVAILABLE} for {gpu['id']}")
    shelf = min(found, key=lambda one: wanted.index(one.region)) if wanted else found[0]
    return shelf, pod_offer(shelf, gpu["count"])


def _shelves_together(world: World, account: Account, request: dict[str, t.Any], number: int) -> list[Offer]:
    """One shelf for each of so many pods, all in one data centre."""
    wanted, count = _wanted(account, request), request["gpu"]["count"]
    found = _shelves(world, account, request, wanted)
    for place in wanted or dict.fromkeys(shelf.region for shelf in found):
        here = [shelf for shelf in found if shelf.region == place for _pod in range(free(world, shelf) // count)]
        if len(here) >= number:
            return here[:number]
    raise Problem(400, NO_CAPACITY)


def _shelves(world: World, account: Account, request: dict[str, t.Any], wanted: t.Sequence[str]) -> list[Offer]:
    """Shelves that could give the GPUs of one pod now, in any of the wanted places."""
    gpu, tier = request["gpu"], request.get("cloud", SECURE)

    def cuda(host: str) -> bool:
        return cuda_fits(host, gpu.get("allowedCudaVersions") or (), gpu.get("minCudaVersion", ""))

    return [
        shelf
        for shelf in fitting(world, gpu["id"], tier, gpu["count"], cuda)
        if (not wanted or shelf.region in wanted)
        and (not request.get("globalNetworking") or DATA_CENTERS[shelf.region].global_network)
        and shelf.region not in account.forbidden
        and gpu.get("minRamPerGpu", 0) <= shelf.details["ram_per_gpu"]
        and gpu.get("minVcpuCountPerGpu", 0) <= shelf.details["vcpus_per_gpu"]
    ]


def _processor(world: World, account: Account, request: dict[str, t.Any]) -> Offer:
    """Where a CPU pod goes, and what it costs; only the secure tier has CPUs."""
    cpu = request["cpu"]
    flavour, wanted = CPUS[cpu["id"]], _wanted(account, request)
    found = [
        place
        for place in wanted or flavour.places
        if place in flavour.places
        and place not in account.forbidden
        and free_vcpus(world, account.cpu_stock, cpu["id"], place) >= cpu["vcpuCount"]
    ]
    if not found or request.get("cloud", SECURE) != SECURE:
        raise Problem(400, NO_CAPACITY)
    return Offer(CLOUD, cpu["id"], found[0], flavour.price * cpu["vcpuCount"], 0, "", 0, 1, 60.0, {"tier": SECURE})


def _check_money(world: World, account: Account, rate: Decimal) -> None:
    """Credit for an hour, and the limit of what all pods cost per hour."""
    left = account.left(world)
    if left is not None and left < rate:
        raise Problem(402, "your balance is too low to start this pod: credit for at least one hour is required")
    spending = sum((one.rate() for one in pods(world)), Decimal(0))
    if spending + rate > account.spend_limit:
        raise Problem(402, f"this pod would exceed your spend limit of ${account.spend_limit} per hour")


def _with_memory(cpu: dict[str, t.Any]) -> dict[str, t.Any]:
    """A CPU pod's processor as it is shown: GB by its flavour."""
    return {**cpu, "memory": int(CPUS[cpu["id"]].ram * cpu["vcpuCount"])}


def _machine(
    world: World,
    account: Account,
    request: dict[str, t.Any],
    shelf: Offer | None,
    offer: Offer,
    cluster: dict[str, t.Any] | None = None,
) -> Machine:
    identity, count = new_id(world), offer.gpu_count
    mounts = request.get("mounts") or {}
    gpu = None
    if shelf is not None:
        ram, vcpus = shelf.details["ram_per_gpu"], shelf.details["vcpus_per_gpu"]
        gpu = {"id": offer.type, "count": count, "memory": ram * count, "vcpuCount": vcpus * count}
    tier = request.get("cloud", SECURE)
    facts: dict[str, t.Any] = {
        "system": CONTAINER,
        "image": request["image"],
        "args": request["args"],
        "command": started(request["args"], account.has_program(request["image"])),
        "mounts": mount_paths(mounts),
        "shelf": shelf,
        "gpu": gpu,
        "cpu": None if shelf is not None else _with_memory(request["cpu"]),
        "tier": tier,
        "data_center": offer.region if tier == SECURE else None,
        "cuda": shelf.details["cuda"] or None if shelf is not None else None,
        "disk": request.get("disk", 20),
        "mount_form": mounts,
        "port_form": request.get("ports", []),
        "env_form": request.get("env", {}),
        "registry": request.get("registry"),
        "global_network": request.get("globalNetworking", False),
        "start_ssh": request.get("startSsh", False),
        "start_jupyter": request.get("startJupyter", False),
        "jupyter_password": f"{world.random.getrandbits(96):024x}",
        "host": f"{world.random.getrandbits(32):08x}",
        "locked": False,
        "cluster": cluster,
    }
    machine = Machine(identity, CLOUD, request["name"], identity, offer, world.clock.now(), details=facts)
    set_addresses(account, machine)
    set_environment(account, machine)
    return machine
