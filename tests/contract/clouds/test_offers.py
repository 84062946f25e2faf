# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One question to all clouds: the table, the cache, the history, and a pool's reasons, over the real clients."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import threading
import typing as t
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import offer_info

from sandbox import vast_cloud
from sandbox.clock import SimClock
from sandbox.kube import KubeApi

from .stands import KEY, LambdaStand, Stand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand

KINDS: tuple[type[Stand], ...] = (LambdaStand, PaperspaceStand, RunpodStand, VastStand)
TEMPLATE = Path(__file__).resolve().parents[3] / "examples" / "templates" / "worker.yaml"
KUBE = "https://kube.test:6443"


class Bazaar:
    """All rented clouds at once, and a cluster beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stands: dict[str, Stand] = {kind.service: kind() for kind in KINDS}
        self.clock = SimClock(speed=20)
        self.kube = KubeApi(self.clock).start()
        self.kubeconfig = folder / "kubeconfig"
        self.kube.write_kubeconfig(str(self.kubeconfig), KUBE)
        self.accounts = {f"{name}_api_url": stand.base for name, stand in self.stands.items()}
        self.accounts |= {f"{name}_api_key": KEY for name in self.stands}
        self.lines: list[str] = []

    def close(self) -> None:
        for stand in self.stands.values():
            stand.close()
        self.kube.stop()
        self.clock.close()

    def transport(self, url: str) -> httpx.BaseTransport:
        if url.startswith(KUBE):
            return httpx.WSGITransport(app=self.kube.app)
        return next(stand.transport() for stand in self.stands.values() if url.startswith(stand.base))

    def calls(self) -> int:
        return sum(sum(stand.world.calls.values()) for stand in self.stands.values())

    def ask(self, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        spec = {key: value for key, value in offer_info.SPEC.items() if key != "supports_check_mode"}
        read = ArgumentSpecValidator(**spec).validate({**self.accounts, **params})
        assert not read.error_messages, read.error_messages
        warnings: list[str] = []
        self.lines = []
        task = Task(
            params=read.validated_parameters,
            check_mode=check,
            warn=warnings.append,
            progress=self.lines.append,
            clock=self.clock,
            transport=self.transport,
        )
        result = {**execute(offer_info.SPEC, offer_info.run, task), "warnings": warnings}
        assert KEY not in json.dumps(result) + "".join(self.lines)
        return result


@pytest.fixture
def bazaar(tmp_path: Path) -> t.Iterator[Bazaar]:
    made = Bazaar(tmp_path)
    yield made
    made.close()


def clouds(result: dict[str, t.Any]) -> set[str]:
    return {one["cloud"] for one in result["offers"]}


def ids(result: dict[str, t.Any]) -> list[str]:
    return [f"{one['cloud']}/{one['id']}" for one in result["offers"]]


# ---- one table


def test_S0_03_one_table_over_all_clouds_cheapest_first(bazaar: Bazaar) -> None:
    result = bazaar.ask()
    assert clouds(result) == set(bazaar.stands) and result["unanswered"] == []
    known = [one for one in result["offers"] if one["price_hour"] is not None]
    prices = [Decimal(one["price_hour"]) for one in known]
    assert prices == sorted(prices) and len(prices) > 10 and result["offers"][: len(known)] == known
    for one in result["offers"]:
        assert one["lanes"] and one["available"] != 0 and one["age_seconds"] is not None
        assert (one["region"] and one["cloud_region"]) or one["id"].endswith("@any")
        if one["gpu_count"]:
            assert one["model"] and one["gpu_memory_gib"]
            share = Decimal(one["price_gpu_hour"] or 0) * one["gpu_count"]
            assert one["price_hour"] is None or abs(share - Decimal(one["price_hour"])) < Decimal("0.001")
    assert bazaar.lines == [] and result["table"], "nothing is printed into the output of a playbook that does not ask for it"
    assert bazaar.ask(format="table")["table"] == bazaar.lines
    assert all(name in "\n".join(bazaar.lines) for name in bazaar.stands)
    assert all(one["price_estimated"] or not one["price_hour"] for one in result["offers"] if one["cloud"] == "paperspace")


def test_L16_traffic_is_an_estimate_beside_the_price(bazaar: Bazaar) -> None:
    world = bazaar.stands["vast"].world
    world.offers[:] = [
        vast_cloud.vast_offer({"id": 1, "gpu": "RTX 4090", "price": "0.35", "traffic_down": "0.002", "traffic_up": "0.004"}),
        vast_cloud.vast_offer({"id": 2, "gpu": "RTX 4090", "price": "0.33", "traffic_down": "5", "traffic_up": "5"}),
        vast_cloud.vast_offer({"id": 3, "gpu": "RTX 4090", "price": "0.37", "traffic_down": "0", "traffic_up": "0"}),
    ]
    asked: dict[str, t.Any] = {"spot": False, "gpu_type": ["RTX 4090"], "cache": "none"}
    found = {one["id"]: one for one in bazaar.ask(clouds=["vast"], **asked)["offers"]}
    keys = ("traffic_price_gb_down", "traffic_price_gb_up", "traffic_once", "traffic_hour")
    assert [found["1"][key] for key in keys] == ["0.002", "0.004", "0.06", "0.006"]
    assert [found["2"][key] for key in keys] == ["5.00", "5.00", "150.00", "10.00"]
    assert [found["3"][key] for key in keys] == ["0.00", "0.00", None, None]
    assert found["2"]["price_hour"] == "0.344375", "GPUs and disk alone"
    result = bazaar.ask(clouds=["vast"], format="table", traffic_once_gb=100, traffic_hour_gb=2, **asked)
    text = "\n".join(result["table"])
    assert "traffic $" in result["table"][0] and "0.20 + 0.012/h" in text and "500.00 + 20.00/h" in text
    assert "an estimate for 100 GB downloaded once and 2 GB per hour in each direction" in text
    free = bazaar.ask(clouds=["runpod"], **asked)
    assert not any("traffic" in line for line in free["table"]) and free["offers"][0]["traffic_once"] is None
    assert "traffic_once_gb" in bazaar.ask(clouds=["vast"], traffic_once_gb=-1, **asked)["msg"]


def test_what_four_times_24_gib_cost_now(bazaar: Bazaar) -> None:
    result = bazaar.ask(gpu_count=4, min_gpu_memory="24GiB")
    assert result["offers"] and all(one["gpu_count"] == 4 and one["gpu_memory_gib"] >= 24 for one in result["offers"])
    assert "vast" in clouds(result)


@pytest.mark.parametrize(
    ("params", "holds"),
    [
        ({"lanes": ["kubelet"]}, lambda one: "kubelet" in one["lanes"]),
        ({"spot": True}, lambda one: one["spot"]),
        ({"max_price": "0.70"}, lambda one: Decimal(one["price_hour"] or 9) <= Decimal("0.70")),
        ({"gpu_type": ["RTX 4090"]}, lambda one: one["model"] == "RTX4090"),
        ({"region": ["us-east"]}, lambda one: one["region"] == "us-east"),
        ({"region": ["EU-RO-1"]}, lambda one: one["cloud_region"] == "EU-RO-1"),
        ({"region": ["asia-pacific"]}, lambda one: one["region"].startswith("asia-")),
        ({"min_gpu_memory": "49152MiB"}, lambda one: (one["gpu_memory_gib"] or 0) >= 48),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_S1_28_filters_hold_for_every_cloud(bazaar: Bazaar, params: dict[str, t.Any], holds: t.Callable[[t.Any], bool]) -> None:
    result = bazaar.ask(**params)
    assert result["offers"] and all(map(holds, result["offers"]))
    everything = bazaar.ask(history="none")
    expected = {one["id"] for one in everything["offers"] if holds(one)}
    missing = [one for one in everything["offers"] if one["id"] in expected - {one["id"] for one in result["offers"]}]
    assert {one["id"] for one in result["offers"]} <= expected
    assert {one["cloud"] for one in missing} <= {"paperspace"}, "which tells of sold-out types only when asked for few"


def test_one_cloud_that_fails_is_a_row_and_a_warning(bazaar: Bazaar) -> None:
    bazaar.stands["vast"].faults.add({"kind": "body", "path": "bundles", "body": {"offers": None}, "times": None})
    result = bazaar.ask()
    assert [(one["cloud"], one["kind"]) for one in result["unanswered"]] == [("vast", "bad_shape")]
    assert clouds(result) == set(bazaar.stands) - {"vast"} and any("vast" in text for text in result["warnings"])
    (row,) = [line for line in result["table"] if line.strip().startswith("vast")]
    assert "NO ANSWER" in row
    assert "vast" not in result["cache"]["age_seconds"]
    bazaar.stands["vast"].faults.clear()
    assert "vast" in clouds(bazaar.ask()), "a failure must not be remembered"


def test_one_offer_that_cannot_be_read_closes_no_market(bazaar: Bazaar) -> None:
    """Rows as they were seen: a host without a GPU name, a new instance type without a price."""
    before = set(ids(bazaar.ask(cache="none")))
    vast, cloud = bazaar.stands["vast"], "lambda"
    rows = vast.transport().handle_request(httpx.Request("POST", f"{vast.base}/api/v0/bundles/", json={"limit": 64}))
    odd = {**json.loads(rows.read())["offers"][0], "id": 8199999, "gpu_name": None}
    vast.faults.add(
        {"kind": "body", "path": "bundles", "body": {"offers": [odd, *json.loads(rows.read())["offers"]]}, "times": None}
    )
    types = (
        bazaar.stands[cloud]
        .transport()
        .handle_request(
            httpx.Request("GET", f"{bazaar.stands[cloud].base}/api/v1/instance-types", headers={"authorization": f"Bearer {KEY}"})
        )
    )
    body = json.loads(types.read())
    body["data"]["gpu_1x_new"] = {"instance_type": {"name": "gpu_1x_new", "price_cents_per_hour": None}}
    bazaar.stands[cloud].faults.add({"kind": "body", "path": "instance-types", "body": body, "times": None})
    result = bazaar.ask(cache="none")
    assert result["unanswered"] == []
    assert {one for one in before if not one.endswith("-bid")} <= set(ids(result))
    assert any("vast: 1 entry" in one and "gpu_name of offer 8199999" in one for one in result["warnings"])
    assert any("lambda: 1 entry" in one and "gpu_1x_new: price_cents_per_hour" in one for one in result["warnings"])


def test_when_none_answers_the_module_fails(bazaar: Bazaar) -> None:
    for stand in bazaar.stands.values():
        stand.faults.add({"kind": "status", "status": 401, "path": "", "times": None})
    assert bazaar.ask()["failed"] is True


# ---- remembered


@pytest.mark.parametrize("place", ["file", "cluster"])
def test_S1_15_a_remembered_answer_costs_no_call_until_it_is_too_old(bazaar: Bazaar, place: str) -> None:
    ask = {"cache": place, "kubeconfig": str(bazaar.kubeconfig), "history": "none"}
    first = bazaar.ask(**ask)
    assert first["cache"]["hits"] == 0 and first["cache"]["misses"] == 4
    before = bazaar.calls()
    second = bazaar.ask(**ask)
    assert bazaar.calls() == before
    assert (second["cache"]["hits"], second["cache"]["misses"]) == (4, 0) and ids(second) == ids(first)
    assert any("4 of 4 answers were remembered" in one for one in second["table"])
    bazaar.clock.advance(200)
    assert all(age >= 200 for age in bazaar.ask(**ask)["cache"]["age_seconds"].values())
    assert bazaar.ask(**ask)["offers"][0]["age_seconds"] >= 200
    bazaar.clock.advance(200)
    late = bazaar.ask(**ask)
    assert late["cache"]["misses"] == 4 and bazaar.calls() > before


def test_refresh_asks_and_is_remembered(bazaar: Bazaar) -> None:
    bazaar.ask()
    shelf = next(one for one in bazaar.stands["lambda"].world.offers if one.type == "gpu_1x_a10" and one.stock)
    shelf.price_hour = Decimal("0.99")
    assert [one["price_hour"] for one in bazaar.ask(gpu_type=["A10"], clouds=["lambda"])["offers"]] == ["0.99"], "another question"
    assert "lambda/gpu_1x_a10@us-east-1" in ids(bazaar.ask())
    fresh = bazaar.ask(refresh=True)
    assert fresh["cache"]["hits"] == 0
    again = bazaar.ask()
    assert again["cache"]["hits"] == 4
    assert next(one for one in again["offers"] if one["id"] == "gpu_1x_a10@us-east-1")["price_hour"] == "0.99"


def test_an_unreadable_cache_is_a_miss_with_a_warning(bazaar: Bazaar, tmp_path: Path) -> None:
    bazaar.ask()
    files = list((tmp_path / "state" / "offers").iterdir())
    assert len(files) == 4
    for file in files:
        assert KEY.encode() not in file.read_bytes()
        file.write_bytes(b"noon")
    again = bazaar.ask()
    assert again["cache"]["misses"] == 4 and len([one for one in again["warnings"] if "cache could not be read" in one]) == 4
    assert bazaar.ask()["cache"]["hits"] == 4


def test_check_mode_keeps_nothing(bazaar: Bazaar, tmp_path: Path) -> None:
    file = tmp_path / "offers.csv"
    result = bazaar.ask(check=True, format="csv", path=str(file))
    assert result["changed"] and result["offers"] and not file.exists() and not (tmp_path / "state").exists()


# ---- a pool


def documents(**spec: t.Any) -> list[dict[str, t.Any]]:
    providers = [{"name": name} for name in ("lambda", "vast", "runpod", "paperspace")]
    node_class = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "any"},
        "spec": {
            "providers": providers,
            "talosConfig": {"machineConfigTemplateFile": str(TEMPLATE)},
            "tailscaleConfig": {"tags": ["tag:gpu"]},
            "limits": {"maxNodes": 2, "maxHourlyCost": "5.00"},
        },
    }
    pool = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodePool",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeClassRef": {"name": "any"}, **spec},
    }
    return [node_class, pool]


def test_L13_a_pool_gives_every_rejected_offer_its_first_reason(bazaar: Bazaar) -> None:
    types = {"key": "tgp.io/gpu-type", "operator": "In", "values": ["A10", "RTX4090", "A4000"]}
    result = bazaar.ask(documents=documents(maxHourlyPrice="1.00", template={"spec": {"requirements": [types]}}), pool="p")
    assert result["offers"] and {one["lane"] for one in result["offers"]} == {"kubelet"}
    assert sorted(one["place"] for one in result["offers"]) == list(range(1, len(result["offers"]) + 1))
    assert all(Decimal(one["price_hour"]) <= 1 for one in result["offers"])
    why = {f"{one['cloud']}/{one['id']}": one["reason"] for one in result["rejected"]}
    assert why["lambda/gpu_1x_a10@us-east-1"] == "maxHourlyPrice"
    assert why["lambda/gpu_1x_gh200@us-east-3"] == "gpu type"
    assert {reason for key, reason in why.items() if key.startswith("runpod/")} == {"no accepted lane"}
    assert set(result["reasons"].values()) and sum(result["reasons"].values()) == len(result["rejected"])
    assert not set(why) & set(ids(result))
    text = "\n".join(result["table"])
    assert f"{len(why)} offers are not for this pool" in text and "no accepted lane" in text
    assert "runpod: no accepted lane, because pods are unprivileged containers" in text


def test_settings_of_a_class_are_another_question(bazaar: Bazaar) -> None:
    """What Vast.ai has not verified is offered to who asks for it, whatever was remembered of another class's question."""
    bazaar.stands["vast"].world.offers.append(
        vast_cloud.vast_offer(
            {"id": 8100009, "gpu": "RTX 4090", "price": "0.11", "verification": "unverified", "vm": True, "stock": 1}
        )
    )
    usual, daring = documents(), documents()
    next(one for one in daring[0]["spec"]["providers"] if one["name"] == "vast")["settings"] = {"unverified": True}
    assert "vast/8100009" not in ids(bazaar.ask(documents=usual, pool="p"))
    assert "vast/8100009" in ids(bazaar.ask(documents=daring, pool="p"))
    assert "vast/8100009" not in ids(bazaar.ask(documents=usual, pool="p"))


