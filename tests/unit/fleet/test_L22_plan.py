# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22: one run; what the modes do, and how a plan is shown."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, Deletion, InstanceState, MeshChoice, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans import view as plan_view

from .build import CAPABILITIES, at, claim, decide, instance, node, node_class, of, offer, one, pod, pool, seen, specs


def test_L22_provision_launches_what_is_missing() -> None:
    observed = seen(claims=(claim(),), nodes=(node(),), instances=(instance(),), offers=(offer("0.50"), offer("0.42")), pods=None)
    found = decide(observed, specs(p=2), "provision")
    launched = one(found, "launch")
    assert launched.claim is not None and launched.price_hour == Decimal("0.42")
    made = launched.claim
    assert (made.phase, made.pool, made.node_class, made.index) == (Phase.PENDING, "default/p", "c", 1)
    assert made.launch_started is None and made.reserved_price == Decimal("0.42") and made.node_name == made.name
    assert [one.id for one in made.candidates] == ["g-0.50"]


def test_L22_provision_twice_changes_nothing() -> None:
    observed = seen(claims=(claim(),), nodes=(node(),), instances=(instance(),), offers=(offer(),), pods=None)
    settled = {action.name: action.claim for action in of(decide(observed, specs(p=1), "provision"), "update") if action.claim}
    assert settled and observed.claims is not None
    claims = tuple(settled.get(one.name, one) for one in observed.claims)
    again = decide(dataclasses.replace(observed, claims=claims), specs(p=1), "provision")
    assert again.actions == ()


def test_L22_request_is_exactly_one_and_min_nodes_is_a_demand() -> None:
    request = pool("r", request=True)
    assert len(of(decide(seen(offers=(offer(),)), specs(request), "provision"), "launch")) == 1
    mine = claim(pool="default/r")
    assert not of(decide(seen(claims=(mine,), offers=(offer(),)), specs(request), "provision"), "launch")
    floor = decide(seen(offers=(offer(),)), specs(pool(min_nodes=7)), "provision")
    assert len(of(floor, "launch")) == 5 and floor.shortfall[0].reason == "max_launch_per_run" and floor.shortfall[0].missing == 2
    assert len(of(decide(seen(offers=(offer(),)), specs(pool(min_nodes=2), p=7), "provision"), "launch")) == 7
    assert not of(decide(seen(offers=(offer(),)), specs(), "provision"), "launch")


def test_L22_who_names_a_pool_rents_for_no_other() -> None:
    wanted = specs(pool(), pool("q", min_nodes=1), pool("r", request=True), p=1)
    assert [action.pool for action in of(decide(seen(offers=(offer(),)), wanted, "provision"), "launch")] == ["default/p"]
    lost = claim("tgp-a1b2c3d4-q-00002", Phase.PENDING, pool="default/q", offer=offer())
    begun = decide(seen(claims=(lost,), offers=(offer(),)), wanted, "provision")
    assert [one.pool for one in of(begun, "launch", "resume")] == ["default/q", "default/p"], "what was begun is not dropped"


def test_L22_provision_never_removes() -> None:
    machines = [claim(f"tgp-a1b2c3d4-p-0000{place}") for place in range(3)]
    found = decide(seen(claims=machines), specs(p=1), "provision")
    assert not of(found, "destroy") and "wanted are 1" in found.warnings[0]


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.JOINING])
def test_L22_unfinished_machines_are_resumed_and_counted(phase: Phase) -> None:
    young = claim(phase=phase, launch_started=at("11:50"))
    found = decide(seen(claims=(young,), instances=(instance(),), offers=(offer(),)), specs(p=1), "provision")
    assert of(found, "resume") and not of(found, "launch")


def test_L22_pending_claim_goes_on_with_the_prices_of_now() -> None:
    stale = claim(phase=Phase.PENDING, offer=offer("0.39", id="sold-out"))
    found = decide(seen(claims=(stale,), offers=(offer("0.45", id="now"),)), specs(p=1), "provision")
    resumed = one(found, "resume")
    assert resumed.claim is not None and resumed.claim.offer.id == "now" and resumed.price_hour == Decimal("0.06")
    limited = specs(pool(max_hourly_price=Decimal("0.40")), p=1)
    stuck = decide(seen(claims=(stale,), offers=(offer("0.45", id="now"),)), limited, "provision")
    assert not of(stuck, "resume", "launch") and stuck.shortfall[0].reason == "maxHourlyPrice"


