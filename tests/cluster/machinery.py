# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Talos itself says about a machine configuration: its own Go code reads, merges and validates it.

Tests that call this ask for the fixture ``machinery``, which skips them where the program cannot be built.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import typing as t

from tests.build import build

MODES = ("metal", "cloud", "container")


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """``config`` is the merged configuration (YAML), "" without patches. ``errors`` name the document they are about first."""

    ok: bool
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    config: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One configuration (all documents, YAML) with strategic-merge patches to apply before it is validated."""

    config: str
    mode: str = "metal"
    strict: bool = True
    patches: tuple[str, ...] = ()


def validate(documents_yaml: str, mode: str = "metal", strict: bool = True) -> Result:
    """As ``talosctl validate --mode MODE [--strict]``; strict counts warnings as errors."""
    return ask([Question(documents_yaml, mode, strict)])[0]


def merge(config: str, *patches: str, mode: str = "metal") -> Result:
    """As ``talosctl machineconfig patch``, then validated."""
    return ask([Question(config, mode, False, patches)])[0]


def ask(questions: t.Sequence[Question], program: str = "machinery") -> list[Result]:
    """One answer for each, in order, from one run of the program: thousands take seconds. ``program`` chooses the Talos release."""
    lines = "".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in questions)
    done = subprocess.run([str(build(program)), "validate"], input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [Result(one["ok"], tuple(one["errors"]), tuple(one["warnings"]), one.get("config", "")) for one in answers]
