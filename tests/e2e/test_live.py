# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opt-in: one machine of a real provider through its whole life, with your own key and your own money.

    LAMBDA_API_KEY=... TGP_LIVE_PROVIDER=lambda TGP_LIVE_MAX_COST=1.00 python -m pytest tests/e2e/test_live.py

Without these variables only the sandbox is asked, so that the story itself is tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from sandbox.running import ROOT

from .box import Sandbox

LIVE, CAP = "TGP_LIVE_PROVIDER", "TGP_LIVE_MAX_COST"
_PATIENCE = 3600.0


def story(provider: str, cap: str, folder: Path, environment: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The report of the paid run. It is written into the folder whatever happens."""
    path = folder / f"{provider}.md"
    given = {"tgp_provider": provider, "tgp_rent": True, "tgp_max_cost": cap, "tgp_path": str(path)}
    command = ["ansible-playbook", "playbooks/verify_provider.yml", "-e", json.dumps(given)]
    run = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, timeout=_PATIENCE)
    assert path.exists(), run.stdout + run.stderr
    report: dict[str, t.Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert report["left_behind"] == [], path.read_text(encoding="utf-8")
    assert (run.returncode == 0) is report["all_match"], run.stdout + run.stderr
    return report


@pytest.mark.skipif(not (os.environ.get(LIVE) and os.environ.get(CAP)), reason=f"{LIVE} and {CAP} are not set")
def test_S3_25_a_real_provider_is_as_the_facts_say(tmp_path: Path) -> None:
    report = story(os.environ[LIVE], os.environ[CAP], tmp_path, os.environ)
    assert report["all_match"], (tmp_path / f"{os.environ[LIVE]}.md").read_text(encoding="utf-8")


def test_the_story_of_the_live_test_on_the_sandbox(shared: Sandbox, tmp_path: Path) -> None:
    report = story("lambda", "1.00", tmp_path, shared.environment)
    assert report["all_match"] and report["rented"] and shared.living() == []
