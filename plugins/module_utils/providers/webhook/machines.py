# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines as people write them down: environment variables and Helm values of k8s-gpu-autoprovision, and our own options.

A group is a name, a number of GPUs and two endpoints. The environment form also takes these endings, the values form these
keys: ``_GPU_TYPE``/``gpuType``, ``_GPU_MEMORY_MIB``/``gpuMemoryMib``, ``_NODE_NAME``/``nodeName``, ``_REGION``/``region``,
``_STATUS_ENDPOINT``/``statusEndpoint``, ``_HOURLY_COST``/``hourlyCost``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import os
import re
import socket
import typing as t
import unicodedata
from decimal import Decimal, InvalidOperation
from urllib.parse import SplitResult, unquote, unquote_plus, urljoin, urlsplit

from ...core import errors
from ...core.errors import InvalidInput
from ...core.task import Task
from ...model import CloudChoice, Machine
from ...planner.offers import gpu_models

_START = "_GPU_COUNT"
_ENDINGS = {
    "name": "_NAME",
    "gpuCount": _START,
    "scaleUpEndpoint": "_SCALE_UP_ENDPOINT",
    "scaleDownEndpoint": "_SCALE_DOWN_ENDPOINT",
    "gpuType": "_GPU_TYPE",
    "gpuMemoryMib": "_GPU_MEMORY_MIB",
    "nodeName": "_NODE_NAME",
    "statusEndpoint": "_STATUS_ENDPOINT",
    "hourlyCost": "_HOURLY_COST",
    "region": "_REGION",
}
_REQUIRED = ("name", "gpuCount", "scaleUpEndpoint", "scaleDownEndpoint")


def groups_from_environment(env: t.Mapping[str, str]) -> tuple[tuple[Machine, ...], tuple[str, ...]]:
    """Machines of all groups in ``env``, and one warning per group that cannot be used; InvalidInput when no machine remains."""
    machines: list[Machine] = []
    warnings: list[str] = []
    for variable in sorted(env):
        prefix = variable.removesuffix(_START)
        if not variable.endswith(_START) or not prefix:
            continue
        entry = {key: env[prefix + ending] for key, ending in _ENDINGS.items() if env.get(prefix + ending)}
        problems = [f"{_variable(prefix, key)} is not set" for key in _REQUIRED if key not in entry]
        machine = None
        if not problems:
            machine, problems = _machine(entry, functools.partial(_variable, prefix))
        if machine is not None and machine.name in {earlier.name for earlier in machines}:
            problems = [f"{prefix}_NAME repeats {machine.name}"]
        if machine is None or problems:
            warnings.append(f"The group {prefix} is left out: {'; '.join(problems)}.")
        else:
            machines.append(machine)
    if not machines:
        raise InvalidInput(
            "The environment describes no power webhook machine.",
            problems=warnings,
            remedy="Give the documents whose class lists the machines, or groups of variables: each needs P_NAME, P_GPU_COUNT, "
            "P_SCALE_UP_ENDPOINT and P_SCALE_DOWN_ENDPOINT with its own prefix P.",
        )
    return tuple(machines), tuple(warnings)


def _variable(prefix: str, key: str) -> str:
    return prefix + _ENDINGS[key]


def groups_from_values(values: t.Mapping[str, t.Any], base_url: str = "") -> tuple[Machine, ...]:
    """Machines of ``{"nodeGroups": [{name, gpuCount, scaleUpEndpoint, scaleDownEndpoint, ...}]}``.

    A document is either right or refused: InvalidInput lists every fault. Endpoints that begin with ``/`` are below ``base_url``.
    """
    machines, faults = _read_groups(values, base_url)
    if faults:
        raise InvalidInput(
            "The power webhook machines cannot be used.", problems=[text for fault in faults.values() for text in fault]
        )
    return machines


def usable_groups(values: t.Mapping[str, t.Any]) -> tuple[tuple[Machine, ...], tuple[str, ...]]:
    """The same for Helm values, which are treated as the chart's program treats them: a group that cannot be used is left out with a
    warning that names the field; InvalidInput when no machine remains."""
    machines, faults = _read_groups(values, "")
    warnings = tuple(f"The group {where} is left out: {'; '.join(fault)}." for where, fault in faults.items())
    if not machines:
        raise InvalidInput("nodeGroups describes no machine that can be used.", problems=warnings)
    return machines, warnings


