# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan called an orphan is looked at once more before it goes: the plan may be minutes old, and the lock another run's (L-12, L-8)."""

from __future__ import annotations

import copy
import types
import typing as t
from datetime import datetime, timedelta, timezone

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LockLost, TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.model import Attempt, Instance, InstanceState
from ansible_collections.tgp.gpu.plugins.module_utils.observe.clients import Listing
from ansible_collections.tgp.gpu.plugins.module_utils.operations.launch import launch
from ansible_collections.tgp.gpu.plugins.module_utils.operations.teardown import duplicate_instances, end_of_bill, teardown

from sandbox.world import Machine
from tests.unit.fleet.build import at, claim

from .rig import Rig

LEFT = "kept"


def orphan(kind: str, name: str, target: str, *, uid: str = "", cloud: str = "lambda") -> dict[str, str]:
    return {"kind": f"delete_{kind}", "name": name, "target": target, "uid": uid, "reason": "Orphan", "cloud": cloud}


def told(rig: Rig, *orphans: dict[str, str]) -> list[tuple[str, str]]:
    """What became of each: result, and the first words of why."""
    done = rig.run("teardown", "x", only_named=True, orphans=list(orphans))
    rig.unlock("x")
    return [(one["result"], one["message"].partition(": ")[2].partition(":")[0]) for one in done["machines"]]


def test_L12_O7_a_node_goes_only_while_it_is_the_one_that_was_found(rig: Rig) -> None:
    rig.provision()
    name = rig.machine().name
    alive = rig.nodes()[name]["metadata"]["uid"]
    dead = rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": f"{name[:-5]}00000"}})["metadata"]
    assert told(rig, orphan("node", name, name, uid=alive)) == [("left", LEFT)], "it came back to life"
    assert told(rig, orphan("node", name, dead["name"], uid=alive)) == [("left", LEFT)], "it is another Node"
    assert sorted(rig.nodes()) == sorted([name, dead["name"]])
    assert told(rig, orphan("node", name, dead["name"], uid=dead["uid"])) == [("removed", "Orphan")]
    assert list(rig.nodes()) == [name]


def test_L12_O11_a_second_machine_goes_only_while_it_is_ours_and_no_claim_s_own(rig: Rig) -> None:
    rig.rent()
    own = rig.machine()
    details = {**copy.deepcopy(own.details), "addresses": ("198.18.7.1", "10.19.7.1"), "tags": []}
    stranger = rig.world.rent(Machine("f" * 32, "lambda", own.name, own.name, own.offer, rig.clock.now(), details=details))
    for target in (own.id, stranger.id):
        assert told(rig, orphan("instance", own.name, target)) == [("left", LEFT)]
    assert len(rig.machines()) == 2


def test_L12_O16_what_is_beside_a_machine_stays_while_its_claim_does(rig: Rig) -> None:
    rig.rent()
    assert told(rig, orphan("extra", rig.machine().name, "script-1", uid="startup-script")) == [("left", LEFT)]


def test_L08_a_lost_lock_ends_the_step_before_an_orphan_goes(rig: Rig) -> None:
    rig.provision()
    name = rig.machine().name
    nodes = [rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": f"{name[:-5]}0000{number}"}})["metadata"] for number in (1, 2)]
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{rig.cluster_id}"
    plan = rig.plan("reap")

    def steal(request: httpx.Request) -> None:
        if request.method == "DELETE" and "/nodes/" in request.url.path and not stolen:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))
            rig.advance(10)

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.run("teardown", plan["run_id"], orphans=[orphan("node", name, one["name"], uid=one["uid"]) for one in nodes])
    assert stolen and sorted(rig.nodes()) == sorted([name, nodes[1]["name"]])


def test_L08_a_second_machine_is_given_back_only_under_the_lock() -> None:
    """Also by a launch that finds it, which has asked for the lock long before."""

    def lost() -> None:
        raise LockLost("another run has it")

    ended: list[str] = []
    cloud = types.SimpleNamespace(terminate=ended.append)
    clients = types.SimpleNamespace(cloud=lambda _name: cloud)
    context = types.SimpleNamespace(lock=types.SimpleNamespace(confirm=lost), clients=clients)
    with pytest.raises(LockLost):
        duplicate_instances.give_back(context, None, Instance("lambda", "i-2", "tgp-x", InstanceState.RUNNING))  # type: ignore[arg-type]
    assert ended == []


def stand_in(*looks: Instance | None) -> types.SimpleNamespace:
    """A run whose cloud lists nothing and shows, by its id, what is in ``looks``, the last of it for ever."""
    seen, seconds = list(looks), [0.0]

    def instance(_identity: str) -> Instance | None:
        return seen.pop(0) if len(seen) > 1 else seen[0]

    def sleep(pause: float) -> None:
        seconds[0] += pause

    def now() -> datetime:
        return datetime.fromtimestamp(seconds[0], timezone.utc)

    return types.SimpleNamespace(
        clients=types.SimpleNamespace(
            cloud=lambda _name: types.SimpleNamespace(instance=instance, terminate=lambda _identity: None),
            instances=lambda _name: (),
        ),
        clock=types.SimpleNamespace(now=now, sleep=sleep),
        clocks=types.SimpleNamespace(billed_now=now),
        lock=types.SimpleNamespace(confirm=lambda: None),
    )


