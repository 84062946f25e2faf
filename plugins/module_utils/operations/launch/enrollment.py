# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the secrets that let one machine in: a mesh key or its end of a tunnel, and a bootstrap token where it becomes a node. What can be
known of them goes on record at once."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ...kube import bootstrap_tokens
from ...kube.bootstrap_tokens import Token
from ...mesh.base import Mesh, description_of
from ...model import Claim, Lane, MadeToken, NodeClass
from ...observe.context import Context
from ...providers.registry import CAPABILITIES
from .payload import Enrolment, needs_payload
from .wireguard_peers import tunnel_for

_KEY_LIFE = 3600
_TOKEN_LIFE = 3600


def enrol(context: Context, claim: Claim, node_class: NodeClass, note: t.Callable[..., None]) -> Enrolment:
    """Fresh ones for this machine; those of an earlier, interrupted try are taken back first. None for a machine that is only switched
    on. ``note`` writes fields of the claim."""
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
        note(mesh_backend=choice.backend, mesh_key_id=key.id)
    if claim.lane is Lane.SERVICE:  # a container is no Node: there is nothing that it could bootstrap
        return Enrolment(mesh_key=key.secret if key else "")
    # on a stranger's machine the token asks for this one name and no other; a Talos machine is approved by its cluster
    groups = bootstrap_tokens.OWN_GROUP if claim.lane is Lane.KUBELET else bootstrap_tokens.GROUPS
    token = make_token(context, claim.name, life_seconds=_TOKEN_LIFE, groups=groups)
    note(token_id=token.id)
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


def make_token(context: Context, machine: str, *, life_seconds: int, groups: str) -> Token:
    """A fresh one. It is noted first: a run that is killed in between leaves a note too many, never a token that nobody knows."""
    while True:
        token = bootstrap_tokens.draw(machine, now=context.clock.now(), life_seconds=life_seconds)
        context.records.tokens.note(MadeToken(token.id, machine, t.cast(datetime, token.expires)))
        if bootstrap_tokens.put(context.kube, token, groups):
            return token
        context.records.tokens.forget(token.id)  # the id is somebody else's token: it must never be taken for ours


def take_back(context: Context, token_id: str) -> bool:
    """Make one worthless now. False when it was gone already."""
    found = bootstrap_tokens.delete(context.kube, token_id)
    context.records.tokens.forget(token_id)
    return found


def take_back_all(context: Context, claim: Claim) -> None:
    """The one that the claim knows, and those of a killed run that were made for its machine and never reached the claim."""
    lost = (token.id for token in context.records.tokens.of_machine(claim.name))
    for token_id in dict.fromkeys((*((claim.token_id,) if claim.token_id else ()), *lost)):
        take_back(context, token_id)
