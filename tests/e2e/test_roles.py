# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles that stand alone, run by their plays in examples/roles, and the roles that need a plan, run without one."""

from __future__ import annotations

import json
import re
import stat
import typing as t
from pathlib import Path

import pytest
import yaml

from .box import ROOT, Result, Sandbox
from .conftest import Start
from .test_secrets import talos_secrets

Json = dict[str, t.Any]

EXAMPLES = ROOT / "examples" / "roles"
NODE = "rack-1"  # of all examples about nodes
TOKENS = {"lab-1": "abcdef.0123456789abcdef", "lab-2": "ghijkl.fedcba9876543210"}
OPENED: Json = {  # as roles/node_drain/README.md has it
    "node_labels_nodes": [NODE],
    "node_labels_schedulable": True,
    "node_labels_remove_taints": ["tgp.io/disrupted"],
    "node_labels_labels": {"node.kubernetes.io/exclude-from-external-load-balancers": None},
    "node_labels_annotations": {"tgp.io/drain-started": None},
}


@pytest.fixture(scope="module")
def shared(start: Start) -> Sandbox:
    """A sandbox in which an own machine has become the node of the examples."""
    sandbox = start()
    sandbox.playbook("provision", extra_vars={"pool": "own", "nodes": 1}).succeeded()
    assert NODE in sandbox.nodes()
    return sandbox


def example(sandbox: Sandbox, role: str, *arguments: str, **variables: t.Any) -> Result:
    return sandbox.command("ansible-playbook", str(EXAMPLES / f"{role}.yml"), "-e", json.dumps(variables), *arguments)


def play_of(role: str, folder: Path, *more: Json) -> Path:
    """A play that runs the role with variables of the command line alone, and then ``more``."""
    tasks = [{"ansible.builtin.include_role": {"name": f"tgp.gpu.{role}"}}, *more]
    file = folder / f"{role}.yml"
    file.write_text(yaml.safe_dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]))
    return file


def played(sandbox: Sandbox, role: str, folder: Path, *more: Json, **variables: t.Any) -> Result:
    return sandbox.command("ansible-playbook", "-vvv", str(play_of(role, folder, *more)), "-e", json.dumps(variables))


def marks(sandbox: Sandbox) -> Json:
    """What people and playbooks write on the node, without heartbeats."""
    node = sandbox.nodes()[NODE]
    spec = {key: node["spec"].get(key) for key in ("taints", "unschedulable")}
    return {"labels": node["metadata"].get("labels"), "annotations": node["metadata"].get("annotations"), **spec}


def test_every_example_runs_the_role_that_it_is_called_after() -> None:
    names = sorted(path.stem for path in EXAMPLES.glob("*.yml"))
    assert names == ["node_drain", "node_join", "node_labels", "talos_config"]
    for name in names:
        (play,) = yaml.safe_load((EXAMPLES / f"{name}.yml").read_text())
        (task,) = play["tasks"]
        assert task["ansible.builtin.include_role"] == {"name": f"tgp.gpu.{name}"}
        assert all(variable.startswith(f"{name}_") for variable in task["vars"])


# ---- talos_config


@pytest.fixture
def secrets(shared: Sandbox) -> list[str]:
    """What no output may contain."""
    return [*TOKENS.values(), *talos_secrets(shared.variables["TGP_TALOS_SECRETS"]).values()]


