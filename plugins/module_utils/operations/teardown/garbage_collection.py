# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes things of ours that no claim stands for: second machines of one name, Nodes, mesh devices, keys, bootstrap tokens, and what clouds
keep beside machines; Services of containers, pods that tested nodes (L-12)."""

from __future__ import annotations

import contextlib
import enum
import typing as t

from ...core.errors import Conflict, InvalidInput, LockLost, NotFound, TgpError
from ...kube.client import NAMESPACE
from ...kube.nodes import annotate, delete_node, get_node
from ...kube.pods import pod_path
from ...mesh.base import find_device
from ...model import Claim, Device, Extra, Node
from ...model.labels import STOPPED_SINCE_ANNOTATION
from ...model.reasons import ActionKind, Finding
from ...observe.clients import Feed
from ...observe.context import Context
from ...planner.claims.record import BEFORE_READY, mesh_tags
from ...providers.registry import CAPABILITIES
from ..join.service_endpoints import withdraw_found
from ..launch.payload import take_back
from .duplicate_instances import give_back

OrphanItem = t.Mapping[str, str]


class Result(enum.StrEnum):
    """What became of an orphan."""

    REMOVED = "removed"  # by this run, or before it
    LEFT = "left"  # it is not what was found any more
    PENDING = "pending"  # the next run tries again
    PLANNED = "planned"  # in check mode


class Removal(t.NamedTuple):
    """How one attempt ended, and what is said of it."""

    result: Result
    text: str


OWN_MACHINES: t.Final = "webhook"  # the provider of machines that are stopped, and not deleted (L-54)
_GONE_ALREADY = Removal(Result.REMOVED, "gone already")
_FIELDS = ("kind", "name", "target", "uid", "reason", "cloud")


def remove_orphans(context: Context, orphans: t.Sequence[OrphanItem]) -> list[dict[str, t.Any]]:
    """Remove each; one that fails is reported and found again by the next run. LockLost ends the step. The plan made the decision; what is
    read once more before is read once for all of them, under the run lock."""
    return [_remove(context, orphan) for orphan in orphans]


def _claims(context: Context) -> t.Sequence[Claim]:
    return context.once("claims beside orphans", context.store.claims)


def checked(orphans: t.Sequence[t.Mapping[str, t.Any]]) -> list[OrphanItem]:
    """``orphans`` as fleet_plan returns them. InvalidInput, before anything is done, for something else."""
    for number, orphan in enumerate(orphans):
        odd = [name for name in _FIELDS if not isinstance(orphan.get(name), str)]
        if odd or orphan["kind"].removeprefix("delete_") not in _REMOVERS:
            fault = f"{', '.join(odd)} is missing or no text" if odd else f"nothing is known of kind {orphan['kind']!r}"
            raise InvalidInput(f"orphans[{number}]: {fault}.", remedy="Give the list as fleet_plan returned it.", field="orphans")
    return list(orphans)


def rehearsed(orphans: t.Sequence[OrphanItem]) -> list[dict[str, t.Any]]:
    """What check mode says of each."""
    return [
        _row(orphan, Result.PLANNED, f"{orphan['kind'].removeprefix('delete_')}: would be removed: {orphan['reason']}")
        for orphan in orphans
    ]


def _remove(context: Context, orphan: OrphanItem) -> dict[str, t.Any]:
    kind = orphan["kind"].removeprefix("delete_")
    try:
        context.lock.confirm()
        result, message = _REMOVERS[kind](context, orphan)
    except LockLost:
        raise
    except TgpError as error:
        result, message = Result.PENDING, str(error)
    context.progress.step(orphan["name"], result.value, f"{kind} {orphan['target']}: {message}")
    return _row(orphan, result, f"{kind}: {message}")


def _row(orphan: OrphanItem, result: Result, message: str) -> dict[str, t.Any]:
    return {
        "name": orphan["name"],
        "pool": "",
        "cloud": orphan.get("cloud", "") if orphan["kind"] == ActionKind.DELETE_INSTANCE else "",
        "model": "",
        "phase": "",
        "price_hour": "",
        "result": result.value,
        "message": message,
        "problem": result is Result.PENDING,
    }


def _removed(orphan: OrphanItem) -> Removal:
    return Removal(Result.REMOVED, orphan["reason"])


def _left(why: str) -> Removal:
    return Removal(Result.LEFT, f"kept: {why}")


def _node(context: Context, orphan: OrphanItem) -> Removal:
    if orphan["reason"] == Finding.STOPPED and (why := _in_use(context, orphan["name"])):
        return _left(why)
    node = get_node(context.kube, orphan["target"])
    if node is None:
        return _GONE_ALREADY
    if node.uid != orphan["uid"] or node.ready is True:
        return _left("it is not the Node that was found, or it came back to life")
    delete_node(context.kube, node.name, uid=node.uid)
    return _removed(orphan)


def _device(context: Context, orphan: OrphanItem) -> Removal:
    if orphan["reason"] == Finding.STOPPED and (why := _in_use(context, orphan["name"])):
        return _left(why)
    mesh = context.clients.mesh()
    device = mesh.device(orphan["target"]) if mesh is not None else None
    if mesh is None or device is None:
        return _GONE_ALREADY
    if device.online is not False:
        return _left("it came online" if device.online else "nobody says whether it is online")
    mesh.delete_device(device.id)
    return _removed(orphan)


def _in_use(context: Context, machine: str) -> str:
    """Why what is left of an own machine stays: minutes may have passed since the plan saw it off."""
    if any(claim.name == machine for claim in _claims(context)):
        return "a claim stands for its machine now"
    instance = context.clients.cloud(OWN_MACHINES).instance(machine)
    return "" if instance is not None and instance.gone else f"its machine is {instance.raw_state if instance else 'unknown'} now"


def _key(context: Context, orphan: OrphanItem) -> Removal:
    mesh = context.clients.mesh()
    if mesh is None or not mesh.delete_key(orphan["target"]):
        return _GONE_ALREADY
    return _removed(orphan)


def _token(context: Context, orphan: OrphanItem) -> Removal:
    """A bootstrap token. Only what stands on our own list is ever deleted: the cluster has tokens of others, which we cannot tell by a look."""
    target = orphan["target"]
    listed = context.once("tokens that may be orphans", context.records.tokens.listed)
    if not any(token.id == target and token.machine == orphan["name"] for token in listed):
        return _left("it is not on our list of tokens, or its hour is over")
    if any(claim.token_id == target for claim in _claims(context)):
        return _left("it has a claim now")
    return _removed(orphan) if take_back(context, target) else _GONE_ALREADY


def _instance(context: Context, orphan: OrphanItem) -> Removal:
    """A second machine under a claim's name. The one the claim knows is never touched here."""
    cloud, target = orphan["cloud"], orphan["target"]
    claims = _claims(context)
    if any(claim.instance_id == target for claim in claims):
        return _left("a claim stands for it now")
    claim = next((recorded for recorded in claims if recorded.name == orphan["name"]), None)
    if claim is None:
        return _left("the claim of its name is gone, so it is no longer a second machine")
    instance = context.clients.cloud(cloud).instance(target)
    if instance is None or instance.gone:
        return _GONE_ALREADY
    if not context.records.is_ours(instance):
        return _left(f"it {context.records.owner(instance).why}")
    give_back(context, claim, instance)
    return _removed(orphan)


