# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where metrics go: the options, the text, the file, the gateway and the endpoint. No failure here is one of the run."""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
import typing as t
import urllib.request
from pathlib import Path

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import tally
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.metrics import publish
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.collect import FleetRecords, of_records
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import ALIASES, COUNTER, FAMILIES, GAUGE, HISTOGRAM, Sample
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.publish import Endpoint, Targets, address_of, attend, exposition
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.state import Kept, MetricsState, folder_of, noted
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, read_ledger
from prometheus_client.parser import text_string_to_metric_families

from sandbox.clock import SimClock
from tests.unit.fleet import build

SECRET = "password-of-a-gateway-0123456789"
URL = f"https://tgp:{SECRET}@gateway.test/prefix"
SPEC = {"argument_spec": {"run_id": {"type": "str"}, "metrics_push_url": {"type": "str", "no_log": True}}}
CLOSE = {**SPEC, "run_report": "close"}


class Gateway(httpx.BaseTransport):
    """A Pushgateway: groups by path, and the answers to give next."""

    def __init__(self) -> None:
        self.groups: dict[str, bytes] = {}
        self.answers: list[int] = []
        self.calls: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request)
        status = self.answers.pop(0) if self.answers else 200
        if status < 300 and request.method == "PUT":
            self.groups[request.url.path] = request.read()
        elif status < 300:
            self.groups.pop(request.url.path, None)
        return httpx.Response(status)


