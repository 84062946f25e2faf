# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is made from, as a short fingerprint, and whether its documents say something else by now (L-5: Drifted).

A fingerprint carries the number of its recipe. Whoever changes what goes into one gives it a new number; fingerprints of another number
say nothing, so that a new version of the collection lets no machine go.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from ...model import Claim, Lane, NodeClass, Pool

RECIPE = "g2"
_LANES = (Lane.TALOS, Lane.KUBELET, Lane.SERVICE)


def generation(node_class: NodeClass, pool: Pool) -> str:
    """The fingerprint: the recipe's number, one part for each lane, and last one of both documents, which says nothing about drift.
    Empty while the hub of the class is unknown, so that nothing follows of it."""
    if node_class.mesh.hub_unread:
        return ""
    parts = [_hash(_made_from(node_class, pool, lane)) for lane in _LANES]
    return ".".join((RECIPE, *parts, _hash([node_class.generation, pool.generation])))


def is_known(claim: Claim) -> bool:
    """Whether the claim's fingerprint can be compared at all."""
    return claim.generation.startswith(f"{RECIPE}.") and claim.lane in _LANES


def drifted(claim: Claim, node_class: NodeClass, pool: Pool) -> bool:
    """True when a machine of the claim's lane would be made from something else today. What cannot be compared has not drifted."""
    if not is_known(claim):
        return False
    place = 1 + _LANES.index(claim.lane)
    now, then = generation(node_class, pool).split("."), claim.generation.split(".")
    return len(now) == len(then) and now[place] != then[place]


def _made_from(node_class: NodeClass, pool: Pool, lane: Lane) -> dict[str, t.Any]:
    """What reaches a machine only when it is made. What chooses machines (requirements, prices, limits) is not in it, nor are labels,
    annotations and taints, which are set again on nodes in use; Talos alone puts its own labels and annotations back."""
    mesh = node_class.mesh
    made: dict[str, t.Any] = {
        "mesh": [mesh.backend, sorted(mesh.tags), mesh.ephemeral, mesh.accept_routes, sorted(mesh.advertise_routes)]
    }
    if mesh.hub is not None:
        # where else addresses come from and who keeps the hub's peers is nothing to the machines that are there
        made["hub"] = _plain(dataclasses.replace(mesh.hub, addresses="", host=""))
    if lane is Lane.SERVICE:
        return {**made, "service": _plain(pool.service)}
    made |= {
        "template": node_class.template,
        "template_ref": _plain(node_class.template_ref),
        "patches": list(node_class.talos_patches),
        "mirrors": {registry: list(urls) for registry, urls in node_class.registry_mirrors.items()},
    }
    if lane is Lane.KUBELET and node_class.guard is not None:
        made["guard"] = _plain(node_class.guard)
    if lane is Lane.TALOS:
        made |= {"image": node_class.talos_image, "schematic": _plain(node_class.talos_schematic)}
        made |= {"labels": dict(pool.labels), "annotations": dict(pool.annotations)}
    return made


def _plain(value: t.Any) -> t.Any:
    """A part of a document without what is as it is without a word: a field that is added later changes no fingerprint."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    usual = {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in dataclasses.fields(value)
    }
    given = {name: getattr(value, name) for name in usual}
    return {name: _plain(entry) for name, entry in given.items() if entry != usual[name]}


def _hash(content: t.Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
