# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the cluster that are deleted while they have machines (L-33)."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig
from .test_object_status import CLASS, POOL, THERE, cluster, condition, provision, status  # noqa: F401 - a fixture

Json = dict[str, t.Any]


def finalizers(rig: Rig, path: str = POOL) -> list[str]:
    return list(rig.kube("GET", path)["metadata"].get("finalizers") or [])


def exists(rig: Rig, path: str = POOL) -> bool:
    name = path.rpartition("/")[2]
    return name in [one["metadata"]["name"] for one in rig.kube("GET", path.rpartition("/")[0])["items"]]


def message(rig: Rig, path: str) -> str:
    return str(next(one["message"] for one in status(rig, path)["conditions"] if one["type"] == "Ready"))


def written(rig: Rig, act: t.Callable[[], t.Any]) -> list[str]:
    """The paths of objects that an act changes, their status aside."""
    sent: list[str] = []
    rig.watcher = lambda request: sent.append(request.url.path) if request.method == "PATCH" else None
    act()
    rig.watcher = lambda _request: None
    return sorted(path for path in sent if path.startswith("/apis/tgp.io") and not path.endswith("/status"))


def reap(rig: Rig) -> Json:
    """As reap.yml does: the teardown knows the documents, too."""
    plan = rig.plan("reap", **THERE)
    done = rig.run("teardown", plan["run_id"], orphans=plan["orphans"], **THERE)
    rig.unlock(plan["run_id"])
    return done


def planned(rig: Rig, mode: str = "provision") -> Json:
    plan = rig.plan(mode, **THERE)
    rig.unlock(plan["run_id"])
    return plan


def test_an_object_is_held_before_its_first_machine_and_once(cluster: Rig) -> None:  # noqa: F811
    first = written(cluster, lambda: planned(cluster))
    assert first == [CLASS, POOL]
    assert finalizers(cluster) == ["tgp.io/gpunodepool-finalizer"]
    assert finalizers(cluster, CLASS) == ["tgp.io/gpunodeclass-finalizer"]
    assert cluster.machines() == [], "nothing was rented before"


def test_a_deleted_pool_goes_last_in_the_run_that_ends_its_machines(cluster: Rig) -> None:  # noqa: F811
    provision(cluster)
    assert written(cluster, lambda: reap(cluster)) == []
    cluster.kube("DELETE", POOL)
    cluster.kube("DELETE", CLASS)
    assert exists(cluster) and exists(cluster, CLASS)
    planned(cluster, "reap")
    assert exists(cluster), "its machines are still there"
    assert "It waits for the end of tgp-" in message(cluster, POOL) and condition(cluster, "Ready") == ("False", "Deleting")
    assert "default/mine that uses it, tgp-" in message(cluster, CLASS)
    reap(cluster)
    assert cluster.machines() == [] and not exists(cluster) and exists(cluster, CLASS)
    reap(cluster)
    assert not exists(cluster, CLASS)


def test_D02_an_object_stays_while_its_machine_cannot_be_terminated(cluster: Rig) -> None:  # noqa: F811
    provision(cluster)
    cluster.kube("DELETE", POOL)
    cluster.fault("status", "lambda", "POST", "instance-operations/terminate", status=500, times=None)
    reap(cluster)
    assert exists(cluster) and len(cluster.machines()) == 2
    cluster.faults.clear()
    reap(cluster)
    assert not exists(cluster)


