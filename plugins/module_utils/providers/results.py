# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our records as module results: one shape per record for all modules and the inventory. Money is text, so that no
digit is lost. A machine that is about to be, or was made a moment ago, has the same shape. At the end, what instance modules say of offers
and machines that are not what is wanted."""

from __future__ import annotations

import dataclasses
import difflib
import typing as t
from decimal import Decimal

from ..core.clock import to_text
from ..core.errors import InvalidInput, LaunchRefused
from ..model import Instance, InstanceState, LaunchRequest, Offer
from ..planner.offers.requirements import misspelt_region, region_matches, standard_region
from ..units.values import print_money


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else print_money(amount)


def instance_result(instance: Instance) -> dict[str, t.Any]:
    """A machine. Empty text = the cloud does not say (yet)."""
    return {
        "cloud": instance.cloud,
        "id": instance.id,
        "name": instance.name,
        "state": instance.state.value,
        "raw_state": instance.raw_state,
        "price_hour": _money(instance.price_hour),
        "ip": instance.ip,
        "private_ip": instance.private_ip,
        "region": instance.region,
        "instance_type": instance.instance_type,
        "model": instance.model,
        "gpu_count": instance.gpu_count,
        "created": to_text(instance.created) if instance.created else None,
        "marks": dict(instance.marks),
        "problem": instance.problem,
    }


def planned(request: LaunchRequest) -> Instance:
    """What check mode shows in place of a machine."""
    offer = request.offer
    return Instance(
        cloud=offer.cloud,
        id="",
        name=request.name,
        state=InstanceState.PENDING,
        raw_state="planned",
        price_hour=offer.price_hour,
        region=offer.cloud_region,
        instance_type=offer.instance_type,
        model=offer.model,
        gpu_count=offer.gpu_count,
        marks=dict(request.marks),
    )


def rented(request: LaunchRequest, identity: str) -> Instance:
    """What is known of a machine that was made a moment ago: its id, and what its offer said."""
    return dataclasses.replace(planned(request), id=identity, raw_state="")


def diff_lines(machines: list[Instance]) -> str:
    """Machines as text for a diff: what does not change from run to run."""
    prices = ["?" if machine.price_hour is None else print_money(machine.price_hour) for machine in machines]
    return "".join(
        f"{machine.name}: {machine.instance_type} in {machine.region}, {price} $/h\n"
        for machine, price in zip(machines, prices, strict=True)
    )


def exact(amount: Decimal | None) -> str | None:
    """An amount with every digit it has, at least two after the point."""
    if amount is None:
        return None
    whole, _point, digits = f"{amount:f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def offer_result(offer: Offer) -> dict[str, t.Any]:
    """Something for rent. ``available`` None = the cloud does not count, 0 = sold out. ``price_hour`` has all its digits.
    ``traffic_price_gb_down`` and ``_up`` None = no traffic is billed, or the cloud does not tell."""
    per_gpu = offer.price_hour / offer.gpu_count if offer.price_hour is not None and offer.gpu_count else None
    return {
        "cloud": offer.cloud,
        "id": offer.id,
        "instance_type": offer.instance_type,
        "model": offer.model,
        "gpu_count": offer.gpu_count,
        "gpu_memory_mib": offer.gpu_memory_mib,
        "price_hour": exact(offer.price_hour),
        "price_gpu_hour": _money(per_gpu),
        "price_estimated": offer.price_estimated,
        "traffic_price_gb_down": exact(offer.traffic_price_gb_down),
        "traffic_price_gb_up": exact(offer.traffic_price_gb_up),
        "region": offer.region,
        "cloud_region": offer.cloud_region,
        "available": offer.available,
        "spot": offer.spot,
        "vcpus": offer.vcpus,
        "memory_mib": offer.memory_mib,
        "disk_gib": offer.disk_gib,
        "arch": offer.arch,
        "lanes": [lane.value for lane in offer.lanes],
        "reliability": None if offer.reliability is None else str(offer.reliability),
        "traits": dict(offer.traits),
    }


# ---- what the user of an instance module probably meant by a type, a GPU or a region that its cloud does not have


def no_such_type(message: str, wanted: str, names: t.Iterable[str], near: t.Sequence[str] = ()) -> InvalidInput:
    """The error for ``wanted``, which is none of ``names``: it says which of them are spelt alike, and all of them. ``near``: names
    known to be alike, before those that only look alike."""
    key, lower = wanted.strip().lower(), {name.lower(): name for name in sorted(names)}
    close = [lower[lowered] for lowered in difflib.get_close_matches(key, lower, 2, 0.8)]
    longer = [lower[lowered] for lowered in lower if key and lowered.startswith(key)]
    alike = list(dict.fromkeys([*near, *longer, *close]))[:2]
    meant = f"Did you mean {' or '.join(alike)}? " if alike else ""
    return InvalidInput(message, remedy=f"{meant}It has {', '.join(lower.values())}." if lower else meant.strip())


def check_region(cloud: str, spec: str, offers: t.Iterable[Offer], named: t.Iterable[str]) -> None:
    """InvalidInput for a region that ``cloud`` does not have and that resembles one: of its offers, or of ``named``, its words for regions."""
    offered = [word for offer in offers for word in (offer.region, offer.cloud_region)]
    if near := misspelt_region(spec, [*offered, *named]):
        raise InvalidInput(f"{cloud} has no region {spec!r}.", remedy=f"Did you mean {' or '.join(near)}?")


# ---- what of a cloud's offers an instance module may rent


def rentable(
    cloud: str,
    wanted: str,
    region: str,
    of_type: t.Sequence[Offer],
    offers: t.Sequence[Offer],
    regions: t.Mapping[str, str],
    *,
    read: t.Callable[[str], str] = str,
) -> list[Offer]:
    """Of the offers ``of_type`` those that are not sold out, in ``region`` (empty = any). InvalidInput for a misspelt region, LaunchRefused
    when nothing is left. ``wanted``: the type in words; ``offers``: all of the cloud; ``regions``: what its own words for regions mean;
    ``read``: the cloud's word for a region as it was typed."""
    free = [offer for offer in of_type if offer.available != 0]
    fitting = [offer for offer in free if not region or region_matches(read(region), offer.region, offer.cloud_region)]
    if not fitting:
        check_region(cloud, region, offers, regions)
        places = ", ".join(sorted({offer.cloud_region or "any place" for offer in free}))
        raise LaunchRefused(
            f"{wanted} is sold out{f' in {region}' if region else ''}.",
            reason="capacity",
            remedy=f"It may be free in {places}." if places else "No region has it now; try again later or take another type.",
        )
    return fitting


