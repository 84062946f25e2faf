# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the words of other services out of what is stored.

An error names the status, the service's code and its sentence. The output of a run shows all of it. Records keep status and code only: a
sentence may hold anything that the service was sent or knows, and a record is read by more people, and for longer, than the output. Sentences
are remembered as soon as an answer is an error; what is stored passes through :func:`without_details`. Safe to use from several threads.
"""

from __future__ import annotations

import threading
import typing as t

_MOST = 500  # sentences; a process that lives on forgets the oldest
_mutex = threading.Lock()
_details: dict[str, str] = {}  # the piece of a message that ends with the sentence: what is kept of it
SIGN = " was answered "  # stands in each piece, so that most texts need no look


def note_detail(kept: str, sentence: str) -> None:
    """Remember that messages have ``kept: sentence``, of which records have ``kept`` only. ``kept`` contains SIGN: a sentence alone, which
    may be any word, is never looked for."""
    if SIGN not in kept:
        return
    with _mutex:
        for said in {sentence, " ".join(sentence.split())}:
            piece = f"{kept}: {said}"
            _details.pop(piece, None)
            _details[piece] = kept
        while len(_details) > _MOST:
            _details.pop(next(iter(_details)))


def without_details(value: t.Any) -> t.Any:
    """A JSON-like value without the sentences in its texts, also where a limit of length cut them."""
    if isinstance(value, str):
        return _without(value) if SIGN in value else value
    if isinstance(value, dict):
        return {key: without_details(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_details(item) for item in value]
    return value


def _without(text: str) -> str:
    with _mutex:
        pieces = sorted(_details.items(), key=lambda pair: len(pair[0]), reverse=True)
    for piece, kept in pieces:
        text = text.replace(piece, kept)
        start = text.rfind(f"{kept}: ")
        if start >= 0 and piece.startswith(text[start:]):
            text = text[:start] + kept
    return text
