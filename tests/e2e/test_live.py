# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opt-in: a real provider, with your own key and your own money: its facts, and one machine that joins your cluster and leaves it.

    LAMBDA_API_KEY=... TGP_LIVE_PROVIDER=lambda TGP_LIVE_MAX_COST=1.00 python -m pytest tests/e2e/test_live.py -k facts
    LAMBDA_API_KEY=... KUBECONFIG=... TS_OAUTH_CLIENT_ID=... TS_OAUTH_CLIENT_SECRET=... TGP_CONTROL_PLANE_ENDPOINT=... \
      TGP_LIVE_PROVIDER=lambda TGP_LIVE_MAX_COST=1.50 python -m pytest tests/e2e/test_live.py -k joins

With TGP_LIVE_LANE=kubelet the facts on Vast.ai are those of a virtual machine. Without the first two TGP_LIVE variables only the sandbox is
asked, so that the stories themselves are tested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from sandbox.running import ROOT

from .box import Sandbox

LIVE, CAP, LANE = "TGP_LIVE_PROVIDER", "TGP_LIVE_MAX_COST", "TGP_LIVE_LANE"
JOINING = ("lambda", "paperspace", "vast")  # RunPod rents containers, which do not become nodes
POOL = "live-story"
_PATIENCE = 3600.0
_SHARE = 0.8  # of the hour that the cap pays for; the rest is for the drain and the termination
_NOW = re.compile(r"now: (\d+) instances?, .*?(\d+) nodes?, (\d+) claims?; \$[\d.]+/h, \$([\d.]+) so far")

opted_in = pytest.mark.skipif(not (os.environ.get(LIVE) and os.environ.get(CAP)), reason=f"{LIVE} and {CAP} are not set")


