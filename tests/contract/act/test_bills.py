# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger is the world's bill within the bounds that it names (I-13, I-24): 200 machines by chance at four clouds, with disks, bids,
premiums for reliability and traffic, that live for minutes to days. A world holds ten of them, each in a pool and a class of its own.
Traffic is an item of its own: the ledger has
its prices, the report an estimate."""

from __future__ import annotations

import copy
import dataclasses
import random
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.traffic import HOUR_GB, ONCE_GB
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod import records as runpod_records
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast import records as vast_records

from sandbox.picture import picture
from sandbox.world import Machine
from tests.fixtures.demo import demo_documents

from .rig import Rig, moment
from .test_service import POOL

Build = t.Callable[..., Rig]
Line = dict[str, t.Any]
WORLDS, LIVES, ENDS = 20, 10, 3
CLOUDS = ("vast", "vast", "runpod", "lambda", "paperspace")  # Vast.ai twice: it has bids, premiums and traffic
DISKS = (64, 100, 250, 400)  # GiB
MINUTE, HOUR, DAY = 60, 3600, 86_400
MICRO = Decimal("0.000001")  # to which prices are read and pictures are rounded
WAITING, SPEED = 2000.0, 80.0  # fast until something is billed; then what this process takes for an end stays within a minute
BOOT = 5
TALOS = next(one["spec"]["talosConfig"] for one in demo_documents() if one["kind"] == "GPUNodeClass")
MARKET: dict[str, t.Any] = {
    "lambda": [{"type": kind, "region": "us-west-1", "stock": LIVES, "boot": BOOT} for kind in ("gpu_1x_a10", "gpu_1x_a6000")],
    "runpod": {"offers": [{"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": LIVES, "boot": BOOT}]},
    "paperspace": {"offers": [{"type": kind, "region": "ny2", "stock": LIVES, "boot": BOOT} for kind in ("A4000", "A5000")]},
}


@dataclasses.dataclass(frozen=True)
class Life:
    """What is drawn of a machine. ``end``: which of the world's ends is its own."""

    pool: str
    cloud: str
    spot: bool = False
    disk: int = 400
    end: int = 0


@dataclasses.dataclass(frozen=True)
class Story:
    """``lives`` of one world, and how many seconds after the one before each end comes. ``vast``: offers, more than are rented, each with other
    prices. ``joins``: nodes are waited for. ``traffic``: GB that a machine downloads and uploads per hour; None = by chance."""

    lives: t.Sequence[Life]
    ends: t.Sequence[float]
    vast: t.Sequence[dict[str, t.Any]]
    joins: bool = False
    traffic: int | None = HOUR_GB

    @classmethod
    def draw(cls, seed: int) -> Story:
        chance = random.Random(seed)
        lives = []
        for number in range(LIVES):
            cloud = chance.choice(CLOUDS)
            spot = cloud == "vast" and chance.random() < 0.4
            lives.append(Life(f"life-{number}", cloud, spot, chance.choice(DISKS), chance.randrange(ENDS)))
        ends = (chance.uniform(0, 30 * MINUTE), chance.uniform(10 * MINUTE, DAY / 4), chance.uniform(DAY / 2, 4 * DAY))
        premium = chance.random() < 0.6  # of all offers or none: where only some have one, the cheapest have none
        offers = [vast_offer(chance, premium=premium) for _number in range(2 * LIVES)]
        return cls(lives, ends, offers, seed % 4 == 0, HOUR_GB if seed % 2 else None)


def vast_offer(chance: random.Random, *, premium: bool) -> dict[str, t.Any]:
    def dollars(least: int, most: int) -> str:
        return str(Decimal(chance.randint(least, most)) / 1000)

    return {
        "gpu": "RTX 4090",
        "vm": True,
        "boot": BOOT,
        "disk_gb": 900.0,
        "price": dollars(300, 900),
        "min_bid": dollars(100, 250),
        "storage": dollars(50, 400),
        "premium": dollars(20, 200) if premium else "0",
        "traffic_down": chance.choice(["0", dollars(1, 50)]),
        "traffic_up": dollars(1, 50),
        "pull_gb": ONCE_GB,
    }


