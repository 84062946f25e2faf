# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is special about a ground reaches the runs, and its invariants fail on broken code like those of every other ground."""

from __future__ import annotations

import dataclasses
import json
import random
import types
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.operations import talos_image
from ansible_collections.tgp.gpu.plugins.module_utils.operations.launch import wireguard_peers
from ansible_collections.tgp.gpu.plugins.module_utils.operations.teardown import teardown
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import drain_rules, emptiness
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import orphans
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import mig_profiles
from ansible_collections.tgp.gpu.plugins.module_utils.providers import disk_images
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.cloud import GcpCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.images import GcpImages
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.runs import loop

from sandbox.faults import Fault
from sandbox.gcp_account import Account as GcpAccount
from sandbox.gcp_account import Address

from . import hub, invariants, own, reasons, steps
from .grounds import NAMED
from .moving import RENAMED
from .sight import Call, Run
from .stage import Stage
from .story import Story, Sum, Violated
from .test_bites import _book_half

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def played(ground: str, *lines: str) -> Sum:
    """What a story came to."""
    return Story(ground, "own", lines).play()


# ---- faults


def calls_of(ground: str, *lines: str) -> set[tuple[str, str, str]]:
    """Service, method, and path with query of each call that a fault could have met."""
    seen = set[tuple[str, str, str]]()

    def watch(stage: Stage) -> None:
        strike = stage.faults.strike

        def watched(service: str, method: str, path: str) -> Fault | None:
            seen.add((service, method, path))
            return strike(service, method, path)

        stage.faults.strike = watched  # type: ignore[method-assign]

    Story(ground, "own", lines).play(sabotage=watch, to_rest=False)
    return seen


@pytest.mark.parametrize(
    "ground",
    ["directory", "gcp", "headscale", "headscale-v1", "lambda", "own", "paperspace", "runpod", "vast", "vultr", "wireguard"],
)
def test_a_drawn_fault_can_meet_a_call_of_its_ground(ground: str) -> None:
    """An expression that fits no call strikes never, and every story passes. What the cluster is asked is the same on each ground but one."""
    drawn = [json.loads(steps.fault(NAMED[ground], random.Random(number)).removeprefix("fault ")) for number in range(800)]
    aims = {
        (rule["service"], rule["method"], rule["path"]) for rule in drawn if rule["service"] != "kubernetes" or ground == "lambda"
    }
    waiting = () if NAMED[ground].pool else ("demand 1", "run autoscale")
    seen = calls_of(ground, *waiting, "run provision nodes=1", "rest 70", "run destroy", "rest 660", "run reap")
    assert len(aims) > 4
    missed = [aim for aim in sorted(aims) if not any(Fault("status", *aim).meets(*call) for call in seen)]
    assert not missed, missed


# ---- records in files


def test_records_in_files_are_read_damaged_and_removed() -> None:
    lines = ("run provision nodes=2", "record damaged 0", "run reap", "forget 1", "rest 70", "run reap")
    changed = played("directory", *lines).changed
    assert changed["directory store"] >= 2 and changed["damaged record"] >= 1


def test_a_write_to_the_folder_can_fail_and_can_be_the_last() -> None:
    fault = 'fault {"service": "directory", "method": "PUT", "path": "/claims/", "kind": "status", "status": 500, "times": 1}'
    total = played("directory", fault, "run provision nodes=1", "run provision nodes=1 kill=9", "rest 660")
    assert (total.faults, total.kills) == (1, 1)


def test_a_story_fails_when_half_the_bill_is_booked_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    _book_half(monkeypatch)
    with pytest.raises(Violated, match="^I-13:"):
        played("directory", "run provision nodes=1", "rest 1900", "run destroy")


# ---- headscale


@pytest.mark.parametrize(("ground", "calls"), [
    ("headscale", ("POST /api/v2/tailnet/-/keys", "DELETE /api/v2/device/")),
    ("headscale-v1", ("POST /api/v1/preauthkey", "DELETE /api/v1/node/")),
])  # fmt: skip
def test_a_headscale_is_spoken_to_in_its_own_words(ground: str, calls: tuple[str, str]) -> None:
    stages: list[Stage] = []
    total = Story(ground, "own", ("run provision nodes=1", "rest 70", "run destroy")).play(sabotage=stages.append)
    assert total.changed["headscale"] >= 2
    for one in calls:
        assert [what for what in stages[0].writes() if f"tailscale {one}" in what], one


def test_I03_sees_a_device_that_goes_in_both_apis() -> None:
    for path in ("/api/v2/device/", "/api/v1/node/"):
        call = Call(Run("r", "reap"), "tailscale", "DELETE", f"{path}7", "", writes=True)
        assert call.device() == "7" and not dataclasses.replace(call, service="vast").device()
        assert Call(
            Run("r", "reap"), "tailscale", "GET", path.rstrip("/") if "v1" in path else "/api/v2/tailnet/-/devices", "", False
        ).lists()


