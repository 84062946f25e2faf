# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3-08, S3-39: the WireGuard settings of tgp-operator are read as they stand, and a hub may stand in Secrets."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden, InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import MASK, redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.wireguard import HubProblem, resolved
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.conf import public_key
from ansible_collections.tgp.gpu.plugins.module_utils.model import Hub, MeshChoice, SecretRef
from ansible_collections.tgp.gpu.plugins.module_utils.observe.documents import load
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation

from .test_faults import CLASS, REQUEST, problems, with_

Json = dict[str, t.Any]
ROOT = Path(__file__).resolve().parents[3]
PRIVATE = "gI6EdUSYvn8ugXOt8QQD6Yc+JyiZxIhp3GInSWRfWGE="
HUB_KEY = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw="
OPERATORS: Json = {
    "privateKey": PRIVATE,
    "publicKey": HUB_KEY,
    "serverEndpoint": "203.0.113.10:51820",
    "allowedIPs": ["10.0.0.0/24", "192.168.10.0/24"],
    "address": "10.0.0.2/24",
}
KEYS = {
    "privateKey": "private-key",
    "publicKey": "public-key",
    "serverEndpoint": "server.endpoint",
    "allowedIPs": "allowed-ips",
    "address": "address",
}
IN_SECRETS: Json = {f"{field}SecretRef": {"name": "wireguard-config", "key": key} for field, key in KEYS.items()}
VALUES = {
    "private-key": PRIVATE,
    "public-key": HUB_KEY,
    "server.endpoint": "203.0.113.10:51820",
    "allowed-ips": "10.0.0.0/24, 192.168.10.0/24",
    "address": "10.0.0.2/24",
}
THE_HUB = Hub("203.0.113.10:51820", HUB_KEY, "10.0.0.0/24", "10.0.0.1", "10.0.0.0/24", allowed=("10.0.0.0/24", "192.168.10.0/24"))
OF_THIS_COLLECTION: Json = {
    f"{field}SecretRef": {"name": "wireguard-config", "key": key}
    for field, key in (
        ("endpoint", "server.endpoint"),
        ("publicKey", "public-key"),
        ("network", "address"),
        ("allowedIPs", "allowed-ips"),
    )
}


def mesh(document: Json) -> MeshChoice:
    specs, _warnings = parse([Document("a.yaml", document)])
    (node_class,) = specs.classes.values()
    return node_class.mesh


def told(document: Json) -> str:
    """The warning about the section of tgp-operator."""
    _specs, warnings = parse([Document("a.yaml", document)])
    (found,) = [one for one in warnings if "wireGuardConfig: is the section of tgp-operator" in one]
    return found


def found(section: Json, path: str = "spec.wireguardConfig", **values: str) -> Hub | HubProblem:
    """What becomes of a section with these values in its Secret."""
    secrets = mesh(with_(CLASS, path, section)).hub_secrets
    assert secrets is not None
    return resolved(secrets, lambda ref: {**VALUES, **{name.replace("_", "-"): value for name, value in values.items()}}[ref.key])


@pytest.mark.parametrize("base", [CLASS, REQUEST])
def test_S3_08_the_operators_wireguard_is_read_as_it_stands(base: Json) -> None:
    document = with_(base, "spec.talosConfig.wireGuardConfig", OPERATORS)
    choice = mesh(document)
    assert (choice.backend, choice.hub, choice.hub_unread) == ("wireguard", THE_HUB, False)
    warning = told(document)
    assert "reads until version 1.0" in warning and "privateKey is not used, each machine gets a key of its own" in warning
    assert "address is not used, only its network is" in warning and PRIVATE not in warning


def test_S3_39_the_warning_has_the_section_to_write_instead() -> None:
    for section in (OPERATORS, IN_SECRETS):
        (written,) = re.findall(r"Write it as `(.*?)`\.", told(with_(CLASS, "spec.talosConfig.wireGuardConfig", section)))
        new = yaml.safe_load(written)["wireguardConfig"]
        assert ("publicKeySecretRef" in new) is (section is IN_SECRETS)
        hub = found(new) if section is IN_SECRETS else mesh(with_(CLASS, "spec.wireguardConfig", new)).hub
        assert hub == THE_HUB


def test_S3_39_a_hub_in_secrets_is_unknown_until_they_are_read() -> None:
    choice = mesh(with_(CLASS, "spec.wireguardConfig", {**OF_THIS_COLLECTION, "hub": "hub-1"}))
    secrets = choice.hub_secrets
    assert choice.hub_unread and choice.backend == "wireguard" and choice.hub_place is secrets
    assert secrets is not None and (secrets.host, secrets.interface) == ("hub-1", "wg-tgp")
    assert secrets.refs["publicKey"] == SecretRef("wireguard-config", "public-key", "tgp-system")
    assert found(OF_THIS_COLLECTION) == THE_HUB == found(IN_SECRETS, "spec.talosConfig.wireGuardConfig")
    assert found({**OF_THIS_COLLECTION, "mtu": 1412}) == Hub(
        **{**{one: getattr(THE_HUB, one) for one in THE_HUB.__slots__}, "mtu": 1412}
    )


