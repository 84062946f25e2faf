# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run knows becomes samples: pure, each machine once, and no more series than the labels bound."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.collect import (
    DRAINING,
    Archived,
    FleetRecords,
    archive,
    health_checks,
    of_demand,
    of_plan,
    of_records,
)
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import FAMILIES, MOST_NAMES, OTHER, Sample
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.state import noted, read_archived, stored
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Attempt,
    Claim,
    CloudView,
    Deletion,
    GpuLoss,
    Ledger,
    Phase,
    Plan,
    PodOwner,
    PodUse,
    Shortfall,
    SpendingBudget,
    Tally,
    WaitingPod,
    WorkRecord,
    WorkSpan,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import Reason
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost import spend_report
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import books, ledger_line, read_ledger
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet import build

OF_POOL = {"pool": "default/p", "provider": "lambda"}
HISTORY = tuple(
    (build.at(when), phase, "") for when, phase in (("11:00", "Pending"), ("11:01", "Provisioning"), ("11:03", "Ready"))
)


def records(*claims: Claim, ledger: Ledger | None = Ledger(), **facts: t.Any) -> FleetRecords:
    specs = facts.pop("specs", build.specs())
    settings = facts.pop("settings", Settings())
    return FleetRecords(claims, (), ledger, specs, settings, build.NOON, build.CAPABILITIES, **facts)


def value(samples: list[Sample], name: str, /, **labels: str) -> t.Any:
    """Of the only series with these labels, None where there is none; counters are found without their suffix."""
    found = [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
    assert len(found) <= 1, found
    return found[0] if found else None


def closed(*claims: Claim, end: str = "12:00") -> Ledger:
    return read_ledger([ledger_line(claim, end=build.at(end)) for claim in claims])


def test_a_machine_in_use_is_counted_with_its_price_and_what_it_has_cost() -> None:
    found = of_records(records(build.claim(idle_since=build.at("11:50"))))
    assert value(found, "tgp_machines", **OF_POOL, phase="Ready") == 1
    assert value(found, "tgp_cost_dollars_per_hour", **OF_POOL) == 0.42 == value(found, "tgp_idle_cost_dollars_per_hour", **OF_POOL)
    assert value(found, "tgp_spend_dollars", **OF_POOL) == 0.42
    assert value(found, "tgp_ready_duration_seconds", **OF_POOL) == [600.0]
    assert value(found, "tgp_operator_instances_active", provider="lambda", gpu_type="A10", region="us-west") == 1
    assert not [sample for sample in found if FAMILIES[sample.name].per_machine]


def test_series_of_each_machine_come_only_when_they_are_asked_for() -> None:
    claim = build.claim()
    found = of_records(records(claim, per_machine=True))
    assert value(found, "tgp_machine_cost_dollars", name=claim.name) == 0.42
    assert value(found, "tgp_machine_info", name=claim.name, phase="Ready", node=claim.node_name) == 1


def test_a_create_call_on_its_way_is_no_spend_yet() -> None:
    """It may turn out to have made nothing, and a counter never falls."""
    found = of_records(records(build.claim(phase=Phase.PROVISIONING)))
    assert value(found, "tgp_spend_dollars", **OF_POOL) is None and value(found, "tgp_cost_dollars_per_hour", **OF_POOL) == 0.42


def test_counters_are_the_same_before_and_after_a_machine_goes_into_the_ledger() -> None:
    """Also in between, when a killed run has left both the line and the claim."""
    claim = build.claim(history=HISTORY, attempts=(Attempt(build.at("11:01"), "lambda/g-0.42", "ok"),))
    gone = dataclasses.replace(claim, deletion=Deletion("Empty", build.NOON))
    ledger = closed(gone)
    before, between, after = (of_records(one) for one in (records(gone), records(gone, ledger=ledger), records(ledger=ledger)))
    for name in ("tgp_spend_dollars", "tgp_launches", "tgp_ready_duration_seconds"):
        assert value(before, name) == value(between, name) == value(after, name) is not None, name
    assert value(before, "tgp_machines_ended") is None
    assert value(between, "tgp_machines_ended", reason="Empty") == value(after, "tgp_machines_ended", reason="Empty") == 1
    assert value(after, "tgp_operator_idle_timeouts", provider="lambda", gpu_type="A10") == 1


@given(
    ends=st.lists(st.integers(0, 300), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 360), max_size=3),
    joined=st.booleans(),
)
def test_archived_lines_are_in_no_counter_twice_and_in_none_less(ends: list[int], cuts: list[int], joined: bool) -> None:
    """However often lines are archived, from whatever time, and wherever the run is killed between the record and the removal."""
    facts: dict[str, t.Any] = {} if joined else {"phase": Phase.JOINING, "deletion": Deletion(Reason.FAILED_JOIN, build.NOON)}
    claims = [build.claim(f"tgp-a1b2c3d4-p-{number:05}", history=HISTORY, **facts) for number in range(len(ends))]
    lines = [
        ledger_line(claim, end=build.at("12:00") + timedelta(minutes=minutes)) for claim, minutes in zip(claims, ends, strict=True)
    ]
    known = dataclasses.replace(records(ledger=read_ledger(lines)), now=build.at("23:00"))
    expected = noted(of_records(known))
    for minutes in cuts:
        cut = build.at("12:00") + timedelta(minutes=minutes, milliseconds=500)
        recorded = dataclasses.replace(known, archived=read_archived(json.loads(json.dumps(stored(archive(known, cut))))))
        removed = tuple(line for line in t.cast(Ledger, known.ledger).lines if not recorded.archived.holds(line))
        after = dataclasses.replace(recorded, ledger=Ledger(removed, ()))
        for state in (recorded, after):
            assert rounded(noted(of_records(state))) == rounded(expected)
        known = after


