# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that wait for GPUs on the real scheduler get machines, run, end, and the machines go. Prints a timeline and the price beside the
least price there is.

TGP_CLUSTER_PODS="1 10 100" says how many pods wait, one number after another; five if not given, which need machines of each size. A hundred
take a quarter of an hour: Lambda allows a launch every 12 s, and the world has to live at real speed, as the cluster's clock does, or its
Nodes would soon be older than their machines.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import time
import typing as t
from decimal import Decimal

import pytest

from . import objects
from .plane import Plane
from .stage import Stage, cleared

pytestmark = pytest.mark.cluster
COUNTS = [int(one) for one in os.environ.get("TGP_CLUSTER_PODS", "5").split()]
SIZES = (1, 1, 2, 1, 4, 1, 2, 1, 1, 2)  # GPUs of one pod after another, again and again
OFFERS = {1: Decimal("1.09"), 2: Decimal("2.00"), 4: Decimal("3.60")}  # GPUs of a machine, its price per hour
IDLE = 11 * 60
_HANGS = 600.0  # real seconds after which a run counts as hanging: it may give forty machines back


class Market(Stage):
    """Machines of one, two and four GPUs, the larger ones a little cheaper for each GPU, and one pool for all."""

    def _scenario(self) -> dict[str, t.Any]:
        offers = [
            {"type": f"gpu_{gpus}x_a6000", "region": "us-south-2", "stock": 200, "price": str(price), "boot": 5, "packages": 1}
            for gpus, price in OFFERS.items()
        ]
        return {**super()._scenario(), "lambda": offers}

    def documents(self) -> list[dict[str, t.Any]]:
        node_class, rented, _own = super().documents()
        node_class["spec"]["limits"] = {"maxNodes": 200, "maxHourlyCost": "1000.00"}
        return [node_class, rented]

    def run(self, name: str, **variables: t.Any) -> t.Any:
        run = self.begin(*self.arguments(name, documents=self.documents(), extra_vars=variables))
        try:
            return run.finish(_HANGS).succeeded()
        finally:
            run.kill()


@dataclasses.dataclass(frozen=True)
class Best:
    price: Decimal
    machines: int


