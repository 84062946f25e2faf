# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``ansible-doc`` says about diff mode and results is what the modules of a run do and return."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from .rig import MODULES, Rig

CALLS: dict[str, dict[str, t.Any]] = {
    "plan": {"mode": "provision"},
    "launch": {},
    "join": {},
    "scale": {},
    "teardown": {},
    "unlock": {},
    "report": {},
    "info": {},
    "loop": {"ticks": 1},
}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What is documented of each: full, partial (in check mode) or none."""
    command = [str(Path(sys.executable).parent / "ansible-doc"), "--json", *(f"tgp.gpu.fleet_{one}" for one in CALLS)]
    run = subprocess.run(
        command, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, capture_output=True, text=True, timeout=120, check=True
    )
    found = json.loads(run.stdout)
    return {one: found[f"tgp.gpu.fleet_{one}"]["doc"]["attributes"]["diff_mode"]["support"] for one in CALLS}


@pytest.mark.parametrize("module", CALLS)
def test_diff_mode_is_what_is_documented(rig: Rig, told: dict[str, str], module: str) -> None:
    result = rig.run(module, "run-1", check=True, **CALLS[module])
    assert ("diff" in result) == (told[module] != "none")


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("module", [one for one in CALLS if one != "loop"])
def test_what_is_returned_is_what_is_documented(rig: Rig, module: str, check: bool) -> None:
    documented = yaml.safe_load(importlib.import_module(f"{MODULES}.fleet_{module}").RETURN)
    result = rig.run(module, "run-1", check=check, **CALLS[module])
    always = {name for name, one in documented.items() if one["returned"] == "always"}
    assert always - set(result) == set()
    assert set(result) - set(documented) - {"changed", "diff", "msg"} == set()
