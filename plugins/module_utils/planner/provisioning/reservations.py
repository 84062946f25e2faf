# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be rented in this run, and what of it is taken: stock, limits, budgets and addresses are counted at once (L-16)."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import hashlib
import ipaddress
import itertools
import typing as t
from decimal import Decimal
from fractions import Fraction

from ...model import Claim, Hub, HubSecrets, NodeClass, Offer, Peer, Pool
from ...model.mesh import Tunnel
from ...units.values import print_money
from .. import notices
from ..claim_sync import Settled
from ..claims.adoption import adopt
from ..cluster_state import RETRY
from ..cost import budgets
from ..cost.teams import Shares, shares, team_of_pool
from ..disruption import interruption
from ..garbage_collection.orphans import Orphan, is_used
from ..offers import account_volumes, no_offer
from ..offers.ranking import IMAGE, Selection, offer_key, select
from ..plan_builder import Draft
from ..scheduling.capacity import planned_gpus
from . import limits

OFFERS_PER_CLAIM: t.Final = 25  # the chosen offer and those that a launch goes on with when it is refused (L-14)
TOO_SMALL = "no machine that is large enough"
Teams = tuple[tuple[str, int], ...] | None  # teams with the GPUs that a machine is launched for; None = for its pool's team


class LaunchCapacity:
    """What can be rented in this run: selections per pool, stock, limits. Everything taken is reserved at once (L-16)."""

    def __init__(self, draft: Draft, orphans: t.Sequence[Orphan]) -> None:
        self.situation = draft.situation
        holding = [settled.claim for settled in draft.settled.values() if _holds(settled)]
        rented = [claim for claim in holding if self.situation.rented(claim.cloud)]  # own machines enter no tunnel
        self.addresses = Spare(rented, self.situation.specs.classes)
        self.held = limits.reserved(holding)
        self.held = _reserve_unclaimed(self.held, draft, orphans)
        self.purses = purses(draft, orphans)
        self.taken: collections.Counter[str] = collections.Counter()
        self.own_in_use = {settled.claim.name for settled in draft.settled.values()} | set(self.situation.damaged)
        self.own_in_use |= {orphan.instance.name for orphan in orphans if is_used(orphan, self.situation)}
        self.blocks = interruption.merged(self.situation.seen.blocks, interruption.blocked_by_loss(draft))
        self._selections: dict[str, Selection] = {}
        self.unread: dict[str, str] = {}  # without the clouds whose offers nobody needs
        self._draft = draft
        for cloud in sorted(self.situation.seen.clouds):
            if self.situation.seen.clouds[cloud].instances is None:
                self._unread(cloud, "machines")

    def fork(self) -> LaunchCapacity:
        """The same, of which something is reserved on trial."""
        trial = copy.copy(self)
        trial.taken, trial.own_in_use = self.taken.copy(), set(self.own_in_use)
        trial.addresses = copy.deepcopy(self.addresses)
        return trial

    def _unread(self, cloud: str, subject: str) -> None:
        problem = self.situation.seen.clouds[cloud].problem
        self.unread[cloud] = f"{cloud}: {subject} unknown"
        self._draft.warnings.append(
            f"The {subject} of {cloud} could not be read; nothing is rented there in this run. {problem}".strip()
        )

    @functools.cached_property
    def offers(self) -> list[Offer]:
        """What can be rented where the machines are known, in the order of clouds and ids."""
        offers: list[Offer] = []
        for cloud in sorted(set(self.situation.seen.clouds) - set(self.unread)):
            listed = self.situation.offers(cloud)
            if listed is None:
                self._unread(cloud, "offers")
            else:
                offers.extend(sorted(listed, key=lambda offer: (offer.id, offer.cloud_region)))
        return offers

    def selection(self, pool: Pool, node_class: NodeClass) -> Selection:
        """The offers that the pool may rent, best first, and why the others are left out. Made once for a pool, as a plan asks often."""
        if pool.key not in self._selections:
            situation = self.situation
            imageless = situation.imageless(node_class)
            self._selections[pool.key] = select(
                self.offers,
                pool,
                node_class,
                situation.capabilities,
                situation.settings,
                situation.now,
                self.blocks,
                account=situation.volumes,
                imageless=imageless,
            )
            self._left_out(node_class, self._selections[pool.key], imageless)
        return self._selections[pool.key]

    def _left_out(self, node_class: NodeClass, selection: Selection, imageless: t.Mapping[str, str]) -> None:
        """Say once for a class at which clouds offers are left out because of their image."""
        missing = {key.partition("/")[0] for key, reason in selection.rejected.items() if reason == IMAGE}
        for cloud in sorted(missing):
            why = imageless.get(cloud, "")
            text = f"GPUNodeClass {node_class.name}: offers of {cloud} for lane talos are left out. {why}".strip()
            if text not in self._draft.warnings:
                self._draft.warnings.append(text)

    def take(
        self,
        pool: Pool,
        node_class: NodeClass,
        without: t.Container[str] = (),
        serves: t.Callable[[Offer], bool] | None = None,
        teams: Teams = None,
    ) -> tuple[Offer | None, tuple[Offer, ...], str]:
        """The best offer there is room for, reserved; the ones to try after it; or None and the reason. ``serves``: which will do."""
        offer, rest, reason = self.best(pool, node_class, without, serves, teams)
        if offer is not None:
            self.reserve(offer, pool, node_class, teams)
        return offer, rest, reason

    def best(
        self,
        pool: Pool,
        node_class: NodeClass,
        without: t.Container[str] = (),
        serves: t.Callable[[Offer], bool] | None = None,
        teams: Teams = None,
    ) -> tuple[Offer | None, tuple[Offer, ...], str]:
        """What :meth:`take` takes, without reserving it."""
        first_reason = too_small = ""
        candidates = self.selection(pool, node_class).candidates
        for place, offer in enumerate(candidates):
            reason = self._against(offer, pool, node_class, without, teams)
            if reason:
                first_reason = first_reason or reason
                continue
            if serves is not None and not serves(offer):
                too_small = TOO_SMALL
                continue
            others = candidates[place + 1 :]
            rest = self._rest(others if serves is None else filter(serves, others), offer, pool, node_class, without, teams)
            return offer, rest, ""
        return None, (), first_reason or too_small or self.why_none(pool, node_class)

    def take_this(
        self, offer: Offer, pool: Pool, node_class: NodeClass, serves: t.Callable[[Offer], bool], teams: Teams
    ) -> tuple[Offer, ...]:
        """Reserve an offer that the caller chose; of the others those that would serve the same, best first."""
        others = (
            candidate for candidate in self.selection(pool, node_class).candidates if candidate is not offer and serves(candidate)
        )
        rest = self._rest(others, offer, pool, node_class, (), teams)
        self.reserve(offer, pool, node_class, teams)
        return rest

    def against(self, offer: Offer, pool: Pool, node_class: NodeClass) -> str:
        """Why the offer must not be taken now, whichever team it is for; empty when it may."""
        return self._against(offer, pool, node_class, (), ())

    def fits_instead(self, claim: Claim, pool: Pool, node_class: NodeClass, serves: t.Callable[[Offer], bool] | None) -> bool:
        """Whether there is an offer that only the limits forbid, and only as long as the machine of ``claim`` counts. What a spending
        budget has paid does not come back with it."""
        held = self.held.without(claim.offer, claim.price, claim.node_class, claim.pool)
        for offer in self.selection(pool, node_class).candidates:
            if (serves is not None and not serves(offer)) or self._unavailable(offer):
                continue
            address = "" if claim.peer is not None else self.addresses.against(self._hub(offer, node_class))
            full = address or limits.room(offer, pool, node_class, held, self.situation.settings)
            teams = self._shares(offer, pool, None)
            if not full and not self.purses.room(pool.key, node_class.name, offer.price_hour, teams):
                return True
        return False

    def find(
        self, planned: Claim, pool: Pool, node_class: NodeClass, bound: Decimal
    ) -> tuple[Offer | None, tuple[Offer, ...], str]:
        """The offer of a planned claim at the price of now, not reserved yet; those of its candidates that may be tried after it; or None
        and the reason. Nothing above ``bound`` is taken."""
        selection, key = self.selection(pool, node_class), offer_key(planned.offer)
        offer = next((candidate for candidate in selection.candidates if offer_key(candidate) == key), None)
        if offer is None:
            why = selection.rejected.get(key) or self.unread.get(planned.offer.cloud) or "is not offered any more"
            if why == IMAGE:
                why = self.situation.imageless(node_class).get(planned.offer.cloud, why)
            return None, (), f"offer {key}: {why}"
        now = t.cast(Decimal, offer.price_hour)
        if now > bound:
            return None, (), f"offer {key} costs ${print_money(now)}/h now, the plan bears up to ${print_money(bound)}/h"
        teams = planned.launched_for or None
        reason = self._against(offer, pool, node_class, (), teams)
        if reason:
            return None, (), f"offer {key}: {reason}"
        planned_keys = {offer_key(candidate) for candidate in planned.candidates}
        rest = self._rest(selection.candidates, offer, pool, node_class, {key}, teams)
        return (
            offer,
            tuple(offer for offer in rest if offer_key(offer) in planned_keys and t.cast(Decimal, offer.price_hour) <= bound),
            "",
        )

    def _against(self, offer: Offer, pool: Pool, node_class: NodeClass, without: t.Container[str], teams: Teams) -> str:
        if offer_key(offer) in without:
            return "tried before"
        if self._unavailable(offer):
            return "not available"
        full = self.addresses.against(self._hub(offer, node_class)) or limits.room(
            offer, pool, node_class, self.held, self.situation.settings
        )
        return full or self.purses.room(pool.key, node_class.name, offer.price_hour, self._shares(offer, pool, teams))

    def _shares(self, offer: Offer, pool: Pool, teams: Teams) -> Shares:
        """Which part of a machine of the offer each team pays."""
        if not self.situation.settings.team_budgets:
            return {}
        if teams is None:
            return {team_of_pool(pool, self.situation.settings): Fraction(1)}
        return shares(teams, planned_gpus(offer, pool))

    def _unavailable(self, offer: Offer) -> bool:
        if offer.available is not None and self.taken[offer_key(offer)] >= offer.available:
            return True
        return not self.situation.rented(offer.cloud) and not self._is_off(offer)

    def _is_off(self, offer: Offer) -> bool:
        """An own machine can be switched on when no claim uses it and its Node is not Ready."""
        machine = self.situation.machines.get(offer.id)
        node = self.situation.nodes_by_name.get((machine.node_name if machine else "") or offer.id)
        return offer.id not in self.own_in_use and not (node is not None and node.ready)

    def _rest(
        self, offers: t.Iterable[Offer], first: Offer, pool: Pool, node_class: NodeClass, without: t.Container[str], teams: Teams
    ) -> tuple[Offer, ...]:
        """Where to go when ``first`` is refused. An own machine is named after itself, so nothing can stand in for it."""
        if not self.situation.rented(first.cloud):
            return ()
        counted = bool(node_class.resources or pool.resources)
        rest: list[Offer] = []
        for offer in offers:
            if len(rest) + 1 >= OFFERS_PER_CLAIM:
                break
            bigger = counted and offer.gpu_count > first.gpu_count  # may be cheaper and still be one GPU too many
            if self.situation.rented(offer.cloud) and not bigger and not self._against(offer, pool, node_class, without, teams):
                rest.append(offer)
        return tuple(rest)

    def reserve(self, offer: Offer, pool: Pool, node_class: NodeClass, teams: Teams = None) -> None:
        """Count one more machine of this offer."""
        self.taken[offer_key(offer)] += 1
        self.own_in_use.add(offer.id)
        self.addresses.take(self._hub(offer, node_class))
        self.held = self.held.plus(offer, t.cast(t.Any, offer.price_hour), node_class.name, pool.key)
        part = self._shares(offer, pool, teams)
        self.purses = self.purses.plus(pool.key, node_class.name, t.cast(t.Any, offer.price_hour), part)

    def _hub(self, offer: Offer, node_class: NodeClass) -> Hub | None:
        """The hub in whose network a machine of the offer gets an address."""
        return node_class.mesh.hub if self.situation.rented(offer.cloud) else None

    def why_none(self, pool: Pool, node_class: NodeClass) -> str:
        """Why no offer is left for the pool."""
        situation = self.situation
        blocks = {} if situation.settings.ignore_blocklist else self.blocks
        selection = self.selection(pool, node_class)
        unread = dict(self.unread)
        for choice in node_class.clouds:
            if choice.cloud not in unread and (why := account_volumes.problem(choice, situation.volumes.get(choice.cloud))):
                unread[choice.cloud] = why
        imageless = situation.imageless(node_class)
        return no_offer.why_none(pool, node_class, selection, situation.capabilities, unread, blocks, situation.now, imageless)

    def counts(self, pool: Pool, node_class: NodeClass) -> dict[str, int]:
        """How many offers each reason excluded; a cloud that could not be read counts once."""
        counted = no_offer.of_class(self.selection(pool, node_class), node_class)
        return {**counted, **{self.unread[choice.cloud]: 1 for choice in node_class.clouds if choice.cloud in self.unread}}