def _read_groups(values: t.Mapping[str, t.Any], base_url: str) -> tuple[tuple[Machine, ...], dict[str, list[str]]]:
    """The machines without fault, and what is wrong with the others, by their place."""
    groups = values.get("nodeGroups")
    if not isinstance(groups, (list, tuple)) or not groups:
        raise InvalidInput(
            "nodeGroups lists no machine.", remedy="Give a list of {name, gpuCount, scaleUpEndpoint, scaleDownEndpoint}."
        )
    machines: list[Machine] = []
    faults: dict[str, list[str]] = {}
    for index, entry in enumerate(groups):
        where = f"nodeGroups[{index}]"
        machine, problems = _group(entry, where, base_url)
        if machine is not None and machine.name in {earlier.name for earlier in machines}:
            problems.append(f"{where}.name repeats {machine.name}")
        if problems or machine is None:
            faults[where] = problems
        else:
            machines.append(machine)
    return tuple(machines), faults


def _group(entry: t.Any, where: str, base_url: str) -> tuple[Machine | None, list[str]]:
    if not isinstance(entry, t.Mapping):
        return None, [f"{where} should be a mapping and is {type(entry).__name__}"]
    problems = [f"{where}.{key} is not known (known: {', '.join(_ENDINGS)})" for key in entry if key not in _ENDINGS]
    missing = [f"{where}.{key} is missing" for key in _REQUIRED if entry.get(key) in (None, "")]
    if missing:
        return None, problems + missing
    whole = {key: below(base_url, value) if key.endswith("Endpoint") else value for key, value in entry.items()}
    machine, faults = _machine(whole, lambda key: f"{where}.{key}")
    return machine, problems + faults


def _machine(entry: t.Mapping[str, t.Any], label: t.Callable[[str], str]) -> tuple[Machine | None, list[str]]:
    """One machine, or what is wrong with it; ``label`` names a field as its author wrote it."""
    problems: list[str] = []

    def whole(key: str) -> int | None:
        text = str(entry.get(key, "")).strip()
        if text and not (text.isascii() and text.isdigit() and int(text) > 0):
            problems.append(f"{label(key)} is {text!r} and should be a whole number above zero")
            return None
        return int(text) if text else None

    count, memory = whole("gpuCount"), whole("gpuMemoryMib")
    cost = Decimal(0)
    if entry.get("hourlyCost") not in (None, ""):
        try:
            cost = Decimal(str(entry["hourlyCost"]))
        except InvalidOperation:
            cost = Decimal(-1)
        if not cost.is_finite() or cost < 0:
            problems.append(f"{label('hourlyCost')} is {entry['hourlyCost']!r} and should be dollars per hour")
    for key in ("scaleUpEndpoint", "scaleDownEndpoint", "statusEndpoint"):
        if entry.get(key) and not _is_url(str(entry[key])):
            problems.append(f"{label(key)} is not an http or https address")
        elif entry.get(key) and is_link_local(urlsplit(str(entry[key])).hostname or ""):
            problems.append(f"{label(key)} leads to {urlsplit(str(entry[key])).hostname}, {LINK_LOCAL.rstrip('.')}")
    model = str(entry.get("gpuType") or "")
    if model and gpu_models.canonical(model) is None:
        near = gpu_models.suggestions(model)
        problems.append(
            f"{label('gpuType')} {model!r} is not a known GPU" + (f"; did you mean {' or '.join(near)}?" if near else "")
        )
    if problems or count is None:
        return None, problems
    canonical = gpu_models.canonical(model) or "" if model else ""
    return Machine(
        name=str(entry["name"]),
        gpu_count=count,
        scale_up_endpoint=str(entry["scaleUpEndpoint"]),
        scale_down_endpoint=str(entry["scaleDownEndpoint"]),
        gpu_type=canonical,
        gpu_memory_mib=memory or gpu_models.memory_mib(canonical),
        node_name=str(entry.get("nodeName") or ""),
        status_endpoint=str(entry.get("statusEndpoint") or ""),
        hourly_cost=cost,
        region=str(entry.get("region") or ""),
    ), []


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def below(base_url: str, value: t.Any) -> t.Any:
    """Endpoints may be paths below one power service."""
    if base_url and isinstance(value, str) and value.startswith("/"):
        return urljoin(base_url.rstrip("/") + "/", value.lstrip("/"))
    return value


