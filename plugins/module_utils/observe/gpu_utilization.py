# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads how much the GPUs of nodes are used, of pools that ask for it (L-36): one question for each machine, many side by side."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..kube import dcgm_exporter
from ..model import Claim, GpuUtilization, Node, Observation, Phase, Pod, Pool, Specs
from ..planner.claims.record import in_force
from ..planner.disruption.utilization import percent
from .context import Context

_WORKERS = 32


def asks_for_utilization(pools: t.Iterable[Pool]) -> bool:
    """Whether some pool goes by the use of GPUs."""
    return any(pool.idle_signal != "pods" and pool.service is None for pool in pools)


def utilization_of_nodes(
    context: Context, claims: t.Sequence[Claim], nodes: t.Sequence[Node], pods: t.Sequence[Pod] | None
) -> dict[str, GpuUtilization]:
    """By the Node's name, of Ready nodes whose pool asks for it. ``pods`` None = they could not be read, so no exporter is known."""
    there = {node.name: node for node in nodes if node.ready}
    asked = {claim.node_name or claim.name: claim for claim in claims if _asks(claim, context.specs)}
    wanted = [(name, claim) for name, claim in sorted(asked.items()) if name in there]
    if not wanted:
        return {}
    if pods is None:
        return {
            name: GpuUtilization(why="the pods could not be read, so its dcgm-exporter is not known") for name, _claim in wanted
        }
    exporters = dcgm_exporter.exporters(pods)

    def ask(one: tuple[str, Claim]) -> GpuUtilization:
        return _ask(context, exporters.get(one[0]), one[1])

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(wanted)), thread_name_prefix="utilization") as pool:
        return dict(zip((name for name, _claim in wanted), pool.map(ask, wanted), strict=True))


def utilization_now(context: Context, claim: Claim, pods: t.Iterable[Pod]) -> GpuUtilization:
    """That of one machine, whose ``pods`` were read just now."""
    return _ask(context, dcgm_exporter.exporters(pods).get(claim.node_name or claim.name), claim)


def utilization_of(context: Context, claim: Claim | None, observation: Observation) -> dict[str, str]:
    """How much the busiest GPU of a machine is used, and what of that is unknown; both empty where its pool does not go by it."""
    seen = GpuUtilization()
    if claim is not None and _asks(claim, context.specs):
        seen = observation.utilization.get(claim.node_name or claim.name, GpuUtilization(why="its Node is not Ready"))
    share = "" if seen.busiest is None else percent(seen.busiest)
    return {
        "utilization": "unknown" if seen.why else share,
        "utilization_unknown": f"{share} or more; {seen.why}" if share and seen.why else seen.why,
    }


def _asks(claim: Claim, specs: Specs) -> bool:
    pool = in_force(claim, specs)
    return claim.phase is Phase.READY and not claim.is_service and pool is not None and pool.idle_signal != "pods"


def _ask(context: Context, exporter: Pod | None, claim: Claim) -> GpuUtilization:
    if exporter is None:
        return GpuUtilization(why="no dcgm-exporter runs on it")
    return dcgm_exporter.utilization(context.kube, exporter, claim.offer.gpu_count, context.clock.now())
