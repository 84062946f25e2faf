# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The WireGuard hub of a ground: its file, and what stands in it."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

import yaml

from sandbox.hub import public_key
from sandbox.world import Machine

_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8="
OTHERS = f"""[Interface]
PrivateKey = {_KEY}
Address = 10.77.0.1/24
ListenPort = 51820

[Peer]
# a laptop
PublicKey = c9n3cWWwP0rqF2brMs++lHzbKjOSRDEOj3xn4MpGBAM=
AllowedIPs = 10.77.0.2/32
"""
CONFIG = {
    "endpoint": "203.0.113.10:51820",
    "publicKey": public_key(_KEY),
    "network": "10.77.0.0/24",
    "addresses": "10.77.0.128/25",
    "hub": "hub-1",
}
_PEER = re.compile(r"^# tgp: (\S+)", re.MULTILINE)


def make(folder: Path) -> str:
    """The hub's file as it is before the first run; its path."""
    file = folder / "hub.conf"
    file.write_text(OTHERS, encoding="utf-8")
    return str(file)


def peers(path: str) -> list[str]:
    """Names of machines that the hub's file knows."""
    return _PEER.findall(Path(path).read_text(encoding="utf-8"))


def keeps_others(path: str) -> bool:
    """Whether what was there before the first run is there as it was."""
    return Path(path).read_text(encoding="utf-8").startswith(OTHERS.rstrip())


def private_key(machine: Machine) -> str:
    """The key that the machine was handed at boot, "" for none."""
    text = str(machine.payload or "")
    if not text.startswith("#cloud-config"):
        return ""
    for file in yaml.safe_load(text).get("write_files") or ():
        content = file["content"]
        if str(file.get("encoding", "")).startswith("gz"):
            content = gzip.decompress(base64.b64decode(content)).decode()
        if found := re.search(r"PrivateKey\s*=\s*(\S{44})", content):
            return found[1]
    return ""
