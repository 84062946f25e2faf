# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository's files, as git has them."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UTILS = ROOT / "plugins" / "module_utils"
_LOCAL = {
    ".git",
    ".venv",
    ".cache",
    ".sandbox",
    ".ansible",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "__pycache__",
    "bin",
}


@functools.cache
def files() -> tuple[Path, ...]:
    """Every tracked file; in an unpacked tarball, which has no history, every file."""
    try:
        run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not _LOCAL & set(path.relative_to(ROOT).parts)]
    else:
        found = [ROOT / name for name in run.stdout.split("\0") if name]
    return tuple(sorted(path for path in found if path.is_file() and not path.is_symlink()))


def below(*folders: str, suffix: str = "") -> list[Path]:
    """Files in these folders of the repository whose names end with ``suffix``."""
    roots = [ROOT / folder for folder in folders]
    return [path for path in files() if path.name.endswith(suffix) and any(path.is_relative_to(root) for root in roots)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def names_of_tests() -> frozenset[str]:
    """Names of all test functions."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(found for text in texts for found in re.findall(r"^\s*def (test_\w+)", text, re.MULTILINE))
