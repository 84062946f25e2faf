# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people and GitOps tools see of a class, a pool and a request: kubectl's tables and descriptions, Events, and kstatus's verdict.

The class and the pool are those of examples/seed-s0-corrected.yml, the request has the fields of demand S1-09. The test prints what it saw.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import typing as t

import pytest
import yaml

from tests.build import built
from tests.e2e.box import ROOT

from .plane import Plane
from .stage import Stage, shipped_account

pytestmark = pytest.mark.cluster
Json = dict[str, t.Any]
FROM_CLUSTER: Json = {"options": {"documents_from_cluster": True}}
CLASS, POOL, REQUEST = "gnc/standard-gpu-class", "gnp/ml-workload-pool", "greq/notebook"


class Shown(Stage):
    """Virtual machines with RTX 4090 at Vast.ai, and A10 at Lambda. Documents are objects of the cluster."""

    def _scenario(self) -> Json:
        offer = {"gpu": "RTX 4090", "price": "0.36", "place": "Oregon, US", "vm": True, "stock": 4, "boot": 0.5}
        return {**super()._scenario(), "vast": {"offers": [offer]}}

    def autoscale(self, **variables: t.Any) -> t.Any:
        return self.playbook("autoscale", documents=None, extra_vars={**FROM_CLUSTER, **variables})


class Desk:
    """kubectl and kstatus as administrator. What they print is kept for the reader of the test."""

    def __init__(self, plane: Plane, kstatus: pathlib.Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        self._kstatus = kstatus

    def kubectl(self, *arguments: str, say: bool = True, text: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", *arguments], input=text, env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        if say:
            print(f"\n$ kubectl {' '.join(arguments)}\n{done.stdout}".rstrip())
        return done.stdout

    def verdicts(self) -> dict[str, str]:
        """Kind to what the library that Flux and Helm use says of each object."""
        objects = "".join(self.kubectl("get", name, "-o", "json", say=False) for name in (CLASS, POOL, REQUEST))
        done = subprocess.run([str(self._kstatus)], input=objects, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        print(f"\n$ kstatus\n{done.stdout}".rstrip())
        return {kind: verdict for kind, _name, verdict, _message in (line.split("\t") for line in done.stdout.splitlines())}

    def events(self, name: str) -> set[tuple[str, str]]:
        """Type and reason of ours as kubectl describe shows them, in no certain order."""
        described = self.kubectl("describe", name)
        return set(re.findall(r"^ +(Normal|Warning) +(\w+) .* tgp\.io/gpu ", described.partition("\nEvents:")[2], re.MULTILINE))


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Shown]:
    made = Shown(plane, tmp_path, drain_timeout="8s")
    try:
        yield made
        if made.claims():
            made.playbook("destroy", documents=None, extra_vars={**FROM_CLUSTER, "everything": True, "force": True}).succeeded()
    finally:
        made.close()


@pytest.fixture
def desk(plane: Plane, request: pytest.FixtureRequest) -> Desk:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return Desk(plane, built("kstatus", request))


def documents(stage: Shown) -> list[Json]:
    node_class, pool = yaml.safe_load_all((ROOT / "examples" / "seed-s0-corrected.yml").read_text(encoding="utf-8"))
    keys = {
        "RUNPOD_API_KEY": stage.variables["RUNPOD_API_KEY"],
        "LAMBDA_LABS_API_KEY": stage.variables["LAMBDA_API_KEY"],
        "VAST_API_KEY": stage.variables["VAST_API_KEY"],
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tgp-operator-secret", "namespace": "tgp-system"},
        "stringData": keys,
    }
    node_class["spec"]["allowedNamespaces"] = ["default"]
    request = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPURequest",
        "metadata": {"name": "notebook"},
        "spec": {
            "provider": "lambda",
            "gpuType": "A10",
            "region": "us-east",
            "maxHourlyPrice": "2.00",
            "maxLifetime": "2h",
            "idleTimeout": "30m",
            "spot": False,
            "talosConfig": node_class["spec"]["talosConfig"],
            "tailscaleConfig": {"tags": ["tag:gpu"]},
        },
    }
    return [secret, node_class, pool, request]


def test_S1_09_objects_are_shown_before_while_and_after_machines_come(
    plane: Plane,
    stage: Shown,
    desk: Desk,
    crds: None,
) -> None:
    stage.enter_by(plane.server, shipped_account(plane))
    desk.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents(stage)}))
    desk.kubectl("scale", POOL, "--replicas=1")
    desk.kubectl("get", "gpu", "-A")
    assert set(desk.verdicts().values()) == {"InProgress"}, "nobody has looked at them yet"

    stage.autoscale().succeeded()
    desk.kubectl("get", "gpu", "-A")
    assert desk.verdicts() == {"GPUNodeClass": "Current", "GPUNodePool": "InProgress", "GPURequest": "InProgress"}

    stage.autoscale(wait=True).succeeded()
    stage.autoscale().succeeded()
    shown = desk.kubectl("get", "gpu", "-A")
    assert re.search(r"ml-workload-pool +standard-gpu-class +1 +1 +[0-9.]+ +MachinesReady", shown), shown
    assert set(desk.verdicts().values()) == {"Current"}
    for name in (POOL, REQUEST):
        assert desk.events(name) == {("Normal", "Launched"), ("Normal", "MachineReady")}, name
    machine = next(name for name, claim in stage.claims().items() if claim["cloud"] == "vast")
    assert desk.events(f"node/{machine}") == {("Normal", "Initialized")}

    desk.kubectl("patch", CLASS, "--type=merge", "-p", '{"spec": {"limits": {"maxNodes": 1}}}')
    desk.kubectl("scale", POOL, "--replicas=2")
    stage.autoscale()
    desk.kubectl("get", "gpu", "-A")
    assert desk.verdicts() == {"GPUNodeClass": "Current", "GPUNodePool": "Failed", "GPURequest": "Current"}
    assert ("Warning", "LimitReached") in desk.events(POOL)
    assert desk.events(CLASS) == set()

    desk.kubectl("delete", REQUEST, "--wait=false")
    assert desk.verdicts()["GPURequest"] == "Terminating"
    stage.autoscale()
    assert {claim["cloud"] for claim in stage.claims().values()} == {"vast"}
    order = steps(plane, stage)
    print("\n" + "\n".join(f"{moment} {what}" for moment, what in order))
    found = [what for _moment, what in order]
    assert found == sorted(found, key=EXPECTED.index) and set(found) == set(EXPECTED), found
    assert plane.find("/apis/tgp.io/v1/gpurequests/notebook") is None
    desk.kubectl("get", "gpu", "-A")