def purses(draft: Draft, orphans: t.Sequence[Orphan]) -> budgets.Purses:
    """The budgets before anything is launched in this run."""
    anew = {settled.claim.name for settled in draft.settled.values() if not _holds(settled)}
    return budgets.purses_of(draft, orphans, without=anew)


def _holds(settled: Settled) -> bool:
    """Whether the claim's reservation stands; a launch that is decided anew in this run terminates it first."""
    return not (settled.recovery.what in RETRY and settled.claim.deletion is None)


def _reserve_unclaimed(held: limits.Reserved, draft: Draft, orphans: t.Sequence[Orphan]) -> limits.Reserved:
    """Machines that are billed to us without a claim that can be read: orphans, duplicates, and those whose claim is damaged."""
    for claim in notices.stand_ins(draft.situation):
        held = held.plus(claim.offer, claim.price, claim.node_class, claim.pool)
    for orphan in orphans:
        if is_used(orphan, draft.situation):
            for instance in (orphan.instance, *orphan.others):
                claim = adopt(instance, orphan.node, draft.situation)
                held = held.plus(claim.offer, claim.price, claim.node_class, claim.pool)
    for settled in draft.settled.values():
        for extra in (*settled.recovery.duplicates, *draft.situation.elsewhere(settled.claim)):
            price = extra.price_hour if extra.price_hour is not None else settled.claim.price
            held = held.plus(settled.claim.offer, price, settled.claim.node_class, settled.claim.pool)
    return held


