# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the host of an offer is as good as a class wants it (L-13). What nobody says of a host meets no wish."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from ...model import Offer, Quality

NOTHING = Quality()
VERIFIED, CUDA, BANDWIDTH, STATIC_IP, PORTS, DURATION = "verified", "cuda", "inet-down", "static-ip", "ports", "duration"


def good_enough(offer: Offer, wanted: Quality) -> bool:
    """True when the offer meets every wish."""
    return wanted == NOTHING or not unmet(offer, wanted)


def for_nodes(quality: Quality, wanted: Quality, usual: Quality) -> Quality:
    """What a host of a node must be at least: what the cloud's entry in the class says, else the class, else what is usual for the cloud.
    0 asks for nothing."""
    reliability = (quality.min_reliability, wanted.min_reliability, usual.min_reliability)
    bandwidth = (quality.min_bandwidth, wanted.min_bandwidth, usual.min_bandwidth)
    return Quality(
        min_reliability=next((one for one in reliability if one is not None), None) or None,
        min_bandwidth=next((one for one in bandwidth if one is not None), None) or None,
    )


def outlasts(offer: Offer, seconds: int | None) -> bool:
    """Whether the host still offers it for so long; also when that is not told, or nobody knows how long the machine will be wanted."""
    told = _number(offer.traits.get(DURATION))
    return seconds is None or told is None or told >= seconds


def unmet(offer: Offer, wanted: Quality) -> str:
    """The first wish that the offer does not meet, by its name in a document; empty when it meets all."""
    traits = offer.traits
    checks = (
        ("minReliability", _at_least(offer.reliability, wanted.min_reliability)),
        ("verified", not wanted.verified or traits.get(VERIFIED) == "true"),
        ("minCuda", not wanted.min_cuda or _not_older(traits.get(CUDA, ""), wanted.min_cuda)),
        ("minBandwidth", _at_least(_number(traits.get(BANDWIDTH)), wanted.min_bandwidth)),
        ("staticIp", not wanted.static_ip or traits.get(STATIC_IP) == "true"),
        ("minPorts", _at_least(_number(traits.get(PORTS)), wanted.min_ports)),
        ("minDuration", _at_least(_number(traits.get(DURATION)), wanted.min_duration)),
    )
    return next((name for name, met in checks if not met), "")


def _at_least(value: Decimal | None, wanted: Decimal | int | None) -> bool:
    return wanted is None or (value is not None and value >= wanted)


def _number(text: str | None) -> Decimal | None:
    try:
        number = Decimal(text or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _not_older(version: str, wanted: str) -> bool:
    """12.10 is newer than 12.8."""
    known = _version(version)
    return known is not None and known >= (_version(wanted) or ())


def _version(text: str) -> tuple[int, ...] | None:
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None
