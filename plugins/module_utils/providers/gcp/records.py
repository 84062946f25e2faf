# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google's machines read into our records, and our marks as labels, whose letters are few."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime

from ...core.clock import from_text
from ...core.http import Api, part
from ...model import Capability, Instance
from .machine_types import GPUS, region_of
from .prices import PriceTable, disk_hour

MANAGED = "tgp-managed"  # the label of disks
_PREFIX = "tgp-"
_LONGEST = 63
_ESCAPED = re.compile(r"[^a-z0-9-]")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
_PIECE = re.compile(r"(.+?)(?:--([0-9]+))?")
_PROBLEMS = {
    "TERMINATED": "it is stopped; its disk is billed on",
    "SUSPENDED": "it is suspended; its disk and its memory are billed on",
    "REPAIRING": "its host failed, and Google repairs it",
}


def identity_of(zone: str, name: str) -> str:
    """Names are unique in a zone only."""
    return f"{zone}/{name}"


def labels_of(marks: t.Mapping[str, str]) -> dict[str, str]:
    """Marks as labels ``tgp-<word>``. What a label may not hold is written as ``_`` and two digits for each byte; a value that is too
    long goes on in ``tgp-<word>--2``."""
    labels: dict[str, str] = {}
    for key, value in sorted(marks.items()):
        word = re.sub(r"[^a-z0-9-]", "-", key.lower())
        text = _ESCAPED.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), value)
        for number, start in enumerate(range(0, max(len(text), 1), _LONGEST), 1):
            labels[f"{_PREFIX}{word}{'' if number == 1 else f'--{number}'}"] = text[start : start + _LONGEST]
    return labels


def marks_of(labels: t.Any) -> dict[str, str]:
    """The marks that labels hold. Labels of others, and those that do not say what we write, are none."""
    pieces: dict[str, dict[int, str]] = {}
    for key, value in labels.items() if isinstance(labels, dict) else ():
        found = _PIECE.fullmatch(str(key).removeprefix(_PREFIX))
        if str(key).startswith(_PREFIX) and key != MANAGED and isinstance(value, str) and found:
            pieces.setdefault(found[1], {})[int(found[2] or 1)] = value
    marks = {}
    for key, parts in pieces.items():
        text = "".join(parts[number] for number in sorted(parts))
        try:
            marks[key] = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1").decode()
        except ValueError:
            continue
    return marks


def without_marks(labels: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The labels that are not ours."""
    return {key: value for key, value in labels.items() if not str(key).startswith(_PREFIX) or key == MANAGED}


def type_and_gpus(entry: t.Mapping[str, t.Any]) -> tuple[str, str, int | None]:
    """How a machine would be offered, its canonical model, and how many GPUs it has, as it says itself."""
    name = last(entry.get("machineType"))
    given = entry.get("guestAccelerators")
    accelerators = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    if not accelerators:
        return name, "", None
    accelerator, count = last(accelerators[0].get("acceleratorType")), accelerators[0].get("acceleratorCount")
    offered_as = f"{name}+{accelerator}" if name.startswith("n1-") else name
    known = GPUS.get(accelerator)
    return offered_as, known.model if known else "", count if isinstance(count, int) else None


def to_instance(api: Api, zone: str, entry: t.Any, operation: str, facts: Capability, prices: PriceTable) -> Instance:
    """One machine as it says itself. ``name`` and ``status`` must be there."""
    api.expect(entry, dict, operation, "an instance")
    name = api.expect(entry.get("name") or None, str, operation, "name of an instance")
    status = api.expect(entry.get("status") or None, str, operation, f"status of {name}")
    scheduling, disk = part(entry, "scheduling"), _disk_gib(entry)
    spot = scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible") is True
    offered_as, model, count = type_and_gpus(entry)
    public, private = _addresses(entry)
    return Instance(
        cloud="gcp",
        id=identity_of(zone, name),
        name=name,
        state=facts.read_state(status),
        raw_state=status,
        created=moment(entry.get("creationTimestamp")),
        price_hour=prices.price_hour(offered_as, region_of(zone), disk or 0, spot=spot),
        ip=public,
        private_ip=private,
        region=zone,
        instance_type=offered_as,
        model=model,
        gpu_count=count,
        spot=spot,
        interrupted=spot and status == "TERMINATED",
        halted=status == "TERMINATED",
        marks=marks_of(entry.get("labels")),
        problem=_PROBLEMS.get(status, ""),
        storage_price_hour=disk_hour(disk or 0),
        disk_gib=disk,
    )


def last(link: t.Any) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2] if isinstance(link, str) else ""


def _disk_gib(entry: t.Mapping[str, t.Any]) -> int | None:
    """All disks together; sizes are texts."""
    disks = entry.get("disks")
    sizes = [str(one.get("diskSizeGb", "")) for one in disks if isinstance(one, dict)] if isinstance(disks, list) else []
    return sum(int(size) for size in sizes) if sizes and all(size.isdecimal() for size in sizes) else None


def _addresses(entry: t.Mapping[str, t.Any]) -> tuple[str, str]:
    interfaces = entry.get("networkInterfaces")
    first = interfaces[0] if isinstance(interfaces, list) and interfaces and isinstance(interfaces[0], dict) else {}
    configs = first.get("accessConfigs")
    public = configs[0].get("natIP") if isinstance(configs, list) and configs and isinstance(configs[0], dict) else ""
    private = first.get("networkIP")
    return (public if isinstance(public, str) else ""), (private if isinstance(private, str) else "")


def moment(text: t.Any) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None