def _extra(context: Context, orphan: OrphanItem) -> Removal:
    """Something beside machines. While a claim or a machine has its name it is not changed: a launch makes it before its machine."""
    target, kind, name = orphan["target"], orphan["uid"], orphan["name"]
    cloud = context.clients.cloud(orphan["cloud"])
    machines = context.once(("machines beside orphans", orphan["cloud"]), cloud.instances)
    if any(claim.name == name for claim in _claims(context)) or any(
        instance.name == name and not instance.gone for instance in machines
    ):
        return _left("it has a machine or a claim now")
    extras = context.once(("extras that may be orphans", orphan["cloud"]), cloud.extras)
    extra = next((one for one in extras if (one.kind, one.id, one.name) == (kind, target, name)), None)
    if extra is None:
        return _GONE_ALREADY
    cloud.discard(extra)
    return _removed(orphan)


def _service(context: Context, orphan: OrphanItem) -> Removal:
    """A Service of ours, and its line in the list of endpoints."""
    if any(claim.name == orphan["name"] for claim in _claims(context)):
        return _left("it has a claim now")
    return _removed(orphan) if withdraw_found(context, orphan["target"], orphan["uid"]) else _GONE_ALREADY


def _pod(context: Context, orphan: OrphanItem) -> Removal:
    """A pod that tested a node. One that took its name since has another uid."""
    if any(claim.name == orphan["name"] and claim.phase in BEFORE_READY for claim in _claims(context)):
        return _left("its machine is being tested")
    gone = not context.kube.delete(pod_path(NAMESPACE, orphan["target"]), uid=orphan["uid"])
    return _GONE_ALREADY if gone else _removed(orphan)


