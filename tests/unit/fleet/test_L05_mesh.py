# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that move to the mesh of their class (L-5): which they are, in which order they go, and what holds in every run of it."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    Deletion,
    DisruptionBudget,
    Ledger,
    MeshChoice,
    Peer,
    Phase,
    Plan,
    Pool,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.mesh import mesh_differs, mesh_of, uses_tailnet
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import disruption_budgets
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.migration import (
    MigrationRow,
    migration_result,
    migration_rows,
    pools_of,
    table_row,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import failure_class
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, decide, instance, node, node_class, of, pool, specs
from .test_L05_surge import A, B, C, going, job, launched, new, old, replaced, told, world
from .test_L24_surge import NAMES, TURNS, World

WG, TS = node_class(mesh=MeshChoice("wireguard")), node_class(mesh=MeshChoice("tailscale"))
KEEP = pool(drift_policy="Report")
PEER = Peer("hub-1", "wg-tgp", "10.77.0.9/24", "key")
WAS = "in mesh wireguard, and its class says tailscale"


def there(name: str = A, **facts: t.Any) -> Claim:
    """A machine in the tunnel of a hub, old enough to go."""
    return old(name, **{"generation": "", "mesh_backend": "wireguard", "peer": PEER, **facts})


def moved(name: str = B, **facts: t.Any) -> Claim:
    return new(name, **{"mesh_backend": "tailscale", "generation": "", **facts})


def run(
    claims: t.Sequence[Claim],
    wanted: Pool = KEEP,
    mode: str = "autoscale",
    migrate: t.Sequence[str] = ("default/p",),
    **facts: t.Any,
) -> Plan:
    more, classes = facts.pop("settings", {}), facts.pop("classes", (TS,))
    return decide(world(claims, **facts), specs(wanted, classes=classes), mode, migrate=tuple(migrate), **more)


def table(
    found: Plan, claims: t.Sequence[Claim], wanted: Pool = KEEP, ledger: Ledger = Ledger(), **facts: t.Any
) -> dict[str, MigrationRow]:
    classes = facts.pop("classes", (TS,))
    rows = migration_rows(found, world(claims, **facts), specs(wanted, classes=classes), ["default/p"], CAPABILITIES, ledger)
    return {row.machine: row for row in rows}


# ---- which mesh


@pytest.mark.parametrize(
    ("facts", "mesh"),
    [
        ({"mesh_backend": "wireguard"}, "wireguard"),
        ({"mesh_backend": "tailscale", "peer": PEER}, "tailscale"),
        ({"peer": PEER}, "wireguard"),
        ({"mesh_device_id": "d"}, "tailscale"),
        ({"mesh_key_id": "k"}, "tailscale"),
        ({"mesh_seen": at("11:00")}, "tailscale"),
        ({}, ""),
    ],
)
def test_S3_30_a_claim_tells_its_mesh(facts: dict[str, t.Any], mesh: str) -> None:
    assert mesh_of(claim(**facts)) == mesh
    for node_class_ in (WG, TS, node_class(mesh=MeshChoice("none"))):
        differs = mesh not in ("", node_class_.mesh.backend)
        assert mesh_differs(claim(**facts), node_class_) is differs, "an unknown mesh does not differ"
        expected = mesh == "tailscale" if mesh else node_class_ is TS
        assert uses_tailnet(claim(**facts), node_class_) is expected


def test_L12a_a_class_that_left_the_hub_makes_its_old_machines_no_devices_of_the_tailnet() -> None:
    """Their Node is not Ready for a moment, and no device is online: that is no second witness."""
    found = run([there()], migrate=(), nodes=(node(A, ready=False, ready_since=at("11:00")),), devices=())
    assert not of(found, "destroy")
    joining = there(phase=Phase.JOINING)
    assert failure_class(joining, instance(A), None, TS) == "node_not_registered"
    assert (
        failure_class(dataclasses.replace(joining, mesh_backend="tailscale", peer=None), instance(A), None, WG) == "overlay_offline"
    )


# ---- who goes, and when


def test_S3_30_a_busy_machine_is_replaced_before_it_goes_whatever_its_drift_policy() -> None:
    first = run([there()])
    action = launched(first)
    assert action.detail.endswith(f"replaces {A}, which was {WAS}") and not going(first)
    assert told(first) == {A: f"{WAS}; waits for its replacement {action.name}, which this run launches"}
    waits = run([there(), moved(phase=Phase.BOOTING)])
    assert told(waits) == {A: f"{WAS}; waits for its replacement {B}"} and not of(waits, "launch", "destroy")
    last = run([there(), moved()])
    assert going(last) == {A: WAS} and not of(last, "launch")
    done = run([moved(replaces=A)])
    assert not of(done, "launch", "destroy") and not told(done), "nothing is left to do"


@pytest.mark.parametrize("mode", ["autoscale", "everything", "reap"])
def test_S3_30_without_a_migration_nothing_moves(mode: str) -> None:
    for migrate in ((), ("default/other",)):
        found = run([there()], mode=mode, migrate=migrate)
        assert not of(found, "launch", "destroy") and not told(found)


def test_S3_30_a_pool_with_a_second_class_moves_too() -> None:
    """The guide's way: the old class stays among the documents, and the pool names the new one."""
    second = dataclasses.replace(TS, name="tailnet")
    wanted = dataclasses.replace(KEEP, node_class="tailnet")
    found = decide(world([there()]), specs(wanted, classes=(WG, second)), "autoscale", migrate=("default/p",))
    assert launched(found).claim.node_class == "tailnet"  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["autoscale", "reap"])
