# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories by chance: hours by use and shares of teams are the integral over the pods' own times, second by second; and ledger, report, metrics
as a real Prometheus has them, and the world's bill agree. ``TGP_STORIES`` is how many are played, ``TGP_FIRST_STORY`` the seed of the first;
without either, a few and those of ``FOUND``."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import typing as t
from decimal import ROUND_HALF_UP, Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner import claim_sync
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost import hours, spend_report
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up
from prometheus_client.parser import text_string_to_metric_families

from tests.build import CannotBuild
from tests.e2e.prometheus import Monitoring
from tests.node_real import debian

from .conftest import isolate
from .rig import Rig
from .used_hours import SCENARIO, Integral, Tale, integral

STORIES = int(os.environ.get("TGP_STORIES", "4"))
FIRST = int(os.environ.get("TGP_FIRST_STORY", "7"))
#: short stories that once differed: a run ends a machine with its first record; two hours without a record since the machine is usable, and not
#: since its create call; a run is killed between the decision to drain and the cordon
FOUND = (40, 46, 69)
CHOSEN = os.environ.keys() & {"TGP_STORIES", "TGP_FIRST_STORY"}
SEEDS = (*range(FIRST, FIRST + STORIES), *(() if CHOSEN else FOUND))
SPEED = 80.0  # then what this process takes for an end stays within a minute
DAY = 86400 + 300  # seconds until the bill of the slowest provider is complete
CENT = Decimal("0.01")
MICRO = Decimal("0.0001")  # prices have six digits after the point, and a machine lives for less than a hundred hours


@dataclasses.dataclass(frozen=True)
class Told:
    """A story that has ended: what the report says, the ledger, the integral, and a day later what the providers tell of their bills."""

    tale: Tale
    report: dict[str, t.Any]
    ledger: list[dict[str, t.Any]]
    exact: Integral
    bills: dict[str, t.Any]

    @property
    def text(self) -> str:
        return (self.tale.rig.folder / "tgp.prom").read_text()


def played(rig: Rig, seed: int, gateway: str = "") -> Told:
    tale = Tale(rig, seed)
    tale.play()
    if gateway:
        tale.publish(gateway)
    lines, report = rig.ledger(), rig.run("report")["report"]
    rig.advance(DAY)
    return Told(tale, report, lines, integral(lines, tale), rig.run("report", provider_bills=True)["report"]["provider_bills"])


def has_prometheus() -> bool:
    """Whether it can be had here; where it must be had, Monitoring fails."""
    try:
        return bool(debian.prometheus()) or True
    except CannotBuild:
        return os.environ.get("TGP_REQUIRE_PLANE") == "1"


@dataclasses.dataclass(frozen=True)
class All:
    """All stories, and Prometheus where it is there."""

    stories: dict[int, Told]
    seen: Monitoring | None


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[All]:
    with contextlib.ExitStack() as stack:
        seen = Monitoring(tmp_path_factory.mktemp("prometheus"), stack) if has_prometheus() else None
        stories = {}
        for seed in SEEDS:
            folder = tmp_path_factory.mktemp(f"story-{seed}")
            with pytest.MonkeyPatch.context() as monkeypatch, contextlib.ExitStack() as world:
                isolate(folder, monkeypatch)
                rig = Rig(folder, speed=SPEED, **SCENARIO)
                world.callback(rig.close)
                stories[seed] = played(rig, seed, seen.gateway if seen is not None else "")
                rig.check_bill()
        yield All(stories, seen)


