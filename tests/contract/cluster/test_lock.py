# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock: one run per cluster, shared by its tasks, taken over only from the dead."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import types
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import from_text
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError, InvalidInput, Locked, LockLost
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import OWNER_PROCESS_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.store import lock_file
from ansible_collections.tgp.gpu.plugins.module_utils.store.lease import PATH
from ansible_collections.tgp.gpu.plugins.module_utils.store.lock_file import alive, describe, from_record, owner_pid
from ansible_collections.tgp.gpu.plugins.module_utils.store.run_lock import Keeper, RunLock, release, resume, take

from .conftest import START, Cluster, make_task

LEASE = f"{PATH}/tgp-a1b2c3d4"


@pytest.fixture
def speed() -> float:
    return 60.0  # the second reading ten seconds later comes soon


def lock(cluster: Cluster, run: str, folder: Path, *, pid: int | None = None) -> RunLock:
    """A run's lock as a task opens it; another ``folder`` is another machine."""
    return RunLock(cluster.client(), "a1b2c3d4", run, str(folder), cluster.clock, owner_pid=pid)


def elsewhere(cluster: Cluster, holder: str = "other-host/7/run-x", **spec: t.Any) -> None:
    """A Lease held by a run of a machine that we cannot look at."""
    renewed = (START + timedelta(seconds=spec.pop("age", 0) * -1)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    body = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 900,
        "renewTime": renewed,
        "acquireTime": renewed,
        "leaseTransitions": 3,
    }
    if cluster.read("/api/v1/namespaces/tgp-system") is None:
        cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    cluster.must("POST", PATH, {"metadata": {"name": "tgp-a1b2c3d4"}, "spec": {**body, **spec}})


def holder(cluster: Cluster) -> str:
    lease = cluster.read(LEASE)
    assert lease is not None
    return str(lease["spec"].get("holderIdentity") or "")


def test_taken_shared_by_the_tasks_of_a_run_and_released(cluster: Cluster, tmp_path: Path) -> None:
    assert lock(cluster, "run-1", tmp_path).acquire() is True
    writes = len(cluster.writes())
    assert lock(cluster, "run-1", tmp_path).acquire() is False
    assert len(cluster.writes()) == writes
    assert holder(cluster).endswith(f"/{os.getpid()}/run-1")
    with pytest.raises(Locked, match="run-1") as caught:
        lock(cluster, "run-2", tmp_path).acquire()
    assert caught.value.details["holder"].endswith("/run-1")
    assert lock(cluster, "run-1", tmp_path).release() is True
    assert lock(cluster, "run-1", tmp_path).release() is False
    assert holder(cluster) == "" and lock(cluster, "run-2", tmp_path).acquire() is True


def test_L08_of_two_hosts_one_gets_it(cluster: Cluster, tmp_path: Path) -> None:
    """Another state folder is another machine as far as the file goes; only the Lease keeps them apart."""
    assert lock(cluster, "run-1", tmp_path / "a").acquire()
    with pytest.raises(Locked, match="on this cluster"):
        lock(cluster, "run-2", tmp_path / "b").acquire()
    assert not (tmp_path / "b" / "run-a1b2c3d4.lock").exists()


def test_L08_the_end_of_another_runs_name_is_not_that_run(cluster: Cluster, tmp_path: Path) -> None:
    assert lock(cluster, "nightly/7", tmp_path / "a").acquire()
    with pytest.raises(Locked, match="nightly/7"):
        lock(cluster, "7", tmp_path / "b").acquire()
    assert lock(cluster, "7", tmp_path / "b").release() is False
    assert lock(cluster, "nightly/7", tmp_path / "a").acquire() is False
    assert lock(cluster, "nightly/7", tmp_path / "a").release() is True


def test_L08_busy_one_second_before_the_end(cluster: Cluster, tmp_path: Path) -> None:
    elsewhere(cluster)
    cluster.clock.advance((START + timedelta(minutes=14, seconds=50) - cluster.clock.now()).total_seconds())
    with pytest.raises(Locked) as caught:
        lock(cluster, "run-1", tmp_path).acquire()
    assert caught.value.details["holder"] == "other-host/7/run-x" and 889 <= caught.value.details["age"] <= 899


