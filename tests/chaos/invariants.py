# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold around each single call (L-24). Each function says what is wrong, or nothing.

``BEFORE`` are asked before a call leaves, ``AFTER`` once its effect is there. What can only be judged when a story has come to rest is in
endings.py.
"""

from __future__ import annotations

import collections
import json
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from . import migrating, moving, objects, own, pauses, purse, queues, reasons, switches, trials
from .sight import Call, Json, Sight, pool_in

Check = t.Callable[[Sight, Call], str]
_VOLUNTARY = frozenset({"Empty", "Underutilized", "Drifted"})
_AT_DEADLINE = frozenset({"Expired", "Unhealthy", "Manual", "Budget"})
_DRAIN = timedelta(seconds=600)
_SECOND_READING = 9.9  # seconds; clocks are floats


def I01_limits_hold(sight: Sight, _call: Call) -> str:
    """Machines, dollars and GPUs of each class. A second machine under one name came of a lost answer: it is looked for at the end."""
    limits = sight.limits
    for pool in {pool_in(one.name) for one in sight.living()}:  # each has a class of its own
        first = {one.name: one for one in reversed(sight.living()) if pool_in(one.name) == pool}.values()
        nodes, gpus = len(first), sum(one.offer.gpu_count for one in first)
        cost = sum((sight.agreed_rate(one) for one in first), Decimal(0))
        if nodes > limits.nodes or cost > limits.cost_hour or gpus > limits.gpus:
            return (
                f"{nodes} machines, ${cost}/h and {gpus} GPUs, allowed are {limits.nodes}, ${limits.cost_hour}/h and {limits.gpus}"
            )
    return ""


def I02_nothing_is_booked_twice(sight: Sight, _call: Call) -> str:
    counts = collections.Counter(
        one for line in sight.ledger() for one in line["ids"] if one not in own.NAMES and not sight.moved.is_moved(one)
    )  # these are used again and again
    twice = [one for one, number in counts.items() if number > 1]
    return f"more than one line of the ledger has {', '.join(twice)}" if twice else ""


def I03_only_ours_ends(sight: Sight, call: Call) -> str:
    """What is deleted is ours by name, and no list that the decision needs had failed."""
    if own.node_that_goes(sight, call) is not None:
        return ""  # judged by I-40
    names, kind = _ends(sight, call)
    if not names:
        return ""
    if call.destroys() and (problem := own.I03_one_without_a_claim_stays_on(sight, sight.aimed_at(call))):
        return problem
    strange = [name for name in names if not sight.ours(name) and not own.may_be_on(sight, name)]
    if strange:
        return f"{', '.join(strange)} is not ours"
    if "claims" not in call.run.good:
        return f"{', '.join(names)} goes although the claims could not be read"
    lone = [name for name in names if name not in sight.claims()]
    if lone and kind not in call.run.good:
        return f"{', '.join(lone)} has no claim and goes although the list of {kind} could not be read"
    return ""


def _ends(sight: Sight, call: Call) -> tuple[list[str], str]:
    """Names of what the call deletes, and the list that tells of such things."""
    if call.destroys():
        return [one.name for one in sight.aimed_at(call)], call.service
    if device_id := call.device():
        device = sight.device(device_id)
        return [device.hostname] if device is not None else [], "tailscale"
    if call.service == "kubernetes" and (name := call.deleted("/api/v1/nodes/")):
        return [name], "nodes"
    return [], ""


def I04_a_ready_node_protects(sight: Sight, call: Call) -> str:
    """Nothing is given up as gone while it lives and its Node says so."""
    claim = call.claim()
    if (claim.get("deletion") or {}).get("reason") != "InstanceGone":
        return ""
    name = claim["name"]
    before = (sight.claims().get(name) or {}).get("deletion") or {}
    lives = any(one.ended is None for one in sight.by_name(name))
    if before.get("reason") != "InstanceGone" and lives and sight.is_ready(name):
        return f"{name} lives, its Node is Ready, and it is given up as gone"
    return ""


def I05_budgets_are_kept(sight: Sight, call: Call) -> str:
    """A pod that its budget holds is removed only by a reason that may, and when its time has come."""
    what = call.deleted("/api/v1/namespaces/default/pods/")
    if call.service != "kubernetes" or what not in sight.guarded:
        return ""
    pod = sight.pod("default", what)
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    node = pod["spec"].get("nodeName", "")
    deletion = (sight.claims().get(node) or {}).get("deletion") or {}
    reason, force = deletion.get("reason", ""), bool(deletion.get("force"))
    if reason in _VOLUNTARY or (reason == "Manual" and not force):
        return f"{what} is removed for {reason} against its budget"
    # a reason that is stronger than Manual keeps the force that a person asked for (L-26); pods of a machine that is off wait for nothing
    if reason in _AT_DEADLINE or (force and reason != "InstanceGone"):
        return _too_early(sight, node, what)
    if sight.is_ready(node) and any(one.ended is None for one in sight.by_name(node)):
        return f"{what} is removed for {reason or 'no reason'} while its node works"
    return ""


def _too_early(sight: Sight, node: str, what: str) -> str:
    marks = (sight.nodes().get(node) or {"metadata": {}})["metadata"].get("annotations") or {}
    started = marks.get("tgp.io/drain-started", "")
    if not started:
        return f"{what} is removed without a drain"
    begun = datetime.fromisoformat(started.replace("Z", "+00:00"))
    earliest = begun + max(timedelta(0), _DRAIN - timedelta(seconds=sight.guarded[what]))
    return f"{what} is removed at {sight.now}, its time comes at {earliest}" if sight.now < earliest - timedelta(seconds=1) else ""


def I06_the_node_goes_last(sight: Sight, call: Call) -> str:
    name = call.deleted("/api/v1/nodes/") if call.service == "kubernetes" else ""
    for one in sight.by_name(name) if name else ():
        if one.ended is None:
            return f"the Node of {name} goes while machine {one.id} lives"
        if one.state == "terminating" and one.destroyed is None and sight.is_ready(name):
            return f"the Node of {name} is Ready and goes while machine {one.id} is still listed as terminating"
    return ""


def I07_no_name_twice(sight: Sight, _call: Call) -> str:
    """No machine is made under the name of one whose account is closed. Own machines keep their names."""
    closed = {line["name"]: datetime.fromisoformat(line["end"].replace("Z", "+00:00")) for line in sight.ledger() if line["ids"]}
    closed = {name: moment for name, moment in closed.items() if name not in own.NAMES}
    for one in sight.living():
        if one.name in closed and one.created > closed[one.name] + timedelta(seconds=1):
            return f"{one.name} was given to another machine before"
    return ""


def I12_no_secret_is_written(sight: Sight, call: Call) -> str:
    """Not in an address, and not in what we keep in the cluster (but for Secrets, which are made for that)."""
    text = call.path
    if (
        call.service in ("kubernetes", "directory", "hub")
        and call.writes
        and "/secrets" not in call.path
        and "accessreviews" not in call.path
    ):
        text += call.body
    return "a secret is in it" if any(one in text for one in sight.secrets()) else ""


def I14_who_reads_writes_nothing(_sight: Sight, call: Call) -> str:
    return f"a run that only reads sends {call.method} {call.path}" if call.run.reads and call.writes else ""


def I15_no_launch_on_a_used_up_budget(sight: Sight, call: Call) -> str:
    """Neither before a create call nor after it the day's bill and what is left of the first hours are more than the budget."""
    if sight.purse is None or not call.creates() or not sight.purse.covers(call.body):
        return ""
    since = sight.purse.since(sight.now)
    spent, promised = purse.spent(sight, since), purse.promised(sight)
    if spent + promised <= sight.purse.amount + purse.unsure(sight, since):
        return ""
    return f"a create call with ${spent:.4f} spent and ${promised:.4f} promised of ${sight.purse.amount} since {since:%d %H:%M}"


