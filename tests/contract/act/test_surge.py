# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drifted or expiring node and its replacement, in runs of autoscale one after the other: which is there first, by the world's log."""

from __future__ import annotations

import typing as t

import httpx
import pytest

from .rig import Rig, moment
from .test_autoscale import ask, complete, runs, scale
from .test_voluntary import change_the_class


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """One usable node with a pod that a controller makes anew, old enough to go."""
    rig.training["disruption"] = {"driftPolicy": "Replace", "consolidateAfter": "1h"}
    ask(rig, "train")
    scale(rig)
    complete(rig)
    runs(rig, "train")
    rig.advance(1200)
    return rig


def replacements(rig: Rig, old: str) -> list[str]:
    return [name for name, one in rig.claims().items() if one["replaces"] == old]


def until_it_is_gone(rig: Rig, name: str, seconds: int = 20) -> list[dict[str, t.Any]]:
    """Runs until a machine is gone; what each of them planned."""
    found = []
    for _run in range(20):
        if name not in rig.claims():
            return found
        found.append(scale(rig))
        assert len(replacements(rig, name)) <= 1 and len(rig.machines()) <= 2
        rig.advance(seconds)
    raise AssertionError(f"{name} is still there")


def watch_the_cordon(rig: Rig, old: str) -> list[dict[str, t.Any]]:
    """The other Nodes as they are when the old one is cordoned."""
    seen: list[dict[str, t.Any]] = []

    def watch(request: httpx.Request) -> None:
        if request.method == "PATCH" and request.url.path == f"/api/v1/nodes/{old}" and b'"unschedulable"' in request.content:
            seen.extend(one for name, one in rig.nodes().items() if name.startswith("tgp-") and name != old)

    rig.watcher = watch
    return seen


def rows(plan: dict[str, t.Any], action: str, reason: str) -> list[str]:
    return [one["detail"] for one in plan["plan"] if (one["action"], one["reason"]) == (action, reason)]


def test_L05_the_replacement_is_usable_before_the_drifted_node_is_cordoned(busy: Rig) -> None:
    old = busy.claim()["name"]
    change_the_class(busy)
    seen = watch_the_cordon(busy, old)
    first = scale(busy)
    (detail,) = rows(first, "launch", "Replacement")
    assert detail.endswith(f"replaces {old}, which was made from an older class or pool")
    assert first["destroy"] == [] and len(busy.machines()) == 2 and seen == []
    (new,) = replacements(busy, old)

    until_it_is_gone(busy, old)
    (node,) = seen
    taints = [one["key"] for one in node["spec"].get("taints", [])]
    ready = next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert node["metadata"]["name"] == new and ready == "True" and "tgp.io/initializing" not in taints
    assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) == 1
    assert busy.claims()[new]["phase"] == "Ready" and len(busy.machines()) == 1 and busy.creates() == 2
    (line,) = busy.ledger()
    assert line["reason"] == "Drifted"
    again = scale(busy)
    assert (again["launch"], again["destroy"]) == ([], [])
    busy.check_bill()


def test_L05_a_plan_of_everything_launches_the_replacement_and_the_next_one_ends_the_old_machine(busy: Rig) -> None:
    """As plan.yml and apply.yml do it, where provision.yml or apply.yml waits for the join."""
    old = busy.claim()["name"]
    change_the_class(busy)
    seen = watch_the_cordon(busy, old)
    found = []
    for _round in range(2):
        plan = busy.plan("everything")
        try:
            busy.run("scale", plan["run_id"], names=plan["launch"] + plan["destroy"], only_named=True, orphans=plan["orphans"])
            busy.run("join", plan["run_id"])
        finally:
            busy.unlock(plan["run_id"])
        found.append(plan)
    assert len(rows(found[0], "launch", "Replacement")) == 1 and found[0]["destroy"] == []
    assert rows(found[1], "destroy", "Drifted") == ["made from an older class or pool"] and found[1]["launch"] == []
    assert [node["metadata"]["name"] for node in seen] == list(busy.claims()) and busy.creates() == 2


def test_L05_without_room_in_the_limits_the_drifted_node_goes_first(busy: Rig) -> None:
    old = busy.claim()["name"]
    busy.training["limits"] = {"maxNodes": 1}
    change_the_class(busy)
    plan = scale(busy)
    assert rows(plan, "destroy", "Drifted") == [
        "made from an older class or pool; without a replacement first: limit:pool.maxNodes"
    ]
    assert old not in busy.claims() and busy.creates() == 1


def test_L04_the_replacement_is_launched_ahead_and_the_end_stays_when_it_was(busy: Rig) -> None:
    claim = busy.claim()
    old, started = claim["name"], moment(claim["launch_started"])
    lead = max(300, 2 * int((moment(claim["initialized"]) - started).total_seconds()))
    age = (busy.clock.now() - started).total_seconds()
    busy.training["disruption"]["expireAfter"] = f"{int(age) + lead + 600}s"
    early = scale(busy)
    assert early["launch"] == [] and early["destroy"] == []
    busy.advance(630)
    plans = until_it_is_gone(busy, old, seconds=30)
    assert len(rows(plans[0], "launch", "Replacement")) == 1 and rows(plans[0], "destroy", "Expired") == []
    (end,) = rows(plans[-1], "destroy", "Expired")
    (new,) = busy.claims()
    assert end.endswith(f"; its replacement {new} is usable")
    (line,) = busy.ledger()
    lived = (moment(line["end"]) - started).total_seconds()
    assert line["reason"] == "Expired" and lived >= int(age) + lead + 600 and busy.creates() == 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("earlier", "number"), [*((0, number) for number in range(1, 6)), (1, 1), (2, 1), (2, 3), (3, 1), (3, 4)])
def test_L02_a_run_killed_while_a_machine_is_replaced_is_finished_with_one_replacement(
    busy: Rig, earlier: int, number: int, after: bool
) -> None:
    """The claim is the record: whichever write was the last one, the next runs make one replacement and let the old machine go. ``earlier``
    runs launch it, let it join and drain the old machine."""
    old = busy.claim()["name"]
    change_the_class(busy)
    for _run in range(earlier):
        scale(busy)
        busy.advance(20)
    with busy.killed_at(number, after=after) as cut:
        scale(busy)
    assert cut.seen >= number or earlier, "the run had fewer writes"
    busy.advance(60)
    until_it_is_gone(busy, old, seconds=60)
    assert len(busy.machines()) == 1 and busy.creates() == 2
    (claim,) = busy.claims().values()
    assert claim["replaces"] == old
