# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P3, P4 and growth: what runs cost that find nothing to do beside many machines of ours, and what the inventory costs that lists them."""

from __future__ import annotations

import json
import shutil
import time
import typing as t
from pathlib import Path

import yaml

from .fleet import Fleet
from .processes import BIN, empty_playbook
from .results import Row, measurement

PLAYBOOKS = ("provision", "reap", "autoscale", "status")
_FLOORS = 5
_LISTS = ("/api/v1/nodes", "/api/v1/pods")


def rows(folder: Path, counts: t.Sequence[int], runs: int) -> t.Iterator[Row]:
    """For each number of machines: the playbooks, the inventory cold and cached, and a script that prints the same."""
    for count in counts:
        with Fleet(folder / str(count), count) as fleet:
            yield from _plays(fleet, runs)
            if count:
                yield from _inventory(fleet, folder / f"inventory-{count}", runs)


def _plays(fleet: Fleet, runs: int) -> t.Iterator[Row]:
    world, count = fleet.world, fleet.count
    before = len(fleet.claims())
    empty = min(world.run(empty_playbook(world.folder)).cost.wall for _ in range(_FLOORS))
    lists = min(_seconds_of_lists(fleet) for _ in range(_FLOORS))
    for name in PLAYBOOKS:
        command = fleet.provision() if name == "provision" else fleet.command(name)
        world.run(command)  # the first run may note something
        measured = [measurement(world.run(command)) for _ in range(runs)]
        what = f"{name}.yml with nothing to do beside {count} machines of ours"
        yield Row(f"P4 {name} {count}", what, "s", measured, {"empty playbook": empty, "reading nodes and pods": lists})
    if len(fleet.claims()) != before or before != count:
        raise SystemExit(f"{before} claims became {len(fleet.claims())}: something was to be done beside {count} machines")


def _seconds_of_lists(fleet: Fleet) -> float:
    """For all nodes and pods, in pages of five hundred, read by a client that does nothing else."""
    started = time.perf_counter()
    for path in _LISTS:
        following = ""
        while True:
            answer = fleet.world.sandbox.kube.get(f"{path}?limit=500{following}").raise_for_status().json()
            if not (token := answer["metadata"].get("continue")):
                break
            following = f"&continue={token}"
    return time.perf_counter() - started


# ---- the inventory


def _inventory(fleet: Fleet, folder: Path, runs: int) -> t.Iterator[Row]:
    world, count = fleet.world, fleet.count
    folder.mkdir()
    source: dict[str, t.Any] = {"plugin": "tgp.gpu.nodes", "documents": [str(fleet.documents)]}
    cache = folder / "cache"
    cold = _write(folder / "cold", source)
    cached = _write(
        folder / "cached", {**source, "cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(cache)}
    )
    listed = _listed(world.run(_list(cold)).cost.output)
    if len(listed["_meta"]["hostvars"]) != count:
        raise SystemExit(f"the inventory lists {len(listed['_meta']['hostvars'])} hosts of {count}")
    script = _script(folder, listed)
    # one after the other, so that a busy moment of the machine meets all of them
    found: dict[str, list[t.Any]] = {"script": [], "cold": [], "cached": []}
    for _number in range(runs):
        found["script"].append(measurement(world.run(_list(script))))
        found["cold"].append(measurement(world.run(_list(cold))))
        shutil.rmtree(cache, ignore_errors=True)
        world.run(_list(cached))
        found["cached"].append(measurement(world.run(_list(cached))))
    yield Row(f"P3 script {count}", f"inventory: a script that prints the same {count} hosts", "s", found["script"])
    yield Row(f"P3 cold {count}", f"inventory of {count} machines, without a cache", "s", found["cold"])
    yield Row(f"P3 cached {count}", f"inventory of {count} machines, from the cache", "s", found["cached"])


def _write(folder: Path, source: dict[str, t.Any]) -> Path:
    folder.mkdir()
    path = folder / "gpu.tgp.yml"
    path.write_text(yaml.safe_dump(source))
    return path


def _list(inventory: Path) -> list[str]:
    return [str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"]


def _listed(output: str) -> dict[str, t.Any]:
    """What ansible-inventory printed; warnings may stand before it."""
    return t.cast("dict[str, t.Any]", json.loads(output[output.index("{") :]))


def _script(folder: Path, listed: dict[str, t.Any]) -> Path:
    """A script that prints the same hosts, variables and groups."""
    content, path = folder / "hosts.json", folder / "script.sh"
    content.write_text(json.dumps({name: group for name, group in listed.items() if name != "all"}))
    path.write_text(f'#!/bin/sh\nexec cat "{content}"\n')
    path.chmod(0o755)
    return path
