# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs ansible-test sanity on a copy of the tracked files, in a folder of the shape it insists on."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "sanity"  # keeps ansible-test's own environments from run to run
BIN = Path(sys.executable).parent
TESTS = (
    "action-plugin-docs",
    "ansible-doc",
    "compile",
    "empty-init",
    "ignores",
    "import",
    "line-endings",
    "no-assert",
    "no-get-exception",
    "no-illegal-filenames",
    "no-main-display",
    "no-smart-quotes",
    "no-unicode-literals",
    "pep8",
    "replace-urlopen",
    "runtime-metadata",
    "shebang",
    "symlinks",
    "use-argspec-type-path",
    "use-compat-six",
    "validate-modules",
    "yamllint",
)
# ansible-test wants to download a script that installs pip; the standard library can do the same without a network.
PIP = "import ensurepip\nimport sys\n\nsys.argv[1:] = []\nensurepip.bootstrap()\n"


def main() -> int:
    with tempfile.TemporaryDirectory(
        prefix="tgp-sanity-"
    ) as folder:  # outside of the checkout: ansible-test asks git what is there
        tree = Path(folder) / "ansible_collections" / "tgp" / "gpu"
        _copy(tree)
        return _check(tree)


def _copy(tree: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in files:
        source = ROOT / name
        if name and source.is_file() and not name.startswith("charts/"):  # no part of the collection; templates of Helm are no YAML
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _check(tree: Path) -> int:
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in ("24_2", "25_2"):
        (cache / f"get_pip_{version}.py").write_text(PIP)
    environment = {**os.environ, "HOME": str(HOME)}
    tool = str(BIN / "ansible-test")
    listed = subprocess.run(
        [tool, "sanity", "--list-tests"], cwd=tree, capture_output=True, text=True, check=False, env=environment
    )
    chosen = [name for name in TESTS if name in listed.stdout.split()]
    print(f"   ansible-core {importlib.metadata.version('ansible-core')}: {len(chosen)} sanity tests", flush=True)
    command = [tool, "sanity", "--python", f"{sys.version_info.major}.{sys.version_info.minor}", "--color", "no"]
    for name in chosen:
        command += ["--test", name]
    return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
