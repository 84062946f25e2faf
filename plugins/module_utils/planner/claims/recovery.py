# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run does with a claim it finds: there is no separate path for crashes (L-2)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...model import Claim, Instance, Phase
from ...units.durations import print_time

UNKNOWN_WINDOW: t.Final = 600  # seconds after a create call without an answer in which its machine may still be listed (L-2)
RETRY = ("launch", "next_offer")  # what is to be done with a claim whose create call certainly made nothing


@dataclasses.dataclass(frozen=True, slots=True)
class Recovery:
    """``what`` to do: launch (send the create call), wait (its outcome is still open), next_offer (it certainly made nothing), adopt
    (the machine is there, its id is not in the claim yet), go_on (known and there), missing (known, but not listed), teardown (being
    deleted or failed), unknown (the cloud's list could not be read, or the machine that the claim knows is foreign).

    ``instance`` is the claim's machine; ``duplicates`` are others of its name, or left behind by refused calls, to be destroyed.
    """

    what: str
    why: str
    instance: Instance | None = None
    duplicates: tuple[Instance, ...] = ()


class Instances:
    """One cloud's usable list, found by id and by name. Machines that are gone are left out. ``foreign``: ids that are not ours."""

    def __init__(self, instances: t.Iterable[Instance], foreign: t.Collection[str] = ()) -> None:
        self.foreign = frozenset(foreign)
        self.all = tuple(sorted((instance for instance in instances if not instance.gone), key=lambda instance: instance.id))
        self.by_id = {instance.id: instance for instance in self.all}
        self.by_name: dict[str, list[Instance]] = collections.defaultdict(list)
        for instance in self.all:
            self.by_name[instance.name].append(instance)

    def of(self, claim: Claim) -> tuple[Instance, ...]:
        """Every machine of the claim, the one to keep first: the one whose id it knows, else the oldest. Foreign ones are none of it."""
        instances = {instance.id: instance for instance in self.by_name.get(claim.name, ())}
        for known in (claim.instance_id, *claim.ids_seen):
            if known in self.by_id:
                instances[known] = self.by_id[known]
        for foreign in self.foreign & instances.keys():
            del instances[foreign]
        return tuple(
            sorted(instances.values(), key=lambda instance: (instance.id != claim.instance_id, _age(instance), instance.id))
        )


def recovery(claim: Claim, instances: Instances | t.Sequence[Instance] | None, now: datetime) -> Recovery:
    """What to do with ``claim``. ``instances``: its cloud's complete list, None = could not be read."""
    ending = claim.phase in (Phase.TERMINATING, Phase.FAILED)
    reason = claim.deletion.reason if claim.deletion else claim.phase.value
    if instances is None:
        return Recovery("teardown" if ending else "unknown", f"the machines of {claim.cloud} could not be listed")
    listed = instances if isinstance(instances, Instances) else Instances(instances)
    if claim.instance_id in listed.foreign:
        return Recovery("unknown", f"{claim.cloud} {claim.instance_id} is not ours")
    everything = listed.of(claim)
    found = tuple(instance for instance in everything if instance.id not in claim.rejects)
    left = tuple(instance for instance in everything if instance.id in claim.rejects)
    if ending:
        return Recovery("teardown", reason, found[0] if found else None, (*found[1:], *left))
    if found:
        return _found(claim, found, left)
    if claim.instance_id:
        return Recovery("missing", f"{claim.cloud} does not list {claim.instance_id}")
    if claim.launch_started is None:
        return Recovery("launch", "no create call was sent", duplicates=left)
    if claim.attempts and claim.attempts[-1].result == "refused" and claim.attempts[-1].instance_id:
        return Recovery("launch", f"the refused call left {claim.attempts[-1].instance_id}, which goes first", duplicates=left)
    since = claim.unknown_since or claim.launch_started
    until = since + timedelta(seconds=UNKNOWN_WINDOW)
    if now < until:
        return Recovery("wait", f"the create call may still show its effect; waiting until {print_time(until)}")
    return Recovery("next_offer", f"no machine appeared since {print_time(since)}")


def _found(claim: Claim, instances: tuple[Instance, ...], left: tuple[Instance, ...]) -> Recovery:
    keep, *others = (*instances, *left)
    if keep.id == claim.instance_id:
        return Recovery("go_on", f"{claim.cloud} says {keep.state.value}", keep, tuple(others))
    return Recovery("adopt", f"{claim.cloud} lists {keep.id} under this name", keep, tuple(others))


def _age(instance: Instance) -> tuple[bool, float]:
    """Oldest first; unknown ages last."""
    return (instance.created is None, instance.created.timestamp() if instance.created else 0.0)
