# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's JSON read into our records: the only place that knows its words."""

from __future__ import annotations

import math
import re
import typing as t
from datetime import datetime
from decimal import Decimal

from ...core import redact
from ...core.clock import from_text
from ...core.http import Api, part
from ...model import Capability, Charge, Instance, InstanceState, Offer, Volume
from ...planner.offers import gpu_models
from ...planner.offers.requirements import gibibytes, gigabytes, standard_region

SECURE, COMMUNITY = "SECURE", "COMMUNITY"
USUAL_COUNTS = (1, 2, 4, 8)
STAMP = "TGP_NODE"  # names the pod in its own environment; without it nothing is a mark
_MARKS = ("cluster", "generation", "pool", "nonce", "created")
_TAG = "TGP_TAG_"
_DISK_GB_HOUR = Decimal("0.10") / 730  # the container's disk and a persistent volume, while a pod runs
_STANDARD, _FIRST_GB = "STANDARD", 1000
_VOLUME_GB_MONTH, _VOLUME_MORE_GB_MONTH = (
    Decimal("0.07"),
    Decimal("0.05"),
)  # network volumes: of the first TB, and of what is beyond it
_MILLIONTH = Decimal("0.000001")
_KIND = re.compile(r"(?P<gpu>.+) x(?P<number>\d+) (?P<tier>secure|community)")
_PROBLEMS = {
    "ERROR": "RunPod calls it broken; its log may say why",
    "EXITED": "it stands still: its program ended, it was stopped by hand, or the balance is used up",
}
# A data centre's name begins with the place; centres of one place are numbered.
_PLACES = {
    **dict.fromkeys(("us-ca", "us-wa", "us-or", "us-nv", "us-az", "us-ut"), "us-west"),
    **dict.fromkeys(("us-ks", "us-tx", "us-il", "us-mo", "us-ia", "us-oh", "us-ne"), "us-central"),
    **dict.fromkeys(("us-ga", "us-nc", "us-de", "us-va", "us-ny", "us-nj", "us-pa", "us-md", "us-fl"), "us-east"),
    **dict.fromkeys(("eu-cz", "eu-de", "eu-pl", "eu-at", "eu-ch"), "eu-central"),
    **dict.fromkeys(("eu-nl", "eu-fr", "eu-be", "eu-gb", "eu-ie", "eur-is"), "eu-west"),
    **dict.fromkeys(("eu-se", "eu-fi", "eu-dk", "eur-no"), "eu-north"),
    **dict.fromkeys(("eu-ro", "eu-bg", "eu-hu"), "eu-east"),
    **dict.fromkeys(("ap-jp", "ap-kr"), "asia-northeast"),
    "ap-in": "asia-south",
    "sea-sg": "asia-southeast",
    "oc-au": "australia-southeast",
}
REGIONS = {f"{place}-{number}": region for place, region in _PLACES.items() for number in range(1, 10)}


class Kind(t.NamedTuple):
    """What is rented: RunPod's id of the GPU, how many, and whose house it stands in (SECURE or COMMUNITY)."""

    gpu: str
    number: int
    tier: str

    def __str__(self) -> str:
        return f"{self.gpu} x{self.number} {self.tier.lower()}"

    @classmethod
    def read(cls, text: str) -> Kind | None:
        """The reverse of str()."""
        match = _KIND.fullmatch(text)
        return cls(match["gpu"], int(match["number"]), match["tier"].upper()) if match else None


def disk_price(size_gb: int) -> Decimal:
    """Dollars per hour for ``size_gb`` GB of disk of a running pod; no answer of RunPod's tells it."""
    return (_DISK_GB_HOUR * size_gb).quantize(_MILLIONTH)