def test_S3_30_a_replacement_waits_for_its_machine_in_other_runs_too(mode: str) -> None:
    """autoscale.yml between two passes ends no half of the pair, and begins no drain."""
    idle = node(B, annotations={"tgp.io/idle-since": "2026-08-20T11:40:00Z"})
    times = {"created": at("10:30"), "launch_started": at("10:30"), "registered": at("10:40"), "initialized": at("11:30")}
    found = run([there(), moved(**times)], mode=mode, migrate=(), nodes=(node(A), idle))
    assert not of(found, "launch", "destroy")
    kept = [action.detail for action in of(found, "report") if action.name == B]
    assert kept == [f"idle, but it comes in the place of {A}"]


@pytest.mark.parametrize("mode", ["autoscale", "reap"])
def test_S3_30_a_drain_that_began_goes_on_in_every_run(mode: str) -> None:
    begun = there(deletion=Deletion("Drifted", at("11:59")))
    assert going(run([begun, moved()], mode=mode, migrate=())) == {A: WAS}
    alone = run([begun], mode="reap", migrate=())
    assert not of(alone, "destroy"), "its replacement is gone: it opens again"


def test_S3_30_one_by_one_and_machines_of_the_other_mesh_first() -> None:
    both = [there(A), there(B), old(C, mesh_backend="tailscale")]
    found = run(both, dataclasses.replace(KEEP, drift_policy="Replace", disruption_budgets=(DisruptionBudget("100%"),)))
    assert replaced(found) == [A] and set(told(found)) == {A, B, C}
    two = run(both, dataclasses.replace(KEEP, disruption_budgets=(DisruptionBudget("100%"),)), settings={"max_remove_per_run": 2})
    assert replaced(two) == [A, B] and told(two)[C].endswith("it stays (disruption.driftPolicy: Replace lets it go)")
    closed = run(both, dataclasses.replace(KEEP, disruption_budgets=(DisruptionBudget("0"),)))
    assert not of(closed, "launch", "destroy") and "kept by disruption budget 0" in told(closed)[A]


def test_S3_30_without_room_it_stays_unless_its_pool_lets_it_go_first() -> None:
    tight = (dataclasses.replace(TS, max_nodes=1),)
    found = run([there()], classes=tight)
    assert not of(found, "launch", "destroy") and "(disruption.surge: false lets it go first" in told(found)[A]
    first = run([there()], dataclasses.replace(KEEP, surge=False), classes=tight)
    assert going(first) == {A: WAS}


@pytest.mark.parametrize(
    ("facts", "wanted", "why"),
    [
        ({"nodes": (node(A, ready=False),)}, KEEP, "its Node is not Ready"),
        ({}, dataclasses.replace(KEEP, min_age=10**6), "not yet"),
        ({"pods": (job(A, owner_kind=""),)}, KEEP, "pods that must not be moved"),
        ({"pods": None, "offers": ()}, KEEP, "no replacement can be launched"),
        ({}, pool(request=True), "the machine of a GPURequest is never replaced"),
    ],
)
def test_S3_30_what_keeps_a_machine_is_said(facts: dict[str, t.Any], wanted: Pool, why: str) -> None:
    claims = [there()]
    found = run(claims, wanted, **facts)
    assert not of(found, "launch", "destroy")
    row = table(found, claims, wanted, **facts)[A]
    assert row.state == "kept" and row.detail.startswith(why), row


# ---- the table


def test_S3_40_the_table_has_a_row_for_every_machine() -> None:
    claims = [
        there(A),
        moved(B),
        there(C),
        claim("tgp-a1b2c3d4-p-00005", generation="", mesh_backend=""),
        there("tgp-a1b2c3d4-p-00006", phase=Phase.BOOTING),
        claim("tgp-a1b2c3d4-p-00007", Phase.BOOTING, mesh_backend="tailscale"),
        claim("tgp-a1b2c3d4-p-00008", pool="default/q", mesh_backend="wireguard"),
    ]
    found = run(claims)
    rows = table(found, claims)
    states = {name[-1]: row.state for name, row in rows.items()}
    assert states == {"1": "draining", "2": "moved", "3": "kept", "5": "kept", "6": "kept", "7": "coming"}
    assert rows[C].detail == "kept by disruption budget 10%, the usual one"
    assert rows[A].elapsed == 15 * 60 and rows[A].cost == Decimal("0.42") / 4 and table_row(rows[A])["cost_both"] == "$0.105"
    assert rows["tgp-a1b2c3d4-p-00006"].detail == "it is Booting; it goes when it is Ready"
    result = migration_result(tuple(rows.values()))
    assert (result["moved"], len(result["unfinished"]), result["under_way"]) == (1, 4, True)
    assert set(result["kept"]) == {C, "tgp-a1b2c3d4-p-00005", "tgp-a1b2c3d4-p-00006"} and A not in result["kept"]


