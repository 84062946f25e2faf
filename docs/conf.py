# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Sphinx for ``make docs``. docs/build.py arranges the folder that it reads; nothing is fetched from the network."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent

project = "tgp.gpu"
author = "The tgp.gpu contributors"
project_copyright = "2026, the tgp.gpu contributors"
release = version = str(yaml.safe_load((HERE.parent / "galaxy.yml").read_text(encoding="utf-8"))["version"])

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "docs/index"
exclude_patterns = ["docs/requirements.txt"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
highlight_language = "text"
nitpicky = True
nitpick_ignore_regex = [("envvar", ".*")]
suppress_warnings = ["misc.highlighting_failure"]  # YAML with templates in it

html_theme = "furo"
html_title = f"tgp.gpu {release}"
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False

_LINK = re.compile(r"\[([^\]]*)\]\(([\w./-]+)(?:#[\w-]+)?\)")
_GENERATED = {"docs/reference/index": [("Modules, roles and plugins", "collection/index")]}


def toctree(page: str, text: str) -> str:
    """The pages that an index links, as entries of the navigation."""
    pages = [(words, link) for words, link in _LINK.findall(text) if link.endswith((".md", ".rst"))]
    titles = {
        re.sub(r"\.(md|rst)$", "", link): words[:1].upper() + words[1:] for words, link in [*pages, *_GENERATED.get(page, [])]
    }
    entries = [f"{title} <{entry}>" for entry, title in titles.items()]
    return "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 2", "", *entries, "```", ""])


def read(app: t.Any, page: str, source: list[str]) -> None:
    """What a forge does with a page and Sphinx does not: diagrams stay readable as text, and links to folders are words. The theme has a list
    of headings beside each page, so that pages need none of their own."""
    path = Path(app.srcdir) / f"{page}.md"
    if not path.is_file():
        source[0] = re.sub(r"^\.\. contents::.*\n(?: +.*\n)*", "", source[0], flags=re.MULTILINE)
        return
    text = re.sub(r"^```mermaid$", "```text", source[0], flags=re.MULTILINE)
    text = _LINK.sub(lambda link: link[1] if (path.parent / link[2]).is_dir() else link[0], text)
    source[0] = text + toctree(page, text) if page.endswith("/index") else text


def setup(app: t.Any) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
