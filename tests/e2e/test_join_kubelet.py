# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are told over SSH what others are told at their boot; here the machine is a folder among commands that only pretend."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import typing as t
from pathlib import Path

import httpx
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane

from sandbox import kubelet
from tests.fixtures.talos_nodes import NODE_KEY, NODE_TOKEN, make
from tests.unit.lanes.test_bootstrap import STEPS, Machine

from .box import ROOT, Sandbox

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  environment: "{{ machine_environment }}"
  tasks:
    - ansible.builtin.include_role: {name: tgp.gpu.join_kubelet}
      vars: {join_kubelet_user_data: "{{ lookup('ansible.builtin.file', user_data_file, rstrip=false) }}"}
"""
TEMPLATE = """
machine:
  files:
    - {path: /var/lib/x/settings, permissions: 416, op: create, content: "{\\"a\\": [1, \\"{{ b }}\\"]}"}
    - {path: /etc/hosts, permissions: 420, op: append, content: "10.0.0.1 registry"}
cluster: {}
"""


class Told:
    """An empty machine, and the role run against it."""

    program = str(Path(sys.executable).parent / "ansible-playbook")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = Machine(folder)
        for name in ("etc/tgp", "usr", "var/lib/cloud"):
            shutil.rmtree(self.machine.root / name)
        (self.machine.root / "run").mkdir()
        (self.machine.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        self.user_data = folder / "user-data"
        self.user_data.write_text(payload(make(lane=Lane.KUBELET), TEMPLATE.replace("{{ b }}", "b")).text)
        (folder / "play.yml").write_text(PLAY)

    def run(self, *arguments: str, **variables: t.Any) -> subprocess.CompletedProcess[str]:
        given = {
            "machine_environment": self.machine.environment,
            "user_data_file": str(self.user_data),
            "join_kubelet_root": str(self.machine.root),
            "join_kubelet_pause": 1,
            "join_kubelet_timeout": 30,
            "ansible_python_interpreter": sys.executable,
            **variables,
        }
        return subprocess.run(
            [self.program, "-vvv", str(self.folder / "play.yml"), "-e", json.dumps(given), *arguments],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(name="told")
def _told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_machine_without_user_data_becomes_a_node_and_a_second_run_leaves_it_alone(told: Told) -> None:
    (told.machine.root / "var/lib/x").mkdir(parents=True)
    (told.machine.root / "var/lib/x").chmod(0o1770)
    first = told.run()
    assert first.returncode == 0, first.stdout + first.stderr
    assert told.machine.steps == STEPS
    assert stat.S_IMODE((told.machine.root / "var/lib/x").stat().st_mode) == 0o1770  # who made it may have had reasons
    assert stat.S_IMODE((told.machine.root / "etc/tgp").stat().st_mode) == 0o755
    assert NODE_KEY not in first.stdout + first.stderr and NODE_TOKEN not in first.stdout + first.stderr
    written = told.machine.root / "var/lib/x/settings"
    assert written.read_text() == '{"a": [1, "b"]}' and stat.S_IMODE(written.stat().st_mode) == 0o640
    assert "10.0.0.1 registry" in told.machine.text("etc/hosts") and "localhost" in told.machine.text("etc/hosts")
    assert not (told.machine.root / "etc/tgp/authkey").exists()
    calls = len(told.machine.calls)
    second = told.run()
    assert second.returncode == 0 and "is a node already" in second.stdout
    assert told.machine.calls[calls:] == ["systemctl is-active --quiet kubelet"]
    assert "changed=0" in second.stdout


def test_a_rehearsal_only_looks_and_waits_for_nothing(told: Told) -> None:
    before = sorted(told.machine.root.rglob("*"))
    found = told.run("--check", join_kubelet_timeout=3600)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "localhost would be made a node" in found.stdout and "changed=1" in found.stdout
    assert sorted(told.machine.root.rglob("*")) == before


def test_where_it_stopped_is_shown_and_the_next_run_goes_on(told: Told) -> None:
    (told.machine.play / "fail").write_text("tailscale up")
    first = told.run()
    assert first.returncode != 0
    assert "localhost stopped at step mesh: tailscale up failed" in first.stdout
    assert "tgp-step driver" in first.stdout  # the log's end
    assert NODE_KEY not in first.stdout + first.stderr and NODE_TOKEN not in first.stdout + first.stderr
    second = told.run()
    assert second.returncode == 0, second.stdout + second.stderr
    assert told.machine.text("run/tgp.step") == "done\n"
    assert told.machine.text("etc/hosts").count("10.0.0.1 registry") == 1


def test_foreign_user_data_is_refused_without_being_shown(told: Told) -> None:
    told.user_data.write_text("#cloud-config\npassword: a-fake-secret-of-tests-0123456789\n")
    found = told.run()
    assert found.returncode != 0 and "a-fake-secret-of-tests" not in found.stdout + found.stderr
    assert not (told.machine.play / "calls").exists() and not (told.machine.root / "etc/tgp").exists()


def test_a_rented_machine_that_did_not_join_is_told_anew_with_new_secrets(start: t.Callable[..., Sandbox], tmp_path: Path) -> None:
    """The run that rented it was killed while it waited; the playbook finds the machine by its claim."""
    sandbox = start(speed=20)
    sandbox.behave({"kind": "mesh_fails"})
    run = sandbox.begin(*sandbox.arguments("provision", extra_vars={"pool": "training", "nodes": 1}))
    sandbox.until(lambda: any(one["phase"] == "Joining" or one["ip"] for one in sandbox.claims().values()), "it has an address")
    run.kill()
    ((name, before),) = ((name, one) for name, one in sandbox.claims().items() if one["cloud"] == "lambda")
    told = Told(tmp_path)
    variables = {
        "machine": name, "ssh_connection": "local", "ssh_become": False, "join_kubelet_root": str(told.machine.root), "join_kubelet_pause": 1,
        "join_kubelet_timeout": 30, "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    environment = {
        **told.machine.environment,
        "PATH": f"{told.machine.play / 'bin'}:{sandbox.environment['PATH']}",
        "TMPDIR": str(tmp_path),
    }
    written = sandbox.writes()
    sandbox.playbook("join_kubelet", extra_vars=variables, env=environment, check=True).succeeded()
    assert sandbox.writes() == written and not (told.machine.play / "calls").exists() and not list(tmp_path.glob("*.user-data"))
    found = sandbox.playbook("join_kubelet", extra_vars=variables, env=environment)
    found.succeeded()
    after = sandbox.claims()[name]
    assert told.machine.text("run/tgp.step") == "done\n"
    assert f"--hostname-override={name} " in told.machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert after["token_id"] != before["token_id"] and after["mesh_key_id"] != before["mesh_key_id"]
    assert sandbox.tokens() == [f"bootstrap-token-{after['token_id']}"]
    assert sandbox.totals()["keys"] == 1
    assert list(tmp_path.glob("*user-data")) == [told.user_data]  # nothing of the playbook's is left on the controller
    unreachable = {**variables, "ssh_connection": "ssh", "address": "127.0.0.1", "ssh_port": 1, "ssh_timeout": 2}
    lost = sandbox.playbook("join_kubelet", extra_vars=unreachable, env=environment)
    lost.failed()
    assert list(tmp_path.glob("*user-data")) == [told.user_data] and "Forget the secrets" in lost.out
    refused = sandbox.playbook("join_kubelet", extra_vars={**variables, "machine": "tgp-nobody"}, env=environment)
    refused.failed()
    assert "There is no machine tgp-nobody" in refused.words


class Kubelet:
    """Asks with the token that lies on the machine, as soon as the program is at that step; its certificate ends the program's wait."""

    def __init__(self, told: Told, sandbox: Sandbox, name: str) -> None:
        (told.machine.play / "asks").touch()
        self._told, self._sandbox, self._name = told, sandbox, name
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def call(self, method: str, path: str, body: t.Any = None) -> t.Any:
        return self.http.request(method, path, json=body).raise_for_status().json()

    def _ask(self) -> None:
        machine, step = self._told.machine, self._told.machine.root / "run/tgp.step"
        self._sandbox.until(lambda: step.exists() and step.read_text() == "kubelet\n", "the program is at step kubelet")
        token = yaml.safe_load(machine.text("etc/tgp/bootstrap-kubeconfig"))["users"][0]["user"]["token"]
        with httpx.Client(
            base_url=self._sandbox.kube.base_url, verify=False, headers={"Authorization": f"Bearer {token}"}, trust_env=False
        ) as self.http:
            request = kubelet.request_certificate(self, kubelet.new_key(self._name)[0])  # type: ignore[arg-type]
            self._sandbox.until(lambda: bool(kubelet.certificate(self, request)), "it gets its certificate")  # type: ignore[arg-type]
        (machine.root / "var/lib/kubelet/pki/kubelet-client-current.pem").touch()