class World:
    """A folder for the state, a gateway, and runs of one step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gateway, self.clock = folder, Gateway(), SimClock(1)
        self.warnings: list[str] = []
        self.numbers = itertools.count(1)
        self.file = folder / "tgp.prom"

    def run(self, *, cluster: str = "a1b2c3d4", check: bool = False, leaves: bool = False, **params: t.Any) -> dict[str, t.Any]:
        def step(task: Task) -> dict[str, t.Any]:
            task.cluster_id = cluster
            recorder = attend(task)
            tally.called("lambda", "GET", "ok", 0.2)
            tally.called("some-machine", "GET", "ok", 0.2)
            if recorder is not None:
                recorder.leaves = leaves
            return {"changed": False, "outcome": "ok"}

        def close(task: Task) -> dict[str, t.Any]:
            task.cluster_id = cluster
            attend(task)
            return {"changed": False}

        run_id = f"run-{next(self.numbers)}"
        given = {"state_dir": str(self.folder / "state"), "kubeconfig": f"/{cluster}", "run_id": run_id, **params}
        for spec, run, name in ((SPEC, step, "fleet_plan"), (CLOSE, close, "fleet_unlock"))[: 1 if leaves else 2]:
            task = Task(
                dict(given),
                check_mode=check,
                warn=self.warnings.append,
                playbook="reap",
                clock=self.clock,
                transport=lambda _url: self.gateway,
            )
            result = execute(spec, run, task, name)
        return result

    def series(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return parsed(self.file.read_text())


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("metrics_file", "/var/lib/metrics.txt", "does not end with .prom"),
        ("metrics_push_url", "gateway:9091", "metrics_push_url is not the http"),
        ("metrics_push_url", f"https://tgp:{SECRET}@/x", "metrics_push_url is not the http"),
        ("metrics_push_url", "https://gateway.test/?x=1", "without a query"),
        ("metrics_listen", "loopback", "metrics_listen is 'loopback'"),
        ("metrics_listen", "127.0.0.1:70000", "Write a port"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_before_the_run(option: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Targets.of(Task({option: value}))
    assert said in str(refused.value) and SECRET not in str(refused.value)


def test_an_endpoint_is_on_loopback_unless_a_host_is_named() -> None:
    given = ["9477", ":9477", "0.0.0.0:9477", "[::1]:9477", ""]
    wanted = [("127.0.0.1", 9477), ("127.0.0.1", 9477), ("0.0.0.0", 9477), ("::1", 9477), None]
    assert [address_of(text) for text in given] == wanted


def test_nothing_is_counted_where_nobody_reads_it_and_in_check_mode(world: World) -> None:
    world.run()
    world.run(check=True, metrics_file=str(world.file))
    assert not world.file.exists() and not (world.folder / "state" / "metrics").exists()


def test_S0_05_a_run_leaves_a_text_file_that_others_may_read(world: World) -> None:
    for number in (1, 2):
        world.run(metrics_file=str(world.file))
        calls = ("operation", "get"), ("provider", "lambda"), ("status", "ok")
        assert world.series()["tgp_provider_requests_total", calls] == number
        assert world.series()["tgp_operator_provider_requests_total", calls] == number
        assert world.series()["tgp_runs_total", (("outcome", "ok"), ("playbook", "reap"))] == number
    assert oct(world.file.stat().st_mode & 0o777) == "0o644" and world.warnings == []
    assert [path.name for path in world.folder.iterdir() if path.name.startswith(".new")] == []


def test_machines_that_are_asked_by_name_make_no_series_of_their_own(world: World) -> None:
    world.run(metrics_file=str(world.file))
    assert "some-machine" not in world.file.read_text()
    assert world.series()["tgp_provider_requests_total", (("operation", "get"), ("provider", "other"), ("status", "ok"))] == 1


@pytest.mark.parametrize("place", ["missing/tgp.prom", "state/tgp.prom"])
def test_a_file_that_cannot_be_written_is_a_warning(world: World, place: str) -> None:
    (world.folder / "state").mkdir()
    path = world.folder / place
    if path.parent.exists():
        path.mkdir()  # a folder of that name
    assert "failed" not in world.run(metrics_file=str(path))
    (warning,) = world.warnings
    assert "The metrics were not published" in warning and str(path.parent) in warning


def test_a_state_folder_that_cannot_be_used_is_a_warning(world: World) -> None:
    (world.folder / "state").mkdir()
    (world.folder / "state" / "metrics").write_text("")
    assert "failed" not in world.run(metrics_file=str(world.file))
    assert all("the run goes on without them" in warning for warning in world.warnings)


def test_without_the_library_the_run_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    monkeypatch.setattr(publish.prometheus_client, "_module", None)
    assert "failed" not in world.run(metrics_file=str(world.file))
    assert "prometheus-client is needed" in world.warnings[0] and not world.file.exists()


def test_metrics_are_pushed_as_one_group_of_the_cluster_with_the_credentials_of_the_url(world: World) -> None:
    world.run(metrics_push_url=URL)
    (call,) = world.gateway.calls  # at the end of the run, and not of each step
    assert (call.method, call.url.path) == ("PUT", "/prefix/metrics/job/tgp_gpu/cluster/a1b2c3d4")
    assert call.headers["authorization"].startswith("Basic ") and SECRET not in str(call.url)
    assert parsed(world.gateway.groups[call.url.path].decode())["tgp_runs_total", (("outcome", "ok"), ("playbook", "reap"))] == 1
    kept = "".join(path.read_text() for path in (world.folder / "state").rglob("*") if path.is_file())
    assert SECRET not in kept and "gateway.test" not in kept


@pytest.mark.parametrize("answers", [[401], [500, 500], [302]])
def test_a_gateway_that_does_not_take_them_is_a_warning_without_credentials(world: World, answers: list[int]) -> None:
    world.gateway.answers = list(answers)
    assert "failed" not in world.run(metrics_push_url=URL)
    (warning,) = world.warnings
    assert "the Pushgateway at gateway.test" in warning and SECRET not in warning and "tgp:" not in warning


def test_a_file_is_written_although_the_gateway_is_away(world: World) -> None:
    world.gateway.answers = [500, 500]
    world.run(metrics_push_url=URL, metrics_file=str(world.file))
    assert world.file.exists() and len(world.warnings) == 1


def test_groups_of_clusters_that_are_gone_are_deleted(world: World) -> None:
    """After a week without a push, and no group that another gateway has."""
    world.run(cluster="old", metrics_push_url=URL)
    world.run(cluster="elsewhere", metrics_push_url="https://other.test")
    world.run(metrics_push_url=URL)
    assert len(world.gateway.groups) == 3
    world.clock.advance(publish.STALE_AFTER + 60)
    world.run(metrics_push_url=URL)
    groups = [path.rpartition("/")[2] for path in world.gateway.groups]
    assert sorted(groups) == ["a1b2c3d4", "elsewhere"] and world.warnings == []


def test_the_group_of_a_cluster_that_was_built_anew_is_deleted_at_once(world: World) -> None:
    world.run(kubeconfig="/same", metrics_push_url=URL)
    world.run(kubeconfig="/same", cluster="anew", metrics_push_url=URL)
    assert [path.rpartition("/")[2] for path in world.gateway.groups] == ["anew"]


def test_who_leaves_the_cluster_takes_the_metrics_back(world: World) -> None:
    world.run(metrics_push_url=URL, metrics_file=str(world.file))
    world.run(metrics_push_url=URL, metrics_file=str(world.file), leaves=True)
    assert world.gateway.groups == {} and not world.file.exists() and world.warnings == []


def test_a_cluster_that_was_never_reached_is_not_pushed(world: World) -> None:
    world.run(cluster="", metrics_push_url=URL)
    assert world.gateway.calls == [] and "not known yet" in world.warnings[0]


def test_the_endpoint_answers_with_what_was_shown_last() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = Endpoint(("127.0.0.1", port), "metrics_listen")
    try:
        for text in (b"one 1\n", b"two 2\n"):
            endpoint.show(text)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                assert answer.read() == text and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        with pytest.raises(InvalidInput, match="cannot be listened on"):
            Endpoint(("127.0.0.1", port), "metrics_listen")
    finally:
        endpoint.close()


# ---- the table


def test_every_family_can_be_shown_and_read_again(tmp_path: Path) -> None:
    """All of them in one text: names, kinds and labels as the table says."""
    samples = [
        Sample(one.name, {label: "x" for label in one.labels}, [1.0] if one.kind == HISTOGRAM else 1.0) for one in FAMILIES.values()
    ]
    kept = MetricsState(str(tmp_path / "m"))
    kept.append({"parts": {"all": noted(samples)}})
    found = {one.name: one for one in text_string_to_metric_families(exposition(kept.settle()).decode())}
    assert {name: one.type for name, one in found.items()} == {one.name: one.kind for one in FAMILIES.values()}
    assert {name: one.documentation for name, one in found.items()} == {one.name: one.help for one in FAMILIES.values()}
    assert "_created" not in exposition(kept.settle()).decode()


def test_what_another_version_kept_is_left_out(tmp_path: Path) -> None:
    kept = MetricsState(str(tmp_path / "m"))
    odd = [
        {"name": "tgp_never_heard_of", "labels": {}, "value": 1.0},
        {"name": "tgp_machines", "labels": {"pool": "p"}, "value": 1.0},
    ]
    kept.append({"parts": {"records": odd}})
    assert exposition(kept.settle()) == b""


OPERATOR = """
    gpu_requests_total gpu_request_duration_seconds instance_launch_duration_seconds instances_active instance_hourly_cost_usd
    provider_requests_total provider_request_duration_seconds health_checks_total idle_timeouts_total
