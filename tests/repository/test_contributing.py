# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CONTRIBUTING.md names code where it stands, and the files look as .editorconfig says."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from .tree import ROOT, files, name

EDITORCONFIG = ROOT / ".editorconfig"


def test_what_is_named_with_its_file_stands_in_that_file() -> None:
    """What a first change starts from: "`NAME` of `path`"."""
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    pairs = re.findall(r"`([A-Za-z_]\w+)` (?:of|in) `([\w/.]+\.py)`", text)
    assert len(pairs) >= 6
    lost = [
        (symbol, path)
        for symbol, path in pairs
        if not re.search(rf"^(?:class |def )?{symbol}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert lost == []


def unset(path: Path) -> bool:
    """Documents of others, which .editorconfig leaves as they were published."""
    (section,) = re.findall(r"^\[\{(.+)\}\]\ninsert_final_newline = unset$", EDITORCONFIG.read_text(encoding="utf-8"), re.MULTILINE)
    patterns = [one.replace("**", "*") for one in re.split(r",(?![^{]*\})", section)]
    return any(fnmatch.fnmatch(name(path), one) for one in patterns)


def test_the_files_look_as_editorconfig_says() -> None:
    if not EDITORCONFIG.exists():
        pytest.skip(".editorconfig is not in the tarball (galaxy.yml).")
    tabs = {"Makefile", ".go", ".mod", ".sum"}
    wrong = []
    for path in files():
        if path.suffix == ".png" or unset(path):
            continue
        content = path.read_bytes()
        text = content.decode("utf-8")
        if b"\r\n" in content or (text and not text.endswith("\n")) or re.search(r"[ \t]+$", text, re.MULTILINE):
            wrong.append(f"{name(path)}: line ends")
        if not {path.name, path.suffix} & tabs and re.search(r"^\t", text, re.MULTILINE):
            wrong.append(f"{name(path)}: tabs")
    assert wrong == []
