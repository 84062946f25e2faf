# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox as a target of provider_verify: all facts match; what deviates is named, and nothing else."""

from __future__ import annotations

import random
import typing as t

import pytest

from .stage import CLOUDS, LIVES, SERVICES, VM, Subject, deviation, differing, drawn

SEEDS = (1, 2, 3)


@pytest.fixture(params=SERVICES)
def subject(request: pytest.FixtureRequest) -> t.Iterator[Subject]:
    made = Subject(request.param, 100.0)
    yield made
    made.close()


@pytest.fixture(params=LIVES, ids="-".join)
def cloud(request: pytest.FixtureRequest) -> t.Iterator[Subject]:
    cloud, lane = request.param
    made = Subject(cloud, 100.0, lane)
    yield made
    made.close()


def named(result: dict[str, t.Any]) -> set[str]:
    return {
        row["id"] for row in result["report"]["facts"] if row["outcome"] not in ("matches", "not checked") and not row["hidden_by"]
    }


def test_all_facts_match_without_a_machine(subject: Subject) -> None:
    result = subject.run()
    assert not result.get("failed"), result["msg"]
    counts = result["report"]["counts"]
    needing = sum(fact.rented for fact in subject.table.facts)
    assert counts["matches"] == len(subject.table.facts) - needing > 10
    assert counts["not checked"] == needing and result["report"]["all_match"] is True
    assert not result["changed"] and subject.world.writes == []


def test_all_facts_match_with_a_machine(cloud: Subject) -> None:
    result = cloud.run(**cloud.renting)
    assert not result.get("failed"), result["msg"]
    counts, lane = result["report"]["counts"], result["report"]["lane"]
    other = sum(fact.lane not in ("", lane) for fact in cloud.table.facts)
    assert counts["matches"] == len(cloud.table.facts) - other and counts["not checked"] == other
    assert bool(other) is (cloud.service == "vast" and lane == "service")
    assert result["changed"] and cloud.names() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_deviations_are_named_and_nothing_else(subject: Subject, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = subject.recorded(monkeypatch)
    deviations = drawn(subject.table, replies, seed, 10)
    assert len(deviations) == 10
    wire = subject.deviate(deviations, replies)
    result = subject.run()
    wanted = {one.fact for one in deviations}
    assert wire.struck == wanted
    assert result["failed"] and named(result) == wanted
    assert all(one in result["msg"] for one in wanted)


def test_each_fact_can_be_false_alone(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no check is satisfied by everything, and none speaks for another one."""
    replies = subject.recorded(monkeypatch, **(subject.renting if subject.service in CLOUDS else {}))
    assert differing(subject.table, replies) == set()
    rng = random.Random(7)
    facts = [fact for fact in subject.table.facts if not fact.lane]
    blind = [fact.id for fact in facts if deviation(subject.table, fact, replies, rng) is None]
    assert blind == []


def test_each_fact_of_a_virtual_machine_can_be_false_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(VM[0], 100.0, VM[1])
    try:
        replies = subject.recorded(monkeypatch, **subject.renting)
    finally:
        subject.close()
    assert differing(subject.table, replies) == set()
    rng = random.Random(7)
    blind = [fact.id for fact in subject.table.facts if deviation(subject.table, fact, replies, rng) is None]
    assert blind == []


def test_facts_are_told_whole() -> None:
    from ansible_collections.tgp.gpu.plugins.module_utils.verify import ask
    from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts import image_factory, webhook

    own = webhook.table([True, False], [webhook.PowerService(1, named=False, keyed=False)], 5.0)
    tables = [*ask.CLOUDS.values(), *ask.MESHES.values(), image_factory.TABLE, own]
    ids = [fact.id for table in tables for fact in table.facts]
    assert len(ids) == len(set(ids))
    for table in tables:
        questions = {one.name for one in table.questions} | {"life", "rented_list", "rented_machine", "rented_gone"}
        questions |= {table.boot_script.name, table.boot_script.request.name} if table.boot_script else set()
        for fact in table.facts:
            assert fact.id.startswith(f"{table.service}.") and set(fact.asks) <= questions, fact.id
            assert all((fact.statement, fact.expected, fact.source, fact.consequence)), fact.id
            assert fact.consequence.endswith("."), fact.id
