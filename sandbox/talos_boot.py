# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an own machine does before it is a node: it runs an iPXE script, or finds a volume, and takes the configuration it is led to.

As in Talos a source that fails is no reason to look for another: the machine tries again, and does not fall back to maintenance mode.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import re
import typing as t
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pycdlib

from .payload import Intent, Refused
from .talos_config import read_talos

Fetch = t.Callable[[str], tuple[int, bytes]]  # address → HTTP status and body
_LONGEST = 2048  # bytes of a command line
_LABELS = {"nocloud": ("cidata", "CIDATA"), "metal": ("metal-iso",)}


@dataclasses.dataclass(frozen=True)
class OwnMachine:
    """What firmware and network know of a machine. ``volumes`` are attached ISO images."""

    uuid: str = "4c4c4544-0042-3510-8052-b4c04f4d3232"
    mac: str = "52:54:00:12:34:56"
    serial: str = "B5BRM22"
    hostname: str = ""
    volumes: tuple[bytes, ...] = ()

    def boot_from_network(self, script: str, fetch: Fetch) -> Intent | None:
        """Run an iPXE script; None = the machine waits in maintenance mode. Raises Refused when it gets stuck."""
        for line in script.splitlines():
            words = self._filled(line).split()
            if words[:1] == ["chain"]:
                return self.boot_from_network(_got(fetch, words[-1]).decode(), fetch)
            if words[:1] == ["kernel"]:
                return self.boot(" ".join(words[2:]), fetch)
        raise Refused("boot", "iPXE: no more network devices")

    def boot(self, command_line: str, fetch: Fetch) -> Intent | None:
        """Start Talos with this command line."""
        if len(command_line.encode()) > _LONGEST:
            raise Refused("boot", f"the kernel reads {_LONGEST} bytes of its command line")
        arguments = dict(one.partition("=")[::2] for one in command_line.split())
        platform, source = arguments.get("talos.platform", ""), arguments.get("talos.config", "")
        if platform not in _LABELS:
            raise Refused("boot", f"unsupported platform: {platform!r}")
        if platform == "nocloud":
            return self._from_volume("nocloud", "user-data", missing_is_fine=True)
        if source == "metal-iso":
            return self._from_volume("metal", "config.yaml", missing_is_fine=False)
        if not source:
            return None
        return _read(_got(fetch, self._populated(source)))

    def _filled(self, line: str) -> str:
        """iPXE's own variables; those it does not know are empty."""
        known = {"uuid": self.uuid, "mac": self.mac, "serial": self.serial, "hostname": self.hostname}
        return re.sub(r"\$\{([^}]*)\}", lambda found: known.get(found[1], ""), line)

    def _populated(self, address: str) -> str:
        """Talos's variables, in values of the query only."""
        parts = urlsplit(address)
        query = [(key, self._filled(value) or (self.uuid if key == "uuid" else "")) for key, value in parse_qsl(parts.query, True)]
        return urlunsplit(parts._replace(query=urlencode(query)))

    def _from_volume(self, platform: str, name: str, *, missing_is_fine: bool) -> Intent | None:
        for volume in self.volumes:
            label, files = _opened(volume)
            if label in _LABELS[platform]:
                if name not in files:
                    raise Refused("config", f"failed to read {name}")
                first = files[name].partition(b"\n")[0]
                if platform == "nocloud" and first.startswith((b"#cloud-config", b"#include")):
                    return None
                return _read(files[name])
        if missing_is_fine:
            return None
        raise Refused("config", "failed to acquire config: no volume metal-iso")


def _got(fetch: Fetch, address: str) -> bytes:
    status, body = fetch(address)
    if status != 200:
        raise Refused("config", f"failed to fetch {urlsplit(address)._replace(query='').geturl()}: HTTP status {status}")
    return body


def _read(body: bytes) -> Intent:
    return read_talos((gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode())


def _opened(volume: bytes) -> tuple[str, dict[str, bytes]]:
    """The label and the files of an ISO, by their Joliet names (the collection itself reads Rock Ridge)."""
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(volume))
    files = {}
    for entry in iso.list_children(joliet_path="/"):
        if entry.is_file():
            name, content = entry.file_identifier().decode("utf-16_be"), io.BytesIO()
            iso.get_file_from_iso_fp(content, joliet_path=f"/{name}")
            files[name] = content.getvalue()
    label = iso.pvd.volume_identifier.decode().strip()
    iso.close()
    return label, files