def wrong(story: Told) -> list[str]:
    """Where the report differs from the integral: hours by use, and GPU hours and dollars of each view, to the second and the cent."""
    found = []
    seconds = {row["use"]: round(Decimal(row["hours"]) * 3600) for row in story.report["hours"]}
    if seconds != story.exact.uses:
        found.append(f"hours {seconds}, not {dict(story.exact.uses)}")
    for view, rows in story.report["split"].items():
        shown = {row["name"]: (Decimal(row["gpu_hours"]) * 3600, float(row["cost"])) for row in rows}
        if shown.keys() != story.exact.gpus[view].keys():
            found.append(f"{view} {sorted(shown)}, not {sorted(story.exact.gpus[view])}")
        for word, (gpus, dollars) in shown.items():
            ours, theirs = (gpus, dollars), (story.exact.gpus[view][word], story.exact.cost[view][word])
            if abs(ours[0] - theirs[0]) >= 1 or abs(ours[1] - theirs[1]) >= 0.01:
                found.append(f"{view} {word}: {ours}, not {theirs}")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_L44_L45_hours_and_shares_are_the_integral_over_the_pods_times(told: All, seed: int) -> None:
    assert wrong(told.stories[seed]) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_A07_ledger_report_and_the_worlds_bill_agree(told: All, seed: int) -> None:
    """To the last digit, and to the cent where cents are shown. The world's bill is within the bounds of each line, and the same to the cent,
    but for a started unit of a provider that does not tell when a bill ends."""
    story = told.stories[seed]
    rig, report = story.tale.rig, story.report
    bill = add_up(Decimal(line["cost"]) for line in story.ledger)
    assert story.ledger and Decimal(report["total"]) == bill
    for way in ("day", "use", "pool", "cloud", "model", "end"):
        assert add_up(Decimal(one) for one in report[f"by_{way}"].values()) == bill, way
    cents = bill.quantize(CENT, ROUND_HALF_UP)
    assert sum(Decimal(row["cost"]) for row in report["hours"]) == cents
    for view in ("teams", "namespaces", "requesters"):
        assert sum(Decimal(row["cost"]) for row in (*report["split"][view], *report["split"]["unassigned"])) == cents, view
    theirs = {machine.id: machine.cost(rig.clock.now()) for machine in rig.machines(living=False)}
    units = Decimal(0)
    for line in story.ledger:
        (number,) = line["ids"]
        assert Decimal(line["cost_least"]) - MICRO <= theirs[number] <= Decimal(line["cost_most"]) + MICRO, (line, theirs[number])
        unit = Decimal(line["price_hour"]) * line["granularity"] / 3600
        off = Decimal(line["cost"]) - theirs[number]
        assert abs(off) < CENT / 2 or (line["granularity"] > 1 and abs(off - unit) <= MICRO), (line, theirs[number])
        units += unit if abs(off - unit) <= MICRO and line["granularity"] > 1 else 0
    total = add_up(theirs.values())
    assert abs(bill - units - total) < CENT, (bill, units, total)
    story.tale.seen["unit"] += bool(units)
    assert Decimal(report["bill"]["least"]) - MICRO <= total <= Decimal(report["bill"]["most"]) + MICRO
    assert Decimal(report["bill"]["least"]) <= bill <= Decimal(report["bill"]["most"]) and report["bill"]["unknown_machines"] == 0
    assert len(story.ledger) == len(rig.machines(living=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_L57_what_a_provider_tells_of_its_bill_is_the_worlds_to_the_cent(told: All, seed: int) -> None:
    story = told.stories[seed]
    rig = story.tale.rig
    (bill,) = story.bills["clouds"]
    total = add_up(machine.cost(rig.clock.now()) for machine in rig.machines(living=False))
    assert story.bills["problems"] == [] and bill["machines"] == len(story.ledger)
    assert bill["available"] == story.bills["whole"] == (story.tale.cloud == "vast")
    if bill["available"]:
        assert bill["charged_machines"] == bill["machines"] and bill["pending"] == []
        assert abs(Decimal(story.bills["total"]) - total) < CENT / 2 and story.bills["total"] == bill["billed"]
    else:
        assert Decimal(story.bills["total"]) == Decimal(bill["ledger"]) == Decimal(story.report["total"])
        assert bill["why"] == "its API has no bill"


def test_S1_31_metrics_of_all_stories_are_their_ledgers(told: All) -> None:
    """As a real Prometheus answers, one cluster a story; where there is none, as the library reads the files."""
    queries = {
        "tgp_spend_dollars_total": lambda story: float(story.report["total"]),
        "tgp_spend_by_use_dollars": lambda story: float(story.report["total"]),
        "tgp_machines_ended_total": lambda story: float(len(story.ledger)),
        "tgp_operator_instances_active": lambda _story: 0.0,
        "tgp_gpu_seconds_by_team": _hours_of_teams,
    }
    exact = dict.fromkeys(queries, 1e-6) | {"tgp_gpu_seconds_by_team": 2.0}  # the report shows hours of each team in four digits
    for name, expected in queries.items():
        wanted = {story.tale.rig.cluster_id: expected(story) for story in told.stories.values()}
        assert len(wanted) == len(told.stories)
        if told.seen is None:
            found = {story.tale.rig.cluster_id: _value(story.text, name) for story in told.stories.values()}
        else:
            found = _asked(told.seen, name, wanted)
        off = {cluster: (found.get(cluster, 0.0), value) for cluster, value in wanted.items()}
        assert not {cluster: pair for cluster, pair in off.items() if abs(pair[0] - pair[1]) >= exact[name]}, name


def _hours_of_teams(story: Told) -> float:
    """GPU seconds of all pods; there are no metrics of teams where nobody names one."""
    rows = story.report["split"]["teams"]
    return sum(float(row["gpu_hours"]) * 3600 for row in rows) if any(row["name"] != "unknown" for row in rows) else 0.0


def _asked(seen: Monitoring, name: str, wanted: t.Mapping[str, float]) -> dict[str, float]:
    """By cluster, once all are scraped."""

    def answer() -> dict[str, float]:
        found = seen.series(f'sum by (cluster) ({name}{{job="tgp_gpu"}})')
        return {dict(labels)["cluster"]: value for labels, value in found.items()}

    seen.until(lambda: len(seen.series('count by (cluster) (tgp_documents{job="tgp_gpu"})')) == len(wanted), "all are scraped")
    return answer()


def _value(text: str, name: str) -> float:
    return sum(sample.value for family in text_string_to_metric_families(text) for sample in family.samples if sample.name == name)


def test_all_kinds_of_things_happen_in_the_stories(told: All) -> None:
    happened: collections.Counter[str] = sum((story.tale.seen for story in told.stories.values()), collections.Counter())
    uses: collections.Counter[str] = sum((story.exact.uses for story in told.stories.values()), collections.Counter())
    assert {"rent", "start", "end", "run", "destroy"} <= set(happened) and {"useful", "waiting", "unmeasured"} <= set(uses)
    assert sum(story.tale.seen["unit"] for story in told.stories.values()) <= max(
        1, len(SEEDS) // 20
    )  # started units that nobody can know
    if len(SEEDS) >= 30:
        assert {"delete", "kill", "fail"} <= set(happened) and set(hours.HOURS) <= set(uses)
        assert {story.tale.cloud for story in told.stories.values()} == {"lambda", "vast"}
        assert {story.tale.gpus for story in told.stories.values()} == {1, 2, 4}


# ---- what the tests above would notice

FAULTS: dict[str, tuple[int, t.Any, str, t.Any]] = {  # what → seed of a story that shows it, and what is replaced
    "time without a record is waiting": (7, hours, "LONGEST_GAP", 10**9),
    "a pod uses one GPU, whatever it asks for": (7, hours, "_gpus", lambda _pod, _settings: 1),
    "pods of DaemonSets count": (15, hours, "would_count", lambda *_given: True),
    "a decided drain is one that cordoned the node": (
        69,
        hours,
        "_unmeasured",
        lambda *given, closed_to_pods, rule=hours._unmeasured: rule(*given, closed_to_pods=True),
    ),
    "the team is that of the pool": (7, claim_sync, "pod_owner", lambda _pod, _spaces, machine, _settings: machine),
    "each second costs the same, also while only the disk is billed": (
        7,
        spend_report,
        "_weight",
        lambda _line, piece: piece.seconds,
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_noticed(build: t.Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    seed, *fault = FAULTS[what]
    monkeypatch.setattr(*fault)
    assert wrong(played(build(speed=SPEED, **SCENARIO), seed))
