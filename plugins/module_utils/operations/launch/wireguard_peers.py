# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's end of a WireGuard tunnel, and what the hubs have to know of all machines."""

from __future__ import annotations

import typing as t
from datetime import timedelta

from ...core.errors import ApiError, InvalidInput
from ...core.redact import register
from ...mesh.wireguard.conf import generate
from ...model import Claim, Hub, Peer
from ...model.mesh import Tunnel
from ...observe.context import Context
from ...observe.gather import asked_clouds
from ...planner.garbage_collection.ownership import Ownership, ownership_of
from ...planner.provisioning import reservations
from ...units.values import parse_time

_REMEMBERED = timedelta(days=30)


def tunnel_for(context: Context, claim: Claim, hub: Hub, note: t.Callable[..., None]) -> Tunnel:
    """A fresh key pair for the machine, with the address it has already or a free one; address and public key go recorded at once.
    ``note`` writes fields of the claim. InvalidInput when the network is full."""
    private, public = generate()
    register(private)
    with context.records.money:  # one at a time: the record of one is what the next one reads
        address = claim.peer.address if claim.peer is not None and reservations.fits(hub, claim.peer) else ""
        address = address or reservations.draw(hub, context.store.claims(), claim.name)
        if not address:
            raise InvalidInput(
                f"{claim.name}: no address is free in {hub.addresses}.",
                remedy="Terminate machines, or give the class a larger wireguardConfig.addresses.",
            )
        note(mesh_backend=reservations.WIREGUARD, peer=Peer(hub.host, hub.interface, address, public))
    return reservations.end_of(hub, address, private)


def hubs_of(context: Context) -> list[dict[str, t.Any]]:
    """For the playbooks: each hub with all the peers that it is to have of this cluster, by what is recorded now."""
    classes = [place for one in context.specs.classes.values() if (place := one.mesh.hub_place) is not None]
    # also of claims that this call removed: the last machine of a class that moved to a tailnet names its hub no more
    known = [claim.peer for claim in context.records.known_claims() if claim.peer is not None]
    if not classes and not known:
        return []
    gone = _gone(context)
    claims, damaged = context.store.claim_records()
    strange, whole = _machines_without_claim(context, {claim.name for claim in claims})
    keyless = {
        *(record.name for record in damaged),
        *(claim.name for claim in claims if _lost_its_peer(context, claim)),
        *(strange - gone),
    }
    unknown = {"unknown": sorted(keyless)} if keyless else {}
    return [
        {
            "host": peers.host,
            "interface": peers.interface,
            "cluster_id": context.cluster_id,
            "peers": [{"name": name, "public_key": peer.public_key, "allowed_ips": [_alone(peer)]} for name, peer in peers.peers],
            "gone": sorted(gone - {name for name, _peer in peers.peers}),
            **unknown,
            **({} if whole else {"state": "present"}),
        }
        for peers in reservations.hubs([*classes, *known], claims)
    ]


def _machines_without_claim(context: Context, claimed: t.Collection[str]) -> tuple[set[str], bool]:
    """Machines under names of ours that no claim of this store has, and whether every list could be read. Their record was lost, or is kept
    by another cluster with the same id: only the hub knows their keys."""
    unclaimed, whole = set[str](), True
    for cloud in asked_clouds(context):
        listed = context.clients.instances(cloud)
        whole = whole and listed is not None
        unclaimed |= {
            instance.name
            for instance in listed or ()
            if not instance.gone and ownership_of(instance.name, context.cluster_id) is Ownership.OURS
        }
    return unclaimed - set(claimed), whole


def _lost_its_peer(context: Context, claim: Claim) -> bool:
    """Whether the machine was adopted: no cloud and no Node tells its key, so only the hub knows it, until the machine is gone."""
    node_class = context.specs.classes.get(claim.node_class)
    return claim.adopted is not None and claim.peer is None and (node_class is None or node_class.mesh.hub_place is not None)


def _gone(context: Context) -> set[str]:
    """Machines that the ledger closed lately. However many they are, the hub need not suspect lost records."""
    since = context.clock.now() - _REMEMBERED
    try:
        lines, _torn = context.store.ledger_records()
    except ApiError as error:
        context.warn(f"The ledger could not be read, so a hub lets no more than a few peers go at once: {error}")
        return set()
    gone = set()
    for line in lines:
        name, end = str(line.get("name") or ""), line.get("end")
        try:
            if ownership_of(name, context.cluster_id) is Ownership.OURS and end and parse_time(end) >= since:
                gone.add(name)
        except InvalidInput:
            continue  # of a line that is not understood nothing follows
    return gone


def refuse_hubs(context: Context) -> None:
    """InvalidInput when a class names its hub, for a run that has no tasks in which a hub could be configured."""
    for node_class in context.specs.classes.values():
        place = node_class.mesh.hub_place
        if place is not None and place.host:
            raise InvalidInput(
                f"GPUNodeClass {node_class.name}: tasks of the playbooks tell its hub {place.host} of its peers, "
                "and a loop has none.",
                remedy="Run autoscale.yml from a timer instead, or leave wireguardConfig.hub out and keep the hub's peers yourself.",
                field="spec.wireguardConfig.hub",
            )


def _alone(peer: Peer) -> str:
    """The address as a network of one."""
    address = peer.address.partition("/")[0]
    return f"{address}/{128 if ':' in address else 32}"
