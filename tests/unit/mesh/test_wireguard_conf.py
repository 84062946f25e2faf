# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's file as text: what is whose, and edits that change nothing else."""

from __future__ import annotations

import base64
import ipaddress
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard import conf as conf
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard import peers as peers
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.conf import generate, public_key
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.wireguard_rules import is_key
from hypothesis import given
from hypothesis import strategies as st

CLUSTER = "a1b2c3d4"
CREATED = "2026-11-21T15:00:00Z"
BEGINNING = "[Interface]\nPrivateKey = AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8=\nAddress = 10.77.0.1/24\n"


def key(number: int) -> str:
    return base64.b64encode(bytes([number % 256, number // 256]) + bytes(30)).decode()


def name(number: int, cluster: str = CLUSTER) -> str:
    return f"tgp-{cluster}-training-{number:05d}"


def spec(number: int, address: str = "") -> peers.WantedPeer:
    return peers.WantedPeer(
        name(number), key(number), (ipaddress.ip_network(address or f"10.77.{number // 200}.{number % 200 + 2}/32"),)
    )


def block(number: int, cluster: str = CLUSTER) -> str:
    one = spec(number)
    return conf.peer_text(name(number, cluster), CREATED, one.public_key, one.allowed)


# ---- keys


def test_S1_32_the_public_key_of_a_private_one() -> None:
    assert public_key("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8=") == "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="


def test_S1_32_generated_keys_are_valid_and_belong_together() -> None:
    private, public = generate()
    assert is_key(private) and is_key(public) and public_key(private) == public
    assert generate()[0] != private


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF9=",  # bits behind the last byte
        "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8",  # no padding
        "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=\n",
        "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8é",
        "j0DFrbaPJWJK5bIU6nZ6-slNgp09e14a0bpvPiE4KF8=",  # the alphabet of URLs
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert not is_key(text)
    with pytest.raises(ValueError) as caught:
        public_key(text)
    assert text == "" or text not in str(caught.value)


# ---- reading


def test_sections_end_with_their_last_setting() -> None:
    text = (
        BEGINNING
        + "\n# my laptop\n[ peer ]\nPublicKey="
        + key(1)
        + "\nallowedips = 10.77.0.9\nAllowedIPs=fd00::/64, 10.1.2.3/8\n# end\n"
    )
    interface, peer = conf.sections(text)
    assert text[interface.start : interface.end] == BEGINNING
    assert text[peer.start : peer.end].startswith("[ peer ]") and text[peer.end :] == "# end\n"
    assert (peer.line, peer.public_key, peer.owner) == (6, key(1), "")
    assert [str(net) for net in peer.allowed] == ["10.77.0.9/32", "fd00::/64", "10.0.0.0/8"]
    assert [line for line in text.split("\n") if conf.is_secret(line)] == [BEGINNING.split("\n")[1]]
    assert conf.is_secret(" pre shared key=x") and not conf.is_secret("# PrivateKey = x") and not conf.is_secret("PublicKey = x")
    assert [str(net) for net in conf.addresses([interface, peer])] == ["10.77.0.1/32"]


def test_whose_a_peer_is_stands_in_one_comment_inside_its_section() -> None:
    ours = f"# tgp: {name(1)} {CREATED}"
    inside = f"[Peer]\n{ours}\nPublicKey = {key(1)}\n"
    before_the_next = f"[Peer]\nPublicKey = {key(2)}\n{ours}\n[Peer]\nPublicKey = {key(3)}\n"
    two = f"[Peer]\n{ours}\n# tgp: {name(2)} {CREATED}\nPublicKey = {key(4)}\n"
    prose = f"[Peer]\n{ours} and more words\nPublicKey = {key(5)}\n"
    beside = f"[Peer]\nPublicKey = {key(6)} {ours}\n{ours}\nAllowedIPs = 10.77.0.9/32\n"
    found = conf.sections(BEGINNING + inside + before_the_next + two + prose + beside)
    assert [one.owner for one in found] == ["", name(1), "", "", "", "", ""]
    assert found[1].created == CREATED


@pytest.mark.parametrize(
    ("text", "words"),
    [("[Interface]\n[Pear]\n", "Line 2"), ("[Interface]\n\n[Peer]\nAllowedIPs = 10.0.0.1/32\n", "line 3 has no PublicKey")],
)
def test_what_wg_would_refuse_is_not_read(text: str, words: str) -> None:
    with pytest.raises(conf.Unreadable, match=words):
        conf.sections(text)


# ---- editing never changes what is somebody else's

comment = st.sampled_from(
    ["", "# laptop", "  # home \t", "#", "# tgp: notes", f"# tgp: {name(7)} {CREATED}", "# caf\udce9", "\r", "\x0c"]
)
setting = st.sampled_from(["PersistentKeepalive = 25", "AllowedIPs = 192.168.10.0/24 # home", "Endpoint=h:1\r", "presharedkey = x"])


@st.composite
def foreign(draw: st.DrawFn) -> str:
    """Lines before a header, a header with a key, and more lines behind."""
    number = draw(st.integers(min_value=300, max_value=330))
    owner = draw(st.sampled_from(["", f"# tgp: {name(1, 'ffffffff')} {CREATED}", "# tgp: somebody"]))
    head = draw(st.sampled_from(["[Peer]", "[peer]  # a", " [ PEER ]"]))
    lines = [*draw(st.lists(comment, max_size=3)), head, *([owner] if owner else []), f"PublicKey = {key(number)}"]
    lines += draw(st.lists(st.one_of(comment, setting), max_size=4))
    return "".join(f"{line}\n" for line in lines)


files = st.lists(foreign(), max_size=3).map(lambda parts: BEGINNING + "".join(parts))


@given(files, st.booleans(), st.data())
def test_added_and_removed_again_in_any_order_is_the_text_of_before(text: str, whole: bool, data: st.DataObject) -> None:
    text = text if whole else text.removesuffix("\n")
    numbers = data.draw(st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=4, unique=True))
    edited = text
    for number in numbers:
        edited = conf.appended(edited, block(number))
        assert edited.startswith(text)
    for number in data.draw(st.permutations(numbers)):
        edited = conf.without(edited, next(one for one in conf.sections(edited) if one.owner == name(number)))
    assert edited == text


@given(st.lists(foreign(), min_size=1, max_size=4), st.data())
def test_bytes_of_others_stay_whatever_is_removed_between_them(parts: list[str], data: st.DataObject) -> None:
    pieces: list[str] = [BEGINNING]
    numbers = iter(range(1, 50))
    for part in parts:
        pieces += [f"\n{block(next(numbers))}" for _one in range(data.draw(st.integers(min_value=0, max_value=2)))]
        pieces.append(part)
    text = "".join(pieces)
    change = peers.decide(text, CLUSTER, [], "exact", CREATED, allow_mass_delete=True)
    assert change.text == BEGINNING + "".join(parts)


@given(files, st.lists(st.integers(min_value=1, max_value=9), unique=True, max_size=4), st.data())
def test_a_renewed_peer_changes_its_own_section_only(text: str, numbers: list[int], data: st.DataObject) -> None:
    for number in numbers:
        text = conf.appended(text, block(number))
    if not numbers:
        return
    chosen = data.draw(st.sampled_from(numbers))
    new = peers.WantedPeer(name(chosen), key(100), (ipaddress.ip_network("10.99.0.1/32"),))
    change = peers.decide(text, CLUSTER, [new], "present", CREATED)
    assert change.text == text.replace(block(chosen), conf.peer_text(new.name, CREATED, new.public_key, new.allowed))
    assert (change.added, change.removed, change.gone) == ((new.name,), (), (key(chosen),))
    again = peers.decide(change.text, CLUSTER, [new], "present", "2027-01-01T00:00:00Z")
    assert again.text == change.text and not again.added


# ---- decisions


def decide(text: str, wanted: t.Sequence[peers.WantedPeer], state: str = "exact", **more: bool) -> peers.Change:
    return peers.decide(text, CLUSTER, wanted, state, CREATED, **more)


def hub(*numbers: int) -> str:
    return BEGINNING + "".join("\n" + block(number) for number in numbers)


def test_exact_brings_the_cluster_s_peers_in_line_and_no_others() -> None:
    others = "\n" + block(50, "ffffffff") + f"\n[Peer]\nPublicKey = {key(51)}\nAllowedIPs = 192.168.10.0/24\n"
    change = decide(hub(1, 2) + others, [spec(2), spec(3)])
    assert change.text == hub(2) + others + "\n" + block(3)
    assert (change.added, change.removed, change.kept, change.gone) == ((name(3),), (name(1),), (name(2),), (key(1),))


def test_present_adds_and_removes_nothing() -> None:
    change = decide(hub(1), [spec(2)], "present")
    assert change.text == hub(1, 2) and (change.removed, change.kept) == ((), (name(1),))


def test_absent_needs_names_only() -> None:
    change = decide(hub(1, 2), [peers.WantedPeer(name(1), "", ()), peers.WantedPeer(name(9), "", ())], "absent")
    assert change.text == hub(2) and change.removed == (name(1),)


def test_absent_with_another_key_or_network_than_is_there_is_refused() -> None:
    assert decide(hub(1), [spec(1)], "absent").text == hub()
    for given_peer in (peers.WantedPeer(name(1), key(2), ()), peers.WantedPeer(name(1), "", spec(2).allowed)):
        with pytest.raises(peers.InvalidInput, match="another key or other networks"):
            decide(hub(1), [given_peer], "absent")


def test_a_machine_that_is_there_twice_is_there_once_afterwards() -> None:
    change = decide(hub(1, 2, 1), [spec(1), spec(2)])
    assert change.text == hub(1, 2) and change.added == (name(1),) and change.gone == ()


def test_a_key_may_go_over_to_another_machine_when_the_former_goes() -> None:
    heir = peers.WantedPeer(name(2), key(1), spec(1).allowed)
    change = decide(hub(1), [heir])
    assert (change.added, change.removed, change.gone) == ((name(2),), (name(1),), ())
    with pytest.raises(peers.InvalidInput, match=f"public_key belongs to the peer in line 5, {name(1)}"):
        decide(hub(1), [heir], "present")


@pytest.mark.parametrize(("known", "planned", "refused"), [(3, 3, False), (4, 4, True), (8, 4, False), (8, 5, True), (9, 5, True)])
def test_L12_exact_never_removes_many_at_once(known: int, planned: int, refused: bool) -> None:
    text, wanted = hub(*range(1, known + 1)), [spec(number) for number in range(planned + 1, known + 1)]
    if refused:
        with pytest.raises(
            peers.GuardRefused, match=f"guard_refused: {planned} of {known} wireguard peers would be removed at once"
        ):
            decide(text, wanted)
    assert len(decide(text, wanted, allow_mass_delete=True).removed) == planned
    if not refused:
        assert len(decide(text, wanted).removed) == planned


def test_L22_peers_of_machines_whose_claims_cannot_be_read_stay() -> None:
    assert peers.decide(hub(1, 2), CLUSTER, [], "exact", CREATED, unknown=[name(2)]).text == hub(2)


def test_L12_peers_of_machines_that_are_known_to_be_gone_are_not_many_at_once() -> None:
    known = [name(number) for number in range(1, 6)]
    assert peers.decide(hub(1, 2, 3, 4, 5), CLUSTER, [], "exact", CREATED, gone=known).text == hub()
    with pytest.raises(peers.GuardRefused, match="4 of 4 wireguard peers"):
        peers.decide(hub(1, 2, 3, 4, 5), CLUSTER, [], "exact", CREATED, gone=known[:1])


def test_L12_peers_named_one_by_one_are_not_many_at_once() -> None:
    assert decide(hub(1, 2, 3, 4, 5), [spec(number) for number in range(1, 6)], "absent").text == hub()


def test_L12_renewed_peers_are_not_removed_ones() -> None:
    wanted = [peers.WantedPeer(name(number), key(number + 100), spec(number).allowed) for number in range(1, 6)]
    assert len(decide(hub(1, 2, 3, 4, 5), wanted).added) == 5


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            f"[Peer]\nPublicKey = {key(51)}\nAllowedIPs = 10.77.0.3\n",
            "10.77.0.3/32 is, or overlaps, an address of the peer in line 4",
        ),
        (f"[Peer]\nPublicKey = {key(51)}\nAllowedIPs = 10.77.0.0/28\n", "overlaps, an address of the peer in line 4"),
        (f"[Peer]\nPublicKey = {key(1)}\nAllowedIPs = 10.99.0.1/32\n", "public_key belongs to the peer in line 4"),
        (block(1, "ffffffff"), f"belongs to the peer in line 4, {name(1, 'ffffffff')}"),
    ],
)
def test_what_another_peer_has_is_refused(other: str, words: str) -> None:
    with pytest.raises(peers.InvalidInput, match="collide with others") as caught:
        decide(BEGINNING + other, [spec(1)])
    assert words in str(caught.value)


