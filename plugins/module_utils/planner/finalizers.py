# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finalizers of documents that are objects of the cluster (L-33): a deleted object stays until its machines have ended.

The finalizer is set before the first machine of an object is rented, and is removed once the object is deleted and nothing of it is left.
A claim ends only when its machine is proven gone, so an object with a failing cleanup stays.
"""

from __future__ import annotations

import typing as t

from ..model import Claim, DamagedClaim, Specs, StatusObject
from ..model.labels import FINALIZERS

_SHOWN = 5


class FinalizerChange(t.NamedTuple):
    """The finalizers that an object is to have."""

    one: StatusObject
    finalizers: tuple[str, ...]


def is_held(one: StatusObject) -> bool:
    """Whether the object has our finalizer."""
    return FINALIZERS[one.kind] in one.finalizers


def changes(specs: Specs, claims: t.Sequence[Claim], damaged: t.Sequence[DamagedClaim] = ()) -> list[FinalizerChange]:
    """What has to be written. ``claims`` are all that exist or are about to be acted on. One that is damaged holds the objects of its pool and
    class, and all objects where it names neither."""
    found = []
    for one in specs.objects:
        if is_held(one) != one.deleted:
            continue  # a deleted object takes no new finalizer, and one that is not keeps it
        needed = bool(waits_for(one, specs, claims, damaged))
        if needed and not one.deleted:
            found.append(FinalizerChange(one, (*one.finalizers, FINALIZERS[one.kind])))
        elif one.deleted and not needed:
            found += releases([one])
    return found


def releases(objects: t.Iterable[StatusObject]) -> list[FinalizerChange]:
    """Our finalizers taken from all objects that have one; those of others stay."""
    return [
        FinalizerChange(one, tuple(name for name in one.finalizers if name != FINALIZERS[one.kind]))
        for one in objects
        if is_held(one)
    ]


def waits_for(
    one: StatusObject, specs: Specs, claims: t.Sequence[Claim], damaged: t.Sequence[DamagedClaim] = ()
) -> tuple[str, ...]:
    """What must end before the object may go, in words: machines; for a class its pools and requests as well."""
    if one.kind == "GPUNodeClass":
        pools = [f"{key} that uses it" for key in sorted(pool.key for pool in specs.described if pool.node_class == one.key)]
        faulty = [key for key in sorted(specs.paused) if one.deleted and specs.pool_of(key) is None]
        pools += [f"{key}, whose document has faults and may use it" for key in faulty]
        machines = [claim for claim in claims if claim.node_class == one.key]
        unread = [record for record in damaged if record.node_class in ("", one.key)]
        unlisted = any(source.problem and not source.quiet for source in specs.sources.values())
    else:
        pools = []
        machines = [claim for claim in claims if claim.pool == one.key and not _stays(claim)]
        unread = [record for record in damaged if record.pool in ("", one.key)]
        unlisted = False
    return (
        *pools,
        *(f"{claim.name} ({claim.phase.value})" for claim in sorted(machines, key=lambda claim: claim.name)),
        *(f"{record.where}, which cannot be read" for record in unread),
        *(("documents that could not be read",) if unlisted else ()),
    )


def waiting(things: t.Sequence[str]) -> str:
    """The sentence about a deleted object."""
    if not things:
        return "The object is being deleted. Nothing of it is left; the next run removes its finalizer."
    more = f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else ""
    return f"The object is being deleted. It waits for the end of {', '.join(things[:_SHOWN])}{more}."


def _stays(claim: Claim) -> bool:
    """Whether it outlives its document (orphanedPolicy: Keep, L-25)."""
    return claim.deletion is None and claim.limits is not None and claim.limits.orphaned_policy == "Keep"