def test_S3_39_an_unknown_hub_says_nothing_about_drift_and_a_known_one_what_the_document_would() -> None:
    specs, _warnings = parse([Document("a.yaml", with_(CLASS, "spec.wireguardConfig", OF_THIS_COLLECTION)), Document("b", POOL)])
    node_class, pool = specs.classes["base"], specs.pools[0]
    assert generation(node_class, pool) == ""
    known = dataclasses.replace(node_class, mesh=dataclasses.replace(node_class.mesh, hub=THE_HUB))
    inline, _warnings = parse(
        [Document("a.yaml", with_(CLASS, "spec.talosConfig.wireGuardConfig", OPERATORS)), Document("b", POOL)]
    )
    of_lanes = generation(known, pool).split(".")[:-1]
    assert of_lanes == generation(inline.classes["base"], pool).split(".")[:-1]
    other = dataclasses.replace(THE_HUB, endpoint="203.0.113.11:51820")
    changed = dataclasses.replace(node_class, mesh=dataclasses.replace(node_class.mesh, hub=other))
    assert generation(changed, pool).split(".")[:-1] != of_lanes


POOL: Json = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodePool",
    "metadata": {"name": "base"},
    "spec": {"nodeClassRef": {"kind": "GPUNodeClass", "name": "base"}},
}


def test_S3_39_the_example_is_read_and_names_the_line_of_a_hub_that_is_unknown() -> None:
    specs = load(Task({"documents": [str(ROOT / "examples" / "wireguard.yml")]}), None)
    secrets = specs.classes["rented"].mesh.hub_secrets
    assert secrets is not None and secrets.place == f"{ROOT / 'examples' / 'wireguard.yml'}:14"
    of_example = {
        "public-key": HUB_KEY,
        "endpoint": "203.0.113.10:51820",
        "network": "10.77.0.0/24",
        "allowed-ips": "192.168.10.0/24",
    }
    hub = resolved(secrets, lambda ref: of_example[ref.key])
    assert isinstance(hub, Hub) and (hub.host, hub.address, hub.allowed) == (
        "hub-1",
        "10.77.0.1",
        ("10.77.0.0/24", "192.168.10.0/24"),
    )


@pytest.mark.parametrize(
    ("section", "place", "words"),
    [
        ({**OPERATORS, "serverEndpoint": "vpn.example.com:51820"}, "serverEndpoint", "no node looks a name up"),
        ({**OPERATORS, "publicKey": public_key(PRIVATE)}, "publicKey", "it is the key of one node, and nothing here is the hub's"),
        ({**OPERATORS, "publicKey": "your-public-key"}, "publicKey", "must be a WireGuard key"),
        ({**OPERATORS, "address": "10.0.0.2"}, "address", "has no length like /24"),
        ({**OPERATORS, "allowedIPs": ["0.0.0.0/0"]}, "allowedIPs", "contains the hub's endpoint"),
        ({**OPERATORS, "allowedIPs": ["10.0.0.1/24"]}, "allowedIPs[0]", "has host bits set"),
        ({"address": "10.0.0.2/24", "publicKey": HUB_KEY}, "serverEndpoint", "this field is missing"),
        ({**OPERATORS, "publicKeySecretRef": IN_SECRETS["publicKeySecretRef"]}, "publicKeySecretRef", "exclude each other"),
        ({**OPERATORS, "addressSecretRef": {"name": "a"}}, "addressSecretRef.key", "this field is missing"),
    ],
)
def test_S3_08_what_cannot_be_kept_is_refused_with_its_reason(section: Json, place: str, words: str) -> None:
    said = problems(with_(CLASS, "spec.talosConfig.wireGuardConfig", section))
    assert any(f"spec.talosConfig.wireGuardConfig.{place}: " in one and words in one for one in said), said
    assert PRIVATE not in str(said)


def test_S3_08_two_sections_about_a_hub_are_one_too_many() -> None:
    both = with_(CLASS, "spec.talosConfig.wireGuardConfig", OPERATORS)
    (one,) = problems(with_(both, "spec.wireguardConfig", OF_THIS_COLLECTION))
    assert "spec.talosConfig.wireGuardConfig: spec.wireguardConfig is there as well. Remove this one" in one
    (one,) = problems(with_(both, "spec.networking", {"backend": "none"}))
    assert "spec.talosConfig.wireGuardConfig: has no effect with networking.backend none" in one


