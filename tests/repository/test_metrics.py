# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of metrics is made of their table, what counts has a family, and alerts and dashboards ask for metrics that exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import typing as t
from xml.etree import ElementTree

import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import FAMILIES, HISTOGRAM

from .test_guides import anchors
from .tree import ROOT, below, tree

PAGE = ROOT / "docs" / "how_to" / "metrics.md"
RULES = yaml.safe_load((ROOT / "monitoring" / "prometheus_rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]


BOARDS = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "monitoring" / "dashboards").iterdir()}
PANELS = [(f"{name}: {panel['title']}", panel) for name, board in BOARDS.items() for panel in board["panels"]]
#: what Grafana has under these names since 7; a word that it does not know shows bare numbers
UNITS = {"currencyUSD", "s", "percentunit", "short"}
VARIABLES = ["datasource", "cluster", "job"]


def printed(code: str) -> str:
    """By Python, with the scripts of docs."""
    made = f"import sys; sys.path.insert(0, 'docs'); {code}"
    return subprocess.run([sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_reference_of_metrics_is_current() -> None:
    text = printed("import metrics_page; print(metrics_page.text(), end='')")
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8") == text, "run: python docs/metrics_page.py"


def test_what_the_code_counts_has_a_family_with_these_labels() -> None:
    """Names and labels of tally.count, tally.level and tally.observe, and of samples, as the code spells them."""
    named: list[tuple[str, set[str]]] = []
    for path in below("plugins/module_utils", suffix=".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tally.count", "tally.level", "tally.observe"):
                name = t.cast(ast.Constant, node.args[0]).value
                named.append((str(name), {word.arg for word in node.keywords if word.arg}))
    assert len(named) >= 6
    assert [(name, labels) for name, labels in named if set(FAMILIES[name].labels) != labels] == []
    texts = "".join(
        path.read_text(encoding="utf-8") for path in below("plugins/module_utils", suffix=".py") if path.stem != "families"
    )
    unused = {name for name in FAMILIES if f'"{name}"' not in texts and name.removeprefix("tgp_operator_") == name}
    assert unused - {"tgp_runs"} == set()


def test_each_alert_has_a_runbook_and_the_page_names_it_with_its_severity() -> None:
    rows = dict(re.findall(r"^\| \[(Tgp\w+)\]\(#\w+\) \|.*\| (\w+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    for rule in RULES:
        page, _sharp, anchor = rule["annotations"]["runbook_url"].partition("/blob/main/")[2].partition("#")
        assert ROOT / page == PAGE and anchor == rule["alert"].lower() and anchor in anchors(PAGE), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_alerts_ask_for_metrics_and_labels_that_exist() -> None:
    shown = {family.shown: family for family in FAMILIES.values()}
    for rule in RULES:
        names = set(re.findall(r"\btgp_\w+", rule["expr"]))
        assert names and names <= set(shown), rule["alert"]
        labels = set.intersection(*(set(shown[name].labels) for name in names))
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels, rule["alert"]


# ---- dashboards


def test_S1_31_the_dashboards_are_those_that_their_script_makes() -> None:
    made = json.loads(printed("import dashboards, json; print(json.dumps(dashboards.texts()))"))
    assert made == {name: (ROOT / "monitoring" / "dashboards" / name).read_text(encoding="utf-8") for name in made}, (
        "run: python docs/dashboards.py"
    )
    assert set(made) == set(BOARDS)


def names_and_labels(text: str) -> list[tuple[str, set[str]]]:
    """Each metric of a query with the labels that its matchers name."""
    found = re.findall(r"\b(tgp_\w+)(?:\{([^}]*)\})?", text)
    return [(name, set(re.findall(r'(\w+)\s*[=!]~?"', matchers))) for name, matchers in found]


def family_of(name: str) -> t.Any:
    """Of a metric in a query; None where there is no such metric. A histogram has three names."""
    shown = {family.shown: family for family in FAMILIES.values()}
    stem = re.sub("_(bucket|sum|count)$", "", name)
    return shown.get(name) or (shown[stem] if stem in shown and shown[stem].kind == HISTOGRAM and stem != name else None)


def test_S1_31_each_panel_has_a_description_and_queries_for_metrics_and_labels_that_exist() -> None:
    for where, panel in PANELS:
        assert panel["description"].endswith(".") and panel["title"] and panel["targets"], where
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, where
        for target in panel["targets"]:
            asked = names_and_labels(target["expr"])
            assert asked and target["legendFormat"] and target["instant"] != target["range"], where
            for name, labels in asked:
                assert family_of(name) is not None, f"{where}: there is no {name}"
                assert {"cluster", "job"} <= labels <= {"cluster", "job", *family_of(name).labels}, where
            known = set().union(*(family_of(name).labels for name, _labels in asked)) | {"le"}
            grouped = {
                word.strip() for words in re.findall(r"\b(?:by|on) \(([^)]*)\)", target["expr"]) for word in words.split(",")
            }
            assert grouped <= known and set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, where
    times = [
        (where, name)
        for where, panel in PANELS
        for target in panel["targets"]
        for name, _labels in names_and_labels(target["expr"])
    ]
    units = {where: panel["fieldConfig"]["defaults"]["unit"] for where, panel in PANELS}
    mixed = [
        where for where, name in times if ("dollars" in name) != (units[where] == "currencyUSD") and units[where] != "percentunit"
    ]
    assert {where.partition(": ")[2] for where in mixed} == {"Cost of a GPU per hour", "Machines and their prices"}, (
        "divided or joined"
    )
    assert [where for where, name in times if "_seconds" in name and units[where] != "s"] == []


def test_S1_31_dashboards_are_told_apart_and_ask_the_data_source_that_is_chosen() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) == 5
    for name, board in BOARDS.items():
        assert board["uid"] == f"tgp-gpu-{name.removesuffix('.json')}" and len(board["uid"]) <= 40 and board["schemaVersion"] == 38
        assert board["description"] and [one["name"] for one in board["templating"]["list"]] == VARIABLES
        for one in board["templating"]["list"][1:]:
            assert family_of(names_and_labels(one["definition"])[0][0]) is not None
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        sources = [place["datasource"] for panel in board["panels"] for place in (panel, *panel["targets"])]
        assert {json.dumps(one, sort_keys=True) for one in sources} == {'{"type": "prometheus", "uid": "${datasource}"}'}


def test_S1_31_no_panel_covers_another_one() -> None:
    for name, board in BOARDS.items():
        cells = [
            (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)) and max(x for x, _y in cells) < 24, name


#: what Grafana needs of a file that a person imports, and of each panel in it, with their types
IMPORTED = {"uid": str, "title": str, "schemaVersion": int, "panels": list, "templating": dict, "time": dict, "version": int}
OF_PANELS = {"id": int, "type": str, "title": str, "gridPos": dict, "fieldConfig": dict, "options": dict, "targets": list}
KINDS = {"stat", "bargauge", "timeseries", "state-timeline", "table"}


def test_S1_31_each_dashboard_can_be_imported_by_hand() -> None:
    """By what Grafana documents of its JSON model; no Grafana reads it here. A file without ``id`` is a new dashboard, one with ``__inputs``
    asks for data sources, and a data source by a uid of its own exists on one server only."""
    for name, board in BOARDS.items():
        assert {key: type(board.get(key)) for key in IMPORTED} == IMPORTED, name
        assert "id" not in board and "__inputs" not in board, name
        assert {type(target["refId"]) for panel in board["panels"] for target in panel["targets"]} == {str}, name
        for panel in board["panels"]:
            assert {key: type(panel.get(key)) for key in OF_PANELS} == OF_PANELS and panel["type"] in KINDS, panel["title"]
            assert panel["id"] > 0 and set(panel["gridPos"]) == {"x", "y", "w", "h"}, panel["title"]
            assert all(type(one) is int and one >= 0 for one in panel["gridPos"].values()), panel["title"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]
        used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps([board["panels"], board["templating"]]))) - {"__all"}
        assert used == set(VARIABLES), name
        assert {uid for uid in re.findall(r'"uid": "([^"]*)"', json.dumps(board["panels"]))} == {"${datasource}"}, name


def test_S1_31_the_pictures_are_drawn_of_the_kept_data_and_these_dashboards() -> None:
    made = json.loads(printed("import panel_pictures, json; print(json.dumps(panel_pictures.texts()))"))
    folder = ROOT / "docs" / "images"
    assert made == {path.name: path.read_text(encoding="utf-8") for path in folder.glob("dashboard-*.svg")}, (
        "run: python docs/panel_pictures.py"
    )
    assert all(ElementTree.fromstring(text).tag.endswith("}svg") for text in made.values())
    assert sorted(made) == sorted(f"dashboard-{name.removesuffix('.json')}.svg" for name in BOARDS)
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in made if f"(../images/{name})" not in text] == []


def test_S1_31_the_kept_data_are_answers_to_the_queries_of_these_panels() -> None:
    data = json.loads((ROOT / "docs" / "images" / "panels.json").read_text(encoding="utf-8"))
    asked = {
        f"{name.removesuffix('.json')}/{panel['title']}": [
            target["expr"].replace("$cluster", ".*").replace("$job", data["job"]) for target in panel["targets"]
        ]
        for name, board in BOARDS.items()
        for panel in board["panels"]
    }
    assert {panel: [one["query"] for one in found] for panel, found in data["panels"].items()} == asked, (
        "a dashboard has changed: see TGP_PANELS_DATA in docs/how_to/development.md"
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["date"])
    filled = [panel for panel, found in data["panels"].items() if any(one["series"] for one in found)]
    assert len(filled) > 0.8 * len(asked) and {"cost/Spending by team", "gpus/GPU time by team"} <= set(filled)


def test_the_page_names_each_dashboard() -> None:
    rows = re.findall(r"^\| `(\w+\.json)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {name: board["title"].removeprefix("tgp.gpu / ") for name, board in BOARDS.items()}
