# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the collection with one deliberate fault of mutations.yml in it, and the tests of a rule run against it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = Path("plugins") / "module_utils" / "fleet"
MUTATIONS: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "mutations.yml").read_text())
_FAILED = re.compile(r"^FAILED \S*::(test_L\d+a?_\w+)", re.MULTILINE)


def copy_to(top: Path) -> Path:
    """The collection once more, in a folder that Python looks into first."""
    collection = top / "ansible_collections" / "tgp" / "gpu"
    shutil.copytree(ROOT / "plugins", collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    return top


def environment(copy: Path) -> dict[str, str]:
    """Of a process that imports the copy."""
    return {**os.environ, "PYTHONPATH": str(copy)}


@contextlib.contextmanager
def mutated(copy: Path, mutation: t.Mapping[str, str]) -> t.Iterator[None]:
    """While it lasts, the copy has the fault. Its processes must not keep bytecode (``-B``): two faults may look alike by time and size."""
    file = copy / "ansible_collections" / "tgp" / "gpu" / RULES / mutation["file"]
    text = file.read_text()
    assert text.count(mutation["from"]) == 1, f"{mutation['file']} has changed; write the mutation anew"
    file.write_text(text.replace(mutation["from"], mutation["to"]))
    try:
        yield
    finally:
        file.write_text(text)


def run(copy: Path, rule: str) -> subprocess.CompletedProcess[str]:
    """The tests of one rule, against the copy."""
    name = f"test_{rule.replace('-', '')}_"
    files = [str(path) for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py")) if f"def {name}" in path.read_text()]
    assert files, f"no test carries the name of {rule}"
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "-k", name, *files]
    return subprocess.run(command, cwd=ROOT, env=environment(copy), capture_output=True, text=True, timeout=120, check=False)


def noticed_by(told: subprocess.CompletedProcess[str]) -> str:
    """The rule's test that failed, "" when none did."""
    tests = _FAILED.findall(told.stdout) if told.returncode == 1 else []
    return tests[0] if tests else ""
