# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""autoscale.yml as a loop, in this process: how often it looks, what it says, and how it ends."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import tracemalloc
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig
from .test_autoscale import IDLE, ask, runs
from .test_tokens import killed_before_the_note


class Looping:
    """The loop in the main thread, where signals arrive; ``story`` runs beside it and ends it."""

    def __init__(self, rig: Rig, **params: t.Any) -> None:
        self._rig, self._params = rig, params

    def while_it_runs(self, story: t.Callable[[], None]) -> dict[str, t.Any]:
        failures: list[BaseException] = []

        def beside() -> None:
            try:
                story()
            except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
                failures.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=beside)
        before = signal.getsignal(signal.SIGTERM)
        call = self._rig.call

        def started(code: t.Any, task: t.Any) -> dict[str, t.Any]:
            if code.__name__.endswith("fleet_loop"):
                threading.Timer(0.3, thread.start).start()  # it listens to signals by then
            return call(code, task)

        self._rig.call = started
        try:
            result = self._rig.run("loop", **{"interval": 10, "full_interval": 60, **self._params})
            thread.join(30)
        finally:
            self._rig.call = call
        assert signal.getsignal(signal.SIGTERM) is before
        if failures:
            raise failures[0]
        return result


def said(rig: Rig, words: str) -> list[str]:
    return [line for line in rig.lines if words in line]


def test_S2_08_a_pod_gets_its_machine_and_the_machine_goes_in_one_loop(rig: Rig) -> None:
    def story() -> None:
        ask(rig, "train")
        runs(rig, "train")
        rig.until(lambda: rig.claim()["phase"] == "Ready", "it is Ready")
        rig.advance(61)
        rig.until(lambda: said(rig, "used 1"), "it is seen to work")
        rig.kube("DELETE", "/api/v1/namespaces/default/pods/train")
        rig.advance(61)
        rig.until(lambda: rig.claim().get("idle_since"), "it is seen to be idle")
        rig.advance(IDLE)
        rig.until(lambda: rig.left() == {}, "all is given back")

    result = Looping(rig).while_it_runs(story)
    assert (result["launched"], result["gone"], result["changed"]) == (1, 1, True) and rig.creates() == 1
    assert said(rig, "stopped after")
    rig.check_bill()
    runs_told = {one["run"] for one in rig.events()}
    assert len(runs_told) >= 4, "each look is a run of its own"


def test_S2_08_nothing_is_asked_and_nothing_is_said_while_nothing_happens(rig: Rig) -> None:
    result = rig.run("loop", interval=10, full_interval=60, ticks=3)
    assert (result["looks"], result["skipped_looks"], result["failed_looks"], result["changed"]) == (3, 0, 0, False)
    assert len(rig.lines) == 3, rig.lines  # two pools, and that it ended
    writes = rig.writes()
    began = rig.clock.now()
    rig.run("loop", interval=10, full_interval=60, ticks=3)
    assert rig.writes() == writes
    assert 120 <= (rig.clock.now() - began).total_seconds() < 240


def test_S2_08_a_pod_wakes_it_before_its_time(rig: Rig) -> None:
    def story() -> None:
        rig.until(lambda: said(rig, "machines 0"), "it has looked")
        time.sleep(0.3)
        ask(rig, "train")
        rig.until(lambda: rig.creates() == 1, "a machine is rented")

    Looping(rig, interval=3600, full_interval=100_000).while_it_runs(story)


def test_a_signal_lets_the_look_in_progress_end_and_begins_no_other(rig: Rig) -> None:
    """SIGTERM in the very moment of the create call: the machine's id is recorded, the lock is let go."""
    ask(rig, "train")

    def watch(request: t.Any) -> None:
        if request.url.path.endswith("/launch"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)

    rig.watcher = watch
    threads_before = threading.active_count()
    result = rig.run("loop", interval=1, full_interval=1)
    assert (result["looks"], result["launched"]) == (1, 1) and rig.claim()["instance_id"]
    assert rig.plan("autoscale")["outcome"] != "lock_busy"
    assert threading.active_count() <= threads_before + 2