def test_L08_taken_over_after_two_readings(cluster: Cluster, tmp_path: Path) -> None:
    elsewhere(cluster)
    cluster.clock.advance(901)
    begun = cluster.clock.now()
    assert lock(cluster, "run-1", tmp_path).acquire() is True
    assert (cluster.clock.now() - begun).total_seconds() >= 10
    lease = cluster.read(LEASE)
    assert lease is not None and lease["spec"]["leaseTransitions"] == 4 and lease["spec"]["holderIdentity"].endswith("/run-1")


def test_L08_a_holder_that_renews_between_the_readings_keeps_it(cluster: Cluster, tmp_path: Path, monkeypatch: t.Any) -> None:
    elsewhere(cluster)
    cluster.clock.advance(901)
    sleep = cluster.clock.sleep

    def renewed(seconds: float) -> None:
        now = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        cluster.must("PATCH", LEASE, {"spec": {"renewTime": now}})
        sleep(seconds)

    monkeypatch.setattr(cluster.clock, "sleep", renewed)
    with pytest.raises(Locked):
        lock(cluster, "run-1", tmp_path).acquire()


def test_L08_a_holder_that_sleeps_too_long_stops(cluster: Cluster, tmp_path: Path) -> None:
    sleeper = lock(cluster, "run-1", tmp_path / "a")
    sleeper.acquire()
    sleeper.renew_if_due()
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": "other-host/7/run-x"}})
    cluster.clock.advance(960)
    writes = len(cluster.writes())
    with pytest.raises(LockLost, match="other-host/7/run-x"):
        sleeper.renew_if_due()
    assert len(cluster.writes()) == writes + 1  # the one refused renewal
    with pytest.raises(LockLost):
        sleeper.renew_if_due()
    assert len(cluster.writes()) == writes + 1 and sleeper.release() is False
    assert holder(cluster) == "other-host/7/run-x"


def test_L08_a_later_task_of_a_run_that_lost_it_stops_too(cluster: Cluster, tmp_path: Path) -> None:
    lock(cluster, "run-1", tmp_path).acquire()
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": "other-host/7/run-x"}})
    with pytest.raises(LockLost):
        lock(cluster, "run-1", tmp_path).acquire()
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": ""}})
    with pytest.raises(LockLost, match="let go again"):
        lock(cluster, "run-1", tmp_path).acquire()
    assert holder(cluster) == ""


def test_L08_renewed_only_when_due(cluster: Cluster, tmp_path: Path) -> None:
    held = lock(cluster, "run-1", tmp_path)
    held.acquire()
    writes = len(cluster.writes())
    held.renew_if_due()
    cluster.clock.advance(200)
    held.renew_if_due()
    assert len(cluster.writes()) == writes
    cluster.clock.advance(100)
    held.renew_if_due()
    assert len(cluster.writes()) == writes + 1
    lease = cluster.read(LEASE)
    assert lease is not None and (cluster.clock.now() - from_text(lease["spec"]["renewTime"])).total_seconds() < 30


@pytest.mark.parametrize("speed", [0.01])  # the time that the test itself takes must not count
def test_L08_a_call_that_costs_notices_a_lock_taken_away_at_once(cluster: Cluster, tmp_path: Path) -> None:
    held = lock(cluster, "run-1", tmp_path)
    held.acquire()
    writes = len(cluster.writes())
    cluster.clock.advance(4)
    held.confirm()
    assert len(cluster.writes()) == writes, "calls side by side share a renewal"
    cluster.clock.advance(2)
    held.confirm()
    held.confirm()
    assert len(cluster.writes()) == writes + 1
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": "other-host/7/run-x"}})
    cluster.clock.advance(6)
    held.renew_if_due()  # not due, so nobody looks
    with pytest.raises(LockLost, match="other-host/7/run-x"):
        held.confirm()
    with pytest.raises(LockLost):
        held.renew_if_due()
    assert holder(cluster) == "other-host/7/run-x"


def test_L08_a_silent_api_server_does_not_stop_a_call_while_no_renewal_is_due(cluster: Cluster, tmp_path: Path) -> None:
    held = lock(cluster, "run-1", tmp_path)
    held.acquire()
    cluster.faults.add({"kind": "lost_before", "method": "PUT", "path": "leases", "times": None})
    cluster.clock.advance(60)
    held.confirm()
    cluster.clock.advance(300)
    with pytest.raises(ApiError, match="no answer"):
        held.confirm()


