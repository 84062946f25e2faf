# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the collection and the sandbox under a :class:`Loom`: their threads, their time, their chance, and the processes they think they are."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import itertools
import pkgutil
import queue
import random
import secrets
import sys
import threading
import time
import types
import typing as t

import ansible_collections.tgp.gpu.plugins.module_utils as library
import ansible_collections.tgp.gpu.plugins.modules as modules
from ansible_collections.tgp.gpu.plugins.module_utils.store import lock_file

import sandbox

from ..contract.act import rig
from .loom import Loom, Process
from .shuttle import replacements

_OURS = "ansible_collections.tgp.gpu.plugins."
_WORLD = ("sandbox.", "tests.contract.act.rig")
_GLANCES = {  # how often what stands still is looked at: every change is told to those who wait for it, too
    "ansible_collections.tgp.gpu.plugins.module_utils.runs.loop": {"_SLICE": 5.0},
    "sandbox.agenda": {"_GLANCE": 10.0},
    "sandbox.kubelets": {"_HEARTBEAT": 600.0},
    "sandbox.kube.watch": {"_GLANCE": 600.0, "_BOOKMARK": 600.0},
    "sandbox.kube.controllers": {"_PERIOD": 15.0, "_PAUSE": 0.1},
}


@functools.cache
def _load() -> None:
    """Every module there is: one that is loaded later would live in real time."""
    for package in (library, modules, sandbox):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


@contextlib.contextmanager
def woven(loom: Loom) -> t.Iterator[None]:
    """While it lasts, everything that the collection and the sandbox start is a strand of ``loom``."""
    _load()
    undo: list[tuple[t.Any, str, t.Any]] = []

    def put(module: t.Any, name: str, value: t.Any) -> None:
        undo.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    real = {
        "threading": threading, "queue": queue, "concurrent": concurrent, "time": time,
        "ThreadPoolExecutor": concurrent.futures.ThreadPoolExecutor,
    }  # fmt: skip
    ours, world = replacements(loom, own=False), replacements(loom, own=True)
    chance = random.Random(loom.dice.random())
    ours |= {
        "random": chance,
        "secrets": types.SimpleNamespace(choice=chance.choice, token_hex=lambda n: chance.randbytes(n).hex()),
    }
    real |= {"random": random, "secrets": secrets}
    for name, module in list(sys.modules.items()):
        given = ours if name.startswith(_OURS) else world if name.startswith(_WORLD) else {}
        for attribute, stand_in in given.items():
            if getattr(module, attribute, None) is real[attribute]:
                put(module, attribute, stand_in)
    for name, values in _GLANCES.items():
        for attribute, number in values.items():
            put(sys.modules[name], attribute, number)
    put(rig, "_COUNTER", itertools.count(1))  # it seeds the world
    # the loom's: what a thread of this loom measures would stand still in the next story
    put(sys.modules["sandbox.clock"], "own_time", world["time"].monotonic)
    identity = _identity(loom)
    for name in ("run_lock", "lease", "lock_file"):
        module = importlib.import_module(f"{_OURS}module_utils.store.{name}")
        for attribute, stand_in in identity.items():
            if hasattr(module, attribute):
                put(module, attribute, stand_in)
    try:
        yield
    finally:
        for module, name, value in reversed(undo):
            setattr(module, name, value)


def _identity(loom: Loom) -> dict[str, t.Any]:
    """Who a run is, and whether another one still lives, as far as can be told from its host."""
    known: dict[tuple[str, int], Process] = {}

    def describe(_pid: int | None = None) -> lock_file.Process:
        mine = loom.current.process
        if mine is None:
            return lock_file.Process("story", "boot-story", "pid:[1]", 1, "1")
        known[mine.host, mine.pid] = mine
        return lock_file.Process(mine.host, f"boot-{mine.host}", "pid:[1]", mine.pid, str(mine.pid))

    def alive(other: lock_file.Process, *, here: lock_file.Process | None = None) -> bool | None:
        if other.boot_id != (here or describe()).boot_id:
            return None
        there = known.get((other.host, other.pid))
        return there is not None and not there.dead

    def rebooted(_other: lock_file.Process, *, here: lock_file.Process | None = None) -> bool:
        return False

    return {"describe": describe, "alive": alive, "rebooted": rebooted}
