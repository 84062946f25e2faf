# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a configuration may be sent to, and the wire form of messages."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api import machine
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api.peer import networks, refusal, vouched
from hypothesis import given
from hypothesis import strategies as some


def at(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize(
    ("peer", "own", "trusted", "may"),
    [
        ("100.101.1.2", "100.64.0.9", [], True),
        ("fd7a:115c:a1e0::5", "fd7a:115c:a1e0::9", [], True),
        ("::ffff:100.101.1.2", "::ffff:100.64.0.9", [], True),
        ("100.101.1.2", "192.168.1.4", [], False),  # a provider's own network uses these addresses as well
        ("100.101.1.2", "192.168.1.4", ["100.101.1.0/24"], True),
        ("10.1.2.3", "10.1.2.9", [], False),
        ("10.1.2.3", "10.1.2.9", ["10.1.2.0/24"], True),
        ("10.1.3.3", "10.1.2.9", ["10.1.2.0/24"], False),
        ("203.0.113.7", "203.0.113.9", ["203.0.113.7"], True),
        ("203.0.113.7", "100.64.0.9", [], False),
        ("127.0.0.1", "127.0.0.1", [], False),
    ],
)
def test_who_vouches_for_a_peer(peer: str, own: str, trusted: list[str], may: bool) -> None:
    assert vouched(at(peer), at(own), networks(trusted)) is may


def test_an_address_of_the_mesh_outside_the_mesh_is_explained() -> None:
    error = refusal("lab-1", at("100.101.1.2"), at("192.168.1.4"))
    assert "the way to it does not begin in the mesh (this machine would use 192.168.1.4)" in str(error)


@given(some.integers(0, 2**64 - 1), some.binary(max_size=300), some.integers(1, 2**20))
def test_what_is_written_is_read_back(number: int, data: bytes, field: int) -> None:
    fields = machine.read(machine.field_number(field, number) + machine.block(field + 1, data) + machine.block(field + 1, data))
    assert machine.integer(fields, field) == number
    assert fields.get(field + 1, []) == ([data, data] if data else [])


@given(some.binary(max_size=60))
def test_no_bytes_are_misread_or_break_the_reader(data: bytes) -> None:
    try:
        machine.read(data)
    except BadShape:
        pass


def test_fields_of_fixed_length_are_passed_over() -> None:
    message = b"\x09" + b"12345678" + b"\x15" + b"1234" + machine.block(3, b"text")
    assert machine.text(machine.read(message), 3) == "text"
    for broken in (b"\x09123", b"\x15", b"\x1b", b"\x0a\x05abc", b"\xff" * 11, b"\x00\x01"):
        with pytest.raises(BadShape):
            machine.read(broken)
