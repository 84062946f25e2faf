# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where machines can mount the existing volumes that a class names, and what those volumes cost (L-51)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from decimal import Decimal

from ...model import CloudChoice, Specs, Volume, VolumeMount

Account = t.Mapping[str, "tuple[Volume, ...] | None"]
"""The volumes of each cloud's account; None or absent = not known."""
_CENT = Decimal("0.01")


def regions(mounts: t.Sequence[VolumeMount], volumes: t.Iterable[Volume]) -> frozenset[str]:
    """The cloud's regions in which exactly one volume is meant by each of these mounts. Volumes of one name in several regions are
    alternatives; of two in one region it is unknown which one is meant."""
    known = list(volumes)
    places = [
        frozenset(
            region for region, number in collections.Counter(volume.region for volume in found(mount, known)).items() if number == 1
        )
        for mount in mounts
    ]
    return frozenset.intersection(*places) if places else frozenset()


def found(mount: VolumeMount, volumes: t.Iterable[Volume]) -> list[Volume]:
    """The volumes that a mount may mean: the one of this id, else those of this name."""
    known = list(volumes)
    return [volume for volume in known if volume.id == mount.name] or [volume for volume in known if volume.name == mount.name]


def mounted(mounts: t.Sequence[VolumeMount], volumes: t.Sequence[Volume], region: str) -> list[tuple[Volume, str]] | None:
    """Each volume with its path in a machine of ``region``; None where one of them is missing there, or two have its name."""
    chosen: list[tuple[Volume, str]] = []
    for mount in mounts:
        here = [volume for volume in found(mount, volumes) if volume.region == region]
        if len(here) != 1:
            return None
        chosen.append((here[0], mount.path))
    return chosen


def problem(choice: CloudChoice, volumes: t.Sequence[Volume] | None) -> str:
    """Why no machine of this cloud can have the volumes of its entry, one sentence; empty where one can."""
    cloud, mounts = choice.cloud, choice.volumes
    if not mounts:
        return ""
    if volumes is None:
        return f"{cloud}: its volumes could not be read, so nothing is rented there in this run"
    missing = [mount.name for mount in mounts if not found(mount, volumes)]
    if missing:
        there = ", ".join(f"{volume.name} ({volume.id}, {volume.region})" for volume in volumes) or "none"
        return f"{cloud}: the account has no volume {', '.join(missing)}; it has {there}"
    if regions(mounts, volumes):
        return ""
    for mount in mounts:
        same = found(mount, volumes)
        if not regions([mount], same):
            return f"{cloud}: several volumes of one region are called {mount.name}; name one by its id ({_ids(same)})"
    where = "; ".join(f"{mount.name} in {', '.join(sorted(regions([mount], volumes)))}" for mount in mounts)
    return f"{cloud}: no region has all of its volumes ({where}), and a machine mounts those of its own region only"


def _ids(volumes: t.Iterable[Volume]) -> str:
    return ", ".join(sorted(volume.id for volume in volumes))


def wanted(specs: Specs) -> dict[str, list[CloudChoice]]:
    """The entries with volumes by cloud, of all classes. A cloud whose volumes nobody names is not asked for them."""
    entries: dict[str, list[CloudChoice]] = {}
    for node_class in specs.classes.values():
        for choice in node_class.clouds:
            if choice.enabled and choice.volumes:
                entries.setdefault(choice.cloud, []).append(choice)
    return entries


def costs(choices: t.Iterable[CloudChoice], volumes: t.Sequence[Volume]) -> list[Volume]:
    """The volumes that these entries name, each once however many classes and machines mount it, at the price that an entry says, else at
    the cloud's own."""
    rows: dict[str, Volume] = {}
    for choice in choices:
        for mount in choice.volumes:
            for volume in found(mount, volumes):
                rows.setdefault(volume.id, volume)
                if mount.gb_month is not None and volume.size_gb is not None:
                    price = (volume.size_gb * mount.gb_month).quantize(_CENT)
                    rows[volume.id] = dataclasses.replace(volume, price_month=price)
    return sorted(rows.values(), key=lambda volume: (volume.cloud, volume.region, volume.name, volume.id))


def total(rows: t.Iterable[Volume]) -> Decimal | None:
    """Dollars a month of all of them; None while the price of one is not known."""
    prices = [volume.price_month for volume in rows]
    return None if None in prices else sum((price for price in prices if price is not None), Decimal(0))
