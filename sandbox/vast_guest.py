# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the start script of a virtual machine of the sandbox's Vast prints, by its own text. The script is read and not run: a command whose
output it prints is answered by what it asks about."""

from __future__ import annotations

import re
import typing as t

from .container_script import STDOUT, Script
from .container_words import ShellFault
from .vast_account import Account
from .vast_rows import offer_row
from .world import Machine, World

_TO = {"both": {*STDOUT, "/dev/console"}, "console": {"/dev/console"}, "stdout": STDOUT}
_ASKS: tuple[tuple[str, str], ...] = (
    ("user", r"\bid -u\b"),
    ("virtualization", r"\bsystemd-detect-virt\b"),
    ("system", r"/etc/os-release\b"),
    ("kernel", r"\buname -r\b"),
    ("init", r"/proc/1/comm\b"),
    ("cgroup", r"/sys/fs/cgroup\b"),
    ("disk", r"\bdf .*\bavail\b"),
    ("gpus", r"/sys/bus/pci/devices\b"),
    ("lacking", r"\bmodprobe\b"),
    ("driver", r"\bnvidia-smi\b.*\bdriver_version\b"),
)
_VARIABLE = re.compile(r"/etc/environment\b.*?\b([A-Z][A-Z0-9_]*)=", re.DOTALL)
_SYSTEM_GB = 12  # of the disk


def printed(world: World, machine: Machine) -> list[str]:
    """The lines that are there now. The caller holds the lock."""
    switches, up = Account.of(world).switches, machine.details["up"]
    runs = machine.payload and machine.details["system"] == "ubuntu" and switches.onstart_runs
    if not runs or up is None or world.clock.seconds() - up < switches.onstart_after:
        return []
    script = _GuestScript(machine, _answers(world, machine), _TO[switches.onstart_to])
    try:
        script.read(t.cast(str, machine.payload))
    except ShellFault:
        return []
    return [line for _started, line in script.lines]


def _answers(world: World, machine: Machine) -> dict[str, str]:
    """What commands print, by what they ask about. The switch ``guest`` comes before the usual."""
    row = offer_row(machine.offer, "on-demand", machine.details["disk"], world.clock.seconds())
    usual = {
        "user": "0",
        "virtualization": "kvm",
        "system": "ubuntu-22.04",
        "kernel": "5.15.0-130-generic",
        "init": "systemd",
        "cgroup": "cgroup2fs",
        "disk": str(int(machine.details["disk"]) - _SYSTEM_GB),
        "gpus": str(machine.offer.gpu_count),
        "lacking": "",
        "driver": row["driver_version"],
    }
    said = (pair.partition("=") for pair in Account.of(world).switches.guest.split())
    return usual | {name: value for name, _equals, value in said}


class _GuestScript(Script):
    def __init__(self, machine: Machine, answers: t.Mapping[str, str], screens: t.Collection[str]) -> None:
        super().__init__({}, dive=False, screens=screens)
        self._environment, self._answers = machine.details["environment"], answers

    def substitute(self, text: str) -> str:
        if found := _VARIABLE.search(text):
            return self._answers.get("variable", str(len(self._environment.get(found[1], ""))))
        name = next((name for name, pattern in _ASKS if re.search(pattern, text, re.DOTALL)), "")
        return self._answers[name] if name else super().substitute(text)
