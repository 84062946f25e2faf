# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""README.md says what is so: versions and lanes of its support matrix, playbooks, providers, and a link to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

from .tree import ROOT, below, name

README = (ROOT / "README.md").read_text(encoding="utf-8")
LANES = ("talos", "kubelet", "service")


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README.md has no section {heading}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """First cell of each row of a table to its other cells."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {re.sub(r"^`(\w+)`$", r"\1", first): others for first, *others in cells}


def page(path: str) -> str:
    return (ROOT / "docs" / "reference" / path).read_text(encoding="utf-8")


# ---- order


def test_the_reader_meets_the_demo_before_the_manual() -> None:
    heads = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert heads == [
        "See it run",
        "No machine of a real cloud has been rented by its authors",
        "Support matrix",
        "Prerequisites",
        "Install",
        "Your first node",
        "Roles that stand alone",
        "What it promises",
        "Other tools",
        "Documentation",
        "Get help",
        "Licence",
    ]
    introduction = README.partition("```text")[0].partition("\n\n")[2].strip()
    assert len(re.findall(r"\.(?= |\n|$)", re.sub(r"\b\w+\.\w+", "x", introduction))) == 3, "three sentences"


# ---- support matrix


def test_the_lanes_of_each_provider_are_those_of_the_page_of_lanes() -> None:
    told = {cloud: cells[:3] for cloud, cells in rows(section("Support matrix")).items() if cloud in ENTRIES}
    assert set(told) == set(ENTRIES)
    head, *table = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in page("lanes.md").splitlines()
        if line.startswith("| lane | ") or re.match(rf"\| `(?:{'|'.join(LANES)})` \|", line)
    ]
    lanes = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in table}
    assert told == {cloud: [lanes[lane][cloud] for lane in LANES] for cloud in ENTRIES}
    for cloud, entry in ENTRIES.items():
        served = [lane for lane, word in zip(LANES, told[cloud], strict=True) if word != "refused"]
        assert sorted(served) == sorted(lane.value for lane in entry.facts.lanes), cloud


def test_the_versions_are_those_that_are_pinned() -> None:
    table = rows(section("Support matrix"))
    versions = page("versions.md")
    talos = re.findall(r"^\| (1\.\d+) \| [\w.-]+ \| tests/machinery/", versions, re.MULTILINE)
    assert len(talos) == 5 and table["Talos, as a node of lane `talos`"][0].partition(";")[0] == ", ".join(talos)
    kubernetes = re.search(r"were tested are the same one: ([\d.]+)\.\*\*", versions)
    assert kubernetes is not None and re.findall(r"[\d.]+\d", table["Kubernetes"][0]) == [kubernetes[1]]
    headscale = re.search(r"`github\.com/juanfont/headscale`\) \| (\S+)", versions)
    assert headscale is not None and f"headscale {headscale[1]}" in table["mesh"][0]


def test_the_range_of_ansible_core_is_the_one_that_is_installed() -> None:
    wanted = re.search(r"^ansible-core>=2\.(\d+),<2\.(\d+)$", (ROOT / "requirements-controller.txt").read_text(), re.MULTILINE)
    assert wanted is not None
    releases = [f"2.{minor}" for minor in range(int(wanted[1]), int(wanted[2]))]
    assert rows(section("Support matrix"))["ansible-core"] == [", ".join(releases)]
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == f">={releases[0]}.0"
    assert wanted[0] in README and f'pip install "{wanted[0]}"' in section("Install")


def test_the_versions_of_python_are_those_that_the_makefile_looks_for() -> None:
    pythons = rows(section("Support matrix"))["Python of the controller"][0].partition(", as far")[0].split(", ")
    lowest = re.search(r'^python_version = "([\d.]+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert lowest is not None and pythons[0] == lowest[1] and f"Python {lowest[1]} or newer" in README
    makefile = ROOT / "Makefile"
    if not makefile.exists():
        pytest.skip("The tarball has no Makefile.")
    found = re.search(r"for v in ([\d. ]+);", makefile.read_text(encoding="utf-8"))
    assert found is not None and sorted(found[1].split(), key=lambda one: int(one[2:])) == pythons


# ---- playbooks and pages


def test_every_playbook_is_named() -> None:
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    named = set(re.findall(r"\btgp\.gpu\.(\w+)", README)) | set(re.findall(r"`(\w+)`", section("Your first node")))
    assert playbooks - named == set()


def test_every_page_is_linked() -> None:
    linked = {(ROOT / path).resolve() for path in re.findall(r"\]\(([\w./-]+\.md)\)", README)}
    pages = [*below("docs", suffix=".md"), *(ROOT / f"{one}.md" for one in ("CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"))]
    assert len(pages) > 30
    assert [name(one) for one in pages if one.resolve() not in linked] == []


def test_commands_of_a_checkout_are_called_so() -> None:
    for paragraph in re.split(r"\n\n", README):
        if re.search(r"`make (?!sandbox)\w+", paragraph):
            assert "checkout" in paragraph, paragraph


def test_what_is_proven_is_not_said_of_real_clouds() -> None:
    lanes = " ".join((ROOT / "docs" / "evidence" / "lanes.md").read_text(encoding="utf-8").split())
    assert "No machine of a real cloud has been rented." in lanes
    assert "not that a machine was rented" in " ".join(section("Support matrix").split())


def test_the_capture_is_output_of_the_demo() -> None:
    """Word for word as the demo's own code writes it, where that is fixed text."""
    (capture,) = re.findall(r"```text\n(.*?)```", section("See it run"), re.DOTALL)
    told = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sandbox").glob("*.py"))
    for fixed in (
        "Two rented machines for pool training, one of our own for pool own",
        "the world's own bill",
        "nothing is left: ",
    ):
        assert fixed in capture and fixed in told, fixed
    assert "shortened" in section("See it run")


def test_the_readme_is_where_it_is_looked_for() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    assert Path(galaxy["readme"]) == Path("README.md")
