# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the release tables are out of date: by their age, or because something newer than their rows was met (B-19). Pure."""

from __future__ import annotations

import dataclasses
import enum
import re
import typing as t
from datetime import date

from ...model.defaults import TABLE_STALE_AFTER
from .tables import UPGRADE, Minor, ReleaseTables, TableOrigin, minor, text_of

_DRIVER = re.compile(r"(?:siderolabs/)?(?:nvidia-open-gpu-kernel-modules|nonfree-kmod-nvidia)-([a-z-]+)")


class Product(enum.Enum):
    """What a version was read of."""

    TALOS = "Talos"
    KUBERNETES = "Kubernetes"


@dataclasses.dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version that was met, and where: "node gpu-1", "the API server", "class demo"."""

    product: Product
    version: str
    where: str


@dataclasses.dataclass(frozen=True, slots=True)
class SeenDriver:
    """A driver that a Talos release was seen with: ``branch`` 595 of ``track``."""

    talos: Minor
    track: str
    branch: int
    where: str


def seen_driver(extension: str, version: str, talos: str, where: str) -> SeenDriver | None:
    """Of an extension with its version ("580.178.04-v1.13.9"); None when it is not a driver of NVIDIA, or a version cannot be read."""
    match, release = _DRIVER.fullmatch(extension), minor(talos)
    branch = version.partition(".")[0]
    if match is None or release is None or not branch.isdigit():
        return None
    return SeenDriver(release, match[1], int(branch), where)


def warnings(tables: ReleaseTables, sightings: t.Sequence[SeenVersion | SeenDriver], today: date) -> tuple[str, ...]:
    """One sentence for each table that is old, and for each release, Kubernetes or driver beyond the rows; nothing when all is well."""
    found = [_age(origin, today) for origin in tables.origins]
    found += [_of_driver(tables, one) if isinstance(one, SeenDriver) else _of_version(tables, one) for one in sightings]
    kept: dict[str, str] = {}
    for sentence, where in filter(None, found):
        kept.setdefault(sentence, where)
    return tuple(f"{where}{sentence} {UPGRADE}" for sentence, where in kept.items())


def _age(origin: TableOrigin, today: date) -> tuple[str, str] | None:
    days = (today - origin.as_of).days
    if days <= TABLE_STALE_AFTER.days:
        return None
    return f"The table {origin.table!r} is of {origin.as_of}, {days} days ago: newer releases may be missing.", ""


def _of_version(tables: ReleaseTables, one: SeenVersion) -> tuple[str, str] | None:
    release = minor(one.version)
    if release is None:
        return None
    if one.product is Product.TALOS and release > tables.newest:
        return f"Talos {text_of(release)} is newer than the newest in the tables, {text_of(tables.newest)}.", f"{one.where}: "
    newest = (1, tables.newest_kubernetes)
    if one.product is Product.KUBERNETES and release > newest:
        return f"Kubernetes {text_of(release)} is newer than the newest in the tables, {text_of(newest)}.", f"{one.where}: "
    row = tables.releases.get(release) if one.product is Product.TALOS else None
    if row is not None and row.is_preview and "-" not in one.version:
        return f"The row of Talos {text_of(release)} is of {row.seen}: drivers of the final release may differ.", f"{one.where}: "
    return None


def _of_driver(tables: ReleaseTables, one: SeenDriver) -> tuple[str, str] | None:
    drivers = tables.drivers(one.talos)
    if not drivers:
        return None  # the release itself is reported
    known = drivers.get(one.track)
    release = text_of(one.talos)
    if known is None:
        return f"Talos {release} has a driver track {one.track} that the tables do not know.", f"{one.where}: "
    if one.branch > known:
        return f"Track {one.track} of Talos {release} has driver {one.branch}, the tables say {known}.", f"{one.where}: "
    return None


def sentence(tables: ReleaseTables) -> str:
    """What the tables hold, and which rows come from a file."""
    oldest = min(origin.as_of for origin in tables.origins)
    text = f"Talos {text_of(min(tables.releases))} to {text_of(tables.newest)}, Kubernetes to 1.{tables.newest_kubernetes}, as of {oldest}"
    own: dict[str, list[str]] = {}
    for release, row in sorted(tables.releases.items()):
        if row.origin is not None:
            own.setdefault(row.origin.table, []).append(text_of(release))
    return "; ".join([text, *(f"Talos {', '.join(rows)} from {file}" for file, rows in own.items())])
