# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps secrets out of every text that leaves the process.

Secrets are registered by value as soon as they are known (options, minted keys, tokens); texts pass through :func:`redact`.
The register is per process on purpose: a leak is a property of the process, not of one object.
"""

from __future__ import annotations

import os
import re
import threading
import typing as t

MASK = "********"
_MIN_LENGTH = 6  # shorter values would blank innocent text
_known: dict[str, int] = {}  # value: the generation in which it was registered last
_generation = 0
_longest_first: tuple[str, ...] | None = None  # the known ones in the order in which they are masked; None = to be made anew
_masked: dict[str, str] = {}  # texts and what they became, with the secrets that are known now
_REMEMBERED = 10_000  # texts; a result of many machines has the same names and words again and again
_guard = threading.Lock()  # of these four: what was registered is masked from then on
_BOOTSTRAP_TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
_BLOB = re.compile(r"[A-Za-z0-9+/_=-]{48,}")
_WIREGUARD = re.compile(r"(?i)((?:private|preshared)_?key[\"']?\s*[:=]\s*[\"']?)[A-Za-z0-9+/]{43}=")
_PATTERNS = (
    re.compile(r"tskey-[A-Za-z0-9-]+"),
    re.compile(r"hskey-[A-Za-z0-9_-]+"),  # URL-safe base64
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=:-]{6,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.S),
)


def register(*secrets: str | None) -> None:
    """Remember values that must never be printed, also without the blanks and line ends around them: what shows a line end shows it in its
    own way. Empty and very short values are ignored."""
    global _longest_first, _masked
    forms = (form for secret in secrets if secret for form in (secret, secret.strip()))
    new = {form: _generation for form in forms if len(form) >= _MIN_LENGTH}
    with _guard:
        _known.update(new)
        _longest_first = None
        _masked = {}  # another one: who works with the old secrets remembers it in the old one


def begin_generation(kept: int = 10) -> None:
    """For a process that lives on: forget values that were not registered in the last ``kept`` generations, such as access tokens of an
    hour ago. Without it each would make every text a little slower to check, for ever."""
    global _generation, _longest_first, _masked
    with _guard:
        _generation += 1
        for secret in [secret for secret, last in _known.items() if last <= _generation - kept]:
            del _known[secret]
        _longest_first = None
        _masked = {}


def _ordered() -> tuple[str, ...]:
    """To sort them for each text would cost more than to look for them."""
    global _longest_first
    with _guard:
        if _longest_first is None:
            _longest_first = tuple(sorted(_known, key=len, reverse=True))
        return _longest_first


def redact(text: str) -> str:
    """``text`` with every known secret and everything that looks like one masked."""
    masked = _masked  # before the secrets are read
    if type(text) is not str:  # words of an enumeration, and Ansible's own kinds of text
        return _mask(text)
    if (known := masked.get(text)) is not None:
        return known
    found = _mask(text)
    if len(masked) < _REMEMBERED and len(text) < 500:
        masked[text] = found
    return found


def _mask(text: str) -> str:
    for secret in _ordered():
        if secret in text:
            text = text.replace(secret, MASK)
    for pattern in _PATTERNS:
        text = pattern.sub(MASK, text)
    return _WIREGUARD.sub(rf"\g<1>{MASK}", text)


def redact_foreign(text: str) -> str:
    """The same for a text of unknown origin, such as a boot log: also without bootstrap tokens and long runs of letters and digits."""
    return _BLOB.sub(lambda match: f"({len(match[0])} characters)", _BOOTSTRAP_TOKEN.sub(MASK, redact(text)))


def redact_all(value: t.Any) -> t.Any:
    """The same for every string inside a JSON-like value. Words of an enumeration become plain text: Ansible takes no others."""
    if isinstance(value, str):
        return redact(str(value))
    if isinstance(value, dict):
        return {redact_all(key): redact_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item) for item in value]
    return value


# ---- the environment of programs that we start: named variables only (docs/reference/who_may_write.md). Ours holds the keys of all clouds

ALWAYS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
PLATFORMS = ("AWS_", "AZURE_", "AAD_", "GOOGLE_", "CLOUDSDK_", "XDG_")  # where exec plugins of managed clusters find their login


def program_environment(
    own: t.Mapping[str, str] | None = None, *, network: bool = False, prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """The whole environment of a program. ``own``: variables for it alone. ``network``: also how to get out (proxies, certificates).
    ``prefixes``: also every variable of ours that begins with one of them."""
    names = set(ALWAYS)
    if network:
        names |= {*NETWORK, *(name.lower() for name in NETWORK)}
    kept = {name: value for name, value in os.environ.items() if name in names or (prefixes and name.startswith(prefixes))}
    return {**kept, **(own or {})}
