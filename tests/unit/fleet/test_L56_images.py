# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-56: offers whose image of Talos is missing are left out, and the next best one is rented."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, CloudView, Lane, NodeClass, Offer, Plan, Pool, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import select
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.disk_images import Consequence, ImagePolicy, consequence
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, node_class, of, offer, pool, seen, specs

VULTR = offer("0.40", cloud="vultr", id="v", lanes=(Lane.TALOS, Lane.KUBELET))
GCP = offer("0.50", cloud="gcp", id="g", lanes=(Lane.TALOS, Lane.KUBELET))
LAMBDA = offer("0.60", id="l", lanes=(Lane.KUBELET,))
WHY = "vultr: tgp-talos-v1.13.9-0123456789ab was begun 2 times, and none was completed."
CHOICES = (CloudChoice("vultr"), CloudChoice("gcp", settings={"imageBucket": "b"}), CloudChoice("lambda"))
MADE = node_class(clouds=CHOICES, talos_schematic={"customization": {}})
KEY = launch_backoff.key_of_image(MADE, "vultr")
UNTIL = NOON + timedelta(minutes=30)


def market(*offers: Offer) -> dict[str, CloudView]:
    return {cloud: CloudView((), tuple(one for one in offers if one.cloud == cloud)) for cloud in ("vultr", "gcp", "lambda")}


def provision(
    *offers: Offer,
    wanted: Pool | None = None,
    missing: t.Mapping[tuple[str, str], str] | None = None,
    blocks: t.Mapping[str, datetime] | None = None,
    words: t.Mapping[str, str] | None = None,
    **settings: t.Any,
) -> Plan:
    documents: Specs = specs(wanted or pool(), classes=(MADE,), p=1)
    documents = dataclasses.replace(documents, imageless=missing or {})
    observed = seen(clouds=market(*offers), blocks=blocks or {}, block_words=words or {})
    return plan(observed, documents, Settings(mode="provision", **settings), CAPABILITIES, "run-1")


def rented(found: Plan) -> list[str]:
    return [one.claim.offer.id for one in of(found, "launch") if one.claim is not None]


def test_L56_the_next_cheapest_offer_of_another_cloud_is_rented_in_the_same_run() -> None:
    assert rented(provision(VULTR, GCP, LAMBDA)) == ["v"]
    found = provision(VULTR, GCP, LAMBDA, missing={("c", "vultr"): WHY})
    assert rented(found) == ["g"]
    assert found.warnings == (f"GPUNodeClass c: offers of vultr for lane talos are left out. {WHY}",)
    assert not of(found, "launch")[0].claim.candidates or all(
        one.cloud != "vultr" for one in of(found, "launch")[0].claim.candidates
    )


def test_L56_a_lane_that_boots_no_image_goes_on() -> None:
    """Of the same cloud too, where the pool takes that lane first; else it is never taken instead of the lane that comes first."""
    both = {("c", "vultr"): WHY, ("c", "gcp"): "gcp: no right."}
    assert rented(provision(VULTR, GCP, LAMBDA, missing=both)) == ["l"]
    assert rented(provision(VULTR, wanted=pool(lanes=(Lane.KUBELET,)), missing=both)) == ["v"]
    assert rented(provision(VULTR, wanted=pool(lanes=(Lane.TALOS, Lane.KUBELET)), missing=both)) == []


def test_L56_another_class_is_not_meant() -> None:
    assert rented(provision(VULTR, GCP, missing={("other", "vultr"): WHY})) == ["v"]


def test_L56_without_anything_else_the_reason_is_that_of_the_image() -> None:
    found = provision(VULTR, missing={("c", "vultr"): WHY})
    (short,) = found.shortfall
    assert not of(found, "launch") and short.reason == WHY and short.rejected == {"image": 1}
    sold_out = dataclasses.replace(GCP, available=0)
    assert provision(VULTR, sold_out, missing={("c", "vultr"): WHY}).shortfall[0].reason == f"{WHY}; not available"


def test_L56_a_failure_of_an_earlier_run_holds_until_its_time_and_is_said() -> None:
    found = provision(VULTR, GCP, blocks={KEY: UNTIL}, words={KEY: WHY})
    said = f"vultr: its image of Talos is not made before 2026-08-20T12:30:00Z: {WHY.removeprefix('vultr: ')}"
    assert rented(found) == ["g"] and said in found.warnings[0]
    assert provision(VULTR, blocks={KEY: UNTIL}).shortfall[0].reason.endswith("the last try failed")
    assert rented(provision(VULTR, GCP, blocks={KEY: NOON})) == ["v"], "its time is over"
    assert rented(provision(VULTR, GCP, blocks={KEY: UNTIL}, ignore_blocklist=True)) == ["v"]
    now = provision(VULTR, GCP, missing={("c", "vultr"): WHY}, ignore_blocklist=True)
    assert rented(now) == ["g"], "what this run has found is not ignored"


