# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-12: what a single look can prove, and what it cannot: lists that are suddenly empty, and the first run of all."""

from __future__ import annotations

import typing as t
from datetime import datetime

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Phase, Plan

from .build import at, claim, decide, deletions, device, instance, node, of, offer, one, seen, specs

KNOWN = claim("tgp-a1b2c3d4-p-00002")
LOST = claim(
    "tgp-a1b2c3d4-p-00001", Phase.PROVISIONING, offer=offer("0.40"), launch_started=at("11:50"), unknown_since=at("11:50:30")
)


def after_the_window(listed: t.Any = (), known: t.Sequence[Claim] = (KNOWN,), now: datetime = at("12:01")) -> Plan:
    """A create call whose answer was lost, ten and a half minutes later; another machine of ours was there in the last run."""
    facts = {"claims": (LOST, *known), "nodes": (node(KNOWN.name),), "offers": (offer("0.40"), offer("0.42"))}
    return decide(seen(now, instances=listed, **facts), specs(p=2), "provision")


def test_L12_an_empty_list_of_a_cloud_that_showed_machines_has_to_be_confirmed() -> None:
    """Else a cloud that forgets everything for a moment is sent a second create call."""
    first = after_the_window()
    assert not of(first, "resume", "launch") and "a second list has to confirm that" in one(first, "report").detail
    missing = next(action.claim for action in of(first, "update") if action.name == KNOWN.name)
    assert missing is not None and missing.gone_since == at("12:01")
    early = after_the_window(known=(missing,), now=at("12:01:29"))
    assert not of(early, "resume", "launch")
    confirmed = after_the_window(known=(missing,), now=at("12:01:30"))
    assert one(confirmed, "resume").name == LOST.name


@pytest.mark.parametrize(
    ("listed", "known"),
    [((instance(KNOWN.name),), (KNOWN,)), ((), ()), ((), (claim(KNOWN.name, Phase.PENDING),))],
    ids=["one of ours is listed", "nothing was known", "nothing was rented yet"],
)
def test_L12_other_lists_are_believed_at_once(listed: t.Any, known: t.Any) -> None:
    assert LOST.name in [action.name for action in of(after_the_window(listed, known), "resume")]


def test_L12_a_strangers_machine_makes_no_list_of_ours() -> None:
    assert not of(after_the_window((instance("tgp-ffffffff-p-00009"),)), "resume")


def test_L12_the_first_run_of_all_only_reports() -> None:
    """After the installation nothing has been seen twice: whatever is left behind of an earlier life is listed and left alone."""
    facts: dict[str, t.Any] = {
        "instances": (instance("tgp-a1b2c3d4-p-0000a", created=at("08:00")), instance("tgp-a1b2c3d4-p-0000b", created=at("08:00"))),
        "nodes": (
            node("tgp-a1b2c3d4-p-0000b", ready=False, ready_since=at("09:00")),
            node("tgp-a1b2c3d4-p-0000c", ready=False, ready_since=at("09:00")),
        ),
        "devices": (device("tgp-a1b2c3d4-p-0000d", last_seen=at("09:00")),),
    }
    first = decide(seen(**facts))
    assert not deletions(first) and not of(first, "delete_extra")
    assert sorted(first.findings) and {"O1", "O4"} <= {action.reason for action in of(first, "report")}
    later = decide(seen(at("12:01"), findings=first.findings, **facts))
    assert {action.kind for action in deletions(later)} == {"destroy", "delete_node", "delete_device"}


@pytest.mark.parametrize(("known", "goes"), [("i-old", "i-new"), ("i-new", "i-old"), ("", "i-new")])
def test_L12_O11_of_two_machines_under_one_name_the_known_one_stays_else_the_oldest(known: str, goes: str) -> None:
    phase = Phase.READY if known else Phase.PROVISIONING
    mine = claim(KNOWN.name, phase, instance_id=known, ids_seen=(known,) if known else (), launch_started=at("11:00"))
    pair = tuple(instance(KNOWN.name, id=one, created=at(when)) for one, when in (("i-new", "11:02"), ("i-old", "11:01")))
    found = decide(
        seen(claims=(mine,), instances=pair, nodes=(node(KNOWN.name),) if known else (), pods=None), specs(p=1), "provision"
    )
    assert [action.target for action in of(found, "delete_instance")] == [goes] and not of(found, "destroy")
