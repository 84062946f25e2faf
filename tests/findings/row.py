# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a row of the table is."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .desk import Desk, Done

_WIDTH = 170  # characters of an output that are shown
_BEFORE = 60  # of these, before the words that tell
_FRAME = re.compile(r"^(?:TASK|PLAY) .*\*{3,}$|\*{3,}$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command has to end; the first of ``words`` is what is shown of its output. ``never``: what must not be said."""

    rc: int
    words: tuple[str, ...]
    never: tuple[str, ...] = ()

    def faults(self, done: Done) -> list[str]:
        """How it ended otherwise than it has to."""
        found = [f"exit status {done.rc}, it has to be {self.rc}"] if done.rc != self.rc else []
        found += [f"it does not say {text!r}" for text in self.words if text not in done.words]
        return found + [f"it says {text!r}" for text in self.never if text in done.words]

    def telling(self, done: Done) -> str:
        """The words around the first of ours, else the last ones."""
        text, first = _plain(done.text), self.words[0] if self.words else ""
        at = text.find(first) if first else -1
        if at < 0:
            return text[-_WIDTH:]
        begin = max(at - _BEFORE, 0)
        for mark in (". ", "]: ", "; "):  # the beginning of its sentence, if that is near
            found = text.find(mark, begin, at)
            begin = found + len(mark) if found >= 0 else begin
        cut = text[begin : begin + max(_WIDTH, at - begin + len(first))]
        return f"{'…' if begin else ''}{cut}{'…' if begin + len(cut) < len(text) else ''}"


def _plain(text: str) -> str:
    """Without the frame that Ansible prints."""
    return Done(0, _FRAME.sub("", text)).words


def ended(rc: int, *words: str, never: tuple[str, ...] = ()) -> Ended:
    return Ended(rc, words, never)


@dataclasses.dataclass(frozen=True)
class Row:
    """One sentence of one item. ``test``: the node id of the test that holds it. ``scenario`` and ``alone``: see :meth:`Desk.row`."""

    item: int
    finding: str
    play: t.Callable[[Desk], Done]
    before: Ended
    after: Ended
    test: str
    scenario: str = "default"
    alone: bool = False
