# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The WireGuard hub of a class: from ``wireguardConfig``, from the ``talosConfig.wireGuardConfig`` of tgp-operator, and from keys of Secrets.

tgp-operator's section describes one node's end of a tunnel. What it says of the hub is used. Its private key and its address would be the same
on each machine, so each machine gets its own instead, and the section is deprecated.
"""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import json
import re
import typing as t

from ..core.errors import TgpError, lazy
from ..core.redact import register
from ..model import Hub, HubSecrets, SecretRef
from ..planner.provisioning import reservations, wireguard_rules
from ..units.values import Network, lies_in
from .reading import Fault, Reader

if t.TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = lazy("cryptography.hazmat.primitives.asymmetric.x25519")

Spec = t.Mapping[str, t.Any]
HERE = "spec.wireguardConfig"
OPERATORS = "spec.talosConfig.wireGuardConfig"
ENDS_IN = "1.0"  # the first version that does not read the section of tgp-operator (docs/how_to/migrate_mesh.md)
REF = "SecretRef"
NEEDED = ("endpoint", "publicKey", "network")
FROM_SECRETS = (*NEEDED, "allowedIPs")
_OPERATORS_NAMES = {"endpoint": "serverEndpoint", "network": "address"}  # the others have the same name
_PRIVATE = "privateKey"
_TO_FILL_IN = {"endpoint": "ENDPOINT", "publicKey": "HUB_PUBLIC_KEY", "network": "NETWORK"}
_TAILNET = "100.64.0.0/10"
_FIELDS = {
    "hub_key": "publicKey",
    "endpoint": "endpoint",
    "interface": "interface",
    "mtu": "mtu",
    "keepalive": "persistentKeepalive",
    "hub_address": "hubAddress",
    "allowed": "allowedIPs",
}
_ADDRESSES = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)(?:/\d{1,3})?")
_NO_KEY = "is not a WireGuard key of 44 characters of base64, as `wg pubkey` prints it"
_NO_ENDPOINT = "is not IP:port of the hub, like 203.0.113.10:51820: no node looks a name up for it"
_NO_NETWORK = "is neither a network like 10.77.0.0/24 nor an address with the length of its network"
_NO_NETWORKS = "is not a list of networks like 192.168.10.0/24, separated by commas"


@dataclasses.dataclass(frozen=True, slots=True)
class _Section:
    """A section in the words of ``wireguardConfig``. ``path`` is where it stands, ``names`` are those of its fields there."""

    path: str
    values: Spec
    refs: t.Mapping[str, SecretRef]
    names: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    def place(self, field: str) -> str:
        """Where a field stands in the document, by the reference if its value is in a Secret."""
        return f"{self.path}.{self.names.get(field, field)}{REF if field in self.refs else ''}"


def section_of(spec: Spec) -> tuple[Spec | None, str]:
    """What a spec says of a hub, with its place; None when it says nothing."""
    operators: Spec | None = spec.get("talosConfig", {}).get("wireGuardConfig")
    if "wireguardConfig" in spec or operators is None:
        return spec.get("wireguardConfig"), HERE
    return operators, OPERATORS


def without_key(talos: Spec) -> Spec:
    """A talosConfig without the private key that tgp-operator has in it."""
    section: Spec | None = talos.get("wireGuardConfig")
    if not section:
        return talos
    return {**talos, "wireGuardConfig": {name: value for name, value in section.items() if name != _PRIVATE}}


def hub_of(spec: Spec, reader: Reader) -> Hub | HubSecrets | None:
    """The hub, or what to read before there is one; None without a section or when it has a fault. The reader collects faults and
    warnings."""
    given, path = section_of(spec)
    if given is None:
        return None
    if path == HERE and "wireGuardConfig" in spec.get("talosConfig", {}):
        reader.fault(OPERATORS, f"{HERE} is there as well. Remove this one; tgp.gpu {ENDS_IN} does not read it.")
        return None
    section = _own(given, reader) if path == HERE else _operators(given, reader)
    both = [field for field in section.refs if field in section.values]
    for field in both:
        name = section.names.get(field, field)
        reader.fault(f"{path}.{name}{REF}", f"{name} and {name}{REF} exclude each other. Keep one of them.")
    missing = [field for field in NEEDED if field not in section.values and field not in section.refs]
    for field in missing:
        name = section.names.get(field, field)
        reader.fault(f"{path}.{name}", f"this field is missing. Write it, or name a key of a Secret in {name}{REF}.")
    if path == OPERATORS:
        reader.warn(path, _deprecated(given, section))
    if both or missing or section.values.get("network") == "":
        return None
    if not section.refs:
        return _hub(section, reader)
    return HubSecrets(
        place=reader.source,
        path=path,
        section=dict(section.values),
        refs=dict(section.refs),
        names=dict(section.names),
        host=section.values.get("hub", ""),
        interface=section.values.get("interface", "wg-tgp"),
    )


def _own(given: Spec, reader: Reader) -> _Section:
    refs = {field: ref for field in FROM_SECRETS if (ref := reader.secret_ref(given.get(f"{field}{REF}"))) is not None}
    return _Section(HERE, {name: value for name, value in given.items() if not name.endswith(REF)}, refs)


def _operators(given: Spec, reader: Reader) -> _Section:
    """The section of tgp-operator in our words. What it calls address has the length of the network of hub and nodes."""
    values, refs = dict[str, t.Any](), dict[str, SecretRef]()
    for field in (*FROM_SECRETS, _PRIVATE):
        name = _OPERATORS_NAMES.get(field, field)
        if name in given:
            values[field] = given[name]
        if (ref := reader.secret_ref(given.get(f"{name}{REF}"))) is not None:
            refs[field] = ref
    register(values.get(_PRIVATE))
    if "network" in values:
        network = network_of(values["network"])
        values["network"] = network
        if not network:
            text = f"{_shown(given['address'])} has no length like /24, so the network of hub and nodes is unknown."
            reader.fault(f"{OPERATORS}.address", f"{text} Write it with the length of the network.")
    return _Section(OPERATORS, values, refs, _OPERATORS_NAMES)


def network_of(address: t.Any) -> str:
    """10.0.0.0/24 of 10.0.0.2/24 or of itself; "" for what has no network."""
    try:
        network = ipaddress.ip_interface(str(address).strip()).network
    except ValueError:
        return ""
    return str(network) if 0 < network.prefixlen < network.max_prefixlen else ""


def _shown(value: t.Any) -> str:
    return json.dumps(value) if isinstance(value, str) else f"a {type(value).__name__}"


def _deprecated(given: Spec, section: _Section) -> str:
    """What to write instead, in one line of YAML that can be pasted, and what of the section is not used."""
    fields: dict[str, str] = {}
    for field in FROM_SECRETS:
        if field in section.refs:
            ref = section.refs[field]
            parts = {"name": ref.name, "key": ref.key, "namespace": ref.namespace}
            fields[f"{field}{REF}"] = f"{{{', '.join(f'{part}: {json.dumps(text)}' for part, text in parts.items())}}}"
        elif field == "allowedIPs":
            behind = [text for text in section.values.get(field, ()) if text != section.values.get("network")]
            fields |= {field: f"[{', '.join(map(json.dumps, behind))}]"} if behind else {}
        else:
            known = section.values.get(field) and not (field == "publicKey" and _not_the_hubs(section.values))
            fields[field] = json.dumps(section.values[field]) if known else _TO_FILL_IN[field]
    yaml = ", ".join(f"{name}: {text}" for name, text in fields.items())
    unused = {
        _PRIVATE: "each machine gets a key of its own",
        "address": "only its network is: each machine gets an address of its own",
    }
    notes = [f"{name}{more} is not used, {why}" for name, why in unused.items() for more in ("", REF) if f"{name}{more}" in given]
    said = [
        f"is the section of tgp-operator, which tgp.gpu reads until version {ENDS_IN}. Write it as `wireguardConfig: {{{yaml}}}`.",
        "publicKey is taken for the hub's key.",
        *([f"{'; '.join(notes)}."] if notes else []),
    ]
    return " ".join(said)


# ---- a section whose values are all there, as the model's Hub


def _hub(section: _Section, reader: Reader) -> Hub | None:
    """None when its network is none, or its key cannot be the hub's. The reader collects the faults."""
    values = section.values
    if (why := _not_the_hubs(values)) and section.path == OPERATORS:
        reader.fault(section.place("publicKey"), why)
        return None
    network = _network(values["network"], section.place("network"), reader)
    if network is None:
        return None
    place = section.place("network")
    if network.num_addresses < 4:
        reader.fault(place, f"{network} has no room for a hub and nodes.")
        return None
    if network.version == 4 and network.overlaps(ipaddress.IPv4Network(_TAILNET)):
        reader.fault(place, f"{network} lies in {_TAILNET}, the addresses of tailnets. Take another private network.")
    addresses = _network(values.get("addresses", str(network)), section.place("addresses"), reader) or network
    if not lies_in(addresses, network):
        reader.fault(section.place("addresses"), f"{addresses} is not a part of the network {network}.")
        return None
    allowed = reader.networks(values.get("allowedIPs", ()), section.place("allowedIPs"))
    hub = Hub(
        endpoint=values["endpoint"],
        public_key=values["publicKey"],
        network=str(network),
        address=values.get("hubAddress", str(network[1])),
        addresses=str(addresses),
        allowed=tuple(dict.fromkeys((str(network), *allowed))),
        host=values.get("hub", ""),
        interface=values.get("interface", "wg-tgp"),
        mtu=values.get("mtu", 1420),
        keepalive=reader.duration(values.get("persistentKeepalive"), section.place("persistentKeepalive"), 25),
    )
    some_node = reservations.end_of(hub, f"{network[-2]}/{network.prefixlen}", "")
    for field, fault in wireguard_rules.hub_faults(some_node):
        reader.fault(section.place(_FIELDS[field]), fault)
    return hub


