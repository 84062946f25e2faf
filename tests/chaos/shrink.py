# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a story that fails to the shortest one found that fails for the same invariant (delta debugging over its lines)."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .story import Story, Violated

Fails = t.Callable[[Story], str]


def failure(story: Story) -> str:
    """The number of the invariant that it breaks (or the kind of its error), "" when it ends well."""
    try:
        story.play()
    except Violated as error:
        found = re.match(r"I-\d+", str(error))
        return found[0] if found else "stuck"
    except Exception as error:  # noqa: BLE001 - whatever ends a story is a failure of its own kind
        return type(error).__name__
    return ""


def shortest(story: Story, fails: Fails = failure) -> Story:
    """Take out halves, then quarters … down to single lines, as long as what is left fails the same way."""
    kind = fails(story)
    if not kind:
        raise ValueError("the story does not fail")
    lines, size = list(story.lines), max(1, len(story.lines) // 2)
    while True:
        place, shorter = 0, False
        while place < len(lines):
            rest = lines[:place] + lines[place + size :]
            if fails(dataclasses.replace(story, lines=tuple(rest))) == kind:
                lines, shorter = rest, True
            else:
                place += size
        if size > 1:
            size //= 2
        elif not shorter:
            return dataclasses.replace(story, lines=tuple(_simpler(story, lines, kind, fails)))


def _simpler(story: Story, lines: list[str], kind: str, fails: Fails) -> list[str]:
    """Each line without what it does not need: a kill, a second run, a count of faults."""
    for place, line in enumerate(lines):
        for pattern, plain in ((r" kill=\d+( after)?", ""), (r" \|.*", ""), (r" host=b", ""), (r"nodes=[2-9]", "nodes=1")):
            simple = re.sub(pattern, plain, lines[place])
            if simple != line and fails(dataclasses.replace(story, lines=(*lines[:place], simple, *lines[place + 1 :]))) == kind:
                lines[place] = simple
    return lines
