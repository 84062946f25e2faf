# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_report against the sandbox: its sums are the ledger's and the world's own bill; the page is looked at by a real browser."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import shutil
import subprocess
import typing as t
import xml.etree.ElementTree as ET
from datetime import datetime
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up
from ansible_collections.tgp.gpu.plugins.module_utils.reports import charts as report_charts
from ansible_collections.tgp.gpu.plugins.module_utils.reports import page as report_page
from ansible_collections.tgp.gpu.plugins.module_utils.reports import svg

from .rig import Rig
from .test_money import budget, spend, tear

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
)  # fmt: skip


def story(rig: Rig) -> None:
    """A useful machine, an idle one, one that never joins, and two that live."""
    rig.provision()
    rig.pod(rig.machine().name)
    rig.advance(3 * 3600)
    rig.destroy(force=True)
    spend(rig, 2)
    rig.behave("never_boots", times=1)
    rig.rent()
    rig.advance(3600)
    rig.reap()
    rig.provision(nodes=2)
    rig.advance(1800)


def report(rig: Rig, **params: t.Any) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", rig.run("report", **params)["report"])


def total(sums: t.Mapping[str, str]) -> Decimal:
    return add_up(Decimal(one) for one in sums.values())


def exact(rig: Rig) -> Decimal:
    """The sum of the ledger without losing a digit."""
    return add_up(Decimal(line["cost"]) for line in rig.ledger())


def test_A07_the_report_is_the_ledger_and_the_worlds_bill(rig: Rig) -> None:
    story(rig)
    rig.destroy()
    rig.check_bill()
    found = report(rig)
    assert Decimal(found["total"]) == exact(rig)
    for way in ("day", "use", "pool", "cloud", "model", "end"):
        assert total(found[f"by_{way}"]) == exact(rig), way
    theirs = sum((one.cost(rig.clock.now()) for one in rig.machines(living=False)), Decimal(0))
    minutes = sum((Decimal(line["price_hour"]) for line in rig.ledger()), Decimal(0)) / 60
    assert abs(Decimal(found["total"]) - theirs) <= minutes
    assert Decimal(found["by_use"]["useful"]) > 0 and Decimal(found["by_use"]["failed_join"]) > 0
    assert found["machines"] == len(rig.ledger()) and Decimal(found["per_useful_gpu_hour"]) > 0


def test_A07_hours_without_a_pod_are_not_useful(rig: Rig) -> None:
    """Two machines, each usable for three hours; a pod runs for two hours on one of them."""
    rig.provision()
    rig.advance(3600)
    rig.pod(rig.machine().name)
    rig.advance(2 * 3600)
    rig.destroy(force=True)
    rig.provision()
    rig.advance(3 * 3600)
    rig.destroy(force=True)
    worked, idle = rig.ledger()
    assert worked["work_watched"] and 7200 <= worked["useful_seconds"] < 7800
    assert (idle["worked_since"], idle["useful_seconds"]) == (None, 0) and idle["idle_seconds"] >= 3 * 3600
    found = report(rig)
    assert 2 <= Decimal(found["useful_gpu_hours"]) / worked["gpu_count"] < Decimal("2.2") and found["unknown_gpu_hours"] == "0.0000"
    assert Decimal(found["by_use"]["unused"]) > Decimal(found["by_use"]["useful"])
    assert total(found["by_use"]) == exact(rig)


TIME = "%Y-%m-%dT%H:%M:%SZ"
GPU_JOB: t.Any = [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]


