# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines that are stopped (L-54): since when, and when what is left of them in the cluster goes.

Stopping one ends its claim, its mesh device and its unused key (L-10). Its Node stays, so that it comes back under its name. A pool with
``deleteStoppedAfter`` has the Node removed once the machine has been off for so long. Unknown is never off.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import Action, CloudChoice, Device, Instance, InstanceState, Machine, Node, NodeClass, Pool
from ...model.labels import (
    DRAIN_STARTED_ANNOTATION,
    INSTANCE_ID_LABEL,
    NODEPOOL_LABEL,
    PROVISIONED_LABEL,
    STOPPED_SINCE_ANNOTATION,
)
from ...model.names import label_value
from ...model.reasons import ActionKind, Finding
from ...units.values import parse_time, print_duration, print_time
from ..cluster_state import Situation
from ..disruption.do_not_disrupt import node_hold
from ..disruption.emptiness import AHEAD
from ..plan_builder import SECOND_RUN_AFTER, Draft

_ON = (InstanceState.RUNNING, InstanceState.PENDING)
_OFF = (InstanceState.TERMINATED, InstanceState.STOPPED)


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """An own machine whose Node is there. ``off``: None = unknown. ``since``: when it was first seen stopped, as it shall be noted on the
    Node; None = it is not, or unknown. ``write``: the note has to be set to ``since``, or removed. ``ends``: when its Node goes; None =
    never, or unknown. ``stays``: what keeps the Node beyond that. ``devices``: mesh devices of ours under its name, which go before it."""

    name: str
    node: Node
    pool: Pool | None = None
    off: bool | None = False
    why: str = ""
    since: datetime | None = None
    write: bool = False
    ends: datetime | None = None
    stays: str = ""
    devices: tuple[Device, ...] = ()
    warnings: tuple[str, ...] = ()

    def goes(self, now: datetime) -> bool:
        """Whether its Node may be removed now."""
        return self.ends is not None and now >= self.ends and not self.stays

    def words(self, now: datetime) -> str:
        """What becomes of its Node, for people; empty where no timer runs."""
        if self.off is None:
            return f"whether it is stopped is unknown ({self.why}), so its Node stays"
        if self.since is None or self.ends is None or self.pool is None:
            return ""
        lasts = f"stopped for {print_duration((now - self.since).total_seconds())}"
        if self.stays:
            return f"{lasts}; its Node stays: {self.stays}"
        rule = f"deleteStoppedAfter {print_duration(self.pool.delete_stopped_after or 0)} of {self.pool.key}"
        left = (self.ends - now).total_seconds()
        return f"{lasts}; its Node is removed {f'in {print_duration(left)}' if left > 0 else 'now'} ({rule})"


def remove_stopped(draft: Draft) -> None:
    """Note since when machines are stopped, and remove what is left of those whose time is over. One that this run switches on stays."""
    launched = {action.name for action in draft.launches}
    for one in stopped(draft.situation):
        draft.warnings.extend(one.warnings)
        if one.name in launched:
            continue
        if one.goes(draft.now):
            draft.others.extend(_removals(one, draft.now))
            continue
        if one.write:
            draft.others.append(_note(one))
        if words := one.words(draft.now):
            draft.report(one.name, Finding.STOPPED, words, pool=one.pool.key if one.pool else "", target=one.node.name)


def _removals(one: Stopped, now: datetime) -> t.Iterator[Action]:
    """Its devices, and in the run that finds none its Node: without a Node no run would look for a device that could not be removed."""
    pool, text = one.pool.key if one.pool else "", one.words(now)
    for device in one.devices:
        yield Action(ActionKind.DELETE_DEVICE, one.name, Finding.STOPPED, text, pool=pool, target=device.id)
    if not one.devices:
        yield Action(ActionKind.DELETE_NODE, one.name, Finding.STOPPED, text, pool=pool, target=one.node.name, uid=one.node.uid)


def _note(one: Stopped) -> Action:
    found, value = (Finding.SWITCHED_ON, None) if one.since is None else (Finding.STOPPED, print_time(one.since))
    pool = one.pool.key if one.pool else ""
    return Action(ActionKind.ANNOTATE, one.name, found, one.why, pool=pool, target=one.node.name, uid=one.node.uid, value=value)


def stopped(situation: Situation) -> list[Stopped]:
    """Own machines with a Node of ours, by name, of which a timer or a note of one is known. Without claims or Nodes none is known."""
    if situation.seen.claims is None or situation.nodes is None:
        return []
    claimed = {claim.name for claim in situation.claims} | {claim.node_name for claim in situation.claims}
    kept = set(situation.damaged) | situation.released_names
    found: list[Stopped] = []
    for name, machine in sorted(situation.machines.items()):
        node = situation.nodes_by_name.get(machine.node_name or name)
        if node is None or not _is_ours(node, machine) or {name, node.name} & kept:
            continue
        if {name, node.name} & claimed:
            one: Stopped | None = Stopped(name, node, why="it is in use")
        else:
            one = _judged(machine, node, situation)
        if one is None:
            continue
        noted = STOPPED_SINCE_ANNOTATION in node.annotations
        if one.off is False:
            found.extend([dataclasses.replace(one, write=True)] if noted else [])
        elif one.pool is None or one.pool.delete_stopped_after is not None:
            found.append(one)
    return found


def _is_ours(node: Node, machine: Machine) -> bool:
    return node.labels.get(PROVISIONED_LABEL) == "true" and node.labels.get(INSTANCE_ID_LABEL) == label_value(machine.name)


