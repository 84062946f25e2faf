# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a cloud's name to its client.

A new cloud is one file beside this one, its record in capabilities.py and its entry in ``CLIENTS`` here. Clients are imported when
they are first connected, so a module loads only the cloud it talks to.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from .. import errors
from ..fleet.cloud_names import canonical_cloud, cloud_suggestions
from ..fleet.model import CloudChoice, Machine
from ..task import Task
from .base import Cloud
from .capabilities import CAPABILITIES
from .options import CLOUDS_SPEC, ENVIRONMENT, option

__all__ = ["CAPABILITIES", "CLIENTS", "CLOUDS_SPEC", "ENVIRONMENT", "connect"]

NodeReady = t.Callable[[str], "bool | None"]


class Wanted(t.NamedTuple):
    """What a connector is given: the call, a credential found elsewhere, the class's entry, and how to ask for a Node."""

    task: Task
    credential: str | None
    choice: CloudChoice | None
    node_ready: NodeReady | None
    in_flight: t.Mapping[str, str] | None


def connect(
    cloud: str,
    task: Task,
    *,
    credential: str | None = None,
    choice: CloudChoice | None = None,
    node_ready: NodeReady | None = None,
    in_flight: t.Mapping[str, str] | None = None,
) -> Cloud:
    """The client of a cloud (any of its names). ``credential`` is a key found elsewhere (a Secret); options and environment win.

    ``node_ready`` and ``in_flight`` concern own machines only (see webhook.py). Raises InvalidInput for an unknown cloud or one
    without a client, Unauthorized when its key is nowhere.
    """
    name = cloud if cloud in CLIENTS else canonical_cloud(cloud)
    if name is None:
        near = cloud_suggestions(cloud)
        raise errors.InvalidInput(
            f"There is no cloud {cloud!r}.",
            remedy=f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(CAPABILITIES)}.",
        )
    if name not in CLIENTS:
        raise errors.InvalidInput(f"{name}: this version has no client for it.", remedy=f"It can rent from {', '.join(CLIENTS)}.")
    return CLIENTS[name](Wanted(task, credential, choice, node_ready, in_flight))


def _lambda(wanted: Wanted) -> Cloud:
    from .lambda_cloud import URL, LambdaCloud

    task = wanted.task
    url = option(task, "lambda_api_url") or URL
    key = option(task, "lambda_api_key") or wanted.credential
    if not key:
        raise missing_key("lambda", "lambda_api_key")
    return LambdaCloud(key, url=url, transport=task.transport(url), clock=task.clock)


def _webhook(wanted: Wanted) -> Cloud:
    from .webhook import WebhookCloud

    task, choice = wanted.task, wanted.choice
    return WebhookCloud(
        _machines(task, choice),
        node_ready=wanted.node_ready,
        in_flight=wanted.in_flight,
        auth_header=option(task, "webhook_auth_header") or "Authorization",
        auth_value=option(task, "webhook_auth_value") or wanted.credential,
        signing_secret=option(task, "webhook_signing_secret"),
        payload=(choice.settings.get("payload") if choice else None) or option(task, "webhook_payload") or "none",
        timeout=float(task.params.get("webhook_timeout") or 5),
        transport=task.transport,
        clock=task.clock,
    )


def _machines(task: Task, choice: CloudChoice | None) -> tuple[Machine, ...]:
    """The class's machines, else the option's, else the groups of the environment."""
    from .webhook_machines import groups_from_environment, groups_from_values

    if choice is not None and choice.machines:
        return tuple(_whole_addresses(machine, option(task, "webhook_url") or "") for machine in choice.machines)
    listed = task.params.get("webhook_machines")
    if listed:
        names = {"gpu_count": "gpuCount", "scale_up_endpoint": "scaleUpEndpoint", "scale_down_endpoint": "scaleDownEndpoint"}
        names |= {"gpu_type": "gpuType", "gpu_memory_mib": "gpuMemoryMib", "node_name": "nodeName"}
        names |= {"status_endpoint": "statusEndpoint", "hourly_cost": "hourlyCost"}
        groups = [{names.get(key, key): value for key, value in entry.items() if value is not None} for entry in listed]
        return groups_from_values({"nodeGroups": groups}, option(task, "webhook_url") or "")
    machines, warnings = groups_from_environment(os.environ)
    for warning in warnings:
        task.warn(warning)
    return machines


def _whole_addresses(machine: Machine, base_url: str) -> Machine:
    """The machine with its endpoints as URLs; paths are below the option webhook_url."""
    from .webhook_machines import below

    names = ("scale_up_endpoint", "scale_down_endpoint", "status_endpoint")
    urls = {name: below(base_url, getattr(machine, name)) for name in names}
    if any(url.startswith("/") for url in urls.values()):
        raise errors.InvalidInput(
            f"webhook: the endpoints of {machine.name} are paths, and the power service's address is not given.",
            remedy="Set webhook_url (or WEBHOOK_URL), or write whole URLs.",
        )
    return dataclasses.replace(machine, **urls)


def missing_key(cloud: str, name: str) -> errors.Unauthorized:
    """The refusal that names cloud, option and variables."""
    variables = " or ".join(ENVIRONMENT[name])
    return errors.Unauthorized(
        f"{cloud}: no API key is given.",
        remedy=f"Set the environment variable {variables}, the option {name}, or credentialsRef of the class.",
        service=cloud,
    )


CLIENTS: dict[str, t.Callable[[Wanted], Cloud]] = {"lambda": _lambda, "webhook": _webhook}