# the last of each, in the order in which they must come
EXPECTED = [
    "audit: the request is held by its finalizer",
    "audit: the node is drained",
    "world: the instance is terminated",
    "audit: the node is deleted",
    "audit: the claim is deleted",
    "audit: the finalizer of the request is removed",
]


def steps(plane: Plane, stage: Shown) -> list[tuple[str, str]]:
    """What was done for the request's machine, by the API server's audit log and by the world's own."""
    user = "system:serviceaccount:tgp-system:tgp-gpu"
    with open(plane.audit_log, encoding="utf-8") as log:
        notes = [note for note in map(json.loads, log) if note["user"]["username"] == user and note.get("objectRef")]
    last: dict[str, str] = {}
    held = False
    for note in notes:
        about, moment = note["objectRef"], note["requestReceivedTimestamp"][:23]
        key = (note["verb"], about["resource"], about.get("subresource", ""))
        name = about.get("name", "")
        if key == ("patch", "gpurequests", "") and name == "notebook":
            last[EXPECTED[-1] if held else EXPECTED[0]] = moment
            held = True
        elif "-notebook-" in name and key == ("patch", "nodes", ""):
            last[EXPECTED[1]] = moment
        elif "-notebook-" in name and key == ("delete", "nodes", ""):
            last[EXPECTED[3]] = moment
        elif "-notebook-" in name and key == ("delete", "configmaps", ""):
            last[EXPECTED[4]] = moment
    writes = [one for one in stage.world()["writes"] if "terminate" in one["what"]]
    last[EXPECTED[2]] = writes[-1]["time"][:23]
    return sorted((moment, what) for what, moment in last.items())