# ---- addresses of nodes in a WireGuard network, and what each hub has to know of them. Claims are the only record of both

WIREGUARD = "wireguard"


def free(hub: Hub, claims: t.Iterable[Claim]) -> int:
    """How many more nodes the hub's network has addresses for."""
    taken = _taken(claims)
    mine = ipaddress.ip_network(hub.addresses)
    inside = sum(1 for entry in taken if entry.version == mine.version and entry in mine)
    return max(0, _usable(hub) - inside)


def draw(hub: Hub, claims: t.Iterable[Claim], name: str) -> str:
    """An address for the machine ``name``, with the length of the whole network, as 10.77.0.11/24; empty when none is free.

    The search begins at a hash of the name, so that an address that was terminated is not the very next one to be handed out.
    """
    out, own = _taken(claims) | _reserved(hub), ipaddress.ip_network(hub.network)
    pool = ipaddress.ip_network(hub.addresses)
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % pool.num_addresses
    for number in itertools.chain(range(start, pool.num_addresses), range(start)):
        address = pool[number]
        if address not in out:
            return f"{address}/{own.prefixlen}"
    return ""


def end_of(hub: Hub, address: str, private_key: str) -> Tunnel:
    """The end of the node that has ``address`` (with the length of the whole network)."""
    return Tunnel(
        private_key=private_key,
        address=address,
        hub_key=hub.public_key,
        endpoint=hub.endpoint,
        hub_address=hub.address,
        allowed=hub.allowed,
        interface=hub.interface,
        mtu=hub.mtu,
        keepalive=hub.keepalive,
    )