@pytest.mark.parametrize("changes", [
    {"clouds": (CloudChoice("vultr", settings={"imagePolicy": "Always"}), *CHOICES[1:])},
    {"talos_schematic": {"customization": {"extraKernelArgs": ["a=b"]}}},
    {"talos_image": "factory.talos.dev/metal-installer/x:v1.13.9"},
])  # fmt: skip
def test_L56_a_document_that_is_corrected_is_tried_at_once(changes: dict[str, t.Any]) -> None:
    corrected: NodeClass = dataclasses.replace(MADE, **changes)
    assert launch_backoff.key_of_image(corrected, "vultr") != KEY
    assert launch_backoff.without_images(corrected, {KEY: UNTIL}, NOON) == {}
    assert launch_backoff.without_images(MADE, {KEY: UNTIL}, NOON) == {"vultr": UNTIL}


def test_L56_a_failure_is_backed_off_for_half_an_hour_then_for_an_hour() -> None:
    state: launch_backoff.State = {}
    for moment, minutes in ((0, 30), (31, 60), (92, 60)):
        now = NOON + timedelta(minutes=moment)
        state = launch_backoff.after_failure(state, KEY, "image", now, why=WHY)
        assert launch_backoff.active(state, now) == {KEY: now + timedelta(minutes=minutes)}
        assert launch_backoff.observed(state, now)["block_words"] == {KEY: WHY}
    assert launch_backoff.observed(launch_backoff.after_success(state, KEY), now) == {"blocks": {}, "block_words": {}}
    assert WHY in launch_backoff.line(launch_backoff.reasons(state, now)[0])


HOUR = timedelta(hours=1)
LATE = errors.TimedOut("not complete")


@pytest.mark.parametrize(("error", "policy", "waits", "begun", "expected"), [
    (errors.NeverReady("begun 2 times"), "IfMissing", True, None, Consequence.BACKED_OFF),
    (errors.NeverReady("begun once"), "Always", False, None, Consequence.BACKED_OFF),
    (errors.Forbidden("no right to the bucket"), "IfMissing", True, None, Consequence.BACKED_OFF),
    (errors.NotFound("no such bucket"), "IfMissing", True, None, Consequence.BACKED_OFF),
    (errors.LostAnswer("may be in the making"), "IfMissing", True, None, Consequence.BACKED_OFF),
    (LATE, "IfMissing", True, NOON, Consequence.BACKED_OFF),
    (errors.NeverReady("the policy makes none"), "Never", True, None, Consequence.LEFT_OUT),
    (errors.InvalidInput("no schematic"), "IfMissing", True, None, Consequence.LEFT_OUT),
    (errors.Unauthorized("key"), "IfMissing", True, None, Consequence.LEFT_OUT),
    (errors.RateLimited("slow"), "IfMissing", False, None, Consequence.LEFT_OUT),
    (errors.Unreachable("not sent"), "IfMissing", False, None, Consequence.LEFT_OUT),
    (LATE, "IfMissing", False, NOON - HOUR + timedelta(seconds=1), Consequence.LATER),
    (LATE, "IfMissing", False, NOON - HOUR, Consequence.BACKED_OFF),
    (LATE, "IfMissing", False, None, Consequence.LEFT_OUT),
])  # fmt: skip
def test_L56_what_is_remembered(
    error: errors.TgpError, policy: str, waits: bool, begun: datetime | None, expected: Consequence
) -> None:
    assert consequence(error, ImagePolicy(policy), waits=waits, begun=begun, now=NOON) is expected


@given(
    st.lists(st.sampled_from((VULTR, GCP, LAMBDA)), unique_by=lambda one: one.id),
    st.sets(st.sampled_from(("vultr", "gcp", "lambda"))),
    st.lists(st.sampled_from((Lane.TALOS, Lane.KUBELET)), min_size=1, unique=True).map(tuple),
)
def test_L56_only_machines_of_lane_talos_are_left_out(offers: list[Offer], missing: set[str], lanes: tuple[Lane, ...]) -> None:
    """What is left is what was there before without those whose first lane is talos, in the same order."""
    wanted = pool(lanes=lanes)

    def chosen(**more: t.Any) -> list[Offer]:
        return list(select(offers, wanted, MADE, CAPABILITIES, Settings(), NOON, **more).candidates)

    def boots(one: Offer) -> bool:
        return next(lane for lane in lanes if lane in one.lanes) is Lane.TALOS

    assert chosen(imageless=missing) == [one for one in chosen() if one.cloud not in missing or not boots(one)]
