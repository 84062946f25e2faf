# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``validate.yml`` with each credential broken in turn: exit code 2, and the name of what is wrong."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

from tests.fixtures.demo import DEMO

from .box import Result, Sandbox
from .test_bad_input import NEEDED, kubeconfig, limited

WRONG = "wrong-0123456789abcdef0123456789abcdef"
RENTED = {name: entry.variables(entry.key)[0] for name, entry in ENTRIES.items() if entry.facts.rented}


def rows(result: Result) -> dict[str, str]:
    """The printed table: check → its mark."""
    marks = ("ok", "warn", "NO")
    found: dict[str, str] = {}
    for line in result.out.splitlines():
        mark, _blank, rest = line.strip().partition("  ")
        if mark in marks and line.startswith("  "):
            found[rest.strip().partition("  ")[0].strip()] = mark
    return found


def wrong(result: Result) -> list[str]:
    return sorted(what for what, mark in rows(result).items() if mark == "NO")


def test_S0_06_all_is_well(sandbox: Sandbox) -> None:
    result = sandbox.playbook("validate").succeeded()
    table = rows(result)
    assert "NO" not in table.values(), result.text
    assert {"documents", "cluster", "rights", "clock", "Talos secrets", "mesh", "template of demo", "cloud lambda"} <= set(table)
    assert sandbox.writes() == []


@pytest.mark.parametrize(
    ("host", "mark"), [("127.0.0.1", "NO"), ("api.nowhere.invalid", "warn")], ids=["nothing there", "name not known here"]
)
def test_a_control_plane_that_machines_would_not_find(sandbox: Sandbox, host: str, mark: str) -> None:
    result = sandbox.playbook("validate", env={"TGP_CONTROL_PLANE_ENDPOINT": f"https://{host}:9"})
    assert rows(result)["control plane"] == mark, result.text
    assert (result.rc, wrong(result)) == ((2, ["control plane"]) if mark == "NO" else (0, [])) and host in result.words


@pytest.mark.parametrize("cloud", RENTED)
def test_S0_06_each_clouds_key_in_turn(sandbox: Sandbox, cloud: str) -> None:
    result = sandbox.playbook("validate", env={RENTED[cloud]: WRONG})
    assert result.rc == 2, result.text
    assert wrong(result) == [f"cloud {cloud}"]
    assert WRONG not in result.text and RENTED[cloud] in result.words


@pytest.mark.parametrize("cloud", RENTED)
def test_S0_06_a_named_cloud_with_a_wrong_key(sandbox: Sandbox, tmp_path: Path, cloud: str) -> None:
    """With every other cloud named, too: exactly this one is wrong."""
    file = tmp_path / "pools.yml"
    file.write_text(yaml.safe_dump_all(four_clouds()))
    result = sandbox.playbook("validate", documents=file, env={RENTED[cloud]: WRONG})
    assert (result.rc, wrong(result)) == (2, [f"cloud {cloud}"]), result.text
    assert {rows(result)[f"cloud {one}"] for one in RENTED if one != cloud} <= {"ok", "warn"}


def four_clouds() -> list[dict[str, t.Any]]:
    documents = [one for file in ("class.yml", "pools.yml") for one in yaml.safe_load_all((DEMO / file).read_text())]
    node_class = next(one for one in documents if one["kind"] == "GPUNodeClass")
    node_class["spec"]["providers"] = [{"name": name} for name in RENTED]
    node_class["spec"]["talosConfig"] = {"machineConfigTemplateFile": str(DEMO.parent / "templates" / "worker.yaml")}
    pool = next(one for one in documents if one["kind"] == "GPUNodePool" and one["metadata"]["name"] == "training")
    return [node_class, pool]


def test_S0_06_a_cloud_of_the_documents_without_a_key(sandbox: Sandbox) -> None:
    result = sandbox.playbook("validate", env={"LAMBDA_API_KEY": None, "LAMBDA_LABS_API_KEY": None})
    assert (result.rc, wrong(result)) == (2, ["cloud lambda"])
    assert "no API key is given" in result.words


