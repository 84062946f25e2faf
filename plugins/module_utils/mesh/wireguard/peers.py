# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which peers of one cluster a hub shall have, and what that makes of its file. Nothing is read or written here."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import typing as t

from ...core.clock import from_text
from ...core.errors import InvalidInput, TgpError
from ...model.defaults import Settings
from ...model.names import CLUSTER_ID
from ...planner.garbage_collection import mass_deletion_guard
from ...planner.garbage_collection.ownership import Ownership, ownership_of
from ...planner.provisioning.wireguard_rules import is_key
from ...units.values import Network, overlap
from . import conf
from .conf import Section


class GuardRefused(TgpError):
    """More peers would go at once than a right reading makes likely (L-12)."""

    kind = "guard_refused"


@dataclasses.dataclass(frozen=True)
class WantedPeer:
    """One machine's peer. With state absent key and networks may be missing."""

    name: str
    public_key: str
    allowed: tuple[Network, ...]

    def met_by(self, section: Section) -> bool:
        return self.public_key == section.public_key and sorted(map(str, self.allowed)) == sorted(map(str, section.allowed))


@dataclasses.dataclass(frozen=True)
class Change:
    """``text`` is the new file. ``added`` are names that are new or have another key or networks than before, ``gone`` the keys that
    the file had before and does not have any more."""

    text: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def specs(cluster_id: str, peers: t.Sequence[t.Mapping[str, t.Any]], state: str) -> list[WantedPeer]:
    """The given peers, checked. Raises InvalidInput with every fault in them."""
    problems = [] if CLUSTER_ID.fullmatch(cluster_id) else [f'cluster_id "{cluster_id}": eight characters of 0-9 and a-f are one.']
    wanted = []
    for peer in peers:
        name, key, texts = str(peer["name"]), peer.get("public_key"), peer.get("allowed_ips")
        if ownership_of(name, cluster_id) is not Ownership.OURS:
            problems.append(f'"{name}" is not a machine name of cluster {cluster_id} (tgp-{cluster_id}-<pool>-<five characters>).')
        if (key or state != "absent") and not is_key(str(key or "")):
            problems.append(f"{name}: public_key is not a WireGuard key (32 bytes in base64).")
        if not texts and state != "absent":
            problems.append(f"{name}: allowed_ips is missing, for instance [10.77.0.11/32].")
        wanted.append(WantedPeer(name, str(key or ""), tuple(_networks(name, texts or (), problems))))
    problems += _twice(wanted)
    if problems:
        raise InvalidInput("The peers cannot be set like this; nothing was changed.", problems=problems)
    return wanted


def _networks(name: str, texts: t.Sequence[str], problems: list[str]) -> t.Iterator[Network]:
    for text in texts:
        try:
            if "/" not in text:
                problems.append(f"{name}: {text} has no prefix length; one address is {text}/32, or /128 for IPv6.")
            else:
                yield ipaddress.ip_network(text)
        except ValueError as error:
            problems.append(f"{name}: {error}.")


def _twice(peers: t.Sequence[WantedPeer]) -> t.Iterator[str]:
    for number, peer in enumerate(peers):
        for other in peers[:number]:
            if peer.name == other.name:
                yield f"{peer.name} is given twice."
            if peer.public_key and peer.public_key == other.public_key:
                yield f"{peer.name} and {other.name} have the same public_key."
            if net := _shared(peer.allowed, other.allowed):
                yield f"{peer.name} and {other.name} have both {net}."


def _shared(first: t.Iterable[Network], second: t.Collection[Network]) -> Network | None:
    """A network of ``first`` that overlaps one of ``second``."""
    return next((net for net in first for its in second if overlap(net, its)), None)


def ours(sections: t.Iterable[Section], cluster_id: str) -> list[Section]:
    """The peers whose comment carries a machine name of this cluster."""
    return [section for section in sections if section.kind == "peer" and ownership_of(section.owner, cluster_id) is Ownership.OURS]


