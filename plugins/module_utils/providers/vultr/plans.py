# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plans of Vultr have whole GPUs, and its lists read into offers.

The beginning ``vcg-`` of a plan's id says nothing: most plans of type ``vcg`` are a fraction of a GPU (vGPU), which needs NVIDIA's licensed
GRID driver; type ``vdm`` passes whole GPUs through, and does not say which. So what may be rented is listed here by its id.
"""

from __future__ import annotations

import math
import re
import typing as t
from datetime import datetime
from decimal import Decimal

from ...core.http import Api, part
from ...model import Lane, Offer, OfferQuery
from ...planner.offers import gpu_models
from ...planner.offers.requirements import standard_region

REGIONS = {
    "ams": "eu-west", "atl": "us-east", "blr": "asia-south", "bom": "asia-south", "cdg": "eu-west", "del": "asia-south",
    "dfw": "us-south", "ewr": "us-east", "fra": "eu-central", "hnl": "us-west", "icn": "asia-northeast", "itm": "asia-northeast",
    "lax": "us-west", "lhr": "eu-west", "mad": "eu-west", "man": "eu-west", "mel": "australia-east", "mia": "us-east",
    "nrt": "asia-northeast", "ord": "us-central", "sea": "us-west", "sgp": "asia-southeast", "sjc": "us-west", "sto": "eu-north",
    "syd": "australia-east", "tlv": "me-west", "waw": "eu-central", "yto": "ca-east",
}  # fmt: skip


class Gpus(t.NamedTuple):
    """``number`` whole GPUs of canonical ``model`` with ``gib`` each. ``kind``: the type that the plan must have."""

    model: str
    number: int
    gib: int
    kind: str = "vdm"


WHOLE: dict[str, Gpus] = {
    "vcg-a16-6c-64g-16vram": Gpus("A16", 1, 16),
    "vcg-a16-96c-960g-256vram": Gpus("A16", 16, 16),
    "vcg-a16-96c-878g-256vram": Gpus("A16", 16, 16),
    "vcg-a40-24c-120g-48vram": Gpus("A40", 1, 48),
    "vcg-a40-96c-480g-192vram": Gpus("A40", 4, 48),
    "vcg-a100-12c-120g-80vram": Gpus("A100", 1, 80),
    "vcg-a100-96c-960g-640vram": Gpus("A100", 8, 80),
    "vcg-h100-216c-1914gb-640vram": Gpus("H100", 8, 80),
    "vcg-b200-248c-2826g-1536vram": Gpus("B200", 8, 192),
}
_L40S = re.compile(r"vcg-l40s-(16|32|64)c-[0-9]+gb?-([0-9]+)vram")  # whole cards of type vcg
_MODEL = re.compile(r"v(?:cg|bm)-([a-z]+[0-9]+[a-z]*)-")
_HOURS = 672  # of a month's price, where no price per hour is said
_KINDS = ("vcg", "vdm")
_MEGA, _GIGA = 1_000_000_000, 1024**3


def gpus_of(plan_id: str) -> Gpus | None:
    """The whole GPUs that a plan is known to have."""
    if found := _L40S.fullmatch(plan_id):
        count = int(found[1]) // 16
        return Gpus("L40S", count, 48, "vcg") if int(found[2]) == 48 * count else None
    return WHOLE.get(plan_id)


def refusal(plan: t.Mapping[str, t.Any]) -> str:
    """Why a plan is not rented, as the end of a sentence about it; empty = it may be."""
    identity, memory = str(plan.get("id")), plan.get("gpu_vram_gb")
    known, model = gpus_of(identity), model_of(plan)
    if known is None:
        sizes = gpu_models.memory_sizes_mib(model) if model else ()
        if sizes and isinstance(memory, (int, float)) and memory * 1024 < min(sizes):
            return "is a fraction of a GPU (vGPU), which needs NVIDIA's licensed GRID driver"
        if model and gpu_models.vendor(model) == "amd":
            return "has GPUs of AMD, and nodes are made for GPUs of NVIDIA"
        return "is not known to have whole GPUs"
    if plan.get("type") != known.kind:
        return f"has the type {plan.get('type')}, not {known.kind}, so its GPU may be a fraction (vGPU)"
    if isinstance(memory, (int, float)) and memory < known.gib * known.number:
        return f"has {memory:g} GB of GPU memory, not {known.gib * known.number}, so its GPU is a fraction (vGPU)"
    if plan.get("deploy_ondemand") is False:
        return "is sold preemptible only, and no call says when such a machine is taken back"
    return ""


def model_of(plan: t.Mapping[str, t.Any]) -> str:
    """The canonical model of a plan's GPUs, empty for a plan without any."""
    if known := gpus_of(str(plan.get("id"))):
        return known.model
    said = str(plan.get("gpu_type") or "").removeprefix("NVIDIA_").removeprefix("AMD_").replace("_", " ")
    named = _MODEL.match(str(plan.get("id")))
    return gpu_models.canonical(said) or (gpu_models.canonical(named[1]) if named else None) or ""


def has_gpus(plan: t.Mapping[str, t.Any]) -> bool:
    return plan.get("type") in _KINDS


def read_plan(api: Api, entry: t.Any, operation: str) -> dict[str, t.Any]:
    """One plan; its id must be there, and its price for those with GPUs."""
    plan = api.expect(entry, dict, operation, "a plan")
    identity = api.expect(plan.get("id") or None, str, operation, "id of a plan")
    if has_gpus(plan) and not refusal(plan) and price_in(plan, "") is None:
        raise api.bad_shape(operation, f"{identity}: it has no price")
    return t.cast("dict[str, t.Any]", plan)


def price_in(plan: t.Mapping[str, t.Any], region: str) -> Decimal | None:
    """Dollars per hour: that of the region, else the plan's own."""
    own = part(part(plan, "location_cost"), region)
    for costs in (own, plan):
        if (hourly := _number(costs.get("hourly_cost"))) is not None:
            return hourly
        if (monthly := _number(costs.get("monthly_cost"))) is not None:
            return (monthly / _HOURS).quantize(Decimal("0.0001"))
    return None


def to_offers(plan: t.Mapping[str, t.Any], regions: t.Collection[str], lanes: tuple[Lane, ...], now: datetime) -> t.Iterator[Offer]:
    """One offer per region that has the plan in stock; one without region and with ``available`` 0 when it is sold out."""
    identity = str(plan["id"])
    known = gpus_of(identity)
    if known is None:
        return
    for region in sorted(regions) or [""]:
        yield Offer(
            cloud="vultr",
            id=f"{identity}@{region}" if region else identity,
            instance_type=identity,
            model=known.model,
            gpu_count=known.number,
            price_hour=price_in(plan, region),
            region=standard_region(region, REGIONS),
            cloud_region=region,
            gpu_memory_mib=known.gib * 1024,
            vcpus=_whole(plan.get("vcpu_count")),
            memory_mib=_whole(plan.get("ram")),
            disk_gib=None if (disk := _whole(plan.get("disk"))) is None else disk * _MEGA // _GIGA,
            available=None if region else 0,
            lanes=lanes,
            seen=now,
        )


def is_wanted(model: str, query: OfferQuery) -> bool:
    """Whether the query is about GPUs of this model."""
    return not query.models or any(gpu_models.matches(spec, model, None) for spec in query.models)


def _number(value: t.Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return None
    return Decimal(str(value))


def _whole(value: t.Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
