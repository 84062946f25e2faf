# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a scenario's objects: every value is checked, and whatever is wrong is named by its path."""

from __future__ import annotations

import typing as t
from decimal import Decimal, InvalidOperation

TIMINGS = {"packages": 60.0, "mesh": 10.0, "csr": 1.0, "ready": 5.0, "gpu": 20.0}


class ScenarioError(ValueError):
    """The scenario cannot be used; the message names the place and what is wrong."""


class Reader:
    """One object of the scenario; every key that nobody took is refused by :meth:`done`."""

    def __init__(self, content: t.Any, where: str) -> None:
        if not isinstance(content, dict):
            raise ScenarioError(f"{where}: should be an object, is {content!r:.60}")
        self.content, self.where = content, where
        self._taken: set[str] = set()

    def take(self, key: str, kind: type | tuple[type, ...], default: t.Any) -> t.Any:
        self._taken.add(key)
        value = self.content.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ScenarioError(f"{self.where}.{key}: cannot be {value!r:.60}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.take(key, str, default if default is not None else self.content.get(key, ""))
        if not value:
            raise ScenarioError(f"{self.where}.{key}: is missing")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.take(key, bool, default))

    def number(self, key: str, default: float) -> float:
        value = self.take(key, (int, float), default)
        if not 0 <= value < float("inf"):
            raise ScenarioError(f"{self.where}.{key}: {value!r} should be zero or more")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise ScenarioError(f"{self.where}.{key}: {value!r} should be a whole number")
        return int(value)

    def dollars(self, key: str, default: Decimal) -> Decimal:
        value = self.take(key, (str, int, float, Decimal), default)
        try:
            price = Decimal(str(value))
        except InvalidOperation:
            price = Decimal(-1)
        if price.is_nan() or not 0 <= price <= 1_000_000:
            raise ScenarioError(f"{self.where}.{key}: {value!r} is no price")
        return price

    def section(self, key: str) -> Reader:
        return Reader(self.take(key, dict, {}), f"{self.where}.{key}")

    def entries(self, key: str) -> list[Reader]:
        return [Reader(entry, f"{self.where}.{key}[{index}]") for index, entry in enumerate(self.take(key, list, []))]

    def done(self) -> None:
        unknown = [str(key) for key in self.content if key not in self._taken]
        if unknown:
            raise ScenarioError(f"{self.where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(self._taken))}")


def timings(entry: Reader) -> dict[str, float]:
    """The steps' seconds that this object sets; it may have other keys."""
    return {key: entry.number(key, 0.0) for key in TIMINGS if key in entry.content}
