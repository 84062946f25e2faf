# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``kill -9`` at every write that a run sends, then another run: no machine is lost, none is there twice.

The n-th write of a run is made to hang, before or after its effect; while it hangs, the whole run is killed. A run that is over before
its n-th write ends the loop.
"""

from __future__ import annotations

import collections
import dataclasses
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.demo import demo_documents

from .box import NOTHING, Run, Sandbox, by_name

WRITES = r"^(?!.*(oauth/token|accessreviews|acl/validate))"  # asking by POST is no write
WINDOW = 11 * 60  # a create call whose answer is lost may show its effect for ten minutes; a pool that grew rests as long
HANGS = 3600.0


def documents(pool: str = "training") -> list[dict[str, t.Any]]:
    """One machine, which goes as soon as nobody uses it. It may take its time: here hours pass between two runs."""
    found = [one for one in demo_documents() if one["kind"] == "GPUNodeClass" or one["metadata"]["name"] == pool]
    spec = by_name(found, "GPUNodePool", pool)["spec"]
    spec["disruption"] = {"consolidateAfter": "0s", "minAge": "0s"}
    spec["registrationTimeout"] = "12h"
    return found


@dataclasses.dataclass
class Cuts:
    """All writes of one kind of run, one after another: the number of the next cut, until runs end without it."""

    left: list[str]
    number: int = 0
    made: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def rule(self, kind: str) -> dict[str, t.Any] | None:
        if not self.left:
            return None
        return {"kind": kind, "method": self.left[0], "path": WRITES, "after_calls": self.number, "seconds": HANGS}

    def note(self, hit: bool) -> None:
        if hit:
            self.made[self.left[0]] += 1
            self.number += 1
        elif self.left:
            self.left.pop(0)
            self.number = 0


def killed(sandbox: Sandbox, name: str, rule: dict[str, t.Any] | None, **more: t.Any) -> bool:
    """Run a playbook and kill it when the rule strikes; False when it ended by itself."""
    if rule is None:
        sandbox.playbook(name, **more).succeeded()
        return False
    sandbox.faults(rule)
    run = sandbox.begin(*sandbox.arguments(name, **more))
    hit = wait_for_hit(sandbox, run)
    if hit:
        run.kill()
    else:
        run.finish().succeeded()
    sandbox.clear_faults()
    return hit


def wait_for_hit(sandbox: Sandbox, run: Run) -> bool:
    end = time.monotonic() + 300
    while not sandbox.hits():
        if run.ended:
            return sandbox.hits() > 0
        assert time.monotonic() < end, "the run neither ended nor came to the cut"
        time.sleep(0.01)
    return True


def machines(sandbox: Sandbox) -> dict[str, list[str]]:
    """Ids of the living machines by name."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for one in sandbox.living():
        found[one["name"]].append(one["id"])
    return found


def provisioned(sandbox: Sandbox) -> bool:
    return [one["phase"] for one in sandbox.claims().values()] == ["Ready"]


def go_on(sandbox: Sandbox, name: str, pool: str, done: t.Callable[[], bool], what: str) -> None:
    """Run the playbook again until it is done: at once, and where a lost answer is open, once more after its time."""
    for turn in range(4):
        if turn:
            sandbox.advance(WINDOW)
        result = sandbox.playbook(name, documents=documents(pool))
        if result.rc == 0 and done():
            return
    raise AssertionError(f"{what}: not after four runs of {name}.yml\n{result.text}\n{sandbox.left()} {sandbox.claims()}")


def check_provisioned(sandbox: Sandbox, what: str) -> str:
    """Exactly one machine, one claim for it, one usable node; returns its name."""
    found, claims = machines(sandbox), sandbox.claims()
    assert len(claims) == 1, f"{what}: {claims}"
    [(name, claim)] = claims.items()
    assert dict(found) == {name: [claim["instance_id"]]}, what
    assert not claim.get("token_id"), f"{what}: a bootstrap token is left"
    node = sandbox.nodes()[name]
    assert "tgp.io/initializing" not in {one["key"] for one in node["spec"].get("taints", [])}, what
    return name


def empty(sandbox: Sandbox) -> bool:
    return sandbox.left() == NOTHING