def test_the_playbook_lets_in_the_machine_that_it_told(start: t.Callable[..., Sandbox], tmp_path: Path) -> None:
    """No other run waits for it: the role itself approves what the machine asks for, and sees it through to the end."""
    sandbox = start(speed=20)
    sandbox.behave({"kind": "mesh_fails"})
    run = sandbox.begin(*sandbox.arguments("provision", extra_vars={"pool": "training", "nodes": 1}))
    sandbox.until(lambda: any(one["phase"] == "Joining" or one["ip"] for one in sandbox.claims().values()), "it has an address")
    run.kill()
    (name,) = (name for name, one in sandbox.claims().items() if one["cloud"] == "lambda")
    told = Told(tmp_path)
    asking = Kubelet(told, sandbox, name)
    variables = {
        "machine": name, "ssh_connection": "local", "ssh_become": False, "join_kubelet_root": str(told.machine.root), "join_kubelet_pause": 1,
        "join_kubelet_timeout": 60, "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    path = f"{told.machine.play / 'bin'}:{sandbox.environment['PATH']}"
    environment = {**told.machine.environment, "PATH": path, "TMPDIR": str(tmp_path), "TGP_PATIENCE": "10"}
    found = sandbox.playbook("join_kubelet", extra_vars=variables, env=environment)
    found.succeeded()
    asking.thread.join(60)
    assert "Approve its certificate request" in found.out and told.machine.text("run/tgp.step") == "done\n"
    (request,) = [one for one in sandbox.get(csr.PATH)["items"] if one["spec"]["username"].startswith("system:bootstrap:")]
    assert csr.parse(request).state == "issued" and csr.parse(request).node == name