def I26_a_lock_is_read_twice(sight: Sight, call: Call) -> str:
    """The run lock of another host's run is taken over only after two readings ten seconds apart that show the same last sign of life."""
    if call.service != "kubernetes" or "/leases/" not in call.path:
        return ""
    holder, renewed = sight.holder(), sight.renewed()
    if call.method == "GET":
        call.run.lock_read.setdefault((holder, renewed), sight.now)
    if call.method != "PUT" or not holder:
        return ""
    lease = json.loads(call.body)
    taker = str((lease.get("spec") or {}).get("holderIdentity") or "")
    version = (lease.get("metadata") or {}).get("resourceVersion")
    if version and version != sight.lease_version():
        return ""  # another run was faster; the cluster refuses this one (409)
    if not taker or taker.partition("/")[0] == holder.partition("/")[0]:
        return ""  # on one host the process itself says whether it is dead
    first = call.run.lock_read.get((holder, renewed))
    apart = (sight.now - first).total_seconds() if first is not None else 0.0
    return f"{taker} takes the lock of {holder}, {apart:.0f} s after its first reading" if apart < _SECOND_READING else ""


def I27_one_replacement_each(sight: Sight, _call: Call) -> str:
    """A machine that is there has at most one other that was launched in its place."""
    claims = sight.claims()
    named = collections.Counter(
        one.get("replaces")
        for one in claims.values()
        if one.get("replaces") in claims and claims[one["replaces"]]["created"] < one["created"]
    )
    twice = [f"{name} has {number} replacements" for name, number in named.items() if number > 1]
    return ", ".join(twice)


BEFORE: dict[str, Check] = {
    "I-3": I03_only_ours_ends,
    "I-4": I04_a_ready_node_protects,
    "I-5": I05_budgets_are_kept,
    "I-6": I06_the_node_goes_last,
    "I-12": I12_no_secret_is_written,
    "I-14": I14_who_reads_writes_nothing,
    "I-15": I15_no_launch_on_a_used_up_budget,
    "I-26": I26_a_lock_is_read_twice,
    "I-28": pauses.I28_a_paused_pool_stays_as_it_is,
    "I-29": objects.I29_an_object_goes_last,
    "I-30": objects.I30_finalizers_of_others_stay,
    **reasons.CHECKS,
    **migrating.CHECKS,
    **moving.CHECKS,
    **own.CHECKS,
}
SECOND: dict[str, Check] = {"I-20": reasons.I20_a_second_cluster_ends_nothing}  # for runs of another cluster with the same id
SECOND_AFTER: dict[str, Check] = {"I-20": reasons.I20_a_tunnel_that_works_stays}
AFTER: dict[str, Check] = {
    **SECOND_AFTER,
    "I-1": I01_limits_hold,
    "I-2": I02_nothing_is_booked_twice,
    "I-7": I07_no_name_twice,
    "I-15": I15_no_launch_on_a_used_up_budget,
    "I-27": I27_one_replacement_each,
    "I-31": objects.I31_a_deleted_claim_keeps_its_record,
    **trials.CHECKS,
    **queues.CHECKS,
}


def problems(checks: t.Mapping[str, Check], sight: Sight, call: Call) -> list[str]:
    """What the call breaks, each with the invariant's number and the call."""
    where = f"{call.run.name} ({call.run.mode}) call {call.run.calls}: {call.service} {call.method} {call.path}"
    return [
        f"{name}: {problem} [{where}]" for name, check in checks.items() if switches.on(name) and (problem := check(sight, call))
    ]


__all__ = ["AFTER", "BEFORE", "Check", "Json", "problems"]
