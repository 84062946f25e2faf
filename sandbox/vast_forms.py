# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An instance as Vast's API shows it."""

from __future__ import annotations

import typing as t

from . import vast_life as life
from .vast_account import Account
from .vast_rows import breakdown, offer_row, premium_hour
from .world import Machine, World

_SHOWN = (
    "machine_id",
    "host_id",
    "num_gpus",
    "gpu_name",
    "gpu_ram",
    "gpu_frac",
    "gpu_arch",
    "gpu_total_ram",
    "cpu_name",
    "cpu_arch",
    "cpu_cores",
    "cpu_cores_effective",
    "cpu_ram",
    "compute_cap",
    "cuda_max_good",
    "driver_version",
    "geolocation",
    "country_code",
    "verification",
    "reliability2",
    "target_reliability",
    "expected_reliability",
    "sla_r_claim",
    "sla_sigma_x",
    "sla_broker_rate",
    "static_ip",
    "inet_up",
    "inet_down",
    "inet_up_cost",
    "inet_down_cost",
    "storage_cost",
    "hosting_type",
    "vms_enabled",
    "is_vm_deverified",
    "mobo_name",
    "os_version",
    "disk_bw",
    "disk_name",
    "direct_port_count",
    "dlperf",
    "score",
    "rentable",
)


def instance(world: World, machine: Machine) -> dict[str, t.Any]:
    """The row of one instance."""
    facts, now = machine.details, world.clock.seconds()
    offer = offer_row(machine.offer, "on-demand", facts["disk"], now)
    actual, intended, current, coming, said = life.words(world, machine)
    up = facts["up"] if machine.state == "active" else None
    gpu, disk = life.gpu_rate(machine), life.disk_rate(machine)
    number = int(machine.id)
    return {
        "id": number,
        **{name: offer[name] for name in _SHOWN},
        "external": offer["external"] or None,
        "label": facts["label"],
        "actual_status": actual,
        "intended_status": intended,
        "cur_state": current,
        "next_state": coming,
        "status_msg": said,
        "image_uuid": facts["image"],
        "image_runtype": facts["runtype"],
        "image_args": facts["image_args"],
        "extra_env": [[name, value] for name, value in facts["extra_env"]],
        "onstart": facts["onstart"] or None,
        "ssh_host": f"ssh{number % 9 + 1}.vast.ai",
        "ssh_port": 10_000 + number % 30_000,
        "ssh_idx": str(number % 9 + 1),
        "public_ipaddr": _address(world, machine, up),
        "local_ipaddrs": f"{machine.private_ip} \n" if machine.private_ip else None,
        "ports": ports(world, machine, up),
        "direct_port_start": 40_000,
        "direct_port_end": 40_000 + offer["direct_port_count"] - 1,
        "gpu_util": 0.0 if up is not None else None,
        "gpu_temp": 41.0 if up is not None else None,
        "cpu_util": 0.7 if up is not None else None,
        "mem_usage": 1.9 if up is not None else None,
        "mem_limit": offer["cpu_ram"] * offer["cpu_cores_effective"] / offer["cpu_cores"] / 1000,
        "disk_space": facts["disk"],
        "disk_usage": 3.1 if up is not None else -1,
        "disk_util": 3.1 if up is not None else -1,
        "dph_base": float(gpu),
        "dph_total": float(gpu + disk),
        "storage_total_cost": float(disk),
        "min_bid": float(machine.offer.details["min_bid"]),
        "is_bid": facts["bid"] is not None,
        "search": breakdown(gpu, disk, premium_hour(machine.offer, bid=facts["bid"] is not None)),
        "instance": breakdown(gpu, disk, life.premium_rate(machine)),
        "start_date": machine.created.timestamp(),
        "end_date": facts["end"],
        "duration": facts["end"] - now,
        "uptime_mins": (now - up) / 60 if up is not None else None,
        "template_id": None,
        "template_hash_id": None,
        "template_name": None,
        "volume_info": None,
        "webpage": None,
    }


def _address(world: World, machine: Machine, up: float | None) -> str | None:
    """The host's address, as the host reports it: for some with a blank or a line end behind it."""
    if up is None:
        return None
    address = machine.details["addresses"][0]
    return " " if Account.of(world).switches.blank_ip else address + ("", "\n", " ")[int(machine.id) % 3]


def ports(world: World, machine: Machine, up: float | None) -> dict[str, t.Any]:
    """Only a running instance has any, at first without numbers; what the host has no port for stays so."""
    wait = Account.of(world).switches.ports_after
    passed = -1.0 if up is None else world.clock.seconds() - up
    if passed < wait / 2:
        return {}
    found: dict[str, t.Any] = {}
    for port in machine.details["wanted_ports"]:
        outside = machine.details["mapped"].get(port)
        found[port] = None
        if outside is not None and passed >= wait:
            found[port] = [{"HostIp": "0.0.0.0", "HostPort": outside}, {"HostIp": "::", "HostPort": outside}]
    return found
