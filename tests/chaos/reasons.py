# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a machine may end, by the world's own tables: the invariants I-17 to I-20 around each call (L-24).

What the fleet says of a reason (its claim) is the statement that is judged here, never the evidence.
"""

from __future__ import annotations

import re
import typing as t
from datetime import timedelta
from decimal import Decimal

from sandbox.world import Machine

from . import agents, purse, queues, trials
from .sight import Call, Json, Sight, pool_in, stays, works

VOLUNTARY = frozenset({"Empty", "Underutilized", "Drifted", "Replaced", "Calendar"})
_MOVING = VOLUNTARY - {"Empty"}  # these may move pods to other nodes first
_SLACK = timedelta(seconds=125)  # a clock may be two minutes wrong (L-27), and times are kept in whole seconds
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_UNHEALTHY = timedelta(seconds=1200)
_REGISTRATION = timedelta(seconds=900)  # the shortest there is (own machines)
_BEGINS = (
    "Budget",
    "Expired",
    "Replaced",
)  # true when the end begins: the day, the document or the GPUs may be others when it is carried out
_DOCUMENT = timedelta(seconds=600)
_GONE = ("terminating", "terminated", "preempted", "stopping", "stopped", "off")


def seconds_of(text: str) -> float:
    """A duration as documents write it."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))


# ---- reasons that are true in the world


def _expired(sight: Sight, machine: Machine) -> str:
    if (machine.name, "Expired") in sight.begun:
        return ""  # an end that has begun is carried out
    texts = [
        (spec.get("disruption") or {}).get("expireAfter") or spec.get("maxLifetime") or "Never" for spec in sight.told(machine)
    ]
    times = [timedelta(seconds=seconds_of(text)) for text in texts if text != "Never"]
    age = sight.now - machine.created
    if not times:
        return "its document has no expireAfter"
    return "" if age >= min(times) - _SLACK else f"it is {age} old, its time is {min(times)}"


def _unhealthy(sight: Sight, machine: Machine) -> str:
    if "struck" in machine.details or not sight.is_node(machine):
        return ""
    if machine.name not in sight.nodes():
        return ""
    if agents.reason(sight, machine, _SLACK):
        return ""
    since, what, shown = sight.not_ready_since(machine.name), "is not Ready", sight.gpus(machine.name)
    if since is None and shown:
        return f"its Node is Ready and shows {shown} of {sight.rented(machine)} GPUs"
    if since is None or (not shown and sight.fewer_gpus_since(machine.name) < since):
        since, what = sight.fewer_gpus_since(machine.name), "shows no GPU"
    return "" if sight.now - since >= _UNHEALTHY - _SLACK else f"its Node {what} for {sight.now - since} only"


def _replaced(sight: Sight, machine: Machine) -> str:
    """A node that shows some of its GPUs only, or of which an agent complains, goes where the pool says so."""
    if (machine.name, "Replaced") in sight.begun:
        return ""  # it is empty and waits for a pod that came after its drain (L-10)
    if agents.reason(sight, machine, _SLACK, "ReplaceWhenEmpty"):
        return ""
    shown, rented = sight.gpus(machine.name), sight.rented(machine)
    if machine.name not in sight.nodes() or not 0 < shown < rented:
        return f"its Node shows {shown} of {rented} GPUs"
    if all((spec.get("disruption") or {}).get("gpuLossPolicy") != "Replace" for spec in sight.told(machine)):
        return "its pool does not say gpuLossPolicy Replace"
    passed = sight.now - sight.fewer_gpus_since(machine.name)
    return "" if passed >= _UNHEALTHY - _SLACK else f"its Node shows {shown} of {rented} GPUs for {passed} only"


def _instance_gone(sight: Sight, machine: Machine) -> str:
    """A list that lacks it does not suffice: every provider has a look by id (L-2a)."""
    gone = machine.ended is not None or machine.state in _GONE or "struck" in machine.details
    return "" if gone or machine.id in sight.misread else f"machine {machine.id} exists"


def _spot_lost(_sight: Sight, machine: Machine) -> str:
    lost = machine.ended is not None or machine.state in ("preempted", "stopped", "stopping", "off") or "struck" in machine.details
    return "" if lost else f"machine {machine.id} runs"


def _orphan(sight: Sight, machine: Machine) -> str:
    known = {one for claim in sight.claims().values() for one in claim["ids_seen"]} | set(sight.claims())
    if machine.name in sight.forgotten:
        alive = sight.is_node(machine) and sight.is_ready(machine.name) and "struck" not in machine.details
        return f"it lives, and its Node {machine.name} is Ready" if alive else ""
    return f"machine {machine.id} has a claim" if {machine.id, machine.name} & known else ""


