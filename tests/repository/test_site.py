# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site of ``make docs``: every page is in its navigation, under a title of its own. It is built by CI only, because that takes a minute."""

from __future__ import annotations

import importlib.util
import re
import types
from pathlib import Path

import pytest
import yaml

from .tree import ROOT, below, name

PAGES = below("docs", suffix=".md")
INDEXES = [page for page in PAGES if page.name == "index.md"]


def _load(which: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{which}", ROOT / "docs" / f"{which}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONF, BUILD = _load("conf"), _load("build")


def entries(index: Path) -> dict[str, str]:
    """Page → its title in the navigation below an index, as Sphinx gets it."""
    page = name(index).removesuffix(".md")
    found = re.findall(r"^(.+) <(.+)>$", CONF.toctree(page, index.read_text(encoding="utf-8")), re.MULTILINE)
    return {name_of(index, link): title for title, link in found if not link.startswith("collection/")}


def name_of(index: Path, link: str) -> str:
    path = (index.parent / link).resolve()
    return name(next(one for one in (path.with_name(f"{path.name}.md"), path.with_name(f"{path.name}.rst")) if one.is_file()))


def headings(page: Path) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ .+$", text, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page for index in INDEXES for page in entries(index)]
    assert sorted(page for page in listed if page.startswith("docs/")) == sorted(
        name(page) for page in PAGES if page != ROOT / "docs" / "index.md"
    )
    outside = {page for page in BUILD.pages() if page.endswith((".md", ".rst")) and not page.startswith("docs/")}
    assert set(listed) - {name(page) for page in PAGES} == outside, "a page that is copied and not listed fails the build"


def test_every_page_and_every_file_that_a_page_links_is_copied() -> None:
    copied = BUILD.pages()
    assert {name(page) for page in PAGES} <= set(copied)
    for page in PAGES:
        for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            assert target.is_dir() or name(target) in copied, (name(page), link)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_one_title_and_no_heading_twice(page: Path) -> None:
    found = headings(page)
    assert [heading for heading in found if heading.startswith("# ")] == found[:1]
    assert sorted({heading for heading in found if found.count(heading) > 1}) == []


def test_titles_differ() -> None:
    titles = [headings(page)[0] for page in PAGES]
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


def test_the_site_is_neither_committed_nor_in_the_tarball() -> None:
    (top, *_) = BUILD.HTML.relative_to(ROOT).parts
    assert f"{top}/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert top in yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]


def test_nothing_is_asked_of_the_network() -> None:
    """No theme, font or script from elsewhere, and no inventory of another site."""
    for path in [*below("docs", suffix=".css"), *below("docs", suffix=".js")]:
        assert re.findall(r"url\(|@import|https?:|fetch\(", path.read_text(encoding="utf-8")) == []
    assert not hasattr(CONF, "intersphinx_mapping") and "sphinx.ext.intersphinx" not in CONF.extensions


def test_diagrams_stay_readable_and_links_to_folders_become_words(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "page.md").write_text("", encoding="utf-8")
    source = ["```mermaid\na --> b\n```\n\n[examples](examples/) and [page](page.md)\n"]
    CONF.read(types.SimpleNamespace(srcdir=str(tmp_path)), "page", source)
    assert source == ["```text\na --> b\n```\n\nexamples and [page](page.md)\n"]
