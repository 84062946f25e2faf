# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One measured process: wall time, processor time of it and its children, memory, tasks, and how busy the machine was with something else."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from sandbox.running import ROOT

BIN = Path(sys.executable).parent
BUSY = 1.5  # load average above which a measurement is marked; what is measured is part of it
OTHERS = 0.25  # processors that something else used, above which a time says little
EMPTY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks: []\n"
_SPAWN = Path(__file__).parent / "spawn.py"
_TICK = os.sysconf("SC_CLK_TCK")
_TASK = re.compile(r"^TASK \[", re.MULTILINE)
_HIDES_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # a user's shell does not set it: with it each play compiles its modules anew


class Ended(Exception):
    """A measured command failed."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """``cpu`` is of the process and all its children, ``peak`` that of the largest of them in MB. ``load`` is the load average when it began,
    ``elsewhere`` the processor seconds of all other processes but this one. ``began`` and ``ended`` are moments of the system's clock."""

    wall: float
    cpu: float
    peak: float
    tasks: int
    load: float
    elsewhere: float
    began: float
    ended: float
    output: str


def environment(variables: t.Mapping[str, str]) -> dict[str, str]:
    """That of a user's shell: ``variables`` without what hides a cache of bytecode."""
    return {name: value for name, value in variables.items() if name != _HIDES_BYTECODE}


def measured(command: t.Sequence[str], variables: t.Mapping[str, str]) -> Cost:
    """Run a command in the checkout. :class:`Ended` with the end of its output when it fails."""
    load, elsewhere = os.getloadavg()[0], Elsewhere()
    with tempfile.TemporaryDirectory(prefix="tgp-cost-") as folder:
        file, output = Path(folder) / "cost.json", Path(folder) / "output"
        spawn = [sys.executable, "-I", "-S", str(_SPAWN), str(file), *command]
        with output.open("wb") as written:
            subprocess.run(
                spawn,
                cwd=ROOT,
                env=environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = output.read_text(encoding="utf-8", errors="replace")
        if not file.exists():
            raise Ended(f"{' '.join(command)[:300]} did not start:\n{text[-4000:]}")
        cost = json.loads(file.read_text())
    if status := cost.pop("status"):
        raise Ended(f"{' '.join(command)[:300]} ended with {status}:\n{text[-4000:]}")
    return Cost(**cost, tasks=len(_TASK.findall(text)), load=load, elsewhere=elsewhere.seconds() - cost["cpu"], output=text)


class Elsewhere:
    """Processor seconds of the whole machine since it was made, without this process's own."""

    def __init__(self) -> None:
        self._machine, self._own = _machine_seconds(), time.process_time()

    def seconds(self) -> float:
        return _machine_seconds() - self._machine - (time.process_time() - self._own)


def _machine_seconds() -> float:
    """Of all processors, whatever they did but wait."""
    user, nice, system, _idle, _waiting, hard, soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + hard + soft + stolen) / _TICK


def playbook(name: str, *arguments: str) -> list[str]:
    """The command of one of the collection's playbooks."""
    return [str(BIN / "ansible-playbook"), f"playbooks/{name}.yml", *arguments]


def empty_playbook(folder: Path) -> list[str]:
    """The command of a playbook that does nothing: the start of Ansible, which no playbook can avoid."""
    path = folder / "empty.yml"
    path.write_text(EMPTY)
    return [str(BIN / "ansible-playbook"), str(path)]


def processor_seconds(pid: int) -> float:
    """Of a process and its threads until now; 0 when it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak_memory(pid: int | str) -> float:
    """The most memory a process ever had, in MB."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6