def _duplicate(sight: Sight, machine: Machine) -> str:
    twins = [one for one in sight.made() if one.name == machine.name and one.id != machine.id]
    return "" if twins else "there is no second machine of its name"


def _document_gone(sight: Sight, machine: Machine) -> str:
    pool = pool_in(machine.name)
    since = sight.vanished.get(pool)
    if since is None:
        return "" if sight.was_gone(machine.name, pool) else "its document is there"
    if pool in sight.kept and sight.kept[pool] <= machine.created:
        return "its document said Keep"
    at_once = pool in sight.deleted  # a person deleted its object (L-33)
    return "" if at_once or sight.now - since >= _DOCUMENT - _SLACK else f"its document is gone for {sight.now - since} only"


def _budget(sight: Sight, machine: Machine) -> str:
    if (machine.name, "Budget") in sight.begun:
        return ""  # its end began on the day that was used up, and is carried out on the next
    if sight.purse is None or not sight.purse.covers(machine.name):
        return "there is no budget"
    since = sight.purse.since(sight.now)
    handed_out = [one for number, one in sight.by_id().items() if number in sight.moved.out]
    made = [one for one in (*sight.made(), *handed_out) if sight.purse.covers(one.name)]
    spent = sum((purse.billed(sight, one, since) for one in made), Decimal(0))
    spent += purse.unsure(sight, since)
    machines = sight.by_id()
    lines = [line for line in sight.ledger() if sight.purse.covers(line["name"])]
    for line in lines:  # time in which no run could know that a machine was gone is booked as well (I-13)
        real = sum((machines[one].cost(sight.now) for one in line["ids"] if one in machines), Decimal(0))
        spent += max(Decimal(0), Decimal(line["cost"]) - real)
    return "" if spent >= sight.purse.amount else f"${spent:.4f} of ${sight.purse.amount} are spent"


def _left(sight: Sight, machine: Machine) -> bool:
    """Whether it was taken in, and no run has come since that opens nodes: it goes after twice the time of a join (L-11)."""
    return sight.moved.is_moved(machine.id) and sight.now - machine.created >= 2 * _REGISTRATION - _SLACK


def _failed_join(sight: Sight, machine: Machine) -> str:
    if machine.ended is not None or machine.state not in ("active", "on") or "struck" in machine.details:
        return ""
    if not sight.is_node(machine) and machine.details.get("phase") == "exited":
        return ""  # a container that ends has failed at once
    age, least = sight.now - machine.created, _REGISTRATION
    if sight.is_complete(machine) and (sight.work(machine.name) or not (sight.is_cordoned(machine.name) or _left(sight, machine))):
        return "its Node is Ready, open, and shows all GPUs"
    if trials.fails(sight, machine):
        return ""  # its test ends before the time of the join is over (L-35)
    if queues.is_asked(sight, machine):
        least += queues.PULLS_FOR  # the join may take so much longer (L-43)
    return "" if age >= least - _SLACK else f"it is {age} old"


def _price_jump(sight: Sight, machine: Machine) -> str:
    spec = sight.pool_of(machine) or {}
    most = spec.get("maxHourlyPrice")
    return "" if most and machine.rate() > Decimal(most) else f"it costs ${machine.rate()}/h"


def _manual(sight: Sight, machine: Machine) -> str:
    return "" if machine.name in sight.asked else "no person asked for it"


REASONS: dict[str, t.Callable[[Sight, Machine], str]] = {
    "Expired": _expired,
    "Unhealthy": _unhealthy,
    "InstanceGone": _instance_gone,
    "SpotLost": _spot_lost,
    "Orphan": _orphan,
    "Duplicate": _duplicate,
    "DocumentGone": _document_gone,
    "Budget": _budget,
    "FailedJoin": _failed_join,
    "PriceJump": _price_jump,
    "Manual": _manual,
}
_EVIDENCE = {**REASONS, "Replaced": _replaced}  # Replaced is no forced end, but its reason has to be true as well


# ---- the invariants


def stated(sight: Sight, name: str) -> Json:
    """What the fleet says it ends this machine for."""
    return (sight.claims().get(name) or {}).get("deletion") or {}


def _pod_that_works(sight: Sight, call: Call) -> tuple[Json, Machine] | None:
    """The pod that counts, and its living machine, when the call takes that pod away."""
    namespace, name = call.pod_that_goes()
    pod = sight.pod(namespace, name) if name else None
    if pod is None or not works(pod):
        return None
    node = pod["spec"].get("nodeName", "")
    machine = next((one for one in sight.living() if one.name == node), None)
    return None if machine is None or not sight.is_ready(node) else (pod, machine)


