# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.bench.walk``: how many files and functions one node passes through, by a profiler on the sandbox in this process.

A reader who follows one run opens these files. Counted are the functions of the collection that are called while one rented node is planned,
launched and joined, while machines are listed, and while one node is reaped; imports do not count, every module is imported before.
"""

from __future__ import annotations

import collections
import importlib
import pkgutil
import sys
import tempfile
import threading
import typing as t
from pathlib import Path

import ansible_collections.tgp.gpu.plugins.module_utils as module_utils
import ansible_collections.tgp.gpu.plugins.modules as modules

from tests.contract.act.rig import Rig

_PLUGINS = "/plugins/"


class Trace:
    """The files and functions of the collection that are called while it is open, in all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, str]] = set()

    def _profile(self, frame: t.Any, event: str, _arg: t.Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if event != "call" or _PLUGINS not in file or name.startswith("<"):
            return
        place = file.rpartition(_PLUGINS)[2].removeprefix("module_utils/")
        self.files.add(place)
        self.functions.add((place, name))

    def __enter__(self) -> Trace:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_error: t.Any) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _row(what: str, trace: Trace) -> None:
    by_folder = collections.Counter(one.rpartition("/")[0].partition("/")[0] for one in trace.files)
    folders = ", ".join(f"{name} {number}" for name, number in by_folder.most_common())
    print(f"{what:<34} {len(trace.files):>5} files {len(trace.functions):>6} functions   {folders}")


def walk() -> dict[str, Trace]:
    """What provisioning a rented node, a listing and reaping an idle node pass through, by these names."""
    for package in (module_utils, modules):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    with tempfile.TemporaryDirectory(prefix="tgp-walk-") as folder:
        rig = Rig(Path(folder), speed=400.0)
        try:
            with Trace() as provision:
                plan = rig.plan("provision", pools=["training"], nodes=1)
                rig.run("launch", plan["run_id"])
                rig.run("join", plan["run_id"])
            rig.unlock(plan["run_id"])
            with Trace() as listing:
                rig.run("info")
            for _look in range(2):
                rig.advance(3600)
                with Trace() as reap:
                    rig.reap()
        finally:
            rig.close()
    return {"provision.yml, one rented node": provision, "fleet_info": listing, "reap.yml, one idle node": reap}


def main() -> int:
    for name, trace in walk().items():
        _row(name, trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
