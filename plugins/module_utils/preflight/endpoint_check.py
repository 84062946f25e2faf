# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether machines would find the API server where their configuration says it is; each that does not is billed until its deadline.

What this machine cannot see may still be there for others: a name that only the machines' DNS knows, an address of the mesh. That is a
warning. A public address at which nothing answers is an error: rented machines have no other way to it either.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
import ssl
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from ..core.errors import InvalidInput, lazy
from ..model import NodeClass
from ..providers.base import CloudCheck
from ..talos.api.peer import MESH
from ..units.values import Network

if t.TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy("cryptography.x509")


TIMEOUT = 3.0  # seconds for each step
_DEADLINE = 4 * TIMEOUT  # a resolver that does not answer keeps to no timeout of ours
_NOT_TRIED = "That machines reach port {} there was not tried."
_PRIVATE = tuple(ipaddress.ip_network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))


def check_endpoint(url: str, classes: t.Sequence[NodeClass]) -> CloudCheck:
    """What was found at the control plane's address. InvalidInput when no machine could join through it; a warning when that cannot be
    reported from here."""
    host, port = endpoint(url)
    door = _tried(url)
    if door is None:
        return _skipped(url, f"Looking up {host} took longer than {_DEADLINE:.0f} s. {_NOT_TRIED.format(port)}")
    if door.ok:
        return CloudCheck(f"{url} answers")
    if door.stage == "name":
        hint = "Machines have to know it before they are in the mesh; an address is safer."
        return _skipped(url, f"{door.problem} {hint} {_NOT_TRIED.format(port)}")
    if door.stage == "connect" and (why := not_from_here(host, classes)):
        return _skipped(url, f"{why} {_NOT_TRIED.format(port)}")
    raise InvalidInput(f"No machine would join: {door.problem}", remedy=door.remedy)


def _skipped(url: str, why: str) -> CloudCheck:
    return CloudCheck(f"{url} was not tried", (why,))


def _tried(url: str) -> Reached | None:
    """What was found, None when that took too long."""
    reached: list[Reached] = []
    thread = threading.Thread(target=lambda: reached.extend(look(url, (), talos=False, timeout=TIMEOUT)), daemon=True)
    thread.start()
    thread.join(_DEADLINE)
    return reached[0] if reached else None


def not_from_here(host: str, classes: t.Iterable[NodeClass]) -> str:
    """Why an address that does not answer here may answer machines; empty where it is one of the internet, or this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"Only the mesh leads to {host}, and this machine is not in it." if host.lower().endswith(".ts.net") else ""
    networks: list[Network] = [*MESH]
    for node_class in classes:
        if node_class.mesh.hub is not None:
            networks.extend(
                ipaddress.ip_network(network) for network in (node_class.mesh.hub.network, *node_class.mesh.hub.allowed)
            )
    if any(address in network for network in networks):
        return f"Only the mesh leads to {host}, and this machine is not in it."
    if any(address in network for network in _PRIVATE):
        return f"{host} is a private address, and no way leads there from this machine."
    return ""


# ---- whether a control plane can be reached as its nodes have to reach it: the API server, and trustd for Talos. Only a TLS handshake
# takes place; nothing is sent that anybody could keep

API, TRUSTD = "API server", "trustd"
TRUSTD_PORT = 50001


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """One door. ``stage`` where it ended: name, connect, refused, tls, certificate, or "" when all is well."""

    what: str
    host: str
    port: int
    stage: str = ""
    problem: str = ""
    remedy: str = ""
    names: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.stage


def endpoint(url: str) -> tuple[str, int]:
    """Host and port of an API server's URL. InvalidInput for what is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = None
    if parts is None or parts.scheme != "https" or not host or parts.path not in ("", "/"):
        raise InvalidInput(
            f"{url!r} is not an endpoint of a control plane.", remedy="Write it like https://100.64.0.1:6443.", field="endpoint"
        )
    return host, port or 443


