# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real control plane in a network of its own, and machines beside it. Skipped with one line where root may not make them."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube

from tests.build import CannotBuild, built
from tests.cluster.helm_cli import Helm
from tests.cluster.plane import Plane
from tests.cluster.processes import Family

from . import debian
from .machine import GATEWAY, NETWORK, Machine
from .stand import own_network, sweep, why_not

asked = functools.cache(why_not)


class Stand:
    """``plane`` is the control plane, ``kube`` our client as its administrator; ``machine`` makes one more machine beside it."""

    def __init__(self, plane: Plane, kube: Kube, make: t.Callable[[int], Machine]) -> None:
        self.plane, self.kube, self._make, self._count = plane, kube, make, 1

    def machine(self) -> Machine:
        self._count += 1
        return self._make(self._count)


@pytest.fixture(scope="module")
def stand(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    if reason := asked():
        pytest.skip(reason)
    plane, containerd, idle = (built(name, request) for name in ("plane", "containerd", "idle"))
    try:
        tree = debian.tree()
    except CannotBuild as problem:
        pytest.skip(str(problem))
    sweep()
    programs = {name: containerd.with_name(name) for name in ("containerd", "ctr", "containerd-shim-runc-v2")}
    programs |= {"plane": plane, "idle": idle}
    with contextlib.ExitStack() as stack:
        stack.enter_context(own_network())
        for words in (["add", "mesh", "mtu", "1280", "type", "bridge"], ["set", "mesh", "up"]):
            subprocess.run(["ip", "link", *words], check=True)
        subprocess.run(["ip", "address", "add", f"{GATEWAY}/{NETWORK}", "dev", "mesh"], check=True)
        family = Family()
        stack.callback(family.close)
        running = stack.enter_context(Plane(plane, address=GATEWAY))
        kube = connect(Task(params={"kubeconfig": str(running.kubeconfig)}))
        stack.callback(kube.close)
        yield Stand(running, kube, lambda number: Machine(family, number, tree, programs))


@pytest.fixture(scope="module")
def idle(request: pytest.FixtureRequest) -> pathlib.Path:
    return built("idle", request)


@pytest.fixture(scope="module")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(built("helm", request), tmp_path_factory.mktemp("helm"))
