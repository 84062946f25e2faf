# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks all services of one observation at once."""

from __future__ import annotations

import dataclasses
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.errors import TgpError
from ..kube.services import services_of
from ..mesh.find import find_device
from ..model import Claim, CloudView, Device, Phase, Pool, Probe, Published
from ..model.names import Verdict, verdict
from ..planner.claims.phases import LIVE
from ..planner.garbage_collection.termination_steps import waits
from ..planner.provisioning.service import described_pool, is_service
from .context import Context
from .probe import Prober

_WORKERS = 64


class Target(t.NamedTuple):
    """A service that can be asked, by the name of its machine. ``ready``: it counts as usable, so that it may be idle, too."""

    name: str
    pool: Pool
    device: Device
    ready: bool


def look_at_services(
    context: Context,
    clouds: t.Mapping[str, CloudView],
    devices: t.Sequence[Device] | None,
    claims: t.Sequence[Claim],
    *,
    idle: bool,
) -> dict[str, Probe]:
    """What every service that is in the mesh answers, by machine name. ``idle``: also ask usable ones whether they are idle."""
    targets = [*_claimed(context, devices or (), claims), *_unclaimed(context, clouds, devices or (), claims)]
    if not targets:
        return {}
    prober = Prober(context.task)

    def ask(target: Target) -> Probe:
        service = target.pool.service
        if service is None:
            return Probe()
        found = prober.health(service, target.device)
        if idle and target.ready and target.pool.idle_probe is not None:
            answer, detail = prober.idle(target.pool, target.device)
            found = dataclasses.replace(found, idle=answer, idle_detail=detail)
        return found

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(targets)), thread_name_prefix="probe") as pool:
        return dict(zip((one.name for one in targets), pool.map(ask, targets), strict=True))


def published(context: Context) -> tuple[Published, ...] | None:
    """Services of ours in the namespaces of described pools; None, with a warning, when they could not be read."""
    places = sorted({pool.namespace for pool in context.wishes.pools if pool.service is not None})
    try:
        return tuple(one for place in places for one in services_of(context.kube, place, context.cluster_id))
    except TgpError as error:
        context.warn(f"The Services of containers could not be read, so none of them is removed in this run: {error}")
        return None


def _claimed(context: Context, devices: t.Sequence[Device], claims: t.Sequence[Claim]) -> t.Iterator[Target]:
    for claim in claims:
        pool = context.pool_of(claim)
        if not is_service(claim) or not (claim.phase in LIVE or waits(claim)) or pool is None:
            continue
        found = find_device(devices, hostname=claim.name, tags=(), created_after=claim.created).device
        if found is not None and found.online is not False:
            yield Target(claim.name, pool, found, claim.phase in (Phase.READY, Phase.TERMINATING))


def _unclaimed(
    context: Context, clouds: t.Mapping[str, CloudView], devices: t.Sequence[Device], claims: t.Sequence[Claim]
) -> t.Iterator[Target]:
    """Machines of ours whose record may be lost."""
    known = {claim.name for claim in claims}
    names = {one.name for view in clouds.values() for one in view.instances or () if not one.gone} - known
    for name in sorted(names):
        pool = described_pool(name, context.wishes.pools) if verdict(name, context.cluster_id) is Verdict.OURS else None
        found = find_device(devices, hostname=name, tags=(), created_after=None).device if pool is not None else None
        if pool is not None and found is not None and found.online is not False:
            yield Target(name, pool, found, False)
