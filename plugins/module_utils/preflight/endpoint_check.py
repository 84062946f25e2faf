# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether machines would find the API server where their configuration says it is; each that does not is billed until its deadline.

What this machine cannot see may still be there for others: a name that only the machines' DNS knows, an address of the mesh. That is a
warning. A public address at which nothing answers is an error: rented machines have no other way to it either.
"""

from __future__ import annotations

import ipaddress
import threading
import typing as t

from ..core.errors import InvalidInput
from ..model import NodeClass
from ..providers.base import CloudCheck
from ..talos.api.peer import MESH
from .endpoint import Reached, endpoint, look

TIMEOUT = 3.0  # seconds for each step
_DEADLINE = 4 * TIMEOUT  # a resolver that does not answer keeps to no timeout of ours
_NOT_TRIED = "That machines reach port {} there was not tried."
_PRIVATE = tuple(ipaddress.ip_network(one) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
_Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def check_endpoint(url: str, classes: t.Sequence[NodeClass]) -> CloudCheck:
    """What was found at the control plane's address. InvalidInput when no machine could join through it; a warning when that cannot be
    told from here."""
    host, port = endpoint(url)
    door = _tried(url)
    if door is None:
        return _skipped(url, f"Looking up {host} took longer than {_DEADLINE:.0f} s. {_NOT_TRIED.format(port)}")
    if door.ok:
        return CloudCheck(f"{url} answers")
    if door.stage == "name":
        known = "Machines have to know it before they are in the mesh; an address is safer."
        return _skipped(url, f"{door.problem} {known} {_NOT_TRIED.format(port)}")
    if door.stage == "connect" and (why := not_from_here(host, classes)):
        return _skipped(url, f"{why} {_NOT_TRIED.format(port)}")
    raise InvalidInput(f"No machine would join: {door.problem}", remedy=door.remedy)


def _skipped(url: str, why: str) -> CloudCheck:
    return CloudCheck(f"{url} was not tried", (why,))


def _tried(url: str) -> Reached | None:
    """What was found, None when that took too long."""
    found: list[Reached] = []
    thread = threading.Thread(target=lambda: found.extend(look(url, (), talos=False, timeout=TIMEOUT)), daemon=True)
    thread.start()
    thread.join(_DEADLINE)
    return found[0] if found else None


def not_from_here(host: str, classes: t.Iterable[NodeClass]) -> str:
    """Why an address that does not answer here may answer machines; empty where it is one of the internet, or this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"Only the mesh leads to {host}, and this machine is not in it." if host.lower().endswith(".ts.net") else ""
    networks: list[_Network] = [*MESH]
    for one in classes:
        if one.mesh.hub is not None:
            networks.extend(ipaddress.ip_network(network) for network in (one.mesh.hub.network, *one.mesh.hub.allowed))
    if any(address in network for network in networks):
        return f"Only the mesh leads to {host}, and this machine is not in it."
    if any(address in network for network in _PRIVATE):
        return f"{host} is a private address, and no way leads there from this machine."
    return ""
