# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 5: a faulty document stops the launches of its own pool, and nothing else: reaping and all other pools go on."""

from __future__ import annotations

import copy
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.contract.act.rig import Rig
from tests.fixtures.demo import demo_documents

Json = dict[str, t.Any]
CLASS = next(one for one in demo_documents() if one["kind"] == "GPUNodeClass")
FAULTS: dict[str, Json] = {
    "money": {"maxHourlyPrice": "cheap"},
    "duration": {"disruption": {"consolidateAfter": "soon"}},
    "unknown field": {"maxHourlyPrce": "1"},
    "no class": {"nodeClassRef": {"kind": "GPUNodeClass", "name": "nowhere"}},
}


def pool(name: str, **spec: t.Any) -> Json:
    rented = {"spec": {"requirements": [{"key": "tgp.io/provider", "operator": "In", "values": ["lambda"]}]}}
    inner = {"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "3", "template": rented, **spec}
    return {
        "apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": name, "namespace": "default"}, "spec": inner
    }  # fmt: skip


def write(rig: Rig, **documents: Json | str) -> None:
    """Files of the folder that the rig's runs are given."""
    folder = rig.folder / "team"
    folder.mkdir(exist_ok=True)
    for name, one in documents.items():
        (folder / f"{name}.yml").write_text(one if isinstance(one, str) else yaml.safe_dump(one))
    rig.documents = [str(folder)]  # type: ignore[list-item]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_pool_stops_no_reaping(rig: Rig, fault: str) -> None:
    write(rig, a_class=CLASS, good=pool("good"))
    rig.provision(pool="good")
    write(rig, wrong=pool("wrong", **FAULTS[fault]))
    problems = ""
    for _run in range(5):
        rig.advance(300)
        problems = str(rig.reap()["plan"]["problems"])
    assert rig.machines() == [], "it was idle for long"
    assert rig.ledger()[0]["reason"] == "Empty" and re.search(r"wrong.yml:[0-9]+: spec[.]", problems)


def test_a_pool_that_becomes_faulty_is_reaped_by_what_it_said_before(rig: Rig) -> None:
    write(rig, a_class=CLASS, good=pool("good"), late=pool("late", disruption={"consolidateAfter": "30m"}))
    rig.provision(pool="late")
    write(rig, late=pool("late", disruption={"consolidateAfter": "soon"}))
    rig.advance(900)
    rig.reap()
    rig.advance(900)
    rig.reap()
    assert rig.machines(), "it is not idle for 30 minutes, and its document is not gone"
    rig.advance(1200)
    rig.reap()
    assert rig.machines() == [] and rig.ledger()[0]["reason"] == "Empty"


def test_a_file_that_is_no_yaml_stops_no_reaping(rig: Rig) -> None:
    write(rig, a_class=CLASS, good=pool("good", disruption={"expireAfter": "1h", "consolidateAfter": "Never"}))
    rig.provision(pool="good")
    write(rig, broken="kind: [GPUNodePool\nmetadata: }")
    for _run in range(8):
        rig.advance(600)
        done = rig.reap()
    assert rig.machines() == [] and rig.ledger()[0]["reason"] == "Expired"
    assert "broken.yml" in str(done["plan"]["problems"])


def test_a_faulty_pool_stops_no_other_launch_and_nothing_is_rented_for_it(rig: Rig) -> None:
    write(rig, a_class=CLASS, good=pool("good", minNodes=1), wrong=pool("wrong", minNodes=1, maxHourlyPrice="cheap"))
    done = rig.plan("autoscale")
    rig.run("scale", done["run_id"], names=done["launch"], only_named=True)
    rig.unlock(done["run_id"])
    assert [one["pool"] for one in rig.claims().values()] == ["default/good"] and len(rig.machines()) == 1
    assert re.search(r"wrong.yml:[0-9]+: spec[.]maxHourlyPrice", str(done["problems"]))


def test_a_faulty_class_pauses_its_pools_and_its_machines_are_still_reaped(rig: Rig) -> None:
    write(rig, a_class=CLASS, good=pool("good"))
    rig.provision(pool="good")
    faulty = copy.deepcopy(CLASS)
    faulty["spec"]["limits"] = {"maxHourlyCost": "much"}
    write(rig, a_class=faulty)
    for _run in range(5):
        rig.advance(300)
        rig.reap("everything", nodes={"good": 2})
    assert rig.machines() == [] and rig.creates() == 1, "idle machines go, none comes"


def test_objects_of_another_namespace_stop_no_reaping(rig: Rig) -> None:
    """What the shipped CRDs let pass: whoever may create a pool in a namespace of his kept every machine of the cluster alive."""
    for definition in yaml.safe_load_all((Path(__file__).parents[3] / "schemas" / "crds.yaml").read_text()):
        rig.kube("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    write(rig, a_class=CLASS, good=pool("good"))
    rig.provision(pool="good")
    wrong = pool("typo")
    wrong["spec"]["template"]["spec"]["requirements"] = [{"key": "tgp.io/gpu-type", "operator": "In", "values": ["RTX4099"]}]
    wrong["metadata"]["namespace"] = "team-b"
    rig.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "team-b"}})
    rig.kube("POST", "/apis/tgp.io/v1/namespaces/team-b/gpunodepools", wrong)
    for _run in range(5):
        rig.advance(300)
        done = rig.reap(documents_from_cluster=True)
    assert rig.machines() == [] and "team-b/typo" in str(done["plan"]["problems"])
