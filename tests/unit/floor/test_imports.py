# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a play pays before its first task: each entry imports what it needs, and what was imported once need not be compiled again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

PLUGINS = "ansible_collections.tgp.gpu.plugins"
UTILS = f"{PLUGINS}.module_utils"

# Each entry in a fork of one process that has loaded what ansible-playbook loads: what it adds.
_ADDED = f"""
import gc, importlib, json, os, sys
import ansible.cli.playbook
import ansible.plugins.action
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
from {UTILS}.core.bytecode import use_bytecode_cache
use_bytecode_cache()
gc.freeze()
gc.disable()
before = set(sys.modules)
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module("{PLUGINS}." + name)
        print(json.dumps([name, sorted(set(sys.modules) - before)]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""

READS = "core diagnosis documents kube mesh metrics model observe offers planner providers store talos units"
ACTS = f"{READS} bootstrap operations preflight runs"

#: entry: how many files of module_utils it may import, and from which folders
ENTRIES = {
    "lookup.variables": (2, "core"),
    "inventory.nodes": (12, "core"),  # from its cache; it imports what fleet_info does when it reads
    "modules.tailscale_key": (37, "core mesh model units"),
    "modules.node_info": (47, "core kube model planner runs units"),
    "modules.lambda_instance": (96, "core model planner providers units"),
    "modules.fleet_info": (249, f"{READS} reports"),
    "modules.fleet_plan": (302, ACTS),
}


def process(code: str, *arguments: str, cache: Path) -> list[t.Any]:
    """Lines of JSON that the code prints. ``cache`` is the folder for bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environment, "PYTHONPYCACHEPREFIX": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that each entry adds to those of ansible-playbook."""
    lines = process(_ADDED, *ENTRIES, "action.in_process", "action.fleet_plan", cache=tmp_path_factory.mktemp("bytecode"))
    return {name: set(modules) for name, modules in lines}


def test_an_entry_imports_what_it_needs(added: dict[str, set[str]]) -> None:
    found, wanted = {}, {}
    for entry, (most, folders) in ENTRIES.items():
        ours = {name.removeprefix(f"{UTILS}.") for name in added[entry] if name.startswith(f"{UTILS}.")}
        found[entry] = (max(most, len(ours)), {name.partition(".")[0] for name in ours})
        wanted[entry] = (most, set(folders.split()))
    assert found == wanted


def foreign(modules: set[str]) -> set[str]:
    """Names of libraries."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"ansible_collections", "ansible"}


def test_no_entry_imports_a_library(added: dict[str, set[str]]) -> None:
    """The first use imports it. A private module of Python that depends on the platform is none."""
    assert {name for entry in ENTRIES for name in foreign(added[entry]) if not name.startswith("_")} == set()


def test_a_worker_imports_no_module_but_its_own(added: dict[str, set[str]]) -> None:
    names = added["action.in_process"]
    assert [name for name in names if name.startswith(f"{PLUGINS}.modules.")] == []
    assert {name.removeprefix(f"{UTILS}.").partition(".")[0] for name in names if name.startswith(f"{UTILS}.")} == {"core"}
    assert foreign(names) <= {"_ssl"}


def test_a_play_that_begins_with_a_plan_imports_once_for_all_its_tasks(added: dict[str, set[str]]) -> None:
    names = added["action.fleet_plan"]
    missing = {"httpx", "jsonschema", f"{PLUGINS}.modules.fleet_plan", f"{UTILS}.runs.machines"} - names
    assert missing == set()
    assert foreign(names) & {"kubernetes", "matplotlib", "rich", "click", "pygments"} == set()


_LIBRARY = f"""
import importlib.util, json, sys
from {UTILS}.core.errors import lazy
lazy("httpx").Client
print(json.dumps(["httpx._main" in sys.modules, importlib.util.find_spec("httpx._main") is not None]))
"""


def test_httpx_is_imported_without_its_command_line(tmp_path: Path) -> None:
    """And whoever wants that can still import it."""
    assert process(_LIBRARY, cache=tmp_path) == [[False, True]]


_COMPILED = f"""
import importlib, json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
files = []
sys.addaudithook(lambda event, given: files.append(str(given[1])) if event == "compile" else None)
for name in sys.argv[1:]:
    importlib.import_module("{PLUGINS}." + name)
print(json.dumps(sorted({{name.partition("/tgp/gpu/plugins/")[2] for name in files}} - {{""}})))
"""


def test_bytecode_is_kept(tmp_path: Path) -> None:
    """Only what a plugin imports before it asks for the cache is compiled again."""

    def compiled(plugin: str) -> set[str]:
        (names,) = process(_COMPILED, plugin, "modules.node_info", cache=tmp_path)
        return set(names)

    first = compiled("action.in_process")
    assert {"modules/node_info.py", "module_utils/runs/node_info.py"} <= first
    for plugin in ("action.in_process", "inventory.nodes"):
        again = {name for name in compiled(plugin) & first if not name.startswith(("action/", "module_utils/core/"))}
        assert again == set()


_PACKAGE = f"""
import json, sys, threading, time
from pathlib import Path
from {UTILS}.core.errors import is_there, lazy
folder = Path(sys.argv[1]) / "circle"
folder.mkdir()
(folder / "__init__.py").write_text("from .part import value\\n")
(folder / "part.py").write_text("value = 1\\n")
sys.path.insert(0, sys.argv[1])
class Slow:
    def find_spec(name, path=None, target=None):
        if name == "circle":
            time.sleep(0.3)
sys.meta_path.insert(0, Slow)
failed = []
def use(name):
    try:
        assert is_there(name) and lazy(name).value == 1
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=use, args=(name,)) for name in ("circle", "circle.part", "circle.part")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(failed))
"""


def test_threads_that_use_parts_of_a_library_first_do_not_meet_half_of_it(tmp_path: Path) -> None:
    """A package that imports its part, imported by one thread, and the part by another: each would wait for the other, which Python ends with
    an error. It happens with jinja2."""
    assert process(_PACKAGE, str(tmp_path), cache=tmp_path / "bytecode") == [[]]