def test_talos_config_writes_files_for_their_owner_once(shared: Sandbox, tmp_path: Path, secrets: list[str]) -> None:
    dest = tmp_path / "configs"
    given = {"lab_tokens": TOKENS, "talos_config_dest": str(dest)}
    dry_run = example(shared, "talos_config", "--check", "--diff", **given).succeeded()
    assert dry_run.count("changed") == 1 and not dest.exists() and "example.org/rack" in dry_run.out
    first = example(shared, "talos_config", "-vvv", **given).succeeded()
    assert first.count("changed") == 1
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in dest.iterdir()} == {"lab-1.yaml": 0o600, "lab-2.yaml": 0o600}
    one, two = (next(yaml.safe_load_all((dest / f"{name}.yaml").read_text()))["machine"] for name in sorted(TOKENS))
    assert one["type"] == two["type"] == "worker"
    assert one["nodeLabels"]["example.org/rack"] == "a" and two["nodeLabels"]["example.org/group"] == "lab"
    assert one["sysctls"]["net.core.bpf_jit_harden"] == "1" and two["sysctls"] == {"vm.max_map_count": "262144"}
    assert "nvidia" in json.dumps(one["kernel"]) and "tgp.io/ephemeral" not in json.dumps(one)
    before = {path: path.stat().st_mtime_ns for path in dest.iterdir()}
    again = example(shared, "talos_config", "--diff", **given).succeeded()
    assert again.count("changed") == 0 and {path: path.stat().st_mtime_ns for path in dest.iterdir()} == before
    assert [secret for secret in secrets for run in (dry_run, first, again) if secret in run.text] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lab_tokens": {**TOKENS, "lab-2": ""}}, "lab-2: There is no bootstrap token for this node"),
        ({"talos_config_template_file": "/nowhere/worker.yaml.j2"}, "The template file /nowhere/worker.yaml.j2 cannot be read"),
        ({"template": "machine: {type: '{{ NodeNam }}'}"}, "NodeNam"),
        ({"talos_config_patches": ["machine: {systemd: {}}"]}, "machine.systemd"),
        ({"talos_config_nodes": [{"name": "lab-1", "pool": "lab", "gpus": 1}]}, "Supported parameters include"),
        ({"talos_config_dest": ""}, "talos_config_dest and talos_config_reveal are not set"),
    ],
)
def test_talos_config_refuses_before_it_writes(
    shared: Sandbox, tmp_path: Path, secrets: list[str], wrong: Json, words: str
) -> None:
    dest, given = tmp_path / "configs", {"lab_tokens": TOKENS, **wrong}
    if text := given.pop("template", ""):
        (tmp_path / "worker.yaml.j2").write_text(text)
        given["talos_config_template_file"] = str(tmp_path / "worker.yaml.j2")
    done = example(shared, "talos_config", "-vvv", **{"talos_config_dest": str(dest), **given}).failed()
    assert words in done.words and not dest.exists()
    assert [secret for secret in secrets if secret in done.text] == []


def test_talos_config_returns_without_showing(shared: Sandbox, tmp_path: Path, secrets: list[str]) -> None:
    node = {"name": "lab-1", "pool": "lab", "bootstrap_token": TOKENS["lab-1"]}
    given: Json = {"talos_config_nodes": [node], "talos_config_reveal": True, "talos_config_mesh": {"backend": "none"}}
    content = "{{ talos_config_result.configs[0].content | b64decode }}"
    write = {"ansible.builtin.copy": {"content": content, "dest": str(tmp_path / "lab-1.yaml"), "mode": "0600"}, "no_log": True}
    done = played(shared, "talos_config", tmp_path, write, **given).succeeded()
    assert next(yaml.safe_load_all((tmp_path / "lab-1.yaml").read_text()))["cluster"]["token"] == TOKENS["lab-1"]
    wrong = played(shared, "talos_config", tmp_path, **{**given, "talos_config_patches": ["machine: {systemd: {}}"]}).failed()
    assert "machine.systemd" in wrong.words  # the error is shown although the task that returns secrets hides its output
    assert [secret for secret in secrets for run in (done, wrong) if secret in run.text] == []


# ---- node_join, node_labels, node_drain


def test_node_join_waits_for_nodes_with_their_gpus(shared: Sandbox) -> None:
    writes = shared.writes()
    done = example(shared, "node_join").succeeded()
    assert done.count("changed") == 0 and done.count("skipped") == 1
    late = example(shared, "node_join", node_join_nodes=[NODE, "lab-1"], node_join_timeout=60).failed()
    assert "1 of 2 nodes were not complete after 60 s: lab-1" in late.words
    few = example(shared, "node_join", node_join_gpus=8, node_join_timeout="30").failed()  # numbers may come as text
    assert "1 of 8 nvidia.com/gpu" in few.words
    dry_run = example(shared, "node_join", "--check", node_join_nodes=[NODE, "lab-1"]).succeeded()
    assert (
        "Not complete: lab-1. Without --check the role waits for up to 900 seconds." in dry_run.words
        and dry_run.count("changed") == 0
    )
    assert shared.writes() == writes


def test_node_join_in_check_mode_fails_where_nothing_can_be_read(shared: Sandbox, tmp_path: Path) -> None:
    done = example(shared, "node_join", "--check", node_join_kubeconfig=str(tmp_path / "missing")).failed()
    assert str(tmp_path / "missing") in done.text


