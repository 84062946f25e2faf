# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs that a node is broken: conditions and taints of health agents (L-37), and XIDs of its GPUs (L-55). Which count, since when, and what
becomes of the machine.

What is unknown ends nothing: a condition with status Unknown fits no entry, a Node that is not Ready is judged by L-20 alone, and pods
that could not be read keep a machine, and a GPU whose XID could not be read is neither well nor broken.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime

from ...model import Claim, GpuXids, InstanceState, Node, Phase, Pool, StatusCondition, Taint, UnhealthyCondition
from ...model.labels import GPU_XID_TAINT, READINESS_TAINT_PREFIX
from ...model.reasons import Finding, Reason
from ...units.values import print_duration, print_time
from ..claim_sync import Settled
from ..disruption import voluntary
from ..disruption.do_not_disrupt import node_hold
from ..disruption.drain_rules import busy
from ..disruption.forced_disruption import UNHEALTHY_SHARE
from ..garbage_collection import mass_deletion_guard
from ..plan_builder import SECOND_RUN_AFTER, Draft
from ..xids import broken, meaning

REPLACE, REPLACE_WHEN_EMPTY, REPORT, IGNORE = "Replace", "ReplaceWhenEmpty", "Report", "Ignore"
_BROKEN = (Reason.UNHEALTHY, Reason.REPLACED)
_LONGEST_WORDS = 200  # characters of what an agent says of a condition

# ---- entries that hold for every pool, after its own. None of them ends a machine on which pods work

_PROBLEM_DETECTOR = (
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "XfsShutdown",
    "CperHardwareErrorFatal",
    "KubeletUnhealthy",
    "ContainerRuntimeUnhealthy",
    "FrequentKubeletRestart",
    "FrequentContainerdRestart",
    "CorruptDockerOverlay2",
    "DiskBadBlock",
)
_NVSENTINEL = (
    "GpuMemWatch",
    "GpuNvlinkWatch",
    "GpuPcieWatch",
    "GpuThermalWatch",
    "GpuPowerWatch",
    "GpuInforomWatch",
    "GpuSmWatch",
    "GpuDriverWatch",
    "SysLogsXIDError",
    "SysLogsSXIDError",
    "SysLogsGPUFallenOff",
    "NVSwitchFatalError",
    "NVSwitchDown",
    "DCGMError",
)
_MACHINE_IS_LOST = tuple(f"RecommendedAction: {word}" for word in ("REPLACE_VM", "RESTART_BM", "CONTACT_SUPPORT"))
_OTHER_READINESS = ("StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady")

DEFAULTS: tuple[UnhealthyCondition, ...] = (
    *(UnhealthyCondition(kind) for kind in _PROBLEM_DETECTOR),
    UnhealthyCondition("AcceleratedHardwareReady", "False", lasts=600),
    *(UnhealthyCondition(kind, "False") for kind in _OTHER_READINESS),
    *(UnhealthyCondition(kind, contains=_MACHINE_IS_LOST, lasts=1200, action=REPLACE_WHEN_EMPTY) for kind in _NVSENTINEL),
    *(UnhealthyCondition(kind, lasts=1200) for kind in (*_NVSENTINEL, "CSPMaintenance")),
    UnhealthyCondition(taint=GPU_XID_TAINT, lasts=1200),
    UnhealthyCondition(taint=READINESS_TAINT_PREFIX, lasts=1200),
    UnhealthyCondition(xids=broken(), lasts=1200),
)
_BY_TYPE = {kind: tuple(one for one in DEFAULTS if one.type == kind) for kind in {one.type for one in DEFAULTS if one.type}}
_TAINTS = tuple(one for one in DEFAULTS if one.taint)
_XIDS = tuple(one for one in DEFAULTS if one.xids)
_OF_GPU = " of GPU "


# ---- which signs a Node shows, and for how long


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """What a Node shows and the entry that it fits. ``name`` is that of people and records. ``written``: since when, as Kubernetes says;
    None = it does not say. ``said`` is the agent's reason and message."""

    name: str
    entry: UnhealthyCondition
    written: datetime | None = None
    said: str = ""


def signs(node: Node, own: t.Sequence[UnhealthyCondition]) -> tuple[Sign, ...]:
    """The signs on a Node, by name; of the pool's own entries and then the built-in ones the first that fits decides."""
    shown: dict[str, Sign] = {}
    for condition in node.conditions:
        entries = (*own, *_BY_TYPE.get(condition.type, ()))
        if (entry := next((one for one in entries if _fits(one, condition)), None)) is not None:
            said = " ".join(f"{condition.reason}: {condition.message}".strip(": ").split())[:_LONGEST_WORDS]
            name = f"condition {condition.type}={condition.status}"
            shown[name] = Sign(name, entry, condition.since, said)
    for taint in node.taints:
        if (entry := next((one for one in (*own, *_TAINTS) if _has(one, taint)), None)) is not None:
            shown[f"taint {taint}"] = Sign(f"taint {taint}", entry, taint.added)
    return tuple(shown[name] for name in sorted(shown) if shown[name].entry.action != IGNORE)


