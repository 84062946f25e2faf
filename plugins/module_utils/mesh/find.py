# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds a node's device among all devices. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime, timedelta, timezone

from ..model import Device

_SKEW = timedelta(seconds=120)  # the service's clock and the one that dated the key may differ by that much
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """``device``: the node's own, None when it has not joined. ``stale``: other entries of the same hostname and tags, to be
    removed. ``suffixed``: the mesh gave it another name ("host-1") because the wanted one was taken; reach it by address."""

    device: Device | None
    stale: tuple[Device, ...] = ()
    suffixed: bool = False


def find_device(
    devices: t.Iterable[Device],
    *,
    hostname: str,
    tags: t.Collection[str],
    created_after: datetime | None,
    ephemeral: bool | None = None,
) -> Found:
    """The device that asked for ``hostname``, carries all ``tags`` and is not shared in from elsewhere.

    ``created_after`` is when its key was made; older entries are an earlier machine's (120 s of clock difference allowed).
    ``ephemeral`` True or False asks for that kind, None for any; a device of which it is not known is of either. Of several the newest
    connected one is the node. The search never goes by the mesh's own name of a device: that one gets a "-1" when the wanted name is taken.
    """
    ours = [
        device
        for device in devices
        if device.hostname.lower() == hostname.lower()
        and set(tags) <= set(device.tags)
        and not device.external
        and (ephemeral is None or device.ephemeral in (ephemeral, None))
    ]
    fresh = [device for device in ours if _young(device, created_after)]
    fresh.sort(key=lambda device: (device.online is True, device.created or _NEVER), reverse=True)
    chosen = fresh[0] if fresh else None
    stale = tuple(device for device in ours if device is not chosen)
    return Found(chosen, stale, chosen is not None and is_suffixed(chosen))


def is_suffixed(device: Device) -> bool:
    """True when the mesh named the device "host-1" although it asked for "host"; headscale 0.28 adds eight letters instead."""
    label = device.name.partition(".")[0].lower()
    return re.fullmatch(re.escape(device.hostname.lower()) + r"-(\d+|[a-z0-9]{8})", label) is not None


def _young(device: Device, created_after: datetime | None) -> bool:
    if created_after is None:
        return True
    return device.created is not None and device.created >= created_after - _SKEW