def test_a_second_signal_ends_at_once(rig: Rig) -> None:
    class Ended(BaseException):
        pass

    def end(_number: int, _frame: t.Any) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    ask(rig, "train")

    def watch(request: t.Any) -> None:
        if request.url.path.endswith("/coordination.k8s.io/v1/namespaces/tgp-system/leases"):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    rig.watcher = watch
    try:
        with pytest.raises(Ended):
            rig.run("loop", interval=1, full_interval=1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rig.creates() == 0


def test_while_another_run_is_at_work_it_skips_and_says_so_once(rig: Rig) -> None:
    other = rig.plan("provision", pools=["training"], nodes=0)
    ask(rig, "train")
    result = rig.run("loop", interval=5, full_interval=5, ticks=3)
    assert result["skipped_looks"] == 3 and len(said(rig, "skipped")) == 1 and rig.creates() == 0
    rig.unlock(other["run_id"])
    assert rig.run("loop", interval=5, full_interval=5, ticks=1)["launched"] == 1


def test_S2_15_while_the_cluster_cannot_be_reached_it_keeps_its_hands_still_and_says_since_when(rig: Rig) -> None:
    def story() -> None:
        rig.until(lambda: said(rig, "machines 0"), "it has looked")
        rig.fault("lost_before", "kubernetes", times=100_000)
        rig.until(lambda: said(rig, "cannot look, and does nothing until it can"), "it is told")
        writes = rig.writes()
        rig.advance(310)
        rig.until(lambda: said(rig, "cannot look since"), "it is told again")
        assert rig.writes() == writes
        rig.faults.clear()
        rig.until(lambda: said(rig, "can look again after"), "it goes on")
        ask(rig, "train")
        rig.until(lambda: rig.creates() == 1, "a machine is rented")

    result = Looping(rig).while_it_runs(story)
    assert result["failed_looks"] >= 2 and result["launched"] == 1
    assert len(said(rig, "cannot look, and does nothing until it can")) == 1


def test_faulty_documents_stop_no_look(rig: Rig) -> None:
    rig.training["disruption"] = {"consolidateAfter": "soon"}
    result = rig.run("loop", ticks=1)
    assert (result["looks"], result["failed_looks"], result["launched"]) == (1, 0, 0) and said(rig, "consolidateAfter")


def test_documents_that_become_faulty_stop_nothing_but_launches_of_their_pool(rig: Rig) -> None:
    def story() -> None:
        rig.until(lambda: said(rig, "machines 0"), "it has looked")
        rig.training["disruption"] = {"consolidateAfter": "soon"}
        rig.advance(61)
        rig.until(lambda: said(rig, "consolidateAfter"), "it is told")

    Looping(rig, documents=rig.documents).while_it_runs(story)
    assert not said(rig, "cannot look")


@pytest.mark.parametrize("name", ["interval", "full_interval"])
def test_times_are_checked(rig: Rig, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is 0"):
        rig.run("loop", **{name: 0})


def test_I14_check_mode_looks_once_and_writes_nothing(rig: Rig) -> None:
    ask(rig, "train")
    before = rig.writes()
    result = rig.run("loop", check=True)
    assert rig.writes() == before and len(result["launch"]) == 1


def test_memory_stays_flat(rig: Rig) -> None:
    """What our code holds after seventy looks is what it held after ten. The sandbox beside it remembers what it was asked, which keeps
    a few short texts of ours alive."""

    def held() -> int:
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/plugins/module_utils/*")])
        return sum(one.size for one in snapshot.statistics("filename"))

    def look(times: int) -> None:
        assert rig.run("loop", interval=1, full_interval=1, ticks=times)["looks"] == times

    look(10)
    tracemalloc.start()
    try:
        look(10)
        before = held()
        look(60)
        assert held() - before < 60 * 1000
    finally:
        tracemalloc.stop()


def test_secrets_of_long_ago_are_forgotten_and_those_in_use_are_not() -> None:
    redact.register("hourly-token-0123456789", "lasting-key-0123456789")
    for _look in range(9):
        redact.begin_generation()
        redact.register("lasting-key-0123456789")
    assert redact.redact("hourly-token-0123456789 lasting-key-0123456789") == f"{redact.MASK} {redact.MASK}"
    redact.begin_generation()
    assert redact.redact("hourly-token-0123456789 lasting-key-0123456789") == f"hourly-token-0123456789 {redact.MASK}"


def test_L16_a_look_that_only_tidies_up_rents_nothing_that_its_plan_refused(rig: Rig) -> None:
    """A killed run left a claim that waits for its machine, and a token that no claim knows. No budget bears the machine."""
    rig.training["minNodes"] = 1
    killed_before_the_note(rig)
    spent = {"period": "day", "amount": "0.01", "time_zone": "UTC", "soft_percent": 80, "action": "stop_launch"}
    for pause in (900, 120):
        rig.advance(pause)
        looked = rig.run("loop", interval=10, full_interval=60, ticks=1, budget=spent)
        assert (looked["looks"], looked["launched"]) == (1, 0)
    assert rig.tokens() == [] and rig.creates() == 0
    assert rig.claim()["phase"] == "Pending"
    rig.run("loop", interval=10, full_interval=60, ticks=1)
    assert rig.creates() == 1