def to_offers(
    api: Api,
    entry: t.Any,
    operation: str,
    tier: str,
    counts: t.Sequence[int],
    *,
    disk_gib: int,
    facts: Capability,
    now: datetime,
) -> t.Iterator[Offer]:
    """Offers of one GPU type in one tier: for each count one per data centre, or one for any place where none is named (always so in the
    community tier, which cannot be pinned). The catalogue's price is for one GPU; the price of an offer is that of all of them and of a
    disk of ``disk_gib``."""
    api.expect(entry, dict, operation, "an entry")
    gpu = api.expect(entry.get("id"), str, operation, "id of a GPU")
    price = api.expect(entry.get("price"), dict, operation, f"{gpu}: price").get(tier.lower())
    if gpu == "unknown" or not price or entry.get(tier.lower()) is False:
        return
    if isinstance(price, bool) or not isinstance(price, (int, float)) or not math.isfinite(price) or price < 0:
        raise api.bad_shape(operation, f"{gpu}: price.{tier.lower()} is not a possible price")
    ceiling = api.expect(entry.get("maxCount"), dict, operation, f"{gpu}: maxCount").get(tier.lower())
    most = ceiling if isinstance(ceiling, int) else 1
    model, memory = gpu_of(gpu, str(entry.get("name") or ""), entry.get("memory"))
    disk = disk_price(gigabytes(disk_gib))
    places: list[tuple[str, t.Any]] = [("", entry.get("availability"))]
    if tier == SECURE and (centres := entry.get("dataCenters")):
        listed = [
            api.expect(centre, dict, operation, f"{gpu}: a data centre")
            for centre in api.expect(centres, list, operation, "dataCenters")
        ]
        places = [
            (api.expect(centre.get("id"), str, operation, f"{gpu}: id of a data centre"), centre.get("availability"))
            for centre in listed
        ]
    for count in counts:
        if not 0 < count <= most:
            continue
        kind = Kind(gpu, count, tier)
        for centre, stock in places:
            yield Offer(
                cloud="runpod",
                id=f"{kind}@{centre or 'any'}",
                instance_type=str(kind),
                model=model,
                gpu_count=count,
                price_hour=Decimal(str(price)) * count + disk,
                region=standard_region(centre, REGIONS),
                cloud_region=centre,
                gpu_memory_mib=memory,
                disk_gib=disk_gib,
                storage_price_hour=disk,
                available=0 if stock == "NONE" else None,
                lanes=facts.lanes,
                seen=now,
                traits=_traits(entry, tier, stock),
            )


def _traits(entry: dict[str, t.Any], tier: str, stock: t.Any) -> dict[str, str]:
    traits = {"tier": tier.lower(), "verified": "true" if tier == SECURE else "false"}
    if isinstance(stock, str):
        traits["stock"] = stock.lower()
    versions = [version for version in _list(entry, "cudaVersions") if isinstance(version, dict) and version.get("available")]
    if available := [str(version["version"]) for version in versions if re.fullmatch(r"\d+\.\d+", str(version.get("version")))]:
        traits["cuda"] = max(available, key=lambda text: [int(part) for part in text.split(".")])
    return traits


def gpu_of(gpu: str, name: str = "", gigabytes: t.Any = None) -> tuple[str, int | None]:
    """Canonical model and memory per GPU in MiB. Clouds round a card's memory differently: the model's own size wins where it is near."""
    parsed = gpu_models.parse(gpu) or gpu_models.parse(name)
    model = parsed.model if parsed else (name or gpu)
    if not isinstance(gigabytes, int) or gigabytes <= 0:
        return model, (parsed.memory_mib if parsed else None) or gpu_models.memory_mib(model)
    reported = gigabytes * 1024
    near = [size for size in gpu_models.memory_sizes_mib(model) if abs(size - reported) * 20 <= reported]
    return model, near[0] if near else reported


def to_instance(api: Api, entry: t.Any, operation: str, facts: Capability) -> Instance:
    """One pod. ``id`` and ``status`` must be there, all else may be null."""
    api.expect(entry, dict, operation, "a pod")
    identity = api.expect(entry.get("id") or None, str, operation, "id of a pod")
    status = api.expect(entry.get("status"), str, operation, f"status of {identity}")
    environment = part(entry, "env")
    redact.register(*(value for key, value in environment.items() if _is_secret(key) and isinstance(value, str)))
    gpu = part(entry, "gpu")
    kind = None
    if isinstance(gpu.get("id"), str) and isinstance(gpu.get("count"), int):
        kind = Kind(gpu["id"], gpu["count"], str(entry.get("cloud") or SECURE))
    name, running = str(entry.get("name") or ""), status == "RUNNING"
    price, disk = _price(entry.get("cost")), disk_price(_disk_gb(entry))
    address, ports = _ports(identity, entry) if running else ("", {})
    pulling = running and entry.get("runtime") is None  # said from the moment of creation, and between two rounds of a crash loop
    return Instance(
        cloud="runpod",
        id=identity,
        name=name,
        state=InstanceState.PENDING if pulling else facts.read_state(status),
        raw_state=status,
        created=_moment(entry.get("createdAt")),
        price_hour=None if price is None else price + disk,
        ip=address,
        private_ip=str(part(entry, "globalNetworking").get("ip") or ""),
        region=str(entry.get("dataCenterId") or ""),
        instance_type=str(kind) if kind else "",
        model=gpu_of(kind.gpu)[0] if kind else "",
        gpu_count=kind.number if kind else None,
        marks=marks_of(environment, name),
        problem=_PROBLEMS.get(status, ""),
        spot=False,
        disk_gib=gibibytes(entry["disk"]) or None if isinstance(entry.get("disk"), int) else None,
        storage_price_hour=Decimal(0) if price is None else disk,
        ports=ports,
    )


