# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's tunnel in its configuration: what is written for which release, what of a template stays, and what cannot work."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import MASK, redact
from ansible_collections.tgp.gpu.plugins.module_utils.model import MeshChoice
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.wireguard_rules import endpoint_of, is_key, problems
from ansible_collections.tgp.gpu.plugins.module_utils.preflight.render_check import endpoint_problem
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import Document, at, of_kind, to_yaml
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check, template_problems
from ansible_collections.tgp.gpu.plugins.module_utils.talos.wireguard import link

from tests.fixtures.tunnels import ENDPOINT, HUB, PRIVATE, PUBLIC, WIREGUARD, make_tunnelled, tunnel

SMALL = "machine: {}\ncluster: {}\n"
PEER = {
    "publicKey": HUB,
    "endpoint": ENDPOINT,
    "allowedIPs": ["10.77.0.0/24", "192.168.10.0/24"],
    "persistentKeepaliveInterval": "25s",
}
OLD = {"talos_version": "1.11.6", "kubernetes_version": "1.34.1"}


@pytest.mark.parametrize("version", ["1.12.0", "v1.13.9", "1.14.0"])
def test_from_1_12_on_the_tunnel_is_a_document(version: str) -> None:
    documents = build(make_tunnelled(talos_version=version, kubernetes_version="1.35.0"), SMALL)
    assert of_kind(documents, "WireguardConfig") == {
        "apiVersion": "v1alpha1",
        "kind": "WireguardConfig",
        "name": "wg-tgp",
        "privateKey": PRIVATE,
        "mtu": 1420,
        "addresses": [{"address": "10.77.0.11/24"}],
        "routes": [{"destination": "192.168.10.0/24", "gateway": "10.77.0.1"}],
        "peers": [PEER],
    }
    assert at(documents[0], "machine.network") is None
    assert at(documents[0], "machine.kubelet.nodeIP.validSubnets") == ["10.77.0.0/24"]
    assert check(documents, talos_version=version).errors == ()


@pytest.mark.parametrize("version", ["1.10.5", "1.11.6"])
def test_before_1_12_the_tunnel_is_an_interface(version: str) -> None:
    documents = build(make_tunnelled(talos_version=version, kubernetes_version="1.33.1"), SMALL)
    assert of_kind(documents, "WireguardConfig") is None
    assert at(documents[0], "machine.network.interfaces") == [{
        "interface": "wg-tgp",
        "addresses": ["10.77.0.11/24"],
        "mtu": 1420,
        "routes": [{"network": "192.168.10.0/24", "gateway": "10.77.0.1"}],
        "wireguard": {"privateKey": PRIVATE, "peers": [PEER]},
    }]  # fmt: skip
    assert check(documents, talos_version=version).errors == ()


def test_what_lies_in_the_network_itself_needs_no_route() -> None:
    inside = tunnel(allowed=("10.77.0.0/24", "10.77.0.128/25"))
    assert "routes" not in (of_kind(build(make_tunnelled(tunnel=inside), SMALL), "WireguardConfig") or {})


def test_neither_image_nor_configuration_needs_anything_of_tailscale() -> None:
    documents = build(make_tunnelled(gpu_count=0, model="", extensions=()))
    assert of_kind(documents, "ExtensionServiceConfig") is None


GIVEN = f"""
apiVersion: v1alpha1
kind: WireguardConfig
name: wg-tgp
privateKey: {HUB}
up: false
mtu: 1412
listenPort: 51821
addresses: [{{address: 10.1.1.1/24}}]
routes: [{{destination: 192.168.10.0/24, gateway: 10.1.1.9}}, {{destination: 10.9.0.0/16, gateway: 10.77.0.1}}]
peers: [{{publicKey: {PUBLIC}}}]
"""
OTHER = GIVEN.replace("wg-tgp", "wg-other")
INTERFACE = f"""
machine:
  network:
    interfaces:
      - {{interface: eth0, dhcp: true}}
      - interface: wg-tgp
        ignore: true
        mtu: 1412
        routes: [{{network: 10.9.0.0/16, gateway: 10.77.0.1}}]
        addresses: [10.1.1.1/24]
        wireguard: {{privateKey: {HUB}, listenPort: 51821, peers: [{{publicKey: {PUBLIC}}}]}}
cluster: {{}}
"""