def finish(rig: Rig, name: str, namespace: str = "default") -> tuple[datetime, datetime]:
    """The pod's only container ends now; when it ran."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    (container,) = rig.kube("GET", path)["status"]["containerStatuses"]
    began, ended = container["state"]["running"]["startedAt"], rig.clock.now().strftime(TIME)
    container["state"] = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": ended}}
    rig.kube("PATCH", f"{path}/status", {"status": {"phase": "Succeeded", "containerStatuses": [container]}})
    return datetime.fromisoformat(began), datetime.fromisoformat(ended)


def test_L44_to_record_that_time_has_passed_is_no_change(rig: Rig) -> None:
    """The same run says once in a quarter of an hour, with a write, what a busy machine did: nothing else has changed."""
    rig.provision()
    rig.pod(rig.machine().name, containers=GPU_JOB)
    while rig.reap()["plan"]["changed"]:
        rig.advance(60)
    before, until = len(rig.writes()), rig.claim()["work"]["until"]
    rig.advance(1000)
    assert not rig.reap()["plan"]["changed"] and rig.claim()["work"]["until"] > until
    assert len([line for line in rig.writes()[before:] if "tgp-claim" in line]) == 1


def test_L44_hours_are_those_of_the_pods_and_a_run_that_is_killed_loses_none(rig: Rig) -> None:
    """A pod runs and ends, and a run is killed before it writes that. Another one is deleted between two runs."""
    rig.provision()
    name = rig.machine().name
    rig.pod(name, containers=GPU_JOB)
    rig.advance(600)
    rig.reap()
    rig.advance(3000)
    began, ended = finish(rig, "job")
    with rig.killed_at(1, after=False):
        rig.reap()
    rig.reap()
    work = rig.claim()["work"]
    assert sum(span["useful"] for span in work["spans"]) == (ended - began).total_seconds() and work["running"] == []
    rig.pod(name, "another", containers=GPU_JOB)
    rig.advance(300)
    rig.reap()
    recorded = datetime.fromisoformat(rig.claim()["work"]["until"])
    started = rig.kube("GET", "/api/v1/namespaces/default/pods/another")["status"]["containerStatuses"][0]["state"]["running"][
        "startedAt"
    ]
    rig.advance(300)
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/another")
    rig.reap()
    again = datetime.fromisoformat(rig.claim()["work"]["until"])
    rig.destroy(force=True)
    found, (line,) = report(rig), rig.ledger()
    seconds = {row["use"]: Decimal(row["hours"]) * 3600 for row in found["hours"]}
    useful = (ended - began) + (recorded - datetime.fromisoformat(started))
    assert abs(seconds["useful"] - Decimal(useful.total_seconds())) < 1
    assert abs(seconds["unmeasured"] - Decimal((again - recorded).total_seconds())) < 1
    assert (
        abs(sum(seconds.values()) - line["seconds"]) < 2 and seconds["waiting"] > 0 and seconds["booting"] + seconds["joining"] > 0
    )
    assert sum(Decimal(row["cost"]) for row in found["hours"]) == Decimal(found["total"]).quantize(Decimal("0.01"))


def team_pod(rig: Rig, name: str, namespace: str, team: str = "") -> None:
    """A pod with one GPU on the only machine."""
    meta = {"name": name, "labels": {"tgp.io/team": team} if team else {}}
    spec = {"nodeName": rig.machine().name, "tolerations": [{"operator": "Exists"}], "containers": GPU_JOB}
    path = f"/api/v1/namespaces/{namespace}/pods"
    rig.kube("POST", path, {"metadata": meta, "spec": spec})
    rig.until(lambda: rig.kube("GET", f"{path}/{name}")["status"].get("phase") == "Running", f"{name} runs")


def space(rig: Rig, name: str, team: str) -> None:
    rig.kube("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"tgp.io/team": team}}})


def test_B11_teams_share_nodes_and_the_bill_is_split_to_the_cent(rig: Rig) -> None:
    """A pod's own label, that of a namespace, and that of the pool; then the right to read namespaces is taken away."""
    next(one for one in rig.documents if one["kind"] == "GPUNodePool")["metadata"]["labels"] = {"tgp.io/team": "green"}
    rig.training["disruption"] = {"consolidateAfter": "Never"}
    rig.provision()
    for name, team in (("research", "blue"), ("serving", "blue")):
        space(rig, name, team)
    jobs = [("own", "research", "red"), ("by-space", "serving", ""), ("by-pool", "default", "")]
    ran: dict[str, Decimal] = {}
    for name, namespace, team in jobs:
        team_pod(rig, name, namespace, team)
        rig.advance(600)
        rig.reap(namespace_teams=True)
        began, ended = finish(rig, name, namespace)
        ran[team or ("blue" if namespace == "serving" else "green")] = Decimal((ended - began).total_seconds())
        rig.reap(namespace_teams=True)
    rig.fault("status", "kubernetes", "GET", r"/api/v1/namespaces\?", status=403, times=None)
    team_pod(rig, "blind", "serving")
    rig.reap(namespace_teams=True)
    assert any("team of pods without a label of their own is unknown" in text for text in rig.warnings)
    rig.destroy(force=True)
    found = report(rig)
    hours = {row["name"]: Decimal(row["gpu_hours"]) * 3600 for row in found["split"]["teams"]}
    assert {"red", "blue", "green"} <= set(hours) <= {"red", "blue", "green", "unknown"}
    assert all(abs(hours[team] - seconds) < 1 for team, seconds in ran.items())
    bill = Decimal(found["total"]).quantize(Decimal("0.01"))
    for view in ("teams", "namespaces", "requesters"):
        assert sum(Decimal(row["cost"]) for row in (*found["split"][view], *found["split"]["unassigned"])) == bill, view
    text = "\n".join(rig.lines)
    assert "unassigned: waiting for work" in text and "green" in text
    rig.run("report", format="html", path=str(rig.folder / "r.html"))
    assert "By team" in (rig.folder / "r.html").read_text()
    path = rig.folder / "teams.csv"
    report(rig, format="csv_teams", path=str(path))
    rows = list(csv.DictReader(path.open()))
    assert add_up(Decimal(row["cost"]) for row in rows) == Decimal(found["total"])
    for team, used in hours.items():
        assert abs(sum(Decimal(row["gpu_seconds"]) for row in rows if row["team"] == team) - used) < 1, team
    assert {row["unassigned"] for row in rows if not row["team"]} == {row["name"] for row in found["split"]["unassigned"]}


