# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3-39: addresses of nodes behind a WireGuard hub, and what hubs are told."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudChoice,
    CloudView,
    Hub,
    Lane,
    Machine,
    MeshChoice,
    Peer,
    Phase,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import reservations
from hypothesis import given
from hypothesis import strategies as st

from .build import claim, decide, instance, node_class, of, offer, pool, seen, specs

KEY = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="
HUB = Hub("203.0.113.10:51820", KEY, "10.77.0.0/24", "10.77.0.1", "10.77.0.0/24", ("10.77.0.0/24",), host="hub-1")
SMALL = dataclasses.replace(HUB, addresses="10.77.0.0/30")  # .0 is the network, .1 the hub


def peered(number: int, address: str, key: str = "k", **facts: t.Any) -> Claim:
    peer = Peer(facts.pop("host", "hub-1"), "wg-tgp", f"{address}/24", key)
    return claim(f"tgp-a1b2c3d4-p-{number:05d}", peer=peer, mesh_backend="wireguard", **facts)


@given(st.lists(st.integers(2, 254), unique=True, max_size=253), st.text("abcdef0123456789", min_size=5, max_size=5))
def test_S3_39_no_address_is_given_twice(numbers: list[int], rand: str) -> None:
    claims = [peered(number, f"10.77.0.{number}") for number in numbers]
    drawn = reservations.draw(HUB, claims, f"tgp-a1b2c3d4-p-{rand}")
    assert reservations.free(HUB, claims) == 253 - len(numbers)
    if len(numbers) == 253:
        assert drawn == ""
    else:
        address = ipaddress.ip_interface(drawn)
        assert str(address.network) == HUB.network
        assert str(address.ip) not in {"10.77.0.0", "10.77.0.1", "10.77.0.255", *(f"10.77.0.{one}" for one in numbers)}


def test_S3_39_a_part_of_the_network_is_kept_to() -> None:
    hub = dataclasses.replace(HUB, addresses="10.77.0.128/25")
    drawn = {reservations.draw(hub, (), f"tgp-a1b2c3d4-p-{number:05d}") for number in range(50)}
    assert len(drawn) > 25, "where the search begins is told by the name"
    assert all(ipaddress.ip_interface(one).ip in ipaddress.ip_network("10.77.0.128/25") and one.endswith("/24") for one in drawn)
    assert reservations.free(hub, [peered(2, "10.77.0.2"), peered(3, "10.77.0.200")]) == 126


def test_S3_39_addresses_of_version_six() -> None:
    hub = dataclasses.replace(HUB, network="fd77::/64", address="fd77::1", addresses="fd77::/64", allowed=("fd77::/64",))
    assert ipaddress.ip_interface(reservations.draw(hub, [peered(2, "10.77.0.2")], "x")).ip in ipaddress.ip_network("fd77::/64")


def test_S3_39_own_machines_take_no_addresses() -> None:
    own = CloudChoice("webhook", machines=(Machine("box", 1, "up", "down"),))
    tiny = dataclasses.replace(HUB, addresses="10.77.0.2/32")
    classes = (node_class(clouds=(own, "lambda"), mesh=MeshChoice("wireguard", hub=tiny)),)
    box = claim("box", cloud="webhook", offer=offer("0", cloud="webhook", id="box"))
    views = {"webhook": CloudView((instance("box", cloud="webhook"),), ()), "lambda": CloudView((), (offer(),))}
    found = decide(seen(claims=(box,), clouds=views), specs(pool(), classes=classes, p=3), "provision")
    assert [one.claim.cloud for one in of(found, "launch") if one.claim] == ["lambda"]
    assert found.shortfall[0].reason == "no address is free in 10.77.0.2/32"
    booting = dataclasses.replace(views["webhook"], instances=(), offers=(offer("0", cloud="webhook", id="box"),))
    off = decide(seen(clouds={**views, "webhook": booting}), specs(pool(), classes=classes, p=2), "provision")
    assert sorted(one.claim.cloud for one in of(off, "launch") if one.claim) == ["lambda", "webhook"]


def test_S3_39_nothing_is_launched_beyond_the_addresses() -> None:
    classes = (node_class(mesh=MeshChoice("wireguard", hub=SMALL)),)
    observed = seen(offers=(offer(), offer("0.50")), devices=None)
    found = decide(observed, specs(pool(), classes=classes, p=3), "provision")
    assert len(of(found, "launch")) == 2 and found.problems == ()
    (short,) = found.shortfall
    assert (short.missing, short.reason) == (1, "no address is free in 10.77.0.0/30")
    one = next(action.claim for action in of(found, "launch") if action.claim)
    assert one.mesh_backend == "wireguard" and one.peer is None, "the address comes with the key, when it is rented"
    waiting = claim(phase=Phase.PENDING, mesh_backend="wireguard")
    found = decide(
        dataclasses.replace(observed, claims=(waiting, peered(2, "10.77.0.2"))), specs(pool(), classes=classes, p=4), "provision"
    )
    assert not of(found, "launch"), "one address is taken, the other is for the claim that waits"


def test_S3_39_hubs_are_told_of_every_machine_that_may_still_run() -> None:
    going = peered(3, "10.77.0.3", phase=Phase.TERMINATING)
    claims = [going, peered(2, "10.77.0.2"), peered(4, "10.77.0.4", key=""), peered(5, "10.78.0.5", host="hub-2"), claim()]
    first, second = reservations.hubs([HUB], claims)
    assert (first.host, [name for name, _peer in first.peers]) == ("hub-1", ["tgp-a1b2c3d4-p-00002", "tgp-a1b2c3d4-p-00003"])
    assert (second.host, [peer.address for _name, peer in second.peers]) == ("hub-2", ["10.78.0.5/24"])


def test_S3_39_a_hub_that_has_no_machine_any_more_is_told_so_and_one_kept_by_hand_is_not() -> None:
    (only,) = reservations.hubs([HUB, dataclasses.replace(HUB, host="")], [peered(2, "10.77.0.2", host="")])
    assert (only.host, only.peers) == ("hub-1", ())


@pytest.mark.parametrize(
    ("peer", "fits"),
    [
        (Peer("hub-1", "wg-tgp", "10.77.0.9/24", "k"), True),
        (Peer("hub-1", "wg-tgp", "10.77.0.9/25", "k"), False),
        (Peer("hub-2", "wg-tgp", "10.77.0.9/24", "k"), False),
        (Peer("hub-1", "wg0", "10.77.0.9/24", "k"), False),
    ],
)
def test_S3_39_an_address_is_kept_while_it_is_of_the_hub(peer: Peer, fits: bool) -> None:
    assert reservations.fits(HUB, peer) is fits


def test_S3_39_the_record_of_a_claim_keeps_its_peer_and_older_ones_have_none() -> None:
    kept = peered(2, "10.77.0.2", key="public")
    assert from_record(to_record(kept)) == kept
    older = to_record(claim())
    del older["peer"]
    assert from_record(older).peer is None


@pytest.mark.parametrize(
    ("change", "same"), [({"host": "other"}, True), ({"addresses": "10.77.0.128/25"}, True), ({"mtu": 1412}, False)]
)
def test_S3_39_machines_drift_from_what_they_were_made_with(change: dict[str, t.Any], same: bool) -> None:
    one = pool(lanes=(Lane.KUBELET,))
    before, after = (
        generation(node_class(mesh=MeshChoice("wireguard", hub=hub)), one) for hub in (HUB, dataclasses.replace(HUB, **change))
    )
    assert (before == after) is same
