# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda's JSON read into our records: the only place that knows its words."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime, timezone
from decimal import Decimal

from ...core import redact
from ...core.http import Api, part
from ...model import Capability, Instance, Lane, Offer, Volume
from ...planner.offers import gpu_models
from ...planner.offers.requirements import standard_region

REGIONS = {"us-midwest-1": "us-central", "us-midwest-2": "us-central"}  # Illinois, Ohio
_FORMS_BY_TYPE = {"gpu_8x_v100": "V100-SXM2", "gpu_8x_a100": "A100-SXM"}  # where the description may leave the form out
_SIZE = re.compile(r"\((\d+) GB\b")
_PROBLEMS = {"unhealthy": "Lambda calls it unhealthy", "preempted": "Lambda took it back"}


def to_offers(api: Api, entry: t.Any, operation: str, lanes: tuple[Lane, ...], now: datetime) -> t.Iterator[Offer]:
    """One offer per region that has capacity; one without region and with ``available`` 0 when the type is sold out."""
    api.expect(entry, dict, operation, "an entry")
    kind = api.expect(entry.get("instance_type"), dict, operation, "instance_type")
    name = api.expect(kind.get("name"), str, operation, "instance_type.name")
    cents = api.expect(kind.get("price_cents_per_hour"), int, operation, f"{name}: price_cents_per_hour")
    if cents < 0:
        raise api.bad_shape(operation, f"{name}: price_cents_per_hour is {cents}")
    specs = api.expect(kind.get("specs"), dict, operation, f"{name}: specs")
    count = api.expect(specs.get("gpus"), int, operation, f"{name}: specs.gpus")
    regions = api.expect(entry.get("regions_with_capacity_available"), list, operation, f"{name}: regions_with_capacity_available")
    model, memory = gpu_of(kind) if count else ("", None)
    for region_name in [api.expect(region, dict, operation, f"{name}: a region").get("name") for region in regions] or [""]:
        region = api.expect(region_name, str, operation, f"{name}: name of a region")
        yield Offer(
            cloud="lambda",
            id=f"{name}@{region}" if region else name,
            instance_type=name,
            model=model,
            gpu_count=count,
            price_hour=Decimal(cents) / 100,
            region=standard_region(region, REGIONS),
            cloud_region=region,
            gpu_memory_mib=memory,
            vcpus=_whole(specs.get("vcpus")),
            memory_mib=None if (ram := _whole(specs.get("memory_gib"))) is None else ram * 1024,
            disk_gib=_whole(specs.get("storage_gib")),
            available=None if region else 0,
            arch="arm64" if model.startswith(("GH200", "GB200", "GB300")) else "amd64",
            lanes=lanes,
            seen=now,
        )


def _whole(value: t.Any) -> int | None:
    return value if isinstance(value, int) else None


def gpu_of(kind: t.Mapping[str, t.Any]) -> tuple[str, int | None]:
    """Model and memory per GPU (MiB) of an ``instance_type``: from its description, else from its name, else the
    cloud's own words."""
    name, text = str(kind.get("name") or ""), str(kind.get("gpu_description") or kind.get("description") or "")
    gpu = gpu_models.parse(text) or gpu_models.parse(name)
    if gpu is None:
        size = _SIZE.search(text)
        return text.partition(" (")[0].strip(), int(size[1]) * 1024 if size else None
    refined = _FORMS_BY_TYPE.get(name)
    model = refined if refined and gpu_models.matches(gpu.model, refined) else gpu.model
    return model, gpu.memory_mib or gpu_models.memory_mib(model)


def to_instance(api: Api, entry: t.Any, operation: str, facts: Capability) -> Instance:
    """One entry of the API. ``id`` and ``status`` must be there; nearly all else is absent (not null) while a machine is young."""
    api.expect(entry, dict, operation, "an instance")
    identity = api.expect(entry.get("id") or None, str, operation, "id of an instance")
    status = api.expect(entry.get("status"), str, operation, f"status of {identity}")
    redact.register(*(entry[key] for key in ("jupyter_token", "jupyter_url") if isinstance(entry.get(key), str)))
    kind, region = part(entry, "instance_type"), part(entry, "region")
    specs = part(kind, "specs")
    cents, count = kind.get("price_cents_per_hour"), specs.get("gpus")
    tags = _tags(entry.get("tags"))
    marks = {key.removeprefix("tgp:"): value for key, value in tags.items() if key.startswith("tgp:")}
    return Instance(
        cloud="lambda",
        id=identity,
        name=str(entry.get("name") or ""),
        state=facts.read_state(status),
        raw_state=status,
        created=_moment(marks.get("created")),
        price_hour=Decimal(cents) / 100 if isinstance(cents, int) else None,
        ip=str(entry.get("ip") or ""),
        private_ip=str(entry.get("private_ip") or ""),
        region=str(region.get("name") or ""),
        instance_type=str(kind.get("name") or ""),
        model=gpu_of(kind)[0] if count else "",
        gpu_count=count if isinstance(count, int) else None,
        marks=marks,
        problem=_PROBLEMS.get(status, ""),
    )


def to_volume(api: Api, entry: t.Any, operation: str) -> Volume:
    """One file system. It is billed for what is stored in it; the price is on no list of the API."""
    api.expect(entry, dict, operation, "a file system")
    name = api.expect(entry.get("name") or None, str, operation, "name of a file system")
    region = api.expect(entry.get("region"), dict, operation, f"{name}: region").get("name")
    used, in_use = entry.get("bytes_used"), entry.get("is_in_use")
    return Volume(
        cloud="lambda",
        id=api.expect(entry.get("id") or None, str, operation, f"{name}: id"),
        name=name,
        region=api.expect(region or None, str, operation, f"{name}: name of its region"),
        size_gb=Decimal(used) / 10**9 if isinstance(used, int) and not isinstance(used, bool) and used >= 0 else None,
        in_use=in_use if isinstance(in_use, bool) else None,
    )


def _tags(value: t.Any) -> dict[str, str]:
    """The list of {key, value} as a dict; foreign forms are no tags of ours."""
    if not isinstance(value, list):
        return {}
    return {str(tag["key"]): str(tag.get("value", "")) for tag in value if isinstance(tag, dict) and "key" in tag}


def _moment(text: str | None) -> datetime | None:
    """Epoch seconds of a tag as a time."""
    if not text or not text.isdecimal() or len(text) > 11:
        return None
    return datetime.fromtimestamp(int(text), timezone.utc)
