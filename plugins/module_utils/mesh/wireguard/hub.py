# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub's peers of one cluster, brought in line with a list: first in its file, then on its running interface."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
import shutil
import subprocess
import typing as t
from datetime import datetime, timezone

from ...core.clock import Clock, to_text
from ...core.errors import InvalidInput, TgpError
from ...core.redact import MASK, program_environment, redact, register
from . import conf
from .file import HubFile
from .peers import Change, WantedPeer, decide, ours

# ---- the hub's running interface, by the programs ``wg`` and ``wg-quick``. What they print of private keys never leaves this file

_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_TIMEOUT = 30  # seconds
_KEY = re.compile(r"[A-Za-z0-9+/]{40,}=*")  # wg quotes the line it does not understand
_FORBIDDEN = ("Operation not permitted", "Permission denied")


class HubFailed(TgpError):
    """A program of WireGuard did not do what it was asked for."""

    kind = "wireguard"


@dataclasses.dataclass(frozen=True)
class RunningPeer:
    """``endpoint`` is host:port, None before the peer's first word; so is ``last_handshake``."""

    public_key: str
    allowed: frozenset[str]
    endpoint: str | None
    last_handshake: datetime | None


class Running:
    """One interface. InvalidInput when the programs are not installed."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self._path = os.pathsep.join(filter(None, (os.environ.get("PATH", ""), *_PLACES)))
        missing = [name for name in ("wg", "wg-quick") if not shutil.which(name, path=self._path)]
        if missing:
            raise InvalidInput(
                f"{' and '.join(missing)} cannot be found on this machine; nothing was changed.",
                remedy="Install wireguard-tools on the hub. The task runs on the machine it is sent to: send it to the hub (delegate_to), "
                "or edit the file alone (apply: false).",
            )

    def peers(self) -> dict[str, RunningPeer] | None:
        """Public key → peer; None when there is no such interface now."""
        completed = self._call("wg", "show", self.interface, "dump")
        if completed.returncode:
            words = self._words(completed)
            if any(character in words for character in _FORBIDDEN):
                raise InvalidInput(
                    f"The interface {self.interface} cannot be looked at ({words}); nothing was changed.",
                    remedy="Run as root (become).",
                )
            if "Unable to access interface" in words:
                return None
            raise HubFailed(f"wg show {self.interface} failed: {words}")
        peers = [self._peer(line) for line in completed.stdout.splitlines()[1:]]  # the first line has the hub's private key
        return {peer.public_key: peer for peer in peers}

    def _peer(self, line: str) -> RunningPeer:
        fields = line.split("\t")
        try:
            key, _preshared, endpoint, allowed, handshake, _received, _sent, _keepalive = fields
            return RunningPeer(
                key,
                frozenset(str(ipaddress.ip_network(network)) for network in allowed.split(",") if network != "(none)"),
                None if endpoint == "(none)" else endpoint,
                datetime.fromtimestamp(int(handshake), timezone.utc) if int(handshake) else None,
            )
        except ValueError:
            raise HubFailed(
                f"wg show {self.interface} dump printed a peer with {len(fields)} fields in a form that is not known; nothing was changed."
            ) from None

    def sync(self, config_file: str) -> None:
        """Bring the interface in line with the file. Peers that are equal in both keep their sessions."""
        stripped = self._call("wg-quick", "strip", config_file)
        if stripped.returncode:
            raise self._unapplied("wg-quick strip", stripped)
        completed = self._call("wg", "syncconf", self.interface, "/dev/stdin", given=stripped.stdout)
        if completed.returncode:
            raise self._unapplied("wg syncconf", completed)

    def _unapplied(self, operation: str, completed: subprocess.CompletedProcess[str]) -> HubFailed:
        return HubFailed(
            f"{operation} failed: {self._words(completed)}. The file is written; the interface {self.interface} still has its former peers.",
            remedy="Correct the cause and run again: what the interface lacks is noticed.",
        )

    def _call(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """In a session of its own: wg-quick would ask for a password at the terminal."""
        try:
            return subprocess.run(
                [t.cast(str, shutil.which(words[0], path=self._path)), *words[1:]],
                input=given, capture_output=True, text=True, encoding="utf-8", errors="surrogateescape", check=False,
                timeout=_TIMEOUT, start_new_session=True, env=program_environment({"PATH": self._path, "LC_ALL": "C"}),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HubFailed(f"{' '.join(words[:2])} did not end within {_TIMEOUT} seconds.", remedy="Run again.") from None

    def _words(self, completed: subprocess.CompletedProcess[str]) -> str:
        """The last line a program said, without keys."""
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
        text = lines[-1] if lines else f"no words, status {completed.returncode}"
        return _KEY.sub(MASK, redact(text.encode("utf-8", "backslashreplace").decode()))


# ---- A hub's peers of one cluster, brought in line with a list

Peers = dict[str, RunningPeer]


@dataclasses.dataclass(frozen=True)
class Order:
    """What shall be. ``apply`` False leaves the interface alone. ``gone``: names of machines that are known to be gone; ``unknown``: of
    those whose peers stay as they are; other peers stay while they are younger than ``keep_younger_than`` seconds."""

    cluster_id: str
    interface: str
    config_file: str
    wanted: tuple[WantedPeer, ...]
    state: str
    apply: bool = True
    allow_mass_delete: bool = False
    gone: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    keep_younger_than: int = 0


@dataclasses.dataclass(frozen=True)
class HubOutcome:
    """``applied``: the interface runs with these peers. ``before`` and ``after`` are the cluster's own sections of the file."""

    change: Change
    changed: bool
    applied: bool
    peers: tuple[dict[str, t.Any], ...]
    warnings: tuple[str, ...]
    before: str
    after: str


def bring_in_line(order: Order, clock: Clock, *, dry: bool = False) -> HubOutcome:
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
    return HubOutcome(
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
    return {section.public_key for section in conf.sections(text)}


def _differs(text: str, there: Peers, unfinished: t.Collection[str], order: Order) -> bool:
    """Whether the interface has other peers of this cluster than the file. Those of others are theirs to apply."""
    wanted = {section.public_key: frozenset(map(str, section.allowed)) for section in ours(conf.sections(text), order.cluster_id)}
    return any(key in there for key in unfinished) or any(
        key not in there or there[key].allowed != allowed for key, allowed in wanted.items()
    )


def _refuse_to_cut_off(keys: t.Collection[str], order: Order) -> None:
    """wg syncconf removes every peer that is not in the file, and these are not ours."""
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
    results = []
    for section in ours(conf.sections(text), order.cluster_id):
        seen = there.get(section.public_key)
        results.append(
            {
                "name": section.owner,
                "public_key": section.public_key,
                "allowed_ips": [str(network) for network in section.allowed],
                "last_handshake": to_text(seen.last_handshake) if seen and seen.last_handshake else None,
                "endpoint": seen.endpoint if seen else None,
            }
        )
    return tuple(results)


def _own_text(text: str, order: Order) -> str:
    """The cluster's sections, without what must not be shown: an administrator may have given a peer of ours a key of its own."""
    own = [text[section.start : section.end] for section in ours(conf.sections(text), order.cluster_id)]
    lines = [line for section in own for line in conf.printable(section).split("\n") if line.strip() and not conf.is_secret(line)]
    return "".join(f"{line}\n" for line in lines)
