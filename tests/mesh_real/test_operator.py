# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's own chart and source know the values and annotations that role prereqs and tailscale_expose write."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import (
    TAILSCALE_EXPOSE_ANNOTATION,
    TAILSCALE_HOSTNAME_ANNOTATION,
    TAILSCALE_PROXY_CLASS_ANNOTATION,
    TAILSCALE_TAGS_ANNOTATION,
)
from ansible_collections.tgp.gpu.plugins.module_utils.preflight.operator_objects import PLURALS
from ansible_collections.tgp.gpu.plugins.modules import tailscale_operator_object

from sandbox.clock import SimClock
from sandbox.kube import KubeApi, serve

from ..fixtures.tailscale_operator import DEFINITIONS, VERSION, definitions

HERE = pathlib.Path(__file__).resolve().parent
OPERATOR = "cmd/k8s-operator"


@pytest.fixture(scope="module")
def source() -> pathlib.Path:
    """Tailscale's module as Go unpacks it, without building anything."""
    go = shutil.which("go")
    if not go:
        pytest.skip("tailscale: not built, Go is not installed.")
    done = subprocess.run(
        [go, "mod", "download", "-json", "tailscale.com"],
        cwd=HERE / "tailscale",
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"tailscale: its source cannot be had here: {done.stderr.strip()[-200:]}")
    return pathlib.Path(json.loads(done.stdout)["Dir"])


def same_form(ours: t.Any, theirs: t.Any, path: str = "") -> list[str]:
    """What of our values the chart does not have, or has in another form."""
    if not isinstance(ours, dict):
        fits = (
            isinstance(theirs, list)
            if isinstance(ours, str) and "_tags }}" in ours and "join" not in ours
            else isinstance(theirs, str)
        )
        return [] if fits else [f"{path} is {type(theirs).__name__} there"]
    found = [f"{path}.{key}" for key in ours if key not in theirs]
    return found + [line for key in ours if key in theirs for line in same_form(ours[key], theirs[key], f"{path}.{key}")]


def test_S0_10_the_chart_has_every_value_of_ours_in_the_same_form(source: pathlib.Path) -> None:
    chart = source / OPERATOR / "deploy" / "chart"
    ours = yaml.safe_load((HERE.parents[1] / "roles" / "prereqs" / "vars" / "main.yml").read_text())
    theirs = yaml.safe_load((chart / "values.yaml").read_text())
    wanted = {**ours["prereqs_own_values"], **ours["prereqs_oauth"], "loginServer": "https://hs.example"}
    assert same_form(wanted, theirs) == []
    secret = (chart / "templates" / "oauth-secret.yaml").read_text()
    assert "name: operator-oauth" in secret and "client_id:" in secret and "client_secret:" in secret


def test_S0_11_the_operator_reads_our_annotations(source: pathlib.Path) -> None:
    code = "\n".join(path.read_text() for path in (source / OPERATOR).glob("*.go") if not path.name.endswith("_test.go"))
    assert [
        one
        for one in (
            TAILSCALE_EXPOSE_ANNOTATION,
            TAILSCALE_HOSTNAME_ANNOTATION,
            TAILSCALE_TAGS_ANNOTATION,
            TAILSCALE_PROXY_CLASS_ANNOTATION,
        )
        if f'"{one}"' not in code
    ] == []


def not_theirs(ours: t.Any, theirs: t.Any, path: str = "spec") -> list[str]:
    """Fields and types of our definition that theirs lacks."""
    found = [] if ours["type"] == theirs.get("type") else [f"{path} is {theirs.get('type')} there"]
    for key, schema in ours.get("properties", {}).items():
        if key not in theirs.get("properties", {}):
            found.append(f"{path}.{key}")
        else:
            found += not_theirs(schema, theirs["properties"][key], f"{path}.{key}")
    return found


def test_S3_05_the_operators_own_definitions_take_our_objects(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Its definitions have the fields of those that other tests use, and the module applies both kinds with them."""
    shipped = [
        yaml.safe_load((source / OPERATOR / "deploy" / "crds" / f"tailscale.com_{plural}.yaml").read_text())
        for plural in PLURALS.values()
    ]
    for ours, theirs in zip(definitions(), shipped, strict=True):
        assert ours["spec"]["names"]["plural"] == theirs["spec"]["names"]["plural"] and theirs["spec"]["scope"] == "Cluster"
        there = {one["name"]: one for one in theirs["spec"]["versions"]}[VERSION]
        schemas = [one["schema"]["openAPIV3Schema"]["properties"]["spec"] for one in (ours["spec"]["versions"][0], there)]
        assert not_theirs(*schemas) == []
    api = KubeApi(SimClock(1.0), seed=1, node_grace=None).start()
    server = serve(api)
    try:
        api.write_kubeconfig(str(tmp_path / "kubeconfig"), server.url)
        for definition in shipped:
            assert api.request("POST", DEFINITIONS, definition)[0] == 201
        given = {
            "Connector": {"hostname": "lan", "proxyClass": "small", "subnetRouter": {"advertiseRoutes": ["192.168.10.0/24"]}},
            "ProxyClass": {"statefulSet": {"pod": {"tailscaleContainer": {"resources": {"requests": {"cpu": "100m"}}}}}},
        }
        spec = tailscale_operator_object.SPEC["argument_spec"]
        defaults = {name: option.get("default") for name, option in spec.items()}
        for kind, wanted in given.items():
            params = {**defaults, "kubeconfig": str(tmp_path / "kubeconfig"), "kind": kind, "name": "small", "spec": wanted}
            results = [execute(tailscale_operator_object.SPEC, tailscale_operator_object.run, Task(params)) for _time in range(2)]
            assert [one["changed"] for one in results] == [True, False], results
            wrong = execute(
                tailscale_operator_object.SPEC,
                tailscale_operator_object.run,
                Task({**params, "spec": {**wanted, "tagz": ["tag:k8s"]}}),
            )
            assert wrong["failed"] and "no field spec.tagz" in wrong["msg"]
    finally:
        server.stop()
        api.stop()