@pytest.mark.parametrize("release", [{}, OLD])
@pytest.mark.parametrize("template", [f"{SMALL}---{GIVEN}", INTERFACE])
def test_ours_wins_for_key_address_and_peer_and_the_rest_of_a_template_stays(template: str, release: dict[str, t.Any]) -> None:
    documents = build(make_tunnelled(**release), template)
    found = link(documents, documents[0], "wg-tgp")
    assert (found["privateKey"], found["peers"], found["addresses"]) == (PRIVATE, [PEER], [{"address": "10.77.0.11/24"}])
    assert (found["mtu"], found["listenPort"]) == (1412, 51821) and "up" not in found
    by = [(one.get("destination", one.get("network")), one["gateway"]) for one in found["routes"]]
    assert by == [("192.168.10.0/24", "10.77.0.1"), ("10.9.0.0/16", "10.77.0.1")]
    names = [one.get("interface") for one in at(documents[0], "machine.network.interfaces") or ()]
    assert ("wg-tgp" in names) is bool(release) and ("eth0" in names) is (template == INTERFACE)
    assert (of_kind(documents, "WireguardConfig") is None) is bool(release)
    version = release.get("talos_version", "1.13.9")
    assert check(documents, talos_version=version).errors == ()


def test_other_links_of_a_template_are_left_alone_and_so_are_its_subnets() -> None:
    template = f"machine: {{kubelet: {{nodeIP: {{validSubnets: [10.77.0.0/28]}}}}}}\ncluster: {{}}\n---{OTHER}"
    documents = build(make_tunnelled(), template)
    assert [one["name"] for one in documents if one.get("kind") == "WireguardConfig"] == ["wg-other", "wg-tgp"]
    assert at(documents[0], "machine.kubelet.nodeIP.validSubnets") == ["10.77.0.0/28"]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"private_key": "short"}, "private_key must be a WireGuard key"),
        ({"private_key": PRIVATE[:-1]}, "private_key must be"),
        ({"hub_key": "not base64 at all, but long enough to be it="}, "hub_key must be"),
        ({"hub_key": PRIVATE}, "are the same"),
        ({"endpoint": "hub.example.org:51820"}, "no node looks a name up"),
        ({"endpoint": "203.0.113.10"}, "must be IP:port"),
        ({"endpoint": "203.0.113.10:0"}, "must be IP:port"),
        ({"endpoint": "203.0.113.10:65536"}, "must be IP:port"),
        ({"endpoint": "2001:db8::1:51820"}, "must be IP:port"),
        ({"address": "10.77.0.11"}, "not that of one node"),
        ({"address": "10.77.0.0/24"}, "not that of one node"),
        ({"address": "10.77.0.255/24"}, "not that of one node"),
        ({"address": "nowhere"}, "not an address with a prefix length"),
        ({"address": "10.77.0.1/24"}, "is the hub's own"),
        ({"address": "10.77.1.11/24"}, "hub_address 10.77.0.1 is not in the tunnel's network 10.77.1.0/24"),
        ({"address": "10.77.0.11/32"}, "hub_address 10.77.0.1 is not in the tunnel's network 10.77.0.11/32"),
        ({"hub_address": "hub"}, "hub_address 'hub' is not an address"),
        ({"hub_address": "10.77.0.0"}, "hub_address 10.77.0.0 names the network"),
        ({"hub_address": "10.77.0.255"}, "hub_address 10.77.0.255 names the network"),
        ({"allowed": ()}, "allowed has no network with the hub's address 10.77.0.1"),
        ({"allowed": ("192.168.10.0/24",)}, "allowed has no network with the hub's address"),
        ({"allowed": ("10.77.0.0/24", "192.168.10.1/24")}, "is not a network"),
        ({"allowed": ("10.77.0.0/24", "fd00::/64")}, "nothing of IPv6 goes through it"),
        ({"allowed": ("0.0.0.0/0",)}, "contains the hub's endpoint 203.0.113.10"),
        ({"interface": "wg-of-the-whole-fleet"}, "not a name of a network interface"),
        ({"mtu": 1279}, "mtu 1279 must be"),
        ({"mtu": 9001}, "mtu 9001 must be"),
        ({"keepalive": 0}, "keepalive 0 must be"),
        ({"keepalive": 65536}, "keepalive 65536 must be"),
    ],
)
def test_a_tunnel_that_cannot_work_is_refused(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(make_tunnelled(tunnel=tunnel(**changes)))
    assert words in str(caught.value) + " ".join(caught.value.problems)
    assert PRIVATE not in str(caught.value)


@pytest.mark.parametrize("changes", [{"mtu": 1280}, {"mtu": 9000}, {"keepalive": 1}, {"keepalive": 65535}, {"address": "10.77.0.254/24"},
                                     {"interface": "wg-of-the-fleet"}, {"endpoint": "[2001:db8::1]:65535"}])  # fmt: skip
def test_and_one_that_just_can_is_taken(changes: dict[str, t.Any]) -> None:
    assert problems(tunnel(**changes)) == []


def test_a_tunnel_of_ipv6_has_all_its_addresses() -> None:
    six = tunnel(address="fd77::11/64", hub_address="fd77::1", allowed=("fd77::/64",))
    assert problems(six) == [] and problems(tunnel(address="fd77::/64", hub_address="fd77::1", allowed=("fd77::/64",)))


@pytest.mark.parametrize(
    "network, subnets, which",
    [
        ("10.96.5", "", "service subnet 10.96.0.0/12"),
        ("10.244.3", "", "pod subnet 10.244.0.0/16"),
        ("10.77.0", "{podSubnets: [10.77.0.128/25]}", "pod subnet 10.77.0.128/25"),
        ("10.77.0", "{serviceSubnets: [10.64.0.0/10]}", "service subnet 10.64.0.0/10"),
    ],
)
def test_a_network_that_overlaps_pods_or_services_is_refused_because_talos_would_say_nothing(network, subnets, which) -> None:
    one = tunnel(address=f"{network}.11/24", hub_address=f"{network}.1", allowed=(f"{network}.0/24",))
    template = f"machine: {{}}\ncluster: {{network: {subnets or '{}'}}}\n"
    with pytest.raises(InvalidInput, match="WireGuard tunnel") as caught:
        build(make_tunnelled(tunnel=one), template)
    assert which in str(caught.value)


def test_a_patch_that_moves_the_pods_into_the_tunnel_is_found() -> None:
    with pytest.raises(InvalidInput, match=r"pod subnet 10\.77\.0\.0/16"):
        build(make_tunnelled(patches=("cluster: {network: {podSubnets: [10.77.0.0/16]}}",)))


DOCUMENT = "apiVersion: v1alpha1, kind: WireguardConfig, name: wg-tgp"


@pytest.mark.parametrize(
    "patch, field",
    [
        (f"{{{DOCUMENT}, $patch: delete}}", "privateKey"),
        (f"{{{DOCUMENT}, privateKey: {HUB}}}", "privateKey"),
        (f"{{{DOCUMENT}, up: false}}", "up"),
        (f"{{{DOCUMENT}, peers: [{{publicKey: {HUB}, $patch: delete}}]}}", "peers"),
        (f"{{{DOCUMENT}, peers: [{{publicKey: {HUB}, endpoint: '203.0.113.9:1'}}]}}", "peers"),
        (f"{{{DOCUMENT}, addresses: [{{address: 10.77.0.11/24, $patch: delete}}]}}", "addresses"),
    ],
)
def test_no_patch_takes_the_tunnel_out(patch: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(make_tunnelled(patches=(patch,)))
    assert caught.value.problems and caught.value.problems[0].startswith(f"WireGuard wg-tgp: {field}: a patch may not")


@pytest.mark.parametrize("patch", ["ignore: true", "wireguard: {privateKey: " + HUB + "}"])
def test_no_patch_takes_the_old_form_out(patch: str) -> None:
    with pytest.raises(InvalidInput, match="WireGuard wg-tgp"):
        build(make_tunnelled(**OLD, patches=(f"machine: {{network: {{interfaces: [{{interface: wg-tgp, {patch}}}]}}}}",)))


def test_a_patch_may_add_to_the_tunnel() -> None:
    more = f"{{{DOCUMENT}, mtu: 1400, addresses: [{{address: 10.78.0.2/32}}], peers: [{{publicKey: {PUBLIC}}}]}}"
    found = of_kind(build(make_tunnelled(patches=(more,))), "WireguardConfig") or {}
    assert (found["mtu"], len(found["addresses"]), len(found["peers"])) == (1400, 2, 2)


def test_a_mesh_without_its_tunnel_and_a_tunnel_without_its_mesh_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no tunnel for this node"):
        build(make_tunnelled(tunnel=None))
    with pytest.raises(InvalidInput, match="its mesh is none"):
        build(make_tunnelled(mesh=MeshChoice(backend="none")))


def test_the_private_key_is_in_no_text_but_the_configuration() -> None:
    spec = make_tunnelled()
    text = to_yaml(build(spec))
    assert PRIVATE in text and PRIVATE not in redact(text) and PRIVATE not in repr(spec) and HUB in redact(text)


@pytest.mark.parametrize("line", ["privateKey: {}", "PrivateKey = {}", '"private_key": "{}"', "presharedKey: {}"])
def test_a_key_that_nobody_registered_is_masked_by_what_stands_before_it(line: str) -> None:
    stranger = "c3RyYW5nZXIncyBwcml2YXRlIGtleSBvZiAzMiBieXQ="
    assert redact(line.format(stranger)) == line.format(MASK)
    assert redact(f"publicKey: {stranger}") == f"publicKey: {stranger}"


def damaged(**changes: t.Any) -> Document:
    whole: Document = {
        "apiVersion": "v1alpha1", "kind": "WireguardConfig", "name": "wg0", "privateKey": PRIVATE, "peers": [dict(PEER)],
        "addresses": [{"address": "10.5.0.2/24"}], "routes": [{"destination": "10.6.0.0/16", "gateway": "10.5.0.1"}],
    }  # fmt: skip
    return {**whole, **changes}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"name": ""}, "name is missing"),
        ({"privateKey": "x"}, "privateKey must be a WireGuard key"),
        ({"addresses": [{"address": "10.5.0.2"}]}, "not an address with a prefix length"),
        ({"routes": [{"destination": "10.6.0.0/33"}]}, "is not a network"),
        ({"routes": [{"destination": "10.6.0.0/16", "gateway": "gate"}]}, "gateway 'gate' is not an address"),
        ({"routes": [{"metric": 3}]}, "needs a destination or a gateway"),
        ({"peers": [{"publicKey": "x"}]}, "peers[0].publicKey must be"),
        ({"peers": [{**PEER, "presharedKey": "x"}]}, "presharedKey must be"),
        ({"peers": [{**PEER, "endpoint": "hub.example.org:51820"}]}, "must be IP:port"),
        ({"peers": [{**PEER, "allowedIPs": ["10.0.0.1"]}]}, "not a network with a prefix length"),
    ],
)
def test_the_own_check_says_what_talos_would_refuse(changes: dict[str, t.Any], words: str) -> None:
    documents = build(make_tunnelled())
    assert check([*documents, damaged()]).errors == ()
    assert words in " ".join(check([*documents, damaged(**changes)]).errors)


