# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-52: GPUs that MPS shares: a client gets one part of the memory, a container one client, and a GPU has no more than its plugin lets."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube import pods as kube_pods
from ansible_collections.tgp.gpu.plugins.module_utils.model import Phase, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.gpu_attributes import mps_clients
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity

from .build import at, claim, node, node_class, of, offer, pod, pool
from .pods import GPU
from .test_L17_autoscale import asks, launched, machine, reasons, scale, world

H100: t.Final = {"model": "H100-SXM", "gpu_memory_mib": 81920}
FOUR = pool(slices=4, mps=True)
ONE = offer("2.00", id="one", **H100)
SHARED: t.Final = "nvidia.com/gpu.shared"
LABEL: t.Final = "tgp.io/gpu-memory"


def wants(name: str, memory: str = "", requests: dict[str, int] | None = None, **facts: t.Any) -> Pod:
    return asks(name, requests=requests or {GPU: 1}, annotations={LABEL: memory} if memory else {}, **facts)


# ---- a client's part of the memory


@pytest.mark.parametrize(
    ("memory", "clients", "wanted", "fits"),
    [
        (81920, 4, "20Gi", True),
        (81920, 4, "20481Mi", False),
        (81920, 1, "80Gi", True),
        (24576, 3, "8Gi", True),
        (24576, 5, "4915Mi", True),
        (24576, 5, "4916Mi", False),
        (49152, 48, "1Gi", True),
        (49152, 48, "1025Mi", False),
    ],
)
def test_L52_E_a_client_gets_one_part_of_the_memory_rounded_down(memory: int, clients: int, wanted: str, fits: bool) -> None:
    """1/N of it in MiB. Without MPS (one client here) all of it counts."""
    shared = pool(slices=clients, mps=clients > 1)
    found = scale(world(wants("a", wanted), offers=(offer("1.00", model="A6000", gpu_memory_mib=memory),)), shared)
    assert launched(found) == ([1] if fits else [])
    if not fits:
        share = f"; with MPS a pod has {memory // clients} MiB of a GPU"
        assert list(reasons(found).values()) == [f"{LABEL} of at least {wanted}{share}"]


def test_L52_slices_of_time_have_all_the_memory_and_limit_nothing() -> None:
    sliced = pool(slices=4)
    assert launched(scale(world(wants("a", "80Gi"), offers=(ONE,)), sliced)) == [1]
    assert launched(scale(world(wants("a", "80Gi"), offers=(ONE,)), FOUR)) == []


def test_L52_a_pod_that_says_nothing_of_memory_gets_a_share() -> None:
    found = scale(world(*(wants(f"p{place}") for place in range(5)), offers=(ONE,)), FOUR)
    assert launched(found) == [1, 1] and not reasons(found), "four share one GPU"


def test_L52_the_memory_of_a_ready_node_is_shared_in_the_same_way() -> None:
    """Its label has the whole GPU. The pod waits for no machine of this pool, and gets one of a pool with whole GPUs."""
    made, shown, itself = machine(allocatable={GPU: 4}, claim={"expected_gpus": 4})
    shown = dataclasses.replace(shown, labels={**shown.labels, LABEL: "81920"})
    there = (dataclasses.replace(made, offer=ONE), shown, itself)
    assert launched(scale(world(wants("small", "20Gi"), machines=[there], offers=(ONE,)), FOUR)) == []
    large = scale(world(wants("large", "40Gi"), machines=[there], offers=(ONE,)), FOUR)
    assert launched(large) == [] and "20480 MiB" in next(iter(reasons(large).values()))
    sliced = scale(world(wants("large", "40Gi"), machines=[there], offers=(ONE,)), pool(slices=4))
    assert launched(sliced) == [] and not reasons(sliced), "time slicing gives it the node that is there"


def test_L52_a_machine_on_its_way_counts_with_its_shares() -> None:
    coming = claim(phase=Phase.BOOTING, offer=ONE, launch_started=at("11:55"), expected_gpus=4)
    assert launched(scale(world(wants("a", "20Gi"), machines=[(coming, None, None)], offers=(ONE,)), FOUR)) == []
    assert capacity.of_claim(coming, FOUR, "a1b2c3d4", True).clients == 4
    assert capacity.of_claim(coming, pool(slices=4), "a1b2c3d4", True).clients == 0


# ---- one share for a container