def test_a_request_ends_with_its_machine(cluster: Rig) -> None:  # noqa: F811
    """S1: one GPU for a while; other finalizers than ours are left alone."""
    path = "/apis/tgp.io/v1/gpurequests/mine"
    demo = cluster.kube("GET", CLASS)["spec"]
    spec = {"gpuType": "A10", "provider": "lambda", **{key: demo[key] for key in ("talosConfig", "tailscaleConfig")}}
    body = {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "mine"}, "spec": spec}
    cluster.kube("DELETE", POOL)
    cluster.kube("POST", "/apis/tgp.io/v1/gpurequests", body)
    provision(cluster)
    assert len(cluster.machines()) == 1 and finalizers(cluster, path) == ["tgp.io/gpurequest-finalizer"]
    cluster.kube("PATCH", path, {"metadata": {"finalizers": ["tgp.io/gpurequest-finalizer", "example.org/backup"]}})
    cluster.kube("DELETE", path)
    reap(cluster)
    assert cluster.machines() == [] and finalizers(cluster, path) == ["example.org/backup"]
    assert written(cluster, lambda: reap(cluster)) == []
    assert message(cluster, path) == "The object is being deleted."


def test_a_claim_that_cannot_be_read_holds_its_object(cluster: Rig) -> None:  # noqa: F811
    provision(cluster)
    name = sorted(cluster.claims())[0]
    whole = cluster.damage(name)
    cluster.kube("DELETE", POOL)
    reap(cluster)
    assert exists(cluster) and f"ConfigMap tgp-system/tgp-claim-{name}, which cannot be read" in message(cluster, POOL)
    cluster.damage(name, whole)
    reap(cluster)
    assert not exists(cluster) and cluster.machines() == []


def test_release_refuses_while_a_machine_has_a_claim(cluster: Rig) -> None:  # noqa: F811
    provision(cluster)
    with pytest.raises(InvalidInput, match="2 machines still have a claim") as caught:
        cluster.run("release")
    assert all("lambda, " in text and "/h)" in text for text in caught.value.problems)
    checked = cluster.run("release", check=True, force=True)
    assert checked["changed"] and checked["objects"] == [
        "GPUNodeClass /demo of the cluster",
        "GPUNodePool default/mine of the cluster",
    ]
    assert finalizers(cluster) != []
    done = cluster.run("release", force=True)
    assert done["objects"] == checked["objects"] and finalizers(cluster) == finalizers(cluster, CLASS) == []
    assert sum("continues, and is billed" in text for text in cluster.warnings) == 4
    assert len(cluster.machines()) == 2 and not cluster.run("release", force=True)["changed"]


def test_a_right_that_is_missing_is_named_and_all_else_is_done(cluster: Rig) -> None:  # noqa: F811
    cluster.fault("status", "kubernetes", "PATCH", "gpunodepools/mine$", status=403, times=None)
    plan = planned(cluster)
    assert any("The finalizers of GPUNodePool objects cannot be written" in text for text in plan["problems"])
    assert len(plan["launch"]) == 2 and finalizers(cluster, CLASS) != [] and status(cluster)["launching"] == 2


def test_a_run_that_only_launches_says_that_its_pools_are_being_deleted(cluster: Rig) -> None:  # noqa: F811
    provision(cluster)
    cluster.kube("DELETE", POOL)
    with pytest.raises(
        InvalidInput, match=r"^No pool among the documents may launch, .* default/mine: its object is being deleted\."
    ):
        provision(cluster)


def test_L30_a_pool_that_is_being_deleted_and_asked_for_by_name_is_a_problem(cluster: Rig) -> None:  # noqa: F811
    """Beside another pool that may launch. A number of 0, and a run that names another pool, ask for nothing of it."""
    other = cluster.kube("GET", POOL)
    other["metadata"] = {"name": "other", "namespace": "default"}
    cluster.kube("POST", POOL.rpartition("/")[0], {key: other[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    provision(cluster)
    cluster.kube("DELETE", POOL)
    name = POOL.rpartition("/")[2]
    for params, told in (
        ({"nodes": {name: 1}}, True),
        ({"pools": [name]}, True),
        ({"nodes": {name: 0}}, False),
        ({"pools": ["other"]}, False),
    ):
        plan = cluster.plan("provision", check=True, **THERE, **params)
        problems = [text for text in plan["problems"] if text.startswith(f"default/{name}: no machines will come: its object is")]
        assert bool(problems) is told, params