def least(sizes: t.Sequence[int]) -> Best:
    """The least price for which machines of OFFERS hold pods of these sizes, by trying all numbers of machines.

    Sizes and machines are powers of two, so pods fit exactly if they fit when placed from the largest to the smallest.
    """
    ones, twos, fours = (sizes.count(size) for size in (1, 2, 4))
    total, found = sum(sizes), []
    for four, two in itertools.product(range(fours, total // 4 + 2), range(total // 2 + 2)):
        spare = (four - fours) * 4 + two * 2  # for pods of two and of one
        if (four - fours) * 2 + two < twos:
            continue
        one = max(0, ones - (spare - twos * 2))
        found.append(Best(four * OFFERS[4] + two * OFFERS[2] + one * OFFERS[1], four + two + one))
    return min(found, key=lambda best: (best.price, best.machines))


class Story:
    """Pods in a namespace of their own, autoscale.yml once after another, and what was seen after each run."""

    def __init__(self, stage: Market, space: str, sizes: t.Sequence[int]) -> None:
        self.stage, self.space = stage, space
        self.began = time.monotonic()
        self.rows: list[tuple[t.Any, ...]] = []
        for number, size in enumerate(sizes):
            spec = objects.pod_spec(gpus=size)
            spec |= {"tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}
            spec["nodeSelector"] = {"tgp.io/nodepool": stage.pools["lambda"]}
            objects.pod(stage.plane, space, f"job-{number}", spec)

    def phases(self) -> list[str]:
        return [str(one["status"].get("phase")) for one in objects.pods(self.stage.plane, self.space)]

    def seen(self) -> bool:
        """The scheduler has said of each pod that it is bound, or that it cannot be."""
        found = objects.pods(self.stage.plane, self.space)
        return all(
            one["spec"].get("nodeName")
            or any(
                each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable"
                for each in one["status"].get("conditions", [])
            )
            for one in found
        )

    def price(self) -> Decimal:
        return sum((OFFERS[one["gpus"]] for one in self.stage.living()), Decimal(0))

    def run(self, what: str, **variables: t.Any) -> t.Any:
        result = self.stage.run("autoscale", **variables)
        return self.note(what, result)

    def note(self, what: str, result: t.Any = None) -> t.Any:
        phases, living = self.phases(), self.stage.living()
        ready = sum(objects.ready(self.stage.plane, one["name"]) is not None for one in living)
        waiting, running, done = (phases.count(phase) for phase in ("Pending", "Running", "Succeeded"))
        seconds = f"{time.monotonic() - self.began:.0f}"
        self.rows.append((seconds, what, len(living), ready, waiting, running, done, self.price()))
        return result

    def print(self) -> None:
        print(f"{'s':>4} {'what':34} {'machines':>8} {'Ready':>5} {'pods wait':>9} {'run':>4} {'done':>4} {'$/h':>7}")
        for row in self.rows:
            print("{:>4} {:34} {:>8} {:>5} {:>9} {:>4} {:>4} {:>7}".format(*row))


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Market]:
    yield from cleared(Market(plane, tmp_path, drain_timeout="8s"))


@pytest.mark.parametrize("count", COUNTS)
def test_L17_pods_wait_machines_come_pods_run_machines_go(stage: Market, own: str, count: int) -> None:
    """The real scheduler decides which pods wait, and whether they fit the machines that the plan rented for them."""
    sizes = list(itertools.islice(itertools.cycle(SIZES), count))
    space = objects.namespace(stage.plane, own)
    story = Story(stage, space, sizes)
    try:
        stage.plane.until(story.seen, what="the scheduler to have looked at all pods")
        story.note("pods are there, nobody has a place")
        for number in range(1, count + 5):
            story.run(f"autoscale: run {number}", wait=True)
            stage.plane.until(story.seen, what="the scheduler to have looked at all pods")
            if "Pending" not in {
                one["status"]["phase"] for one in objects.pods(stage.plane, space) if not one["spec"].get("nodeName")
            }:
                break
        stage.plane.until(lambda: set(story.phases()) == {"Running"}, what="all pods to run", timeout=60)
        story.note("all pods run")
        best, paid, machines = least(sizes), story.price(), len(stage.living())
        story.run("autoscale: notes who works")
        again = story.run("autoscale: nothing to do")
        assert again.count("changed") == 0 and len(stage.living()) == machines
        for one in objects.pods(stage.plane, space):
            path = f"/api/v1/namespaces/{space}/pods/{one['metadata']['name']}"
            stage.plane.patch(path, {"metadata": {"annotations": {"sandbox/run-seconds": "1"}}}, "merge")
        stage.plane.until(lambda: set(story.phases()) == {"Succeeded"}, what="all pods to end", timeout=60)
        story.note("all pods have ended")
        story.run("autoscale: they are idle")
        stage.advance(IDLE)
        story.note("11 minutes later")
        for number in range(1, count + 3):
            story.run(f"autoscale: idle ones go, run {number}")
            if not stage.living():
                break
        assert stage.nothing_is_left()
        gpus, version = sum(sizes), stage.plane.get("/version")["gitVersion"]
        print(f"\nKubernetes {version}: {count} pods, {gpus} GPUs: {machines} machines at ${paid}/h")
        print(f"the best are {best.machines} at ${best.price}/h")
        # What the first plan rents is as cheap as that. Machines that become Ready at one moment share the small pods, as the scheduler
        # spreads them, and a large pod may then need one machine more.
        most = best.price * Decimal("1.25")
        assert machines <= gpus and story.rows[1][-1] <= most and paid <= most + max(OFFERS.values())
    finally:
        story.print()
        stage.plane.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
        stage.plane.delete(f"/api/v1/namespaces/{space}")


class Gang(Market):
    """Machines of one GPU, and a pool that may have so many."""

    most = 2

    def _scenario(self) -> dict[str, t.Any]:
        offer = {"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 8, "price": "1.09", "boot": 0.5, "packages": 0.5}
        return {**super()._scenario(), "lambda": [offer]}

    def documents(self) -> list[dict[str, t.Any]]:
        node_class, rented = super().documents()
        rented["spec"]["limits"] = {"maxNodes": self.most}
        return [node_class, rented]


@pytest.fixture
def gang(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Gang]:
    yield from cleared(Gang(plane, tmp_path, drain_timeout="8s"))


def test_L39_on_the_real_scheduler_a_gang_of_four_has_room_or_rents_nothing(gang: Gang, own: str) -> None:
    """As JobSet makes it: pods with its label. Room for two rents none and says why; room for four rents four, and the scheduler
    places all of them."""
    plane, space = gang.plane, objects.namespace(gang.plane, own)
    try:
        for number in range(4):
            spec = {**objects.pod_spec(gpus=1), "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}
            spec["nodeSelector"] = {"tgp.io/nodepool": gang.pools["lambda"]}
            objects.pod(plane, space, f"worker-{number}", spec, {"jobset.sigs.k8s.io/jobset-name": "train"})
        plane.until(lambda: _looked_at(plane, space) == 4, what="the scheduler to have looked at all pods")
        none = gang.run("autoscale")
        assert gang.living() == [] and f"JobSet {space}/train: room for 2 of 4; limit:pool.maxNodes" in none.words
        gang.most = 4
        gang.run("autoscale", wait=True)
        assert len(gang.living()) == 4
        plane.until(
            lambda: {one["status"].get("phase") for one in objects.pods(plane, space)} == {"Running"},
            what="the whole gang to run",
            timeout=60,
        )
        assert len({one["spec"]["nodeName"] for one in objects.pods(plane, space)}) == 4
    finally:
        plane.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
        plane.delete(f"/api/v1/namespaces/{space}")


def _looked_at(plane: Plane, space: str) -> int:
    conditions = [each for one in objects.pods(plane, space) for each in one["status"].get("conditions", [])]
    return sum(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def test_the_least_price_is_the_least() -> None:
    """Held against plain trying: every way to put pods on machines, for a few small cases."""
    for sizes in itertools.chain.from_iterable(
        itertools.combinations_with_replacement((1, 2, 4), number) for number in (1, 2, 3, 4)
    ):
        assert least(list(sizes)).price == min(_all_ways(sorted(sizes, reverse=True), ()))


def _all_ways(pods: t.Sequence[int], rooms: tuple[tuple[int, int], ...]) -> t.Iterator[Decimal]:
    """Prices of all ways; a room is (GPUs of the machine, GPUs left)."""
    if not pods:
        yield sum((OFFERS[gpus] for gpus, _left in rooms), Decimal(0))
        return
    for at, (gpus, left) in enumerate(rooms):
        if left >= pods[0]:
            yield from _all_ways(pods[1:], (*rooms[:at], (gpus, left - pods[0]), *rooms[at + 1 :]))
    for gpus in OFFERS:
        if gpus >= pods[0]:
            yield from _all_ways(pods[1:], (*rooms, (gpus, gpus - pods[0])))
