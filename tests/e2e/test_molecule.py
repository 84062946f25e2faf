# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios in extensions/molecule, by one command and on one sandbox."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

from sandbox.running import BIN, clean_environment

from .box import ROOT

SCENARIOS = ROOT / "extensions" / "molecule"
SHARED = ROOT / ".config" / "molecule" / "config.yml"
LONGEST = 1200.0  # seconds
LANES = {"lane_talos", "lane_kubelet", "lane_service"}
_RECAP = re.compile(
    r"^(\w+) +: actions=(\d+) +successful=(\d+) +disabled=\d+ +skipped=(\d+) +missing=(\d+) +failed=(\d+)", re.MULTILINE
)


def sequences() -> dict[str, list[str]]:
    """Scenario -> its steps. Those that start and stop the sandbox run once, for scenario default."""
    common = yaml.safe_load(SHARED.read_text())["scenario"]["test_sequence"]
    found = {path.parent.name: yaml.safe_load(path.read_text()) or {} for path in SCENARIOS.glob("*/molecule.yml")}
    steps = {name: about.get("scenario", {}).get("test_sequence", common) for name, about in found.items()}
    return {name: [step for step in listed if step not in ("create", "destroy")] for name, listed in sorted(steps.items())}


def test_there_is_a_scenario_for_the_story_each_lane_and_each_role_that_stands_alone() -> None:
    roles = {path.stem for path in (ROOT / "examples" / "roles").glob("*.yml")}
    found = sequences()
    assert set(found) == {"default", *LANES, *roles}
    for name, steps in found.items():
        assert {"converge", "idempotence", "verify"} <= set(steps), name
        files = {step.partition(" ")[2] or f"{step}.yml" for step in steps if step != "idempotence"}
        assert [file for file in files if not (SCENARIOS / name / file).exists()] == [], name


def test_scenarios_succeed_and_leave_nothing(tmp_path: Path) -> None:
    chosen = sequences()
    kept = clean_environment("MOLECULE_", "K8S_AUTH_", "KUBECONFIG")
    quiet = {"ANSIBLE_NOCOLOR": "1", "NO_COLOR": "1", "ANSIBLE_HOME": str(tmp_path)}
    environment = {**kept, **quiet, "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', '')}"}
    command = [str(BIN / "molecule"), "test", "--all"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-20000:]
    rows = [(name, *map(int, numbers)) for name, *numbers in _RECAP.findall(text)]
    expected = [(name, len(steps), len(steps), 0, 0, 0) for name, steps in chosen.items()]
    once = ("default", 1, 1, 0, 0, 0)
    assert rows == [once, *expected, once], text[-5000:]
    assert "secret_" not in text and "tskey-" not in text, "no key of the sandbox is printed"
    assert not list(tmp_path.glob("**/ansible_collections")), "molecule has installed a copy of the collection"
    assert not list(tmp_path.glob("**/sandbox")), "the sandbox is still there"
