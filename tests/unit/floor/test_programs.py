# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that we start: each gets an environment of its own, and none of our keys."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import httpx
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.notifications import Message, Sender
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import ALWAYS, NETWORK, PLATFORMS, program_environment
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find
from ansible_collections.tgp.gpu.plugins.module_utils.observe.options import FLEET_SPEC
from ansible_collections.tgp.gpu.plugins.module_utils.talos import talosctl

ROOT = Path(__file__).resolve().parents[3]
KEYS = sorted(
    name
    for option in FLEET_SPEC.values()
    if option.get("no_log") and "fallback" in option
    for name in t.cast("list[str]", option["fallback"][1])
)
_CALLS = (
    "run",
    "Popen",
    "call",
    "check_call",
    "check_output",
    "system",
    "popen",
    "execv",
    "execve",
    "execvpe",
    "spawnv",
    "posix_spawn",
)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "key-0123456789abcdefghij")


def seen(file: Path) -> dict[str, str]:
    return t.cast("dict[str, str]", json.loads(file.read_text()))


def program(folder: Path, answer: str = "") -> tuple[Path, Path]:
    """A program that writes its environment down and prints ``answer``, and the file it writes."""
    script, file = folder / "program", folder / "environment.json"
    script.write_text(
        f"#!{sys.executable} -SE\nimport json, os\njson.dump(dict(os.environ), open({str(file)!r}, 'w'))\nprint({answer!r})\n"
    )
    script.chmod(0o755)
    return script, file


def test_L28_only_named_variables_are_passed_on(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_PROFILE", "a"), ("https_proxy", "http://p"), ("TGP_SOMETHING", "x"), ("LD_PRELOAD", "x")):
        monkeypatch.setenv(name, value)
    plain, far = program_environment({"OWN": "1"}), program_environment(network=True, prefixes=("AWS_",))
    assert plain["OWN"] == "1" and "PATH" in plain and "https_proxy" not in plain and "AWS_PROFILE" not in plain
    assert (far["AWS_PROFILE"], far["https_proxy"]) == ("a", "http://p")
    assert not {*KEYS, "TGP_SOMETHING", "LD_PRELOAD"} & (set(plain) | set(far))


def test_L28_a_notify_command_gets_no_keys(keys: None, tmp_path: Path) -> None:
    script, file = program(tmp_path)
    task = Task({"notify_command": [str(script)]}, clock=SystemClock())
    delivery = Sender(task).begin([Message("orphan_found", "key", "subject", "text")])
    assert len(delivery.arrived(pytest.fail)) == 1
    assert set(seen(file)) & {"PATH", "HOME"} and not set(KEYS) & set(seen(file))


def test_L28_an_exec_plugin_gets_its_own_variables_and_no_keys(keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "training")
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t-0123456789abcdef"}}
    script, file = program(tmp_path, json.dumps(answer))
    plugin = {"apiVersion": answer["apiVersion"], "command": str(script), "env": [{"name": "WORD", "value": "w"}]}
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://x.test"}}],
        "users": [{"name": "a", "user": {"exec": plugin}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    access(find(str(path), env={})).authorize(httpx.Request("GET", "http://x.test/"))
    assert (seen(file)["WORD"], seen(file)["AWS_PROFILE"]) == ("w", "training")
    assert "KUBERNETES_EXEC_INFO" in seen(file) and not set(KEYS) & set(seen(file))


def test_L28_talosctl_gets_no_keys(keys: None, tmp_path: Path) -> None:
    script, file = program(tmp_path)
    assert talosctl.validate(str(script), [], "metal") == []
    assert not set(KEYS) & set(seen(file))


def test_L28_whoever_starts_a_program_says_what_its_environment_is() -> None:
    """Every call that starts a program, in all files of the collection, takes its environment from program_environment, and so does what
    Kubernetes' client starts for us."""

    def own(value: ast.expr | None) -> bool:
        return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "program_environment"

    found, without = 0, []
    for path in [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "extensions").rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
                continue
            if node.func.attr == "ExecProvider":
                provider = next(one.targets[0] for one in assigned if one.value is node)
                found += 1
                if not any(ast.unparse(one.targets[0]) == f"{ast.unparse(provider)}.env" and own(one.value) for one in assigned):
                    without.append(f"{path.name}:{node.lineno}")
                continue
            if node.func.value.id not in ("subprocess", "os", "asyncio") or node.func.attr not in _CALLS:
                continue
            if node.func.value.id == "asyncio" and node.func.attr == "run":
                continue
            found += 1
            given = next((one.value for one in node.keywords if one.arg == "env"), None)
            if not own(given):
                without.append(f"{path.name}:{node.lineno}")
    assert found >= 5 and without == []


def test_L28_helm_gets_named_variables_and_no_keys(keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an exec plugin, which helm may start as well, and what helm reads itself."""
    role = yaml.safe_load((ROOT / "roles" / "prereqs" / "vars" / "main.yml").read_text())
    names, prefixes = role["prereqs_helm_variables"], role["prereqs_helm_prefixes"]
    kubernetes = {"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
    assert names == sorted({*ALWAYS, *NETWORK, *(name.lower() for name in NETWORK if "PROXY" in name), *kubernetes})
    assert prefixes == sorted({*PLATFORMS, "HELM_"})
    given = {
        "KUBECONFIG": "/k",
        "HELM_NAMESPACE": "n",
        "XDG_CACHE_HOME": "/c",
        "https_proxy": "http://p",
        "TGP_X": "x",
        "MY_TOKEN": "x",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    script, file = program(tmp_path)
    subprocess.run(
        [sys.executable, "-I", "-c", role["prereqs_start"], json.dumps(names), json.dumps(prefixes), str(script), "list"],
        check=True,
    )
    assert {name for name in given if name in seen(file)} == set(given) - {"TGP_X", "MY_TOKEN"}
    assert "PATH" in seen(file) and not set(KEYS) & set(seen(file))
