# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CEL, as far as validation rules of CustomResourceDefinitions and selectors of devices use it: no arithmetic besides ``+``, no durations or
addresses.

A rule becomes a function of ``self``. What it cannot read is a SyntaxError, as the API server refuses such a definition. Costs are not
estimated: only the real server can say that a rule is too dear.
"""

from __future__ import annotations

import decimal
import functools
import re
import typing as t

from .quantity import quantity

Scope = dict[str, t.Any]
Run = t.Callable[[Scope], t.Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[<>=!]=|[-!<>+?:.,()\[\]]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MACROS = ("all", "exists", "exists_one", "filter")
_CONSTANTS: dict[str, t.Any] = {
    "true": True,
    "false": False,
    "null": None,
    "int": int,
    "string": str,
    "bool": bool,
    "double": float,
}


class Fault(Exception):
    """A rule that has no result: no such key, no such overload."""


@functools.cache
def compiled(text: str) -> t.Callable[[t.Any], t.Any]:
    """The function of ``self`` that an expression is."""
    parser = _Parser(text)
    run = parser.whole()
    return lambda value: run({"self": value})


@functools.cache
def selector(text: str) -> t.Callable[[t.Any], t.Any]:
    """The function of ``device`` that a device selector is."""
    run = _Parser(text).whole()
    return lambda value: run({"device": value})


class Ordered(t.NamedTuple):
    """A quantity or a version: compared by methods, not by signs."""

    value: t.Any


def semver(text: str) -> Ordered:
    """A version; Fault for what is none."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise Fault(f"{text} is not a semantic version")
    return Ordered(tuple(map(int, parts)))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> t.Iterator[tuple[str, str]]:
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                raise SyntaxError(f"no CEL at {text[place : place + 20]!r} of {text}")
            place = match.end()
            yield str(match.lastgroup), match[str(match.lastgroup)]
        yield "end", ""

    def whole(self) -> Run:
        run = self._choice()
        if self._tokens[self._at][0] != "end":
            raise SyntaxError(f"{self._tokens[self._at][1]!r} is too much in {self._text}")
        return run

    def _take(self, *signs: str) -> str:
        """The next sign or word, if it is one of these; else empty."""
        kind, word = self._tokens[self._at]
        if kind in ("sign", "name") and word in signs:
            self._at += 1
            return word
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise SyntaxError(f"{sign!r} is needed, not {self._tokens[self._at][1]!r}, in {self._text}")

    def _choice(self) -> Run:
        condition = self._either()
        if not self._take("?"):
            return condition
        one = self._either()
        self._need(":")
        other = self._choice()
        return lambda scope: (one if _yes_no(condition(scope)) else other)(scope)

    def _either(self) -> Run:
        left = self._both()
        while self._take("||"):
            left = _absorbing(left, self._both(), True)
        return left

    def _both(self) -> Run:
        left = self._relation()
        while self._take("&&"):
            left = _absorbing(left, self._relation(), False)
        return left

    def _relation(self) -> Run:
        left = self._sum()
        while sign := self._take("==", "!=", "<=", ">=", "<", ">", "in"):
            left = _relation(sign, left, self._sum())
        return left

    def _sum(self) -> Run:
        left = self._not()
        while self._take("+"):
            left = _sum(left, self._not())
        return left

    def _not(self) -> Run:
        if self._take("!"):
            inner = self._not()
            return lambda scope: not _yes_no(inner(scope))
        if self._take("-"):
            number = self._not()
            return lambda scope: -number(scope)
        return self._member()

    def _member(self) -> Run:
        run = self._primary()
        while True:
            if self._take("."):
                name = self._tokens[self._at][1]
                self._at += 1
                run = self._method(run, name) if self._take("(") else _field(run, name)
            elif self._take("["):
                run = _entry(run, self._choice())
                self._need("]")
            else:
                return run

    def _primary(self) -> Run:
        kind, word = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number = float(word) if "." in word else int(word)
            return lambda scope: number
        if kind == "text":
            text = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), word[1:-1])
            return lambda scope: text
        if word == "(":
            run = self._choice()
            self._need(")")
            return run
        if word == "[":
            entries = self._arguments("]")
            return lambda scope: [entry(scope) for entry in entries]
        if kind != "name":
            raise SyntaxError(f"{word!r} is not expected in {self._text}")
        if word == "has" and self._take("("):
            return self._has()
        if self._take("("):
            arguments = self._arguments(")")
            if word not in _FUNCTIONS:
                raise SyntaxError(f"no function {word} in {self._text}")
            return lambda scope: _FUNCTIONS[word](*(argument(scope) for argument in arguments))
        if word in _CONSTANTS:
            return lambda scope: _CONSTANTS[word]
        return lambda scope: _lookup(scope, word)

    def _arguments(self, end: str) -> list[Run]:
        found: list[Run] = []
        while not self._take(end):
            found.append(self._choice())
            if not self._take(","):
                self._need(end)
                break
        return found

    def _has(self) -> Run:
        start = self._at
        self._member()
        end = self._at
        self._need(")")
        (sign, _dot), (kind, name) = self._tokens[end - 2], self._tokens[end - 1]
        if end - start < 3 or sign != "sign" or kind != "name":
            raise SyntaxError(f"has() takes a field, in {self._text}")
        whole = _Parser("x")
        whole._tokens, whole._text = [*self._tokens[start : end - 2], ("end", "")], self._text
        around = whole.whole()
        return lambda scope: name in _mapping(around(scope))

    def _method(self, run: Run, name: str) -> Run:
        if name in _MACROS:
            variable = self._tokens[self._at][1]
            self._at += 1
            self._need(",")
            test = self._choice()
            self._need(")")
            return lambda scope: _macro(name, [(one, test, {**scope, variable: one}) for one in _listed(run(scope))])
        arguments = self._arguments(")")
        if name in _COMPARES:
            return lambda scope: _compare(name, run(scope), *(argument(scope) for argument in arguments))
        if name not in _METHODS:
            raise SyntaxError(f"no method {name} in {self._text}")
        return lambda scope: _METHODS[name](_text(run(scope)), *(argument(scope) for argument in arguments))