def within_limit(offers: t.Sequence[Offer], limit: Decimal | None) -> list[Offer]:
    """Those whose price per hour is not above the limit, or unknown. InvalidInput, which names the first of ``offers``, when all are above."""
    cheap = [offer for offer in offers if limit is None or offer.price_hour is None or offer.price_hour <= limit]
    if not cheap:
        about = "about " if offers[0].price_estimated else ""
        raise InvalidInput(f"{offers[0].id} costs {about}{offers[0].price_hour} $/h, more than max_price_hour {limit}.")
    return cheap


# ---- why an existing machine is not what is wanted, as the end of a sentence; empty = it is


def wrong_type(instance: Instance, wanted: str) -> str:
    if not instance.instance_type or instance.instance_type == wanted:
        return ""
    return f"is a {instance.instance_type}, not a {wanted}"


def wrong_region(instance: Instance, region: str, regions: t.Mapping[str, str], *, read: t.Callable[[str], str] = str) -> str:
    """``regions`` and ``read`` as of :func:`rentable`."""
    if (
        not region
        or not instance.region
        or region_matches(read(region), standard_region(instance.region, regions), instance.region)
    ):
        return ""
    return f"is in {instance.region}, not in {region}"


def too_small(instance: Instance, disk_gib: int) -> str:
    """Of a disk, which cannot grow."""
    if instance.disk_gib is None or instance.disk_gib >= disk_gib:
        return ""
    return f"has a disk of {instance.disk_gib} GiB, and {disk_gib} GiB are wanted"
