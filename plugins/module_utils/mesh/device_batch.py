# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of many nodes at once: remove them, or bring tags, approval and key expiry to what is wanted."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ..core.errors import InvalidInput, TgpError
from ..model import Device
from .base import DeviceMesh, find_device
from .key_batch import side_by_side
from .results import device_result


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """What a device should be; None leaves it as it is."""

    tags: tuple[str, ...] | None = None
    authorized: bool | None = None
    key_expiry: bool | None = None


@dataclasses.dataclass
class DeviceOutcome:
    """What was done (or would be). ``devices`` as they are afterwards, ``before`` as they were, ``removed`` ids, ``failed``
    sentences."""

    changed: bool = False
    removed: list[str] = dataclasses.field(default_factory=list)
    before: list[Device] = dataclasses.field(default_factory=list)
    devices: list[Device] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


def remove(
    mesh: DeviceMesh, hostnames: t.Sequence[str], ids: t.Sequence[str], tags: t.Sequence[str], *, dry: bool
) -> DeviceOutcome:
    """Remove every device that asked for one of ``hostnames`` and carries all ``tags``, and every device of ``ids``.

    Devices shared in from another tailnet are never taken for ours by their hostname. A device that is gone already is not a failure.
    """
    wanted = {name.lower() for name in hostnames}
    doomed, seen = [], set()
    for device in mesh.devices():
        seen.add(device.id)
        named = device.hostname.lower() in wanted and set(tags) <= set(device.tags) and not device.external
        if named or device.id in ids:
            doomed.append(device)
    doomed += [
        further for device_id in dict.fromkeys(ids) if device_id not in seen and (further := mesh.device(device_id)) is not None
    ]
    outcome = DeviceOutcome(before=doomed)

    def delete(device: Device) -> tuple[Device, bool, str]:
        if dry:
            return device, True, ""
        try:
            return device, mesh.delete_device(device.id), ""
        except TgpError as error:
            return device, False, f"{device.hostname} ({device.id}): {error}"

    for device, changed, problem in side_by_side(delete, doomed):
        outcome.changed |= changed
        if changed:
            outcome.removed.append(device.id)
        if problem:
            outcome.failed.append(problem)
            outcome.devices.append(device)
    return outcome


def assure(mesh: DeviceMesh, hostnames: t.Sequence[str], ids: t.Sequence[str], spec: DeviceSpec, *, dry: bool) -> DeviceOutcome:
    """Bring the devices to what ``spec`` says. A device that does not exist is a failure: only a machine can bring itself in."""
    every = mesh.devices()
    outcome = DeviceOutcome()
    for name in dict.fromkeys(hostnames):
        match = find_device(every, hostname=name, tags=(), created_after=None)
        if match.device is None:
            outcome.failed.append(f"{name}: no device asked for this hostname; a device appears when its machine joins with a key.")
            continue
        outcome.before.append(match.device)
        outcome.warnings += [f"{name}: {old.id} is an older device of the same hostname." for old in match.stale]
        if match.suffixed:
            outcome.warnings.append(f"{name}: the mesh calls it {match.device.name}; reach it by its address.")
    by_id = {device.id: device for device in every}
    for device_id in dict.fromkeys(ids):
        device = by_id.get(device_id) or mesh.device(device_id)
        if device is None:
            outcome.failed.append(f"{device_id}: there is no device with this id.")
        elif device not in outcome.before:
            outcome.before.append(device)

    def bring(device: Device) -> tuple[Device, bool, str]:
        try:
            return *_bring(mesh, device, spec, dry), ""
        except TgpError as error:
            return device, False, f"{device.hostname} ({device.id}): {error}"

    for device, changed, problem in side_by_side(bring, outcome.before):
        outcome.changed |= changed
        outcome.devices.append(device)
        if problem:
            outcome.failed.append(problem)
    return outcome


def _bring(mesh: DeviceMesh, device: Device, spec: DeviceSpec, dry: bool) -> tuple[Device, bool]:
    """The device as it is afterwards, and whether anything had to be done."""
    after, steps = device, []
    if spec.tags is not None and set(spec.tags) != set(device.tags):
        if not spec.tags:
            raise InvalidInput("its tags cannot be taken away.", remedy="A tagged device keeps at least one tag.")
        after = dataclasses.replace(after, tags=spec.tags)
        steps.append(lambda: mesh.set_tags(device.id, spec.tags or ()))
    if spec.authorized is not None and spec.authorized is not device.authorized:
        after = dataclasses.replace(after, authorized=spec.authorized)
        steps.append(lambda: mesh.set_authorized(device.id, bool(spec.authorized)))
    if spec.key_expiry is not None and device.key_expiry_disabled is not (not spec.key_expiry):
        after = dataclasses.replace(after, key_expiry_disabled=not spec.key_expiry)
        steps.append(lambda: mesh.set_key_expiry(device.id, bool(spec.key_expiry)))
    if steps and not dry:
        for step in steps:
            step()
        after = mesh.device(device.id) or after
        if spec.key_expiry is not None and after.key_expiry_disabled is spec.key_expiry:
            raise InvalidInput(
                "the server took the call and left the expiry of its key as it was.",
                remedy="headscale lets no key expire that does not; leave key_expiry out there.",
            )
    return after, bool(steps)


def select(
    devices: t.Sequence[Device],
    *,
    hostnames: t.Sequence[str] = (),
    prefix: str = "",
    tags: t.Sequence[str] = (),
    offline_for: int | None = None,
    now: datetime,
) -> list[Device]:
    """The devices that meet every given condition, by hostname. ``offline_for`` seconds: silent at least that long; a device that
    never connected counts from its creation, one of unknown state not at all."""
    wanted = {name.lower() for name in hostnames}
    chosen = [
        device
        for device in devices
        if (not wanted or device.hostname.lower() in wanted)
        and device.hostname.lower().startswith(prefix.lower())
        and set(tags) <= set(device.tags)
        and (offline_for is None or _silent(device, now - timedelta(seconds=offline_for)))
    ]
    return sorted(chosen, key=lambda device: (device.hostname, device.id))


def _silent(device: Device, since: datetime) -> bool:
    last = device.last_seen or device.created
    return device.online is False and last is not None and last <= since


def difference(outcome: DeviceOutcome) -> dict[str, t.Any]:
    """Ansible's diff of an outcome: devices by hostname and id, before and after."""
    before = {f"{device.hostname} ({device.id})": device_result(device) for device in outcome.before}
    after = {f"{device.hostname} ({device.id})": device_result(device) for device in outcome.devices}
    return {"before": before, "after": after}
