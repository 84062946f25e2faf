# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which peers of a hub go when a list lacks them."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard import conf as conf
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.peers import Change, decide

from tests.fixtures.wireguard_programs import HUB_FILE

CLUSTER = "a1b2c3d4"
KEY = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="
NAME = f"tgp-{CLUSTER}-training-00000"


def without_it(created: str, now: str = "2026-01-01T12:00:00Z", **facts: t.Any) -> Change:
    """What becomes of a hub with one peer of ours, added then, when a list without it is brought in line now."""
    text = conf.appended(HUB_FILE, conf.peer_text(NAME, created, KEY, ()).replace("AllowedIPs = ", "AllowedIPs = 10.77.0.11/32"))
    return decide(text, CLUSTER, (), "exact", now, **facts)


@pytest.mark.parametrize(
    ("created", "stays"),
    [
        ("2026-01-01T11:50:01Z", True),
        ("2026-01-01T11:50:00Z", False),
        ("2026-01-01T12:00:00Z", True),
        ("2026-01-01T12:00:01Z", False),  # the hub's clock was set back: nothing says how old the peer is
        ("yesterday", False),
        ("", False),
    ],
)
def test_S1_32_a_young_peer_that_the_list_lacks_stays(created: str, stays: bool) -> None:
    found = without_it(created, keep_younger_than=600)
    assert (found.kept, found.removed) == (((NAME,), ()) if stays else ((), (NAME,)))


def test_S1_32_a_young_peer_whose_machine_is_known_to_be_gone_goes() -> None:
    assert without_it("2026-01-01T11:59:59Z", keep_younger_than=600, gone=(NAME,)).removed == (NAME,)


def test_S1_32_exact_is_exact_unless_somebody_asks_for_young_peers_to_stay() -> None:
    assert without_it("2026-01-01T11:59:59Z").removed == (NAME,)