def to_volume(api: Api, entry: t.Any, operation: str) -> Volume:
    """One network volume. Its whole size is billed, at the published prices of the type STANDARD; those of other types are not known."""
    api.expect(entry, dict, operation, "a network volume")
    identity = api.expect(entry.get("id") or None, str, operation, "id of a network volume")
    size = api.expect(entry.get("size"), int, operation, f"{identity}: size")
    first = min(size, _FIRST_GB)
    price = _VOLUME_GB_MONTH * first + _VOLUME_MORE_GB_MONTH * (size - first)
    return Volume(
        cloud="runpod",
        id=identity,
        name=str(entry.get("name") or ""),
        region=api.expect(entry.get("dataCenter") or None, str, operation, f"{identity}: dataCenter"),
        size_gb=Decimal(size),
        price_month=price if entry.get("type", _STANDARD) == _STANDARD else None,
    )


def _price(cost: t.Any) -> Decimal | None:
    """What a pod tells, without its disk. Of one that stands still or has ended it says 0, which is not a price: what it cost until then stays
    what it was."""
    is_price = isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 < cost < math.inf
    return Decimal(str(cost)) if is_price else None


def _disk_gb(entry: dict[str, t.Any]) -> int:
    """GB of the container's disk and of a persistent volume."""
    sizes = (entry.get("disk"), part(part(entry, "mounts"), "persistent").get("size"))
    return sum(size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0)


def stamp(name: str, marks: t.Mapping[str, str]) -> dict[str, str]:
    """The environment variables that say whose a pod is; RunPod has no tags."""
    variables = {STAMP: name}
    for key, value in marks.items():
        word = re.sub(r"[^A-Z0-9_]", "_", key.upper())
        variables[f"TGP_{word}" if key in _MARKS else f"{_TAG}{word}"] = str(value)
    return variables


def to_charge(api: Api, record: t.Any, operation: str) -> Charge:
    """What a pod was billed in one bucket of time. RunPod names no pod here, only its id, and bills no traffic."""
    api.expect(record, dict, operation, "a record")
    pod, amount = api.expect(record.get("podId"), str, operation, "podId"), record.get("totalAmount")
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not math.isfinite(amount):
        raise api.bad_shape(operation, "totalAmount of a record is not a number")
    return Charge(pod, frozenset(), Decimal(str(amount)).quantize(_MILLIONTH), rounding=_MILLIONTH)


def marks_of(environment: t.Mapping[str, t.Any], name: str) -> dict[str, str]:
    """The stamp as marks; none when the pod has another name than its stamp says (a copy that was made by hand)."""
    if not name or environment.get(STAMP) != name:
        return {}
    marks = {word: str(environment[key]) for word in _MARKS if (key := f"TGP_{word.upper()}") in environment}
    tags = {key.removeprefix(_TAG).lower(): str(value) for key, value in environment.items() if key.startswith(_TAG)}
    return {**tags, **marks, "node": name}


def _ports(identity: str, entry: dict[str, t.Any]) -> tuple[str, dict[str, str]]:
    """The public address, and where each opened port is reached. TCP ports come minutes after RUNNING, null at first."""
    ports = {}
    for text in _list(entry, "ports"):
        number, _slash, kind = str(text).partition("/")
        if kind == "http":
            ports[number] = f"{identity}-{number}.proxy.runpod.net:443"
    address = ""
    for port in _list(part(entry, "runtime"), "ports"):
        if isinstance(port, dict) and port.get("type") == "tcp" and port.get("ip") and port.get("public"):
            address = address or str(port["ip"])
            ports[str(port.get("private"))] = f"{port['ip']}:{port['public']}"
    return address, ports


def _is_secret(variable: str) -> bool:
    return any(word in variable.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSWORD"))


def _list(entry: dict[str, t.Any], key: str) -> list[t.Any]:
    """The same for a list."""
    value = entry.get(key)
    return value if isinstance(value, list) else []


def _moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None