# ---- WireGuard


def test_I20_catches_a_hub_that_forgets_a_machine_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("min 1", "run provision nodes=1", "jump 700", "forget 0", "run reap")
    assert played("wireguard", *lines).changed["WireGuard"] >= 2
    monkeypatch.setattr(wireguard_peers, "_lost_its_peer", lambda *_given: False)
    with pytest.raises(Violated, match="^I-20: the hub no longer knows .*, which works"):
        played("wireguard", *lines)


def test_a_hub_that_cannot_be_reached_ends_the_run() -> None:
    said: list[str] = []
    fault = 'fault {"service": "hub", "kind": "lost_before", "times": 1}'
    Story("wireguard", "own", (fault, "run provision nodes=1", "run provision nodes=1")).play(said.append)
    assert "hub-1 cannot be reached" in said[0] and said[1].endswith(": ok ")


def test_I12_knows_the_private_key_of_each_tunnel() -> None:
    stages: list[Stage] = []
    Story("wireguard", "own", ("run provision nodes=1",)).play(sabotage=stages.append)
    keys = {hub.private_key(one) for one in stages[0].sight.made()}
    assert keys and "" not in keys and keys <= stages[0].sight.secrets()
    text = json.dumps({"peer": keys.pop()})
    call = Call(Run("r", "reap"), "kubernetes", "PUT", "/api/v1/namespaces/tgp-system/configmaps/c", text, writes=True)
    assert invariants.I12_no_secret_is_written(stages[0].sight, call)


# ---- loop mode


def test_a_loop_rents_and_gives_back_look_by_look() -> None:
    total = played("lambda", "demand 1", "run loop looks=4", "done", "run loop looks=6", "run loop looks=3 kill=20")
    assert total.changed["loop mode"] >= 1 and total.kills == 1


