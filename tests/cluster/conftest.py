# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures on the real control plane. Without Go the tests that need it are skipped; TGP_REQUIRE_PLANE=1 lets them fail instead."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube

from tests.build import built

from .helm_cli import Helm
from .plane import Plane

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> t.Iterator[Plane]:
    """One control plane for all tests of a run: give everything you create a name of your own (see ``own``)."""
    with Plane(built("plane", request)) as running:
        yield running


@pytest.fixture(scope="session")
def hasty_plane(request: pytest.FixtureRequest) -> t.Iterator[Plane]:
    """A control plane that gives up on a silent kubelet after 5 seconds."""
    with Plane(built("plane", request), node_grace=5) as running:
        yield running


@pytest.fixture
def open_kube() -> t.Iterator[t.Callable[[pathlib.Path], Kube]]:
    """Our own client, connected by a kubeconfig as a module would do it."""
    opened: list[Kube] = []

    def connected(kubeconfig: pathlib.Path) -> Kube:
        opened.append(connect(Task(params={"kubeconfig": str(kubeconfig)})))
        return opened[-1]

    yield connected
    for one in opened:
        one.close()


@pytest.fixture
def kube(plane: Plane, open_kube: t.Callable[[pathlib.Path], Kube]) -> Kube:
    """Our own client as administrator."""
    return open_kube(plane.kubeconfig)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, fit for nodes and namespaces."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{words.removeprefix('test-')[:40].strip('-')}-{os.urandom(2).hex()}"


@pytest.fixture(scope="session")
def machinery(request: pytest.FixtureRequest) -> pathlib.Path:
    """The binary with Talos's own configuration code."""
    return built("machinery", request)


@pytest.fixture(scope="module")
def crds(plane: Plane) -> t.Iterator[None]:
    """The kinds that ship, while a module uses them."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definitions = list(yaml.safe_load_all((ROOT / "schemas" / "crds.yaml").read_text()))
    for definition in definitions:
        plane.create(path, definition)
    for definition in definitions:
        name = definition["metadata"]["name"]
        plane.until(lambda name=name: _established(plane.get(f"{path}/{name}")), what=f"{name} to be served")
    yield
    for plural in ("gpunodepools", "gpurequests", "gpunodeclasses", "gpunodeclaims"):  # what a test has left is let go
        listed = plane.until(lambda plural=plural: _listed(plane, f"/apis/tgp.io/v1/{plural}"), what=f"the list of {plural}")
        for one in listed["items"]:
            space = one["metadata"].get("namespace")
            place = f"/apis/tgp.io/v1/{f'namespaces/{space}/' if space else ''}{plural}/{one['metadata']['name']}"
            plane.patch(place, {"metadata": {"finalizers": None}}, kind="merge")
    for definition in definitions:
        plane.delete(f"{path}/{definition['metadata']['name']}")
    for definition in definitions:
        name = definition["metadata"]["name"]
        plane.until(lambda name=name: plane.find(f"{path}/{name}") is None, what=f"{name} to be gone")


def _listed(plane: Plane, path: str) -> dict[str, t.Any] | None:
    """None while the server is busy with a definition that was just changed: it answers 429."""
    answer = plane.http.get(path)
    return t.cast("dict[str, t.Any]", answer.json()) if answer.status_code == 200 else None


def _established(definition: dict[str, t.Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    bad = [one for one in conditions if one["type"] == "NonStructuralSchema" and one["status"] == "True"]
    assert not bad, bad
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, with folders of its own."""
    return Helm(built("helm", request), tmp_path_factory.mktemp("helm"))
