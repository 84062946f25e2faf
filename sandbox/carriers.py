# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start scripts that carry another, packed: decoded as bash would decode them, but nothing is run.

Two ways: the inner script stands in the text itself (base64 in a here-document), or it lies in variables TGP_PAYLOAD_00, TGP_PAYLOAD_01
... of /etc/environment, which the text collects.
"""

from __future__ import annotations

import re
import typing as t

from . import payload as p
from .container_script import Script
from .container_words import ShellFault

_PART = re.compile(r"TGP_PAYLOAD_(\d+)")
_DEPTH = 3
_PACKED = re.compile(r"\bbase64\s+(-\w*[dD]|--decode)")


def unpack(text: str, environment: t.Mapping[str, str], depth: int = 0) -> str:
    """The script that ``text`` unpacks and starts; ``text`` itself when it does no such thing. Raises payload.Refused."""
    if depth >= _DEPTH or not _PACKED.search(text):
        return text
    collects = "TGP_PAYLOAD" in text
    joined = "".join(environment[name] for name in sorted(environment, key=_number) if _PART.fullmatch(name)) if collects else None
    known = {name: str(value) for name, value in environment.items()}
    try:
        script = Script(known, joined.encode() if joined is not None else None, dive=False).read(text)
    except ShellFault as fault:
        raise p.Refused("config", f"start script: {fault}") from fault
    if script.inner:
        return unpack(script.inner[0], environment, depth + 1)
    written = [path for path, content in script.files.items() if content.startswith(b"#!")]
    if written and "/etc/tgp/" not in text:
        raise p.Refused("config", f"start script is done; nothing starts {written[-1]}")
    return text


def _number(name: str) -> int:
    found = _PART.fullmatch(name)
    return int(found[1]) if found else -1
