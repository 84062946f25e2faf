# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One story, seen by a real Prometheus in all three ways: rent, fail, idle, budget, a team's pod, a refused key, an orphan, delete, loop."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import time
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import from_text

from sandbox.running import ROOT
from tests.fixtures.demo import demo_documents

from .box import Sandbox, bill, by_name
from .panel_picture import record
from .panels import EXPECTED, ORPHAN, SHOWN, SILENT, Truth, queries, wrong
from .prometheus import RULES, Monitoring, promtool

BEHIND = 24 * 3600  # seconds: alerts compare times of the world with Prometheus' clock, so the world's are in the past
SCENARIO = {
    "lambda": [
        {"type": kind, "region": region, "stock": 4, "boot": 20}
        for kind, region in (
            ("gpu_1x_rtx6000", "us-west-1"),
            ("gpu_1x_rtx6000", "us-east-1"),
            ("gpu_1x_a6000", "us-west-1"),
            ("gpu_1x_a10", "us-west-1"),
        )
    ],
    "machines": [{"name": name, "gpus": 1, "boot": 20} for name in ("rack-1", "rack-2")],
    "timings": {"packages": 5, "mesh": 2, "csr": 1, "ready": 2, "gpu": 4},
}
REFUSED = {"kind": "status", "service": "lambda", "method": "GET", "path": "/instances", "status": 401, "times": None}
SOLD_OUT = {
    "kind": "status",
    "service": "lambda",
    "method": "POST",
    "path": "/launch",
    "status": 400,
    "body": {"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity."}},
    "times": 1,
}
STUCK = {"kind": "status", "service": "lambda", "method": "POST", "path": "/terminate", "status": 500, "times": None}


def test_the_rules_are_taken_and_each_alert_fires_when_it_says() -> None:
    assert "11 rules found" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", str(ROOT / "tests" / "fixtures" / "prometheus_rules_test.yml"))


def test_S1_31_each_panel_is_either_compared_with_the_world_or_said_to_have_no_value(tmp_path: Path) -> None:
    """The three lists name every panel once, and Prometheus understands every query."""
    asked = queries("file")
    assert sorted([*EXPECTED, *SHOWN, *SILENT]) == sorted(asked)
    rules = [
        {"record": f"panel:{number}", "expr": query} for number, query in enumerate(one for some in asked.values() for one in some)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))


class Story:
    """``seen``: what Prometheus and the alerts say; ``sandbox``: the truth."""

    def __init__(self, sandbox: Sandbox, seen: Monitoring, folder: Path) -> None:
        self.sandbox, self.seen, self.folder = sandbox, seen, folder
        self.began = time.time()
        self.environment: dict[str, str | None] = {
            "TGP_METRICS_FILE": str(seen.file),
            "TGP_METRICS_PUSH_URL": seen.gateway,
            "TGP_METRICS_LISTEN": str(seen.listen),
            "TGP_METRICS_PER_MACHINE": "true",
        }
        self._runs: collections.Counter[str] = collections.Counter()
        self._since: dict[str, t.Any] = {}
        documents = demo_documents()
        training = by_name(documents, "GPUNodePool", "training")["spec"]
        training["disruption"]["consolidateAfter"] = "48h"
        self.documents = self._written("pools.yml", documents)

    def _written(self, name: str, documents: list[dict[str, t.Any]]) -> Path:
        path = self.folder / "documents" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump_all(documents))
        return path

    def fault(self) -> Path:
        """One more document, which is faulty."""
        return self._written(
            "odd.yml", [{"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": "odd"}, "spec": {"x": 1}}]
        )

    def run(self, playbook: str, *, rc: int = 0, env: t.Mapping[str, str] | None = None, **extra_vars: t.Any) -> None:
        more = {**self.environment, **(env or {})}
        self.begins(playbook)
        done = self.sandbox.playbook(playbook, documents=self.documents.parent, env=more, extra_vars=extra_vars)
        assert done.rc == rc and "The metrics were not published" not in done.words, done.text
        promtool("check", "metrics", text=self.seen.file.read_text())

    def begins(self, playbook: str) -> None:
        """Note how the world is before a run."""
        world = self.sandbox.world()
        self._runs[playbook] += 1
        self._since = {"now": from_text(world["now"]).timestamp(), "cost": world["totals"]["cost"]}

    def panels_agree(self, moment: str, job: str = "file", budget: Decimal = Decimal(0)) -> None:
        """The dashboards show what the world's tables hold, once Prometheus has scraped the last run."""
        documents = [one for one in yaml.safe_load_all(self.documents.read_text()) if one]
        truth = Truth(self.sandbox, documents, dict(self._runs), budget, dict(self._since))
        found = ["nothing was asked"]

        def agree() -> bool:
            found[:] = wrong(self.seen, truth, moment, job)
            return not found

        self.seen.until(agree, f"the panels agree in the moment {moment!r}", lambda: "\n".join(found))

    def agrees(self, *jobs: str) -> None:
        """Prometheus shows what the world's tables and the ledger hold, whichever way it came."""
        totals = self.sandbox.totals()
        for job in jobs or ("file", "gateway"):
            only = f'{{job="{"tgp_gpu" if job == "gateway" else job}"}}'
            self.seen.becomes(f"sum(tgp_operator_instances_active{only}) or vector(0)", float(totals["instances"]))
            self.seen.becomes(f"sum(tgp_cost_dollars_per_hour{only}) or vector(0)", float(totals["hourly"]))
            self.seen.becomes(f"sum(tgp_machines_ended_total{only}) or vector(0)", float(len(self.sandbox.ledger())))
            self.seen.becomes(f"sum(tgp_machines{only}) or vector(0)", float(len(self.sandbox.claims())))

    def spent(self) -> Decimal:
        """Of the budget, as the last run knew it."""
        line = next(one for one in self.seen.file.read_text().splitlines() if one.startswith("tgp_budget_spent_dollars{"))
        return Decimal(line.rpartition(" ")[2])


