# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module ``manifests``: what is installed is printed, written into the user's folder, or applied by server-side apply."""

from __future__ import annotations

import os
import shutil
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.runs import manifests as manifests_module
from ansible_collections.tgp.gpu.plugins.modules import manifests

from .conftest import Cluster

ROOT = Path(__file__).resolve().parents[3]
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tgp-gpu"
POOLS = "examples/seed-s0-corrected.yml"  # an object cannot name a file of the controller, as other examples do
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def run(*names: str, check: bool = False, **params: t.Any) -> tuple[dict[str, t.Any], list[str]]:
    """The module's result and what it printed."""
    told: list[str] = []
    given = {"manifests": list(names) or manifests_module.DEFAULT, "apply": False, "path": None, "force": False, **params}
    task = Task(given, check_mode=check, diff_mode=True, progress=told.append)
    return execute(manifests.SPEC, manifests.run, task, "manifests"), told


@pytest.fixture
def apply(served: Path) -> t.Callable[..., dict[str, t.Any]]:
    def applied(*names: str, **params: t.Any) -> dict[str, t.Any]:
        return run(*names, apply=True, kubeconfig=str(served), **params)[0]

    return applied


def results(result: dict[str, t.Any]) -> set[str]:
    assert not result.get("failed"), result
    return {one["result"] for one in result["objects"]}


# ---- printed


def test_the_manifest_is_printed_as_it_is_installed() -> None:
    result, told = run()
    assert not result["changed"] and told[0] == "# files/rbac.yml"
    assert list(yaml.safe_load_all("\n".join(told))) == list(yaml.safe_load_all((ROOT / "files" / "rbac.yml").read_text()))


def test_every_short_name_and_every_path_names_a_file() -> None:
    available = run()[0]["available"]
    names = [
        "rbac",
        "admission_policy",
        "guard",
        "crds",
        "prometheus_rules",
        "dashboards",
        "requirements",
        "requirements-controller",
    ]
    assert available[: len(names)] == names
    for name in available:
        files = run(name)[0]["files"]
        assert files and all((ROOT / one["source"]).read_text() == one["content"] for one in files), name
    assert {f"examples/{one.relative_to(ROOT / 'examples').as_posix()}" for one in (ROOT / "examples").rglob("*.yml")} <= set(
        available
    )


def test_no_two_files_have_the_same_place_in_a_folder() -> None:
    root = manifests_module._collection()
    targets = [manifests_module.InstalledFile(path, b"", False).target for path in manifests_module._paths(root)]
    assert len(targets) == len(set(targets)) > 30


@pytest.mark.parametrize("name", ["rbak", "examples/lamda.yml", "../galaxy.yml", "galaxy.yml", "schemas/crds.py", ""])
def test_an_unknown_name_is_refused_with_the_list(name: str) -> None:
    result, told = run("crds", name)
    assert result["failed"] and not told
    assert f"manifests: unknown name {name!r}." in result["msg"] and "rbac, admission_policy, guard, crds, " in result["msg"]


def test_a_file_is_taken_once() -> None:
    assert len(run("rbac", "files/rbac.yml", "files")[0]["files"]) == 3


# ---- into a folder


def test_files_are_written_once_with_their_mode(tmp_path: Path) -> None:
    names = ("examples/lambda.yml", "examples/templates", "examples/cron", "crds", "requirements")
    foreseen, _told = run(*names, path=str(tmp_path / "my"), check=True)
    assert foreseen["changed"] and not (tmp_path / "my").exists() and len(foreseen["diff"]) == len(foreseen["files"])
    assert run(*names, path=str(tmp_path / "my"))[0]["changed"]
    for target, source in (
        ("lambda.yml", "examples/lambda.yml"),
        ("templates/worker.yaml", "examples/templates/worker.yaml"),
        ("cron/run", "examples/cron/run"),
        ("crds.yaml", "schemas/crds.yaml"),
        ("requirements.txt", "requirements.txt"),
    ):
        written = tmp_path / "my" / target
        assert written.read_bytes() == (ROOT / source).read_bytes()
        assert os.access(written, os.X_OK) == os.access(ROOT / source, os.X_OK)
    again, told = run(*names, path=str(tmp_path / "my"))
    assert not again["changed"] and again["diff"] == [] and all("unchanged" in line for line in told)


