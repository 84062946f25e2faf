# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims that have to go, whatever their pods do: being deleted, failed, lost, never joined, too dear, asked for, expired."""

from __future__ import annotations

import collections
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Claim, Instance, InstanceState, Node, Phase
from ...model.reasons import ActionKind, Finding, Reason
from ...model.spec import UNHEALTHY_TIMEOUT
from ...units.values import print_time
from ..claim_sync import Settled
from ..claims.record import BEFORE_READY, may_have_instance
from ..cluster_state import RETRY, UNKNOWN_WINDOW
from ..garbage_collection import mass_deletion_guard, signs_of_life
from ..garbage_collection.orphans import NODE_NOT_READY
from ..offers.ranking import price_verdict
from ..plan_builder import SECOND_RUN_AFTER, Draft
from ..provisioning import gpu_health, service
from ..provisioning.registration import failure_class, forsaken, overdue, timeout
from . import expiration
from .do_not_disrupt import node_hold, terminate_requested
from .drain_rules import MODES, is_voluntary
from .emptiness import counts

MISSING_RUNS: t.Final = 3  # runs that do not see a machine that shows life before that is a problem of the run (O5)
UNHEALTHY_SHARE: t.Final = Decimal("0.4")  # of a pool's nodes; when more are unhealthy, none is removed (L-20)


def finish(draft: Draft) -> None:
    """Go on with what is past its drain (L-10), and clear away launches that failed."""
    for settled in list(draft.undecided()):
        claim = settled.claim
        if claim.name in draft.refilled:
            continue  # a stronger reason may still take it; go_on tells of it otherwise
        if claim.phase is Phase.TERMINATING:
            draft.destroy(claim, Reason.MANUAL if claim.deletion is None else claim.deletion.reason, "goes on")
        elif claim.phase is Phase.FAILED:
            last = claim.attempts[-1].message if claim.attempts else ""
            state = "a machine may exist" if may_have_instance(claim) else "nothing was rented"
            draft.destroy(claim, Reason.LAUNCH_FAILED, f"{state}: {last}" if last else state)
        elif claim.deletion is None and settled.recovery.what in RETRY and not _is_decided_anew(draft, settled):
            draft.destroy(claim, Reason.LAUNCH_FAILED, f"an interrupted launch that rented nothing: {settled.recovery.why}")


def _is_decided_anew(draft: Draft, settled: Settled) -> bool:
    """Whether this run's launches go on with it, or drop it."""
    mode = draft.situation.settings.mode
    return mode == "autoscale" or (mode == "everything" and draft.situation.pool(settled.claim) is not None)


def go_on(draft: Draft) -> None:
    """Go on with what an earlier run decided and no stronger reason has replaced. Reasons that can wait are judged anew in every run, and
    so is whether a document is gone."""
    for settled in list(draft.undecided()):
        if why := draft.refilled.get(settled.claim.name):
            draft.report(settled.claim.name, Finding.KEPT, f"{why}; it is deleted when that has ended", pool=settled.claim.pool)
            continue
        deletion = settled.claim.deletion
        anew = deletion is None or deletion.reason == Reason.DOCUMENT_GONE or is_voluntary(deletion.reason)
        if deletion is not None and deletion.reason in MODES and not anew:
            draft.destroy(settled.claim, deletion.reason, "goes on", force=deletion.force)


def lost(draft: Draft) -> None:
    """Machines that their cloud does not list any more (O5, O6). A sign of life protects: then the list is more likely wrong."""
    situation = draft.situation
    gone: list[tuple[Settled, str]] = []
    for settled in draft.undecided():
        claim = settled.claim
        if settled.recovery.what != "missing" or not claim.instance_id:
            continue
        node = settled.node or settled.stale_node
        if sign := signs_of_life.of_claim(settled, situation) or ("it is in the mesh" if service.lives(claim, situation) else ""):
            _still_alive(draft, settled, sign)
            continue
        started = claim.launched
        if claim.initialized is None and (draft.now - started).total_seconds() < UNKNOWN_WINDOW:
            continue  # a cloud may list a new machine late
        if claim.initialized is None and not situation.rented(claim.cloud):
            continue  # an own machine that boots looks like one that is off; its registration time decides
        since = claim.gone_since or draft.now
        seen_twice = (draft.now - since).total_seconds() >= SECOND_RUN_AFTER
        if seen_twice and _not_ready_long(node, draft):
            gone.append((settled, f"{settled.recovery.why} since {print_time(since)}"))
    total = sum(1 for claim in situation.claims if claim.instance_id)
    if mass_deletion_guard.holds(draft, "claims whose machine is gone", len(gone), total):
        return
    for settled, detail in gone:
        if settled.claim.initialized is None:
            draft.destroy(settled.claim, Reason.FAILED_JOIN, f"no_instance: {detail}")
        else:
            draft.destroy(settled.claim, Reason.INSTANCE_GONE, detail)


