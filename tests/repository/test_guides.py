# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages for newcomers and contributors say what is so: links and headings, words, measured times, versions, levels, names."""

from __future__ import annotations

import inspect
import re
import typing as t
from pathlib import Path

import pytest

from sandbox.kube import KubeApi
from tests.conftest import LEVELS, OTHER_NAMES

from .tree import ROOT, below, name, names_of_tests

OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PAGES = [*(ROOT / one for one in OUTSIDE), *below("docs", suffix=".md")]


def text(path: str | Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as the common hosts make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def section(page: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text(page), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading}"
    return found[1]


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page, without heads and rules."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# ---- links


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_markdown_links_and_the_headings_they_name_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text(page))
    lost = []
    for path, heading in links:
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in anchors(target)):
            lost.append((path, heading))
    assert lost == []


def test_the_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", text("README.md")))
    assert {name(page) for page in PAGES} - {"README.md"} - linked == set()


# ---- glossary


def terms() -> list[tuple[str, str]]:
    found = re.findall(r"^- \*\*(.+?)\*\*: (.+?)(?=^- \*\*|\Z)", text("docs/reference/glossary.md"), re.MULTILINE | re.DOTALL)
    return [(term, " ".join(body.split())) for term, body in found]


def test_the_glossary_has_each_word_once_in_order_with_the_page_that_decides_it() -> None:
    words = [term for term, _body in terms()]
    assert len(words) > 50 and words == sorted(set(words), key=str.casefold)
    assert [term for term, body in terms() if not re.search(r"\]\([\w./]+\.md(#[\w-]+)?\)$", body)] == []


STANDARD = """
    adopt, allowed, apply, audit log, backoff, claim, delete, denied, desired state, dry run, event, garbage collection, observed state,
    orphan, outcome unknown, plan, rate limit, reconcile, requirement, retry, spec, terminate
"""


def test_the_glossary_has_the_standard_terms_of_the_field() -> None:
    assert {term.strip() for term in STANDARD.split(",")} - {term for term, _body in terms()} == set()


def test_the_glossary_is_short() -> None:
    sentences = {term: len(re.findall(r"\.(?=\s)", re.sub(r"\[[^\]]+\]\([^)]+\),?", "", body))) for term, body in terms()}
    assert {term: number for term, number in sentences.items() if not 1 <= number <= 2} == {}


# ---- trade-offs


@pytest.mark.parametrize("heading", ["Cold start", "Complexity", "Debugging", "Fragmentation", "Suitability"])
def test_S1_45_the_trade_offs_are_weighed(heading: str) -> None:
    told = section("docs/explanation/trade_offs.md", heading)
    assert len(told.split()) > 100 and re.search(
        r"^(What shortens it|What is left to you|What helps)\b|^\| work \|", told, re.MULTILINE
    )


def test_S1_45_what_is_called_measured_stands_on_the_page_that_is_named() -> None:
    """Every figure, word for word: who measures anew finds this page, too."""
    measured = [row for row in rows(section("docs/explanation/trade_offs.md", "Cold start"))[1:] if row[1] != "not measured"]
    assert len(measured) >= 5
    for phase, figures, page in measured:
        numbers = re.findall(r"\d+(?:\.\d+)?", figures)
        assert numbers and figures.endswith(" s"), phase
        lost = [one for one in numbers if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d]|\.\d)", text(page))]
        assert lost == [], f"{phase}: {page} does not say {', '.join(lost)}"


# ---- versions


def test_S1_39_the_versions_that_are_told_are_those_that_are_built() -> None:
    page = text("docs/reference/versions.md")
    modules = re.findall(r"^\| .*?`([\w./-]+\.[\w./-]+/[\w./-]+|tailscale\.com)`\) \| ([\w.-]+) \| (\S+) \|$", page, re.MULTILINE)
    talos = re.search(r"`(github\.com/siderolabs/talos/pkg/machinery)`", page)
    assert talos is not None
    releases = re.findall(r"^\| (1\.\d+) \| ([\w.-]+) \| (\S+) \|$", page, re.MULTILINE)
    assert len(modules) == 5 and len(releases) == len(list((ROOT / "tests" / "machinery").glob("*.mod")))
    assert all(version.startswith(f"{release}.") for release, version, _file in releases)
    pins = [*modules, *((talos[1], version, file) for _release, version, file in releases)]
    wrong = [
        pin
        for pin in pins
        if not re.search(rf"^(?:require|\t)? ?{re.escape(pin[0])} v{re.escape(pin[1])}\b", text(pin[2]), re.MULTILINE)
    ]
    assert wrong == []
    kubernetes = next(version for module, version, _file in modules if module == "k8s.io/kubernetes")
    assert f"were tested are the same one: {kubernetes}." in page
    assert inspect.signature(KubeApi).parameters["version"].default == f"v{kubernetes}"


def test_S1_39_of_each_api_group_version_one_is_used() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in below("plugins/module_utils", suffix=".py"))
    used: set[tuple[str, str]] = set(re.findall(r"/apis/([a-z0-9.]+)/(v\w+)", code))
    assert {version for _group, version in used} == {"v1"}
    told = re.search(r"^- Of each API group (.+?)(?=^- |\Z)", text("docs/reference/versions.md"), re.MULTILINE | re.DOTALL)
    assert told is not None
    assert {group for group, _version in used} == set(re.findall(r"`([a-z0-9]+(?:\.[a-z0-9]+)+|apps|batch|policy)`", told[1]))


# ---- contributing


def test_contributing_has_every_level_with_its_folder() -> None:
    folders = {
        **{level: f"tests/{level}" for level in LEVELS},
        **{level: f"tests/{folder}" for folder, level in OTHER_NAMES.items()},
    }
    table = rows(section("CONTRIBUTING.md", "Run the tests"))[1:]
    assert {row[0].strip("`"): row[1].strip("`") for row in table} == folders
    assert all(re.fullmatch(r"\d+\.\d", row[2]) for row in table)


def test_what_contributing_names_exists() -> None:
    """Files of the repository, and tests; a name in capitals or a number that is still free stands for one that you choose."""
    quoted: list[str] = re.findall(r"`([^`\n]+)`", text("CONTRIBUTING.md"))
    tests = {one for one in quoted if re.fullmatch(r"test_\w+", one)}
    assert tests - names_of_tests() == set()
    roots = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
    paths = {one for one in quoted if one.startswith(roots) and not re.search(r"NAME|L31|[<*]", one)}
    assert len(tests) > 20 and len(paths) > 20
    assert sorted(one for one in paths if not (ROOT / one).exists()) == []


def test_what_is_for_editors_agrees_with_the_formatter() -> None:
    if not (ROOT / ".editorconfig").exists():
        pytest.skip(".editorconfig is not in the tarball (galaxy.yml).")
    width: t.Any = re.search(r"^line-length = (\d+)$", text("pyproject.toml"), re.MULTILINE)
    assert f"max_line_length = {width[1]}\n" in text(".editorconfig")
