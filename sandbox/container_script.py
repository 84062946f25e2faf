# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a shell script comes to, read and not run: the commands it would start, the files it would write.

Only what moves text is followed: echo, printf, cat, tr, base64, gzip, redirections, here-documents, ``sh -c``, ``eval``, ``exec``,
scripts that the script wrote itself, and of its functions what they print. Conditions are not decided: what stands in a branch or a loop
is marked ``conditional``.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import gzip
import re
import typing as t
import zlib

from .container_words import Scanner, ShellFault, Simple

_OPEN, _CLOSE = frozenset({"if", "while", "until", "for", "case", "select", "{"}), frozenset({"fi", "done", "esac", "}"})
_PASSED = frozenset({"then", "do", "else", "elif", "!", "time"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_WRAPPERS = frozenset({"exec", "nohup", "setsid", "sudo", "command", "builtin", "tini", "dumb-init", "env", "nice"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_DEPTH = 6
_FUNCTION = re.compile(r"^([A-Za-z_]\w*)\(\) \{(?:[ \t]*\n(.*?)^\}|[ \t]+([^\n]*?)[; \t]*\})[ \t]*$", re.MULTILINE | re.DOTALL)
_PRINTERS = frozenset({"echo", "printf", "cat"})
OUTPUT = "\ufffc"
"""Stands, in what a script prints, for the output of a command that only running it would tell."""
STDOUT = frozenset({"", "/dev/stdout", "/dev/stderr", "/proc/1/fd/1"})


@dataclasses.dataclass(frozen=True)
class Started:
    """A command the script starts: ``background`` with an ampersand; ``conditional`` in a branch, a loop or after ``||``; ``guarded``
    when its failure ends the script; ``hidden`` when its output goes to a file; ``excuse`` are the lines that are printed when it fails."""

    words: tuple[str, ...]
    background: bool = False
    conditional: bool = False
    guarded: bool = False
    hidden: bool = False
    excuse: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.words[0].rpartition("/")[2]


class Script:
    """``Script(environment).read(text)``; then ``commands``, ``files`` (path to content), ``inner`` (texts of the scripts that it
    made and started; with ``dive`` False they are not read any further) and ``lines``: what it prints for certain, each with the number of
    commands started before. ``joined`` stands for what a script collects from variables named TGP_PAYLOAD_nn, which takes a loop to do.
    ``screens`` are the files that count as printed to ("" is its output)."""

    def __init__(
        self,
        environment: t.Mapping[str, str],
        joined: bytes | None = None,
        *,
        dive: bool = True,
        screens: t.Collection[str] = STDOUT,
    ) -> None:
        self.variables = dict(environment)
        self.files: dict[str, bytes] = {}
        self.commands: list[Started] = []
        self.inner: list[str] = []
        self.lines: list[tuple[int, str]] = []
        self._joined, self._dive, self._screens = joined, dive, screens
        self._functions: set[str] = set()
        self._bodies: dict[str, str] = {}
        self._errexit = self._started = False
        self._level = self._cases = 0

    def read(self, text: str, *, background: bool = False, conditional: bool = False) -> Script:
        if self._level >= _DEPTH:
            raise ShellFault("maximum nesting of scripts exceeded")
        self._level += 1
        self.learn(text)
        if re.match(r"#!\s*\S+\s+-\w*e", text):
            self._errexit = True
        depth, before = 0, ""
        pipeline: list[Simple] = []
        for simple in Scanner(text, self):
            if simple.operator == "(" and len(simple.words) == 1 and simple.stdin is None:
                self._functions.add(simple.words[0])
                simple.words = []
            depth = max(0, depth + self._strip(simple))
            if self._cases > 0 and simple.operator == ")":  # a pattern
                pipeline = []
                continue
            pipeline.append(simple)
            if simple.operator != "|":
                held = conditional or before == "||" or depth > 0
                self._pipe(
                    pipeline,
                    background=background or simple.operator == "&",
                    conditional=held,
                    chained=simple.operator,
                    excuse=before == "||",
                )
                pipeline, before = [], simple.operator
            depth = max(0, depth + {"(": 1, ")": -1}.get(simple.operator, 0))
        self._level -= 1
        return self

    # ---- what the scanner asks

    def value(self, name: str) -> str:
        return self.variables.get(name, "" if name[0].isalpha() or name[0] == "_" else f"${name}")

    def substitute(self, text: str) -> str:
        child = Script(self.variables, self._joined)
        child.files, child._bodies, child._level = self.files, self._bodies, self._level + 1
        if child._level >= _DEPTH:
            raise ShellFault("maximum nesting of scripts exceeded")
        output, pipeline = b"", []
        for simple in Scanner(text, child):
            pipeline.append(simple)
            if simple.operator != "|":
                own = bool(simple.words) and simple.words[0] in self._bodies
                output += OUTPUT.encode() if own else child._flow(pipeline) or b""
                pipeline = []
        return output.decode(errors="replace").rstrip("\n")

    # ---- what it prints

    def learn(self, text: str) -> None:
        """Know the functions that stand at the beginning of a line of ``text``."""
        for name, body, line in _FUNCTION.findall(text):
            self._bodies[name] = body or line

    def call(self, words: t.Sequence[str]) -> list[str]:
        """The lines that a call of one of its functions prints; what it assigns is kept."""
        if words[0] not in self._bodies or self._level >= _DEPTH:
            return []
        own = {str(place): word for place, word in enumerate(words)} | dict.fromkeys("*@", " ".join(words[1:]))
        kept = {name: self.variables.pop(name, None) for name in own}
        self.variables.update(own)
        self._level += 1
        lines, depth, before = [], 0, ""
        for simple in Scanner(self._bodies[words[0]], self):
            while simple.words and simple.words[0] in _OPEN | _CLOSE | _PASSED:
                word = simple.words.pop(0)
                depth += (word in _OPEN - {"{"}) - (word in _CLOSE - {"}"})
            certain = depth <= 0 and before not in ("||", "&&", "|") and simple.operator != "|"
            before = simple.operator
            if certain and not self._assign(simple):
                lines += self._printed(simple)
                if simple.words[:1] in (["exit"], ["return"]):
                    break
        self._level -= 1
        for name in own:
            self.variables.pop(name, None)
        self.variables.update({name: value for name, value in kept.items() if value is not None})
        return lines

    def _printed(self, simple: Simple) -> list[str]:
        """The lines that one command prints."""
        if simple.words and simple.words[0] in self._bodies:
            return self.call(simple.words)
        if not simple.words or simple.words[0] not in _PRINTERS or simple.target not in self._screens:
            return []
        return (self._text(simple.words[0], simple.words[1:], simple.stdin) or b"").decode(errors="replace").splitlines()

    def _excuse(self, simple: Simple) -> None:
        """What is printed after ``||``: the last command has it for its failure. Nothing else comes of it."""
        kept, level = dict(self.variables), self._level
        try:
            lines = self._printed(simple)
        except ShellFault:  # it is not run yet
            lines = []
        self.variables, self._level = kept, level
        if lines and self._started:
            self.commands[-1] = dataclasses.replace(self.commands[-1], excuse=tuple(lines))

    # ---- inside

    def _strip(self, simple: Simple) -> int:
        """Take the words of the grammar off a command; how much deeper it leads."""
        change = 0
        while simple.words and simple.words[0] in _OPEN | _CLOSE | _PASSED:
            word = simple.words.pop(0)
            change += 1 if word in _OPEN else -1 if word in _CLOSE else 0
            self._cases += {"case": 1, "esac": -1}.get(word, 0)
            if word in ("for", "case", "select"):
                simple.words = []
            elif word in ("done", "fi", "esac", "}") and simple.operator == "|":
                simple.words = ["(loop)"]
        return change

    def _pipe(self, pipeline: list[Simple], *, background: bool, conditional: bool, chained: str, excuse: bool) -> None:
        """Commands joined by pipes: assignments take effect, text flows, and what is not text is noted as started."""
        if len(pipeline) == 1 and self._assign(pipeline[0]):
            return
        if excuse and len(pipeline) == 1:
            self._excuse(pipeline[0])
        elif not conditional and not background and len(pipeline) == 1:
            self.lines += [(len(self.commands), line) for line in self._printed(pipeline[0])]
        before = len(self.commands)
        output = self._flow(pipeline, background=background, conditional=conditional)
        last = pipeline[-1]
        if last.target and output is not None:
            self.files[last.target] = output
        for simple in pipeline:
            if simple.words and simple.words[0] not in self._functions and simple.words != ["(loop)"]:
                self._start(simple, background, conditional, self._errexit or chained in ("&&", "||"))
        self._started = len(self.commands) > before

    def _assign(self, simple: Simple) -> bool:
        """NAME=value, alone or exported; a ``set`` is looked at here, too."""
        words = simple.words
        if words and words[0] == "set" and any(re.match(r"-\w*e", word) or word == "errexit" for word in words[1:]):
            self._errexit = True
        pairs = words[1:] if words and words[0] in ("export", "declare", "local", "readonly") else words
        found = [_ASSIGNMENT.fullmatch(word) for word in pairs]
        if not pairs or not all(found):
            return False
        for match in found:
            if match is not None:
                self.variables[match[1]] = match[2].replace(OUTPUT, "")
        return True

    def _start(self, simple: Simple, background: bool, conditional: bool, guarded: bool) -> None:
        words = list(simple.words)
        while words and (words[0].rpartition("/")[2] in _WRAPPERS or (_ASSIGNMENT.fullmatch(words[0]) and len(words) > 1)):
            if found := _ASSIGNMENT.fullmatch(words[0]):
                self.variables.setdefault(found[1], found[2])
            words.pop(0)
            while words and words[0].startswith("-") and len(words) > 1:
                words.pop(0)
        if not words:
            return
        name, more = words[0].rpartition("/")[2], words[1:]
        if name in _SHELLS and (flag := next((i for i, word in enumerate(more) if re.fullmatch(r"-\w*c", word)), None)) is not None:
            if "e" in more[flag]:
                self._errexit = True
            self.read(more[flag + 1] if len(more) > flag + 1 else "", background=background, conditional=conditional)
        elif name == "eval":
            self.read(" ".join(more), background=background, conditional=conditional)
        else:
            path = words[0] if name not in (*_SHELLS, ".", "source") else next((w for w in more if not w.startswith("-")), "")
            if path in self.files:
                self._own(self.files[path], background, conditional)
            else:
                self.commands.append(Started(tuple(words), background, conditional, guarded, simple.target not in self._screens))

    def _own(self, content: bytes, background: bool, conditional: bool) -> None:
        """A script that this script made itself."""
        if b"\0" in content[:1000]:
            raise ShellFault("cannot execute binary file")
        text = content.decode(errors="replace")
        self.inner.append(text)
        if not self._dive:
            return
        self.read(text, background=background, conditional=conditional)

    def _flow(self, pipeline: list[Simple], *, background: bool = False, conditional: bool = False) -> bytes | None:
        """The text that comes out of a pipeline; None when only running it would tell."""
        data: bytes | None = b""
        for index, simple in enumerate(pipeline):
            stdin = simple.stdin if simple.stdin is not None else data if index else b""
            if simple.source:
                stdin = self.files.get(simple.source)
            name = simple.words[0].rpartition("/")[2] if simple.words else ""
            if name in _SHELLS and len(simple.words) == len([w for w in simple.words if w in (simple.words[0], "-s", "-")]):
                if stdin:
                    self._own(stdin, background, conditional)
                simple.words, data = [], None
            else:
                data = self._text(name, simple.words[1:], stdin)
                if name == "tee" and simple.words[1:] and data is not None:
                    self.files[simple.words[-1]] = data
        return data

    def _text(self, name: str, more: list[str], stdin: bytes | None) -> bytes | None:
        if name == "echo":
            plain = [word for word in more if word not in ("-n", "-e")]
            return (" ".join(plain) + ("" if "-n" in more else "\n")).encode()
        if name == "printf" and more:
            return _formatted(more[0], more[1:])
        if name in ("cat", "tee"):
            paths = [word for word in more if not word.startswith("-")]
            if not paths or name == "tee":
                return stdin
            return b"".join(self.files[path] for path in paths) if all(path in self.files for path in paths) else None
        if name == "tr" and stdin is not None and more[:1] == ["-d"]:
            return re.sub(rb"\s", b"", stdin)
        if name == "base64" and any(re.fullmatch(r"-\w*[dD]\w*|--decode", word) for word in more):
            return self._decoded(stdin if stdin is not None else self._joined)
        if name in ("gunzip", "zcat") or (name == "gzip" and any(re.fullmatch(r"-\w*d\w*|--decompress", word) for word in more)):
            return _unpacked(stdin)
        return None

    @staticmethod
    def _decoded(data: bytes | None) -> bytes | None:
        if data is None:
            return None
        try:
            return base64.b64decode(re.sub(rb"\s", b"", data), validate=True)
        except (binascii.Error, ValueError):
            raise ShellFault("base64: invalid input") from None


def _formatted(form: str, values: t.Sequence[str]) -> bytes | None:
    """What printf prints; None when values are missing that only running would tell."""
    pieces = re.split(r"%[sbd]", form.replace("\\n", "\n").replace("\\t", "\t"))
    if (values and not any(values)) or re.search(r"%[^sbd]", form):
        return None
    text, left = "", list(values)
    while True:
        text += pieces[0] + "".join((left.pop(0) if left else "") + piece for piece in pieces[1:])
        if not left or len(pieces) == 1:
            return text.encode()


def _unpacked(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    try:
        return gzip.decompress(data) if data else _empty()
    except EOFError:
        raise ShellFault("gzip: stdin: unexpected end of file") from None
    except zlib.error:
        raise ShellFault("gzip: stdin: invalid compressed data--format violated") from None
    except OSError as error:
        crc = "CRC" in str(error) or "Incorrect length" in str(error)
        raise ShellFault(f"gzip: stdin: {'invalid compressed data--crc error' if crc else 'not in gzip format'}") from None


def _empty() -> bytes:
    raise ShellFault("gzip: stdin: unexpected end of file")
