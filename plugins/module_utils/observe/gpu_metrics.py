# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what the dcgm-exporter of nodes says of their GPUs, of pools that ask for it: how much they are used (L-36), and their XIDs (L-55).
One question for each machine, many side by side."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..kube import dcgm_exporter
from ..kube.dcgm_exporter import GpuMetrics
from ..model import Claim, GpuUtilization, GpuXids, Node, Observation, Phase, Pod, Pool, Specs
from ..planner.claims.record import in_force
from ..planner.disruption.utilization import percent
from ..planner.xids import xid_rows
from .context import Context

_WORKERS = 32


def asks_for_gpu_metrics(pools: t.Iterable[Pool]) -> bool:
    """Whether some pool goes by what exporters say."""
    return any(pool.reads_exporters and pool.service is None for pool in pools)


def gpu_metrics(
    context: Context, claims: t.Sequence[Claim], nodes: t.Sequence[Node], pods: t.Sequence[Pod] | None
) -> tuple[dict[str, GpuUtilization], dict[str, GpuXids]]:
    """How much GPUs are used, and their XIDs, by the Node's name, of Ready nodes whose pool asks for it. ``pods`` None = they could not be
    read, so no exporter is known."""
    there = {node.name: node for node in nodes if node.ready}
    asked = {claim.node_name or claim.name: claim for claim in claims if _asks(claim, context.specs)}
    wanted = [(name, claim) for name, claim in sorted(asked.items()) if name in there]
    found = dict(zip((name for name, _claim in wanted), _ask_all(context, wanted, pods), strict=True)) if wanted else {}
    used = {name: found[name].utilization for name, claim in wanted if _goes_by_use(claim, context.specs)}
    return used, {name: one.xids for name, one in found.items()}


def _ask_all(context: Context, wanted: t.Sequence[tuple[str, Claim]], pods: t.Sequence[Pod] | None) -> list[GpuMetrics]:
    if pods is None:
        return [dcgm_exporter.unknown("the pods could not be read, so its dcgm-exporter is not known") for _one in wanted]
    exporters = dcgm_exporter.exporters(pods)
    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(wanted)), thread_name_prefix="gpu-metrics") as pool:
        return list(pool.map(lambda one: _ask(context, exporters.get(one[0]), one[1]), wanted))


def utilization_now(context: Context, claim: Claim, pods: t.Iterable[Pod]) -> GpuUtilization:
    """That of one machine, whose ``pods`` were read just now."""
    return _ask(context, dcgm_exporter.exporters(pods).get(claim.node_name or claim.name), claim).utilization


def gpu_facts(context: Context, claim: Claim | None, observation: Observation) -> dict[str, t.Any]:
    """How much the busiest GPU of a machine is used, the XIDs of its GPUs, and what of both is unknown; all empty where its pool does not go
    by it."""
    used, xids = GpuUtilization(), GpuXids()
    name = "" if claim is None else claim.node_name or claim.name
    if claim is not None and _asks(claim, context.specs):
        silent = "its Node is not Ready"
        xids = observation.xids.get(name, GpuXids(why=silent))
        if _goes_by_use(claim, context.specs):
            used = observation.utilization.get(name, GpuUtilization(why=silent))
    share = "" if used.busiest is None else percent(used.busiest)
    return {
        "utilization": "unknown" if used.why else share,
        "utilization_unknown": f"{share} or more; {used.why}" if share and used.why else used.why,
        "xids": xid_rows(xids.last),
        "xids_unknown": xids.why,
    }


def _pool(claim: Claim, specs: Specs) -> Pool | None:
    return in_force(claim, specs) if claim.phase is Phase.READY and not claim.is_service else None


def _asks(claim: Claim, specs: Specs) -> bool:
    pool = _pool(claim, specs)
    return pool is not None and pool.reads_exporters


def _goes_by_use(claim: Claim, specs: Specs) -> bool:
    pool = _pool(claim, specs)
    return pool is not None and pool.idle_signal != "pods"


def _ask(context: Context, exporter: Pod | None, claim: Claim) -> GpuMetrics:
    if exporter is None:
        return dcgm_exporter.unknown("no dcgm-exporter runs on it")
    return dcgm_exporter.metrics(context.kube, exporter, claim.offer.gpu_count, context.clock.now())