def test_A07_the_first_work_is_written_once(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    rig.advance(600)
    rig.reap()
    since = rig.claim()["worked_since"]
    before = rig.writes()
    rig.advance(600)
    rig.reap()
    assert since and rig.claim()["worked_since"] == since and rig.writes() == before
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.reap()
    rig.pod(rig.machine().name, "another")
    rig.reap()
    assert rig.claim()["worked_since"] == since


def test_A07_of_lines_of_older_versions_the_use_is_unknown(rig: Rig, tmp_path: Path) -> None:
    rig.provision()
    rig.advance(3600)
    rig.destroy(force=True)
    (part,) = rig.configmaps("tgp.io/ledger")
    (line,) = rig.ledger()
    old = {name: value for name, value in line.items() if name not in ("worked_since", "work_watched")}
    changed = {"data": {next(iter(part["data"])): json.dumps(old)}}
    rig.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/{part['metadata']['name']}", changed)
    rig.lines.clear()
    found = report(rig)
    assert Decimal(found["by_use"]["unknown"]) > 0 and "useful" not in found["by_use"]
    assert (found["useful_gpu_hours"], found["per_useful_gpu_hour"]) == ("0.0000", None) and Decimal(
        found["unknown_gpu_hours"]
    ) >= 1
    assert any("unknown" in line and "useful" in line for line in rig.lines)
    assert "<dd>unknown</dd>" in drawn(rig, tmp_path).read_text()
    path = tmp_path / "r.csv"
    report(rig, format="csv", path=str(path))
    assert {one["useful_gpu_seconds"] for one in csv.DictReader(path.open()) if one["used_for"] == "unknown"} == {"unknown"}


def test_A07_live_machines_are_in_it_and_no_cloud_is_asked(rig: Rig) -> None:
    story(rig)
    hosts: set[str] = set()
    rig.watcher = lambda request: hosts.add(request.url.host)
    before = rig.writes()
    found = report(rig, budget=budget("1000"))
    assert hosts == {"kube.test"} and rig.writes() == before
    assert Decimal(found["total"]) > exact(rig) and "still there" in found["by_end"]
    assert [one["state"] for one in found["spending"]["budgets"]] == ["in bounds"]


def test_A07_table_json_and_csv_say_the_same(rig: Rig, tmp_path: Path) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    rig.advance(3600)
    rig.destroy(force=True)
    rig.lines.clear()
    found = report(rig)
    text = "\n".join(rig.lines)
    assert "useful GPU hours" in text and "by" not in found and re.search(r"idle tail|useful", text)
    files = {form: tmp_path / "out" / f"report.{form}" for form in ("json", "csv")}
    for form, path in files.items():
        assert rig.run("report", format=form, path=str(path))["path"] == str(path)
    assert Decimal(json.loads(files["json"].read_text())["total"]) == exact(rig)
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert add_up(Decimal(one["cost"]) for one in rows) == exact(rig)
    assert {one["machine"] for one in rows} == {line["name"] for line in rig.ledger()}
    again = rig.run("report", format="csv", path=str(files["csv"]))
    assert again["changed"] is False, "the same file is not written again"


def test_A07_check_mode_writes_no_file(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    assert rig.run("report", check=True, format="csv", path=str(path))["changed"] is True and not path.exists()
    assert rig.run("report", format="csv", path=str(path))["changed"] is True and path.exists()


@pytest.mark.parametrize(
    "params",
    [
        {"format": "html"},
        {"since": "yesterday"},
        {"since": "2026-11-02", "until": "2026-11-01"},
        {"until": "9999-12-31"},
        {"time_zone": "Mars/Base"},
    ],
)
def test_A07_a_report_that_makes_no_sense_is_refused(rig: Rig, params: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidInput):
        report(rig, **params)


def test_L16_torn_lines_are_named_everywhere(rig: Rig, tmp_path: Path) -> None:
    spend(rig)
    tear(rig)
    rig.lines.clear()
    rig.warnings.clear()
    found = report(rig)
    assert found["whole"] is False and len(found["torn"]) == 1
    assert any("tgp-ledger-00000" in one for one in rig.warnings)
    assert any("at least $" in one for one in rig.lines) and any("TORN" in one for one in rig.lines)
    path = tmp_path / "r.html"
    rig.run("report", format="html", path=str(path))
    assert "The books are not whole" in path.read_text()


# ---- the page


class Page(HTMLParser):
    """What a page would load, and its ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") and value and not value.startswith(("#", "data:")):
                self.loads.append(value)
            if name == "id" and value:
                self.ids.append(value)


def drawn(rig: Rig, folder: Path, **params: t.Any) -> Path:
    path = folder / "report.html"
    rig.run("report", format="html", path=str(path), **params)
    return path


def test_A07_the_page_loads_nothing(rig: Rig, tmp_path: Path) -> None:
    story(rig)
    text = drawn(rig, tmp_path, budget=budget("5")).read_text()
    page = Page(text)
    assert page.loads == [] and "script" not in page.tags and not re.search(r"https?://|url\(['\"]?http|@import", text)
    assert len(page.ids) == len(set(page.ids)) and "svg" in page.tags and "<h2>Budgets</h2>" in text
    assert "#0102" not in text, "every colour is one of the page's own"


def test_A07_words_from_outside_are_only_words(rig: Rig, tmp_path: Path) -> None:
    line = {"name": "tgp-x", "cost": "1.50", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z", "price_hour": "1.50"}
    evil = {**line, "pool": "<script>alert(1)</script>$x_$", "model": "a&b", "cloud": "\"'>", "reason": "<b>"}
    spend(rig)
    (part,) = rig.configmaps("tgp.io/ledger")
    rig.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/{part['metadata']['name']}", {"data": {"tgp-x": json.dumps(evil)}})
    page = Page(drawn(rig, tmp_path).read_text())
    assert not {"script", "b"} & page.tags


def test_A07_an_empty_ledger_makes_a_page_too(rig: Rig, tmp_path: Path) -> None:
    report(rig)
    assert rig.lines and all(line.strip() for line in rig.lines), "no empty tables"
    assert "Nothing was spent" in drawn(rig, tmp_path).read_text()


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def without(name: str, *rest: t.Any) -> t.Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(f"No module named {name!r}")
        return load(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)


@pytest.mark.usefixtures("no_matplotlib")
def test_A07_without_matplotlib_the_page_has_the_same_charts(rig: Rig, tmp_path: Path) -> None:
    story(rig)
    before = report(rig)
    text = drawn(rig, tmp_path, budget=budget("5")).read_text()
    after = report(rig)  # machines run, so a cent may pass before or after the page
    page = Page(text)
    assert page.loads == [] and "script" not in page.tags and len(page.ids) == len(set(page.ids))
    charts = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert len(charts) == 6 and all("<svg viewBox=" in one for one in charts)
    for pool, cost in after["by_pool"].items():
        amounts = [f"${Decimal(one).quantize(Decimal('0.01'))}" for one in (before["by_pool"][pool], cost)]
        assert any(pool in one and amount in one for one in charts for amount in amounts), pool
    assert charts[0].count("<rect") >= 3 and charts[1].count("<polyline") == 2


def test_A07_charts_without_matplotlib_are_in_proportion() -> None:
    heights = [Decimal(3), Decimal(0), Decimal("1.5")]
    text = svg.stacked("days", ["11-01", "11-02", "11-03"], [("useful", 0, heights)])
    first, second = (float(one) for one in re.findall(r'<rect [^>]*?height="([0-9.]+)"', text))
    assert abs(first - 2 * second) < 0.2, "no bar for nothing, the others as long as their amounts"
    assert "<b>" not in svg.bars("pools", {"<b>": Decimal(1)})
    assert ET.fromstring(svg.course("month", [(1.0, Decimal(0))], (2.5, Decimal(4)), (31.0, Decimal(80)))) is not None
    assert ET.fromstring(svg.bars("none", {"nothing": Decimal(0)})) is not None


def test_A07_a_month_is_level_until_its_first_cost() -> None:
    costs = {"2026-10-31": Decimal(9), "2026-11-03": Decimal(2), "2026-11-05": Decimal(1)}
    assert report_page.ends_of_days(costs, "2026-11", 6) == [(1, 0), (2, 0), (3, 0), (4, 2), (5, 2), (6, 3)]
    assert report_page.ends_of_days(costs, "2026-11", 1) == [(1, 0)]


def test_A07_many_words_and_many_days_are_summed_up() -> None:
    many = {f"pool-{number:02d}": Decimal(100 - number) for number in range(20)}
    for draw in (report_charts, svg):
        text = draw.bars("pools", many)
        assert "13 others" in text and "pool-06" in text and "pool-07" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install --no-install-recommends chromium)")
@pytest.mark.parametrize(
    ("width", "dark", "library"), [(1200, False, True), (1200, True, True), (500, False, True), (1200, False, False)]
)
def test_A07_a_browser_shows_the_page_without_a_complaint(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, dark: bool, library: bool
) -> None:
    if not library:
        monkeypatch.setattr(report_charts, "can_draw", lambda: False)
    story(rig)
    path, picture = drawn(rig, tmp_path, budget=budget("5")), tmp_path / "page.png"
    own = [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", f"--screenshot={picture}"]
    mode = ["--force-dark-mode"] if dark else []
    run = subprocess.run(
        [t.cast(str, CHROMIUM), *FLAGS, *own, *mode, path.as_uri()], capture_output=True, text=True, timeout=90, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "CONSOLE" not in run.stderr, run.stderr
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