# ---- which own machines are meant: those of the class, else of the module's option, else of the environment. And where the key may go

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
    to the machines beside it, where the document is the operator's. InvalidInput for what is not an address or no host."""
    origins = set(listed(hosts))
    if base_url:
        try:
            origins.add(origin(base_url))
        except ValueError as error:
            raise errors.InvalidInput(
                "webhook: webhook_url is not an http or https address.", remedy="Write https://host."
            ) from error
    if task.params.get("webhook_machines"):
        origins |= origins_of(_of_option(task, base_url))
    if any(variable.endswith("_GPU_COUNT") for variable in os.environ):
        with contextlib.suppress(errors.InvalidInput):  # none of them can be used, so none is called
            origins |= origins_of(groups_from_environment(os.environ)[0])
    if choice is not None and choice.key_for_machines and not key_given:
        origins |= origins_of(_whole_addresses(machine, base_url) for machine in choice.machines)
        if bulk := bulk_endpoint(choice, base_url):
            with contextlib.suppress(ValueError):  # such an address is refused before any call
                origins.add(origin(bulk))
    return frozenset(origins)


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


def bulk_endpoint(choice: CloudChoice | None, base_url: str) -> str:
    """Where the states of all machines of the class are asked for in one call; empty when its settings name no such endpoint."""
    url = str(below(base_url, (choice.settings.get("bulkStatusEndpoint") if choice else None) or ""))
    if url.startswith("/"):
        raise errors.InvalidInput(
            "webhook: settings.bulkStatusEndpoint is a path, and the power service's address is not given.",
            remedy="Set webhook_url (or WEBHOOK_URL), or write the whole URL.",
        )
    return url


# ---- which addresses of own machines are called, and which of them get the power service's key. A document names the addresses, and who
# may write a document need not know the key. So the key goes only to hosts that the operator named beside it. Over plain http a
# credential goes to loopback only. A link-local address is never called: the metadata service of a cloud, which hands out credentials to
# whoever asks, is one. Nothing here asks the network

_SECRET = re.compile(r"(?i)token|key|secret|sig|pass|auth")  # names of query values not to be printed
_PORTS = {"http": 80, "https": 443}
_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254")})  # the same service where it is not link-local
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Origin(t.NamedTuple):
    """A host as it is compared, and a port."""

    host: str
    port: int