"""


def test_S1_05_the_nine_names_of_tgp_operator_are_unchanged() -> None:
    theirs = {one.shown: one for one in FAMILIES.values() if one.name.startswith("tgp_operator_")}
    assert set(theirs) == {f"tgp_operator_{name}" for name in OPERATOR.split()}
    place = ("provider", "gpu_type", "region")
    assert theirs["tgp_operator_gpu_requests_total"].labels == (*place, "phase")
    assert theirs["tgp_operator_instance_hourly_cost_usd"].labels == theirs["tgp_operator_instances_active"].labels == place
    assert theirs["tgp_operator_provider_requests_total"].labels == ("provider", "operation", "status")
    assert theirs["tgp_operator_instance_launch_duration_seconds"].buckets == (10, 20, 40, 80, 160, 320, 640, 1280)
    assert theirs["tgp_operator_gpu_request_duration_seconds"].buckets[::9] == (1, 512)
    assert all(FAMILIES[name].labels == FAMILIES[old].labels for name, old in ALIASES.items())


def test_names_follow_the_conventions_of_prometheus() -> None:
    for one in FAMILIES.values():
        assert one.kind in (COUNTER, GAUGE, HISTOGRAM) and bool(one.buckets) == (one.kind == HISTOGRAM)
        assert not one.name.endswith(("_total", "_count", "_sum", "_bucket", "_created")), one.name
        assert one.help.endswith(".") and one.buckets == tuple(sorted(set(one.buckets)))
        assert not one.least or one.name.endswith("timestamp_seconds")
        assert one.per_machine == ("name" in one.labels and "scope" not in one.labels), one.name


def test_the_state_is_below_the_state_folder_and_for_its_owner_alone(world: World) -> None:
    world.run(metrics_file=str(world.file))
    folder = Path(folder_of({"state_dir": str(world.folder / "state"), "kubeconfig": "/a1b2c3d4"}))
    assert json.loads((folder / "base-1.json").read_text())["cluster"] == "a1b2c3d4"
    modes = {path.name: oct(os.stat(path).st_mode & 0o777) for path in (folder, folder / "base-1.json")}
    assert set(modes.values()) == {"0o700", "0o600"}


# ---- how much there is


def fleet(machines: int, *, per_machine: bool) -> str:
    """The text of that many machines of four pools at two clouds, of which half are gone."""
    pools = [f"default/pool-{number}" for number in range(4)]
    made = [
        build.claim(
            f"tgp-a1b2c3d4-pool-{n:05}",
            pool=pools[n % 4],
            cloud=("lambda", "vast")[n % 2],
            instance_id=f"i-{n}",
            ids_seen=(f"i-{n}",),
        )
        for n in range(machines)
    ]
    gone = read_ledger([ledger_line(claim, end=build.NOON) for claim in made[::2]])
    known = FleetRecords(
        tuple(made[1::2]), (), gone, build.specs(), Settings(), build.NOON, build.CAPABILITIES, per_machine=per_machine
    )
    return exposition(Kept("a1b2c3d4", {}, {}, {}, {"records": noted(of_records(known))}, {})).decode()


def series_of(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


def test_S1_26_series_and_size_are_bounded_whatever_the_number_of_machines() -> None:
    """Without metrics_per_machine a thousand machines have the series of a hundred, with it each that lives has three more."""
    few, began = fleet(100, per_machine=False), time.process_time()
    many = fleet(1000, per_machine=False)
    print(f"1,000 machines: {time.process_time() - began:.2f} s of CPU")  # pytest -s shows it
    assert series_of(few) == series_of(many) and len(many) < len(few) * 1.05
    assert series_of(fleet(1000, per_machine=True)) == series_of(many) + 500 * 3
    page = (Path(__file__).parents[3] / "docs" / "how_to" / "metrics.md").read_text(encoding="utf-8")
    rows = {
        f"| {machines:,} | {series_of(alone):,} | {len(alone) / 1024:.0f} KiB | {series_of(each):,} | {len(each) / 1024:.0f} KiB |"
        for machines in (10, 100, 1000)
        for alone, each in [(fleet(machines, per_machine=False), fleet(machines, per_machine=True))]
    }
    assert [row for row in sorted(rows) if row not in page] == []