def test_S3_40_own_machines_are_no_part_of_it() -> None:
    own = there(cloud="webhook")
    rows = table(run([own]), [own])
    assert rows[A].state == "own machine" and migration_result(tuple(rows.values()))["unfinished"] == []


def test_S3_40_pools_are_named_and_a_class_that_is_gone_is_said() -> None:
    wanted = specs(KEEP, pool(name="q"), classes=(TS,))
    assert pools_of([], wanted) == ("default/p", "default/q")
    assert pools_of(["q"], wanted) == pools_of(["default/q"], wanted) == ("default/q",)
    with pytest.raises(InvalidInput, match="There is no pool r among the documents"):
        pools_of(["q", "r"], wanted)
    rows = table(Plan(), [there()], dataclasses.replace(KEEP, node_class="gone"))
    assert rows[A].state == "kept" and "is not among the documents" in rows[A].detail


# ---- in every run of a small world


class Moving(World):
    """The machines of :class:`World` in a tunnel, and a class that says tailnet."""

    def plan(self, mode: str, migrate: bool = True) -> Plan:
        classes = (dataclasses.replace(TS, max_nodes=self.limit),)
        keys = ("default/p",) if migrate else ()
        return decide(self.observed(), specs(self.pool, classes=classes), mode, allow_mass_delete=True, migrate=keys)


@st.composite
def worlds(draw: t.Any) -> Moving:
    names = NAMES[: draw(st.integers(1, 4))]
    budgets = draw(st.sampled_from([(), (DisruptionBudget("100%"),), (DisruptionBudget("1"),), (DisruptionBudget("0"),)]))
    wanted = pool(disruption_budgets=budgets, min_age=0, **draw(st.sampled_from([{}, {"replicas": len(names)}])))
    made = Moving(wanted, draw(st.integers(len(names), 6)), random.Random(draw(st.integers(0, 10**6))))
    for place, name in enumerate(names):
        began = NOON - timedelta(minutes=40)
        times = {"created": began, "launch_started": began, "registered": began + timedelta(minutes=5)}
        mesh = draw(st.sampled_from(["wireguard", "wireguard", "tailscale"]))
        made.claims[name] = there(name, mesh_backend=mesh, initialized=began + timedelta(minutes=6), **times)
        if draw(st.sampled_from([True, True, False])):
            made.pods.append(job(name, f"job-{place}"))
    return made


@settings(deadline=None, max_examples=80)
@given(worlds())
def test_L24_a_migration_keeps_the_budget_and_drains_nothing_before_its_replacement_is_usable(world: Moving) -> None:
    for turn in range(TURNS):
        claims, pods = dict(world.claims), list(world.pods)
        found = world.plan("autoscale", migrate=turn % 3 != 2)  # autoscale.yml runs in between
        away = [action.name for action in of(found, "destroy") if action.reason == "Drifted"]
        coming = [action.claim.replaces for action in of(found, "launch") if action.claim and action.claim.replaces]
        count = disruption_budgets.Count(sum(one.phase is Phase.READY and not one.replaces for one in claims.values()), 0, 0)
        room = disruption_budgets.room(world.pool, "Drifted", count, world.now).nodes
        most = 1 if room is None else min(1, room)
        assert len(away) + len(coming) <= most
        for name in away:
            new_ones = [one for one in claims.values() if one.replaces == name and one.phase is Phase.READY]
            here = [one for one in pods if one.node == name]
            stay = [
                one for one in claims.values() if one.phase is Phase.READY and one.name != name and one.mesh_backend == "tailscale"
            ]
            free = [one for one in stay if not any(other.node == one.name for other in pods)]
            assert claims[name].mesh_backend == "wireguard"
            assert new_ones or len(here) <= len(free), "usable first, or its pods have a place on the new mesh"
        world.apply(found)
        world.pass_time()


@settings(deadline=None, max_examples=60)
@given(worlds())
def test_L24_a_migration_ends_and_stays_at_its_end(world: Moving) -> None:
    """With room for one more and an open budget every machine moves, whatever dies on the way; then nothing more happens."""
    open_budget = dataclasses.replace(world.pool, disruption_budgets=(), consolidation_policy="Never")
    world = dataclasses.replace(world, pool=open_budget, limit=9)
    for _turn in range(120):
        world.apply(world.plan("autoscale"))
        world.pass_time()
        if all(one.mesh_backend == "tailscale" and one.phase is Phase.READY for one in world.claims.values()):
            break
    assert all(one.mesh_backend == "tailscale" for one in world.claims.values())
    assert not [
        action for action in of(world.plan("autoscale"), "launch", "destroy") if action.reason in ("Drifted", "Replacement")
    ]
