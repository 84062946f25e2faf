# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provider_verify writes: complete, and nothing of the account in it. And what a dry run does."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from ansible_collections.tgp.gpu.plugins.module_utils.verify.own_machines import NOBODY
from ansible_collections.tgp.gpu.plugins.module_utils.verify.report import MASK, build, markdown, scrub

from .stage import CLOUDS, OWN, SERVICES, Subject, drawn


@pytest.fixture(params=SERVICES)
def subject(request: pytest.FixtureRequest) -> t.Iterator[Subject]:
    made = Subject(request.param, 100.0)
    yield made
    made.close()


@pytest.fixture
def rented() -> t.Iterator[Subject]:
    made = Subject("lambda")
    yield made
    made.close()


@pytest.mark.parametrize("deviating", [False, True], ids=["as-expected", "deviating"])
def test_no_secret_address_or_id_is_in_the_report(
    subject: Subject, deviating: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deviating:
        replies = subject.recorded(monkeypatch)
        subject.deviate(drawn(subject.table, replies, 5, 10), replies)
    renting = {"rent": True, "max_cost": "5.00"} if subject.service in CLOUDS and not deviating else {}
    result = subject.run(path=str(tmp_path / "report.md"), **renting)
    assert bool(result.get("failed")) is deviating
    texts = [
        (tmp_path / "report.md").read_text(encoding="utf-8"),
        (tmp_path / "report.json").read_text(encoding="utf-8"),
        json.dumps(result),
        *subject.lines,
    ]
    assert [one for one in subject.secrets for text in texts if one in text] == []
    private: set[str] = set()
    for machine in subject.world.machines.values():
        private |= {text for text in (machine.id, machine.ip, machine.private_ip) if text}
    billed = subject.service in CLOUDS and CAPABILITIES[subject.service].charges_lag is not None
    assert bool(private) is (bool(renting) or billed or subject.service == OWN)
    if subject.service == OWN:
        private |= {"power.test", "/status", NOBODY, "x-tgp"}
    assert [one for one in private for text in texts[:3] if one in text] == []  # the lines on the screen name machines
    for text in texts[:2]:
        assert not re.search(r"\b\d{1,3}(\.\d{1,3}){3}\b|\w@\w|https?://", text)
    assert json.loads(texts[1])["facts"] == result["report"]["facts"] and texts[0] == result["markdown"]


@pytest.mark.parametrize(
    "private",
    [
        "someone@example.org",
        "203.0.113.9",
        "fd7a:115c:a1e0:0:0:0:0:1",
        "0920582c7ff041399e34823a0be62549",
        "0920582c-7ff0-4139-9e34-823a0be62549",
        "https://cloud.example/x",
    ],
)
def test_what_belongs_to_an_account_is_removed(private: str) -> None:
    assert scrub(f"seen {private} there") == f"seen {MASK} there"


def test_what_could_not_be_deleted_is_the_first_line(rented: Subject) -> None:
    report = build(
        rented.table, {}, {}, when="now", own_address=True, lane="kubelet", left_behind=["lambda, machine tgp-verify-lambda"]
    )
    first = markdown(report).splitlines()[0]
    assert "LEFT BEHIND" in first and "tgp-verify-lambda" in first and report["all_match"] is False


def test_every_fact_is_a_row(subject: Subject) -> None:
    text = subject.run()["markdown"]
    rows = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    assert sorted(rows) == sorted(fact.id for fact in subject.table.facts)


def test_a_service_that_does_not_answer_fails_and_nothing_matches(rented: Subject) -> None:
    assert rented.stand is not None
    rented.stand.faults.add({"kind": "status", "status": 503, "times": None})
    result = rented.run()
    assert result["failed"] and result["report"]["counts"]["matches"] == 0
    assert result["report"]["counts"]["no answer"] > 10 and "HTTP 503" in result["markdown"]


# ---- dry run


def test_a_dry_run_shows_the_calls_and_sends_none(subject: Subject) -> None:
    result = subject.run(check=True)
    assert not result["changed"] and result["cost"] == {} and result["report"] == {}
    assert len(result["calls"]) >= 4 and all(call in result["markdown"] for call in result["calls"])
    assert subject.world.calls == {} and any("cost nothing" in line for line in subject.lines)


def test_a_dry_run_with_rent_shows_what_it_would_cost(rented: Subject) -> None:
    result = rented.run(check=True, rent=True, max_cost="1.00")
    assert result["changed"] and rented.names() == [] and rented.world.writes == []
    assert result["cost"] == {
        "machine": "gpu_1x_a10",
        "price_hour": "1.29",
        "longest_watch": "1800 s",
        "expected_at_most": "0.645",
        "max_cost": "1.00",
    }


# ---- options


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"provider": "webhook"}, "describes no power webhook machine"),
        ({"provider": "webhook", "rent": True, "max_cost": "1.00"}, "own machines are never switched"),
        ({"provider": "lamda"}, "must be one of"),
        ({"rent": True}, "max_cost must be above 0"),
        ({"rent": True, "max_cost": "0"}, "max_cost must be above 0"),
        ({"rent": True, "max_cost": "a lot"}, "max_cost"),
        ({"rent": True, "max_cost": "0.01"}, "max_cost must be at least"),
        ({"provider": "image_factory", "rent": True, "max_cost": "1.00"}, "nothing can be rented"),
        ({"path": "report.json"}, "must not end with .json"),
    ],
)
def test_impossible_options_are_refused(rented: Subject, params: dict[str, t.Any], message: str) -> None:
    result = rented.run(**params)
    assert result["failed"] and message in f"{result['msg']} {rented.warnings}" and rented.names() == []
    assert not [call for _when, _service, call in rented.world.writes if "launch" in call]
