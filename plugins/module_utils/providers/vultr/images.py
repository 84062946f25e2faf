# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of Talos at Vultr: snapshots that it fetches from the Image Factory, once. One that it cannot fetch vanishes without a reason.

A snapshot has no tags, so its description says what it is: that it is ours, its release and its schematic.
"""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ...core import errors
from ...core.http import path_segment
from ..disk_images import Begun, DiskImage, ImageState, WantedImage, read_name
from .api import Calls, answered, own_words
from .records import moment

_CREATE_TIMEOUT = 120.0
_STATES = {"pending": ImageState.PENDING, "complete": ImageState.READY}
_GONE = "deleted"


class VultrImages:
    """The snapshots of one account. ``address_of`` gives the address from which Vultr can fetch an image, and has it made there."""

    platform, setting, dots = "vultr", "snapshotId", True
    gigabyte_month, price_basis = Decimal("0.05"), "list price of November 2026"
    list_delay = 60

    def __init__(self, calls: Calls, address_of: t.Callable[[WantedImage], str]) -> None:
        self._calls = calls
        self._address_of = address_of

    def images(self) -> list[DiskImage]:
        """The filter of the list is not used: how it compares is not documented."""
        operation, expect = "GET /snapshots", self._calls.api.expect
        entries = [expect(entry, dict, operation, "a snapshot") for entry in self._calls.pages("/snapshots", "snapshots")]
        found = [self._read(entry, operation) for entry in entries]
        return [image for image in found if image is not None]

    def _read(self, entry: dict[str, t.Any], operation: str) -> DiskImage | None:
        """None for a snapshot that is not ours, or is deleted."""
        expect = self._calls.api.expect
        identity = expect(entry.get("id") or None, str, operation, "id of a snapshot")
        name = expect(entry.get("description"), str, operation, f"description of {identity}")
        read, word = read_name(name), expect(entry.get("status") or None, str, operation, f"status of {identity}")
        if read is None or word == _GONE:
            return None
        size, state = entry.get("size"), _STATES.get(word, ImageState.UNKNOWN)
        known = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
        return DiskImage(identity, name, state, read[0], read[1], moment(entry.get("date_created")), known, identity, word)

    def used(self) -> frozenset[str]:
        operation, expect = "GET /instances", self._calls.api.expect
        machines = [expect(entry, dict, operation, "an instance") for entry in self._calls.pages("/instances", "instances")]
        return frozenset(str(entry.get("snapshot_id") or "") for entry in machines) - {""}

    def begin(self, wanted: WantedImage, serial: int) -> Begun:
        body = {"url": self._address_of(wanted), "uefi": True, "description": wanted.name(serial, dots=True)}
        try:
            made = self._calls.made("/snapshots/create-from-url", body, "snapshot", timeout=_CREATE_TIMEOUT)
        except errors.ApiError as error:
            if not answered(error) or (error.status or 500) >= 500:
                raise
            error.remedy = error.remedy or "Look at the snapshots, the limits and the balance of the account in the Vultr console."
            raise errors.ApiError(
                f"vultr: no snapshot was begun: {own_words(error)}", remedy=error.remedy, service="vultr", status=error.status
            ) from error
        return Begun(self._calls.api.expect(made.get("id") or None, str, "POST /snapshots/create-from-url", "id"))

    def look(self, begun: Begun) -> DiskImage | None:
        operation = "GET /snapshots/{id}"
        entry = self._calls.find(f"/snapshots/{path_segment(begun.id, 'snapshot id')}", "snapshot")
        if entry is None:
            return None
        image = self._read(entry, operation)
        if image is None and entry.get("status") != _GONE:
            raise self._calls.api.bad_shape(operation, "its description is not the one that was sent")
        return image

    def remove(self, image: DiskImage) -> None:
        self._calls.delete(f"/snapshots/{path_segment(image.id, 'snapshot id')}")

    def clean(self, wanted: WantedImage) -> bool:
        """Vultr keeps nothing beside the snapshot."""
        return False

    def close(self) -> None:
        self._calls.api.close()
