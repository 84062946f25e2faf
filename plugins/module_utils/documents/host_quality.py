# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a class says of the hosts it wants and of prices by auction: shares, and the wishes of planner/offers/host_quality.py."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

from ..model import Quality
from .reading import Reader

_SHARE = re.compile(r"(\d{1,3}) ?%?|(\d{1,3}\.\d+) ?%")  # 0.95 without a sign would be read as less than one per cent


def quality(needs: t.Mapping[str, t.Any], reader: Reader, path: str) -> Quality:
    """The wishes under ``instanceRequirements`` (``path``) about hosts."""
    return Quality(
        min_reliability=share(needs.get("minReliability"), f"{path}.minReliability", reader, most=100),
        verified=needs.get("verified", False),
        min_cuda=needs.get("minCuda", ""),
        min_bandwidth=needs.get("minBandwidth"),
        static_ip=needs.get("staticIp", False),
        min_ports=needs.get("minPorts"),
        min_duration=reader.duration(needs["minDuration"], f"{path}.minDuration", 0) if "minDuration" in needs else None,
    )


def of_nodes(known: t.Container[str], settings: t.Mapping[str, t.Any], reader: Reader, path: str) -> Quality:
    """What the ``settings`` (``path``) of a cloud that has such settings say of hosts of nodes."""
    bandwidth = settings.get("minBandwidth") if "minBandwidth" in known else None
    reliability = settings.get("minReliability") if "minReliability" in known else None
    return Quality(
        min_reliability=share(reliability, f"{path}.minReliability", reader, most=100),
        min_bandwidth=bandwidth if isinstance(bandwidth, int) else None,
    )


def share(value: t.Any, path: str, reader: Reader, *, most: int) -> Decimal | None:
    """A share of one of a text like "10%" or a number of per cent, at most ``most`` per cent; None when not given or not possible."""
    if value is None:
        return None
    match = _SHARE.fullmatch(str(value).strip())
    found = Decimal(match[1] or match[2]) if match else None
    if found is None or found > most:
        reader.fault(path, f'{value!r} is no share from 0% to {most}%. Write text like "10%", or a whole number of per cent.')
        return None
    return found / 100