def _still_alive(draft: Draft, settled: Settled, sign: str) -> None:
    """O5: warn, and fail loudly once three runs have seen it. Each run, at least a minute apart, leaves one finding."""
    claim = settled.claim
    text = f"{claim.name}: {sign}, but {settled.recovery.why}; nothing is deleted"
    draft.warnings.append(text)
    runs = 0
    while (key := f"O5|{claim.cloud}|{claim.name}|{runs + 1}") in draft.situation.seen.findings:
        last = draft.sighted(key)
        runs += 1
    if runs == 0 or (draft.now - last).total_seconds() >= SECOND_RUN_AFTER:
        runs += 1
        draft.sighted(f"O5|{claim.cloud}|{claim.name}|{runs}")
    if runs >= MISSING_RUNS:
        draft.problems.append(f"{text} (seen in {runs} runs); check the account and the credentials of {claim.cloud}")


def _not_ready_long(node: Node | None, draft: Draft) -> bool:
    if node is None:
        return True
    since = node.ready_since
    return since is not None and (draft.now - since).total_seconds() >= NODE_NOT_READY


def _patience(draft: Draft, claim: Claim) -> int:
    """After how many times of its join a complete machine goes that no run has opened. A run of autoscale opens it now, if it can."""
    opens = draft.situation.settings.mode == "autoscale" and draft.situation.pool(claim) is not None
    return 3 if opens else 2


def _is_used(draft: Draft, settled: Settled) -> bool:
    """Whether pods work there although no run has opened it, or whether that is unknown. A service is judged by its health."""
    if settled.claim.is_service:
        return True
    if settled.node is None:
        return False
    pods, pool = draft.situation.pods(settled.node), draft.situation.in_force(settled.claim)
    mode = pool.idle_mode if pool is not None else "workload"
    return pods is None or any(
        pod.node == settled.node.name and counts(pod, mode, draft.situation.settings, draft.now) for pod in pods
    )


def failed_joins(draft: Draft) -> None:
    """Machines that are not usable at the end of their registration time (L-11). Decided only when their cloud was listed. Of those that
    show life a run takes the oldest only, at most half of all: a wrong reading would end every one of them, one that is right goes on."""
    situation = draft.situation
    alive: list[tuple[Claim, str]] = []
    for settled in list(draft.undecided()):
        claim = settled.claim
        if claim.phase not in BEFORE_READY or settled.recovery.what in ("unknown", "wait", "launch", "next_offer"):
            continue
        pool, capability = situation.in_force(claim), situation.capability(claim)
        if settled.stale_node is not None and settled.stale_node.ready:
            draft.destroy(
                claim, Reason.FAILED_JOIN, f"stale_node: a Node of this name is older than the machine ({settled.stale_node.uid})"
            )
        elif overdue(claim, pool, capability, draft.now, settled.node):
            if claim.is_service:
                _failed_service(draft, settled)
                continue
            cause = failure_class(claim, settled.recovery.instance, settled.node, situation.node_class(claim))
            detail = f"{cause}: not usable after {timeout(claim, pool, capability)} s"
            if signs_of_life.of_claim(settled, situation):
                alive.append((claim, detail))
            else:
                draft.destroy(claim, Reason.FAILED_JOIN, detail)
        elif forsaken(claim, pool, capability, draft.now, times := _patience(draft, claim)) and not _is_used(draft, settled):
            seconds = times * timeout(claim, pool, capability)
            draft.destroy(claim, Reason.FAILED_JOIN, f"not_opened: complete, but no run has opened it to pods within {seconds} s")
    total = sum(1 for claim in situation.claims if claim.instance_id)
    bound = len(alive) if situation.settings.allow_mass_delete else mass_deletion_guard.most(total, alive=True)
    alive.sort(key=lambda due: (due[0].launched, due[0].name))
    for claim, detail in alive[:bound]:
        draft.destroy(claim, Reason.FAILED_JOIN, detail)
    for claim, detail in alive[bound:]:
        draft.warnings.append(
            f"{claim.name}: {detail}. It shows signs of life, like {len(alive) - 1} more; a later run takes it down."
        )