def cycle(sandbox: Sandbox, pool: str, kind: str, provision: Cuts, reap: Cuts) -> str:
    """Provision and reap, both cut where it is their turn, both brought to their end; returns the name of the machine there was."""
    rule = provision.rule(kind)
    what = f"provision, {rule and (rule['method'], rule['after_calls'])}, {kind}"
    hit = killed(sandbox, "provision", rule, documents=documents(pool))
    provision.note(hit)
    if hit:
        go_on(sandbox, "provision", pool, lambda: provisioned(sandbox), what)
    name = check_provisioned(sandbox, what)

    sandbox.advance(WINDOW)
    rule = reap.rule(kind)
    what = f"reap, {rule and (rule['method'], rule['after_calls'])}, {kind}"
    hit = killed(sandbox, "reap", rule, documents=documents(pool))
    reap.note(hit)
    if hit or not empty(sandbox):
        go_on(sandbox, "reap", pool, lambda: empty(sandbox), what)
    assert machines(sandbox) == {}, what
    return name


def all_cuts(sandbox: Sandbox, pool: str, kind: str, methods: t.Sequence[str]) -> collections.Counter[str]:
    """Kill at every write of these methods; at the end nothing is left and the ledger knows every machine once. Returns the counts."""
    provision, reap = Cuts(list(methods)), Cuts(list(methods))
    names: list[str] = []
    while provision.left or reap.left:
        names.append(cycle(sandbox, pool, kind, provision, reap))
    assert empty(sandbox), sandbox.left()
    ledger = sandbox.ledger()
    assert sorted(one["name"] for one in ledger) == sorted(names), "one line for each machine that was"
    if pool == "training":
        booked = [number for line in ledger for number in line["ids"]]
        known = [one["id"] for one in sandbox.world()["machines"] if one["cloud"] == "lambda"]
        assert sorted(booked) == sorted(known), "every id is in exactly one line"
    return collections.Counter(provision=sum(provision.made.values()), reap=sum(reap.made.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "kind", "lanes", "least"),
    [
        ("training", "hang_after", (("PUT",), ("POST", "PATCH", "DELETE")), {"provision": 15, "reap": 12}),
        ("training", "hang", (("POST",), ("DELETE",)), {"provision": 5, "reap": 4}),
        ("own", "hang_after", (("POST",), ("DELETE",)), {"provision": 5, "reap": 2}),
    ],
    ids=["rented-after-the-effect", "rented-before-the-effect", "own-after-the-effect"],
)
def test_killed_at_every_write(
    start: t.Callable[..., Sandbox], pool: str, kind: str, lanes: tuple[tuple[str, ...], ...], least: dict[str, int]
) -> None:
    """Killed after the effect of write n or before that of n + 1 is the same world, so only what creates and deletes is cut twice."""
    sandboxes = [start(speed=150) for _lane in lanes]
    with ThreadPoolExecutor(len(lanes)) as pool_of_lanes:
        counts = pool_of_lanes.map(lambda pair: all_cuts(pair[0], pool, kind, pair[1]), zip(sandboxes, lanes, strict=True))
        made = sum(counts, collections.Counter())
    for one in sandboxes:
        one.close()
    print(f"\ncuts: {dict(made)}")
    assert all(made[name] >= number for name, number in least.items()), made


@pytest.mark.parametrize(
    "path", ["/tailnet/-/keys", "/instance-operations/launch"], ids=["before-the-create-call", "at-the-create-call"]
)
def test_a_worker_that_outlives_its_playbook_does_no_harm(start: t.Callable[..., Sandbox], path: str) -> None:
    """Only the playbook's main process is killed. Its worker goes on for a while, beside the next run, which must not rent twice."""
    sandbox = start(speed=100)
    sandbox.faults({"kind": "delay", "method": "POST", "path": path, "seconds": 400})
    run = sandbox.begin(*sandbox.arguments("provision", documents=documents(), extra_vars={"pool": "training"}))
    assert wait_for_hit(sandbox, run)
    workers = run.kill_parent()
    assert workers, "Ansible works in processes of their own"
    sandbox.clear_faults()
    sandbox.playbook("provision", documents=documents(), extra_vars={"pool": "training"})
    sandbox.pass_time(450)  # whatever the worker still does is done now
    sandbox.advance(WINDOW)
    sandbox.playbook("provision", documents=documents(), extra_vars={"pool": "training"}).succeeded()
    found, claims = machines(sandbox), sandbox.claims()
    assert {name: len(ids) for name, ids in found.items()} == dict.fromkeys(claims, 1)
    assert [claim["phase"] for claim in claims.values()] == ["Ready"]
    sandbox.playbook("destroy", documents=documents(), extra_vars={"everything": True}).succeeded()
    assert machines(sandbox) == {}
