# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 19: exit status 0 only when what was asked is true in the world (L-30)."""

from __future__ import annotations

import threading
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Locked

from ..act.rig import Rig

HOLDER = "other-host/4711/other-run"
HTML = "<!DOCTYPE html><html><body>Access denied</body></html>"
ASKED: dict[str, dict[str, t.Any]] = {
    "provision": {"mode": "provision", "pools": ["training"], "nodes": 2},
    "destroy": {"mode": "destroy", "all": True},
}


@pytest.mark.parametrize("playbook", sorted(ASKED))
def test_L30_what_a_person_asked_for_fails_while_the_lock_is_busy(rig: Rig, playbook: str) -> None:
    rig.provision()
    rig.lock_elsewhere(HOLDER)
    before, began = rig.writes(), rig.clock.now()

    with pytest.raises(Locked) as busy:
        rig.run("plan", **ASKED[playbook])

    assert (rig.clock.now() - began).total_seconds() >= 900, "it waits for a quarter of an hour"
    assert HOLDER in str(busy.value) and "plan_lock_wait" in str(busy.value)
    lines = [one for one in rig.lines if "waiting for the run lock" in one]
    assert len(lines) > 10 and all(HOLDER in one for one in lines)
    assert rig.writes() == before


@pytest.mark.parametrize("playbook", sorted(ASKED))
def test_L30_what_a_person_asked_for_is_done_when_the_other_run_ends(rig: Rig, playbook: str) -> None:
    rig.provision()
    rig.lock_elsewhere(HOLDER)
    timer = threading.Timer(0.5, rig.unlock_elsewhere)  # 100 s of the world
    timer.start()

    plan = rig.run("plan", **ASKED[playbook])

    timer.join()
    assert plan["outcome"] == "ok", "it did not wait for the lock"
    assert len(plan["launch" if playbook == "provision" else "destroy"]) == 1


def test_L30_apply_waits_for_the_lock(rig: Rig) -> None:
    file = rig.folder / "plan.json"
    rig.plan("everything", nodes={"training": 1}, save_to=str(file))
    rig.lock_elsewhere(HOLDER)
    timer = threading.Timer(0.5, rig.unlock_elsewhere)
    timer.start()

    found = rig.run("apply", file=str(file))

    timer.join()
    assert len(found["launch"]) == 1


@pytest.mark.control
@pytest.mark.parametrize("mode", ["reap", "autoscale"])
def test_L30_what_a_timer_starts_is_skipped(rig: Rig, mode: str) -> None:
    """As before: the timer starts it again."""
    rig.lock_elsewhere(HOLDER)
    began = rig.clock.now()
    assert rig.plan(mode)["outcome"] == "lock_busy"
    assert (rig.clock.now() - began).total_seconds() < 600


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 403, "body": HTML}, {"status": 500}, {"status": 503}], ids=str)
def test_L30_reap_fails_while_a_provider_refuses_us(rig: Rig, fault: dict[str, t.Any]) -> None:
    """A node that is busy, so that nothing is due: a revoked key is noticed all the same."""
    rig.provision()
    rig.pod(rig.machine().name)
    rig.fault("status", "lambda", "GET", "/instances$", times=None, **fault)

    for _run in range(2):
        plan = rig.plan("reap")
        rig.unlock(plan["run_id"])
        rig.advance(120)
        assert any("lambda" in one for one in plan["problems"]), "the playbook ends with 0"
        assert plan["outcome"] == "partial"
    assert {one["notice"] for one in rig.events() if one["kind"] == "notice"} == {"provider_unreadable"}
    assert rig.machine().ended is None


@pytest.mark.parametrize("mode", ["provision", "autoscale", "destroy"])
def test_L30_every_playbook_that_writes_fails_while_a_provider_refuses_us(rig: Rig, mode: str) -> None:
    rig.provision()
    rig.fault("status", "lambda", "GET", "/instances$", status=401, times=None)
    more = {"provision": {"pools": ["training"], "nodes": 1}, "destroy": {"names": ["tgp-00000000-none-00000"]}}.get(mode, {})
    plan = rig.plan(mode, **more)
    rig.unlock(plan["run_id"])
    assert any("lambda" in one for one in plan["problems"]), "the playbook ends with 0"


@pytest.mark.parametrize("mode", ["reap", "provision", "autoscale", "destroy"])
def test_L30_every_playbook_that_writes_fails_while_its_only_provider_cannot_be_reached(
    build: t.Callable[..., Rig], mode: str
) -> None:
    rig = build(machines=[])
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    rig.demo_class["providers"] = [{"name": "lambda"}]

    def cut_off(request: httpx.Request) -> None:
        if request.url.host == "lambda.test":
            raise httpx.ConnectError("no route to host", request=request)

    rig.watcher = cut_off
    more = {"provision": {"pools": ["training"], "nodes": 1}, "destroy": {"names": ["tgp-00000000-none-00000"]}}.get(mode, {})
    plan = rig.plan(mode, **more)
    rig.unlock(plan["run_id"])
    assert plan["outcome"] == "partial", "the playbook ends with 0"
    assert any("lambda could not be listed" in one and "no route to host" in one for one in plan["problems"]), (
        "the playbook ends with 0"
    )


def test_L30_reap_fails_while_the_mesh_refuses_us(rig: Rig) -> None:
    rig.provision()
    rig.fault("status", "tailscale", "GET", "/devices", status=401, times=None)
    plan = rig.plan("reap")
    rig.unlock(plan["run_id"])
    assert any("mesh" in one for one in plan["problems"]), "the playbook ends with 0"
    assert plan["outcome"] == "partial"