def decide(
    text: str,
    cluster_id: str,
    wanted: t.Sequence[WantedPeer],
    state: str,
    created: str,
    *,
    gone: t.Collection[str] = (),
    unknown: t.Collection[str] = (),
    keep_younger_than: int = 0,
    allow_mass_delete: bool = False,
) -> Change:
    """What the file becomes. ``created`` (RFC 3339) is now, for the comments of new peers. ``gone``: machines that are known to be gone, of
    which any number may leave at once. ``unknown``: machines whose record cannot be read; their peers stay as they are, and so do peers
    that are younger than ``keep_younger_than`` seconds, unless their machines are known to be gone.

    Raises InvalidInput when the file is none that may be edited or a spec collides with what stays in it, GuardRefused when state
    exact would remove too many at once.
    """
    sections = _checked(text)
    mine = ours(sections, cluster_id)
    names = {spec.name for spec in wanted}
    if state == "absent":
        leaving = [section for section in mine if section.owner in names]
        _as_given(leaving, wanted)
        new: list[WantedPeer] = []
        met: list[WantedPeer] = []
    else:
        met = [spec for spec in wanted if [spec.met_by(section) for section in mine if section.owner == spec.name] == [True]]
        new = [spec for spec in wanted if spec not in met]
        renewed = {spec.name for spec in new}
        stay = (
            names
            | set(unknown)
            | {section.owner for section in mine if section.owner not in gone and _age(section, created) < keep_younger_than}
        )
        leaving = [section for section in mine if section.owner in renewed or (state == "exact" and section.owner not in stay)]
    removed = sorted({section.owner for section in leaving} - {spec.name for spec in new})
    if state == "exact":
        _guarded(len(set(removed) - set(gone)), len({section.owner for section in mine} - set(gone)), allow_mass_delete)
    staying = [section for section in sections if section not in leaving]
    _refuse_collisions(new, staying)
    changed = _edited(text, leaving, new, created)
    keys = {section.public_key for section in conf.sections(changed)}
    return Change(
        changed,
        tuple(spec.name for spec in new),
        tuple(removed),
        tuple(sorted({section.owner for section in mine} - {section.owner for section in leaving})),
        tuple(sorted({section.public_key for section in leaving} - keys)),
    )


def _age(section: Section, now: str) -> float:
    """Seconds since the peer was added, by the hub's own clock; infinite where its comment does not say, or names the future."""
    try:
        age = (from_text(now) - from_text(section.created)).total_seconds()
    except ValueError:
        return math.inf
    return age if age >= 0 else math.inf


def _checked(text: str) -> list[Section]:
    """The sections of a file that may be edited."""
    try:
        sections = conf.sections(text)
        for section in sections:
            _ = section.allowed
    except conf.Unreadable as error:
        raise InvalidInput(f"The hub's file is not edited: {error}", remedy="Correct it; wg-quick strip tells more.") from None
    interfaces = [section for section in sections if section.kind == "interface"]
    if not interfaces:
        raise InvalidInput(
            "The hub's file has no [Interface] section; nothing was changed.",
            remedy="Set the hub up first: its PrivateKey, ListenPort and Address stand there.",
        )
    if any(value.lower() == "true" for interface in interfaces for value in interface.values("saveconfig")):
        raise InvalidInput(
            "The hub's file has SaveConfig = true: wg-quick would write over every edit, and drop the comments that say whose a peer is.",
            remedy="Remove that line, then run again.",
        )
    return sections


def _as_given(leaving: t.Iterable[Section], wanted: t.Iterable[WantedPeer]) -> None:
    """Whoever gives more than names to remove shall mean the peers that are there."""
    given = {spec.name: spec for spec in wanted}
    problems = []
    for section in leaving:
        spec = given[section.owner]
        if spec.public_key not in ("", section.public_key) or (spec.allowed and set(spec.allowed) != set(section.allowed)):
            problems.append(f"{section.owner} is in line {section.line} with another key or other networks.")
    if problems:
        raise InvalidInput("The hub has other peers than those that shall be removed; nothing was changed.", problems=problems)


def _guarded(planned: int, total: int, allow_mass_delete: bool) -> None:
    if not mass_deletion_guard.allowed(planned, total, Settings(allow_mass_delete=allow_mass_delete)):
        raise GuardRefused(mass_deletion_guard.refusal("wireguard peers", planned, total))


def _refuse_collisions(new: t.Sequence[WantedPeer], staying: t.Sequence[Section]) -> None:
    problems = []
    own = conf.addresses(staying)
    for spec in new:
        if net := _shared(spec.allowed, own):
            problems.append(f"{spec.name}: {net} has the hub's own address in it.")
        for section in staying:
            whose = f"the peer in line {section.line}" + (f", {conf.printable(section.owner)}" if section.owner else "")
            if section.kind == "peer" and section.public_key == spec.public_key:
                problems.append(f"{spec.name}: its public_key belongs to {whose}.")
            elif net := _shared(spec.allowed, section.allowed):
                problems.append(f"{spec.name}: {net} is, or overlaps, an address of {whose}.")
    if problems:
        raise InvalidInput("The peers collide with others on the hub; nothing was changed.", problems=problems)


def _edited(text: str, leaving: t.Sequence[Section], new: t.Sequence[WantedPeer], created: str) -> str:
    """From the end to the beginning, so that offsets hold. A renewed peer keeps its place, a new one goes to the end."""
    blocks = {spec.name: conf.peer_text(spec.name, created, spec.public_key, spec.allowed) for spec in new}
    places = {section.owner: section for section in reversed(leaving)}  # of several sections of one machine the first is its place
    for section in reversed(leaving):
        if section.owner in blocks and places[section.owner] is section:
            text = conf.replaced(text, section, blocks.pop(section.owner))
        else:
            text = conf.without(text, section)
    for block in blocks.values():
        text = conf.appended(text, block)
    return text