def test_two_tasks_of_one_run_may_both_renew(cluster: Cluster, tmp_path: Path) -> None:
    one, two = lock(cluster, "run-1", tmp_path), lock(cluster, "run-1", tmp_path)
    one.acquire()
    two.acquire()
    cluster.clock.advance(400)
    one.renew_if_due()
    two.renew_if_due()


def test_no_cluster_no_renewal_and_in_the_end_no_lock(cluster: Cluster, tmp_path: Path) -> None:
    held = lock(cluster, "run-1", tmp_path)
    held.acquire()
    cluster.clock.advance(400)
    cluster.faults.add({"kind": "lost_before", "method": "PUT", "path": "leases", "times": None})
    with pytest.raises(Exception, match="no answer"):
        held.renew_if_due()
    cluster.clock.advance(600)
    with pytest.raises(LockLost, match="could not be renewed"):
        held.renew_if_due()


def test_lock_wait_waits(cluster: Cluster, tmp_path: Path) -> None:
    elsewhere(cluster, age=870)
    begun = cluster.clock.now()
    assert lock(cluster, "run-1", tmp_path).acquire(wait=120) is True
    assert (cluster.clock.now() - begun).total_seconds() >= 35


def test_a_dead_run_of_this_machine_is_overtaken_at_once(cluster: Cluster, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert lock(cluster, "run-1", tmp_path, pid=child.pid).acquire()
    with pytest.raises(Locked):
        lock(cluster, "run-2", tmp_path).acquire()
    child.kill()
    child.wait()
    begun = cluster.clock.now()
    assert lock(cluster, "run-2", tmp_path / "another-folder").acquire() is True
    assert lock(cluster, "run-2", tmp_path).release() is True
    assert lock(cluster, "run-3", tmp_path).acquire() is True
    assert (cluster.clock.now() - begun).total_seconds() < 600


def test_L08_a_module_without_its_playbook_beside_it_is_not_taken_for_the_run(cluster: Cluster, tmp_path: Path) -> None:
    """On another host each task is a process that ends, and the run goes on: only its time can be over."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock_file, "owner_pid", lambda: child.pid)
        assert lock(cluster, "run-1", tmp_path).acquire()
    child.kill()
    child.wait()
    for folder in (tmp_path, tmp_path / "another-folder"):
        with pytest.raises(Locked, match="run-1"):
            lock(cluster, "run-2", folder).acquire()
    assert lock(cluster, "run-1", tmp_path).acquire() is False, "its next task goes on"
    cluster.clock.advance(901)
    assert lock(cluster, "run-2", tmp_path).acquire() is True


def test_a_zombie_is_dead_and_a_reused_pid_is_another() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    seen = describe(child.pid)
    while alive(seen):
        pass
    child.wait()
    assert alive(describe(os.getpid())) is True
    record = describe(os.getpid()).to_record()
    assert alive(from_record({**record, "start_time": "1"})) is False  # type: ignore[arg-type]
    assert alive(from_record({**record, "boot_id": "x"})) is None  # type: ignore[arg-type]
    assert from_record({**record, "pid": "7"}) is None and from_record({}) is None


def test_an_odd_lock_file_is_an_error_that_names_it(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "run-a1b2c3d4.lock"
    for text in ("", "{", "[]", "{}", '{"run_id": "x", "taken": "now"}'):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="run-a1b2c3d4.lock"):
            lock(cluster, "run-1", tmp_path).acquire()


class FullDisk:
    """Once ``room`` more writes of the lock file have gone well, there is no room any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self._sync = room, os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._sync(descriptor)


@pytest.mark.parametrize("room", [0, 1])
def test_L08_a_lock_that_cannot_be_noted_is_not_taken(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    disk = FullDisk(monkeypatch, room)
    with pytest.raises(InvalidInput, match="run-a1b2c3d4.lock cannot be written: No space left on device"):
        lock(cluster, "run-1", tmp_path).acquire()
    assert cluster.read(LEASE) is None or holder(cluster) == ""
    disk.room = 9
    assert lock(cluster, "run-2", tmp_path).acquire() is True


def test_L08_a_disk_that_fills_up_meanwhile_ends_no_run(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = lock(cluster, "run-1", tmp_path)
    one.acquire()
    FullDisk(monkeypatch, 0)
    cluster.clock.advance(400)
    one.confirm()
    one.renew_if_due()
    assert lock(cluster, "run-1", tmp_path).acquire() is False, "a later task of the run goes on, too"
    lease = cluster.read(LEASE)
    assert lease is not None and (from_text(lease["spec"]["renewTime"]) - START).total_seconds() >= 400
    with pytest.raises(Locked):
        lock(cluster, "run-2", tmp_path).acquire()
    assert one.release() is True and not (tmp_path / "run-a1b2c3d4.lock").exists()


def test_a_file_of_another_boot_of_this_host_is_void(cluster: Cluster, tmp_path: Path) -> None:
    lock(cluster, "run-1", tmp_path).acquire()
    path = tmp_path / "run-a1b2c3d4.lock"
    record = json.loads(path.read_text())
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": ""}, "metadata": {"annotations": {OWNER_PROCESS_ANNOTATION: None}}})
    path.write_text(json.dumps({**record, "boot_id": "11111111-2222-3333-4444-555555555555"}))
    assert lock(cluster, "run-2", tmp_path).acquire() is True
    path.write_text(json.dumps({**record, "host": "another", "boot_id": "11111111-2222-3333-4444-555555555555"}))
    with pytest.raises(Locked, match="on another"):
        lock(cluster, "run-3", tmp_path).acquire()
    cluster.clock.advance(1000)
    assert lock(cluster, "run-2b", tmp_path / "x") is not None
    cluster.must("PATCH", LEASE, {"spec": {"holderIdentity": ""}})
    assert lock(cluster, "run-3", tmp_path).acquire() is True


def test_the_owner_is_the_playbook_not_its_worker(tmp_path: Path) -> None:
    """A fake ansible-playbook that forks a worker, which starts a shell, which asks who owns the run."""
    here = Path(__file__).resolve().parents[3]
    script = tmp_path / "ansible-playbook"
    ask = (
        f"import sys; sys.path.insert(0, {str(here)!r}); "
        "from ansible_collections.tgp.gpu.plugins.module_utils.store.lock_file import owner_pid; print(owner_pid())"
    )
    script.write_text(
        "import os, subprocess, sys\n"
        "print(os.getpid(), flush=True)\n"
        "if os.fork() == 0:\n"
        f"    subprocess.run(['sh', '-c', 'exec \"$0\" -c \"$1\"; true', sys.executable, {ask!r}])\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, str(script), "site.yml"], capture_output=True, text=True, check=True)
    main, owner = done.stdout.split()
    assert main == owner and owner_pid() == os.getpid(), done.stderr


def test_the_calls_of_the_fleet_steps(cluster: Cluster, kube: Kube, tmp_path: Path) -> None:
    task = make_task(state_dir=str(tmp_path))
    task.clock = cluster.clock
    take(task, kube, "run-1", "a1b2c3d4", wait=0)
    resume(task, kube, "run-1", "a1b2c3d4").renew_if_due()
    assert release(task, kube, "run-1", "a1b2c3d4") is True and release(task, kube, "run-1", "a1b2c3d4") is False


def test_without_a_cluster_the_file_alone_locks(tmp_path: Path, cluster: Cluster) -> None:
    one = RunLock(None, "a1b2c3d4", "run-1", str(tmp_path), cluster.clock)
    assert one.acquire() is True
    one.renew_if_due()
    with pytest.raises(Locked):
        RunLock(None, "a1b2c3d4", "run-2", str(tmp_path), cluster.clock).acquire()
    assert one.release() is True


def test_L08_the_lock_is_kept_alive_also_after_a_renewal_that_failed() -> None:
    """While pods are drained or machines awaited; only a lock that is lost is renewed no more."""
    errors: list[Exception] = [LockLost("another run has it"), ApiError("the API server does not answer"), ApiError("nor now")]
    asked, ended = [], threading.Event()

    def renew_if_due() -> None:
        asked.append(len(errors))
        if len(errors) == 1:
            ended.set()
        raise errors.pop()

    clock = types.SimpleNamespace(speed=6000.0)  # a look each hundredth of a second
    with Keeper(types.SimpleNamespace(renew_if_due=renew_if_due), clock) as keeper:  # type: ignore[arg-type]
        assert ended.wait(30)
        keeper._thread.join(30)
    assert asked == [3, 2, 1]
