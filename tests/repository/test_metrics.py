# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of metrics is made of their table, what counts has a family, and each alert has a runbook and asks for metrics that exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import typing as t

import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import FAMILIES

from .test_guides import anchors
from .tree import ROOT, below, tree

PAGE = ROOT / "docs" / "how_to" / "metrics.md"
RULES = yaml.safe_load((ROOT / "monitoring" / "prometheus_rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]


def test_the_reference_of_metrics_is_current() -> None:
    made = "import sys; sys.path.insert(0, 'docs'); import metrics_page; print(metrics_page.text(), end='')"
    text = subprocess.run([sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, check=True).stdout
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