def budget(amount: Decimal) -> dict[str, str]:
    return {"TGP_BUDGET": f"period=month amount={amount.quantize(Decimal('0.0001'))}"}


@pytest.fixture
def story(start: t.Callable[..., Sandbox], tmp_path: Path) -> t.Iterator[Story]:
    with contextlib.ExitStack() as stack:
        seen = Monitoring(tmp_path, stack)
        scenario = tmp_path / "scenario.yml"
        scenario.write_text(yaml.safe_dump(SCENARIO))
        yield Story(start(speed=60, behind=BEHIND, scenario=scenario), seen, tmp_path)


def test_S0_05_a_story_is_scraped_in_three_ways_and_the_alerts_fire_in_order(story: Story) -> None:
    sandbox, seen = story.sandbox, story.seen
    seen.fires("TgpMetricsAbsent")
    sandbox.behave({"kind": "boot_error", "times": 2})
    sandbox.faults(SOLD_OUT)
    story.run("provision", pool="training", nodes=1)
    seen.fires("TgpNothingRan", "TgpFailedJoins")
    story.agrees()
    seen.becomes('tgp_failed_joins_total{job="file"}', 2)
    seen.becomes('sum(tgp_launches_total{job="tgp_gpu",result="ok"})', 3)
    story.panels_agree("first")

    sandbox.advance(8 * 3600)  # what a run costs beside it is little
    amount = (Decimal(str(sandbox.totals()["cost"])) * 100 / 85).quantize(Decimal("0.0001"))
    story.run("reap", env=budget(amount))
    seen.fires("TgpIdleSpend", "TgpBudgetLow")
    story.panels_agree("idle", budget=amount)
    story.run("reap", env=budget(story.spent() * 100 / 105))
    seen.fires("TgpBudgetExhausted")

    sandbox.run_job(next(iter(sandbox.claims())), team="red")
    sandbox.advance(2 * 3600)
    story.run("reap")
    story.panels_agree("team")
    sandbox.end_job()

    sandbox.faults(REFUSED)
    odd = story.fault()
    story.run("reap", rc=2)
    seen.fires("TgpProviderKeyRefused", "TgpDocumentsFaulty")
    story.panels_agree("fault")
    sandbox.clear_faults()
    odd.unlink()

    stamp = {"cluster": next(iter(sandbox.claims())).split("-")[1], "generation": _generation(sandbox)}
    orphan = {"cloud": "lambda", "name": f"tgp-{stamp['cluster']}-training-{ORPHAN}", "marks": stamp}
    sandbox.control.post("/strangers", json=orphan).raise_for_status()
    sandbox.faults(STUCK)
    story.run("reap")
    seen.becomes('tgp_orphans{job="file",kind="instance",provider="lambda"}', 1)
    seen.fires("TgpOrphan")
    story.panels_agree("orphan")
    story.run("destroy", rc=2, everything=True)
    seen.fires("TgpTerminationPending")
    story.panels_agree("stuck")
    sandbox.clear_faults()
    sandbox.advance(1200)
    story.run("reap")
    assert sandbox.totals()["instances"] == 0
    story.agrees()
    story.panels_agree("end")
    total = float(bill(sandbox.ledger()))
    for job in ("file", "tgp_gpu"):
        seen.becomes(f'sum(tgp_spend_dollars_total{{job="{job}"}})', total)
        seen.becomes(f'sum(tgp_spend_by_use_dollars{{job="{job}"}})', total)

    sandbox.advance(BEHIND)
    _pod_that_fits_nowhere(sandbox)
    story.begins("autoscale")
    loop = sandbox.begin(
        *sandbox.arguments("autoscale", documents=story.documents.parent, extra_vars={"loop": True, "interval": 60}),
        env=story.environment,
    )
    try:
        story.agrees("loop")
        story.panels_agree("loop", job="loop")
        seen.becomes('sum(tgp_spend_dollars_total{job="loop"})', total)
        seen.until(lambda: seen.firing() == set(), f"all is well again: {seen.firing()}")
        loop.process.send_signal(signal.SIGTERM)
        assert loop.finish(60).rc == 0
        recorded(story)
    finally:
        loop.kill()
    assert seen.fired[0] == "TgpMetricsAbsent" and len(seen.fired) == 10, seen.fired


def recorded(story: Story) -> None:
    """The data of what the panels showed; in the file that TGP_PANELS_DATA names, else in the folder of the test."""
    path = Path(os.environ.get("TGP_PANELS_DATA") or story.folder / "panels.json")
    panels = record(story.seen, "file", story.began, path)
    assert {panel for panel, (moment, _expected) in EXPECTED.items() if moment != "loop"} <= set(panels)
    assert set(json.loads(path.read_text())["panels"]) == set(queries("file")) and path.stat().st_size < 300_000


def _pod_that_fits_nowhere(sandbox: Sandbox) -> None:
    """It asks for more GPUs than any machine has."""
    container = {"name": "train", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": "64"}}}
    pod = {"metadata": {"name": "huge"}, "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]}}
    sandbox.kube.post("/api/v1/namespaces/default/pods", json={"apiVersion": "v1", "kind": "Pod", **pod}).raise_for_status()


def _generation(sandbox: Sandbox) -> str:
    (record,) = (one for one in sandbox.configmaps() if one["metadata"]["name"] == "tgp-state-generation")
    return str(yaml.safe_load(record["data"]["state.json"])["generation"])
