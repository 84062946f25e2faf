# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 4: the machine of a document that was deleted ends, by that or by its own limits, and by nothing that only looks like it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from tests.contract.act.rig import Rig
from tests.fixtures.demo import demo_documents

Json = dict[str, t.Any]
MINUTES_5 = 300
CLASS = next(one for one in demo_documents() if one["kind"] == "GPUNodeClass")


def pool(name: str, **spec: t.Any) -> Json:
    rented = {"spec": {"requirements": [{"key": "tgp.io/provider", "operator": "In", "values": ["lambda"]}]}}
    inner = {"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "3", "template": rented, **spec}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": meta, "spec": inner}


def write(folder: Path, name: str, *documents: Json) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


@pytest.fixture
def team(rig: Rig) -> Path:
    """A folder with the class and a pool without machines."""
    folder = rig.folder / "team"
    write(folder, "class", CLASS)
    write(folder, "other", pool("other"))
    rig.documents = [str(folder)]  # type: ignore[list-item]
    return folder


def request(rig: Rig, folder: Path, **spec: t.Any) -> Path:
    """A request for one machine, which runs when this returns."""
    same = {part: CLASS["spec"][part] for part in ("talosConfig", "tailscaleConfig")}
    section = {"gpuType": "A10", "provider": "lambda", "maxHourlyPrice": "3", **same, **spec}
    path = write(folder, "job", {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "job-1"}, "spec": section})
    rig.provision(pool="job-1")
    assert rig.machine()
    return path


def age(rig: Rig) -> float:
    """Minutes for which the one rented machine was there, by the world's clock."""
    (ended,) = (one for one in rig.world.machines.values() if one.cloud == "lambda")
    assert ended.ended is not None, "the machine of a deleted document is still there"
    return (ended.ended - ended.created).total_seconds() / 60


def ages(rig: Rig, minutes: int, documents: list[t.Any] | None = None) -> list[int]:
    """Reap every five minutes; the minutes after which there was no machine any more, at most one. What the runs themselves take
    counts little: a busy test machine makes no machine older."""
    rig.clock.run_at(10)
    for passed in range(5, minutes + 1, 5):
        rig.advance(MINUTES_5)
        rig.reap(**({"documents": documents} if documents is not None else {}))
        if not rig.machines():
            return [passed]
    return []


def test_the_machine_of_a_deleted_request_is_drained_after_ten_minutes(rig: Rig, team: Path) -> None:
    path = request(rig, team, maxLifetime="2h")
    assert ages(rig, 60) == [], "its document is there, and it is not two hours old"
    path.unlink()
    found = ages(rig, 60)
    assert found, "the machine of a deleted document is still there"
    assert 10 <= found[0] <= 20
    assert rig.ledger()[0]["reason"] == "DocumentGone" and rig.left() == {}


def test_the_machine_of_a_deleted_pool_is_drained_without_force(rig: Rig, team: Path) -> None:
    path = write(team, "mine", pool("mine", disruption={"consolidateAfter": "Never"}))
    rig.provision(pool="mine")
    rig.pod(rig.claim()["name"], budget=True)
    path.unlink()
    for _run in range(4):
        rig.advance(MINUTES_5)
        done = rig.reap()
    assert rig.machine() and "default/job" in str(done["problems"]), (
        "the machine of a deleted document went against a PodDisruptionBudget"
    )
    rig.kube("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/job")
    assert ages(rig, 15) == [5] and rig.left() == {}


def test_a_run_over_other_documents_ends_it_by_its_own_limit_alone(rig: Rig, team: Path) -> None:
    request(rig, team, maxLifetime="2h")
    other = rig.folder / "strangers"
    write(other, "class", CLASS)
    write(other, "theirs", pool("theirs"))
    found = ages(rig, 180, [str(other)])
    assert found and 120 <= age(rig) <= 135, (found, age(rig))
    assert rig.ledger()[0]["reason"] == "Expired"


def test_a_run_over_other_documents_ends_what_is_idle(rig: Rig, team: Path) -> None:
    request(rig, team, idleTimeout="30m")
    other = rig.folder / "strangers"
    write(other, "class", CLASS)
    write(other, "theirs", pool("theirs"))
    found = ages(rig, 90, [str(other)])
    assert found and 30 <= age(rig) <= 60, (found, age(rig))
    assert rig.ledger()[0]["reason"] == "Empty"


def test_a_deleted_object_of_the_cluster_ends_its_machine(rig: Rig) -> None:
    for definition in yaml.safe_load_all((Path(__file__).parents[3] / "schemas" / "crds.yaml").read_text()):
        rig.kube("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rig.kube("POST", "/apis/tgp.io/v1/gpunodeclasses", _inline_template())
    rig.kube("POST", "/apis/tgp.io/v1/namespaces/default/gpunodepools", pool("mine", disruption={"consolidateAfter": "Never"}))
    there: dict[str, t.Any] = {"documents": [], "documents_from_cluster": True}
    plan = rig.plan("provision", pools=["mine"], nodes=1, **there)
    rig.run("launch", plan["run_id"], **there)
    rig.run("join", plan["run_id"], **there)
    rig.unlock(plan["run_id"])
    assert rig.machine()
    rig.kube("DELETE", "/apis/tgp.io/v1/namespaces/default/gpunodepools/mine")
    for _run in range(4):
        rig.advance(MINUTES_5)
        rig.reap(**there)
    assert rig.machines() == [], "the machine of a deleted document is still there"
    assert rig.left() == {}


def _inline_template() -> Json:
    """The class with its template in it: an object has no folder beside it."""
    talos = dict(CLASS["spec"]["talosConfig"])
    talos["machineConfigTemplate"] = Path(talos.pop("machineConfigTemplateFile")).read_text()
    return {**CLASS, "spec": {**CLASS["spec"], "talosConfig": talos}}
