# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads HuJSON: JSON with comments and trailing commas, the form of tailnet policies."""

from __future__ import annotations

import json
import typing as t


def loads(text: str) -> t.Any:
    """The value of a HuJSON text. ValueError when it is none."""
    kept: list[str] = []
    at, end = 0, len(text)
    while at < end:
        character = text[at]
        if character == '"':
            stop = _string_end(text, at)
            kept.append(text[at:stop])
            at = stop
        elif text.startswith("//", at):
            at = _after(text, "\n", at, end)
            kept.append("\n")
        elif text.startswith("/*", at):
            at = _after(text, "*/", at + 2, None)
            kept.append(" ")
        else:
            if character in "]}":
                _drop_comma(kept)
            kept.append(character)
            at += 1
    return json.loads("".join(kept))


def _string_end(text: str, start: int) -> int:
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == '"':
            return at + 1
        else:
            at += 1
    raise ValueError(f"the string that begins at character {start} does not end")


def _after(text: str, mark: str, start: int, default: int | None) -> int:
    position = text.find(mark, start)
    if position >= 0:
        return position + len(mark)
    if default is None:
        raise ValueError(f"the comment that begins at character {start - 2} does not end")
    return default


def _drop_comma(kept: list[str]) -> None:
    """Remove a comma that only white space separates from the closing bracket."""
    for index in range(len(kept) - 1, -1, -1):
        if kept[index] == ",":
            del kept[index]
            return
        if kept[index].strip():
            return