@pytest.mark.parametrize("version", ["1.10.5", "1.11.6"])
def test_the_document_is_refused_where_talos_does_not_know_it_with_what_to_write(version: str) -> None:
    documents = build(make_tunnelled(talos_version=version, kubernetes_version="1.33.1"))
    assert check(documents, talos_version=version).errors == ()
    (error,) = check([*documents, damaged()], talos_version=version).errors
    assert error == (
        f"WireguardConfig needs Talos 1.12 or newer, this is {version[:4]}; write an entry of machine.network.interfaces with wireguard in it "
        "instead."
    )


def test_both_forms_for_one_link_are_refused() -> None:
    documents = build(make_tunnelled(), "machine: {network: {interfaces: [{interface: wg0, dhcp: true}]}}\ncluster: {}\n")
    assert check(documents).errors == ()
    assert "write one of the two" in " ".join(check([*documents, damaged()]).errors)


def test_two_documents_for_one_link_are_refused() -> None:
    other = {"apiVersion": "v1alpha1", "kind": "LinkConfig", "name": "wg-tgp"}
    (error,) = check([*build(make_tunnelled()), other]).errors
    assert error == "LinkConfig wg-tgp and WireguardConfig wg-tgp exclude each other; write one of the two."
    assert check([*build(make_tunnelled()), {**other, "name": "eth0"}]).errors == ()


