# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that others wrote and that read what we render: shellcheck, and cloud-init's own check of user data.

A test notes how many texts passed which of them with ``record_property("checked", (program, number))``; the end of a run sums that up.
"""

from __future__ import annotations

import collections
import functools
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "cloud-init"
_CALL = "import sys; from cloudinit.cmd.main import main; sys.argv[0] = 'cloud-init'; sys.exit(main())"


@functools.cache
def shellcheck() -> str | None:
    """The program, of the environment's own packages or of the system."""
    return shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@functools.cache
def cloud_init() -> tuple[list[str], dict[str, str]] | None:
    """How to call cloud-init, with its environment: the installed one, else Debian's or Ubuntu's package, unpacked and not installed (it
    would begin to configure this machine). None where neither can be had."""
    if shutil.which("cloud-init"):
        return ["cloud-init"], dict(os.environ)
    packages = CACHE / "usr/lib/python3/dist-packages"
    if not packages.is_dir():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            return None
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "cloud-init"], cwd=CACHE, capture_output=True, timeout=120, check=False)
        for package in CACHE.glob("cloud-init*.deb"):
            subprocess.run(["dpkg", "-x", package.name, "."], cwd=CACHE, capture_output=True, timeout=60, check=False)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-c", _CALL]
    works = subprocess.run([*command, "--version"], env=environment, capture_output=True, timeout=60, check=False)
    return (command, environment) if works.returncode == 0 else None


def shell_faults(script: str, shell: str = "bash") -> str:
    """What shellcheck has against a script; empty = nothing."""
    program = shellcheck()
    if program is None:
        raise LookupError("shellcheck is not installed")
    # a shell that is told to read standard input as its script reads no other
    found = subprocess.run([program, "-s", shell, "-"], input=script.encode(), capture_output=True, timeout=60, check=False)
    return found.stdout.decode() + found.stderr.decode()


def user_data_faults(text: str, folder: Path) -> str:
    """What ``cloud-init schema`` has against user data; empty = nothing."""
    found = cloud_init()
    if found is None:
        raise LookupError("cloud-init cannot be had")
    command, environment = found
    file = folder / "user-data"
    file.write_text(text, encoding="utf-8")
    ran = subprocess.run([*command, "schema", "-c", str(file)], env=environment, capture_output=True, timeout=60, check=False)
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr).decode()


def checked_line(reports: t.Iterable[t.Any]) -> str:
    """Such as "9 user data by cloud-init schema, 16 scripts by shellcheck": what passed in this run; empty when nothing was looked at."""
    sums: collections.Counter[str] = collections.Counter()
    for report in reports:
        for name, value in report.user_properties:
            if name == "checked":
                sums[value[0]] += value[1]
    return ", ".join(f"{number} {what}" for what, number in sorted(sums.items()))
