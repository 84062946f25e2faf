# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of a page, run in their order in one shell, as a reader pastes them.

A block is fenced as ``sh``, ``bash`` or ``shell``. One that cannot run in a test has a line ``<!-- illustration: why -->`` before it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import typing as t
from pathlib import Path

from sandbox.running import BIN

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)\s*(?P<language>\w*)")
_ILLUSTRATION = re.compile(r"^\s*<!-- illustration(?:: (?P<why>.+?))? -->\s*$")
_LANGUAGES = ("sh", "bash", "shell")
_COMMANDS = (
    "ansible",
    "cat",
    "cd",
    "curl",
    "export",
    "git",
    "install",
    "jq",
    "kubectl",
    "make",
    "mkdir",
    "pip",
    "python",
    "set",
    "systemctl",
    "talosctl",
)
_PLACE = "== block at "


@dataclasses.dataclass(frozen=True)
class ShellBlock:
    """``line`` is that of the block's first command. ``illustration`` is why it does not run, None for a block that runs."""

    page: Path
    line: int
    text: str
    illustration: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def shell_blocks(page: Path, *, indented: bool = False) -> list[ShellBlock]:
    """All shell blocks of a page in their order. ``indented``: also blocks that are indented by four blanks and begin with a known command."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[ShellBlock] = []
    why: str | None = None
    number = 0
    while number < len(lines):
        line, start = lines[number], number
        fence, marker = _FENCE.match(line), _ILLUSTRATION.match(line)
        number += 1
        if marker is not None:
            why = marker["why"] or "an illustration"
        elif fence is not None:
            body = []
            while number < len(lines) and lines[number].strip() != fence["ticks"]:
                body.append(lines[number].removeprefix(fence["indent"]))
                number += 1
            number += 1
            if fence["language"] in _LANGUAGES:
                found.append(ShellBlock(page, start + 2, "\n".join(body), why))
            why = None
        elif indented and line.startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            body = [line[4:]]
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                body.append(lines[number][4:])
                number += 1
            if line.strip().startswith(_COMMANDS):
                found.append(ShellBlock(page, start + 1, "\n".join(body).rstrip(), why))
            why = None
        elif line.strip():
            why = None
    return found


def script(blocks: t.Iterable[ShellBlock]) -> str:
    """One shell script of the blocks that run. It ends at the first command that fails, and prints the place of each block before it."""
    parts = [f"echo '{_PLACE}{block.place}'\n{block.text}" for block in blocks if block.illustration is None]
    return "\n".join(["set -euo pipefail", *parts, ""])


@dataclasses.dataclass(frozen=True)
class BlocksRun:
    """How the script ended. ``out`` is all that it printed, ``place`` the block in which it ended."""

    rc: int
    out: str

    @property
    def place(self) -> str:
        return self.out.rpartition(_PLACE)[2].partition("\n")[0]

    def succeeded(self) -> BlocksRun:
        assert self.rc == 0, f"{self.place} ended with {self.rc}:\n{self.out}"
        return self

    def of(self, text: str) -> str:
        """What the block printed whose place ends so (``README.md:90``)."""
        return next(part for part in self.out.split(_PLACE) if part.partition("\n")[0].endswith(text))


def run_blocks(blocks: t.Iterable[ShellBlock], folder: Path, environment: t.Mapping[str, str], seconds: float = 300) -> BlocksRun:
    """Run the blocks of one page in ``folder``. AssertionError when they do not end in time."""
    process = subprocess.Popen(
        ["bash", "-c", script(blocks)],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _err = process.communicate()
        raise AssertionError(f"{BlocksRun(-9, out).place} did not end in {seconds} s:\n{out}") from None
    return BlocksRun(process.returncode, out)


# ---- the collection as a user has it


def build_tarball(root: Path, folder: Path) -> Path:
    """The collection of the checkout, built into ``folder``."""
    command = [str(BIN / "ansible-galaxy"), "collection", "build", "--output-path", str(folder), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (tarball,) = folder.glob("tgp-gpu-*.tar.gz")
    return tarball


def user_environment(environment: t.Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment of somebody who installs the collection into ``home``: the checkout's own collection is not found, and pip must do
    with what is installed."""
    return {
        **environment,
        "HOME": str(home),
        "ANSIBLE_HOME": str(home / ".ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(home / ".ansible" / "collections"),
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "False",
        "ANSIBLE_NOCOLOR": "1",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
