# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's running interface, by the programs ``wg`` and ``wg-quick``. What they print of private keys never leaves this file."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import shutil
import subprocess
import typing as t
from datetime import datetime, timezone

from ...core.errors import InvalidInput, TgpError
from ...core.programs import environment
from ...core.redact import MASK, redact

_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PATIENCE = 30  # seconds
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
        done = self._call("wg", "show", self.interface, "dump")
        if done.returncode:
            words = self._words(done)
            if any(one in words for one in _FORBIDDEN):
                raise InvalidInput(
                    f"The interface {self.interface} cannot be looked at ({words}); nothing was changed.",
                    remedy="Run as root (become).",
                )
            if "Unable to access interface" in words:
                return None
            raise HubFailed(f"wg show {self.interface} failed: {words}")
        found = [self._peer(line) for line in done.stdout.splitlines()[1:]]  # the first line has the hub's private key
        return {one.public_key: one for one in found}

    def _peer(self, line: str) -> RunningPeer:
        fields = line.split("\t")
        try:
            key, _preshared, endpoint, allowed, handshake, _received, _sent, _keepalive = fields
            return RunningPeer(
                key,
                frozenset(str(ipaddress.ip_network(one)) for one in allowed.split(",") if one != "(none)"),
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
        done = self._call("wg", "syncconf", self.interface, "/dev/stdin", given=stripped.stdout)
        if done.returncode:
            raise self._unapplied("wg syncconf", done)

    def _unapplied(self, what: str, done: subprocess.CompletedProcess[str]) -> HubFailed:
        return HubFailed(
            f"{what} failed: {self._words(done)}. The file is written; the interface {self.interface} still has its former peers.",
            remedy="Correct the cause and run again: what the interface lacks is noticed.",
        )

    def _call(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """In a session of its own: wg-quick would ask for a password at the terminal."""
        try:
            return subprocess.run(
                [t.cast(str, shutil.which(words[0], path=self._path)), *words[1:]],
                input=given, capture_output=True, text=True, encoding="utf-8", errors="surrogateescape", check=False,
                timeout=_PATIENCE, start_new_session=True, env=environment({"PATH": self._path, "LC_ALL": "C"}),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HubFailed(f"{' '.join(words[:2])} did not end within {_PATIENCE} seconds.", remedy="Run again.") from None

    def _words(self, done: subprocess.CompletedProcess[str]) -> str:
        """The last line a program said, without keys."""
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        text = lines[-1] if lines else f"no words, status {done.returncode}"
        return _KEY.sub(MASK, redact(text.encode("utf-8", "backslashreplace").decode()))