def test_I03_counts_what_this_look_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look but the first begins as if nothing had been read."""
    stages: list[Stage] = []
    seen: list[set[str]] = []
    plain = loop.plan_run

    def watched(task: t.Any) -> dict[str, t.Any]:
        seen.append(set(next(one for one in stages[0].run_of.values() if one.mode == "loop").good))
        return plain(task)

    monkeypatch.setattr(loop, "plan_run", watched)
    Story("lambda", "own", ("run loop looks=3",)).play(sabotage=stages.append)
    assert seen == [set(), set(), set()]


# ---- own machines


@pytest.mark.parametrize(("ground", "payload", "mark"), [
    ("own", "#cloud-config\n", "own machines"), ("own-talos", "version: v1alpha1", "lane talos"),
])  # fmt: skip
def test_own_machines_are_switched_on_become_nodes_and_are_switched_off(ground: str, payload: str, mark: str) -> None:
    stages: list[Stage] = []
    total = Story(ground, "own", ("run provision nodes=2", "rest 70", "hand 0", "run destroy")).play(sabotage=stages.append)
    (one, *_more) = stages[0].sight.made()
    assert payload in (one.payload or "") and total.changed[mark] >= 2 and total.made >= 2
    assert stages[0].world.machines[own.IN_USE].state == "on"


def test_I03_and_I01_know_own_machines() -> None:
    stages: list[Stage] = []

    def beside(stage: Stage) -> None:
        stages.append(stage)
        for name in own.NAMES:
            stage.world.power_on(stage.world.machines[name])

    with pytest.raises(Violated, match="^I-1: 4 machines"):
        Story("own", "own", ("limits 2 10.00 8", "run reap")).play(sabotage=beside)
    for name in ("rack-1", own.IN_USE):
        call = Call(Run("r", "reap"), "webhook", "POST", f"/{name}/stop", "{}", writes=True)
        assert call.destroys() and "no claim names it" in invariants.I03_only_ours_ends(stages[0].sight, call), name


def test_I20_catches_the_adoption_of_a_machine_that_its_owner_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    played("own", "run reap")
    monkeypatch.setattr(orphans, "_case", lambda *_given: "O2")
    with pytest.raises(Violated, match="^I-20: machine rack-9 .* is adopted"):
        played("own", "run reap")


@pytest.mark.parametrize("ground", ["own", "own-talos"])
def test_I20_excuses_a_webhook_that_calls_a_running_machine_off(ground: str) -> None:
    """Its owner switches it on, and every look at it has the answer of the hour before: a run takes it over."""
    old = 'fault {"service": "webhook", "method": "GET", "path": "/status$", "kind": "stale", "times": 4}'
    first = ("run provision nodes=1", "rest 70", "run destroy", "rest 70", "run reap")
    stages: list[Stage] = []
    Story(ground, "own", (*first, "hand 0", old, "run provision nodes=2", "rest 70", "run reap")).play(sabotage=stages.append)
    assert "rack-1" in stages[0].sight.unbooked and "rack-1" not in stages[0].sight.foreign


def test_I17_catches_work_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (emptiness, drain_rules):
        monkeypatch.setattr(module, "counts", lambda *_given: False)
    with pytest.raises(Violated, match="I-17: "):
        played("own", "run provision nodes=1", "pod 0 busy", *("rest 660", "run reap") * 3)


def test_I10_catches_a_machine_that_is_never_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebhookCloud, "terminate", lambda *_given: None)
    with pytest.raises(Violated, match="^I-10: left: .*1 instances"):
        played("own", "run provision nodes=1")


def test_I13_adds_up_the_lines_of_an_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = teardown.ledger_line

    def halved(*args: t.Any, **kwargs: t.Any) -> dict[str, t.Any]:
        line = plain(*args, **kwargs)
        return {**line, "cost": str(Decimal(line["cost"]) / 2)}

    lines = ("run provision nodes=1", "rest 1900", "run destroy", "rest 70", "run provision nodes=1", "rest 1900", "run destroy")
    played("own", *lines)
    monkeypatch.setattr(teardown, "ledger_line", halved)
    with pytest.raises(Violated, match="^I-13: rack-1 is booked"):
        played("own", *lines)


def test_I40_judges_when_the_node_of_a_stopped_machine_goes() -> None:
    stages: list[Stage] = []
    stopped = ("change deleteStoppedAfter 20m", "run provision nodes=1", "rest 70", "run destroy", "rest 120", "run reap")
    Story("own", "own", (*stopped, "rest 1300", "run reap", "run reap")).play(to_rest=False, sabotage=stages.append)
    sight = stages[0].sight
    assert "rack-1" not in sight.nodes()
    machine = stages[0].world.machines["rack-1"]
    call = Call(Run("r", "reap"), "kubernetes", "DELETE", "/api/v1/nodes/rack-1", "", writes=True)
    judged = own.I40_the_node_of_a_stopped_machine_waits
    assert not judged(sight, call)
    machine.ended = sight.now - timedelta(minutes=17)
    assert "which is before 0:20:00" in judged(sight, call)
    stages[0].training["disruption"].pop("deleteStoppedAfter")
    assert "its pool has no deleteStoppedAfter" in judged(sight, call)
    stages[0].training["disruption"]["deleteStoppedAfter"] = "20m"
    machine.ended, machine.state = None, "on"
    assert "the machine is on" in judged(sight, call)


# ---- what the world says


@pytest.mark.parametrize(
    ("cordoned", "work", "wrong"), [(False, [], True), (True, [], False), (True, [{}], True)], ids=["open", "cordoned", "at work"]
)
def test_I18_a_complete_node_that_takes_no_pods_has_failed_to_join(cordoned: bool, work: list[t.Any], wrong: bool) -> None:
    machine = types.SimpleNamespace(ended=None, state="active", details={}, name="n", id="i", created=NOON - timedelta(hours=3))
    sight = types.SimpleNamespace(
        moved=types.SimpleNamespace(is_moved=lambda _id: False), now=NOON, tested_since=None, pulls_since=None, work=lambda _n: work,
        is_node=lambda _one: True, is_complete=lambda _one: True, is_cordoned=lambda _name: cordoned,
    )  # fmt: skip
    assert bool(reasons._failed_join(t.cast(t.Any, sight), t.cast(t.Any, machine))) is wrong


# ---- images of Talos that runs make (L-56)

TRAPPED: dict[str, tuple[str, ...]] = {
    "Never, and it is there": ("images Never there", "run provision nodes=1"),
    "Never, and a person removes it between runs": (
        "images Never there", "run provision nodes=1", "import removed", "run provision nodes=2", "rest 70", "run reap",
    ),
    "missing at first": ("images IfMissing", "run provision nodes=1", "rest 70", "run provision nodes=2"),
    "another one in each run that launches": ("images Always", "run provision nodes=1", "run provision nodes=2"),
    "the first import fails": ("images IfMissing", "import once", "run provision nodes=1"),
    "each import fails, and a loop looks on": (
        "images IfMissing", "import failing", "run provision nodes=1", "rest 70", "demand 1", "rest 30", "run autoscale", "rest 1900",
        "run autoscale", "rest 400", "run autoscale",
    ),
    "imports hang": ("images IfMissing", "import stuck", "demand 1", "rest 30", "run autoscale", "rest 3700", "run autoscale"),
    "no room for an image, or no right": (
        "images IfMissing", "import quota", "run provision nodes=1",
        "import well", "rest 1900", "run provision nodes=1",
    ),
    "a run is killed while it is made": ("images IfMissing", "run provision nodes=1 kill=40", "rest 660", "run provision nodes=1"),
}  # fmt: skip


@pytest.mark.parametrize("ground", ["vultr", "gcp"])
@pytest.mark.parametrize("trap", TRAPPED)
def test_images_of_talos_come_with_the_runs_and_nothing_of_them_stays(ground: str, trap: str) -> None:
    stages: list[Stage] = []
    Story(ground, "own", TRAPPED[trap]).play(sabotage=stages.append)
    assert {one.details["system"] for one in stages[0].sight.made()} == {"talos"}


def test_I10_bites_on_what_is_left_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GcpImages, "clean", lambda _self, _wanted: False)
    with pytest.raises(Violated, match="^I-10: left: 1 files of images"):
        Story("gcp", "own", TRAPPED["missing at first"]).play()


@pytest.mark.parametrize("ground", ["vultr", "gcp"])
def test_I10_bites_on_an_image_beside_one_that_is_there(ground: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = disk_images.decide

    def always(listed: t.Any, wanted: t.Any, policy: t.Any) -> t.Any:
        return plain(listed, wanted, disk_images.ImagePolicy.ALWAYS if policy is disk_images.ImagePolicy.IF_MISSING else policy)

    monkeypatch.setattr(talos_image, "decide", always)
    with pytest.raises(Violated, match="^I-10: left: [0-9]+ images"):
        Story(ground, "own", TRAPPED["missing at first"]).play()


def test_I10_bites_on_an_address_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody makes one: it is put there under the name of a machine, and nothing looks for addresses any more."""
    stages: list[Stage] = []
    monkeypatch.setattr(GcpCloud, "extras", lambda _self: [])

    def put(stage: Stage) -> None:
        stages.append(stage)
        name = f"tgp-{stage.sight.cluster_id}-training-00000"
        GcpAccount.of(stage.world).addresses.append(Address("us-central1", name, "192.0.2.7", stage.clock.now()))

    with pytest.raises(Violated, match="^I-10: left: 1 addresses"):
        Story("gcp", "own", ("run provision nodes=1",)).play(sabotage=put)