def _not_the_hubs(values: Spec) -> str:
    """Why the public key of a section of tgp-operator is certainly not the hub's; empty when it may be."""
    private, public = values.get(_PRIVATE), values.get("publicKey")
    if private is None or not wireguard_rules.is_key(private) or _public(private) != public:
        return ""
    return (
        "it belongs to privateKey, so it is the key of one node, and nothing here is the hub's. Write the hub's public key, which `wg show` "
        "on the hub prints."
    )


def _public(private: str) -> str:
    """The public key of a private one."""
    key = x25519.X25519PrivateKey.from_private_bytes(base64.b64decode(private))
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _network(text: str, place: str, reader: Reader) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        reader.fault(place, f"{error}. Write a network like 10.77.0.0/24.")
        return None


# ---- a section of which some values stand in Secrets. Sentences name the Secret and a command, and repeat no value of it


class HubProblem(t.NamedTuple):
    """Why a hub is unknown: ``path`` is the field of the document."""

    path: str
    text: str

    @property
    def sentence(self) -> str:
        return f"{self.path}: {self.text}"


def resolved(secrets: HubSecrets, read: t.Callable[[SecretRef], str]) -> Hub | HubProblem:
    """The hub with what its Secrets say now, or the first reason for which it is unknown. ``read`` gives the text of a key or raises
    TgpError."""
    section = _Section(secrets.path, secrets.section, secrets.refs, secrets.names)
    values = dict(secrets.section)
    for field, ref in secrets.refs.items():
        try:
            text = read(ref)
        except TgpError as error:
            return HubProblem(section.place(field), f"{error} {_command(ref)}")
        if field in ("publicKey", _PRIVATE):
            register(text)
        value, fault = _value(field, text)
        if fault:
            register(text)
            return HubProblem(section.place(field), f"the value of {_named(ref)} {fault}. Correct it: `{_shows(ref)}` prints it.")
        values[field] = value
    faults: list[Fault] = []
    reader = Reader("", faults, [])
    hub = _hub(dataclasses.replace(section, values=values), reader)
    if not faults and hub is not None:
        return hub
    first = faults[0]
    hidden = _ADDRESSES.sub("(of a Secret)", first.text) if {"network", "allowedIPs"} & set(secrets.refs) else first.text
    read_from = "; ".join(f"{section.names.get(field, field)} from {_named(ref)}" for field, ref in secrets.refs.items())
    return HubProblem(first.path, f"{hidden} Read: {read_from}.")


def _value(field: str, text: str) -> tuple[t.Any, str]:
    """The value of a field, or what is wrong with it."""
    if field in ("publicKey", _PRIVATE):
        return text, "" if wireguard_rules.is_key(text) else _NO_KEY
    if field == "endpoint":
        return text, "" if wireguard_rules.endpoint_of(text) is not None else _NO_ENDPOINT
    if field == "network":
        network = network_of(text)
        return network, "" if network else _NO_NETWORK
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [str(ipaddress.ip_network(part)) for part in parts], ""
    except ValueError:
        return [], _NO_NETWORKS


def _named(ref: SecretRef) -> str:
    return f"key {ref.key} of Secret {ref.namespace}/{ref.name}"


def _shows(ref: SecretRef) -> str:
    path = ref.key.replace(".", "\\.")
    return f"kubectl -n {ref.namespace} get secret {ref.name} -o jsonpath='{{.data.{path}}}' | base64 -d"


def _command(ref: SecretRef) -> str:
    return f"It is {_named(ref)}; `kubectl -n {ref.namespace} describe secret {ref.name}` shows whether it is there, and its keys."
