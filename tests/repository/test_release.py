# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changelog agrees with its data, and no fragment can be lost in a release."""

from __future__ import annotations

import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

from .tree import ROOT, below

ANTSIBULL = Path(sys.executable).parent / "antsibull-changelog"


def released() -> dict[str, t.Any]:
    found: dict[str, t.Any] = yaml.safe_load((ROOT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]
    return found


def test_the_changelog_is_generated_from_its_data(tmp_path: Path) -> None:
    """Text that is edited by hand would be lost at the next release."""
    shutil.copy2(ROOT / "galaxy.yml", tmp_path)
    shutil.copytree(ROOT / "changelogs", tmp_path / "changelogs")
    for command in (["lint-changelog-yaml", "--strict", "changelogs/changelog.yaml"], ["generate"]):
        done = subprocess.run([str(ANTSIBULL), *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "CHANGELOG.rst").read_text() == (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")


def test_no_fragment_belongs_to_a_release() -> None:
    """A release deletes its fragments. What stayed would be repeated by the next one, or ignored with all that was added to it."""
    config = yaml.safe_load((ROOT / "changelogs" / "config.yaml").read_text(encoding="utf-8"))
    assert config["keep_fragments"] is False
    assert "0.1.0" in released()
    used = {name for release in released().values() for name in release.get("fragments", ())}
    assert used & {path.name for path in below("changelogs/fragments")} == set()
