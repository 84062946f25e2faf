# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a machine has come into the mesh, told by what the mesh lists of its key and its device."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from ..clock import to_text
from ..fleet.model import MeshKey
from .find import Found


@dataclasses.dataclass(frozen=True, slots=True)
class Whereabouts:
    """``stage``: waiting (its key is good and unused), key_over, vanished (key used, no device), unapproved, locked, silent (it
    joined and was never heard again), offline, suffixed or online. Only the last two are well. ``remedy`` "" = wait."""

    stage: str
    text: str
    remedy: str = ""

    @property
    def well(self) -> bool:
        return self.stage in ("online", "suffixed")

    @property
    def hopeless(self) -> bool:
        """More waiting will not help."""
        return self.stage in ("key_over", "vanished", "unapproved", "locked")

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}".strip()


def whereabouts(found: Found, key: MeshKey | None, now: datetime) -> Whereabouts:
    """``found``: what :func:`find_device` made of the list; ``key`` the node's own, None when it is not listed (any more)."""
    return _without_device(key, now) if found.device is None else _with_device(found)


def _without_device(key: MeshKey | None, now: datetime) -> Whereabouts:
    if key is None:
        return Whereabouts("vanished", "There is neither a device nor a key of it.", "Both were removed: launch the machine anew.")
    if key.expires is not None and key.expires <= now:
        return Whereabouts(
            "key_over",
            f"Its key ended at {to_text(key.expires)} and no device has joined.",
            "Launch it anew; look at the cloud's console for what kept it from booting in time.",
        )
    if key.invalid:
        return Whereabouts(
            "vanished",
            "Its key was used (or revoked), but the mesh lists no device of its hostname.",
            "The device was removed, or the machine asked for another hostname (TS_HOSTNAME); a used key lets nobody in again.",
        )
    until = f" until {to_text(key.expires)}" if key.expires else ""
    return Whereabouts(
        "waiting", f"No device has joined; its key is unused and good{until}: the machine has not come as far as the mesh client."
    )


def _with_device(found: Found) -> Whereabouts:
    device = found.device
    if device is None:
        raise ValueError("no device")
    name = f"The device {device.id} ({', '.join(device.addresses[:1]) or 'without address'})"
    if not device.authorized:
        return Whereabouts(
            "unapproved", f"{name} waits for approval.", "Approve it in the admin console: it did not join with a preapproved key."
        )
    if "tailnet lock" in device.problem:
        return Whereabouts(
            "locked",
            f"{name} gets no traffic: {device.problem}.",
            "With tailnet lock on, keys must be signed (tailscale lock sign): keys made by the API are not.",
        )
    if device.online is False:
        if device.last_seen is None:
            return Whereabouts(
                "silent", f"{name} joined and was never online.", "The client died at once: look for tailscaled in its console."
            )
        return Whereabouts(
            "offline",
            f"{name} is offline since {to_text(device.last_seen)}.",
            "The machine is off, or its way to the login server is cut.",
        )
    if found.suffixed:
        return Whereabouts(
            "suffixed", f"{name} is online; the mesh calls it {device.name}, since the name was taken.", "Reach it by its address."
        )
    return Whereabouts("online", f"{name} is online." if device.online else f"{name} joined; whether it is online cannot be told.")
