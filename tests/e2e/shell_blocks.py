# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of a page, run in their order in one shell, as a reader pastes them.

A block is fenced as ``sh``, ``bash`` or ``shell``. One that cannot run in a test has a line ``<!-- illustration: why -->`` before it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import typing as t
from pathlib import Path

from tests.blocks import blocks

_LANGUAGES = ("sh", "bash", "shell")
_PLACE = "== block at "


@dataclasses.dataclass(frozen=True)
class ShellBlock:
    """``line`` is that of the block's first command. ``illustration`` is why it does not run, empty for a block that runs."""

    page: Path
    line: int
    text: str
    illustration: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def shell_blocks(page: Path) -> list[ShellBlock]:
    """All shell blocks of a page in their order."""
    found = blocks(page.read_text(encoding="utf-8"))
    return [
        ShellBlock(page, block.line + 1, block.text.rstrip("\n"), block.illustration)
        for block in found
        if block.language in _LANGUAGES
    ]


def script(chosen: t.Iterable[ShellBlock]) -> str:
    """One shell script of the blocks that run. It ends at the first command that fails, and prints the place of each block before it."""
    parts = [f"echo '{_PLACE}{block.place}'\n{block.text}" for block in chosen if not block.illustration]
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


def run_blocks(chosen: t.Iterable[ShellBlock], folder: Path, environment: t.Mapping[str, str], seconds: float = 300) -> BlocksRun:
    """Run the blocks of one page in ``folder``. AssertionError when they do not end in time."""
    process = subprocess.Popen(
        ["bash", "-c", script(chosen)],
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