@pytest.mark.parametrize(
    "wireguard, words",
    [
        (f"{{privateKey: {PRIVATE}}}", ""),
        ("{privateKey: x}", "wg9: wireguard.privateKey must be"),
        (f"{{privateKey: {PRIVATE}, peers: [{{publicKey: x}}]}}", "wg9: wireguard.peers[0].publicKey must be"),
    ],
)
def test_the_old_form_is_looked_at_as_well(wireguard: str, words: str) -> None:
    interface = f"[{{interface: wg9, wireguard: {wireguard}}}]"
    documents = build(make_tunnelled(**OLD), f"machine: {{network: {{interfaces: {interface}}}}}\ncluster: {{}}\n")
    found = " ".join(check(documents, talos_version="1.11.6").errors)
    assert words in found if words else not found


def test_a_template_is_tried_out_with_a_tunnel_where_the_class_has_one() -> None:
    assert template_problems(SMALL, mesh=WIREGUARD) == []
    assert template_problems(SMALL, talos_version="1.11.6", mesh=WIREGUARD) == []


@pytest.mark.parametrize(
    "endpoint, words",
    [
        ("https://10.77.0.1:6443", ""),
        ("https://192.168.10.7:6443", ""),
        ("https://8.8.8.8:6443", ""),
        ("https://api.example.org:6443", ""),
        ("https://192.168.11.7:6443", "neither public, nor the hub's address 10.77.0.1, nor in a network"),
        ("https://100.64.0.1:6443", "neither public"),
        ("https://cp.tail1234.ts.net:6443", "the class's machines enter none"),
        ("https://kubernetes.default.svc:6443", "known inside the cluster only"),
    ],
)
def test_the_control_plane_must_lie_behind_the_hub_or_be_public(endpoint: str, words: str) -> None:
    spec = make_tunnelled(endpoint=endpoint)
    found = endpoint_problem(spec, build(spec))
    assert words in found[0] if words else found == [], found


def test_keys_and_endpoints_are_known_by_their_form() -> None:
    assert is_key(PRIVATE) and is_key(PUBLIC) and not is_key(PRIVATE + "=") and not is_key(7) and not is_key("")
    assert str((endpoint_of("[2001:db8::1]:51820") or ("", 0))[0]) == "2001:db8::1"
    assert endpoint_of("[10.0.0.1]:1") is None and endpoint_of("10.0.0.1:x") is None
