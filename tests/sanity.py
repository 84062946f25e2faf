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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "sanity"
TREE = WORK / "ansible_collections" / "tgp" / "gpu"
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
    shutil.rmtree(TREE, ignore_errors=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in files:
        source = ROOT / name
        if not name or not source.is_file():
            continue
        target = TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    home = WORK / "home"
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in ("24_2", "25_2"):
        (cache / f"get_pip_{version}.py").write_text(PIP)
    known = subprocess.run(
        [shutil.which("ansible-test") or "ansible-test", "sanity", "--list-tests"], cwd=TREE, capture_output=True, text=True, check=False,
        env={**os.environ, "HOME": str(home)},
    ).stdout.split()  # fmt: skip
    chosen = [name for name in TESTS if name in known]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = ["ansible-test", "sanity", "--python", version, "--color", "no"]
    for name in chosen:
        command += ["--test", name]
    print(f"   ansible-core {importlib.metadata.version('ansible-core')}: {len(chosen)} sanity tests")
    return subprocess.run(command, cwd=TREE, env={**os.environ, "HOME": str(home)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
