# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock's Lease and the shipped rights on a real API server: races, theft in the middle of a run, a restart below a run."""

from __future__ import annotations

import pathlib
import re
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Locked
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.store.run_lock import RunLock

from sandbox.clock import SimClock

from . import objects
from .gate import Gate
from .plane import Plane
from .stage import LEASES, PATIENCE, Stage, shipped_account

pytestmark = pytest.mark.cluster
RUNS, ROUNDS = 6, 5
STRANGER = "other-host/77/20260101T000000Z-strangr"


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Stage]:
    made = Stage(plane, tmp_path, drain_timeout="8s", speed=2, disruption={"consolidateAfter": "0s", "minAge": "0s"})
    yield made
    try:
        for one in plane.get(LEASES)["items"]:
            plane.patch(f"{LEASES}/{one['metadata']['name']}", {"spec": {"holderIdentity": ""}}, "merge")
        made.environment["KUBECONFIG"] = str(plane.kubeconfig)
        if made.claims():
            made.run("destroy", everything=True, force=True)
    finally:
        made.close()


def _race(kube: Kube, cluster: str, folder: pathlib.Path, clock: SimClock, turn: str) -> list[RunLock]:
    """Runs of as many hosts grasp for the Lease of ``cluster`` at once; those that got it."""
    start = threading.Barrier(RUNS)

    def grasp(number: int) -> RunLock | None:
        own = folder / f"{turn}-{number}"
        own.mkdir()
        lock = RunLock(kube, cluster, f"{turn}-{number}", str(own), clock)
        start.wait()
        try:
            assert lock.acquire()
        except Locked as busy:
            assert busy.details["holder"]
            return None
        return lock

    with ThreadPoolExecutor(RUNS) as pool:
        return [lock for lock in pool.map(grasp, range(RUNS)) if lock is not None]


def test_L08_of_runs_that_grasp_for_the_lease_at_once_one_gets_it(plane: Plane, kube: Kube, tmp_path: pathlib.Path) -> None:
    """Optimistic concurrency of a real API server decides the race, round after round."""
    shipped_account(plane)  # with it, the namespace
    clock = SimClock(50, start=time.time())
    for turn in range(ROUNDS):
        [winner] = _race(kube, "0000race", tmp_path, clock, f"turn{turn}")
        assert winner.release()
    lease = plane.get(f"{LEASES}/tgp-0000race")
    assert lease["spec"]["leaseTransitions"] == ROUNDS - 1 and not lease["spec"]["holderIdentity"]


def test_L08_an_expired_lease_of_another_host_is_taken_by_one(plane: Plane, kube: Kube, tmp_path: pathlib.Path) -> None:
    """Taking over an expired Lease is decided by the real API server as well."""
    shipped_account(plane)
    clock = SimClock(50, start=time.time())
    path = f"{LEASES}/tgp-0001race"
    spec = {"holderIdentity": STRANGER, "leaseDurationSeconds": 900, "renewTime": "2026-01-01T00:00:00.000000Z"}
    plane.create(LEASES, {"metadata": {"name": "tgp-0001race"}, "spec": spec})
    [winner] = _race(kube, "0001race", tmp_path, clock, "expired")
    assert plane.get(path)["spec"]["holderIdentity"].endswith(f"/{winner.run_id}")
    assert winner.release()


def test_L08_a_lease_stolen_in_the_middle_of_a_run_ends_it_before_it_costs_anything(plane: Plane, stage: Stage) -> None:
    """The claim is written and the machine's key is being made when another host takes over."""
    pool = stage.pools["lambda"]
    written: list[str] = []
    with Gate(plane) as gate:
        gate.on_effect = written.append
        stage.enter_by(gate.address, shipped_account(plane))
        stage.faults({"kind": "delay", "service": "tailscale", "method": "POST", "path": "/keys$", "seconds": 1200})
        run = stage.begin(*stage.arguments("provision", documents=stage.documents(), extra_vars={"pool": pool}))
        stage.until(lambda: stage.hits() > 0, "the run makes a key")
        [name] = [
            one["metadata"]["name"]
            for one in plane.get(LEASES)["items"]
            if (one["spec"].get("holderIdentity") or "").count("/") == 2
        ]
        plane.patch(f"{LEASES}/{name}", {"spec": {"holderIdentity": STRANGER}}, "merge")
        before, bought = len(written), len(stage.writes())
        stage.advance(1260)  # its time is over and the answer comes
        result = run.finish(PATIENCE).failed()
    assert "was taken over by other-host/77" in result.words, result.text
    [claim] = stage.claims()
    noted = re.compile(
        r"claim: (?!made)|bootstrap token made|state written|lock "
    )  # costs nothing, and most is guarded by versions
    assert [one for one in written[before:] if not noted.match(one)] == [], claim
    assert [one for one in stage.writes()[bought:] if "/keys" not in one] == [] and not stage.living()
    assert plane.get(f"{LEASES}/{name}")["spec"]["holderIdentity"] == STRANGER, "what another holds is not let go"

    stage.clear_faults()
    stage.enter_by(plane.server, shipped_account(plane))
    plane.patch(f"{LEASES}/{name}", {"spec": {"holderIdentity": ""}}, "merge")
    stage.advance(660)  # as long as the create call of a run that was stopped could still arrive
    stage.run("destroy", everything=True, force=True)
    assert not stage.living() and not stage.claims(), "the next run goes on from what was noted"


def test_the_shipped_rights_are_enough_for_a_machine_s_whole_life_and_pods_go_before_the_node(plane: Plane, stage: Stage) -> None:
    """Rented, at work, lost to its cloud. A pod left on a Node that is gone would stay until the collector comes, most of a minute."""
    stage.enter_by(plane.server, shipped_account(plane))
    pool = stage.pools["lambda"]
    stage.run("validate")
    stage.run("provision", pool=pool)
    [name] = stage.names()
    job = f"job-{stage.mark}"
    stage.run_job(name, job)
    stage.control.post(f"/machines/{name}/vanish").raise_for_status()
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    plane.patch(f"/api/v1/nodes/{name}/status", lost)
    for _run in range(3):
        stage.advance(660)
        stage.run("reap")
        if not stage.claims():
            break
    assert objects.node(plane, name) is None and stage.nothing_is_left()
    assert plane.find(f"/api/v1/namespaces/default/pods/{job}") is None, "the pod went with its node, not a minute later"


def test_a_run_outlives_a_restart_of_the_api_server(plane: Plane, stage: Stage) -> None:
    """Killed while the run waits for its machine, back two seconds later: one run, or the next, ends with one machine."""
    pool = stage.pools["lambda"]
    stage.behave({"kind": "slow", "factor": 20})
    run = stage.begin(*stage.arguments("provision", documents=stage.documents(), extra_vars={"pool": pool}))
    stage.until(lambda: bool(stage.living()), "a machine is rented")
    plane.kill_apiserver()
    time.sleep(2)
    plane.start_apiserver()
    first = run.finish(PATIENCE)
    if first.rc:
        stage.run("provision", pool=pool)
    assert len(stage.living()) == 1 and [one["phase"] for one in stage.claims().values()] == ["Ready"]
