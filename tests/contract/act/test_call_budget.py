# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many calls a rented machine costs, and that runs with nothing to do cost as many for ten machines as for two. Counts, and no times.

Two kinds of calls are told apart. Lists and watches serve all machines, and how many there are depends on how long a run waits. All others are
about one object, and their number is that of the machines times a constant. Calls of the run lock are left out: they depend on time alone.
"""

from __future__ import annotations

import collections
import re
import threading
import typing as t

import httpx
import pytest

from .rig import URLS, Rig

FEW, MANY = 2, 10
#: Most calls for each rented machine from plan to Ready, besides lists. Later parts may add two to the cluster, and one for each object
#: and run.
MOST = {"kubernetes": 10, "lambda": 1, "tailscale": 2}
SLACK = 1
_LOCK = re.compile(r"/namespaces/tgp-system/leases(/|$)")
_COLLECTION = re.compile(
    r"/(nodes|pods|configmaps|secrets|daemonsets|namespaces|poddisruptionbudgets|certificatesigningrequests|events|instances"
    r"|instance-types|images|ssh-keys|devices|keys|status|machineconfigs|[a-z]+\.tgp\.io|gpu[a-z]+)$"
)
_SERVICES = {httpx.URL(url).host: name for name, url in URLS.items()}


class Calls:
    """``single`` are calls about one object, ``shared`` lists, watches and questions that serve all; both by service, until :meth:`take`."""

    def __init__(self, rig: Rig) -> None:
        self._lock = threading.Lock()
        self._single: collections.Counter[str] = collections.Counter()
        self._shared: collections.Counter[str] = collections.Counter()
        rig.watcher = self._watch

    def _watch(self, request: httpx.Request) -> None:
        path = request.url.path
        if _LOCK.search(path):
            return
        service = _SERVICES[request.url.host]
        is_list = service == "webhook" or _COLLECTION.search(path) is not None  # of own machines: a call for each is their list
        counter = self._shared if request.method == "GET" and is_list else self._single
        with self._lock:
            counter[service] += 1

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Those since the last call: about one object, and shared."""
        with self._lock:
            taken = dict(self._single), dict(self._shared)
            self._single.clear()
            self._shared.clear()
        return taken


def rented(build: t.Callable[..., Rig], count: int) -> tuple[Rig, Calls, dict[str, int]]:
    """A world in which so many machines were rented and joined, and the calls that it took, besides lists."""
    rig = build(speed=50, **{"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": MANY, "boot": 20}]})
    rig.demo_class["limits"] = {"maxNodes": MANY, "maxHourlyCost": "100.00"}
    calls = Calls(rig)
    rig.rent(nodes=count)
    assert [row["result"] for row in rig.join()["machines"]] == ["ready"] * count
    return rig, calls, calls.take()[0]


def test_a_rented_machine_costs_a_fixed_number_of_calls(build: t.Callable[..., Rig]) -> None:
    few, many = (rented(build, count)[2] for count in (FEW, MANY))
    # Rounded: two writes about one machine fall into one or two looks, so a run has a call more or less in all.
    each = {service: round((many[service] - few.get(service, 0)) / (MANY - FEW)) for service in many}
    assert {service: number for service, number in each.items() if number > MOST.get(service, 0)} == {}
    few_calls = {service: number for service, number in each.items() if number < MOST.get(service, 0) - SLACK}
    assert few_calls == {}, "fewer than the limit says: lower it"


def provision(rig: Rig, count: int) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=count)
    rig.unlock(plan["run_id"])
    assert (plan["launch"], plan["destroy"]) == ([], [])


def reap(rig: Rig, _count: int) -> None:
    assert rig.reap()["plan"]["destroy"] == []


def autoscale(rig: Rig, _count: int) -> None:
    plan = rig.plan("autoscale")
    rig.unlock(plan["run_id"])
    assert (plan["launch"], plan["destroy"]) == ([], [])


def status(rig: Rig, count: int) -> None:
    assert len(rig.run("info")["machines"]) == count


@pytest.mark.parametrize("run", [provision, reap, autoscale, status])
def test_a_run_with_nothing_to_do_makes_as_many_calls_beside_many_machines_as_beside_few(
    build: t.Callable[..., Rig], run: t.Callable[[Rig, int], None]
) -> None:
    made = {}
    for count in (FEW, MANY):
        rig, calls, _renting = rented(build, count)
        for node in rig.claims():
            rig.pod(node, f"job-{node[-5:]}")
        run(rig, count)  # the first may note that work has begun
        calls.take()
        run(rig, count)
        made[count] = calls.take()
    assert made[FEW] == made[MANY]
    single, shared = made[MANY]
    assert sum(single.values()) + sum(shared.values()) <= 24
