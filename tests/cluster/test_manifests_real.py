# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real API server takes every manifest of the collection by server-side apply, and the second apply changes nothing."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.server_side_apply import _Kinds
from ansible_collections.tgp.gpu.plugins.modules import manifests

from .plane import Plane

pytestmark = pytest.mark.cluster
NAMES = ["rbac", "admission_policy", "crds", "examples/cronjob.yaml", "examples/cronjob-archive.yaml"]
KEPT = {"Namespace"}  # other tests use it, too


@pytest.fixture
def apply(plane: Plane, kube: Kube) -> t.Iterator[t.Callable[..., dict[str, t.Any]]]:
    """Applies the manifests as administrator; what it created is removed afterwards."""
    created: dict[str, None] = {}

    def run(*, check: bool = False, force: bool = False) -> dict[str, t.Any]:
        params = {"manifests": NAMES, "apply": True, "path": None, "force": force, "kubeconfig": str(plane.kubeconfig)}
        result = execute(manifests.SPEC, manifests.run, Task(params, check_mode=check, diff_mode=True), "manifests")
        assert not result.get("failed"), result
        bodies = [one for file in result["files"] for one in yaml.safe_load_all(file["content"])]
        kinds = _Kinds(kube)
        for body, row in zip(bodies, result["objects"], strict=True):
            if row["result"] == "created" and not check and row["kind"] not in KEPT:
                created[kinds.path(body["apiVersion"], row["kind"], row["namespace"], row["name"], wait=False)] = None
        return result

    yield run
    for path in reversed(created):
        plane.until(lambda path=path: _deleted(kube, path), what=f"{path} to be deleted")


def _deleted(kube: Kube, path: str) -> bool:
    """False while the server does not know the kind that a policy names: it looks for new kinds every 30 s, and then lists its objects."""
    try:
        kube.delete(path)
    except errors.ApiError as error:
        if any(
            text in str(error)
            for text in ("failed to find resource referenced by paramKind", "not yet synced to use for admission")
        ):
            return False
        raise
    return True


def test_every_manifest_is_applied_once(apply: t.Callable[..., dict[str, t.Any]]) -> None:
    foreseen = apply(check=True)
    first = apply(force=True)  # other tests may have made some of the objects in other ways
    assert (
        [one["result"] for one in foreseen["objects"]].count("created")
        == [one["result"] for one in first["objects"]].count("created")
        > 8
    )
    for again in (apply(), apply(check=True)):
        assert {one["result"] for one in again["objects"]} == {"unchanged"}, again["diff"]
        assert not again["changed"] and again["diff"] == []