def test_node_labels_marks_once(shared: Sandbox) -> None:
    before = marks(shared)
    dry_run = example(shared, "node_labels", "--check", "--diff").succeeded()
    assert dry_run.count("changed") == 1 and marks(shared) == before and "example.org/team" in dry_run.out
    assert example(shared, "node_labels").succeeded().count("changed") == 1
    after = marks(shared)
    assert after["labels"] == {**before["labels"], "example.org/team": "vision"}
    assert after["annotations"] == {**before["annotations"], "example.org/contact": "gpu@example.org"}
    taint = {"key": "example.org/team", "value": "vision", "effect": "NoSchedule"}
    assert after["taints"] == [*(before["taints"] or []), taint]
    writes = shared.writes()
    assert example(shared, "node_labels").succeeded().count("changed") == 0 and shared.writes() == writes
    assert example(shared, "node_labels", "--check").succeeded().count("changed") == 0
    missing = example(shared, "node_labels", node_labels_nodes=[NODE, "lab-1"], node_labels_labels={"a": "b"}).failed()
    assert "There is no Node lab-1. Nothing was changed." in missing.words and shared.writes() == writes
    wrong = example(shared, "node_labels", node_labels_taints=["example.org/team=vision"]).failed()
    assert "'example.org/team=vision' is not a taint" in wrong.words and shared.writes() == writes
    gone = {"node_labels_labels": {"example.org/team": None}, "node_labels_annotations": {"example.org/contact": None}}
    gone |= {"node_labels_taints": [], "node_labels_remove_taints": ["example.org/team"]}
    assert example(shared, "node_labels", **gone).succeeded().count("changed") == 1
    assert marks(shared) == before


def test_node_drain_empties_once_and_node_labels_opens_again(shared: Sandbox, tmp_path: Path) -> None:
    (text,) = re.findall(r"name: tgp.gpu.node_labels\n +vars:\n((?: {8}.*\n)+)", (ROOT / "roles/node_drain/README.md").read_text())
    assert yaml.safe_load(text) == {**OPENED, "node_labels_nodes": ["lab-1"]}
    shared.run_job(NODE)
    before = marks(shared)
    dry_run = example(shared, "node_drain", "--check").succeeded()
    assert dry_run.count("changed") == 1 and marks(shared) == before
    assert shared.get("/api/v1/namespaces/default/pods/training-job")["status"]["phase"] == "Running"
    assert example(shared, "node_drain").succeeded().count("changed") == 1
    assert shared.kube.get("/api/v1/namespaces/default/pods/training-job").status_code == 404
    assert marks(shared)["unschedulable"]
    writes = shared.writes()
    assert example(shared, "node_drain").succeeded().count("changed") == 0
    assert example(shared, "node_drain", "--check").succeeded().count("changed") == 0 and shared.writes() == writes
    assert played(shared, "node_labels", tmp_path, **OPENED).succeeded().count("changed") == 1
    assert marks(shared) == before
    missing = example(shared, "node_drain", node_drain_nodes=["lab-1"]).failed()
    assert "There is no Node lab-1. Nothing was drained." in missing.words


# ---- what a role needs


def refusals(sandbox: Sandbox, folder: Path, roles: t.Sequence[str], **variables: t.Any) -> dict[str, str]:
    """What each role says when it fails; one play runs them all."""
    copy = {"content": "{{ ansible_failed_result.msg }}", "mode": "0600"}
    tasks = [
        {
            "block": [
                {"ansible.builtin.include_role": {"name": f"tgp.gpu.{role}"}},
                {"ansible.builtin.meta": "end_play"},
            ],
            "rescue": [{"ansible.builtin.copy": {**copy, "dest": str(folder / role)}}],
        }
        for role in roles
    ]
    file = folder / "refusals.yml"
    file.write_text(yaml.safe_dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]))
    sandbox.command("ansible-playbook", str(file), "-e", json.dumps(variables)).succeeded()
    return {role: " ".join((folder / role).read_text().split()) for role in roles}


def test_a_role_that_stands_alone_needs_its_nodes(shared: Sandbox, tmp_path: Path) -> None:
    said = refusals(shared, tmp_path, ["talos_config", "node_join", "node_labels", "node_drain"])
    assert [role for role, message in said.items() if f"missing required arguments: {role}_nodes" not in message] == []


def roles_with_a_plan() -> list[str]:
    """The roles that read ``plan_result`` and do not set it."""
    tasks = {path.parent.parent.name: path.read_text() for path in sorted((ROOT / "roles").glob("*/tasks/main.yml"))}
    return [role for role, text in tasks.items() if "plan_result" in text and "register: plan_result" not in text]


def test_the_roles_with_a_plan_are_known() -> None:
    assert roles_with_a_plan() == ["join", "launch", "scale", "teardown"]


def test_a_role_that_needs_a_plan_says_which_role_to_run_first(shared: Sandbox, tmp_path: Path) -> None:
    """Without a plan, and with one that was skipped."""
    writes = shared.writes()
    for given in ({}, {"plan_result": {"skipped": True}}):
        said = refusals(shared, tmp_path, roles_with_a_plan(), **given)
        for role, message in said.items():
            assert message.startswith(f"Role {role} has no plan") and "(plan_result is not defined). Run role plan" in message
    assert shared.writes() == writes
