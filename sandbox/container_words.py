# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a shell text: quotes, variables, here-documents and operators, as a POSIX shell sees them. Nothing is run."""

from __future__ import annotations

import dataclasses
import re
import typing as t

_OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_BREAKS = frozenset(" \t\r\n;&|<>()")


class ShellFault(Exception):
    """The text cannot be read, or a step of it fails; the message is what the shell would print."""


@dataclasses.dataclass
class Simple:
    """One simple command: its expanded ``words``, what is fed to it by a here-document, where its output goes, and the operator that
    follows it."""

    words: list[str] = dataclasses.field(default_factory=list)
    stdin: bytes | None = None
    target: str = ""
    source: str = ""
    operator: str = "\n"


class Expander(t.Protocol):
    """What the values of variables and command substitutions are."""

    def value(self, name: str) -> str: ...

    def substitute(self, text: str) -> str: ...


class Scanner:
    """``for simple in Scanner(text, expander)``: commands in their order; a command is handed out before the next one is expanded."""

    def __init__(self, text: str, expander: Expander) -> None:
        self._text, self._expander = text.replace("\\\n", ""), expander
        self._at = 0
        self._resume: int | None = None  # where the text goes on after the here-documents of this line

    def __iter__(self) -> t.Iterator[Simple]:
        simple = Simple()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._at += 1
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = end if end >= 0 else len(self._text)
            elif redirect := re.compile(r"\d?(<<-?|>>|>&|<&|&>|[<>])").match(self._text, self._at):
                self._redirect(redirect, simple)
            elif operator := next((one for one in _OPERATORS if self._text.startswith(one, self._at)), None):
                self._at += len(operator)
                if operator == "\n" and self._resume is not None:
                    self._at, self._resume = self._resume, None
                simple.operator = operator
                yield simple
                simple = Simple()
            else:
                simple.words += self._word()
        yield simple

    def _redirect(self, found: re.Match[str], simple: Simple) -> None:
        self._at = found.end()
        sign = found[1]
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if sign.startswith("<<"):
            tag = re.compile(r"(['\"\\]?)([\w.-]+)['\"]?").match(self._text, self._at)
            if tag is None:
                raise ShellFault("syntax error near unexpected token `newline'")
            self._at = tag.end()
            simple.stdin = self._here(tag[2], sign == "<<-", not tag[1]).encode()
            return
        target = " ".join(self._word())
        if found[0] in (">", "1>", ">>", "1>>"):
            simple.target = target
        elif sign == "<":
            simple.source = target

    def _here(self, tag: str, tabs: bool, expand: bool) -> str:
        start = self._resume if self._resume is not None else self._text.find("\n", self._at) + 1
        lines = []
        at = start
        while start and at < len(self._text):
            end = self._text.find("\n", at)
            end = end if end >= 0 else len(self._text)
            line = self._text[at:end]
            at = end + 1
            if (line.lstrip("\t") if tabs else line) == tag:
                break
            lines.append(line.lstrip("\t") if tabs else line)
        self._resume = min(at, len(self._text))
        text = "".join(f"{line}\n" for line in lines)
        return self._expanded(text) if expand else text

    def _expanded(self, text: str) -> str:
        """A here-document whose tag is not quoted."""
        inner = Scanner(text, self._expander)
        return inner._double("")

    def _word(self) -> list[str]:
        fields, started = [""], False
        while self._at < len(self._text) and self._text[self._at] not in _BREAKS:
            char = self._text[self._at]
            if char == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    raise ShellFault("unexpected EOF while looking for matching `''")
                fields[-1] += self._text[self._at + 1 : end]
                self._at, started = end + 1, True
            elif char == '"':
                self._at += 1
                fields[-1] += self._double('"')
                started = True
            elif char == "\\":
                fields[-1] += self._text[self._at + 1 : self._at + 2]
                self._at, started = self._at + 2, True
            elif char in "$`":
                value = self._dollar()
                if len(fields) == 1 and _ASSIGNED.match(fields[0]):  # not split, as in a shell
                    fields[0] += value
                elif parts := value.split():
                    fields[-1] += parts[0]
                    fields += parts[1:]
                    started = True
            else:
                fields[-1] += char
                self._at, started = self._at + 1, True
        return fields if started else []

    def _double(self, end: str) -> str:
        """Up to the closing quote (or the end of the text when ``end`` is empty)."""
        found = ""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == end:
                self._at += 1
                return found
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ("$", "`", "\\", '"'):
                found += self._text[self._at + 1]
                self._at += 2
            elif char in "$`":
                found += self._dollar()
            else:
                found += char
                self._at += 1
        if end:
            raise ShellFault(f"unexpected EOF while looking for matching `{end}'")
        return found

    def _dollar(self) -> str:
        """The value of what begins with a dollar sign or a backtick."""
        text, at = self._text, self._at
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise ShellFault("unexpected EOF while looking for matching ``'")
            self._at = end + 1
            return self._expander.substitute(text[at + 1 : end])
        if text.startswith("$((", at):
            self._at = _closing(text, at + 1, "(", ")")
            return "0"
        if text.startswith("$(", at):
            self._at = _closing(text, at + 1, "(", ")")
            return self._expander.substitute(text[at + 2 : self._at - 1])
        if text.startswith("${", at):
            self._at = _closing(text, at + 1, "{", "}")
            return self._braces(text[at + 2 : self._at - 1])
        name = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])").match(text, at)
        if name is None:
            self._at += 1
            return "$"
        self._at = name.end()
        return self._expander.value(name[1])

    def _braces(self, inner: str) -> str:
        found = re.match(r"([A-Za-z_]\w*)(?:(:?)([-=?+])(.*))?", inner, re.DOTALL)
        if found is None:
            return ""
        value = self._expander.value(found[1])
        if not value and found[3] in ("-", "="):
            return Scanner(found[4], self._expander)._double("")
        if not value and found[3] == "?":
            raise ShellFault(f"{found[1]}: {found[4] or 'parameter null or not set'}")
        return Scanner(found[4], self._expander)._double("") if value and found[3] == "+" else value


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    """The place after the bracket that closes the one at ``at``; quoted ones do not count."""
    depth, quote = 0, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise ShellFault(f"unexpected EOF while looking for matching `{closing}'")
