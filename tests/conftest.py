# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all levels share: the count of tests per level, and per cloud, at the end of a run."""

from __future__ import annotations

import collections
import inspect
import os
import re
import typing as t
from pathlib import Path

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import redact

from tests.answers import Watch, answers_line
from tests.outsiders import checked_line

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)  # a red run must be red again
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "search")

LEVELS = ("unit", "repository", "contract", "cluster", "e2e", "chaos")
FAILURES = os.environ.pop("TGP_FAILURES", "")  # a file; taken out: a run of pytest that a test begins may fail on purpose
OTHER_NAMES = {
    "node_real": "node",
    "mesh_real": "mesh",
    "mutation": "mutation",
}  # folders of the levels with whole programs of others


def _level(nodeid: str) -> str:
    parts = Path(nodeid.partition("::")[0]).parts
    found = (OTHER_NAMES.get(part, part) for part in parts)
    return next((part for part in found if part in (*LEVELS, *OTHER_NAMES.values())), "other")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watch())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a test shows, for the list of the dearest."""
    for item in items:
        words = inspect.getdoc(getattr(item, "function", None)) or ""
        item.user_properties.append(("shows", words.partition("\n\n")[0].replace("\n", " ")))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget the secrets of the worlds of this test: every text is searched for all that are known, and a whole run has thousands."""
    redact.begin_generation(kept=0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> t.Generator[None, pytest.TestReport, pytest.TestReport]:
    """All tests that miss the same program make one line of the summary: their skips are told from one place, this file."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and ": not built, " in report.longrepr[2]:
        report.longrepr = (__file__, None, report.longrepr[2])  # type: ignore[assignment]  # pytest prints a place without a line
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test that fails to the list that tests/run.py prints last."""
    if report.failed and FAILURES:
        crash = getattr(report.longrepr, "reprcrash", None)
        words = redact.redact(crash.message.partition("\n")[0] if crash is not None else "")
        with open(FAILURES, "a", encoding="utf-8") as failures:
            failures.write(f"{report.nodeid}{f' - {words}' if words else ''}\n")


def _contract_of_clouds(passed: list[t.Any]) -> str:
    """How many tests of the contract that is the same for all clouds passed for how many of them; nothing when none ran."""
    tests: dict[str, set[str]] = collections.defaultdict(set)
    for report in passed:
        for name, cloud in report.user_properties:
            if name == "cloud":
                tests[cloud].add(report.nodeid.replace(f"[{cloud}", "["))
    if not tests:
        return ""
    first, *others = tests.values()
    if all(one == first for one in others):
        return f"contract of clouds: {len(first)} tests × {len(tests)} clouds ({', '.join(sorted(tests))})"
    return "contract of clouds: not the same for all: " + ", ".join(
        f"{cloud} {len(found)}" for cloud, found in sorted(tests.items())
    )


def names_of_rules() -> dict[str, str]:
    """The name of each rule, as the table of docs/reference/rules.md has them: L-16 → budget-limits."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    section = page.partition("\n## Names of the rules\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (L-\d+[a-z]?) \| ([a-z-]+) \|", section, re.MULTILINE))


def count_by_rule(passed: list[t.Any]) -> str:
    """How many tests that passed carry the number of each rule, with its name: "L-0 conventions 9, L-1 ownership 7"; empty without any."""
    found = (re.search(r"::test_L(\d+)(a?)_", report.nodeid) for report in passed if report.when == "call")
    counts = collections.Counter((int(match[1]), match[2]) for match in found if match)
    if not counts:
        return ""
    names = names_of_rules()
    rules = [(f"L-{number}{letter}", counts[number, letter]) for number, letter in sorted(counts)]
    return ", ".join(f"{rule} {names[rule]} {count}" if rule in names else f"{rule} {count}" for rule, count in rules)


def _dearest(reports: list[t.Any], count: int) -> list[str]:
    """The tests that took the most time, set-up and teardown included, parameters together: seconds, tests, and what they show."""
    seconds: collections.Counter[str] = collections.Counter()
    number: collections.Counter[str] = collections.Counter()
    shows: dict[str, str] = {}
    for report in reports:
        name = report.nodeid.partition("[")[0].removeprefix("tests/")
        seconds[name] += report.duration
        number[name] += report.when == "call"
        shows[name] = dict(report.user_properties).get("shows", "")
    rows = [
        (taken, f"{number[name]} × " if number[name] > 1 else "", name, shows[name]) for name, taken in seconds.most_common(count)
    ]
    return [f"{taken:6.1f} s  {times}{name}{f': {words}' if words else ''}" for taken, times, name, words in rows]


def pytest_terminal_summary(terminalreporter: t.Any) -> None:
    """One line per level: how many tests passed, failed and were skipped, and its minutes; and one for the contract of clouds."""
    counts: dict[str, collections.Counter[str]] = {
        level: collections.Counter() for level in (*LEVELS, *OTHER_NAMES.values(), "other")
    }
    for outcome in ("passed", "failed", "skipped", "error", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            if getattr(report, "when", "call") in ("call", "setup"):
                counts[_level(report.nodeid)][outcome] += 1
    minutes: collections.Counter[str] = collections.Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if hasattr(report, "duration"):  # of setup, test and teardown alike
            minutes[_level(report.nodeid)] += report.duration / 60
    if count := int(os.environ.get("TGP_DEAREST", "0")):
        terminalreporter.section(f"the {count} dearest tests of this process")
        timed = [one for reports in terminalreporter.stats.values() for one in reports if hasattr(one, "duration")]
        for line in _dearest(timed, count):
            terminalreporter.line(line)
    terminalreporter.section("tests by level")
    for level, counter in counts.items():
        if counter:
            told = ", ".join(f"{number} {outcome}" for outcome, number in counter.items())
            terminalreporter.line(f"{level:>9}: {told} in {minutes[level]:.1f} min")
    before = float(os.environ.get("TGP_MINUTES_BEFORE", "0"))
    terminalreporter.line(f"{'in all':>9}: {before:.1f} min of checks and builds, {sum(minutes.values()):.1f} min of tests")
    contract = _contract_of_clouds(terminalreporter.stats.get("passed", []))
    if contract:
        terminalreporter.line(contract)
    checked = checked_line(terminalreporter.stats.get("passed", []))
    if checked:
        terminalreporter.line(f"passed by programs of others: {checked}")
    answers = answers_line(terminalreporter.stats.get("passed", []))
    if answers:
        terminalreporter.line(f"answers of emulators held against their tables: {answers}")
    rules = count_by_rule(terminalreporter.stats.get("passed", []))
    if rules:
        terminalreporter.line(f"tests by rule: {rules}")
    failed = os.environ.get("TGP_FAILED_CHECKS")
    if failed:
        terminalreporter.line(f"   checks that failed before the tests: {failed}", red=True)