def _judged(machine: Machine, node: Node, situation: Situation) -> Stopped | None:
    """A machine that no claim names; None where no document says anything of it."""
    pools = [(pool, choice) for pool in situation.described if (choice := _choice(pool, node, machine, situation)) is not None]
    if not pools:
        return None
    if len(pools) > 1:
        timed = any(pool.delete_stopped_after is not None for pool, _choice in pools)
        keys = " or ".join(pool.key for pool, _choice in pools)
        return Stopped(machine.name, node, off=None, why=f"it may be of {keys}") if timed else None
    pool, choice = pools[0]
    off, why = _power(machine, node, situation.specs.classes[pool.node_class], choice, situation)
    one = Stopped(machine.name, node, pool, off, why)
    if not off or pool.delete_stopped_after is None:
        return one
    return _timed(one, pool, choice, situation)


def _choice(pool: Pool, node: Node, machine: Machine, situation: Situation) -> CloudChoice | None:
    """The entry of the pool's class that lists the machine, where the Node names the pool."""
    node_class = situation.specs.classes.get(pool.node_class)
    if node_class is None or node.labels.get(NODEPOOL_LABEL) != label_value(pool.name):
        return None
    listed = ((choice, {one.name for one in choice.machines}) for choice in node_class.clouds)
    return next((choice for choice, names in listed if machine.name in names), None)


def _power(
    machine: Machine, node: Node, node_class: NodeClass, choice: CloudChoice, situation: Situation
) -> tuple[bool | None, str]:
    """Whether the machine is off, None = unknown, and what says so."""
    instance = _instance(machine, choice, situation)
    if instance is None:
        return None, f"the machines of {choice.cloud} could not be read"
    if instance.state in _ON:
        return False, f"it is {instance.state_word}"
    if node.ready:
        return False, "its Node is Ready"
    if instance.state not in _OFF:
        return None, instance.problem or f"it is {instance.state_word}"
    reports = machine.status_endpoint or choice.settings.get("bulkStatusEndpoint")
    if not reports and DRAIN_STARTED_ANNOTATION not in node.annotations:
        return None, "it has no status endpoint, and its Node was not drained"
    if node_class.mesh.backend == "tailscale":
        online = situation.in_mesh(machine.name)
        if online is not False:
            return (False, "its mesh device is online") if online else (None, "whether its mesh device is online is unknown")
    return True, "it is off"


def _instance(machine: Machine, choice: CloudChoice, situation: Situation) -> Instance | None:
    view = situation.seen.clouds.get(choice.cloud)
    listed = view.instances if view is not None and view.instances is not None else ()
    return next((instance for instance in listed if instance.id == machine.name), None)


def _timed(one: Stopped, pool: Pool, choice: CloudChoice, situation: Situation) -> Stopped:
    """The same with its timer. It begins with the first sighting, and again after a time in which the Node was Ready."""
    now, node = situation.now, one.node
    noted, warnings = _noted(node, now)
    if noted is not None and noted > now:
        return dataclasses.replace(one, off=None, why=f"{STOPPED_SINCE_ANNOTATION} lies in the future", warnings=warnings)
    since = now if noted is None else max(noted, min(node.ready_since or noted, now))
    hold = node_hold(node, now)
    stays = situation.paused(pool.key, pool.node_class) or (f"held by {hold.why}" if hold.why else "")
    after = max(pool.delete_stopped_after or 0, SECOND_RUN_AFTER)
    return dataclasses.replace(
        one,
        since=since,
        write=noted != since,
        ends=since + timedelta(seconds=after),
        stays=stays,
        devices=_devices(one.name, pool, choice, situation),
        warnings=(*warnings, *hold.warnings),
    )


def _noted(node: Node, now: datetime) -> tuple[datetime | None, tuple[str, ...]]:
    """The noted moment: None = none, or no time. One that is a little ahead of our clock is now, one that is far ahead is returned as it is."""
    text = node.annotations.get(STOPPED_SINCE_ANNOTATION)
    if text is None:
        return None, ()
    try:
        moment = parse_time(text)
    except InvalidInput:
        return None, (f"node {node.name}: {STOPPED_SINCE_ANNOTATION} {text!r} is not a time; it starts anew",)
    if moment > now + timedelta(seconds=AHEAD):
        return moment, (f"node {node.name}: {STOPPED_SINCE_ANNOTATION} {text} lies in the future; its Node stays",)
    return min(moment, now), ()


def _devices(name: str, pool: Pool, choice: CloudChoice, situation: Situation) -> tuple[Device, ...]:
    """Mesh devices that runs made for the machine: they carry a tag of its class, and it gets a new one each time it is configured
    (``payload: body``). One that is installed for good keeps its own device."""
    node_class = situation.specs.classes[pool.node_class]
    if choice.settings.get("payload", "none") == "none" or node_class.mesh.backend != "tailscale":
        return ()
    tags = set(node_class.mesh.tags)
    return tuple(device for device in situation.devices or () if device.hostname == name and tags & set(device.tags))


def stopped_rows(situation: Situation) -> list[dict[str, str]]:
    """JSON-safe, what becomes of each Node: times are empty where they are unknown or no timer runs."""
    return [
        {
            "name": one.name,
            "node": one.node.name,
            "pool": one.pool.key if one.pool else "",
            "stopped_since": print_time(one.since) if one.since else "",
            "removed_at": print_time(one.ends) if one.ends and not one.stays else "",
            "text": words,
        }
        for one in stopped(situation)
        if (words := one.words(situation.now))
    ]
