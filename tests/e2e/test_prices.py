# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``prices.yml`` as a user runs it: one table over four clouds, a pool's reasons, files, trends, and a plan that asks nobody twice."""

from __future__ import annotations

import csv
import io
import json
import typing as t
from pathlib import Path

import pytest

from tests.fixtures.demo import DEMO

from .box import Result, Sandbox

RENTED = ("lambda", "vast", "runpod", "paperspace")


def rows(result: Result) -> list[list[str]]:
    """The first table, split into cells."""
    lines = result.out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip().startswith(("--", "-  --")))
    found = []
    for line in lines[start + 1 :]:
        cells = [cell for cell in line.strip().split("  ") if cell.strip()]
        if not line.startswith("  ") or len(cells) < 2:
            break
        found.append([cell.strip() for cell in cells])
    return found


def test_S1_27_one_table_over_four_clouds_cheapest_first(sandbox: Sandbox) -> None:
    result = sandbox.playbook("prices", documents=None, extra_vars={"options": {"limit": 500}}).succeeded()
    table = rows(result)
    assert set(RENTED) <= {one[0] for one in table}
    assert {"kubelet", "service"} <= {cell for one in table for cell in one} and result.count("changed") == 0
    assert sandbox.writes() == []


def test_what_four_times_24_gib_cost(sandbox: Sandbox) -> None:
    result = sandbox.playbook("prices", documents=None, extra_vars={"gpu_count": 4, "min_gpu_memory": "24GiB"}).succeeded()
    table = rows(result)
    assert table and all(one[2] == "4" for one in table), result.out


def test_lists_are_parted_at_commas_as_text(sandbox: Sandbox) -> None:
    given = ("-e", "tgp_clouds=lambda,vast", "-e", "tgp_gpu_type=A10,A6000", "-e", "tgp_lanes=kubelet,talos")
    table = rows(sandbox.playbook("prices", *given, documents=None).succeeded())
    assert {one[1] for one in table} == {"A10", "A6000"}


def test_a_pool_says_why_not(sandbox: Sandbox) -> None:
    result = sandbox.playbook("prices", extra_vars={"pool": "training"}).succeeded()
    assert "offers are not for this pool" in result.words and "maxHourlyPrice" in result.words and "gpu type" in result.words
    assert {one[1] for one in rows(result)} == {"lambda"}


def test_a_cloud_with_a_wrong_key_is_a_row(sandbox: Sandbox) -> None:
    env = {"RUNPOD_API_KEY": "wrong-0123456789abcdef0123456789"}
    result = sandbox.playbook(
        "prices", documents=None, env=env, extra_vars={"refresh": True, "options": {"limit": 500}}
    ).succeeded()
    assert "NO ANSWER: runpod" in result.words and env["RUNPOD_API_KEY"] not in result.text


def test_S1_15_asked_twice_costs_no_call_and_refresh_does(sandbox: Sandbox) -> None:
    options = {"options": {"cache_ttl": 100_000}}
    sandbox.playbook("prices", documents=None, extra_vars={**options, "refresh": True}).succeeded()
    calls = sandbox.world()["calls"]
    again = sandbox.playbook("prices", documents=None, extra_vars=options).succeeded()
    after = sandbox.world()["calls"]
    assert {name: after[name] - calls[name] for name in RENTED} == dict.fromkeys(RENTED, 0)
    assert "answers were remembered" in again.words
    sandbox.playbook("prices", documents=None, extra_vars={**options, "refresh": True}).succeeded()
    assert all(sandbox.world()["calls"][name] > after[name] for name in RENTED)


@pytest.mark.parametrize("place", ["file", "cluster"])
def test_S1_29_offers_and_prices_can_be_kept_in_the_cluster(sandbox: Sandbox, place: str) -> None:
    ask: dict[str, t.Any] = {"cache": place, "history": place, "options": {"cache_ttl": 100_000}}
    sandbox.playbook("prices", documents=None, extra_vars=ask).succeeded()
    assert "answers were remembered" in sandbox.playbook("prices", documents=None, extra_vars=ask).succeeded().words
    if place == "cluster":
        names = {one["metadata"]["name"] for one in sandbox.configmaps()}
        assert {"tgp-offer-cache", "tgp-price-history-000001"} <= names
        secrets = [sandbox.variables[name] for name in ("LAMBDA_API_KEY", "VAST_API_KEY", "RUNPOD_API_KEY", "PAPERSPACE_API_KEY")]
        assert [one for one in secrets if one in json.dumps(sandbox.configmaps())] == []


def test_files_and_the_trend(sandbox: Sandbox, tmp_path: Path) -> None:
    offers, history = tmp_path / "offers.csv", tmp_path / "history.csv"
    ask = {"format": "csv", "path": str(offers), "history_path": str(history), "refresh": True}
    first = sandbox.playbook("prices", documents=None, extra_vars=ask).succeeded()
    assert first.count("changed") == 1
    found = list(csv.DictReader(io.StringIO(offers.read_text())))
    assert set(RENTED) <= {one["cloud"] for one in found}
    sandbox.advance(3700)
    later = sandbox.playbook("prices", documents=None, extra_vars={"refresh": True, "purchase_price": "800"}).succeeded()
    assert "Prices over time" in later.words and "(=)" in later.words and "Buying for 800.00 $ pays after" in later.words
    kept = list(csv.DictReader(io.StringIO(history.read_text())))
    assert set(RENTED) <= {one["cloud"] for one in kept} and all(one["time"].endswith("Z") for one in kept)


def test_wrong_options_are_named(sandbox: Sandbox) -> None:
    for variables, words in (
        ({"gpu_type": "RTX 4091"}, "RTX4090"),
        ({"pool": "nowhere", "documents": str(DEMO)}, "default/training"),
        ({"max_price": "cheap"}, "cheap"),
        ({"format": "xml"}, "xml"),
    ):
        result = sandbox.playbook("prices", documents=None, extra_vars=variables)
        assert result.rc == 2 and words in result.words, result.text


def test_D19_two_plans_within_the_time_ask_for_offers_once(start: t.Callable[..., Sandbox], tmp_path: Path) -> None:
    """Slow enough that five minutes of the world's time do not pass between two runs."""
    sandbox = start(speed=2)
    ask: dict[str, t.Any] = {"pool": "training", "nodes": 1, "plan": str(tmp_path / "plan.json")}

    def asked(variables: dict[str, t.Any]) -> int:
        before = int(sandbox.world()["calls"].get("lambda", 0))
        sandbox.playbook("plan", extra_vars=variables).succeeded()
        return int(sandbox.world()["calls"].get("lambda", 0)) - before

    without = asked({**ask, "options": {"offer_cache": "none"}})
    assert asked(ask) == without, "nothing was remembered yet"
    assert asked(ask) == without - 1, "machines are listed, offers are remembered"
    sandbox.advance(400)
    assert asked(ask) == without, "too old"