def _lookup(scope: Scope, name: str) -> t.Any:
    if name not in scope:
        raise SyntaxError(f"undeclared reference to {name}")
    return scope[name]


def _mapping(value: t.Any) -> t.Mapping[str, t.Any]:
    if not isinstance(value, dict):
        raise Fault("no such overload")
    return value


def _listed(value: t.Any) -> list[t.Any]:
    """What a macro runs over: entries of a list, keys of a mapping."""
    if not isinstance(value, (list, dict)):
        raise Fault("no such overload")
    return list(value)


def _text(value: t.Any) -> str:
    if not isinstance(value, str):
        raise Fault("no such overload")
    return value


def _yes_no(value: t.Any) -> bool:
    if not isinstance(value, bool):
        raise Fault("no such overload")
    return value


def _field(run: Run, name: str) -> Run:
    def read(scope: Scope) -> t.Any:
        value = _mapping(run(scope))
        if name not in value:
            raise Fault(f"no such key: {name}")
        return value[name]

    return read


def _entry(run: Run, place: Run) -> Run:
    def read(scope: Scope) -> t.Any:
        try:
            return run(scope)[place(scope)]
        except (KeyError, IndexError, TypeError) as error:
            raise Fault(f"no such key: {error}") from error

    return read


def _absorbing(left: Run, right: Run, decides: bool) -> Run:
    """``||`` (decided by true) and ``&&``: a side that decides hides a fault of the other."""

    def run(scope: Scope) -> bool:
        try:
            if _yes_no(left(scope)) is decides:
                return decides
        except Fault:
            if _yes_no(right(scope)) is decides:
                return decides
            raise
        return _yes_no(right(scope))

    return run


def _relation(sign: str, left: Run, right: Run) -> Run:
    def run(scope: Scope) -> bool:
        one, other = left(scope), right(scope)
        if sign == "in":
            if not isinstance(other, (list, dict)):
                raise Fault("no such overload")
            return one in other
        if sign in ("==", "!="):
            same = one == other and isinstance(one, bool) is isinstance(other, bool)
            return same is (sign == "==")
        if isinstance(one, str) is not isinstance(other, str):
            raise Fault("no such overload")
        return bool({"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign])

    return run


def _sum(left: Run, right: Run) -> Run:
    def run(scope: Scope) -> t.Any:
        one, other = left(scope), right(scope)
        if type(one) is not type(other):
            raise Fault("no such overload")
        return one + other

    return run


def _macro(name: str, cases: list[tuple[t.Any, Run, Scope]]) -> t.Any:
    if name == "filter":
        return [one for one, test, scope in cases if _yes_no(test(scope))]
    if name == "exists_one":
        return sum(_yes_no(test(scope)) for _one, test, scope in cases) == 1
    decides, fault = name == "exists", None
    for _one, test, scope in cases:
        try:
            if _yes_no(test(scope)) is decides:
                return decides
        except Fault as error:
            fault = error
    if fault is not None:
        raise fault
    return not decides


def _matches(text: str, pattern: str) -> bool:
    """RE2 looks for the pattern anywhere, and its ``$`` is the end of the text alone."""
    return re.search(re.sub(r"(?<![\\\[])\$", r"\\Z", pattern), text) is not None


def _string(value: t.Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_COMPARES: dict[str, t.Callable[[t.Any, t.Any], t.Any]] = {
    "compareTo": lambda one, other: int(one > other) - int(one < other),
    "isGreaterThan": lambda one, other: one > other,
    "isLessThan": lambda one, other: one < other,
}


def _compare(name: str, one: t.Any, other: t.Any) -> t.Any:
    if not isinstance(one, Ordered) or not isinstance(other, Ordered) or type(one.value) is not type(other.value):
        raise Fault("no such overload")
    return _COMPARES[name](one.value, other.value)


def _quantity(text: str) -> Ordered:
    try:
        return Ordered(decimal.Decimal(quantity(text)))
    except ValueError as error:
        raise Fault(str(error)) from error


_FUNCTIONS: dict[str, t.Callable[..., t.Any]] = {
    "size": len,
    "string": _string,
    "int": int,
    "double": float,
    "type": type,
    "quantity": _quantity,
    "semver": semver,
}
_METHODS: dict[str, t.Callable[..., t.Any]] = {
    "matches": _matches,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "lowerAscii": str.lower,
    "replace": str.replace,
    "size": len,
}