def test_L22_nothing_is_rented_where_machines_or_offers_are_unknown() -> None:
    for view in (CloudView(None, (offer(),), "503"), CloudView((), None, "503")):
        found = decide(seen(clouds={"lambda": view}), specs(p=1), "provision")
        assert not of(found, "launch") and found.shortfall[0].reason.startswith("lambda: ") and "503" in found.warnings[0]
    other = {"lambda": CloudView(None), "vast": CloudView((), (offer("0.9", cloud="vast"),))}
    both = specs(classes=(node_class(clouds=("lambda", "vast")),), p=1)
    assert one(decide(seen(clouds=other), both, "provision"), "launch").claim.cloud == "vast"  # type: ignore[union-attr]


def test_L22_nothing_is_rented_without_the_mesh_it_needs() -> None:
    found = decide(seen(devices=None, offers=(offer(),)), specs(p=1), "provision")
    assert not of(found, "launch") and found.shortfall[0].reason == "mesh unknown" and found.problems
    without = specs(classes=(node_class(mesh=MeshChoice(backend="none")),), p=1)
    assert of(decide(seen(devices=None, offers=(offer(),)), without, "provision"), "launch")


def test_L22_reap_never_launches_and_reports_what_it_keeps() -> None:
    found = decide(seen(claims=(claim(),), nodes=(node(),), instances=(instance(),), pods=(pod(),), offers=(offer(),)), specs(p=5))
    kept = one(found, "report")
    assert not of(found, "launch", "destroy") and (kept.reason, kept.detail) == ("Kept", "busy: pod default/job")


def test_L22_a_claim_of_version_0_1_without_a_document_is_kept_and_people_are_told() -> None:
    lonely = claim(pool="default/gone", node_class="gone")
    found = decide(seen(claims=(lonely,), nodes=(node(),), instances=(instance(),)))
    assert not of(found, "destroy") and "no document describes its pool" in one(found, "report").detail
    assert "holds no limits" in " ".join(found.warnings)
    assert [notice.kind for notice in found.notices] == ["document_gone"] and "$0.42/h" in found.notices[0].text


def test_L09_an_interrupted_drain_is_taken_back_when_its_pool_is_no_longer_described() -> None:
    begun = node(annotations={"tgp.io/drain-started": "2026-08-20T11:50:00Z"}, unschedulable=True)
    lonely = claim(pool="default/gone", node_class="gone", deletion=Deletion("Empty", at("11:50")))
    found = decide(seen(claims=(lonely,), nodes=(begun,), instances=(instance(),)))
    kept = one(found, "update").claim
    assert kept is not None and kept.deletion is None and one(found, "restore").target == begun.name


def destroying(**what: t.Any) -> t.Any:
    claims = (claim("tgp-a1b2c3d4-p-00001"), claim("tgp-a1b2c3d4-q-00002", pool="other/q"))
    going = claim("tgp-a1b2c3d4-p-00003", Phase.TERMINATING, deletion=Deletion("Empty", at("11:50")))
    machines = (instance("tgp-a1b2c3d4-p-00001"), instance("tgp-a1b2c3d4-q-00002"), instance("tgp-a1b2c3d4-x-00009", id="i-9"))
    observed = seen(claims=(*claims, going), instances=machines, nodes=())
    return decide(observed, specs(pool(), pool("empty")), "destroy", destroy=Destroy(**what))


def test_L22_destroy_takes_what_was_asked_for() -> None:
    def names(found: t.Any) -> list[str]:
        return [action.name[-7:] for action in of(found, "destroy")]

    assert names(destroying(names=("tgp-a1b2c3d4-p-00001",))) == ["p-00001"]
    assert names(destroying(names=("i-00001",))) == ["p-00001"]
    assert names(destroying(pools=("other/q",))) == ["q-00002"]
    assert names(destroying(pools=("p",))) == ["p-00001", "p-00003"]
    assert names(destroying(all=True)) == ["p-00001", "p-00003", "q-00002"]
    assert names(destroying()) == []
    assert not destroying(pools=("empty",)).problems
    assert destroying(names=("typo",), pools=("nope",)).problems == (
        "There is no machine named typo.",
        "There is no pool nope.",
    )


