# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.yml and apply.yml as they are meant to be used: a plan is saved, read by somebody, and applied in a world that went on."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from .box import NOTHING, Result, Sandbox

IDLE = 11 * 60
TRAINING = {"training": 1, "own": 0}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def plan(sandbox: Sandbox, file: Path, **variables: t.Any) -> Result:
    wanted = {} if variables.get("mode") in ("reap", "destroy") else {"nodes": TRAINING}  # who rents nothing takes no numbers
    return sandbox.playbook("plan", extra_vars={"plan": str(file), **wanted, **variables})


def apply(sandbox: Sandbox, file: Path, *, check: bool = False, **variables: t.Any) -> Result:
    return sandbox.playbook("apply", extra_vars={"plan": str(file), **variables}, check=check)


def names(sandbox: Sandbox) -> set[str]:
    return {one["name"] for one in sandbox.living()}


def steps(file: Path) -> list[tuple[str, str]]:
    return [(one["kind"], one["name"]) for one in json.loads(file.read_text())["steps"]]


def test_L22_planned_approved_applied_and_applied_again(clean: Sandbox, file: Path) -> None:
    before = clean.writes()
    shown = plan(clean, file).succeeded()
    [(kind, name)] = steps(file)
    assert kind == "launch" and name in shown.out and "/day)" in shown.words
    assert clean.writes() == before and clean.claims() == {}
    assert file.stat().st_mode & 0o777 == 0o600

    rehearsed = apply(clean, file, check=True).succeeded()
    assert clean.writes() == before and name in rehearsed.out and "applied" in rehearsed.out

    apply(clean, file).succeeded()
    assert names(clean) == {name} == set(clean.claims())
    assert clean.claims()[name]["phase"] == "Ready"

    with clean.moment():
        apply(clean, file).succeeded()  # notes that the machine is idle
        writes = clean.writes()
        again = apply(clean, file).succeeded()
    assert again.count("changed") == 0 and clean.writes() == writes
    assert "done" in again.out and names(clean) == {name}


def test_L22_the_world_went_on(clean: Sandbox, file: Path) -> None:
    """An idle machine has work again, and the offer of the other pool costs nothing more: one step is refused, the other done."""
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    [node] = names(clean)
    clean.playbook("reap").succeeded()
    clean.advance(IDLE)
    plan(clean, file, nodes={"training": 0, "own": 1}).succeeded()
    assert sorted(kind for kind, _name in steps(file)) == ["destroy", "launch"]
    clean.run_job(node)
    result = apply(clean, file).failed()
    assert f"{node}: destroy was refused: busy: pod default/training-job. Make a new plan with plan.yml." in result.words
    assert names(clean) == {node, "rack-1"} and "refused" in result.out
    assert not clean.nodes()[node]["spec"].get("unschedulable")
    accepted = apply(clean, file, accept_refused=True).succeeded()
    assert "refused" in accepted.out and names(clean) == {node, "rack-1"}
    clean.end_job()


def test_L22_reap_and_destroy_by_plan(clean: Sandbox, file: Path) -> None:
    clean.playbook("provision", extra_vars={"nodes": {"training": 2, "own": 0}}).succeeded()
    one, other = sorted(names(clean))
    plan(clean, file, mode="destroy", machine=one).succeeded()
    assert names(clean) == {one, other}
    apply(clean, file).succeeded()
    assert names(clean) == {other}
    apply(clean, file).succeeded()  # it is gone: done
    clean.playbook("reap").succeeded()
    clean.advance(IDLE)
    plan(clean, file, mode="reap").succeeded()
    apply(clean, file).succeeded()
    assert clean.left() == NOTHING


def test_L22_dearer_than_approved(start: t.Callable[..., Sandbox], file: Path) -> None:
    sandbox = start()
    plan(sandbox, file).succeeded()
    offer = json.loads(file.read_text())["steps"][0]["claim"]["offer"]
    wanted = {"cloud": "lambda", "type": offer["instance_type"], "price": "9.99"}  # a price is that of all regions
    sandbox.control.post("/prices", json=wanted).raise_for_status()
    result = apply(sandbox, file).failed()
    assert "launch was refused" in result.words and names(sandbox) == set() and sandbox.claims() == {}


def test_L22_too_old_garbled_and_missing(clean: Sandbox, file: Path) -> None:
    plan(clean, file).succeeded()
    text = file.read_text()
    before = clean.writes()
    file.write_text(text.replace('"price_hour": "0.', '"price_hour": "0.0', 1))
    assert "plan.digest: the plan was changed after it was saved" in apply(clean, file).failed().words
    file.write_text(text[:300])
    assert "is not a plan" in apply(clean, file).failed().words
    assert "cannot be read: No such file" in apply(clean, file.with_name("other.json")).failed().words
    file.write_text(text)
    clean.advance(31 * 60)
    assert "plans are good for 30m" in apply(clean, file).failed().words
    assert clean.writes() == before and names(clean) == set()


def test_L22_killed_in_the_middle_and_applied_again(clean: Sandbox, file: Path) -> None:
    """The create call has its effect and its answer never comes; the run is killed. The next application finds the machine by name."""
    plan(clean, file, mode="provision").succeeded()
    [(_kind, name)] = steps(file)
    clean.faults({"kind": "hang_after", "service": "lambda", "method": "POST", "path": "/launch", "seconds": 3600.0})
    run = clean.begin(*clean.arguments("apply", extra_vars={"plan": str(file)}))
    clean.until(lambda: clean.hits() > 0 or run.ended, "the create call was sent")
    run.kill()
    clean.clear_faults()
    assert names(clean) == {name}
    apply(clean, file).succeeded()
    assert names(clean) == {name} == set(clean.claims())
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    assert names(clean) == {name} and clean.claims()[name]["phase"] == "Ready"


def test_L22_plan_in_check_mode_writes_nothing_at_all(clean: Sandbox, file: Path) -> None:
    before = clean.writes()
    clean.playbook("plan", extra_vars={"plan": str(file), "nodes": TRAINING}, check=True).succeeded()
    assert not file.exists() and clean.writes() == before