@pytest.mark.parametrize(
    "env",
    [{"TS_OAUTH_CLIENT_SECRET": "tskey-client-" + WRONG}, {"TS_OAUTH_CLIENT_SECRET": WRONG}, {"TS_OAUTH_CLIENT_SECRET": None}],
    ids=["wrong", "of another form", "half"],
)
def test_S0_06_the_tailnets_client(sandbox: Sandbox, env: dict[str, str | None]) -> None:
    result = sandbox.playbook("validate", env=env)
    assert (result.rc, wrong(result)) == (2, ["mesh"]), result.text
    assert WRONG not in result.text
    assert "mesh_login_server" not in result.text, "what is wrong with the credential comes first, and alone"


def _stranger(config: dict[str, t.Any]) -> None:
    config["users"][0]["user"] = {"token": WRONG}


def _elsewhere(config: dict[str, t.Any]) -> None:
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"


@pytest.mark.parametrize("change", [_stranger, _elsewhere], ids=["not accepted", "not there"])
def test_S0_06_the_cluster_and_what_can_be_tried_without_it(
    sandbox: Sandbox, tmp_path: Path, change: t.Callable[[dict[str, t.Any]], None]
) -> None:
    env = {"KUBECONFIG": kubeconfig(sandbox, tmp_path, change), "LAMBDA_API_KEY": WRONG}
    result = sandbox.playbook("validate", env=env)
    assert (result.rc, wrong(result)) == (2, ["cloud lambda", "cluster"]), result.text
    assert rows(result)["mesh"] == "ok"
    assert "were not tried" in result.words and WRONG not in result.text


def test_S0_06_a_kubeconfig_that_is_not_there(sandbox: Sandbox) -> None:
    result = sandbox.playbook("validate", env={"KUBECONFIG": "/nowhere/config"})
    assert (result.rc, wrong(result)) == (2, ["cluster"]), result.text
    assert "/nowhere/config" in result.words


@pytest.mark.parametrize(("resource", "verb"), [("nodes", "patch"), ("secrets", "create"), ("pods/eviction", "create")])
def test_S0_06_missing_rights(sandbox: Sandbox, tmp_path: Path, resource: str, verb: str) -> None:
    rules = [
        {**one, "verbs": [word for word in one["verbs"] if word != verb or resource not in one["resources"]]} for one in NEEDED
    ]
    env = limited(sandbox, tmp_path, [one for one in rules if one["verbs"]])
    result = sandbox.playbook("validate", env=env)
    assert (result.rc, wrong(result)) == (2, ["rights"]), result.text
    assert f"{verb} {resource}" in result.words


def test_a_request_for_any_cloud_checks_those_with_a_key(sandbox: Sandbox, tmp_path: Path) -> None:
    """A cloud that nobody named and nobody configured is no finding; none at all is one."""
    template = (DEMO.parent / "templates" / "worker.yaml").read_text()
    request = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPURequest",
        "metadata": {"name": "any"},
        "spec": {
            "gpuType": "A10",
            "maxHourlyPrice": "2.00",
            "talosConfig": {"machineConfigTemplate": template},
            "tailscaleConfig": {"tags": ["tag:gpu"]},
        },
    }
    file = tmp_path / "request.yml"
    file.write_text(yaml.safe_dump(request))
    without: dict[str, str | None] = dict.fromkeys((*RENTED.values(), "LAMBDA_LABS_API_KEY"))
    only = {**without, "LAMBDA_API_KEY": sandbox.variables["LAMBDA_API_KEY"]}
    table = rows(sandbox.playbook("validate", documents=file, env=only).succeeded())
    assert [what for what in table if what.startswith("cloud")] == ["cloud lambda"]
    plan = sandbox.playbook("provision", documents=file, env=only, check=True).succeeded()
    assert "could not be read" not in plan.words

    none = sandbox.playbook("validate", documents=file, env=without)
    assert (none.rc, wrong(none)) == (2, ["clouds"]), none.text
    refused = sandbox.playbook("provision", documents=file, env=without)
    assert refused.rc == 2 and "no cloud is configured" in refused.words and "LAMBDA_API_KEY" in refused.words
    assert sandbox.totals()["instances"] == 0