def origin(url: str) -> Origin:
    """Where a URL leads; ValueError for what is not an http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not an http or https address")
    return Origin(_compared(parts.hostname), parts.port or _PORTS[parts.scheme])


def origins_of(machines: t.Iterable[Machine]) -> frozenset[Origin]:
    """Where the calls to machines go; endpoints that are no URL are left out."""
    origins = set()
    for machine in machines:
        for _field, url in _endpoints(machine):
            try:
                origins.add(origin(url))
            except ValueError:
                continue
    return frozenset(origins)


def listed(hosts: t.Iterable[str]) -> frozenset[Origin]:
    """Entries of ``webhook_hosts``: host, host:port or [address]:port. Without a port those of http and https are meant. InvalidInput for
    anything else."""
    origins: set[Origin] = set()
    for text in filter(None, (host.strip() for host in hosts)):
        try:
            parts = urlsplit(f"//[{text}]" if _is_ipv6(text) else f"//{text}")
            bare = not (parts.path or parts.query or parts.fragment or "@" in text or "*" in text or "//" in text)
            host, port = parts.hostname, parts.port
        except ValueError:
            bare, host, port = False, None, None
        if not bare or not host or port == 0 or any(character.isspace() for character in text):
            raise InvalidInput(
                f"webhook: {text!r} in webhook_hosts is not a host.",
                remedy="Write the host as the machines' addresses have it, with its port unless it is 443 or 80: power.example.org:8443.",
            )
        origins |= {Origin(_compared(host), number) for number in ([port] if port else _PORTS.values())}
    return frozenset(origins)


def faults(
    machines: t.Iterable[Machine], allowed: t.Collection[Origin], *, key: bool, signed: bool = False, bulk: str = ""
) -> list[str]:
    """What keeps the machines from being called, one sentence each. ``key``: every call carries the power service's key; ``signed``: every
    POST is signed, and who gets a signed call can send it on to another machine. ``bulk``: the endpoint that answers for all of them."""
    endpoints = [(f"{machine.name}: {field}", url) for machine in machines for field, url in _endpoints(machine)]
    if bulk:
        endpoints.append(("settings.bulkStatusEndpoint", bulk))
    return [f"{place} {sentence}" for place, url in endpoints if (sentence := _fault(url, allowed, key, signed))]


def _fault(url: str, allowed: t.Collection[Origin], key: bool, signed: bool) -> str:
    try:
        target, parts = origin(url), urlsplit(url)
    except ValueError:
        return "is not an http or https address."
    shown = _shown(parts)
    if is_link_local(target.host):
        return f"leads to {shown}, {LINK_LOCAL}"
    if (key or signed) and target not in allowed:
        credential = "the key (webhook_auth_value)" if key else "signed calls (webhook_signing_secret)"
        return (
            f"leads to {shown}, and {credential} would go there. Only the host of webhook_url, those of webhook_hosts and those of machines "
            f"that are given beside the key get it. Add {_entry(target)} to webhook_hosts (WEBHOOK_HOSTS) if that host is yours, or "
            "correct the address."
        )
    if (key or parts.username) and parts.scheme == "http" and not is_loopback(target.host):
        credential = "the key (webhook_auth_value)" if key else "its user and password"
        return f"leads to {shown}, and {credential} would cross the network in clear text. Use https, or leave the credential out."
    return ""


LINK_LOCAL = (
    "which is a link-local address. Clouds hand out credentials there, so it is never called. Use another address of the service."
)


def is_link_local(host: str) -> bool:
    """Whether a host is a link-local address, in any spelling that a resolver takes as an address. False for names."""
    return any(address.is_link_local or address in _METADATA for address in _addresses(host))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: 127.0.0.0/8, ::1 or localhost."""
    return _compared(host) == "localhost" or any(address.is_loopback for address in _addresses(host))


def _addresses(host: str) -> t.Iterator[_Address]:
    """The address that a host spells, and the IPv4 address that lies in it. Nothing for a name."""
    address = _address(host)
    if address is None:
        return
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and (address in _NAT64 or address in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            yield inner


def _address(host: str) -> _Address | None:
    """As the resolver reads it: also decimal, octal and hexadecimal numbers, fewer than four of them, wide digits and a zone."""
    text = unicodedata.normalize("NFKC", unquote(host)).replace("。", ".").strip("[]").partition("%")[0].rstrip(".").strip()
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):
        return None


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _compared(host: str) -> str:
    """One spelling for each host."""
    address = _address(host)
    return str(address) if address is not None else unicodedata.normalize("NFKC", host).lower().rstrip(".")


def _endpoints(machine: Machine) -> list[tuple[str, str]]:
    """The addresses of a machine by the names of their fields."""
    given = {
        "scaleUpEndpoint": machine.scale_up_endpoint,
        "scaleDownEndpoint": machine.scale_down_endpoint,
        "statusEndpoint": machine.status_endpoint,
    }
    return [(field, url) for field, url in given.items() if url]


def secrets_of(address: SplitResult) -> t.Iterator[str]:
    """What must not be printed of an address: as it is meant, and as it is written there."""
    if address.password:
        yield from (address.password, unquote(address.password))
    for pair in address.query.split("&"):
        name, _equals, value = pair.partition("=")
        if _SECRET.search(unquote_plus(name)):
            yield from (value, unquote_plus(value))


def _shown(parts: SplitResult) -> str:
    """An address without what may be secret in it."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _entry(target: Origin) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port in _PORTS.values() else f"{host}:{target.port}"
