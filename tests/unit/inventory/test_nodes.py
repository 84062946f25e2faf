# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: what is remembered of it, and what a file may say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

MACHINE: dict[str, t.Any] = {
    "name": "tgp-a1b2c3d4-training-0k3zq",
    "pool": "default/training",
    "cloud": "lambda",
    "phase": "Ready",
    "price_hour": "0.69",
    "lane": "kubelet",
    "ip": "198.51.100.7",
    "mesh_addresses": ["100.64.0.7"],
}
FILE = """
plugin: tgp.gpu.nodes
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: {folder}/cache
compose:
  cost_per_day: tgp_price_hour | float * 24
{more}
keyed_groups:
  - key: tgp_phase
    prefix: state
groups:
  cheap: (tgp_price_hour | float) < 1
"""
PARSE = """
import json, sys
from ansible.plugins.loader import init_plugin_loader, inventory_loader
init_plugin_loader([])
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible_collections.tgp.gpu.plugins.module_utils.reports.status import Seen
plugin = inventory_loader.get("tgp.gpu.nodes")
machines, unknown = json.loads(sys.argv[2])
def look(task):
    with open(sys.argv[1] + ".documents", "w") as file:
        json.dump(task.params["documents"], file)
    return Seen(machines, {}, [], unknown, {}, {})
sys.modules[type(plugin).__module__].look = look
found = InventoryData()
plugin.parse(found, DataLoader(), sys.argv[1], cache=True)
plugin.update_cache_if_changed()
hosts = found.hosts.values()
print(json.dumps({one.name: [one.get_vars(), [group.name for group in one.get_groups()]] for one in hosts}))
"""
Listed = t.Callable[..., dict[str, tuple[dict[str, t.Any], list[str]]]]


@pytest.fixture
def listed(tmp_path: Path) -> Listed:
    """``listed(machines, unknown=...)``: the hosts of a file, each time in a process of its own, when a look shows these."""
    file = tmp_path / "gpu.tgp.yml"

    def parse(
        *machines: dict[str, t.Any], unknown: t.Sequence[str] = (), composed: str = "", more: str = ""
    ) -> dict[str, tuple[dict[str, t.Any], list[str]]]:
        file.write_text(FILE.format(folder=tmp_path, more=f"  {composed}") + more)
        done = subprocess.run(
            [sys.executable, "-c", PARSE, str(file), json.dumps([machines, unknown])],
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return t.cast("dict[str, tuple[dict[str, t.Any], list[str]]]", json.loads(done.stdout.splitlines()[-1]))

    return parse


def test_what_a_file_composes_and_groups(listed: Listed) -> None:
    found, groups = listed(MACHINE)[MACHINE["name"]]
    assert found["cost_per_day"] == pytest.approx(16.56)
    assert {"gpu_nodes", "pool_default_training", "cloud_lambda", "phase_ready", "state_Ready", "cheap"} <= set(groups)


WAY = ("ansible_connection", "ansible_host", "ansible_user", "ansible_python_interpreter")


def way(found: dict[str, t.Any]) -> tuple[str, ...]:
    return tuple(found.get(name, "") for name in WAY)


@pytest.mark.parametrize(
    ("cloud", "login"), [("lambda", "ubuntu"), ("paperspace", "paperspace"), ("vast", "root"), ("webhook", "")]
)
def test_ubuntu_machines_are_reached_by_ssh_through_the_mesh(listed: Listed, cloud: str, login: str) -> None:
    found, _groups = listed({**MACHINE, "cloud": cloud, "mesh_addresses": ["fd7a::7", "100.64.0.7"]})[MACHINE["name"]]
    assert way(found) == ("ssh", "100.64.0.7", login, "")


@pytest.mark.parametrize("lane", ["talos", "service", ""])
def test_other_machines_get_no_connection(listed: Listed, lane: str) -> None:
    found, _groups = listed({**MACHINE, "lane": lane})[MACHINE["name"]]
    assert way(found) == ("", "100.64.0.7", "", "")


@pytest.mark.parametrize("lane", ["talos", "kubelet", "service", ""])
def test_a_machine_outside_the_mesh_gets_a_name_that_never_resolves(listed: Listed, lane: str) -> None:
    """A public address, which others may hold by now, and the controller are both wrong."""
    found, _groups = listed({**MACHINE, "lane": lane, "mesh_addresses": []})[MACHINE["name"]]
    assert found["ansible_host"] == f"{MACHINE['name']}.invalid" and found.get("ansible_connection") != "local"


def test_tasks_run_on_the_controller_only_if_the_file_asks_for_it(listed: Listed) -> None:
    found, _groups = listed(MACHINE, more="connection: local\n")[MACHINE["name"]]
    assert way(found) == ("local", "", "", sys.executable)


def test_a_file_composes_another_way(listed: Listed) -> None:
    found, _groups = listed(MACHINE, composed="ansible_host: tgp_ip | default(ansible_host, true)")[MACHINE["name"]]
    assert found["ansible_host"] == "198.51.100.7"


def test_what_was_seen_whole_is_remembered(listed: Listed) -> None:
    listed(MACHINE)
    assert set(listed()) == {MACHINE["name"]}


def test_a_look_that_did_not_see_everything_is_not_remembered(listed: Listed) -> None:
    """Else runs would go by it for as long as the cache lasts, without a word of warning."""
    assert listed(unknown=["lambda: answered 500"]) == {}
    assert set(listed(MACHINE)) == {MACHINE["name"]}


def test_documents_are_relative_to_the_inventory_file(listed: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWX syncs a source from another folder than a person does."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "old").mkdir(parents=True)
    (elsewhere / "old" / "pools.yml").touch()
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "pools.yml").touch()
    monkeypatch.chdir(elsewhere)
    inline = {"kind": "GPUNodePool"}
    given = ["my/pools.yml", "my/*.yml", "nowhere.yml", "old/pools.yml", "/abs/pools.yml", "~/pools.yml", inline]
    listed(MACHINE, more=f"\ndocuments: {json.dumps(given)}\n")
    found = json.loads((tmp_path / "gpu.tgp.yml.documents").read_text())
    own = [f"{tmp_path}/{one}" for one in ("my/pools.yml", "my/*.yml", "nowhere.yml")]
    assert found == [*own, "old/pools.yml", "/abs/pools.yml", "~/pools.yml", inline]
