# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics against the tables of the world: machines, money, calls, orphans; what a killed run leaves; and what they cost in calls."""

from __future__ import annotations

import collections
import typing as t
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from prometheus_client.parser import text_string_to_metric_families

from .rig import URLS, Rig, bill
from .test_launch import SOLD_OUT, refuse

_HOSTS = {httpx.URL(url).host: name for name, url in URLS.items()}
TRAINING = {"pool": "default/training", "provider": "lambda"}


class Measured:
    """A rig whose modules are called as Ansible calls them, with metrics in a file."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.file = rig, folder / "tgp.prom"
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()
        rig.watcher = self._watch
        rig.call = lambda code, task: execute(code.SPEC, code.run, self._named(task, code), code.__name__)
        run = rig.run

        def called(module: str, run_id: str = "", **params: t.Any) -> dict[str, t.Any]:
            return run(module, run_id, **{"metrics_file": str(self.file), **params})

        rig.run = called  # type: ignore[method-assign]

    def _named(self, task: Task, _code: t.Any) -> Task:
        task.playbook = "reap"
        return task

    def _watch(self, request: httpx.Request) -> None:
        self.calls[_HOSTS[request.url.host], request.method.lower()] += 1

    def value(self, name: str, /, **labels: str) -> float:
        """The sum of the series that have these labels; 0 where there is none."""
        families = text_string_to_metric_families(self.file.read_text())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def hourly(self) -> Decimal:
        """What the world charges per hour now."""
        return sum((machine.price_hour for machine in self.rig.machines()), Decimal(0))

    def agrees(self) -> None:
        """What is said of machines and money is what the world's tables and our books hold."""
        rig, machines = self.rig, self.rig.machines()
        assert self.value("tgp_operator_instances_active") == len(machines)
        assert self.value("tgp_cost_dollars_per_hour") == pytest.approx(float(self.hourly()))
        assert self.value("tgp_operator_instance_hourly_cost_usd") == pytest.approx(float(self.hourly()))
        assert self.value("tgp_machines") == len(rig.claims())
        assert self.value("tgp_machines_ended_total") == len(rig.ledger())
        assert self.value("tgp_launches_total") == rig.creates() == self.value("tgp_launches_total", provider="lambda")
        now = rig.clock.now()
        theirs = sum((machine.cost(now) for machine in rig.machines(living=False)), Decimal(0))
        minutes = sum((machine.price_hour / 60 for machine in rig.machines(living=False)), Decimal(0))
        assert abs(Decimal(self.value("tgp_spend_dollars_total")) - theirs) <= minutes * 2


@pytest.fixture
def measured(rig: Rig, tmp_path: Path) -> Measured:
    return Measured(rig, tmp_path)


def test_S0_05_metrics_are_what_the_world_holds(measured: Measured) -> None:
    """Rented, refused, idle, gone: after each run every number is that of the world's own tables."""
    rig = measured.rig
    refuse(rig, SOLD_OUT)
    rig.provision(nodes=2)
    measured.agrees()
    assert measured.value("tgp_launches_total", result="refused", reason="capacity") == 1
    assert measured.value("tgp_machines", phase="Ready", **TRAINING) == 2 == measured.value("tgp_ready_duration_seconds_count")
    rig.reap()
    rig.advance(3600)
    names = sorted(rig.claims())
    rig.pod(names[0])
    rig.reap()
    measured.agrees()
    assert measured.value("tgp_operator_idle_timeouts_total") == 1 == measured.value("tgp_machines_ended_total", reason="Empty")
    assert measured.value("tgp_idle_cost_dollars_per_hour") == 0 and measured.value("tgp_machines", phase="Ready") == 1
    rig.destroy()
    measured.agrees()
    assert measured.value("tgp_spend_dollars_total") == pytest.approx(float(bill(rig.ledger())))
    assert measured.value("tgp_spend_by_use_dollars") == pytest.approx(float(bill(rig.ledger())))
    assert measured.value("tgp_drains_total", result="drained") >= 1