def template(*amounts: int, init: int = 0, name: str = GPU) -> dict[str, t.Any]:
    def container(amount: int) -> dict[str, t.Any]:
        return {"name": "c", "resources": {"limits": {name: str(amount)}} if amount else {}}

    spec: dict[str, t.Any] = {"containers": [container(one) for one in amounts]}
    return {**spec, "initContainers": [container(init)]} if init else spec


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        (template(1), 0),
        (template(2), 2),
        (template(1, 1), 0),
        (template(1, 3), 3),
        (template(0, 1, init=2), 2),
        (template(2, name=SHARED), 2),
        (template(2, name="amd.com/gpu"), 0),
        (template(2, name="nvidia.com/mig-1g.10gb"), 0),
    ],
)
def test_L52_the_most_that_one_container_asks_for(spec: dict[str, t.Any], most: int) -> None:
    meta = {"namespace": "default", "name": "a", "uid": "u", "creationTimestamp": "2026-08-20T12:00:00Z"}
    raw = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
    assert kube_pods.reducer(t.cast("t.Any", None))(raw).container_gpus == most


def test_L52_a_container_that_asks_for_two_shares_never_runs_and_rents_nothing() -> None:
    """The device plugin refuses the request when the pod starts. Two containers with a share each are two requests."""
    two = wants("two", requests={GPU: 2}, container_gpus=2)
    found = scale(world(two, offers=(ONE,)), FOUR)
    assert launched(found) == []
    assert list(reasons(found).values()) == ["one of its containers asks for 2 shares of a GPU, and MPS gives a container one"]
    apart = scale(world(wants("apart", requests={GPU: 2}), two, offers=(ONE,)), FOUR)
    assert launched(apart) == [1] and len(reasons(apart)) == 1 and not apart.warnings
    assert launched(scale(world(two, offers=(ONE,)), pool(slices=4))) == [1], "time slicing may give it two"
    whole = offer("4.00", id="two", gpu_count=2, **H100)
    assert launched(scale(world(two, offers=(whole,)), pool())) == [2]


# ---- which GPUs MPS can share


@pytest.mark.parametrize(
    ("model", "clients"),
    [
        ("H100-SXM", 48),
        ("T4", 48),
        ("RTX3090", 48),
        ("V100", 16),
        ("P100", 16),
        ("GTX1080", 16),
        ("MI300A", 0),
        ("no such card", 0),
    ],
)
def test_L52_E_how_many_clients_a_gpu_has(model: str, clients: int) -> None:
    assert mps_clients(model) == clients


@pytest.mark.parametrize(
    ("model", "clients", "rented"),
    [("V100", 16, True), ("V100", 17, False), ("H100-SXM", 48, True), ("MI300A", 2, False)],
)
def test_L52_a_gpu_that_cannot_be_shared_so_is_not_rented(model: str, clients: int, rented: bool) -> None:
    cards = (offer("1.00", model=model, gpu_memory_mib=81920),)
    found = scale(world(wants("a"), offers=cards), pool(slices=clients, mps=True))
    assert launched(found) == ([1] if rented else [])
    if not rented:
        assert list(reasons(found).values()) == ["no offer: mps clients"]
        floor = scale(world(offers=cards), pool(slices=clients, mps=True, min_nodes=1))
        assert launched(floor) == [], "nor for minNodes"


# ---- when a node is complete


def test_L52_a_node_of_mps_is_complete_with_every_share() -> None:
    mine = claim(offer=ONE, expected_gpus=4)

    def missing(amount: int, shared: t.Any = FOUR, name: str = GPU) -> list[str]:
        found = not_initialized(mine, node(allocatable={name: amount}), shared)
        return [one for one in found if GPU in one]

    assert missing(4) == [] and missing(1) == [f"1 of 4 {GPU}"], "the daemon of MPS does not run yet"
    assert missing(4, dataclasses.replace(FOUR, slices_renamed=True), SHARED) == []


def test_L52_a_pod_with_a_share_keeps_its_node() -> None:
    made, shown, itself = machine(allocatable={GPU: 4}, claim={"expected_gpus": 4})
    idle = dataclasses.replace(shown, annotations={"tgp.io/idle-since": "2026-08-20T11:20:00Z"})
    there = (dataclasses.replace(made, offer=ONE), idle, itself)
    used = pod("busy", node=shown.name, requests={GPU: 1})
    assert not of(scale(world(used, machines=[there]), FOUR), "destroy")
    assert of(scale(world(machines=[there]), FOUR), "destroy")


def test_L52_the_room_of_an_offer_says_its_clients() -> None:
    assert capacity.of_offer(ONE, FOUR, node_class(), "a1b2c3d4", True).clients == 4