def test_neighbours_do_not_collide() -> None:
    text = BEGINNING + f"[Peer]\nPublicKey = {key(51)}\nAllowedIPs = 10.77.0.4/30, fd00::/8\n"
    assert decide(text, [spec(1)]).added == (name(1),)  # 10.77.0.3


def test_the_hub_s_own_address_is_refused() -> None:
    with pytest.raises(peers.InvalidInput, match="has the hub's own address in it"):
        decide(hub(), [spec(1, "10.77.0.1/32")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"no \[Interface\]"),
        (block(1), r"no \[Interface\]"),
        (BEGINNING + "saveconfig = True\n", "SaveConfig = true"),
        (BEGINNING + "[Peer]\n", "no PublicKey"),
        (BEGINNING + f"[Peer]\nPublicKey = {key(1)}\nAllowedIPs = home\n", "AllowedIPs of the peer in line 4 cannot be read: home"),
    ],
)
def test_files_that_are_not_edited(text: str, words: str) -> None:
    with pytest.raises(peers.InvalidInput, match=words):
        decide(text, [])


def test_saveconfig_false_is_no_hindrance() -> None:
    assert decide(BEGINNING + "SaveConfig = false\n", [spec(1)]).added == (name(1),)


# ---- what is given


def entry(number: int, **more: t.Any) -> dict[str, t.Any]:
    return {"name": name(number), "public_key": key(number), "allowed_ips": [f"10.77.0.{number + 2}/32"], **more}