@pytest.mark.parametrize("field", ["endpoint", "publicKey", "network", "allowedIPs"])
def test_S3_39_a_value_or_a_secret_and_never_both(field: str) -> None:
    (one,) = problems(with_(CLASS, "spec.wireguardConfig", {**OF_THIS_COLLECTION, field: ["x"] if field == "allowedIPs" else "x"}))
    assert f"spec.wireguardConfig.{field}SecretRef: {field} and {field}SecretRef exclude each other" in one
    rest = {name: ref for name, ref in OF_THIS_COLLECTION.items() if name != f"{field}SecretRef"}
    if field != "allowedIPs":
        (one,) = problems(with_(CLASS, "spec.wireguardConfig", rest))
        assert (
            f"spec.wireguardConfig.{field}: this field is missing. Write it, or name a key of a Secret in {field}SecretRef" in one
        )


@pytest.mark.parametrize(
    ("values", "place", "words"),
    [
        ({"public_key": "top-secret-words"}, "publicKeySecretRef", "is not a WireGuard key"),
        ({"server.endpoint": "vpn.example.com:51820"}, "endpointSecretRef", "is not IP:port of the hub"),
        ({"address": "10.0.0.2"}, "networkSecretRef", "is neither a network like 10.77.0.0/24 nor an address"),
        ({"allowed_ips": "10.0.0.0/24 192.168.10.0/24"}, "allowedIPsSecretRef", "is not a list of networks"),
    ],
)
def test_S3_39_a_wrong_value_is_named_and_never_shown(values: dict[str, str], place: str, words: str) -> None:
    problem = found(OF_THIS_COLLECTION, **values)
    assert isinstance(problem, HubProblem) and problem.path == f"spec.wireguardConfig.{place}"
    (key,) = values
    key, value = key.replace("_", "-"), values[key]
    assert f"the value of key {key} of Secret tgp-system/wireguard-config {words}" in problem.text
    shown = key.replace(".", "\\.")
    assert f"`kubectl -n tgp-system get secret wireguard-config -o jsonpath='{{.data.{shown}}}' | base64 -d`" in problem.text
    assert value not in problem.sentence and redact(f"it is {value}!") == f"it is {MASK}!"


def test_S3_39_values_that_do_not_fit_each_other_are_not_shown_either() -> None:
    problem = found(OF_THIS_COLLECTION, allowed_ips="203.0.113.0/24,10.0.0.0/24")
    assert isinstance(problem, HubProblem) and problem.path == "spec.wireguardConfig.allowedIPsSecretRef"
    assert "contains the hub's endpoint" in problem.text and "203.0.113.0" not in problem.text
    assert "network from key address of Secret tgp-system/wireguard-config" in problem.text
    problem = found({**OF_THIS_COLLECTION, "hubAddress": "10.9.0.1"})
    assert isinstance(problem, HubProblem) and problem.path == "spec.wireguardConfig.hubAddress" and "10.0.0" not in problem.text
    problem = found(IN_SECRETS, "spec.talosConfig.wireGuardConfig", public_key=public_key(PRIVATE))
    assert isinstance(problem, HubProblem) and problem.path == "spec.talosConfig.wireGuardConfig.publicKeySecretRef"
    assert "it belongs to privateKey" in problem.text and PRIVATE not in problem.text


def test_S3_39_a_secret_that_cannot_be_read_is_named_with_a_command() -> None:
    def refuses(_ref: SecretRef) -> str:
        raise Forbidden("kubernetes: the kubeconfig is not allowed to get secrets.", service="kubernetes")

    secrets = mesh(with_(CLASS, "spec.wireguardConfig", OF_THIS_COLLECTION)).hub_secrets
    assert secrets is not None
    problem = resolved(secrets, refuses)
    assert isinstance(problem, HubProblem) and problem.path == "spec.wireguardConfig.endpointSecretRef"
    assert "is not allowed to get secrets" in problem.text
    assert "`kubectl -n tgp-system describe secret wireguard-config` shows whether it is there, and its keys" in problem.text


def test_S3_39_the_private_key_of_a_document_is_masked_everywhere() -> None:
    private = "uP1y0DpoPjGHQpf2FGd6f4b0pVwr4TqVTXWLkPqQPlU="
    mesh(with_(CLASS, "spec.talosConfig.wireGuardConfig", {**OPERATORS, "privateKey": private}))
    assert private not in redact(f"key {private}")
    with pytest.raises(InvalidInput) as caught:
        parse([Document("a.yaml", with_(CLASS, "spec.talosConfig.wireGuardConfig", {**OPERATORS, "privateKey": 12}))])
    assert "privateKey: text is needed" in str(caught.value.problems)
