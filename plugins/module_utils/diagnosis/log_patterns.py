# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine's own words about its login mean: lines of tailscaled, of ``tailscale up``, of a cloud's console."""

from __future__ import annotations

import dataclasses
import re
import typing as t


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """``cause``: key_used, key_expired, key_over (Tailscale does not say which of the two), key_unknown, key_malformed, key_missing,
    tags, client_secret, server, tls, tun or state. ``quote`` is the line it was taken from."""

    cause: str
    text: str
    remedy: str
    quote: str = ""


_FRESH = "A key works once and for an hour: take the machine down and launch it anew, which makes a fresh one."
# (pattern, cause, what it means, what to do); of several lines the last one that is known counts
_KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (
        r"authkey already used",
        "key_used",
        "Its key was used before: the machine lost its state after it had joined, or another machine took the key.",
        _FRESH,
    ),
    (
        r"authkey expired",
        "key_expired",
        "Its key had expired when the machine came: booting took longer than the key lives.",
        _FRESH,
    ),
    (
        r"invalid key: API key \S+ not valid",
        "key_over",
        "Its key was used before, expired or revoked; Tailscale does not say which.",
        _FRESH,
    ),
    (r"API key does not exist|authkey revoked", "key_unknown", "Its key had been revoked when the machine came.", _FRESH),
    (
        r"invalid pre auth key|auth-?key not found|invalid key: unable to validate",
        "key_unknown",
        "The server does not know its key: deleted, or made by another server.",
        "Compare mesh_login_server with tailscale_api_url: both must be the same server.",
    ),
    (
        r"failed to parse auth-key|invalid key: invalid API token",
        "key_malformed",
        "What it holds is not a key of this server: cut off on the way, or made by another service.",
        "For headscale set mesh_login_server, without which the machine asks Tailscale itself; for Tailscale leave it out.",
    ),
    (
        r"requested tags \[[^\]]*\] are invalid or not permitted",
        "tags",
        "It asks for a tag that its key does not carry.",
        "Leave --advertise-tags out of TS_EXTRA_ARGS: the key brings the tags of tailscaleConfig.tags.",
    ),
    (
        r"oauth authkeys require --advertise-tags",
        "client_secret",
        "It was given the secret of an OAuth client instead of a key.",
        "Revoke that client at once, whoever has the machine can make machines of its tags; give machines keys only.",
    ),
    (
        r"To authenticate, visit|not logged in",
        "key_missing",
        "It has no key and waits for a person to log in.",
        "Its state was lost after its key was erased, or its configuration has no TS_AUTHKEY: launch it anew.",
    ),
    (
        r"x509: |certificate (?:is not|signed by unknown)|tls: failed",
        "tls",
        "It does not trust the certificate of the login server.",
        "A login server needs a certificate that public clients trust, for the name in mesh_login_server; check the machine's clock.",
    ),
    (
        r"fetch control key|control server.*(?:refused|no such host|i/o timeout)|lookup \S+: no such host",
        "server",
        "It does not reach the login server.",
        "The server must be reachable from the internet on tcp 443 (mesh_login_server); some clouds close outgoing ports.",
    ),
    (
        r"/dev/net/tun|CreateTUN|tstun\.New|operation not permitted.*tun",
        "tun",
        "The container has no /dev/net/tun, so Tailscale cannot run in the kernel there.",
        "Use lane service, which needs none, or a machine with a kernel of its own.",
    ),
    (
        r"requires mentioning all\s+non-default flags",
        "state",
        "It is set up already, with other settings.",
        "The image brings the state of a Tailscale client along: remove /var/lib/tailscale from it.",
    ),
)


def meaning(log: str) -> Meaning | None:
    """What the last known line of ``log`` means; None when nothing in it is known."""
    latest: tuple[int, Meaning] | None = None
    for pattern, cause, text, remedy in _KNOWN:
        last = max(re.finditer(pattern, log, re.IGNORECASE), key=re.Match.start, default=None)
        if last is not None and (latest is None or last.start() > latest[0]):
            latest = last.start(), Meaning(cause, text, remedy, _line(log, last))
    return latest[1] if latest else None


def _line(log: str, match: re.Match[str]) -> str:
    start, end = log.rfind("\n", 0, match.start()) + 1, log.find("\n", match.end())
    return " ".join(log[start : end if end >= 0 else len(log)].split())[:300]


def causes() -> t.Iterator[str]:
    """Every cause there is."""
    yield from dict.fromkeys(cause for _pattern, cause, _text, _remedy in _KNOWN)
