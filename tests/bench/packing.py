# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P13: two thousand waiting pods against five thousand offers, planned as autoscale plans them."""

from __future__ import annotations

import random
import time
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Expression,
    MeshChoice,
    NodeClass,
    NodeTerm,
    Observation,
    Offer,
    Placement,
    Pod,
    Pool,
    Specs,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES

NOW = datetime(2026, 8, 20, 12, tzinfo=timezone.utc)
PODS, OFFERS = 2000, 5000
MODELS = ("A10", "RTX4090", "A100", "H100", "L40S", "RTX3090", "A6000", "RTX5090")
_TOLERATES = (Toleration("tgp.io/ephemeral", "Exists"),)


def rows() -> list[tuple[str, str]]:
    """What a run plans with its usual bound of five machines per pool."""
    observation, specs = _world(random.Random(7))
    shapes = len({(frozenset(pod.requests.items()), pod.placement) for pod in observation.pods or ()})
    settings = Settings(mode="autoscale")
    best, launches, placed = min(_timed(observation, specs, settings) for _ in range(3))
    return [
        (f"P13 autoscale, {PODS} pods of {shapes} kinds, {OFFERS} offers, 5 machines a run and pool: seconds", f"{best:.2f}"),
        ("  machines; pods they are for", f"{launches}; {placed}"),
    ]


def _timed(observation: Observation, specs: Specs, settings: Settings) -> tuple[float, int, int]:
    started = time.perf_counter()
    made = plan(observation, specs, settings, CAPABILITIES, "run")
    seconds = time.perf_counter() - started
    launches = sum(one.kind == "launch" for one in made.actions)
    if not launches:
        raise SystemExit(f"nothing is launched for {PODS} pods: {made.waiting[0].reason if made.waiting else made.problems}")
    return seconds, launches, sum(1 for one in made.waiting if one.machine)


def _world(chance: random.Random) -> tuple[Observation, Specs]:
    offers = tuple(_offer(number, chance) for number in range(OFFERS))
    pods = tuple(_pod(number, chance) for number in range(PODS))
    seen = Observation(NOW, "a1b2c3d4", {"vast": CloudView((), offers)}, devices=(), keys=(), nodes=(), pods=pods, claims=())
    node_class = NodeClass("c", (CloudChoice("vast"),), mesh=MeshChoice("none"))
    pools = (
        Pool("default", "large", "c", weight=2, max_hourly_price=Decimal(20)),
        Pool("default", "rest", "c", labels={"team": "red"}),
    )
    return seen, Specs({"c": node_class}, pools)


def _offer(number: int, chance: random.Random) -> Offer:
    count = chance.choice((1, 1, 1, 2, 4, 8))
    model = chance.choice(MODELS)
    return Offer(
        "vast",
        str(number),
        f"{count}x {model}",
        model,
        count,
        Decimal(count) * Decimal(chance.randrange(20, 300)) / 100,
        region=chance.choice(("us-west", "us-east", "eu-central")),
        gpu_memory_mib=chance.choice((24576, 49152, 81920)),
        vcpus=count * chance.choice((4, 8, 16)),
        memory_mib=count * chance.choice((16384, 32768, 65536)),
        disk_gib=100,
        reliability=Decimal("0.995"),
        traits={"inet-down": "900"},
        available=1,
        host_id=f"h{number}",
        seen=NOW,
    )


def _pod(number: int, chance: random.Random) -> Pod:
    count = chance.choice((1, 1, 1, 1, 2, 2, 4, 8))
    model = chance.choice(("", "", *MODELS[:4]))
    terms = (NodeTerm((Expression("tgp.io/region", "In", ("us-west", "us-east")),)),) if chance.random() < 0.2 else ()
    requests: dict[str, t.Any] = {"nvidia.com/gpu": count, "cpu": 3000 * count, "memory": 8 * count << 30}
    return Pod(
        "default",
        f"job-{number:05}",
        f"uid-{number:05}",
        "Pending",
        owner_kind="Job",
        owner_api="batch/v1",
        created=NOW - timedelta(seconds=chance.randrange(60, 3600)),
        requests=requests,
        waiting="Unschedulable",
        placement=Placement(
            (("tgp.io/gpu-type", model),) if model else (), terms, _TOLERATES, priority=chance.choice((0, 0, 0, 100))
        ),
    )


if __name__ == "__main__":
    for what, value in rows():
        print(f"  {what:<78} {value}")
