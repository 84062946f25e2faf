# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``ansible-galaxy collection build`` makes of the checkout: all that a user needs, nothing else, and the sandbox starts from it."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.release import NEVER, build_tarball

from .test_layers import imports
from .tree import ROOT, below, files, name

METADATA = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
MIB = 1024 * 1024
MOST = 5 * MIB // 2  # of the tarball; it had 2.0 MiB when the bound was set
LARGE: set[str] = set()  # files of more than a MiB that may be in it
FOLDERS = {
    "changelogs",
    "docs",
    "examples",
    "extensions",
    "files",
    "meta",
    "monitoring",
    "playbooks",
    "plugins",
    "roles",
    "sandbox",
    "schemas",
}
PAGES = {"CHANGELOG.rst", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
NEEDS = {"bindep.txt", "requirements.txt", "requirements-controller.txt"}
MADE = {"FILES.json", "MANIFEST.json"}
HIDDEN = '''
import importlib.machinery
import sys


class WithoutLink:
    """Hides the link to the checkout, which a user's Python does not have."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "ansible_collections":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [one for one in sys.path if "site-packages" not in one])
        if spec is None:
            raise ModuleNotFoundError(name, name=name)
        return spec


sys.meta_path.insert(0, WithoutLink)
'''

PLAYED = """
import pathlib
import subprocess
import sys

from sandbox.running import Running

sandbox = Running(pathlib.Path(sys.argv[1]), speed=1)
try:
    command = ["ansible-playbook", "-vv", "playbooks/status.yml", "-e", "tgp_documents=examples/demo"]
    sys.exit(subprocess.run(command, env=sandbox.environment).returncode)
finally:
    sandbox.close()
"""


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tarball(ROOT, tmp_path_factory.mktemp("tarball"))


def test_the_tarball_has_what_a_user_needs_and_no_tests(tarball: Path) -> None:
    with tarfile.open(tarball) as packed:
        sizes = {member.name: member.size for member in packed if member.isfile()}
    assert {path.partition("/")[0] for path in sizes} == FOLDERS | PAGES | NEEDS | MADE
    assert [path for path in sizes if NEVER & set(path.split("/"))] == []
    assert {path for path, size in sizes.items() if size > MIB} == LARGE
    assert tarball.stat().st_size <= MOST
    shipped = {name(path) for folder in FOLDERS for path in below(folder)} - {name(path) for path in below("extensions/molecule")}
    assert shipped - set(sizes) == set()


def test_what_git_ignores_is_not_built_into_the_tarball() -> None:
    """ansible-galaxy does not read .gitignore. It leaves out compiled files by itself."""
    ignored = METADATA["build_ignore"]
    for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split():
        path = Path(line.strip("/"))
        itself = [path, *path.parents[:-1]]
        assert path.name in {"__pycache__", "*.pyc"} or any(
            fnmatch.fnmatch(str(one), rule) for one in itself for rule in ignored
        ), line


def test_what_is_shipped_imports_nothing_of_the_tests() -> None:
    wrong = [
        (name(path), line.foreign)
        for path in below("plugins", "sandbox", "schemas", "extensions", suffix=".py")
        if not path.is_relative_to(ROOT / "extensions" / "molecule")
        for line in imports(path)
        if line.foreign == "tests" or (line.target and line.target.is_relative_to(ROOT / "tests"))
    ]
    assert wrong == []


def test_the_sandbox_works_from_an_installed_collection(tarball: Path, tmp_path: Path) -> None:
    """Neither the checkout is needed nor a link to it, and the playbooks that sandbox.demo runs are those of the installed collection."""
    installed = tmp_path / "ansible_collections" / "tgp" / "gpu"
    with tarfile.open(tarball) as packed:
        packed.extractall(installed, filter="data")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PLAYED, str(tmp_path / "sandbox")]
    done = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"task path: {installed}/roles/status/tasks/main.yml" in done.stdout


def test_every_address_of_the_project_is_the_one_of_galaxy_yml() -> None:
    """It is written in one place each, so a move changes few lines."""
    home = METADATA["repository"]
    assert METADATA["homepage"] == home
    assert METADATA["issues"].startswith(home) and METADATA["documentation"].startswith(home)
    owner = home.removeprefix("https://").rpartition("/")[0]
    other = [
        (name(path), line.strip())
        for path in files()
        if path.suffix in {".md", ".yml", ".yaml", ".toml", ".py", ".rst", ".cfg", ".service", ".timer"}
        for line in path.read_text(encoding="utf-8").splitlines()
        if owner in line and home.removeprefix("https://") not in line
    ]
    assert other == []
