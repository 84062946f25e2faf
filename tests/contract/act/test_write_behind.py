# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed of a machine that joins is written with the next write of its claim, and is not lost (L-2)."""

from __future__ import annotations

import dataclasses
import json
import threading
import types
import typing as t
from datetime import datetime

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LockLost, ServerError, TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.operations.join.claim_writes import ClaimWrites
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims import write_behind

from tests.unit.fleet.build import NOON, at, claim

from .rig import Rig, moment

Build = t.Callable[..., Rig]
SLOW = 50.0  # seconds of the world in one of ours: what a busy host adds is little
BOOT = 20
#: usable, or given up, before its facts are due
QUICK = {"speed": 20, "lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 1, "boot": 5}]}
VM = {"gpu": "RTX 3090", "place": "Sweden, SE", "price": "0.20", "vm": True, "boot": BOOT}


class Writes:
    """Every write of a claim: when, and what it says."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.made: list[tuple[datetime, dict[str, t.Any]]] = []
        rig.watcher = self._watch

    def _watch(self, request: httpx.Request) -> None:
        if request.method == "PUT" and "/tgp-claim-" in request.url.path:
            self.made.append((self._rig.clock.now(), json.loads(json.loads(request.content)["data"]["claim.json"])))


def booting(record: dict[str, t.Any]) -> datetime:
    """When the machine was seen to run."""
    return next(moment(line[0]) for line in record["history"] if line[1] == "Booting")


def test_L02_a_quick_boot_costs_one_write_of_its_claim(build: Build) -> None:
    """On a host that is slow at the time its facts become due before, and not earlier."""
    rig = build(**QUICK)
    rig.rent()
    writes = Writes(rig)
    assert rig.join()["machines"][0]["result"] == "ready"
    *others, (_when, record) = writes.made
    assert [when for when, earlier in others if (when - booting(earlier)).total_seconds() < 120] == []
    assert [line[1] for line in record["history"]][-3:] == ["Booting", "Joining", "Ready"]
    assert record["ip"] and record["mesh_device_id"] and record["mesh_seen"] and record["price_paid"]


def test_L02_so_does_a_long_boot(build: Build) -> None:
    """Its address is seen minutes before it runs. What is written before the end is a step that took two minutes on a busy host."""
    rig = build(speed=SLOW, **{"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 1, "boot": 240}]})
    rig.rent()
    writes = Writes(rig)
    assert rig.join()["machines"][0]["result"] == "ready"
    assert [record["phase"] for _when, record in writes.made if record["phase"] == "Provisioning"] == []
    assert writes.made[-1][1]["ip"] and writes.made[-1][1]["price_paid"]


def test_L02_in_a_long_boot_facts_are_written_within_two_minutes(build: Build) -> None:
    rig = build(speed=SLOW)
    rig.training["registrationTimeout"] = "5m"
    rig.behave("mesh_fails")
    rig.rent()
    writes = Writes(rig)
    assert rig.join()["machines"][0]["result"] == "failed"
    when, record = next(made for made in writes.made if made[1]["phase"] == "Booting")
    assert record["ip"] and record["deletion"] is None
    assert (when - moment(record["phase_since"])).total_seconds() < 145
    assert len(writes.made) <= 5


def test_L02_what_the_bill_hangs_on_is_written_at_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other facts would wait for the last write."""
    monkeypatch.setattr(write_behind, "MOST_UNWRITTEN", 3600.0)
    slow = {"packages": 60, "mesh": 2, "csr": 1, "ready": 2, "gpu": 4}  # the cloud is looked at between its start and its Node
    rig = build(speed=SLOW, **{"lambda": [], "machines": [], "vast": {"offers": [VM]}, "timings": slow})
    rig.demo_class["providers"] = [{"name": "vast"}]
    rig.demo_class["instanceRequirements"] = {}
    rig.training.clear()
    rig.training.update({"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "1.00"})
    rig.rent()
    writes = Writes(rig)
    assert rig.join()["machines"][0]["result"] == "ready"
    before_ready = [record for _when, record in writes.made if record["phase"] != "Ready"]
    assert any(record["running_since"] for record in before_ready)


def test_L02_a_run_that_is_killed_with_unwritten_facts_is_completed_by_the_next(build: Build) -> None:
    rig = build(**QUICK)
    rig.rent()
    with rig.killed_at(1, after=False) as cut:  # it would approve the certificate request
        rig.join()
    assert cut.seen and (rig.claim()["phase"], rig.claim()["ip"], rig.claim()["mesh_device_id"]) == ("Provisioning", "", "")
    assert rig.join()["machines"][0]["result"] == "ready"
    record, (device,) = rig.claim(), rig.box.tailnet.devices()
    assert record["ip"] and record["price_paid"] and record["mesh_device_id"] in (device.id, device.node_id)
    rig.destroy()
    assert rig.left() == {} and [line["joined"] for line in rig.ledger()] == [True]
    rig.check_bill()


def test_L11_the_claim_of_a_failed_machine_has_what_was_observed(build: Build) -> None:
    rig = build(**QUICK)
    rig.training["registrationTimeout"] = "20s"
    rig.behave("mesh_fails")
    rig.rent()
    rig.fault("status", "lambda", "POST", "terminate", status=403, times=None)
    assert rig.join()["machines"][0]["result"] == "failed"
    record = rig.claim()
    assert record["deletion"]["reason"] == "FailedJoin" and record["ip"] and record["price_paid"]
    assert {"Booting", "Failed"} <= {line[1] for line in record["history"]}


def test_L02_a_wait_that_is_broken_off_writes_what_it_observed(build: Build) -> None:
    rig = build(**QUICK)
    rig.training["registrationTimeout"] = "20s"
    rig.behave("mesh_fails")
    rig.rent()
    rig.fault("status", "kubernetes", "GET", "/api/v1/nodes", status=403, times=None, after_calls=2)
    with pytest.raises(TgpError):
        rig.join()
    assert (rig.claim()["phase"], rig.claim()["deletion"]) == ("Booting", None) and rig.claim()["ip"]


# ---- the writes alone


class Store:
    """A store of claims; ``before`` is called with each claim that is to be written, and may wait or raise; ``hold_lock`` before it."""

    def __init__(self) -> None:
        self.written: list[Claim] = []
        self.before: t.Callable[[Claim], None] = lambda _claim: None
        self.hold_lock: t.Callable[[], None] = lambda: None

    def write(self, written: Claim) -> Claim:
        self.before(written)
        stored = dataclasses.replace(written, version=f"{written.version}+")
        self.written.append(stored)
        return stored


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def writes(store: Store) -> t.Iterator[ClaimWrites]:
    """Of two claims."""
    context = types.SimpleNamespace(
        store=store,
        clock=types.SimpleNamespace(now=lambda: NOON, speed=1.0),
        records=types.SimpleNamespace(remember=lambda claim: None),
        progress=types.SimpleNamespace(step=lambda *_words, **_facts: None),
    )
    made = ClaimWrites(context, lambda: store.hold_lock())  # type: ignore[arg-type]
    for name in ("tgp-1", "tgp-2"):
        made.add(claim(name, Phase.BOOTING))
    yield made
    made.close()


def seen_at(ip: str) -> t.Callable[[Claim], Claim]:
    return lambda one: dataclasses.replace(one, ip=ip)


def test_L08_without_the_lock_nothing_is_written(store: Store, writes: ClaimWrites) -> None:
    def lost() -> None:
        raise LockLost("taken")

    store.hold_lock = lost
    writes.note("tgp-1", seen_at("192.0.2.1"))
    with pytest.raises(LockLost):
        writes.flush()
    assert store.written == [] and writes.claims["tgp-1"].ip == "192.0.2.1"


def test_L02_a_slow_write_holds_up_nothing_and_loses_nothing_that_is_noted_meanwhile(store: Store, writes: ClaimWrites) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(one: Claim) -> None:
        if one.name == "tgp-1":
            begun.set()
            assert go_on.wait(60)

    store.before = slow
    writing = threading.Thread(target=writes.write, args=("tgp-1", lambda one: dataclasses.replace(one, token_id="")))
    writing.start()
    assert begun.wait(60)
    writes.note("tgp-1", seen_at("192.0.2.1"))
    writes.note("tgp-2", seen_at("192.0.2.2"))
    writes.write("tgp-2", lambda one: one)
    assert [(one.name, one.ip) for one in store.written] == [("tgp-2", "192.0.2.2")]
    go_on.set()
    writing.join()
    assert [one.ip for one in store.written] == ["192.0.2.2", ""] and writes.claims["tgp-1"].ip == "192.0.2.1"
    writes.flush()
    assert (store.written[-1].ip, store.written[-1].version) == ("192.0.2.1", "++")


def test_L02_a_write_that_failed_is_tried_again(store: Store, writes: ClaimWrites) -> None:
    def refuse(_claim: Claim) -> None:
        raise ServerError("not now", service="kubernetes", status=503)

    store.before = refuse
    writes.note("tgp-1", lambda one: dataclasses.replace(one, running_since=at("11:01")))  # at once
    assert store.written == [] and writes.claims["tgp-1"].running_since == at("11:01")
    store.before = lambda _claim: None
    writes.flush()
    assert [one.running_since for one in store.written] == [at("11:01")]


def test_L10_what_is_terminated_is_noted_no_more(store: Store, writes: ClaimWrites) -> None:
    writes.note("tgp-1", seen_at("192.0.2.1"))
    writes.leave(["tgp-1"])
    writes.note("tgp-1", seen_at("192.0.2.9"))
    writes.flush()
    assert store.written == []
    writes.write("tgp-1", lambda one: one)
    assert [one.ip for one in store.written] == ["192.0.2.1"]
