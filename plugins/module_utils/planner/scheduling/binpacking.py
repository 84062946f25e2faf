# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods fit where (L-17): first fit, in one fixed order, with the same answer whatever the order of what is given.

``fit`` answers "do these pods fit on these nodes' free GPUs", for demand and for consolidation alike; a node's room is a
:class:`Bin` (``capacity.of_node``). Nothing given is changed. ``gpu_resources``: the run's names of resources that count as GPUs.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import re
import typing as t
from datetime import datetime, timezone

from ...model import Labels, Pod, Taint
from ...model.devices import DeviceRoom
from ...model.labels import GPU_MEMORY_LABEL
from ...model.resources import NEUTRAL_GPU, NVIDIA_GPU, PARTIAL_GPU_PREFIXES
from . import devices, node_affinity
from .topology import Topology

#: how much memory each GPU has at least (the annotation GPU_MEMORY_LABEL of a pod): GiB, or with a unit (24Gi, 24576Mi)
_AMOUNT = re.compile(r"\s*([0-9]{1,12})\s*(Mi|MiB|Gi|GiB)?\s*")
Barred = t.Mapping[str, t.Mapping[str, str]]
_EVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclasses.dataclass(frozen=True, slots=True)
class Bin:
    """A place for pods. ``free``: resource to amount (cpu in thousandths, memory in bytes, GPUs in pieces); None = unknown and not held
    against it, a resource that is missing is not there. ``pods`` are on it already and matter for who keeps apart from whom. ``node``:
    the Node's name once it has one. ``devices``: the GPUs that a DRA driver offers there, None = none does. ``clients``: how many pods share
    each GPU by MPS and get one part each of its memory (L-52), 0 = MPS shares none."""

    name: str
    free: t.Mapping[str, int | None]
    labels: Labels = dataclasses.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    pool: str = ""
    gpu_memory_mib: int | None = None
    pods: tuple[Pod, ...] = ()
    node: str = ""
    devices: DeviceRoom | None = None
    clients: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Packing:
    """``placed``: a pod's uid to the name of its bin. ``left``: pods that fit nowhere, in the order of packing. ``rooms``: the bins as they are
    then, where it matters who is where."""

    placed: t.Mapping[str, str]
    left: tuple[Pod, ...]
    rooms: tuple[Room, ...] = dataclasses.field(default=(), compare=False)


def gpus(pod: Pod, gpu_resources: t.Collection[str]) -> int:
    """How many GPUs a pod asks for, wherever it may run. A vendor's name and the neutral one beside it mean the same GPUs; claims come on
    top of them."""
    return _named(pod, gpu_resources) + sum(devices.least(request) for request in pod.placement.devices)


def gpus_on(pod: Pod, place: Bin, gpu_resources: t.Collection[str]) -> int:
    """How many GPUs a pod takes of a place that suits it."""
    return _named(pod, gpu_resources) + (devices.wanted_on(pod.placement.devices, place.devices) if pod.placement.devices else 0)


def _named(pod: Pod, gpu_resources: t.Collection[str]) -> int:
    return max((amount for name, amount in pod.requests.items() if is_gpu(name, gpu_resources)), default=0)


def needs(pod: Pod, place: Bin) -> t.Mapping[str, int]:
    """All that a pod takes of a place that suits it: its requests, and the GPUs of its claims."""
    if not pod.placement.devices:
        return pod.requests
    wanted = devices.wanted_on(pod.placement.devices, place.devices)
    return {**pod.requests, NVIDIA_GPU: pod.requests.get(NVIDIA_GPU, 0) + wanted}


def is_gpu(resource: str, gpu_resources: t.Collection[str]) -> bool:
    """True for a resource that stands for GPUs, whole or shared."""
    return resource in gpu_resources or resource.startswith(PARTIAL_GPU_PREFIXES)


def shown(amounts: t.Mapping[str, int], gpu_resources: t.Collection[str]) -> int:
    """How many GPUs (or slices) a Node shows by its vendor's names. The neutral name is our own saying and proves nothing."""
    return sum(amount for name, amount in amounts.items() if is_gpu(name, gpu_resources) and name != NEUTRAL_GPU)


def spare(free: t.Mapping[str, int | None], gpu_resources: t.Collection[str]) -> int:
    """How many GPUs are left under the largest of the vendor's names, and no more than under the neutral one: both mean the same GPUs."""
    vendors = (amount or 0 for name, amount in free.items() if is_gpu(name, gpu_resources) and name != NEUTRAL_GPU)
    most = max(vendors, default=0)
    neutral = free.get(NEUTRAL_GPU)
    return most if neutral is None else min(most, neutral)


def rank(pod: Pod, gpu_resources: t.Collection[str]) -> tuple[t.Any, ...]:
    """The order of packing: the important ones, then the large ones, then the old ones, then by name."""
    return (-pod.placement.priority, -gpus(pod, gpu_resources), pod.created or _EVER, pod.namespace, pod.name, pod.uid)


