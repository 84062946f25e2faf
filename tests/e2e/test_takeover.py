# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role takeover as a user runs it, against a folder among commands that only pretend: consent, warning, refusals, order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.unit.lanes.test_takeover import ROOT, SECRET, Victim

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  environment: "{{ machine_environment }}"
  tasks:
    - ansible.builtin.include_role: {name: tgp.gpu.takeover}
"""
CONFIG: dict[str, t.Any] = {
    "version": "v1alpha1",
    "machine": {
        "type": "worker",
        "token": SECRET,
        "install": {"disk": "/dev/vda", "image": f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"},
    },
    "cluster": {"controlPlane": {"endpoint": "https://192.0.2.1:6443"}},
}


class Taken:
    """A machine to be taken over, and the role run against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.victim = Victim(folder)
        (self.victim.root / "run/tgp-takeover-config.yaml").unlink()
        self.config = folder / "config.yaml"
        self.write(CONFIG)
        (folder / "play.yml").write_text(PLAY)

    def write(self, config: t.Mapping[str, t.Any]) -> None:
        self.config.write_text(yaml.safe_dump(dict(config)))

    def run(self, *arguments: str, **variables: t.Any) -> subprocess.CompletedProcess[str]:
        given = {
            "machine_environment": self.victim.environment,
            "takeover_root": str(self.victim.root),
            "takeover_config": str(self.config),
            "ansible_python_interpreter": sys.executable,
            **variables,
        }
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-vvv",
            str(self.folder / "play.yml"),
            "-e",
            json.dumps(given),
        ]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
        found = subprocess.run(
            [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert SECRET not in found.stdout + found.stderr
        return found


@pytest.fixture(name="taken")
def _taken(tmp_path: Path) -> Taken:
    return Taken(tmp_path)


def test_without_the_opt_in_it_refuses_and_does_not_even_look(taken: Taken) -> None:
    found = taken.run()
    assert found.returncode != 0 and "Taking over a running machine is experimental" in found.stdout
    assert taken.victim.calls == []


def test_what_is_unproven_is_said_first_and_all_is_done_in_order(taken: Taken) -> None:
    found = taken.run(takeover_allow_experimental=True)
    assert found.returncode == 0, found.stdout + found.stderr
    said, looked = (
        found.stdout.index("EXPERIMENTAL. Everything on"),
        found.stdout.index("TASK [tgp.gpu.takeover : Look at the machine]"),
    )
    assert said < looked
    assert taken.victim.acted()[-1] == "systemd-run --on-active=3 --collect systemctl kexec"
    fetched = [call.split()[-1] for call in taken.victim.calls if call.startswith("curl -fsSL")]
    assert {one.rpartition("/")[0] for one in fetched} == {f"https://factory.talos.dev/image/{'a' * 64}/v1.13.9"}
    assert "has left Ubuntu" in found.stdout


def test_refusals_are_shown_together_and_nothing_is_changed(taken: Taken) -> None:
    taken.victim.answers(size="1", route="default via 10.0.0.1 dev ens5 proto static")
    found = taken.run(takeover_allow_experimental=True)
    assert found.returncode != 0 and "cannot be taken over; nothing was changed" in found.stdout
    assert "disk-size: /dev/vda is smaller" in found.stdout and "dhcp: the uplink has no address by DHCP" in found.stdout
    assert taken.victim.acted() == [] and not (taken.victim.root / "run/tgp-takeover-config.yaml").exists()


def test_a_rehearsal_only_looks(taken: Taken) -> None:
    found = taken.run("--check", takeover_allow_experimental=True, takeover_wait=1)
    assert found.returncode == 0, found.stdout + found.stderr
    assert taken.victim.acted() == [] and "findmnt -no SOURCE /" in taken.victim.calls
    assert "has left Ubuntu" not in found.stdout and not (taken.victim.root / "run/tgp-takeover-config.yaml").exists()
    taken.victim.answers(uid="1000")
    assert "root: this needs root" in taken.run("--check", takeover_allow_experimental=True).stdout


def test_the_configuration_is_looked_for_where_the_command_is_given(taken: Taken) -> None:
    """As docs/how_to/takeover.md has it: relative to the caller's folder, which is not the playbook's."""
    found = taken.run("--check", takeover_allow_experimental=True, takeover_config=os.path.relpath(taken.config, ROOT))
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_failure_before_the_end_is_told_and_leaves_no_configuration(taken: Taken) -> None:
    taken.victim.answers(fail="kexec ")
    found = taken.run(takeover_allow_experimental=True)
    assert (
        found.returncode != 0
        and "is still Ubuntu" in found.stdout
        and "fail kexec: the kernel of Talos cannot be loaded" in found.stdout
    )
    assert not (taken.victim.root / "run/tgp-takeover-config.yaml").exists()
    assert not (taken.victim.root / "boot/efi/config.yaml").exists()


@pytest.mark.parametrize("gone", ["disk", "image"])
def test_a_configuration_without_what_it_needs_is_refused(taken: Taken, gone: str) -> None:
    install = {name: value for name, value in CONFIG["machine"]["install"].items() if name != gone}
    taken.write({**CONFIG, "machine": {**CONFIG["machine"], "install": install}})
    found = taken.run(takeover_allow_experimental=True)
    assert found.returncode != 0 and "must be a worker's configuration with machine.install.disk" in found.stdout
    assert taken.victim.calls == []