def test_a_file_that_the_user_has_changed_stays_unless_forced(tmp_path: Path) -> None:
    mine = tmp_path / "lambda.yml"
    mine.write_text("mine")
    result, _told = run("examples/lambda.yml", "examples/templates", path=str(tmp_path))
    assert result["failed"] and str(mine) in result["msg"] and "force=true" in result["msg"]
    assert mine.read_text() == "mine" and not (tmp_path / "templates").exists()
    forced, _told = run("examples/lambda.yml", path=str(tmp_path), force=True)
    assert forced["changed"] and forced["diff"][0]["before"] == "mine" and mine.read_text() != "mine"


def test_writing_and_applying_exclude_each_other(tmp_path: Path) -> None:
    assert "exclude each other" in run(path=str(tmp_path), apply=True)[0]["msg"]


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("chattr") is None, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file" in run(path=str(tmp_path / "file"))[0]["msg"]


# ---- into the cluster


def test_check_mode_says_what_would_change_and_writes_nothing(cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    foreseen = apply("rbac", "crds", POOLS, check=True)
    assert foreseen["changed"] and "created" in results(foreseen) and "changed" not in results(foreseen)
    assert "GPUNodePool default/ml-workload-pool" in [one["before_header"] for one in foreseen["diff"]]
    assert cluster.read(ROLE) is None and cluster.read("/api/v1/namespaces/tgp-system") is None


def test_the_second_apply_changes_nothing(cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    assert "created" in results(apply("rbac", "crds", POOLS))
    role = cluster.read(ROLE)
    assert role is not None and {one["manager"] for one in role["metadata"]["managedFields"]} == {"tgp.gpu"}
    again = apply("rbac", "crds", POOLS)
    assert results(again) == {"unchanged"} and not again["changed"] and again["diff"] == []
    assert cluster.read(ROLE) == role
    pools = cluster.read("/apis/tgp.io/v1/namespaces/default/gpunodepools/ml-workload-pool")
    assert pools is not None and pools["spec"]["maxHourlyPrice"] == "2.0"


def test_what_somebody_removed_is_set_again_and_shown(cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    apply()
    cluster.must("PATCH", "/api/v1/namespaces/tgp-system/serviceaccounts/tgp-gpu", {"metadata": {"labels": {"team": "a"}}})
    assert results(apply()) == {"unchanged"}, "fields of others stay"
    cluster.must("DELETE", ROLE)
    foreseen = apply(check=True)
    assert [(one["kind"], one["name"]) for one in foreseen["objects"] if one["result"] == "created"] == [("ClusterRole", "tgp-gpu")]
    assert cluster.read(ROLE) is None
    assert results(apply()) == {"created", "unchanged"} and cluster.read(ROLE) is not None


def test_fields_of_another_manager_are_taken_over_only_by_force(cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    apply()
    cluster.must("PATCH", ROLE, {"rules": []})
    refused = apply()
    assert refused["failed"] and ".rules" in refused["msg"] and "force=true" in refused["msg"]
    role = cluster.read(ROLE)
    assert role is not None and role["rules"] == []
    forced = apply(force=True)
    assert results(forced) == {"changed", "unchanged"} and forced["changed"]
    role = cluster.read(ROLE)
    assert role is not None and len(role["rules"]) > 5


def test_a_kind_that_the_cluster_does_not_serve_is_named(cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    told = apply("examples/lambda.yml")
    assert told["failed"] and "does not serve GPUNodeClass of tgp.io/v1" in told["msg"]
    told = apply("admission_policy")
    assert "does not serve ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1" in told["msg"]


@pytest.mark.parametrize(
    "name", ["requirements", "examples/cron/run", "schemas/gpunodepool.schema.json", "examples/execution-environment.yaml"]
)
def test_what_is_not_a_manifest_is_not_applied(name: str, cluster: Cluster, apply: t.Callable[..., dict[str, t.Any]]) -> None:
    told = apply("rbac", name)
    assert told["failed"] and "is not a Kubernetes manifest" in told["msg"] and cluster.read(ROLE) is None
