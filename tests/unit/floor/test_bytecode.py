# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A play compiles our modules once, not each time: they are kept where Python keeps them, if it may keep anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.core.bytecode import KeptFinder

PLAN = "ansible_collections.tgp.gpu.plugins.module_utils.planner.plan"
BEGIN = f"""
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
import ansible.utils.collection_loader._collection_finder as finder
compiled = []
def note(*args, **named):
    compiled.append(named["filename"])
    return compile(*args, **named)
finder.compile = note
import importlib, sys
ways = list(sys.meta_path)
import ansible_collections.tgp.gpu.plugins.action.in_process
assert sys.meta_path == ways, "a plugin that is loaded changes no way of importing"
plan = importlib.import_module("{PLAN}")
assert plan.plan and plan.__name__ == "{PLAN}" and plan.__package__ == "{PLAN.rpartition(".")[0]}"
print(plan.__cached__, type(plan.__loader__).__name__, sum(one.endswith("/fleet/plan.py") for one in compiled))
"""


def play(folder: Path, **variables: str) -> tuple[str, str, str]:
    """Import everything as a play's main process does; where plan.py is kept, its loader, and whether Ansible compiled it itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder), **variables}
    done = subprocess.run([sys.executable, "-c", BEGIN], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kept, loader, number = done.stdout.split()
    return kept, loader, number


def test_what_a_play_imports_is_kept_for_the_next_one(tmp_path: Path) -> None:
    kept, loader, number = play(tmp_path)
    assert kept.startswith(str(tmp_path)) and (loader, number) == ("SourceFileLoader", "0")
    first = Path(kept).stat().st_mtime_ns
    assert play(tmp_path) == (kept, loader, number) and Path(kept).stat().st_mtime_ns == first, "it was read, not written again"


def test_nothing_is_written_where_python_was_told_so(tmp_path: Path) -> None:
    kept, loader, _number = play(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert loader == "SourceFileLoader" and not Path(kept).exists() and not list(tmp_path.iterdir())


def test_modules_of_others_are_none_of_its_business() -> None:
    finder = KeptFinder()
    folder = [str(Path(__file__).parent)]
    assert finder.find_spec("ansible_collections.other.one.plugins.module_utils.test_bytecode", folder) is None
    assert finder.find_spec("test_bytecode", folder) is None
    assert finder.find_spec(f"{PLAN.rpartition('.')[0]}.nowhere", folder) is None
    assert finder.find_spec(f"{PLAN.rpartition('.')[0]}.test_bytecode", folder) is not None
