# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub's peers of one cluster, brought in line with a list: first in its file, then on its running interface."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ...core.clock import Clock, to_text
from ...core.errors import InvalidInput
from ...core.redact import register
from . import conf as conf
from .file import HubFile
from .peers import Change, Wish, decide, ours
from .running import HubFailed, Running, RunningPeer

Peers = dict[str, RunningPeer]


@dataclasses.dataclass(frozen=True)
class Order:
    """What shall be. ``apply`` False leaves the interface alone. ``gone``: names of machines that are known to be gone; ``unknown``: of
    those whose peers stay as they are; other peers stay while they are younger than ``keep_younger_than`` seconds."""

    cluster_id: str
    interface: str
    config_file: str
    wanted: tuple[Wish, ...]
    state: str
    apply: bool = True
    allow_mass_delete: bool = False
    gone: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    keep_younger_than: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """``applied``: the interface runs with these peers. ``before`` and ``after`` are the cluster's own sections of the file."""

    change: Change
    changed: bool
    applied: bool
    peers: tuple[dict[str, t.Any], ...]
    warnings: tuple[str, ...]
    before: str
    after: str


def bring_in_line(order: Order, clock: Clock, *, dry: bool = False) -> Outcome:
    """Carry the order out; ``dry`` only says what would be done. Nothing is written when anything is wrong with the order, the file
    or the machine."""
    running = Running(order.interface) if order.apply else None
    file = HubFile(order.config_file)
    file.read()  # no lock file beside a file that is not there
    with contextlib.nullcontext() if dry else file.locked(clock):
        text = file.read()
        change = _decide(order, text, to_text(clock.now()))
        edited = change.text != text
        unfinished = (file.unfinished() | set(change.gone)) - _keys(change.text)
        there = running.peers() if running else None
        behind = there is not None and (edited or _differs(change.text, there, unfinished, order))
        if there is not None and behind:
            _refuse_to_cut_off(set(there) - _keys(text) - _keys(change.text) - unfinished, order)
        if edited and not dry:
            file.remember(unfinished)
            file.write(change.text)
        if running and behind and not dry:
            running.sync(order.config_file)
            there = running.peers()
            if there is None or _differs(change.text, there, unfinished, order):
                raise HubFailed(f"wg syncconf {order.interface} said it was done, and the interface still has other peers.")
        if there is not None and not dry:
            file.remember(())
    return Outcome(
        change=change,
        changed=edited or behind,
        applied=there is not None,
        peers=_results(change.text, there or {}, order),
        warnings=(_down(order),) if running and there is None else (),
        before=_own_text(text, order),
        after=_own_text(change.text, order),
    )


def _decide(order: Order, text: str, now: str) -> Change:
    # first of all: what stands in the file must not be printed, whatever is wrong with it
    register(*(line.partition("=")[2].partition("#")[0].strip() for line in text.splitlines() if conf.is_secret(line)))
    return decide(
        text,
        order.cluster_id,
        order.wanted,
        order.state,
        now,
        gone=order.gone,
        unknown=order.unknown,
        keep_younger_than=order.keep_younger_than,
        allow_mass_delete=order.allow_mass_delete,
    )


def _keys(text: str) -> set[str]:
    return {one.public_key for one in conf.sections(text)}


def _differs(text: str, there: Peers, unfinished: t.Collection[str], order: Order) -> bool:
    """Whether the interface has other peers of this cluster than the file. Those of others are theirs to apply."""
    wanted = {one.public_key: frozenset(map(str, one.allowed)) for one in ours(conf.sections(text), order.cluster_id)}
    return any(key in there for key in unfinished) or any(
        key not in there or there[key].allowed != allowed for key, allowed in wanted.items()
    )


def _refuse_to_cut_off(keys: t.Collection[str], order: Order) -> None:
    """wg syncconf ends every peer that is not in the file, and these are somebody's."""
    if keys:
        raise InvalidInput(
            f"The interface {order.interface} has peers that are not in {order.config_file}, and applying the file would cut them off: "
            f"{', '.join(sorted(keys))}. Nothing was changed.",
            remedy="Write them into the file, or remove each: wg set INTERFACE peer KEY remove.",
        )


def _down(order: Order) -> str:
    return (
        f"The interface {order.interface} is not up on the hub: its file is right, and no machine can connect. "
        f"Start it there: wg-quick up {order.interface}."
    )


def _results(text: str, there: Peers, order: Order) -> tuple[dict[str, t.Any], ...]:
    found = []
    for section in ours(conf.sections(text), order.cluster_id):
        seen = there.get(section.public_key)
        found.append(
            {
                "name": section.owner,
                "public_key": section.public_key,
                "allowed_ips": [str(one) for one in section.allowed],
                "last_handshake": to_text(seen.last_handshake) if seen and seen.last_handshake else None,
                "endpoint": seen.endpoint if seen else None,
            }
        )
    return tuple(found)


def _own_text(text: str, order: Order) -> str:
    """The cluster's sections, without what must not be shown: somebody may have given a peer of ours a key of its own."""
    own = [text[one.start : one.end] for one in ours(conf.sections(text), order.cluster_id)]
    lines = [line for section in own for line in conf.printable(section).split("\n") if line.strip() and not conf.is_secret(line)]
    return "".join(f"{line}\n" for line in lines)