def test_L14_what_a_refused_call_left_behind_is_gone_when_its_cloud_says_so() -> None:
    alive = Instance("vast", "1", "tgp-x", InstanceState.RUNNING)
    attempt = Attempt(datetime(2026, 1, 1, tzinfo=timezone.utc), "vast/1", "refused", "bid", "", "1")
    claim = types.SimpleNamespace(name="tgp-x")
    with pytest.raises(TgpError, match="does not yet say that 1"):
        duplicate_instances._give_back_rejected(stand_in(alive), claim, attempt)  # type: ignore[arg-type]


@pytest.mark.parametrize(("look", "gone"), [(None, True), (InstanceState.TERMINATED, True), (InstanceState.RUNNING, False)])
def test_L2a_lists_that_miss_a_machine_are_not_believed_while_its_id_shows_it(look: InstanceState | None, gone: bool) -> None:
    context = stand_in(None if look is None else Instance("vast", "1", "tgp-x", look))
    times = [datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc) for second in (0, 40)]
    context.clients.listing = lambda _name: Listing((), asked := times.pop(0), asked + timedelta(seconds=5))
    named = types.SimpleNamespace(cloud="vast", gone_since=None)
    work = types.SimpleNamespace(context=context, claim=named, _missing={}, _absent={})
    is_gone = t.cast("t.Callable[..., bool]", teardown._Teardown._is_gone)
    assert is_gone(work, context.clients.cloud("vast"), "1") is (look is InstanceState.TERMINATED), "one list alone"
    assert is_gone(work, context.clients.cloud("vast"), "1") is gone
    if gone:
        assert work._absent == {"1": datetime(2026, 1, 1, 12, 0, 5, tzinfo=timezone.utc)}, "it may have lived until the answer"


@pytest.mark.parametrize(
    ("state", "billed"), [(InstanceState.RUNNING, True), (InstanceState.PENDING, True), (InstanceState.FAILED, False)]
)
def test_L16_a_list_that_calls_a_machine_failed_does_not_say_that_it_is_billed(state: InstanceState, billed: bool) -> None:
    """Lambda lists a machine that it has taken back (preempted)."""
    rented = claim(deletion=None, launch_started=at("11:00"), initialized=at("11:10"), instance_id="1")
    context = stand_in()
    context.clocks.billed = lambda moment: moment
    context.clients.listing = lambda _name: Listing((Instance("lambda", "1", rented.name, state),), at("11:59:50"), at("11:59:51"))
    assert end_of_bill.shown_at(context, rented) == (at("11:59:50") if billed else at("11:10"))  # type: ignore[arg-type]
    running = state is InstanceState.RUNNING
    assert end_of_bill.seen_running(context, rented) == (at("11:59:50") if running else None)  # type: ignore[arg-type]


def test_L1a_a_machine_of_somebody_else_is_not_ended_for_a_claim_that_knows_it() -> None:
    """A copy of the records, as a restored backup has it."""
    theirs = Instance("vast", "1", "tgp-x", InstanceState.RUNNING)
    context = types.SimpleNamespace(
        clients=types.SimpleNamespace(instances=lambda _name: [theirs]),
        records=types.SimpleNamespace(
            is_ours=lambda one: one is not theirs, owner=lambda _one: types.SimpleNamespace(why="is not ours")
        ),
    )
    work = types.SimpleNamespace(context=context, claim=types.SimpleNamespace(cloud="vast"))
    refuse = t.cast("t.Callable[..., None]", teardown._Teardown._refuse_foreign)
    with pytest.raises(TgpError, match="vast 1 is not ours: it is not terminated"):
        refuse(work, ("1", "2"))
    refuse(work, ("2",))


def test_L14_what_a_refused_call_left_behind_is_not_found_after_a_lost_answer() -> None:
    """Its end was asked for, and a list that lags still shows it: the claim must not go on with it."""
    refused, made = (Instance("vast", identity, "tgp-x", InstanceState.RUNNING) for identity in ("1", "2"))
    listed = [refused, made]
    context = types.SimpleNamespace(
        clients=types.SimpleNamespace(instances_since=lambda _name, _since: listed),
        records=types.SimpleNamespace(is_ours=lambda _one: True),
        clock=types.SimpleNamespace(now=lambda: None),
    )
    claim = types.SimpleNamespace(cloud="vast", name="tgp-x", rejects={"1"}, unknown_since=None)
    work = types.SimpleNamespace(context=context, claim=claim)
    find = t.cast("t.Callable[[t.Any], list[Instance]]", launch._Launch._find)
    listed[:] = [refused]
    assert find(work) == []
    listed[:] = [refused, made]
    assert find(work) == [made]


def test_L10_another_node_of_the_machine_s_name_is_left_alone(rig: Rig) -> None:
    """One that took the name after the plan had read the Nodes."""
    rig.provision()
    name = rig.machine().name
    plan = rig.plan("destroy", all=True)
    rig.kube("DELETE", f"/api/v1/nodes/{name}")
    other = rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}})["metadata"]["uid"]
    rig.pod(name)
    (row,) = rig.run("teardown", plan["run_id"])["machines"]
    assert (row["result"], rig.machines()) == ("gone", [])
    assert rig.nodes()[name]["metadata"]["uid"] == other
    assert rig.kube("GET", "/api/v1/namespaces/default/pods/job")["status"]["phase"] == "Running"