def xid_signs(found: GpuXids, own: t.Sequence[UnhealthyCondition], made: datetime) -> tuple[Sign, ...]:
    """The XIDs of a node's GPUs for which there is an entry; the others say nothing of the machine. The metric does not tell when an XID
    came up, and keeps it until the exporter starts again. One of an exporter that is older than the record of the machine (``made``) may
    be of another use of it, so it is reported only."""
    old = found.since is None or found.since < made
    shown: list[Sign] = []
    for gpu, xid in sorted((gpu, xid) for gpu, last in found.last.items() for xid in last):
        entry = next((one for one in (*own, *_XIDS) if xid in one.xids), None)
        if entry is None or entry.action == IGNORE:
            continue
        said = meaning(xid).text
        if old and entry.action != REPORT:
            entry = dataclasses.replace(entry, action=REPORT)
            said += "; only reported, as its exporter is older than the record of the machine"
        shown.append(Sign(f"XID {xid}{_OF_GPU}{gpu}", entry, None, said))
    return tuple(shown)


def signs_of(claim: Claim, node: Node, pool: Pool | None, found: GpuXids | None) -> tuple[Sign, ...]:
    """Both of a machine. ``found`` None = no exporter was read."""
    own = () if pool is None else pool.unhealthy_conditions
    return (*signs(node, own), *(xid_signs(found, own, claim.created) if found is not None else ()))


def _fits(entry: UnhealthyCondition, condition: StatusCondition) -> bool:
    if (entry.type, entry.status) != (condition.type, condition.status):
        return False
    return not entry.contains or any(text in condition.reason or text in condition.message for text in entry.contains)


def _has(entry: UnhealthyCondition, taint: Taint) -> bool:
    if not entry.taint or entry.value not in ("", taint.value):
        return False
    return taint.key.startswith(entry.taint) if entry.taint.endswith("/") else taint.key == entry.taint


def since(sign: Sign, first_seen: datetime, initialized: datetime) -> datetime:
    """The beginning of the time that counts: what Kubernetes says, else the first run that saw it; never before the node was in use."""
    return max(first_seen if sign.written is None else sign.written, initialized)


def is_due(sign: Sign, first_seen: datetime, initialized: datetime, now: datetime) -> bool:
    """Whether the sign has lasted, by its own time, and two runs a minute apart saw it: an agent's clock may be wrong, and so may be a
    cluster that was restored from a copy."""
    seen_twice = (now - first_seen).total_seconds() >= SECOND_RUN_AFTER
    return seen_twice and (now - since(sign, first_seen, initialized)).total_seconds() >= sign.entry.lasts


# ---- what becomes of the machines


@dataclasses.dataclass(frozen=True, slots=True)
class _Ill:
    """A machine with a sign that has lasted, and its words."""

    claim: Claim
    settled: Settled
    detail: str


def repair(draft: Draft) -> None:
    """Tell of every sign, and end the machines whose entry says Replace, like those that are not Ready (L-20): by force, and none at all
    while too many of their pool are unhealthy."""
    for settled in list(draft.undecided()):
        _tell(draft, settled)
    for pool, ill in _lasting(draft, REPLACE).items():
        wanted = [one for one in ill if not _held(draft, one)]
        if wanted and not _refused(draft, pool, wanted[0]):
            for one in wanted:
                draft.destroy(one.claim, Reason.UNHEALTHY, one.detail)


def replace_empty(draft: Draft) -> None:
    """Replace machines whose entry says ReplaceWhenEmpty: within the budgets, once no pod works on them."""
    for key, ill in _lasting(draft, REPLACE_WHEN_EMPTY).items():
        pool = draft.situation.in_force(ill[0].claim)
        if pool is None:
            continue
        wanted: list[tuple[Claim, str]] = []
        for one in ill:
            why = voluntary.disruption_blocked(draft, pool, one.settled, Reason.REPLACED) or _at_work(draft, pool, one.settled)
            if why:
                draft.report(one.claim.name, Reason.REPLACED, f"{one.detail}; kept: {why}", pool=key)
            else:
                wanted.append((one.claim, one.detail))
        if wanted and not _refused(draft, key, ill[0]):
            voluntary.remove(draft, pool, Reason.REPLACED, wanted)


def shows_signs(draft: Draft, settled: Settled) -> bool:
    """Whether a node in use shows any sign, however new it is: of idle nodes it goes first."""
    return bool(_signs(draft, settled))


def _signs(draft: Draft, settled: Settled) -> tuple[Sign, ...]:
    if settled.node is None or not _is_judged(settled):
        return ()
    pool = draft.situation.in_force(settled.claim)
    return signs_of(settled.claim, settled.node, pool, draft.situation.seen.xids.get(settled.node.name))


def _is_judged(settled: Settled) -> bool:
    """Nodes in use whose kubelet speaks, on a machine of which its cloud knows: of others these signs are old."""
    claim, machine = settled.claim, settled.recovery.instance
    in_use = claim.phase is Phase.READY and claim.initialized is not None and not claim.is_service
    runs = machine is not None and machine.state is not InstanceState.UNKNOWN
    return in_use and runs and settled.node_ready