def test_S1_30_each_call_of_a_service_is_counted_once(measured: Measured) -> None:
    rig = measured.rig
    rig.provision()
    plan = rig.plan("reap")
    rig.plan("reap", run_id=plan["run_id"])  # the offers that the first one asked for are remembered
    before = dict(measured.calls)
    rig.unlock(plan["run_id"])
    metered = {
        key: measured.value("tgp_provider_requests_total", provider=key[0], operation=key[1])
        for key in before
        if key[0] not in ("kubernetes", "mesh_proxy")
    }
    assert metered == {key: before[key] for key in metered} and len(metered) >= 4
    assert measured.value("tgp_provider_request_duration_seconds_count", provider="lambda") == sum(
        number for (service, _method), number in before.items() if service == "lambda"
    )
    assert measured.value("tgp_offer_cache_requests_total") >= 1
    assert measured.value("tgp_lock_attempts_total", result="taken") >= 2
    assert measured.value("tgp_operator_health_checks_total", status="healthy") == 2


def test_A18_orphans_are_those_of_the_world_until_they_are_gone(measured: Measured) -> None:
    rig = measured.rig
    rig.behave("never_boots", times=1)
    rig.fault("status", "lambda", "POST", "/terminate", status=500, times=None)
    rig.provision()
    first = rig.clock.now().timestamp()
    for claim in rig.claims():
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim}")
    rig.reap()
    assert measured.value("tgp_orphans", kind="instance", provider="lambda") == len(rig.machines()) == 1
    seen = measured.value("tgp_orphan_oldest_timestamp_seconds", kind="instance", provider="lambda")
    assert first - 1 <= seen <= rig.clock.now().timestamp()
    rig.faults.clear()
    rig.advance(700)
    rig.reap()
    plan = rig.plan("reap")
    rig.run("unlock", plan["run_id"])
    assert measured.value("tgp_orphans", kind="instance") == len(rig.machines()) == 0
    assert measured.value("tgp_orphan_oldest_timestamp_seconds") == 0


def test_S1_30_calls_that_fail_count_by_their_kind(measured: Measured) -> None:
    rig = measured.rig
    rig.provision()
    assert (measured.value("tgp_provider_key_refused"), measured.value("tgp_documents_faulty")) == (0, 0)
    rig.fault("status", "lambda", "GET", "/instances", status=401, times=None)
    rig.training["gpuCount"] = "many"
    rig.reap()
    assert (
        measured.value("tgp_provider_key_refused", provider="lambda") == 1
        and measured.value("tgp_provider_up", provider="lambda") == 0
    )
    assert measured.value("tgp_documents_faulty") == 1
    assert measured.value("tgp_provider_requests_total", provider="lambda", status="auth") >= 1


@pytest.mark.parametrize("after", [False, True])
def test_S1_26_counters_are_neither_lost_nor_doubled_wherever_a_run_is_killed(
    build: t.Callable[..., Rig], tmp_path: Path, after: bool
) -> None:
    """A machine that comes and goes, with a kill at each write of its end: in the end every counter is what the world holds."""
    rig = build()
    measured = Measured(rig, tmp_path)
    rig.provision()
    rig.advance(3600)
    number = 0
    while rig.claims():
        number += 1
        with rig.killed_at(number % 7 + 1, after=after):
            rig.destroy()
        assert number < 30
    plan = rig.plan("reap")
    rig.unlock(plan["run_id"])
    measured.agrees()
    assert measured.value("tgp_machines_ended_total") == 1 == measured.value("tgp_ready_duration_seconds_count")
    assert measured.value("tgp_spend_dollars_total") == pytest.approx(float(bill(rig.ledger())))


def test_a_quiet_run_with_metrics_reads_claims_and_ledger_once_more_and_what_was_archived(measured: Measured) -> None:
    rig = measured.rig
    rig.provision()
    rig.reap()

    def quiet(**params: t.Any) -> collections.Counter[tuple[str, str]]:
        measured.calls.clear()
        before = rig.writes()
        plan = rig.plan("reap", **params)
        rig.run("unlock", plan["run_id"], **params)
        assert rig.writes() == before
        return collections.Counter(measured.calls)

    quiet()
    with_metrics, without = quiet(), quiet(metrics_file=None)
    assert with_metrics - without == collections.Counter({("kubernetes", "get"): 3})
