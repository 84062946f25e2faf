# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of cron, units of systemd and CronJobs run their playbooks from an installed collection, with files in folders of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from sandbox.running import BIN, ROOT

from .box import Sandbox

EXAMPLES = ROOT / "examples"
PLACES = ("/opt/tgp", "/etc/tgp", "/var/lib/tgp", "/var/log")
Ran = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def machine(shared: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a machine on which docs/how_to/awx_and_cron.md was followed: environment, collection, examples, documents and variables."""
    root = tmp_path_factory.mktemp("machine")
    for place in PLACES:
        (root / place[1:]).mkdir(parents=True)
    (root / "opt/tgp/venv").mkdir()
    (root / "opt/tgp/venv/bin").symlink_to(BIN)
    (root / "opt/tgp/collections/ansible_collections/tgp").mkdir(parents=True)
    (root / "opt/tgp/collections/ansible_collections/tgp/gpu").symlink_to(ROOT)
    shutil.copytree(EXAMPLES / "cron", root / "opt/tgp/cron")
    shutil.copy(EXAMPLES / "lambda.yml", root / "etc/tgp/pools.yml")
    shutil.copytree(EXAMPLES / "templates", root / "etc/tgp/templates")
    environment = root / "etc/tgp/env"
    environment.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in shared.variables.items()))
    environment.chmod(0o600)
    return root


def here(machine: Path, text: str) -> str:
    """The text with the paths of the machine."""
    return re.sub("|".join(re.escape(place) for place in PLACES), lambda place: f"{machine}{place[0]}", text)


def bare(machine: Path, assignments: t.Iterable[str]) -> dict[str, str]:
    """An environment with nothing but these assignments and what the system itself sets."""
    given = dict(one.partition("=")[::2] for one in assignments)
    return {"LANG": "C.UTF-8", "TGP_LOG": str(machine / "var/log/tgp-gpu.log"), "HOME": str(machine / "var/lib/tgp"), **given}


def run(command: list[str], environment: dict[str, str], folder: Path) -> Ran:
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def cron_lines(machine: Path) -> tuple[dict[str, str], list[str]]:
    """The environment of the table and the commands of its lines."""
    lines = [one for one in here(machine, (EXAMPLES / "cron" / "tgp-gpu").read_text()).splitlines() if not one.startswith("#")]
    settings = [one for one in lines if re.match(r"[A-Z_]+=", one)]
    return bare(machine, settings), [one.split(" ", 6)[6] for one in lines if one not in settings]


def test_the_lines_of_cron_run_their_playbooks(machine: Path, shared: Sandbox) -> None:
    environment, commands = cron_lines(machine)
    log = machine / "var/log/tgp-gpu.log"
    assert len(commands) == 2
    for command in commands:
        done = run([environment["SHELL"], "-c", f"{command} --check"], environment, machine)
        assert done.stdout + done.stderr == "", "a run that succeeds sends no mail"
    told = log.read_text()
    assert re.findall(r"^=== \S+ (\w+): exit code (\d)$", told, re.MULTILINE) == [("reap", "0"), ("archive", "0")]
    assert f"{machine}/opt/tgp/collections" in environment["ANSIBLE_COLLECTIONS_PATH"] and told.count("PLAY RECAP") == 2
    assert shared.variables["LAMBDA_API_KEY"] not in told


def test_a_run_of_an_installed_playbook_reports_its_name(machine: Path, shared: Sandbox) -> None:
    environment, commands = cron_lines(machine)
    run([environment["SHELL"], "-c", commands[0]], environment, machine)
    reports = sorted((shared.state / "runs").glob("*.json"), key=os.path.getmtime)
    assert json.loads(reports[-1].read_text())["playbook"] == "reap"


@pytest.mark.parametrize(
    ("unit", "playbook"),
    [("tgp-gpu@.service", "reap"), ("tgp-gpu-archive.service", "archive"), ("tgp-gpu-loop.service", "autoscale")],
)
def test_the_units_start_their_playbooks(machine: Path, unit: str, playbook: str) -> None:
    text = (
        (EXAMPLES / "systemd" / unit)
        .read_text()
        .replace("%i", "reap")
        .replace("%S/tgp", "/var/lib/tgp")
        .replace("%t/tgp", "/var/lib/tgp/run")
    )
    found: dict[str, list[str]] = {}
    for line in here(machine, text).splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    (environment_file,), (folder,), (start,) = found["EnvironmentFile"], found["WorkingDirectory"], found["ExecStart"]
    assignments = [
        *(one for line in found["Environment"] for one in shlex.split(line)),
        *shlex.split(Path(environment_file).read_text()),
    ]
    command = [*shlex.split(start), "--syntax-check" if playbook == "autoscale" else "--check"]
    assert command[1] == f"tgp.gpu.{playbook}" and Path(folder) == machine / "var/lib/tgp"
    done = run(command, bare(machine, assignments), Path(folder))
    assert "PLAY RECAP" in done.stdout or f"gpu/playbooks/{playbook}.yml\n" in done.stdout


@pytest.mark.parametrize("name", ["cronjob.yaml", "cronjob-archive.yaml"])
def test_the_commands_of_the_cron_jobs_are_playbooks(machine: Path, name: str) -> None:
    *_others, job = yaml.safe_load_all((EXAMPLES / name).read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    given = [f"{one['name']}={here(machine, one['value'])}" for one in container["env"]]
    path = [f"PATH={BIN}:/usr/bin:/bin", f"ANSIBLE_COLLECTIONS_PATH={machine}/opt/tgp/collections"]
    run([*(here(machine, one) for one in container["command"]), "--syntax-check"], bare(machine, [*path, *given]), machine)


def test_a_project_of_awx_imports_the_playbooks(machine: Path) -> None:
    shutil.copy(ROOT / "examples" / "awx" / "reap.yml", machine / "reap.yml")
    environment, _commands = cron_lines(machine)
    variables = shlex.split((machine / "etc/tgp/env").read_text())
    command = ["ansible-playbook", "reap.yml", "-e", f"tgp_documents={machine}/etc/tgp/pools.yml", "--check"]
    assert "PLAY RECAP" in run(command, bare(machine, [*variables, *(f"{k}={v}" for k, v in environment.items())]), machine).stdout
