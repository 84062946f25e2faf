# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever may create a GPUNodePool or GPURequest object gets no program, no file and no key of the controller by it."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from tests.contract.act.rig import Rig
from tests.contract.act.test_service import documents
from tests.fixtures.former_kinds import former_definitions

Json = dict[str, t.Any]
KEY = "secret_0123456789abcdefghijklmnop"
POOLS = "/apis/tgp.io/v1/namespaces/default/gpunodepools"
RUNPOD = {"offers": [{"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 4, "boot": 20}]}


@pytest.fixture
def tenant(build: t.Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The operator has a class of containers in a file; pools are objects of the cluster, which was not upgraded: its API server stores
    what newer definitions refuse."""
    rig = build(runpod=RUNPOD)
    for definition in former_definitions():
        rig.kube("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rig.documents = documents("runpod")[:1]
    monkeypatch.setattr(rig, "run", functools.partial(rig.run, documents_from_cluster=True))
    rig.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    rig.kube("POST", "/api/v1/namespaces/tgp-system/secrets", {"metadata": {"name": "operator"}, "stringData": {"key": KEY}})
    return rig


def pool(**service: t.Any) -> Json:
    made = copy.deepcopy(documents("runpod")[1])
    made["spec"]["template"]["spec"]["service"] |= service
    return made


def play(what: t.Callable[..., t.Any], **params: t.Any) -> None:
    """A run that may refuse the documents as a whole."""
    with contextlib.suppress(InvalidInput):
        what(**params)


@pytest.mark.parametrize("check", [True, False], ids=["check", "reap"])
def test_an_object_of_the_cluster_runs_no_program_on_the_controller(tenant: Rig, tmp_path: Path, check: bool) -> None:
    tenant.kube("POST", POOLS, pool())
    tenant.provision(pool="llm")
    loot = tmp_path / "loot"
    code = f"open({str(loot)!r}, 'w').write(open('/proc/' + str(__import__('os').getppid()) + '/environ').read())"
    tenant.kube(
        "PATCH", f"{POOLS}/llm", {"spec": {"disruption": {"idleProbe": {"url": None, "command": [sys.executable, "-c", code]}}}}
    )
    tenant.advance(1200)
    if check:
        play(lambda: tenant.plan("reap", check=True))
    else:
        play(tenant.reap)
    assert not loot.exists(), "a command of a namespaced object ran on the controller"


def test_a_namespaced_pool_gets_no_secret_of_another_namespace(tenant: Rig) -> None:
    stolen = {"namespace": "tgp-system", "name": "operator", "key": "key"}
    tenant.kube("POST", POOLS, pool(environmentFrom={"LOOT": stolen}))
    play(tenant.rent, pool="llm")
    assert KEY not in str([one.details["environment"] for one in tenant.machines()]), "a Secret went into a tenant's container"


def test_a_request_object_reads_no_file_of_the_controller(tenant: Rig, tmp_path: Path) -> None:
    file = tmp_path / "private.yaml"
    file.write_text("machine: {}\n")
    opened: list[str] = []
    read = Path.read_text

    def watch(self: Path, *given: t.Any, **more: t.Any) -> str:
        opened.append(str(self))
        return read(self, *given, **more)

    spec = {"gpuType": "A10", "provider": "lambda", "talosConfig": {"machineConfigTemplateFile": str(file)}}
    body = {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "one"}, "spec": spec}
    tenant.kube("POST", "/apis/tgp.io/v1/gpurequests", body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", watch)
        play(lambda: tenant.plan("provision", check=True))
    assert str(file) not in opened, "a file of the controller was read for an object of the cluster"
