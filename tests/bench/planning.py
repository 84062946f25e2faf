# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P5: the decision alone, for a thousand machines in use, ten thousand pods and five thousand offers; and for a tenth of all that."""

from __future__ import annotations

import dataclasses
import os
import random
import time
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudChoice,
    CloudView,
    Device,
    Instance,
    InstanceState,
    Lane,
    MeshChoice,
    Node,
    NodeClass,
    Observation,
    Offer,
    Phase,
    Pod,
    Pool,
    Specs,
    Taint,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES

from .results import Measured, Row

NOW = datetime(2026, 8, 20, 12, tzinfo=timezone.utc)
MACHINES, PODS, OFFERS = 1000, 10_000, 5_000
MODES = ("reap", "provision", "autoscale")
_TAINT = Taint("tgp.io/ephemeral", "true", "NoSchedule")


def rows(runs: int) -> t.Iterator[Row]:
    """Of each mode. What a run takes for a tenth of all is beside it, so that both are measured at the same time."""
    for mode in MODES:
        pairs = [(_timed(mode, 1), _timed(mode, 10)) for _number in range(runs)]
        measured = [dataclasses.replace(large, more={"CPU seconds for a tenth of all": small.cpu}) for large, small in pairs]
        yield Row(f"P5 {mode}", f"the plan alone, mode {mode}: {MACHINES} machines, {PODS} pods, {OFFERS} offers", "s", measured)


def _timed(mode: str, part: int) -> Measured:
    observation, specs = _world(random.Random(5), part)
    load, spent, started = os.getloadavg()[0], time.process_time(), time.perf_counter()
    plan(observation, specs, Settings(mode=mode), CAPABILITIES, "run")
    return Measured(time.perf_counter() - started, time.process_time() - spent, load)


def _world(chance: random.Random, part: int) -> tuple[Observation, Specs]:
    names = [f"tgp-a1b2c3d4-p-{number:05d}" for number in range(MACHINES // part)]
    offers = tuple(_offer(number, chance) for number in range(OFFERS // part))
    claims = tuple(_claim(name, offers[number % len(offers)]) for number, name in enumerate(names))
    instances = tuple(
        Instance("vast", f"i-{name}", name, InstanceState.RUNNING, created=NOW - timedelta(hours=2), price_hour=one.price)
        for name, one in zip(names, claims, strict=True)
    )
    seen = Observation(
        NOW,
        "a1b2c3d4",
        {"vast": CloudView(instances, offers)},
        devices=tuple(Device(f"d-{name}", name, f"{name}.example.ts.net", online=True, tags=("tag:gpu",)) for name in names),
        keys=(),
        nodes=tuple(_node(one) for one in claims),
        pods=tuple(_pod(number, names, chance) for number in range(PODS // part)),
        claims=claims,
    )
    node_class = NodeClass("c", (CloudChoice("vast"),), mesh=MeshChoice(tags=("tag:gpu",)))
    return seen, Specs({"c": node_class}, (Pool("default", "p", "c", lanes=(Lane.KUBELET,)),), {"default/p": len(names)})


def _offer(number: int, chance: random.Random) -> Offer:
    count = chance.choice((1, 1, 2, 4))
    price = Decimal(count) * Decimal(chance.randrange(20, 300)) / 100
    model = chance.choice(("A10", "RTX4090", "A100", "H100"))
    return Offer("vast", str(number), f"{count}x {model}", model, count, price, region="us-west", available=1, seen=NOW)


def _claim(name: str, offer: Offer) -> Claim:
    began = NOW - timedelta(hours=2)
    assert offer.price_hour is not None
    return Claim(
        name, "default/p", "c", "vast", Lane.KUBELET, Phase.READY, began, began, offer, offer.price_hour,
        expected_gpus=offer.gpu_count, launch_started=began, instance_id=f"i-{name}", ids_seen=(f"i-{name}",), node_name=name,
        node_uid=f"uid-{name}", registered=began, initialized=began, price_paid=offer.price_hour, running_since=began,
    )  # fmt: skip


def _node(claim: Claim) -> Node:
    labels = {"tgp.io/provisioned": "true", "tgp.io/nodepool": "p", "tgp.io/nodeclass": "c", "tgp.io/provider": "vast"}
    return Node(
        claim.name, claim.node_uid, claim.created, True, claim.created, labels=labels, taints=(_TAINT,),
        allocatable={"nvidia.com/gpu": claim.expected_gpus},
    )  # fmt: skip


def _pod(number: int, names: list[str], chance: random.Random) -> Pod:
    node = chance.choice(names)
    return Pod(
        "default", f"job-{number:05}", f"uid-{number:05}", "Running", node, owner_kind="Job", owner_api="batch/v1",
        created=NOW - timedelta(hours=1), started=NOW - timedelta(hours=1), requests={"nvidia.com/gpu": 1} if number % 3 == 0 else {},
    )  # fmt: skip