def against(pod: Pod, place: Bin) -> str:
    """Why a place never suits a pod, however empty it is; empty when it does. Amounts are another matter (:func:`lacks`)."""
    why = node_affinity.against_labels(pod.placement, place.labels, place.node) or node_affinity.against_taints(
        pod.placement, place.taints
    )
    why = why or devices.against_devices(pod.placement.devices, place.devices)
    if not why and place.clients and pod.container_gpus > 1:
        return f"one of its containers asks for {pod.container_gpus} shares of a GPU, and MPS gives a container one"
    wanted = pod.annotations.get(GPU_MEMORY_LABEL)
    if why or wanted is None:
        return why
    least = memory_mib(wanted)
    if least is None:
        return f"annotation {GPU_MEMORY_LABEL} {wanted!r} is not an amount of memory"
    memory = place.gpu_memory_mib
    if memory is not None and place.clients:
        memory //= place.clients
    if memory is not None and memory >= least:
        return ""
    share = f"; with MPS a pod has {memory} MiB of a GPU" if place.clients and memory is not None else ""
    return f"{GPU_MEMORY_LABEL} of at least {wanted}{share}"


def memory_mib(text: str) -> int | None:
    """An amount of GPU memory in MiB; None when it is none."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) * (1 if (match[2] or "Gi").startswith("Mi") else 1024)


def lacks(requests: t.Mapping[str, int], free: t.Mapping[str, int | None]) -> str:
    """The first resource of which there is not enough, by name; empty when all is there."""
    for name in sorted(requests):
        there = free.get(name, 0)
        if there is not None and there < requests[name]:
            return name
    return ""


class Room:
    """A bin that is being filled. ``around``: who else is where, if that matters; the bin becomes a part of it."""

    def __init__(self, place: Bin, around: Topology | None = None) -> None:
        self.place = place
        self.around = around
        self._spot = place.node or place.name
        if around is not None:
            around.stand(self._spot, place.labels, place.taints)
        self.free = dict(place.free)
        self.pods: list[Pod] = list(place.pods)
        self.placed: list[Pod] = []
        self._apart = any(pod.placement.alone for pod in self.pods)

    def takes(self, pod: Pod) -> bool:
        """Whether there is room for one more, of a pod that the place suits. Once it says no to a kind of pod it never says yes again, but
        to one that minds who is around."""
        if lacks(needs(pod, self.place), self.free):
            return False
        if (self._apart or pod.placement.alone) and any(node_affinity.keep_apart(pod, other) for other in self.pods):
            return False
        return not self.refuses(pod)

    def refuses(self, pod: Pod) -> str:
        """Why the pods around keep this one off; empty when they do not."""
        return "" if self.around is None else self.around.against(pod, self._spot)

    def add(self, pod: Pod) -> None:
        """Place the pod, of which :meth:`takes` said yes. A resource of which nothing is known stays unknown."""
        for name, amount in needs(pod, self.place).items():
            there = self.free.get(name)
            if there is not None:
                self.free[name] = there - amount
        self.pods.append(pod)
        self.placed.append(pod)
        self._apart = self._apart or bool(pod.placement.alone)
        if self.around is not None:
            self.around.add(pod, self._spot)


class Queue:
    """Waiting pods in their order, those of one kind together: what one of a kind is refused, all of the kind are.

    ``barred``: a pod's uid to the pools (with the reason) that it must not go to. ``by_labels``: pods that stand somewhere keep others
    away by labels, so these tell kinds apart. ``around``: who is where, None = it matters to none of them. ``minding``: kinds to which it
    does; what one of them is refused it may get once others have their place."""

    def __init__(
        self,
        pods: t.Iterable[Pod],
        gpu_resources: t.Collection[str],
        barred: Barred | None = None,
        *,
        by_labels: bool = False,
        around: Topology | None = None,
    ) -> None:
        self.gpu_resources = gpu_resources
        self.around = around
        self.pods = sorted(pods, key=lambda pod: rank(pod, gpu_resources))
        self.examples: list[Pod] = []
        self.barred: list[t.Mapping[str, str]] = []
        self.waiting: list[collections.deque[int]] = []
        by_labels = by_labels or around is not None or any(pod.placement.alone for pod in self.pods)
        numbers: dict[tuple[t.Any, ...], int] = {}
        self.kind_of: list[int] = []
        for place, pod in enumerate(self.pods):
            bars = (barred or {}).get(pod.uid, {})
            kind: tuple[t.Any, ...] = (
                frozenset(pod.requests.items()), pod.placement, pod.annotations.get(GPU_MEMORY_LABEL), tuple(sorted(bars.items())),
                pod.container_gpus,
            )  # fmt: skip
            if by_labels:
                kind = (*kind, pod.namespace, frozenset(pod.labels.items()))
            number = numbers.setdefault(kind, len(numbers))
            if number == len(self.waiting):
                self.examples.append(pod)
                self.barred.append(bars)
                self.waiting.append(collections.deque())
            self.kind_of.append(number)
            self.waiting[number].append(place)
        self.minding = self._minding(around) if around is not None else frozenset()

    def _minding(self, around: Topology) -> frozenset[int]:
        terms = {term for example in self.examples for term in example.placement.apart}
        return frozenset(
            number
            for number, example in enumerate(self.examples)
            if around.minds(example) or any(node_affinity.means(term.others, example) for term in terms)
        )

    def gpus(self, pod: Pod) -> int:
        """How many GPUs one of the pods asks for."""
        return gpus(pod, self.gpu_resources)

    def most_gpus(self, pod: Pod) -> int:
        """The same, of choices the largest."""
        return _named(pod, self.gpu_resources) + sum(devices.most(request) for request in pod.placement.devices)

    def against(self, number: int, place: Bin) -> str:
        """Why a place never suits pods of a kind."""
        return self.barred[number].get(place.pool, "") or against(self.examples[number], place)

    def head(self) -> tuple[int, int] | None:
        """The first pod that waits, as its place in ``pods`` and its kind; None when none waits."""
        return min(((places[0], number) for number, places in enumerate(self.waiting) if places), default=None)

    def serve(self, room: Room, kinds: t.Iterable[int]) -> list[tuple[int, int]]:
        """Fill ``room`` by first fit with pods of ``kinds``, which it suits; the places and kinds of those that got in. Nobody leaves the
        queue yet. In a room that has others around, one that gets a place may be the one for which those waited that were refused."""
        heads = [(self.waiting[number][0], number) for number in kinds if self.waiting[number]]
        heapq.heapify(heads)
        served: list[tuple[int, int]] = []
        taken: collections.Counter[int] = collections.Counter()
        refused: list[tuple[int, int]] = []
        while heads:
            place, number = heads[0]
            if not room.takes(self.pods[place]):
                refused.append(heapq.heappop(heads))
                continue
            room.add(self.pods[place])
            served.append((place, number))
            taken[number] += 1
            if taken[number] < len(self.waiting[number]):
                heapq.heapreplace(heads, (self.waiting[number][taken[number]], number))
            else:
                heapq.heappop(heads)
            while refused and room.around is not None:
                heapq.heappush(heads, refused.pop())
        return sorted(served)

    def remove(self, served: t.Iterable[tuple[int, int]]) -> None:
        """These wait no more. Of each kind they have to be the first ones, as :meth:`serve` and :meth:`head` give them."""
        for _place, number in served:
            self.waiting[number].popleft()

    def restore(self, entries: t.Iterable[tuple[int, int]]) -> None:
        """These wait again."""
        for place, number in entries:
            self.waiting[number] = collections.deque(sorted((*self.waiting[number], place)))

    def settle(self, rooms: t.Sequence[Room]) -> dict[str, str]:
        """Give those that mind who is around a place in rooms that suit them now, until none finds any: uid to the name of the place."""
        settled: dict[str, str] = {}
        found = True
        while found:
            found = False
            for number in sorted(self.minding):
                while self.waiting[number]:
                    pod = self.pods[self.waiting[number][0]]
                    room = next((room for room in rooms if not self.against(number, room.place) and room.takes(pod)), None)
                    if room is None:
                        break
                    room.add(pod)
                    self.waiting[number].popleft()
                    settled[pod.uid] = room.place.name
                    found = True
        return settled

    def left(self) -> tuple[Pod, ...]:
        """Those that still wait, in their order."""
        return tuple(self.pods[place] for place in sorted(place for places in self.waiting for place in places))


def fit(
    pods: t.Iterable[Pod],
    bins: t.Iterable[Bin],
    gpu_resources: t.Collection[str],
    barred: Barred | None = None,
    around: Topology | None = None,
) -> Packing:
    """Place each pod, in the order of packing, on the first bin that suits it and has room.

    ``bins`` are tried in the order given. ``barred`` as for :class:`Queue`. Pods keep apart as they ask, from those that are on a bin
    already and from each other; and as ``around`` says, if given, where bins have their place, too.
    """
    places = tuple(bins)
    apart = any(pod.placement.alone for place in places for pod in place.pods)
    queue = Queue(pods, gpu_resources, barred, by_labels=apart, around=around)
    world = None if around is None else around.copy()
    rooms: list[Room | None] = [None if world is None else Room(place, world) for place in places]
    reached = [0] * len(queue.waiting)  # no bin before this one has anything for the kind
    suited = [-1] * len(queue.waiting)
    placed: dict[str, str] = {}
    for at_pod, (pod, number) in enumerate(zip(queue.pods, queue.kind_of, strict=True)):
        reached[number] = 0 if number in queue.minding else reached[number]
        while reached[number] < len(places):
            at = reached[number]
            if suited[number] == at or not queue.against(number, places[at]):
                suited[number] = at
                room = rooms[at] or Room(places[at])
                rooms[at] = room
                if room.takes(pod):
                    room.add(pod)
                    placed[pod.uid] = places[at].name
                    queue.waiting[number].remove(at_pod)
                    break
            reached[number] += 1
    filled = tuple(room for room in rooms if room is not None) if world is not None else ()
    placed |= queue.settle(filled)
    return Packing(placed, queue.left(), filled)
