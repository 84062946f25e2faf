# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17, L-4: a request whose machine went by its own limits is not rented for again by a timer."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Plan, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION

from .build import at, claim, decide, instance, node, of, offer, pool, seen, specs

KEY = "Served||default/r"
OFFERS = (offer("0.40", id="one"),)
NAME = "tgp-a1b2c3d4-r-00001"
TIMERS = ["autoscale", "everything"]


def request(**facts: t.Any) -> Specs:
    return specs(pool("r", request=True, **{"expire_after": 4 * 3600, **facts}))


def run(
    mode: str,
    now: str,
    *,
    machine: bool,
    findings: t.Mapping[str, t.Any] | None = None,
    wanted: Specs | None = None,
    **facts: t.Any,
) -> Plan:
    """A run with or without the request's machine, which began at 08:00."""
    there: dict[str, t.Any] = {}
    if machine:
        mine = claim(NAME, pool="default/r", launch_started=at("08:00"), **facts)
        there = {"claims": (mine,), "nodes": (node(NAME),), "instances": (instance(NAME),)}
    observed = seen(at(now), offers=OFFERS, findings=dict(findings or {}), **there)
    return decide(observed, wanted or request(), mode)


def reasons(found: Plan) -> list[str]:
    return [one.reason for one in of(found, "destroy")]


@pytest.mark.parametrize("mode", TIMERS)
def test_L17_a_request_that_was_served_is_not_rented_for_again(mode: str) -> None:
    young = run(mode, "11:59:59", machine=True)
    assert of(young, "destroy", "launch") == [] and KEY not in young.findings
    over = run(mode, "12:00", machine=True)
    assert reasons(over) == ["Expired"] and of(over, "launch") == [] and over.findings[KEY] == at("12:00")
    assert not any("has been served" in one for one in over.warnings), "its machine is still going"
    after = run(mode, "12:10", machine=False, findings=over.findings)
    assert of(after, "launch") == [] and after.findings[KEY] == at("12:00")
    (told,) = [one for one in after.warnings if "has been served" in one]
    assert "decided at 2026-08-20T12:00:00Z" in told and "provision.yml -e tgp_pool=r" in told
    assert [one.pool for one in of(run(mode, "12:10", machine=False), "launch")] == ["default/r"], "without that it is wanted"


def test_L17_one_that_went_idle_is_served_too() -> None:
    wanted = request(expire_after=None, consolidate_after=600, min_age=0)
    mine = claim(NAME, pool="default/r", launch_started=at("08:00"))
    idle_since = node(NAME, annotations={IDLE_SINCE_ANNOTATION: "2026-08-20T11:50:00Z"})
    observed = seen(at("12:00"), offers=OFFERS, claims=(mine,), nodes=(idle_since,), instances=(instance(NAME),))
    over = decide(observed, wanted, "autoscale")
    assert reasons(over) == ["Empty"] and over.findings[KEY] == at("12:00")
    assert of(run("autoscale", "12:10", machine=False, findings=over.findings, wanted=wanted), "launch") == []


def test_L17_a_reap_notes_it_for_the_timer_and_forgets_nothing() -> None:
    over = run("reap", "12:00", machine=True)
    assert over.findings[KEY] == at("12:00")
    other = specs(pool("q"))
    later = run("reap", "12:05", machine=False, findings=over.findings, wanted=other)
    assert later.findings == over.findings, "it may have been given a part of the documents"
    assert of(run("autoscale", "12:10", machine=False, findings=later.findings), "launch") == []


@pytest.mark.parametrize("mode", TIMERS)
def test_L17_without_its_document_it_is_forgotten_and_may_come_again(mode: str) -> None:
    gone = run(mode, "12:10", machine=False, findings={KEY: at("12:00")}, wanted=specs(pool("q")))
    assert KEY not in gone.findings and gone.warnings == ()


def test_L17_provision_is_somebodys_own_word() -> None:
    found = run("provision", "12:10", machine=False, findings={KEY: at("12:00")}, wanted=request())
    assert [one.pool for one in of(found, "launch")] == ["default/r"]
    again = run("autoscale", "11:30", machine=True, findings={KEY: at("11:00")})
    assert KEY not in again.findings, "a machine that came in its place serves anew"


def test_L17_a_machine_that_was_lost_has_not_served() -> None:
    lost = claim(NAME, pool="default/r", launch_started=at("11:00"), gone_since=at("11:30"))
    over = decide(seen(at("12:00"), offers=OFFERS, claims=(lost,)), request(), "autoscale")
    assert KEY not in over.findings


def test_L17_pools_are_filled_again() -> None:
    wanted = specs(pool("r", min_nodes=1, expire_after=4 * 3600))
    over = run("autoscale", "12:00", machine=True, wanted=wanted)
    assert reasons(over) == ["Expired"] and KEY not in over.findings and len(of(over, "launch")) == 1