def documents(life: Life) -> list[dict[str, t.Any]]:
    """A pool of one machine, and its class. RunPod's pods are containers and serve; the others become nodes."""
    requirements: dict[str, t.Any] = {"spotAllowed": life.spot}
    if life.cloud != "lambda":  # its disks are as they are
        requirements["minDisk"] = f"{life.disk}Gi"
    spec: dict[str, t.Any] = {
        "providers": [{"name": life.cloud, "settings": {"sshKey": "tgp"} if life.cloud == "lambda" else {}}],
        "instanceRequirements": requirements,
        "talosConfig": copy.deepcopy(TALOS),
        "tailscaleConfig": {"tags": ["tag:gpu"]},
        "limits": {"maxNodes": 1, "maxHourlyCost": "10"},
    }
    pool = copy.deepcopy(POOL)
    pool["metadata"]["name"] = life.pool
    pool["spec"].update({"nodeClassRef": {"name": life.pool}, "minNodes": 1, "maxHourlyPrice": "9"})
    del pool["spec"]["disruption"]
    if life.cloud != "runpod":
        pool["spec"]["template"] = {"spec": {"lanes": ["kubelet"]}}
    if life.spot:
        pool["spec"]["template"]["spec"]["requirements"] = [{"key": "tgp.io/spot", "operator": "In", "values": ["true"]}]
    kind = {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClass", "metadata": {"name": life.pool}, "spec": spec}
    return [kind, pool]


def play(build: Build, story: Story) -> Rig:
    """From the first create call to the last end."""
    rig = build(speed=WAITING, machines=[], vast={"offers": list(story.vast)}, **MARKET)
    rig.documents = [one for life in story.lives for one in documents(life)]
    plan = rig.plan("provision")
    assert len(plan["launch"]) == len(story.lives), plan["shortfall"]
    rig.clock.run_at(SPEED)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    rig.until(lambda: all(one.state == "active" for one in rig.machines()), "all run")
    if story.joins:
        assert {one["result"] for one in rig.join()["machines"]} == {"ready"}
    chance = random.Random(len(story.lives))
    for number, seconds in enumerate(story.ends):
        rig.advance(seconds)
        pools = {life.pool for life in story.lives if life.end == number}
        names = [one["name"] for one in rig.claims().values() if one["pool"].partition("/")[2] in pools]
        for machine in [one for one in rig.machines() if one.name in names]:
            hours = Decimal(str((rig.clock.now() - machine.created).total_seconds())) / 3600
            each = [hours * (chance.randrange(50) if story.traffic is None else story.traffic) for _way in ("down", "up")]
            machine.transfer(*each)
        if names:
            assert {one["result"] for one in rig.reap("destroy", names=names)["machines"]} == {"gone"}
    assert rig.left() == {} and len(rig.ledger()) == len(story.lives)
    return rig


def machine_of(rig: Rig, line: Line) -> Machine:
    (number,) = line["ids"]
    return rig.world.machines[number]


def check_hours(rig: Rig) -> None:
    """What the world bills for each machine lies between the bounds of its line, and the sum between those that the report prints. A bill
    begins to the second where its provider says so. The world's own picture has the same sum."""
    rig.check_bill()
    now, lines = rig.clock.now(), rig.ledger()
    for line in lines:
        machine, hours = machine_of(rig, line), Decimal(line["seconds"]) / 3600 + 1
        least, ours, most = (Decimal(line[key]) for key in ("cost_least", "cost", "cost_most"))
        assert least <= ours <= most, line
        assert least - MICRO * hours <= machine.cost(now) <= most + MICRO * hours, (
            line,
            machine.cost(now),
            machine.created,
            machine.ended,
        )
        assert line["start_told"] == (line["cloud"] != "lambda"), line
        if line["start_told"]:
            assert 0 <= (machine.created - moment(line["start"])).total_seconds() < 1, line
    theirs, told = add_up(machine_of(rig, line).cost(now) for line in lines), rig.run("report")["report"]["bill"]
    cents = Decimal("0.005")  # prices have six digits after the point
    assert Decimal(told["least"]) - cents <= theirs <= Decimal(told["most"]) + cents and told["unknown_machines"] == 0
    minutes = add_up(Decimal(line["price_hour"]) / 60 for line in lines)
    assert Decimal(told["most"]) - Decimal(told["least"]) <= 3 * minutes, "the bounds say something"
    totals = {key: Decimal(picture(rig.box)["totals"][key]) for key in ("cost", "traffic", "bill")}
    assert abs(totals["cost"] - theirs) <= MICRO and abs(totals["bill"] - totals["cost"] - totals["traffic"]) <= MICRO


def check_traffic(rig: Rig, *, assumed: bool) -> None:
    """The world's GB at the prices of the ledger; where there was as much as the report assumes, its estimate too."""
    lines, theirs, priced = rig.ledger(), Decimal(0), 0
    for line in lines:
        machine, prices = machine_of(rig, line), [line["traffic_price_gb_down"], line["traffic_price_gb_up"]]
        assert (line["cloud"] == "vast") == (prices != [None, None]), line
        if prices == [None, None]:
            assert machine.traffic_cost() == 0
            continue
        down, up = map(Decimal, prices)
        assert abs(machine.down_gb * down + machine.up_gb * up - machine.traffic_cost()) <= MICRO, line
        theirs, priced = theirs + machine.traffic_cost(), priced + 1
    told = rig.run("report")["report"]
    assert Decimal(told["total"]) == add_up(Decimal(line["cost"]) for line in lines), "no traffic in it"
    assert told["traffic"]["machines"] == priced
    if assumed:
        minute = add_up(sum(machine_of(rig, line).traffic_prices) * HOUR_GB / 60 for line in lines)
        assert abs(Decimal(told["traffic"]["estimate"]) - theirs) <= minute + Decimal("0.0001")


@pytest.mark.parametrize("seed", range(WORLDS))
def test_I24_the_ledger_is_the_bill_of_the_world(build: Build, seed: int) -> None:
    story = Story.draw(seed)
    rig = play(build, story)
    check_hours(rig)
    check_traffic(rig, assumed=story.traffic == HOUR_GB)


def test_I24_all_kinds_are_among_them() -> None:
    """200 machines; of each cloud, bids, premiums and free downloads."""
    stories = [Story.draw(seed) for seed in range(WORLDS)]
    lives = [life for story in stories for life in story.lives]
    assert len(lives) == 200 and {life.cloud for life in lives} == set(CLOUDS) and {life.disk for life in lives} == set(DISKS)
    assert 10 < sum(life.spot for life in lives) < 100
    offers = [one for story in stories for one in story.vast]
    assert all(0.2 < sum(one[key] == "0" for one in offers) / len(offers) < 0.8 for key in ("premium", "traffic_down"))


# ---- what the tests above would notice

_BILLED = cost.billed


def _no_disk(price: Decimal, disk: Decimal, *given: t.Any, **more: t.Any) -> Decimal:
    return _BILLED(price - disk, disk * 0, *given, **more)


LEFT_OUT: dict[str, tuple[str, tuple[t.Any, str, t.Any] | None]] = {
    "nothing": ("vast", None),
    "the disk": ("vast", (cost, "billed", _no_disk)),
    "the disk of a pod": ("runpod", (runpod_records, "_disk_gb", lambda _entry: 0)),
    "the premium": ("vast", (vast_records, "_premium", lambda _row, _part: Decimal(0))),
    "the price of downloads": ("vast", (vast_records, "_per_gigabyte", lambda _value: Decimal(0))),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_I24_what_is_left_out_is_noticed(build: Build, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    cloud, fault = LEFT_OUT[what]
    offer = {
        **vast_offer(random.Random(0), premium=True),
        "price": "0.40",
        "storage": "0.15",
        "premium": "0.05",
        "traffic_down": "0.01",
    }
    if fault is not None:
        monkeypatch.setattr(*fault)
    rig = play(build, Story([Life("life-0", cloud)], [4 * HOUR], [offer]))
    if fault is None:
        check_hours(rig)
        check_traffic(rig, assumed=True)
        return
    with pytest.raises(AssertionError):
        check_hours(rig)
        check_traffic(rig, assumed=True)
