# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes what one machine is handed at boot: its configuration, rendered, checked and packed for its lane and its cloud."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...bootstrap.container import container_for
from ...bootstrap.payload import payload
from ...core.errors import InvalidInput
from ...kube import bootstrap_tokens
from ...kube.bootstrap_tokens import Token
from ...kube.client import read_secret
from ...mesh.base import Mesh, description_of
from ...model import Claim, Container, Lane, NodeClass, Offer, Pool
from ...model.mesh import Tunnel
from ...observe.context import Context
from ...observe.gather import ClusterFacts, cluster_facts
from ...planner.garbage_collection import silence
from ...planner.scheduling import capacity
from ...providers.registry import CAPABILITIES
from ...store import lease
from ...talos.images.nvidia import image_of
from ...talos.spec import NodeSpec
from .wireguard_peers import tunnel_for


@dataclasses.dataclass(frozen=True)
class Enrolment:
    """The secrets that let one machine in, once: its mesh key or its end of a tunnel, and its bootstrap token ("id.secret"). Empty = not
    needed."""

    mesh_key: str = dataclasses.field(default="", repr=False)
    tunnel: Tunnel | None = dataclasses.field(default=None, repr=False)
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What goes into the create call: ``text`` (a secret; None = the machine needs nothing from us) and the lane it is for.
    ``environment`` goes with it where the carrier is the environment; ``container`` stands instead of both on lane service."""

    text: str | None = dataclasses.field(repr=False)
    lane: Lane
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    container: Container | None = None


def needs_payload(node_class: NodeClass, cloud: str) -> bool:
    """Own machines that are installed for good are only powered on (``payload: none``); every other machine is configured."""
    settings = next((choice.settings for choice in node_class.clouds if choice.cloud == cloud), {})
    return CAPABILITIES[cloud].rented or settings.get("payload", "none") != "none"


def lane_for(offer: Offer, pool: Pool | None) -> Lane:
    """The first lane the pool accepts that this offer can serve."""
    wanted = pool.lanes if pool and pool.lanes else offer.lanes
    for lane in wanted:
        if lane in offer.lanes:
            return lane
    raise InvalidInput(f"{offer.cloud} {offer.id} serves none of the pool's lanes ({', '.join(lane.value for lane in wanted)}).")


def container(
    context: Context, claim: Claim, cloud: str, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment
) -> Container:
    """The container of one machine of lane service, the values of its Secrets read. InvalidInput when it cannot be made."""
    if pool is None or pool.service is None:
        raise InvalidInput(
            f"{claim.name}: no document says any more what the services of {claim.pool} run.",
            remedy="Give the pool's document back, or let reap.yml take the machine down.",
        )
    refs = pool.service.environment_from
    secrets = {
        name: context.once(("secret", ref), functools.partial(read_secret, context.kube, ref.namespace, ref.name, ref.key))
        for name, ref in refs.items()
    }
    return container_for(
        claim,
        pool.service,
        node_class.mesh,
        cluster_id=context.cluster_id,
        mesh_key=enrolment.mesh_key,
        login_server=context.task.params.get("mesh_login_server") or "",
        secrets=secrets,
        capability=CAPABILITIES[cloud],
    )


def node_spec(
    context: Context, claim: Claim, offer: Offer, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment, lane: Lane
) -> NodeSpec:
    """Everything that the configuration of one machine is made from."""
    facts: ClusterFacts = cluster_facts(context)
    image = image_of(node_class.talos_schematic, node_class.talos_image, facts.talos_version)
    return NodeSpec(
        name=claim.name,
        pool=claim.pool.partition("/")[2],
        index=claim.index,
        secrets=facts.secrets,
        bootstrap_token=enrolment.token,
        lane=lane,
        cloud=offer.cloud,
        endpoint=facts.endpoint,
        cluster_name=facts.cluster_name,
        instance_type=offer.instance_type,
        region=offer.cloud_region or offer.region,
        labels=capacity.node_labels(dataclasses.replace(claim, offer=offer, cloud=offer.cloud), pool, context.cluster_id),
        annotations={},
        taints=capacity.taints(pool),
        startup_taints=capacity.startup_taints(pool),
        ephemeral_taint=False,
        gpu_count=offer.gpu_count,
        model=offer.model,
        mesh=node_class.mesh,
        auth_key=enrolment.mesh_key,
        tunnel=enrolment.tunnel,
        login_server=facts.login_server,
        kubernetes_version=facts.kubernetes_version,
        talos_version=image.release(facts.talos_version),
        installer_image=image.installer,
        extensions=image.extensions,
        registry_mirrors=node_class.registry_mirrors,
        patches=node_class.talos_patches,
        guard=silence.guard_of(node_class, CAPABILITIES[offer.cloud]) if lane is Lane.KUBELET else None,
        guard_lease=lease.path_of(context.cluster_id),
    )


def payload_for(
    context: Context, claim: Claim, offer: Offer, pool: Pool | None, node_class: NodeClass, enrolment: Enrolment
) -> Rendered:
    """The payload of one machine. InvalidInput, before anything is rented, when it would not boot."""
    lane = lane_for(offer, pool)
    if lane is Lane.SERVICE:
        return Rendered(None, lane, container=container(context, claim, offer.cloud, pool, node_class, enrolment))
    if not needs_payload(node_class, offer.cloud):
        return Rendered(None, lane)
    spec = node_spec(context, claim, offer, pool, node_class, enrolment, lane)
    made = payload(spec, context.template_of(node_class), capability=CAPABILITIES[offer.cloud])
    for warning in made.warnings:
        context.warn(f"{claim.name}: {warning}")
    return Rendered(made.text, lane, made.environment)


# ---- makes the secrets that let one machine in: a mesh key or its end of a tunnel, and a bootstrap token where it becomes a node. What
# can be known of them goes recorded at once

_KEY_LIFE = 3600


def enrol(
    context: Context,
    claim: Claim,
    node_class: NodeClass,
    note: t.Callable[..., None],
    keep: t.Callable[..., None] | None = None,
) -> Enrolment:
    """Fresh ones for this machine; those of an earlier, interrupted try are taken back first. None for a machine that is only switched
    on. ``note`` writes fields of the claim; ``keep`` takes those that a later write may bring: a key and a token whose ids never reach the
    claim are found by other means and end after an hour."""
    keep = keep or note
    if not needs_payload(node_class, claim.cloud):
        return Enrolment()
    mesh = context.clients.mesh()
    if mesh is not None and claim.mesh_key_id:
        mesh.delete_key(claim.mesh_key_id)
    take_back_all(context, claim)
    choice = node_class.mesh
    key = None
    tunnel = None
    if choice.hub is not None and claim.lane is not Lane.SERVICE:
        tunnel = tunnel_for(context, claim, choice.hub, note)
    if mesh is not None and choice.backend == "tailscale":
        _forget_lost_keys(context, claim, mesh)
        key = mesh.create_key(claim.name, tags=choice.tags, ephemeral=choice.ephemeral, expiry_seconds=_KEY_LIFE)
        keep(mesh_backend=choice.backend, mesh_key_id=key.id)
    if claim.lane is Lane.SERVICE:  # a container is not a Node: there is nothing that it could bootstrap
        return Enrolment(mesh_key=key.secret if key else "")
    # on a rented machine the token asks for this one name and no other; a Talos machine is approved by its cluster
    groups = bootstrap_tokens.OWN_GROUP if claim.lane is Lane.KUBELET else bootstrap_tokens.GROUPS
    token = make_token(context, claim.name, groups)
    keep(token_id=token.id)
    return Enrolment(mesh_key=key.secret if key else "", token=token.text, tunnel=tunnel)


def _forget_lost_keys(context: Context, claim: Claim, mesh: Mesh) -> None:
    """Keys of a run that was killed before it could note them. Those of rented machines are found by their name once the claim is
    gone; the name of an own machine does not tell whose it is, so its keys have to go now, while its claim is ours."""
    if CAPABILITIES[claim.cloud].rented:
        return
    for key in context.once("keys before the launch", mesh.keys):
        if key.description == description_of(claim.name) and not key.invalid:
            mesh.delete_key(key.id)


# ---- bootstrap tokens with their place on our list: on it before they are made, off it once they are deleted (L-12)


def make_token(context: Context, machine: str, groups: str) -> Token:
    """A fresh one. It is noted first: a run that is killed in between leaves a note too many, never a token that is unknown."""
    context.lock.renew_if_due()  # the list is another run's once the lock is lost
    while True:
        token = context.records.tokens.draw(machine)
        if bootstrap_tokens.put(context.kube, token, groups):
            return token
        context.records.tokens.forget(token.id)  # the id is the token of another owner: it must never be taken for ours


def take_back(context: Context, token_id: str) -> bool:
    """Make one worthless now. False when it was gone already."""
    existed = bootstrap_tokens.delete(context.kube, token_id)
    context.records.tokens.forget(token_id)
    return existed


def take_back_all(context: Context, claim: Claim) -> None:
    """The one that the claim knows, and those of a killed run that were made for its machine and never reached the claim."""
    lost = context.records.tokens.made_for(claim.name)
    for token_id in dict.fromkeys((*((claim.token_id,) if claim.token_id else ()), *lost)):
        take_back(context, token_id)
