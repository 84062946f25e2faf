# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What things cost over time: one line per kind of machine and run, appended and never changed.

A kind is cloud, model, GPUs, memory per GPU, disk, region, spot and lane; its line holds the lowest price of that run. Only what was
read from a cloud in this very run is written, so that a remembered price is not counted twice.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import glob
import gzip
import json
import os
import typing as t
import zlib
from datetime import datetime, timedelta

from ..core.clock import from_text, to_text
from ..core.errors import BadShape, InvalidInput, NotFound
from ..kube.client import NAMESPACE, Json, Kube, ensure_namespace
from ..model import Offer
from ..model.labels import MANAGED_BY_LABEL, PRICES_LABEL
from ..planner.cost.price_history import FIELDS, Line, lowest

_PART_SIZE = 600_000  # bytes of one ConfigMap
_PARTS = 8  # ConfigMaps kept; the oldest goes
_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class History(t.Protocol):
    """``append`` what one run saw; ``lines`` since a moment, oldest first. Both raise a TgpError when the place cannot be used."""

    def append(self, lines: t.Sequence[Line]) -> None: ...

    def lines(self, since: datetime | None = None) -> t.Iterator[Line]: ...


def lines_of(offers: t.Iterable[Offer], now: datetime) -> list[Line]:
    """The lines of one run. What is sold out, or has no price, has no line."""
    return lowest(offers, now)


class FolderHistory:
    """A file of JSON lines per day in ``folder``. A line torn by a crash is passed over when it is read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def append(self, lines: t.Sequence[Line]) -> None:
        if not lines:
            return
        path = os.path.join(self._folder, f"{lines[0].time:%Y-%m-%d}.jsonl")
        text = "".join(encode(line) + "\n" for line in lines)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(path, "a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if file.tell() and _last_byte(path) != b"\n":
                    text = "\n" + text  # a process crashed in the middle of a line
                file.write(text.encode())
        except OSError as error:
            raise InvalidInput(
                f"The price history {path} cannot be written: {error.strerror}.", remedy="Correct state_dir."
            ) from error

    def lines(self, since: datetime | None = None) -> t.Iterator[Line]:
        first = "" if since is None else f"{since:%Y-%m-%d}"
        for path in sorted(glob.glob(os.path.join(glob.escape(self._folder), "*.jsonl"))):
            if os.path.basename(path) < first:
                continue
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield from _young(map(decode, file), since)
            except OSError as error:
                raise BadShape(f"The price history {path} cannot be read: {error.strerror}.", service="price history") from error


class ConfigMapHistory:
    """Runs as compressed entries of ConfigMaps ``tgp-price-history-<number>``; the newest eight are kept."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def append(self, lines: t.Sequence[Line]) -> None:
        if not lines:
            return
        packed = gzip.compress("\n".join(map(encode, lines)).encode(), 6, mtime=0)
        text = base64.b64encode(packed).decode()
        key = f"{lines[0].time:%Y%m%dT%H%M%S}.{os.getpid()}"
        parts = self._parts()
        newest = parts[-1] if parts else None
        if newest is not None and newest[1] + len(text) <= _PART_SIZE:
            self._kube.patch(f"{_PATH}/{newest[0]}", {"binaryData": {key: text}})
            return
        number = int(newest[0].rpartition("-")[2]) + 1 if newest is not None else 1
        meta: Json = {"name": f"tgp-price-history-{number:06d}", "namespace": NAMESPACE}
        meta["labels"] = {PRICES_LABEL: "true", MANAGED_BY_LABEL: "tgp.gpu"}
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": {key: text}}
        try:
            self._kube.create(_PATH, body)
        except NotFound:
            ensure_namespace(self._kube)
            self._kube.create(_PATH, body)
        for name, _size in parts[: max(len(parts) + 1 - _PARTS, 0)]:
            self._kube.delete(f"{_PATH}/{name}")

    def _parts(self) -> list[tuple[str, int]]:
        """Names and sizes, oldest first."""
        entries, _version = self._kube.collect(_PATH, _size, {"labelSelector": f"{PRICES_LABEL}=true"})
        return sorted(entry for entry in entries if entry[0].rpartition("-")[2].isdecimal())

    def lines(self, since: datetime | None = None) -> t.Iterator[Line]:
        first = "" if since is None else f"{since:%Y%m%dT%H%M%S}"
        for name, _bytes in self._parts():
            raw = self._kube.find(f"{_PATH}/{name}") or {}
            for key, text in sorted((raw.get("binaryData") or {}).items()):
                if str(key) >= first:
                    yield from _young(map(decode, _unpacked(text, f"ConfigMap {NAMESPACE}/{name} key {key}")), since)


def _last_byte(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _size(raw: Json) -> tuple[str, int]:
    return str(raw["metadata"]["name"]), sum(len(str(text)) for text in (raw.get("binaryData") or {}).values())


def _unpacked(text: t.Any, where: str) -> list[str]:
    try:
        return gzip.decompress(base64.b64decode(str(text), validate=True)).decode().splitlines()
    except (OSError, EOFError, zlib.error, ValueError, binascii.Error) as error:
        raise BadShape(f"{where} is not understood: {error}.", service="price history") from error


def _young(lines: t.Iterable[Line | None], since: datetime | None) -> t.Iterator[Line]:
    return (line for line in lines if line is not None and (since is None or line.time >= since))


def encode(line: Line) -> str:
    """The line as JSON text."""
    return json.dumps({"time": to_text(line.time), **dict(zip(FIELDS, line.kind, strict=True)), "price_hour": str(line.price)})


def decode(text: str) -> Line | None:
    """The line of a JSON text, None when it is torn or not ours."""
    try:
        record = json.loads(text)
        return Line.made(from_text(record["time"]), tuple(record[name] for name in FIELDS), record["price_hour"])
    except (ValueError, KeyError, TypeError, AttributeError, InvalidInput):
        return None


def oldest_needed(now: datetime) -> datetime:
    """From when on lines matter for a trend."""
    return now - timedelta(days=14)
