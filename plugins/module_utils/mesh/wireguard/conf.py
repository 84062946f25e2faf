# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of wg-quick as text: what stands where in it, and edits that leave every other byte as it is.

A peer of ours carries its machine's name in a comment right at the beginning of its section, ``# tgp: <machine> <RFC 3339>``; a peer
without one is not ours. A section ends with its last setting: comments and empty lines behind that belong to what follows.
"""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import re
import typing as t

from ...core.errors import lazy
from ...planner.provisioning.wireguard_rules import is_key
from ...units.values import Network

if t.TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = lazy("cryptography.hazmat.primitives.asymmetric.x25519")


SECRET = ("privatekey", "presharedkey")
_OWNER = re.compile(r"\s*#\s*tgp:\s*(?P<name>\S+)(?:\s+(?P<created>\S+))?\s*")
_SECTIONS = {"[interface]": "interface", "[peer]": "peer"}


class Unreadable(ValueError):
    """The text is not a file of wg-quick; the sentence says where and why, and never quotes a secret."""


@dataclasses.dataclass(frozen=True)
class Section:
    """``start`` and ``end`` are offsets in the text, ``line`` counts from 1. ``settings`` are (name in lower case, value without
    whitespace). ``owner`` is the machine's name in the comment, "" without one, or with several."""

    kind: str
    line: int
    start: int
    end: int
    settings: tuple[tuple[str, str], ...]
    owner: str = ""
    created: str = ""

    def values(self, name: str) -> list[str]:
        """All values of a setting, of lists each part."""
        return [part for key, value in self.settings if key == name for part in value.split(",") if part]

    @property
    def public_key(self) -> str:
        """The last one counts, as for wg."""
        return (self.values("publickey") or [""])[-1]

    @property
    def allowed(self) -> tuple[Network, ...]:
        """Networks of AllowedIPs, without bits beyond their prefix, as WireGuard takes them. Raises Unreadable."""
        return tuple(self._network(text) for text in self.values("allowedips"))

    def _network(self, text: str) -> Network:
        try:
            return ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise Unreadable(f"AllowedIPs of the peer in line {self.line} cannot be read: {printable(text)}.") from None


def printable(text: str) -> str:
    """A part of a file for a message or a result: bytes that are no UTF-8 are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def sections(text: str) -> list[Section]:
    """The sections in their order. Raises Unreadable when the text has another section than [Interface] and [Peer], or a peer without
    a key: wg would refuse the whole file."""
    parsed: list[Section] = []
    reading: _OpenSection | None = None
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        length = len(line) + 1
        bare = "".join(line.partition("#")[0].split())
        if bare.startswith("["):
            if reading is not None:
                parsed.append(reading.done())
            kind = _SECTIONS.get(bare.lower())
            if kind is None:
                raise Unreadable(f"Line {number} begins a section that WireGuard does not have.")
            reading = _OpenSection(kind, number, offset, min(offset + length, len(text)))
        elif reading is not None:
            reading.take(line, bare, min(offset + length, len(text)))
        offset += length
    if reading is not None:
        parsed.append(reading.done())
    return parsed


@dataclasses.dataclass
class _OpenSection:
    """A section whose end has not come yet. Only comments between its header and its first setting count."""

    kind: str
    line: int
    start: int
    end: int
    settings: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    owners: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def take(self, line: str, bare: str, end: int) -> None:
        if bare:
            name, _equals, value = bare.partition("=")
            self.settings.append((name.lower(), value))
            self.end = end
        elif not self.settings and (match := _OWNER.fullmatch(line)):
            self.owners.append((match["name"], match["created"] or ""))

    def done(self) -> Section:
        owner, created = self.owners[0] if len(self.owners) == 1 else ("", "")
        section = Section(self.kind, self.line, self.start, self.end, tuple(self.settings), owner, created)
        if self.kind == "peer" and not section.public_key:
            raise Unreadable(f"The peer in line {self.line} has no PublicKey.")
        return section


def is_secret(line: str) -> bool:
    """Whether a line sets what must never be printed."""
    return "".join(line.partition("=")[0].split()).lower() in SECRET


def addresses(parsed: t.Iterable[Section]) -> list[Network]:
    """The interface's own addresses, each as a network of one. What wg-quick would not take is left out: it is not ours to judge."""
    own: list[Network] = []
    for section in parsed:
        for text in section.values("address") if section.kind == "interface" else ():
            try:
                own.append(ipaddress.ip_network(ipaddress.ip_interface(text).ip))
            except ValueError:
                continue
    return own


def peer_text(name: str, created: str, public_key: str, allowed: t.Sequence[Network]) -> str:
    """The section of a peer of ours."""
    nets = ", ".join(str(network) for network in allowed)
    return f"[Peer]\n# tgp: {name} {created}\nPublicKey = {public_key}\nAllowedIPs = {nets}\n"


def appended(text: str, block: str) -> str:
    """``text`` with one more section at its end. What :func:`without` makes of that is ``text`` again."""
    return f"{text}\n{block}"


def replaced(text: str, section: Section, block: str) -> str:
    """``text`` with ``block`` in the place of ``section``."""
    return text[: section.start] + block + text[section.end :]


def without(text: str, section: Section) -> str:
    """``text`` without the section, and without the empty line that :func:`appended` put before it. Where that was the end of a last
    line without one, it stays as long as anything follows."""
    before, after = text[: section.start], text[section.end :]
    if before.endswith("\n") and (before[:-1][-1:] in ("", "\n") or after[:1] in ("", "\n")):
        before = before[:-1]
    return before + after


# ---- keys of WireGuard: 32 bytes of Curve25519 in base64


def generate() -> tuple[str, str]:
    """A new key pair: private key, public key. The private one is a secret and belongs into one machine's boot payload only."""
    private = _encoded(x25519.X25519PrivateKey.generate().private_bytes_raw())
    return private, public_key(private)


def public_key(private: str) -> str:
    """The public key of a private one. ValueError, without the key in it, when that is none."""
    if not is_key(private):
        raise ValueError("Invalid WireGuard private key: expected 32 bytes in base64.")
    return _encoded(x25519.X25519PrivateKey.from_private_bytes(base64.b64decode(private)).public_key().public_bytes_raw())


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