def rounded(entries: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Sums of floats in another order differ in their last digit. Which pools failed within the last hour hangs on no line of last month."""
    kept = (entry for entry in entries if entry["name"] != "tgp_failed_joins_recent")
    return [{key: round(one, 9) if isinstance(one, float) else one for key, one in entry.items()} for entry in kept]


def test_a_record_of_archived_lines_that_is_damaged_is_no_empty_one() -> None:
    known = records(ledger=closed(build.claim(history=HISTORY)))
    record = stored(archive(known, build.at("13:00")))
    assert read_archived({}) == Archived() and read_archived(record).before == build.at("13:00")
    for damage in ({"before": "x"}, {"samples": 3}, {"samples": [{"name": "tgp_spend_dollars"}]}):
        with pytest.raises(InvalidInput, match="archived"):
            read_archived({**record, **damage})
    assert read_archived({**record, "samples": [{"name": "tgp_gone", "labels": {}, "value": 1.0}]}).samples == ()
    blind = dataclasses.replace(known, ledger=None)
    assert archive(blind, build.at("13:00")) == Archived()


def test_phases_that_were_left_are_measured_once_and_the_last_one_at_the_end() -> None:
    claim = build.claim(history=HISTORY)
    alive, gone = of_records(records(claim)), of_records(records(ledger=closed(claim)))
    assert value(alive, "tgp_phase_duration_seconds", phase="Provisioning") == [120.0]
    assert value(alive, "tgp_phase_duration_seconds", phase="Ready") is None
    assert value(gone, "tgp_phase_duration_seconds", phase="Ready") == [3420.0]
    assert value(alive, "tgp_operator_gpu_requests", phase="Ready") == value(gone, "tgp_operator_gpu_requests", phase="Ready") == 1


def test_S1_26_a_line_that_a_later_run_writes_again_is_the_same() -> None:
    """A process has moments to the microsecond, a record to the second."""
    exact = tuple((moment + timedelta(microseconds=900_000), phase, why) for moment, phase, why in HISTORY)
    lines = [ledger_line(build.claim(history=history), end=build.NOON) for history in (HISTORY, exact)]
    assert lines[0]["phases"] == lines[1]["phases"] == [["Pending", 60], ["Provisioning", 120], ["Ready", 3420]]


def test_refusals_count_with_the_cloud_and_the_reason_of_each() -> None:
    tried = [("vast/1", "refused", "capacity"), ("vast/2", "refused", "capacity"), ("lambda/x", "unknown", "")]
    attempts = tuple(Attempt(build.NOON, offer, result, reason) for offer, result, reason in tried)
    for known in (records(build.claim(attempts=attempts)), records(ledger=closed(build.claim(attempts=attempts)))):
        found = of_records(known)
        assert value(found, "tgp_launches", provider="vast", result="refused", reason="capacity") == 2
        assert value(found, "tgp_launches", provider="lambda", result="unknown") == 1


def test_failed_joins_count_by_cause_with_their_cost_and_the_recent_ones_apart() -> None:
    claim = build.claim(phase=Phase.BOOTING, deletion=Deletion("FailedJoin", build.at("11:30"), cause="no_boot"))
    found = of_records(records(ledger=closed(claim, end="11:30")))
    assert value(found, "tgp_failed_joins", **OF_POOL, cause="no_boot") == 1
    assert value(found, "tgp_failed_joins_dollars", **OF_POOL, cause="no_boot") == 0.21
    assert value(found, "tgp_failed_joins_recent", **OF_POOL) == 1
    assert value(of_records(records(ledger=closed(claim, end="10:59"))), "tgp_failed_joins_recent", **OF_POOL) == 0
    assert value(of_records(records(claim)), "tgp_failed_joins_recent", **OF_POOL) == 1


def test_a_machine_that_goes_is_draining_and_then_terminating_since() -> None:
    deletion = Deletion("Empty", build.at("11:40"), started=build.at("11:45"))
    draining = of_records(records(build.claim(deletion=dataclasses.replace(deletion, started=None))))
    going = of_records(records(build.claim(phase=Phase.TERMINATING, deletion=deletion)))
    assert value(draining, "tgp_machines", phase=DRAINING) == 1
    assert value(draining, "tgp_terminating_oldest_timestamp_seconds") is None
    assert value(going, "tgp_terminating_oldest_timestamp_seconds", provider="lambda") == build.at("11:45").timestamp()


def test_gpus_that_are_missing_count_until_they_are_back() -> None:
    lost = GpuLoss(build.at("11:20"), 3, 8)
    back = dataclasses.replace(lost, until=build.at("11:40"))
    for loss, missing in ((lost, 3), (back, 0)):
        assert value(of_records(records(build.claim(gpu_losses=(loss,)))), "tgp_gpus_missing", **OF_POOL) == missing


def test_budgets_and_limits_and_nothing_of_budgets_while_the_books_are_unread() -> None:
    budget = SpendingBudget("month", Decimal(10))
    pool = build.pool(budget=budget, max_nodes=4)
    specs = build.specs(pool, classes=(build.node_class(max_hourly_cost=Decimal(3)),))
    known = records(build.claim(), specs=specs, settings=Settings(max_nodes_total=9, team_budgets=(("red", budget),)))
    found = of_records(known)
    labels = {"scope": "pool", "name": "default/p", "period": "month"}
    amounts = [value(found, f"tgp_budget_{what}", **labels) for what in ("dollars", "spent_dollars", "left_dollars")]
    assert amounts == [10.0, 0.42, 9.58]
    assert value(found, "tgp_budget_left_dollars", scope="team", name="red", period="month") == 10.0
    limits = [value(found, "tgp_limit_machines", scope=scope) for scope in ("pool", "all")]
    assert (limits, value(found, "tgp_limit_dollars_per_hour", scope="class", name="c")) == ([4, 9], 3)
    blind = of_records(dataclasses.replace(known, ledger=None))
    assert value(blind, "tgp_budget_spent_dollars") is None and value(blind, "tgp_spend_by_use_dollars", use="useful") is None
    assert value(blind, "tgp_machines", phase="Ready") == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_dollars_by_pool_and_by_use_are_the_same_whatever_lives_and_ended(machines: list[tuple[int, bool]]) -> None:
    claims, gone = [], []
    for number, (pool, ended) in enumerate(machines):
        claim = build.claim(f"tgp-a1b2c3d4-p-{number:05}", pool=f"default/{pool}", created=build.NOON - timedelta(hours=pool))
        (gone if ended else claims).append(claim)
    found = of_records(records(*claims, ledger=closed(*gone)))
    spent = [sample.value for sample in found if sample.name == "tgp_spend_dollars"]
    by_use = [sample.value for sample in found if sample.name == "tgp_spend_by_use_dollars"]
    assert abs(sum(t.cast("list[float]", spent)) - 0.42 * len(machines)) < 1e-9
    assert abs(sum(t.cast("list[float]", by_use)) - 0.42 * len(machines)) < 1e-9


def test_dollars_by_use_are_those_of_the_report_and_nothing_else_of_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [build.claim(f"tgp-a1b2c3d4-p-{number:05}", created=build.NOON - timedelta(hours=number)) for number in range(5)]
    gone = closed(*claims)
    wanted = spend_report.report(gone.lines, None, build.NOON).by_use
    monkeypatch.setattr(spend_report, "priced", None)  # the split by use and team, which takes longer than all the rest
    found = [sample for sample in of_records(records(ledger=gone)) if sample.name == "tgp_spend_by_use_dollars"]
    assert {sample.labels["use"]: sample.value for sample in found if sample.value} == {
        use: float(cost) for use, cost in wanted.items()
    }


def used(name: str, *teams: str) -> Claim:
    """A machine that each team's pod used for half an hour."""
    start = build.at("11:10")
    uses = [PodUse(PodOwner("x", team), 1800 // len(teams)) for team in teams]
    work = WorkRecord(build.NOON, (), (WorkSpan(start, build.NOON, 1800, 0, tuple(uses), 0),))
    return build.claim(name, initialized=start, work=work)


def test_B11_dollars_and_gpu_time_of_teams_are_those_of_the_report() -> None:
    alive = used("tgp-a1b2c3d4-p-00001", "red", "")
    known = records(alive, ledger=closed(used("tgp-a1b2c3d4-p-00002", "red"), used("tgp-a1b2c3d4-p-00003", "blue")))
    found = of_records(known)
    wanted = spend_report.report(books(known.ledger or Ledger(), [alive], build.NOON, build.CAPABILITIES), None, build.NOON).split
    for team, hours in (("red", 0.75), ("blue", 0.5), ("unknown", 0.25)):
        assert value(found, "tgp_gpu_seconds_by_team", team=team) == hours * 3600
        assert value(found, "tgp_spend_by_team_dollars", team=team) == float(wanted.teams[team].cost)
    parts = ("tgp_spend_by_team_dollars", "tgp_spend_unassigned_dollars")
    assert sum(sample.value for sample in found if sample.name in parts) == pytest.approx(value(found, "tgp_spend_dollars"))
    assert value(found, "tgp_spend_unassigned_dollars", state="failed") == 0


def test_B11_where_nobody_names_a_team_no_split_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spend_report, "priced", None)
    found = of_records(records(used("tgp-a1b2c3d4-p-00001", "")))
    assert not [sample for sample in found if "team" in sample.name or "unassigned" in sample.name]


def test_teams_beyond_the_bound_are_together() -> None:
    teams = [f"team-{number:03}" for number in range(MOST_NAMES + 10)]
    claims = [used(f"tgp-a1b2c3d4-p-{number:05}", team) for number, team in enumerate(teams)]
    found = [sample for sample in of_records(records(*claims)) if sample.name == "tgp_gpu_seconds_by_team"]
    assert len(found) == MOST_NAMES + 1 and sum(sample.value for sample in found) == pytest.approx(len(teams) * 1800)


def test_the_number_of_series_is_bounded_and_no_machine_is_lost() -> None:
    claims = [build.claim(f"tgp-a1b2c3d4-p-{n:05}", pool=f"default/p{n:04}") for n in range(MOST_NAMES + 50)]
    found = [sample for sample in of_records(records(*claims)) if sample.name == "tgp_machines"]
    assert len(found) == MOST_NAMES + 1 and sum(t.cast(float, sample.value) for sample in found) == MOST_NAMES + 50
    assert value(found, "tgp_machines", pool=OTHER) == 50


def test_A18_orphans_by_kind_with_the_moment_of_the_first_sighting() -> None:
    sightings = {
        "O1|lambda|i-1": "11:40",
        "O4|lambda|i-2": "11:20",
        "O9||d-1": "11:50",
        "O7|vast|uid": "11:10",
        "O5|lambda|x|1": "9:00",
    }
    decided = Plan(findings={key: build.at(when) for key, when in sightings.items()})
    found = of_plan(build.seen(), decided)
    assert value(found, "tgp_orphans", provider="lambda", kind="instance") == 2
    oldest = value(found, "tgp_orphan_oldest_timestamp_seconds", provider="lambda", kind="instance")
    assert oldest == build.at("11:20").timestamp()
    assert value(found, "tgp_orphans", kind="device") == value(found, "tgp_orphans", provider="vast", kind="node") == 1
    assert value(of_plan(build.seen(), Plan()), "tgp_orphans", provider="lambda", kind="instance") == 0


def test_a_provider_that_refuses_our_key_is_told_from_one_that_is_down() -> None:
    views = {
        "lambda": CloudView(problem="401", refused=True),
        "vast": CloudView(problem="down"),
        "runpod": CloudView(expected=False),
    }
    found = of_plan(build.seen(clouds=views), Plan(shortfall=(Shortfall("default/p", 2, "sold out"),)))
    refused = {cloud: value(found, "tgp_provider_key_refused", provider=cloud) for cloud in views}
    assert refused == {"lambda": 1, "vast": 0, "runpod": None}
    assert {cloud: value(found, "tgp_provider_up", provider=cloud) for cloud in views} == {"lambda": 0, "vast": 0, "runpod": None}
    assert value(found, "tgp_shortfall_machines", pool="default/p") == 2


def test_S2_18_pods_and_gpus_as_autoscale_counts_them() -> None:
    pods = (WaitingPod("a", "x", 1, "default/p", "tgp-1"), WaitingPod("a", "y", 1, "default/p", reason="sold out"))
    found = of_demand(Plan(waiting=pods, tally=(Tally("default/p", 5, 1, 2, 1, 1, 2),)))
    assert [value(found, "tgp_pods_waiting", pool="default/p", served=served) for served in ("true", "false")] == [1, 1]
    states = ("wanted", "used", "free", "coming", "waiting")
    assert [value(found, "tgp_gpus_demand", pool="default/p", state=state) for state in states] == [5, 2, 1, 1, 2]


def test_each_node_in_use_is_a_health_check() -> None:
    names = [f"tgp-a1b2c3d4-p-0000{n}" for n in range(4)]
    nodes = (build.node(names[0]), build.node(names[1], ready=False))
    going = build.claim(names[3], deletion=Deletion("Empty", build.NOON))
    seen = build.seen(claims=(*(build.claim(name) for name in names[:3]), going), nodes=nodes)
    assert list(health_checks(seen)) == [("lambda", "healthy"), ("lambda", "unhealthy"), ("lambda", "unknown")]


def test_S1_31_the_dashboards_ask_by_the_names_under_which_metrics_are_stored() -> None:
    folder = Path(__file__).parents[3] / "monitoring" / "dashboards"
    asked = {name for path in folder.glob("*.json") for name in re.findall(r"\btgp_[a-z_]+", path.read_text(encoding="utf-8"))}
    stored = {
        f"{family.shown}{ending}"
        for family in FAMILIES.values()
        for ending in (("_bucket", "_sum", "_count") if family.buckets else ("",))
    }
    assert len(asked) > 35 and asked - stored == set()
