# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units and lines shipped for running by itself on a machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from tests import outsiders

from .tree import ROOT

CRON = ROOT / "examples" / "cron"
UNITS = ROOT / "examples" / "systemd"
Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def cron(tmp_path: Path) -> t.Callable[..., Ran]:
    """Runs examples/cron/run with a program in the place of ansible-playbook that ends with ``code``."""

    def run(code: int, log: Path | None = None) -> Ran:
        program = tmp_path / "ansible-playbook"
        program.write_text(f'#!/bin/sh\necho "$@"\necho trouble >&2\nexit {code}\n')
        program.chmod(0o755)
        given = {"TGP_PLAYBOOK_COMMAND": str(program), "TGP_LOG": str(log or tmp_path / "log")}
        command = [str(CRON / "run"), "reap", "-e", "tgp_documents=/etc/tgp/my pools.yml"]
        return subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=30, check=False)

    return run


def test_cron_hears_of_failures_only_and_the_log_of_everything(cron: t.Callable[..., Ran], tmp_path: Path) -> None:
    quiet = cron(0)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    loud = cron(2)
    assert loud.returncode == 2 and loud.stdout == "tgp.gpu.reap -e tgp_documents=/etc/tgp/my pools.yml\ntrouble\n"
    found = re.findall(
        r"=== \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ reap: exit code (\d)\n.*?\ntrouble\n", (tmp_path / "log").read_text(), re.DOTALL
    )
    assert found == ["0", "2"]


def test_a_log_that_cannot_be_written_does_not_hide_the_run(cron: t.Callable[..., Ran], tmp_path: Path) -> None:
    told = cron(0, tmp_path / "nowhere" / "log")
    assert told.returncode == 0 and "cannot be written" in told.stdout and "trouble" in told.stdout


def test_the_cron_line_runs_the_reaper_every_five_minutes_as_its_own_user() -> None:
    (line,) = [one for one in (CRON / "tgp-gpu").read_text().splitlines() if one.startswith("*")]
    *fields, user, command = line.split(" ", 6)
    assert (fields, user) == (["*/5", "*", "*", "*", "*"], "tgp")
    assert "/opt/tgp/cron/run reap" in command and (ROOT / "playbooks" / "reap.yml").is_file() and os.access(CRON / "run", os.X_OK)
    assert outsiders.shellcheck() is None or outsiders.shell_faults((CRON / "run").read_text()) == ""


def test_the_log_is_rotated_where_the_line_writes_it() -> None:
    (default,) = re.findall(r"TGP_LOG:-([^}]+)}", (CRON / "run").read_text())
    assert f"\n{default} {{" in (CRON / "logrotate").read_text()
    if shutil.which("logrotate") is None:
        pytest.skip("logrotate is not installed")
    ran = subprocess.run(["logrotate", "-d", str(CRON / "logrotate")], capture_output=True, text=True, timeout=30, check=False)
    assert "error" not in (ran.stdout + ran.stderr).lower()


def test_the_ledger_is_archived_once_a_week_into_a_file_that_stays() -> None:
    (line,) = [one for one in (CRON / "tgp-gpu").read_text().splitlines() if "archive" in one and not one.startswith("#")]
    minute, hour, *days, user, command = line.split(" ", 6)
    assert minute.isdigit() and hour.isdigit() and (days, user) == (["*", "*", "0"], "tgp")
    assert command.endswith("/opt/tgp/cron/run archive -e tgp_path=/var/lib/tgp/ledger.jsonl")
    service, timer = ((UNITS / f"tgp-gpu-archive.{kind}").read_text() for kind in ("service", "timer"))
    assert "ansible-playbook tgp.gpu.archive -e tgp_path=%S/tgp/ledger.jsonl\n" in service and "\nStateDirectory=tgp\n" in service
    assert "\nOnCalendar=Sun " in timer and "\nPersistent=true\n" in timer
    shared = set((UNITS / "tgp-gpu@.service").read_text().partition("[Service]")[2].splitlines())
    other = {one for one in shared if not one.startswith(("ExecStart=", "#"))} - set(service.splitlines())
    assert not other, "both units run with the same rights"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units_as_they_stand(tmp_path: Path, record_property: t.Callable[[str, object], None]) -> None:
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/tgp/venv/bin/ansible-playbook", sys.executable)  # a program that exists here
        (tmp_path / unit.name).write_text(text)
    names = [
        "tgp-gpu@reap.service",
        "tgp-gpu@reap.timer",
        "tgp-gpu-loop.service",
        "tgp-gpu-archive.service",
        "tgp-gpu-archive.timer",
    ]
    command = ["systemd-analyze", "verify", "--man=no", *names]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    record_property("checked", ("units by systemd-analyze", len(names)))


def test_the_unit_waits_for_the_longest_drain_and_keeps_its_state() -> None:
    text = (UNITS / "tgp-gpu@.service").read_text()
    assert "TimeoutStartSec=45min" in text and "TGP_STATE_DIR=%S/tgp" in text and "StateDirectory=tgp" in text
    assert "ansible-playbook tgp.gpu.%i " in text and "EnvironmentFile=/etc/tgp/env" in text


def test_the_loop_is_ended_by_its_main_process_and_has_time_for_it() -> None:
    text = (UNITS / "tgp-gpu-loop.service").read_text()
    for line in (
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=45min",
        "Restart=on-failure",
        "EnvironmentFile=/etc/tgp/env",
    ):
        assert f"\n{line}\n" in text
    assert "ansible-playbook tgp.gpu.autoscale -e tgp_loop=true" in text and (ROOT / "playbooks" / "autoscale.yml").is_file()
