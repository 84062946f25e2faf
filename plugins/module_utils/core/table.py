# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of text as an aligned table that fits a terminal."""

from __future__ import annotations

import typing as t


def render(rows: t.Sequence[t.Mapping[str, t.Any]], columns: t.Mapping[str, str], *, right: t.Collection[str] = ()) -> list[str]:
    """Lines of a table. ``columns`` maps a row's key to its heading, in order; ``right`` names the right-aligned keys."""
    if not rows:
        return []
    cells = [[_text(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(heading), *(len(line[at]) for line in cells)) for at, heading in enumerate(columns.values())]

    def line(values: t.Sequence[str]) -> str:
        parts = [
            value.rjust(width) if key in right else value.ljust(width)
            for key, value, width in zip(columns, values, widths, strict=True)
        ]
        return "  " + "  ".join(parts).rstrip()

    return [line(list(columns.values())), line(["-" * width for width in widths]), *(line(values) for values in cells)]


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)
