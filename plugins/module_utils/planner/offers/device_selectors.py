# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The selectors of device requests (CEL), as far as requests for GPUs use the language; strict about everything else.

``verdict`` says yes, no, or that it cannot be known. A library of CEL would say yes or no: it knows no attribute whose value becomes known
with the machine alone. What is not understood raises NotUnderstood, and nothing is rented by it.

Understood are ``device.driver``, ``device.attributes["domain"].name``, ``device.capacity["domain"].name`` (``["name"]`` as well),
``device.allowMultipleAllocations``, literals and lists, ``&& || !``, comparisons, ``in``, ``quantity()`` and ``semver()`` with ``compareTo``,
``isGreaterThan`` and ``isLessThan``, and of texts ``startsWith``, ``endsWith``, ``contains``, ``matches`` and ``lowerAscii``.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ...model.devices import Amount, DeviceProfile, SemVer
from ...units.values import whole

STANDARD = "resource.kubernetes.io"  # the domain of attributes that all drivers share
LONGEST = 10 * 1024  # characters of an expression, as the API server takes it
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?![\w.]))|(?P<text>"(?:[^"\\\n]|\\["'\\])*"|'(?:[^'\\\n]|\\["'\\])*')|(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[<>=!]=|[-!<>.,()\[\]]))""",
    re.VERBOSE,
)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
Term = t.Callable[[DeviceProfile], t.Any]


class NotUnderstood(ValueError):
    """An expression of another kind than those above."""


class _Open(Exception):
    """The value depends on something that is not known yet."""


class _Fails(Exception):
    """The expression has no value for this device: no such key, no such overload. The scheduler places no pod by it."""


class _Map:
    """``device.attributes`` or ``device.capacity`` of one domain."""

    def __init__(self, profile: DeviceProfile, values: t.Iterable[tuple[str, t.Any]], domain: str) -> None:
        self.values = {name.rpartition("/")[2]: value for name, value in values if name.rpartition("/")[0] == domain}
        self.open = profile.planned and domain in (profile.driver, STANDARD)

    def has(self, name: str) -> bool:
        if name not in self.values and self.open:
            raise _Open(name)
        return name in self.values

    def get(self, name: str) -> t.Any:
        if not self.has(name):
            raise _Fails(f"no such key: {name}")
        return self.values[name]


def verdict(expression: str, profile: DeviceProfile) -> tuple[bool | None, str]:
    """Whether the device meets the selector: None = not known before the machine exists, with what it depends on. An expression that fails
    for the device is not met, with the reason."""
    try:
        return _yes_no(compiled(expression)(profile)), ""
    except _Open as unknown:
        return None, str(unknown)
    except _Fails as failure:
        return False, f"CEL runtime error: {failure}"


@functools.lru_cache(maxsize=1024)
def compiled(expression: str) -> Term:
    """The expression as a function of a device. NotUnderstood for what is not of the subset."""
    if len(expression) > LONGEST:
        raise NotUnderstood("it is longer than 10 KiB")
    try:
        return _Parser(expression).whole()
    except RecursionError:
        raise NotUnderstood("it is nested too deeply") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                raise NotUnderstood(f"at {text[place : place + 20].strip()!r}")
            place = match.end()
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        self._tokens.append(("end", "its end"))
        self._at = 0

    def whole(self) -> Term:
        term = self._or()
        if self._tokens[self._at][0] != "end":
            raise NotUnderstood(f"at {self._tokens[self._at][1]!r}")
        return term

    def _take(self, *words: str) -> str:
        kind, word = self._tokens[self._at]
        if kind in ("sign", "name") and word in words:
            self._at += 1
            return word
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise NotUnderstood(f"{sign!r} is missing before {self._tokens[self._at][1]!r}")

    def _next(self, kind: str) -> str:
        found, word = self._tokens[self._at]
        if found != kind:
            raise NotUnderstood(f"at {word!r}")
        self._at += 1
        return word

    def _or(self) -> Term:
        left = self._and()
        while self._take("||"):
            left = _either(left, self._and(), True)
        return left

    def _and(self) -> Term:
        left = self._relation()
        while self._take("&&"):
            left = _either(left, self._relation(), False)
        return left

    def _relation(self) -> Term:
        left = self._not()
        if sign := self._take("==", "!=", "<=", ">=", "<", ">", "in"):
            return _compared(sign, left, self._not())
        return left

    def _not(self) -> Term:
        if self._take("!"):
            inner = self._not()
            return lambda profile: not _yes_no(inner(profile))
        if self._take("-"):
            number = -int(self._next("number"))
            return lambda _profile: number
        return self._methods(self._primary())

    def _methods(self, term: Term) -> Term:
        while self._take("."):
            name = self._next("name")
            if name not in _METHODS:
                raise NotUnderstood(f"method {name}")
            self._need("(")
            arguments = self._arguments(")")
            term = _call(name, term, arguments)
        return term

    def _arguments(self, end: str) -> list[Term]:
        found: list[Term] = []
        if self._take(end):
            return found
        while True:
            found.append(self._or())
            if self._take(end):
                return found
            self._need(",")

    def _primary(self) -> Term:
        kind, word = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return lambda _profile: int(word)
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", word[1:-1])
            return lambda _profile: text
        if word == "(":
            inner = self._or()
            self._need(")")
            return inner
        if word == "[":
            entries = self._arguments("]")
            return lambda profile: [entry(profile) for entry in entries]
        if word in ("true", "false"):
            return lambda _profile: word == "true"
        if word in ("quantity", "semver"):
            return self._constant(word)
        if word == "device":
            return self._device()
        raise NotUnderstood(f"at {word!r}")

    def _constant(self, word: str) -> Term:
        self._need("(")
        text = self._next("text")[1:-1]
        self._need(")")
        value: t.Any = _quantity(text) if word == "quantity" else _version(text)
        return lambda _profile: value

    def _device(self) -> Term:
        self._need(".")
        field = self._next("name")
        if field == "driver":
            return lambda profile: profile.driver
        if field == "allowMultipleAllocations":
            return lambda profile: _Map(profile, profile.attributes, profile.driver).get(field) if profile.planned else False
        if field not in ("attributes", "capacity"):
            raise NotUnderstood(f"device.{field}")
        self._need("[")
        domain = self._next("text")[1:-1]
        self._need("]")

        def entries(profile: DeviceProfile) -> _Map:
            return _Map(profile, profile.attributes if field == "attributes" else profile.capacity, domain)

        if self._take("["):
            name = self._next("text")[1:-1]
            self._need("]")
        elif self._tokens[self._at] == ("sign", "."):
            self._at += 1
            name = self._next("name")
        else:  # of ``"name" in device.attributes["domain"]``
            return entries
        return lambda profile: entries(profile).get(name)