def I17_what_can_wait_ends_no_work(sight: Sight, call: Call) -> str:
    """A voluntary end takes no pod that counts; those that may move go first, and one that is bound to its place keeps its node."""
    found = _pod_that_works(sight, call)
    if found is not None:
        pod, machine = found
        reason, name = stated(sight, machine.name).get("reason", ""), pod["metadata"]["name"]
        if reason == "Empty":
            return f"pod {name} runs on {machine.name}, which goes as Empty"
        return f"pod {name} cannot move and is taken for {reason}" if reason in _MOVING and stays(pod) else ""
    if not call.destroys():
        return ""
    for one in sight.aimed_at(call):
        reason = stated(sight, one.name).get("reason", "")
        if reason in VOLUNTARY and one.ended is None and sight.is_ready(one.name) and (pods := sight.work(one.name)):
            return f"{one.name} goes as {reason}, and {len(pods)} pods run on it"
    return ""


def I18_a_forced_end_is_true(sight: Sight, call: Call) -> str:
    """What is stated as the reason of an end is so."""
    ending = sight.aimed_at(call) if call.destroys() else []
    for one in ending:
        reason = stated(sight, one.name).get("reason", "")
        check = _EVIDENCE.get(reason)
        if check is not None and one.ended is None and not _is_second(sight, one) and (problem := check(sight, one)):
            return f"{one.name} goes as {reason}, but {problem}"
    claim = call.claim()
    if (claim.get("deletion") or {}).get("reason") == "DocumentGone" != stated(sight, claim["name"]).get("reason"):
        for one in sight.by_name(claim["name"]):
            if problem := _document_gone(sight, one):
                return f"{one.name} begins to go as DocumentGone, but {problem}"
        sight.given_up.add(claim["name"])
    reason = (claim.get("deletion") or {}).get("reason", "")
    if reason in _BEGINS and reason != stated(sight, claim["name"]).get("reason"):
        for one in sight.by_name(claim["name"]):
            if one.ended is None and (problem := _EVIDENCE[reason](sight, one)):
                return f"{one.name} begins to go as {reason}, but {problem}"
        sight.begun.add((claim["name"], reason))
    if (claim.get("deletion") or {}).get("reason") != "InstanceGone":
        return ""
    for one in sight.by_name(claim["name"]) if stated(sight, claim["name"]).get("reason") != "InstanceGone" else ():
        if one.id in claim["ids_seen"] and (problem := _instance_gone(sight, one)):
            return f"{one.name} is given up as gone, but {problem}"
    return ""


def _is_second(sight: Sight, machine: Machine) -> bool:
    """A second machine under one name: it goes with the first, or as Duplicate."""
    return not _duplicate(sight, machine)


def why_it_may_end(sight: Sight, machine: Machine) -> list[str]:
    """Every forced reason that is true in the world."""
    return [reason for reason, check in REASONS.items() if not check(sight, machine)]


def I19_what_works_and_is_wanted_stays(sight: Sight, call: Call) -> str:
    """Work on a healthy machine ends for no reason but one that the world has; and a pool does not fall below what its document asks for."""
    found = _pod_that_works(sight, call)
    if found is not None:
        pod, machine = found
        moves = stated(sight, machine.name).get("reason", "") in _MOVING and not stays(pod)
        if not moves and not (set(why_it_may_end(sight, machine)) - {"FailedJoin"}):
            return f"pod {pod['metadata']['name']} works on {machine.name}, and nothing in the world speaks against it"
    for one in sight.aimed_at(call) if call.destroys() else ():
        if one.ended is not None or not sight.is_ready(one.name) or "struck" in one.details:
            continue
        if sight.work(one.name) and not why_it_may_end(sight, one):
            return f"{one.name} works and ends for {stated(sight, one.name).get('reason') or 'no reason'}"
        problem = _below_floor(sight, one)
        if problem:
            return problem
    return ""


def _below_floor(sight: Sight, machine: Machine) -> str:
    """Whether a voluntary end leaves fewer than ``minNodes`` (or ``replicas``) asks for."""
    spec, reason = sight.pool_of(machine), stated(sight, machine.name).get("reason", "")
    if (
        spec is None
        or pool_in(machine.name) in sight.unread
        or reason not in ("Empty", "Underutilized")
        or not _budget(sight, machine)
    ):
        return ""
    floor = int(spec.get("replicas") or spec.get("minNodes") or 0)
    pool = pool_in(machine.name)
    left = [one for one in sight.living() if one.id != machine.id and pool_in(one.name) == pool]
    return f"{machine.name} goes as {reason}, {len(left)} are left of {floor}" if len(left) < floor else ""


