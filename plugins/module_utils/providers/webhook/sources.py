# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which own machines are meant: those of the class, else of the module's option, else of the environment. And where the key may go."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t

from ...core import errors
from ...core.task import Task
from ...model import CloudChoice, Machine
from .machines import below, groups_from_environment, groups_from_values
from .targets import Origin, listed, origin, origins_of

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
    if task.params.get("webhook_machines"):
        return _of_option(task, base_url)
    machines, warnings = groups_from_environment(os.environ)
    for warning in warnings:
        task.warn(warning)
    return machines


def root_of(given: str) -> str:
    """``webhook_url``, below which endpoints that are paths lie. InvalidInput for a query: joined to a path it would take the end of the
    address with it."""
    if "?" in given or "#" in given:
        raise errors.InvalidInput(
            "webhook: webhook_url has a query or a fragment.", remedy="Write it to the end of its path; endpoints are added."
        )
    return given


def _of_option(task: Task, base_url: str) -> tuple[Machine, ...]:
    entries = task.params["webhook_machines"]
    groups = [{_KEYS.get(key, key): value for key, value in entry.items() if value is not None} for entry in entries]
    return groups_from_values({"nodeGroups": groups}, base_url)


def key_hosts(
    task: Task, choice: CloudChoice | None, base_url: str, hosts: t.Iterable[str], *, key_given: bool
) -> frozenset[Origin]:
    """Where the power service's key may go: to ``base_url``, to ``hosts``, and to machines of the option and of the environment, which the
    operator gives as he gives the key. A key of the class's own (``key_given`` False: none stands in options and environment) also goes
    to the machines beside it, where the document is the operator's. InvalidInput for what is no address or no host."""
    found = set(listed(hosts))
    if base_url:
        try:
            found.add(origin(base_url))
        except ValueError as error:
            raise errors.InvalidInput("webhook: webhook_url is no http or https address.", remedy="Write https://host.") from error
    if task.params.get("webhook_machines"):
        found |= origins_of(_of_option(task, base_url))
    if any(variable.endswith("_GPU_COUNT") for variable in os.environ):
        with contextlib.suppress(errors.InvalidInput):  # none of them can be used, so none is called
            found |= origins_of(groups_from_environment(os.environ)[0])
    if choice is not None and choice.key_for_machines and not key_given:
        found |= origins_of(_whole_addresses(machine, base_url) for machine in choice.machines)
    return frozenset(found)


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