def run_playbook(
    name: str, given: t.Mapping[str, t.Any], environment: t.Mapping[str, str], *more: str, seconds: float = _PATIENCE
) -> subprocess.CompletedProcess[str]:
    """A playbook to its end, or ended by SIGTERM and SIGKILL after so many seconds. Its output is one text."""
    command = ["timeout", "--kill-after=60", f"{seconds:.0f}", "ansible-playbook", f"playbooks/{name}.yml", "-e", json.dumps(given)]
    return subprocess.run(
        [*command, *more], cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


# ---- the facts


def facts_story(provider: str, cap: str, folder: Path, environment: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The report of the paid run. It is written into the folder whatever happens."""
    path = folder / f"{provider}.md"
    given = {"tgp_provider": provider, "tgp_rent": True, "tgp_max_cost": cap, "tgp_path": str(path)}
    if lane := environment.get(LANE):
        given["tgp_lane"] = lane
    run = run_playbook("verify_provider", given, environment)
    assert path.exists(), run.stdout
    report: dict[str, t.Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert report["left_behind"] == [], path.read_text(encoding="utf-8")
    assert (run.returncode == 0) is report["all_match"], run.stdout
    return report


@opted_in
def test_S3_25_the_facts_of_a_real_provider(tmp_path: Path) -> None:
    report = facts_story(os.environ[LIVE], os.environ[CAP], tmp_path, os.environ)
    assert report["all_match"], (tmp_path / f"{os.environ[LIVE]}.md").read_text(encoding="utf-8")


def test_the_story_of_the_facts_on_the_sandbox(shared: Sandbox, tmp_path: Path) -> None:
    report = facts_story("vast", "1.00", tmp_path, {**shared.environment, LANE: "kubelet"})
    assert report["all_match"], (tmp_path / "vast.md").read_text(encoding="utf-8")
    assert report["lane"] == "kubelet" and shared.living() == []


# ---- a machine that joins


def documents(provider: str, cap: str, folder: Path) -> Path:
    """A class and a pool of one machine. A machine is not dearer than the cap per hour, expires after an hour, and ends when the day has
    cost the cap."""
    shutil.copy(ROOT / "examples" / "templates" / "worker.yaml", folder)
    class_spec = {
        "providers": [{"name": provider}],
        "talosConfig": {"machineConfigTemplateFile": "worker.yaml"},
        "tailscaleConfig": {"tags": ["tag:gpu"]},
        "limits": {"maxNodes": 1, "maxHourlyCost": cap},
        "budget": {"period": "day", "amount": cap, "action": "drain_all"},
    }
    pool_spec = {
        "nodeClassRef": {"name": POOL},
        "template": {"spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}},
        "replicas": 1,
        "maxHourlyPrice": cap,
        "disruption": {"expireAfter": "1h"},
    }
    found = [
        {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": {"name": POOL}, "spec": spec}
        for kind, spec in (("GPUNodeClass", class_spec), ("GPUNodePool", pool_spec))
    ]
    path = folder / "live.yml"
    path.write_text(yaml.safe_dump_all(found), encoding="utf-8")
    return path


class Joined(t.NamedTuple):
    """What the story was told. ``second`` is the output of a second provision; ``cost`` is in dollars."""

    plan: str
    status: str
    second: str
    cost: Decimal


def joining_story(provider: str, cap: str, folder: Path, environment: t.Mapping[str, str]) -> Joined:
    """One node, from the plan to the ledger. The machine is terminated whatever happens; that of a story which was killed is terminated
    first. The cluster may have no other machines of this collection."""
    given = {"tgp_documents": str(documents(provider, cap, folder))}
    pool = {**given, "tgp_pool": POOL}
    seconds = _PATIENCE * _SHARE

    def ends(name: str, variables: t.Mapping[str, t.Any], *more: str) -> str:
        run = run_playbook(name, variables, environment, *more, seconds=seconds)
        assert run.returncode == 0, run.stdout
        return run.stdout

    ends("destroy", pool)
    before = now(ends("status", given))
    assert before[:3] == (0, 0, 0), f"the cluster has other machines: {before}"
    try:
        plan = ends("provision", given, "--check", "--diff")
        assert now(ends("status", given)) == before
        ends("provision", given)
        status, second = ends("status", given), ends("provision", given)
    finally:
        destroyed = run_playbook("destroy", pool, environment)
    assert destroyed.returncode == 0, destroyed.stdout
    after = now(ends("status", given))
    assert after[:3] == (0, 0, 0), destroyed.stdout
    return Joined(plan, status, second, after[3] - before[3])


def now(text: str) -> tuple[int, int, int, Decimal]:
    """Instances, nodes, claims and dollars so far, as ``status`` prints them."""
    found = _NOW.search(" ".join(text.replace("\\n", " ").split()))
    assert found is not None, text
    return int(found[1]), int(found[2]), int(found[3]), Decimal(found[4])


def right(story: Joined, cap: str) -> None:
    assert "  launch  " in story.plan and now(story.status)[:3] == (1, 1, 1)
    assert "  launch  " not in story.second and " changed=0 " in story.second
    assert Decimal(0) < story.cost <= Decimal(cap)


@opted_in
def test_S3_25_a_machine_of_a_real_provider_joins_and_leaves(tmp_path: Path) -> None:
    if (provider := os.environ[LIVE]) not in JOINING:
        pytest.skip(f"machines of {provider} do not become nodes")
    right(joining_story(provider, os.environ[CAP], tmp_path, os.environ), os.environ[CAP])


def test_the_story_of_the_machine_on_the_sandbox(shared: Sandbox, tmp_path: Path) -> None:
    right(joining_story("lambda", "1.00", tmp_path, shared.environment), "1.00")
    assert not any(shared.left().values())


def test_a_story_that_fails_terminates_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def failing(name: str, _given: t.Any, _environment: t.Any, *more: str, **_limit: t.Any) -> subprocess.CompletedProcess[str]:
        ran.append(" ".join((name, *more)))
        empty = "now: 0 instances, 0 devices, 0 keys, 0 tokens, 0 nodes, 0 claims; $0/h, $0 so far ($0 of it closed)"
        return subprocess.CompletedProcess([], 2 if ran[-1] == "provision" else 0, empty)

    monkeypatch.setitem(globals(), "run_playbook", failing)
    with pytest.raises(AssertionError, match="0 instances"):
        joining_story("lambda", "1.00", tmp_path, {})
    assert ran == ["destroy", "status", "provision --check --diff", "status", "provision", "destroy"]
