# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A full cycle at the highest verbosity leaves no secret anywhere it does not belong."""

from __future__ import annotations

import base64
import gzip
import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from .box import Sandbox

_TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
HMAC = "hmac-shared-secret-of-the-power-service-0123456789"
AUTH = "Bearer-value-of-the-power-service-0123456789"


class Cycle(t.NamedTuple):
    secrets: dict[str, str]
    traces: dict[str, str]


def talos_secrets(path: str) -> dict[str, str]:
    """All long texts of the Talos secrets bundle by their path, certificates left out: they are public."""
    found: dict[str, str] = {}

    def walk(value: t.Any, where: str) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                walk(one, f"{where}.{key}")
        elif isinstance(value, list):
            for number, one in enumerate(value):
                walk(one, f"{where}[{number}]")
        elif isinstance(value, str) and len(value) >= 16 and not where.endswith((".crt", ".id")):
            found[f"talos{where}"] = value

    walk(yaml.safe_load(Path(path).read_text()), "")
    return found


def bootstrap_tokens(sandbox: Sandbox) -> dict[str, str]:
    found = {}
    for one in sandbox.get("/api/v1/namespaces/kube-system/secrets")["items"]:
        if one.get("type") == "bootstrap.kubernetes.io/token":
            data = {key: base64.b64decode(value).decode() for key, value in one["data"].items()}
            found[f"bootstrap token {data['token-id']}"] = data["token-secret"]
    return found


@pytest.fixture(scope="module")
def cycle(start: t.Callable[..., Sandbox]) -> Cycle:
    """Validate, provision, status, inventory, reap and destroy with -vvvv, one machine failing on the way; then everything they left."""
    sandbox = start(speed=100)
    env = {"WEBHOOK_SIGNING_SECRET": HMAC, "WEBHOOK_AUTH_HEADER": "X-Power-Key", "WEBHOOK_AUTH_VALUE": AUTH, "ANSIBLE_DEBUG": "0"}
    secrets = {name: sandbox.variables[name] for name in ("LAMBDA_API_KEY", "TS_OAUTH_CLIENT_SECRET")}
    secrets |= {"HMAC": HMAC, "webhook auth value": AUTH, **talos_secrets(sandbox.variables["TGP_TALOS_SECRETS"])}
    config = yaml.safe_load(Path(sandbox.variables["KUBECONFIG"]).read_text())
    secrets["admin token"] = config["users"][0]["user"]["token"]
    traces: dict[str, str] = {}

    def run(name: str, *arguments: str, **more: t.Any) -> None:
        result = sandbox.playbook(name, "-vvvv", *arguments, env=env, **more)
        traces[f"output of {name} {len(traces)}"] = result.text

    run("validate")
    run("provision", check=True)
    # one create call is refused with our own request in the answer, the way a careless proxy does it
    sandbox.faults({"kind": "status", "service": "lambda", "method": "POST", "status": 500, "body": {"error": {"message": AUTH}}})
    caught: dict[str, str] = {}
    process = sandbox.begin(*sandbox.arguments("provision", "-vvvv", extra_vars={"nodes": {"training": 2, "own": 1}}), env=env)
    while not process.ended:
        caught.update(bootstrap_tokens(sandbox))
    traces["output of provision"] = process.finish().text
    secrets.update(caught)
    sandbox.clear_faults()
    assert len(caught) >= 2, "tokens were seen while they lived"
    run("status")
    inventory = sandbox.command("ansible-inventory", "-i", "examples/inventory/gpu.tgp.yml", "--list", "-vvvv", env=env)
    traces["inventory"] = inventory.text
    traces["claims while they live"] = json.dumps(sandbox.configmaps())
    run("reap")
    run("destroy", extra_vars={"everything": True})
    traces["configmaps"] = json.dumps(sandbox.configmaps())
    traces["events of Kubernetes"] = json.dumps(sandbox.get("/api/v1/events"))
    traces["nodes"] = json.dumps(sandbox.get("/api/v1/nodes"))
    traces["leases"] = json.dumps(sandbox.get("/apis/coordination.k8s.io/v1/leases"))
    traces["the world"] = json.dumps(sandbox.world())
    traces["log of the sandbox"] = (sandbox.folder / "sandbox.log").read_text()
    traces["log of Ansible"] = (sandbox.folder / "ansible.log").read_text()
    for file in sandbox.state.rglob("*"):
        if file.is_file():
            found = file.read_bytes()
            traces[f"file {file.name}"] = (gzip.decompress(found) if file.suffix == ".gz" else found).decode()
    return Cycle(secrets, traces)


def test_the_cycle_left_traces_to_look_at(cycle: Cycle) -> None:
    """The search below covers what it says it covers: texts and secrets are there."""
    assert any("events.jsonl" in name for name in cycle.traces)
    assert len(cycle.traces["log of Ansible"]) > 10_000
    assert all(len(secret) >= 16 for secret in cycle.secrets.values())
    assert len(cycle.secrets) >= 10


def test_no_secret_is_anywhere(cycle: Cycle) -> None:
    """Ansible's own output and log at -vvvv, and every file and object that the runs left."""
    found = [(name, place) for name, secret in cycle.secrets.items() for place, text in cycle.traces.items() if secret in text]
    assert found == []


def test_nothing_has_the_form_of_a_key(cycle: Cycle) -> None:
    """Keys that the runs made themselves, whose values no test knows, are found by their form."""
    for place, text in cycle.traces.items():
        assert "tskey-auth" not in text, place
        assert "tskey-client" not in text, place
        assert "BEGIN RSA" not in text and "PRIVATE KEY-----" not in text, place
        assert not [one for one in _TOKEN.findall(text) if not one.startswith("ansible.")], place