def _failed_service(draft: Draft, settled: Settled) -> None:
    """The same for a service. One that answers is in time, whatever the clock says; without the mesh nobody can tell."""
    situation, claim = draft.situation, settled.claim
    health = service.health(claim, situation)
    if health.well:
        return
    if situation.devices is None:
        draft.warnings.append(f"{claim.name}: not usable in time, as far as one can see; {health.why}, so nothing is decided.")
        return
    cause = service.failure_class(claim, settled.recovery.instance, situation.device(claim))
    seconds = timeout(claim, situation.in_force(claim), situation.capability(claim))
    draft.destroy(claim, Reason.FAILED_JOIN, f"{cause}: not usable after {seconds} s: {health.why}")


def unhealthy(draft: Draft) -> None:
    """Machines that were usable and whose Node is not Ready, or gone, for long (L-20); services that do not answer, or left the mesh.
    Many at once in a pool speak against us."""
    settings = draft.situation.settings
    sick: dict[str, list[tuple[Settled, str]]] = {}
    sizes = collections.Counter(settled.claim.pool for settled in draft.settled.values() if settled.claim.initialized is not None)
    for settled in list(draft.undecided()):
        claim, machine = settled.claim, settled.recovery.instance
        if claim.phase is not Phase.READY or machine is None:
            continue
        symptom = ""
        if claim.is_service:
            since, symptom = _service_down(draft, settled)
        elif settled.node is None:
            since = draft.sighted(f"NodeGone|{claim.cloud}|{claim.name}")
        else:
            since = None if settled.node.ready else settled.node.ready_since
            if settled.node.ready and (since := gpu_health.since(draft, settled)) is not None:
                symptom = "its GPUs are gone"
        if since is not None and (draft.now - since).total_seconds() >= _tolerance(draft, claim):
            gone = (
                "its Node is gone" if settled.node is None else f"its Node is not Ready: {settled.node.ready_message}".rstrip(": ")
            )
            symptom = symptom or gone
            if machine.state is InstanceState.UNKNOWN:  # unknown never deletes, and must not be billed in silence either
                word = machine.raw_state or "nothing we know"
                draft.problems.append(
                    f"{claim.name}: {symptom}, and {claim.cloud} says of the machine: {word}. Look at it; nothing is deleted."
                )
                continue
            sick.setdefault(claim.pool, []).append((settled, f"{symptom}, since {print_time(since)}"))
    for pool in sorted(sick):
        if len(sick[pool]) > max(1, int(sizes[pool] * UNHEALTHY_SHARE)) and not settings.allow_mass_delete:
            mass_deletion_guard.refuse(
                draft,
                f"nodes of {pool}",
                f"guard_refused: {len(sick[pool])} of {sizes[pool]} nodes of {pool} are not well; none is removed. "
                "The control plane or the mesh is more likely broken than all of these machines. If they really are, run again with "
                "allow_mass_delete: true.",
            )
            continue
        for settled, detail in sick[pool]:
            if sizes[pool] == 1 and not settings.allow_mass_delete and not _proven(draft, settled):
                mass_deletion_guard.refuse(
                    draft,
                    f"nodes of {pool}",
                    f"guard_refused: {settled.claim.name} is the only node of {pool}: {detail}. "
                    "Nothing else says that it is broken: "
                    f"{settled.claim.cloud} calls it running, and {_mesh_says(draft, settled)}. "
                    "A cluster that was restored from a copy sees its machines so. It is not terminated. "
                    "If it really is broken, run destroy.yml for it.",
                )
                continue
            draft.destroy(settled.claim, Reason.UNHEALTHY, detail)


def _proven(draft: Draft, settled: Settled) -> bool:
    """Whether something beside the control plane says that the only node of a pool is broken. A Ready Node without GPUs, and a service
    that answers wrongly, say so themselves."""
    return settled.node_ready or settled.claim.is_service or bool(signs_of_life.second_witness(settled, draft.situation))


def _mesh_says(draft: Draft, settled: Settled) -> str:
    return "its mesh device is online" if draft.situation.in_mesh(settled.claim.name) else "no mesh says whether it is online"


def _tolerance(draft: Draft, claim: Claim) -> int:
    """Seconds for which a node may be ill: its pool's spec, else the default."""
    pool = draft.situation.in_force(claim)
    own = None if pool is None else pool.unhealthy_timeout
    return UNHEALTHY_TIMEOUT if own is None else own


