# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a machine is (L-1a). Every decision that adopts, returns, prefers or ends a machine asks this one function."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing as t

from ...core.errors import BadShape, InvalidInput
from ...model import Capability, Claim, HandedOut, Instance
from ...model.labels import CLUSTER_LABEL, GENERATION_LABEL
from ...model.names import PATTERN
from ...units.values import parse_time, print_time

CLUSTER_MARKS = (CLUSTER_LABEL, "tgp:cluster", "cluster")
PREFIX = "tgp-"  # of the names of our machines
GENERATION_MARKS = (GENERATION_LABEL, "tgp:generation", "generation")


class Ownership(str, enum.Enum):
    """Whose a name is. OURS alone is not enough to delete: the pattern is ambiguous, so age and two runs, or a claim, must agree."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNRELATED = "unrelated"


class Proof(str, enum.Enum):
    """What an answer rests on. NAME: this provider cannot carry a stamp, so the name is all there is."""

    STAMP = "stamp"
    CLAIM = "claim"
    NAME = "name"


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """What a record store says of itself: the cluster it belongs to, its generations (new machines are stamped with the first), the machines
    that its claims know, and those that it handed out (L-48), as (cloud, id)."""

    cluster_id: str
    generations: tuple[str, ...] = ()
    claimed: frozenset[tuple[str, str]] = frozenset()
    released: frozenset[tuple[str, str]] = frozenset()


class Owner(t.NamedTuple):
    """``why`` a machine with our name is foreign, as the end of a sentence about it. ``generation``: the other generation that made it;
    ``cluster``: the other cluster whose stamp it carries."""

    ownership: Ownership
    proof: Proof | None = None
    why: str = ""
    generation: str = ""
    cluster: str = ""


def claimed(claims: t.Iterable[Claim]) -> frozenset[tuple[str, str]]:
    """Every (cloud, id) that claims know: their machines, second ones under their names, and what refused create calls left behind."""
    pairs: set[tuple[str, str]] = set()
    for claim in claims:
        pairs |= {(claim.cloud, instance_id) for instance_id in (claim.instance_id, *claim.ids_seen) if instance_id}
        pairs |= {(attempt.offer.partition("/")[0], attempt.instance_id) for attempt in claim.attempts if attempt.instance_id}
    return frozenset(pairs)


def ids_of(released: t.Iterable[HandedOut]) -> frozenset[tuple[str, str]]:
    """The (cloud, id) of machines that were handed out."""
    return frozenset((one.cloud, one.id) for one in released)


def owner_of(instance: Instance, capability: Capability | None, store: Store) -> Owner:
    """Ours by stamp, else by a claim for its id, else (where no stamp is possible) by name. A stamp that contradicts wins over all.

    What was handed out is not ours any more, whatever it carries. Stamps without a generation are those of version 0.1: such a machine is ours
    while a claim for its id is in this store."""
    named = ownership_of(instance.name, store.cluster_id)
    is_claimed = (instance.cloud, instance.id) in store.claimed
    if named is not Ownership.OURS and not is_claimed:
        return Owner(named, why="belongs to another cluster" if named is Ownership.FOREIGN else "")
    if (instance.cloud, instance.id) in store.released:
        return Owner(Ownership.FOREIGN, why="was handed out with release.yml")
    cluster, generation = _mark(instance, CLUSTER_MARKS), _mark(instance, GENERATION_MARKS)
    if cluster and cluster != store.cluster_id:
        return Owner(Ownership.FOREIGN, why=f"carries the stamp of cluster {cluster}", cluster=cluster)
    if generation and generation not in store.generations:
        return Owner(
            Ownership.FOREIGN, why=f"carries the stamp of another record store (generation {generation})", generation=generation
        )
    if generation and cluster:
        return Owner(Ownership.OURS, Proof.STAMP)
    if is_claimed:
        return Owner(Ownership.OURS, Proof.CLAIM)
    if capability is None or not capability.stamped:
        return Owner(Ownership.OURS, Proof.NAME)
    if cluster and not store.generations:
        return Owner(Ownership.OURS, Proof.STAMP)
    missing = "no generation in its stamp" if cluster else "no stamp of ours"
    return Owner(Ownership.FOREIGN, why=f"has a name of this cluster, {missing} and no claim")


def stamp_of(instance: Instance) -> tuple[str, str]:
    """The cluster and the generation that a machine is stamped with, whatever it is called; empty where it has no stamp."""
    return _mark(instance, CLUSTER_MARKS), _mark(instance, GENERATION_MARKS)


def made_here(instance: Instance, capability: Capability, *, recorded: bool = False) -> bool:
    """Whether a machine of a module's free name was made by this collection: it carries our stamp, and not that of another machine or, where
    the name is one of a cluster's machines, of another cluster. Where a cloud can carry none, it is ours when its name begins as ours do, or
    when this host has ``recorded`` its launch (L-1a)."""
    if not capability.tags:
        return recorded or instance.name.startswith(PREFIX)
    cluster = _mark(instance, CLUSTER_MARKS)
    if cluster and ownership_of(instance.name, cluster) is Ownership.FOREIGN:
        return False
    return bool(instance.marks) and instance.marks.get("node", instance.name) == instance.name


def generations_of(record: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The generations that a store's record names, the current one first; empty when none was drawn yet. InvalidInput for an odd one."""
    if not record:
        return ()
    generations = (record.get("generation"), *(record.get("earlier") or ()))
    if not all(isinstance(entry, str) and entry for entry in generations):
        raise InvalidInput("its field generation must be a text, and earlier a list of texts")
    return tuple(dict.fromkeys(generations))


def remembered(claims: t.Iterable[Claim]) -> str:
    """The generation that most claims of a store were launched with: that of a store whose own record of it was removed."""
    count = collections.Counter(claim.store_generation for claim in claims if claim.store_generation)
    return max(sorted(count), key=lambda generation: count[generation], default="")


def _mark(instance: Instance, keys: tuple[str, ...]) -> str:
    return next((instance.marks[key] for key in keys if instance.marks.get(key)), "")


def ownership_of(name: str, cluster_id: str) -> Ownership:
    """Ours, another cluster's, or none of our names."""
    match = PATTERN.fullmatch(name)
    if match is None:
        return Ownership.UNRELATED
    return Ownership.OURS if match["cluster"] == cluster_id else Ownership.FOREIGN


# ---- what was handed out (L-48)

RELEASED = "released"  # the record of machines that were handed out


def read_released(state: t.Mapping[str, t.Any]) -> tuple[HandedOut, ...]:
    """The machines of the record. BadShape when one of them is not understood."""
    found = []
    for key, entry in sorted(state.items()):
        cloud, _slash, instance_id = key.partition("/")
        try:
            found.append(HandedOut(cloud, _text(instance_id), _text(entry["name"]), parse_time(entry["time"])))
        except (InvalidInput, KeyError, TypeError, ValueError):
            raise BadShape(
                f"The record tgp-state-{RELEASED} beside the claims is not understood at {key!r}, so nobody can say which machines are ours.",
                remedy='Repair it: {"<provider>/<id>": {"name": …, "time": …}} for each machine that release.yml handed out.',
                service="claims",
                record=RELEASED,
            ) from None
    return tuple(found)


def _text(value: t.Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return value


def written_released(released: t.Iterable[HandedOut]) -> dict[str, t.Any]:
    """The record of these machines."""
    return {f"{one.cloud}/{one.id}": {"name": one.name, "time": print_time(one.time)} for one in released}
