# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make`` lists its targets, ``make venv`` runs nothing, what the targets call is there, and pages name no target that is not."""

from __future__ import annotations

import re
import subprocess

from .tree import ROOT, below, name

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make(*arguments: str) -> str:
    done = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def phony() -> set[str]:
    found = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def test_make_alone_lists_every_target_with_a_word_about_it() -> None:
    listed = re.findall(r"^  make ([\w-]+) +(\S.+)$", make(), re.MULTILINE)
    assert make() == make("help")
    assert {name for name, _words in listed} == phony() == set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))


def test_setting_up_needs_no_test_and_no_playbook() -> None:
    """What ``make venv`` would run from nothing: an environment, an installation and a link."""
    commands = make("--dry-run", "--always-make", "venv", "PYTHON=python3")
    assert "-r requirements-controller.txt" in commands and "ansible_collections/tgp/gpu" in commands
    assert not re.search(r"pytest|tests/|sandbox|ansible-playbook", commands)


def test_the_programs_that_targets_run_exist() -> None:
    modules = re.findall(r"\$\(BIN\)/python -m ([\w.]+)", MAKEFILE)
    files = re.findall(r"\$\(BIN\)/python ([\w/]+\.py)", MAKEFILE)
    paths = [ROOT / name.replace(".", "/") for name in modules if name != "pip"]
    assert len(paths) > 5 and len(files) > 2
    assert [str(path) for path in paths if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())] == []
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_the_targets_that_pages_name_exist() -> None:
    pages = [*(ROOT / one for one in ("README.md", "CONTRIBUTING.md")), *below("docs", suffix=".md")]
    named = {
        (name(page), target)
        for page in pages
        for target in re.findall(r"(?:^ {4}|`)make ([a-z][\w-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 15 and {one for one in named if one[1] not in phony()} == set()
