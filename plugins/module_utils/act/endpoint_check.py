# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether machines would find the API server where their configuration says it is; each that does not is billed until its deadline."""

from __future__ import annotations

import ipaddress
import typing as t

from ..clouds.base import CloudCheck
from ..cluster.reach import endpoint, look
from ..errors import InvalidInput
from ..fleet.model import NodeClass
from ..talos_api.peer import MESH

_TIMEOUT = 4.0
_UNSEEN = ("name", "connect")  # where nothing was found: it may be there for others
_PRIVATE = tuple(ipaddress.ip_network(one) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
_Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def check_endpoint(url: str, classes: t.Sequence[NodeClass]) -> CloudCheck:
    """What was found at the control plane's address. InvalidInput when no machine could join through it, as far as that can be told from
    here; a warning when only the mesh leads to it, and this machine is not in the mesh."""
    host, port = endpoint(url)
    (door,) = look(url, (), talos=False, timeout=_TIMEOUT)
    if door.ok:
        return CloudCheck(f"{url} answers")
    if door.stage in _UNSEEN and only_in_mesh(host, classes):
        return CloudCheck(
            f"{url} was not tried",
            (
                f"Only the mesh leads to {host}, and this machine is not in it: that machines reach port {port} there was not tried.",
            ),
        )
    raise InvalidInput(f"No machine would join: {door.problem}", remedy=door.remedy)


def only_in_mesh(host: str, classes: t.Iterable[NodeClass]) -> bool:
    """Whether an address is one of the mesh, or one to which machines get a route by it."""
    networks: list[_Network] = [*MESH]
    for one in classes:
        if one.mesh.hub is not None:
            networks.extend(ipaddress.ip_network(network) for network in (one.mesh.hub.network, *one.mesh.hub.allowed))
        if one.mesh.accept_routes:
            networks.extend(_PRIVATE)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().endswith(".ts.net")
    return any(address in network for network in networks)
