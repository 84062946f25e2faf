# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which own machines are meant: those of the class, else of the module's option, else of the environment."""

from __future__ import annotations

import dataclasses
import os

from .. import errors
from ..fleet.model import CloudChoice, Machine
from ..task import Task
from .webhook_machines import below, groups_from_environment, groups_from_values

_KEYS = {
    "gpu_count": "gpuCount",
    "scale_up_endpoint": "scaleUpEndpoint",
    "scale_down_endpoint": "scaleDownEndpoint",
    "gpu_type": "gpuType",
    "gpu_memory_mib": "gpuMemoryMib",
    "node_name": "nodeName",
    "status_endpoint": "statusEndpoint",
    "hourly_cost": "hourlyCost",
}


def machines_of(task: Task, choice: CloudChoice | None, base_url: str) -> tuple[Machine, ...]:
    """The machines; endpoints that are paths are below ``base_url``. InvalidInput when there are none or they cannot be used."""
    if choice is not None and choice.machines:
        return tuple(_whole_addresses(machine, base_url) for machine in choice.machines)
    listed = task.params.get("webhook_machines")
    if listed:
        groups = [{_KEYS.get(key, key): value for key, value in entry.items() if value is not None} for entry in listed]
        return groups_from_values({"nodeGroups": groups}, base_url)
    machines, warnings = groups_from_environment(os.environ)
    for warning in warnings:
        task.warn(warning)
    return machines


def _whole_addresses(machine: Machine, base_url: str) -> Machine:
    """The machine with its endpoints as URLs."""
    names = ("scale_up_endpoint", "scale_down_endpoint", "status_endpoint")
    urls = {name: below(base_url, getattr(machine, name)) for name in names}
    if any(url.startswith("/") for url in urls.values()):
        raise errors.InvalidInput(
            f"webhook: the endpoints of {machine.name} are paths, and the power service's address is not given.",
            remedy="Set webhook_url (or WEBHOOK_URL), or write whole URLs.",
        )
    return dataclasses.replace(machine, **urls)
