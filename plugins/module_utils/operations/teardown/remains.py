# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of a machine elsewhere once it is gone: its mesh device, and what its cloud keeps beside machines (L-10)."""

from __future__ import annotations

from ...core.errors import Conflict
from ...mesh.find import find_device
from ...model import Claim, Extra
from ...observe.context import Context
from ...observe.shared_list import Feed
from ...providers.registry import CAPABILITIES


def delete_device(context: Context, claim: Claim) -> None:
    """Remove the claim's mesh device: by the id on record, else the one of its name that is not older than the claim."""
    mesh, device_id = context.mesh(), claim.mesh_device_id
    if mesh is not None and not device_id:
        found = find_device(mesh.devices(), hostname=claim.name, tags=context.mesh_tags(claim), created_after=claim.created)
        device_id = found.device.id if found.device else ""
    if mesh is not None and device_id:
        mesh.delete_device(device_id)


def extras_of(context: Context, claim: Claim) -> list[Extra] | None:
    """What the cloud keeps beside machines under the claim's name; None when that could not be read. A claim that made no call has
    nothing; what its refused calls may have left is found by later runs as leftovers."""
    name = claim.cloud
    if not CAPABILITIES[name].rented or not (claim.ids_seen or claim.launch_started):
        return []
    feed: Feed[Extra] = context.once(("extras", name), lambda: Feed(context.cloud(name).extras, context.clock))
    listed = feed.items()
    return None if listed is None else [one for one in listed if one.name == claim.name]


def discard_extras(context: Context, claim: Claim) -> str:
    """Remove them; what was in the way, empty when nothing was. The next run goes on."""
    for extra in extras_of(context, claim) or ():
        try:
            context.cloud(claim.cloud).discard(extra)
        except Conflict as error:
            return f"its {extra.kind} {extra.id} is still held: {error}"
        context.progress.step(claim.name, "removed", f"{extra.kind} {extra.id}", cloud=claim.cloud)
    return ""
