# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims in one place, the ledger in another, or in two."""

from __future__ import annotations

import dataclasses
import typing as t

from ..model import Claim
from .records import ClaimRecords, ClaimStore, LedgerPart, Records, whole


class BookedStore:
    """See store.ClaimStore. Claims and state are those of ``base``; a closing line is written to every one of ``books``, and counts as
    written only then. A claim stays until that has happened, so that a place which fails gets its line from a later run."""

    def __init__(self, base: ClaimStore, books: t.Sequence[ClaimStore]) -> None:
        self._base = base
        self._books = tuple(books)

    def claims(self) -> list[Claim]:
        return self._base.claims()

    def claim_records(self) -> ClaimRecords:
        return self._base.claim_records()

    def claim(self, name: str) -> Claim | None:
        return self._base.claim(name)

    def write(self, claim: Claim) -> Claim:
        return self._base.write(claim)

    def remove(self, claim: Claim) -> None:
        self._base.remove(claim)

    def read_state(self, name: str) -> dict[str, t.Any]:
        return self._base.read_state(name)

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        self._base.write_state(name, state)

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        return any([book.ledger(line) for book in self._books])

    def ledger_lines(self) -> list[dict[str, t.Any]]:
        return whole(self.ledger_records())

    def ledger_records(self) -> Records:
        """Every line once; the first place that has it counts. A line that is torn in one place and whole in another is whole."""
        lines: dict[str, dict[str, t.Any]] = {}
        torn: list[str] = []
        for book in self._books:
            found, odd = book.ledger_records()
            torn += odd
            for line in found:
                lines.setdefault(str(line.get("key") or line.get("name") or ""), line)
        return list(lines.values()), [place for place in torn if not any(_names(place, key) for key in lines)]

    def ledger_parts(self) -> list[LedgerPart]:
        return [dataclasses.replace(part, book=number) for number, book in enumerate(self._books) for part in book.ledger_parts()]

    def remove_part(self, part: LedgerPart) -> None:
        self._books[part.book].remove_part(part)


def _names(place: str, key: str) -> bool:
    return place.endswith((f" key {key}", f"/{key}.json"))
