# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines move in and out by the playbooks of docs/how_to/moving.md, with a pod at work on them (L-48, L-49)."""

from __future__ import annotations

import json
import typing as t

import pytest

from sandbox import tgp_operator

from .box import Sandbox

JOB = "/api/v1/namespaces/default/pods/training-job"


@pytest.fixture
def sandbox(start: t.Callable[..., Sandbox]) -> Sandbox:
    """One of its own: what moves in stays."""
    return start()


def administrator(sandbox: Sandbox) -> tgp_operator.Send:
    def send(method: str, path: str, body: t.Any = None) -> t.Any:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        return sandbox.kube.request(method, path, content=content, headers={"content-type": media}).raise_for_status().json()

    return send


def by_hand(sandbox: Sandbox, name: str, node: str) -> str:
    """The id of a machine that a person made, at work as a Node."""
    body = {"cloud": "lambda", "name": name, "node": node}
    machine = sandbox.control.post("/strangers", json=body).raise_for_status().json()
    sandbox.advance(600)
    sandbox.run_job(node)
    return str(machine["id"])


def ids(sandbox: Sandbox) -> list[str]:
    return sorted(one["id"] for one in sandbox.living())


def test_L49_an_installation_of_tgp_operator_is_imported_once(sandbox: Sandbox) -> None:
    """The plain run shows it and changes nothing; while the controller runs, nothing is adopted; the second import has changed=0."""
    send = administrator(sandbox)
    tgp_operator.install(send)
    node = tgp_operator.node_of_request("my-gpu-workload")
    machine = by_hand(sandbox, "tgp-instance-1753962480", node)
    tgp_operator.request(send, "my-gpu-workload", "lambdalabs", machine)
    tgp_operator.request(send, "not-yet", "lambdalabs", "", phase="Provisioning")
    pod = sandbox.get(JOB)["metadata"]["uid"]
    wanted = {"pool": "training", "apply": True}
    shown = sandbox.playbook("import_tgp_operator", extra_vars={"pool": "training"}).succeeded()
    assert shown.count("changed") == 0 and "would be adopted as tgp-" in shown.words and sandbox.claims() == {}
    assert "not adopted: it has no machine yet (phase Provisioning)" in shown.words
    refused = sandbox.playbook("import_tgp_operator", extra_vars=wanted).failed()
    assert f"scale deployment {tgp_operator.DEPLOYMENT} --replicas=0" in refused.words and sandbox.claims() == {}
    tgp_operator.scale(send, 0)
    assert sandbox.playbook("import_tgp_operator", extra_vars=wanted, check=True).succeeded().count("changed") == 1
    assert sandbox.claims() == {}
    assert sandbox.playbook("import_tgp_operator", extra_vars=wanted).succeeded().count("changed") == 1
    again = sandbox.playbook("import_tgp_operator", extra_vars=wanted).succeeded()
    assert again.count("changed") == 0 and "adopted already, as tgp-" in again.words
    (claim,) = sandbox.claims().values()
    assert (claim["instance_id"], claim["node_name"]) == (machine, node) and ids(sandbox) == [machine]
    assert sandbox.get(JOB)["metadata"]["uid"] == pod and sandbox.get(JOB)["status"]["phase"] == "Running"
    assert sandbox.get("/apis/tgp.io/v1/gpurequests/my-gpu-workload")["metadata"]["finalizers"] == [tgp_operator.FINALIZER]
    sandbox.playbook("reap").succeeded()
    assert ids(sandbox) == [machine]


def test_L49_what_an_import_does_not_understand_is_refused(sandbox: Sandbox) -> None:
    one = sandbox.playbook("import_tgp_operator", extra_vars={"id": "0920582c7ff041399e34823a0be62549"}).failed()
    assert "tgp_id means nothing to this playbook" in one.words
    like = sandbox.playbook("import_tgp_operator", extra_vars={"tgp_pol": "training"}).failed()
    assert "Did you mean tgp_pool?" in like.words
    tgp_operator.install(administrator(sandbox), replicas=0)
    nothing = sandbox.playbook("import_tgp_operator", extra_vars={"pool": "trainig", "apply": True}).succeeded()
    assert nothing.count("changed") == 0 and "There is no machine of tgp-operator" in nothing.words
    node = tgp_operator.node_of_request("my-gpu-workload")
    tgp_operator.request(administrator(sandbox), "my-gpu-workload", "lambdalabs", by_hand(sandbox, "tgp-instance-1753962480", node))
    unknown = sandbox.playbook("import_tgp_operator", extra_vars={"pool": "trainig", "apply": True}).succeeded()
    assert unknown.count("changed") == 0 and "there is no pool trainig among the documents" in unknown.words
    assert sandbox.claims() == {}


def test_L48_a_machine_made_by_hand_moves_in_and_out_again(sandbox: Sandbox) -> None:
    """Each step by its playbook, shown first and repeated; the pod runs all the time, and the bill has what lay between."""
    machine = by_hand(sandbox, "somebodys-box", "gpu-box-1")
    wanted = {"pool": "training", "provider": "lambda", "id": machine, "node": "gpu-box-1"}
    shown = sandbox.playbook("adopt", extra_vars=wanted).succeeded()
    assert shown.count("changed") == 0 and "would be adopted into default/training" in shown.words and sandbox.claims() == {}
    confirmed = {**wanted, "apply": True}
    assert sandbox.playbook("adopt", extra_vars=confirmed, check=True).succeeded().count("changed") == 1
    assert sandbox.claims() == {}
    assert sandbox.playbook("adopt", extra_vars=confirmed).succeeded().count("changed") == 1
    assert sandbox.playbook("adopt", extra_vars=confirmed).succeeded().count("changed") == 0
    (name,) = sandbox.claims()
    assert sandbox.nodes()["gpu-box-1"]["metadata"]["labels"]["tgp.io/nodepool"] == "training"
    sandbox.advance(3600)
    sandbox.playbook("reap").succeeded()

    out = {"machine": name}
    assert sandbox.playbook("release", extra_vars=out, check=True).succeeded().count("changed") == 1 and name in sandbox.claims()
    released = sandbox.playbook("release", extra_vars=out).succeeded()
    assert released.count("changed") == 1 and "its owner has to, at lambda" in released.words
    assert sandbox.playbook("release", extra_vars=out).succeeded().count("changed") == 0
    (line,) = sandbox.ledger()
    assert (line["name"], line["reason"]) == (name, "Released") and sandbox.claims() == {}
    sandbox.advance(7200)
    sandbox.playbook("reap").succeeded()
    assert ids(sandbox) == [machine] and sandbox.get(JOB)["status"]["phase"] == "Running"
    assert not [key for key in sandbox.nodes()["gpu-box-1"]["metadata"]["labels"] if key.startswith("tgp.io/")]