@pytest.mark.parametrize(
    ("given_peers", "words"),
    [
        ([entry(1, name=name(1, "ffffffff"))], "is not a machine name of cluster a1b2c3d4"),
        ([entry(1, name="laptop")], "is not a machine name"),
        ([entry(1, public_key="short")], "public_key is not a WireGuard key"),
        ([entry(1, public_key=None)], "public_key is not a WireGuard key"),
        ([entry(1, allowed_ips=None)], "allowed_ips is missing"),
        ([entry(1, allowed_ips=["10.77.0.11"])], "10.77.0.11 has no prefix length"),
        ([entry(1, allowed_ips=["10.77.0.11/24"])], "10.77.0.11/24 has host bits set"),
        ([entry(1, allowed_ips=["10.77.0.300/32"])], "10.77.0.300"),
        ([entry(1), entry(2, name=name(1))], "is given twice"),
        ([entry(1), entry(2, public_key=key(1))], "have the same public_key"),
        ([entry(1), entry(2, allowed_ips=["10.77.0.0/28"])], "have both 10.77.0.0/28"),
    ],
)
def test_peers_that_are_refused_before_anything_is_read(given_peers: list[dict[str, t.Any]], words: str) -> None:
    with pytest.raises(peers.InvalidInput) as caught:
        peers.specs(CLUSTER, given_peers, "exact")
    assert words in str(caught.value)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(peers.InvalidInput) as caught:
        peers.specs("nonsense", [entry(1, public_key="short", allowed_ips=["x"])], "present")
    assert len(caught.value.problems) == 4


def test_absent_takes_names_alone() -> None:
    assert peers.specs(CLUSTER, [{"name": name(1)}, {"name": name(2)}], "absent")[0] == peers.WantedPeer(name(1), "", ())
