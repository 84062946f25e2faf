# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name and stamp of a machine that runs already, as far as its cloud can change them (the fact ``restamps``)."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Claim, Instance
from ...planner.claims.moving import former
from ...providers.base import Cloud, Restamps
from ...providers.registry import CAPABILITIES


@dataclasses.dataclass(frozen=True)
class Stamp:
    """What a machine is to be called and to carry. ``text`` says what changes."""

    name: str
    marks: t.Mapping[str, str]
    text: str

    def write(self, cloud: Cloud, instance_id: str) -> None:
        t.cast(Restamps, cloud).restamp(instance_id, self.name, self.marks)


def stamp_of_claim(claim: Claim, instance: Instance, cluster_id: str) -> Stamp | None:
    """That of a machine of ours; None when it has it."""
    marks = {
        "cluster": cluster_id,
        "generation": claim.store_generation,
        "pool": claim.pool,
        "nonce": claim.name,
        "created": str(int(claim.created.timestamp())),
    }
    return _difference(instance, claim.name, marks)


def former_stamp(claim: Claim, instance: Instance) -> Stamp | None:
    """That of a machine that is ours no more: none; None when that is so."""
    return _difference(instance, former(claim.name), {})


def _difference(instance: Instance, name: str, marks: t.Mapping[str, str]) -> Stamp | None:
    restamps = CAPABILITIES[instance.cloud].restamps
    changes = []
    if "name" in restamps and instance.name != name:
        changes.append(f"it is called {name} instead of {instance.name or 'nothing'}")
    if "marks" in restamps and dict(instance.marks) != dict(marks):
        changes.append("it has the stamp of this cluster" if marks else "it has no stamp of this cluster")
    return Stamp(name, marks, ", ".join(changes)) if changes else None