def test_a_pool_that_is_not_there_and_documents_without_one(bazaar: Bazaar) -> None:
    missing = bazaar.ask(documents=documents(), pool="q")
    assert missing["failed"] is True and "default/p" in missing["msg"]
    none = bazaar.ask(documents=documents())
    assert none["failed"] is True and "Name the pool" in none["msg"]


def test_a_request_for_any_cloud_asks_those_that_are_configured(bazaar: Bazaar) -> None:
    request = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPURequest",
        "metadata": {"name": "one"},
        "spec": {
            "gpuType": "RTX4090",
            "talosConfig": {"machineConfigTemplateFile": str(TEMPLATE)},
            "tailscaleConfig": {"tags": ["tag:gpu"]},
        },
    }
    bazaar.accounts = {name: value for name, value in bazaar.accounts.items() if not name.startswith(("runpod", "paperspace"))}
    result = bazaar.ask(documents=[request], pool="one")
    assert result["unanswered"] == [] and set(result["cache"]["age_seconds"]) == {"lambda", "vast"}


# ---- forms


def test_json_and_csv_say_the_same_as_the_result(bazaar: Bazaar, tmp_path: Path) -> None:
    as_json, as_csv = tmp_path / "offers.json", tmp_path / "offers.csv"
    first = bazaar.ask(format="json", path=str(as_json))
    assert first["changed"] and json.loads(as_json.read_text())["offers"] == first["offers"] and bazaar.lines == []
    second = bazaar.ask(format="csv", path=str(as_csv))
    rows = list(csv.DictReader(io.StringIO(as_csv.read_text())))
    assert [one["id"] for one in rows] == [one["id"] for one in second["offers"]]
    assert [one["price_hour"] for one in rows] == [one["price_hour"] or "" for one in second["offers"]]
    assert {one["spot"] for one in rows} <= {"true", "false"}
    printed = bazaar.ask(format="csv")
    assert next(csv.reader(bazaar.lines[:1])) == list(rows[0]) and not printed["changed"]