def _quantity(text: str) -> Amount:
    try:
        return Amount(whole(text))
    except ValueError as error:
        raise NotUnderstood(str(error)) from error


def _version(text: str) -> SemVer:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise NotUnderstood(f"version {text!r}")
    return SemVer(*map(int, match.groups()))


def _yes_no(value: t.Any) -> bool:
    if not isinstance(value, bool):
        raise _Fails("no such overload")
    return value


def _either(left: Term, right: Term, decides: bool) -> Term:
    """``||`` and ``&&``: one side that decides hides what is not known of the other, or that it fails."""

    def run(profile: DeviceProfile) -> bool:
        trouble: list[Exception] = []
        for side in (left, right):
            try:
                if _yes_no(side(profile)) is decides:
                    return decides
            except (_Open, _Fails) as error:
                trouble.append(error)
        if trouble:
            raise next((error for error in trouble if isinstance(error, _Open)), trouble[0])
        return not decides

    return run


def _compared(sign: str, left: Term, right: Term) -> Term:
    def run(profile: DeviceProfile) -> bool:
        one, other = left(profile), right(profile)
        if sign == "in":
            if isinstance(other, _Map) and isinstance(one, str):
                return other.has(one)
            if isinstance(other, list):
                return any(type(one) is type(entry) and one == entry for entry in other)
            raise _Fails("no such overload")
        if type(one) is not type(other) or isinstance(one, (_Map, list)):
            raise _Fails("no such overload")
        if sign in ("==", "!="):
            return bool((one == other) is (sign == "=="))
        if isinstance(one, (Amount, SemVer)):  # these are compared by methods
            raise _Fails("no such overload")
        return bool({"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign])

    return run


def _order(one: t.Any, other: t.Any) -> int:
    if type(one) is not type(other) or not isinstance(one, (Amount, SemVer)):
        raise _Fails("no such overload")
    return int(one > other) - int(one < other)


def _text(method: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    def run(*values: t.Any) -> t.Any:
        if not all(isinstance(value, str) for value in values):
            raise _Fails("no such overload")
        return method(*values)

    return run


def _matches(text: str, pattern: str) -> bool:
    """RE2 looks for the pattern anywhere. What Python's expressions have beside RE2's is not understood."""
    if re.search(r"\(\?|\\[1-9zZ]|[+*?}]\+", pattern):
        raise _Open(f"the pattern {pattern!r}")
    try:
        return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), text) is not None
    except re.error:
        raise _Fails(f"the pattern {pattern!r}") from None


#: a method: how many arguments it takes, and what it does
_METHODS: dict[str, tuple[int, t.Callable[..., t.Any]]] = {
    "compareTo": (1, _order),
    "isGreaterThan": (1, lambda one, other: _order(one, other) > 0),
    "isLessThan": (1, lambda one, other: _order(one, other) < 0),
    "startsWith": (1, _text(str.startswith)),
    "endsWith": (1, _text(str.endswith)),
    "contains": (1, _text(str.__contains__)),
    "matches": (1, _text(_matches)),
    "lowerAscii": (0, _text(str.lower)),
}


def _call(name: str, term: Term, arguments: t.Sequence[Term]) -> Term:
    count, method = _METHODS[name]
    if len(arguments) != count:
        raise NotUnderstood(f"{name} with {len(arguments)} arguments")
    return lambda profile: method(term(profile), *(argument(profile) for argument in arguments))
