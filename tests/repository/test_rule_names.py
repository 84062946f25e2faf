# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule has a number and a name: the table and the headings of docs/reference/rules.md agree, and all that cite a rule use both."""

from __future__ import annotations

import collections
import functools
import re
import types

from tests.conftest import count_by_rule, names_of_rules

from .test_guides import anchors
from .tree import ROOT, files, name

RULES = ROOT / "docs" / "reference" / "rules.md"
_ROW = re.compile(r"^\| (L-\d+[a-z]?) \| ([a-z-]+) \| ([A-Z][^|]+\.) \| \[[^]|]+\]\(#([\w-]+)\) \|$", re.MULTILINE)
_HEADING = re.compile(r"^#{2,3} ((L-\d+[a-z]?)(?: ([a-z-]+): [A-Z].*|.*))$", re.MULTILINE)
_TEXTS = (".md", ".py", ".yml", ".yaml", ".json", ".txt", ".sh", ".toml", ".rst")


def _rows() -> list[tuple[str, str, str, str]]:
    section = RULES.read_text(encoding="utf-8").partition("\n## Names of the rules\n")[2].partition("\n## ")[0]
    rows: list[tuple[str, str, str, str]] = _ROW.findall(section)
    assert len(rows) == section.count("\n| L-") > 30, "a row of the table of names has another form"
    return rows


@functools.cache
def _cited() -> dict[str, list[str]]:
    """Each rule that a file names, without leading zeros: L-16, and that of a test's name, test_L16_ or test_L02_."""
    cited: dict[str, list[str]] = collections.defaultdict(list)
    for path in files():
        if path.suffix in _TEXTS and path != ROOT / "tests" / "repository" / "test_rule_names.py":
            text = path.read_text(encoding="utf-8")
            for number, letter in re.findall(r"\b(?:L-|test_[Ll])(\d+)([a-z]?)(?=\b|_)", text):
                cited[f"L-{int(number)}{letter}"].append(name(path))
    return cited


def test_each_rule_has_one_name() -> None:
    rules, names = [row[0] for row in _rows()], [row[1] for row in _rows()]
    assert len(set(rules)) == len(rules) and len(set(names)) == len(names)
    assert rules == sorted(rules, key=lambda rule: (int(rule.strip("L-abcdefgh")), rule))
    assert dict(zip(rules, names, strict=True)) == names_of_rules()


def test_headings_and_table_agree() -> None:
    headings = {rule: (name, heading) for heading, rule, name in _HEADING.findall(RULES.read_text(encoding="utf-8"))}
    assert {rule: name for rule, (name, _heading) in headings.items()} == names_of_rules()
    links = {rule: anchor for rule, _name, _sentence, anchor in _rows()}
    made = {rule: re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for rule, (_name, heading) in headings.items()}
    assert links == made and set(links.values()) <= anchors(RULES)


def test_each_rule_that_is_cited_has_a_name() -> None:
    """CONTRIBUTING.md shows a new rule under the first free number."""
    names = names_of_rules()
    free = f"L-{1 + max(int(rule.strip('L-abcdefgh')) for rule in names)}"
    without = {rule: sorted(set(paths)) for rule, paths in _cited().items() if rule not in names}
    assert without == {free: ["CONTRIBUTING.md"]}


def test_each_name_belongs_to_a_rule_that_is_used() -> None:
    used = {rule for rule, paths in _cited().items() if set(paths) - {name(RULES)}}
    assert set(names_of_rules()) - used == set()


def test_what_cites_a_rule_by_its_name_uses_the_right_one() -> None:
    """In links: [L-16 budget-limits](rules.md#l-16-budget-limits-limits-and-money)."""
    names, wrong, links = names_of_rules(), [], 0
    for path in files():
        if path.suffix == ".md":
            for rule, words, anchor in re.findall(
                r"\[(L-\d+[a-z]?)([^\]]*)\]\([\w./]*(?:rules\.md)?#(l-[\w-]+)\)", path.read_text(encoding="utf-8")
            ):
                links += 1
                if words not in ("", f" {names[rule]}") or not anchor.startswith(f"{rule.lower()}-{names[rule]}-"):
                    wrong.append((name(path), rule, words, anchor))
    assert links > 50 and wrong == []


def test_the_summary_counts_tests_under_number_and_name() -> None:
    ids = (
        "a.py::test_L16_limits[one]",
        "a.py::test_L16_limits[two]",
        "b.py::test_L02_claims",
        "c.py::test_L1a_stamp",
        "d.py::test_x",
    )
    passed = [types.SimpleNamespace(nodeid=one, when=when) for one in ids for when in ("setup", "call")]
    assert count_by_rule(passed) == "L-1a ownership-stamp 1, L-2 claims 1, L-16 budget-limits 2"
    assert count_by_rule(passed[-2:]) == ""