def test_a_path_that_cannot_be_written_is_named(bazaar: Bazaar, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = bazaar.ask(format="csv", path=str(tmp_path / "file" / "offers.csv"))
    assert refused["failed"] is True and "offers.csv" in refused["msg"]


# ---- over time


@pytest.mark.parametrize("place", ["file", "cluster"])
def test_S1_27_trends_are_shown_and_exported(bazaar: Bazaar, tmp_path: Path, place: str) -> None:
    ask: dict[str, t.Any] = {"history": place, "kubeconfig": str(bazaar.kubeconfig), "clouds": ["lambda"], "gpu_type": ["A10"]}
    bazaar.ask(**ask)
    bazaar.ask(**ask)  # remembered: no second line
    shelf = next(one for one in bazaar.stands["lambda"].world.offers if one.type == "gpu_1x_a10" and one.stock)
    shelf.price_hour = Decimal("0.86")
    bazaar.clock.advance(3700)
    export = tmp_path / "history.csv"
    later = bazaar.ask(**ask, history_path=str(export))
    (trend,) = later["trend"]
    assert (trend["now"], trend["1h"], trend["24h"], trend["lowest"], trend["highest"]) == ("0.86", "1.29", None, "0.86", "1.29")
    assert any("1.29 (-33 %)" in line for line in later["table"])
    rows = [one for one in csv.DictReader(io.StringIO(export.read_text())) if one["model"] == "A10"]
    assert [one["price_hour"] for one in rows] == ["1.29", "0.86"]


def test_a_broken_history_is_a_warning(bazaar: Bazaar, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "prices").write_text("a file where a folder should be")
    result = bazaar.ask()
    assert result["offers"] and any("Prices over time" in one for one in result["warnings"])
    assert {one["1h"] for one in result["trend"]} == {None}


def test_S1_07_rent_or_buy(bazaar: Bazaar) -> None:
    result = bazaar.ask(clouds=["lambda"], gpu_type=["A10"], purchase_price="800", power_price="0.30", power_watts=300)
    assert result["purchase"]["hours"] == 667 and result["purchase"]["sentence"] in result["table"][-1]
    assert "not an amount" in bazaar.ask(min_gpu_memory="much")["msg"]


# ---- side by side


def test_clouds_are_asked_at_the_same_time(bazaar: Bazaar) -> None:
    """Each cloud answers only when all of them have been asked."""
    gate = threading.Barrier(len(bazaar.stands), timeout=60)

    def gated(app: t.Any) -> t.Any:
        waited = threading.Event()

        def ask(environ: t.Any, start: t.Any) -> t.Any:
            if not waited.is_set():
                waited.set()
                with contextlib.suppress(threading.BrokenBarrierError):
                    gate.wait()
            return app(environ, start)

        return ask

    for stand in bazaar.stands.values():
        stand.app = gated(stand.app)  # type: ignore[assignment]
    assert clouds(bazaar.ask()) == set(bazaar.stands) and not gate.broken


def test_the_documents_of_a_file_serve_too(bazaar: Bazaar, tmp_path: Path) -> None:
    file = tmp_path / "pools.yml"
    file.write_text(yaml.safe_dump_all(documents()))
    assert bazaar.ask(documents=[str(file)], pool="default/p")["offers"]