def I20_nothing_foreign_is_touched(sight: Sight, call: Call) -> str:
    """No machine, device or Node of somebody else is ended, and none becomes part of a claim."""
    for one in sight.foreign.values():
        if call.destroys() and call.service == one.cloud and one in sight.aimed_at(call):
            return f"machine {one.id} ({one.name}) belongs to somebody else and is ended"
        moves = (call.run.mode == "adopt" and one.id in sight.moved.offered) or one.id in set(sight.moved.out) - sight.moved.closed
        if one.id in (call.claim().get("ids_seen") or ()) and not moves:
            return f"machine {one.id} ({one.name}) belongs to somebody else and is adopted"
    device = call.device()
    if device and ("device", device) in sight.foreign_things:
        return f"device {device} belongs to somebody else and is removed"
    node = call.deleted("/api/v1/nodes/") if call.service == "kubernetes" else ""
    uid = (sight.nodes().get(node) or {"metadata": {"uid": ""}})["metadata"]["uid"] if node else ""
    return f"Node {node} belongs to somebody else and is deleted" if ("Node", uid) in sight.foreign_things else ""


def I20_a_second_cluster_ends_nothing(sight: Sight, call: Call) -> str:
    """A run of another cluster with the same id. With empty records it ends and adopts no machine; restored from a backup it ends what works
    for a reason that the world has, because its end had begun before, or because it was being launched when the backup was made: it joins
    the other cluster, so in the copy it fails to join; or, in a pool of two and more, because its Node is silent there (the guard of L-12a
    lets one go). Neither takes a device away from a machine that works. A machine
    that does not work and whose provider carries no stamp (Paperspace) looks like an orphan of any of them, and is not judged."""
    claim = call.claim()
    aimed = [one for one in sight.aimed_at(call) if call.destroys() and one.ended is None]
    for one in [*aimed, *(one for one in sight.living() if one.id in claim.get("ids_seen", ()))]:
        if sight.copied is None and (_is_well(sight, one) or one.cloud != "paperspace"):
            return f"{one.name} is {'ended' if one in aimed else 'adopted'} by an empty cluster of the same id"
        copied = (sight.copied or {}).get(one.name) or {}
        begun = copied.get("deletion") or (copied and not copied.get("instance_id"))  # or it was being launched then
        others = [name for name in sight.copied or {} if name != one.name and pool_in(name) == pool_in(one.name)]
        begun = begun or (
            others and _reason_there(sight, one.name) == "Unhealthy"
        )  # its Node is silent there; of two one may go (L-12a)
        if one in aimed and _is_well(sight, one) and not begun and not why_it_may_end(sight, one):
            return f"{one.name} works and is ended by a restored cluster of the same id"
    what = call.device()
    device = sight.device(what) if what else None
    if device is not None and any(one.name == device.hostname and _is_well(sight, one) for one in sight.living()):
        return f"the device of {device.hostname}, which works, is removed by another cluster of the same id"
    return I20_nothing_foreign_is_touched(sight, call)


def I20_a_tunnel_that_works_stays(sight: Sight, call: Call) -> str:
    """The hub keeps what was there before any run, and knows every machine that works and that it knew before the call."""
    if call.service != "hub":
        return ""
    if not sight.keeps_others():
        return "what the hub had before the first run is not there as it was"
    lost = set(sight.peers_before) - set(sight.peers())
    cut = [one.name for one in sight.living() if one.name in lost and _is_well(sight, one)]
    return f"the hub no longer knows {', '.join(cut)}, which works" if cut else ""


def _reason_there(sight: Sight, name: str) -> str:
    """What the newest second cluster says it ends this machine for."""
    claim = sight.rig.twins[-1].claims().get(name) if sight.rig.twins else None
    return str(((claim or {}).get("deletion") or {}).get("reason", ""))


def _is_well(sight: Sight, machine: Machine) -> bool:
    return "struck" not in machine.details and (sight.is_complete(machine) or not sight.is_node(machine))


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {
    "I-17": I17_what_can_wait_ends_no_work,
    "I-18": I18_a_forced_end_is_true,
    "I-19": I19_what_works_and_is_wanted_stays,
    "I-20": I20_nothing_foreign_is_touched,
}
