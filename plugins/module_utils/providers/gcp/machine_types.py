# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of Google's machine types have whole GPUs, which GPUs they are, whether the project's quotas allow them, and offers made of all that.

Most machine types have their GPUs built in. Those of family N1 have none, and one is attached when the machine is made; such an offer is called
``n1-standard-4+nvidia-tesla-t4``.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime

from ...core.http import Api
from ...model import Lane, Offer, OfferQuery
from ...planner.offers import gpu_models
from ...planner.offers.requirements import standard_region
from .prices import PriceTable, disk_hour

REGIONS = {
    "africa-south1": "africa-south", "northamerica-northeast1": "ca-east", "northamerica-northeast2": "ca-east",
    "southamerica-east1": "sa-east", "southamerica-west1": "sa-west",
}  # fmt: skip
FILTER = 'name eq "(a2|a3|a4|g2|g4)-.*|n1-standard-(4|8)"'  # there are some hundred machine types in each zone
ALL_REGIONS = "GPUS_ALL_REGIONS"
LEAST_DISK = 20  # GiB


class Accelerator(t.NamedTuple):
    """``model`` is canonical, ``gib`` the memory of one, ``metric`` its quota in a region where that is known. ``vcpus``: the fewest
    that a machine has for each whole one."""

    model: str
    gib: int
    metric: str = ""
    vcpus: int = 0


GPUS: t.Mapping[str, Accelerator] = {
    "nvidia-l4": Accelerator("L4", 24, "NVIDIA_L4_GPUS"),
    "nvidia-tesla-t4": Accelerator("T4", 16, "NVIDIA_T4_GPUS"),
    "nvidia-tesla-p100": Accelerator("P100", 16, "NVIDIA_P100_GPUS"),
    "nvidia-tesla-v100": Accelerator("V100-SXM2", 16, "NVIDIA_V100_GPUS"),
    "nvidia-tesla-a100": Accelerator("A100-SXM", 40, "NVIDIA_A100_GPUS"),
    "nvidia-a100-80gb": Accelerator("A100-SXM", 80, "NVIDIA_A100_80GB_GPUS"),
    "nvidia-h100-80gb": Accelerator("H100-SXM", 80, "NVIDIA_H100_GPUS"),
    "nvidia-h100-mega-80gb": Accelerator("H100-SXM", 80, "NVIDIA_H100_MEGA_GPUS"),
    "nvidia-h200-141gb": Accelerator("H200", 141),
    "nvidia-b200": Accelerator("B200", 180),
    "nvidia-rtx-pro-6000": Accelerator("RTXPRO6000", 96, vcpus=48),
}
ATTACHED = {
    "nvidia-tesla-t4": "n1-standard-4",
    "nvidia-tesla-p100": "n1-standard-8",
    "nvidia-tesla-v100": "n1-standard-8",
}
_HYPERDISK = ("a3-ultragpu-", "a4-")


@dataclasses.dataclass(frozen=True)
class GcpMachineType:
    """One in one zone, as it is offered. ``attached``: the accelerator that has to be asked for. ``problem``: why it is not rented, as the end
    of a sentence about it."""

    name: str
    zone: str
    accelerator: str
    gpus: int
    vcpus: int | None = None
    memory_mib: int | None = None
    attached: bool = False
    problem: str = ""

    @property
    def offered_as(self) -> str:
        return f"{self.name}+{self.accelerator}" if self.attached else self.name

    @property
    def region(self) -> str:
        return region_of(self.zone)

    @property
    def model(self) -> str:
        """Canonical; that of a GPU which is not rented, too, as far as its name tells."""
        known = GPUS.get(self.accelerator) or GPUS.get(re.sub(r"-v(ws|gpu)$", "", self.accelerator))
        return known.model if known else ""


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def parted(offered_as: str) -> tuple[str, str]:
    """Machine type and attached accelerator of an offer; the second is empty when the GPUs are built in."""
    name, _plus, accelerator = offered_as.partition("+")
    return name, accelerator


def read_types(api: Api, entries: t.Sequence[tuple[str, t.Any]], operation: str) -> list[GcpMachineType]:
    """Machine types with GPUs of their own, and those to which one can be attached (``gpus`` 0)."""
    found = []
    for zone, entry in entries:
        api.expect(entry, dict, operation, "a machine type")
        name = api.expect(entry.get("name") or None, str, operation, "name of a machine type")
        vcpus, memory = _whole(entry.get("guestCpus")), _whole(entry.get("memoryMb"))
        built_in = api.expect(entry.get("accelerators", []), list, operation, f"accelerators of {name}")
        if not built_in and name in ATTACHED.values():
            found.append(GcpMachineType(name, zone, "", 0, vcpus, memory))
        for one in built_in[:1]:
            api.expect(one, dict, operation, f"accelerators of {name}")
            accelerator = api.expect(one.get("guestAcceleratorType") or None, str, operation, f"accelerator of {name}")
            count = one.get("guestAcceleratorCount")
            problem = refusal(accelerator, count, vcpus) or ("has GPUs of several kinds" if len(built_in) > 1 else "")
            found.append(GcpMachineType(name, zone, accelerator, _whole(count) or 0, vcpus, memory, problem=problem))
    return found


