# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of lane service: no Node speaks for them, but their mesh device and what they answer. Unknown is neither healthy nor broken."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Claim, Device, Instance, InstanceState, Lane, Node, Pool, Probe
from ...model.names import pool_of, pool_part
from ..cluster_state import Situation


class Health(t.NamedTuple):
    """``well`` None = unknown; ``why`` is for people, empty when it is well."""

    well: bool | None
    why: str = ""


def health_of(device: Device | None, probe: Probe, *, listed: bool) -> Health:
    """The health of a service by its device and its answer. ``listed`` False: the mesh's devices could not be read."""
    if probe.healthy:
        return Health(True)  # who answers is there, whatever lists say
    if not listed:
        return Health(None, "the mesh could not be read")
    if device is None:
        return Health(False, "it is not in the mesh")
    if device.online is False:
        return Health(False, "its mesh device is offline")
    return Health(probe.healthy, probe.detail or "it was not asked")


def health(claim: Claim, situation: Situation) -> Health:
    """The same for a claim of this run's observation."""
    return health_of(situation.device(claim), probe_of(claim, situation), listed=situation.devices is not None)


def probe_of(claim: Claim, situation: Situation) -> Probe:
    return situation.seen.probes.get(claim.name, Probe())


def lives(claim: Claim, situation: Situation) -> bool:
    """True when there is a sign of life although its cloud does not list the machine: then the list is more likely wrong."""
    if not claim.is_service:
        return False
    device = situation.device(claim)
    well = health(claim, situation).well
    return bool(well) or (well is None and device is not None and device.online is True)


def answers(claim: Claim, situation: Situation) -> bool:
    """True for a service that works; whatever the clock says, it is in time."""
    return claim.is_service and health(claim, situation).well is True


def failure_class(claim: Claim, instance: Instance | None, device: Device | None) -> str:
    """How far a service came that never became usable: no_instance, instance_not_running, mesh_offline, unhealthy."""
    if instance is None:
        return "no_instance"
    if instance.state is not InstanceState.RUNNING:
        return "instance_not_running"
    if device is None or not device.online:
        return "mesh_offline"
    return "unhealthy"


# ---- a machine whose record was lost


def described_pool(name: str, pools: t.Iterable[Pool]) -> Pool | None:
    """The one pool of services that a machine of this name can belong to; None when there is none, or more than one."""
    part = pool_of(name)
    matching = [pool for pool in pools if part and pool_part(pool.name) == part]
    return matching[0] if len(matching) == 1 and matching[0].service is not None else None


def works(instance: Instance, node: Node | None, situation: Situation) -> bool:
    """Whether a machine without a claim works as a service of a described pool."""
    probe = situation.seen.probes.get(instance.name)
    return (
        node is None
        and probe is not None
        and probe.healthy is True
        and described_pool(instance.name, situation.described) is not None
    )


def adopted(claim: Claim, situation: Situation) -> Claim:
    """The claim of such a machine: it waits for the next run that joins, which publishes it."""
    device = situation.device(claim)
    return dataclasses.replace(
        claim,
        lane=Lane.SERVICE,
        mesh_backend="tailscale",
        mesh_device_id=device.id if device else "",
        mesh_seen=situation.now if device and device.online else None,
    )