def _tell(draft: Draft, settled: Settled) -> None:
    """Note since when the signs of a machine are seen, and report them; people get a notice of those that have lasted. Where a run cannot
    tell, neither begins nor ends a time."""
    claim = settled.claim
    if not _is_judged(settled):
        draft.keep_sightings(_key(claim, ""))
        return
    _keep_unknown_xids(draft, settled)
    for sign in _signs(draft, settled):
        first = draft.sighted(_key(claim, sign.name))
        detail = _detail(claim, sign, first)
        text = f"{detail}; action {sign.entry.action} after {print_duration(sign.entry.lasts)}"
        draft.report(claim.name, Finding.UNHEALTHY_SIGN, text, pool=claim.pool)
        if is_due(sign, first, claim.initialized or first, draft.now):
            draft.notice("node_condition", claim.name, f"{claim.name}: {text}", sign=sign.name, action=sign.entry.action)


def _keep_unknown_xids(draft: Draft, settled: Settled) -> None:
    """The time of an XID neither begins nor ends while its GPU is unknown."""
    claim, pool = settled.claim, draft.situation.in_force(settled.claim)
    if settled.node is None or (pool is not None and not pool.reads_exporters):
        return
    known, prefix = draft.situation.seen.xids.get(settled.node.name, GpuXids()).last, _key(claim, "XID ")
    for key, first in draft.situation.seen.findings.items():
        if key.startswith(prefix) and key.rpartition(_OF_GPU)[2] not in known:
            draft.findings.setdefault(key, first)


def _detail(claim: Claim, sign: Sign, first: datetime) -> str:
    began = print_time(since(sign, first, claim.initialized or first))
    return f"{sign.name} since {began}{f' ({sign.said})' if sign.said else ''}"


def _lasting(draft: Draft, action: str) -> dict[str, list[_Ill]]:
    """The machines with a sign of this action that has lasted, and about which nothing has been decided, by pool."""
    found: dict[str, list[_Ill]] = collections.defaultdict(list)
    for settled in draft.undecided():
        claim = settled.claim
        for sign in _signs(draft, settled):
            first = draft.findings.get(_key(claim, sign.name), draft.now)
            if sign.entry.action == action and is_due(sign, first, claim.initialized or first, draft.now):
                found[claim.pool].append(_Ill(claim, settled, _detail(claim, sign, first)))
                break
    return dict(sorted(found.items()))


def _held(draft: Draft, ill: _Ill) -> bool:
    """Whether a person wrote on the Node that it stays, for example for a look at what is broken; it is reported."""
    hold = node_hold(ill.settled.node, draft.now).why if ill.settled.node is not None else ""
    if hold:
        draft.report(ill.claim.name, Finding.HELD, f"{ill.detail}; held by {hold}", pool=ill.claim.pool)
    return bool(hold)


def _at_work(draft: Draft, pool: Pool, settled: Settled) -> str:
    pods = draft.situation.pods(settled.node) if settled.node is not None else None
    if pods is None:
        return "pods unknown"
    work = busy(pods, pool.idle_mode, draft.situation.settings, draft.now)
    return f"pod {work[0].namespace}/{work[0].name} works there" if work else ""


def _refused(draft: Draft, pool: str, ill: _Ill) -> bool:
    """Whether more of a pool is unhealthy than can be believed. A sign counts from its first sight, so that new machines that show it, too,
    speak against the agent; so do machines that end for one already."""
    counted = [settled for settled in draft.settled.values() if settled.claim.pool == pool and _counts(settled.claim)]
    unwell = sum(1 for settled in counted if _is_unwell(draft, settled))
    if unwell <= max(1, int(len(counted) * UNHEALTHY_SHARE)) or draft.situation.settings.allow_mass_delete:
        return False
    mass_deletion_guard.refuse(
        draft,
        f"unhealthy nodes of {pool}",
        f"guard_refused: {unwell} of {len(counted)} nodes of {pool} are unhealthy, {ill.claim.name} among them: {ill.detail}. None is "
        "replaced. An agent that is wrong is more likely than so many broken machines. If they really are broken, run again with "
        "allow_mass_delete: true; if the agent is wrong, give the pool an entry of unhealthyConditions with action: Report.",
    )
    return True


def _counts(claim: Claim) -> bool:
    """Machines that were usable, but those that go for another reason."""
    return claim.initialized is not None and (claim.deletion is None or claim.deletion.reason in _BROKEN)


def _is_unwell(draft: Draft, settled: Settled) -> bool:
    if settled.claim.deletion is not None or settled.node is None or not settled.node.ready:
        return True
    return any(sign.entry.action in (REPLACE, REPLACE_WHEN_EMPTY) for sign in _signs(draft, settled))


def _key(claim: Claim, sign: str) -> str:
    return f"{Finding.UNHEALTHY_SIGN}|{claim.cloud}|{claim.name}|{sign}"
