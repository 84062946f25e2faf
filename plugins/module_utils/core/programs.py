# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of programs that we start: named variables only (docs/who_may_write.md). Ours holds the keys of all clouds."""

from __future__ import annotations

import os
import typing as t

ALWAYS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
PLATFORMS = ("AWS_", "AZURE_", "AAD_", "GOOGLE_", "CLOUDSDK_", "XDG_")  # where exec plugins of managed clusters find their login


def environment(own: t.Mapping[str, str] | None = None, *, network: bool = False, prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """The whole environment of a program. ``own``: variables for it alone. ``network``: also how to get out (proxies, certificates).
    ``prefixes``: also every variable of ours that begins with one of them."""
    names = set(ALWAYS)
    if network:
        names |= {*NETWORK, *(name.lower() for name in NETWORK)}
    kept = {name: value for name, value in os.environ.items() if name in names or (prefixes and name.startswith(prefixes))}
    return {**kept, **(own or {})}
