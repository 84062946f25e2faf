# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of the pages of docs/ run on one sandbox, page after page, with the documents of the demo as ``pools.yml``. README.md and
the tutorial have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.running import ROOT

from .box import NOTHING, Sandbox
from .shell_blocks import run_blocks, shell_blocks

DOCS = ROOT / "docs"
_OF_ITS_OWN = DOCS / "tutorial"  # test_tutorial.py
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if _OF_ITS_OWN not in page.parents and any(not block.illustration for block in shell_blocks(page))
]


@pytest.fixture(scope="module")
def folder(shared: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: ``pools.yml`` and its templates, the examples, and the environment file of ``make sandbox``."""
    home = tmp_path_factory.mktemp("reader")
    work = home / "gpus"
    work.mkdir()
    (home / "templates").symlink_to(ROOT / "examples" / "templates")
    (work / "examples").symlink_to(ROOT / "examples")
    (work / ".venv").symlink_to(ROOT / ".venv")
    texts = [(ROOT / "examples" / "demo" / name).read_text(encoding="utf-8") for name in ("class.yml", "pools.yml")]
    (work / "pools.yml").write_text("\n---\n".join(texts), encoding="utf-8")
    (work / ".sandbox").mkdir()
    (work / ".sandbox" / "env").write_text("", encoding="utf-8")  # this shell has the environment already
    return work


def test_pages_have_blocks_to_run() -> None:
    assert len(PAGES) >= 7


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page: Path, shared: Sandbox, folder: Path) -> None:
    run = run_blocks(shell_blocks(page), folder, {**shared.environment, "ANSIBLE_NOCOLOR": "1"}).succeeded()
    assert "[ERROR]" not in run.out and "[DEPRECATION" not in run.out


def test_what_the_pages_rented_is_terminated_by_one_destroy(shared: Sandbox, folder: Path) -> None:
    shared.playbook("destroy", documents=folder / "pools.yml", extra_vars={"everything": True, "force": True}).succeeded()
    assert shared.left() == NOTHING