def fits(hub: Hub, peer: Peer) -> bool:
    """Whether what a claim remembers is still of this hub: its class may have been given another network meanwhile."""
    same_place = (peer.host, peer.interface) == (hub.host, hub.interface)
    return same_place and str(ipaddress.ip_interface(peer.address).network) == hub.network


class Spare:
    """Addresses that are left while launches are planned. ``claims``: those whose place stands, with an address or about to get one."""

    def __init__(self, claims: t.Iterable[Claim], classes: t.Mapping[str, NodeClass]) -> None:
        self._claims = tuple(claims)
        self._free: dict[Hub, int] = {}  # checked for every offer
        self._waiting = collections.Counter(
            classes[claim.node_class].mesh.hub for claim in self._claims if claim.peer is None and claim.node_class in classes
        )

    def against(self, hub: Hub | None) -> str:
        """Why no more machine may be planned for the hub's network; empty when one may."""
        if hub is None:
            return ""
        if hub not in self._free:
            self._free[hub] = free(hub, self._claims)
        if self._free[hub] > self._waiting[hub]:
            return ""
        return f"no address is free in {hub.addresses}"

    def take(self, hub: Hub | None) -> None:
        """One more will have an address."""
        self._waiting[hub] += 1


@dataclasses.dataclass(frozen=True, slots=True)
class HubPeers:
    """All peers that ``interface`` of the inventory's ``host`` is to have of this cluster, and no others of it."""

    host: str
    interface: str
    peers: tuple[tuple[str, Peer], ...]


