# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``verify_provider.yml`` as a user runs it against the sandbox: all clouds, the paid part, and ``kill -9`` in the middle of it."""

from __future__ import annotations

import json
import os
import signal
import time
import typing as t
from pathlib import Path

import pytest

from tests.fixtures.demo import listed_soon

from .box import Sandbox
from .conftest import Start

LIVES = (("lambda", ""), ("paperspace", ""), ("runpod", ""), ("vast", ""), ("vast", "kubelet"))
RENT = {"tgp_rent": True, "tgp_max_cost": "1.00"}
HANGS = 3600.0
CUTS: dict[str, dict[str, t.Any]] = {
    "the create call is sent": {"kind": "hang", "method": "POST", "path": "/launch$"},
    "the machine exists and its id is not known": {"kind": "hang_after", "method": "POST", "path": "/launch$"},
    "the machine is watched": {"kind": "hang", "method": "GET", "path": "/instances/[0-9a-f]{32}$", "after_calls": 3},
    "its end is asked for": {"kind": "hang", "method": "POST", "path": "/terminate$"},
    "its end is accepted": {"kind": "hang_after", "method": "POST", "path": "/terminate$"},
}


@pytest.fixture(scope="module")
def shared(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return start(scenario=listed_soon(tmp_path_factory.mktemp("scenario"), "four-clouds"))


def verify(provider: str, **more: t.Any) -> dict[str, t.Any]:
    return {"documents": None, "extra_vars": {"tgp_provider": provider, **more}}


def living(sandbox: Sandbox) -> list[str]:
    return [one["name"] for one in sandbox.living()]


@pytest.mark.parametrize(("cloud", "lane"), LIVES)
def test_all_facts_of_a_cloud_match_and_its_machine_is_gone(sandbox: Sandbox, cloud: str, lane: str, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    chosen = {"tgp_lane": lane} if lane else {}
    run = sandbox.playbook("verify_provider", **verify(cloud, tgp_path=str(path), **RENT, **chosen)).succeeded()
    report = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    unchecked = [row["id"] for row in report["facts"] if row["outcome"] != "matches"]
    assert report["all_match"] and report["rented"] and report["lane"] == (lane or report["lane"])
    other = [one for one in unchecked if not one.startswith(f"{cloud}.charges.")]  # nothing was billed before
    assert bool(other) is (cloud == "vast" and not lane) and not [one for one in other if "vm" not in one and "image" not in one]
    assert living(sandbox) == [] and f"{cloud}: of {len(report['facts'])} facts" in run.words
    written = path.read_text(encoding="utf-8") + path.with_suffix(".json").read_text(encoding="utf-8")
    secrets = {value for name, value in sandbox.variables.items() if "KEY" in name or "SECRET" in name}
    assert len(secrets) > 4 and [one for one in secrets if one in written + run.text] == []


@pytest.mark.parametrize("service", ["tailscale", "image_factory"])
def test_a_mesh_and_the_image_factory_are_checked_by_the_same_playbook(sandbox: Sandbox, service: str) -> None:
    run = sandbox.playbook("verify_provider", **verify(service)).succeeded()
    assert "differs" not in run.words and f"{service}: of" in run.words


def test_own_machines_are_checked_and_none_is_switched(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    given = {"extra_vars": {"tgp_provider": "webhook", "tgp_path": str(path)}}
    before = sandbox.writes()
    run = sandbox.playbook("verify_provider", **given).succeeded()
    written = path.read_text(encoding="utf-8") + path.with_suffix(".json").read_text(encoding="utf-8")
    assert "0 differs" not in run.words and "webhook: machine 1 is rack-1" in run.words
    assert "webhook.machine_1.word" in written and "rack-" not in written and living(sandbox) == []
    assert sandbox.writes() == before


def test_a_dry_run_sends_nothing(sandbox: Sandbox) -> None:
    before = sandbox.calls()
    run = sandbox.playbook("verify_provider", **verify("runpod"), check=True).succeeded()
    assert "GET /v2/pods" in run.words and "would rent nothing" in run.words
    assert sandbox.calls() == before


def test_a_fact_that_is_false_fails_the_playbook_and_is_named(sandbox: Sandbox) -> None:
    sandbox.faults(
        {"kind": "body", "service": "lambda", "path": "/ssh-keys$", "body": {"data": [{"id": "k1", "name": 7, "public_key": "k"}]}}
    )
    run = sandbox.playbook("verify_provider", **verify("lambda")).failed()
    assert "Not as expected: lambda.keys.data.*.name." in run.words


def test_a_mistyped_variable_is_refused(sandbox: Sandbox) -> None:
    run = sandbox.playbook("verify_provider", **verify("lambda", tgp_max_cots="1.00")).failed()
    assert "tgp_max_cots" in run.words and "tgp_max_cost" in run.words


@pytest.mark.parametrize("moment", CUTS)
def test_killed_while(sandbox: Sandbox, moment: str) -> None:
    """``kill -9`` of the whole run, then the next call: nothing is left."""
    sandbox.faults({**CUTS[moment], "service": "lambda", "seconds": HANGS})
    run = sandbox.begin(*sandbox.arguments("verify_provider", **verify("lambda", **RENT)))
    end = time.monotonic() + 300
    while not sandbox.hits():
        assert not run.ended and time.monotonic() < end, run.finish().text
        time.sleep(0.02)
    run.kill()
    sandbox.clear_faults()
    sandbox.playbook("verify_provider", **verify("lambda", **RENT)).succeeded()
    assert living(sandbox) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_run_that_is_told_to_stop_ends_its_machine(sandbox: Sandbox, number: signal.Signals) -> None:
    """As Ctrl-C, and as a service manager, do it: the signal goes to the whole process group of ansible-playbook."""
    run = sandbox.begin(*sandbox.arguments("verify_provider", **verify("lambda", **RENT)))
    sandbox.until(lambda: bool(living(sandbox)), "a machine is rented")
    os.killpg(run.process.pid, number)
    result = run.finish()
    assert result.rc != 0 and "ended early: interrupted" in result.words
    sandbox.until(lambda: not living(sandbox), "the machine ends")