_REMOVERS: dict[str, t.Callable[[Context, OrphanItem], Removal]] = {
    "instance": _instance,
    "node": _node,
    "device": _device,
    "key": _key,
    "token": _token,
    "pod": _pod,
    "service": _service,
    "extra": _extra,
}


# ---- what is left of a machine elsewhere once it is gone: its mesh device, and what its cloud keeps beside machines (L-10)


def delete_device(context: Context, claim: Claim) -> None:
    """Remove the claim's mesh device: by the id recorded, else the one of its name that is not older than the claim. A list that was asked
    for after the machine was gone shows it if it exists, so one list serves all machines that are gone by then."""
    mesh, device_id = context.clients.mesh(), claim.mesh_device_id
    if mesh is not None and not device_id:
        feed: Feed[Device] = context.once("devices of gone machines", lambda: Feed(mesh.devices, context.clock))
        devices = feed.items_since(claim.gone_since or context.clock.now())
        match = find_device(devices, hostname=claim.name, tags=mesh_tags(claim, context.specs), created_after=claim.created)
        device_id = match.device.id if match.device else ""
    if mesh is not None and device_id:
        mesh.delete_device(device_id)


def extras_of(context: Context, claim: Claim) -> list[Extra] | None:
    """What the cloud keeps beside machines under the claim's name; None when that could not be read. A claim that made no call has
    nothing; what its refused calls may have left is found by later runs as orphans."""
    name = claim.cloud
    if not CAPABILITIES[name].rented or not (claim.ids_seen or claim.launch_started):
        return []
    feed: Feed[Extra] = context.once(("extras", name), lambda: Feed(context.clients.cloud(name).extras, context.clock))
    listed = feed.items()
    return None if listed is None else [extra for extra in listed if extra.name == claim.name]


def discard_extras(context: Context, claim: Claim) -> str:
    """Remove them; what was in the way, empty when nothing was. The next run goes on."""
    for extra in extras_of(context, claim) or ():
        try:
            context.clients.cloud(claim.cloud).discard(extra)
        except Conflict as error:
            return f"its {extra.kind} {extra.id} is still held: {error}"
        context.progress.step(claim.name, "removed", f"{extra.kind} {extra.id}", cloud=claim.cloud)
    return ""


def forget_stop(context: Context, node: Node | None) -> Node | None:
    """The Node of a machine that stops, without the time of an earlier stop: an own machine has been on since, though its Node may never have
    been Ready (L-54)."""
    if node is not None and STOPPED_SINCE_ANNOTATION in node.annotations:
        with contextlib.suppress(NotFound, Conflict):  # gone, or another machine has taken the name
            annotate(context.kube, node.name, {STOPPED_SINCE_ANNOTATION: None}, uid=node.uid)
    return node