# ---- GPUs that MIG divides


def test_machines_whose_gpus_mig_divides_are_rented_lose_instances_and_go() -> None:
    """Two pods share a GPU. Neither the card without MIG nor the one with smaller instances is rented, though both cost less."""
    say: list[str] = []
    story = Story("mig", "own", ("limits 3 10.00 8", "demand 3", "rest 30", "run autoscale", "rest 70", "expect living 2"))
    total = story.play(say.append, to_rest=False)
    assert total.made == 2 and total.changed["MIG"] >= 1, say
    some = ("limits 3 10.00 8", "change gpuLossPolicy Replace", "run provision nodes=1", "pod 0 busy", "gpus 0 1")
    lost = Story("mig", "own", (*some, *("run reap", "rest 70") * 2, "rest 1300", "run reap", "rest 70", "run reap")).play()
    assert lost.changed["node that loses some GPUs"] >= 1, lost.changed


def test_a_pool_with_mig_rents_only_gpus_that_hold_its_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariants notice a product that rents any GPU: its node never shows the instances."""
    monkeypatch.setattr(mig_profiles, "against", lambda *_given: "")
    with pytest.raises(Violated):
        played("mig", "limits 3 10.00 8", "demand 2", "rest 30", "run autoscale", *("rest 660", "run autoscale") * 3)


# ---- machines that were moved in

JOINED = ("joins 0", "rest 70")


@pytest.mark.parametrize(
    "before", [(), JOINED, (*JOINED, "run provision nodes=1")], ids=["no Node", "a Node without labels", "a Node with labels"]
)
@pytest.mark.parametrize("cloud", RENAMED)
def test_L48_an_adopted_machine_whose_record_is_lost_comes_to_an_end(cloud: str, before: tuple[str, ...]) -> None:
    """It is ours again by its stamp, its name or its Node; or it is only reported, as docs/how_to/moving.md says, and a person ends it."""
    stages: list[Stage] = []
    lines = (f"box {cloud}", "rest 240", "run adopt", *before, "forget 0", "rest 660", "run reap", "rest 660", "run reap")
    Story(cloud, "moved", lines).play(sabotage=stages.append)
    (machine,) = stages[0].sight.moved.offered.values()
    assert machine.ended is not None
    assert (machine.id in stages[0].sight.by_hand) == (cloud in ("lambda", "vast") or before == JOINED)