@pytest.mark.parametrize("name", ["tgp-a1b2c3d4-x-00009", "i-9"])
def test_L22_destroy_reaches_a_named_machine_without_claim_and_keeps_old_reasons(name: str) -> None:
    found = destroying(names=(name,), force=True)
    action = one(found, "destroy")
    assert action.claim is not None and action.claim.deletion is not None and not found.problems
    assert action.claim.deletion.force and action.claim.ids_seen == ("i-9",) and action.reason == "Manual"
    forced = destroying(pools=("p",), force=True)
    ending = next(action.claim for action in of(forced, "destroy") if action.name.endswith("00003"))
    assert ending is not None and ending.deletion == Deletion("Empty", at("11:50"), force=True)


def test_L22_status_decides_nothing() -> None:
    failed = claim(phase=Phase.FAILED)
    assert not decide(seen(claims=(failed,)), mode="status").actions


def test_L22_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no mode"):
        plan(seen(), specs(), Settings(mode="grow"), CAPABILITIES, "run-1")


def test_L22_view_shows_prices_and_is_json() -> None:
    observed = seen(claims=(claim(),), offers=(offer("0.345"),), nodes=(node(),), instances=(instance(),))
    found = decide(observed, specs(classes=(node_class(max_nodes=2),), p=3), "provision")
    summary = plan_view.summary(found, observed)
    assert (summary["cost_hour_now"], summary["cost_hour_after"]) == ("0.42", "0.765")
    assert (summary["cost_day_now"], summary["cost_day_after"]) == ("10.08", "18.36")
    assert summary["missing"] == 1 and summary["shortfall"][0]["reason"] == "limit:maxNodes"
    row = plan_view.rows(found)[-1]
    assert (row["action"], row["price_hour"], row["price_day"], row["gpus"]) == ("launch", "+0.345", "+8.28", "1 × A10")
    headings = plan_view.headings(plan_view.rows(found))
    assert list(headings.items())[0] == ("action", "action") and headings["price_hour"] == "price/hour"
    assert set(headings) <= set(plan_view.COLUMNS) and plan_view.headings([]) == {}
    for content in (summary, plan_view.rows(found)):
        json.dumps(content)


def test_L22_destroy_and_duplicate_rows_have_a_minus() -> None:
    twins = (instance(), instance(id="second", created=at("11:30")))
    observed = seen(claims=(claim(),), instances=twins, nodes=(node(),), pods=(pod(),))
    rows = {row["action"]: row for row in plan_view.rows(decide(observed))}
    assert (rows["delete_instance"]["price_hour"], rows["delete_instance"]["cloud"]) == ("-0.42", "lambda")
    gone = decide(seen(claims=(claim(phase=Phase.FAILED),)))
    assert plan_view.rows(gone)[0]["price_hour"] == "-0.42"


@pytest.mark.slow
def test_P05_plan_of_a_thousand_machines() -> None:
    """Size, not speed, is asserted: time is printed for whoever looks."""
    claims = tuple(claim(f"tgp-a1b2c3d4-p-{place:05d}") for place in range(1000))
    nodes = tuple(node(made.name) for made in claims)
    machines = tuple(instance(made.name, InstanceState.RUNNING) for made in claims)
    pods = tuple(pod(f"pod-{place}", node=claims[place % 1000].name) for place in range(10000))
    offers = tuple(offer(f"{place % 90 + 10}.5", id=f"o-{place}") for place in range(5000))
    observed = seen(claims=claims, nodes=nodes, instances=machines, pods=pods, offers=offers)
    for mode in ("reap", "provision"):
        begin = time.perf_counter()
        found = decide(observed, specs(p=1100), mode)
        print(f"{mode}: {time.perf_counter() - begin:.2f} s, {len(found.actions)} actions")
    assert len(of(found, "launch")) == 100