def _service_down(draft: Draft, settled: Settled) -> tuple[datetime | None, str]:
    """Since when a service is seen not to work. A run that cannot tell neither begins this time nor ends it."""
    health = service.health(settled.claim, draft.situation)
    key = f"ServiceDown|{settled.claim.cloud}|{settled.claim.name}"
    if health.well is False:
        return draft.sighted(key), f"it does not work: {health.why}"
    first = draft.situation.seen.findings.get(key)
    if health.well is None:
        draft.warnings.append(f"{settled.claim.name}: whether it works is unknown: {health.why}")
        if first is not None:
            draft.findings[key] = first
    return None, ""


def prices(draft: Draft, *, destroy: bool) -> None:
    """Machines that cost more than their pool allows (L-13). One in use at the price it was rented for has not jumped: its document was
    changed meanwhile, and an end without a drain is nothing that an edit should do to work. Nor is a new version, which counts a disk that
    was not in the price when the machine was rented."""
    for settled in list(draft.undecided()):
        claim, pool = settled.claim, draft.situation.in_force(settled.claim)
        if claim.price_paid is None or pool is None:
            continue
        verdict = price_verdict(claim.price_paid, pool.max_hourly_price)
        agreed_price = claim.reserved_price + _disk_that_was_not_counted(claim, settled.recovery.instance)
        agreed = claim.initialized is not None and price_verdict(claim.price_paid, agreed_price) != "jump"
        text = f"costs {claim.price_paid} $/h, maxHourlyPrice is {pool.max_hourly_price}"
        if verdict == "jump" and agreed:
            draft.warnings.append(f"{claim.name} {text} by now; it was rented for that price, so it stays")
        elif verdict == "jump" and destroy:
            draft.destroy(claim, Reason.PRICE_JUMP, text)
        elif verdict == "jump":
            draft.problems.append(f"{claim.name} {text}; reap.yml will terminate it")
        elif verdict == "warn":
            draft.warnings.append(f"{claim.name} {text}")


def _disk_that_was_not_counted(claim: Claim, machine: Instance | None) -> Decimal:
    """Dollars per hour of the machine's disk, where the price of its offer was without one."""
    return Decimal(0) if machine is None or claim.offer.storage_price_hour else machine.storage_price_hour


def asked_for(draft: Draft) -> None:
    """Nodes on which a person wrote tgp.io/terminate: now."""
    for settled in list(draft.undecided()):
        if settled.node is not None and terminate_requested(settled.node):
            hold = node_hold(settled.node, draft.now).why
            draft.destroy(settled.claim, Reason.MANUAL, "annotation on the Node" + (f", although held by {hold}" if hold else ""))


def expired(draft: Draft) -> None:
    """Machines whose time is over (L-4)."""
    for settled in list(draft.undecided()):
        pool = draft.situation.in_force(settled.claim)
        if pool is None or settled.claim.launch_started is None:
            continue
        age = expiration.age_of(settled.claim, settled.node, pool, draft.now)
        if age.expired:
            draft.destroy(settled.claim, Reason.EXPIRED, age.why)
        elif age.why:
            draft.report(settled.claim.name, Finding.HELD, age.why, pool=settled.claim.pool)


def named(draft: Draft) -> None:
    """What the destroy playbook was asked to take down."""
    wanted = draft.situation.settings.destroy
    left = set(wanted.names)
    pools = set(wanted.pools)
    found_pools: set[str] = set()
    for settled in list(draft.undecided()):
        claim = settled.claim
        hits = {claim.name, claim.node_name, claim.instance_id} & set(wanted.names) - {""}
        in_pool = {claim.pool, claim.pool.rpartition("/")[2]} & pools
        left -= hits
        found_pools |= in_pool
        if hits or in_pool or wanted.all:
            draft.destroy(claim, Reason.MANUAL, "asked for", force=wanted.force)
    draft.problems.extend(f"There is no machine named {name}." for name in sorted(left - _adopted(draft)))
    names = {text for pool in draft.situation.pools for text in (pool.key, pool.name)}
    draft.problems.extend(f"There is no pool {name}." for name in sorted(pools - found_pools - names))


def _adopted(draft: Draft) -> set[str]:
    """Names and ids that were met by a machine without a claim."""
    claims = [action.claim for action in draft.others if action.kind == ActionKind.DESTROY and action.claim is not None]
    return {text for claim in claims for text in (claim.name, claim.instance_id)}