def look(
    url: str, control_planes: t.Sequence[str], *, talos: bool, trustd_port: int = TRUSTD_PORT, timeout: float = 5.0
) -> list[Reached]:
    """Every door, side by side: the API server at ``url`` and, with ``talos``, trustd of each of ``control_planes`` (without them: of
    the endpoint's host). ``timeout`` seconds for each step of each."""
    host, port = endpoint(url)
    doors = [(API, host, port)]
    doors += [(TRUSTD, address, trustd_port) for address in dict.fromkeys(control_planes or [host]) if talos]
    with ThreadPoolExecutor(min(16, len(doors))) as pool:
        return list(pool.map(lambda door: _try(door[0], door[1], door[2], timeout), doors))


def _try(service: str, host: str, port: int, timeout: float) -> Reached:
    try:
        link = socket.create_connection((host, port), timeout)
    except socket.gaierror as error:
        return Reached(service, host, port, "name", f"The name {host} is not known here ({error.strerror}).", _NO_NAME)
    except ConnectionRefusedError:
        problem = f"{host} is there, but nothing listens on {port}."
        return Reached(service, host, port, "refused", problem, _refused(service, host, timeout))
    except OSError as error:
        reason = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else error.strerror or type(error).__name__
        return Reached(service, host, port, "connect", f"{host}:{port} cannot be reached: {reason}.", _cut_off(service, port))
    with link:
        try:
            names = _names(_certificate(link, host))
        except (OSError, ssl.SSLError, ValueError) as error:
            return Reached(
                service, host, port, "tls", f"What answers at {host}:{port} speaks no TLS ({type(error).__name__}).",
                f"It is not {'an API server' if service == API else 'trustd'}: check the port, and what forwards it.",
            )  # fmt: skip
    if service == API and not _covers(names, host):
        return Reached(
            service, host, port, "certificate", f"The API server's certificate is not for {host}, but for {', '.join(names) or 'no name'}.",
            f"Add {host} to cluster.apiServer.certSANs of the control planes: kubelets check it.", names,
        )  # fmt: skip
    return Reached(service, host, port, names=names)


def _certificate(link: socket.socket, host: str) -> bytes:
    """The peer's certificate as it is: it is looked at, not trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with context.wrap_socket(link, server_hostname=host, suppress_ragged_eofs=True) as wrapped:
        return wrapped.getpeercert(binary_form=True) or b""


def _names(der: bytes) -> tuple[str, ...]:
    extensions = x509.load_der_x509_certificate(der).extensions
    try:
        alternative_names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*alternative_names.get_values_for_type(x509.DNSName), *map(str, alternative_names.get_values_for_type(x509.IPAddress)))


def _covers(names: t.Collection[str], host: str) -> bool:
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        lower = host.lower()
        return lower in {name.lower() for name in names} or f"*.{lower.partition('.')[2]}" in names


_NO_NAME = (
    "Names of the tailnet do not resolve on a Talos machine: use the control plane's 100.x address, or give the name to every machine by "
    "machine.network.extraHostEntries."
)


def _cut_off(service: str, port: int) -> str:
    way = "Is this machine in the tailnet, and does the policy let it reach the control planes on tcp"
    if service == API:
        return f"{way} {port}? Machines must: without it no kubelet joins. tailscale_policy_info says which rule is missing."
    return f"{way} {port}? A Talos machine fetches the certificate of its own API there; without it, it never gets one."


def _refused(service: str, host: str, timeout: float) -> str:
    if service == TRUSTD:
        return (
            "The host is not a Talos control plane, but something before it (a load balancer, a Service that the Tailscale operator "
            "exposes) that forwards the API server's port only. Machines of lane kubelet can join through it; Talos machines need the "
            "control planes themselves in the tailnet, by the extension siderolabs/tailscale on each, or a forwarder for 50001, too."
        )
    try:
        socket.create_connection((host, 443), timeout).close()
    except OSError:
        return "Check the port of the endpoint; the API server of a Talos control plane listens on 6443."
    shown = f"[{host}]" if ":" in host else host
    return f"It answers on 443, as a Service exposed by the Tailscale operator does: write the endpoint as https://{shown}:443."
