# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs by dynamic resource allocation (L-38): what claims of pods ask for, which machine suits them, and what nodes have by their
ResourceSlices.

:func:`with_devices` turns what was read of resource.k8s.io into amounts of ``nvidia.com/gpu`` on nodes and pods, so that every other rule
counts GPUs of DRA drivers as it counts those of device plugins.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t

from ...model import Node, Pod
from ...model.devices import (
    GPU_DRIVER,
    ClaimChoice,
    ClaimConstraint,
    ClaimRequest,
    DeviceChoice,
    DeviceClass,
    DeviceProfile,
    DeviceRequest,
    DeviceRoom,
    DynamicResources,
    PodClaim,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from ...model.resources import NVIDIA_GPU
from ..offers.device_selectors import NotUnderstood, compiled, verdict

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""What every DeviceClass is asked for by as an extended resource, before its name."""
_TYPE, _PARENT, _UUID = (f"{GPU_DRIVER}/{name}" for name in ("type", "parentUUID", "uuid"))
#: attributes that all GPUs of one machine share: a constraint on them is always met
_COMMON = frozenset(
    f"{GPU_DRIVER}/{name}"
    for name in ("type", "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Translated:
    """Nodes and pods with the GPUs of DRA drivers among their amounts."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    warnings: tuple[str, ...] = ()


def with_devices(nodes: t.Iterable[Node], pods: t.Iterable[Pod], found: DynamicResources) -> Translated:
    """What ``found`` says of them. A node counts the GPUs of a driver's complete pool that may be allocated; a pod those that its claims
    hold, or asks for those that they want. What is allocated to no pod that still runs is kept back on the node."""
    pods = list(pods)
    warnings: list[str] = []
    published = _published(found.slices)
    users = _users(pods)
    taken: dict[str, int] = collections.Counter()
    held: dict[str, int] = collections.Counter()
    counted: dict[str, set[str]] = collections.defaultdict(set)
    for claim in sorted(found.claims, key=lambda claim: (claim.namespace, claim.name)):
        for node, gpus in _gpus_of(claim, published).items():
            fresh = {gpu.name for gpu in gpus if not gpu.tainted} - counted[node]
            counted[node] |= fresh
            user = next((pod for pod in users.get((claim.namespace, claim.name), ()) if pod.node == node), None)
            if user is not None:
                named = user.requests.get(NVIDIA_GPU, 0) if PodClaim(claim.name, extended=True) in user.claims else 0
                taken[user.uid] += max(0, len(fresh) - named)
                continue
            held[node] += len(fresh)
            if not claim.reserved:
                warnings.append(
                    f"ResourceClaim {claim.namespace}/{claim.name} keeps {len(gpus)} of the GPUs of node {node}, and no pod uses it. Delete "
                    "it if nothing will."
                )
    by_node = {pool.node: pool.devices for pool in published.values()}
    placed = tuple(_with_gpus(node, by_node.get(node.name), held[node.name], warnings) for node in nodes)
    asking = _asking(pods, found)
    using = (asking.get(pod.uid) or _using(pod, taken.get(pod.uid, 0)) for pod in pods)
    return Translated(placed, tuple(using), tuple(dict.fromkeys(warnings)))


# ---- what nodes have


class _NodePool(t.NamedTuple):
    """A complete pool of the GPU driver on one node."""

    node: str
    devices: tuple[SliceDevice, ...]


def _published(slices: t.Iterable[ResourceSlice]) -> dict[str, _NodePool]:
    """Complete pools of the GPU driver by name: all slices of the newest generation, and no others."""
    pools: dict[str, list[ResourceSlice]] = collections.defaultdict(list)
    for one in slices:
        if one.driver == GPU_DRIVER and one.node:
            pools[one.pool].append(one)
    found: dict[str, _NodePool] = {}
    for name, parts in sorted(pools.items()):
        newest = max(part.generation for part in parts)
        current = [part for part in parts if part.generation == newest]
        if len(current) == current[0].count:
            devices = sorted((device for part in current for device in part.devices), key=lambda device: device.name)
            found[name] = _NodePool(current[0].node, tuple(devices))
    return found


def _attribute(device: SliceDevice, name: str) -> t.Any:
    return dict(device.profile.attributes).get(name)


def _with_gpus(node: Node, devices: t.Sequence[SliceDevice] | None, held: int, warnings: list[str]) -> Node:
    if devices is None:
        return node
    if node.allocatable.get(NVIDIA_GPU, 0):
        warnings.append(f"Node {node.name} shows GPUs of a device plugin and of {GPU_DRIVER}. Only one of them may serve a node.")
        return node
    gpus = [device for device in devices if _attribute(device, _TYPE) == "gpu"]  # MIG devices are parts of these, and overlap
    usable = [gpu for gpu in gpus if not gpu.tainted]
    room = DeviceRoom(tuple(dict.fromkeys(_kind(gpu) for gpu in usable)), len(gpus), held)
    return dataclasses.replace(node, allocatable={**node.allocatable, NVIDIA_GPU: len(usable)}, devices=room)


def _kind(gpu: SliceDevice) -> DeviceProfile:
    """What GPUs of one kind have in common: a selector for a single one of them is not followed."""
    attributes = tuple((name, value) for name, value in gpu.profile.attributes if name in _COMMON)
    return dataclasses.replace(gpu.profile, attributes=attributes, planned=True)


# ---- what claims hold


def _users(pods: t.Iterable[Pod]) -> dict[tuple[str, str], list[Pod]]:
    """Claim, by namespace and name, to the pods on nodes that use it and have not ended, in a fixed order."""
    users: dict[tuple[str, str], list[Pod]] = collections.defaultdict(list)
    for pod in sorted(pods, key=_by_name):
        if pod.node and not pod.ended:
            for entry in pod.claims:
                users[pod.namespace, entry.claim].append(pod)
    return users


def _by_name(pod: Pod) -> tuple[str, str, str]:
    return (pod.namespace, pod.name, pod.uid)


def _gpus_of(claim: ResourceClaim, published: t.Mapping[str, _NodePool]) -> dict[str, list[SliceDevice]]:
    """Node to the GPUs that the claim holds there, whole or a part of them. Access for administration holds nothing."""
    found: dict[str, list[SliceDevice]] = collections.defaultdict(list)
    for entry in claim.held:
        pool = published.get(entry.pool)
        if entry.driver != GPU_DRIVER or entry.admin or pool is None:
            continue
        device = next((device for device in pool.devices if device.name == entry.name), None)
        parent = _attribute(device, _PARENT) if device is not None else None
        if parent is not None:
            device = next((other for other in pool.devices if _attribute(other, _UUID) == parent), None)
        if device is not None and device not in found[pool.node]:
            found[pool.node].append(device)
    return {node: gpus for node, gpus in found.items() if gpus}


def _using(pod: Pod, gpus: int) -> Pod:
    """A pod with the GPUs that its claims hold."""
    return dataclasses.replace(pod, requests={**pod.requests, NVIDIA_GPU: pod.requests.get(NVIDIA_GPU, 0) + gpus}) if gpus else pod


# ---- what claims ask for


def _asking(pods: t.Iterable[Pod], found: DynamicResources) -> dict[str, Pod]:
    """By uid, the pods without a node that ask for devices. Those that share a claim run on one node: the first of them asks for what all
    of them need, with each claim once, and the others follow it."""
    changed: dict[str, Pod] = {}
    for members in _sharing([pod for pod in pods if not pod.node and pod.phase == "Pending" and _wants_devices(pod)]):
        first = members[0]
        if len({dataclasses.replace(pod.placement, priority=0) for pod in members}) > 1:
            problem = "it shares a ResourceClaim with pods that want other nodes, or another scheduler"
            changed.update({pod.uid: dataclasses.replace(pod, claims_problem=problem) for pod in members})
            continue
        amounts: dict[str, int] = collections.Counter()
        for pod in members:
            amounts.update(pod.requests)
        claims = tuple(dict.fromkeys(entry for pod in members for entry in pod.claims))
        leader = _translated(dataclasses.replace(first, requests=dict(amounts), claims=claims), found)
        changed[first.uid] = leader
        for pod in members[1:]:
            follows = "" if leader.claims_problem else first.uid
            placement = dataclasses.replace(pod.placement, claims=True)
            changed[pod.uid] = dataclasses.replace(pod, placement=placement, claims_problem=leader.claims_problem, follows=follows)
    return changed


def _wants_devices(pod: Pod) -> bool:
    return pod.placement.claims or any(name.startswith(IMPLICIT_PREFIX) for name in pod.requests)


def _sharing(pods: t.Iterable[Pod]) -> list[list[Pod]]:
    """Groups of pods that share a claim, also by way of others; most pods are alone. Only who waits for a node leads others or follows."""
    groups: dict[str, list[Pod]] = {}
    group_of: dict[tuple[str, str], str] = {}
    for pod in sorted(pods, key=_by_name):
        names = [(pod.namespace, entry.claim) for entry in pod.claims if entry.claim]
        if pod.waiting != "Unschedulable" or pod.deletion is not None:
            groups[pod.uid] = [pod]
            continue
        joined = sorted({group_of[name] for name in names if name in group_of})
        members = sorted((member for group in joined for member in groups.pop(group)), key=_by_name) + [pod]
        groups[pod.uid] = members
        group_of.update({(member.namespace, entry.claim): pod.uid for member in members for entry in member.claims if entry.claim})
    return list(groups.values())


def _translated(pod: Pod, found: DynamicResources) -> Pod:
    implicit = {name: amount for name, amount in pod.requests.items() if name.startswith(IMPLICIT_PREFIX)}
    requests, problem = _asked(pod, implicit, found)
    rest = {name: amount for name, amount in pod.requests.items() if name not in implicit}
    placement = dataclasses.replace(pod.placement, devices=requests, claims=True)
    return dataclasses.replace(pod, requests=rest, placement=placement, claims_problem=problem)


class _Unjudged(Exception):
    """Why nobody here can say which machine a pod needs."""


def _asked(pod: Pod, implicit: t.Mapping[str, int], found: DynamicResources) -> tuple[tuple[DeviceRequest, ...], str]:
    """The requests of a pod that waits, or why they cannot be judged."""
    classes = {entry.name: entry for entry in found.classes}
    claims = {(claim.namespace, claim.name): claim for claim in found.claims}
    requests: list[DeviceRequest] = []
    try:
        if not found.served:
            raise _Unjudged(
                "the cluster does not serve resource.k8s.io/v1, so its resource claims cannot be read (Kubernetes 1.34 or newer)"
            )
        for name, amount in sorted(implicit.items()):
            wanted = ClaimRequest(name, (ClaimChoice(name.removeprefix(IMPLICIT_PREFIX), amount),))
            requests += _request(wanted, classes)
        for entry in dict.fromkeys(pod.claims):
            if not entry.claim:
                raise _Unjudged(f"no ResourceClaim has been generated from template {entry.template} yet")
            claim = claims.get((pod.namespace, entry.claim))
            if claim is None:
                raise _Unjudged(f"ResourceClaim {entry.claim} does not exist")
            if claim.allocated:
                where = f"node {claim.node}" if claim.node else "certain nodes"
                raise _Unjudged(f"ResourceClaim {entry.claim} is allocated on {where} already, so the pod can run nowhere else")
            requests += [request for wanted in claim.requests for request in _request(wanted, classes)]
            _check_constraints(claim)
    except _Unjudged as problem:
        return (), str(problem)
    return tuple(requests), ""


def _request(wanted: ClaimRequest, classes: t.Mapping[str, DeviceClass]) -> list[DeviceRequest]:
    """It as one that can be judged; nothing for access for administration, which takes no GPU."""
    if all(choice.admin for choice in wanted.choices):
        return []
    return [DeviceRequest(tuple(_choice(choice, classes) for choice in wanted.choices))]


def _choice(wanted: ClaimChoice, classes: t.Mapping[str, DeviceClass]) -> DeviceChoice:
    device_class = classes.get(wanted.device_class)
    if device_class is None:
        raise _Unjudged(f"device class {wanted.device_class} does not exist")
    if problem := wanted.problem or device_class.problem:
        raise _Unjudged(f"{problem} of device class {wanted.device_class} is not supported")
    for expression in (*device_class.selectors, *wanted.selectors):
        try:
            compiled(expression)
        except NotUnderstood as error:
            raise _Unjudged(f"SelectorNotUnderstood: {error} of the selector {expression!r}") from error
    if why := _foreign(device_class.selectors):
        raise _Unjudged(f"device class {wanted.device_class} {why}")
    selectors = tuple(dict.fromkeys((*device_class.selectors, *wanted.selectors)))
    if why := _foreign(selectors):
        raise _Unjudged(f"a request of device class {wanted.device_class} {why}")
    return DeviceChoice(wanted.count, selectors)


@functools.lru_cache(maxsize=256)
def _foreign(selectors: tuple[str, ...]) -> str:
    """Why no whole GPU of the driver can meet the selectors, whatever its model; empty when one may."""
    gpu, mig = (DeviceProfile(GPU_DRIVER, ((_TYPE, kind),), planned=True) for kind in ("gpu", "mig"))
    if all(verdict(expression, gpu)[0] is not False for expression in selectors):
        return ""
    if all(verdict(expression, mig)[0] is not False for expression in selectors):
        return "is of MIG devices, which are not supported: no pool says how its GPUs are divided"
    return f"is not of whole GPUs of {GPU_DRIVER}, and others are not supported"


def _check_constraints(claim: ResourceClaim) -> None:
    for constraint in claim.constraints:
        if constraint.distinct or not constraint.match:
            raise _Unjudged(f"distinctAttribute {constraint.distinct} is not supported".replace("  ", " "))
        if constraint.match not in _COMMON and _most(claim, constraint) != 1:
            raise _Unjudged(f"matchAttribute {constraint.match} is not known before the machine exists")


def _most(claim: ResourceClaim, constraint: ClaimConstraint) -> int:
    """How many devices a constraint may be about; 0 = all of a node."""
    counts = [
        choice.count
        for request in claim.requests
        if not constraint.requests or any(name.partition("/")[0] == request.name for name in constraint.requests)
        for choice in request.choices[:1] or ()
    ]
    return 0 if 0 in counts else sum(counts)


# ---- whether a place serves what is asked for


def against_devices(devices: tuple[DeviceRequest, ...], room: DeviceRoom | None) -> str:
    """Why a place never serves the requests, however empty it is; empty when it may."""
    if not devices:
        return ""
    if room is None:
        return f"its GPUs are no devices of {GPU_DRIVER} (draDriver), and the pod asks for devices by resource claims"
    return next(filter(None, (_chosen(request, room)[1] for request in devices)), "")


@functools.lru_cache(maxsize=4096)
def wanted_on(devices: tuple[DeviceRequest, ...], room: DeviceRoom | None) -> int:
    """How many GPUs the requests take on a place that suits them: of firstAvailable the first choice that it can serve, all of them where
    all are asked for."""
    if room is None:
        return sum(least(request) for request in devices)
    total = 0
    for request in devices:
        choice = _chosen(request, room)[0]
        total += least(request) if choice is None else choice.count or max(room.total, 1)
    return total


def least(request: DeviceRequest) -> int:
    """How many GPUs its first choice takes, where no place is known."""
    return request.choices[0].count or 1


def most(request: DeviceRequest) -> int:
    """How many GPUs it may take at most, as far as it says a number."""
    return max(choice.count or 1 for choice in request.choices)


@functools.lru_cache(maxsize=4096)
def _chosen(request: DeviceRequest, room: DeviceRoom) -> tuple[DeviceChoice | None, str]:
    """The choice of a request that the place can serve when it is empty, or None and why there is none."""
    first = ""
    for choice in request.choices:
        met, why = _serves(choice, room)
        if met:
            return choice, ""
        if met is None:  # the scheduler may take it after all, so no later choice is certain
            return None, why
        first = first or why
    return None, first


def _serves(choice: DeviceChoice, room: DeviceRoom) -> tuple[bool | None, str]:
    """Whether the GPUs of an empty place satisfy a choice, and why not; None = it cannot be judged."""
    if choice.count > room.total or not room.total:
        return False, f"no machine with {choice.count or 1} GPUs"
    for expression in choice.selectors:
        answers = [verdict(expression, profile) for profile in room.profiles]
        if all(met for met, _why in answers):
            continue
        if all(met is False for met, _why in answers):
            failure = next((why for _met, why in answers if why), "")
            return False, f"its GPUs do not meet {expression!r}{f' ({failure})' if failure else ''}"
        unknown = next((why for met, why in answers if met is None), "which of several devices it gets")
        return None, f"whether its GPUs meet {expression!r} cannot be judged: it depends on {unknown}"
    return True, ""


def barred_from(pod: Pod, *, dra: bool, extended: t.Collection[str]) -> str:
    """Why a pool whose GPUs a DRA driver hands out (``dra``) does not serve a pod that asks for them by a resource."""
    if dra and pod.requests.get(NVIDIA_GPU) and NVIDIA_GPU not in extended:
        return f"its GPUs are devices of {GPU_DRIVER}, and no DeviceClass has extendedResourceName {NVIDIA_GPU}"
    return ""
