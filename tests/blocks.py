# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code blocks of the pages, and the commands in shell blocks.

``sh`` is run or checked by a test, unless ``<!-- illustration -->`` or ``<!-- illustration: why -->`` stands on the line before the block.
``yaml`` and ``json`` are read by a test; ``text`` is output.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t

from markdown_it import MarkdownIt

_ILLUSTRATION = re.compile(r"<!-- illustration(?:: (?P<why>.+?))? -->")
_GLUE = {"cd", "export", "set", ".", "umask", "mkdir"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PUNCTUATION = re.compile(r"[;&|()<>]+")


@dataclasses.dataclass(frozen=True)
class Block:
    """``line`` is that of the fence; ``language`` is empty for indented code; ``illustration`` is why it does not run, else empty."""

    line: int
    language: str
    text: str
    illustration: str = ""


def blocks(page: str) -> list[Block]:
    """All code blocks of a page, in order."""
    found, why = [], ""
    for token in MarkdownIt("commonmark").parse(page):
        if token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.split() else ""
            found.append(Block((token.map or [0])[0] + 1, language, token.content, why))
        mark = _ILLUSTRATION.fullmatch(token.content.strip()) if token.type == "html_block" else None
        why = (mark["why"] or "an illustration") if mark is not None else ""
    return found


def commands(script: str) -> list[list[str]]:
    """The words of each command of a shell block, without assignments, redirections and what only sets the stage. ValueError for a script
    that is more than a list of commands."""
    if re.search(r"<<|\$\(|`|^\s*(for|while|until|if|case)\b", script, re.MULTILINE):
        raise ValueError("more than a list of commands")
    found: list[list[str]] = []
    for line in _lines(script):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if _PUNCTUATION.fullmatch(word):
                redirected = word[0] in "<>"
                if not redirected:
                    found.append(words)
                    words = []
            elif redirected:
                redirected = False
            elif words or not _ASSIGNMENT.match(word):
                words.append(word)
    return [words for words in found if words and words[0] not in _GLUE]


def _lines(script: str) -> t.Iterator[str]:
    """Logical lines: continued by a backslash, or by a quote that is still open."""
    kept = ""
    for line in script.replace("\\\n", " ").splitlines():
        kept = f"{kept}\n{line}" if kept else line
        try:
            shlex.split(kept, comments=True)
        except ValueError:
            continue
        yield kept
        kept = ""
    if kept:
        raise ValueError(f"a quote is open: {kept}")
