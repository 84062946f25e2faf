# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second opinion on a configuration: ``talosctl validate``, where the user has that program."""

from __future__ import annotations

import re
import shutil
import subprocess
import typing as t

from ..core.errors import InvalidInput, TimedOut
from ..core.redact import program_environment, redact
from .releases.tables import minor
from .template import Document, to_yaml

_SECONDS = 30


def find(wanted: bool | None) -> str | None:
    """The program; None when there is none or ``wanted`` is False. InvalidInput when ``wanted`` is True and PATH has none."""
    path = shutil.which("talosctl") if wanted is not False else None
    if wanted and path is None:
        raise InvalidInput(
            "talosctl is to be asked, and there is no such program on PATH.", remedy="Install it, or set talosctl: false."
        )
    return path


def unfit(program: str, talos_version: str) -> str:
    """Why this talosctl cannot judge configurations of ``talos_version``, "" if it can: it knows the documents of its own minor."""
    completed = _run(program, ["version", "--client", "--short"])
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", completed.stdout)
    own, wanted = minor(match[1]) if match else None, minor(talos_version)
    if own is None:
        return f"{program} does not say which version it is."
    if own != wanted:
        return (
            f"{program} is of Talos {match[1] if match else ''} and the nodes run {talos_version}: it would judge by other rules."
        )
    return ""


def validate(program: str, documents: t.Sequence[Document], mode: str) -> list[str]:
    """What talosctl has against a configuration, one sentence each. It reads from a pipe: no secret is written to a disk."""
    completed = _run(program, ["validate", "--config", "/dev/stdin", "--mode", mode], to_yaml(documents))
    if completed.returncode == 0:
        return []
    lines = [line.strip(" \t*-") for line in (completed.stderr or completed.stdout).splitlines()]
    return [f"talosctl: {redact(line)}" for line in lines if line] or [f"talosctl refuses it with status {completed.returncode}."]


def _run(program: str, arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *arguments],
            env=program_environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"{program} {arguments[0]} did not end within {_SECONDS} seconds.") from None
    except OSError as error:
        raise InvalidInput(f"{program} cannot be run: {error.strerror}.") from None
