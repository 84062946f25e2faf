# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tailnet's policy lets machines of the classes reach the API server, and Talos machines trustd."""

from __future__ import annotations

import ipaddress
import typing as t
from urllib.parse import urlsplit

from ..core.errors import InvalidInput, TgpError
from ..mesh.base import DeviceMesh
from ..mesh.tailscale.policy import PolicyReport, PolicySpec, report
from ..model import Device, Lane, NodeClass
from ..observe.context import Context
from ..observe.gather import cluster_facts
from ..planner.offers.ranking import accepted_lanes
from ..providers.base import CloudCheck
from ..providers.registry import CAPABILITIES

_TRUSTD = 50001
_API = 443


def check_policy(context: Context, classes: t.Sequence[NodeClass]) -> CloudCheck:
    """What was proven, in sentences; a route that waits for a person is a warning. InvalidInput for what keeps machines from joining."""
    with_mesh = [node_class for node_class in classes if node_class.mesh.backend == "tailscale"]
    try:
        mesh = t.cast("DeviceMesh | None", context.clients.mesh())
        if mesh is None or not with_mesh:
            return CloudCheck("no mesh is used")
        host, port = _endpoint(context)
        device = _device_of(host, mesh.devices()) if host else None
        reports = [(spec, report(mesh, spec)) for spec in _specs(context, with_mesh, device, port)]
    except TgpError as error:
        return CloudCheck("it was not asked, because the mesh cannot be read", (str(error),))
    wrong = [
        problem
        for _spec, policy_report in reports
        for problem in policy_report.problems
        if problem["subject"] not in _routes(with_mesh)
    ]
    if wrong:
        lines = [f"{entry['subject']}: {entry['problem']} {entry['remedy']}" for entry in wrong]
        raise InvalidInput("The tailnet's policy keeps machines from joining:", problems=list(dict.fromkeys(lines)))
    waiting = [
        f"{problem['problem']} {problem['remedy']}" for _spec, policy_report in reports for problem in policy_report.problems
    ]
    return CloudCheck("\n".join(_proven(reports, host, port, device)), tuple(dict.fromkeys(waiting)))


def _proven(reports: list[tuple[PolicySpec, PolicyReport]], host: str, port: int, device: Device | None) -> list[str]:
    tags = ", ".join(sorted({tag for spec, _report in reports for tag in spec.tags}))
    unseen = list(dict.fromkeys(text for _spec, policy_report in reports for text in policy_report.unseen))
    if device is None:
        way = f"{host}:{port} is not a device of the tailnet" if host else "where the API server is, is not known"
        return [f"{way}, so the policy was not asked about {tags} and the way there", *unseen]
    if not all(policy_report.tried for _spec, policy_report in reports):
        return [f"whether it lets {tags} reach the API server {host}:{port} could not be asked", *unseen]
    trustd = f", and Talos machines trustd ({_TRUSTD})" if any(_TRUSTD in spec.join for spec, _report in reports) else ""
    return [f"it lets {tags} reach the API server {host}:{port}{trustd}", *unseen]


def _endpoint(context: Context) -> tuple[str, int]:
    """Host and port of the API server as machines reach it; ("", 443) when neither option nor secrets say it."""
    try:
        url = cluster_facts(context).endpoint
    except TgpError:  # what is wrong with it stands in a line of its own
        url = str(context.task.params.get("control_plane_endpoint") or "")
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or _API
    except ValueError:
        return "", _API


def _device_of(host: str, devices: t.Iterable[Device]) -> Device | None:
    """The device that this address or name is of."""
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        return next(
            (device for device in devices if device.name and host.rstrip(".").lower() == device.name.rstrip(".").lower()), None
        )
    return next((device for device in devices if address in device.addresses), None)


def _specs(context: Context, classes: t.Sequence[NodeClass], device: Device | None, port: int) -> list[PolicySpec]:
    """One for each set of tags, routes and ports that a class has."""
    target = (
        next((address for address in device.addresses if "." in address), device.addresses[0])
        if device and device.addresses
        else ""
    )
    specs = [
        PolicySpec(
            node_class.mesh.tags,
            target,
            node_class.mesh.advertise_routes,
            join=(port, _TRUSTD) if _makes_talos(context, node_class) else (port,),
        )
        for node_class in classes
    ]
    return list(dict.fromkeys(specs))


def _makes_talos(context: Context, node_class: NodeClass) -> bool:
    pools = [pool for pool in context.specs.pools if pool.node_class == node_class.name and pool.service is None]
    able = {lane for choice in node_class.clouds if choice.enabled for lane in CAPABILITIES[choice.cloud].lanes}
    return Lane.TALOS in able and (not pools or any(Lane.TALOS in accepted_lanes(pool) for pool in pools))


def _routes(classes: t.Sequence[NodeClass]) -> set[str]:
    return {route for node_class in classes for route in node_class.mesh.advertise_routes}
