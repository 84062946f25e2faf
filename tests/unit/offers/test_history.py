# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices over time are appended, survive crashes, and are compared with like."""

from __future__ import annotations

import base64
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape, InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane
from ansible_collections.tgp.gpu.plugins.module_utils.offers import history as histories
from ansible_collections.tgp.gpu.plugins.module_utils.offers.history import ConfigMapHistory, FolderHistory, History, decode, encode
from ansible_collections.tgp.gpu.plugins.module_utils.offers.listing import history_csv
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.price_history import (
    Line,
    break_even_hours,
    change,
    lowest,
    trends,
)

from ..fleet.build import NOON, offer
from .test_cache import kube  # noqa: F401 - a fixture


@pytest.fixture(params=["folder", "configmap"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "folder":
        return FolderHistory(str(tmp_path / "prices"))
    return ConfigMapHistory(request.getfixturevalue("kube"))


def line(price: str, ago: timedelta = timedelta(0), **facts: t.Any) -> Line:
    """The line of the cheapest offer at NOON - ago."""
    (found,) = lowest([offer(price, **facts)], NOON - ago)
    return found


def test_S1_27_one_line_per_kind_with_the_lowest_price() -> None:
    lines = lowest(
        [
            offer("0.50"),
            offer("0.42"),
            offer("0.10", available=0),
            offer(None),
            offer("0.30", spot=True),
            offer("0.60", lanes=(Lane.KUBELET, Lane.SERVICE), region="eu-north"),
        ],
        NOON,
    )
    assert [(str(one.price), one.kind[-4], one.kind[-2], one.kind[-1]) for one in lines] == [
        ("0.60", "eu-north", False, "kubelet"),
        ("0.60", "eu-north", False, "service"),
        ("0.42", "us-west", False, ""),
        ("0.30", "us-west", True, ""),
    ]


def test_what_is_appended_is_read_again_from_a_moment_on(history: History) -> None:
    assert list(history.lines()) == []
    old, young = line("0.40", timedelta(days=2)), line("0.3166666666666666666666666667")
    history.append([old])
    history.append([])
    history.append([young])
    assert list(history.lines()) == [old, young]
    assert list(history.lines(NOON - timedelta(hours=1))) == [young]


def test_a_line_torn_by_a_crash_is_passed_over_and_the_next_is_whole(tmp_path: Path) -> None:
    history = FolderHistory(str(tmp_path))
    history.append([line("0.40")])
    file = next(tmp_path.glob("*.jsonl"))
    file.write_text(file.read_text() + encode(line("0.41"))[:30])
    history.append([line("0.42")])
    assert [str(one.price) for one in history.lines()] == ["0.40", "0.42"]


PLAIN = encode(line("0.4"))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"time": "noon"}', '{"time": 5}', PLAIN.replace('"0.4"', '"-1"'), PLAIN.replace('"0.4"', '"NaN"')],
)
def test_what_is_no_line_is_none(text: str) -> None:
    assert decode(text) is None


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="price history"):
        FolderHistory(str(tmp_path / "file" / "prices")).append([line("0.40")])


def test_an_entry_of_the_cluster_that_is_damaged_is_an_error(kube: Kube) -> None:  # noqa: F811
    history = ConfigMapHistory(kube)
    history.append([line("0.40")])
    path = "/api/v1/namespaces/tgp-system/configmaps/tgp-price-history-000001"
    ((key, text),) = kube.get(path)["binaryData"].items()
    whole = base64.b64decode(text)
    kube.patch(path, {"binaryData": {key: base64.b64encode(whole[:10] + b"\xff" * 8 + whole[18:]).decode()}})
    with pytest.raises(BadShape, match="tgp-price-history-000001"):
        list(history.lines())


def test_the_configmaps_are_rotated(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(histories, "_PART_SIZE", 500)
    monkeypatch.setattr(histories, "_PARTS", 3)
    history = ConfigMapHistory(kube)
    for minute in range(12):
        history.append([line(f"0.{40 + minute}", timedelta(minutes=60 - minute))])
    prices = [str(one.price) for one in history.lines()]
    assert prices == sorted(prices) and prices[-1] == "0.51" and "0.40" not in prices and len(prices) >= 3
    names = [one["metadata"]["name"] for one in kube.list("/api/v1/namespaces/tgp-system/configmaps")]
    assert len([one for one in names if one.startswith("tgp-price-history-")]) <= 3


def test_S1_27_trend_is_now_against_an_hour_a_day_and_a_week_ago() -> None:
    hour, day = timedelta(hours=1), timedelta(days=1)
    history = [
        line("0.90", 8 * day),
        line("0.80", 7 * day),
        line("0.20", 3 * day),
        line("0.50", 30 * hour),
        line("0.60", 25 * hour),
        line("0.70", 1.5 * hour),
        line("0.45", 0.5 * hour),
        line("0.01", 2 * hour, model="A100"),
        line("9.00", -1 * hour),
    ]
    (found,) = trends([line("0.40")], history, NOON)
    assert {name: str(price) for name, price in found.then.items()} == {"1h": "0.70", "24h": "0.60", "7d": "0.80"}
    assert (str(found.lowest), str(found.highest)) == ("0.20", "0.80")
    assert [change(found.now, price) for price in found.then.values()] == ["-43 %", "-33 %", "-50 %"]
    (alone,) = trends([line("0.40")], [], NOON)
    assert set(alone.then.values()) == {None} and alone.lowest == alone.highest == Decimal("0.40")


def test_the_history_as_csv() -> None:
    text = history_csv([line("0.1435", lanes=(Lane.KUBELET,))])
    assert text == (
        "time,cloud,model,gpu_count,gpu_memory_mib,disk_gib,region,cloud_region,spot,lane,price_hour\n"
        "2026-08-20T12:00:00Z,lambda,A10,1,,,us-west,us-west-1,false,kubelet,0.1435\n"
    )


@pytest.mark.parametrize(
    ("purchase", "rent", "power", "watts", "hours"),
    [
        ("800", "0.45", "0", 0, 1778),
        ("800", "0.35", "0", 0, 2286),
        ("800", "0.40", "0.30", 350, 2712),
        ("0", "0.40", "0", 0, 0),
        ("800", "0.10", "0.30", 350, None),
        ("800", "0", "0", 0, None),
    ],
)
def test_S1_07_break_even(purchase: str, rent: str, power: str, watts: int, hours: int | None) -> None:
    assert break_even_hours(Decimal(purchase), Decimal(rent), Decimal(power), watts) == hours


def test_a_day_has_a_file_of_its_own(tmp_path: Path) -> None:
    history = FolderHistory(str(tmp_path))
    history.append([line("0.40", timedelta(days=1))])
    history.append([line("0.41")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-08-19.jsonl", "2026-08-20.jsonl"]
    assert datetime.fromisoformat("2026-08-20").date() == NOON.date()
