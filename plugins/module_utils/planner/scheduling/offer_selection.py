# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines to rent for pods that fit nowhere (L-17): for the first pod the first pool that can serve it, and of its offers the one
that costs least per GPU which waiting pods will use."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ...model import Offer, Pod
from ...model.resources import MIG_PREFIX
from .binpacking import Bin, Queue, Room, gpus_on, is_gpu, lacks, needs
from .topology import Topology

PACKS = ("price", "fewest")  # what a pool may say of the offer it takes
#: how much a reason says: one about a place that suits and is full says more than one about a place that never suits, and one about a pool
#: whose nodes hand out no devices says least to a pod with claims
NO_DEVICES, NEVER_SUITS, TOO_SMALL, NO_OFFER, FULL, KNOWN = range(6)


class Reason(t.NamedTuple):
    """Why a pool does not serve a pod. The reason of the pool that came furthest is the one that is reported."""

    stage: int
    pool: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Purchase:
    """A machine for ``pods``, the first of which decided."""

    pool: str
    offer: Offer
    pods: tuple[Pod, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Bought:
    """``left``: pods that get no machine, in their order, each with the reason. ``settled``: those that fit on a machine that there is once
    another has been rented, by uid, with the name of the machine."""

    purchases: tuple[Purchase, ...]
    left: tuple[tuple[Pod, Reason], ...]
    settled: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Shop:
    """One pool's market. ``offers`` are in the order of L-13.

    ``size``: how many GPUs a machine of an offer has for pods, ``room``: all that it has for them. ``per_gpu``: what is paid for each of
    so many used GPUs, the less the better. ``against``: why an offer must not be taken now, empty if it may; once it says no it goes on
    saying no. ``taken`` is called for each purchase before the next is considered, and names the machine. ``closed``: the pool rents
    nothing in this run, whatever is wanted. ``most``: it rents no more machines than that. ``fewest``: the offer that serves most GPUs goes
    first.
    """

    pool: str
    offers: t.Sequence[Offer]
    size: t.Callable[[Offer], int]
    room: t.Callable[[Offer], Bin]
    per_gpu: t.Callable[[Offer, int], tuple[Decimal, ...]]
    against: t.Callable[[Offer], str]
    taken: t.Callable[[Offer, tuple[Pod, ...]], str]
    rented: t.Callable[[Offer], bool] = lambda _offer: True
    closed: str = ""
    why_none: str = "no offers"
    most: int | None = None
    fewest: bool = False


def buy(queue: Queue, shops: t.Sequence[Shop], rooms: t.Sequence[Room] = ()) -> Bought:
    """Rent until no pod waits that could be served. ``shops`` are tried in the order given; the queue is used up.

    ``rooms``: the machines that there are, as :func:`binpacking.fit` left them, where it matters who is where: a new machine is a new place in
    that world, so that pods which were refused are asked again."""
    filled = list(rooms)
    around = filled[0].around if filled else queue.around
    counters = [_Counter(shop, queue, around) for shop in shops]
    purchases: list[Purchase] = []
    settled: dict[str, str] = {}
    hopeless: dict[int, Reason] = {}
    left: list[tuple[int, int]] = []
    while (head := queue.head()) is not None:
        place, kind = head
        chosen: _Choice | None = None
        for counter in counters if kind not in hopeless else ():
            chosen = counter.best(kind)
            if chosen is None:
                continue
            pods = tuple(queue.pods[number] for number, _kind in chosen.served)
            purchases.append(Purchase(counter.shop.pool, chosen.offer, pods))
            queue.remove(chosen.served)
            name = counter.take(chosen.offer, pods)
            if around is not None:
                room = Room(dataclasses.replace(chosen.place, name=name), around)
                for pod in pods:
                    room.add(pod)
                filled.append(room)
                settled |= _ask_again(queue, counters, hopeless, left, filled)
            break
        if chosen is None:
            reasons = [counter.reasons[kind] for counter in counters]
            hopeless.setdefault(
                kind, max(reasons, key=lambda reason: reason.stage) if reasons else Reason(NEVER_SUITS, "", "there is no pool")
            )
            queue.remove([head])
            left.append((place, kind))
    return Bought(tuple(purchases), tuple((queue.pods[place], hopeless[kind]) for place, kind in sorted(left)), settled)


def _ask_again(
    queue: Queue,
    counters: t.Iterable[_Counter],
    hopeless: dict[int, Reason],
    left: list[tuple[int, int]],
    rooms: t.Sequence[Room],
) -> dict[str, str]:
    """After a purchase: pods to which it matters who is where wait anew, and go where they can go now."""
    queue.restore(entry for entry in left if entry[1] in queue.minding)
    left[:] = [entry for entry in left if entry[1] not in queue.minding]
    for kind in queue.minding:
        hopeless.pop(kind, None)
        for counter in counters:
            counter.reasons.pop(kind, None)
    return queue.settle(rooms)


class _Choice(t.NamedTuple):
    """An offer, the room of its machine, and whom it serves."""

    offer: Offer
    place: Bin
    served: list[tuple[int, int]]


class _Counter:
    """A shop with what was found out in it: whatever is refused once stays refused, since rooms and limits only get fuller. ``around``: who is
    where; pods to which that matters are asked again after each purchase."""

    def __init__(self, shop: Shop, queue: Queue, around: Topology | None) -> None:
        self.shop = shop
        self.queue = queue
        self._around = around
        self.reasons: dict[int, Reason] = {}
        self._left = shop.most
        self._bins: list[Bin | None] = [None] * len(shop.offers)
        self._suited: list[frozenset[int] | None] = [None] * len(shop.offers)
        self._refused: dict[int, str] = {}
        self._by_profile: dict[t.Any, frozenset[int]] = {}
        self._keys = _label_keys(queue)
        self._order: tuple[int, list[tuple[t.Any, int]]] = (-1, [])
        self._sizes = [shop.size(offer) for offer in shop.offers]
        self._largest = max(self._sizes, default=0)

    def best(self, kind: int) -> _Choice | None:
        """The offer for the first pod of ``kind`` and whom it serves with it; None when there is none, with the reason noted."""
        shop = self.shop
        if kind in self.reasons:
            return None
        barred = self.queue.barred[kind].get(shop.pool)
        if barred or shop.closed or self._left == 0:
            self._none(kind, KNOWN if barred else FULL, barred or shop.closed or "max_launch_per_run")
            return None
        best: tuple[t.Any, ...] | None = None
        chosen: _Choice | None = None
        for bound, number in self._ordered():
            if best is not None and bound > best[0]:
                break
            if number in self._refused or kind not in self._suits(number):
                continue
            offer = shop.offers[number]
            served = self.queue.serve(self._empty(number), self._suits(number))
            if not served or served[0][1] != kind:
                continue
            used = sum(gpus_on(self.queue.pods[place], self._bin(number), self.queue.gpu_resources) for place, _kind in served)
            value = self._value(offer, number, used)
            if best is not None and value >= best:
                continue
            refused = shop.against(offer)
            if refused:
                self._refused[number] = refused
            else:
                best, chosen = value, _Choice(offer, self._bin(number), served)
        if chosen is None:
            self._why_not(kind)
        return chosen

    def take(self, offer: Offer, pods: tuple[Pod, ...]) -> str:
        self._left = None if self._left is None else self._left - 1
        return self.shop.taken(offer, pods)

    def _value(self, offer: Offer, number: int, used: int) -> tuple[t.Any, ...]:
        """The less the better: price per used GPU (or, for the fewest machines, first the GPUs used), GPUs left over, the order of L-13.
        Of own machines the smallest goes on first (L-21)."""
        over = self._sizes[number] - used if self.shop.rented(offer) else offer.gpu_count
        return (self._worth(offer, used), over, number)

    def _worth(self, offer: Offer, used: int) -> tuple[t.Any, ...]:
        price = self.shop.per_gpu(offer, max(used, 1))
        return (-used, *price) if self.shop.fewest else price

    def _ordered(self) -> list[tuple[t.Any, int]]:
        """Offers by the best they can possibly be worth, so that the search ends early."""
        waiting = sum(
            len(places) * self.queue.most_gpus(self.queue.examples[kind]) for kind, places in enumerate(self.queue.waiting)
        )
        usable = min(waiting, self._largest)
        if self._order[0] != usable:
            numbers = (number for number in range(len(self.shop.offers)) if number not in self._refused)
            worth = ((self._worth(self.shop.offers[number], min(self._sizes[number], usable)), number) for number in numbers)
            self._order = (usable, sorted(worth))
        return self._order[1]

    def _bin(self, number: int) -> Bin:
        made = self._bins[number]
        if made is None:
            made = self._bins[number] = self.shop.room(self.shop.offers[number])
        return made

    def _empty(self, number: int) -> Room:
        """The machine as it would be, in a copy of the world that it would come into."""
        return Room(self._bin(number), None if self._around is None else self._around.copy())

    def _suits(self, number: int) -> frozenset[int]:
        """The kinds of pods that the offer's machine suits. Offers that differ in nothing any pod asks for are judged once."""
        suited = self._suited[number]
        if suited is None:
            place = self._bin(number)
            profile = (tuple(place.labels.get(key) for key in self._keys), place.gpu_memory_mib, place.node, place.devices)
            suited = self._by_profile.get(profile)
            if suited is None:
                kinds = range(len(self.queue.waiting))
                suited = frozenset(kind for kind in kinds if not self.queue.against(kind, place))
                self._by_profile[profile] = suited
            self._suited[number] = suited
        return suited

    def _none(self, kind: int, stage: int, text: str) -> None:
        self.reasons[kind] = Reason(stage, self.shop.pool, text)

    def _why_not(self, kind: int) -> None:
        """The first reason, of the offers that came furthest, in the order of L-13."""
        pod, first, short, apart = self.queue.examples[kind], "", "", ""
        for number in range(len(self.shop.offers)):
            place = self._bin(number)
            if kind not in self._suits(number):
                first = first or self.queue.against(kind, place)
            elif lacking := lacks(needs(pod, place), place.free):
                needed = f"{self.queue.gpus(pod)} GPUs" if is_gpu(lacking, self.queue.gpu_resources) else f"enough {lacking}"
                if lacking.startswith(MIG_PREFIX):
                    needed = f"{pod.requests[lacking]} {lacking}"
                short = short or f"no machine with {needed}"
            elif number in self._refused:
                self._none(kind, FULL, self._refused[number])
                return
            elif kind in self.queue.minding:
                apart = apart or self._empty(number).refuses(pod)
        if apart or short or first:
            foreign = bool(pod.placement.devices) and all(
                self._bin(number).devices is None for number in range(len(self.shop.offers))
            )
            self._none(kind, NO_DEVICES if foreign else TOO_SMALL if apart or short else NEVER_SUITS, apart or short or first)
        else:
            self._none(kind, NO_OFFER, f"no offer: {self.shop.why_none}")


def _label_keys(queue: Queue) -> tuple[str, ...]:
    """Every label that a waiting pod asks about."""
    keys: set[str] = set()
    for pod in queue.examples:
        keys.update(key for key, _value in pod.placement.selector)
        terms = (*pod.placement.terms, *(term for one_of in pod.placement.reach for term in one_of))
        keys.update(label.key for term in terms for label in term.labels)
    return tuple(sorted(keys))
