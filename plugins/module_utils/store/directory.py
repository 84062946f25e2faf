# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims as files: one each, written beside and renamed into place, so that a crash leaves the old or the new one, never half of it."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import tempfile
import typing as t
from contextlib import contextmanager

from ..core.errors import ApiError, BadShape, Conflict, InvalidInput
from ..core.files import readable_text
from ..model import Claim
from .records import (
    Careful,
    ClaimRecords,
    LedgerPart,
    Records,
    changed_by_another,
    checked_name,
    damaged,
    decode,
    decode_claim,
    encode,
    encode_claim,
    is_torn,
    ledger_key,
    odd,
    removed_by_another,
    sorted_out,
    whole,
)


class DirectoryStore(Careful):
    """See store.ClaimStore. ``folder`` holds ``claims/``, ``state/`` and ``ledger/``, readable by this user alone; a claim's version
    is a digest of its file. Several processes of this machine may use it at once."""

    kind = "directory"

    def __init__(self, folder: str, *, mover: bool = False) -> None:
        super().__init__(mover=mover)
        self._folder = folder
        try:
            for part in ("claims", "state", "ledger"):
                os.makedirs(os.path.join(folder, part), mode=0o700, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"The claim store {folder} cannot be made: {error.strerror}.", remedy="Correct state_dir."
            ) from error

    # ---- claims

    def claims(self) -> list[Claim]:
        return self.claim_records()[0]

    def claim_records(self) -> ClaimRecords:
        text = self._marker_text()
        if text is not None:
            self._marked(decode(text, self._marker_path))
        claims, broken = [], []
        for entry in self._entries("claims"):
            name = entry.removesuffix(".json")
            path = os.path.join(self._folder, "claims", entry)
            try:
                if name == entry:
                    raise odd(path, "only .json files belong there")
                if (claim := self.claim(name)) is not None:
                    claims.append(claim)
            except InvalidInput as error:
                broken.append(damaged(None, path, name, odd(path, str(error).rstrip("."))))
            except BadShape as error:
                broken.append(damaged(readable_text(path), path, name, error))
        return claims, broken

    def claim(self, name: str) -> Claim | None:
        text = self._read("claims", name)
        if text is None:
            return None
        return self.note(dataclasses.replace(decode_claim(text, self._path("claims", name), name), version=_digest(text)))

    def _swap(self, claim: Claim) -> Claim:
        text = encode_claim(claim)
        with self._exclusive():
            self._compare(claim, must_exist=bool(claim.version))
            self._write("claims", claim.name, text)
        return dataclasses.replace(claim, version=_digest(text))

    def _drop(self, claim: Claim) -> None:
        with self._exclusive():
            if self._read("claims", claim.name) is None:
                return
            self._compare(claim, must_exist=True)
            path = self._path("claims", claim.name)
            try:
                os.unlink(path)
                _sync_folder(os.path.dirname(path))
            except OSError as error:
                raise _unusable(path, error) from error

    def _compare(self, claim: Claim, *, must_exist: bool) -> None:
        text = self._read("claims", claim.name)
        path = self._path("claims", claim.name)
        if not must_exist and text is not None:
            raise Conflict(f"{path} exists already.", service="claims", status=409)
        if must_exist and text is None:
            raise removed_by_another(path)
        if must_exist and claim.version and _digest(text or "") != claim.version:
            raise changed_by_another(path)

    # ---- state and ledger

    def read_state(self, name: str) -> dict[str, t.Any]:
        text = self._read("state", name)
        return {} if text is None else decode(text, self._path("state", name))

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        with self._exclusive():
            self._write("state", name, encode(state))

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        key = ledger_key(line)
        with self._exclusive():
            there = self._line(f"{key}.json")
            if there is not None and not is_torn(there):
                return False
            self._write("ledger", key, encode(line))
        return True

    def ledger_lines(self) -> list[dict[str, t.Any]]:
        return whole(self.ledger_records())

    def ledger_records(self) -> Records:
        folder = os.path.join(self._folder, "ledger")
        return sorted_out((os.path.join(folder, name), _key(name), self._line(name)) for name in self._entries("ledger"))

    def ledger_parts(self) -> list[LedgerPart]:
        parts = []
        for file in self._entries("ledger"):
            text = self._line(file)
            lines, torn = sorted_out([(os.path.join(self._folder, "ledger", file), _key(file), text)])
            parts.append(LedgerPart(file, _digest(text or ""), tuple(lines), tuple(torn)))
        return parts

    def remove_part(self, part: LedgerPart) -> None:
        path = os.path.join(self._folder, "ledger", part.place)
        with self._exclusive():
            text = self._line(part.place)
            if text is None:
                return
            if _digest(text) != part.version:
                raise changed_by_another(path)
            try:
                os.unlink(path)
            except OSError as error:
                raise _unusable(path, error) from error

    def _line(self, file: str) -> str | None:
        """A line as it is stored; empty text for what cannot be read at all or is not a line."""
        try:
            return self._read("ledger", key) if (key := _key(file)) else ""
        except (BadShape, InvalidInput):
            return ""

    # ---- moving

    @property
    def _marker_path(self) -> str:
        return os.path.join(self._folder, f"{self.marker}.json")

    def _marker_text(self) -> str | None:
        if not os.path.lexists(self._marker_path):
            return None
        try:
            with open(self._marker_path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise odd(self._marker_path, f"it cannot be read ({error})") from error

    def write_move(self, move: t.Mapping[str, t.Any] | None) -> None:
        """Set or take away the mark."""
        try:
            with self._exclusive():
                if move is not None:
                    self._replace(self._folder, self._marker_path, encode(move))
                elif os.path.exists(self._marker_path):
                    os.unlink(self._marker_path)
                    _sync_folder(self._folder)
        except OSError as error:
            raise _unusable(self._marker_path, error) from error

    def state_names(self) -> list[str]:
        """The small records that there are."""
        return [entry.removesuffix(".json") for entry in self._entries("state") if entry.endswith(".json")]

    # ---- files

    def _path(self, part: str, name: str) -> str:
        return os.path.join(self._folder, part, f"{checked_name(name)}.json")

    def _entries(self, part: str) -> list[str]:
        """What lies in a folder; one that is there no more is an error, never empty."""
        folder = os.path.join(self._folder, part)
        try:
            return sorted(entry for entry in os.listdir(folder) if not entry.startswith("."))
        except OSError as error:
            raise _unusable(folder, error) from error

    def _read(self, part: str, name: str) -> str | None:
        path = self._path(part, name)
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError as error:
            if not os.path.isdir(os.path.dirname(path)):
                raise _unusable(os.path.dirname(path), error) from error
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise odd(path, f"it cannot be read ({error})") from error

    def _write(self, part: str, name: str, text: str) -> None:
        """Temporary file, fsync, rename, fsync of the folder: survives a power cut at any moment."""
        folder, path = os.path.join(self._folder, part), self._path(part, name)
        try:
            self._replace(folder, path, text)
        except OSError as error:
            raise ApiError(
                f"{path} cannot be written: {error.strerror}. Nothing of it was changed.",
                remedy="Make room on that file system, or correct its rights; the next run goes on.",
                service="claims",
            ) from error

    def _replace(self, folder: str, path: str, text: str) -> None:
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=folder)  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)

    @contextmanager
    def _exclusive(self) -> t.Iterator[None]:
        """Between compare and swap nobody else writes."""
        path = os.path.join(self._folder, ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        with os.fdopen(descriptor, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _unusable(path: str, error: OSError) -> ApiError:
    return ApiError(
        f"{path} cannot be used: {error.strerror}. Nothing was changed.",
        remedy="Bring the folder of the claim store back, or correct its rights; the next run goes on.",
        service="claims",
    )


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _key(file: str) -> str:
    """The key of the ledger line in a file of that name; empty for a file that holds none."""
    return file.removesuffix(".json") if file.endswith(".json") else ""