def refusal(accelerator: str, count: t.Any, vcpus: int | None) -> str:
    """Why a machine with so many accelerators is not rented, as the end of a sentence about it; empty = it may be."""
    if accelerator.endswith("-vws"):
        return "is a virtual workstation, which needs NVIDIA's licensed GRID driver"
    if "vgpu" in accelerator or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return "is a fraction of a GPU (vGPU), which needs NVIDIA's licensed GRID driver"
    known = GPUS.get(accelerator)
    if known is None:
        return f"has {accelerator}, which is not known to be a whole GPU of NVIDIA"
    if known.vcpus and (vcpus or 0) < known.vcpus * count:
        return f"has {vcpus} vCPUs, fewer than belong to a whole {known.model}, so its GPU is a fraction (vGPU)"
    return ""


def with_attached(types: t.Sequence[GcpMachineType], accelerators: t.Collection[tuple[str, str]]) -> list[GcpMachineType]:
    """All that can be rented: GPUs that are built in, and one attached GPU where the zone has both. ``accelerators``: (zone, name)."""
    whole = [one for one in types if one.gpus or one.problem]
    bare = {(one.zone, one.name): one for one in types if not one.gpus and not one.problem}
    for zone, accelerator in sorted(accelerators):
        host = bare.get((zone, ATTACHED.get(accelerator, "")))
        if host is not None:
            whole.append(dataclasses.replace(host, accelerator=accelerator, gpus=1, attached=True))
    return whole


# ---- quotas


@dataclasses.dataclass(frozen=True)
class Quotas:
    """How many more GPUs the project may have: of all regions together, and by region and metric. What is not listed
    has no limit that is known."""

    everywhere: int | None
    regional: t.Mapping[tuple[str, str], int]

    def lack(self, kind: GcpMachineType, *, spot: bool) -> str:
        """The quota that does not allow one more machine of this type; empty when all do. Spot machines use a quota of their own, or that of
        all machines where the project has none for them."""
        if self.everywhere is not None and self.everywhere < kind.gpus:
            return ALL_REGIONS
        metric = GPUS[kind.accelerator].metric
        rooms = [
            self.regional.get((kind.region, name)) for name in ([f"PREEMPTIBLE_{metric}"] if spot else []) + [metric] if metric
        ]
        known = [room for room in rooms if room is not None]
        return f"{metric} in {kind.region}" if known and max(known) < kind.gpus else ""


def read_quotas(api: Api, project: t.Mapping[str, t.Any], regions: t.Sequence[t.Any]) -> Quotas:
    regional: dict[tuple[str, str], int] = {}
    for region in regions:
        api.expect(region, dict, "GET /regions", "a region")
        name = api.expect(region.get("name") or None, str, "GET /regions", "name of a region")
        regional |= {(name, metric): room for metric, room in _rooms(api, region, "GET /regions").items()}
    return Quotas(_rooms(api, project, "GET of the project").get(ALL_REGIONS), regional)


def _rooms(api: Api, entry: t.Mapping[str, t.Any], operation: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for quota in api.expect(entry.get("quotas", []), list, operation, "quotas"):
        api.expect(quota, dict, operation, "a quota")
        limit, usage = quota.get("limit"), quota.get("usage")
        if isinstance(limit, (int, float)) and isinstance(usage, (int, float)):
            found[str(quota.get("metric"))] = max(int(limit - usage), 0)
    return found


# ---- offers


def is_wanted(model: str, query: OfferQuery) -> bool:
    """Whether the query is about GPUs of this model."""
    return not query.models or any(gpu_models.matches(spec, model, None) for spec in query.models)


def to_offer(
    kind: GcpMachineType,
    prices: PriceTable,
    query: OfferQuery,
    lanes: tuple[Lane, ...],
    now: datetime,
    *,
    spot: bool,
    allowed: bool,
) -> Offer:
    """``allowed`` False: a quota is in the way, so none is available. Whether there is one is known only by trying."""
    gpu, disk = GPUS[kind.accelerator], max(query.disk_gib, LEAST_DISK)
    return Offer(
        cloud="gcp",
        id=f"{kind.offered_as}@{kind.zone}{':spot' if spot else ''}",
        instance_type=kind.offered_as,
        model=gpu.model,
        gpu_count=kind.gpus,
        price_hour=prices.price_hour(kind.offered_as, kind.region, disk, spot=spot),
        storage_price_hour=disk_hour(disk),
        price_estimated=True,
        region=standard_region(kind.region, REGIONS),
        cloud_region=kind.zone,
        gpu_memory_mib=gpu.gib * 1024,
        vcpus=kind.vcpus,
        memory_mib=kind.memory_mib,
        disk_gib=disk,
        spot=spot,
        available=None if allowed else 0,
        lanes=lanes,
        seen=now,
    )


def disk_type(instance_type: str) -> str:
    """The kind of boot disk that the machine type takes."""
    return "hyperdisk-balanced" if instance_type.startswith(_HYPERDISK) else "pd-balanced"


def _whole(value: t.Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