def hubs(described: t.Iterable[Hub | HubSecrets | Peer], claims: t.Sequence[Claim]) -> list[HubPeers]:
    """Each hub that is named in a document or a claim, with its peers by name. A machine on its way out is a peer until its claim is gone;
    one without a key has not been rented yet. Hubs whose peers are kept by hand are left out."""
    places = {(hub.host, hub.interface) for hub in described}
    places |= {(claim.peer.host, claim.peer.interface) for claim in claims if claim.peer is not None}
    return [
        HubPeers(
            host,
            interface,
            tuple(
                (claim.name, claim.peer)
                for claim in sorted(claims, key=lambda claim: claim.name)
                if claim.peer is not None and claim.peer.public_key and (claim.peer.host, claim.peer.interface) == (host, interface)
            ),
        )
        for host, interface in sorted(places)
        if host
    ]


def _taken(claims: t.Iterable[Claim]) -> set[t.Any]:
    return {ipaddress.ip_interface(claim.peer.address).ip for claim in claims if claim.peer is not None}


def _reserved(hub: Hub) -> set[t.Any]:
    """What no node may have: the hub's own address, and the first and last of the network."""
    network = ipaddress.ip_network(hub.network)
    return {ipaddress.ip_address(hub.address), network.network_address, network.broadcast_address}


def _usable(hub: Hub) -> int:
    pool = ipaddress.ip_network(hub.addresses)
    return pool.num_addresses - sum(1 for entry in _reserved(hub) if entry in pool)
